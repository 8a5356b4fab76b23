"""`src.likelihood.ngrams`: counts worked by hand, and back-off against a loop over contexts."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch

from src.likelihood.ngrams import BackOffModel, count_contexts, count_ngrams

A, B, C = 0, 1, 2
ABAC = [A, B, A, B, A, C, A]  # after A: B twice, C once; after B: A twice; after C: A once


def random_stream(length, size, *, seed, end=None):
    """Skewed tokens, so that some contexts are frequent and some unseen."""
    generator = np.random.default_rng(seed)
    ids = generator.choice(size, length, p=generator.dirichlet(np.full(size, 0.7)))
    if end is not None:
        ids[0] = ids[-1] = end
    return ids.tolist()


def back_off(ids, order, size, end=None):
    return BackOffModel.of(count_ngrams(ids, order=order, vocabulary_size=size, end=end), end=end)


def by_loop(ids, order, end, token, before):
    """Drop the oldest token until the context was seen, and divide its counts."""

    def padded(text):
        if end in text:
            last = len(text) - 1 - text[::-1].index(end)
            text = [end] * order + text[last + 1 :]
        return tuple(text[max(0, len(text) - order + 1) :])

    followers = defaultdict(Counter)
    for counted in count_contexts(ids, order=order, end=end):
        for (context, following), n in counted.items():
            followers[context][following] = n
    context = padded(before)
    while context and not followers[context]:
        context = context[1:]
    return followers[context][token] / followers[context].total()


def test_the_pairs_of_a_short_stream_are_counted():
    single, pairs = count_ngrams(ABAC, order=2, vocabulary_size=3)
    assert single.counts.tolist() == [3, 2, 1]  # the first token is context only
    counted = dict(zip(pairs.keys.tolist(), pairs.counts.tolist(), strict=True))
    assert counted == {3 * A + B: 2, 3 * A + C: 1, 3 * B + A: 2, 3 * C + A: 1}
    assert pairs.totals().tolist() == [3, 2, 1]
    assert pairs.types().tolist() == [2, 1, 1]


@pytest.mark.parametrize(("first", "end"), [(0, None), (0, 0), (0, 3), (2, 3)])
@pytest.mark.parametrize("length", [3, 61])
def test_the_fast_count_is_that_of_the_formula(length, first, end):
    """Also of a stream that does not begin with an end token, and of one shorter than an n-gram."""
    ids = [first, *random_stream(length, 5, seed=0, end=end)]
    slow = count_contexts(ids, order=5, end=end)
    words = [()]  # the tokens of each n-gram, by its number
    for grams, counted in zip(
        count_ngrams(ids, order=5, vocabulary_size=5, end=end), slow, strict=True
    ):
        pairs = [(words[c], k % 5) for c, k in zip(grams.context, grams.keys, strict=True)]
        fast = dict(zip(pairs, grams.counts.tolist(), strict=True))
        assert {gram: n for gram, n in fast.items() if n} == counted
        shorter, words = words, [(*context, token) for context, token in pairs]
        assert [text[0] for text in words] == grams.first.tolist()
        assert [shorter[number] for number in grams.suffix] == [text[1:] for text in words]


@pytest.mark.parametrize("end", [None, 0, 3])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_back_off_agrees_with_a_loop_over_contexts(order, end):
    ids = random_stream(61, 5, seed=0, end=end)
    new = random_stream(47, 5, seed=1, end=end)
    expected = [by_loop(ids, order, end, new[t], new[:t]) for t in range(1, len(new))]
    found = np.exp(-back_off(ids, order, 5, end).score(new))
    assert np.allclose(found, expected, rtol=1e-12, atol=0)
    if order == 4:
        assert 0 in expected  # a token unseen after a seen context


def test_an_unseen_context_speaks_as_the_shorter_one():
    model = back_off(ABAC, 3, 3)
    assert np.exp(model.log_probs([C, B])) == pytest.approx([1, 0, 0])  # C B is new, B is not
    assert np.exp(model.log_probs([A, A])) == pytest.approx([0, 2 / 3, 1 / 3])


def test_an_unseen_token_after_a_seen_context_is_impossible():
    assert back_off(ABAC, 2, 4).score([A, 3]).tolist() == [math.inf]
    assert back_off(ABAC, 2, 4).score([3, A])[0] == pytest.approx(math.log(2))  # 3 of 6


def test_scores_rows_and_logits_of_back_off_are_one_model():
    model = back_off(random_stream(83, 5, seed=2, end=0), 4, 5, 0)
    new = torch.tensor(random_stream(3 * 11, 5, seed=3)).reshape(3, 11)
    logits = model(new)
    assert torch.allclose(logits.exp().sum(-1), torch.ones(3, 11, dtype=torch.float64))
    picked = logits[:, :-1].gather(-1, new[:, 1:, None])[..., 0].numpy()
    assert np.allclose(-model.score(new), picked)
    for t in range(11):
        assert np.allclose(model.log_probs(new[1, : t + 1]), logits[1, t])


def test_the_first_levels_make_the_back_off_of_lower_order():
    ids, new = random_stream(83, 5, seed=0), random_stream(29, 5, seed=1)
    levels = count_ngrams(ids, order=4, vocabulary_size=5)
    assert np.array_equal(BackOffModel.of(levels[:2]).score(new), back_off(ids, 2, 5).score(new))
