"""How many nats does a model need for a text, however the text is cut, padded and batched?

    nats       = - sum over documents, sum over their tokens, log p(x_t | its context)
    loss       = nats / tokens            perplexity = exp(loss)
    bits/byte  = nats / (log 2 · bytes)   the unit in which models of any tokens compare

Everything is summed first and divided once. A document is its tokens with one more in front,
which is context only: [end, x_1, …, x_T = end]. A window sees at most `context_length` inputs;
the next begins `stride` inputs later and scores only what no window before it has scored. The
token after input t is thus predicted from the inputs s … t (tau the context length, S the stride):

    s = S · ceil(max(0, t + 1 - tau) / S)     S = tau: disjoint chunks; S = 1: the last tau inputs

Axes: B windows, T positions, V vocabulary, M documents. A model is any callable from ids, (B, T),
to logits, (B, T, V), whose position t looks at no input after t. Derived in the chapters
`likelihood/units` and `likelihood/a_beats_b`. Sources: the documentation of Hugging Face's
transformers, "Perplexity of fixed-length models" (window and stride); Koehn 2004 (bootstrap).
"""

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .maximum_likelihood import token_log_probs
from .models import LanguageModel, evaluating
from .surprise import NATS_PER_BIT, bits_per_byte, perplexity


@dataclass(frozen=True)
class Score:
    """What a text cost under a model: sums only. Scores add; quotients are taken last.

    Four tokens at 1 nat and two at 4: 12 nats, 6 tokens, a loss of 2 and not of 2.5.

    >>> (Score(4.0, 4) + Score(8.0, 2)).loss
    2.0

    Args:
        nats: the sum of -log p; infinite if some token had probability 0.
        tokens: how many tokens were scored, end tokens included.
        n_bytes: the bytes of the text, end tokens not counted; None: unknown.
    """

    nats: float
    tokens: int
    n_bytes: int | None = None

    def __add__(self, other: "Score") -> "Score":
        n_bytes = None
        if self.n_bytes is not None and other.n_bytes is not None:
            n_bytes = self.n_bytes + other.n_bytes
        return Score(self.nats + other.nats, self.tokens + other.tokens, n_bytes)

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(loss): the vocabulary of a uniform model that would do as badly."""
        return perplexity(self.loss)

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of text; a ValueError where the number of bytes is unknown."""
        return bits_per_byte(self.nats, self.n_bytes)


def total(scores: Iterable[Score]) -> Score:
    """The score of several texts, at least one; it knows its bytes if all of them do.

    >>> total([Score(4.0, 4), Score(8.0, 2)]).loss
    2.0
    """
    return reduce(operator.add, scores)


def documents(stream: Tensor, *, end: int) -> list[Tensor]:
    """The documents of a stream [end, doc_1 …, end, doc_2 …, end], each with an end token in front.

    >>> documents(torch.tensor([0, 5, 6, 0, 7, 0]), end=0)
    [tensor([0, 5, 6, 0]), tensor([0, 7, 0])]

    Args:
        stream: (N,); token ids.
        end: the end token's id.
    Returns:
        Views of the stream, in its order. Neighbours share an end token: it closes the one, where
        it is scored, and stands before the other, where it is context.
    Raises:
        ValueError: the stream has no document, or does not begin and close with the end token.
    """
    if stream.ndim != 1 or len(stream) < 2 or not int(stream[0]) == int(stream[-1]) == end:
        raise ValueError(f"expected a stream from one end token, {end}, to another, got {stream}")
    places = (stream == end).nonzero().squeeze(-1).tolist()
    return [stream[i : j + 1] for i, j in pairwise(places)]


def corpus_perplexity(
    model: LanguageModel,
    ids: Tensor | Sequence[Tensor],
    *,
    n_bytes: int | None = None,
    **windows: Any,
) -> Score:
    """The score of a model on a text: every token but the first of each document, once.

    A model that spreads its probability evenly over V tokens has perplexity V on any text. Batch
    size, padding and the order of the documents change nothing but the rounding.

    Args:
        model: as in `document_scores`.
        ids: one document, (T + 1,), or several; the first token of each is context only.
        n_bytes: the bytes of all documents together, for bits per byte.
        windows: context_length, stride and batch_size, as in `document_scores`.
    Returns:
        The score; infinite, and never NaN, if the model gives some token the probability 0.
    Raises:
        ValueError, TypeError: as `document_scores`; TypeError also if there is no document.
    """
    texts = [ids] if isinstance(ids, Tensor) else ids
    return replace(total(document_scores(model, texts, **windows)), n_bytes=n_bytes)


def document_scores(
    model: LanguageModel,
    texts: Sequence[Tensor],
    *,
    context_length: int,
    stride: int | None = None,
    batch_size: int = 8,
    n_bytes: Sequence[int] | None = None,
) -> list[Score]:
    """The score of each document by itself, in their order: what two models are compared by.

    Gradients and dropout are off meanwhile.

    Args:
        model: from (B, T) ids to (B, T, V) logits, which need not be normalised. It is called with
            ids on the device that `texts` are on.
        texts: M documents, (T_m + 1,) each; their first tokens are context only.
        context_length: the most inputs in a window.
        stride: by how many inputs the windows advance, 1 … context_length. None: context_length,
            disjoint chunks, the cheapest and the least favourable.
        batch_size: how many windows go through the model at once.
        n_bytes: M numbers, the bytes of each document; None: unknown.
    Returns:
        M scores, whose sum is the score of the corpus.
    Raises:
        ValueError: a document of fewer than 2 tokens, a context length, stride or batch size out of
            range, `n_bytes` that are not M numbers, no logits (B, T, V), NaN logits.
        TypeError: the ids are not integers.
    """
    stride = context_length if stride is None else stride
    if batch_size < 1 or not 1 <= stride <= context_length:
        got = f"{batch_size=}, {stride=} and {context_length=}"
        raise ValueError(f"expected 1 <= batch_size and 1 <= stride <= context_length, got {got}")
    for m, text in enumerate(texts):
        check_ids(f"document {m}", text, least=2)  # the first is context only
    # Windows of like length share a batch, so that little is padded.
    windows = [w for m, text in enumerate(texts) for w in _windows(m, text, context_length, stride)]
    windows.sort(key=lambda window: window.stop - window.start)
    nats = [0.0] * len(texts)
    with evaluating(model):
        for i in range(0, len(windows), batch_size):
            batch = windows[i : i + batch_size]
            # Padding stands on the right, where no earlier position looks; it is never scored.
            inputs = [texts[w.document][w.start : w.stop] for w in batch]
            padded = pad_sequence(inputs, batch_first=True)  # (B, T)
            logits = checked_logits(model(padded), padded)  # (B, T, V)
            for w, row in zip(batch, logits, strict=True):
                targets = texts[w.document][w.first + 1 : w.stop + 1]
                cost = _nats(row[w.first - w.start : w.stop - w.start], targets)
                if math.isnan(cost):
                    raise ValueError(f"expected probabilities, got NaN in document {w.document}")
                nats[w.document] += cost
    sizes = [None] * len(texts) if n_bytes is None else n_bytes
    parts = zip(nats, texts, sizes, strict=True)
    return [Score(cost, len(text) - 1, size) for cost, text, size in parts]


# ---- windows -------------------------------------------------------------------------------------


class _Window(NamedTuple):
    """The inputs start … stop - 1 of a document, of which those from `first` on are scored."""

    document: int
    start: int
    first: int
    stop: int


def _windows(document: int, text: Tensor, context_length: int, stride: int) -> Iterator[_Window]:
    inputs, scored, start = len(text) - 1, 0, 0
    while scored < inputs:
        stop = min(start + context_length, inputs)
        yield _Window(document, start, scored, stop)
        scored, start = stop, start + stride


def _nats(logits: Tensor, targets: Tensor) -> float:
    """What the targets of a window cost, in nats: the sum of -log p."""
    precise = torch.promote_types(logits.dtype, torch.float32)  # half precision sums badly
    return float(-token_log_probs(logits.to(precise), targets).cpu().sum())


# ---- the bootstrap -------------------------------------------------------------------------------


class Resampled(NamedTuple):
    """An estimate, and the interval that resampling the documents gives it."""

    estimate: float
    low: float
    high: float


UNITS = ("bits per byte", "nats per token")


def bootstrap(
    scores: Sequence[Score],
    *,
    generator: torch.Generator,
    unit: str = "bits per byte",
    resamples: int = 2_000,
    level: float = 0.95,
) -> Resampled:
    """How far the score of a corpus would move if it held other documents of the same kind.

    Draw M documents of the M with replacement, take the ratio of their sums, repeat; the interval
    runs between the quantiles (1 - level)/2 and (1 + level)/2 of the ratios. Whole documents are
    drawn: the tokens of one document resemble each other, and are not so many independent draws.

    Args:
        scores: M documents, at least 2.
        generator: on the CPU.
        unit: one of `UNITS`.
        resamples: how often to draw.
        level: the share of the ratios that the interval holds.
    Raises:
        ValueError: fewer than two documents, an infinite score, an unknown unit, unknown bytes,
            level not between 0 and 1.
    """
    nats, sizes = [score.nats for score in scores], _sizes(scores, unit)
    if len(nats) < 2 or not all(map(math.isfinite, nats)) or not 0 < level < 1:
        raise ValueError(f"expected 2 finite scores or more, 0 < level < 1, got {nats} and {level}")
    pairs = torch.tensor([nats, sizes], dtype=torch.float64)  # (2, M)
    ratios = []
    for _ in range(resamples):
        drawn = torch.randint(len(nats), (len(nats),), generator=generator)
        cost, size = pairs[:, drawn].sum(1)
        ratios.append(cost / size)
    edges = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = torch.stack(ratios).quantile(edges).tolist()
    return Resampled(sum(nats) / sum(sizes), low, high)


def paired_bootstrap(
    ours: Sequence[Score], theirs: Sequence[Score], *, unit: str = "bits per byte", **options: Any
) -> Resampled:
    """Our score minus theirs on the same documents, in one unit; below zero, ours is better.

    Both models are scored on each resample, so that what makes a document hard for both cancels.
    If 0 lies outside the interval, the difference is more than the choice of documents explains.

    Two documents of 10 tokens, we need 20 and 30 nats, they 22 and 34: (50 - 56) / 20 = -0.3.

    Args:
        ours, theirs: M scores each, of the same documents in the same order.
        unit: as in `bootstrap`.
        options: generator, resamples and level, as in `bootstrap`.
    Raises:
        ValueError: as `bootstrap`, and if the documents are not the same in number and size.
    """
    if _sizes(ours, unit) != _sizes(theirs, unit):
        raise ValueError(f"expected the same documents; other tokens compare in {UNITS[0]!r}")
    gains = [replace(a, nats=a.nats - b.nats) for a, b in zip(ours, theirs, strict=True)]
    return bootstrap(gains, unit=unit, **options)


def _sizes(scores: Sequence[Score], unit: str) -> list[float]:
    """What each document's nats are divided by."""
    if unit not in UNITS:
        raise ValueError(f"expected a unit among {UNITS}, got {unit!r}")
    if unit == "nats per token":
        return [score.tokens for score in scores]
    if not all(score.n_bytes for score in scores):
        raise ValueError("expected scores that know their bytes; pass n_bytes when scoring")
    return [score.n_bytes * NATS_PER_BIT for score in scores if score.n_bytes]


# ---- checks --------------------------------------------------------------------------------------


def check_ids(name: str, ids: Tensor, *, least: int = 1) -> None:
    """Refuse what is no text of at least so many tokens."""
    if ids.ndim != 1 or len(ids) < least:
        got = f"{tuple(ids.shape)}; begin a text, an empty one too, with the end token"
        raise ValueError(f"expected {least} or more tokens, (T,), for {name}, got {got}")


def checked_logits(logits: Tensor, inputs: Tensor) -> Tensor:
    """The logits of a model, if they are what a model has to give."""
    if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != inputs.shape:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        hint = "wrap a model that returns more: lambda ids: model(ids)[0]"
        raise ValueError(f"expected logits {(*inputs.shape, 'V')}, got {got}; {hint}")
    return logits
