"""Which documents do files hold that are larger than memory? They come one part after another.

    bytes of a file -> decompressed -> UTF-8 -> documents -> parts          (a few MB at a time)

A file holds plain text, or one JSON object a line (`.jsonl`, `.ndjson`, `.json`). Either may be
compressed with gzip or Zstandard, which its first bytes tell. In plain text a separator stands
between two documents; without one, a document is a block of whole paragraphs, as in `corpora.load`.

A very long document comes in several parts. It is cut before white space that follows another
character, where GPT-2's pattern ends a word anyway: so its ids are those of the uncut text.

Used by `shards_of_files`, and on the command line by `next-token tokenize`.
"""

from __future__ import annotations

import codecs
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

LEAST_BLOCK = 1 << 14  # characters; a block of paragraphs has at least as many
LONGEST_PART = 1 << 20  # characters; a longer document comes in parts
LONGEST_WORD = 1 << 24  # characters without white space, or of a line of JSON
_CHUNK = 1 << 18  # bytes
_JSON, _PACKED = (".jsonl", ".ndjson", ".json"), (".gz", ".zst")

# Blank lines and the white space before them, if something that can be seen follows. It begins
# after a visible character, so that a run of white space is looked at once.
_BLANK_LINES = r"(?<=\S)[^\S\n]*+\n(?:[^\S\n]*+\n)++(?=[^\S\n]*+\S)"
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
            perhaps with `.gz` or `.zst` behind.
        separator: what stands between two documents of plain text; None: they are blocks of whole
            paragraphs, of at least `LEAST_BLOCK` characters.
        field: where an object has its text.
    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not UTF-8, not such JSON, a compressed file that is damaged or cut off, or more
            than `LONGEST_WORD` characters in a row without white space. The message has the place.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"expected a file of text in {path}, found none")
    if separator == "":
        raise ValueError("expected a separator of at least one character, or None; got ''")
    texts = _decoded(_bytes_of(path), path)
    if _is_json_lines(path):
        if separator is not None:
            raise ValueError(
                f"expected a separator for plain text only, got {separator!r} for {path}, where "
                "each line is a document"
            )
        yield from _json_parts(texts, path, field)
    else:
        yield from _text_parts(texts, path, separator)


def check_plain(path: str | os.PathLike[str]) -> None:
    """Refuse what its name says is JSON or compressed, for a command that takes plain text."""
    if Path(path).is_file() and Path(path).suffix.lower() in (*_JSON, *_PACKED):
        raise ValueError(
            f"expected plain text, got {path}: `next-token tokenize FILE --folder TOKENS` reads "
            "JSON lines and what is compressed, `next-token train TOKENS` what it made of them"
        )


def _is_json_lines(path: Path) -> bool:
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    return name.endswith(_JSON)


def unescaped(text: str) -> str:
    r"""The text with \n, \r, \t and \\ as what they stand for; all others are themselves."""
    meant = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
    return re.sub(r"\\([nrt\\])", lambda found: meant[found[1]], text)


# ---- bytes and characters ------------------------------------------------------------------------


def _bytes_of(path: Path) -> Iterator[bytes]:
    """The bytes of a file, decompressed, a few at a time."""
    with path.open("rb") as file:
        first = file.read(4)
        file.seek(0)
        if first[:2] == b"\x1f\x8b":
            yield from _gunzipped(file, path)
        elif first == b"\x28\xb5\x2f\xfd":
            yield from _unzstd(file, path)
        else:
            yield from iter(lambda: file.read(_CHUNK), b"")


def _gunzipped(file: IO[bytes], path: Path) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file) as whole:
            yield from iter(lambda: whole.read(_CHUNK), b"")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"expected a whole gzip file in {path}, got: {error}") from error


def _unzstd(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Frame by frame; as little is put in at a time as keeps the output of a bomb small."""
    import zstandard

    frame, fed = None, b""
    try:
        while fed := fed or file.read(1 << 10):
            frame = frame or zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
            yield frame.decompress(fed)
            fed = frame.unused_data
            frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise ValueError(f"expected a whole Zstandard file in {path}, got: {error}") from error
    if frame:
        raise ValueError(f"expected a whole Zstandard file in {path}, got one that was cut off")


def _decoded(chunks: Iterable[bytes], path: Path) -> Iterator[str]:
    """The characters of UTF-8, without a byte-order mark."""
    decoder, done, begun = codecs.getincrementaldecoder("utf-8")(), 0, False
    for chunk in chain(chunks, [b""]):
        held = len(decoder.getstate()[0])  # bytes of a character that is not whole yet
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"expected UTF-8 in {path}, got byte 0x{error.object[error.start]:02x} at offset "
                f"{done - held + error.start}; save it as UTF-8, or convert it: iconv -f "
                f"WINDOWS-1252 -t UTF-8 {path.name} > new.txt (if that is what it is)"
            ) from error
        done += len(chunk)
        if text:
            yield text if begun else text.removeprefix("\ufeff")
            begun = True


# ---- documents -----------------------------------------------------------------------------------


def _text_parts(texts: Iterable[str], path: Path, separator: str | None) -> Iterator[Part]:
    """The documents of plain text."""
    if separator is None:
        border, least = re.compile(f"(?P<kept>{_BLANK_LINES})"), LEAST_BLOCK
    else:
        border, least = re.compile(f"(?P<kept>){re.escape(separator)}"), 0
    number, first = 1, True
    for text, last in _cut(texts, border, least, margin=len(separator or ""), source=path):
        if not first or not last or text.strip():  # not a document of nothing but white space
            yield Part(f"{path}, document {number}", text, first, last)
            number, first = number + last, last


def _json_parts(texts: Iterable[str], path: Path, field: str) -> Iterator[Part]:
    """The documents of JSON, one object a line."""
    for number, line in enumerate(_lines(texts, path), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        if line.lstrip().startswith("["):
            raise ValueError(
                f"expected a JSON object in {place}, got an array: write each of its objects in a "
                f"line of its own, as does jq -c '.[]' {path.name} > new.jsonl"
            )
        try:
            held = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"expected a JSON object in {place}, got none: {error}") from None
        text = held.get(field) if isinstance(held, dict) else None
        if not isinstance(text, str):
            names = sorted(held)[:5] if isinstance(held, dict) else type(held).__name__
            raise ValueError(
                f"expected an object with its text under {field!r} in {place}, got {names}; "
                "--field says where a text is"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"expected text that UTF-8 can write in {place}, got the lone surrogate "
                f"U+{ord(text[error.start]):04X}; was half of a pair like \\ud83d\\ude00 cut off?"
            ) from None
        if text.strip():
            first = True
            for part, last in _cut([text], None, 0, margin=0, source=path):
                yield Part(place, part, first, last)
                first = False


def _lines(texts: Iterable[str], path: Path) -> Iterator[str]:
    """The lines, which end in nothing but a newline, whatever a JSON string holds."""
    begun: list[str] = []
    size = 0
    for text in texts:
        *ended, rest = text.split("\n")
        for line in ended:
            yield "".join([*begun, line])
            begun, size = [], 0
        begun.append(rest)
        size += len(rest)
        if size > LONGEST_WORD:
            raise ValueError(
                f"expected lines of at most {LONGEST_WORD:,} characters in {path}, got a longer "
                "one; is it one JSON array? Write each object in a line of its own"
            )
    yield "".join(begun)


def _cut(
    texts: Iterable[str], border: re.Pattern | None, least: int, *, margin: int, source: Path
) -> Iterator[tuple[str, bool]]:
    """(part, whether its document ends with it) of a stream of characters.

    Args:
        border: what stands between documents; its group `kept` still belongs to the first of them.
        least: the fewest characters of a document.
        margin: at most so many characters from the end, a border may have begun.
    """
    held, enough = "", 0
    for text in chain(texts, [""]):
        held += text
        if text and len(held) < enough:  # what holds no border is read again when it has doubled
            continue
        start = 0
        while border and (found := border.search(held, start + least)):
            yield held[start : found.end("kept")], True
            start = found.end()
        while len(held) - start > LONGEST_PART + margin:
            found = _BEFORE_SPACE.search(held, start + LONGEST_PART, len(held) - margin)
            if not found:
                break
            yield held[start : found.start()], False
            start = found.start()
        held = held[start:]
        enough = 0 if start else min(2 * len(held), LONGEST_WORD + 1)
        if len(held) > LONGEST_WORD:
            raise ValueError(
                f"expected white space within {LONGEST_WORD:,} characters of {source}, got none; "
                "is it text?"
            )
    yield held, True
