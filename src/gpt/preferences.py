"""How is a language model tuned to answer, and to answer as people prefer? Four losses.

    instruction   -log pi(answer | request), on the answer's tokens only
    preference    p(a over b) = sigmoid(r(a) - r(b))               Bradley-Terry: one logit, Elo
    aim           J(pi) = E_pi[r] - beta KL(pi || pi0)
    optimum       pi*(y) = pi0(y) exp(r(y) / beta) / Z              `tilted`
    REINFORCE     -A log pi(y),   A = r - beta log(pi / pi0) - baseline,   y drawn from pi
    PPO           -min(rho A, clip(rho, 1 - eps, 1 + eps) A),   rho = pi / pi_old
    DPO           preference loss with r = beta log(pi / pi0): Z cancels in the difference

An answer is one action: its log-probability is the sum of those of its tokens. Functions take
log-probabilities and know of no model. A policy is a module that gives the log-probabilities of
answers, (B,), and can `sample` some; each loss has a form for `fitting.fit`, called `…_nats`.

Axes: B answers or comparisons, K answers that can be listed, T positions, C channels.
Source: Bradley and Terry 1952; Williams 1992; Schulman et al. 2017; Ouyang et al. 2022;
Rafailov et al. 2023. Derived in the chapter `gpt/preferences`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from ..attention.heads import linear
from ..likelihood.maximum_likelihood import log_softmax, sequence_log_likelihood, token_log_probs
from ..likelihood.models import LanguageModel, device_of, evaluating
from .gpt2 import GPT
from .sampling import generate

Ids = Sequence[int] | Tensor
Answers = tuple[Tensor, Tensor, Tensor]  # inputs, targets, mask: each (B, T)
Comparison = tuple[tuple, Tensor]  # (first, second, …), how probably the first is preferred (B,)

# ---- requests and answers --------------------------------------------------------------------


def answer_batch(pairs: Sequence[tuple[Ids, Ids]]) -> Answers:
    """Requests with their answers as a batch whose mask is True at the answers' tokens only.

    >>> answer_batch([([5, 6], [7, 8])])
    (tensor([[5, 6, 7]]), tensor([[6, 7, 8]]), tensor([[False,  True,  True]]))

    Args:
        pairs: (request, answer), ids. The request begins with what every text begins with, such as
            an end token, and the answer closes with the end token: that it ends is part of it.
    Returns:
        inputs, targets and mask, each (B, T), filled up on the right: a batch of `fitting.fit`.
    Raises:
        ValueError: a request or an answer of length 0.
    """
    rows, masks = [], []
    for number, pair in enumerate(pairs):
        request, answer = (torch.as_tensor(part, dtype=torch.long) for part in pair)
        if not len(request) or not len(answer):
            raise ValueError(f"expected tokens in request and answer, got {pair} as pair {number}")
        rows.append(torch.cat([request, answer.to(request.device)]))
        places = torch.arange(1, len(rows[-1]), device=request.device)  # of the targets
        masks.append(places >= len(request))
    ids = pad_sequence(rows, batch_first=True)  # the mask hides what fills up
    return ids[:, :-1], ids[:, 1:], pad_sequence(masks, batch_first=True)


def answers_of(answers: Answers) -> list[list[int]]:
    """The ids of the answers alone, from a batch of them."""
    _, targets, mask = answers
    return [row[real].tolist() for row, real in zip(targets, mask, strict=True)]


def answer_log_probs(model: LanguageModel, answers: Answers) -> Tensor:
    """log pi(answer | request) of each row, (B,); nats, summed over the answer's tokens.

    It is a part of losses: gradients are kept, and dropout is on if the model is in training.

    Args:
        model: maps ids (B, T) to logits (B, T, V).
        answers: from `answer_batch`, on the model's device.
    """
    inputs, targets, mask = answers
    return sequence_log_likelihood(token_log_probs(model(inputs), targets), mask=mask)


# ---- what is preferred -----------------------------------------------------------------------


def preference_loss(first: Tensor, second: Tensor, preferred: Tensor | None = None) -> Tensor:
    """The surprise of each judgement if p(first over second) = sigmoid(first - second), (B,).

    It is the binary cross-entropy of one logit. Rewards 0 and 0 give log 2; rewards log 3 and 0,
    with the first preferred, give -log 3/4.

    Args:
        first, second: (B,); rewards, in nats: only their difference matters.
        preferred: (B,); 1 where the first was preferred, 0 where the second was, or how probable it
            is; None: always the first.
    Raises:
        ValueError: the shapes differ, or `preferred` is not between 0 and 1.
    """
    _check(first, second, first if preferred is None else preferred)
    if preferred is None:
        return -functional.logsigmoid(first - second)
    if preferred.min() < 0 or preferred.max() > 1:
        raise ValueError(f"expected preferences from 0 (second) to 1 (first), got {preferred}")
    logit = first - second
    return functional.binary_cross_entropy_with_logits(
        logit, preferred.to(logit.dtype), reduction="none"
    )


def draw_comparisons(
    log_probs: Tensor, rewards: Tensor, count: int, *, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Comparisons of answers drawn from a distribution, by a judge whose reward is known.

    Two different answers each; the judge prefers the first with probability
    sigmoid(r(first) - r(second)).

    Args:
        log_probs: (K,); of the answers.
        rewards: (K,); of the judge, in nats.
        count: N, how many comparisons.
        generator: draws answers and judgements; on the CPU.
    Returns:
        first, second: (N,); numbers of answers. preferred: (N,); 1.0 or 0.0.
    Raises:
        ValueError: the shapes differ, or only one answer can be drawn.
    """
    _check(log_probs, rewards)
    probs = log_softmax(log_probs.detach().double().cpu()).exp()
    if int((probs > 0).sum()) < 2:
        raise ValueError("expected two answers that can be drawn, got one: it has no rival")
    first = probs.multinomial(count, replacement=True, generator=generator)
    second = probs.multinomial(count, replacement=True, generator=generator)
    while (same := first == second).any():
        redrawn = probs.multinomial(2 * int(same.sum()), replacement=True, generator=generator)
        first[same], second[same] = redrawn.chunk(2)
    rewards = rewards.detach().double().cpu()
    wins = torch.sigmoid(rewards[first] - rewards[second])
    drawn = torch.rand(count, generator=generator, dtype=torch.float64)
    return first, second, (drawn < wins).float()


def preference_nats(model: nn.Module, batch: Comparison) -> Tensor:
    """The summed preference loss of a batch of comparisons, for `fitting.fit`.

    Args:
        model: maps a first and a second to rewards, (B,).
        batch: ((first, second), preferred).
    """
    (first, second), preferred = batch
    return preference_loss(_apply(model, first), _apply(model, second), preferred).sum()


class RewardModel(nn.Module):
    """A language model with a linear head on the state of the last token: text in, reward out.

    Args:
        backbone: a copy of it is taken.
        generator: draws the head, N(0, 0.02), without a bias: a constant would cancel.
    """

    def __init__(self, backbone: GPT, *, generator: torch.Generator):
        super().__init__()
        self.backbone = deepcopy(backbone)
        self.head = linear(backbone.config.channels, 1, bias=False, generator=generator)
        with torch.no_grad():
            self.head.weight.normal_(std=0.02, generator=generator)
        self.to(backbone.embedding)

    def forward(self, inputs: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
        """The reward of each answer, (B,), from a batch of `answer_batch`."""
        # The inputs lack each row's last token: it is the last target that the mask shows.
        ids = torch.cat([inputs[:, :1], targets], 1)
        last = (mask * torch.arange(1, ids.shape[1], device=mask.device)).amax(-1)
        states = self.backbone.states(ids)  # (B, T + 1, C)
        return self.head(states[torch.arange(len(ids), device=ids.device), last]).squeeze(-1)


# ---- the aim and its optimum, where the answers can be listed --------------------------------


def tilted(base_log_probs: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """log pi*, (K,): the distribution of the greatest E[r] - beta KL(pi || pi0), exactly.

    pi0 = (1/2, 1/2), r = (0, log 3), beta = 1: pi* = (1/4, 3/4).

    Args:
        base_log_probs: (K,); log pi0 of all answers there are.
        rewards: (K,).
        beta: nats of KL are worth so much reward.
    Raises:
        ValueError: beta is not above 0, or the shapes differ.
    """
    _check(base_log_probs, rewards, beta=beta)
    return log_softmax(log_softmax(base_log_probs) + rewards / beta)


def aim(log_probs: Tensor, base_log_probs: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """J(pi) = E_pi[r] - beta KL(pi || pi0), a sum over all answers there are.

    Args:
        log_probs, base_log_probs: (K,); log pi and log pi0.
        rewards: (K,).
        beta: as in `tilted`.
    Raises:
        ValueError: beta is not above 0, or the shapes differ.
    """
    _check(log_probs, base_log_probs, rewards, beta=beta)
    return (log_probs.exp() * (rewards - beta * (log_probs - base_log_probs))).sum()


# ---- policy gradient -------------------------------------------------------------------------


def penalised(rewards: Tensor, log_probs: Tensor, base_log_probs: Tensor, *, beta: float) -> Tensor:
    """What a drawn answer is worth: r - beta (log pi - log pi0), (B,), without a gradient.

    Its mean over answers drawn from pi is J: log(pi / pi0) estimates KL(pi || pi0), in this order.

    Raises:
        ValueError: beta is not above 0, or the shapes differ.
    """
    _check(rewards, log_probs, base_log_probs, beta=beta)
    return (rewards - beta * (log_probs - base_log_probs)).detach()


def leave_one_out(values: Tensor) -> Tensor:
    """The advantage of each of B answers: its value less the mean value of the others, (B,).

    A baseline that the answer itself does not enter leaves the gradient's expectation as it is.
    Values 1, 2, 6 give -3, -1.5, 4.5.

    Raises:
        ValueError: fewer than two values: there are no others.
    """
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"expected the values of 2 answers or more, got {values}")
    return (values - values.mean()) * len(values) / (len(values) - 1)


def reinforce_loss(log_probs: Tensor, advantages: Tensor) -> Tensor:
    """-A log pi(y) of each answer, (B,): its gradient estimates that of -J. The value means little.

    Args:
        log_probs: (B,); of answers drawn from this very policy.
        advantages: (B,); no gradient goes through them.
    Raises:
        ValueError: the shapes differ.
    """
    _check(log_probs, advantages)
    return -advantages.detach() * log_probs


def ppo_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip: float = 0.2
) -> Tensor:
    """-min(rho A, clip(rho, 1 - eps, 1 + eps) A), rho = pi / pi_old, of each answer, (B,).

    With eps = 0.2: rho = 1.5, A = 1 gives -1.2 and no gradient; rho = 1.5, A = -1 gives 1.5. At
    rho = 1 its gradient is that of `reinforce_loss`.

    Args:
        log_probs: (B,); of the policy as it is now.
        old_log_probs: (B,); of the policy that drew the answers.
        advantages: (B,).
        clip: eps, above 0 and below 1.
    Raises:
        ValueError: the shapes differ, or clip is out of range.
    Source: Schulman et al. 2017, equation 7.
    """
    _check(log_probs, old_log_probs, advantages)
    if not 0 < clip < 1:
        raise ValueError(f"expected a clip above 0 and below 1, got {clip}")
    ratio, advantages = (log_probs - old_log_probs.detach()).exp(), advantages.detach()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def policy_nats(policy: nn.Module, batch: tuple, *, clip: float | None = None) -> Tensor:
    """The summed loss of a batch of `rollouts`, for `fitting.fit`: REINFORCE, or PPO with a clip.

    Args:
        policy: maps answers to log-probabilities, (B,).
        batch: ((answers, old log-probabilities), advantages).
    """
    (answers, old_log_probs), advantages = batch
    log_probs = _without_dropout(policy, answers)
    if clip is None:
        return reinforce_loss(log_probs, advantages).sum()
    return ppo_loss(log_probs, old_log_probs, advantages, clip=clip).sum()


class Policy(Protocol):
    """A model that gives answers their log-probabilities, (B,), and can draw answers."""

    def __call__(self, *answers: Tensor) -> Tensor: ...
    def sample(self, count: int, *, generator: torch.Generator) -> Any: ...


def rollouts(
    policy: Policy,
    base: nn.Module,
    reward_of: Callable[..., Tensor],
    *,
    beta: float,
    count: int,
    repeats: int = 1,
    generator: torch.Generator,
) -> Iterator[tuple]:
    """Batches without end, drawn from the policy *as it is when the batch is asked for*.

    Args:
        policy: the one that is being trained.
        base: pi0.
        reward_of: maps answers to rewards, (B,).
        beta: as in `tilted`.
        count: B, answers in a batch.
        repeats: for how many steps, 1 or more, each batch is used; more than one asks for PPO.
        generator: draws the answers; on the CPU.
    Raises:
        ValueError: at the first batch: beta is not above 0, fewer than 2 answers, or no step.
    """
    if repeats < 1:
        raise ValueError(f"expected 1 step or more with each batch, got {repeats}")
    while True:
        with evaluating(policy, base, reward_of):
            answers = policy.sample(count, generator=generator)
            old, base_log_probs = _apply(policy, answers), _apply(base, answers)
            rewards = _apply(reward_of, answers)
        values = penalised(rewards, old, base_log_probs, beta=beta)
        batch = (answers, old), leave_one_out(values)
        for _ in range(repeats):
            yield batch


# ---- direct preference optimisation ----------------------------------------------------------


def dpo_loss(
    first: Tensor,
    second: Tensor,
    base_first: Tensor,
    base_second: Tensor,
    preferred: Tensor | None = None,
    *,
    beta: float,
) -> Tensor:
    """The preference loss with the implicit rewards beta log(pi / pi0), (B,).

    A policy that is still the base has the loss log 2, whatever it is asked.

    Args:
        first, second: (B,); log pi of the two answers of each comparison.
        base_first, base_second: (B,); log pi0 of the same.
        preferred: (B,); as in `preference_loss`.
        beta: as in `tilted`.
    Raises:
        ValueError: beta is not above 0, or the shapes differ.
    Source: Rafailov et al. 2023, equation 7.
    """
    _check(first, second, base_first, base_second, beta=beta)
    return preference_loss(beta * (first - base_first), beta * (second - base_second), preferred)


def dpo_nats(policy: nn.Module, batch: Comparison, *, beta: float) -> Tensor:
    """The summed DPO loss of a batch of comparisons, for `fitting.fit`.

    Args:
        policy: maps answers to log-probabilities, (B,).
        batch: ((first, second, log pi0 of first, log pi0 of second), preferred).
    Raises:
        ValueError: as `dpo_loss`.
    """
    (first, second, base_first, base_second), preferred = batch
    first, second = _without_dropout(policy, first), _without_dropout(policy, second)
    return dpo_loss(first, second, base_first, base_second, preferred, beta=beta).sum()


# ---- policies --------------------------------------------------------------------------------


class TablePolicy(nn.Module):
    """A policy with a logit of its own for each of K answers, which go by their numbers.

    Args:
        log_probs: (K,); what it begins as.
    """

    def __init__(self, log_probs: Tensor):
        super().__init__()
        self.logits = nn.Parameter(log_softmax(log_probs.detach()).clone())

    def log_probs(self) -> Tensor:
        """Those of all answers, (K,)."""
        return log_softmax(self.logits)

    def forward(self, answers: Tensor) -> Tensor:
        """The log-probabilities of some answers, (B,), given as numbers, (B,)."""
        return self.log_probs()[answers]

    def sample(self, count: int, *, generator: torch.Generator) -> Tensor:
        """The numbers of `count` answers, (B,)."""
        probs = self.log_probs().exp().cpu()
        drawn = probs.multinomial(count, replacement=True, generator=generator)
        return drawn.to(self.logits.device)


class AnswerPolicy(nn.Module):
    """A language model that answers one request.

    Args:
        model: is trained where the policy is.
        request: ids, with what every text begins with.
        end: the token that ends an answer.
        longest: tokens of an answer at most, the end token included; one that has not ended by then
            is cut, and counts as another answer than any that has.
    """

    def __init__(self, model: nn.Module, request: Ids, *, end: int, longest: int):
        super().__init__()
        self.model, self.request = model, [int(token) for token in request]
        self.end, self.longest = end, longest

    def batch(self, answers: Sequence[Ids]) -> Answers:
        """Answers, as ids, in the form that the policy reads."""
        device = device_of(self.model)
        batch = answer_batch([(self.request, answer) for answer in answers])
        inputs, targets, mask = (part.to(device) for part in batch)
        return inputs, targets, mask

    def forward(self, inputs: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
        """The log-probabilities of answers, (B,), from a `batch` of them."""
        return answer_log_probs(self.model, (inputs, targets, mask))

    def sample(self, count: int, *, generator: torch.Generator) -> Answers:
        """A batch of `count` answers."""
        texts = generate(
            self.model,
            [self.request] * count,
            max_new_tokens=self.longest,
            stop=self.end,
            generator=generator,
        )
        return self.batch([text[len(self.request) :] for text in texts])


# ---- below the surface -----------------------------------------------------------------------


def _apply(model: Callable[..., Tensor], items: Tensor | tuple[Tensor, ...]) -> Tensor:
    return model(*items) if isinstance(items, tuple) else model(items)


def _without_dropout(policy: nn.Module, answers: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The log-probabilities as for drawing, with gradients: rho = 1 until the policy has moved."""
    with evaluating(policy), torch.enable_grad():
        return _apply(policy, answers)


def _check(*tensors: Tensor, beta: float = 1.0) -> None:
    """Refuse shapes that differ, which torch would broadcast, and a price of KL that is none."""
    if len(shapes := {tuple(tensor.shape) for tensor in tensors}) > 1:
        raise ValueError(f"expected one number for each answer, of one shape, got {shapes}")
    if not 0 < beta < math.inf:
        raise ValueError(f"expected a finite beta above 0, the price of a nat of KL, got {beta}")
