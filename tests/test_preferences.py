"""The losses against numbers worked by hand, and policies against sums over all their answers."""

import math
from functools import partial
from itertools import islice

import pytest
import torch
from torch import nn

from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.optimisation import linear_decay
from src.gpt.preferences import (
    AnswerPolicy,
    RewardModel,
    TablePolicy,
    aim,
    answer_batch,
    answer_log_probs,
    answers_of,
    dpo_loss,
    dpo_nats,
    draw_comparisons,
    leave_one_out,
    penalised,
    policy_nats,
    ppo_loss,
    preference_loss,
    preference_nats,
    reinforce_loss,
    rollouts,
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
    assert answers_of(answer_batch(pairs)) == [answer for _, answer in pairs]
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


def test_comparisons_come_as_often_as_answers_and_rewards_say():
    """Given that they differ, the pair (i, j) has p_i p_j over the sum of all such."""
    log_probs, count = table(3), 60_000
    first, second, preferred = draw_comparisons(log_probs, REWARDS, count, generator=draw())
    pairs = torch.outer(log_probs.exp(), log_probs.exp())
    pairs.fill_diagonal_(0)
    pairs /= pairs.sum()
    found = torch.zeros(K, K, dtype=torch.float64)
    found.index_put_((first, second), torch.ones(count, dtype=torch.float64), accumulate=True)
    off = (found - count * pairs) / (count * pairs * (1 - pairs)).sqrt().clamp(min=1e-9)
    assert off.abs().max() < 5  # standard deviations, of 42 pairs
    wins = torch.sigmoid(REWARDS[first] - REWARDS[second])
    error = (wins * (1 - wins)).sum().sqrt()
    assert abs(preferred.sum() - wins.sum()) < 5 * error
    of_best = (first == 2) & (wins > 0.8)
    assert preferred[of_best].mean() > 0.75


@pytest.mark.parametrize("seed", range(3))
def test_a_reward_model_recovers_known_rewards_up_to_a_constant(seed):
    """With preferences instead of judgements there is no luck, and nothing is left of the error."""
    first, second = torch.combinations(torch.arange(K)).T
    preferred = torch.sigmoid(REWARDS[first] - REWARDS[second])
    model = nn.Sequential(nn.Embedding(K, 1), nn.Flatten(0)).double()
    nn.init.normal_(model[0].weight, generator=draw(seed))
    learn(model, [((first, second), preferred)], 600, preference_nats, clip=None)
    off = model(torch.arange(K)).detach() - REWARDS
    assert off.std() < 1e-3
    assert abs(float(off.mean())) > 1e-3  # the constant is anybody's


def test_a_reward_is_read_at_the_last_token_whatever_fills_up():
    model = RewardModel(small_gpt(), generator=draw())
    pairs = [([10, 1, 2], [3, 4, 0]), ([10], [5, 0])]
    together = model(*answer_batch(pairs))
    for value, (request, answer) in zip(together, pairs, strict=True):
        states = model.backbone.states(torch.tensor([[*request, *answer]]))
        assert torch.isclose(value, (states[0, -1] @ model.head.weight.T)[0])
        assert torch.isclose(value, model(*answer_batch([(request, answer)]))[0])


def test_a_reward_model_learns_from_comparisons_of_texts():
    """Whichever answer holds token 3 is preferred; requests differ."""
    model = RewardModel(small_gpt(), generator=draw())
    rows = [([10, a], [b, 0]) for a in range(1, 9) for b in (3, 4, 5)]
    good, bad = answer_batch(rows[::3]), answer_batch(rows[1::3])
    batch = ((good, bad), torch.ones(8))
    history = learn(model, [batch], 60, preference_nats, rate=1e-2, schedule=None)
    assert history.losses[0] > 0.5 > 0.1 > history.losses[-1]
    assert (model(*good) > model(*answer_batch(rows[2::3]))).all()


def test_a_reward_models_head_begins_near_zero_and_without_a_bias():
    heads = [RewardModel(small_gpt(), generator=draw(seed)).head for seed in range(89)]
    assert all(head.bias is None for head in heads)
    numbers = torch.cat([head.weight.detach().flatten() for head in heads])
    mean_square = float(numbers.double().square().mean())
    assert abs(mean_square / 0.02**2 - 1) < 5 * math.sqrt(2 / len(numbers))


def test_a_reward_model_leaves_its_backbone_alone():
    backbone = small_gpt()
    RewardModel(backbone, generator=draw()).backbone.embedding.data.add_(1.0)
    assert torch.equal(backbone.embedding, small_gpt().embedding)


# ---- the optimum -----------------------------------------------------------------------------


def test_the_optimum_by_hand():
    """Two answers, equally likely, log 3 apart, at a price of 1: one to three."""
    found = tilted(tensor(0.5, 0.5).log(), tensor(0.0, math.log(3)), beta=1.0)
    assert torch.allclose(found.exp(), tensor(0.25, 0.75))


def test_what_an_answer_is_worth_is_a_number_and_has_no_gradient():
    log_probs = table(1).requires_grad_()
    values = penalised(REWARDS, log_probs, table(2), beta=0.6)
    assert not values.requires_grad
    assert torch.allclose(values, REWARDS - 0.6 * (log_probs.detach() - table(2)))


# ---- policy gradient -------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [None, 0.2])
def test_rollouts_have_the_exact_gradient_on_average(clip):
    """2,500 batches of 5 answers: each component within five standard errors. So the baseline of
    the other answers adds no bias, and PPO's first step is REINFORCE's."""
    policy, base, beta = TablePolicy(table(1)), TablePolicy(table(2)), 0.6
    data = rollouts(policy, base, REWARDS.__getitem__, beta=beta, count=5, generator=draw())
    found = []
    for batch in islice(data, 2_500):
        loss = policy_nats(policy, batch, clip=clip) / 5
        found.append(-torch.autograd.grad(loss, policy.logits)[0])
    found = torch.stack(found)
    value = aim(policy.log_probs(), base.log_probs().detach(), REWARDS, beta=beta)
    exact = torch.autograd.grad(value, policy.logits)[0]  # by a sum over all answers
    off = (found.mean(0) - exact) / (found.std(0) / math.sqrt(len(found)))
    assert off.abs().max() < 5


def test_no_gradient_goes_through_advantages():
    log_probs, advantages = table(1).requires_grad_(), table(2).requires_grad_()
    reinforce_loss(log_probs, advantages).sum().backward()
    assert advantages.grad is None
    assert torch.equal(log_probs.grad, -advantages)


def test_ppos_only_gradient_is_that_of_the_policy_as_it_is_now():
    """It is -rho A where nothing is clipped, the gradient of the loss whatever A depends on."""
    log_probs, shift = table(1).requires_grad_(), 0.1 * torch.linspace(-1, 1, K)
    old, advantages = (table(1) - shift).requires_grad_(), table(2).requires_grad_()
    ppo_loss(log_probs, old, advantages).sum().backward()
    assert old.grad is advantages.grad is None
    assert torch.allclose(log_probs.grad, -shift.exp() * advantages)


def test_what_fit_is_given_are_sums_over_the_batch():
    policy, base = TablePolicy(table(1)), TablePolicy(table(2))
    first, second, preferred = torch.tensor([[0, 3, 5], [1, 2, 6], [1, 0, 1]])
    pairs = (first, second, base(first).detach(), base(second).detach())
    for nats_of, (items, goal) in (
        (preference_nats, (pairs[:2], preferred)),
        (partial(dpo_nats, beta=0.3), (pairs, preferred)),
        (policy_nats, (pairs[::2], table(3)[:3])),
        (partial(policy_nats, clip=0.2), (pairs[::2], table(3)[:3])),
    ):
        one_by_one = [
            nats_of(policy, (tuple(item[i : i + 1] for item in items), goal[i : i + 1]))
            for i in range(3)
        ]
        assert torch.isclose(nats_of(policy, (items, goal)), sum(one_by_one))


def test_leave_one_out_by_hand():
    assert torch.allclose(leave_one_out(tensor(1, 2, 6)), tensor(-3, -1.5, 4.5))


def test_the_cases_of_ppo_by_hand():
    """The slope is d loss / d log pi = -rho A where nothing is clipped."""
    cases = [  # ratio, advantage, loss, slope
        (1.5, 1.0, -1.2, 0.0),  # good, already more than 1.2 as likely: no further
        (1.5, -1.0, 1.5, 1.5),  # bad, and more likely: back
        (0.5, 1.0, -0.5, -0.5),  # good, and less likely: back
        (0.5, -1.0, 0.8, 0.0),  # bad, already less than 0.8 as likely: no further
        (1.1, 2.0, -2.2, -2.2),  # inside
        (0.9, -2.0, 1.8, 1.8),
    ]
    ratio, advantage, loss, slope = tensor(*cases).T
    log_probs = (0.3 * ratio).log().requires_grad_()
    found = ppo_loss(log_probs, tensor(*[0.3] * 6).log(), advantage)
    assert torch.allclose(found, loss)
    assert torch.allclose(torch.autograd.grad(found.sum(), log_probs)[0], slope)


def test_a_batch_is_drawn_when_it_is_asked_for_and_used_so_often():
    policy, base = TablePolicy(table(1)), TablePolicy(table(1))
    options = {"beta": 1.0, "count": 4, "repeats": 3, "generator": draw()}
    data = rollouts(policy, base, REWARDS.__getitem__, **options)
    one = next(data)
    with torch.no_grad():
        policy.logits.fill_(-30.0)
        policy.logits[6] = 0.0
    assert next(data) is next(data) is one
    (answers, old), _ = next(data)
    assert (answers == 6).all()
    assert torch.allclose(old, tensor(0, 0, 0, 0), atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("repeats", [1, 4])
def test_policy_gradient_meets_the_exact_optimum(repeats, seed):
    start, beta = table(4), 0.5
    policy, best = TablePolicy(start), tilted(start, REWARDS, beta=beta).exp()
    options = {"beta": beta, "count": 64, "repeats": repeats, "generator": draw(seed)}
    data = rollouts(policy, TablePolicy(start), REWARDS.__getitem__, **options)
    learn(policy, data, 300, partial(policy_nats, clip=0.2 if repeats > 1 else None))
    found = kl_divergence(policy.log_probs().detach().exp(), best)
    assert found < 0.02 < 0.5 < kl_divergence(start.exp(), best)


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


# ---- a language model as policy --------------------------------------------------------------


def test_an_answer_policy_draws_answers_as_often_as_it_says():
    model = small_gpt(vocabulary=3)
    policy = AnswerPolicy(model, [0, 2], end=0, longest=2)
    whole = [[0], *([a, b] for a in (1, 2) for b in (0, 1, 2))]  # all there are
    with torch.no_grad():
        probs = policy(*policy.batch(whole)).exp()
    assert torch.isclose(probs.sum(), tensor(1.0)[0])
    drawn = answers_of(policy.sample(4_000, generator=draw()))
    found = torch.tensor([drawn.count(answer) for answer in whole])
    off = (found - 4_000 * probs) / (4_000 * probs * (1 - probs)).sqrt()
    assert off.abs().max() < 5
    assert found.sum() == 4_000


def test_an_answer_policy_learns_by_fit():
    policy, base = (
        AnswerPolicy(small_gpt(vocabulary=3), [0, 2], end=0, longest=2) for _ in range(2)
    )

    def reward_of(*answers):
        return torch.tensor([float(ids == [1, 2]) for ids in answers_of(answers)])

    wanted = policy.batch([[1, 2]])
    before = float(policy(*wanted).detach().exp())
    data = rollouts(policy, base, reward_of, beta=0.1, count=32, generator=draw())
    learn(policy, data, 60, policy_nats, rate=1e-2, schedule=None)
    assert before < 0.4 < 0.8 < float(policy(*wanted).detach().exp())


# ---- what is refused -------------------------------------------------------------------------


def drawn_from(log_probs, rewards, count):
    return draw_comparisons(log_probs, rewards, count, generator=draw())


def rolled_out(count, beta=1.0):
    policy, rewards = TablePolicy(table()), REWARDS.__getitem__
    return next(rollouts(policy, policy, rewards, beta=beta, count=count, generator=draw()))


NONE, FEW, NO_RIVAL = torch.zeros(K), torch.zeros(K - 1), torch.tensor([0.0, -math.inf])


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: answer_batch([([1], [2]), ([1], [])]), "tokens in request and answer.*as pair 1"),
        (lambda: answer_batch([([], [2])]), "as pair 0"),
        (lambda: drawn_from(NONE, FEW, 1), "of one shape"),
        (lambda: drawn_from(NO_RIVAL, torch.zeros(2), 1), "no rival"),
        (lambda: tilted(NONE, FEW, beta=1.0), "of one shape"),
        (lambda: aim(NONE, NONE, FEW, beta=1.0), "of one shape"),
        (lambda: penalised(FEW, NONE, NONE, beta=1.0), "of one shape"),
        (lambda: preference_loss(NONE, FEW), "of one shape"),
        (lambda: preference_loss(NONE, NONE, FEW), "of one shape"),
        (lambda: preference_loss(NONE, NONE[:1]), "of one shape"),  # no silent broadcasting
        (lambda: reinforce_loss(NONE, FEW), "of one shape"),
        (lambda: ppo_loss(NONE, NONE, FEW), "of one shape"),
        (lambda: ppo_loss(NONE, FEW, NONE), "of one shape"),
        (lambda: dpo_loss(NONE, NONE, FEW, NONE, beta=1.0), "of one shape"),
        (lambda: leave_one_out(tensor(1)), "2 answers or more"),
        (lambda: rolled_out(1), "2 answers or more"),
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
        ((0.0, math.nan), "finite beta", lambda x: penalised(NONE, NONE, NONE, beta=x)),
        ((0.0, math.nan), "finite beta", lambda x: dpo_loss(NONE, NONE, NONE, NONE, beta=x)),
        ((0.0, math.nan), "finite beta", lambda x: rolled_out(2, beta=x)),
        ((-0.1, 1.1), "from 0", lambda x: preference_loss(NONE, NONE, NONE + x)),
        ((0.0, 1.0, -0.2, math.nan), "a clip", lambda x: ppo_loss(NONE, NONE, NONE, clip=x)),
    ],
)
def test_a_number_out_of_range_is_refused(wrong, message, function):
    for number in wrong:
        with pytest.raises(ValueError, match=f"expected .*{message}"):
            function(number)
