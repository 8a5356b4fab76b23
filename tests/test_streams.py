"""Documents of files, in parts: where they are cut, what is read, what is refused."""

import bz2
import gzip
import json
import lzma
import os
import tracemalloc
from contextlib import contextmanager

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from next_token import streams
from next_token.streams import Part, parts_of_file
from src.tokens.bpe import BytePairTokenizer

SIZES = {"LEAST_BLOCK": 7, "PART": 5, "LONGEST_WORD": 60}


@contextmanager
def sizes(**changed):
    """Sizes at which a few characters are long."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in changed.items():
            patch.setattr(streams, name, size)
        yield


@pytest.fixture
def small():
    with sizes(**SIZES):
        yield


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def of_file(path, **options):
    """The texts of the documents, put together again; they must begin and end in turn."""
    found = []
    for part in parts_of_file(path, **options):
        assert part.first == (not found or found[-1][1])
        if part.first:
            found.append(["", False])
        found[-1][0] += part.text
        found[-1][1] = part.last
    assert not found or found[-1][1]
    return [text for text, _ in found]


@pytest.mark.parametrize(
    ("text", "separator", "texts"),
    [
        ("one\n\ntwo\n \nthree four\n\n\nx", None, ["one\n\ntwo\n \n", "three four\n\n\n", "x"]),
        ("one two\r\n\r\nthree", None, ["one two\r\n\r\n", "three"]),
        ("\ufeffone \ufeff two", None, ["one \ufeff two"]),
        ("abc<end>de<end><end> \n<end>fg", "<end>", ["abc", "de", "fg"]),
        ("aaa bbb ccc d \n# ee", " \n# ", ["aaa bbb ccc d", "ee"]),  # found though a part is cut
    ],
)
def test_documents_are_blocks_of_whole_paragraphs_or_what_stands_between_separators(
    tmp_path, small, text, separator, texts
):
    assert of_file(written(tmp_path / "a.txt", text), separator=separator) == texts


def test_a_long_document_is_cut_before_white_space_after_another_character(tmp_path, small):
    path = written(tmp_path / "a.txt", "aaa bbb  ccc ddd eee")
    title = f"{path}, document 1"
    assert list(parts_of_file(path)) == [
        Part(title, "aaa bbb", True, False),
        Part(title, "  ccc", False, False),
        Part(title, " ddd eee", False, True),
    ]


@given(st.text(st.sampled_from("ab \n\r\té–"), max_size=200))
def test_the_blocks_join_to_the_text(tmp_path_factory, text):
    path = written(tmp_path_factory.mktemp("text") / "a.txt", text)
    with sizes(LEAST_BLOCK=4, PART=9):
        found = of_file(path)
    assert "".join(found) == (text if text.strip() else "")
    assert all(len(block) >= 4 for block in found[:-1])


@given(st.lists(st.text(st.sampled_from("ab \n|"), max_size=40), max_size=9))
def test_any_documents_come_back_between_separators(tmp_path_factory, texts):
    texts = [text.replace("||", "").strip("|") for text in texts]
    path = written(tmp_path_factory.mktemp("text") / "a.txt", "||".join(texts))
    with sizes(PART=3):
        assert of_file(path, separator="||") == [text for text in texts if text.strip()]


@given(st.text(st.sampled_from("abcé '1\n\t.–"), max_size=300))
def test_the_parts_of_a_text_have_its_ids(tmp_path_factory, text):
    tokenizer = BytePairTokenizer.train("a b cc cab bac. 1 11\n\n\t abé ab' abc's" * 3, 270)
    path = written(tmp_path_factory.mktemp("text") / "a.txt", text)
    with sizes(PART=5):
        parts = list(parts_of_file(path, separator="~"))
    ids = [each for part in parts for each in tokenizer.encode(part.text)]
    assert ids == (tokenizer.encode(text) if text.strip() else [])


def test_each_line_of_json_is_a_document_by_the_field_that_is_named(tmp_path, small):
    texts = ["one", "two\n\nlines, \u2028 né", "a long text of many words"]
    lines = "\n".join(json.dumps({"body": text, "id": 3}, ensure_ascii=False) for text in texts)
    path = written(tmp_path / "a.ndjson", lines + '\n\r\n\n{"body": " "}\n')
    assert of_file(path, field="body") == texts


def zstd(content):
    """As `fsspec` would read it, by whichever library it has."""
    return pytest.importorskip("backports.zstd").compress(content)


PACKED = {"gz": gzip.compress, "zst": zstd, "xz": lzma.compress, "bz2": bz2.compress}


@pytest.mark.parametrize("suffix", PACKED)
def test_a_compressed_file_is_read_to_its_end_or_named(tmp_path, suffix):
    content, pack = os.urandom(3_000).hex(), PACKED[suffix]
    packed = pack(content[:2_000].encode()) + pack(content[2_000:].encode())  # two frames
    assert of_file(written(tmp_path / f"a.txt.{suffix}", packed)) == [content]
    lines = pack(json.dumps({"text": content}).encode())
    assert of_file(written(tmp_path / f"a.jsonl.{suffix}", lines)) == [content]
    for damaged in (packed[:-40], packed[:8] + b"\xff" * 90 + packed[98:]):
        path = written(tmp_path / f"b.{suffix}", damaged)
        with pytest.raises(ValueError, match=rf"a whole file .*b\.{suffix}.*cut off"):
            of_file(path)


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_bomb_is_unpacked_a_little_at_a_time(tmp_path, suffix):
    path = written(tmp_path / f"a.{suffix}", PACKED[suffix](b"many words " * (1 << 22)))
    tracemalloc.start()
    assert sum(len(part.text) for part in parts_of_file(path)) == 11 << 22
    assert tracemalloc.get_traced_memory()[1] < 11 << 20
    tracemalloc.stop()


def test_what_fsspec_opens_is_read(small):
    with fsspec.open("memory://a.txt", "w") as file:
        file.write("one|two")
    assert of_file("memory://a.txt", separator="|") == ["one", "two"]


@pytest.mark.parametrize("content", [b"\xff\xfe", "éé".encode() + b"\xff", b"ab\xc3"])
def test_what_is_not_utf8_is_named(tmp_path, content):
    path = written(tmp_path / "a.txt", content)
    with pytest.raises(ValueError, match=r"UTF-8 in .*a\.txt, got.* byte 0x(ff|c3).* iconv"):
        of_file(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "one"', "JSONDecodeError"),
        (' ["one"]', r"""\["one"\].* jq -c '\.\[\]'"""),
        ('{"body": "one"}', r"KeyError: 'text'\); --field"),
        ('{"text": 3}', "AttributeError"),
        ('{"text": "\\ud800"}', "surrogates not allowed"),
        ('{"text": "' + "a" * 80, "object"),
    ],
)
def test_a_line_that_is_no_document_is_named(tmp_path, small, line, message):
    path = written(tmp_path / "a.jsonl", f'{{"text": "zero"}}\n{line}\n')
    with pytest.raises(ValueError, match=rf"under 'text' in .*line 2, got .*{message}"):
        of_file(path)


def test_other_mistakes_are_named(tmp_path, small):
    with pytest.raises(FileNotFoundError, match="missing"):
        of_file(tmp_path / "missing")
    for name, separator in (("a.json", "|"), ("a.jsonl.gz", "|"), ("a.txt", "")):
        with pytest.raises(ValueError, match="in JSON each line is a document"):
            of_file(tmp_path / name, separator=separator)
    with pytest.raises(ValueError, match="white space within 60 characters"):
        of_file(written(tmp_path / "a.txt", "a" * 200))
