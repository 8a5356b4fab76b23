"""`src.tools.runtime`: which device, which seed, and how fast it is."""

import random

import numpy as np
import pytest
import torch

from next_token import gpus
from src.tools import runtime


def test_the_argument_chooses_the_device_else_the_environment_variable(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("NEXT_TOKEN_DEVICE", "cpu")
    assert runtime.device() == torch.device("cpu")
    monkeypatch.setenv("NEXT_TOKEN_DEVICE", "nonsense")
    assert runtime.device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("cuda", "mps", "best"), [(1, 1, "cuda"), (0, 1, "mps"), (0, 0, "cpu"), (1, 0, "cuda")]
)
def test_unasked_the_best_device_is_taken(monkeypatch, cuda, mps, best):
    monkeypatch.delenv("NEXT_TOKEN_DEVICE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(cuda))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: bool(mps))
    assert runtime.device().type == best


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "CPU", "tpu"])
def test_an_unknown_device_is_named_with_those_that_are_here(name):
    with pytest.raises(ValueError, match=rf"a device of \['cpu'\], got '{name}'"):
        runtime.device(name)


def test_a_device_that_is_not_here_is_refused_with_what_is(monkeypatch):
    monkeypatch.setenv("NEXT_TOKEN_DEVICE", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"\['cpu'\].*unset NEXT_TOKEN_DEVICE"):
        runtime.device()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert runtime.device("cuda:0") == torch.device("cuda:0")


def test_one_seed_repeats_all_four_generators():
    def draws():
        generator = runtime.seed_everything(11)
        return (
            random.random(),
            np.random.rand(),
            torch.rand(()).item(),
            torch.rand(3, generator=generator),
        )

    first, second = draws(), draws()
    assert first[:3] == second[:3]
    own = torch.rand(3, generator=torch.Generator().manual_seed(11))
    assert torch.equal(first[3], own)  # it does not move with the global one
    assert torch.equal(second[3], own)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ValueError, match="between 0 and"):
        runtime.seed_everything(seed)


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312e12),
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989e12),
        ("NVIDIA H100 PCIe", "float32", 378e12),
        ("NVIDIA GH200 480GB", "bfloat16", 989e12),
        ("NVIDIA GeForce GT 710", "bfloat16", None),
        ("NVIDIA H100 NVL", "bfloat16", 835e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bfloat16", None),
        ("GRID A100-10C", "bfloat16", None),
        ("NVIDIA L40S", "bfloat16", None),
        ("NVIDIA RTX A1000 Laptop GPU", "bfloat16", None),
    ],
)
def test_the_peak_of_a_gpu_is_looked_up_by_its_name(monkeypatch, name, precision, peak):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert gpus.peak_flops(torch.device("cuda"), precision) == peak
    if peak:
        assert gpus.peak_flops(torch.device("cuda"), precision, 8) == 8 * peak
    assert gpus.peak_flops(torch.device("cpu"), precision) is None


@pytest.mark.parametrize(("supported", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_a_gpu_multiplies_in_bfloat16_where_it_can(monkeypatch, supported, precision):
    chosen = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", chosen.append)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: supported)
    assert gpus.fast_precision(torch.device("cpu")) == "float32"
    assert chosen == []
    assert gpus.fast_precision(torch.device("cuda")) == precision
    assert chosen == ["high"]
