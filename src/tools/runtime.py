"""On which device does a chapter run, and will it give the same numbers tomorrow?

Two questions, two functions: where (`device`), and from which random numbers (`seed_everything`).
One setting cannot be made from inside: PYTHONHASHSEED is read when Python starts, so nothing in
`src` may depend on the order of a set. Why the order of a sum matters is shown in
`gpt/optimisation`.
"""

import os
import random

import numpy as np
import torch


def device(name: str | None = None) -> torch.device:
    """The device to compute on: the one asked for, or the best there is.

    Args:
        name: "cpu", "cuda" (or "cuda:1", …) or "mps"; None: the environment variable
            NEXT_TOKEN_DEVICE; where that is not set, the first of cuda, mps, cpu that is here.
    Raises:
        ValueError: the name is not one of these, or this machine has no such device. (torch
            itself refuses a number that is too high.)
    """
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    here = [*(kind for kind in present if present[kind]), "cpu"]
    name = name or os.environ.get("NEXT_TOKEN_DEVICE") or here[0]
    if name.partition(":")[0] not in here:
        raise ValueError(f"expected a device of {here}, got {name!r}; unset NEXT_TOKEN_DEVICE?")
    return torch.device(name)


def seed_everything(seed: int) -> torch.Generator:
    """Seed Python's, NumPy's and torch's global generators; return one of its own, on the CPU.

    Pass the returned generator to whatever draws. The global ones are seeded for code that asks
    for no generator: layers that initialise their own weights, dropout, other libraries.
    (`np.random.default_rng(seed)` seeds none of them: it returns a generator and changes nothing.)

    Args:
        seed: 0 … 2**32 - 1, the range that NumPy accepts.
    Raises:
        ValueError: the seed is out of range.
    """
    np.random.seed(seed)  # the global generator is the point
    random.seed(seed)
    torch.manual_seed(seed)  # every device
    return torch.Generator().manual_seed(seed)


def rng_of(generator: torch.Generator) -> random.Random:
    """Python's generator, seeded by torch's: for single words, torch's own draws cost too much."""
    return random.Random(
        int(torch.randint(2**62, (), generator=generator, device=generator.device))
    )
