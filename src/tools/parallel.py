"""How do several processes know of each other?

    torchrun --nproc_per_node=2 program.py          with joined() as team: … in program.py

Each of them runs the same program, and has a number of its own, its rank.

Derived in the chapter `gpt/many_cores`. `next_token.engines` trains with it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import distributed


@dataclass(frozen=True)
class Team:
    """The processes that train together: how many, and which of them this one is."""

    rank: int = 0
    size: int = 1


@contextmanager
def joined() -> Iterator[Team]:
    """Inside the block, the processes that torchrun has started work together, on the CPU."""
    distributed.init_process_group("gloo")
    try:
        yield Team(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()
