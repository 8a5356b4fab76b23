"""`src.sources` against tables worked by hand, enumeration, long runs and an eigenvector solver."""

import math
from itertools import product

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from src.likelihood import joint_log_prob
from src.sources import MarkovSource, small_english


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_source(words, order, *, end=None, seed=0):
    """A source with random rows, all probabilities positive."""
    rows = np.random.default_rng(seed).dirichlet(np.ones(len(words)), (len(words),) * order)
    return MarkovSource(words, rows, end=end)


WEATHER = MarkovSource(["sun", "rain"], [[0.9, 0.1], [0.5, 0.5]])
COPYCAT = MarkovSource.from_table(
    {"<end>": {"a": 0.5, "b": 0.5}, "a": {"a": 0.5, "<end>": 0.5}, "b": {"b": 0.5, "<end>": 0.5}},
    end="<end>",
)


# what can be worked by hand


def test_weather_is_sunny_five_days_in_six():
    assert WEATHER.stationary().tolist() == pytest.approx([5 / 6, 1 / 6])


def test_the_entropy_rate_of_the_weather_is_the_mean_of_its_rows():
    sun = -0.9 * math.log(0.9) - 0.1 * math.log(0.1)
    assert WEATHER.entropy_rate() == pytest.approx(5 / 6 * sun + 1 / 6 * math.log(2))


def test_the_first_day_is_drawn_from_the_long_run():
    assert WEATHER.log_prob(WEATHER.encode("rain sun")) == pytest.approx(math.log(1 / 6 * 0.5))


def test_a_text_begins_after_an_end_token():
    assert COPYCAT.log_prob(COPYCAT.encode("a a <end>")) == pytest.approx(math.log(1 / 8))


def test_a_source_of_order_zero_has_no_memory():
    coin = MarkovSource(["heads", "tails"], [0.75, 0.25])
    assert coin.order == 0
    assert coin.log_prob(coin.encode("tails heads")) == pytest.approx(math.log(3 / 16))
    assert coin.entropy_rate() == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))


def test_what_the_source_cannot_say_has_probability_zero():
    assert COPYCAT.log_prob(COPYCAT.encode("a b <end>")) == -math.inf


def test_every_row_of_small_english_is_a_distribution_and_its_texts_end():
    source = small_english()
    assert source.vocabulary[0] == source.end == "<end>"
    texts = source.sample_texts(100, generator=generator())
    assert all(text[-1] == 0 and not (text[:-1] == 0).any() for text in texts)


# oracles


@pytest.mark.parametrize(("order", "end"), [(0, None), (1, None), (2, None), (1, "c"), (2, "c")])
def test_streams_of_a_length_sum_to_one(order, end):
    source = random_source("abc", order, end=end)
    for length in (1, 2, 4):
        total = sum(
            math.exp(source.log_prob(torch.tensor(ids))) for ids in product(range(3), repeat=length)
        )
        assert total == pytest.approx(1.0)


@pytest.mark.parametrize(("order", "end"), [(0, None), (1, None), (2, None), (3, "c")])
def test_the_fast_score_is_the_chain_rule_over_the_next_token(order, end):
    source = random_source("abc", order, end=end, seed=1)
    ids = source.sample(40, generator=generator(1))
    expected = joint_log_prob(source.next_log_probs, ids)
    assert source.log_prob(ids) == pytest.approx(float(expected), rel=1e-12)


def test_the_text_after_an_end_token_owes_nothing_to_the_one_before():
    source = random_source("abc", 2, end="c", seed=2)
    texts = source.sample_texts(20, generator=generator(2))
    total = sum(source.log_prob(text) for text in texts)
    assert source.log_prob(torch.cat(texts)) == pytest.approx(total)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 5), st.integers(1, 2), st.integers(0, 999))
def test_the_stationary_distribution_is_the_left_eigenvector_of_the_chain(size, order, seed):
    source = random_source("abcde"[:size], order, seed=seed)
    contexts = list(product(range(size), repeat=order))
    chain = np.zeros((len(contexts), len(contexts)))
    for i, context in enumerate(contexts):
        for word in range(size):
            after = contexts.index((*context, word)[1:])
            chain[i, after] += float(source.transition[context][word])
    values, vectors = scipy.linalg.eig(chain, left=True, right=False)
    vector = np.real(vectors[:, np.argmin(abs(values - 1))])
    assert np.allclose(source.stationary().reshape(-1), vector / vector.sum(), atol=1e-9)


@pytest.mark.parametrize("end", [None, "c"])
def test_long_samples_have_the_frequencies_and_the_surprise_of_the_source(end):
    source = random_source("abc", 2, end=end, seed=3)
    ids = source.sample(200_000, generator=generator(3))
    scores = source.token_log_probs(ids)
    error = float(scores.std()) / math.sqrt(len(ids))
    # Neighbouring scores are correlated; 6 standard errors of independent ones leave room for it.
    assert abs(-float(scores.mean()) - source.entropy_rate()) < 6 * error
    counts = torch.bincount(ids, minlength=3) / len(ids)
    assert torch.allclose(counts.double(), source.stationary().sum(0), atol=0.01)


def test_the_uniform_source_has_the_largest_entropy_rate_there_is():
    uniform = MarkovSource("abcd", torch.full((4, 4), 0.25))
    assert uniform.entropy_rate() == pytest.approx(math.log(4))
    assert random_source("abcd", 1).entropy_rate() < math.log(4)


def test_a_source_that_only_alternates_surprises_nobody():
    clock = MarkovSource(["tick", "tock"], [[0.0, 1.0], [1.0, 0.0]])
    assert clock.stationary().tolist() == pytest.approx([0.5, 0.5])  # though it is periodic
    assert clock.entropy_rate() == 0.0


def test_contexts_that_cannot_come_again_have_weight_zero():
    source = MarkovSource("abc", [[0, 1, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]])
    assert source.stationary().tolist() == pytest.approx([0, 0.5, 0.5])


def test_contexts_that_no_text_reaches_have_weight_zero_even_if_one_could_stay_there():
    table = {"<end>": {"a": 1.0}, "a": {"<end>": 1.0}, "x": {"x": 1.0}}
    source = MarkovSource.from_table(table, end="<end>")
    assert source.stationary().tolist() == [0.5, 0.5, 0.0]


def test_the_same_seed_draws_the_same_text():
    source = small_english()
    one, two = (source.sample(500, generator=generator(7)) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, source.sample(500, generator=generator(8)))


def test_encode_and_decode_are_inverse():
    source = small_english()
    text = "the tabby cat walks by the river bank <end>"
    assert source.decode(source.encode(text)) == text
    assert torch.equal(source.encode(text.split()), source.encode(text))


# bad input


def test_a_row_that_does_not_sum_to_one_is_named():
    with pytest.raises(ValueError, match=r"sum to 1, got 1\.1.*after 'rain'"):
        MarkovSource(["sun", "rain"], [[0.9, 0.1], [0.6, 0.5]])


@pytest.mark.parametrize("row", [[1.5, -0.5], [math.nan, 1.0]])
def test_a_row_of_no_probabilities_is_refused(row):
    with pytest.raises(ValueError, match="probabilities"):
        MarkovSource(["sun", "rain"], [row, [0.5, 0.5]])


def test_a_chain_in_two_parts_has_no_single_long_run():
    apart = MarkovSource("ab", [[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match=r"got 2: .*those of 'a' and 'b'"):
        apart.stationary()
    with pytest.raises(ValueError, match="got 2"):
        apart.entropy_rate()


def test_a_source_whose_texts_may_never_end_is_refused():
    table = {"<end>": {"a": 0.5, "b": 0.5}, "a": {"<end>": 1.0}, "b": {"b": 1.0}}
    with pytest.raises(ValueError, match="every text to end, but after 'b'"):
        MarkovSource.from_table(table, end="<end>")


@pytest.mark.parametrize("table", [[[1.0]], [[0.5, 0.5]], 1.0, [[0.2] * 5] * 2])
def test_a_table_of_the_wrong_shape_is_refused(table):
    with pytest.raises(ValueError, match="length 2"):
        MarkovSource("ab", table)


@pytest.mark.parametrize("words", ["", "aa"])
def test_a_vocabulary_needs_distinct_words(words):
    with pytest.raises(ValueError, match="distinct words"):
        MarkovSource(words, torch.full((len(words),) * 2, 0.5))


def test_an_unknown_end_token_is_refused():
    with pytest.raises(ValueError, match="end token among"):
        MarkovSource("ab", [[0.5, 0.5], [0.5, 0.5]], end="<end>")


def test_a_row_for_an_unnamed_word_is_refused():
    with pytest.raises(ValueError, match=r"row for every word.*\['b'\]"):
        MarkovSource.from_table({"a": {"b": 1.0}})


def test_an_unknown_word_is_named():
    with pytest.raises(ValueError, match=r"got \['moose'\]"):
        small_english().encode("the moose sleeps")


@pytest.mark.parametrize("ids", [[], [2], [-1, 0]])
def test_ids_outside_the_vocabulary_are_refused(ids):
    with pytest.raises(ValueError, match="ids from 0 to 1"):
        WEATHER.log_prob(torch.tensor(ids, dtype=torch.long))


def test_texts_need_an_end_token():
    with pytest.raises(ValueError, match="end token"):
        WEATHER.sample_texts(1, generator=generator())
