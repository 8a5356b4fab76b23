"""How does a model answer a question that it was only taught to continue?

    answer = argmax over choices of  log p(choice | prompt) / measure        see `MEASURES`

Or it writes an answer, greedily, which is right or not. A model is any callable from ids, (B, T),
to logits, (B, T, V), whose position t looks at no input after t.

Axes: B items, T positions, V vocabulary. Derived in the chapter `gpt/zero_shot`.
Sources: Brown et al. 2020, section 2.4, and Holtzman et al. 2021.
"""

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..likelihood.evaluation import Score, check_ids, checked_logits
from ..likelihood.maximum_likelihood import token_log_probs
from ..likelihood.models import LanguageModel, evaluating
from ..likelihood.surprise import NATS_PER_BIT
from .sampling import generate, temperature

# ---- the likelihood of choices -------------------------------------------------------------------


MEASURES = ("sum", "per token", "per byte", "against unconditional")


@dataclass(frozen=True)
class ChoiceScore:
    """What a choice cost after its prompt, and what a choice between choices is made by.

    >>> yes = ChoiceScore(Score(nats=6.0, tokens=3, n_bytes=12), alone=8.0)
    >>> yes.measure("sum"), yes.measure("per token"), yes.measure("against unconditional")
    (-6.0, -2.0, 2.0)

    Attributes:
        score: the nats of the choice given the prompt; the prompt's own are in no score.
        alone: the nats of the same choice after the unconditional prompt; None: not asked.
    """

    score: Score
    alone: float | None = None

    def measure(self, by: str) -> float:
        """The greater, the better, for any of `MEASURES`, in nats.

            sum                      log p(choice | prompt)
            per token, per byte      the same, divided by how many tokens or bytes the choice has
            against unconditional    log p(choice | prompt) - log p(choice | unconditional prompt)

        The last is the pointwise mutual information of choice and prompt, if the unconditional
        prompt says nothing.

        Raises:
            ValueError: another measure, unknown bytes, no unconditional prompt was given, or the
                choice is impossible after it.
        """
        nats = self.score.nats
        if by == "sum":
            return -nats
        if by == "per token":
            return -self.score.loss
        if by == "per byte":
            return -self.score.bits_per_byte * NATS_PER_BIT
        if by not in MEASURES or self.alone is None:
            raise ValueError(f"expected one of {MEASURES}, with unconditional=, got {by!r}")
        if math.isinf(self.alone) and math.isfinite(nats):
            raise ValueError("expected choices that are possible after the unconditional prompt")
        return -math.inf if math.isinf(nats) else self.alone - nats  # impossible stays impossible


def choice_scores(
    model: LanguageModel,
    items: Sequence[tuple[Tensor, Sequence[Tensor]]],
    *,
    context_length: int,
    unconditional: Tensor | None = None,
    n_bytes: Sequence[Sequence[int]] | None = None,
    batch_size: int = 64,
) -> list[list[ChoiceScore]]:
    """How likely a model finds each choice after its prompt: no tuning, and no answer but these.

    A model that gives "yes" 1/4 and "no" 1/2 after a prompt: -log 4 and -log 2 nats, so "no".

    Gradients and dropout are off meanwhile.

    Args:
        model: from (B, T) ids to (B, T, V) logits.
        items: (prompt, choices); ids (P,), at least one (an end token, if there is nothing to say),
            and two or more of (C,), at least one each.
        context_length: the most inputs that the model takes. The last token of a choice is no
            input, so prompt and choice may have one more together.
        unconditional: (U,); a prompt that gives nothing away, such as [end] or "answer :", for
            the measure against it.
        n_bytes: for each item, the bytes of each of its choices; None: unknown.
        batch_size: how many texts go through the model at once.
    Returns:
        For each item a score for each of its choices, in their order.
    Raises:
        ValueError: an empty prompt or choice, fewer than two choices, a prompt and choice too long
            for the context (they are not cut: what is left would be another question), n_bytes that
            do not fit, NaN logits.
        TypeError: ids that are not integers, or a model that returns something other than a tensor.
    Source: Brown et al. 2020, section 2.4; Holtzman et al. 2021 (against an unconditional prompt).
    """
    nats = _choice_nats(model, items, context_length, batch_size)
    alone: Sequence[Sequence[float | None]] = [[None] * len(choices) for _, choices in items]
    if unconditional is not None:
        bare = [(unconditional, choices) for _, choices in items]
        alone = _choice_nats(model, bare, context_length, batch_size)
    scored = []
    for i, (_, choices) in enumerate(items):
        sizes = [None] * len(choices) if n_bytes is None else n_bytes[i]
        parts = zip(nats[i], choices, sizes, alone[i], strict=True)
        scored.append([ChoiceScore(Score(a, len(c), size), b) for a, c, size, b in parts])
    return scored


def chosen(scores: Sequence[Sequence[ChoiceScore]], by: str = "sum") -> list[int]:
    """Which choice of each item is best by one of `MEASURES`; the first of several equally good."""
    measured = [[each.measure(by) for each in row] for row in scores]
    return [values.index(max(values)) for values in measured]


def _choice_nats(
    model: LanguageModel, items: Sequence, context_length: int, batch_size: int
) -> list[list[float]]:
    """For each item, the nats of each choice given the prompt: a row of a batch is both."""
    rows, first = [], []  # texts of prompt and choice; the place of the choice
    for i, (prompt, choices) in enumerate(items):
        if len(choices) < 2:
            raise ValueError(f"expected 2 choices or more, got {len(choices)} in item {i}")
        for choice in choices:
            _check_prompt(f"the prompt of item {i}", prompt, len(choice), context_length)
            check_ids(f"a choice of item {i}", choice)
            rows.append(torch.cat([prompt, choice]))
            first.append(len(prompt))
    order = sorted(range(len(rows)), key=lambda n: len(rows[n]))  # little is padded
    nats = [0.0] * len(rows)
    with evaluating(model):
        for batch in torch.tensor(order).split(batch_size):
            # Padding stands on the right, where no earlier position looks. Choices that differ in
            # their last token have the same inputs, and the model reads these once.
            inputs = pad_sequence([rows[n][:-1] for n in batch], batch_first=True)
            inputs, same = inputs.unique(dim=0, return_inverse=True)
            logits = checked_logits(model(inputs), inputs)  # (B, T, V)
            for n, row in zip(batch, same, strict=True):
                own = logits[row, first[n] - 1 : len(rows[n]) - 1]  # (C, V)
                own = own.to(torch.promote_types(own.dtype, torch.float32))
                nats[n] = -float(token_log_probs(own, rows[n][first[n] :]).double().sum())
    if any(map(math.isnan, nats)):
        raise ValueError("expected log-probabilities, got NaN: the logits hold NaN or +inf")
    parts = iter(nats)
    return [[next(parts) for _ in choices] for _, choices in items]


# ---- written answers -----------------------------------------------------------------------------


def greedy_answers(
    model: LanguageModel,
    prompts: Sequence[Tensor],
    *,
    context_length: int,
    max_new_tokens: int,
    stop: int | None = None,
    batch_size: int = 64,
) -> list[Tensor]:
    """What a model goes on with after each prompt, the likeliest token each time, (N,) ids.

    Args:
        model: from (B, T) ids to (B, T, V) logits.
        prompts: (P,) ids each, at least one.
        context_length: the most inputs that the model takes.
        max_new_tokens: how long an answer is at most; the prompt and all of it but the last token
            must fit the context.
        stop: the token that ends an answer, of which it is no part.
        batch_size: how many prompts go through the model at once.
    Raises:
        ValueError: no prompt, an empty one, or one too long for the context.
    """
    for number, prompt in enumerate(prompts):
        _check_prompt(f"prompt {number}", prompt, max_new_tokens, context_length)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    answers = {}
    for batch in torch.tensor(order).split(batch_size):
        texts = generate(
            model,
            [prompts[i] for i in batch],
            max_new_tokens=max_new_tokens,
            filters=[partial(temperature, t=0)],
            stop=stop,
            context_length=context_length,
            generator=torch.Generator(),
        )
        for i, text in zip(batch.tolist(), texts, strict=True):
            new = text[len(prompts[i]) :]
            answers[i] = new[:-1] if stop is not None and stop in new[-1:] else new
    return [answers[i] for i in range(len(prompts))]


def plain(answer: str) -> str:
    """An answer as `exact_match` compares it: in lower case, without punctuation, single spaces.

    >>> plain(" The  Hall. ")
    'the hall'
    """
    kept = answer.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(kept.split())


def exact_match(answers: Sequence[str], references: Sequence[str]) -> float:
    """The share of answers that are, made `plain`, the reference: no credit for half of it.

    >>> exact_match(["Hall.", "the barn"], ["hall", "barn"])
    0.5

    Raises:
        ValueError: not as many answers as references, or a reference of which nothing is left.
    """
    wanted = [plain(reference) for reference in references]
    if not all(wanted):
        raise ValueError(f"expected references with a letter or digit, got {references}")
    pairs = zip(map(plain, answers), wanted, strict=True)
    return sum(answer == reference for answer, reference in pairs) / len(answers)


def _check_prompt(name: str, prompt: Tensor, answer: int, context_length: int) -> None:
    check_ids(name, prompt)
    if len(prompt) + answer - 1 > context_length:  # the last of the answer is no input
        expected = f"expected a context of {context_length} tokens to hold {name} and its answer"
        raise ValueError(f"{expected}, got {len(prompt)} and {answer}; shorten it")
