"""On which device does a chapter run, and will it give the same numbers tomorrow?

Two questions, two functions: where (`device`), and from which random numbers (`seed_everything`).
One setting cannot be made from inside: PYTHONHASHSEED is read when Python starts, so nothing in
`src` may depend on the order of a set. Why the order of a sum matters is shown in
`likelihood/maximum_likelihood`.
"""

import os
import random
import re

import numpy as np
import torch

_DEVICES = ("cpu", "cuda", "mps")


def device(name: str | None = None) -> torch.device:
    """The device to compute on: the one asked for, or the best there is.

    Args:
        name: "cpu", "cuda" (or "cuda:1", …) or "mps"; None: the environment variable
            NEXT_TOKEN_DEVICE; where that is not set, the first of cuda, mps, cpu that is here.
    Raises:
        ValueError: the name is not one of these, or this machine has no such device.
    """
    present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    name = name or os.environ.get("NEXT_TOKEN_DEVICE")
    if not name:
        return torch.device(next(kind for kind, here in present.items() if here))
    kind, _, index = name.partition(":")
    if kind not in present or (index and not index.isdigit()):
        raise ValueError(
            f"expected a device among {_DEVICES} (NEXT_TOKEN_DEVICE, or the argument), got {name!r}"
        )
    if not present[kind] or (kind == "cuda" and int(index or 0) >= torch.cuda.device_count()):
        raise ValueError(
            f"expected a device that this machine has, {[k for k in present if present[k]]}, "
            f"got {name!r}; unset NEXT_TOKEN_DEVICE to use the best there is"
        )
    return torch.device(name)


# Dense products of matrices per second in bfloat16, by NVIDIA's data sheets; TF32 has half of it.
# The first name that fits counts.
_PEAKS = {
    "GH200": 989e12,
    "H200 NVL": 835e12,
    "H200": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L4": 121e12,
}


def peak_flops(device: torch.device, precision: str, devices: int = 1) -> float | None:
    """How many operations some devices of one kind do in a second at most; None: not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    if re.search(r"\b(MIG|GRID)\b", name):  # a part of a card
        return None
    for known, peak in _PEAKS.items():
        if re.search(rf"\b{known}\b", name):  # an L40S is no L4, an A1000 no A100
            return devices * peak / (1 if precision == "bfloat16" else 2)
    return None


def fast_precision(device: torch.device) -> str:
    """What products of matrices should be taken in: on a GPU that has it bfloat16, else float32.

    On a GPU, products that stay in float32 may be taken in TF32 from here on.
    """
    if device.type != "cuda":
        return "float32"
    torch.set_float32_matmul_precision("high")  # TF32: 10 bits of the mantissa where 23 are kept
    return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"


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
    if not 0 <= seed < 2**32:
        raise ValueError(f"expected a seed from 0 to {2**32 - 1}, got {seed}")
    random.seed(seed)
    np.random.seed(seed)  # the global generator is the point
    torch.manual_seed(seed)  # every device
    return torch.Generator().manual_seed(seed)


def rng_of(generator: torch.Generator) -> random.Random:
    """Python's generator, seeded by torch's: for single words, torch's own draws cost too much."""
    return random.Random(
        int(torch.randint(2**62, (), generator=generator, device=generator.device))
    )
