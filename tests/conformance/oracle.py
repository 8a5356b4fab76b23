"""Byte-pair encoding written down once more, as slowly and plainly as possible.

Nothing is remembered between steps: each one counts all pairs of neighbours in all words again.
Ties go to the smallest pair of ids; `aaa` holds (a, a) twice and is merged once, from the left.
"""

from collections import Counter
from itertools import pairwise


def merged(word, pair, new):
    """A list of ids with `new` for every occurrence of the pair, from left to right."""
    result = []
    for one in word:
        result.append(one)
        if tuple(result[-2:]) == pair:
            result[-2:] = [new]
    return result


def train(words, n_merges):
    """The merges of a list of words, each word as often as it occurs."""
    words, merges = [list(word.encode()) for word in words], []
    for new in range(256, 256 + n_merges):
        counts = Counter(pair for word in words for pair in pairwise(word))
        if not counts:
            break
        merges.append(min(counts, key=lambda pair: (-counts[pair], pair)))
        words = [merged(word, merges[-1], new) for word in words]
    return merges


def encode(words, merges):
    """The ids of a list of words: every merge in the order learned, everywhere."""
    ids = []
    for word in words:
        word = list(word.encode())
        for new, pair in enumerate(merges, start=256):
            if pair[0] in word:  # the only haste
                word = merged(word, pair, new)
        ids += word
    return ids
