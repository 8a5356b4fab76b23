"""Documents of files, in parts: where they are cut, what is read, what is refused."""

import gzip
import json
import math
import os
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from next_token import streams
from next_token.streams import Part, parts_of_file
from src.tokens.bpe import BytePairTokenizer

SIZES = {"_CHUNK": 5, "LEAST_BLOCK": 7, "LONGEST_PART": 11, "LONGEST_WORD": 60}


@pytest.fixture
def small(monkeypatch):
    """Sizes at which a few characters are long."""
    for name, size in SIZES.items():
        monkeypatch.setattr(streams, name, size)


@contextmanager
def sizes(tmp_path_factory, text, **changed):
    """A file of a text, and other sizes, for a test that draws many."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in changed.items():
            patch.setattr(streams, name, size)
        yield written(tmp_path_factory.mktemp("text") / "a.txt", text)


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def documents(parts):
    """The texts of the documents, put together again; they must begin and end in turn."""
    found = []
    for part in parts:
        assert part.first == (not found or found[-1][1])
        if part.first:
            found.append(["", False])
        found[-1][0] += part.text
        found[-1][1] = part.last
    assert not found or found[-1][1]
    return [text for text, _ in found]


def of_file(path, **options):
    return documents(parts_of_file(path, **options))


# ---- plain text ------------------------------------------------------------------------------


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


def test_a_document_without_an_end_is_not_read_again_for_each_part_of_it():
    class Border:
        read = 0

        def search(self, text, start):
            self.read += len(text) - start

    border = Border()
    list(streams._cut(["x"] * 1_024, border, 0, margin=0, source="x.txt"))
    assert border.read == 3_071  # 1 + 2 + 4 + … + 1,024, and once at the end


def test_a_part_says_where_it_stands(tmp_path):
    path = written(tmp_path / "a.txt", "né")
    assert list(parts_of_file(path)) == [Part(f"{path}, document 1", "né", True, True)]


def test_a_long_document_is_cut_before_white_space_after_another_character(tmp_path, small):
    text = "aaa bbb ccc  ddd eee fff"
    parts = list(parts_of_file(written(tmp_path / "a.txt", text)))
    assert [part.text for part in parts] == ["aaa bbb ccc", "  ddd eee fff"]
    assert [(part.first, part.last) for part in parts] == [(True, False), (False, True)]


@given(st.text(st.sampled_from("ab \n\r\té–"), max_size=200))
def test_the_blocks_join_to_the_text(tmp_path_factory, text):
    with sizes(tmp_path_factory, text, _CHUNK=3, LEAST_BLOCK=4, LONGEST_PART=9) as path:
        found = of_file(path)
    assert "".join(found) == (text if text.strip() else "")
    assert all(len(block) >= 4 for block in found[:-1])


@given(st.lists(st.text(st.sampled_from("ab \n|"), max_size=40), max_size=9))
def test_any_documents_come_back_between_separators(tmp_path_factory, texts):
    texts = [text.replace("||", "").strip("|") for text in texts]
    with sizes(tmp_path_factory, "||".join(texts), _CHUNK=3, LONGEST_PART=6) as path:
        assert of_file(path, separator="||") == [text for text in texts if text.strip()]


@given(st.text(st.sampled_from("abcé '1\n\t.–"), max_size=300))
def test_the_parts_of_a_text_have_its_ids(tmp_path_factory, text):
    tokenizer = BytePairTokenizer.train("a b cc cab bac. 1 11\n\n\t abé ab' abc's" * 3, 270)
    with sizes(tmp_path_factory, text, LONGEST_PART=5) as path:
        parts = list(parts_of_file(path, separator="~"))
    ids = [each for part in parts for each in tokenizer.encode(part.text)]
    assert ids == (tokenizer.encode(text) if text.strip() else [])


# ---- JSON and compressed files ---------------------------------------------------------------


def test_each_line_of_json_is_a_document_by_the_field_that_is_named(tmp_path, small):
    texts = ["one", "two\n\nlines, \u2028 né", "a long text of many words"]
    lines = "\n".join(json.dumps({"body": text, "id": 3}, ensure_ascii=False) for text in texts)
    path = written(tmp_path / "a.ndjson", lines + '\n\n{"body": " "}\n')
    assert of_file(path, field="body") == texts


def zstd(content, pieces=1):
    zstandard = pytest.importorskip("zstandard")
    size = math.ceil(len(content) / pieces)
    frames = [content[at : at + size] for at in range(0, len(content), size)]
    return b"".join(map(zstandard.ZstdCompressor().compress, frames))


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_a_compressed_file_is_read_as_what_it_holds(tmp_path, pack):
    content = os.urandom(3_000).hex()
    assert of_file(written(tmp_path / "a", pack(content.encode()))) == [content]
    lines = json.dumps({"text": content}).encode()
    for suffix in ("gz", "zst"):  # the first bytes tell, not the name
        assert of_file(written(tmp_path / f"a.jsonl.{suffix}", pack(lines))) == [content]


@pytest.mark.parametrize("pieces", [2, 5])
def test_a_file_of_several_frames_is_one_text(tmp_path, pieces):
    content = os.urandom(3_000).hex()
    assert of_file(written(tmp_path / "a.zst", zstd(content.encode(), pieces))) == [content]
    twice = gzip.compress(b"one ") + gzip.compress(b"two")
    assert of_file(written(tmp_path / "a.gz", twice)) == ["one two"]


def test_little_of_a_bomb_is_unpacked_at_a_time(tmp_path):
    path = written(tmp_path / "a.zst", zstd(b" " * (1 << 28)))
    assert max(map(len, streams._bytes_of(path))) < 1 << 26


# ---- refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
@pytest.mark.parametrize("damage", ["cut off", "changed"])
def test_a_damaged_compressed_file_is_named(tmp_path, pack, damage):
    content = pack(os.urandom(5_000).hex().encode())
    content = content[:-40] if damage == "cut off" else content[:8] + b"\xff" * 90 + content[98:]
    path = written(tmp_path / "a.packed", content)
    with pytest.raises(ValueError, match=r"expected a whole (gzip|Zstandard) file in .*a\.packed"):
        of_file(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "0xff at offset 0;.*iconv"),
        ("éé".encode() + b"\xff\xfe", "0xff at offset 4;.*iconv"),
        ("é".encode() * 8 + b"\xff\xfe", "0xff at offset 16;.*iconv"),
        (b"ab\xc3", "0xc3 at offset 2"),  # a character that the file cuts off
        (b"a" * 200, "white space within 60 characters"),
    ],
)
def test_what_is_no_text_is_named_with_its_place(tmp_path, small, content, message):
    with pytest.raises(ValueError, match=message):
        of_file(written(tmp_path / "a.txt", content))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "one"', "JSON object in .*line 2, got none"),
        ("3", "line 2, got int"),
        (' ["one"]', r"line 2, got an array: .* jq -c '\.\[\]' a\.jsonl"),
        ('{"body": "one"}', r"under 'text' in .*line 2, got \['body'\]; --field"),
        ('{"text": 3}', "line 2"),
        ('{"text": "\\ud800"}', r"line 2, got the lone surrogate U\+D800"),
        ('"' + "a" * 80, "lines of at most 60 characters"),
    ],
)
def test_a_line_that_is_no_document_is_named(tmp_path, small, line, message):
    path = written(tmp_path / "a.jsonl", f'{{"text": "zero"}}\n{line}\n')
    with pytest.raises(ValueError, match=message):
        of_file(path)


def test_other_mistakes_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        of_file(tmp_path / "missing")
    path = written(tmp_path / "a.jsonl", "{}")
    with pytest.raises(ValueError, match="each line is a document"):
        of_file(path, separator="|")
    with pytest.raises(ValueError, match="at least one character"):
        of_file(path, separator="")
