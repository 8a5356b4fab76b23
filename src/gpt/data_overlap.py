"""How much of a test text has the model already seen?

    share  = n-grams of the test text that occur in the training text / n-grams of the test text
    rate   = (1 - (1 - 1/m)^(k n))^k                a Bloom filter of m bits, k hashes, n items
    m      = -n ln p / (ln 2)^2,   k = (m / n) ln 2      the least m for a wanted rate p
    E[reported share] = share + (1 - share) rate         a filter errs in one direction only

Texts are compared as GPT-2's authors did: as eight lower-cased alphanumeric words in a row
(`corpora.word_ngrams`), which never cross the border of a document. They are kept in a set, or, if
there are too many, in a Bloom filter.

Sources: Bloom 1970; Radford et al. 2019, section 4. Chapter: `gpt/data_overlap`.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ..texts.corpora import word_ngrams

_CHUNK = 1 << 16  # items hashed at a time, so that memory stays with the filter


# ---- a set that forgets what it holds ----------------------------------------------------------


def false_positive_rate(bits: int, hashes: int, items: int) -> float:
    """How often a filter that holds so many items is expected to find one that it does not hold.

    A bit stays 0 if none of the k n hashes hits it, with probability (1 - 1/m)^(k n). An item that
    is not held is found all the same if its k bits are all 1. (Strictly, the mean of the k-th power
    is a little more than the k-th power of the mean: by a share of order 1/m.)

    >>> round(false_positive_rate(1_000, 7, 100), 5)
    0.00821

    Args:
        bits, hashes: m and k of the filter.
        items: n, how many different items were put in; may be fewer or more than planned.
    """
    if bits == 1:
        return float(items > 0)
    return float((-math.expm1(hashes * items * math.log1p(-1 / bits))) ** hashes)


def bloom_size(items: int, *, rate: float) -> tuple[int, int]:
    """(bits, hashes): the smallest filter that keeps its false-positive rate at or below `rate`.

    The formulas at the head of this module give a k that is no whole number. Of the two whole ones
    beside it, this takes the one that needs fewer bits, and then just enough of them.

    >>> bloom_size(1_000, rate=0.01)
    (9594, 7)

    Args:
        items: how many different items will be put in.
        rate: the wanted false-positive rate, in (0, 1).
    Raises:
        ValueError: a rate that is not between 0 and 1.
    """
    if not 0 < rate < 1:
        raise ValueError(f"expected a rate between 0 and 1, got {rate}; what never errs is a set")
    best = -math.log2(rate)

    def bits_with(hashes: int) -> int:
        ones = rate ** (1 / hashes)  # the share of 1s at which k of them are hit with `rate`
        return math.ceil(-1 / math.expm1(math.log1p(-ones) / (hashes * items)))

    choices = {max(1, math.floor(best)), math.ceil(best)}
    return min((bits_with(hashes), hashes) for hashes in choices)


class BloomFilter:
    """A set of strings in a fixed number of bits, which never forgets one, and invents a few.

    An item sets k of m bits, chosen by a hash. It is found if all k are set: certainly if it was
    put in, and by bad luck, with probability `rate`, if it was not. Nothing can be taken out, and
    nothing listed. The hash is SHAKE-128, so that a filter is the same in each process and on
    each machine; Python's own `hash` of a string is not.

    >>> seen = BloomFilter.sized(100, rate=0.01)
    >>> seen.update(["to be or not"])
    >>> "to be or not" in seen, "not to be or" in seen
    (True, False)

    Args:
        bits: m. `sized` works it out from a wanted rate.
        hashes: k.
        seed: filters with different seeds err on different items.
    """

    def __init__(self, *, bits: int, hashes: int, seed: int = 0):
        self.bits, self.hashes, self.seed = bits, hashes, seed
        self._prefix = f"{seed}\n".encode()
        self._bytes = np.zeros(-(-bits // 8), dtype=np.uint8)

    @classmethod
    def sized(cls, items: int, *, rate: float, seed: int = 0) -> "BloomFilter":
        """An empty filter for so many items at a false-positive rate; see `bloom_size`."""
        bits, hashes = bloom_size(items, rate=rate)
        return cls(bits=bits, hashes=hashes, seed=seed)

    @property
    def fill(self) -> float:
        """The share of the bits that are 1."""
        return int(np.bitwise_count(self._bytes).sum()) / self.bits

    @property
    def rate(self) -> float:
        """The false-positive rate of the filter as it is now: all k bits of a new item are 1."""
        return self.fill**self.hashes

    def update(self, items: Iterable[str]) -> None:
        """Put some strings in.

        Raises:
            TypeError: one string instead of several, or an item that is not a string.
        """
        for places in self._places(items):
            flat = places.reshape(-1)
            np.bitwise_or.at(self._bytes, flat >> 3, np.uint8(1) << (flat & 7).astype(np.uint8))

    def contains(self, items: Iterable[str]) -> np.ndarray:
        """Whether each string is found, (N,) of truth values: fast for many.

        Raises:
            TypeError: one string instead of several, or an item that is not a string.
        """
        parts = [
            ((self._bytes[places >> 3] >> (places & 7).astype(np.uint8)) & 1).all(-1)  # (N,)
            for places in self._places(items)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=bool)

    def __contains__(self, item: str) -> bool:
        return bool(self.contains([item])[0])

    def _places(self, items: Iterable[str]) -> Iterator[np.ndarray]:
        """The k bits of each item, (N, k), some thousands of items at a time."""
        if isinstance(items, str):
            raise TypeError(f"expected several strings, got one: write [{items[:20]!r}…]")
        items, length = iter(items), 8 * self.hashes
        while chunk := list(islice(items, _CHUNK)):
            if odd := [item for item in chunk if not isinstance(item, str)]:
                raise TypeError(f"expected strings, got {odd[0]!r}; decode ids of tokens first")
            digests = [
                hashlib.shake_128(self._prefix + item.encode()).digest(length) for item in chunk
            ]
            numbers = np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, self.hashes)
            yield (numbers % np.uint64(self.bits)).astype(np.int64)


# ---- overlap -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overlap:
    """For each of D documents, how many of its n-grams were seen.

    Attributes:
        matches: (D,), the n-grams that were seen, each counted as often as it occurs.
        grams: (D,), all of them; 0 for a document with fewer than n words.
    """

    matches: np.ndarray
    grams: np.ndarray

    @property
    def share(self) -> float:
        """The n-grams seen, in all documents together, as a share of all n-grams."""
        return float(self.matches.sum() / self.grams.sum())

    @property
    def error(self) -> float:
        """The standard error of `share` if the documents are a sample, as n-grams are not."""
        rest = self.matches - self.share * self.grams
        return float(np.sqrt(np.square(rest).sum()) / self.grams.sum())

    @property
    def shares(self) -> np.ndarray:
        """The share of each document, (D,); NaN where it is too short to have an n-gram."""
        return np.where(self.grams > 0, self.matches / np.maximum(self.grams, 1), np.nan)

    @property
    def short(self) -> tuple[int, ...]:
        """Which documents are too short: nothing is known of them, they count in no share."""
        return tuple(np.flatnonzero(self.grams == 0).tolist())


@dataclass(frozen=True)
class NgramSet:
    """The word n-grams of the training texts; see `remember`.

    Attributes:
        n: how many words are in each.
        grams: a set, which is exact, or a Bloom filter.
    """

    n: int
    grams: set[str] | BloomFilter

    def flags(self, text: str) -> np.ndarray:
        """Whether each n-gram of a text was seen, (G,), in order.

        >>> remember(["a b c d"], n=2).flags("b c, b d").tolist()
        [True, False, False]
        """
        grams = word_ngrams(text, self.n)
        if isinstance(self.grams, BloomFilter):
            return self.grams.contains(grams)
        return np.array([gram in self.grams for gram in grams], dtype=bool)

    def overlap(self, texts: Sequence[str]) -> Overlap:
        """How many n-grams of each text were seen.

        >>> remember(["To be, or not to be!"], n=2).overlap(["not to be or else"]).share
        0.75

        Args:
            texts: D documents; no n-gram crosses the border between two.
        Raises:
            ValueError: no text has n words, or it is one string instead of several.
        """
        flags = [self.flags(text) for text in texts]
        grams = np.array([len(each) for each in flags], dtype=np.int64)
        if isinstance(texts, str) or not grams.sum():
            raise ValueError(f"expected texts, one of {self.n} words or more, got {texts!r:.50}")
        return Overlap(np.array([each.sum() for each in flags], dtype=np.int64), grams)


def remember(
    texts: Sequence[str], *, n: int = 8, rate: float | None = None, seed: int = 0
) -> NgramSet:
    """The n-grams of some texts, exactly or in a Bloom filter.

    Args:
        texts: the training documents. They are read twice: to count, and to keep.
        n: words in an n-gram.
        rate: None: a set, exact. Otherwise a filter with room for all n-grams at this
            false-positive rate; as some are equal, its rate will be lower.
        seed: of the filter.
    Raises:
        ValueError: n is below 1, no text has n words, or it is one string instead of several; or
            the rate is not between 0 and 1.
    """
    count = sum(len(word_ngrams(text, n)) for text in texts)
    if isinstance(texts, str) or not count:
        raise ValueError(f"expected texts, one of {n} words or more, got {texts!r:.50}")
    grams: set[str] | BloomFilter = set()
    if rate is not None:
        grams = BloomFilter.sized(count, rate=rate, seed=seed)
    for text in texts:
        grams.update(word_ngrams(text, n))
    return NgramSet(n, grams)
