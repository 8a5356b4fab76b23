"""`src.today.quantisation`: its bound, its grids, and the blocks of the library `gguf`."""

import gguf
import numpy as np
import pytest
import torch
from oracles import greatest_difference, normal
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from src.gpt.gpt2 import GPT, GPTConfig
from src.today import quantisation
from src.today.quantisation import (
    BITS,
    SLAB,
    PackedLinear,
    changed_inputs,
    pack,
    quantise,
    quantise_model,
)

WEIGHT = normal(6, 64).float()
OPTIONS = [(block, minimum) for block in (None, 32, 8) for minimum in (False, True)]


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(("block", "minimum"), OPTIONS)
def test_no_number_is_off_by_more_than_half_a_step(bits, block, minimum):
    found = quantise(WEIGHT, bits, block=block, minimum=minimum)
    off = (found.restored() - WEIGHT).abs().unflatten(1, (-1, block or 64))
    assert (off <= found.scale / 2 * (1 + 1e-5)).all()
    assert off.max() > found.scale.min() / 4  # and the bound is no empty one
    levels = 2**bits if minimum else 2**bits - 1
    assert len(found.codes.unique()) <= levels
    assert found.codes.element_size() == 1


@pytest.mark.parametrize(("block", "minimum"), OPTIONS)
def test_what_is_on_the_grid_stays(block, minimum):
    """A file in 4 bits loses nothing to 4 bits of the same kind."""
    once = quantise(WEIGHT, 4, block=block, minimum=minimum).restored()
    twice = quantise(once, 4, block=block, minimum=minimum).restored()
    assert greatest_difference(once, twice) < 1e-6


def test_blocks_of_32_are_those_of_q8_0():
    """But for the scale, which the file keeps in 16 bits."""
    kept = gguf.quants.quantize(WEIGHT.numpy(), gguf.GGMLQuantizationType.Q8_0)
    codes = kept.reshape(6, 2, 34)[..., 2:].view(np.int8)
    np.testing.assert_array_equal(quantise(WEIGHT, 8, block=32).codes.numpy(), codes)


def test_by_hand():
    """Without a minimum in 3 bits: the step is 3 / 3, and -0.6 becomes -1."""
    found = quantise(torch.tensor([[3.0, -0.6, 0.4, 1.4]]), 3)
    assert found.codes.tolist() == [[[3, -1, 0, 1]]]
    found = quantise(torch.tensor([[5.0, 2.0, 4.4, 2.4]]), 2, minimum=True)
    assert found.codes.tolist() == [[[3, 0, 2, 0]]]
    assert found.restored().tolist() == [[5.0, 2.0, 4.0, 2.0]]


@pytest.mark.parametrize("minimum", [False, True])
def test_a_block_of_one_value_comes_back(minimum):
    for value in (0.0, 3.0, -7.0):
        weight = torch.full((2, 4), value)
        assert torch.equal(quantise(weight, 2, minimum=minimum).restored(), weight)


@pytest.mark.parametrize(
    ("weight", "options", "message"),
    [
        (WEIGHT, {"bits": 1}, "expected from 2 to 8 bits, got 1"),
        (WEIGHT, {"bits": 9}, "expected from 2 to 8 bits, got 9"),
        (WEIGHT, {"bits": 4, "block": 48}, r"Provided sizes \[-1, 48\] don't multiply"),
    ],
)
def test_what_cannot_be_is_refused(weight, options, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        quantise(weight, **options)


@pytest.mark.parametrize("minimum", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_none_afterwards(value, minimum):
    weight = WEIGHT.clone()
    weight[2, 5] = value
    assert not quantise(weight, 4, minimum=minimum).restored()[2, 5].isfinite()


def model(vocabulary_size=11, **options):
    sizes = {"context_length": 8, "layers": 2, "heads": 2, "channels": 16, "hidden": 32} | options
    drawing = torch.Generator().manual_seed(0)
    return GPT(GPTConfig.llama(vocabulary_size, **sizes), generator=drawing)


def test_the_chosen_matrices_of_a_model_and_no_other_go_through_few_bits():
    before, after = dict(model().named_parameters()), model()
    used = quantise_model(after, 4, block=16, chosen=lambda name: "feed_forward" in name)
    assert used == 5
    for name, parameter in after.named_parameters():
        changed = not torch.equal(parameter, before[name])
        assert changed == ("feed_forward." in name), name
        if changed:
            assert torch.equal(parameter, quantise(before[name], 4, block=16).restored())


# ---- activations, and packed matrices ------------------------------------------------------------

IDS = torch.tensor([[3, 1, 4, 1, 5]])


def test_the_chosen_layers_read_something_else_inside_the_block():
    plain, without = model(), model()
    before = plain(IDS)
    with torch.no_grad():
        for block in without.decoder.blocks:
            block.feed_forward.contract.weight.zero_()  # as if they read zeros
    with changed_inputs(plain, torch.zeros_like, chosen=lambda name: "contract" in name):
        inside = plain(IDS)
    assert torch.equal(inside, without(IDS))
    assert not torch.equal(inside, before)
    assert torch.equal(plain(IDS), before)
    nothing = changed_inputs(plain, torch.zeros_like, chosen=lambda name: False)
    with pytest.raises(ValueError, match="expected a linear layer whose input to change"), nothing:
        pass


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("slab", [1, 64 * 5, SLAB])  # a row at a time, five, all
def test_a_packed_layer_multiplies_by_the_numbers_that_8_bits_stand_for(monkeypatch, bias, slab):
    monkeypatch.setattr(quantisation, "SLAB", slab)
    layer, x = nn.Linear(64, 37, bias=bias), normal(2, 3, 64).float()
    x[..., 5] *= 1_000  # an outlier, which costs the other inputs nothing
    packed = PackedLinear(layer.weight, layer.bias)
    assert not list(packed.parameters())
    expected = nn.functional.linear(x, quantise(layer.weight, 8).restored(), layer.bias)
    assert packed(x).dtype == torch.float32
    assert greatest_difference(packed(x), expected) < 1e-6 * expected.abs().max()


def test_a_packed_matrix_is_never_written_out_in_full():
    rows = 4 * SLAB // 64
    packed = PackedLinear(torch.ones(rows, 64))
    x, sizes = torch.ones(1, 64), []

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            several = [found] if isinstance(found, torch.Tensor) else found
            sizes.extend(each.numel() for each in several if each.dtype == torch.float32)
            return found

    with Watched():
        packed(x)
    assert SLAB / 2 < max(sizes) <= SLAB


@pytest.mark.parametrize("tied", [False, True])
def test_a_packed_model_is_near_the_model_of_8_bits(tied):
    plain, packed = (model(61, channels=64, hidden=96, tied=tied) for _ in range(2))
    pack(packed)
    assert not any(isinstance(part, nn.Linear) for part in packed.modules())
    assert isinstance(packed.unembedding, PackedLinear)
    assert packed.unembedding.codes.nbytes == 61 * 64  # a byte for each number
    table = plain.embedding if tied else plain.unembedding.weight
    eight = quantise(table, 8).restored()
    assert torch.equal(packed.embedding, plain.embedding)
    quantise_model(plain, 8, chosen=lambda name: "blocks." in name)
    expected = plain.states(IDS) @ eight.mT
    assert greatest_difference(packed(IDS), expected) < 1e-5 * expected.abs().max()
