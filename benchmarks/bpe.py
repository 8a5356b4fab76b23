"""How fast does `src.tokens` train and encode, beside Rust? Run by `make bench`.

Training: a megabyte of the embedded English, to 512, 1,024 and 4,096 tokens, against Hugging Face's
`tokenizers` and `rustbpe`; and 100 kB to 512 tokens against a trainer in plain Python that counts
all pairs of all words again at each step. Encoding: the topics of `help()` and the sources of the
standard library, 10 MB, with 4,096 tokens learned from the first 4 MB, against `tiktoken` and
`tokenizers`, special tokens off in all of them. Nobody remembers a word from one round to the next:
each round builds every encoder anew, and building is not timed. All use one thread.
"""

import os
import sys
import sysconfig
import tempfile
from collections import Counter
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}

import regex
import rustbpe
import tiktoken
import tokenizers

from benchmarks.shared.rounds import finish, seconds
from src.texts.corpora import load
from src.tokens.bpe import GPT2_PATTERN, BytePairTokenizer
from src.tokens.files import load_gpt2, save_gpt2

ROUNDS, ROUNDS_RECOUNTING = 9, 3
TARGETS = {
    "training 1 MB to 1,024, time against tokenizers": ("≤", 1.0),
    "training 1 MB to 4,096, time against tokenizers": ("≤", 1.0),
    "training 1 MB to 1,024, time against rustbpe": ("≤", 4),
    "training 1 MB to 4,096, time against rustbpe": ("≤", 4),
    "training 100 kB to 512, speed against recounting": ("≥", 100),
    "encoding 10 MB, speed against tiktoken": ("≥", 0.35),
    "encoding 10 MB, speed against tokenizers": ("≥", 2.5),
}


# --- training ---


def train(text, vocabulary_size):
    return BytePairTokenizer.train(text, vocabulary_size, specials=()).merges


def tokenizers_train(text, vocabulary_size):
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer = tokenizers.Tokenizer(tokenizers.models.BPE())
    peer.pre_tokenizer = level
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary_size, initial_alphabet=level.alphabet(), show_progress=False
    )
    peer.train_from_iterator([text], trainer)
    return peer


def rustbpe_train(text, vocabulary_size):
    peer = rustbpe.Tokenizer()
    peer.train_from_iterator(iter([text]), vocabulary_size, pattern=GPT2_PATTERN)
    return peer


def recounting_train(text, vocabulary_size):
    """All pairs of all words counted at every step, and every word merged: nothing is kept."""
    words = [list(word.encode()) for word in regex.findall(GPT2_PATTERN, text)]
    merges = []
    for new in range(256, vocabulary_size):
        counts = Counter()
        for word in words:
            counts.update(pairwise(word))
        merges.append(min(counts, key=lambda pair: (-counts[pair], pair)))
        words = [merged(word, merges[-1], new) for word in words]
    return merges


def merged(word, pair, new):
    result, place = [], 0
    while place < len(word):
        if tuple(word[place : place + 2]) == pair:
            result.append(new)
            place += 2
        else:
            result.append(word[place])
            place += 1
    return result


def training_round(text):
    """Our time over each peer's."""
    ratios = {}
    for vocabulary_size in (1_024, 4_096):
        _, ours = seconds(train, text, vocabulary_size)
        for name, peer in (("tokenizers", tokenizers_train), ("rustbpe", rustbpe_train)):
            _, theirs = seconds(peer, text, vocabulary_size)
            ratios[f"training 1 MB to {vocabulary_size:,}, time against {name}"] = ours / theirs
    return ratios


def recounting_round(text):
    merges, ours = seconds(train, text, 512)
    expected, theirs = seconds(recounting_train, text, 512)
    if merges != expected:
        sys.exit("the merges are not those of the recounting trainer")
    return {"training 100 kB to 512, speed against recounting": theirs / ours}


# --- encoding ---


def library_text(size):
    """The topics of `help()` and the sources of the standard library, the first `size` bytes."""
    from pydoc_data.topics import topics

    parts = [text for _, text in sorted(topics.items())]
    held = sum(len(part.encode()) for part in parts)
    folder = Path(sysconfig.get_path("stdlib"))
    for path in sorted(folder.rglob("*.py")):
        if "site-packages" in path.parts or held >= size:
            continue
        source = path.read_bytes().decode("utf-8", "replace")
        parts.append(source)
        held += len(source.encode())
    return "".join(parts).encode()[:size].decode("utf-8", "ignore")


def tiktokens(tokenizer):
    ranks = {tokenizer.token_bytes(number): number for number in range(tokenizer.vocabulary_size)}
    return tiktoken.Encoding("ours", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={})


def encoding_round(text, tokenizer, folder):
    """Each peer's time over ours."""
    ours = load_gpt2(folder, ())
    theirs = tokenizers.ByteLevelBPETokenizer(f"{folder}/vocab.json", f"{folder}/merges.txt")
    ids, own = seconds(ours.encode, text)
    tiktoken_ids, one = seconds(tiktokens(tokenizer).encode_ordinary, text)
    encoding, other = seconds(theirs.encode, text)
    if not ids == tiktoken_ids == encoding.ids:
        sys.exit("the ids differ")
    return {
        "encoding 10 MB, speed against tiktoken": one / own,
        "encoding 10 MB, speed against tokenizers": other / own,
    }


def main():
    english = "\n".join(document.text for document in load("python-docs")).encode()
    megabyte = english[:1_000_000].decode("utf-8", "ignore")
    library = library_text(10_000_000)
    tokenizer = BytePairTokenizer.train(library[:4_000_000], 4_096, specials=())
    rounds = [training_round(megabyte) for _ in range(ROUNDS)]
    rounds += [recounting_round(megabyte[:100_000]) for _ in range(ROUNDS_RECOUNTING)]
    with tempfile.TemporaryDirectory() as folder:
        save_gpt2(tokenizer, folder)
        rounds += [encoding_round(library, tokenizer, folder) for _ in range(ROUNDS)]
    names = ("tokenizers", "rustbpe", "tiktoken", "regex")
    finish(
        "bpe",
        [
            "# Byte-pair encoding beside Rust",
            "",
            f"Written by `make bench` (`benchmarks/bpe.py`): {ROUNDS} interleaved rounds "
            f"({ROUNDS_RECOUNTING} against",
            "recounting), one ratio a round. Time is ours over theirs, speed theirs over ours in "
            "time.",
        ],
        rounds,
        TARGETS,
        [
            f"- {len(megabyte.encode()):,} bytes of the embedded English to train on, "
            f"{len(library.encode()):,} of topics and sources to encode",
            "- the 4,096 tokens were learned from the first 4 MB of the text that is encoded; "
            "GPT-2's own: results/benchmarks/bpe_gpt2.md",
            "- the ids are equal, and the merges are those of the recounting trainer",
            "- " + ", ".join(f"{name} {version(name)}" for name in names),
        ],
    )


if __name__ == "__main__":
    main()
