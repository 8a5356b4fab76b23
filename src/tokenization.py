"""How does a text become whole numbers, and how do the numbers become the text again?

A tokenizer is a pair of functions, enc from text to ids and dec from ids to text. All tokenizers
here share one small interface: `encode`, `decode`, `vocab_size`, `token_bytes` and `specials`. They
differ in what a token is: a character, a word, a byte, or a stretch of bytes that occurs often
(byte-pair encoding). For the last, dec(enc(text)) = text for every text that UTF-8 can write,
unless a prefix space is asked for. Bytes do the same, but refuse the character NUL, since its byte
is their end token.

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

import os
import re
import warnings
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate, chain
from operator import add
from typing import Self

import regex

from . import tokenizer_files as files
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
        check_text(text)
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


def check_text(text: str) -> None:
    """Refuse what no tokenizer can encode.

    Raises:
        TypeError: the text is not a string. ValueError: it has a lone surrogate.
    """
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


def special_names(specials: Iterable[str]) -> list[str]:
    """The names of special tokens, if they can be names.

    Raises:
        TypeError: a string rather than a collection of names.
        ValueError: a name twice, an empty one, or one with a lone surrogate.
    """
    if isinstance(specials, str):
        raise TypeError(f"specials must be a collection of names, write ({specials!r},)")
    names = list(specials)
    if len(set(names)) < len(names) or not all(isinstance(n, str) and n for n in names):
        raise ValueError(f"specials must be different names that are not empty, got {names}")
    for name in names:
        check_text(name)
    return names


def enumerated(names: Iterable[str], first: int) -> dict[str, int]:
    """The id of each name, from `first` on."""
    return {name: number for number, name in enumerate(names, start=first)}


# ---- characters, words, bytes -----------------------------------------------------------------


class _ListTokenizer(Tokenizer):
    """A tokenizer that knows a list of pieces and calls every other piece unknown."""

    kind: str  # what its pieces are, in the plural

    def __init__(self, pieces: Iterable[str]):
        pieces = list(pieces)
        if len(set(pieces)) < len(pieces):
            raise ValueError("expected different pieces, got one of them twice")
        self.specials = enumerated(FOUR_SPECIALS, 0)
        self._ids = enumerated(pieces, len(FOUR_SPECIALS))
        names = chain(self.specials, self._ids)
        self._bytes = {number: name.encode() for number, name in enumerate(names)}

    @classmethod
    def train(cls, text: str | Iterable[str], vocab_size: int | None = None) -> Self:
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
            check_text(one)
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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the pieces to a JSON file, which `load` reads."""
        files.write_pieces(path, self.kind, [*self._ids])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The tokenizer that `save` wrote.

        Raises:
            ValueError: the file is not such a file, or of another kind of pieces.
        """
        with files.naming(path):
            return cls(files.read_pieces(path, cls.kind))


class CharacterTokenizer(_ListTokenizer):
    """One id for each character of the training text, after one each for unknown, padding, start
    and end.

    **Loss**: a character that the training text did not have comes back as `<|unknown|>`.

    >>> CharacterTokenizer.train("banana").encode("nab")
    [5, 4, 6]
    """

    kind = "characters"

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

    kind = "words"

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


def count_words(texts: str | Iterable[str], pattern: str | None = GPT2_PATTERN) -> Counter[str]:
    """How often each word occurs; memory grows with the different words, not with the texts.

    Args:
        texts: one text, or an iterable of texts.
        pattern: as for `split_words`.
    """
    counts = Counter()
    for text in _texts(texts):
        check_text(text)
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
    """Byte-level byte-pair encoding, as GPT-2 uses it: every text can be written, and comes back
    (with one more space in front if `add_prefix_space` is set).

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
        names = special_names(specials)
        given = isinstance(specials, Mapping)
        self.specials = dict(specials) if given else enumerated(names, len(spelled))
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
        smallest = 256 + len(special_names(specials))
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

        Only the places are visited where something is merged, at most as many as there are symbols:
        so n symbols take n log n steps, whatever the word. (To read the word again for each
        different merge, as `replace` would, takes n times as many as there are of these.)
        """
        made, end = self._made, len(word)
        held = [*word, ""]  # the symbol at each place; "" if it went into the one before, and last
        before, after = list(range(-1, end)), list(range(1, end + 2))
        places = defaultdict(list)  # the symbol that a merge makes -> where its left part stood
        for place, pair in enumerate(pairs_of(word)):
            if pair in made:
                places[made[pair]].append(place)
        waiting = list(places)
        heapify(waiting)
        while waiting:
            new = heappop(waiting)
            left, right = self._pairs[new]
            for place in sorted(places.pop(new)):
                merged = after[place]
                if held[place] != left or held[merged] != right:
                    continue  # one of them was merged with another meanwhile
                held[place], held[merged] = new, ""
                following, previous = after[merged], before[place]
                after[place], before[following] = following, place
                # Beyond both ends stands "", and no merge has the pair of a symbol and nothing.
                made_now = ((previous, held[previous] + new), (place, new + held[following]))
                for start, pair in made_now:
                    if pair in made:
                        if made[pair] not in places:
                            heappush(waiting, made[pair])
                        places[made[pair]].append(start)
        return "".join(held)

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

    # -- files: each is replaced whole or not at all; none is trusted --

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one JSON file, which `load` reads."""
        files.write_own(path, **self._settings())

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
        with files.naming(path):
            return cls(**files.read_own(path, patterns=(None, GPT2_PATTERN, pattern)))

    def save_gpt2(self, folder: str | os.PathLike[str]) -> None:
        """Write `vocab.json` and `merges.txt` as GPT-2's authors did; the folder is made if needed.

        Raises:
            ValueError: another pattern, a prefix space, or a special token named like another.
        """
        if self.pattern != GPT2_PATTERN or self.add_prefix_space:
            raise ValueError("these files hold no pattern: expected GPT-2's, and no prefix space")
        files.write_gpt2(folder, self.merges, self._ids, self.specials)

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
        with files.naming(folder):
            return cls(**files.read_gpt2(folder, specials))

    def save_hugging_face(self, path: str | os.PathLike[str]) -> None:
        """Write a `tokenizer.json` for the library `tokenizers`.

        There, special tokens are found in every text unless `encode_special_tokens` is set.

        Raises:
            ValueError: a pattern that is neither GPT-2's nor none, or a special token named like
                another token.
        """
        files.write_hugging_face(path, **self._settings(), gpt2_pattern=GPT2_PATTERN)

    @classmethod
    def load_hugging_face(
        cls, path: str | os.PathLike[str], specials: Collection[str] = ()
    ) -> BytePairTokenizer:
        """The tokenizer of a `tokenizer.json` that holds byte-level byte-pair encoding.

        `add_prefix_space` is honoured, and so is `use_regex`, without which a text is one word.
        Merges may be pairs or, as in older files, strings with a space.

        Args:
            path: the file.
            specials: names that must be special tokens, whether the file lists them as such or, as
                `tokenizers.ByteLevelBPETokenizer` does, only in its vocabulary.
        Raises:
            ValueError: the file is not such a file, not whole or not in order, or asks for what
                this class does not do (another model, a normaliser, another pre-tokenizer, …).
        """
        with files.naming(path):
            settings = files.read_hugging_face(path, specials, gpt2_pattern=GPT2_PATTERN)
            return cls(**settings)

    def _settings(self) -> dict:
        """What makes this tokenizer, by the names of `__init__`'s arguments."""
        return {
            "merges": self.merges,
            "specials": self.specials,
            "pattern": self.pattern,
            "ids": self._ids,
            "add_prefix_space": self.add_prefix_space,
        }


def load(path: str | os.PathLike[str]) -> BytePairTokenizer | WordTokenizer | CharacterTokenizer:
    """The tokenizer that the `save` of any of these wrote; `UnigramTokenizer.load` reads its own.

    Raises:
        ValueError: the file is none of these, or not whole, or not in order.
    """
    with files.naming(path):
        kind = files.kind_of(path)
        kinds = {each.kind: each for each in (WordTokenizer, CharacterTokenizer)}
        if kind is not None and kind not in kinds:
            raise ValueError(f"expected pieces of a kind among {sorted(kinds)}, got {kind!r}")
    return kinds.get(kind, BytePairTokenizer).load(path)


_MOST_SYMBOLS = 0x110000  # as many characters as there are


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
