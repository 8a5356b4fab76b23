"""How far does counting go? Models of the next token made of counts, and five ways to smooth them.

A model of order n sees a context c of n - 1 tokens; c' is c without its oldest token. N(c w) says
how often w followed c, and N(c .) how often c was followed by any token. All five estimators give
away what these counts are sure of, and leave the rest to someone else:

    p(w | c) = mass(c w) + left(c) q(w),      sum_w mass(c w) + left(c) = 1,

    maximum-likelihood   N(c w) / N(c .)                 0                         q uniform
    add-k                N(c w) / (N(c .) + k V)         k V / (N(c .) + k V)      q uniform
    interpolated         m N(c w) / N(c .)               1 - m                     q = p(. | c')
    absolute             max(N(c w) - D, 0) / N(c .)     D N1+(c .) / N(c .)       q = p(. | c')
    kneser-ney           as absolute, with continuation counts at every order but the highest

where N1+(c .) is the number of different tokens after c, and below the shortest context lies the
uniform distribution. An n-gram is numbered by the pair (number of its first tokens, last token):
numbers stay below the length of the stream, so no order is too high for 64 bits.

Axes: T positions, V vocabulary, G different n-grams of one length. Sources: Jelinek and Mercer
1980; Ney, Essen and Kneser 1994; Kneser and Ney 1995; Chen and Goodman 1999. Derived in the
chapter `likelihood/ngrams`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch

ESTIMATORS = ("maximum-likelihood", "add-k", "interpolated", "absolute", "kneser-ney")
_UNSEEN = -1  # as an index it finds the last entry, where each table keeps its default


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
    ids = _checked_stream(ids, vocabulary_size)
    tokens, none = np.arange(vocabulary_size), np.zeros(vocabulary_size, dtype=np.int64)
    counts = np.bincount(ids[1:], minlength=vocabulary_size)
    levels = [Grams(tokens, none, counts, none, tokens, 1)]
    event = ids  # the n-gram that ends at each position
    filler = _UNSEEN if end is None else end  # the one of end tokens only
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
    here = context != _UNSEEN
    keys = context[here] * vocabulary_size + ids[here]
    if end is not None:
        keys = np.append(keys, filler * vocabulary_size + end)
    keys, numbers, counts = np.unique(keys, return_inverse=True, return_counts=True)
    event = np.full(len(ids), _UNSEEN)
    event[here] = numbers[: here.sum()]
    suffixes = np.empty(len(keys), dtype=np.int64)
    suffixes[event[here]] = suffix[here]
    if end is not None:
        suffixes[numbers[-1]], filler = filler, int(numbers[-1])
        counts[filler] -= 1
    heads = keys // vocabulary_size
    first = shorter.first[heads]
    return Grams(keys, heads, counts, suffixes, first, len(shorter.keys)), event, filler


def _before(context: np.ndarray) -> np.ndarray:
    """What stands one position earlier; nothing before the first."""
    shifted = np.empty_like(context)
    shifted[..., 0], shifted[..., 1:] = _UNSEEN, context[..., :-1]
    return shifted


def _restarted(event: np.ndarray, ids: np.ndarray, end: int | None, filler: int) -> np.ndarray:
    """The context that each position leaves to the next: after an end token, only end tokens."""
    return event if end is None else np.where(ids == end, filler, event)


# ---- smoothing: each estimator fills a table --------------------------------------------------


def add_k(grams: Grams, k: float, vocabulary_size: int) -> Table:
    """(N(c w) + k) / (N(c .) + k V); with k = 0, relative frequencies.

    Counts 2 and 1 after a context, k = 1, V = 4: mass 2/7 and 1/7, and 4/7 left to all alike.

    Args:
        grams: the n-grams of one length.
        k: what is added to each count, at least 0.
        vocabulary_size: V.
    Source: Lidstone 1920. Derived as a posterior mean in the chapter.
    """
    denominators = grams.totals() + k * vocabulary_size
    mass = _quotient(grams.counts, denominators[grams.context], 0.0)
    return _table(grams, mass, _quotient(k * vocabulary_size, denominators, 1.0))


def interpolated(grams: Grams, weight: float) -> Table:
    """m N(c w) / N(c .), with 1 - m left to the shorter context.

    Args:
        grams: the n-grams of one length.
        weight: m, from 0 to 1.
    Source: Jelinek and Mercer 1980.
    """
    totals = grams.totals()
    mass = weight * _quotient(grams.counts, totals[grams.context], 0.0)
    return _table(grams, mass, np.where(totals > 0, 1.0 - weight, 1.0))


def discounted(grams: Grams, discount: float) -> Table:
    """max(N(c w) - D, 0) / N(c .), with D N1+(c .) / N(c .) left to the shorter context.

    Counts 2 and 1 after a context, D = 1/2: mass 1/2 and 1/6, and 1/3 left.

    Args:
        grams: the n-grams of one length.
        discount: D, from 0 to 1.
    Source: Ney, Essen and Kneser 1994.
    """
    totals = grams.totals()
    kept = np.maximum(grams.counts - discount, 0.0)
    mass = _quotient(kept, totals[grams.context], 0.0)
    return _table(grams, mass, _quotient(discount * grams.types(), totals, 1.0))


def estimated_discount(counts: np.ndarray) -> float:
    """n1 / (n1 + 2 n2), where n1 and n2 of the counts are 1 and 2; 1/2 if either is none.

    Six n-grams seen once and one seen twice: 6/8. Without n1 the formula would take nothing and
    leave unseen tokens a probability of 0; without n2 it would take all of every single count.

    Args:
        counts: (G,); the counts of one order.
    Source: Ney, Essen and Kneser 1994. The fallback is ours.
    """
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    return once / (once + 2 * twice) if once and twice else 0.5


def continuation_counts(grams: Grams, longer: Grams, *, end: int | None = None) -> np.ndarray:
    """N1+(. c w), (G,): how many different tokens were seen before each n-gram.

    San Francisco, however frequent, has one kind of predecessor: Francisco counts once.

    Args:
        grams: the n-grams of one length.
        longer: those one token longer.
        end: the end token. What begins with it has nothing before it, and keeps its count.
    Source: Kneser and Ney 1995; for the end token Heafield et al. 2013.
    """
    counts = np.bincount(longer.suffix, longer.counts > 0, minlength=len(grams.keys))
    if end is None or grams.n_contexts == 1:  # a single token continues, the end token too
        return counts.astype(np.int64)
    return np.where(grams.first == end, grams.counts, counts).astype(np.int64)


def em_weights(
    probs: np.ndarray, seen: np.ndarray, base: float, *, steps: int = 200, tolerance: float = 1e-9
) -> tuple[np.ndarray, list[float]]:
    """The weights under which held-out tokens are likeliest, by expectation-maximisation.

    A token is drawn by walking from the longest context down. Where the context was seen, a coin
    with probability m_k says whether to take the token there; at the bottom any token is as likely.
    Each step counts the tosses and heads expected given the tokens: m_k = heads / tosses.

    Args:
        probs: (K, T); what each length of context, shortest first, gives to each held-out token.
        seen: (K, T), boolean; whether that context has counts.
        base: the probability at the bottom, 1 / V.
        steps: at most so many.
        tolerance: stop when a step gains less, in nats per token.
    Returns:
        The weights, (K,), below 1; and the loss, in nats per token, before each step.
    Source: Jelinek and Mercer 1980; Dempster, Laird and Rubin 1977.
    """
    weights, losses = np.full(len(probs), 0.5), []
    for _ in range(steps):
        coins = weights[:, None] * seen  # (K, T)
        mixed = [np.full(probs.shape[1], base)]
        for coin, prob in zip(coins, probs, strict=True):
            mixed.append(coin * prob + (1 - coin) * mixed[-1])
        losses.append(float(-np.log(mixed[-1]).mean()))
        if len(losses) > 1 and losses[-2] - losses[-1] < tolerance:
            break
        reached = 1 / mixed.pop()  # to reach a level, over the probability of the token
        for k in reversed(range(len(probs))):
            heads = reached * coins[k] * probs[k]
            reached = reached * (1 - coins[k])
            tosses = ((heads + reached * mixed.pop()) * seen[k]).sum()
            if tosses > 0:
                weights[k] = min(heads.sum() / tosses, 1 - 1e-12)
    return weights, losses


def _quotient(
    numerators: np.ndarray | float, denominators: np.ndarray, default: float
) -> np.ndarray:
    """numerators / denominators, and the default where the denominator is 0."""
    result = np.full(np.shape(denominators), default)
    return np.divide(numerators, denominators, out=result, where=denominators > 0)


def _table(grams: Grams, mass: np.ndarray, left: np.ndarray) -> Table:
    beyond = np.iinfo(np.int64).max  # so that a search ends inside the table
    return Table(np.append(grams.keys, beyond), np.append(mass, 0.0), np.append(left, 1.0))


# ---- the model -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NgramModel:
    """A model of the next token made of counts; `NgramModel.fit` builds one.

    Every estimator sums to one over the vocabulary, after every context. A context that was never
    seen gives the uniform distribution under maximum likelihood and add-k (the limit of k to 0, and
    no table of counts is likelier), and that of the shorter context under the other three. A token
    that was never seen after a seen context has log-probability -inf under maximum likelihood;
    the other four give every token a positive probability.

    A context shorter than n - 1 tokens, such as that of the first tokens of a stream, is treated as
    by the model of that lower order. It is not the start of a document unless it begins with `end`.

    Attributes:
        order: n, one more than the tokens of context.
        vocabulary_size: V.
        estimator: one of `ESTIMATORS`.
        end: the end token, or None.
        tables: one for each length, shortest first.
        parameters: for each length the discount ("absolute", "kneser-ney") or the weight
            ("interpolated"); empty for the others.
    """

    order: int
    vocabulary_size: int
    estimator: str
    end: int | None
    tables: tuple[Table, ...]
    parameters: tuple[float, ...]

    @classmethod
    def fit(
        cls,
        ids: Sequence[int],
        *,
        order: int,
        vocabulary_size: int,
        estimator: str = "kneser-ney",
        end: int | None = None,
        k: float = 1.0,
        held_out: Sequence[int] | None = None,
    ) -> NgramModel:
        """Count a stream and smooth the counts.

        >>> model = NgramModel.fit([0, 1, 2, 0, 1, 1, 0], order=2, vocabulary_size=3)
        >>> model.log_probs([1]).round(3).tolist()
        [-0.973, -0.973, -1.409]

        Args:
            ids: (T,) token ids, T at least 2; the first is context only. A list, an array or a
                tensor.
            order: n, at least 1; 1 sees no context.
            vocabulary_size: V.
            estimator: one of `ESTIMATORS`.
            end: the end token, which closes every document and stands before the first one. A
                context never reaches before it. None: the stream is one document.
            k: what "add-k" adds to each count.
            held_out: (T',) other tokens of the same kind, from which "interpolated" learns its
                weights.
        Raises:
            ValueError: a stream of fewer than two tokens, an id or `end` outside the vocabulary,
                order below 1, an unknown estimator, k not above 0, no held-out tokens for
                "interpolated".
            TypeError: the ids are not integers.
        """
        levels = count_ngrams(ids, order=order, vocabulary_size=vocabulary_size, end=end)
        return cls.from_counts(levels, estimator=estimator, end=end, k=k, held_out=held_out)

    @classmethod
    def from_counts(
        cls,
        levels: Sequence[Grams],
        *,
        estimator: str = "kneser-ney",
        end: int | None = None,
        k: float = 1.0,
        held_out: Sequence[int] | None = None,
    ) -> NgramModel:
        """Smooth counts that are there already: `levels[:n]` makes the model of order n.

        Args:
            levels: from `count_ngrams`, with the same `end`; the shortest first.
            estimator, end, k, held_out: as for `fit`.
        Raises:
            ValueError: as for `fit`.
        """
        _check_estimator(estimator, k, held_out)
        vocabulary_size, parameters = len(levels[0].keys), ()
        if estimator in ("maximum-likelihood", "add-k"):
            added = k if estimator == "add-k" else 0.0
            tables = [add_k(grams, added, vocabulary_size) for grams in levels]
        elif estimator == "interpolated":
            parameters = _held_out_weights(levels, held_out, vocabulary_size, end)
            tables = [interpolated(*pair) for pair in zip(levels, parameters, strict=True)]
        else:
            if estimator == "kneser-ney":
                levels = _continued(levels, end)
            parameters = [estimated_discount(grams.counts) for grams in levels]
            tables = [discounted(*pair) for pair in zip(levels, parameters, strict=True)]
        parameters = tuple(float(parameter) for parameter in parameters)
        return cls(len(levels), vocabulary_size, estimator, end, tuple(tables), parameters)

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
            contexts = [np.zeros(1, int), *[np.full(1, _UNSEEN)] * (self.order - 1)]
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
        filler = _UNSEEN if self.end is None else self.end
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
        """mass + left q; where there is no such context, what the shorter one said."""
        if self.estimator in ("maximum-likelihood", "add-k"):
            return np.where(reached, mass + left / self.vocabulary_size, shorter)
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


def _continued(levels: Sequence[Grams], end: int | None) -> list[Grams]:
    """The levels with continuation counts at every length but the greatest."""
    continued = [
        grams._replace(counts=continuation_counts(grams, longer, end=end))
        for grams, longer in pairwise(levels)
    ]
    return [*continued, levels[-1]]


def _held_out_weights(
    levels: Sequence[Grams], held_out: object, vocabulary_size: int, end: int | None
) -> np.ndarray:
    """The weight of each length, by `em_weights` on the held-out stream."""
    held_out = _checked_stream(held_out, vocabulary_size)
    tables = tuple(add_k(grams, 0.0, vocabulary_size) for grams in levels)
    counts = NgramModel(len(levels), vocabulary_size, "maximum-likelihood", end, tables, ())
    walked = list(counts._walk(held_out))
    pairs = list(zip(tables, walked, strict=True))
    probs = np.stack([table.mass[event[1:]] for table, (_, event) in pairs])
    seen = np.stack([table.left[context[:-1]] == 0 for table, (context, _) in pairs])
    return em_weights(probs, seen, 1 / vocabulary_size)[0]


def _find(keys: np.ndarray, sought: np.ndarray | int) -> np.ndarray:
    """The place of each sought key, or _UNSEEN; an unseen context makes a key below all others."""
    places = np.searchsorted(keys, sought)
    return np.where(keys[places] == sought, places, _UNSEEN)


def _log(probs: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):  # log 0 = -inf is meant
        return np.log(probs)


def _checked_stream(ids: object, vocabulary_size: int) -> np.ndarray:
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


def _check_estimator(estimator: str, k: float, held_out: object) -> None:
    if estimator not in ESTIMATORS:
        raise ValueError(f"expected an estimator among {ESTIMATORS}, got {estimator!r}")
    if estimator == "add-k" and not k > 0:
        raise ValueError(
            f"expected k above 0, got {k}; without smoothing the estimator is 'maximum-likelihood'"
        )
    if estimator == "interpolated" and held_out is None:
        raise ValueError(
            "expected held_out, a stream that was not counted, got None; on the training stream "
            "the longest context always looks best"
        )
