"""How does a text become whole numbers with few tokens, and yet any text can be written?

Byte-pair encoding writes a word as its bytes, then again and again makes one new token of the
most frequent pair of neighbours. To encode, the merges are repeated in the order in which they
were learned. dec(enc(text)) = text for every text that UTF-8 can write, unless a prefix space is
asked for. How the merges are found fast is in `tokens/fast_bpe`.

Sources: Gage 1994; Sennrich et al. 2016; Radford et al. 2019, section 2.2.
Derived in the chapters `tokens/bpe` and `tokens/fast_bpe`.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate, chain

import regex

from ..tools.progress import progress as progress_bar
from . import files
from .bytes import (
    END,
    ByteTokenizer,
    CharacterTokenizer,
    Tokenizer,
    WordTokenizer,
    as_texts,
    check_text,
    enumerated,
    special_names,
)
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
    counts: Counter[str] = Counter()
    for text in as_texts(texts):
        check_text(text)
        for words in _words_by_block(text, pattern):
            counts.update(words)
    return counts


# ---- the tokenizer -------------------------------------------------------------------------------


class _Cache(dict[str, tuple[int, ...]]):
    """word -> its ids, worked out when first asked for; starts afresh when it is full."""

    def __init__(self, ids_of_word: Callable[[str], tuple[int, ...]], size: int):
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
        self.pattern, self.add_prefix_space = pattern, add_prefix_space
        if pattern is not None:
            _compiled(pattern)
        names = special_names(specials)
        if isinstance(specials, Mapping):
            self.specials = dict(specials)
        else:
            self.specials = enumerated(names, len(spelled))
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
        if not smallest <= vocabulary_size <= _MOST_SYMBOLS:
            raise ValueError(
                f"vocabulary_size must be from {smallest} (256 bytes and {smallest - 256} special "
                f"tokens) to {_MOST_SYMBOLS}, got {vocabulary_size}"
            )
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
        if number < 256:
            return None
        left, right = self.merges[number - 256]
        return self._ids[left], self._ids[right]

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


def load(
    path: str | os.PathLike[str],
) -> BytePairTokenizer | WordTokenizer | CharacterTokenizer | ByteTokenizer:
    """The tokenizer that the `save` of any of these wrote; `UnigramTokenizer.load` reads its own.

    Raises:
        ValueError: the file is none of these, or not whole, or not in order.
    """
    with files.naming(path):
        kind = files.kind_of(path)
        kinds: dict[str, type[WordTokenizer | CharacterTokenizer | ByteTokenizer]]
        kinds = {each.kind: each for each in (WordTokenizer, CharacterTokenizer, ByteTokenizer)}
        if kind is not None and kind not in kinds:
            raise ValueError(f"expected pieces of a kind among {sorted(kinds)}, got {kind!r}")
    return BytePairTokenizer.load(path) if kind is None else kinds[kind].load(path)


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
