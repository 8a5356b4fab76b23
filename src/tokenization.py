"""How does a text become whole numbers, and how do the numbers become the text again?

A tokenizer is a pair of functions, T from text to ids and T' from ids to text. All tokenizers here
share one small interface: `encode`, `decode`, `vocab_size`, `token_bytes` and `specials`. They
differ in what a token is: a character, a word, a byte, or a stretch of bytes that occurs often
(byte-pair encoding). For the last two, T'(T(text)) = text whatever the text.

Byte-pair encoding writes a word as its bytes, then again and again makes one new token of the
most frequent pair of neighbours. **Ties**: of equally frequent pairs, the smallest (id, id).
**Overlaps**: every pair of neighbours counts, so `aaa` holds (a, a) twice, though merging it from
left to right makes one token and leaves one `a`.

Inside this module a word is a string with one *symbol* for each token, chr(number): a pair is then
a string of length two, and `word.replace(pair, new)` merges it everywhere, from left to right.

Sources: Gage 1994; Sennrich et al. 2016; Radford et al. 2019, section 2.2. Derived in the chapters
`tokens/bytes`, `tokens/bpe` and `tokens/fast_bpe`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import warnings
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate, chain
from operator import add
from pathlib import Path

import regex

from .progress import progress as progress_bar

UNKNOWN, PADDING, START, END = "<|unknown|>", "<|padding|>", "<|start|>", "<|endoftext|>"
FOUR_SPECIALS = (UNKNOWN, PADDING, START, END)

# As published with GPT-2: contractions; letters, digits or other marks, with one space before them;
# white space, whose last character is left for the word after it.
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORD_PATTERN = r"\w+|[^\w\s]"  # words, and each other mark by itself


# ---- what all tokenizers share ----------------------------------------------------------------


class Tokenizer(ABC):
    """A text's way to ids and back.

    Attributes:
        specials: name -> id of each special token. Text that spells such a name stays text, unless
            the caller allows that name: whoever writes a text must not be able to end it.
    """

    specials: dict[str, int]
    _bytes: dict[int, bytes]  # what each id stands for; a special token stands for its name

    def encode(self, text: str, allowed_special: Collection[str] = ()) -> list[int]:
        """The ids of a text.

        Args:
            text: any text without lone surrogates.
            allowed_special: the names that may become special tokens, `tokenizer.specials` for all
                of them. Where several fit, the first in the text wins, then the longest.
        Raises:
            TypeError: the text is not a string, or `allowed_special` is one.
            ValueError: a lone surrogate; a name that is none of `specials`.
        """
        _check_text(text)
        if not allowed_special:
            return self._encode(text)
        ids = []
        for number, part in enumerate(self._parted(text, allowed_special)):
            if number % 2:
                ids.append(self.specials[part])
            else:
                ids += self._encode(part)
        return ids

    @abstractmethod
    def _encode(self, text: str) -> list[int]:
        """The ids of a text that is free of special tokens."""

    def _parted(self, text: str, allowed_special: Collection[str]) -> list[str]:
        """The text cut at allowed special tokens: text, name, text, name, …, text."""
        if isinstance(allowed_special, str):
            raise TypeError(
                f"allowed_special must be a collection of names, got the string "
                f"{allowed_special!r}; write ({allowed_special!r},)"
            )
        if unknown := set(allowed_special) - set(self.specials):
            raise ValueError(
                f"allowed_special must be among {list(self.specials)}, got {sorted(unknown)}"
            )
        # The first of the alternatives that fits is taken, so the longest must stand first.
        longest_first = sorted(allowed_special, key=len, reverse=True)
        return regex.split(f"({'|'.join(map(regex.escape, longest_first))})", text)

    def encode_batch(
        self, texts: Iterable[str], allowed_special: Collection[str] = ()
    ) -> list[list[int]]:
        """The ids of each text; see `encode`."""
        return [self.encode(text, allowed_special) for text in texts]

    def decode(self, ids: Iterable[int], errors: str = "replace") -> str:
        """The text that the ids spell; a special token spells its name.

        Args:
            ids: of this tokenizer.
            errors: what to do where the bytes are not UTF-8, as happens when a text was cut between
                two tokens of one character: "replace" writes U+FFFD there, "strict" raises,
                "ignore" leaves the bytes out.
        Raises:
            ValueError: an id out of range, or `errors` is none of these.
            UnicodeDecodeError: bytes that are not UTF-8, with "strict".
        """
        _check_errors(errors)
        return b"".join(self._spelled(ids)).decode("utf-8", errors)

    def _spelled(self, ids: Iterable[int]) -> list[bytes]:
        """The bytes of each token."""
        ids = list(ids)
        try:
            return list(map(self._bytes.__getitem__, ids))
        except (KeyError, TypeError):
            place = next(p for p, one in enumerate(ids) if not _is_key(one, self._bytes))
            raise ValueError(
                f"expected ids from 0 to {self.vocab_size - 1}, got {ids[place]!r} at position "
                f"{place}; was it another tokenizer's? (A tensor's ids: tensor.tolist())"
            ) from None

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one id stands for, which need not be whole characters."""
        return self._spelled([token_id])[0]

    @property
    def vocab_size(self) -> int:
        """The number of ids, special tokens included: they run from 0 to `vocab_size - 1`."""
        return len(self._bytes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocab_size={self.vocab_size}, specials={self.specials})"


def _is_key(key: object, table: Mapping) -> bool:
    try:
        return key in table
    except TypeError:
        return False


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        hint = '; decode it first: text.decode("utf-8")' if isinstance(text, bytes) else ""
        raise TypeError(f"expected a text, a str, got {type(text).__name__}{hint}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"expected text that UTF-8 can write, got the lone surrogate "
            f"U+{ord(text[error.start]):04X} at character {error.start}; was a file read with "
            'errors="surrogateescape", or half of a \\ud83d\\ude00 pair cut off?'
        ) from None


def _check_errors(errors: str) -> None:
    if errors not in ("replace", "strict", "ignore"):
        raise ValueError(f'errors must be "replace", "strict" or "ignore", got {errors!r}')


def _texts(text: str | Iterable[str]) -> Iterable[str]:
    """One text or many, as many."""
    return [text] if isinstance(text, str) else text


def _numbered_specials(specials: Iterable[str] | Mapping[str, int], first: int) -> dict[str, int]:
    """The id of each name, from `first` on unless the ids are given."""
    if isinstance(specials, str):
        raise TypeError(f"specials must be a collection of names, write ({specials!r},)")
    names = list(specials)
    if len(set(names)) < len(names) or not all(isinstance(n, str) and n for n in names):
        raise ValueError(f"specials must be different names that are not empty, got {names}")
    for name in names:
        _check_text(name)
    return dict(specials) if isinstance(specials, Mapping) else _enumerated(names, first)


def _enumerated(names: Iterable[str], first: int) -> dict[str, int]:
    return {name: number for number, name in enumerate(names, start=first)}


# ---- characters, words, bytes -----------------------------------------------------------------


class _ListTokenizer(Tokenizer):
    """A tokenizer that knows a list of pieces and calls every other piece unknown."""

    def __init__(self, pieces: Iterable[str]):
        pieces = list(pieces)
        if len(set(pieces)) < len(pieces):
            raise ValueError("expected different pieces, got one of them twice")
        self.specials = _enumerated(FOUR_SPECIALS, 0)
        self._ids = _enumerated(pieces, len(FOUR_SPECIALS))
        names = chain(self.specials, self._ids)
        self._bytes = {number: name.encode() for number, name in enumerate(names)}

    @classmethod
    def train(cls, text: str | Iterable[str], vocab_size: int | None = None) -> _ListTokenizer:
        """The tokenizer of the most frequent pieces of a text; ties in the order of code points.

        Args:
            text: one text, or an iterable of texts.
            vocab_size: the greatest size, the four special tokens included; None: no limit.
        """
        if vocab_size is not None and vocab_size < len(FOUR_SPECIALS):
            raise ValueError(
                f"vocab_size must be at least {len(FOUR_SPECIALS)}, one id for each of "
                f"{FOUR_SPECIALS}, got {vocab_size}"
            )
        counts = Counter()
        for one in _texts(text):
            _check_text(one)
            counts.update(cls.pieces(one))
        ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
        return cls(ranked if vocab_size is None else ranked[: vocab_size - len(FOUR_SPECIALS)])

    @staticmethod
    @abstractmethod
    def pieces(text: str) -> list[str]:
        """The text cut into pieces."""

    def _encode(self, text: str) -> list[int]:
        unknown = self.specials[UNKNOWN]
        return [self._ids.get(piece, unknown) for piece in self.pieces(text)]


class CharacterTokenizer(_ListTokenizer):
    """One id for each character of the training text, after one each for unknown, padding, start
    and end.

    **Loss**: a character that the training text did not have comes back as `<|unknown|>`.

    >>> CharacterTokenizer.train("banana").encode("nab")
    [5, 4, 6]
    """

    @staticmethod
    def pieces(text: str) -> list[str]:
        """The characters of a text."""
        return list(text)


class WordTokenizer(_ListTokenizer):
    """One id for each word or mark of the training text, after one each for unknown, padding, start
    and end.

    **Loss**: white space comes back as one space between any two tokens, before marks too; a word
    that the training text did not have comes back as `<|unknown|>`.

    >>> words = WordTokenizer.train("to be, or not to be")
    >>> words.decode(words.encode("to  be,\\nor to see"))
    'to be , or to <|unknown|>'
    """

    @staticmethod
    def pieces(text: str) -> list[str]:
        """The words and marks of a text, without the white space between them."""
        return regex.findall(WORD_PATTERN, text)

    def decode(self, ids: Iterable[int], errors: str = "replace") -> str:
        """The words with one space between them; see `Tokenizer.decode`."""
        _check_errors(errors)
        return " ".join(spelled.decode("utf-8", errors) for spelled in self._spelled(ids))


class ByteTokenizer(Tokenizer):
    """Ids 0 to 255 are the bytes of UTF-8, and 0 is the end token as well.

    The byte 0 occurs in no text worth reading, so 256 ids are enough for bytes and end token
    together, here as in `Corpus.to_bytes`. The price: the name of the end token is spelled as the
    byte 0, and a text that holds one is refused, since it would forge an end. Whoever allows
    `END` may write it.

    >>> ByteTokenizer().encode("né")
    [110, 195, 169]
    """

    def __init__(self):
        self.specials = {END: 0}
        self._bytes = {number: bytes([number]) for number in range(256)}

    def _parted(self, text: str, allowed_special: Collection[str]) -> list[str]:
        super()._parted(text, allowed_special)  # which checks the names
        parts = text.split("\0")
        return [part for text in parts for part in (text, END)][:-1]

    def _encode(self, text: str) -> list[int]:
        if "\0" in text:
            raise ValueError(
                f"expected text without the byte 0, which is the end token, got one at character "
                f"{text.index(chr(0))}; allowed_special=(END,) lets a text end"
            )
        return list(text.encode())


# ---- byte-pair encoding: training -------------------------------------------------------------


def split_words(text: str, pattern: str | None = GPT2_PATTERN) -> list[str]:
    """The text cut into words, across whose borders nothing is ever merged; they join to the text.

    >>> split_words("Don't  look now!")
    ['Don', "'t", ' ', ' look', ' now', '!']

    Args:
        text: any text.
        pattern: a regular expression of the library `regex` without groups; None: one word.
    Raises:
        ValueError: the pattern has groups, or leaves out a part of the text.
    """
    return list(chain.from_iterable(_words_by_block(text, pattern)))


def _words_by_block(text: str, pattern: str | None) -> Iterator[list[str]]:
    """The words of a text, some at a time, so that a long text needs no long list.

    GPT-2's pattern takes white space only at the beginning of a word: it always cuts between
    another character and a space, so blocks that end there have the words of the whole text. Most
    blocks are ASCII, where Python's own `re` can do the same in half the time.
    """
    if pattern == GPT2_PATTERN:
        for block in _blocks(text):
            yield (_ASCII_WORDS if block.isascii() else _compiled(pattern)).findall(block)
    elif pattern is None:
        yield [text] if text else []
    else:
        words = _compiled(pattern).findall(text)
        if (held := sum(map(len, words))) < len(text):
            raise ValueError(
                f"expected a pattern that leaves out no character, got {pattern!r}, whose words "
                f"hold {held} characters of {len(text)}; let it end in |(?s:.)"
            )
        yield words


# GPT-2's pattern for ASCII, where \s is the space and what lies from tab to carriage return.
_ASCII_WORDS = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^ \t-\rA-Za-z0-9]+"
    r"|[ \t-\r]+(?![^ \t-\r])|[ \t-\r]+"
)
_SPACE_AFTER_OTHER = re.compile(r"(?<=\S) ")
_BLOCK = 1 << 10  # characters at least


def _blocks(text: str) -> Iterator[str]:
    """The text in parts that begin with a space after another character."""
    start = 0
    while start < len(text):
        cut = _SPACE_AFTER_OTHER.search(text, start + _BLOCK)
        end = cut.start() if cut else len(text)
        yield text[start:end]
        start = end


def _compiled(pattern: str) -> regex.Pattern:
    compiled = regex.compile(pattern)  # regex keeps it, so that this is fast
    if compiled.groups:
        raise ValueError(f"expected a pattern without groups, got {pattern!r}; write (?:…)")
    return compiled


def count_words(texts: Iterable[str], pattern: str | None = GPT2_PATTERN) -> Counter[str]:
    """How often each word occurs; memory grows with the different words, not with the texts."""
    counts = Counter()
    for text in texts:
        _check_text(text)
        for words in _words_by_block(text, pattern):
            counts.update(words)
    return counts


def symbols(word: str) -> str:
    """The word's bytes as symbols, one character each from U+0000 to U+00FF.

    >>> symbols("né")
    'nÃ©'
    """
    return word.encode().decode("latin-1")


def pairs_of(word: str) -> Iterable[str]:
    """The pairs of neighbours in a word of symbols: `aab` has `aa` and `ab`."""
    return map(add, word, word[1:])


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
        self.pair_counts = defaultdict(int)
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
        for number in self.where.pop(pair):
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


# ---- byte-pair encoding: the tokenizer --------------------------------------------------------


class _Cache(dict):
    """word -> its ids, worked out when first asked for; starts afresh when it is full."""

    def __init__(self, ids_of_word, size: int):
        self.ids_of_word, self.size = ids_of_word, size

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = self.ids_of_word(word)
        if len(word) <= _LONGEST_CACHED:
            if len(self) >= self.size:
                self.clear()
            if self.size:
                self[word] = ids
        return ids


_CACHE_SIZE = 1 << 16  # English prose of some millions of words has no more different ones
_LONGEST_CACHED = 64  # characters; longer "words" seldom come again


class BytePairTokenizer(Tokenizer):
    """Byte-level byte-pair encoding, as GPT-2 uses it: every text can be written, and comes back.

    Tokens are numbered: the bytes from 0 to 255, then one for each merge. These numbers are also
    the ids, unless `ids` says otherwise, as it must for GPT-2's own files.

    >>> tokenizer = BytePairTokenizer.train("low low low lot lot", vocab_size=260)
    >>> tokenizer.encode("low lots")
    [256, 119, 258, 115]

    Args:
        merges: (left, right), numbers of tokens, the first to be merged first.
        specials: names of special tokens, numbered behind all others; or name -> id.
        pattern: cuts a text into words, across whose borders nothing is merged; None: no cuts.
        ids: the id of each token, by its number; None: the number itself.
        add_prefix_space: whether a text (or what stands between two special tokens) that does not
            begin with a space gets one, so that its first word is like all others. It then comes
            back with that space.
        cache_size: how many different words to remember the ids of.
    Raises:
        ValueError: a merge of tokens that are not made yet, or one that makes a token again; ids
            that are not 0, 1, 2, …, each once, in the order of the merges.
    """

    def __init__(
        self,
        merges: Iterable[tuple[int, int]],
        specials: Iterable[str] | Mapping[str, int] = (END,),
        *,
        pattern: str | None = GPT2_PATTERN,
        ids: Sequence[int] | None = None,
        add_prefix_space: bool = False,
        cache_size: int = _CACHE_SIZE,
    ):
        self.merges = [(left, right) for left, right in merges]
        spelled = _spelled_tokens(self.merges)
        self.pattern, self.add_prefix_space = pattern, add_prefix_space
        if pattern is not None:
            _compiled(pattern)
        self.specials = _numbered_specials(specials, len(spelled))
        self._ids = list(range(len(spelled)) if ids is None else ids)
        _check_ids(self._ids, self.specials, len(spelled))
        self._bytes = dict(zip(self._ids, spelled, strict=True))
        self._bytes |= {number: name.encode() for name, number in self.specials.items()}
        pairs = [chr(left) + chr(right) for left, right in self.merges]
        self._made = {pair: chr(number) for number, pair in enumerate(pairs, start=256)}
        self._pairs = {new: pair for pair, new in self._made.items()}
        self._cache = _Cache(self._ids_of_word, cache_size)

    @classmethod
    def train(
        cls,
        text: str | Iterable[str],
        vocab_size: int,
        *,
        pattern: str | None = GPT2_PATTERN,
        specials: Collection[str] = (END,),
        progress: bool = False,
    ) -> BytePairTokenizer:
        """The tokenizer whose merges are the most frequent pairs of a text, one after another.

        Args:
            text: one text, or an iterable of texts, of which one at a time is held in memory.
            vocab_size: bytes, merges and special tokens together.
            pattern, specials: as for the class.
            progress: whether to show bars.
        Warns:
            UserWarning: the text ran out of pairs, so that the vocabulary is smaller.
        Raises:
            ValueError: less than 256 ids and the special tokens; a lone surrogate in a text.
        """
        smallest = 256 + len(_numbered_specials(specials, 0))
        if not smallest <= vocab_size <= _MOST_SYMBOLS:
            raise ValueError(
                f"vocab_size must be from {smallest} (256 bytes and {smallest - 256} special "
                f"tokens) to {_MOST_SYMBOLS}, got {vocab_size}"
            )
        texts = _texts(text)
        counts = count_words(progress_bar(texts, "counting") if progress else texts, pattern)
        merges = learn_merges(counts, vocab_size - smallest, progress=progress)
        tokenizer = cls(merges, specials, pattern=pattern)
        if tokenizer.vocab_size < vocab_size:
            warnings.warn(
                f"vocab_size is {tokenizer.vocab_size}, not {vocab_size}: after {len(merges)} "
                "merges each word of the text is one token; give it more text",
                stacklevel=2,
            )
        return tokenizer

    def _encode(self, text: str) -> list[int]:
        if self.add_prefix_space and text and not text.startswith(" "):
            text = " " + text
        ids = []
        for words in _words_by_block(text, self.pattern):
            ids += chain.from_iterable(map(self._cache.__getitem__, words))
        return ids

    def _ids_of_word(self, word: str) -> tuple[int, ...]:
        return tuple(self._ids[ord(symbol)] for symbol in self.merged(symbols(word)))

    def merged(self, word: str) -> str:
        """A word of symbols after all merges, the first learned first.

        This is not the longest match: with the merges `bc`, `ab` in this order, `abc` is `a bc`.
        Each merge makes its symbol at once everywhere; what it makes possible is learned later.
        """
        made = self._made
        waiting = {made[pair] for pair in pairs_of(word) if pair in made}
        while waiting:
            new = min(waiting)
            waiting.remove(new)
            word = word.replace(self._pairs[new], new)
            place = word.find(new)
            while place >= 0:
                for pair in pairs_of(word[max(0, place - 1) : place + 2]):
                    if pair in made:
                        waiting.add(made[pair])
                place = word.find(new, place + 1)
        return word

    def offsets(self, text: str, allowed_special: Collection[str] = ()) -> list[tuple[int, int]]:
        """Where each token stands: text[start:end] holds all characters it has a byte of.

        Tokens that share a character, as they may beyond ASCII, overlap there. The places are
        those of the text that comes back, which may have got a space from `add_prefix_space`.

        >>> BytePairTokenizer([]).offsets("né")
        [(0, 1), (1, 2), (1, 2)]

        Args:
            text, allowed_special: as for `encode`.
        Returns:
            (start, end) of each id that `encode` gives, in characters.
        """
        spelled = self._spelled(self.encode(text, allowed_special))
        begun = [sum(byte & 0xC0 != 0x80 for byte in token) for token in spelled]
        ends = list(accumulate(begun))
        inside = [token[0] & 0xC0 == 0x80 for token in spelled]
        starts = [end - new - cut for end, new, cut in zip(ends, begun, inside, strict=True)]
        return list(zip(starts, ends, strict=True))

    def parts(self, token_id: int) -> tuple[int, int] | None:
        """The two ids that were merged to make this one; None for a byte or a special token."""
        self._spelled([token_id])  # which checks the id
        if token_id in self.specials.values():
            return None
        number = self._ids.index(token_id)
        return tuple(self._ids[n] for n in self.merges[number - 256]) if number >= 256 else None

    # -- files: each writer replaces a file whole or not at all, each reader trusts none --

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one JSON file, which `load` reads."""
        _write_json(
            path,
            {
                "format": _FORMAT,
                "pattern": self.pattern,
                "add_prefix_space": self.add_prefix_space,
                "specials": self.specials,
                "bytes": self._ids[:256],
                "merges": [
                    [left, right, made]
                    for (left, right), made in zip(self.merges, self._ids[256:], strict=True)
                ],
            },
        )

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, pattern: str | None = GPT2_PATTERN
    ) -> BytePairTokenizer:
        """The tokenizer that `save` wrote.

        Args:
            path: the file.
            pattern: a splitting pattern that the file may have besides GPT-2's and none. A pattern
                is a small program, and a stranger's may run for ever: so it is for you to name it.
        Raises:
            ValueError: the file is not such a file, or not whole, or not in order.
        """
        content = _read_json(path)
        with _naming(path):
            if content.get("format") != _FORMAT:
                raise ValueError(
                    f"expected the format {_FORMAT!r}, got {content.get('format')!r}; for other "
                    "files there are load_gpt2 and load_hugging_face"
                )
            own = content.get("pattern", "")
            if own not in (None, GPT2_PATTERN, pattern):
                raise ValueError(f"expected GPT-2's pattern or the one named, got {own!r}")
            triples = _field(content, "merges", list)
            if not all(isinstance(triple, list) and len(triple) == 3 for triple in triples):
                raise ValueError("expected merges as [left, right, id]")
            return cls(
                [(left, right) for left, right, _ in triples],
                _field(content, "specials", dict),
                pattern=own,
                ids=_field(content, "bytes", list) + [made for _, _, made in triples],
                add_prefix_space=_field(content, "add_prefix_space", bool),
            )

    def save_gpt2(self, folder: str | os.PathLike[str]) -> None:
        """Write `vocab.json` and `merges.txt` as GPT-2's authors did, into a folder.

        Raises:
            ValueError: another pattern, a prefix space, or a special token named like another.
        """
        if self.pattern != GPT2_PATTERN or self.add_prefix_space:
            raise ValueError("these files hold no pattern: expected GPT-2's, and no prefix space")
        vocab, merges = self._spellings()
        lines = ["#version: 0.2", *map(" ".join, merges), ""]
        _write_json(Path(folder, "vocab.json"), vocab)
        _write(Path(folder, "merges.txt"), "\n".join(lines))

    @classmethod
    def load_gpt2(
        cls, folder: str | os.PathLike[str], specials: Collection[str] = (END,)
    ) -> BytePairTokenizer:
        """The tokenizer of a folder with GPT-2's `vocab.json` and `merges.txt`.

        Args:
            folder: where both files are.
            specials: which entries of the vocabulary are special tokens: the files do not tell.
        Raises:
            ValueError: a file is not such a file, not whole or not in order, or both disagree.
        """
        vocab = _read_json(Path(folder, "vocab.json"))
        lines = _read(Path(folder, "merges.txt")).removesuffix("\n").split("\n")
        if lines[0].startswith("#version"):
            del lines[0]
        with _naming(folder):
            merges = [_pair_of_spellings(line.removesuffix("\r")) for line in lines if line]
            if absent := set(specials) - set(vocab):
                raise ValueError(f"expected the special tokens {sorted(absent)} in vocab.json")
            return cls(**_from_spellings(vocab, merges, {name: vocab[name] for name in specials}))

    def save_hugging_face(self, path: str | os.PathLike[str]) -> None:
        """Write a `tokenizer.json` for the library `tokenizers`.

        There, special tokens are found in every text unless `encode_special_tokens` is set.

        Raises:
            ValueError: a pattern that is neither GPT-2's nor none, or a special token named like
                another token.
        """
        if self.pattern not in (None, GPT2_PATTERN):
            raise ValueError(f"expected GPT-2's pattern or none, got {self.pattern!r}")
        vocab, merges = self._spellings()
        level = {
            "type": "ByteLevel",
            "add_prefix_space": self.add_prefix_space,
            "trim_offsets": False,
            "use_regex": self.pattern is not None,
        }
        added = {"single_word": False, "lstrip": False, "rstrip": False}
        added |= {"normalized": False, "special": True}
        model = {"type": "BPE", "dropout": None, "unk_token": None}
        model |= {"continuing_subword_prefix": None, "end_of_word_suffix": None}
        model |= {"fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
        _write_json(
            path,
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": [
                    {"id": number, "content": name, **added}
                    for name, number in sorted(self.specials.items(), key=lambda item: item[1])
                ],
                "normalizer": None,
                "pre_tokenizer": level,
                "post_processor": None,
                "decoder": level,
                "model": {**model, "vocab": vocab, "merges": merges},
            },
        )

    @classmethod
    def load_hugging_face(cls, path: str | os.PathLike[str]) -> BytePairTokenizer:
        """The tokenizer of a `tokenizer.json` that holds byte-level byte-pair encoding.

        `add_prefix_space` is honoured, and so is `use_regex`, without which a text is one word.
        Merges may be pairs or, as in older files, strings with a space.

        Raises:
            ValueError: the file is not such a file, not whole or not in order, or asks for what
                this class does not do (another model, a normaliser, another pre-tokenizer, …).
        """
        content = _read_json(path)
        with _naming(path):
            level, model = _field(content, "pre_tokenizer", dict), _field(content, "model", dict)
            _check_hugging_face(content, level, model)
            tokens = _field(content, "added_tokens", list)
            specials = {_field(t, "content", str): _field(t, "id", int) for t in tokens}
            return cls(
                **_from_spellings(
                    _field(model, "vocab", dict),
                    [_pair_of_spellings(pair) for pair in _field(model, "merges", list)],
                    specials,
                ),
                pattern=GPT2_PATTERN if level.get("use_regex", True) else None,
                add_prefix_space=_field(level, "add_prefix_space", bool),
            )

    def _spellings(self) -> tuple[dict[str, int], list[tuple[str, str]]]:
        """All tokens and all merges in GPT-2's byte alphabet, special tokens under their names."""
        spelled = [_in_alphabet(token) for token in _spelled_tokens(self.merges)]
        vocab = dict(zip(spelled, self._ids, strict=True))
        if twice := vocab.keys() & self.specials.keys():
            raise ValueError(f"expected special tokens named like no token, got {sorted(twice)}")
        vocab |= self.specials
        by_id = dict(sorted(vocab.items(), key=lambda item: item[1]))
        return by_id, [(spelled[left], spelled[right]) for left, right in self.merges]


_MOST_SYMBOLS = 0x110000  # as many characters as there are
_FORMAT = "next-token byte-pair encoding 1"


def _spelled_tokens(merges: Sequence[tuple[int, int]]) -> list[bytes]:
    """The bytes of each token, by its number; each must be made once, of two made before."""
    spelled = [bytes([byte]) for byte in range(256)]
    if 256 + len(merges) > _MOST_SYMBOLS:
        raise ValueError(f"expected at most {_MOST_SYMBOLS - 256} merges, got {len(merges)}")
    seen = set(spelled)
    for rank, pair in enumerate(merges):
        for part in pair:
            if type(part) is not int or not 0 <= part < len(spelled):
                raise ValueError(
                    f"expected merge {rank} to join two of the {len(spelled)} tokens made before "
                    f"it, got {part!r} in {pair}; is the order of the merges the one learned?"
                )
        joined = spelled[pair[0]] + spelled[pair[1]]
        if joined in seen:
            raise ValueError(
                f"expected merge {rank} to make a new token, got {joined!r} again; byte-pair "
                "encoding learns each token once (files that list all its splits do not tell which)"
            )
        seen.add(joined)
        spelled.append(joined)
    return spelled


def _check_ids(ids: Sequence[int], specials: Mapping[str, int], n_tokens: int) -> None:
    """Each of 0, 1, 2, … once, and those of merges ascending, or a file's order would be lost."""
    if len(ids) != n_tokens:
        raise ValueError(f"expected an id for each of {n_tokens} tokens, got {len(ids)} ids")
    everything = [*ids, *specials.values()]
    if any(type(number) is not int for number in everything):
        raise ValueError("expected ids that are whole numbers")
    if sorted(everything) != list(range(len(everything))):
        missing = sorted(set(range(len(everything))) - set(everything))[:5]
        raise ValueError(
            f"expected the ids 0 to {len(everything) - 1}, each once, special tokens included; "
            f"got none for {missing}"
        )
    if list(ids[256:]) != sorted(ids[256:]):
        rank = next(r for r in range(1, n_tokens) if ids[256 + r] < ids[255 + r])
        raise ValueError(
            f"expected the ids of merges to ascend, got {ids[255 + rank]} for merge {rank - 1} and "
            f"{ids[256 + rank]} for merge {rank}; were the lines of a file reordered?"
        )


# ---- files ------------------------------------------------------------------------------------


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


def _in_alphabet(token: bytes) -> str:
    return token.decode("latin-1").translate(bytes_to_unicode())


def _pair_of_spellings(merge: str | Sequence[str]) -> tuple[str, str]:
    """One merge as a file spells it: `Ġ t`, or `["Ġ", "t"]`."""
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if not (isinstance(parts, list) and len(parts) == 2 and all(isinstance(p, str) for p in parts)):
        raise ValueError(f"expected a merge of two tokens, got {merge!r}; was the file cut off?")
    return parts[0], parts[1]


def _from_spellings(
    vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], specials: Mapping[str, int]
) -> dict:
    """What `BytePairTokenizer` needs, from tokens spelled in GPT-2's alphabet.

    Every entry of the vocabulary must be a byte, made by a merge, or special: otherwise merges are
    missing, and texts would be encoded differently without a word.
    """
    spelled = list(map(bytes_to_unicode().__getitem__, range(256)))
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
            f"tokens, got {len(unmade)} others, such as {min(unmade)!r}; was a file cut off?"
        )
    for name in specials.keys() & vocab.keys():
        if vocab[name] != specials[name] or name in numbers:
            raise ValueError(f"expected one meaning for {name!r}, got a token and a special token")
    for left, right in merges:
        if absent := {left, right} - numbers.keys():
            raise ValueError(f"expected merges of known tokens, got {sorted(absent)}")
    return {
        "merges": [(numbers[left], numbers[right]) for left, right in merges],
        "ids": [vocab[token] for token in spelled],
        "specials": specials,
    }


def _check_hugging_face(content: dict, level: dict, model: dict) -> None:
    """Refuse what would give other ids than ours, and say what it was."""
    if model.get("type") != "BPE" or level.get("type") != "ByteLevel":
        raise ValueError(
            "expected a model BPE and a pre-tokenizer ByteLevel, got "
            f"{model.get('type')!r} and {level.get('type')!r}"
        )
    asked = {
        "normalizer": content.get("normalizer"),
        **{name: model.get(name) for name in _OTHER_BPE},
        **{f"{k} of a token": t.get(k) for t in content["added_tokens"] for k in _OTHER_ADDED},
    }
    if refused := {name: value for name, value in asked.items() if value}:
        raise ValueError(f"expected none of these, which would give other ids: {refused}")
    if not all(token.get("special") for token in content["added_tokens"]):
        raise ValueError("expected added tokens that are special, got one that is not")


_OTHER_BPE = ["dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"]
_OTHER_BPE += ["ignore_merges"]
_OTHER_ADDED = ["single_word", "lstrip", "rstrip"]
_LARGEST_FILE = 1 << 28  # bytes; a vocabulary of a million tokens has less


def _read(path: str | os.PathLike[str]) -> str:
    path = Path(path)
    if (size := path.stat().st_size) > _LARGEST_FILE:
        raise ValueError(f"expected at most {_LARGEST_FILE:,} bytes in {path}, got {size:,}")
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"expected UTF-8 in {path}: {error}") from None


def _read_json(path: str | os.PathLike[str]) -> dict:
    text = _read(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected JSON in {path}, got none: {error}; was it cut off?") from None
    if not isinstance(content, dict):
        raise ValueError(f"expected a JSON object in {path}, got {type(content).__name__}")
    return content


def _field(content: dict, name: str, kind: type):
    """One entry, which must be there and be of this kind."""
    value = content.get(name) if isinstance(content, dict) else None
    if type(value) is not kind:
        raise ValueError(f"expected {name!r} as {kind.__name__}, got {type(value).__name__}")
    return value


@contextlib.contextmanager
def _naming(path: str | os.PathLike[str]):
    """Say which file an error is about."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def _write_json(path: str | os.PathLike[str], content: object) -> None:
    _write(path, json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")


def _write(path: str | os.PathLike[str], text: str) -> None:
    """Write a file whole: it gets its name only when it is complete."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with partial.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
