"""What is a longer context worth, in a language where that has a formula?

A text tells who lives where, in entries of a name and a house. Each text has houses of its own:

    house of name k       uniform over V, drawn once for each text
    name of each entry    k with probability p_k, in proportion to 1 / (k + 1)^zipf

A reader of the last m entries knows the house if the name is among them, and else knows nothing:

    nats of a house after m entries = log V  sum_k p_k (1 - p_k)^m

Axes: B texts, T tokens, N entries. Derived in the chapter `today/long_context`.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class AddressBook:
    """Texts of entries, behind a begin token 0; names are 1, 2, …, and houses follow them.

    Args:
        names: how many there are.
        houses: V, how many there are.
        zipf: the exponent of the names' probabilities; 0: all alike.
    """

    names: int = 24
    houses: int = 8
    zipf: float = 1.0

    @property
    def vocabulary_size(self) -> int:
        """The begin token, the names and the houses."""
        return 1 + self.names + self.houses

    @cached_property
    def probs(self) -> Tensor:
        """How probable each name is, (names,), in float64."""
        weights = torch.arange(1, self.names + 1, dtype=torch.float64) ** -self.zipf
        return weights / weights.sum()

    def sample(self, count: int, entries: int, *, generator: torch.Generator) -> Tensor:
        """`count` texts of so many entries, (B, 1 + 2 N): 0, name, house, name, house, …"""
        drawn = torch.multinomial(self.probs, count * entries, True, generator=generator)
        names = drawn.view(count, entries)
        homes = torch.randint(self.houses, (count, self.names), generator=generator)
        houses = homes.gather(1, names)
        words = torch.stack([1 + names, 1 + self.names + houses], -1).flatten(1)  # (B, 2 N)
        return torch.cat([torch.zeros(count, 1, dtype=torch.long), words], 1)

    def batch(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(inputs, targets, mask), (B, 2 N) each: only houses count; what comes next is a name."""
        counts = torch.arange(ids.shape[1] - 1) % 2 == 1  # inputs 1, 3, …: the names
        return ids[:, :-1], ids[:, 1:], counts.expand(len(ids), -1)

    def floor(self, entries: int) -> float:
        """Nats of a house, on average, for a perfect reader who sees so many entries before it."""
        return math.log(self.houses) * float((self.probs * (1 - self.probs) ** entries).sum())

    def surprise(self, ids: Tensor, *, last: int | None = None) -> Tensor:
        """What each house costs a perfect reader, (B, N): log V where its name is new to it, or 0.

        Args:
            ids: (B, 1 + 2 N); from `sample`.
            last: how many entries before the present one the reader sees; None: all.
        """
        names = ids[:, 1::2]  # (B, N)
        entries = names.shape[1]
        ago = torch.arange(entries)[:, None] - torch.arange(entries)  # (N, N)
        seen = (ago > 0) if last is None else (ago > 0) & (ago <= last)
        known = (seen & (names[:, :, None] == names[:, None, :])).any(-1)
        return math.log(self.houses) * (~known).double()
