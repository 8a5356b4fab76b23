"""Which pieces of a long text does a step of training see?

    batch n = a function of the seed and of n, and of nothing before it

So a run that begins again at step n + 1 needs to remember no more than n.

A batch is (inputs, targets) or (inputs, targets, mask), each (B, T); the mask is True where a real
token stands. A model of several inputs, such as source and target of a translation, gets a tuple
of them.

Axes: B pieces, T positions, N tokens of the stream.
Derived in the chapters `likelihood/gradient_descent` and `gpt/training`.
"""

import zlib
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

Inputs = Tensor | tuple[Tensor, ...]
Batch = tuple[Inputs, Tensor] | tuple[Inputs, Tensor, Tensor]


class Numbered(Protocol):
    """Batches that can be asked for by number: a list, or `Batches`."""

    def __getitem__(self, number: int) -> Batch: ...


class Batches:
    """Random pieces of a stream: (inputs, targets), each (B, T), targets one token later.

    Each piece begins anywhere, all beginnings equally likely. Going through the batches never ends.

    Args:
        ids: (N,); the stream, on the device where the batches are wanted.
        batch_size: B.
        context_length: T.
        seed: which sequence of batches.
        first: the token that every piece begins with, such as an end token, so that no document
            is seen without its beginning; None: pieces begin anywhere.
    Raises:
        ValueError: a size is below 1, the stream is too short for one piece, or no piece begins
            with the token.
    """

    def __init__(
        self,
        ids: Tensor,
        *,
        batch_size: int,
        context_length: int,
        seed: int = 0,
        first: int | None = None,
    ):
        if min(batch_size, context_length) < 1:
            raise ValueError(f"expected sizes above 0, got {batch_size=} and {context_length=}")
        self.ids, self.batch_size, self.context_length = ids, batch_size, context_length
        self.seed, self.first = seed, first
        self.starts = self._starts(max(0, len(ids) - context_length))
        if not len(self.starts):
            expected = f"a stream of at least {context_length + 1} tokens"
            raise ValueError(f"expected {expected}, from the {first=} on, got {len(ids)} in all")

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """Batch `number`, counted from 0: (inputs, targets), each (B, T)."""
        draw = np.random.default_rng([self.seed, number])  # made to mix a seed and a position
        starts = [self.starts[i] for i in draw.integers(len(self.starts), size=self.batch_size)]
        pieces = torch.stack([self._piece(start) for start in starts])  # (B, T + 1)
        return pieces[:, :-1], pieces[:, 1:]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return map(self.__getitem__, count())

    def _piece(self, start: int) -> Tensor:
        return self.ids[start : start + self.context_length + 1]

    def _starts(self, end: int) -> Sequence[int]:
        """Where pieces may begin, before `end`."""
        if self.first is None:
            return range(end)
        return (self.ids[:end] == self.first).nonzero()[:, 0].tolist()

    @property
    def settings(self) -> dict[str, int | str | None]:
        """What tells these batches from others."""
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "context_length": self.context_length,
            "first": self.first,
            "tokens": len(self.ids),
            "checksum": self._checksum(),
        }

    def _checksum(self) -> int | str:
        return zlib.crc32(self.ids.cpu().contiguous().numpy().data)
