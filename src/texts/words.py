"""How does a language whose tokens are words write them as ids, and read them again?

Used by all languages that we made; the first is that of the chapter `likelihood/text_probability`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class Words:
    """What all sources share: words are tokens, and `_ids` knows the place of each."""

    vocabulary: tuple[str, ...]
    _ids: dict[str, int]

    def encode(self, text: str | Sequence[str]) -> Tensor:
        """The ids, (T,), of a text: a list of words, or a string with spaces between them.

        Raises:
            ValueError: a word is not in the vocabulary.
        """
        words = text.split() if isinstance(text, str) else text
        unknown = [word for word in words if word not in self._ids]
        if unknown:
            raise ValueError(f"expected words among {list(self.vocabulary)}, got {unknown}")
        return torch.tensor([self._ids[word] for word in words], dtype=torch.long)

    def decode(self, ids: Tensor | Sequence[int]) -> str:
        """The words of some token ids, with spaces between them."""
        return " ".join(self.vocabulary[int(token)] for token in ids)
