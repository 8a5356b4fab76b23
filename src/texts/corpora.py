"""Which real text does a model read, and which part of it is kept back to judge the model?

A corpus is a tuple of documents. Text that occurs twice is removed first; the split comes second,
by whole documents. A test line whose neighbours, or whose copy, were trained on is not new to
the model, and its score says little about text that is. Sizes are always counted in UTF-8 bytes.

`load("python-docs")` needs no network, and keeps what it has parsed beside the downloads.
`load("shakespeare")` is fetched once, checked and kept, and `load(path)` reads a file of the
reader's own. `deduplicate` removes copies; what else one may clean away before the split is in
`gpt/data_quality`. Chapters: `likelihood/a_beats_b`, `gpt/data_overlap`; on repeated text see
Lee et al. 2022.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import os
import re
import sys
import sysconfig
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..tools.files import write_text


@dataclass(frozen=True)
class Document:
    """A text that is never divided between training and test, with the title that places it."""

    title: str
    text: str

    @property
    def n_bytes(self) -> int:
        """The length of the text in UTF-8 bytes."""
        return len(self.text.encode())


@dataclass(frozen=True)
class Corpus:
    """Documents in a fixed order; its length is their number.

    >>> Corpus("tiny", (Document("a", "né"), Document("b", "to"))).n_bytes
    5
    """

    name: str
    documents: tuple[Document, ...]

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    @property
    def n_bytes(self) -> int:
        """The length of all texts together in UTF-8 bytes, nothing counted between them."""
        return sum(document.n_bytes for document in self.documents)

    def to_bytes(self) -> bytes:
        r"""All texts in one stream of bytes, with the end token 0 before, between and after them.

        Texts that hold the byte 0 are refused: 256 ids are enough for the bytes and the end token.

        >>> Corpus("tiny", (Document("a", "né"), Document("b", "to"))).to_bytes()
        b'\x00n\xc3\xa9\x00to\x00'

        Raises:
            ValueError: a text holds the byte 0.
        """
        for document in self.documents:
            if "\0" in document.text:
                raise ValueError(f"expected no byte 0, the end token, got one in {document.title}")
        return b"".join([b"\0", *(document.text.encode() + b"\0" for document in self.documents)])


class Split(NamedTuple):
    """The three parts of a corpus: to fit on, to choose by, and to report once."""

    train: Corpus
    validation: Corpus
    test: Corpus


# Published files whose content is known in advance: (address, name of the file, SHA-256).
REMOTES = {
    "shakespeare": (
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "tinyshakespeare.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
}
NAMES = ("python-docs", *REMOTES, "python-docs-raw")
# A line break and every blank line after it; white space other than `\n` includes Windows's `\r`.
# No match begins inside a run of `\r`, and `++` gives nothing back: each run is read once.
_BLANK_LINES = re.compile(r"(?<!\r)\r*+\n(?:[^\S\n]*+\n)++")


def load(source: str | os.PathLike[str], *, document_separator: str | None = None) -> Corpus:
    """The corpus of that name, or the text of that file.

    A known name wins over a file called the same; `Path("shakespeare")` asks for the file.

    A file keeps its newlines: `\\r\\n` stays two bytes, so that bits per byte are bits per byte of
    the file. Only a leading byte-order mark is dropped. One long file would be one document, and
    could not be split by whole documents; without a separator it is therefore cut at blank lines
    into about fifty contiguous blocks of whole paragraphs. Blocks that long touch each other in few
    places, whereas lines dealt out at random would put the neighbours of every test line into
    training.

    Args:
        source: `"python-docs"`, `"shakespeare"`, or the path of a UTF-8 file; `"python-docs-raw"`
            is the first as Python brings it, with its copies.
        document_separator: what stands between two documents of a file; it belongs to neither.

    Returns:
        The corpus. Only `"python-docs"` is de-duplicated; see `deduplicate`.

    Raises:
        FileNotFoundError: no such name and no such file.
        ValueError: the file is empty or not UTF-8; the separator is empty, does not occur, or is
            given for a corpus that has documents already.
        OSError: `"shakespeare"` is neither in the cache nor to be had.
    """
    if source in NAMES and document_separator is not None:
        raise ValueError(f"document_separator is for files of your own, but source is {source!r}")
    if source == "python-docs":
        return _python_docs()
    if source == "python-docs-raw":
        return _raw_python_docs()
    if source in REMOTES:
        return Corpus(source, _blocks(read_text(_fetched(source)), source))
    path = Path(source).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"no file {path} and no corpus of that name; known are {NAMES}")
    text = read_text(path)
    if document_separator is None:
        return Corpus(path.name, _blocks(text, path.name))
    if not document_separator or document_separator not in text:
        wanted = f"a document_separator that occurs in {path}, or none to cut at blank lines"
        raise ValueError(f"expected {wanted}, got {document_separator!r}")
    parts = [part for part in text.split(document_separator) if part.strip()]
    return Corpus(path.name, _numbered(f"{path.name}, document", parts))


# ---- the documentation of Python -----------------------------------------------------------------


# Tests are not prose, and site-packages differ from machine to machine. lib2to3 holds patterns of
# its converter rather than sentences, and Python 3.13 dropped it.
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib2to3"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache  # a corpus cannot be changed, so every chapter cell may share one
def _python_docs() -> Corpus:
    """The topics of `help()` and the docstrings of the standard library, de-duplicated."""
    return Corpus("python-docs", deduplicate(_raw_python_docs()))


@functools.cache
def _raw_python_docs() -> Corpus:
    """The same with every paragraph that occurs several times."""
    from pydoc_data.topics import topics

    documents = [Document(f"topic {name}", text) for name, text in sorted(topics.items())]
    modules = _kept_module_documents(Path(sysconfig.get_path("stdlib")))
    if not modules:
        raise FileNotFoundError("this Python comes without its sources: load(path) reads a file")
    return Corpus("python-docs-raw", (*documents, *modules))


def _kept_module_documents(folder: Path) -> list[Document]:
    """`_module_documents`, kept in the cache: every chapter's process would parse 12 MB again.

    What is kept is used only for the same sources, this Python and this file of ours. Where the
    cache cannot be read or written, the documents are made anew.
    """
    states = [(str(path), path.stat()) for _, path in sorted(_module_sources(folder).items())]
    seen = [(path, state.st_size, state.st_mtime_ns) for path, state in states]
    made_of = repr((sys.version, seen)).encode() + Path(__file__).read_bytes()
    key, kept = hashlib.sha256(made_of).hexdigest(), cache_folder() / "python-docs.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads(kept.read_text(encoding="utf-8"))
        if content["key"] == key:
            return [Document(title, text) for title, text in content["documents"]]
    documents = _module_documents(folder)
    pairs = [(document.title, document.text) for document in documents]
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_text(kept, json.dumps({"key": key, "documents": pairs}))
    return documents


def _module_sources(folder: Path) -> dict[str, Path]:
    """The modules under a folder, by name, with their sources."""
    sources = {}
    for here, subfolders, files in os.walk(folder):
        subfolders[:] = [name for name in subfolders if name not in _LEFT_OUT]
        for path in (Path(here, name) for name in files if name.endswith(".py")):
            parts = path.relative_to(folder).with_suffix("").parts
            sources[".".join(parts).removesuffix(".__init__")] = path
    return sources


def _module_documents(folder: Path) -> list[Document]:
    """One document for each module under a folder that has docstrings, sorted by module name."""
    sources = sorted(_module_sources(folder).items())
    texts = {name: "\n\n".join(_docstrings(ast.parse(p.read_bytes()))) for name, p in sources}
    return [Document(f"module {name}", text) for name, text in texts.items() if text]


def _docstrings(node: ast.AST) -> Iterator[str]:
    """The docstrings in and below a node, in the order of the source."""
    if isinstance(node, _DOCUMENTED):
        docstring = ast.get_docstring(node)  # indentation cleaned, as `help()` shows it
        if docstring:
            yield docstring
    # Only statements hold definitions, so the many expressions need no visit.
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            yield from _docstrings(child)


# ---- words ---------------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """The runs of letters and digits of a text, lower-cased: what comparisons of texts go by.

    Accents are first written in one way (NFC), as é can be one character or two. A language without
    spaces between words gets whole clauses for words; it needs a segmenter first.

    >>> words("Don't PANIC_now: 42")
    ['don', 't', 'panic', 'now', '42']

    Source: Radford et al. 2019, section 4, "lower-cased alphanumeric words".
    """
    return _WORD.findall(unicodedata.normalize("NFC", text).lower())


_WORD = re.compile(r"[^\W_]+")


def word_ngrams(text: str, n: int = 8) -> list[str]:
    """Every `n` words in a row of one document, joined by blanks; none if it has fewer words.

    >>> word_ngrams("To be, or not to be", 4)
    ['to be or not', 'be or not to', 'or not to be']

    Raises:
        ValueError: n is below 1.
    """
    if n < 1:
        raise ValueError(f"expected 1 word or more in an n-gram, got n={n}")
    own = words(text)
    return [" ".join(own[i : i + n]) for i in range(len(own) - n + 1)]


# ---- copies --------------------------------------------------------------------------------------


def deduplicate(documents: Iterable[Document]) -> tuple[Document, ...]:
    """The documents without any paragraph that stood earlier, in the same document or another.

    A paragraph is the text between blank lines, compared after stripping. The first occurrence is
    kept as it stands, paragraphs are joined again by one blank line, and a document of which
    nothing is left disappears. To be called before a split: afterwards a test set could keep copies
    of training text. Near-copies, where a word differs, remain.

    >>> [d.text for d in deduplicate([Document("a", "x\\n\\ny\\n\\nx"), Document("b", "y")])]
    ['x\\n\\ny']

    Args:
        documents: in the order that decides which occurrence is first.

    Returns:
        New documents under their old titles, in the same order.
    """
    seen = {""}  # the paragraph before a leading blank line
    kept_documents = []
    for document in documents:
        kept = []
        for paragraph in _BLANK_LINES.split(document.text):
            if paragraph.strip() not in seen:
                seen.add(paragraph.strip())
                kept.append(paragraph)
        if kept:
            kept_documents.append(Document(document.title, "\n\n".join(kept)))
    return tuple(kept_documents)


# ---- files ---------------------------------------------------------------------------------------


def read_text(path: Path) -> str:
    """The text of a UTF-8 file with its newlines as they are and without a byte-order mark.

    Raises:
        ValueError: it is not UTF-8, or holds no text. OSError: there is no such file.
    """
    content = path.read_bytes()
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"expected UTF-8 in {path}, got {error} (line {line}): save the file as UTF-8"
        raise ValueError(message) from error
    if not text.strip():
        raise ValueError(f"{path} holds no text: {len(content)} bytes, nothing but white space")
    return text


def _blocks(text: str, name: str, *, n_blocks: int = 50) -> tuple[Document, ...]:
    """The text cut after blank lines into at most `n_blocks` parts that join to it again."""
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    # No cut inside the white space around the text, or a block would hold no word.
    cuts = [m.end() for m in _BLANK_LINES.finditer(text) if first < m.end() < last] + [len(text)]
    targets = (len(text) * k // n_blocks for k in range(1, n_blocks + 1))
    ends = sorted({cuts[bisect_left(cuts, target)] for target in targets})
    starts = [0, *ends[:-1]]
    parts = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    return _numbered(f"{name}, block", parts)


def _numbered(title: str, texts: Iterable[str]) -> tuple[Document, ...]:
    return tuple(Document(f"{title} {number}", text) for number, text in enumerate(texts, start=1))


def cache_folder() -> Path:
    """Where texts are kept: `NEXT_TOKEN_CACHE`, or `next-token` in the user's cache folder."""
    if chosen := os.environ.get("NEXT_TOKEN_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "next-token"


def _fetched(name: str) -> Path:
    """The checked file of a published corpus, fetched unless the cache has it."""
    import pooch

    url, file_name, sha256 = REMOTES[name]
    folder = cache_folder()
    try:
        return Path(pooch.retrieve(url, f"sha256:{sha256}", file_name, folder))
    except (OSError, ValueError) as error:
        way_out = f'put that file at {folder / file_name}, or use load("python-docs")'
        message = f"expected a file with SHA-256 {sha256} from {url}, got {error}: {way_out}"
        raise OSError(message) from error


# ---- the split -----------------------------------------------------------------------------------


def split(corpus: Corpus, *, validation: float = 0.1, test: float = 0.1, seed: int = 0) -> Split:
    """The corpus in three parts, by whole documents.

    Documents are ordered by the SHA-256 of seed and title. They fill the test part until it has its
    share of the bytes, then the validation part, and the rest is for training. No generator is
    involved, so the parts are the same on every machine; and as a title keeps its place when other
    documents come or go, they are nearly the same under another version of Python.

    Args:
        corpus: de-duplicated, or copies may stand on both sides.
        validation: the least share of the bytes for validation, in [0, 1).
        test: the least share of the bytes for test, in [0, 1).
        seed: another number gives another assignment.

    Returns:
        Three corpora, each in the order of the original. A part may exceed its share by almost one
        document; with a share of 0 it is empty.

    Raises:
        ValueError: shares out of range, or no document left for training.
    """
    check_shares(validation, test)

    def place(index: int) -> bytes:
        return hashlib.sha256(f"{seed}\n{corpus.documents[index].title}".encode()).digest()

    waiting = sorted(range(len(corpus)), key=place, reverse=True)  # the last comes first
    sizes = [document.n_bytes for document in corpus]
    indices: dict[str, list[int]] = {"test": [], "validation": []}
    for part, share in (("test", test), ("validation", validation)):
        n_bytes, wanted = 0, share * sum(sizes)
        while waiting and n_bytes < wanted:
            n_bytes += sizes[waiting[-1]]
            indices[part].append(waiting.pop())
    if not waiting:
        few = f"{len(corpus)} in {corpus.name}, the longest {max(sizes, default=0):,} bytes"
        way_out = r"ask for smaller shares, or cut a file by document_separator='\n'"
        raise ValueError(f"expected documents to train on, got too few: {few}; {way_out}")
    indices["train"] = waiting
    documents = {
        part: tuple(corpus.documents[index] for index in sorted(chosen))
        for part, chosen in indices.items()
    }
    return Split(*(Corpus(f"{corpus.name}/{part}", documents[part]) for part in Split._fields))


def check_shares(validation: float, test: float) -> None:
    """Refuse shares of a text that leave nothing to train on."""
    if not (0 <= validation < 1 and 0 <= test < 1 and validation + test < 1):
        raise ValueError(f"expected shares from 0, together below 1, got {validation=}, {test=}")
