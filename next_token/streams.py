r"""Which documents do files hold that are larger than memory? They come one part after another.

    a file -> decompressed -> UTF-8 -> documents -> parts          (a megabyte at a time)

A file holds plain text, or one JSON object a line (`.jsonl`, `.ndjson`, `.json`). Its name also
says whether it is compressed (`.gz`, `.zst`, `.xz`, `.bz2`). In plain text a separator stands
between two documents; without one, a document is a block of whole paragraphs, as in `corpora.load`.

A very long document comes in several parts. It is cut before white space that follows another
character, where GPT-2's pattern ends a word anyway: so its ids are those of the uncut text.

Used by `tokenizing`, and on the command line by `next-token tokenize`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import fsspec
from fsspec.utils import infer_compression

LEAST_BLOCK = 1 << 14  # characters; a block of paragraphs has at least as many
PART = 1 << 20  # characters, at least, of the parts of a document that has more than twice as many
LONGEST_WORD = 1 << 24  # characters without white space, or of a line of JSON

# Blank lines and the white space before them, if something that can be seen follows. It begins
# after a visible character, so that a run of white space is looked at once.
_BLANK_LINES = re.compile(r"(?P<kept>(?<=\S)[^\S\n]*+\n(?:[^\S\n]*+\n)++(?=[^\S\n]*+\S))")
_BEFORE_SPACE = re.compile(r"(?<=\S)(?=\s)")


@dataclass(frozen=True)
class Part:
    """A piece of a document, or all of it.

    Attributes:
        title: the file and the number of the document in it, from 1.
        text: of the part.
        first, last: whether the document begins, and whether it ends with this part.
    """

    title: str
    text: str
    first: bool = True
    last: bool = True


def parts_of_file(
    path: str | os.PathLike[str], *, separator: str | None = None, field: str = "text"
) -> Iterator[Part]:
    """The documents of a file, in their order, in parts that join to them.

    Documents of nothing but white space are left out. The text is as it stands in the file, but for
    a byte-order mark at its beginning.

    Args:
        path: a file of text, or of JSON objects if it is called `.jsonl`, `.ndjson` or `.json`,
            perhaps with `.gz`, `.zst`, `.xz` or `.bz2` behind; any address that `fsspec` opens.
        separator: what stands between two documents of plain text; None: they are blocks of whole
            paragraphs, of at least `LEAST_BLOCK` characters.
        field: where an object has its text.
    Raises:
        OSError: the file cannot be opened.
        ValueError: not UTF-8, not such JSON, a compressed file that is damaged or cut off, or more
            than `LONGEST_WORD` characters in a row without white space. The message has the place.
    """
    if separator is not None and (_is_json(path) or not separator):
        raise ValueError(f"expected no separator {separator!r}; in JSON each line is a document")
    options = {"compression": "infer", "encoding": "utf-8-sig", "newline": "\n"}
    with fsspec.open(path, "rt", **options) as file:
        if _is_json(path):
            yield from _json_parts(file, path, field)
        else:
            yield from _text_parts(file, path, separator)


def check_plain(path: str | os.PathLike[str]) -> None:
    """Refuse what its name says is JSON or compressed, for a command that takes plain text."""
    if Path(path).is_file() and (_is_json(path) or infer_compression(str(path))):
        raise ValueError(f"expected plain text, got {path}: `tokenize` reads it, for `train`")


def _is_json(path: str | os.PathLike[str]) -> bool:
    name = Path(path).stem if infer_compression(str(path)) else str(path)
    return name.lower().endswith((".jsonl", ".ndjson", ".json"))


def unescaped(text: str) -> str:
    r"""The text with \n, \r, \t and \\ as what they stand for; all others are themselves."""
    meant = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
    return re.sub(r"\\([nrt\\])", lambda found: meant[found[1]], text)


def _text_parts(
    file: TextIO, path: str | os.PathLike[str], separator: str | None
) -> Iterator[Part]:
    """The documents of plain text."""
    texts = _read(lambda: file.read(PART), path)
    between = re.compile(f"(?P<kept>){re.escape(separator or '')}")
    border, least = (between, 0) if separator else (_BLANK_LINES, LEAST_BLOCK)
    number, first = 1, True
    for text, last in _cut(texts, path, border, least):
        if not first or not last or text.strip():  # not a document of nothing but white space
            yield Part(f"{path}, document {number}", text, first, last)
            number, first = number + last, last


def _json_parts(file: TextIO, path: str | os.PathLike[str], field: str) -> Iterator[Part]:
    """The documents of JSON, one object a line."""
    lines = _read(lambda: file.readline(LONGEST_WORD + 1), path)
    for number, line in enumerate(lines, start=1):
        place, first = f"{path}, line {number}", True
        try:
            text = json.loads(line)[field] if line.strip() else ""
            text.encode()  # a lone half of a surrogate pair is no text
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"expected a JSON object with its text under {field!r} in {place}, got "
                f"{line[:60]!r} ({type(error).__name__}: {error}); --field says where a text is, "
                "and jq -c '.[]' writes the objects of an array a line each"
            ) from None
        if text.strip():
            for part, last in _cut([text], path):
                yield Part(place, part, first, last)
                first = False


def _read(read: Callable[[], str], path: str | os.PathLike[str]) -> Iterator[str]:
    """What a file gives, a piece at a time; what is wrong with it is said with its name."""
    try:
        while piece := read():
            yield piece
    except Exception as error:  # each decompressor has errors of its own
        raise ValueError(
            f"expected a whole file of UTF-8 in {path}, got: {error}. Copy it again if it was cut "
            "off; convert it by iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW if it is other text"
        ) from error


def _cut(
    texts: Iterable[str],
    path: str | os.PathLike[str],
    border: re.Pattern[str] = re.compile("(?!)"),  # nowhere
    least: int = 0,
) -> Iterator[tuple[str, bool]]:
    """(part, whether its document ends with it) of a stream of characters.

    Args:
        border: what stands between documents, in at most `PART` characters; its group `kept` still
            belongs to the first of them.
        least: the fewest characters of a document.
    """
    rest = ""
    for text in texts:
        rest, start = rest + text, 0
        while match := border.search(rest, start + least):
            yield rest[start : match.end("kept")], True
            start = match.end()
        while match := _BEFORE_SPACE.search(rest, start + PART, len(rest) - PART):
            yield rest[start : match.start()], False
            start = match.start()
        rest = rest[start:]
        if len(rest) > LONGEST_WORD:
            raise ValueError(f"expected white space within {LONGEST_WORD:,} characters of {path}")
    yield rest, True
