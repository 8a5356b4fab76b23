"""`src.attention` against a loop, against torch, and against what attention must not do."""

import math

import pytest
import torch
from oracles import gradients, greatest_difference, normal
from torch import nn, tensor
from torch.nn import functional

from src.attention.attention import scaled_dot_product_attention
from src.attention.heads import MultiHeadAttention, linear, recorded_weights
from src.attention.masks import banded_mask, causal_mask, padding_mask, sparse_mask
from src.attention.positions import LearnedPositions, rotate, sinusoidal_positions
from src.gpt.cache import KeyValueCache

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
    for b, h, t in torch.cartesian_prod(*map(torch.arange, queries.shape[:-1])).tolist():
        seen = [s for s in range(keys.shape[-2]) if allowed[b, h, t, s]]
        scores = [
            sum((queries[b, h, t] * keys[b, h, s]).tolist()) / math.sqrt(keys.shape[-1])
            for s in seen
        ]
        total = sum(map(math.exp, scores))
        for s, score in zip(seen, scores, strict=True):
            weights[b, h, t, s] = math.exp(score) / total
            output[b, h, t] += weights[b, h, t, s] * values[b, h, s]
    return output, weights


def random_mask(length=T, seed=4):
    mask = normal(B, 1, length, S, seed=seed) > 0
    mask[..., 0] = True
    return mask


# masks


def test_a_causal_mask_lets_a_position_see_itself_and_the_past():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True] * 3]


def test_the_queries_of_a_causal_mask_are_the_last_of_the_keys():
    assert torch.equal(causal_mask(2, 5), causal_mask(5)[-2:])


def test_a_band_reaches_width_minus_one_to_either_side():
    allowed = banded_mask(T, 3)
    for i in range(T):
        assert [j for j in range(T) if allowed[i, j]] == [j for j in range(T) if abs(i - j) <= 2]


def test_padding_is_seen_by_nobody():
    assert padding_mask(tensor([2, 3]), 3).tolist() == [[[True, True, False]], [[True] * 3]]


def test_a_sparse_mask_holds_its_band_its_global_tokens_and_its_random_keys(generator):
    mask = sparse_mask(31, window=2, global_tokens=3, random=5, generator=generator)
    base = sparse_mask(31, window=2, global_tokens=3, random=0, generator=generator)
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


def test_the_random_keys_come_from_the_generator():
    draws = [
        sparse_mask(29, window=1, global_tokens=0, random=3, generator=g.manual_seed(7))
        for g in (torch.Generator(), torch.Generator())
    ]
    assert torch.equal(*draws)


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


def test_attention_is_torchs():
    queries, keys, values = parts(S)
    ours, _ = scaled_dot_product_attention(queries, keys, values, causal=True)
    theirs = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    assert greatest_difference(ours, theirs) < EXACT


def test_weights_are_distributions_over_the_allowed_keys():
    mask = random_mask()
    _, weights = scaled_dot_product_attention(*parts(), mask=mask)
    assert torch.allclose(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64))
    assert (weights[~mask.expand_as(weights)] == 0).all()


def test_equal_scores_mix_all_values_alike():
    queries, keys, values = parts()
    output, weights = scaled_dot_product_attention(queries, 0 * keys, values)
    assert torch.allclose(weights, torch.full_like(weights, 1 / S))
    assert torch.allclose(output, values.mean(-2, keepdim=True).expand_as(output))


def test_a_large_scale_picks_the_value_of_the_best_key():
    queries, keys, values = parts()
    output, _ = scaled_dot_product_attention(queries, keys, values, scale=1e6)
    best = (queries @ keys.mT).argmax(-1, keepdim=True)
    assert torch.allclose(output, values.gather(-2, best.expand(-1, -1, -1, E)))


def test_dropout_keeps_the_mean_of_the_output_and_drops_whole_weights():
    queries, keys, values = parts()
    torch.manual_seed(0)
    whole, _ = scaled_dot_product_attention(queries, keys, values)
    draws = [scaled_dot_product_attention(queries, keys, values, dropout=0.3) for _ in range(3000)]
    mean = torch.stack([output for output, _ in draws]).mean(0)
    dropped = torch.stack([weights == 0 for _, weights in draws]).double().mean()
    error = torch.stack([output for output, _ in draws]).std(0) / math.sqrt(len(draws))
    assert ((mean - whole).abs() < 5 * error).all()
    assert abs(float(dropped) - 0.3) < 0.005


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


def test_many_heads_are_torchs_multi_head_attention(generator):
    ours = MultiHeadAttention(C, heads=HEADS, generator=generator).double()
    theirs = nn.MultiheadAttention(C, HEADS, batch_first=True, dtype=torch.float64)
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.qkv.weight,
            "in_proj_bias": normal(3 * C, seed=8),
            "out_proj.weight": ours.output.weight,
            "out_proj.bias": normal(C, seed=9),
        }
    )
    ours.qkv.bias.data, ours.output.bias.data = theirs.in_proj_bias.data, theirs.out_proj.bias.data
    x, memory = normal(B, T, C).requires_grad_(), normal(B, S, C, seed=2).requires_grad_()
    to_itself, _ = theirs(x, x, x, attn_mask=~causal_mask(T), need_weights=False)
    assert greatest_difference(ours(x, causal=True), to_itself) < EXACT
    lengths = tensor([3, S])
    padding = ~padding_mask(lengths, S)[:, 0]
    to_memory, maps = theirs(
        x, memory, memory, key_padding_mask=padding, average_attn_weights=False
    )
    with recorded_weights(ours) as recorded:
        cross = ours(x, memory, mask=padding_mask(lengths, S))
    assert greatest_difference(cross, to_memory) < EXACT
    assert greatest_difference(recorded[""], maps) < EXACT
    for one, other in zip(
        gradients(cross, x, memory), gradients(to_memory, x, memory), strict=True
    ):
        assert greatest_difference(one, other) < EXACT


def test_heads_as_einsum_are_heads_as_reshape(generator):
    module = MultiHeadAttention(C, heads=HEADS, generator=generator).double()
    x = normal(B, T, C)
    width = C // HEADS
    stacked = module.qkv.weight.reshape(3, HEADS, width, C)
    queries, keys, values = torch.einsum("btc,phdc->pbhtd", x, stacked)
    weights = torch.softmax(torch.einsum("bhtd,bhsd->bhts", queries, keys) / width**0.5, -1)
    of_the_heads = module.output.weight.reshape(C, HEADS, width)
    summed = torch.einsum("bhts,bhsd,chd->btc", weights, values, of_the_heads)
    assert greatest_difference(module(x), summed) < EXACT


@pytest.mark.parametrize("heads", [1, 2, HEADS, C])
def test_more_heads_are_not_more_parameters(generator, heads):
    module = MultiHeadAttention(C, heads=heads, generator=generator)
    assert sum(p.numel() for p in module.parameters()) == 4 * C * C + 4 * C


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("changed", range(T))
def test_a_later_token_changes_nothing_before_it_bit_for_bit(generator, rotary, changed):
    module = MultiHeadAttention(C, heads=HEADS, rotary=rotary, generator=generator)
    x = normal(B, T, C).float()
    other = x.clone()
    other[:, changed] += 1
    before, after = module(x, causal=True), module(other, causal=True)
    assert torch.equal(before[:, :changed], after[:, :changed])
    assert (before[:, changed:] != after[:, changed:]).any(-1).all()


def test_what_stands_at_padding_changes_nothing_bit_for_bit(generator):
    module = MultiHeadAttention(C, heads=HEADS, generator=generator)
    x, memory = normal(B, T, C).float(), normal(B, S, C, seed=2).float()
    lengths = tensor([3, 5])
    mask = padding_mask(lengths, S)
    other = torch.where(mask.mT, memory, 100.0)
    assert torch.equal(module(x, memory, mask=mask), module(x, other, mask=mask))


def test_attention_without_positions_does_not_mind_the_order(generator):
    module = MultiHeadAttention(C, heads=HEADS, generator=generator).double()
    x, order = normal(B, T, C), torch.randperm(T, generator=generator)
    assert greatest_difference(module(x)[:, order], module(x[:, order])) < EXACT


def test_a_mask_for_each_text_is_a_mask_for_all_its_heads(generator):
    module = MultiHeadAttention(C, heads=HEADS, generator=generator).double()
    x = normal(B, T, C)
    mask = random_mask()[:, 0, :, :T]
    expanded = mask[:, None].expand(B, HEADS, T, T)
    assert torch.equal(module(x, mask=mask), module(x, mask=expanded))
    assert greatest_difference(module(x, mask=mask)[1:], module(x[1:], mask=mask[1])) < EXACT


def test_dropout_acts_while_training_only(generator):
    module = MultiHeadAttention(C, heads=HEADS, dropout=0.5, generator=generator)
    x = normal(B, T, C).float()
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))


def test_recording_changes_no_output_and_ends_with_its_block(generator):
    model = nn.ModuleDict(
        {name: MultiHeadAttention(C, heads=2, generator=generator) for name in "ab"}
    )
    x = normal(B, T, C).float()
    plain = model["b"](model["a"](x, causal=True))
    with recorded_weights(model) as maps:
        recorded = model["b"](model["a"](x, causal=True))
        assert {name: m.shape for name, m in maps.items()} == dict.fromkeys("ab", (B, 2, T, T))
        assert recorded.requires_grad
        assert not any(weights.requires_grad for weights in maps.values())
    assert torch.allclose(plain, recorded, atol=1e-6)
    maps.clear()
    model["a"](x)
    assert not maps


def test_recording_ends_even_after_an_error(generator):
    module = MultiHeadAttention(C, heads=2, generator=generator)
    with pytest.raises(RuntimeError, match="planted"), recorded_weights(module):
        raise RuntimeError("planted")
    assert module.record is None


def test_a_linear_layer_keeps_the_variance_and_draws_from_its_generator(generator):
    torch.manual_seed(0)
    layer = linear(400, 300, generator=generator)
    assert torch.equal(torch.rand(1), torch.rand(1, generator=torch.Generator().manual_seed(0)))
    x = torch.randn(1000, 400)
    assert abs(float(layer(x).detach().var()) - 1) < 0.03
    assert not layer.bias.any()


# the cache


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("pieces", [[S], [1] * S, [3, 1, 2, 1]])
def test_a_text_in_pieces_with_a_cache_is_the_text_at_once(generator, rotary, pieces):
    module = MultiHeadAttention(C, heads=HEADS, rotary=rotary, generator=generator).double()
    x, cache = normal(B, S, C), KeyValueCache(S + 2)
    parts = [module(part, causal=True, cache=cache) for part in x.split(pieces, 1)]
    assert greatest_difference(torch.cat(parts, 1), module(x, causal=True)) < EXACT
    assert cache.length == S


def test_a_full_cache_and_another_batch_are_refused(generator):
    module, cache = MultiHeadAttention(C, heads=HEADS, generator=generator), KeyValueCache(4)
    x = torch.zeros(B, 3, C)
    module(x, cache=cache)
    with pytest.raises(ValueError, match="at most 4 tokens in the cache, its limit, got 3 and 3"):
        module(x, cache=cache)
    with pytest.raises(ValueError, match=r"the 2 texts .* got a batch of 1"):
        module(x[:1, :1], cache=cache)


def test_a_memory_and_a_cache_together_are_refused_and_nothing_is_kept(generator):
    module, cache = MultiHeadAttention(C, heads=HEADS, generator=generator), KeyValueCache(S)
    x, memory = normal(B, T, C).float(), normal(B, S, C).float()
    with pytest.raises(ValueError, match="a memory or a cache, got both"):
        module(x, memory, cache=cache)
    assert cache.length == 0


# positions


def test_sinusoids_are_worked_by_hand():
    table = sinusoidal_positions(4, 6)
    assert table.shape == (4, 6)
    rates = [1, 10_000 ** (-2 / 6), 10_000 ** (-4 / 6)]
    expected = [f(3 * rate) for rate in rates for f in (math.sin, math.cos)]
    assert table[3].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("shift", [1, 3, 8])
def test_a_shift_of_the_sinusoids_is_the_rotation_of_rotary_positions(shift):
    """Turning pair i by k w_i takes (cos, sin) of t w_i to those of (t + k) w_i."""
    table = sinusoidal_positions(20, 10).double()
    swapped = table.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)  # (cos, sin), as rotate has it
    turned = rotate(swapped[:-shift, None], start=shift)[:, 0]  # each row alone, at position k
    assert greatest_difference(turned, swapped[shift:]) < 1e-6


def test_rotary_scores_depend_on_the_difference_of_positions_only():
    query, key = normal(1, 10), normal(1, 10, seed=2)

    def score(t, s):
        return float((rotate(query, start=t) * rotate(key, start=s)).sum())

    for difference in (-3, 0, 5):
        scores = [score(s + difference, s) for s in (3, 10, 1_000, 100_000)]
        assert max(scores) - min(scores) < 1e-9
    assert abs(score(5, 3) - score(4, 3)) > 1e-3


def test_rotation_keeps_lengths_and_position_zero_as_they_are():
    x = normal(B, H, T, 10)
    assert greatest_difference(rotate(x).norm(dim=-1), x.norm(dim=-1)) < EXACT
    assert torch.equal(rotate(x)[..., 0, :], x[..., 0, :])


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
    theirs = torch.view_as_complex(x.reshape(T, 5, 2)) * torch.polar(
        torch.ones(T, 5).double(), angles
    )
    assert greatest_difference(rotate(x), torch.view_as_real(theirs).flatten(-2)) < EXACT


def test_rotary_attention_moves_with_its_text(generator):
    module = MultiHeadAttention(C, heads=HEADS, rotary=True, generator=generator).double()
    x = normal(B, T, C)
    later = torch.cat([normal(B, 3, C, seed=6), x], 1)
    mask = torch.ones(T + 3, T + 3, dtype=torch.bool)
    mask[3:, :3] = False
    assert greatest_difference(module(later, mask=mask)[:, 3:], module(x)) < EXACT


def test_learned_positions_are_rows_of_their_table(generator):
    module = LearnedPositions(7, channels=5, generator=generator)
    assert torch.equal(module(3, start=4), module.table[4:7])


@pytest.mark.parametrize("channels", [5, 53])
def test_the_vector_of_a_position_begins_with_length_one_in_the_mean(generator, channels):
    """N(0, 1 / C) for each of the C channels."""
    numbers = (
        LearnedPositions(1_009, channels=channels, generator=generator).table.detach().flatten()
    )
    n, std = len(numbers), channels**-0.5
    assert abs(float(numbers.mean())) < 5 * std / math.sqrt(n)
    assert abs(float(numbers.square().mean()) * channels - 1) < 5 * math.sqrt(2 / n)


# errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 10, "heads": 3}, "channels=10 and heads=3"),
        ({"channels": 10, "heads": 0}, "heads=0"),
        ({"channels": 15, "heads": 5, "rotary": True}, "15 / 5 = 3"),
    ],
)
def test_heads_that_do_not_fit_are_refused(generator, options, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**options, generator=generator)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(T, S), "boolean mask.*float32.*called bias"),
        (torch.ones(S, T) > 0, r"\(2, 3, 5, 7\), got \(7, 5\)"),
        (torch.ones(1, B, H, T, S) > 0, r"got \(1, 2, 3, 5, 7\)"),
        (torch.zeros(T, S) > 0, "got 5 of 5 without one, the first at index"),
        (torch.arange(T)[:, None] * torch.ones(S) != 3, r"got 1 of 5 without one.*\[3\]"),
        (torch.ones(T, S, device="meta") > 0, "expected mask on the device of the queries, cpu"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(mask, message, need_weights):
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(*parts(), mask=mask, need_weights=need_weights)


def test_a_strict_causal_mask_is_refused_since_its_first_row_is_empty():
    strict = torch.ones(S, S).tril(-1) > 0
    with pytest.raises(ValueError, match=r"1 of 7 without one, the first at index \[0\]"):
        scaled_dot_product_attention(*parts(S), mask=strict)


def test_more_causal_queries_than_keys_are_refused():
    with pytest.raises(ValueError, match="2 of 9 without one"):
        scaled_dot_product_attention(*parts(S + 2), causal=True)


def test_parts_that_do_not_fit_are_refused():
    queries, keys, values = parts()
    with pytest.raises(ValueError, match="one width, got 11 and 13"):
        scaled_dot_product_attention(queries, values, values)
    with pytest.raises(ValueError, match="7 keys and 5 values"):
        scaled_dot_product_attention(queries, keys, queries)
    with pytest.raises(
        ValueError, match="expected values on the device of the queries, cpu, got meta"
    ):
        scaled_dot_product_attention(queries, keys, values.to("meta"))


def test_channels_that_do_not_fit_are_refused(generator):
    module = MultiHeadAttention(C, heads=HEADS, generator=generator)
    with pytest.raises(ValueError, match=r"x of shape \(B, T, 22\), got \(2, 5, 13\)"):
        module(torch.zeros(B, T, 13))
    with pytest.raises(ValueError, match=r"memory of shape \(B, T, 22\), got \(5, 22\)"):
        module(torch.zeros(B, T, C), torch.zeros(T, C))


def test_positions_that_do_not_exist_are_refused(generator):
    module = LearnedPositions(7, channels=5, generator=generator)
    with pytest.raises(ValueError, match="the 7 that were learnt, got 3 from position 5"):
        module(3, start=5)
    with pytest.raises(ValueError, match="got 8 from position 0"):
        module(8)


@pytest.mark.parametrize(
    "make", [lambda: sinusoidal_positions(3, 5), lambda: rotate(torch.ones(3, 5))]
)
def test_an_odd_width_is_refused(make):
    with pytest.raises(ValueError, match=r"even number of channels.*got 5"):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g: banded_mask(5, 0), "width 1 or more, got 0"),
        (lambda g: padding_mask(tensor([3, 8]), 7), "1 to 7 tokens.*from 3 to 8"),
        (lambda g: padding_mask(tensor([0, 3]), 7), "from 0 to 3"),
        (
            lambda g: sparse_mask(5, window=1, global_tokens=6, random=0, generator=g),
            "global_tokens=6",
        ),
        (lambda g: sparse_mask(5, window=1, global_tokens=0, random=6, generator=g), "random=6"),
    ],
)
def test_a_mask_that_cannot_be_is_refused(generator, make, message):
    with pytest.raises(ValueError, match=message):
        make(generator)


def test_a_model_without_attention_has_no_weights_to_record():
    with (
        pytest.raises(ValueError, match="attention in it, got Linear"),
        recorded_weights(nn.Linear(2, 2)),
    ):
        pass
