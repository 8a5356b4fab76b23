"""Which tokenizer belongs to a folder, and where is GPT-2's own to be had? No weights are read.

    a run              run.toml         tokenizer.json, ours
    tokens of a text   manifest.json    tokenizer.json, ours
    a released model   config.json      vocab.json with merges.txt, or tokenizer.json, its format

The last is that of Hugging Face's library `tokenizers`: a vocabulary and merges as GPT-2's files
have them, how a text is cut, and much that would give other ids than ours, which is refused. For
`next-token tokenize`, whose processes have no use for torch.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from src.tokens.bpe import GPT2_PATTERN, BytePairTokenizer
from src.tokens.bytes import END, Tokenizer
from src.tokens.files import (
    GPT2_FILES,
    fetched,
    from_spellings,
    load_gpt2,
    naming,
    pair_of_spellings,
    read_json,
)
from src.tokens.files import open_tokenizer as open_ours

TOKENIZER = "tokenizer.json"
MANIFEST = "manifest.json"
# What a file, its model and its special tokens may ask for, all of which would give other ids.
_FILE = ("normalizer", "truncation", "padding")
_MODEL = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
_MODEL += ("ignore_merges",)
_TOKEN = ("single_word", "lstrip", "rstrip")


def gpt2_tokenizer(folder: str | os.PathLike[str] | None = None) -> BytePairTokenizer:
    """GPT-2's own tokenizer, fetched unless its two files are there already. 1.5 MB.

    Args:
        folder: as for `src.tokens.files.fetched`.
    Raises:
        OSError: a file could not be fetched.
    """
    return load_gpt2(fetched("gpt2", GPT2_FILES, folder))


def open_tokenizer(folder: Path | str) -> Tokenizer:
    """The tokenizer of a run, of tokens of a text, or of a released model, without any weights.

    Raises:
        FileNotFoundError: the folder holds no tokenizer.
        ValueError: its files are damaged.
    """
    path, vocabulary = Path(folder, TOKENIZER), Path(folder, GPT2_FILES[0])
    released = Path(folder, "config.json").exists() and not Path(folder, "run.toml").exists()
    if released and path.exists() and not vocabulary.exists():
        return load_hugging_face(path, (END,))
    return open_ours(folder)


def load_hugging_face(path: Path | str, specials: Collection[str] = ()) -> BytePairTokenizer:
    """The tokenizer of a `tokenizer.json` that holds byte-level byte-pair encoding.

    Args:
        path: the file.
        specials: names that must be special tokens, whether the file lists them as such or, as
            `tokenizers.ByteLevelBPETokenizer` does, only in its vocabulary.
    Raises:
        ValueError: the file is not such a file, not whole or not in order, or asks for what our
            tokenizer does not do (another model, a normaliser, another pre-tokenizer, …).
    """
    with naming(path):
        match read_json(path):
            case {
                "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": bool(prefix)} as level,
                "model": {"vocab": dict(vocab), "merges": list(merges)} as model,
                "added_tokens": list(added),
            } as content if model.get("type", "BPE") == "BPE":
                _check(content, model, added)
                named = {token["content"]: token["id"] for token in added}
                if absent := sorted(set(specials) - named.keys() - vocab.keys()):
                    raise ValueError(f"expected the special tokens {absent} in the file, got none")
                named |= {name: vocab[name] for name in specials if name not in named}
                arguments = from_spellings(vocab, [*map(pair_of_spellings, merges)], named)
                pattern = GPT2_PATTERN if level.get("use_regex", True) else None
                return BytePairTokenizer(**arguments, pattern=pattern, add_prefix_space=prefix)
        raise ValueError("expected a model BPE, whole, and a pre-tokenizer ByteLevel")


def _check(content: dict, model: dict, added: list) -> None:
    """Refuse what would give other ids than ours, and say what it was."""
    parts = [(content, _FILE), (model, _MODEL), *((token, _TOKEN) for token in added)]
    asked = [(name, part[name]) for part, names in parts for name in names if part.get(name)]
    asked += [("special", False) for token in added if not token.get("special")]
    if not _adds_nothing(content.get("post_processor")):
        asked.append(("post_processor", content["post_processor"]))
    if asked:
        raise ValueError(f"expected nothing that would give other ids than ours, got {asked}")


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
