"""The losses against numbers worked by hand, and policies against sums over all their answers."""

import math
from functools import partial

import pytest
import torch

from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.optimisation import linear_decay
from src.gpt.preferences import (
    TablePolicy,
    aim,
    answer_batch,
    answer_log_probs,
    dpo_loss,
    dpo_nats,
    leave_one_out,
    preference_loss,
    reinforce_loss,
    tilted,
)
from src.likelihood.fitting import fit
from src.likelihood.maximum_likelihood import log_softmax
from src.likelihood.surprise import kl_divergence

K = 7
REWARDS = torch.tensor([0.3, -1.1, 2.0, 0.0, 0.7, -0.4, 1.3], dtype=torch.float64)


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def table(seed=0, size=K):
    return log_softmax(torch.randn(size, generator=draw(seed), dtype=torch.float64))


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def small_gpt(seed=0, vocabulary=11):
    config = GPTConfig(vocabulary, context_length=13, layers=1, heads=2, channels=8)
    return GPT(config, generator=draw(seed)).double()


def learn(model, data, steps, nats_of, *, rate=0.1, **options):
    options = {"schedule": linear_decay(steps), "progress": False} | options
    return fit(model, data, steps=steps, learning_rate=rate, nats_of=nats_of, **options)


# ---- masks -----------------------------------------------------------------------------------


def test_the_loss_of_an_answer_is_that_of_its_tokens_after_the_request():
    model, pairs = small_gpt(), [([10, 1, 2], [3, 4, 0]), ([10], [5, 0])]
    found = answer_log_probs(model, answer_batch(pairs))
    for value, (request, answer) in zip(found, pairs, strict=True):
        rows = model(torch.tensor([[*request, *answer]]))[0].log_softmax(-1)
        by_hand = sum(rows[len(request) + t - 1, token] for t, token in enumerate(answer))
        assert torch.isclose(value, by_hand)


# ---- preferences -----------------------------------------------------------------------------


def test_preference_loss_by_hand():
    """Equal rewards: log 2. A lead of log 3 wins with 3/4, and so loses with 1/4."""
    lead, level = tensor(*[math.log(3)] * 3, 5.0), tensor(0.0, 0.0, 0.0, 5.0)
    won, lost = math.log(4 / 3), math.log(4)
    found = preference_loss(lead, level, tensor(1, 0, 0.5, 1))
    assert torch.allclose(found, tensor(won, lost, (won + lost) / 2, math.log(2)))
    assert torch.allclose(preference_loss(lead, level)[0], tensor(won))


def test_preference_loss_is_a_softmax_over_two_and_does_not_overflow():
    first, second = torch.randn(5, generator=draw()), torch.randn(5, generator=draw(1))
    of_two = torch.stack([first, second]).log_softmax(0)
    assert torch.allclose(preference_loss(first, second), -of_two[0], atol=1e-6)
    assert preference_loss(tensor(-5e3), tensor(5e3)) == 1e4


# ---- the optimum -----------------------------------------------------------------------------


def test_the_optimum_by_hand():
    """Two answers, equally likely, log 3 apart, at a price of 1: one to three."""
    found = tilted(tensor(0.5, 0.5).log(), tensor(0.0, math.log(3)), beta=1.0)
    assert torch.allclose(found.exp(), tensor(0.25, 0.75))


# ---- policy gradient -------------------------------------------------------------------------


def test_no_gradient_goes_through_advantages():
    log_probs, advantages = table(1).requires_grad_(), table(2).requires_grad_()
    reinforce_loss(log_probs, advantages).sum().backward()
    assert advantages.grad is None
    assert torch.equal(log_probs.grad, -advantages)


def test_leave_one_out_by_hand():
    assert torch.allclose(leave_one_out(tensor(1, 2, 6)), tensor(-3, -1.5, 4.5))


# ---- direct preference optimisation ----------------------------------------------------------


def test_dpo_loss_by_hand():
    """beta = 2, log pi / pi0 = log 3 and 0: the preferred one leads by 2 log 3, odds of 9 to 1."""
    of_base = tensor(-1.0, -1.0)
    given = (of_base + math.log(3), of_base, of_base, of_base)
    found = dpo_loss(*given, tensor(1.0, 0.0), beta=2.0)
    assert torch.allclose(found, tensor(math.log(10 / 9), math.log(10)))
    assert torch.allclose(dpo_loss(*given, beta=2.0), found[:1].expand(2))


@pytest.mark.parametrize("seed", range(3))
def test_dpo_meets_the_exact_optimum(seed):
    """On every pair, and how probably the judge prefers the first: the mean over all luck."""
    base, beta = table(4), 0.7
    policy = TablePolicy(table(40 + seed))  # it need not even begin as the base
    first, second = torch.combinations(torch.arange(K)).T
    preferred = torch.sigmoid(REWARDS[first] - REWARDS[second])
    everything = [((first, second, base[first], base[second]), preferred)]
    learn(policy, everything, 400, partial(dpo_nats, beta=beta))
    best = tilted(base, REWARDS, beta=beta).exp()
    assert kl_divergence(policy.log_probs().detach().exp(), best) < 1e-4


# ---- what is refused -------------------------------------------------------------------------


NONE, FEW = torch.zeros(K), torch.zeros(K - 1)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: answer_batch([([1], [2]), ([1], [])]), "tokens in request and answer.*as pair 1"),
        (lambda: answer_batch([([], [2])]), "as pair 0"),
        (lambda: tilted(NONE, FEW, beta=1.0), "of one shape"),
        (lambda: aim(NONE, NONE, FEW, beta=1.0), "of one shape"),
        (lambda: preference_loss(NONE, FEW), "of one shape"),
        (lambda: preference_loss(NONE, NONE, FEW), "of one shape"),
        (lambda: preference_loss(NONE, NONE[:1]), "of one shape"),  # no silent broadcasting
        (lambda: reinforce_loss(NONE, FEW), "of one shape"),
        (lambda: dpo_loss(NONE, NONE, FEW, NONE, beta=1.0), "of one shape"),
        (lambda: leave_one_out(tensor(1)), "2 answers or more"),
    ],
)
def test_what_cannot_be_is_refused(work, message):
    with pytest.raises(ValueError, match=message):
        work()


@pytest.mark.parametrize(
    ("wrong", "message", "function"),
    [
        ((0.0, -1.0, math.inf, math.nan), "finite beta", lambda x: tilted(NONE, NONE, beta=x)),
        ((0.0, math.nan), "finite beta", lambda x: aim(NONE, NONE, NONE, beta=x)),
        ((0.0, math.nan), "finite beta", lambda x: dpo_loss(NONE, NONE, NONE, NONE, beta=x)),
        ((-0.1, 1.1), "from 0", lambda x: preference_loss(NONE, NONE, NONE + x)),
    ],
)
def test_a_number_out_of_range_is_refused(wrong, message, function):
    for number in wrong:
        with pytest.raises(ValueError, match=f"expected .*{message}"):
            function(number)
