"""Which tokenizer belongs to a folder, and where is GPT-2's own to be had? No weights are read.

    a run              run.toml         tokenizer.json, ours
    tokens of a text   manifest.json    tokenizer.json, ours
    a released model   config.json      vocab.json with merges.txt, or tokenizer.json, its format

Source: the names are those of OpenAI's `encoder.py` (Radford et al. 2019) and of `transformers`.
Used in the chapter `gpt/gpt2`, and by `next-token tokenize`, whose processes have no use for torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .bpe import BytePairTokenizer, load
from .bytes import END, Tokenizer

TOKENIZER = "tokenizer.json"
MANIFEST = "manifest.json"
GPT2_FILES = ("vocab.json", "merges.txt")  # OpenAI's encoder.json and vocab.bpe


def gpt2_tokenizer(folder: str | os.PathLike[str] | None = None) -> BytePairTokenizer:
    """GPT-2's own tokenizer, fetched unless its two files are there already. 1.5 MB.

    Args:
        folder: as for `fetched`.
    Raises:
        OSError: a file could not be fetched.
    """
    return BytePairTokenizer.load_gpt2(fetched("gpt2", GPT2_FILES, folder))


def fetched(name: str, files: Sequence[str], folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of files of a GPT-2 that OpenAI published, fetched unless they are there already.

    No token is sent, whatever is set. `HF_ENDPOINT` names another server.

    Args:
        name: "gpt2", "gpt2-medium" and so on.
        files: their names.
        folder: where they are kept; None: the cache of `huggingface_hub`.
    Raises:
        OSError: a file could not be fetched.
    """
    import huggingface_hub

    place = Path(folder) if folder else None
    paths = [
        huggingface_hub.hf_hub_download(
            f"openai-community/{name}", file, local_dir=place, token=False
        )
        for file in files
    ]
    return Path(paths[0]).parent


def open_tokenizer(folder: Path | str) -> Tokenizer:
    """The tokenizer of a run, of tokens of a text, or of a released model, without any weights.

    Raises:
        FileNotFoundError: the folder holds none of these, or no tokenizer.
        ValueError: its files are damaged.
    """
    folder = Path(folder)
    if (folder / MANIFEST).exists():
        return load(folder / TOKENIZER)
    released, begun = kinds_in(folder)
    if released and not begun:
        return _released_tokenizer(folder)
    return load(folder / TOKENIZER)


def kinds_in(folder: Path) -> tuple[bool, bool]:
    """Whether a folder holds a model in the released format, and whether it holds a run."""
    released, begun = (folder / "config.json").exists(), (folder / "run.toml").exists()
    if not released and not begun:
        raise FileNotFoundError(
            f"expected a run (run.toml) or a released model (config.json) in {folder}, found "
            "neither; `train` makes a run"
        )
    return released, begun


def _released_tokenizer(folder: Path) -> BytePairTokenizer:
    """The tokenizer of a released model, from whichever of the two forms the folder holds."""
    if (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        return BytePairTokenizer.load_gpt2(folder)
    if (path := folder / TOKENIZER).exists():
        return BytePairTokenizer.load_hugging_face(path, (END,))
    raise FileNotFoundError(
        f"expected a tokenizer in {folder}, vocab.json and merges.txt or tokenizer.json, found "
        "neither; `src.gpt.pretrained.download` fetches one together with the weights"
    )
