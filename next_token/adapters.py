"""How is what LoRA learns kept without its model, resumed, and put beside the model again?

    folder/adapter.toml      the settings, and the SHA-256 of the model's file
    folder/last.pt           A and B, with all that the next step depends on: to resume
    folder/best.pt           A and B of the least validation loss: to use

An `Adapter` is a module whose own parameters are A and B alone, and which calls the whole model. So
the loop of `gpt/training` keeps and restores what learns, and nothing else. To use an adapter, it
is merged: the model is then as fast as before.

Source: Hu et al. 2022. The maps are derived in the chapter `today/your_own`.
"""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch import Tensor, nn

from src.gpt.gpt2 import GPT
from src.gpt.released import read_toml
from src.gpt.training import load_best
from src.likelihood.fitting import History
from src.today.gguf_models import RealModel, open_model, packaged_file
from src.today.lora import LoRA, add_lora, merge_lora
from src.tools.files import sha256_of, write_text

from .engines import check_last, train
from .run_config import RunConfig
from .runs import batches_of, check_free

PACKAGED = "smollm2"
SETTINGS = "adapter.toml"


@dataclass(frozen=True)
class LoRAConfig:
    """What an adapter must have in common with the run that is resumed.

    Attributes:
        rank, alpha: as for `lora.LoRA`.
        base: SHA-256 of the file of the model that it belongs to.
    """

    rank: int
    alpha: float
    base: str


class Adapter(nn.Module):
    """A model with LoRA beside each of its linear maps; its own parameters are A and B alone.

    Args:
        model: is changed; it is called, but is no part of what is kept.
        config: rank and alpha.
        generator: draws each A.
    """

    def __init__(self, model: GPT, config: LoRAConfig, *, generator: torch.Generator):
        super().__init__()
        add_lora(model, rank=config.rank, alpha=config.alpha, generator=generator)
        self.config = config
        self._around = [model]  # in a list, so that it is no submodule
        for name, part in model.named_modules():
            if isinstance(part, LoRA):
                for own, parameter in part.named_parameters(recurse=False):
                    self.register_parameter(f"{name}.{own}".replace(".", "/"), parameter)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, V), as of the model."""
        return self._around[0](ids)


def path_of(model: str | os.PathLike[str]) -> Path:
    """The GGUF file that is meant: a path, or the word for the packaged one."""
    return packaged_file() if model == PACKAGED else Path(model)


def train_adapter(
    config: RunConfig,
    folder: Path | str,
    *,
    rank: int,
    alpha: float,
    device: torch.device | str = "cpu",
    resume: bool = False,
    progress: bool = True,
    changed: Callable[[str], None] | None = None,
) -> History:
    """Let LoRA learn a text beside the model of a GGUF file; keep A and B in a folder.

    Args:
        config: text, batches, context and training; `data.init_from` is the file.
        rank, alpha: as for `lora.LoRA`.
        changed: as in `engines.train`.
    Raises:
        FileExistsError: the folder holds an adapter or a run, and it is not to be resumed.
        FileNotFoundError: there is no such model, or no such text.
        ValueError: settings, text or model cannot be, or are not those of the run to be resumed.
    """
    folder = Path(folder)
    if not (resume and (folder / SETTINGS).exists()):
        check_free(folder)
    path = path_of(config.data.init_from)
    real = open_model(path, context_length=config.model["context_length"])
    own = LoRAConfig(rank, alpha, sha256_of(path))
    adapter = Adapter(
        real.model.to(device), own, generator=torch.Generator().manual_seed(config.data.seed)
    )
    of_training, of_validation = batches_of(config, real.tokenizer, config.parts())
    check_last(folder)
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / SETTINGS
    before = settings.read_text(encoding="utf-8") if settings.exists() else None
    if not (folder / "last.pt").exists() or resume:
        write_text(settings, tomli_w.dumps(_tables(config, own)))
    try:
        return train(
            adapter,
            of_training,
            config.training,
            validation=list(islice(of_validation, config.data.validation_batches)),
            folder=folder,
            resume=resume,
            changed=changed,
            progress=progress,
        )
    except ValueError:  # refused: the folder still holds what it held
        if before is not None:
            write_text(settings, before)
        raise


def with_adapter(model: str | os.PathLike[str], folder: Path | str) -> RealModel:
    """A real model into which the adapter of a folder is merged.

    Args:
        model: a GGUF file, or the word for the packaged one.
        folder: what `train_adapter` left there.
    Raises:
        FileNotFoundError: there is no such model, or no adapter in the folder.
        ValueError: the adapter belongs to another model, or is damaged.
    """
    folder, path = Path(folder), path_of(model)
    config = adapter_in(folder)
    if sha256_of(path) != config.base:
        raise ValueError(f"expected the model that the adapter in {folder} is for, got {path}")
    real = open_model(path)
    adapter = Adapter(real.model, config, generator=torch.Generator())
    load_best(adapter, folder)
    merge_lora(real.model)
    return real


def adapter_in(folder: Path | str) -> LoRAConfig:
    """What the adapter in a folder is.

    Raises:
        FileNotFoundError: there is none. ValueError: its settings are damaged.
    """
    path = Path(folder) / SETTINGS
    try:
        table = read_toml(path)["lora"]
        return LoRAConfig(int(table["rank"]), float(table["alpha"]), str(table["base"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected [lora] with rank, alpha and base in {path}: {error}") from error


def _tables(config: RunConfig, own: LoRAConfig) -> dict[str, Any]:
    return {
        **config.tables(),
        "model": {"context_length": config.model["context_length"]},
        "lora": asdict(own),
        "made": {"on": str(date.today()), "torch": torch.__version__},
    }
