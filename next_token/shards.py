"""How is a text kept as tokens on a disk, so that it may be far larger than memory?

    folder/manifest.json         what is here: sizes and SHA-256 of all other files
    folder/tokenizer.json        text to ids
    folder/train-00000.bin, …    ids, 16 or 32 bits each, the least significant byte first
    folder/train.starts          where each document begins, 64 bits each
    folder/validation-…, test-…  the same for the other parts

A part is one stream, an end token before, between and after its documents, cut into shards of
2^26 tokens: token i stands in shard i // 2^26. A document begins with the end token before it.

A folder is written under another name, `folder.partial`, and gets its own when all is on the disk:
so it is there whole or not at all. A reader compares sizes, and `check` the sums. Pieces are read
from the files when they are asked for. (In a memory map each page that was ever touched counts as
memory of the process, in the end the whole text.)

Used by `runs`; written by `next_token/shards_of_files`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from src.tokens.bytes import END, Tokenizer
from src.tokens.folders import SHARDS as MANIFEST
from src.tokens.folders import TOKENIZER, open_tokenizer
from src.tools.files import sha256_of, write_text

if TYPE_CHECKING:
    import numpy as np

FORMAT = "next-token shards 1"
PARTS = ("train", "validation", "test")
TOKENS_PER_SHARD = 1 << 26
_CODES = {"uint16": "H", "uint32": "I"}  # of Python's arrays
_MOST_OPEN = 128  # files of a part


class ShardError(ValueError):
    """A folder does not hold the tokens that its manifest says; the message says what to do."""


@dataclass(frozen=True)
class FileOf:
    """A file of the folder, as the manifest has it: its name, its bytes, and their SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class PartOf:
    """A part, as the manifest has it.

    Attributes:
        tokens: how many, end tokens included.
        documents: how many.
        bytes: of the documents' text, in UTF-8, nothing counted between them.
        shards: the files of the tokens, in their order.
        starts: the file of the documents' beginnings.
    """

    tokens: int
    documents: int
    bytes: int
    shards: tuple[FileOf, ...]
    starts: FileOf

    @property
    def said(self) -> str:
        """The three numbers, for people."""
        return f"{self.documents:,} documents, {self.bytes:,} bytes, {self.tokens:,} tokens"


# ---- writing -------------------------------------------------------------------------------------


class ShardWriter:
    """Writes one part, document by document.

    Args:
        folder: where to; it is there.
        part: "train", "validation" or "test".
        kind: "uint16" or "uint32".
        end: the end token.
        tokens_per_shard: in each file but the last.
    """

    def __init__(
        self,
        folder: Path,
        part: str,
        *,
        kind: str,
        end: int,
        tokens_per_shard: int = TOKENS_PER_SHARD,
    ):
        self.folder, self.part, self.kind = folder, part, kind
        self.tokens, self.documents, self.bytes = 0, 0, 0
        self._width = array(_CODES[kind]).itemsize
        self._full = tokens_per_shard * self._width
        self._shards: list[_Digested] = []
        self._starts = _Digested(folder / f"{part}.starts")
        self._end = packed([end], kind)
        self._write(self._end)

    def add(self, ids: bytes, n_bytes: int, *, first: bool, last: bool) -> None:
        """Write a document, or a part of one.

        Args:
            ids: as `packed` gives them.
            n_bytes: of its text.
            first, last: whether a document begins, and whether it ends with this part.
        """
        if first:
            self._starts.write(_little_endian(array("Q", [self.tokens - 1])))
            self.documents += 1
        self._write(ids)
        self.bytes += n_bytes
        if last:
            self._write(self._end)

    def close(self) -> PartOf:
        """Have everything on the disk; what the manifest says of this part."""
        shards = tuple(shard.close() for shard in self._shards)
        return PartOf(self.tokens, self.documents, self.bytes, shards, self._starts.close())

    def _write(self, ids: bytes) -> None:
        place = 0
        while place < len(ids):
            if not self._shards or self._shards[-1].size == self._full:
                name = f"{self.part}-{len(self._shards):05}.bin"
                if self._shards:
                    self._shards[-1].file.close()
                self._shards.append(_Digested(self.folder / name))
            room = self._full - self._shards[-1].size
            self._shards[-1].write(ids[place : place + room])
            place += room
        self.tokens += len(ids) // self._width


class _Digested:
    """A new file, whose size and digest are known when it is closed."""

    def __init__(self, path: Path):
        self.path, self.size, self.digest = path, 0, hashlib.sha256()
        self.file = path.open("xb")

    def write(self, content: bytes) -> None:
        self.file.write(content)
        self.digest.update(content)
        self.size += len(content)

    def close(self) -> FileOf:
        self.file.close()
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        return FileOf(self.path.name, self.size, self.digest.hexdigest())


def packed(ids: Sequence[int], kind: str) -> bytes:
    """Ids as they stand in a shard."""
    return _little_endian(array(_CODES[kind], ids))


def _little_endian(numbers: array) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def kind_for(tokenizer: Tokenizer) -> str:
    """The smallest kind of numbers that holds all ids of a tokenizer."""
    return "uint16" if tokenizer.vocabulary_size <= 1 << 16 else "uint32"


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write to, which becomes `folder` when the block ends without an error.

    After an error nothing is left. A process that is killed leaves `folder.partial`, which the next
    one names and does not touch: another may still be writing there.

    Raises:
        FileExistsError: there is such a folder, or `folder.partial`.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"expected a new folder, {folder} is there already: choose another")
    partial = folder.with_name(folder.name + ".partial")
    try:
        partial.mkdir(parents=True)
    except FileExistsError:
        raise FileExistsError(
            f"expected no {partial}, which is written while {folder} is made: if no other process "
            "is at it, one was killed there; remove it and begin again"
        ) from None
    try:
        yield partial
        if folder.exists():
            folder.rmdir()  # it is empty
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_manifest(
    folder: Path,
    tokenizer: Tokenizer,
    parts: Mapping[str, PartOf],
    *,
    sources: Sequence[Mapping[str, Any]] = (),
    tokens_per_shard: int = TOKENS_PER_SHARD,
) -> None:
    """Write what is in a folder, when all else is there."""
    content = {
        "format": FORMAT,
        "kind": kind_for(tokenizer),
        "tokens_per_shard": tokens_per_shard,
        "vocabulary_size": tokenizer.vocabulary_size,
        "end": tokenizer.specials[END],
        "tokenizer": asdict(_measured(folder / TOKENIZER)),
        "parts": {name: asdict(part) for name, part in parts.items()},
        "sources": list(sources),
    }
    write_text(folder / MANIFEST, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _measured(path: Path) -> FileOf:
    return FileOf(path.name, path.stat().st_size, sha256_of(path))


# ---- reading -------------------------------------------------------------------------------------


class Shards:
    """The tokens of a text in a folder; nothing of them is in memory.

    Args:
        folder: as `next-token tokenize` wrote it.
    Attributes:
        tokenizer: its own.
        parts: name -> `ShardedStream`.
        sha256: of the manifest, and so of everything.
    Raises:
        FileNotFoundError: there is no manifest.
        ShardError: the manifest is damaged or forged, or a file is missing or of another size.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder).expanduser()
        try:
            content, self.sha256 = _read_manifest(self.folder)
            kind, per_shard = content["kind"], content["tokens_per_shard"]
            self._tokenizer_file = FileOf(**content["tokenizer"])
            told = {name: _part_of(content["parts"][name]) for name in PARTS}
            self.parts = {
                name: ShardedStream(self.folder, told[name], kind, per_shard) for name in PARTS
            }
        except ShardError:
            raise
        except (LookupError, TypeError, ValueError) as error:
            raise ShardError(
                f"expected the manifest of shards in {self.folder / MANIFEST}, got something else: "
                f"{error!r}; tokenize again"
            ) from error
        _check_size(self.folder, self._tokenizer_file)
        self.tokenizer = open_tokenizer(self.folder)
        own = self.tokenizer.vocabulary_size, self.tokenizer.specials.get(END)
        if own != (content.get("vocabulary_size"), content.get("end")):
            raise ShardError(
                f"expected in {self.folder / TOKENIZER} the tokenizer of the manifest, with "
                f"{content.get('vocabulary_size')} tokens and the end token {content.get('end')}, "
                f"got one with {own[0]} and {own[1]}: tokenize again"
            )

    @property
    def files(self) -> list[FileOf]:
        """All files that the manifest names."""
        of_parts = [file for part in self.parts.values() for file in part.files]
        return [self._tokenizer_file, *of_parts]

    def check(self, files: Sequence[FileOf] | None = None) -> None:
        """Compare the SHA-256 of files with the manifest; a gigabyte takes a second or two.

        Args:
            files: some of `files`; None: all of them.
        Raises:
            ShardError: a file is another, and so is what a run would learn from.
        """
        for file in self.files if files is None else files:
            found = _measured(self.folder / file.name)
            if found != file:
                raise ShardError(
                    f"expected {self.folder / file.name} with SHA-256 {file.sha256}, as the "
                    f"manifest says, got {found.sha256}: the file was changed or damaged since; "
                    "copy it again from where it is whole, or tokenize again"
                )


class ShardedStream:
    """One part of `Shards`: a stream of ids, of which pieces can be asked for.

    `likelihood.batches.Batches` takes it as it takes a tensor.
    """

    def __init__(self, folder: Path, told: PartOf, kind: str, tokens_per_shard: int):
        self.folder, self.told, self.kind = folder, told, kind
        self._width, self._per_shard = array(_CODES[kind]).itemsize, tokens_per_shard
        full = max(0, len(told.shards) - 1)  # shards
        rest = told.tokens - full * tokens_per_shard
        sizes = [tokens_per_shard * self._width] * full + [rest * self._width]
        sound = [file.size for file in told.shards] == sizes and rest <= tokens_per_shard
        if not sound or rest < 1 or told.starts.size != 8 * told.documents:
            raise ShardError(
                f"expected in {folder / MANIFEST} files for {told.tokens:,} tokens and "
                f"{told.documents:,} documents, got others: was the manifest edited? Tokenize again"
            )
        for file in self.files:
            _check_size(folder, file)
        self._open: dict[str, IO[bytes]] = {}

    @property
    def files(self) -> list[FileOf]:
        """The files of this part."""
        return [*self.told.shards, self.told.starts]

    def __len__(self) -> int:
        return self.told.tokens

    @property
    def documents(self) -> int:
        """How many documents it has."""
        return self.told.documents

    @property
    def checksum(self) -> str:
        """What tells this stream from others."""
        sums = "".join(file.sha256 for file in self.files)
        return hashlib.sha256(sums.encode()).hexdigest()

    def piece(self, start: int, length: int) -> np.ndarray:
        """The ids from `start` on, (length,), as 64 bits each; read from the disk.

        Raises:
            IndexError: the stream has no such piece. ShardError: a file has become shorter.
        """
        import numpy as np

        if not 0 <= start <= start + length <= len(self):
            raise IndexError(f"expected a piece of {len(self):,} tokens, got {start}, {length}")
        found = b""
        while length:
            number, place = divmod(start, self._per_shard)
            here = min(length, self._per_shard - place)
            found += self._read(self.told.shards[number], place * self._width, here * self._width)
            start, length = start + here, length - here
        return np.frombuffer(found, f"<u{self._width}").astype(np.int64)

    def start_of(self, document: int) -> int:
        """Where the end token stands that a document begins with; documents count from 0."""
        if not 0 <= document < self.told.documents:
            raise IndexError(f"expected one of {self.told.documents:,} documents, got {document}")
        return int.from_bytes(self._read(self.told.starts, 8 * document, 8), "little")

    def _read(self, file: FileOf, place: int, size: int) -> bytes:
        """Some bytes of a file, which stays open, without a buffer."""
        if file.name not in self._open:
            if len(self._open) == _MOST_OPEN:
                self._open.pop(next(iter(self._open))).close()  # that which is open the longest
            self._open[file.name] = (self.folder / file.name).open("rb", buffering=0)
        stream = self._open[file.name]
        stream.seek(place)
        if len(found := stream.read(size)) < size:
            raise ShardError(
                f"expected {size} bytes at {place} in {self.folder / file.name}, got {len(found)}: "
                "the file was cut since it was opened; copy it again, or tokenize again"
            )
        return found


# ---- checks --------------------------------------------------------------------------------------


def _read_manifest(folder: Path) -> tuple[dict, str]:
    """What the manifest says, and its SHA-256."""
    path = folder / MANIFEST
    if not path.is_file():
        partial = folder.with_name(folder.name + ".partial")
        why = (
            f"; {partial} is there, so a run was killed, or is not done" if partial.exists() else ""
        )
        raise FileNotFoundError(
            f"expected shards of tokens in {folder}, found no {MANIFEST}{why}: "
            "`next-token tokenize` makes them"
        )
    held = path.read_bytes()
    content = json.loads(held)
    if content["format"] != FORMAT:
        raise ValueError(f"expected the format {FORMAT!r}, got {content['format']!r}")
    return content, hashlib.sha256(held).hexdigest()


def _part_of(told: Mapping) -> PartOf:
    files = {"shards": tuple(FileOf(**file) for file in told["shards"])}
    return PartOf(**{**told, **files, "starts": FileOf(**told["starts"])})


def _check_size(folder: Path, file: FileOf) -> None:
    path = folder / file.name
    found = f"{path.stat().st_size:,}" if path.is_file() else "no such file"
    if found != f"{file.size:,}":
        raise ShardError(
            f"expected {path} with {file.size:,} bytes, as the manifest says, got {found}: was it "
            "not copied whole? Copy it again, or tokenize again"
        )
