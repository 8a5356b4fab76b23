"""Which documents has the model as good as read already?

    J(A, B)  = |A ∩ B| / |A ∪ B|                   of the word n-grams of two documents
    found    = 1 - (1 - J^rows)^bands              by hashes: the probability to be compared at all

Near-copies are found by MinHash and removed (`remove_near_duplicates`). Sources: Broder 1997; on
repeated text Lee et al. 2022. Chapter: `gpt/data_overlap`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..texts.corpora import Document, word_ngrams


class NearDuplicate(NamedTuple):
    """Two documents that share most of their shingles, by their places, the earlier one first."""

    earlier: int
    later: int
    similarity: float


def jaccard(one: Iterable[str], other: Iterable[str]) -> float:
    """What two sets share, over what they hold together: |A ∩ B| / |A ∪ B|, in [0, 1].

    >>> jaccard("abc", "bcd")
    0.5
    """
    one, other = set(one), set(other)
    return len(one & other) / len(one | other)


def candidate_probability(similarity: float, *, bands: int, rows: int) -> float:
    """How probably two sets of that Jaccard similarity s are compared at all: 1 - (1 - s^r)^b.

    Their MinHash signatures are cut into b bands of r numbers; two sets are compared if they agree
    in all of a band. See the chapter for why each number agrees with probability s.

    >>> round(candidate_probability(0.8, bands=9, rows=13), 3)
    0.399

    Raises:
        ValueError: a similarity out of [0, 1].
    """
    if not 0 <= similarity <= 1:
        raise ValueError(f"expected a similarity from 0 to 1, got {similarity}")
    return 1 - (1 - similarity**rows) ** bands


def near_duplicates(
    documents: Sequence[Document],
    *,
    threshold: float = 0.8,
    n: int = 5,
    bands: int = 32,
    rows: int = 4,
    seed: int = 1,
) -> list[NearDuplicate]:
    """All pairs of documents whose sets of word n-grams have a Jaccard similarity >= `threshold`.

    Comparing every pair takes a time that grows with the square of their number. Only pairs that
    agree in a band of their MinHash signatures are compared here, and these exactly: so every pair
    given is one, and a pair of similarity s is missed with probability (1 - s^r)^b, which for the
    defaults is 5e-8 at the threshold. Documents with fewer than n words are left alone.

    Args:
        documents: in the order by which the pairs are named and sorted.
        threshold: the least similarity, in (0, 1].
        n: words in a shingle.
        bands, rows: b and r; the signature has b r numbers.
        seed: of the hash functions.
    Raises:
        ValueError: a threshold out of range, or no word in a shingle.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"expected a threshold above 0 and at most 1, got {threshold}")
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(num_perm=bands * rows, params=(bands, rows))
    shingles = [set(word_ngrams(document.text, n)) for document in documents]
    empty, pairs = MinHash(num_perm=bands * rows, seed=seed), []
    for later, own in enumerate(shingles):
        if not own:
            continue
        signature = empty.copy()
        signature.update_batch([shingle.encode() for shingle in own])
        for earlier in sorted(index.query(signature)):
            similarity = jaccard(shingles[earlier], own)
            if similarity >= threshold:
                pairs.append(NearDuplicate(earlier, later, similarity))
        index.insert(later, signature)
    return pairs


def remove_near_duplicates(
    documents: Sequence[Document], pairs: Iterable[NearDuplicate]
) -> tuple[Document, ...]:
    """The documents without any that is nearly the same as an earlier one that stays.

    Args:
        documents: in the order that decides which of two stays.
        pairs: what `near_duplicates` found among these documents.
    """
    removed: set[int] = set()
    for pair in sorted(pairs, key=lambda pair: pair.later):
        if pair.earlier not in removed:
            removed.add(pair.later)
    return tuple(each for place, each in enumerate(documents) if place not in removed)
