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
from collections.abc import Collection, Mapping
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
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"expected a checkpoint in {path}, found no file")
    if not zipfile.is_zipfile(path):  # the table of contents stands at the end
        raise ValueError(
            f"expected a checkpoint in {path}, got {path.stat().st_size} bytes that are none: was "
            "the file truncated, or is it of another format under this name?"
        )
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"expected only tensors and plain values in {path}, and refused to read more, which "
            f"could run any program: {str(error).splitlines()[0]}"
        ) from error
    except (RuntimeError, EOFError, KeyError) as error:
        raise ValueError(f"expected a checkpoint in {path}, could not read it: {error}") from error
    if not isinstance(state, dict):
        raise ValueError(f"expected a dictionary in {path}, got {type(state).__name__}")
    return state


def restore(model: nn.Module, weights: Mapping[str, Tensor], *, source: Path | str) -> None:
    """Copy weights into a model, or change nothing if a name or a shape does not fit.

    Args:
        model: its parameters and buffers are overwritten.
        weights: what its `state_dict()` gave, whatever the device.
        source: where they come from, for the message.
    Raises:
        ValueError: the two do not have the same tensors, of the same shapes.
    """
    check_fits(model, weights, source=source)
    model.load_state_dict(weights)


def check_fits(model: nn.Module, weights: Mapping[str, Tensor], *, source: Path | str) -> None:
    """Raise a ValueError unless weights have the names and the shapes of a model's tensors."""
    own = model.state_dict()
    missing, surplus = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    if missing or surplus:
        raise ValueError(
            f"expected the tensors of this model in {source}: missing {missing[:3]}, not known "
            f"{surplus[:3]} ({len(missing)} and {len(surplus)} in all); is it another model?"
        )
    for name, value in own.items():
        if weights[name].shape != value.shape:
            raise ValueError(
                f"expected {name} of shape {tuple(value.shape)}, this model's, in {source}, got "
                f"{tuple(weights[name].shape)}; is it a model of another size?"
            )


def check_same(
    saved: Mapping[str, Any],
    now: Mapping[str, Any],
    *,
    source: Path | str,
    free: Collection[str] = (),
) -> list[str]:
    """Refuse to resume a run with other settings than it was begun with; name what may differ.

    Args:
        saved, now: plain values by name; None is as good as no entry.
        source: where the saved ones come from, for the message.
        free: names of settings that may differ.
    Returns:
        Those of them that do, in order of the alphabet.
    Raises:
        ValueError: two other settings differ.
    """
    differ = [n for n in sorted(saved.keys() | now.keys()) if saved.get(n) != now.get(n)]
    for name in differ:
        if name not in free:
            raise ValueError(
                f"expected the settings that {source} was saved with, got {name} = "
                f"{now.get(name)!r}, saved with {saved.get(name)!r}: resume with the same, or "
                "begin in another folder"
            )
    return differ


def random_state(device: torch.device) -> dict[str, Any]:
    """Where all global random number generators stand: Python's, NumPy's, torch's, the device's."""
    numpys = np.random.get_state(legacy=False)
    key = torch.from_numpy(numpys["state"]["key"].astype(np.int64))
    state = {
        "python": random.getstate(),
        "numpy": numpys | {"state": numpys["state"] | {"key": key}},
        "torch": torch.get_rng_state(),
    }
    if device.type != "cpu":
        state[device.type] = getattr(torch, device.type).get_rng_state()
    return state


def set_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    """Put all global generators back to where `random_state` found them."""
    random.setstate(state["python"])
    key = state["numpy"]["state"]["key"].numpy().astype(np.uint32)
    np.random.set_state(state["numpy"] | {"state": state["numpy"]["state"] | {"key": key}})
    torch.set_rng_state(state["torch"])
    if device.type in state:
        getattr(torch, device.type).set_rng_state(state[device.type])
