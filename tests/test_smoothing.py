"""`src.likelihood.smoothing` against counts worked by hand, loops written from the formulas, and
nltk.
"""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.lm import MLE, Lidstone
from nltk.util import everygrams

from src.likelihood.maximum_likelihood import token_log_probs
from src.likelihood.ngrams import count_ngrams
from src.likelihood.smoothing import (
    ESTIMATORS,
    NgramModel,
    em_weights,
    estimated_discount,
)


def fit(ids, order, size, estimator, *, held_out=None, **options):
    held_out = ids if held_out is None and estimator == "interpolated" else held_out
    options |= {"order": order, "estimator": estimator, "held_out": held_out}
    return NgramModel.fit(ids, vocabulary_size=size, **options)


def random_stream(length, size, *, seed=0, end=None):
    """Skewed tokens, so that some n-grams are frequent and some unseen."""
    generator = np.random.default_rng(seed)
    ids = generator.choice(size, length, p=generator.dirichlet(np.full(size, 0.7)))
    if end is not None:
        ids[0] = ids[-1] = end
    return ids.tolist()


streams = st.integers(2, 5).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n - 1), min_size=2, max_size=40))
)


# ---- the slow way, from the formulas: one context, one token at a time -----------------------


class Slow:
    """Dictionaries, a recursion on contexts, and padding by hand."""

    def __init__(self, ids, order, size, *, end=None):
        self.order, self.size, self.end = order, size, end
        self.counts = [defaultdict(Counter) for _ in range(order)]
        for t in range(1, len(ids)):
            context = self.context(ids[:t])
            for k in range(len(context) + 1):
                self.counts[k][context[len(context) - k :]][ids[t]] += 1

    def context(self, before):
        """The last n - 1 tokens, filled up from the last end token on."""
        before = list(before)
        if self.end in before:
            last = len(before) - 1 - before[::-1].index(self.end)
            before = [self.end] * self.order + before[last + 1 :]
        return tuple(before[max(0, len(before) - self.order + 1) :])

    def continuations(self):
        """N1+(. c w) for each shorter context c; raw counts where c begins with the end token."""
        result = [defaultdict(Counter) for _ in range(self.order - 1)]
        for k in range(self.order - 1):
            for context, row in self.counts[k + 1].items():
                for token in row:
                    result[k][context[1:]][token] += 1
            for context, row in self.counts[k].items():
                if context and context[0] == self.end:
                    result[k][context] = row
        return [*result, self.counts[-1]]

    def prob(self, estimator, token, before, **options):
        context = self.context(before)
        if estimator in ("maximum-likelihood", "add-k"):
            k = options.get("k", 0)
            row = self.counts[len(context)][context]
            denominator = row.total() + k * self.size
            return (row[token] + k) / denominator if denominator else 1 / self.size
        counts = self.continuations() if estimator == "kneser-ney" else self.counts
        return self.recursion(estimator, counts, token, context, **options)

    def recursion(self, estimator, counts, token, context, **options):
        level = len(context)
        row = counts[level][context]
        lower = 1 / self.size
        if level:
            lower = self.recursion(estimator, counts, token, context[1:], **options)
        if not row.total():
            return lower
        if estimator == "interpolated":
            weight = options["weights"][level]
            return weight * row[token] / row.total() + (1 - weight) * lower
        discount = self.discount(counts[level])
        types = sum(count > 0 for count in row.values())
        return (max(row[token] - discount, 0) + discount * types * lower) / row.total()

    @staticmethod
    def discount(rows):
        counts = Counter(count for row in rows.values() for count in row.values())
        return counts[1] / (counts[1] + 2 * counts[2]) if counts[1] and counts[2] else 0.5


@pytest.mark.parametrize("end", [None, 0, 3])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_each_estimator_agrees_with_a_loop_written_from_its_formula(estimator, order, end):
    """Contexts that were never seen, and several documents, are among them."""
    ids, new = random_stream(151, 5, end=end), random_stream(47, 5, seed=1, end=end)
    model, slow = fit(ids, order, 5, estimator, end=end, k=0.3), Slow(ids, order, 5, end=end)
    options = {"k": 0.3} if estimator == "add-k" else {"weights": model.parameters}
    expected = [slow.prob(estimator, new[t], new[:t], **options) for t in range(1, len(new))]
    assert np.allclose(np.exp(-model.score(new)), expected, rtol=1e-12, atol=0)
    row = [slow.prob(estimator, token, new, **options) for token in range(5)]
    assert np.allclose(np.exp(model.log_probs(new)), row, rtol=1e-12, atol=0)
    assert order < 4 or any(not slow.counts[3][slow.context(new[:t])] for t in range(4, 46))


def slow_em(ids, held_out, order, size, steps):
    """Expected heads over expected tosses of each level's coin, one token after another."""
    slow, weights = Slow(ids, order, size), [0.5] * order
    for _ in range(steps):
        heads, tosses = [0.0] * order, [0.0] * order
        for t in range(1, len(held_out)):
            context = slow.context(held_out[:t])
            posterior, arrive = {-1: 1 / size}, 1.0
            for k in reversed(range(len(context) + 1)):
                row = slow.counts[k][context[len(context) - k :]]
                if row.total():
                    ml = row[held_out[t]] / row.total()
                    posterior[k] = arrive * weights[k] * ml
                    arrive *= 1 - weights[k]
            posterior[-1] *= arrive
            total = sum(posterior.values())
            for k in posterior.keys() - {-1}:
                heads[k] += posterior[k] / total
                tosses[k] += sum(p for j, p in posterior.items() if j <= k) / total
        weights = [h / n for h, n in zip(heads, tosses, strict=True)]
    return weights


def test_em_agrees_with_a_loop_over_tokens_and_coins():
    ids, held_out = random_stream(97, 5), random_stream(61, 5, seed=2)
    slow = Slow(ids, 3, 5)
    probs, seen = np.zeros((3, 60)), np.zeros((3, 60), bool)
    for t in range(1, 61):
        context = slow.context(held_out[:t])
        for k in range(len(context) + 1):
            row = slow.counts[k][context[len(context) - k :]]
            seen[k, t - 1] = row.total() > 0
            probs[k, t - 1] = row[held_out[t]] / max(row.total(), 1)
    weights, losses = em_weights(probs, seen, 1 / 5, steps=4, tolerance=-1)
    assert np.allclose(weights, slow_em(ids, held_out, 3, 5, steps=4), rtol=1e-12)
    assert len(losses) == 4
    whole, _ = em_weights(probs, seen, 1 / 5)
    model = fit(ids, 3, 5, "interpolated", held_out=held_out)
    assert np.allclose(model.parameters, whole, rtol=1e-12)


# ---- by hand ---------------------------------------------------------------------------------

A, B, C = 0, 1, 2
ABAC = [A, B, A, B, A, C, A]  # after A: B twice, C once; after B: A twice; after C: A once


def test_absolute_discounting_by_hand():
    # Single tokens A 3, B 2, C 1 of 6: n1 = n2 = 1, D = 1/3, left 1/3 · 3/6 = 1/6, uniform 1/4.
    single = [(3 - 1 / 3) / 6 + 1 / 24, (2 - 1 / 3) / 6 + 1 / 24, (1 - 1 / 3) / 6 + 1 / 24, 1 / 24]
    # Pairs AB 2, AC 1, BA 2, CA 1: n1 = n2 = 2, D = 1/3, left after A 1/3 · 2/3 = 2/9.
    expected = [0, (2 - 1 / 3) / 3, (1 - 1 / 3) / 3, 0] + 2 / 9 * np.array(single)
    model = fit(ABAC, 2, 4, "absolute")
    assert model.parameters == (1 / 3, 1 / 3)
    assert np.exp(model.log_probs([A])) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("counts", "discount"),
    [([1] * 6 + [2, 7], 6 / 8), ([1, 1, 3], 0.5), ([2, 2, 5], 0.5), ([4], 0.5), ([], 0.5)],
)
def test_without_counts_of_one_or_of_two_the_discount_is_a_half(counts, discount):
    assert estimated_discount(np.array(counts)) == discount


def test_the_weight_of_one_level_is_where_the_derivative_vanishes():
    # Tokens with probability 1/2 or 0 above and 1/4 below: 3/4 of them seen gives
    # m = (1/4) p + ...: maximise 3 log(1/4 + m/4) + log((1 - m)/4): 3/(1 + m) = 1/(1 - m), m = 1/2.
    probs = np.array([[0.5, 0.5, 0.5, 0.0]])
    weights, _ = em_weights(probs, np.ones((1, 4), bool), 0.25)
    assert weights[0] == pytest.approx(1 / 2)


# ---- distributions ---------------------------------------------------------------------------


@settings(deadline=None)
@given(streams, st.integers(1, 4), st.booleans(), st.integers(0, 999))
def test_after_every_context_the_probabilities_sum_to_one(stream, order, documents, seed):
    size, ids = stream
    end = ids[0] if documents else None
    new = np.random.default_rng(seed).integers(0, size, 9)
    for estimator in ESTIMATORS:
        model = fit(ids, order, size, estimator, end=end, held_out=ids[::-1])
        for context in [new[:t] for t in range(6)]:
            probs = np.exp(model.log_probs(context))
            assert probs.sum() == pytest.approx(1, abs=1e-12)
            assert (probs > 0).all() or estimator == "maximum-likelihood"


@pytest.mark.parametrize("end", [None, 0])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_scores_rows_and_logits_are_one_model(estimator, end):
    ids, new = random_stream(83, 5, end=end), random_stream(3 * 11, 5, seed=3)
    new = torch.tensor(new).reshape(3, 11)
    model = fit(ids, 4, 5, estimator, end=end)
    logits = model(new)
    assert (logits.shape, logits.dtype) == ((3, 11, 5), torch.float64)
    by_logits = token_log_probs(logits[:, :-1], new[:, 1:]).numpy()
    assert np.allclose(-model.score(new), by_logits, atol=1e-12)
    for b in range(3):
        assert np.allclose(model.score(new[b]), model.score(new)[b], atol=0)
        for t in range(11):
            assert np.allclose(model.log_probs(new[b, : t + 1]), logits[b, t], atol=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_future_tokens_do_not_change_past_logits(estimator):
    model = fit(random_stream(83, 5), 3, 5, estimator)
    ids = torch.tensor(random_stream(13, 5, seed=4))[None]
    changed = ids.clone()
    changed[:, 7:] = (ids[:, 7:] + 1) % 5
    assert torch.equal(model(ids)[:, :7], model(changed)[:, :7])
    assert not torch.equal(model(ids)[:, 7:], model(changed)[:, 7:])


def test_maximum_likelihood_gives_infinity_to_what_it_never_saw_and_never_nan():
    model = fit(ABAC, 2, 4, "maximum-likelihood")
    assert model.score([A, A]).tolist() == [math.inf]
    assert model.log_probs([A])[3] == -math.inf
    assert not torch.isnan(model(torch.tensor([[A, B, C, 3]]))).any()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_first_levels_of_a_long_count_make_the_model_of_lower_order(estimator):
    ids, new = random_stream(83, 5, end=0), random_stream(29, 5, seed=1)
    levels = count_ngrams(ids, order=4, vocabulary_size=5, end=0)
    model = NgramModel.from_counts(levels[:2], estimator=estimator, end=0, held_out=ids)
    assert np.array_equal(model.score(new), fit(ids, 2, 5, estimator, end=0).score(new))


# ---- documents -------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_documents_in_another_order_give_the_same_model(estimator):
    documents = [[3, 1, 2], [1, 1], [], [2, 3, 1, 1, 2]]

    def scores(texts, end=0):
        stream, new = [0], [0, 1, 2, 3, 0, 4, 0, 3, 1, 0]
        for text in texts:
            stream += [*text, 0]
        return fit(stream, 4, 5, estimator, end=end, held_out=new).score(new)

    assert np.allclose(scores(documents), scores(documents[::-1]), rtol=1e-12)
    assert not np.allclose(scores(documents), scores(documents, end=None), rtol=1e-9, atol=0)


# ---- high orders, other implementations ------------------------------------------------------


def test_a_key_of_order_nine_over_a_large_vocabulary_does_not_overflow():
    size = 50_257  # 50_257 ** 9 has 141 bits
    ids = (np.arange(400) * 7_919 % 23 * 2_185).tolist()
    model, slow = fit(ids, 9, size, "kneser-ney"), Slow(ids, 9, size)
    expected = [slow.prob("kneser-ney", ids[t], ids[:t]) for t in range(1, 40)]
    assert np.allclose(np.exp(-model.score(ids[:40])), expected, rtol=1e-12)


def test_an_order_longer_than_the_stream_is_allowed():
    model = fit([0, 1, 1], 7, 3, "kneser-ney")
    assert np.exp(model.log_probs([0, 1, 1, 1, 1, 1])).sum() == pytest.approx(1)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_relative_frequencies_and_add_k_agree_with_nltk(order):
    ids, size = random_stream(401, 7), 7
    words = [str(token) for token in ids]
    seen = sorted(set(words))  # nltk counts its <UNK> as a word, the eighth
    oracles = {"maximum-likelihood": MLE(order), "add-k": Lidstone(0.3, order)}
    for estimator, oracle in oracles.items():
        start = 1 if order == 1 else 0  # ours does not count the first token of the stream
        oracle.fit([list(everygrams(words[start:], max_len=order))], seen)
        model = fit(ids, order, size + (estimator == "add-k"), estimator, k=0.3)
        for t in range(order - 1, 60):
            context = words[t - order + 1 : t]
            expected = [oracle.score(word, context) for word in seen]
            ours = np.exp(model.log_probs(ids[t - order + 1 : t]))
            assert np.allclose(ours[[int(word) for word in seen]], expected, rtol=1e-12, atol=0)


# ---- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"order": 0}, "order >= 1 .*got order=0"),
        ({"ids": [1]}, r"at least 2 tokens, got shape \(1,\)"),
        ({"ids": [[0, 1], [1, 0]]}, r"one stream .* got shape \(2, 2\)"),
        ({"ids": [0, 1, 4]}, "ids from 0 to 3, got ids from 0 to 4"),
        ({"ids": [0, -1]}, "got ids from -1 to 0"),
        ({"estimator": "good-turing"}, "among .* got 'good-turing'"),
        ({"estimator": "interpolated"}, "expected held_out"),
        ({"estimator": "add-k", "k": -1.0}, "0 <= k .* got k=-1.0"),
        ({"estimator": "add-k", "k": math.nan}, "got k=nan"),
        ({"discount": 1.1}, "discount from 0 to 1, .*discount=1.1"),
        ({"estimator": "interpolated", "held_out": [1]}, "at least 2 tokens"),
        ({"end": 4}, "end from 0 to 3, got .*end=4"),
    ],
)
def test_bad_input_is_named(changed, message):
    options = {"ids": ABAC, "order": 2, "vocabulary_size": 4} | changed
    with pytest.raises(ValueError, match=message):
        NgramModel.fit(options.pop("ids"), **options)


def test_ids_must_be_integers():
    with pytest.raises(TypeError, match="integer token ids, got float64"):
        fit([0.0, 1.0], 2, 4, "kneser-ney")
    with pytest.raises(TypeError, match="integer token ids, got float64"):
        fit(ABAC, 2, 4, "kneser-ney").log_probs([1.0])


@pytest.mark.parametrize("discount", [0.0, 0.3, 1.0])
def test_a_chosen_discount_is_that_of_every_length(discount):
    model = fit(ABAC, 2, 4, "absolute", discount=discount)
    assert model.parameters == (discount, discount)
    single = [max(n - discount, 0) / 6 + discount * 3 / 6 / 4 for n in (3, 2, 1, 0)]
    assert np.exp(model.log_probs([])) == pytest.approx(single)


@pytest.mark.parametrize("method", ["log_probs", "score", "__call__"])
def test_a_text_of_another_vocabulary_is_refused(method):
    with pytest.raises(ValueError, match="another tokenizer"):
        getattr(fit(ABAC, 2, 4, "kneser-ney"), method)(torch.tensor([0, 4]))
