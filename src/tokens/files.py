"""In which files do tokenizers live, and how can a stranger's file be read safely?

GPT-2 has two files: `vocab.json` (a token's spelling -> its id) and `merges.txt` (two spellings a
line, the first learned first). They spell bytes in an alphabet of 256 characters that can be seen.
They name neither the splitting pattern nor the special tokens. Our own format, one JSON object,
names both, and holds a tokenizer of any kind.

A file is data: it is read as JSON or as lines, never run, and what it says is checked before a
tokenizer is made of it. A writer fills a file beside the old one, which then takes its place at
once.

Source: `encoder.py` of Radford et al. 2019. Used in the chapter `tokens/fast_bpe`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from ..tools.files import write_text
from .bpe import GPT2_PATTERN, BytePairTokenizer
from .bytes import END, ByteTokenizer, CharacterTokenizer, Tokenizer, WordTokenizer
from .unigram import BYTES, PATTERN, UnigramTokenizer

_Path = str | os.PathLike[str]
GPT2_FILES = ("vocab.json", "merges.txt")  # OpenAI's encoder.json and vocab.bpe


class _Format(StrEnum):
    BYTE_PAIRS = "next-token byte-pair encoding 1"
    PIECES = "next-token pieces 1"
    UNIGRAM = "next-token unigram 1"


# ---- ours -------------------------------------------------------------------------------------


def save(tokenizer: Tokenizer, path: _Path) -> None:
    """Write a tokenizer to one JSON file, which `load` reads.

    Raises:
        TypeError: a tokenizer of another kind, or one that lacks some bytes.
    """
    content: dict[str, object]
    match tokenizer:
        case BytePairTokenizer():
            if len(tokenizer.ids) + len(tokenizer.specials) > tokenizer.vocabulary_size:
                raise TypeError("expected a token for each byte, got none for some: keep its file")
            made = zip(tokenizer.merges, tokenizer.ids[256:], strict=True)
            content = {
                "format": _Format.BYTE_PAIRS,
                "pattern": tokenizer.pattern,
                "add_prefix_space": tokenizer.add_prefix_space,
                "specials": tokenizer.specials,
                "bytes": tokenizer.ids[:256],
                "merges": [[*pair, token_id] for pair, token_id in made],
            }
        case UnigramTokenizer():
            pieces = zip(tokenizer.pieces, tokenizer.log_probs, strict=True)
            content = {
                "format": _Format.UNIGRAM,
                "pattern": tokenizer.pattern,
                "specials": [*tokenizer.specials],
                "pieces": [[p.decode("latin-1"), v if v > -math.inf else None] for p, v in pieces],
            }
        case WordTokenizer():
            content = {"format": _Format.PIECES, "kind": "words", "pieces": [*tokenizer.ids]}
        case CharacterTokenizer():
            content = {"format": _Format.PIECES, "kind": "characters", "pieces": [*tokenizer.ids]}
        case ByteTokenizer():
            content = {"format": _Format.PIECES, "kind": "bytes", "pieces": []}
        case _:
            raise TypeError(f"expected a tokenizer of `src.tokens`, got {tokenizer!r}")
    _write_json(path, content)


def load(path: _Path, *, pattern: str | None = None) -> Tokenizer:
    """The tokenizer that `save` wrote.

    Args:
        path: the file.
        pattern: a splitting pattern that the file may have besides the usual one and none. A
            pattern is a small program, and a stranger's may run for ever: so you name it.
    Raises:
        ValueError: the file is not such a file, or not whole, or not in order.
    """
    with naming(path):
        content = read_json(path)
        if (cut := content.get("pattern")) not in (None, pattern, GPT2_PATTERN, PATTERN):
            raise ValueError(f"expected the default pattern or the one named, got {cut!r}")
        match content:
            case {
                "format": _Format.BYTE_PAIRS,
                "pattern": _,
                "add_prefix_space": bool(prefix_space),
                "specials": dict(specials),
                "bytes": list(ids),
                "merges": list(merges),
            }:
                pairs = [(left, right) for left, right, _ in merges]
                ids += [token_id for _, _, token_id in merges]
                return BytePairTokenizer(
                    pairs, specials, pattern=cut, ids=ids, add_prefix_space=prefix_space
                )
            case {
                "format": _Format.UNIGRAM,
                "pattern": _,
                "specials": list(specials),
                "pieces": list(pieces),
            }:
                log_probs = {
                    piece.encode("latin-1"): -math.inf if value is None else float(value)
                    for piece, value in pieces
                }
                if len(log_probs) < len(pieces) or tuple(log_probs)[:256] != BYTES:
                    raise ValueError("expected each piece once, the 256 bytes first")
                return UnigramTokenizer(log_probs, specials=specials, pattern=cut)
            case {"format": _Format.PIECES, "kind": "bytes", "pieces": []}:
                return ByteTokenizer()
            case {
                "format": _Format.PIECES,
                "kind": "words" | "characters" as kind,
                "pieces": list(pieces),
            } if all(isinstance(piece, str) for piece in pieces):
                return WordTokenizer(pieces) if kind == "words" else CharacterTokenizer(pieces)
        got = f"got the format {content.get('format')!r}; `load_gpt2` reads GPT-2's two files"
        raise ValueError(f"expected a tokenizer as `save` writes it, {got}")


# ---- GPT-2's ----------------------------------------------------------------------------------


def bytes_to_unicode() -> dict[int, str]:
    """GPT-2's alphabet: a character that can be seen for each byte, in the order of GPT-2's ids.

    Bytes that print in Latin-1 stand for themselves; the others, the space among them, take the
    characters from U+0100 on.

    >>> bytes_to_unicode()[ord(" ")]
    'Ġ'

    Source: `encoder.py` of Radford et al. 2019.
    """
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1)]
    seen += range(ord("®"), ord("ÿ") + 1)
    unseen = [byte for byte in range(256) if byte not in seen]
    alphabet = {byte: chr(byte) for byte in seen}
    return alphabet | {byte: chr(256 + number) for number, byte in enumerate(unseen)}


def save_gpt2(tokenizer: BytePairTokenizer, folder: _Path) -> None:
    """Write `vocab.json` and `merges.txt` as GPT-2's authors did; the folder is made if needed.

    Raises:
        ValueError: another pattern, a prefix space, or a special token named like another.
    """
    if tokenizer.pattern != GPT2_PATTERN or tokenizer.add_prefix_space:
        raise ValueError("these files hold no pattern: expected GPT-2's, and no prefix space")
    alphabet = bytes_to_unicode()
    spelled = [
        "".join(alphabet[byte] for byte in tokenizer.token_bytes(token_id))
        for token_id in tokenizer.ids
    ]
    vocab = dict(zip(spelled, tokenizer.ids, strict=True))
    if twice := vocab.keys() & tokenizer.specials.keys():
        raise ValueError(f"expected special tokens named like no token, got {sorted(twice)}")
    vocab |= tokenizer.specials
    pairs = [f"{spelled[left]} {spelled[right]}" for left, right in tokenizer.merges]
    Path(folder).mkdir(parents=True, exist_ok=True)
    _write_json(Path(folder, GPT2_FILES[0]), dict(sorted(vocab.items(), key=lambda one: one[1])))
    write_text(Path(folder, GPT2_FILES[1]), "\n".join(["#version: 0.2", *pairs, ""]))


def load_gpt2(
    folder: _Path, specials: Collection[str] = (END,), *, names: tuple[str, str] = GPT2_FILES
) -> BytePairTokenizer:
    """The tokenizer of a folder with GPT-2's `vocab.json` and `merges.txt`.

    Args:
        folder: where both files are.
        specials: which entries of the vocabulary are special tokens: the files do not tell.
        names: of the two files.
    Raises:
        ValueError: a file is not such a file, not whole or not in order, or both disagree.
    """
    with naming(folder):
        vocab = read_json(Path(folder, names[0]))
        lines = Path(folder, names[1]).read_bytes().decode().splitlines()
        if lines and lines[0].startswith("#version"):
            del lines[0]
        if absent := set(specials) - vocab.keys():
            raise ValueError(f"expected the special tokens {sorted(absent)} in {names[0]}")
        pairs = [pair_of_spellings(line) for line in lines if line]
        named = {name: vocab[name] for name in specials}
        return BytePairTokenizer(**from_spellings(vocab, pairs, named))


def from_spellings(
    vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], specials: Mapping[str, int]
) -> dict:
    """Arguments for `BytePairTokenizer`, of tokens that are spelled in GPT-2's alphabet.

    Every entry of the vocabulary must be a byte, made by a merge, or special: otherwise merges are
    missing, and texts would be encoded differently without a word.
    """
    alphabet = bytes_to_unicode()
    spelled = [alphabet[byte] for byte in range(256)] + [left + right for left, right in merges]
    numbers = {token: number for number, token in enumerate(spelled)}
    if unmade := vocab.keys() - numbers.keys() - specials.keys():
        others = f"got {len(unmade)} others, such as {min(unmade)!r}; if special: specials="
        raise ValueError(f"expected a merge for each entry of the vocabulary, {others}")
    try:
        pairs = [(numbers[left], numbers[right]) for left, right in merges]
        ids = [vocab[token] for token in spelled]
    except KeyError as error:
        raise ValueError(f"expected all bytes and all that is merged, got no {error}") from None
    return {"merges": pairs, "ids": ids, "specials": specials}


def pair_of_spellings(merge: str | Sequence[str]) -> tuple[str, str]:
    """One merge as a file spells it: `Ġ t`, or `["Ġ", "t"]`."""
    match merge.split(" ") if isinstance(merge, str) else merge:
        case [str(left), str(right)]:
            return left, right
    raise ValueError(f"expected a merge of two tokens, got {merge!r}; was the file cut off?")


# ---- folders ----------------------------------------------------------------------------------


def open_tokenizer(folder: _Path) -> Tokenizer:
    """The tokenizer of a run or of a released model: GPT-2's two files, or our `tokenizer.json`.

    Raises:
        FileNotFoundError: the folder holds neither. ValueError: a file is damaged.
    """
    if all(Path(folder, name).exists() for name in GPT2_FILES):
        return load_gpt2(folder)
    if (path := Path(folder, "tokenizer.json")).exists():
        return load(path)
    wanted = "vocab.json and merges.txt or tokenizer.json"
    hint = "`src.gpt.pretrained.download` fetches GPT-2's with its weights"
    raise FileNotFoundError(f"expected {wanted} in {folder}; {hint}")


def fetched(name: str, files: Sequence[str], folder: _Path | None = None) -> Path:
    """The folder of files of a GPT-2 that OpenAI published, fetched unless they are there already.

    No token is sent, whatever is set. `HF_ENDPOINT` names another server.

    Args:
        name: "gpt2", "gpt2-medium" and so on.
        files: their names.
        folder: where they are kept; None: the cache of `huggingface_hub`.
    Raises:
        OSError: a file could not be fetched.
    """
    import huggingface_hub

    repository, place = f"openai-community/{name}", Path(folder) if folder else None
    for file in files:
        path = huggingface_hub.hf_hub_download(repository, file, local_dir=place, token=False)
    return Path(path).parent


# ---- reading and writing ----------------------------------------------------------------------


@contextlib.contextmanager
def naming(path: _Path) -> Iterator[None]:
    """Say which file an error is about."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path}: {error}") from error


def read_json(path: _Path) -> dict:
    """The object in a JSON file."""
    try:
        match json.loads(Path(path).read_bytes()):
            case dict(content):
                return content
        why = "another kind of value"
    except (ValueError, RecursionError) as error:
        why = str(error)
    raise ValueError(f"expected a JSON object in {Path(path).name}, got {why}; was it cut off?")


def _write_json(path: _Path, content: object) -> None:
    write_text(path, json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")
