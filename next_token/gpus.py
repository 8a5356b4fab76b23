"""What can a GPU do at most, and in which numbers should it multiply?

Used by `run_log` and `run_commands`.
"""

import re

import torch

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
