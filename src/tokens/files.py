"""In which files do published tokenizers live, and how can a stranger's file be read safely?

Three formats of byte-level byte-pair encoding: ours, one JSON object; GPT-2's, `vocab.json` (a
token's spelling -> its id) and `merges.txt` (two spellings a line, the first learned first); and
`tokenizer.json` of Hugging Face's library `tokenizers`, which holds both and how a text is cut.
The last two spell bytes in an alphabet of 256 characters that can be seen. And two formats of ours
in the order of the ids: a list of pieces, words or characters; and the pieces of a unigram
tokenizer with their log-probabilities.

A file is data: it is read as JSON or as lines, never run, and every entry is checked before
anything is made of it. A writer fills a file beside the old one, which then takes its place at
once. Here a tokenizer is its settings, by the names of the arguments of `BytePairTokenizer`.

Sources: `encoder.py` of Radford et al. 2019; the format of `tokenizers` 0.23 and before. Used in
the chapter `tokens/fast_bpe`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from ..tools.files import write_text

Merges = Sequence[tuple[int, int]]  # numbers of tokens: the bytes 0 to 255, then one for each merge
_Path = str | os.PathLike[str]
_Kind = TypeVar("_Kind")

_FORMAT = "next-token byte-pair encoding 1"
_LIST_FORMAT = "next-token pieces 1"
_UNIGRAM_FORMAT = "next-token unigram 1"
_LARGEST_FILE = 1 << 28  # bytes; a vocabulary of a million tokens has less


# ---- ours -------------------------------------------------------------------------------------


def write_own(
    path: _Path,
    *,
    merges: Merges,
    ids: Sequence[int],
    specials: Mapping[str, int],
    pattern: str | None,
    add_prefix_space: bool,
) -> None:
    """Write a tokenizer's settings; a merge is [left, right, id], so that its place is checked."""
    content = {
        "format": _FORMAT,
        "pattern": pattern,
        "add_prefix_space": add_prefix_space,
        "specials": specials,
        "bytes": ids[:256],
        "merges": [[*pair, made] for pair, made in zip(merges, ids[256:], strict=True)],
    }
    _write_json(path, content)


def read_own(path: _Path, *, patterns: Collection[str | None]) -> dict:
    """The settings in a file that `write_own` wrote, with one of these patterns."""
    content = _read_json(path)
    if content.get("format") != _FORMAT:
        raise ValueError(
            f"expected the format {_FORMAT!r}, got {content.get('format')!r}; for other files "
            "there are load_gpt2 and load_hugging_face"
        )
    pattern = _pattern(content, patterns)
    triples = _field(content, "merges", list)
    if not all(isinstance(triple, list) and len(triple) == 3 for triple in triples):
        raise ValueError("expected merges as [left, right, id]")
    return {
        "merges": [(left, right) for left, right, _ in triples],
        "specials": _field(content, "specials", dict),
        "pattern": pattern,
        "ids": _field(content, "bytes", list) + [made for _, _, made in triples],
        "add_prefix_space": _field(content, "add_prefix_space", bool),
    }


def write_pieces(path: _Path, kind: str, pieces: Sequence[str]) -> None:
    """Write the pieces of a tokenizer, without its special tokens, in the order of their ids."""
    _write_json(path, {"format": _LIST_FORMAT, "kind": kind, "pieces": list(pieces)})


def read_pieces(path: _Path, kind: str) -> list[str]:
    """The pieces in a file that `write_pieces` wrote, of this kind."""
    content = _read_json(path)
    found = content.get("format"), content.get("kind")
    if found != (_LIST_FORMAT, kind):
        raise ValueError(f"expected the format {_LIST_FORMAT!r} of {kind}, got {found[0]!r}")
    pieces = _field(content, "pieces", list)
    if not all(isinstance(piece, str) for piece in pieces):
        raise ValueError("expected pieces that are strings")
    return pieces


def write_unigram(
    path: _Path, *, log_probs: Mapping[bytes, float], specials: Sequence[str], pattern: str | None
) -> None:
    """Write a unigram tokenizer: [a piece's bytes as Latin-1, its log-probability; null: -inf]."""
    pieces = [
        [piece.decode("latin-1"), float(value) if value > -math.inf else None]
        for piece, value in log_probs.items()
    ]
    content = {"format": _UNIGRAM_FORMAT, "pattern": pattern, "specials": list(specials)}
    _write_json(path, content | {"pieces": pieces})


def read_unigram(path: _Path, *, patterns: Collection[str | None]) -> dict:
    """The settings in a file that `write_unigram` wrote, with one of these patterns."""
    content = _read_json(path)
    if (found := content.get("format")) != _UNIGRAM_FORMAT:
        raise ValueError(f"expected the format {_UNIGRAM_FORMAT!r}, got {found!r}")
    log_probs = {}
    for pair in (pairs := _field(content, "pieces", list)):
        match pair:
            case [str(spelled), float() | None as value]:
                log_probs[spelled.encode("latin-1")] = -math.inf if value is None else value
            case _:
                raise ValueError(f"expected [piece, log-probability or null], got {pair!r}")
    all_bytes = [bytes([byte]) for byte in range(256)]
    if len(log_probs) < len(pairs) or [*log_probs][:256] != all_bytes:
        raise ValueError("expected each piece once, the 256 bytes first, got them otherwise")
    specials, pattern = _field(content, "specials", list), _pattern(content, patterns)
    return {"log_probs": log_probs, "specials": specials, "pattern": pattern}


def _pattern(content: Mapping, patterns: Collection[str | None]) -> str | None:
    """The splitting pattern of a file, if it is one of these."""
    if (pattern := content.get("pattern", "")) not in patterns:
        raise ValueError(f"expected the default pattern or the one named, got {pattern!r}")
    return pattern


def kind_of(path: _Path) -> str | None:
    """What pieces a file of ours holds: "words", "characters" or "bytes"; None: byte pairs."""
    content = _read_json(path)
    found = content.get("format")
    if found not in (_FORMAT, _LIST_FORMAT):
        hint = "; UnigramTokenizer.load reads it" if found == _UNIGRAM_FORMAT else ""
        raise ValueError(
            f"expected the format {_FORMAT!r} or {_LIST_FORMAT!r}, got {found!r}{hint}"
        )
    return None if found == _FORMAT else _field(content, "kind", str)


# ---- GPT-2's alphabet -------------------------------------------------------------------------


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


def _alphabet() -> list[str]:
    """The characters of the bytes 0 to 255."""
    alphabet = bytes_to_unicode()
    return [alphabet[byte] for byte in range(256)]


def _spellings(
    merges: Merges, ids: Sequence[int], specials: Mapping[str, int]
) -> tuple[dict[str, int], list[list[str]]]:
    """All tokens and all merges in GPT-2's alphabet, special tokens under their names."""
    spelled = _alphabet()
    for left, right in merges:
        spelled.append(spelled[left] + spelled[right])
    vocab = dict(zip(spelled, ids, strict=True))
    if twice := vocab.keys() & specials.keys():
        raise ValueError(f"expected special tokens named like no token, got {sorted(twice)}")
    by_id = dict(sorted([*vocab.items(), *specials.items()], key=lambda item: item[1]))
    return by_id, [[spelled[left], spelled[right]] for left, right in merges]


def from_spellings(
    vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], specials: Mapping[str, int]
) -> dict:
    """The settings of tokens spelled in GPT-2's alphabet.

    Every entry of the vocabulary must be a byte, made by a merge, or special: otherwise merges are
    missing, and texts would be encoded differently without a word.
    """
    spelled = _alphabet()
    spelled += [left + right for left, right in merges]
    numbers = {token: number for number, token in enumerate(spelled)}
    for kind, wanted in (("bytes", spelled[:256]), ("merges", spelled[256:])):
        if absent := [token for token in wanted if token not in vocab]:
            raise ValueError(
                f"expected the vocabulary to hold all {kind}, got none for {absent[0]!r}"
            )
    if unmade := vocab.keys() - numbers.keys() - specials.keys():
        raise ValueError(
            f"expected a merge for each entry of the vocabulary, or its name among the special "
            f"tokens, got {len(unmade)} others, such as {min(unmade)!r}; is it a special token "
            "(specials=), or was a file cut off?"
        )
    for name in specials.keys() & vocab.keys():
        if vocab[name] != specials[name] or name in numbers:
            raise ValueError(f"expected one meaning for {name!r}, got a token and a special token")
    for left, right in merges:
        # Not {left, right} - numbers.keys(), which walks through all the keys, for each merge.
        if absent := [part for part in (left, right) if part not in numbers]:
            raise ValueError(f"expected merges of known tokens, got {sorted(absent)}")
    return {
        "merges": [(numbers[left], numbers[right]) for left, right in merges],
        "ids": [vocab[token] for token in spelled],
        "specials": specials,
    }


def pair_of_spellings(merge: str | Sequence[str]) -> tuple[str, str]:
    """One merge as a file spells it: `Ġ t`, or `["Ġ", "t"]`."""
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if not (isinstance(parts, list) and len(parts) == 2 and all(isinstance(p, str) for p in parts)):
        raise ValueError(f"expected a merge of two tokens, got {merge!r}; was the file cut off?")
    return parts[0], parts[1]


# ---- GPT-2's files ----------------------------------------------------------------------------


def write_gpt2(
    folder: _Path, merges: Merges, ids: Sequence[int], specials: Mapping[str, int]
) -> None:
    """Write `vocab.json` and `merges.txt`."""
    vocab, pairs = _spellings(merges, ids, specials)
    Path(folder).mkdir(parents=True, exist_ok=True)
    _write_json(Path(folder, "vocab.json"), vocab)
    lines = ["#version: 0.2", *map(" ".join, pairs), ""]
    write_text(Path(folder, "merges.txt"), "\n".join(lines))


def read_gpt2(
    folder: _Path,
    specials: Collection[str],
    *,
    names: tuple[str, str] = ("vocab.json", "merges.txt"),
) -> dict:
    """The settings in `vocab.json` and `merges.txt`, of which these entries are special tokens."""
    of_ids, of_merges = names
    vocab = _read_json(Path(folder, of_ids))
    lines = _read(Path(folder, of_merges)).split("\n")
    if lines[0].startswith("#version"):
        del lines[0]
    if absent := set(specials) - set(vocab):
        raise ValueError(f"expected the special tokens {sorted(absent)} in {of_ids}")
    pairs = [pair_of_spellings(line.removesuffix("\r")) for line in lines if line]
    return from_spellings(vocab, pairs, {name: vocab[name] for name in specials})


# ---- Hugging Face's file ----------------------------------------------------------------------


def write_hugging_face(
    path: _Path,
    *,
    merges: Merges,
    ids: Sequence[int],
    specials: Mapping[str, int],
    pattern: str | None,
    add_prefix_space: bool,
    gpt2_pattern: str,
) -> None:
    """Write a `tokenizer.json`; whatever its format has besides is written as off."""
    if pattern not in (None, gpt2_pattern):
        raise ValueError(f"expected GPT-2's pattern or none, got {pattern!r}")
    vocab, pairs = _spellings(merges, ids, specials)
    level = {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": False}
    level |= {"use_regex": pattern is not None}
    flags = {**dict.fromkeys(_OTHER_ADDED, False), "normalized": False, "special": True}
    ordered = sorted(specials.items(), key=lambda special: special[1])
    added = [{"id": number, "content": name, **flags} for name, number in ordered]
    model = {"type": "BPE", "unk_token": None, "fuse_unk": False, **_OTHER_BPE}
    content: dict[str, object] = {"version": "1.0", "truncation": None, "padding": None}
    content |= {
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
    }
    content |= {"decoder": level, "model": {**model, "vocab": vocab, "merges": pairs}}
    _write_json(path, content)


def read_hugging_face(path: _Path, specials: Collection[str], *, gpt2_pattern: str) -> dict:
    """The settings in a `tokenizer.json`, or a refusal of what would give other ids than ours.

    Special tokens are those that the file names, and these entries of its vocabulary.
    """
    content = _read_json(path)
    level, model = _field(content, "pre_tokenizer", dict), _field(content, "model", dict)
    level.setdefault("use_regex", True)  # absent in older files, as in GPT-2's own
    model.setdefault("type", "BPE")  # so is this; the fields below are those of no other type
    added, vocab = _field(content, "added_tokens", list), _field(model, "vocab", dict)
    named = {_field(token, "content", str): _field(token, "id", int) for token in added}
    if absent := sorted(set(specials) - named.keys() - vocab.keys()):
        raise ValueError(f"expected the special tokens {absent} in the file, got none so named")
    named |= {name: vocab[name] for name in specials if name not in named}
    _check_hugging_face(content, level, model, added)
    pairs = [pair_of_spellings(pair) for pair in _field(model, "merges", list)]
    return {
        **from_spellings(vocab, pairs, named),
        "pattern": gpt2_pattern if _field(level, "use_regex", bool) else None,
        "add_prefix_space": _field(level, "add_prefix_space", bool),
    }


def _check_hugging_face(content: dict, level: dict, model: dict, added: list) -> None:
    """Refuse what would give other ids than ours, and say what it was."""
    types = [_field(part, "type", str) for part in (model, level)]
    if types != ["BPE", "ByteLevel"]:
        raise ValueError(f"expected a model BPE and a pre-tokenizer ByteLevel, got {types}")
    post = content.get("post_processor")
    if not _adds_nothing(post):
        raise ValueError(
            "expected no post-processor, ByteLevel, or a template that adds no token, got "
            f"{json.dumps(post)[:200]}"
        )
    asked = [(name, content.get(name)) for name in ("normalizer", "truncation", "padding")]
    asked += [(name, model.get(name)) for name in _OTHER_BPE]
    asked += [(name, token.get(name)) for token in added for name in _OTHER_ADDED]
    asked += [("special", False) for token in added if not token.get("special")]
    if refused := [(name, value) for name, value in asked if value or name == "special"]:
        raise ValueError(f"expected nothing that would give other ids than ours, got {refused}")


def _adds_nothing(post: object) -> bool:
    """Whether a post-processor leaves the ids as they are: `transformers` writes such templates."""
    match post:
        case None | {"type": "ByteLevel"}:  # which only moves offsets
            return True
        case {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}]}:
            return True
        case {"type": "Sequence", "processors": [*parts]}:
            return all(map(_adds_nothing, parts))
    return False


_OTHER_BPE = {
    "dropout": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "byte_fallback": False,
    "ignore_merges": False,
}
_OTHER_ADDED = ["single_word", "lstrip", "rstrip"]


# ---- reading and writing ----------------------------------------------------------------------


def _read(path: _Path) -> str:
    path = Path(path)
    if (size := path.stat().st_size) > _LARGEST_FILE:
        raise ValueError(f"expected at most {_LARGEST_FILE:,} bytes in {path.name}, got {size:,}")
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"expected UTF-8 in {path.name}: {error}") from None


def _read_json(path: _Path) -> dict:
    text, name = _read(path), Path(path).name
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected JSON in {name}, got none: {error}; was it cut off?") from None
    if not isinstance(content, dict):
        raise ValueError(f"expected a JSON object in {name}, got {type(content).__name__}")
    return content


def _field(content: object, name: str, kind: type[_Kind]) -> _Kind:
    """One entry, which must be there and be of this kind."""
    value = content.get(name) if isinstance(content, dict) else None
    if type(value) is not kind:
        raise ValueError(f"expected {name!r} as {kind.__name__}, got {type(value).__name__}")
    return value


@contextlib.contextmanager
def naming(path: _Path) -> Iterator[None]:
    """Say which file an error is about."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error


def _write_json(path: _Path, content: object) -> None:
    write_text(path, json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")
