"""How far does counting go? n-grams, how often each occurred, and a model that backs off.

A model of order n sees a context c of n - 1 tokens; c' is c without its oldest token. N(c w) says
how often w followed c, and N(c .) how often c was followed by any token. A `BackOffModel` takes the
longest context that it has seen:

    p(w | c) = N(c w) / N(c .)    where N(c .) > 0,        p(w | c') elsewhere,

and below the shortest context lies the uniform distribution. This is the simplest case of the form
that all count models share; the module `smoothing` fills the same tables in other ways:

    p(w | c) = mass(c w) + left(c) q(w),      sum_w mass(c w) + left(c) = 1.

`count_ngrams` counts in arrays, fast enough for millions of tokens: an n-gram is numbered by the
pair (number of its first tokens, last token). Such numbers stay below the length of the stream, so
no order is too high for 64 bits.

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


# ---- counting ------------------------------------------------------------------------------------


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


def count_ngrams(
    ids: Sequence[int], *, order: int, vocabulary_size: int, end: int | None = None
) -> list[Grams]:
    """N(c w): the n-grams of 1, 2, …, `order` tokens in a stream, and how often each was predicted.

    The first token is context only: in the stream 0 1 1 0 the tokens 1, 1, 0 are predicted.

    Args:
        ids: (T,); the stream.
        order: the greatest length of an n-gram, at least 1.
        vocabulary_size: V.
        end: the end token. A context that would reach before it is filled up with it instead,
            so that no document helps to predict the next. None: the stream is one document.
    Returns:
        One entry for each length, the shortest first. Single tokens are all there, counted or not,
        and so is at each length the n-gram of end tokens, since it is a context.
    Raises:
        ValueError, TypeError: as for `NgramModel.fit`.
    """
    import torch  # whose `unique` takes half the time of NumPy's

    size = vocabulary_size
    if order < 1 or not (end is None or 0 <= end < size):
        raise ValueError(f"expected order >= 1 and end from 0 to {size - 1}, got {order=}, {end=}")
    ids = stream_array(ids, size)
    tokens, none = np.arange(size), np.zeros(size, dtype=np.int64)
    levels = [Grams(tokens, none, np.bincount(ids[1:], minlength=size), none, tokens, 1)]
    gram, all_end = ids, end or 0  # numbers: of the n-gram that ends here, of end tokens only
    for _ in range(order - 1):
        context = _contexts(gram, ids, len(levels[-1].keys), end, all_end)[:-1]
        known = context < len(levels[-1].keys)  # so near to the beginning there is none
        keys, suffix = context[known] * size + ids[known], gram[known]
        if end is not None:  # end tokens only: a context even if it was never predicted
            keys, suffix = np.append(keys, all_end * size + end), np.append(suffix, all_end)
        keys, numbers = map(np.asarray, torch.unique(torch.from_numpy(keys), return_inverse=True))
        gram = np.full(len(ids), len(keys))
        gram[known] = numbers[: known.sum()]
        counts = np.bincount(gram[known], minlength=len(keys))
        suffixes = np.empty(len(keys), dtype=np.int64)
        suffixes[numbers] = suffix
        all_end = int(numbers[-1]) if end is not None else 0
        head, shorter = keys // size, levels[-1]
        levels.append(Grams(keys, head, counts, suffixes, shorter.first[head], len(shorter.keys)))
    return levels


def _contexts(
    gram: np.ndarray, ids: np.ndarray, unseen: int, end: int | None, all_end: int
) -> np.ndarray:
    """The context of each position and of the one after the last, (…, T + 1), as numbers.

    It is the n-gram that ends one position earlier; after an end token, that of end tokens only.
    """
    if end is not None:
        gram = np.where(ids == end, all_end, gram)
    return np.concatenate([np.full((*ids.shape[:-1], 1), unseen), gram], axis=-1)


# ---- the model -------------------------------------------------------------------------------


class MassTable(NamedTuple):
    """What one order says: mass(c w) for each n-gram and left(c) for each context.

    Both have one more entry at their end, for what was never seen: no mass, and all of it left.
    So the number of an n-gram that was never seen is G.
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

    def find(self, keys: np.ndarray | int) -> np.ndarray:
        """The numbers of the n-grams with these keys."""
        places = np.searchsorted(self.keys, keys)
        return np.where(self.keys[places] == keys, places, len(self.keys) - 1)


def relative_frequencies(grams: Grams, weight: float = 1.0) -> MassTable:
    """m N(c w) / N(c .), with 1 - m left where c was seen, and all of it where it was not.

    Args:
        grams: the n-grams of one length.
        weight: m, from 0 to 1.
    """
    totals = grams.totals()
    mass = weight * quotient(grams.counts, totals[grams.context], 0.0)
    return MassTable.of(grams, mass, np.where(totals > 0, 1.0 - weight, 1.0))


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
    tables: tuple[MassTable, ...]

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
        known = ids_array(context, self.vocabulary_size)
        recent = known[max(0, len(known) - self.order + 1) :]
        contexts = [context[-1:] for context, _ in self._walk(recent)]
        return _log(self._distributions(contexts, np.array([len(recent)]))[0])

    def score(self, ids: Sequence[int]) -> np.ndarray:
        """The surprise of each token after the first, (…, T - 1); nats, inf at probability 0.

        Args:
            ids: (T,) or (B, T); a stream, or several, each by itself. The first token is context.
        Raises:
            ValueError, TypeError: an id is no id of the vocabulary.
        """
        ids = ids_array(ids, self.vocabulary_size)
        probs = np.full((*ids.shape[:-1], ids.shape[-1] - 1), 1 / self.vocabulary_size)
        reach = np.arange(1, ids.shape[-1])  # tokens of context
        for k, (table, walked) in enumerate(zip(self.tables, self._walk(ids), strict=True)):
            context, gram = walked[0][..., 1:-1], walked[1][..., 1:]
            probs = self._mixed(table.mass[gram], table.left[context], probs, reach >= k)
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

        known = ids_array(ids, self.vocabulary_size)
        contexts = [context[..., 1:].reshape(-1) for context, _ in self._walk(known)]
        reach = np.broadcast_to(np.arange(1, ids.shape[-1] + 1), ids.shape).reshape(-1)
        probs = self._distributions(contexts, reach)  # (B T, V)
        logits = torch.from_numpy(_log(probs).reshape(*known.shape, self.vocabulary_size))
        return logits.to(ids.device, torch.float32 if ids.device.type == "mps" else torch.float64)

    def _walk(self, ids: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each length: the contexts after 0, 1, …, T tokens; the n-gram that ends at each.

        Both are numbers, (…, T + 1) among the n-grams one shorter, and (…, T).
        """
        context, all_end = np.zeros((*ids.shape[:-1], ids.shape[-1] + 1), dtype=np.int64), 0
        for table in self.tables:
            gram = table.find(context[..., :-1] * self.vocabulary_size + ids)
            yield context, gram
            if self.end is not None:
                all_end = int(table.find(all_end * self.vocabulary_size + self.end))
            context = _contexts(gram, ids, len(table.mass) - 1, self.end, all_end)

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
            mass = np.zeros_like(probs)
            for row, start, stop in zip(mass, starts, stops, strict=True):
                row[table.keys[start:stop] % size] = table.mass[start:stop]
            left, reached = table.left[context][:, None], (reach >= k)[:, None]
            probs = self._mixed(mass, left, probs, reached)
        return probs


def quotient(
    numerators: np.ndarray | float, denominators: np.ndarray, default: float
) -> np.ndarray:
    """numerators / denominators, and the default where the denominator is 0."""
    result = np.full(np.shape(denominators), default)
    return np.divide(numerators, denominators, out=result, where=denominators > 0)


def _log(probs: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):  # log 0 = -inf is meant
        return np.log(probs)


def stream_array(ids: object, vocabulary_size: int) -> np.ndarray:
    """The ids of one stream with at least one token to predict."""
    ids = ids_array(ids, vocabulary_size)
    if ids.ndim != 1 or len(ids) < 2:
        raise ValueError(f"expected one stream of at least 2 tokens, got shape {ids.shape}")
    return ids


def ids_array(ids: object, vocabulary_size: int) -> np.ndarray:
    """The ids as an array of 64-bit integers, whatever they came as."""
    ids = np.asarray(ids.cpu() if hasattr(ids, "cpu") else ids)
    if ids.size and not np.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"expected integer token ids, got {ids.dtype}")
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary_size:
        got = f"ids from {ids.min()} to {ids.max()}; was it encoded with another tokenizer?"
        raise ValueError(f"expected token ids from 0 to {vocabulary_size - 1}, got {got}")
    return ids.astype(np.int64)
