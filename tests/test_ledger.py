"""`src.likelihood.ledger`: one function scores every model, on two texts that do not change."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from src.likelihood import ledger
from src.likelihood.evaluation import total
from src.likelihood.ledger import (
    before,
    frequencies,
    numbers_kept,
    python_docs_text,
    score,
    small_english_text,
    uniform,
    window_network,
)
from src.likelihood.ngrams import BackOffModel, count_ngrams
from src.likelihood.smoothing import NgramModel


@pytest.fixture(scope="module")
def small():
    return small_english_text()


@pytest.fixture(scope="module")
def some_docs():
    """Five test documents, the longest among them: it takes several windows."""
    text = python_docs_text()
    longest = sorted(range(len(text.test)), key=lambda i: len(text.test[i]))[-1]
    chosen = [*range(4), longest]
    return replace(
        text,
        test=tuple(text.test[i] for i in chosen),
        n_bytes=tuple(text.n_bytes[i] for i in chosen),
    )


@pytest.fixture(scope="module")
def first_rows():
    return before("ngrams")


def test_a_model_that_scores_by_itself_and_its_logits_get_the_same_score(some_docs):
    model = NgramModel.fit(some_docs.train, order=4, vocabulary_size=256, end=0)
    alone = score(model, some_docs)
    from_logits = score(lambda ids: model(ids), some_docs)
    assert max(len(ids) for ids in some_docs.test) > 10 * ledger.WINDOW
    assert [one.tokens for one in alone] == [one.tokens for one in from_logits]
    assert [one.n_bytes for one in alone] == [one.n_bytes for one in from_logits]
    for one, other in zip(alone, from_logits, strict=True):
        assert math.isclose(one.nats, other.nats, rel_tol=1e-9)


@pytest.mark.parametrize("end", [0, None])
def test_counts_score_each_document_as_it_is_scored_alone(some_docs, end):
    levels = count_ngrams(some_docs.train[:50_000], order=3, vocabulary_size=256, end=end)
    model = NgramModel.from_counts(levels, end=end)
    alone = [float(model.score(ids).sum()) for ids in some_docs.test]
    assert [cost.nats for cost in score(model, some_docs)] == pytest.approx(alone, rel=1e-12)


def test_the_parts_are_of_the_sizes_that_are_told_and_have_no_text_twice(small):
    assert len(small.test) == 5_000
    for stream in (small.train, small.validation):
        assert int((stream == 0).sum()) == 300 + 1
    assert not torch.equal(small.train[:50], small.validation[:50])
    docs = python_docs_text()
    assert sum(map(len, docs.test)) == sum(docs.n_bytes) + 2 * len(docs.test)
    train = bytes(docs.train.tolist()).split(b"\0")
    assert not set(train[1:-1]) & {bytes(ids.tolist()).strip(b"\0") for ids in docs.test}


def test_numbers_kept_are_counted():
    text = small_english_text()
    assert numbers_kept(text.law) == numbers_kept(frequencies(text, order=2)) == 33
    assert numbers_kept(frequencies(text, order=1)) == 12
    assert numbers_kept(NgramModel.fit([0, 1, 1, 0], order=2, vocabulary_size=2)) == 2 + 3
    levels = count_ngrams([0, 1, 1, 0], order=2, vocabulary_size=2)
    assert numbers_kept(BackOffModel.of(levels)) == 2 + 3
    pairs = NgramModel.from_counts(levels, estimator="maximum-likelihood")
    assert numbers_kept(pairs) == 3
    assert numbers_kept(nn.Linear(2, 3)) == 9
    assert numbers_kept(uniform(text)) == 0


def test_a_chapter_opens_with_the_rows_of_the_chapters_before_it(first_rows):
    names = [entry.model for entry in ledger.ENTRIES]
    assert [row.model for row in first_rows.rows] == names[: len(first_rows.rows)]
    assert {entry.chapter for entry in ledger.ENTRIES[: len(first_rows.rows)]} == {
        "text_probability",
        "maximum_likelihood",
    }
    assert before("text_probability").rows == []


def test_entries_stand_in_the_order_of_the_chapters_and_no_name_twice():
    chapters = [entry.chapter for entry in ledger.ENTRIES]
    assert chapters == sorted(chapters, key=chapters.index)
    assert len({entry.model for entry in ledger.ENTRIES}) == len(ledger.ENTRIES)


def test_a_row_says_what_the_score_says(first_rows):
    row, shown = first_rows["frequencies of tokens"], first_rows.table()
    cells = next(cells for cells in shown.rows if cells[0] == row.model)
    truth = total(first_rows["the true table"].small).loss
    nats = total(row.small).loss
    assert cells[1:] == (nats, nats - truth, total(row.docs).bits_per_byte, 12, row.docs_numbers)
    assert next(cells for cells in shown.rows if cells[0] == "the true table")[2:4] == (0.0, None)
    assert "frequencies of tokens" in repr(first_rows)
    assert "<td" in first_rows._repr_html_()


def test_the_network_learns_what_comes_after_a_word_and_is_the_same_each_time(small):
    network, again = window_network(small), window_network(small)
    for one, other in zip(network.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    part = replace(small, test=small.test[:1_000])
    above = total(score(network, part)).loss - total(score(small.law, part)).loss
    assert 0 < above < 0.1  # the frequencies of tokens: 1.4
    assert numbers_kept(network) == 13 * 8 + (2 * 8 + 1) * 32 + (32 + 1) * 12  # padding, biases
