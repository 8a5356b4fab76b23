"""`src.likelihood.ngrams`: counts worked by hand, and back-off against a loop over contexts."""

import math

import numpy as np
import pytest
from test_smoothing import ABAC, A, B, C, Slow, random_stream

from src.likelihood.ngrams import BackOffModel, count_ngrams


def back_off(ids, order, size, end=None):
    return BackOffModel.of(count_ngrams(ids, order=order, vocabulary_size=size, end=end), end=end)


def by_loop(ids, order, end, token, before):
    """Drop the oldest token until the context was seen, and divide its counts."""
    slow = Slow(ids, order, max(ids) + 1, end=end)
    followers = {context: row for rows in slow.counts for context, row in rows.items()}
    context = slow.context(before)
    while context and context not in followers:
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
    slow = Slow(ids, 5, 5, end=end).counts
    words = [()]  # the tokens of each n-gram, by its number
    for grams, counted in zip(
        count_ngrams(ids, order=5, vocabulary_size=5, end=end), slow, strict=True
    ):
        pairs = [(words[c], k % 5) for c, k in zip(grams.context, grams.keys, strict=True)]
        fast = dict(zip(pairs, grams.counts.tolist(), strict=True))
        slowly = {(c, w): n for c, row in counted.items() for w, n in row.items()}
        assert {gram: n for gram, n in fast.items() if n} == slowly
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
