"""What should a model of counts say about what it has never seen? Five ways to smooth counts.

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
uniform distribution.

Axes: T positions, V vocabulary, G different n-grams of one length. Sources: Jelinek and Mercer
1980; Ney, Essen and Kneser 1994; Kneser and Ney 1995; Chen and Goodman 1999. Derived in the
chapter `likelihood/smoothing`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .ngrams import (
    BackOffModel,
    Grams,
    MassTable,
    count_ngrams,
    quotient,
    relative_frequencies,
    stream_array,
)

ESTIMATORS = ("maximum-likelihood", "add-k", "interpolated", "absolute", "kneser-ney")
UNIFORM_BELOW = ("maximum-likelihood", "add-k")  # these never ask the shorter context


# ---- each estimator fills a table --------------------------------------------------------------


def add_k(grams: Grams, k: float, vocabulary_size: int) -> MassTable:
    """(N(c w) + k) / (N(c .) + k V); with k = 0, relative frequencies.

    Counts 2 and 1 after a context, k = 1, V = 4: mass 2/7 and 1/7, and 4/7 left to all alike.

    Args:
        grams: the n-grams of one length.
        k: what is added to each count, at least 0.
        vocabulary_size: V.
    Source: Lidstone 1920. Derived as a posterior mean in the chapter.
    """
    denominators = grams.totals() + k * vocabulary_size
    mass = quotient(grams.counts, denominators[grams.context], 0.0)
    return MassTable.of(grams, mass, quotient(k * vocabulary_size, denominators, 1.0))


def discounted(grams: Grams, discount: float) -> MassTable:
    """max(N(c w) - D, 0) / N(c .), with D N1+(c .) / N(c .) left to the shorter context.

    Counts 2 and 1 after a context, D = 1/2: mass 1/2 and 1/6, and 1/3 left.

    Args:
        grams: the n-grams of one length.
        discount: D, from 0 to 1.
    Source: Ney, Essen and Kneser 1994.
    """
    totals = grams.totals()
    kept = np.maximum(grams.counts - discount, 0.0)
    mass = quotient(kept, totals[grams.context], 0.0)
    return MassTable.of(grams, mass, quotient(discount * grams.types(), totals, 1.0))


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
    probs: np.ndarray, seen: np.ndarray, base: Any, *, steps: int = 200, tolerance: float = 1e-9
) -> tuple[np.ndarray, list[float]]:
    """The weights under which held-out tokens are likeliest, by expectation-maximisation.

    A token is drawn by walking from the longest context down. Where the context was seen, a coin
    with probability m_k says whether to take the token there; at the bottom any token is as likely,
    or as likely as another model says.
    Each step counts the tosses and heads expected given the tokens: m_k = heads / tosses.

    Args:
        probs: (K, T); what each length of context, shortest first, gives to each held-out token.
        seen: (K, T), boolean; whether that context has counts.
        base: the probability at the bottom, 1 / V; or (T,), what another model gives to each token.
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


# ---- the model -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NgramModel(BackOffModel):
    """A model of the next token made of smoothed counts; `NgramModel.fit` builds one.

    Every estimator sums to one over the vocabulary, after every context. A context that was never
    seen gives the uniform distribution under maximum likelihood and add-k (the limit of k to 0, and
    no table of counts is likelier), and that of the shorter context under the other three. A token
    that was never seen after a seen context has log-probability -inf under maximum likelihood;
    the other four give every token a positive probability.

    Attributes:
        order, vocabulary_size, end, tables: as of every `BackOffModel`.
        estimator: one of `ESTIMATORS`.
        parameters: for each length the discount ("absolute", "kneser-ney") or the weight
            ("interpolated"); empty for the others.
    """

    estimator: str
    parameters: tuple[float, ...]

    @classmethod
    def fit(
        cls,
        ids: Sequence[int],
        *,
        order: int,
        vocabulary_size: int,
        end: int | None = None,
        **smoothing: Any,
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
            end: the end token, which closes every document and stands before the first one. A
                context never reaches before it. None: the stream is one document.
            smoothing: estimator, k, discount and held_out, as for `from_counts`.
        Raises:
            ValueError: a stream of fewer than two tokens, an id or `end` outside the vocabulary,
                order below 1; and as for `from_counts`.
            TypeError: the ids are not integers.
        """
        levels = count_ngrams(ids, order=order, vocabulary_size=vocabulary_size, end=end)
        return cls.from_counts(levels, end=end, **smoothing)

    @classmethod
    def from_counts(
        cls,
        levels: Sequence[Grams],
        *,
        end: int | None = None,
        estimator: str = "kneser-ney",
        k: float = 1.0,
        discount: float | None = None,
        held_out: Sequence[int] | None = None,
    ) -> NgramModel:
        """Smooth counts that are there already: `levels[:n]` makes the model of order n.

        Args:
            levels: from `count_ngrams`, with the same `end`; the shortest first.
            end: as for `fit`.
            estimator: one of `ESTIMATORS`.
            k: what "add-k" adds to each count.
            discount: D of every length, for "absolute" and "kneser-ney"; None: `estimated_discount`
                of each.
            held_out: (T',) other tokens of the same kind, from which "interpolated" learns its
                weights.
        Raises:
            ValueError: an unknown estimator, k below 0, a discount below 0 or above 1, no held-out
                tokens for "interpolated".
        """
        if not (0 <= k < math.inf and (discount is None or 0 <= discount <= 1)):
            raise ValueError(f"expected 0 <= k and a discount from 0 to 1, got {k=}, {discount=}")
        size, parameters = len(levels[0].keys), np.zeros(0)
        if estimator in UNIFORM_BELOW:
            k = k if estimator == "add-k" else 0
            tables = [add_k(grams, k, size) for grams in levels]
        elif estimator == "interpolated":
            parameters = _held_out_weights(levels, held_out, size, end)
            tables = [relative_frequencies(*pair) for pair in zip(levels, parameters, strict=True)]
        elif estimator in ("absolute", "kneser-ney"):
            if estimator == "kneser-ney":
                counts = [continuation_counts(*pair, end=end) for pair in pairwise(levels)]
                below = [g._replace(counts=n) for g, n in zip(levels, counts, strict=False)]
                levels = [*below, levels[-1]]
            estimated = [estimated_discount(grams.counts) for grams in levels]
            parameters = np.array(estimated if discount is None else [discount] * len(levels))
            tables = [discounted(*pair) for pair in zip(levels, parameters, strict=True)]
        else:
            raise ValueError(f"expected an estimator among {ESTIMATORS}, got {estimator!r}")
        return cls(len(levels), size, end, tuple(tables), estimator, tuple(parameters.tolist()))

    def _mixed(
        self, mass: np.ndarray, left: np.ndarray, shorter: np.ndarray, reached: np.ndarray
    ) -> np.ndarray:
        """mass + left q; where there is no such context, what the shorter one said."""
        if self.estimator in UNIFORM_BELOW:
            return np.where(reached, mass + left / self.vocabulary_size, shorter)
        return mass + left * shorter


def _held_out_weights(
    levels: Sequence[Grams], held_out: object, vocabulary_size: int, end: int | None
) -> np.ndarray:
    """The weight of each length, by `em_weights` on the held-out stream."""
    if held_out is None:
        raise ValueError("expected held_out, a stream that was not counted, got None")
    counts, stream = BackOffModel.of(levels, end=end), stream_array(held_out, vocabulary_size)
    probs, seen = [], []
    for table, (context, gram) in zip(counts.tables, counts._walk(stream), strict=True):
        probs.append(table.mass[gram[1:]])
        seen.append(table.left[context[1:-1]] == 0)
    return em_weights(np.stack(probs), np.stack(seen), 1 / vocabulary_size)[0]
