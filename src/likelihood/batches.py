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
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
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


class Stream(Protocol):
    """A long text's ids that are not in memory: `next_token.token_folders.TokenStream`."""

    @property
    def checksum(self) -> str: ...
    @property
    def documents(self) -> int: ...
    def __len__(self) -> int: ...
    def piece(self, start: int, length: int) -> np.ndarray: ...
    def start_of(self, document: int) -> int: ...


@dataclass(frozen=True)
class LazyBatch:
    """A batch of which nothing is read before it is asked for, row by row.

    So each of several processes reads its own rows only, and each part of a step its own.

    Attributes:
        starts: (B,); where its pieces begin. T: `context_length`.
    """

    batches: "Batches"
    starts: np.ndarray

    @property
    def tokens(self) -> int:
        """How many targets it has."""
        return len(self.starts) * self.batches.context_length

    def split(self, parts: int) -> list["LazyBatch"]:
        """Its rows in nearly equal parts."""
        return [LazyBatch(self.batches, some) for some in np.array_split(self.starts, parts)]

    def read(self) -> tuple[Tensor, Tensor]:
        """(inputs, targets), each (B, T)."""
        pieces = self.batches.pieces(self.starts)  # (B, T + 1)
        return pieces[:, :-1], pieces[:, 1:]


class Batches:
    """Random pieces of a stream: (inputs, targets), each (B, T), targets one token later.

    Each piece begins anywhere, all beginnings equally likely. Going through the batches never ends.
    Of a stream on a disk, nothing is held in memory but the batch that is asked for.

    Args:
        ids: (N,); the stream, on the device where the batches are wanted; or one on a disk.
        batch_size: B, all processes and parts of a step together.
        context_length: T.
        seed: which sequence of batches.
        first: the token that every piece begins with, such as an end token, so that no document
            is seen without its beginning; None: pieces begin anywhere. A stream on a disk knows
            the beginnings of its documents, and no other token.
    Raises:
        ValueError: a size is below 1, the stream is too short for one piece, the seed negative, or
            no piece begins with the token.
    """

    def __init__(
        self,
        ids: Tensor | Stream,
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
        self._last = len(ids) - context_length  # no piece begins here or after
        self._found = None  # where pieces may begin, if not anywhere
        if first is not None and isinstance(ids, Tensor):
            self._found = (ids[: self._last] == first).nonzero()[:, 0].cpu().numpy()
        self._count = self._count_starts()
        if not self._count:
            raise ValueError(
                f"expected a piece of {context_length + 1} tokens that begins with token {first}, "
                "found none in the stream"
            )

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """Batch `number`, counted from 0: (inputs, targets), each (B, T)."""
        return self.lazy(number).read()

    def lazy(self, number: int) -> LazyBatch:
        """Batch `number`, before anything of it is read."""
        if number < 0:
            raise IndexError(f"expected a batch number of 0 or more, got {number}: there is no end")
        draw = np.random.default_rng([self.seed, number])  # made to mix a seed and a position
        drawn = draw.integers(self._count, size=self.batch_size)
        return LazyBatch(self, drawn if self._found is None else self._found[drawn])

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return map(self.__getitem__, count())

    def pieces(self, starts: np.ndarray) -> Tensor:
        """The pieces that begin at some places, or with some documents of a stream on a disk.

        Returns:
            (B, T + 1).
        """
        length = self.context_length + 1
        if isinstance(self.ids, Tensor):
            places = torch.from_numpy(starts).to(self.ids.device)
            return self.ids[places[:, None] + torch.arange(length, device=places.device)]
        if self.first is not None:
            starts = [self.ids.start_of(int(document)) for document in starts]
        rows = [self.ids.piece(int(start), length) for start in starts]
        return torch.from_numpy(np.stack(rows) if rows else np.empty((0, length), np.int64))

    def _count_starts(self) -> int:
        """At how many places a piece may begin."""
        if self._found is not None:
            return len(self._found)
        if self.first is None or isinstance(self.ids, Tensor):
            return self._last
        return bisect_left(range(self.ids.documents), self._last, key=self.ids.start_of)

    @property
    def settings(self) -> dict[str, int | str | None]:
        """What tells these batches from others."""
        checksum = (
            zlib.crc32(self.ids.cpu().contiguous().numpy().data)
            if isinstance(self.ids, Tensor)
            else self.ids.checksum
        )
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "context_length": self.context_length,
            "first": self.first,
            "tokens": len(self.ids),
            "checksum": checksum,
        }


def _check_stream(ids: Tensor | Stream, batch_size: int, context_length: int) -> None:
    """Refuse a stream that holds no piece, or sizes below 1."""
    if batch_size < 1 or context_length < 1:
        raise ValueError(
            f"expected at least one piece of at least one token, got batch_size={batch_size} and "
            f"context_length={context_length}"
        )
    shape = tuple(ids.shape) if isinstance(ids, Tensor) else (len(ids),)
    if len(shape) != 1 or shape[0] <= context_length:
        raise ValueError(
            f"expected a stream of at least {context_length + 1} tokens (context_length inputs and "
            f"the target of the last), got ids of shape {shape}"
        )
