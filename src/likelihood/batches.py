"""Which pieces of a long text does a step of training see?

    batch n = a function of the seed and of n, and of nothing before it

So a run that begins again at step n + 1 needs to remember no more than n.

A batch is (inputs, targets) or (inputs, targets, mask), each (B, T); the mask is True where a real
token stands. A model of several inputs, such as source and target of a translation, gets a tuple
of them.

Axes: B pieces, T positions, N tokens of the stream.
Derived in the chapters `likelihood/neural` and `gpt/training`.
"""

import zlib
from collections.abc import Iterator
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
        batch_size: B, all processes and parts of a step together.
        context_length: T.
        seed: which sequence of batches.
        first: the token that every piece begins with, such as an end token, so that no document
            is seen without its beginning; None: pieces begin anywhere.
    Raises:
        ValueError: a size is below 1, the stream is too short for one piece, the seed negative, or
            no piece begins with the token.
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
        _check_stream(ids, batch_size, context_length)
        if seed < 0:
            raise ValueError(f"expected a seed of 0 or more, got {seed}")
        self.ids, self.batch_size, self.context_length = ids, batch_size, context_length
        self.seed, self.first = seed, first
        last = len(ids) - context_length  # no piece begins here or after
        self._starts = np.arange(last)
        if first is not None:
            self._starts = (ids[:last] == first).nonzero()[:, 0].cpu().numpy()
        if not len(self._starts):
            raise ValueError(
                f"expected a piece of {context_length + 1} tokens that begins with token {first}, "
                "found none in the stream"
            )

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """Batch `number`, counted from 0: (inputs, targets), each (B, T)."""
        if number < 0:
            raise IndexError(f"expected a batch number of 0 or more, got {number}: there is no end")
        draw = np.random.default_rng([self.seed, number])  # made to mix a seed and a position
        starts = self._starts[draw.integers(len(self._starts), size=self.batch_size)]
        return _pieces_at(self.ids, torch.from_numpy(starts), self.context_length)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return map(self.__getitem__, count())

    @property
    def settings(self) -> dict[str, int | None]:
        """What tells these batches from others."""
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "context_length": self.context_length,
            "first": self.first,
            "tokens": len(self.ids),
            "checksum": zlib.crc32(self.ids.cpu().contiguous().numpy().data),
        }


def _pieces_at(ids: Tensor, starts: Tensor, context_length: int) -> tuple[Tensor, Tensor]:
    """The pieces of a stream that begin at some places, and the same one token later."""
    offsets = torch.arange(context_length + 1, device=ids.device)
    pieces = ids[starts[:, None].to(ids.device) + offsets]  # (B, T + 1)
    return pieces[:, :-1], pieces[:, 1:]


def _check_stream(ids: Tensor, batch_size: int, context_length: int) -> None:
    """Refuse a stream that holds no piece, or sizes below 1."""
    if batch_size < 1 or context_length < 1:
        raise ValueError(
            f"expected at least one piece of at least one token, got batch_size={batch_size} and "
            f"context_length={context_length}"
        )
    if ids.ndim != 1 or len(ids) <= context_length:
        raise ValueError(
            f"expected a stream of at least {context_length + 1} tokens (context_length inputs and "
            f"the target of the last), got ids of shape {tuple(ids.shape)}"
        )
