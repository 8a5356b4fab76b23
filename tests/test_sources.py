"""`src.texts.markov` against tables worked by hand, enumeration, long runs and an eigenvector
solver.
"""

import math
from itertools import product

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from src.likelihood.text_probability import joint_log_prob
from src.texts.maps import RandomMaps, random_maps
from src.texts.markov import MarkovSource, pets, small_english


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


@pytest.mark.parametrize("order", [1, 2])
def test_a_source_without_an_end_is_met_in_the_middle_of_its_long_run(order):
    source, draws, count = random_source("abc", order, seed=3), generator(), 3_000
    begins = torch.stack([source.sample(2, generator=draws) for _ in range(count)])
    for text in product(range(3), repeat=2):
        p = math.exp(source.log_prob(torch.tensor(text)))
        seen = int((begins == torch.tensor(text)).all(-1).sum())
        assert abs(seen / count - p) < 5 * math.sqrt(p * (1 - p) / count)


def test_a_text_begins_after_an_end_token():
    assert COPYCAT.log_prob(COPYCAT.encode("a a <end>")) == pytest.approx(math.log(1 / 8))
    assert COPYCAT.log_prob(COPYCAT.encode("a b <end>")) == -math.inf


def test_a_source_of_order_zero_has_no_memory():
    coin = MarkovSource(["heads", "tails"], [0.75, 0.25])
    assert coin.order == 0
    assert coin.log_prob(coin.encode("tails heads")) == pytest.approx(math.log(3 / 16))
    assert coin.entropy_rate() == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))


def test_words_of_a_class_behave_alike_and_those_of_two_classes_do_not():
    table = pets().transition
    cat, tabby, boy, sees, milk = pets().encode("cat tabby boy sees milk")
    assert torch.equal(table[:, tabby], table[:, cat])
    assert torch.equal(table[tabby], table[cat])
    assert torch.equal(table[..., tabby], table[..., cat])
    assert not torch.equal(table[boy], table[cat])
    assert table[tabby, sees, milk] == 0.7 / 2
    assert table[boy, sees, milk] == 0.1 / 2


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


def test_contexts_that_cannot_come_again_have_weight_zero():
    clock = MarkovSource(["tick", "tock"], [[0.0, 1.0], [1.0, 0.0]])
    assert clock.stationary().tolist() == pytest.approx([0.5, 0.5])  # though it is periodic
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


EVEN = [[0.5, 0.5], [0.5, 0.5]]
APART = MarkovSource("ab", [[1.0, 0.0], [0.0, 1.0]])
ENDLESS = {"<end>": {"a": 0.5, "b": 0.5}, "a": {"<end>": 1.0}, "b": {"b": 1.0}}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MarkovSource("ab", [[0.5, 0.5], [0.6, 0.5]]), r"sum to 1, got \[\[0\.6, 0\.5\]\]"),
        (lambda: MarkovSource("ab", [[1.5, -0.5], [0.5, 0.5]]), "probabilities"),
        (lambda: MarkovSource("ab", [[math.nan, 1.0], [0.5, 0.5]]), "probabilities"),
        (lambda: MarkovSource("ab", [[1.0]]), "length 2"),
        (lambda: MarkovSource("ab", [[0.5, 0.5]]), "length 2"),
        (lambda: MarkovSource("ab", 1.0), "length 2"),
        (lambda: MarkovSource("", EVEN), "length 0"),
        (lambda: MarkovSource("aa", EVEN), "distinct words"),
        (lambda: MarkovSource("ab", EVEN, end="<end>"), "distinct words, '<end>' too"),
        (lambda: MarkovSource.from_table({"a": {"b": 1.0}}), r"to 1, got \[\[0.0\]\]"),
        (lambda: MarkovSource.from_table(ENDLESS, end="<end>"), "texts to end, but some"),
        (APART.stationary, "one stationary distribution, got several"),
        (lambda: WEATHER.encode("the sun"), r"got \['the'\]"),
        (lambda: WEATHER.log_prob(torch.tensor([2])), "ids from 0 to 1"),
        (lambda: WEATHER.log_prob(torch.tensor([-1, 0])), "ids from 0 to 1"),
        (lambda: WEATHER.sample_texts(1, generator=generator()), "end token"),
    ],
)
def test_what_is_no_source_and_no_text_of_it_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# lists of examples


INPUTS, OUTPUTS = ["thanks", "hello", "mint"], ["merci", "bonjour"]
TWO_MAPS = torch.tensor([[0, 1, 1], [0, 0, 0]])  # they agree on the first input only


def maps_of(kind, *, noise=0.0, pairs=3, weights=None):
    table = TWO_MAPS if kind == "pool" else None
    return RandomMaps(INPUTS, OUTPUTS, pairs=pairs, maps=table, noise=noise, weights=weights)


def numbers(*rows):
    return torch.tensor(rows)


def test_a_noisy_example_worked_by_hand():
    # Right with 1 - 0.2 + 0.2 / 2 = 0.9. The posterior of what was seen once is 0.9 : 0.1.
    row = maps_of("new", noise=0.2).predict(numbers([1, 1]), numbers([1]))[0, 1].exp()
    assert row.tolist() == pytest.approx([0.18, 0.82])  # 0.9 * 0.1 + 0.1 * 0.9, and the rest
    # The first map 0.9, the second 0.1; of mint they say bonjour and merci.
    row = maps_of("pool", noise=0.2).predict(numbers([1, 2]), numbers([1]))[0, 1].exp()
    assert row.tolist() == pytest.approx([0.18, 0.82])


def brute_force(source, inputs, outputs):
    """p(all outputs | all inputs) as a sum over every map there can be."""
    tables = [*product(range(len(OUTPUTS)), repeat=len(INPUTS))]
    prior = [1 / len(tables)] * len(tables)
    if source.maps is not None:
        tables, prior = source.maps.tolist(), source.weights.tolist()
    wrong = source.noise / len(OUTPUTS)
    right, pairs = 1 - source.noise + wrong, list(zip(inputs, outputs, strict=True))
    return sum(
        p * math.prod(right if table[x] == y else wrong for x, y in pairs)
        for table, p in zip(tables, prior, strict=True)
    )


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["pool", "new"])
def test_the_probability_of_every_text_is_the_sum_over_all_maps(kind, noise):
    source = maps_of(kind, noise=noise, weights=[2, 1] if kind == "pool" else None)
    total = 0.0  # if it is 1, the rows are distributions, and no text ends early
    for inputs in product(range(3), repeat=3):
        for outputs in product(range(2), repeat=3):
            ids = source.write(numbers(inputs), numbers(outputs))[0]
            text = torch.cat([ids[1:], ids[:1]])
            expected = brute_force(source, inputs, outputs) / 3**3
            assert math.exp(source.log_prob(text)) == pytest.approx(expected)
            total += expected
    assert total == pytest.approx(1.0)


@pytest.mark.parametrize("noise", [0.2, 0.9])
def test_samples_come_with_the_frequencies_of_the_source(noise):
    source = maps_of("pool", noise=noise, weights=[3, 1], pairs=2)
    texts = source.sample(20_000, generator=generator())
    seen, counts = texts.unique(dim=0, return_counts=True)
    for text, count in zip(seen, counts, strict=True):
        p = math.exp(source.log_prob(text[1:]))
        assert abs(count / 20_000 - p) < 5 * math.sqrt(p / 20_000)


def test_what_cannot_be_has_probability_zero_and_makes_no_nan():
    for kind in ("pool", "new"):
        source = maps_of(kind)
        contradiction = source.encode("hello merci hello bonjour hello")
        assert source.log_prob(contradiction) == -math.inf
        row = source(source.encode("<end> hello merci hello bonjour hello")[None])[0, -1]
        assert (row == -torch.inf).all()


def test_read_undoes_write_with_and_without_a_question():
    source, inputs, outputs = maps_of("new"), numbers([0, 2], [1, 1]), numbers([1, 0], [0, 1])
    for written in (outputs, outputs[:, :1]):
        found = source.read(source.write(inputs, written))
        assert torch.equal(found[0], inputs)
        assert torch.equal(found[1], written)
    assert source.decode(source.write(inputs, outputs)[0]) == "<end> thanks bonjour mint merci"


def test_random_maps_are_uniform():
    maps = random_maps(6_000, inputs=2, outputs=3, generator=generator())
    assert maps.shape == (6_000, 2)
    shares = torch.stack([(maps == y).double().mean(0) for y in range(3)])
    assert (shares - 1 / 3).abs().max() < 5 * math.sqrt(2 / 9 / 6_000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outputs": ["merci", "merci"]}, "distinct"),
        ({"outputs": ["merci", "mint"]}, "distinct"),
        ({"inputs": ["<end>"]}, "distinct"),
        ({"noise": 1.0}, r"from 0 to below 1, got 1\.0"),
        ({"noise": -0.1}, "from 0 to below 1"),
        ({"maps": TWO_MAPS[:, :2]}, r"expected \(2, 3\) maps"),
        ({"maps": TWO_MAPS[0]}, r"expected \(3, 3\) maps"),
        ({"maps": TWO_MAPS + 1}, "numbers below 2"),
        ({"maps": TWO_MAPS - 1}, "numbers below 2"),
        ({"maps": TWO_MAPS, "weights": [1.0]}, r"expected \(1, 3\) maps"),
        ({"maps": TWO_MAPS, "weights": [1.0, 0.0]}, "weights above 0"),
    ],
)
def test_maps_that_do_not_fit_are_refused(changes, message):
    options = {"inputs": INPUTS, "outputs": OUTPUTS, "pairs": 3} | changes
    with pytest.raises(ValueError, match=message):
        RandomMaps(options.pop("inputs"), options.pop("outputs"), **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello merci", "<end>, then inputs and outputs by turns"),
        ("<end> merci", "by turns"),
        ("<end> hello hello", "by turns"),
        ("<end> hello <end>", "by turns"),
        ("<end> hello merci hello merci hello merci hello", "up to 3 pairs, got"),
    ],
)
def test_what_is_no_list_of_pairs_is_refused(text, message):
    source = maps_of("new")
    with pytest.raises(ValueError, match=message):
        source(source.encode(text)[None])


def test_unknown_words_are_refused():
    with pytest.raises(ValueError, match="otter"):
        maps_of("new").encode("otter")
