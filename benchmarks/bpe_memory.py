"""How much memory does training take, when the text is far larger than that? Run by `make bench`.

200 MB of generated text, drawn by Zipf's law from 300,000 made-up words, come one piece at a time.
What must be held is the different words: their counts, their symbols and the index of their pairs.
The figure is the greatest memory that this whole process had, Python and the generator included.
"""

import random
import resource
import sys
from itertools import accumulate

from benchmarks.shared.rounds import record, seconds
from src.tokens.bpe import BytePairTokenizer

SIZE, N_WORDS, VOCAB_SIZE, SEED = 200_000_000, 300_000, 4_096, 0
LIMIT, LEAST_WORDS = 500, 200_000  # megabytes; different words


def made_up_words(generator):
    """Different words of two to five syllables."""
    syllables = [c + v for c in "bcdfghjklmnprstvwz" for v in "aeiou"]
    words = {}
    while len(words) < N_WORDS:
        words["".join(generator.choices(syllables, k=generator.randint(2, 5)))] = None
    return list(words)


def zipf_texts(drawn, total):
    """Texts of 10,000 words, the k-th word with a frequency like 1/k, until there are enough.

    Args:
        drawn: a set, to which the drawn words are added.
        total: a list, to which the number of bytes of each text is added.
    """
    generator = random.Random(SEED)
    words = made_up_words(generator)
    weights = list(accumulate(1 / rank for rank in range(1, N_WORDS + 1)))
    size = 0
    while size < SIZE:
        chosen = generator.choices(words, cum_weights=weights, k=10_000)
        drawn.update(chosen)
        text = " ".join(chosen)
        size += len(text)
        total.append(len(text))
        yield text


def main():
    drawn, sizes = set(), []
    tokenizer, took = seconds(BytePairTokenizer.train, zipf_texts(drawn, sizes), VOCAB_SIZE)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak /= 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kilobytes elsewhere
    record(
        "bpe_memory",
        [
            "# Memory for training byte-pair encoding",
            "",
            "Written by `make bench` (`benchmarks/bpe_memory.py`).",
            "",
            f"- {sum(sizes):,} bytes of text in {len(sizes):,} pieces, {len(drawn):,} different "
            f"words by Zipf's law, {tokenizer.vocabulary_size:,} tokens",
            f"- greatest memory of the process: **{peak:,.0f} MB** (asked: under {LIMIT})",
            f"- {took:,.0f} s, of which a good part goes to generating",
        ],
    )
    if len(drawn) < LEAST_WORDS:
        sys.exit(f"expected {LEAST_WORDS:,} different words, got {len(drawn):,}")
    sys.exit(f"missed: {peak:,.0f} MB" if peak >= LIMIT else 0)


if __name__ == "__main__":
    main()
