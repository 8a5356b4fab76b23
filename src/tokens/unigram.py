"""How likely is a text that has many tokenizations, and how does one learn a vocabulary from that?

A model draws tokens independently, token w with probability p(w). A word has as many segmentations
as there are ways to cut it into tokens, and its probability is their sum. Places 0 … n between its
bytes and an edge i -> j for each token w that stands between two of them make a lattice:

    alpha(j) = sum over edges i -> j of alpha(i) p(w)        P(word) = alpha(n) = beta(0)
    beta(i)  = sum over edges i -> j of p(w) beta(j)         m = alpha(i) p(w) beta(j) / P(word)
    best(j)  = max over edges i -> j of best(i) p(w)         (Viterbi)

where m, an edge's posterior, is the share of the word's probability on the paths through it.

Training: start from many frequent substrings; EM, with these posteriors as fractional counts; drop
the tokens that are missed least; repeat. The 256 bytes stay, so no text is unknown. Everything is
in logarithms and plain Python. Source: Kudo 2018, section 3. Derived in `tokens/unigram`.
"""

from __future__ import annotations

import math
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import NamedTuple

from ..tools.progress import progress as progress_bar
from .bpe import count_words, split_words
from .bytes import END, Tokenizer, enumerated, special_names

# Letters, digits or signs, each with the space before them if there is one; or white space.
PATTERN = r" ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+"
BYTES = tuple(bytes([value]) for value in range(256))
ESCAPE = 1e-5  # the probability that a token is a byte drawn blindly, so that none is impossible
_FLOOR = ESCAPE / len(BYTES)
_MOST = 1 - 1e-12  # no posterior is taken for larger: 1 - m would be rounding and nothing else
_CACHED_WORDS = 1 << 16
_SEEDS, _KEPT = 10, 0.75  # tokens to start from for each to be learnt; the share a pruning leaves

# For each place, the edges that end there: (place where the edge starts, id of its token). Longer
# tokens come first.
Lattice = list[list[tuple[int, int]]]


# ---- one word --------------------------------------------------------------------------------


def lattice(word: bytes, ids: Mapping[bytes, int], *, longest: int | None = None) -> Lattice:
    """All tokens that occur in a word, by the place where they end.

    >>> lattice(b"aa", {b"a": 0, b"aa": 1})
    [[], [(0, 0)], [(0, 1), (1, 0)]]

    Args:
        word: any bytes.
        ids: the id of each token.
        longest: no token has more bytes than this; None: look it up, which takes a while.
    """
    longest = max(map(len, ids)) if longest is None else longest
    return [
        [
            (start, ids[word[start:end]])
            for start in range(max(0, end - longest), end)
            if word[start:end] in ids
        ]
        for end in range(len(word) + 1)
    ]


def forward(edges: Lattice, log_probs: Sequence[float]) -> list[float]:
    """For each place, the log-probability of all ways to spell the bytes before it.

    Returns:
        n + 1 numbers, nats. The first is 0, the last the log-probability of the word.
    """
    alpha = [0.0]
    for ending in edges[1:]:
        alpha.append(_log_sum([alpha[start] + log_probs[token] for start, token in ending]))
    return alpha


def backward(edges: Lattice, log_probs: Sequence[float]) -> list[float]:
    """For each place, the log-probability of all ways to spell the bytes after it.

    Returns:
        n + 1 numbers, nats. The last is 0, the first the log-probability of the word.
    """
    terms: list[list[float]] = [[] for _ in edges]  # of the edges that begin at each place
    beta = [0.0] * len(edges)
    for end in reversed(range(len(edges))):
        if end < len(edges) - 1:
            beta[end] = _log_sum(terms[end])
        for start, token in edges[end]:
            terms[start].append(log_probs[token] + beta[end])
    return beta


def _log_sum(terms: list[float]) -> float:
    """log sum exp; -inf for no terms at all."""
    if len(terms) == 1:
        return terms[0]
    most = max(terms, default=-math.inf)
    if most == -math.inf:
        return most
    return most + math.log(sum([math.exp(term - most) for term in terms]))


class Posterior(NamedTuple):
    """The probability that an edge of the lattice is part of a word's segmentation."""

    start: int
    end: int
    token: int
    probability: float


def posteriors(edges: Lattice, log_probs: Sequence[float]) -> list[Posterior]:
    """For each edge, the share of the word's probability that lies on paths through it.

    Times the token's length and added up, they give the number of bytes of the word.
    """
    alpha, beta = forward(edges, log_probs), backward(edges, log_probs)
    total = _possible(alpha[-1])
    return [
        Posterior(start, end, token, math.exp(alpha[start] + log_probs[token] + beta[end] - total))
        for end, ending in enumerate(edges)
        for start, token in ending
    ]


def best_path(edges: Lattice, log_probs: Sequence[float]) -> tuple[list[int], float]:
    """The ids of the likeliest segmentation, and its log-probability in nats (Viterbi).

    Among equals the one whose last token is longest wins, then the one before it, and so on.
    """
    best, arrived = [0.0], [(0, 0)]
    for ending in edges[1:]:
        score, edge = -math.inf, (0, 0)
        for start, token in ending:
            if best[start] + log_probs[token] > score:
                score, edge = best[start] + log_probs[token], (start, token)
        best.append(score)
        arrived.append(edge)
    _possible(best[-1])
    return _walk_back(len(edges) - 1, lambda place: arrived[place]), best[-1]


def sample_path(
    edges: Lattice, log_probs: Sequence[float], *, generator: random.Random, sharpness: float = 1.0
) -> list[int]:
    """The ids of a segmentation drawn with probability proportional to P(segmentation)^sharpness.

    Forward sums first; then from the end, each token in proportion to what came in by its edge.

    Args:
        edges, log_probs: as for `forward`.
        generator: draws the numbers.
        sharpness: 1 draws from the posterior, 0 any segmentation alike, large ones the best.
            (alpha of Kudo 2018, section 3.3.)
    """
    if sharpness < 0:
        raise ValueError(f"expected a sharpness of at least 0, got {sharpness!r}")
    # An impossible token stays impossible, and 0 times minus infinity is no number.
    scores = [sharpness * value if value > -math.inf else value for value in log_probs]
    alpha = forward(edges, scores)
    _possible(alpha[-1])

    def draw(place: int) -> tuple[int, int]:
        weights = [math.exp(alpha[s] + scores[t] - alpha[place]) for s, t in edges[place]]
        return generator.choices(edges[place], weights)[0]

    return _walk_back(len(edges) - 1, draw)


def _possible(total: float) -> float:
    """The log-probability of a word, if it has a segmentation at all."""
    if total == -math.inf:
        raise ValueError("expected a word that some row of tokens spells: are bytes missing?")
    return total


def _walk_back(place: int, choose: Callable[[int], tuple[int, int]]) -> list[int]:
    """The tokens of a path, found from its end."""
    path = []
    while place:
        place, token = choose(place)
        path.append(token)
    return path[::-1]


# ---- training --------------------------------------------------------------------------------


class Expectation(NamedTuple):
    """What the posteriors of all words add up to.

    Attributes:
        counts: for each token, how often it is expected to be used.
        losses: for each token, by how many nats the log-likelihood falls without it; see `expect`.
        log_likelihood: of all words, in nats, each word a sum over its segmentations.
    """

    counts: list[float]
    losses: list[float]
    log_likelihood: float


def expect(
    lattices: Iterable[Lattice], frequencies: Iterable[int], log_probs: Sequence[float]
) -> Expectation:
    """The E-step: expected counts of all tokens, and what each of them is worth.

    Without a token a word keeps those of its segmentations that avoid it, so it loses
    -log(1 - m) nats, m being the token's posterior. This is exact for a token with one place in
    the word and all other probabilities as they are; several places are taken for independent.
    """
    counts, losses = [0.0] * len(log_probs), [0.0] * len(log_probs)
    log_likelihood = 0.0
    for edges, frequency in zip(lattices, frequencies, strict=True):
        alpha, beta = forward(edges, log_probs), backward(edges, log_probs)
        total = alpha[-1]
        log_likelihood += frequency * total
        for end, ending in enumerate(edges):
            after = beta[end] - total
            for start, token in ending:
                m = math.exp(alpha[start] + log_probs[token] + after)
                counts[token] += frequency * m
                losses[token] -= frequency * math.log1p(-m if m < _MOST else -_MOST)
    return Expectation(counts, losses, log_likelihood)


def maximise(counts: Sequence[float], log_probs: Sequence[float]) -> list[float]:
    """The M-step: relative frequencies of the expected counts, above a floor for the bytes.

    A token is a byte drawn blindly with the fixed probability `ESCAPE`, else one drawn from the
    frequencies. Of a byte's count, the share floor / p is due to blind draws and is no evidence.

    Args:
        counts: expected counts; the first 256 are those of the bytes.
        log_probs: the log-probabilities with which they were computed.
    """
    evidence = [
        count * max(0.0, 1 - _FLOOR / math.exp(log_prob))
        for count, log_prob in zip(counts[: len(BYTES)], log_probs, strict=False)
    ]
    return _with_floor([*evidence, *counts[len(BYTES) :]])


def _with_floor(weights: Sequence[float]) -> list[float]:
    """Log-probabilities proportional to the weights, but for the floor under the bytes."""
    scale = (1 - ESCAPE) / (math.fsum(weights) or 1.0)
    floors = chain([_FLOOR] * len(BYTES), repeat(0.0))
    probs = (floor + scale * weight for floor, weight in zip(floors, weights, strict=False))
    return [math.log(p) if p else -math.inf for p in probs]


def seed_pieces(
    words: Mapping[str, int], n_pieces: int, *, longest: int = 16
) -> list[tuple[bytes, int]]:
    """The substrings of words that cover most text: (bytes, number of occurrences).

    Ordered by occurrences times length, as in SentencePiece; then alphabetically. Each has two
    bytes or more, occurs twice or more, and cuts no character in two.

    >>> seed_pieces({"papa": 1, "mapa": 2}, 3)
    [(b'apa', 3), (b'mapa', 2), (b'pa', 4)]

    Args:
        words: how often each word occurs.
        n_pieces: how many at most.
        longest: in characters.
    """
    counts: Counter[str] = Counter()
    for word, frequency in words.items():
        for start in range(len(word)):
            for end in range(start + 1, min(start + longest, len(word)) + 1):
                counts[word[start:end]] += frequency
    pieces = [(text.encode(), count) for text, count in counts.items() if count > 1]
    pieces = [(piece, count) for piece, count in pieces if len(piece) > 1]
    pieces.sort(key=lambda item: (-item[1] * len(item[0]), item[0]))
    return pieces[:n_pieces]


class Step(NamedTuple):
    """The state of training before a step of EM.

    Attributes:
        n_pieces: how many tokens there are, bytes included.
        log_likelihood: of the whole text, nats.
    """

    n_pieces: int
    log_likelihood: float


# ---- the tokenizer ---------------------------------------------------------------------------


class UnigramTokenizer(Tokenizer):
    """Tokens with probabilities; encodes a text by the likeliest segmentation of each of its words.

    Ids 0 to 255 are the bytes, then come the learnt tokens, then the special ones.

    >>> tokenizer = UnigramTokenizer({b"he": -1.0, b"ll": -2.0, b"hell": -2.9, b"o": -2.0})
    >>> [tokenizer.token_bytes(token) for token in tokenizer.encode("hello")]
    [b'hell', b'o']
    """

    def __init__(
        self,
        log_probs: Mapping[bytes, float],
        *,
        pattern: str | None = PATTERN,
        specials: Iterable[str] = (END,),
    ) -> None:
        """A tokenizer with the given tokens, which get their ids in the order of the mapping.

        Args:
            log_probs: for each token its log-probability, nats. A byte that is missing gets the
                least that training gives to any.
            pattern: what a word is, as for `bpe.split_words`; no token crosses a word's
                end. None: the whole text is one word.
            specials: names of tokens that are no text.
        Raises:
            ValueError: an empty token, a log-probability that is none, a name given twice, a
                pattern with groups.
        """
        total = math.fsum(math.exp(min(value, 1)) for value in log_probs.values())
        if b"" in log_probs or not total <= 1.001:
            raise ValueError(f"expected no empty token, a sum of probs at most 1, got {total:.4f}")
        complete = dict.fromkeys(BYTES, math.log(_FLOOR)) | dict(log_probs)
        self.pieces: tuple[bytes, ...] = tuple(complete)
        self.log_probs: tuple[float, ...] = tuple(complete.values())
        self.ids: dict[bytes, int] = {piece: token for token, piece in enumerate(self.pieces)}
        self.pattern = pattern
        split_words("", pattern)  # which refuses groups
        self.specials = enumerated(special_names(specials), len(self.pieces))
        self._bytes = dict(enumerate(self.pieces))
        self._bytes |= {token: name.encode() for name, token in self.specials.items()}
        self._longest = max(map(len, self.pieces))
        self._best = lru_cache(_CACHED_WORDS)(self._best_of_word)

    @classmethod
    def train(
        cls,
        text: str | Iterable[str],
        vocabulary_size: int,
        *,
        em_steps: int = 2,
        pattern: str | None = PATTERN,
        specials: Iterable[str] = (END,),
        progress: bool = False,
        report: Callable[[Step], object] | None = None,
    ) -> UnigramTokenizer:
        """A tokenizer learnt from text: seeds, then EM and pruning by turns, then EM.

        It starts from ten times as many tokens as are to be learnt; a pruning leaves 3 of 4.

        Args:
            text: one text, or an iterable of texts, of which one at a time is held in memory.
            vocabulary_size: bytes and special tokens included.
            em_steps: steps of EM before each pruning, and after the last.
            pattern, specials: as for the constructor.
            progress: whether to show a bar.
            report: called before each step of EM, and at the end.
        Returns:
            Learnt tokens in the order of their probability. They are fewer than asked for, with a
            warning, if the text has too few substrings that occur twice.
        Raises:
            ValueError: the vocabulary is too small for bytes and special tokens, the text is empty
                or holds a lone surrogate, or an option is out of range.
        """
        specials = special_names(specials)
        smallest = len(BYTES) + len(specials)
        wanted = vocabulary_size - smallest
        if wanted < 0 or em_steps < 1:
            got = f"got {vocabulary_size} and {em_steps=}"
            raise ValueError(f"expected vocabulary_size at least {smallest}, em_steps 1, {got}")
        words = count_words(text, pattern)
        if not any(words):
            raise ValueError("expected some text, got none")
        spelt = {word.encode(): frequency for word, frequency in words.items()}
        seeds = seed_pieces(words, _SEEDS * wanted)
        if len(seeds) < wanted:
            warnings.warn(
                f"the text has {len(seeds)} substrings to begin with, so the vocabulary has "
                f"{vocabulary_size - wanted + len(seeds)} tokens rather than {vocabulary_size}",
                stacklevel=2,
            )
        byte_counts = [0] * len(BYTES)
        for word, frequency in spelt.items():
            for value in word:
                byte_counts[value] += frequency
        sizes = [len(seeds)]  # after each round; the last round prunes nothing
        while sizes[-1] > wanted:
            sizes.append(max(wanted, int(_KEPT * sizes[-1])))
        sizes = [*sizes[1:], sizes[-1]]
        counts = [*byte_counts, *(count for _, count in seeds)]
        pieces = [*BYTES, *(piece for piece, _ in seeds)]
        rounds = progress_bar(sizes, "training") if progress else sizes
        log_probs = _fit(spelt, pieces, counts, rounds, em_steps, report)
        learnt = sorted(log_probs.keys() - set(BYTES), key=lambda w: (-log_probs[w], w))
        ordered = {piece: log_probs[piece] for piece in chain(BYTES, learnt)}
        return cls(ordered, pattern=pattern, specials=specials)

    def _encode(self, text: str) -> list[int]:
        """The ids of the likeliest segmentation of each word."""
        return list(chain.from_iterable(self._best(word)[0] for word in self._words(text)))

    def log_prob(self, text: str) -> float:
        """log of the sum over all segmentations of the text's words, nats."""
        words = Counter(self._words(text)).items()
        return math.fsum(n * forward(self._lattice(w), self.log_probs)[-1] for w, n in words)

    def best_log_prob(self, text: str) -> float:
        """log of the probability of the likeliest segmentation, nats; never above `log_prob`."""
        return math.fsum(self._best(word)[1] for word in self._words(text))

    def sample(self, text: str, *, generator: random.Random, sharpness: float = 1.0) -> list[int]:
        """The ids of a random segmentation (subword regularisation); see `sample_path`."""
        ids: list[int] = []
        for edges in map(self._lattice, self._words(text)):
            ids += sample_path(edges, self.log_probs, generator=generator, sharpness=sharpness)
        return ids

    def posteriors(self, word: str) -> list[Posterior]:
        """The posterior of each token at each place of one word; see `posteriors`."""
        return posteriors(self._lattice(word.encode()), self.log_probs)

    def _words(self, text: str) -> Iterator[bytes]:
        return map(str.encode, split_words(text, self.pattern))

    def _lattice(self, word: bytes) -> Lattice:
        return lattice(word, self.ids, longest=self._longest)

    def _best_of_word(self, word: bytes) -> tuple[tuple[int, ...], float]:
        path, log_prob = best_path(self._lattice(word), self.log_probs)
        return tuple(path), log_prob  # the cache hands it out again and again


def _fit(
    words: Mapping[bytes, int],
    pieces: list[bytes],
    counts: Sequence[float],
    sizes: Iterable[int],
    em_steps: int,
    report: Callable[[Step], object] | None,
) -> dict[bytes, float]:
    """EM and then pruning, round by round, to as many tokens besides the bytes as `sizes` says."""
    log_probs = _with_floor(counts)
    for size in sizes:
        ids = {piece: token for token, piece in enumerate(pieces)}
        longest = max(map(len, pieces))
        lattices = [lattice(word, ids, longest=longest) for word in words]
        for step in range(em_steps + 1):
            expected = expect(lattices, words.values(), log_probs)
            if report is not None:
                report(Step(len(pieces), expected.log_likelihood))
            if step < em_steps:
                log_probs = maximise(expected.counts, log_probs)
        if size < len(pieces) - len(BYTES):
            left = _worth_most(pieces, expected.losses, size)
            counts = [expected.counts[token] for token in left]
            log_probs = maximise(counts, [log_probs[token] for token in left])
            pieces = [pieces[token] for token in left]
    return dict(zip(pieces, log_probs, strict=True))


def _worth_most(pieces: Sequence[bytes], losses: Sequence[float], size: int) -> list[int]:
    """The bytes, and the `size` other tokens with the greatest losses."""
    learnt = range(len(BYTES), len(pieces))
    order = sorted(learnt, key=lambda token: (-losses[token], pieces[token]))
    return [*range(len(BYTES)), *order[:size]]
