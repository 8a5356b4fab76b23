"""How is a run kept on a disk, so that a power cut costs minutes and never the run?

    write: everything into last.pt.part, fsync, rename to last.pt          (rename is atomic)
    read:  tensors and plain values only; whatever else is inside is refused

At every moment the name `last.pt` stands for one whole checkpoint, the old or the new. What is
written is a dictionary of tensors and plain values, so that reading it runs no code: a pickle from
a stranger is a program, a tensor is not.

Derived in the chapter `gpt/training`.
"""

import pickle
import random
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .files import replacing


def write(path: Path | str, state: Mapping[str, Any]) -> None:
    """Write a checkpoint whole or not at all: until the last moment the old one stays in place.

    Args:
        path: the file; its folder is made where it is missing.
        state: tensors and plain values, nested in dictionaries, lists and tuples.
    Raises:
        OSError: the disk is full, or cannot be written to.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")  # what a killed run leaves, the next one overwrites
    try:
        with replacing(path, partial=part), open(part, "wb") as file:
            torch.save(dict(state), file)
    except (OSError, RuntimeError) as error:  # torch closes its archive, and hides why it cannot
        why = error if isinstance(error, OSError) else error.__context__ or error
        raise OSError(f"could not write {path}: {why}; what stood there is whole") from error


def read(path: Path | str) -> dict[str, Any]:
    """What `write` wrote, on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no checkpoint, or truncated, or holds more than tensors and plain values.
    """
    with open(path, "rb") as file:
        try:
            if not zipfile.is_zipfile(file):  # the table of contents stands at the end
                raise EOFError("it is truncated, or of another format")
            file.seek(0)
            return dict(torch.load(file, map_location="cpu", weights_only=True).items())
        except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, AttributeError) as error:
            why = str(error).splitlines()[0]
            raise ValueError(f"expected tensors and plain values in {path}: {why}") from error


def restore(model: nn.Module, weights: Mapping[str, Tensor], *, source: Path | str) -> None:
    """Copy weights into a model.

    Args:
        model: its parameters and buffers are overwritten.
        weights: what its `state_dict()` gave, whatever the device.
        source: where they come from, for the message.
    Raises:
        ValueError: the two do not have the same tensors, of the same shapes.
    """
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{source} does not fit; is it another model? {error}") from error


def random_state(device: torch.device) -> dict[str, Any]:
    """Where all global random number generators stand: Python's, NumPy's, torch's, the device's."""
    state = {
        "python": random.getstate(),
        "numpy": [np.asarray(part).tolist() for part in np.random.get_state()],
        "torch": torch.get_rng_state(),
    }
    if device.type != "cpu":
        state[device.type] = torch.get_device_module(device).get_rng_state()
    return state


def set_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    """Put all global generators back to where `random_state` found them."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if device.type in state:
        torch.get_device_module(device).set_rng_state(state[device.type])
