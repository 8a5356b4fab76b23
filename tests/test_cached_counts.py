"""`src.likelihood.cached_counts` against a loop over contexts, and what makes it a fair model."""

from collections import Counter

import pytest
import torch

from src.likelihood.cached_counts import CachedCounts, cache_probs
from src.likelihood.smoothing import NgramModel

V, END, LENGTHS = 5, 0, 4


def texts(*shape, seed=0):
    """Few tokens, so that much comes again, and some documents to a text."""
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def model():
    counts = NgramModel.fit(texts(211, seed=1), order=3, vocabulary_size=V, end=END)
    return CachedCounts.fit(counts, texts(7, 31, seed=2), lengths=LENGTHS)


@pytest.mark.parametrize("end", [END, None])
def test_a_cache_says_what_a_loop_over_the_document_finds(end):
    ids = texts(3, 37)
    said, found = cache_probs(ids, LENGTHS, V, end)
    for k, b, t in torch.cartesian_prod(torch.arange(LENGTHS), torch.arange(3), torch.arange(37)):
        row = ids[b, : t + 1].tolist()
        document = row[max((i for i, w in enumerate(row) if w == end), default=0) :]
        grams = [tuple(document[i : i + k + 1]) for i in range(len(document) - k)]
        context = tuple(document[len(document) - k :])
        counts = Counter(gram[-1] for gram in grams[k == 0 :] if gram[:-1] == context)
        assert bool(found[k, b, t]) == bool(counts)
        expected = [counts[w] / max(counts.total(), 1) for w in range(V)]
        assert said[k, b, t].tolist() == pytest.approx(expected)


def test_the_probabilities_sum_to_one_and_are_those_of_the_formula(model):
    ids = texts(3, 37)
    expected = model.model(ids).exp()
    for k, (said, found) in enumerate(zip(*cache_probs(ids, LENGTHS, V, END), strict=True)):
        mixed = model.weights[k] * said + (1 - model.weights[k]) * expected
        expected = torch.where(found[..., None], mixed, expected)
    assert torch.allclose(model(ids).exp(), expected)
    assert torch.allclose(expected.sum(-1), torch.ones(3, 37, dtype=expected.dtype))


def test_later_tokens_and_other_documents_change_nothing(model):
    ids = texts(1, 37)
    ids[0, 17] = END
    later, other = ids.clone(), ids.clone()
    later[:, 20:], other[:, :17] = (ids[:, 20:] + 1) % V, texts(1, 17, seed=3)
    assert torch.equal(model(later)[:, :20], model(ids)[:, :20])
    assert torch.equal(model(other)[:, 17:], model(ids)[:, 17:])
    assert not torch.allclose(model(other)[:, 1:17], model(ids)[:, 1:17])
