"""How is a language model tuned to answer, and to answer as people prefer? Four losses.

    instruction   -log pi(answer | request), on the answer's tokens only
    preference    p(a over b) = sigmoid(r(a) - r(b))               Bradley-Terry: one logit, Elo
    aim           J(pi) = E_pi[r] - beta KL(pi || pi0)
    optimum       pi*(y) = pi0(y) exp(r(y) / beta) / Z              `tilted`
    REINFORCE     -A log pi(y),   A = r - beta log(pi / pi0) - baseline,   y drawn from pi
    DPO           preference loss with r = beta log(pi / pi0): Z cancels in the difference

An answer is one action: its log-probability is the sum of those of its tokens. Functions take
log-probabilities and know of no model. A policy is a module that gives the log-probabilities of
answers, (B,); the loss of DPO has a form for `fitting.fit`, `dpo_nats`.

Axes: B answers or comparisons, K answers that can be listed, T positions, C channels.
Source: Bradley and Terry 1952; Williams 1992; Ouyang et al. 2022; Rafailov et al. 2023.
Derived in the chapter `gpt/preferences`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from ..likelihood.maximum_likelihood import log_softmax, sequence_log_likelihood, token_log_probs
from ..likelihood.models import LanguageModel

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
    first, second = policy(first), policy(second)
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


# ---- below the surface -----------------------------------------------------------------------


def _check(*tensors: Tensor, beta: float = 1.0) -> None:
    """Refuse shapes that differ, which torch would broadcast, and a price of KL that is none."""
    if len(shapes := {tuple(tensor.shape) for tensor in tensors}) > 1:
        raise ValueError(f"expected one number for each answer, of one shape, got {shapes}")
    if not 0 < beta < math.inf:
        raise ValueError(f"expected a finite beta above 0, the price of a nat of KL, got {beta}")
