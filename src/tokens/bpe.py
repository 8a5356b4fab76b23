"""How does a text become whole numbers with few tokens, and yet any text can be written?

Byte-pair encoding writes a word as its bytes, then again and again makes one new token of the
most frequent pair of neighbours. To encode, the merges are repeated in the order in which they
were learned. dec(enc(text)) = text for every text that UTF-8 can write, unless a prefix space is
asked for. How the merges are found fast is in `tokens/fast_bpe`.

Sources: Gage 1994; Sennrich et al. 2016; Radford et al. 2019, section 2.2.
Derived in the chapters `tokens/bpe` and `tokens/fast_bpe`.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate, chain

import regex

from ..tools.progress import progress as progress_bar
from .bytes import END, Tokenizer, as_texts, enumerated, special_names
from .fast_bpe import learn_merges, pairs_of, symbols

# As published with GPT-2: contractions; letters, digits or other marks, with one space before them;
# white space, whose last character is left for the word after it.
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


# ---- words ---------------------------------------------------------------------------------------


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
        for block in map(re.Match.group, _BLOCK.finditer(text)):
            yield (_ASCII_WORDS if block.isascii() else _compiled(pattern)).findall(block)
    elif pattern is None:
        yield [text] if text else []
    else:
        words = _compiled(pattern).findall(text)
        if (kept := sum(map(len, words))) < len(text):
            lost = f"whose words hold {kept} characters of {len(text)}; let it end in |(?s:.)"
            raise ValueError(f"expected a pattern that leaves out nothing, got {pattern!r}, {lost}")
        yield words


# GPT-2's pattern for ASCII, where \s is the space and what lies from tab to carriage return.
_ASCII_WORDS = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^ \t-\rA-Za-z0-9]+"
    r"|[ \t-\r]+(?![^ \t-\r])|[ \t-\r]+"
)
# 1,024 characters, and on to the next space after another character; or the rest.
_BLOCK = re.compile(r"(?s:.{1023}.*?\S(?= )|.+)")


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
    counts: Counter[str] = Counter()
    for text in as_texts(texts):
        for words in _words_by_block(text, pattern):
            counts.update(words)
    return counts


# ---- the tokenizer -------------------------------------------------------------------------------


_SCANNED = 16  # symbols; a longer word is merged faster with a heap
_LONGEST_CACHED = 64  # characters; longer "words" seldom come again
_CACHE_SIZE = 1 << 16  # English prose of some millions of words has no more different ones


class _Cache(dict[str, tuple[int, ...]]):
    """word -> its ids, worked out when first asked for; starts afresh when it is full."""

    def __init__(self, ids_of_word: Callable[[str], tuple[int, ...]], size: int):
        self.ids_of_word, self.size = ids_of_word, size

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = self.ids_of_word(word)
        if self.size and len(word) <= _LONGEST_CACHED:
            if len(self) >= self.size:
                self.clear()
            self[word] = ids
        return ids


class BytePairTokenizer(Tokenizer):
    """Byte-level byte-pair encoding, as GPT-2 uses it: every text can be written, and comes back
    (with one more space in front if `add_prefix_space` is set).

    Tokens are numbered: the bytes from 0 to 255, then one for each merge. These numbers are also
    the ids, unless `ids` says otherwise, as it must for GPT-2's own files.

    >>> tokenizer = BytePairTokenizer.train("low low low lot lot", vocabulary_size=260)
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
        split_words("", pattern)  # which refuses groups
        self.pattern, self.add_prefix_space = pattern, add_prefix_space
        numbered = enumerated(special_names(specials), len(spelled))
        self.specials = dict(specials) if isinstance(specials, Mapping) else numbered
        self.ids = list(range(len(spelled)) if ids is None else ids)
        everything = [*self.ids, *self.specials.values()]
        missing = sorted(set(range(len(everything))).difference(everything))[:5]
        if missing or any(type(number) is not int for number in everything):
            raise ValueError(f"expected whole ids from 0 on, each once; {missing} are missing")
        if self.ids[256:] != sorted(self.ids[256:]):  # else a file's order would be lost
            raise ValueError("expected ids that ascend with the merges: were lines reordered?")
        self._bytes = dict(zip(self.ids, spelled, strict=True))
        self._bytes |= {number: name.encode() for name, number in self.specials.items()}
        pairs = [chr(left) + chr(right) for left, right in self.merges]
        self._symbol_of_pair = {pair: chr(number) for number, pair in enumerate(pairs, start=256)}
        self._pair_of_symbol = {new: pair for pair, new in self._symbol_of_pair.items()}
        self._cache = _Cache(self._ids_of_word, cache_size)

    @classmethod
    def train(
        cls,
        text: str | Iterable[str],
        vocabulary_size: int,
        *,
        pattern: str | None = GPT2_PATTERN,
        specials: Collection[str] = (END,),
        progress: bool = False,
    ) -> BytePairTokenizer:
        """The tokenizer whose merges are the most frequent pairs of a text, one after another.

        Args:
            text: one text, or an iterable of texts, of which one at a time is held in memory.
            vocabulary_size: bytes, merges and special tokens together.
            pattern, specials: as for the class.
            progress: whether to show bars.
        Warns:
            UserWarning: the text ran out of pairs, so that the vocabulary is smaller.
        Raises:
            ValueError: less than 256 ids and the special tokens; a lone surrogate in a text.
        """
        smallest = 256 + len(special_names(specials))
        if vocabulary_size < smallest:
            raise ValueError(f"expected a vocabulary_size from {smallest}, got {vocabulary_size}")
        texts = as_texts(text)
        counts = count_words(progress_bar(texts, "counting") if progress else texts, pattern)
        merges = learn_merges(counts, vocabulary_size - smallest, progress=progress)
        tokenizer = cls(merges, specials, pattern=pattern)
        if tokenizer.vocabulary_size < vocabulary_size:
            warnings.warn(
                f"vocabulary_size is {tokenizer.vocabulary_size}, not {vocabulary_size}: after "
                f"{len(merges)} merges each word of the text is one token; give it more text",
                stacklevel=2,
            )
        return tokenizer

    def _encode(self, text: str) -> list[int]:
        if self.add_prefix_space and text and not text.startswith(" "):
            text = " " + text
        ids: list[int] = []
        for words in _words_by_block(text, self.pattern):
            ids += chain.from_iterable(map(self._cache.__getitem__, words))
        return ids

    def _ids_of_word(self, word: str) -> tuple[int, ...]:
        return tuple(self.ids[ord(symbol)] for symbol in self.merged(symbols(word)))

    def merged(self, word: str) -> str:
        """A word of symbols after all merges, in the order in which they were learned.

        Not from left to right: if `bc` was learned before `ab`, `abc` becomes `a bc`, not `ab c`.
        A merge is made everywhere in the word before the next one is looked for.
        """
        # A token is one character, chr(number): a word is a string, and an older merge a smaller
        # character.
        if len(word) > _SCANNED:
            return self._merged_by_heap(word)
        made = self._symbol_of_pair
        while True:
            possible = [made[pair] for pair in pairs_of(word) if pair in made]
            if not possible:
                return word
            first = min(possible)  # the smallest symbol was learned first
            word = word.replace(self._pair_of_symbol[first], first)

    def _merged_by_heap(self, word: str) -> str:
        """The same for n symbols in n log n steps, however many different merges they need.

        The symbols are a linked list. A heap gives the merge that was learned first, and only the
        places are visited where its pair stands: at most as many as there are symbols.
        """
        made, end = self._symbol_of_pair, len(word)
        symbol = [*word, ""]  # at each place; "" if it went into the one before, and at the end
        before, after = list(range(-1, end)), list(range(1, end + 2))
        places = defaultdict(list)  # the symbol that a merge makes -> where its left part stands
        for place, pair in enumerate(pairs_of(word)):
            if pair in made:
                places[made[pair]].append(place)
        heap = sorted(places)  # a sorted list is a heap
        while heap:
            new = heappop(heap)
            left, right = self._pair_of_symbol[new]
            for place in sorted(places.pop(new)):
                merged = after[place]
                if symbol[place] != left or symbol[merged] != right:
                    continue  # one of them was merged with another meanwhile
                symbol[place], symbol[merged] = new, ""
                following, previous = after[merged], before[place]
                after[place], before[following] = following, place
                # Beyond both ends stands "", and no merge has the pair of a symbol and nothing.
                neighbours = ((previous, symbol[previous] + new), (place, new + symbol[following]))
                for start, pair in neighbours:
                    if pair in made:
                        if made[pair] not in places:
                            heappush(heap, made[pair])
                        places[made[pair]].append(start)
        return "".join(symbol)

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
        self._spelled([token_id])  # which refuses other ids
        number = 0 if token_id in self.specials.values() else self.ids.index(token_id)
        if number < 256:
            return None
        left, right = self.merges[number - 256]
        return self.ids[left], self.ids[right]


def _spelled_tokens(merges: Sequence[tuple[int, int]]) -> list[bytes]:
    """The bytes of each token, by its number; each must be made once, of two made before."""
    spelled = [bytes([byte]) for byte in range(256)]
    seen = set(spelled)
    for rank, (left, right) in enumerate(merges):
        if not all(type(part) is int and 0 <= part < len(spelled) for part in (left, right)):
            got = f"got {left!r} and {right!r}; were lines reordered?"
            raise ValueError(f"expected merge {rank} to join two tokens made before it, {got}")
        new = spelled[left] + spelled[right]
        if new in seen:
            raise ValueError(f"expected merge {rank} to make a new token, got {new!r} again")
        spelled.append(new)
        seen.add(new)
    return spelled
