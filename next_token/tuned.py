"""How is a fine-tuned model kept, so that `classify` can use it? In three files that run no code.

    folder/task.json            family, labels, and the sizes of the model
    folder/tokenizer.json       text to ids
    folder/model.safetensors    the weights

Used by `run_commands`; the model is derived in the chapter `gpt/gpt1_finetuning`.
"""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from src.gpt.backbones import NEW_TOKENS, built_from, settings_of
from src.gpt.gpt1_finetuning import TaskModel, Tuned
from src.gpt.input_forms import InputForms
from src.likelihood.fitting import History
from src.tokens import files as tokenizer_files
from src.tools import checkpoints
from src.tools.files import replacing, write_text

_FORMAT = "next-token task 1"


def save(tuned: Tuned, folder: Path | str) -> Path:
    """Keep a fine-tuned model in three files, none of which can run code; return the folder.

    Each of `task.json`, `tokenizer.json` and `model.safetensors` takes its place whole or not at
    all.
    """
    folder, forms = Path(folder), tuned.forms
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer_files.save(forms.tokenizer, folder / "tokenizer.json")
    content = {
        "format": _FORMAT,
        "family": forms.family,
        "labels": forms.labels,
        "cut": forms.cut,
        "backbone": settings_of(tuned.model.backbone),
    }
    write_text(folder / "task.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    with replacing(folder / "model.safetensors") as path:
        # Clones: tied parameters have two names and one memory, which the format refuses.
        save_file({n: v.clone().contiguous() for n, v in tuned.model.state_dict().items()}, path)
    return folder


def load(folder: Path | str, *, device: torch.device | str = "cpu") -> Tuned:
    """The model that `save` kept, without its history.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: one is damaged, or of another format or model.
    """
    folder = Path(folder)
    path = folder / "task.json"
    if not path.is_file():
        raise FileNotFoundError(f"expected a fine-tuned model in {folder}, found no {path.name}")
    tokenizer = tokenizer_files.load(folder / "tokenizer.json")
    with tokenizer_files.naming(path):
        content = tokenizer_files.read_json(path)
        if content["format"] != _FORMAT:
            raise ValueError(f"expected the format {_FORMAT!r}, got {content['format']!r}")
        backbone, labels = built_from(content["backbone"]), tuple(content["labels"])
        forms = InputForms(
            content["family"], labels, tokenizer, backbone.context_length, content["cut"]
        )
        generator = torch.Generator().manual_seed(0)
        model = TaskModel(backbone, forms.family, len(labels), generator=generator)
    size = backbone.vocabulary_size - NEW_TOKENS
    if tokenizer.vocabulary_size != size:
        got = tokenizer.vocabulary_size
        raise ValueError(f"expected a tokenizer of {size} tokens in {folder}, got {got}")
    path = folder / "model.safetensors"
    try:
        checkpoints.restore(model, load_file(path), source=path)
    except SafetensorError as error:
        raise ValueError(f"expected a whole safetensors file at {path}, got: {error}") from error
    return Tuned(model.to(device).eval(), forms, History())
