"""Next to which line does a learning curve mean something? The floor, and a model that counts.

    a perfect model     mean surprise of the validation documents under the micro-world itself
    n-gram model        Kneser-Ney on the training part, on the very batches of the validation loss

Used by `next-token plot`.
"""

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from src.gpt.released import floor_of, read_toml
from src.likelihood.smoothing import NgramModel
from src.tokens.bytes import END

from .folders import open_tokenizer
from .runs import batches_of, config_in, parts_of


def yardsticks(folder: Path, *, order: int | None = None) -> dict[str, float]:
    """{name: nats per token} of what a run's validation loss can be set beside.

    Args:
        folder: of a run.
        order: n of the n-gram model, which reads all tokens of the training part at once; None:
            without one.
    Raises:
        FileNotFoundError: the folder holds no run. ValueError: the order is below 1, or the text is
            no longer there, or another one.
    """
    tables = read_toml(folder / "run.toml")
    config = config_in(tables)
    found: dict[str, float] = {}
    if config.micro_world() and config.data.tokenizer == "words":  # of no others
        floor = floor_of(tables, list(parts_of(tables).validation))
        found |= {"a perfect model": floor.loss} if floor else {}
    if order is not None:
        found[f"{order}-gram model"] = _counted(tables, folder, order)
    return found


def _counted(tables: Mapping[str, Mapping[str, Any]], folder: Path, order: int) -> float:
    config, tokenizer = config_in(tables), open_tokenizer(folder)
    of_training, of_validation = batches_of(
        config, tokenizer, config.token_folder() or parts_of(tables)
    )
    stream: Any = of_training.ids
    ids: Any = stream.numpy() if isinstance(stream, torch.Tensor) else stream.piece(0, len(stream))
    model = NgramModel.fit(
        ids,
        order=order,
        vocabulary_size=tokenizer.vocabulary_size,
        end=tokenizer.specials[END],
    )
    scored = islice(of_validation, config.data.validation_batches)
    rows: list[Any] = [torch.cat([inputs, targets[:, -1:]], 1) for inputs, targets in scored]
    return float(np.mean([model.score(row.numpy()) for row in rows]))
