"""How does a text become whole numbers, and how do the numbers become the text again?

A tokenizer is a pair of functions, enc from text to ids and dec from ids to text. All tokenizers
share one small interface: `encode`, `decode`, `vocabulary_size`, `token_bytes` and `specials`. They
differ in what a token is: here a character, a word, or a byte. Bytes give back every text that
UTF-8 can write, but refuse the character NUL, since its byte is their end token.

Derived in the chapter `tokens/bytes`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Self

import regex

if TYPE_CHECKING:
    from torch import Tensor

    from ..texts.corpora import Document

UNKNOWN, PADDING, START, END = "<|unknown|>", "<|padding|>", "<|start|>", "<|endoftext|>"
FOUR_SPECIALS = (UNKNOWN, PADDING, START, END)
_WORDS = regex.compile(r"\w+|[^\w\s]")  # words, and each other mark by itself


# ---- what all tokenizers share -------------------------------------------------------------------


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
            TypeError: the text is not a string.
            ValueError: a lone surrogate; a name that is none of `specials`.
        """
        if not isinstance(text, str):
            raise TypeError(f"expected a text, a str, got {type(text).__name__}")
        text.encode()  # which refuses lone surrogates
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
        if unknown := set(allowed_special) - self.specials.keys():
            known = [*self.specials]
            raise ValueError(f"allowed_special must be among {known}, got {sorted(unknown)}")
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
            ValueError: an id out of range.
            UnicodeDecodeError: bytes that are not UTF-8, with "strict".
        """
        return b"".join(self._spelled(ids)).decode("utf-8", errors)

    def _spelled(self, ids: Iterable[int]) -> list[bytes]:
        """The bytes of each token."""
        spelled = []
        for place, token_id in enumerate(ids):
            try:
                spelled.append(self._bytes[token_id])
            except (KeyError, TypeError):
                got = f"got {token_id!r} at position {place}; a tensor's are tensor.tolist()"
                raise ValueError(f"expected ids from 0 to {len(self._bytes) - 1}, {got}") from None
        return spelled

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one id stands for, which need not be whole characters."""
        return self._spelled([token_id])[0]

    @property
    def vocabulary_size(self) -> int:
        """The number of ids, special tokens included: they run from 0 to `vocabulary_size - 1`."""
        return len(self._bytes)

    def __repr__(self) -> str:
        sizes = f"vocabulary_size={self.vocabulary_size}, specials={self.specials}"
        return f"{type(self).__name__}({sizes})"


def as_texts(text: str | Iterable[str]) -> Iterable[str]:
    """One text or many, as many."""
    return [text] if isinstance(text, str) else text


def special_names(specials: Iterable[str]) -> list[str]:
    """The names of special tokens, if they can be names.

    Raises:
        TypeError: a string rather than a collection of names.
        ValueError: a name twice, or an empty one.
    """
    if isinstance(specials, str):
        raise TypeError(f"specials must be a collection of names, write ({specials!r},)")
    names = list(specials)
    if len(set(names)) < len(names) or not all(isinstance(n, str) and n for n in names):
        raise ValueError(f"specials must be different names that are not empty, got {names}")
    return names


def enumerated(names: Iterable[str], first: int) -> dict[str, int]:
    """The id of each name, from `first` on."""
    return {name: number for number, name in enumerate(names, start=first)}


def stream_of(documents: Iterable[Document], tokenizer: Tokenizer) -> Tensor:
    """The ids of all documents, (N,), an end token before, between and after them."""
    import torch

    end = tokenizer.specials[END]
    ids = [end]
    for document in documents:
        ids += [*tokenizer.encode(document.text), end]
    return torch.tensor(ids)


# ---- characters, words, bytes --------------------------------------------------------------------


class _ListTokenizer(Tokenizer):
    """A tokenizer that knows a list of pieces and calls every other piece unknown.

    Attributes:
        ids: the id of each piece.
    """

    def __init__(self, pieces: Iterable[str]):
        pieces = list(pieces)
        if len(set(pieces)) < len(pieces):
            raise ValueError("expected different pieces, got one of them twice")
        self.specials = enumerated(FOUR_SPECIALS, 0)
        self.ids = enumerated(pieces, len(FOUR_SPECIALS))
        names = chain(self.specials, self.ids)
        self._bytes = {number: name.encode() for number, name in enumerate(names)}

    @classmethod
    def train(cls, text: str | Iterable[str], vocabulary_size: int | None = None) -> Self:
        """The tokenizer of the most frequent pieces of a text; ties in the order of code points.

        Args:
            text: one text, or an iterable of texts.
            vocabulary_size: the greatest size, the four special tokens included; None: no limit.
        """
        room = None if vocabulary_size is None else vocabulary_size - len(FOUR_SPECIALS)
        if room is not None and room < 0:
            raise ValueError(f"expected a vocabulary_size of 4 or more, got {vocabulary_size}")
        counts: Counter[str] = Counter()
        for one in as_texts(text):
            counts.update(cls.pieces(one))
        return cls(sorted(counts, key=lambda piece: (-counts[piece], piece))[:room])

    @staticmethod
    @abstractmethod
    def pieces(text: str) -> list[str]:
        """The text cut into pieces."""

    def _encode(self, text: str) -> list[int]:
        unknown = self.specials[UNKNOWN]
        return [self.ids.get(piece, unknown) for piece in self.pieces(text)]


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
        return _WORDS.findall(text)

    def decode(self, ids: Iterable[int], errors: str = "replace") -> str:
        """The words with one space between them; see `Tokenizer.decode`."""
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

    def __init__(self) -> None:
        self.specials = {END: 0}
        self._bytes = {number: bytes([number]) for number in range(256)}

    def _parted(self, text: str, allowed_special: Collection[str]) -> list[str]:
        super()._parted(text, allowed_special)  # which checks the names
        parts = text.split("\0")
        return [part for text in parts for part in (text, END)][:-1]

    def _encode(self, text: str) -> list[int]:
        if "\0" in text:
            place = f"got one at character {text.index(chr(0))}; allowed_special=(END,) allows it"
            raise ValueError(f"expected text without the byte 0, which is the end token, {place}")
        return list(text.encode())
