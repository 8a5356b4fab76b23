"""`src.attention.linear`: parallel is recurrent, and what each rule remembers."""

import pytest
import torch
from oracles import gradients, greatest_difference, normal
from torch.nn import functional

from src.attention.linear import decay_mask, linear_attention, linear_attention_recurrent

B, H, T, D, E = 2, 3, 11, 5, 7
EXACT = 1e-10
KINDS = ["linear", "decay", "delta", "gated delta"]


def parts(kind, length=T):
    queries, values = normal(B, H, length, D), normal(B, H, length, E, seed=2)
    keys = functional.normalize(normal(B, H, length, D, seed=3), dim=-1)
    options = {}
    if "decay" in kind or "gated" in kind:
        options["decay"] = normal(B, H, length, seed=4).sigmoid()
    if "delta" in kind:
        options["rate"] = normal(B, H, length, seed=5).sigmoid()
    return (queries, keys, values), options


@pytest.mark.parametrize("kind", KINDS)
def test_parallel_is_recurrent_with_its_gradients(kind):
    given, options = parts(kind)
    inputs = [part.requires_grad_() for part in (*given, *options.values())]
    recurrent, _ = linear_attention_recurrent(*given, **options)
    parallel = linear_attention(*given, **options)
    assert greatest_difference(parallel, recurrent) < EXACT
    for one, other in zip(gradients(parallel, *inputs), gradients(recurrent, *inputs), strict=True):
        assert greatest_difference(one, other) < EXACT


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_in_pieces_goes_on_from_its_state(kind):
    given, options = parts(kind)
    whole, end = linear_attention_recurrent(*given, **options)
    outputs, state = [], None
    for piece in (slice(0, 4), slice(4, 5), slice(5, T)):
        cut = {name: part[..., piece] for name, part in options.items()}
        output, state = linear_attention_recurrent(
            *(part[..., piece, :] for part in given), **cut, state=state
        )
        outputs.append(output)
    assert greatest_difference(torch.cat(outputs, -2), whole) < EXACT
    assert greatest_difference(state, end) < EXACT


def test_without_decay_and_rate_it_is_attention_without_the_softmax():
    (queries, keys, values), _ = parts("linear")
    expected = (queries @ keys.mT).tril() @ values
    assert greatest_difference(linear_attention(queries, keys, values), expected) < EXACT


def test_one_step_of_the_delta_rule_is_a_step_of_gradient_descent():
    (_, keys, values), _ = parts("delta", length=1)
    state, rate = (
        normal(B, H, E, D, seed=6).requires_grad_(),
        torch.full((B, H, 1), 0.3, dtype=torch.float64),
    )
    error = (state @ keys.mT)[..., 0] - values[..., 0, :]
    (slope,) = torch.autograd.grad(error.square().sum() / 2, state)
    _, after = linear_attention_recurrent(keys, keys, values, rate=rate, state=state)
    assert greatest_difference(after, state - 0.3 * slope) < EXACT


def test_the_delta_rule_overwrites_where_linear_attention_adds():
    keys = torch.eye(D).double()[[0, 1, 0]]  # the first key is told something else
    values = normal(3, E)
    asked = keys.clone()
    ones = torch.ones(3).double()
    added = linear_attention(asked, keys, values)
    written = linear_attention(asked, keys, values, rate=ones)
    assert greatest_difference(added[2], values[0] + values[2]) < EXACT
    assert greatest_difference(written[2], values[2]) < EXACT


def test_as_many_values_as_channels_are_held_exactly_however_alike_their_keys_are():
    """Told again and again, the delta rule finds the matrix; linear attention blurs."""
    keys = functional.normalize(normal(D, D) + 1, dim=-1)
    values = normal(D, E)
    many = keys.repeat(4_000, 1), values.repeat(4_000, 1)
    _, state = linear_attention_recurrent(many[0], *many, rate=torch.ones(4_000 * D).double())
    assert greatest_difference(keys @ state.mT, values) < 1e-3
    _, state = linear_attention_recurrent(keys, keys, values)
    assert greatest_difference(keys @ state.mT, values) > 0.3


@pytest.mark.parametrize("kind", KINDS)
def test_a_later_token_changes_nothing_before_it(kind):
    given, options = parts(kind)
    before = linear_attention(*given, **options)
    for t in range(T):
        others = [part.detach().clone() for part in given]
        for part in others:
            part[..., t, :] += 1
        after = linear_attention(*others, **options)
        assert torch.allclose(after[..., :t, :], before[..., :t, :], atol=1e-12, rtol=0)
        assert not torch.allclose(after[..., t, :], before[..., t, :])


def test_what_is_left_is_the_product_of_the_decays_between():
    decay = normal(T).sigmoid()
    for t in range(T):
        for s in range(T):
            left = float(decay[s + 1 : t + 1].prod()) if s <= t else 0.0
            assert float(decay_mask(decay)[t, s]) == pytest.approx(left, rel=1e-9)


@pytest.mark.parametrize("worst", [0.0, -0.5])
def test_a_decay_without_a_logarithm_is_refused(worst):
    with pytest.raises(ValueError, match=f"decays above 0, got {worst}"):
        decay_mask(torch.tensor([1.0, worst, 0.5]))
