"""How does a GGUF file hold its tokenizer, and does ours give the same ids?

    tokenizer.ggml.tokens        the spelling of each id, in GPT-2's alphabet of bytes
    tokenizer.ggml.merges        "left right", the first to be merged first
    tokenizer.ggml.token_type    1 a piece of text, 3 and 4 a special token
    tokenizer.ggml.pre           by a name, how a text is cut into words

This is byte-pair encoding as in `tokens/bpe`, with two differences. Digits are cut one by one
before the words are found: a space before a digit stands alone, and no number is a token. And some
bytes have no token, since no text of the training had them: these bytes are lost, as they are in
the library `tokenizers`.

    text = "in 1984"     words: "in", " ", "1", "9", "8", "4"

Source: the patterns are those of the library `ggml` (Gerganov et al.) and of the model's own
`tokenizer.json`. Chapter: `today/a_real_model`.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..tokens.bpe import GPT2_PATTERN, BytePairTokenizer
from ..tokens.fast_bpe import symbols
from ..tokens.files import bytes_to_unicode, from_spellings, pair_of_spellings
from .gguf_files import GGUFFile

# GPT-2's, for text that was cut at each digit: white space before one is as at the end of a text.
DIGITS_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
_PATTERNS = {"gpt-2": GPT2_PATTERN, "smollm": DIGITS_PATTERN}
_TEXT, _SPECIAL = 1, (3, 4)


class PartialTokenizer(BytePairTokenizer):
    """A `BytePairTokenizer` of which some bytes have no token: they are left out of a text.

    What is left moves together before anything is merged, as in the library `tokenizers`. Ids run
    from 0 to `vocabulary_size - 1` as they do elsewhere.

    Attributes:
        missing: the bytes without a token.

    Args:
        merges, specials, pattern: as for `BytePairTokenizer`.
        ids: the id of each token; those of missing bytes are the last.
        missing: the bytes without a token.
    """

    def __init__(
        self,
        merges: Iterable[tuple[int, int]],
        specials: Mapping[str, int],
        *,
        pattern: str | None,
        ids: Sequence[int],
        missing: bytes,
    ):
        super().__init__(merges, specials, pattern=pattern, ids=ids)
        self.missing = missing
        self._left_out = dict.fromkeys(missing)  # as symbols, whose numbers are those of the bytes
        for byte in missing:
            del self._bytes[ids[byte]]

    def _ids_of_word(self, word: str) -> tuple[int, ...]:
        return tuple(
            self.ids[ord(symbol)] for symbol in self.merged(symbols(word).translate(self._left_out))
        )


def tokenizer_of(file: GGUFFile) -> PartialTokenizer:
    """The tokenizer of a file, if it is byte-level byte-pair encoding that cuts texts as known.

    Raises:
        ValueError: it is of another kind, or its tokens, merges and special tokens do not agree.
    """
    kind = file.value("tokenizer.ggml.model", str)
    pre = file.value("tokenizer.ggml.pre", str, "default")
    if kind != "gpt2" or pre not in _PATTERNS:
        raise ValueError(
            f"expected tokenizer.ggml.model 'gpt2' and tokenizer.ggml.pre among {[*_PATTERNS]}, "
            f"got {kind[:60]!r} ('llama' is SentencePiece) and {pre[:60]!r}"
        )
    tokens = file.value("tokenizer.ggml.tokens", list)
    merges = file.value("tokenizer.ggml.merges", list)
    kinds = file.value("tokenizer.ggml.token_type", np.ndarray).tolist()
    if unknown := sorted(set(kinds) - {_TEXT, *_SPECIAL}):
        raise ValueError(f"expected tokens of kinds 1 (text), 3, 4 (special), got {unknown[:3]}")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    alphabet = bytes_to_unicode()
    missing = bytes(byte for byte in range(256) if alphabet[byte] not in vocabulary)
    for byte in missing:
        vocabulary[alphabet[byte]] = len(vocabulary)
    specials = {
        token: vocabulary[token]
        for token, kind in zip(tokens, kinds, strict=True)
        if kind in _SPECIAL
    }
    settings = from_spellings(vocabulary, list(map(pair_of_spellings, merges)), specials)
    return PartialTokenizer(**settings, pattern=_PATTERNS[pre], missing=missing)
