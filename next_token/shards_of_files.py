"""How do many files become shards of tokens, however long they are, on all cores of a machine?

    this process:   files -> documents -> blocks of a million characters ─┐   ┌─> shards
    each worker:                                                          └─> ids

The workers take their turns, so the shards are the same for any number of them. At most one block
is with each, so memory does not grow with the text. No process imports torch.

To which part a document belongs follows from its text alone, by SHA-256: copies of a document are
never on two sides. The tokenizer is learnt from the training part, merges from a sample of it.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, count
from multiprocessing.connection import Connection
from pathlib import Path

from next_token.shards import (
    PARTS,
    TOKENS_PER_SHARD,
    Shards,
    ShardWriter,
    kind_for,
    new_folder,
    packed,
    write_manifest,
)
from src.texts.corpora import check_shares
from src.tokens.bpe import BytePairTokenizer
from src.tokens.bpe import load as load_tokenizer
from src.tokens.bytes import ByteTokenizer, CharacterTokenizer, Tokenizer
from src.tokens.folders import TOKENIZER, gpt2_tokenizer, open_tokenizer
from src.tools.progress import progress as progress_bar

from .streams import Part, parts_of_file

SAMPLE = 100_000_000  # bytes of text from which merges are learnt, at most
_BLOCK = 1 << 20  # characters that a worker gets at a time, at least
_GROWTH = 4  # how many times as long a compressed text may well be


@dataclass(frozen=True)
class _Placed:
    """A part of a document, and the part of the data that the document belongs to."""

    part: Part
    side: str


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
    tokens_per_shard: int = TOKENS_PER_SHARD,
    progress: bool = False,
) -> Shards:
    """Write the tokens of files of text to a new folder; see `texts.streams` for the files.

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
        processes: how many encode; None: one for each core that this process may use; 1: this one.
        tokens_per_shard: in each file but the last.
        progress: whether to show a bar.
    Raises:
        FileNotFoundError: a file is missing. FileExistsError: the folder is there, or half of it.
        ValueError: a file is not such text; an option is out of range; no document to train on.
        ChildProcessError: a worker died.
    """
    folder = Path(folder).expanduser()
    _check_options(files, validation, test, processes, tokens_per_shard)

    def documents() -> Iterator[_Placed]:
        read = chain.from_iterable(
            parts_of_file(path, separator=separator, field=field) for path in files
        )
        return _placed(read, validation, test)

    with new_folder(folder) as partial:
        chosen = _tokenizer(tokenizer, documents, files)
        chosen.save(partial / TOKENIZER)
        kind, end = kind_for(chosen), chosen.specials["<|endoftext|>"]
        writers = {
            side: ShardWriter(partial, side, kind=kind, end=end, tokens_per_shard=tokens_per_shard)
            for side in PARTS
        }
        blocks = _blocks(documents())
        if progress:
            blocks = progress_bar(blocks, "tokenizing")
        for block, encoded in _encoded(blocks, partial / TOKENIZER, kind, _workers(processes)):
            for placed, (ids, n_bytes) in zip(block, encoded, strict=True):
                part = placed.part
                writers[placed.side].add(ids, n_bytes, first=part.first, last=part.last)
        told = {side: writer.close() for side, writer in writers.items()}
        if not told["train"].documents:
            raise ValueError(
                f"expected documents to train on, got {sum(p.documents for p in told.values())} "
                "in all, none of them in the training part: give more text, smaller shares, or a "
                "--separator that makes more documents of it"
            )
        sources = [{"name": Path(f).name, "size": Path(f).stat().st_size} for f in files]
        write_manifest(partial, chosen, told, sources=sources, tokens_per_shard=tokens_per_shard)
    return Shards(folder)


def _check_options(
    files: Sequence, validation: float, test: float, processes: int | None, per_shard: int
) -> None:
    if isinstance(files, str | os.PathLike) or not files:
        raise ValueError(f"expected a list of at least one file, got {files!r}")
    check_shares(validation, test)
    if processes is not None and processes < 1:
        raise ValueError(f"expected at least one process, got {processes}")
    if per_shard < 1:
        raise ValueError(f"expected at least one token in a shard, got {per_shard}")


def _workers(processes: int | None) -> int:
    if processes is not None:
        return processes
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---- documents -----------------------------------------------------------------------------------


def _placed(parts: Iterable[Part], validation: float, test: float) -> Iterator[_Placed]:
    """Each part of a document, and its side: by the document's text, or a long one's beginning."""
    side = "train"
    for part in parts:
        if part.first:
            drawn = _drawn(part.text, "side")
            rest = "validation" if drawn < test + validation else "train"
            side = "test" if drawn < test else rest
        yield _Placed(part, side)


def _drawn(text: str, purpose: str) -> float:
    """A number from 0 to below 1 that follows from a text, and another for another purpose."""
    digest = hashlib.sha256(f"{purpose}\n{text}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / (1 << 56)


def _blocks(documents: Iterable[_Placed]) -> Iterator[list[_Placed]]:
    """The documents in lists of at least `_BLOCK` characters, but for the last."""
    block: list[_Placed] = []
    size = 0
    for placed in documents:
        block.append(placed)
        size += len(placed.part.text)
        if size >= _BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


# ---- the tokenizer -------------------------------------------------------------------------------


def _tokenizer(
    wanted: str, documents: Callable[[], Iterator[_Placed]], files: Sequence[str | os.PathLike[str]]
) -> Tokenizer:
    """The tokenizer that was asked for; learnt from the training part, if it must be."""
    if wanted == "bytes":
        return ByteTokenizer()
    if wanted == "gpt2":
        return gpt2_tokenizer()
    if wanted == "characters":
        seen: set[str] = set()
        for placed in documents():
            if placed.side == "train":
                seen.update(placed.part.text)
        return CharacterTokenizer(sorted(seen))
    if wanted.isdigit():
        return BytePairTokenizer.train(_sample(documents(), files), int(wanted))
    if not Path(wanted).is_dir():
        raise ValueError(
            "expected a tokenizer: bytes, characters, gpt2, a folder that holds one, or the size "
            f"of a vocabulary to be learnt, got {wanted!r}"
        )
    return open_tokenizer(wanted)


def _sample(documents: Iterable[_Placed], files: Sequence[str | os.PathLike[str]]) -> Iterator[str]:
    """Texts of the training part, about `SAMPLE` bytes drawn from all of it, and no more."""
    expected = sum(_expected_size(Path(file)) for file in files)
    share, room, taken = SAMPLE / max(1, expected), SAMPLE, False
    for placed in documents:
        if placed.part.first:
            taken = placed.side == "train" and _drawn(placed.part.text, "sample") < share
        if taken:
            room -= len(placed.part.text.encode())
            if room < 0:
                return
            yield placed.part.text


def _expected_size(path: Path) -> int:
    """About how many bytes of text a file holds."""
    packed_up = path.suffix.lower() in (".gz", ".zst")
    return path.stat().st_size * (_GROWTH if packed_up else 1)


# ---- workers -------------------------------------------------------------------------------------

_Ids = list[tuple[bytes, int]]  # of each part: its ids as they stand in a shard, its bytes of text


def _encoded(
    blocks: Iterable[list[_Placed]], tokenizer: Path, kind: str, processes: int
) -> Iterator[tuple[list[_Placed], _Ids]]:
    """Each block with its ids, in order."""
    if processes == 1:
        own = load_tokenizer(tokenizer)
        for block in blocks:
            yield block, _told(block, _ids_of([p.part.text for p in block], own, kind))
        return
    with ExitStack() as stack:
        workers = [stack.enter_context(_worker(tokenizer, kind)) for _ in range(processes)]
        waiting: list[list[_Placed] | None] = [None] * processes
        for number, block in zip(count(), chain(blocks, [None] * processes)):
            turn = number % processes
            if (done := waiting[turn]) is not None:
                yield done, _told(done, _received(workers[turn]))
            waiting[turn] = block
            if block is not None:
                _send(workers[turn], [placed.part.text for placed in block])


def _ids_of(texts: Sequence[str], tokenizer: Tokenizer, kind: str) -> _Ids | tuple[int, str]:
    """The ids of some texts; or the number of one that has none, and why."""
    found = []
    for number, text in enumerate(texts):
        try:
            found.append((packed(tokenizer.encode(text), kind), len(text.encode())))
        except ValueError as error:
            return number, str(error)
    return found


def _told(block: Sequence[_Placed], found: _Ids | tuple[int, str]) -> _Ids:
    if isinstance(found, tuple):
        number, why = found
        raise ValueError(f"{block[number].part.title}: {why}")
    return found


@contextmanager
def _worker(tokenizer: Path, kind: str) -> Iterator[Connection]:
    """A process that answers texts by their ids, and ends when this one does, whatever happens."""
    context = multiprocessing.get_context("spawn")  # a fresh one: it holds no other's pipes open
    ours, theirs = context.Pipe()
    process = context.Process(target=_answer, args=(theirs, str(tokenizer), kind), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join(timeout=5)
        if process.is_alive():
            process.kill()


def _answer(pipe: Connection, path: str, kind: str) -> None:
    """What a worker does."""
    tokenizer = load_tokenizer(path)
    while True:
        try:
            pipe.send(_ids_of(pipe.recv(), tokenizer, kind))
        except (EOFError, OSError, KeyboardInterrupt):  # the other end is closed, or has gone
            return


def _send(worker: Connection, texts: list[str]) -> None:
    try:
        worker.send(texts)
    except OSError:
        raise ChildProcessError(_DIED) from None


def _received(worker: Connection) -> _Ids | tuple[int, str]:
    try:
        return worker.recv()
    except (EOFError, OSError):
        raise ChildProcessError(_DIED) from None


_DIED = (
    "a process that encodes text died, perhaps for want of memory; nothing was written. Try again "
    "with fewer --processes"
)
