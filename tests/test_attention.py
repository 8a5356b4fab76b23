"""`src.attention` against a loop, against torch, and against what attention must not do."""

import contextlib
import itertools
import math

import pytest
import torch
from oracles import gradients, greatest_difference, normal
from torch import nn, tensor

from src.attention.attention import scaled_dot_product_attention
from src.attention.config import BlockConfig
from src.attention.heads import MultiHeadAttention, linear, recorded_weights
from src.attention.linear import decay_mask
from src.attention.masks import banded_mask, causal_mask, padding_mask, sparse_mask
from src.attention.positions import LearnedPositions, rotate, sinusoidal_positions
from src.gpt.cache import KeyValueCache
from src.gpt.objectives import prefix_mask

B, H, T, S, D, E = 2, 3, 5, 7, 11, 13  # E: width of the values
C, HEADS = 22, 11  # channels and heads of a module: two channels a head
EXACT = 1e-10  # float64


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def parts(length=T):
    return normal(B, H, length, D), normal(B, H, S, D, seed=2), normal(B, H, S, E, seed=3)


def attend_by_loop(queries, keys, values, allowed):
    """One query at a time, one key at a time, in plain Python floats where it matters."""
    output = torch.zeros(*queries.shape[:-1], values.shape[-1], dtype=values.dtype)
    weights = torch.zeros(*queries.shape[:-1], keys.shape[-2], dtype=values.dtype)
    for b, h, t in itertools.product(*map(range, queries.shape[:-1])):
        seen = allowed[b, h, t].nonzero()[:, 0].tolist()
        products = [sum((queries[b, h, t] * keys[b, h, s]).tolist()) for s in seen]
        exponentials = [math.exp(product / math.sqrt(keys.shape[-1])) for product in products]
        for s, exponential in zip(seen, exponentials, strict=True):
            weights[b, h, t, s] = exponential / sum(exponentials)
            output[b, h, t] += weights[b, h, t, s] * values[b, h, s]
    return output, weights


def random_mask(length=T, seed=4):
    mask = normal(B, 1, length, S, seed=seed) > 0
    mask[..., 0] = True
    return mask


# masks


def test_the_queries_of_a_causal_mask_are_the_last_of_the_keys():
    assert torch.equal(causal_mask(2, 5), causal_mask(5)[-2:])


def test_a_sparse_mask_holds_its_band_its_global_tokens_and_its_random_keys():
    base, mask, same = (
        sparse_mask(31, window=2, global_tokens=3, random=n, generator=torch.Generator())
        for n in (0, 5, 5)
    )
    assert torch.equal(mask, same)  # the random keys come from the generator
    assert mask[:3].all()
    assert mask[:, :3].all()
    assert (mask | ~banded_mask(31, 2)).all()
    added = (mask & ~base).sum(-1)
    assert (added <= 5).all()
    assert added.sum() > 3 * 28  # some are drawn where one already may look


def test_each_query_draws_keys_of_its_own():
    """T queries draw r of T keys: each key is seen by r (T - 1) / T of the others, in the mean."""
    length, drawn = 211, 13
    generator = torch.Generator().manual_seed(2)
    mask = sparse_mask(length, window=1, global_tokens=0, random=drawn, generator=generator)
    assert set(mask.sum(1).tolist()) == {drawn, drawn + 1}  # its own key may be among them
    share = drawn / length
    seen_by = mask.fill_diagonal_(False).sum(0)  # of T - 1 independent queries
    error = math.sqrt((length - 1) * share * (1 - share))
    assert ((seen_by - (length - 1) * share).abs() < 5 * error).all()


# attention


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_what_the_loop_computes(causal):
    queries, keys, values = parts()
    mask = random_mask()
    allowed = (mask & causal_mask(T, S) if causal else mask).expand(B, H, T, S)
    ours = scaled_dot_product_attention(queries, keys, values, mask=mask, causal=causal)
    for mine, theirs in zip(ours, attend_by_loop(queries, keys, values, allowed), strict=True):
        assert greatest_difference(mine, theirs) < EXACT


@pytest.mark.parametrize("length", [1, T, S])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("scale", [None, 0.2])
def test_the_fused_path_gives_the_same_output_and_gradients(length, causal, masked, biased, scale):
    inputs = [part.requires_grad_() for part in parts(length)]
    options = {
        "mask": random_mask(length) if masked else None,
        "bias": normal(H, length, S, seed=5) if biased else None,
        "causal": causal,
        "scale": scale,
    }
    slow, weights = scaled_dot_product_attention(*inputs, **options)
    fast, none = scaled_dot_product_attention(*inputs, **options, need_weights=False)
    assert weights.shape == (B, H, length, S)
    assert none is None
    assert greatest_difference(slow, fast) < EXACT
    for one, other in zip(gradients(slow, *inputs), gradients(fast, *inputs), strict=True):
        assert greatest_difference(one, other) < EXACT


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_dropout_is_the_same_on_each_path(masked, need_weights):
    """With the unit vectors as values, the output is the weights: some gone, the others grown."""
    p, values = 0.3, torch.eye(S, dtype=torch.float64).expand(11, 13, S, S)
    queries, keys = normal(11, 13, T, D), normal(11, 13, S, D, seed=2)
    options = {"mask": causal_mask(T, S) if masked else None, "need_weights": need_weights}
    torch.manual_seed(0)
    whole, _ = scaled_dot_product_attention(queries, keys, values, **options)
    output, _ = scaled_dot_product_attention(queries, keys, values, dropout=p, **options)
    left, n = output != 0, int((whole != 0).sum())
    assert greatest_difference(output[left], whole[left] / (1 - p)) < EXACT
    assert abs(1 - int(left.sum()) / n - p) < 5 * math.sqrt(p * (1 - p) / n)


# many heads


def module(generator, **options):
    config = BlockConfig(**({"channels": C, "heads": HEADS} | options))
    return MultiHeadAttention(config, generator=generator)


def test_many_heads_are_torchs_multi_head_attention(generator):
    ours = module(generator).double()
    theirs = nn.MultiheadAttention(C, HEADS, batch_first=True, dtype=torch.float64)
    ours.qkv.bias.data, ours.output.bias.data = normal(3 * C, seed=8), normal(C, seed=9)
    theirs.in_proj_weight, theirs.in_proj_bias = ours.qkv.weight, ours.qkv.bias
    theirs.out_proj = ours.output
    x, memory = normal(B, T, C).requires_grad_(), normal(B, S, C, seed=2).requires_grad_()
    to_itself, _ = theirs(x, x, x, attn_mask=~causal_mask(T), need_weights=False)
    assert greatest_difference(ours(x, causal=True), to_itself) < EXACT
    mask = padding_mask(tensor([3, S]), S)
    options = {"key_padding_mask": ~mask[:, 0], "average_attn_weights": False}
    to_memory, maps = theirs(x, memory, memory, **options)
    with recorded_weights(ours) as recorded:
        cross = ours(x, memory, mask=mask)
    mine, others = gradients(cross, x, memory), gradients(to_memory, x, memory)
    pairs = [(cross, to_memory), (recorded[""], maps), *zip(mine, others, strict=True)]
    assert all(greatest_difference(*pair) < EXACT for pair in pairs)


def test_a_mask_for_each_text_is_a_mask_for_all_its_heads(generator):
    attention = module(generator).double()
    x = normal(B, T, C)
    mask = random_mask()[:, 0, :, :T]
    expanded = mask[:, None].expand(B, HEADS, T, T)
    assert torch.equal(attention(x, mask=mask), attention(x, mask=expanded))
    assert greatest_difference(attention(x, mask=mask)[1:], attention(x[1:], mask=mask[1])) < EXACT


def test_dropout_acts_while_training_only(generator):
    attention = module(generator, dropout=0.5)
    x = normal(B, T, C).float()
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


def test_recording_changes_no_output_and_ends_with_its_block_even_after_an_error(generator):
    made = {name: module(generator, heads=2) for name in "ab"}
    model, x = nn.ModuleDict(made), normal(B, T, C).float()
    plain = model["b"](model["a"](x, causal=True))
    with contextlib.suppress(RuntimeError), recorded_weights(model) as maps:
        recorded = model["b"](model["a"](x, causal=True))
        assert {name: m.shape for name, m in maps.items()} == dict.fromkeys("ab", (B, 2, T, T))
        assert recorded.requires_grad
        assert not any(weights.requires_grad for weights in maps.values())
        raise RuntimeError
    assert torch.allclose(plain, recorded, atol=1e-6)
    maps.clear()
    model["a"](x)
    assert not maps


def test_a_linear_layer_keeps_the_variance_and_draws_from_its_generator(generator):
    torch.manual_seed(0)
    layer = linear(400, 300, generator=generator)
    assert torch.equal(torch.rand(1), torch.rand(1, generator=torch.Generator().manual_seed(0)))
    x = torch.randn(1000, 400)
    assert abs(float(layer(x).detach().var()) - 1) < 0.03
    assert not layer.bias.any()


# positions


def test_sinusoids_are_worked_by_hand():
    table = sinusoidal_positions(4, 6)
    assert table.shape == (4, 6)
    rates = [1, 10_000 ** (-2 / 6), 10_000 ** (-4 / 6)]
    expected = [f(3 * rate) for rate in rates for f in (math.sin, math.cos)]
    assert table[3].tolist() == pytest.approx(expected, abs=1e-6)


def test_what_is_rotated_without_gradients_first_can_have_them_later():
    """Cosines and sines are kept from call to call: they must not be those of inference mode."""
    x = torch.ones(3, 6, requires_grad=True)
    with torch.inference_mode():
        first = rotate(torch.ones(3, 6), start=977)
    again = rotate(x, start=977)
    again.sum().backward()
    assert torch.equal(again.detach(), first)
    assert x.grad is not None
    assert rotate(torch.ones(3, 6).double(), start=977).dtype == torch.float64


def test_rotation_is_multiplication_of_complex_numbers():
    x = normal(T, 10)
    angles = torch.arange(T)[:, None] * 10_000.0 ** (-torch.arange(5, dtype=torch.float64) / 5)
    turns = torch.polar(torch.ones_like(angles), angles)
    theirs = torch.view_as_real(torch.view_as_complex(x.reshape(T, 5, 2)) * turns)
    assert greatest_difference(rotate(x), theirs.flatten(-2)) < EXACT
    assert greatest_difference(rotate(x[3:], start=3), theirs.flatten(-2)[3:]) < EXACT


def test_learned_positions_are_rows_of_their_table(generator):
    module = LearnedPositions(7, channels=5, generator=generator)
    assert torch.equal(module(3, start=4), module.table[4:7])


def test_the_vector_of_a_position_begins_with_length_one_in_the_mean(generator):
    """N(0, 1 / C) for each of the C channels."""
    module = LearnedPositions(1_009, channels=53, generator=generator)
    numbers = module.table.detach().flatten() * 53**0.5
    assert abs(float(numbers.mean())) < 5 / math.sqrt(len(numbers))
    assert abs(float(numbers.square().mean()) - 1) < 5 * math.sqrt(2 / len(numbers))


# errors


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": torch.ones(T, S)}, "boolean mask.*float32.*called bias"),
        ({"mask": torch.ones(1, B, H, T, S) > 0}, r"= \(2, 3, 5, 7\), got .*\(1, 2, 3, 5, 7\)"),
        ({"queries": parts(1)[0], "mask": torch.ones(T, S) > 0}, r"= \(2, 3, 1, 7\), .*\(5, 7\)"),
        ({"mask": torch.zeros(T, S) > 0}, r"for every query, got none at index \[0\]"),
        ({"mask": torch.arange(T)[:, None] * torch.ones(S) != 3}, r"none at index \[3\]"),
        ({"queries": parts(S + 2)[0], "causal": True}, r"none at index \[0\]"),
        ({"values": parts()[0]}, r"value for each key, got .*7, 11\]\) and .*5,"),
    ],
)
def test_parts_and_masks_that_do_not_fit_are_refused(options, message, need_weights):
    whole = dict(zip(("queries", "keys", "values"), parts(), strict=True))
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(**(whole | options), need_weights=need_weights)


def sparse(generator, **options):
    return sparse_mask(5, window=1, **options, generator=generator)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g: padding_mask(tensor([3, 8]), 7), r"1 to 7 tokens, got \[3, 8\]"),
        (lambda g: padding_mask(tensor([0, 3]), 7), r"got \[0, 3\]"),
        (lambda g: sparse(g, global_tokens=6, random=0), "global_tokens=6"),
        (lambda g: sparse(g, global_tokens=0, random=6), "random=6"),
        (lambda g: sinusoidal_positions(3, 5), "even number of channels.*got 5"),
        (lambda g: rotate(torch.ones(3, 5)), "even number of channels.*got 5"),
        (lambda g: LearnedPositions(7, channels=5, generator=g)(3, 5), "the 7 learnt, got 3 from"),
        (lambda g: LearnedPositions(7, channels=5, generator=g)(8), "got 8 from position 0"),
        (lambda g: module(g)(torch.zeros(T, C)), r"\(B, T, 22\), got \(5, 22\)"),
        (lambda g: module(g)(torch.zeros(B, T, C), torch.zeros(T, C)), r"got \(5, 22\)"),
        (lambda g: recorded_weights(nn.Linear(2, 2)).__enter__(), "with Attention, got Linear"),
    ],
)
def test_what_cannot_be_is_refused(generator, make, message):
    with pytest.raises(ValueError, match=message):
        make(generator)


def test_a_cache_takes_less_than_twice_the_room_it_needs_and_is_moved_seldom():
    cache, keys, rooms = KeyValueCache(1_000), torch.randn(B, H, 1_000, D), set()
    for place, key in enumerate(keys.split(1, -2), start=1):
        so_far, _ = cache.extend(key, key)
        assert torch.equal(so_far, keys[..., :place, :])
        room = so_far.untyped_storage().nbytes()
        assert room < 2 * so_far.nbytes
        rooms.add(room)
    assert len(rooms) == 11  # 1, 2, 4, … 512, 1,000 tokens


def test_the_masks_of_a_batch_are_made_without_a_look_at_a_device():
    """The device meta has no numbers, so that a look at one fails there; on a GPU it waits."""
    lengths = torch.tensor([3, 5], device="meta")
    assert padding_mask(lengths, 5).shape == (2, 1, 5)
    assert prefix_mask(lengths, 5).shape == (2, 5, 5)
    assert decay_mask(torch.ones(7, device="meta")).shape == (7, 7)


def test_what_does_not_fit_into_a_cache_is_refused_and_not_kept(generator):
    attention, cache = module(generator), KeyValueCache(4)
    x = torch.zeros(B, 3, C)
    attention(x, cache=cache)
    with pytest.raises(ValueError, match="at most 4 tokens in the cache, got 6"):
        attention(x, cache=cache)
    with pytest.raises(ValueError, match=r"the 2 texts .* got 1;"):
        attention(x[:1, :1], cache=cache)
    with pytest.raises(ValueError, match="a memory or a cache, got both"):
        attention(x[:, :1], x, cache=cache)
    assert cache.length == 3
