"""How do many files become a folder of tokens, however long they are, on all cores of a machine?

    this process:   files -> documents -> blocks of a million characters ─┐   ┌─> folder
    each worker:                                                          └─> ids

Blocks come back in their order, so the folder is the same for any number of workers. At most one
block waits for each, so memory does not grow with the text. No process imports torch.

To which part a document belongs follows from its text alone, by SHA-256: copies of a document are
never on two sides. The tokenizer is learnt from the training part, merges from a sample of it.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, cycle
from multiprocessing.connection import Connection
from pathlib import Path

import fsspec
import numpy as np

from next_token.token_folders import FILES, FORMAT, MANIFEST, PARTS, TokenFolder
from src.texts.corpora import check_shares
from src.tokens.bpe import BytePairTokenizer
from src.tokens.bytes import END, ByteTokenizer, CharacterTokenizer, Tokenizer
from src.tokens.files import naming, save
from src.tools.files import sha256_of, write_text
from src.tools.progress import progress as progress_bar

from .folders import TOKENIZER, gpt2_tokenizer, open_tokenizer
from .streams import Part, parts_of_file

SAMPLE = 100_000_000  # bytes of text from which merges are learnt, at most
_BLOCK = 1 << 20  # characters that a worker gets at a time, at least
_GROWTH = 4  # how many times as long a compressed text may well be

_Block = list[tuple[str, Part]]  # each with the side that it belongs to
_Ids = list[tuple[str, bool, bytes, int]]  # side, whether a document begins, ids, bytes of text


def tokenize_files(
    files: Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    *,
    tokenizer: str = "8192",
    separator: str | None = None,
    field: str = "text",
    validation: float = 0.1,
    test: float = 0.1,
    processes: int | None = None,
    progress: bool = False,
) -> TokenFolder:
    """Write the tokens of files of text to a new folder; see `streams` for the files.

    Args:
        files: in the order in which they are to stand.
        folder: a new one.
        tokenizer: "bytes"; "characters", those of the training part; "gpt2", GPT-2's own, fetched
            once; a folder with a tokenizer in it; or a number, the size of the vocabulary of a
            byte-pair tokenizer whose merges are learnt from at most `SAMPLE` bytes of the training
            part, drawn by document.
        separator: what stands between two documents of plain text; None: blocks of paragraphs.
        field: where a JSON object has its text.
        validation, test: the shares of the documents that are kept apart, each drawn by itself.
        processes: how many encode; None: one for each core that this process may
            use; 1: this one.
        progress: whether to show a bar.
    Raises:
        FileNotFoundError: a file is missing. FileExistsError: the folder is there, or half of it.
        ValueError: a file is not such text; an option is out of range; no document to train on.
        ChildProcessError: a worker died.
    """
    check_shares(validation, test)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()

    def read() -> Iterator[_Block]:
        parts = (parts_of_file(path, separator=separator, field=field) for path in files)
        return _blocks(chain.from_iterable(parts), validation, test)

    with _new_folder(Path(folder).expanduser()) as partial:
        chosen = _tokenizer(tokenizer, lambda: chain.from_iterable(read()), files)
        save(chosen, partial / TOKENIZER)
        dtype = "<u2" if chosen.vocabulary_size <= 1 << 16 else "<u4"
        blocks = progress_bar(read(), "tokenizing") if progress else read()
        encoded = _encoded(blocks, chosen, dtype, processes or cores or 1)
        parts = _write(partial, encoded, np.array(chosen.specials[END], dtype).tobytes())
        if not parts["train"]["documents"]:
            raise ValueError("expected documents to train on, got none: give more text")
        manifest = {
            "format": FORMAT,
            "dtype": dtype,
            "vocabulary_size": chosen.vocabulary_size,
            "parts": parts,
            "sha256": {name: sha256_of(partial / name) for name in FILES},
            "sources": [Path(file).name for file in files],
        }
        write_text(partial / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
    return TokenFolder(folder)


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write to, which becomes `folder` when the block ends without an error.

    After an error nothing is left. A process that is killed leaves `folder.partial`, which the next
    one names and does not touch: another may still be writing there.
    """
    partial = folder.with_name(folder.name + ".partial")
    if folder.exists() or partial.exists():
        raise FileExistsError(f"expected no {folder} yet, and no {partial}, of a killed process")
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(folder: Path, encoded: Iterable[_Ids], end: bytes) -> dict[str, dict[str, int]]:
    """Write all parts, an end token before each; what the manifest says of them."""
    with ExitStack() as stack:
        files = {n: stack.enter_context((folder / n).open("xb")) for n in FILES if n != TOKENIZER}
        parts = {side: {"tokens": 1, "documents": 0, "bytes": 0} for side in PARTS}
        for side in PARTS:
            files[f"{side}.bin"].write(end)
        for side, first, ids, n_bytes in chain.from_iterable(encoded):
            part = parts[side]
            if first:
                files[f"{side}.starts"].write((part["tokens"] - 1).to_bytes(8, "little"))
            files[f"{side}.bin"].write(ids)
            part["tokens"] += len(ids) // len(end)
            part["documents"] += first
            part["bytes"] += n_bytes
    return parts


# ---- documents -----------------------------------------------------------------------------------


def _blocks(parts: Iterable[Part], validation: float, test: float) -> Iterator[_Block]:
    """The parts of documents, each with its side, in lists of at least `_BLOCK` characters.

    The side follows from the document's text, or from a long one's beginning.
    """
    side, block, size = "train", [], 0
    for part in parts:
        if part.first:
            drawn = _drawn(part.text, "side")
            rest = "validation" if drawn < test + validation else "train"
            side = "test" if drawn < test else rest
        block.append((side, part))
        size += len(part.text)
        if size >= _BLOCK:
            yield block
            block, size = [], 0
    yield block


def _drawn(text: str, purpose: str) -> float:
    """A number from 0 to below 1 that follows from a text, and another for another purpose."""
    digest = hashlib.sha256(f"{purpose}\n{text}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / (1 << 56)


# ---- the tokenizer -------------------------------------------------------------------------------


def _tokenizer(
    wanted: str, documents: Callable[[], Iterator[tuple[str, Part]]], files: Sequence
) -> Tokenizer:
    """The tokenizer that was asked for; learnt from the training part, if it must be."""
    if wanted == "characters":
        return CharacterTokenizer.train(p.text for side, p in documents() if side == "train")
    if wanted.isdigit():
        return BytePairTokenizer.train(_sample(documents(), files), int(wanted))
    if wanted in ("bytes", "gpt2"):
        return ByteTokenizer() if wanted == "bytes" else gpt2_tokenizer()
    if Path(wanted).is_dir():
        return open_tokenizer(wanted)
    raise ValueError(f"expected bytes, characters, gpt2, a folder or a size, got {wanted!r}")


def _sample(documents: Iterable[tuple[str, Part]], files: Sequence) -> Iterator[str]:
    """Texts of the training part, about `SAMPLE` bytes drawn from all of it, and no more."""
    opened = (fsspec.open(file, compression="infer") for file in files)
    expected = sum(f.fs.size(f.path) * (_GROWTH if f.compression else 1) for f in opened)
    room, taken = SAMPLE, False
    for side, part in documents:
        if part.first:
            taken = side == "train" and _drawn(part.text, "sample") * expected < SAMPLE
        if taken:
            room -= len(part.text.encode())
            if room < 0:
                return
            yield part.text


# ---- workers -------------------------------------------------------------------------------------


def _encoded(
    blocks: Iterable[_Block], tokenizer: Tokenizer, dtype: str, processes: int
) -> Iterator[_Ids]:
    """The ids of each block, in order."""
    if processes == 1:
        yield from (_ids_of(block, tokenizer, dtype) for block in blocks)
        return
    try:
        with ExitStack() as stack:
            workers = [stack.enter_context(_worker(tokenizer, dtype)) for _ in range(processes)]
            busy: deque[Connection] = deque()
            for block, worker in zip(blocks, cycle(workers), strict=False):
                if len(busy) == processes:
                    yield _received(busy.popleft())
                worker.send(block)
                busy.append(worker)
            yield from map(_received, busy)
    except (EOFError, ConnectionError):
        message = "a process that encodes text died: is memory full? Try fewer --processes"
        raise ChildProcessError(message) from None


@contextmanager
def _worker(tokenizer: Tokenizer, dtype: str) -> Iterator[Connection]:
    """A process that answers a block by its ids, and ends when this one does, whatever happens.

    It has a pipe of its own. In the one pipe that all workers of a `ProcessPoolExecutor` share, a
    process that dies while it sends leaves half a message, and all others wait for ever.
    """
    context = multiprocessing.get_context("spawn")  # a fresh process: it holds no other's pipe
    ours, theirs = context.Pipe()
    process = context.Process(target=_answer, args=(theirs, tokenizer, dtype), daemon=True)
    process.start()
    theirs.close()
    with ours:
        yield ours
    process.join()  # so that its memory counts in `getrusage`


def _answer(pipe: Connection, tokenizer: Tokenizer, dtype: str) -> None:
    """What a worker does, until the other end of its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that began it
    with suppress(EOFError, OSError):
        while True:
            block = pipe.recv()
            try:
                pipe.send(_ids_of(block, tokenizer, dtype))
            except ValueError as error:
                pipe.send(error)


def _received(worker: Connection) -> _Ids:
    try:
        answer = worker.recv()
    except OSError as error:  # the end within a message
        raise EOFError from error
    if isinstance(answer, ValueError):
        raise answer
    return answer


def _ids_of(block: _Block, tokenizer: Tokenizer, dtype: str) -> _Ids:
    """The ids of the parts of a block, each document's with the end token behind."""
    found = []
    for side, part in block:
        with naming(part.title):
            ids = tokenizer.encode(part.text) + [tokenizer.specials[END]] * part.last
        n_bytes = len(part.text.encode())
        found.append((side, part.first, np.array(ids, dtype).tobytes(), n_bytes))
    return found
