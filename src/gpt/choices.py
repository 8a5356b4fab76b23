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

from ..likelihood.evaluation import Score, check_ids, check_windows, checked_logits
from ..likelihood.maximum_likelihood import token_log_probs
from ..likelihood.models import LanguageModel, evaluating
from ..likelihood.surprise import NATS_PER_BIT
from .sampling import generate, temperature

# ---- the likelihood of choices -------------------------------------------------------------------


MEASURES = ("sum", "per token", "per byte", "against unconditional")


@dataclass(frozen=True)
class ChoiceScore:
    """What a choice cost after its prompt, and what a choice between choices is made by.

    >>> found = ChoiceScore(Score(nats=6.0, tokens=3, n_bytes=12), alone=8.0)
    >>> found.measure("sum"), found.measure("per token"), found.measure("against unconditional")
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
        if by not in MEASURES:
            raise ValueError(f"expected a measure among {MEASURES}, got {by!r}")
        if by == "sum":
            return -self.score.nats
        if by == "per token":
            return -self.score.loss
        if by == "per byte":
            return -self.score.bits_per_byte * NATS_PER_BIT
        if self.alone is None:
            raise ValueError(
                "expected scores that know what the choice costs without its prompt; pass "
                "unconditional= when scoring"
            )
        if math.isinf(self.score.nats):
            return -math.inf  # what is impossible after the prompt stays so
        if math.isinf(self.alone):
            raise ValueError(
                "expected choices that are possible after the unconditional prompt, got one that "
                "is not; take another prompt, such as the last words of each"
            )
        return self.alone - self.score.nats


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

    Choices that differ in their last token only, such as all those of one token, are read off one
    pass of the model. Gradients and dropout are off meanwhile.

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
        ValueError: no item, an empty prompt or choice, fewer than two choices, a prompt and choice
            too long for the context (they are not cut: what is left would be another question),
            n_bytes that do not fit, sizes out of range, NaN logits.
        TypeError: ids that are not integers, or a model that returns something other than a tensor.
    Source: Brown et al. 2020, section 2.4; Holtzman et al. 2021 (against an unconditional prompt).
    """
    check_windows(context_length, context_length, batch_size)
    _check_items(items, context_length, n_bytes)
    with evaluating(model):
        nats = _choice_nats(model, items, batch_size)
        alone: Sequence[Sequence[float | None]] = [[None] * len(of_item) for of_item in nats]
        if unconditional is not None:
            bare = [(unconditional, choices) for _, choices in items]
            _check_items(bare, context_length, None)
            alone = _choice_nats(model, bare, batch_size)
    scored = []
    for i, (_, choices) in enumerate(items):
        sizes = [None] * len(choices) if n_bytes is None else n_bytes[i]
        parts = zip(nats[i], choices, sizes, alone[i], strict=True)
        scored.append([ChoiceScore(Score(a, len(c), size), b) for a, c, size, b in parts])
    return scored


def chosen(scores: Sequence[Sequence[ChoiceScore]], by: str = "sum") -> list[int]:
    """Which choice of each item is best by one of `MEASURES`; the first of several equally good."""
    measured = [[each.measure(by) for each in of_item] for of_item in scores]
    return [values.index(max(values)) for values in measured]


def _choice_nats(model: LanguageModel, items: Sequence, batch_size: int) -> list[list[float]]:
    """For each item, the nats of each choice given the prompt."""
    # inputs: [(item, choice, where it begins to be predicted, its ids)]
    wanted: dict[tuple[int, ...], list[tuple[int, int, int, tuple[int, ...]]]] = {}
    for i, (prompt, choices) in enumerate(items):
        before = tuple(prompt.tolist())
        for j, choice in enumerate(choices):
            ids = tuple(choice.tolist())
            wanted.setdefault(before + ids[:-1], []).append((i, j, len(before) - 1, ids))
    device, rows = items[0][0].device, sorted(wanted, key=len)  # little is padded
    nats = [[0.0] * len(choices) for _, choices in items]
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        # Padding stands on the right, where no earlier position looks.
        inputs = pad_sequence([torch.tensor(row) for row in batch], batch_first=True).to(device)
        logits = checked_logits(model(inputs), inputs)  # (B, T, V)
        places = [
            (b, first + k, token, i, j)
            for b, row in enumerate(batch)
            for i, j, first, ids in wanted[row]
            for k, token in enumerate(ids)
        ]
        b, t, targets = torch.tensor([place[:3] for place in places], device=device).T
        at = logits[b, t]  # (tokens, V)
        at = at.to(torch.promote_types(at.dtype, torch.float32))
        surprise = -token_log_probs(at, targets)  # (tokens,)
        if surprise.isnan().any():
            raise ValueError(
                "expected log-probabilities, got NaN: the logits hold NaN or +inf, or are all -inf"
            )
        for (*_, i, j), cost in zip(places, surprise.tolist(), strict=True):
            nats[i][j] += cost
    return nats


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
        ValueError: no prompt, an empty one, one too long for the context, or sizes out of range.
    """
    check_windows(context_length, context_length, batch_size)
    if max_new_tokens < 1:
        raise ValueError(f"expected an answer of at least 1 token, got {max_new_tokens}")
    if not prompts:
        raise ValueError("expected at least one prompt, got none")
    for number, prompt in enumerate(prompts):
        check_ids(f"prompt {number}", prompt)
        _check_fits(f"prompt {number}", len(prompt), max_new_tokens, context_length)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    answers = {}
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        texts = generate(
            model,
            [prompts[i] for i in batch],
            max_new_tokens=max_new_tokens,
            filters=[partial(temperature, t=0)],
            stop=stop,
            context_length=context_length,
            generator=torch.Generator(),
        )
        for i, text in zip(batch, texts, strict=True):
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
        ValueError: no answers, not as many as references, or a reference of which nothing is left.
    """
    if not answers or len(answers) != len(references):
        raise ValueError(
            f"expected answers, as many as references, got {len(answers)} and {len(references)}"
        )
    for reference in references:
        if not plain(reference):
            raise ValueError(f"expected references with a letter or digit, got {reference!r}")
    pairs = zip(map(plain, answers), map(plain, references), strict=True)
    return sum(answer == reference for answer, reference in pairs) / len(answers)


# ---- checks --------------------------------------------------------------------------------------


def _check_items(items: Sequence, context_length: int, n_bytes: Sequence | None) -> None:
    if len(items) == 0:
        raise ValueError("expected at least one prompt with its choices, got none")
    for i, (prompt, choices) in enumerate(items):
        check_ids(f"the prompt of item {i}", prompt)
        if len(choices) < 2:
            raise ValueError(f"expected 2 choices or more, got {len(choices)} in item {i}")
        for j, choice in enumerate(choices):
            check_ids(f"choice {j} of item {i}", choice)
            _check_fits(f"item {i}", len(prompt), len(choice), context_length)
    if n_bytes is not None:
        counts = [len(choices) for _, choices in items]
        if [len(of_item) for of_item in n_bytes] != counts:
            raise ValueError("expected n_bytes to hold one number for each choice of each item")
        if any(size < 1 for of_item in n_bytes for size in of_item):
            raise ValueError("expected choices of at least 1 byte each")


def _check_fits(name: str, before: int, after: int, context_length: int) -> None:
    if before + after - 1 > context_length:
        raise ValueError(
            f"expected a context of {context_length} tokens to hold all inputs, got "
            f"{before + after - 1} in {name}: {before} of the prompt and {after} of the answer, "
            "whose last is no input; shorten the prompt, for a prompt cut unseen asks another "
            "question"
        )
