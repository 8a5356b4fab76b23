"""Which pairs are to be merged, found without counting all of them anew at each step?

**Ties**: of equally frequent pairs, the smallest (id, id). **Overlaps**: every pair of neighbours
counts, so `aaa` holds (a, a) twice, though merging it from left to right makes one token and
leaves one `a`.

Inside this module a word is a string with one *symbol* for each token, chr(number): a pair is then
a string of length two, and `word.replace(pair, new)` merges it everywhere, from left to right.

Source: Sennrich et al. 2016. Derived in the chapter `tokens/fast_bpe`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from operator import add

from ..tools.progress import progress as progress_bar


def learn_merges(
    word_counts: Mapping[str, int], n_merges: int, *, progress: bool = False
) -> list[tuple[int, int]]:
    """The pairs to merge, the first merged first; the tokens are the bytes 0 to 255, then 256, ….

    Ten times `low`, five times `lot`: `lo` first, then `low`, then `lot`.

    >>> learn_merges({"low": 10, "lot": 5}, 3)
    [(108, 111), (256, 119), (256, 116)]

    Args:
        word_counts: how often each word occurs.
        n_merges: how many merges to learn; fewer come back if all words are one token before.
        progress: whether to show a bar.
    """
    index = PairIndex(word_counts)
    merges = []
    steps = range(256, 256 + n_merges)
    for number in progress_bar(steps, "merging") if progress else steps:
        pair = index.most_frequent()
        if pair is None:
            break
        index.merge(pair, chr(number))
        merges.append((ord(pair[0]), ord(pair[1])))
    return merges


class PairIndex:
    """Which pair of neighbours is the most frequent, and which words hold it?

    Only the words that hold the merged pair are touched, only the counts beside it change, and the
    most frequent pair is on top of a heap. A heap's entries cannot be changed, but every new pair
    holds the newest symbol: afterwards its count can only fall. So an entry of the heap is never
    too low, and it is enough to look at the entry on top: if it is out of date, put it back right.

    Args:
        word_counts: how often each word occurs.
    """

    def __init__(self, word_counts: Mapping[str, int]):
        self.words = list(map(symbols, word_counts))
        self.counts = list(word_counts.values())
        self.pair_counts: defaultdict[str, int] = defaultdict(int)
        self.where = defaultdict(list)  # the numbers of the words that hold, or once held, a pair
        for number, (word, count) in enumerate(zip(self.words, self.counts, strict=True)):
            for pair in pairs_of(word):
                self.pair_counts[pair] += count
                self.where[pair].append(number)
        self.heap = [(-count, pair) for pair, count in self.pair_counts.items()]
        heapify(self.heap)

    def most_frequent(self) -> str | None:
        """The pair to merge, the smallest of equally frequent ones; None: no pairs are left."""
        while self.heap:
            count, pair = heappop(self.heap)
            current = -self.pair_counts.get(pair, 0)
            if count == current:
                return pair
            if current:
                heappush(self.heap, (current, pair))
        return None

    def merge(self, pair: str, new: str) -> None:
        """Write `new` for the pair in every word, and bring the counts up to date.

        `xaby` becomes `xNy`: `xa` and `by` have gone, `xN` and `Ny` have come. Where two new
        symbols touch, as in `abab`, the one before was `ab` and ended in `b`.
        """
        left, right = pair
        befores, afters = defaultdict(list), defaultdict(list)  # neighbour -> numbers of words
        for number in dict.fromkeys(self.where.pop(pair)):  # each word once, however often it held
            word = self.words[number]
            merged = self.words[number] = word.replace(pair, new)
            if len(merged) == len(word):  # the pair has gone from this word before
                continue
            place = merged.find(new)
            while place >= 0:
                if place > 0:
                    befores[merged[place - 1]].append(number)
                place += 1
                after = merged[place : place + 1]
                if after and after != new:  # else it is counted there, as the one before
                    afters[after].append(number)
                place = merged.find(new, place)
        for before, numbers in befores.items():
            self._replace((right if before == new else before) + left, before + new, numbers)
        for after, numbers in afters.items():
            self._replace(right + after, new + after, numbers)
        del self.pair_counts[pair]

    def _replace(self, old: str, made: str, numbers: list[int]) -> None:
        """Count a pair that was made of an old one, once for each number of a word."""
        count = sum(map(self.counts.__getitem__, numbers))
        self.pair_counts[old] -= count
        self.pair_counts[made] = count
        self.where[made] = numbers
        heappush(self.heap, (-count, made))


def symbols(word: str) -> str:
    """The word's bytes as symbols, one character each from U+0000 to U+00FF.

    >>> symbols("né")
    'nÃ©'
    """
    return word.encode().decode("latin-1")


def pairs_of(word: str) -> Iterable[str]:
    """The pairs of neighbours in a word of symbols: `aab` has `aa` and `ab`."""
    return map(add, word, word[1:])
