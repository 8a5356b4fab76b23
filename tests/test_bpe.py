"""The claims of src/tokens; the other libraries are in tests/conformance."""

import json
import os
import pickle
import re
import tempfile
import tracemalloc
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest
from conformance.oracle import encode as oracle_encode
from conformance.oracle import train as oracle_train
from hypothesis import given, settings
from hypothesis import strategies as st

from src.texts.corpora import Corpus, Document, load
from src.tokens import bpe, files
from src.tokens.bpe import GPT2_PATTERN, BytePairTokenizer, count_words, split_words
from src.tokens.bytes import (
    END,
    PADDING,
    START,
    UNKNOWN,
    ByteTokenizer,
    CharacterTokenizer,
    Tokenizer,
    WordTokenizer,
    stream_of,
)
from src.tokens.fast_bpe import PairIndex, learn_merges
from src.tokens.unigram import UnigramTokenizer

PROSE = (
    "The theory that then gathered there: bees, trees and the sea; aaaa aaa aa. "
    "Don't they'll say 'twas 12 or 123? Être, naïve café; 東京から大阪へ 😀😀 "
) * 3

calmly = settings(deadline=None)
texts = st.text(max_size=60) | st.text("aab  \n'st1.é日😀\0", max_size=60)


@pytest.fixture(scope="module")
def trained():
    return BytePairTokenizer.train(PROSE, 340, specials=(END, "<|pad|>"))


def every_tokenizer():
    return [
        CharacterTokenizer.train(PROSE),
        WordTokenizer.train(PROSE),
        ByteTokenizer(),
        BytePairTokenizer.train(PROSE, 333),
        UnigramTokenizer.train(PROSE, 333),
    ]


# --- what all tokenizers share ---


@pytest.mark.parametrize("tokenizer", every_tokenizer(), ids=lambda t: type(t).__name__)
def test_ids_run_from_zero_and_each_has_its_bytes(tokenizer):
    assert isinstance(tokenizer, Tokenizer)
    ids = tokenizer.encode(PROSE)
    assert ids
    assert set(ids) <= set(range(tokenizer.vocabulary_size))
    assert all(tokenizer.token_bytes(number) for number in range(tokenizer.vocabulary_size))
    assert set(tokenizer.specials.values()) <= set(range(tokenizer.vocabulary_size))
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.encode_batch(["the", ""]) == [tokenizer.encode("the"), []]
    assert repr(tokenizer.vocabulary_size) in repr(tokenizer)


def test_a_stream_has_an_end_token_around_every_document():
    two = Corpus("two", (Document("a", "né"), Document("b", "to")))
    ids = stream_of(two, BytePairTokenizer([]))
    assert ids.tolist() == [256, *"né".encode(), 256, *b"to", 256]
    assert bytes(stream_of(two, ByteTokenizer()).tolist()) == two.to_bytes()


@pytest.mark.parametrize("tokenizer", every_tokenizer(), ids=lambda t: type(t).__name__)
@pytest.mark.parametrize("wrong", [-1, 10_000_000, "a", 1.5, None, [1]])
def test_an_id_that_does_not_exist_is_named_with_its_place(tokenizer, wrong):
    expected = f"expected ids from 0 to {tokenizer.vocabulary_size - 1}, got .* at position 2"
    with pytest.raises(ValueError, match=expected):
        tokenizer.decode([1, 2, wrong, 3])
    with pytest.raises(ValueError, match="expected ids from 0"):
        tokenizer.token_bytes(wrong)


@pytest.mark.parametrize("tokenizer", every_tokenizer(), ids=lambda t: type(t).__name__)
def test_bad_texts_and_unknown_special_tokens_are_refused(tokenizer):
    with pytest.raises(ValueError, match=r"udc80' in position 3: surrogates not allowed"):
        tokenizer.encode("abc\udc80d")
    with pytest.raises(TypeError, match=r"expected a text, a str, got bytes"):
        tokenizer.encode(b"abc")
    for names in ((END, "<|nobody|>"), END):
        with pytest.raises(ValueError, match="allowed_special must be among"):
            tokenizer.encode("a", allowed_special=names)


# --- characters and words ---


def test_characters_are_numbered_by_frequency_after_four_special_tokens():
    """a three times, n twice, b once: 4, 5, 6."""
    tokenizer = CharacterTokenizer.train("banana")
    assert tokenizer.specials == {UNKNOWN: 0, PADDING: 1, START: 2, END: 3}
    assert tokenizer.encode("bandana") == [6, 4, 5, 0, 4, 5, 4]
    assert tokenizer.decode([2, 6, 4, 5, 0, 3]) == f"{START}ban{UNKNOWN}{END}"
    assert tokenizer.vocabulary_size == 7


def test_a_small_vocabulary_keeps_the_most_frequent_and_the_first_of_ties():
    assert CharacterTokenizer.train(["cab", "ba"], vocabulary_size=6).encode("abc") == [4, 5, 0]
    assert WordTokenizer.train("b a. b a c", vocabulary_size=7).encode("a b c .") == [4, 5, 0, 6]
    with pytest.raises(ValueError, match="expected a vocabulary_size of 4 or more"):
        WordTokenizer.train("a", vocabulary_size=3)
    with pytest.raises(ValueError, match="one of them twice"):
        CharacterTokenizer("aa")


@calmly
@given(texts)
def test_characters_lose_exactly_those_they_do_not_know(text):
    tokenizer, own = CharacterTokenizer.train(PROSE), CharacterTokenizer.train(text)
    expected = "".join(character if character in PROSE else UNKNOWN for character in text)
    assert tokenizer.decode(tokenizer.encode(text)) == expected
    assert own.decode(own.encode(text)) == text


@calmly
@given(texts)
def test_words_lose_white_space_and_what_they_do_not_know(text):
    tokenizer = WordTokenizer.train(text)
    once = tokenizer.decode(tokenizer.encode(text))
    assert "".join(once.split()) == "".join(text.split())
    assert tokenizer.encode(once) == tokenizer.encode(text)
    assert WordTokenizer([]).decode(WordTokenizer([]).encode("a b!")) == " ".join([UNKNOWN] * 3)


# --- bytes ---


def test_the_byte_zero_ends_a_text_only_where_that_is_allowed():
    tokenizer = ByteTokenizer()
    assert tokenizer.specials == {END: 0}
    with pytest.raises(ValueError, match="which is the end token, got one at character 2"):
        tokenizer.encode("no\0")
    assert tokenizer.encode("\0no\0\0", (END,)) == [0, 110, 111, 0, 0]
    assert 0 not in tokenizer.encode(END, (END,))


@calmly
@given(texts)
def test_bytes_come_back_whatever_the_text(text):
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text, (END,))
    assert bytes(ids) == b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert tokenizer.decode(ids) == text


def test_bytes_that_are_not_utf8_are_replaced_or_refused():
    """The second byte of é is missing before the a; 255 never occurs in UTF-8."""
    tokenizer = ByteTokenizer()
    assert tokenizer.decode([195, 97, 255]) == "\ufffda\ufffd"
    assert tokenizer.decode([195, 97, 255], errors="ignore") == "a"
    with pytest.raises(UnicodeDecodeError):
        tokenizer.decode([195, 97], errors="strict")


# --- splitting ---


@calmly
@given(st.text("ab 1.'\n\t\x1c\u3000é", max_size=200), st.integers(1, 9))
def test_blocks_cut_only_where_the_pattern_cuts(text, size):
    expected = bpe.regex.findall(GPT2_PATTERN, text)
    with pytest.MonkeyPatch.context() as patch:
        smaller = bpe._BLOCK.pattern.replace("1023", str(size))
        patch.setattr(bpe, "_BLOCK", re.compile(smaller))
        assert split_words(text) == expected


def test_a_long_text_is_cut_into_small_blocks():
    blocks = bpe._BLOCK.findall("a word " * 1_000)
    assert len(blocks) > 5
    assert "".join(blocks) == "a word " * 1_000


def test_ascii_words_are_those_of_the_pattern():
    for first in map(chr, range(128)):
        for second in map(chr, range(128)):
            text = f"a{first}{second} 's{first}1{second}"
            assert split_words(text) == bpe.regex.findall(GPT2_PATTERN, text)


def test_without_a_pattern_a_text_is_one_word():
    assert split_words("a b", None) == ["a b"]
    assert split_words("", None) == []
    tokenizer = BytePairTokenizer.train("a b a b a ", 258, pattern=None)
    assert tokenizer.merges == [(97, 32)]
    assert tokenizer.encode("a b") == [256, 98]


def test_a_pattern_that_loses_text_is_refused():
    with pytest.raises(ValueError, match=r"whose words hold 2 characters of 3"):
        split_words("a b", r"\w+")
    with pytest.raises(ValueError, match="without groups"):
        split_words("a b", r"(\w)|\W")
    with pytest.raises(ValueError, match="without groups"):
        BytePairTokenizer([], pattern=r"(\w)|\W")


# --- training ---


@calmly
@given(
    st.lists(st.text("aab", min_size=1, max_size=9) | st.text(min_size=1, max_size=5), max_size=12),
    st.integers(0, 25),
)
def test_merges_are_those_of_the_oracle(words, n_merges):
    counts = {word: words.count(word) for word in words}
    assert learn_merges(counts, n_merges) == oracle_train(words, n_merges)


def test_a_text_and_its_parts_in_any_iterable_give_the_same_merges(trained):
    parts = [PROSE[: PROSE.index(" gath")], PROSE[PROSE.index(" gath") :]]
    for text in (parts, iter(parts)):
        assert BytePairTokenizer.train(text, 339).merges == trained.merges  # one special token


@pytest.mark.filterwarnings("error")
def test_a_text_without_enough_pairs_stops_early_and_says_so():
    with pytest.warns(UserWarning, match="vocabulary_size is 259, not 500: after 2 merges"):
        tokenizer = BytePairTokenizer.train("abc", 500)
    assert tokenizer.specials == {END: 258}
    with pytest.warns(UserWarning, match="after 0 merges"):
        assert BytePairTokenizer.train("", 300).encode("a") == [97]
    assert BytePairTokenizer.train("abc", 257).merges == []  # the smallest warns of nothing
    assert BytePairTokenizer.train("abc", 256, specials=()).vocabulary_size == 256


@pytest.mark.parametrize(
    ("texts", "options", "error", "words"),
    [
        (["good", "b\ud800d"], {}, ValueError, "surrogates not allowed"),
        (b"bytes", {}, TypeError, "expected string"),
        ("a", {"specials": END}, TypeError, "specials must be a collection"),
        ("a", {"specials": ("x", "x")}, ValueError, "different names that are not empty"),
        ("a", {"specials": ("",)}, ValueError, "different names that are not empty"),
        ("a", {"vocabulary_size": 256}, ValueError, "a vocabulary_size from 257, got 256"),
    ],
)
def test_bad_texts_names_and_sizes_are_refused_in_training(texts, options, error, words):
    with pytest.raises(error, match=words):
        BytePairTokenizer.train(texts, **{"vocabulary_size": 300} | options)


def test_memory_grows_with_words_and_not_with_text():
    """2 MB of text with 1,000 different words: far less than the text is ever held."""
    lines = (" ".join(f"word{(k * j) % 1_000}" for j in range(200)) for k in range(1_400))
    count_words(["warm up"])
    tracemalloc.start()
    counts = count_words(lines)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(len(word) * count for word, count in counts.items()) > 2e6
    assert peak < 5e5


# --- encoding ---


@calmly
@given(
    st.lists(st.text("aab", min_size=1, max_size=9), min_size=1, max_size=9),
    st.text("aab", max_size=30),
    st.integers(0, 25),
)
def test_ids_of_a_word_are_those_of_the_oracle(words, word, n_merges):
    """Every merge in the order learned, everywhere: on few letters, where merges overlap."""
    merges = oracle_train(words, n_merges)
    tokenizer = BytePairTokenizer(merges, pattern=None)
    assert tokenizer.encode(word) == oracle_encode([word], merges)
    assert list(map(ord, tokenizer._merged_by_heap(word))) == oracle_encode([word], merges)


@calmly
@given(texts, st.sampled_from([(), (END,), (END, "<|pad|>")]))
def test_any_text_comes_back(trained, text, allowed):
    ids = trained.encode(text, allowed)
    assert trained.decode(ids) == text
    assert all(0 <= number < trained.vocabulary_size for number in ids)
    assert b"".join(map(trained.token_bytes, ids)) == text.encode()


@calmly
@given(st.lists(texts, max_size=8))
def test_the_cache_changes_nothing(trained, many):
    small = [BytePairTokenizer(trained.merges, trained.specials, cache_size=n) for n in (0, 1, 3)]
    for text in [*many, *many]:
        expected = BytePairTokenizer(trained.merges, trained.specials).encode(text)
        for tokenizer in (trained, *small):
            assert tokenizer.encode(text) == expected
            assert len(tokenizer._cache) <= tokenizer._cache.size


def test_the_cache_is_bounded_in_the_length_of_its_words_too(trained):
    tokenizer = BytePairTokenizer(trained.merges, cache_size=10)
    tokenizer.encode("short words " + "x" * 1_000)
    assert 0 < max(map(len, tokenizer._cache)) < 100


@pytest.mark.parametrize("tokenizer", every_tokenizer(), ids=lambda t: type(t).__name__)
def test_what_a_caller_does_to_ids_does_not_reach_the_cache(tokenizer):
    before = tokenizer.encode("theory")
    tokenizer.encode("theory").append(0)
    assert tokenizer.encode("theory") == before


def test_a_tokenizer_survives_pickling(trained):
    copy = pickle.loads(pickle.dumps(trained))
    assert copy.encode(PROSE + " new words") == trained.encode(PROSE + " new words")


class Reading(str):
    """A word that counts how many of its characters are read, also after it was changed."""

    read = 0
    __slots__ = ()

    def replace(self, *arguments):
        Reading.read += len(self)
        return Reading(super().replace(*arguments))

    def __iter__(self):
        Reading.read += len(self)
        return super().__iter__()


def test_a_long_word_is_read_a_few_times_whatever_the_number_of_merges(monkeypatch):
    """With 1,700 merges; the look-ups are counted in the chapter `tokens/fast_bpe`.

    Its ids are those that a scan for each merge gives.
    """
    english = "".join(document.text for document in load("python-docs").documents[:40])
    tokenizer = BytePairTokenizer.train(english, 1_999)
    word = "".join(filter(str.isascii, filter(str.isalpha, english)))[:20_000]
    Reading.read = 0
    merged = tokenizer.merged(Reading(word))
    assert len(set(merged)) > 500  # as many merges, or more
    assert 0 < Reading.read < 12 * len(word)
    monkeypatch.setattr(bpe, "_SCANNED", len(word))
    assert tokenizer.merged(word) == merged


# --- special tokens ---


def test_special_tokens_only_where_allowed(trained):
    text = f"a{END}<|pad|>"
    assert trained.encode(text, (END,))[:2] == [97, 338]
    assert trained.encode(text, trained.specials) == [97, 338, 339]  # behind the merges
    assert not {338, 339} & set(trained.encode(text))
    assert trained.decode([97, 338, 339]) == text


@pytest.mark.parametrize(
    ("text", "allowed", "found"),
    [
        ("<a>", None, ["<a>"]),
        ("<a><b>", None, ["<a>", "<b>"]),
        ("<a>", ("<a",), ["<a", ">"]),
        ("xa><b>", None, ["x", "a><b>"]),
    ],
)
def test_of_overlapping_special_tokens_the_first_then_the_longest_wins(text, allowed, found):
    tokenizer = BytePairTokenizer([], ("<a", "<a>", "a><b>", "<b>"))
    ids = tokenizer.encode(text, allowed or tokenizer.specials)
    assert [tokenizer.token_bytes(number).decode() for number in ids] == found


def test_a_special_token_may_hold_what_a_regular_expression_would_read():
    tokenizer = BytePairTokenizer([], ("a.c", "[x]+", "a b\n"))
    assert tokenizer.encode("abca.c[x]+a b\n", tokenizer.specials)[3:] == [256, 257, 258]


def test_words_do_not_reach_across_a_special_token():
    tokenizer = BytePairTokenizer([(97, 97)], ("|",))
    assert tokenizer.encode("a|a|aa", ("|",)) == [97, 257, 97, 257, 256]


# --- parts ---


def test_the_parts_of_a_token_spell_it(trained):
    for number in range(trained.vocabulary_size):
        parts = trained.parts(number)
        assert (parts is None) == (number < 256 or number in trained.specials.values())
        if parts:
            joined = b"".join(map(trained.token_bytes, parts))
            assert joined == trained.token_bytes(number)
    with pytest.raises(ValueError, match="expected ids from 0 to 339"):
        trained.parts(340)


def test_other_ids_are_the_same_tokens_under_other_numbers(trained):
    """Special tokens first, bytes in GPT-2's order: `the` and its parts are found all the same."""
    other = gpt2_numbered(trained)
    numbers, ids = trained.encode(PROSE), other.encode(PROSE)
    assert numbers != ids
    for number, one in zip(numbers, ids, strict=True):
        assert other.token_bytes(one) == trained.token_bytes(number)
        parts, others = trained.parts(number) or (), other.parts(one) or ()
        assert list(map(other.token_bytes, others)) == list(map(trained.token_bytes, parts))


# --- files ---


def write(tokenizer, kind, folder):
    """Save in a format; the file that holds the merges."""
    if kind == "gpt2":
        files.save_gpt2(tokenizer, folder)
        return folder / "merges.txt"
    files.save(tokenizer, folder / "own.json")
    return folder / "own.json"


def read(kind, folder):
    if kind == "gpt2":
        return files.load_gpt2(folder, (END, "<|pad|>"))
    return files.load(folder / "own.json")


FORMATS = ("own", "gpt2")


def gpt2_numbered(tokenizer):
    """The same merges with the special tokens first and the bytes in the order of GPT-2."""
    bytes_ids = {byte: number for number, byte in enumerate(files.bytes_to_unicode(), start=2)}
    ids = [bytes_ids[byte] for byte in range(256)]
    ids += range(258, 258 + len(tokenizer.merges))
    return BytePairTokenizer(tokenizer.merges, {END: 0, "<|pad|>": 1}, ids=ids)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("numbered", [lambda t: t, gpt2_numbered])
def test_a_file_gives_the_same_tokenizer_back(tmp_path, trained, kind, numbered):
    tokenizer = numbered(trained)
    write(tokenizer, kind, tmp_path)
    again = read(kind, tmp_path)
    for name in ("merges", "specials", "pattern"):
        assert getattr(again, name) == getattr(tokenizer, name)
    assert again.encode(PROSE, again.specials) == tokenizer.encode(PROSE, again.specials)
    everything = range(tokenizer.vocabulary_size)
    assert list(map(again.token_bytes, everything)) == list(map(tokenizer.token_bytes, everything))


@pytest.mark.parametrize("options", [{"pattern": None}, {"add_prefix_space": True}])
def test_options_come_back_too(tmp_path, trained, options):
    tokenizer = BytePairTokenizer(trained.merges, trained.specials, **options)
    write(tokenizer, "own", tmp_path)
    again = read("own", tmp_path)
    assert again.pattern == tokenizer.pattern
    assert again.add_prefix_space == tokenizer.add_prefix_space
    with pytest.raises(ValueError, match="these files hold no pattern"):
        files.save_gpt2(tokenizer, tmp_path)


def test_a_prefix_space_comes_once_and_where_there_is_text(trained):
    tokenizer = BytePairTokenizer(trained.merges, trained.specials, add_prefix_space=True)
    assert tokenizer.decode(tokenizer.encode("the")) == " the"
    assert tokenizer.decode(tokenizer.encode(" the")) == " the"
    assert tokenizer.decode(tokenizer.encode(f"{END}the", (END,))) == f"{END} the"
    assert tokenizer.encode("") == []


def test_a_strangers_pattern_must_be_named(tmp_path, trained):
    pattern = r"\w+|\W+"
    write(BytePairTokenizer(trained.merges, pattern=pattern), "own", tmp_path)
    with pytest.raises(ValueError, match="expected the default pattern or the one named"):
        files.load(tmp_path / "own.json")
    assert files.load(tmp_path / "own.json", pattern=pattern).pattern == pattern


@pytest.mark.parametrize("kind", FORMATS)
def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path, trained, kind, monkeypatch):
    write(BytePairTokenizer([(97, 98)], trained.specials.keys()), kind, tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write(trained, kind, tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_loads_nothing(tmp_path, trained, kind, share):
    path = write(trained, kind, tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content.rstrip()) * share)])
    with pytest.raises(ValueError, match=r"cut off|expected"):
        read(kind, tmp_path)


def changed(path, change):
    """Apply a function to the content of a JSON file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def swapped(path, kind, first):
    """Exchange two merges that do not need each other."""

    def swap(rows):
        rows[first], rows[first + 1] = rows[first + 1], rows[first]

    if kind == "gpt2":
        head, *lines = path.read_text(encoding="utf-8").split("\n")
        swap(lines)
        path.write_text("\n".join([head, *lines]), encoding="utf-8")
    else:
        changed(path, lambda content: swap(content["merges"]))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_reordered_file_loads_nothing(tmp_path, trained, kind):
    for first in range(0, 20, 5):
        swapped(write(trained, kind, tmp_path), kind, first)
        with pytest.raises(ValueError, match=r"expected .*(ascend|before it)"):
            read(kind, tmp_path)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"[1, 2]", b"null", b"{}", b"\xff\xfe", b"\x80\x04K\x01.", b"[" * 100_000],
)
def test_what_is_no_such_file_is_refused_by_name(tmp_path, trained, kind, content):
    path = write(trained, kind, tmp_path)
    path = path.with_name("vocab.json") if kind == "gpt2" else path
    path.write_bytes(content)
    with pytest.raises(ValueError, match="expected") as caught:
        read(kind, tmp_path)
    assert str(tmp_path) in str(caught.value)


def edited(path, *keys, value):
    def change(content):
        reduce(getitem, keys[:-1], content)[keys[-1]] = value

    changed(path, change)


WRONG = {
    ("format",): ["another"],
    ("merges",): [{"a": 1}],
    ("merges", 0): [[97, 98], [97, -1, 256], [97, 256, 256], [97, True, 256], [97, 98.0, 256]],
    ("merges", 1): [[98, 97, 256], ["a", "b", 257]],
    ("bytes",): [list(range(255))],
    ("bytes", 0): [1, "0"],
    ("specials",): [{END: 256}, {END: 10**9}, {END: -1}, {"": 338}, [END]],
    ("pattern",): ["(a+)+$", 7],
    ("add_prefix_space",): ["no"],
}


@pytest.mark.parametrize("keys", WRONG)
def test_wrong_entries_of_a_file_are_refused_by_its_name(tmp_path, trained, keys):
    for value in WRONG[keys]:
        path = write(trained, "own", tmp_path)
        edited(path, *keys, value=value)
        with pytest.raises(ValueError, match=rf"{path.name}: .*expected|{path.name}: specials"):
            read("own", tmp_path)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 400) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(sorted(FORMATS)), st.data())
def test_one_wrong_value_anywhere_gives_a_value_error_or_a_tokenizer(kind, data):
    """Whatever a stranger writes: no other error, and no tokenizer that loses text."""
    tokenizer = BytePairTokenizer([(97, 98), (256, 99)], (END, "<|pad|>"))
    with tempfile.TemporaryDirectory() as name:
        path = write(tokenizer, kind, Path(name))
        path = path.with_name("vocab.json") if kind == "gpt2" else path
        content = json.loads(path.read_text(encoding="utf-8"))
        inner, key = content, data.draw(st.sampled_from(sorted(content)))
        while isinstance(inner[key], list | dict) and inner[key] and data.draw(st.booleans()):
            inner = inner[key]
            keys = range(len(inner)) if isinstance(inner, list) else sorted(inner)
            key = data.draw(st.sampled_from(keys))
        inner[key] = data.draw(anything)
        path.write_text(json.dumps(content), encoding="utf-8")
        try:
            said, loaded = name, read(kind, Path(name))
        except ValueError as error:
            said, loaded = str(error), tokenizer
        assert name in said
        assert loaded.decode(loaded.encode("abc né")).lstrip() == "abc né"


@pytest.mark.parametrize("number", [97, 256])
def test_the_vocabulary_holds_every_byte_and_every_merge(tmp_path, trained, number):
    """A library may learn from a text without all bytes, and would then drop those it lacks."""
    path = write(trained, "gpt2", tmp_path).with_name("vocab.json")
    changed(path, lambda vocab: vocab.pop(next(t for t, n in vocab.items() if n == number)))
    with pytest.raises(ValueError, match="expected all bytes and all that is merged, got no "):
        read("gpt2", tmp_path)


def test_merges_join_tokens_that_exist(tmp_path):
    """`abc` is a token, but `bc` is none."""
    path = write(BytePairTokenizer([(97, 98), (256, 99)]), "gpt2", tmp_path)
    path.write_text(path.read_text().replace("ab c", "a bc"))
    with pytest.raises(ValueError, match="all that is merged, got no 'bc'"):
        files.load_gpt2(tmp_path)


def test_gpt2_files_must_agree(tmp_path, trained):
    files.save_gpt2(trained, tmp_path)
    with pytest.raises(ValueError, match=r"got 1 others, such as '<\|pad\|>'"):
        files.load_gpt2(tmp_path)
    with pytest.raises(ValueError, match=r"in vocab\.json"):
        files.load_gpt2(tmp_path, (END, "<|pad|>", "<|nobody|>"))
    edited(tmp_path / "vocab.json", "a", value=5)
    with pytest.raises(ValueError, match="each once"):
        files.load_gpt2(tmp_path, (END, "<|pad|>"))


def test_gpt2_files_with_windows_line_ends_or_no_first_line_are_read(tmp_path, trained):
    path = write(trained, "gpt2", tmp_path)
    content = path.read_text(encoding="utf-8")
    for other in (content.replace("\n", "\r\n"), content.split("\n", 1)[1]):
        path.write_bytes(other.encode())
        assert read("gpt2", tmp_path).merges == trained.merges


def test_a_special_token_spelled_like_a_token_cannot_be_written_there(tmp_path):
    with pytest.raises(ValueError, match="named like no token"):
        files.save_gpt2(BytePairTokenizer([], ("a",)), tmp_path)
    files.save(BytePairTokenizer([], ("a",)), tmp_path / "own.json")
    assert files.load(tmp_path / "own.json").encode("aa", ("a",)) == [256, 256]


def test_merges_that_make_a_token_again_are_refused():
    """`ab c` and `a bc`: byte-pair encoding learns each token once."""
    with pytest.raises(ValueError, match=r"merge 3 to make a new token, got b'abc' again"):
        BytePairTokenizer([(97, 98), (256, 99), (98, 99), (97, 258)])


# files of pieces


@pytest.mark.parametrize("one", every_tokenizer(), ids=lambda t: type(t).__name__)
def test_any_saved_tokenizer_is_loaded_as_what_it_was(one, tmp_path):
    files.save(one, tmp_path / "tokenizer.json")
    other = files.load(tmp_path / "tokenizer.json")
    assert type(other) is type(one)
    assert other.specials == one.specials
    assert other.encode("not né, to be or see") == one.encode("not né, to be or see")


def test_a_tokenizer_of_another_kind_is_not_saved(tmp_path):
    with pytest.raises(TypeError, match="expected a tokenizer of"):
        files.save(object(), tmp_path / "tokenizer.json")


PIECES = '{"format": "next-token pieces 1", "kind": '
UNIGRAM = '{"format": "next-token unigram 1", "pattern": null, "specials": [], "pieces": '


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format": "else"}', "got the format 'else'"),
        (PIECES + '"syllables", "pieces": []}', "expected a tokenizer as"),
        (PIECES + '["words"], "pieces": []}', "expected a tokenizer as"),
        (PIECES + '"words", "pieces": [1]}', "expected a tokenizer as"),
        (PIECES + '"bytes", "pieces": ["a"]}', "expected a tokenizer as"),
        (PIECES + '"words", "pieces": ["a", "a"]}', "twice"),
        (PIECES + '"words"', "cut off"),
        (UNIGRAM + '[["a", -1.0]]}', "the 256 bytes first"),
        (UNIGRAM + "7}", "expected a tokenizer as"),
    ],
)
def test_a_file_of_something_else_is_refused(content, message, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        files.load(path)


class Counted(list):
    """A list that counts how often it is read."""

    read = 0

    def __getitem__(self, place):
        self.read += 1
        return super().__getitem__(place)


def test_a_merge_rewrites_a_word_once_however_often_it_holds_the_pair():
    index = PairIndex({"ab" * 500: 3, "cab": 2})
    index.words = Counted(index.words)
    index.merge("ab", chr(256))
    assert index.words.read == 2
    assert list(index.words) == [chr(256) * 500, "c" + chr(256)]
