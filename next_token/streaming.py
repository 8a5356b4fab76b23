"""How is a text shown while it is still being written?

    p(next) = softmax(filters(logits))        as in `gpt/sampling`, one text, a token at a time

A token is handed out as soon as it is drawn. What it spells may end inside a character; its bytes
then wait for those of the next. A text that goes on from one read before is read from there on.

What is drawn is derived in the chapters `gpt/sampling` and `gpt/cache`.
"""

import codecs
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from src.gpt.gpt2 import GPT
from src.gpt.sampling import Filter, draw
from src.likelihood.models import device_of, evaluating, last_logits
from src.tokens.bytes import Tokenizer


class Reader:
    """Reads one text that grows, each token once: keys and values are kept."""

    def __init__(self, model: GPT):
        self.model, self.cache = model, model.new_cache()
        self._read: list[int] = []

    def logits(self, ids: Sequence[int]) -> Tensor:
        """The logits of the next token, (1, V).

        Only what differs from the text before is read: the beginning that both share is known.

        Args:
            ids: the whole text, at least one token.
        Raises:
            ValueError: there are more tokens than the model's context holds.
        """
        both = zip(self._read, ids[:-1], strict=False)  # the last is read anew: it gives the logits
        known = next((n for n, (old, new) in enumerate(both) if old != new), None)
        known = min(len(self._read), len(ids) - 1) if known is None else known
        for part in self.cache:
            part.length = known
        new = torch.tensor([ids[known:]], device=device_of(self.model))
        with evaluating(self.model), torch.inference_mode():
            found = last_logits(self.model, new, cache=self.cache)
        self._read = [*ids]
        return found


def stream(
    reader: Reader,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    filters: Sequence[Filter] = (),
    stop: int | None = None,
    generator: torch.Generator,
) -> Iterator[int]:
    """The tokens that go on from a prompt, each as soon as it is drawn; as `generate` draws them.

    It ends after `max_new_tokens`, before the token `stop`, or where the model's context is full.

    Args:
        reader: of a model; it may know the beginning of the prompt.
        prompt: at least one token.
        max_new_tokens: at most so many.
        filters: applied to the logits one after another, as in `generate`.
        stop: the token that ends a text; it is not handed out.
        generator: draws the tokens; on the CPU.
    Raises:
        ValueError: the prompt is longer than the context, or no token is left to draw.
    """
    ids = [*prompt]
    for _ in range(max_new_tokens):
        drawn = int(draw(reader.logits(ids), filters, generator))
        if drawn == stop:
            return
        ids.append(drawn)
        yield drawn
        if len(ids) > reader.model.context_length:
            return


def spelled(ids: Iterable[int], tokenizer: Tokenizer) -> Iterator[str]:
    """The text of ids, piece by piece, each as soon as its characters are whole.

    Bytes that are no UTF-8 are shown as U+FFFD, as `decode` shows them.

    >>> from src.tokens.bytes import ByteTokenizer
    >>> list(spelled("né!".encode(), ByteTokenizer()))
    ['n', 'é', '!']

    Args:
        ids: as they come.
        tokenizer: whose ids they are.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in ids:
        if piece := decoder.decode(tokenizer.token_bytes(token)):
            yield piece
    if rest := decoder.decode(b"", final=True):
        yield rest
