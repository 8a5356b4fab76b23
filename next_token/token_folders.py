"""How is a text kept as tokens on a disk, so that it may be far larger than memory?

    folder/manifest.json     what is here: numbers of all parts, SHA-256 of all other files
    folder/tokenizer.json    text to ids
    folder/train.bin         ids: numpy.memmap("train.bin", "<u2"), or the `dtype` of the manifest
    folder/train.starts      where each document begins: numpy.memmap("train.starts", "<i8")
    folder/validation.…, test.…

A part is one stream, an end token before, between and after its documents. A document begins with
the end token before it.

What a reader opens may be anybody's. No name is taken from the manifest, and the sizes are compared
before a file is read. A piece is read when it is asked for: of a map of the ids, each page that was
ever touched would count as memory of the process, in the end the whole text.

Used by `runs`; written by `tokenizing`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from io import FileIO
from pathlib import Path

import numpy as np

from src.tools.files import sha256_of

from .folders import MANIFEST, TOKENIZER, open_tokenizer

FORMAT = "next-token tokens 2"
PARTS = ("train", "validation", "test")
DTYPES = {"<u2": 2, "<u4": 4}  # of ids, the least significant byte first -> bytes of each
FILES = (TOKENIZER, *(f"{part}.{kind}" for part in PARTS for kind in ("bin", "starts")))


class TokensError(ValueError):
    """A folder does not hold the tokens that its manifest says; the message says what to do."""


@dataclass(frozen=True)
class TokenStream:
    """One part of `TokenFolder`: a stream of ids on a disk, of which pieces can be asked for.

    `runs.StreamBatches` are batches of it.

    Attributes:
        path: the file of the ids.
        dtype: of the ids, as numpy names it.
        tokens: how many, end tokens included.
        documents: how many.
        bytes: of the documents' text, in UTF-8, nothing counted between them.
        checksum: SHA-256 of the ids' file.
    """

    path: Path
    dtype: str
    tokens: int
    documents: int
    bytes: int
    checksum: str

    def __len__(self) -> int:
        return self.tokens

    def __str__(self) -> str:
        return f"{self.documents:,} documents, {self.bytes:,} bytes, {self.tokens:,} tokens"

    def piece(self, start: int, length: int) -> np.ndarray:
        """The ids from `start` on, (length,), as 64 bits each; read from the disk.

        Raises:
            OSError, ValueError: the stream has no such piece, or its file was cut.
        """
        width = DTYPES[self.dtype]
        self._ids.seek(start * width)
        ids = self._ids.read(length * width)
        return np.frombuffer(ids, self.dtype, length).astype(np.int64)

    @property
    def shape(self) -> tuple[int]:
        """As of a tensor: (N,)."""
        return (self.tokens,)

    @cached_property
    def starts(self) -> np.ndarray:
        """Where the end tokens stand that the documents begin with, in order: a map of the file."""
        return np.memmap(self.path.with_suffix(".starts"), "<i8", "r")

    @cached_property
    def _ids(self) -> FileIO:
        return self.path.open("rb", buffering=0)


class TokenFolder:
    """The tokens of a text in a folder; nothing of them is in memory.

    Args:
        folder: as `next-token tokenize` wrote it.
    Attributes:
        tokenizer: its own.
        parts: name -> `TokenStream`.
        files: the names of all files but the manifest.
        sha256: of the manifest, and so of everything.
    Raises:
        FileNotFoundError: there is no manifest.
        TokensError: the manifest is damaged or forged, or a file is missing or of another size.
    """

    files = FILES

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder).expanduser()
        path = self.folder / MANIFEST
        if not path.is_file():
            raise FileNotFoundError(
                f"expected a folder of tokens, got {folder}: `tokenize` has not ended if there is "
                f"a {folder}.partial"
            )
        manifest = path.read_bytes()
        self.sha256 = hashlib.sha256(manifest).hexdigest()
        try:
            content = json.loads(manifest)
            if content["format"] != FORMAT:
                raise ValueError(content["format"])
            self._sums = {name: content["sha256"][name] for name in FILES}
            self.parts = {part: self._stream(part, content) for part in PARTS}
            sizes = {each.path: each.tokens * DTYPES[each.dtype] for each in self.parts.values()}
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            got = f"{FORMAT!r} in {path}, got {type(error).__name__}: {error}"
            raise TokensError(f"expected {got}; tokenize again") from error
        for part in self.parts.values():
            sizes[part.path.with_suffix(".starts")] = part.documents * 8
        for path, size in sizes.items():
            if (found := path.stat().st_size) != size:
                got = f"{path} with {size:,} bytes, as the manifest says, got {found:,}"
                raise TokensError(f"expected {got}: copy it again, or tokenize again")
        self.tokenizer = open_tokenizer(self.folder)

    def check(self, files: Iterable[str] = FILES) -> None:
        """Compare the SHA-256 of files with the manifest; a gigabyte takes a second or two.

        Raises:
            TokensError: a file is another, and so is what a run would learn from.
        """
        for name in files:
            if (found := sha256_of(self.folder / name)) != self._sums[name]:
                got = f"{self.folder / name} with SHA-256 {self._sums[name]}, got {found}"
                raise TokensError(f"expected {got}: it was changed or damaged, tokenize again")

    def _stream(self, part: str, content: dict) -> TokenStream:
        """A part, as the manifest has it."""
        path, numbers = self.folder / f"{part}.bin", content["parts"][part]
        tokens, documents, n_bytes = (int(numbers[n]) for n in ("tokens", "documents", "bytes"))
        return TokenStream(
            path, content["dtype"], tokens, documents, n_bytes, self._sums[path.name]
        )
