"""How far does counting go? n-grams, how often each occurred, and a model that backs off.

A model of order n sees a context c of n - 1 tokens; c' is c without its oldest token. N(c w) says
how often w followed c, and N(c .) how often c was followed by any token. A `BackOffModel` takes the
longest context that it has seen:

    p(w | c) = N(c w) / N(c .)    where N(c .) > 0,        p(w | c') elsewhere,

and below the shortest context lies the uniform distribution. This is the simplest case of the form
that all count models share; the module `smoothing` fills the same tables in other ways:

    p(w | c) = mass(c w) + left(c) q(w),      sum_w mass(c w) + left(c) = 1.

An n-gram is numbered by the pair (number of its first tokens, last token): numbers stay below the
length of the stream, so no order is too high for 64 bits.

Axes: T positions, V vocabulary, G different n-grams of one length. Source: Shannon 1948, section 3.
Derived in the chapter `likelihood/ngrams`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    import torch

UNSEEN = -1  # as an index it finds the last entry, where each table keeps its default


class Grams(NamedTuple):
    """The different n-grams of one length in a stream; the number of an n-gram is its place here.

    Attributes:
        keys: (G,), ascending; number of the first tokens, times V, plus the last token.
        context: (G,); the number of the first tokens among the n-grams that are one shorter.
        counts: (G,); how often the last token was predicted from the others.
        suffix: (G,); the number, among the n-grams one shorter, of all but the first token.
        first: (G,); the first token.
        n_contexts: how many n-grams there are that are one shorter.
    """

    keys: np.ndarray
    context: np.ndarray
    counts: np.ndarray
    suffix: np.ndarray
    first: np.ndarray
    n_contexts: int

    def totals(self) -> np.ndarray:
        """N(c .), (n_contexts,): the sum of the counts after each context."""
        return np.bincount(self.context, self.counts, minlength=self.n_contexts)

    def types(self) -> np.ndarray:
        """N1+(c .), (n_contexts,): how many different tokens were counted after each context."""
        return np.bincount(self.context, self.counts > 0, minlength=self.n_contexts)


class Table(NamedTuple):
    """What one order says: mass(c w) for each n-gram and left(c) for each context.

    Both have one more entry at their end, for what was never seen: no mass, and all of it left.
    """

    keys: np.ndarray
    mass: np.ndarray
    left: np.ndarray

    @classmethod
    def of(cls, grams: Grams, mass: np.ndarray, left: np.ndarray) -> Self:
        """The table of one length, with the entry for what was never seen.

        Args:
            grams: the n-grams of one length.
            mass: (G,).
            left: (n_contexts,).
        """
        beyond = np.iinfo(np.int64).max  # so that a search ends inside the table
        return cls(np.append(grams.keys, beyond), np.append(mass, 0.0), np.append(left, 1.0))


# ---- counting --------------------------------------------------------------------------------


def count_ngrams(
    ids: Sequence[int], *, order: int, vocabulary_size: int, end: int | None = None
) -> list[Grams]:
    """The n-grams of 1, 2, …, `order` tokens in a stream, each predicted token counted once.

    The first token is context only: in the stream 0 1 1 0 the tokens 1, 1, 0 are predicted.

    Args:
        ids: (T,); the stream.
        order: the greatest length, at least 1.
        vocabulary_size: V.
        end: the end token. A context that would reach before it is filled up with it instead,
            so that no document helps to predict the next. None: the stream is one document.
    Returns:
        One entry for each length, the shortest first.
    Raises:
        ValueError, TypeError: as for `NgramModel.fit`.
    """
    _check_options(order, vocabulary_size, end)
    ids = checked_stream(ids, vocabulary_size)
    tokens, none = np.arange(vocabulary_size), np.zeros(vocabulary_size, dtype=np.int64)
    counts = np.bincount(ids[1:], minlength=vocabulary_size)
    levels = [Grams(tokens, none, counts, none, tokens, 1)]
    event = ids  # the n-gram that ends at each position
    filler = UNSEEN if end is None else end  # the one of end tokens only
    for _ in range(order - 1):
        grams, event, filler = _one_longer(levels[-1], event, ids, end, filler, vocabulary_size)
        levels.append(grams)
    return levels


def _one_longer(
    shorter: Grams,
    suffix: np.ndarray,
    ids: np.ndarray,
    end: int | None,
    filler: int,
    vocabulary_size: int,
) -> tuple[Grams, np.ndarray, int]:
    """The n-grams one token longer, the number of the one at each position, and of the filler.

    `suffix` and `filler` are the same for the shorter ones. The filler is numbered in any case: it
    is a context whether or not it was ever predicted.
    """
    context = _before(_restarted(suffix, ids, end, filler))
    here = context != UNSEEN
    keys = context[here] * vocabulary_size + ids[here]
    if end is not None:
        keys = np.append(keys, filler * vocabulary_size + end)
    keys, numbers, counts = _unique(keys)
    event = np.full(len(ids), UNSEEN)
    event[here] = numbers[: here.sum()]
    suffixes = np.empty(len(keys), dtype=np.int64)
    suffixes[event[here]] = suffix[here]
    if end is not None:
        suffixes[numbers[-1]], filler = filler, int(numbers[-1])
        counts[filler] -= 1
    heads = keys // vocabulary_size
    first = shorter.first[heads]
    return Grams(keys, heads, counts, suffixes, first, len(shorter.keys)), event, filler


def _unique(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different keys, ascending; the place of each key among them; how often each occurs.

    What `np.unique` gives, in a quarter of the time on a million keys.
    """
    import torch

    found = torch.unique(torch.from_numpy(keys), return_inverse=True, return_counts=True)
    different, places, counts = (part.numpy() for part in found)
    return different, places, counts


def _before(context: np.ndarray) -> np.ndarray:
    """What stands one position earlier; nothing before the first."""
    shifted = np.empty_like(context)
    shifted[..., 0], shifted[..., 1:] = UNSEEN, context[..., :-1]
    return shifted


def _restarted(event: np.ndarray, ids: np.ndarray, end: int | None, filler: int) -> np.ndarray:
    """The context that each position leaves to the next: after an end token, only end tokens."""
    return event if end is None else np.where(ids == end, filler, event)


# ---- the model -------------------------------------------------------------------------------


def relative_frequencies(grams: Grams) -> Table:
    """N(c w) / N(c .), with nothing left where c was seen, and all of it where it was not.

    Args:
        grams: the n-grams of one length.
    """
    totals = grams.totals()
    mass = quotient(grams.counts, totals[grams.context], 0.0)
    return Table.of(grams, mass, np.where(totals > 0, 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class BackOffModel:
    """A model of the next token made of tables: what one leaves, the shorter context gives.

    >>> model = BackOffModel.of(count_ngrams([0, 1, 2, 0, 1, 1, 0], order=2, vocabulary_size=3))
    >>> model.log_probs([1]).round(3).tolist()
    [-1.099, -1.099, -1.099]

    A token that was never seen after a seen context has log-probability -inf.

    A context shorter than n - 1 tokens, such as that of the first tokens of a stream, is treated as
    by the model of that lower order. It is not the start of a document unless it begins with `end`.

    Attributes:
        order: n, one more than the tokens of context.
        vocabulary_size: V.
        end: the end token, or None.
        tables: one for each length, shortest first.
    """

    order: int
    vocabulary_size: int
    end: int | None
    tables: tuple[Table, ...]

    @classmethod
    def of(cls, levels: Sequence[Grams], *, end: int | None = None) -> BackOffModel:
        """Relative frequencies after the longest context that was seen.

        Args:
            levels: from `count_ngrams`, with the same `end`; the shortest first. `levels[:n]` makes
                the model of order n.
            end: the end token, or None.
        """
        tables = tuple(relative_frequencies(grams) for grams in levels)
        return BackOffModel(len(levels), len(levels[0].keys), end, tables)

    def log_probs(self, context: Sequence[int]) -> np.ndarray:
        """The log-probabilities, (V,), of the token after a context of (t,) ids; nats.

        Args:
            context: the last n - 1 tokens count; fewer will do, none at all too.
        Raises:
            ValueError, TypeError: an id is no id of the vocabulary.
        """
        none = np.zeros(0, dtype=np.int64)
        known = _checked_ids(context, self.vocabulary_size) if len(context) else none
        recent = known[max(0, len(known) - self.order + 1) :]
        if not len(recent):  # the empty context, and no longer one
            contexts = [np.zeros(1, int), *[np.full(1, UNSEEN)] * (self.order - 1)]
        else:
            contexts = [context[-1:] for context, _ in self._walk(recent)]
        return _log(self._distributions(contexts, np.array([len(recent)]))[0])

    def score(self, ids: Sequence[int]) -> np.ndarray:
        """The surprise of each token after the first, (…, T - 1); nats, inf at probability 0.

        Args:
            ids: (T,) or (B, T); a stream, or several, each by itself. The first token is context.
        Raises:
            ValueError, TypeError: an id is no id of the vocabulary.
        """
        ids = _checked_ids(ids, self.vocabulary_size)
        probs = np.full((*ids.shape[:-1], ids.shape[-1] - 1), 1 / self.vocabulary_size)
        reach = np.arange(1, ids.shape[-1])  # tokens of context
        for k, (table, walked) in enumerate(zip(self.tables, self._walk(ids), strict=True)):
            context, event = walked[0][..., :-1], walked[1][..., 1:]
            probs = self._mixed(table.mass[event], table.left[context], probs, reach >= k)
        return 0.0 - _log(probs)  # a sure token costs 0, not -0

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits, (B, T, V), of the token after each position, which are its log-probabilities.

        Position t sees ids[:, : t + 1] and of these at most the last n - 1.

        Args:
            ids: (B, T); token ids.
        Returns:
            (B, T, V), on the device of the ids, in 64 bits where the device has them.
        Raises:
            ValueError, TypeError: an id is no id of the vocabulary.
        """
        import torch

        checked = _checked_ids(ids, self.vocabulary_size)
        contexts = [context.reshape(-1) for context, _ in self._walk(checked)]
        reach = np.broadcast_to(np.arange(1, ids.shape[-1] + 1), ids.shape).reshape(-1)
        probs = self._distributions(contexts, reach)  # (B T, V)
        logits = torch.from_numpy(_log(probs).reshape(*checked.shape, self.vocabulary_size))
        return logits.to(ids.device, torch.float32 if ids.device.type == "mps" else torch.float64)

    def _walk(self, ids: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each length: the context that each position leaves behind, the n-gram ending there.

        Both are numbers, (…, T): the context among the n-grams one shorter, the n-gram among its
        own.
        """
        context, event = np.zeros_like(ids), ids
        filler = UNSEEN if self.end is None else self.end
        for k, table in enumerate(self.tables):
            if k:
                context = _restarted(event, ids, self.end, filler)
                event = _find(table.keys, _before(context) * self.vocabulary_size + ids)
                if self.end is not None:
                    filler = int(_find(table.keys, filler * self.vocabulary_size + self.end))
            yield context, event

    def _mixed(
        self, mass: np.ndarray, left: np.ndarray, shorter: np.ndarray, reached: np.ndarray
    ) -> np.ndarray:
        """mass + left q, with what the shorter context said for q; `reached` is not needed here."""
        return mass + left * shorter

    def _distributions(self, contexts: Sequence[np.ndarray], reach: np.ndarray) -> np.ndarray:
        """The distribution of the next token, (P, V), after P contexts, numbered at each length."""
        size = self.vocabulary_size
        probs = np.full((len(reach), size), 1 / size)
        for k, (table, context) in enumerate(zip(self.tables, contexts, strict=True)):
            starts, stops = np.searchsorted(table.keys, [context * size, (context + 1) * size])
            lengths = stops - starts
            rows = np.repeat(np.arange(len(context)), lengths)
            first = np.cumsum(lengths) - lengths
            places = np.arange(len(rows)) + np.repeat(starts - first, lengths)
            mass = np.zeros_like(probs)
            mass[rows, table.keys[places] % size] = table.mass[places]
            left, reached = table.left[context][:, None], (reach >= k)[:, None]
            probs = self._mixed(mass, left, probs, reached)
        return probs


def quotient(
    numerators: np.ndarray | float, denominators: np.ndarray, default: float
) -> np.ndarray:
    """numerators / denominators, and the default where the denominator is 0."""
    result = np.full(np.shape(denominators), default)
    return np.divide(numerators, denominators, out=result, where=denominators > 0)


def _find(keys: np.ndarray, sought: np.ndarray | int) -> np.ndarray:
    """The place of each sought key, or UNSEEN; an unseen context makes a key below all others."""
    places = np.searchsorted(keys, sought)
    return np.where(keys[places] == sought, places, UNSEEN)


def _log(probs: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):  # log 0 = -inf is meant
        return np.log(probs)


def checked_stream(ids: object, vocabulary_size: int) -> np.ndarray:
    """The ids of one stream with at least one token to predict."""
    ids = _checked_ids(ids, vocabulary_size)
    if ids.ndim != 1 or len(ids) < 2:
        raise ValueError(
            f"expected one stream of at least 2 tokens, got shape {ids.shape}; its first token is "
            "context only, such as the end token before the first document"
        )
    return ids


def _checked_ids(ids: object, vocabulary_size: int) -> np.ndarray:
    """The ids as an array of 64-bit integers, whatever they came as."""
    ids = np.asarray(ids.cpu() if hasattr(ids, "cpu") else ids)
    if ids.ndim == 0 or ids.size == 0:
        raise ValueError(f"expected a stream of tokens, got an empty one, shape {ids.shape}")
    if not np.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"expected integer token ids, got {ids.dtype}")
    if not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary_size:
        raise ValueError(
            f"expected token ids from 0 to {vocabulary_size - 1} (a vocabulary of "
            f"{vocabulary_size}), got ids from {int(ids.min())} to {int(ids.max())}; "
            "was the text encoded with another tokenizer?"
        )
    return ids.astype(np.int64)


def _check_options(order: int, vocabulary_size: int, end: int | None) -> None:
    if order < 1:
        raise ValueError(
            f"expected an order of at least 1, got {order}; order n looks at n - 1 earlier tokens, "
            "so that 1 looks at none"
        )
    if end is not None and not 0 <= end < vocabulary_size:
        raise ValueError(
            f"expected an end token from 0 to {vocabulary_size - 1} (a vocabulary of "
            f"{vocabulary_size}), got {end}"
        )
