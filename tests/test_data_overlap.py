"""The claims of src/gpt/data_overlap.py: a filter forgets nothing, and invents as much as was
derived.
"""

import hashlib
import math
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from src.gpt import data_overlap
from src.gpt.data_overlap import BloomFilter, NgramSet, bloom_size, false_positive_rate, remember

calmly = settings(deadline=None)  # a busy machine is no counter-example
rates = st.floats(1e-9, 0.999)


# ---- sizes -------------------------------------------------------------------------------------


@calmly
@given(st.integers(1, 10**9), rates)
def test_a_filter_keeps_the_wanted_rate_with_no_bit_to_spare_for_any_number_of_hashes(items, rate):
    bits, hashes = bloom_size(items, rate=rate)
    assert false_positive_rate(bits, hashes, items) <= rate * (1 + 1e-6)
    if bits > 1 and items < 10**6:  # beyond, one bit is less than the last digit of a float
        for number in range(1, 40):
            assert false_positive_rate(bits - 1, number, items) > rate * (1 - 1e-9)


def test_the_rate_of_a_tiny_filter_by_enumeration():
    """2 bits, 1 hash, 1 item: a new item falls on the same bit with probability 1/2."""
    assert false_positive_rate(2, 1, 1) == pytest.approx(1 / 2)
    assert false_positive_rate(3, 1, 2) == pytest.approx(1 - (2 / 3) ** 2)
    assert false_positive_rate(1, 5, 1) == 1.0
    assert false_positive_rate(1, 5, 0) == false_positive_rate(11, 3, 0) == 0.0


@pytest.mark.parametrize("rate", [0, 1, 0.0, 1.0, -0.1, 1.1, math.nan, math.inf])
def test_a_rate_that_is_not_between_0_and_1_is_refused(rate):
    for make in (bloom_size, BloomFilter.sized, lambda n, rate: remember(["a b"], n=2, rate=rate)):
        with pytest.raises(ValueError, match="expected a rate between 0 and 1"):
            make(100, rate=rate)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: remember(["too short", ""]), "expected texts, one of 8 words or more"),
        (
            lambda: remember(["too short"], rate=0.1),
            "expected texts, one of 8 words or more",
        ),
        (lambda: remember(TRAINING, n=0), "got n=0"),
        (
            lambda: remember(TRAINING, n=2).overlap(["one", "..."]),
            "expected texts, one of 2 words or more",
        ),
        (
            lambda: remember(TRAINING, n=2).overlap([]),
            "expected texts, one of 2 words or more",
        ),
    ],
)
def test_texts_without_ngrams_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---- the filter --------------------------------------------------------------------------------


@calmly
@given(st.lists(st.text(max_size=6), max_size=30), st.lists(st.text(max_size=6), max_size=30))
def test_a_filter_agrees_with_a_slow_one(items, others):
    """The bits as a set of numbers, one item and one hash after another."""
    bits, hashes, seed = 101, 3, 7

    def places(item):
        digest = hashlib.shake_128(f"{seed}\n{item}".encode()).digest(8 * hashes)
        return {int.from_bytes(digest[8 * i : 8 * i + 8], "little") % bits for i in range(hashes)}

    ones = set().union(*map(places, items))
    bloom = BloomFilter(bits=bits, hashes=hashes, seed=seed)
    bloom.update(items)
    assert bloom.contains(items).all()  # nothing that was put in is missed
    assert bloom.contains(others).tolist() == [places(other) <= ones for other in others]
    assert [other in bloom for other in others] == bloom.contains(others).tolist()
    assert bloom.fill == len(ones) / bits
    assert bloom.rate == (len(ones) / bits) ** hashes


def test_many_items_are_hashed_in_parts(monkeypatch):
    whole, parts = (BloomFilter(bits=997, hashes=4) for _ in range(2))
    items = [f"item {i}" for i in range(23)]
    whole.update(items)
    monkeypatch.setattr(data_overlap, "_CHUNK", 5)
    parts.update(iter(items))
    others = [*items, *(f"other {i}" for i in range(100))]
    assert parts.contains(others).tolist() == whole.contains(others).tolist()
    assert parts.fill == whole.fill


def test_an_empty_filter_finds_nothing():
    bloom = BloomFilter.sized(10, rate=0.5)
    assert bloom.fill == bloom.rate == 0.0
    assert "" not in bloom
    assert bloom.contains([]).shape == (0,)


def test_a_filter_is_the_same_in_each_process():
    """Python's own hash of a string differs from process to process."""
    code = (
        "from src.gpt.data_overlap import BloomFilter as B; b = B.sized(50, rate=.2);"
        "b.update(map(str, range(50))); print(b.contains(map(str, range(50, 400))).nonzero()[0])"
    )
    command, root = [sys.executable, "-c", code], Path(data_overlap.__file__).parents[2]
    one, other = (
        subprocess.check_output(command, cwd=root, env={"PYTHONHASHSEED": seed}, text=True)
        for seed in ("1", "2")
    )
    assert one == other != "[]\n"


@pytest.mark.parametrize("items", [["a", 17], [b"bytes"]])
def test_items_that_are_no_strings_and_one_string_for_several_are_refused(items):
    bloom = BloomFilter.sized(10, rate=0.1)
    with pytest.raises(TypeError, match=r"expected strings, got .* decode ids of tokens first"):
        bloom.update(items)
    for refuses in (bloom.update, bloom.contains):
        with pytest.raises(TypeError, match="several strings, got one"):
            refuses("one text")
    for refuses in (partial(remember, n=1), remember(["a b"], n=1).overlap):
        with pytest.raises(ValueError, match=r"expected texts, .* got 'one text'"):
            refuses("one text")


# ---- overlap -----------------------------------------------------------------------------------

TRAINING = ["The cat sat on the mat.", "A dog ran!"]


def kinds(texts, n):
    """The same n-grams in a set and in a filter that practically never errs."""
    return remember(texts, n=n), remember(texts, n=n, rate=1e-9)


def test_overlap_by_hand():
    """3-grams: 4 of the first (2 seen), none of the second, 1 of the third (seen), 2 new ones."""
    tests = ["the CAT, sat: on a mat", "dog ran", "a dog\nran", "all of it new"]
    for seen in kinds(TRAINING, 3):
        report = seen.overlap(tests)
        assert report.matches.tolist() == [2, 0, 1, 0]
        assert report.grams.tolist() == [4, 0, 1, 2]
        assert report.share == 3 / 7
        assert report.short == (1,)
        assert report.shares[[0, 2, 3]].tolist() == [0.5, 1.0, 0.0]
        assert math.isnan(report.shares[1])


def test_no_ngram_crosses_the_border_of_a_document_and_each_counts_as_often_as_it_occurs():
    for seen in kinds(TRAINING, 3):
        assert seen.flags("the mat a").tolist() == [False]
        assert seen.flags("mat a dog").tolist() == [False]
    for seen in kinds(["x y"], 2):
        assert seen.overlap(["x y x y x y z"]).matches.tolist() == [3]


def test_the_error_is_that_of_a_ratio_of_documents():
    """2 of 2 n-grams and 0 of 1: share 2/3, rests 2 - 4/3 and 0 - 2/3, error sqrt(8/9) / 3."""
    report = remember(["a b c"], n=2).overlap(["a b c", "x y"])
    assert report.share == 2 / 3
    assert report.error == pytest.approx(math.sqrt(8 / 9) / 3)
    same = remember(["a b c"], n=2).overlap(["a b z", "b c z"])
    assert same.error == 0.0


@calmly
@given(st.lists(st.text("ab ", max_size=12), min_size=1, max_size=5))
def test_a_filter_reports_no_less_than_the_exact_set(texts):
    exact = remember([*TRAINING, "a b a b a"], n=2)
    tests = [*texts, "a b"]
    few_bits = NgramSet(2, BloomFilter(bits=29, hashes=2))
    few_bits.grams.update(exact.grams)
    assert (few_bits.overlap(tests).matches >= exact.overlap(tests).matches).all()
    assert few_bits.overlap(tests).grams.tolist() == exact.overlap(tests).grams.tolist()
