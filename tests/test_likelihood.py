"""`src.likelihood` against numbers worked by hand, slow loops, torch and identities."""

import itertools
import math
from functools import partial

import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor
from torch.nn import functional

from src.likelihood import maximum_likelihood, surprise, text_probability

B, T, V = 3, 5, 7


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def logits(generator):
    return torch.randn(B, T, V, generator=generator, dtype=torch.float64)


@pytest.fixture
def targets(generator):
    return torch.randint(V, (B, T), generator=generator)


# logsumexp and log_softmax


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_huge_logits_neither_overflow_nor_vanish(size):
    result = maximum_likelihood.logsumexp(tensor([size, size], dtype=torch.float64))
    assert float(result) == pytest.approx(size + math.log(2), rel=1e-12)


def test_an_empty_sum_is_minus_infinity_and_not_nan():
    assert maximum_likelihood.logsumexp(torch.full((2, V), -math.inf)).tolist() == [-math.inf] * 2
    nats, _ = maximum_likelihood.negative_log_likelihood(tensor([[0.0, -math.inf]]), tensor([1]))
    assert float(nats) == math.inf


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_logsumexp_agrees_with_torch_along_each_axis(logits, dim):
    assert torch.allclose(maximum_likelihood.logsumexp(logits, dim), torch.logsumexp(logits, dim))
    kept = maximum_likelihood.logsumexp(logits, dim, keepdim=True)
    assert torch.equal(kept, maximum_likelihood.logsumexp(logits, dim).unsqueeze(dim))


def test_large_logits_lose_no_digits():
    large, small = tensor([10_000.0, 9_999.0, 9_998.0]), tensor([2.0, 1.0, 0.0])
    assert torch.equal(maximum_likelihood.log_softmax(large), maximum_likelihood.log_softmax(small))
    targets = torch.arange(3)
    by_token = [maximum_likelihood.token_log_probs(z.expand(3, 3), targets) for z in (large, small)]
    assert torch.equal(*by_token)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=9), st.floats(-1e3, 1e3))
def test_softmax_is_a_distribution_that_no_shift_changes(row, shift):
    log_probs = maximum_likelihood.log_softmax(tensor(row, dtype=torch.float64))
    shifted = maximum_likelihood.log_softmax(tensor(row, dtype=torch.float64) + shift)
    assert float(log_probs.exp().sum()) == pytest.approx(1.0)
    assert torch.allclose(log_probs, shifted, atol=1e-9)


def test_the_gradient_of_logsumexp_is_the_softmax_even_beside_an_infinite_logit():
    row = tensor([1.0, 2.0, -math.inf], dtype=torch.float64, requires_grad=True)
    maximum_likelihood.logsumexp(row).backward()
    assert torch.allclose(row.grad, torch.softmax(row.detach(), -1))


# token, sequence and corpus log-likelihood


def test_token_log_probs_look_up_the_log_softmax_at_each_target(logits, targets):
    """0 and log 3 give 1/4 and 3/4."""
    result = maximum_likelihood.token_log_probs(logits, targets)
    for b, t in itertools.product(range(B), range(T)):
        expected = torch.log_softmax(logits[b, t], -1)[targets[b, t]]
        assert float(result[b, t]) == pytest.approx(float(expected))
    by_hand = maximum_likelihood.token_log_probs(tensor([0.0, math.log(3)]), tensor(1))
    assert float(by_hand) == pytest.approx(math.log(3 / 4))


def test_texts_of_one_and_three_tokens_weigh_one_to_three():
    texts = [tensor([-4.0]), tensor([-1.0, -1.0, -2.0])]
    total, tokens = maximum_likelihood.corpus_log_likelihood(texts)
    assert (float(total), tokens) == (-8.0, 4)  # mean of means would be -2.67, not -2


def test_padding_in_a_batch_changes_nothing(logits, targets):
    lengths = tensor([5, 1, 3])
    mask = torch.arange(T) < lengths[:, None]
    nats, tokens = maximum_likelihood.negative_log_likelihood(logits, targets, mask=mask)
    log_probs = maximum_likelihood.token_log_probs(logits, targets)
    ragged = [row[:length] for row, length in zip(log_probs, lengths, strict=True)]
    total, count = maximum_likelihood.corpus_log_likelihood(ragged)
    assert (float(nats), int(tokens)) == (pytest.approx(-float(total)), count)
    by_text = maximum_likelihood.sequence_log_likelihood(log_probs, mask=mask)
    assert by_text.tolist() == pytest.approx([float(row.sum()) for row in ragged])


@pytest.mark.parametrize("rubbish", [-math.inf, math.nan])
def test_an_infinite_or_undefined_score_at_padding_stays_out_of_the_sum(logits, targets, rubbish):
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[1, 2] = False
    spoilt = logits.clone()
    spoilt[1, 2] = rubbish
    clean = maximum_likelihood.negative_log_likelihood(logits, targets, mask=mask)
    assert maximum_likelihood.negative_log_likelihood(spoilt, targets, mask=mask) == clean


def test_negative_log_likelihood_agrees_with_cross_entropy(logits, targets):
    nats, tokens = maximum_likelihood.negative_log_likelihood(logits, targets)
    expected = functional.cross_entropy(logits.reshape(-1, V), targets.reshape(-1))
    assert float(nats / tokens) == pytest.approx(float(expected))


# windows and the chain rule


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 14) | st.none())
def test_a_window_holds_the_last_tokens_before_its_target(ids, length):
    """Without a length it holds the whole past."""
    for t, (window, target) in enumerate(text_probability.windows(ids, length=length)):
        assert target == ids[t]
        assert window == [ids[s] for s in range(t) if t - (length or t) <= s]
        assert text_probability.context_window(tensor(ids), t, length=length).tolist() == window


def test_the_joint_passes_no_more_than_the_context_length():
    seen = []

    def model(context):
        seen.append(context.tolist())
        return torch.zeros(9).log_softmax(-1)

    text_probability.joint_log_prob(model, tensor([3, 1, 4, 1]), context_length=2)
    assert seen == [[], [3], [3, 1], [1, 4]]


# entropy and its relatives


def random_distributions(*shape, seed=0):
    z = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (3 * z).softmax(-1)


def test_entropy_agrees_with_scipy():
    p, q = random_distributions(B, V), random_distributions(B, V, seed=1)
    entropy, divergence = scipy.stats.entropy(p, axis=-1), scipy.stats.entropy(p, q, axis=-1)
    assert surprise.entropy(p).tolist() == pytest.approx(entropy)
    assert surprise.kl_divergence(p, q).tolist() == pytest.approx(divergence)
    assert surprise.cross_entropy(p, q).tolist() == pytest.approx(entropy + divergence)


def test_the_divergence_of_near_twins_keeps_its_digits():
    tilt = 1e-7
    q = tensor([0.5 + tilt, 0.5 - tilt], dtype=torch.float64)
    p = tensor([0.5, 0.5], dtype=torch.float64)
    assert float(surprise.kl_divergence(p, q)) == pytest.approx(2 * tilt**2, rel=1e-2, abs=0)


def test_what_the_model_holds_impossible_costs_infinitely_much_if_it_can_happen():
    p, q = tensor([0.5, 0.5, 0.0]), tensor([1.0, 0.0, 0.0])
    assert float(surprise.cross_entropy(p, q)) == float(surprise.kl_divergence(p, q)) == math.inf
    assert float(surprise.cross_entropy(q, p)) == pytest.approx(math.log(2))


def test_perplexity_of_an_infinite_loss_is_infinite():
    assert surprise.perplexity(math.inf) == surprise.perplexity(1e6) == math.inf


def test_eight_bits_a_byte_are_a_uniform_choice_among_bytes():
    assert surprise.bits_per_byte(10 * math.log(256), 10) == pytest.approx(8)


# bad input


@pytest.mark.parametrize("function", [surprise.cross_entropy, surprise.kl_divergence])
@pytest.mark.parametrize("bad", [[0.5, 0.4], [1.5, -0.5], [math.nan, 1.0], [2.0, -1.0], [0.0, 0.0]])
def test_what_is_no_distribution_over_the_same_vocabulary_is_refused(function, bad):
    good = tensor([0.5, 0.5])
    for p, q, name in ((tensor(bad), good, "truth"), (good, tensor(bad), "model")):
        with pytest.raises(ValueError, match=f"{name}: 2 probabilities"):
            function(p, q)
    with pytest.raises(ValueError, match="model: 2 probabilities"):
        function(good, tensor([1.0]))


@pytest.mark.parametrize("bad", [-1, V])
def test_an_id_outside_the_vocabulary_is_named(logits, targets, bad):
    targets[0, 0] = bad
    with pytest.raises(ValueError, match=f"from 0 to {V - 1}.*{bad}"):
        maximum_likelihood.token_log_probs(logits, targets)
    with pytest.raises(ValueError, match=f"from 0 to {V - 1}.*{bad}"):
        text_probability.joint_log_prob(lambda context: torch.zeros(V), tensor([bad]))


def test_logits_of_another_shape_and_targets_that_are_no_integers_are_refused(logits, targets):
    with pytest.raises(ValueError, match=r"each of .*\[3, 4\]\), got .*\[3, 5, 7\]"):
        maximum_likelihood.token_log_probs(logits, targets[:, :4])
    for dtype in (torch.float32, torch.bool):
        with pytest.raises(TypeError, match="integer token ids"):
            maximum_likelihood.token_log_probs(logits, targets.to(dtype))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(B, 1) > 0, r"a mask \(3, 5\), got \(3, 1\)"),
        (torch.zeros(B, T) > 0, "only padding"),
    ],
)
def test_a_mask_that_is_none_or_hides_everything_is_refused(logits, targets, mask, message):
    with pytest.raises(ValueError, match=message):
        maximum_likelihood.negative_log_likelihood(logits, targets, mask=mask)


NOTHING = torch.tensor([], dtype=torch.long)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (surprise.perplexity, (-0.1,), "at least 0 nats"),
        (surprise.perplexity, (math.nan,), "at least 0 nats"),
        (surprise.bits_per_byte, (1.0, 0), "at least 1 byte, got 0; pass n_bytes"),
        (text_probability.joint_log_prob, (torch.zeros, NOTHING), "at least one token"),
        (text_probability.context_window, ([1, 2], -1), "from 0 to 2 .*got t=-1"),
        (text_probability.context_window, ([1, 2], 3), "from 0 to 2 .*got t=3"),
        (
            partial(text_probability.context_window, length=0),
            ([1, 2], 1),
            "length above 0, got .*length=0",
        ),
    ],
)
def test_what_is_no_text_and_no_surprise_is_refused(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
