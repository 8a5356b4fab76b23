"""How do several processes train one model? Each takes a share of the batch, and they add up.

    sum over the batch = sum over processes of (sum over its share)

A loss is a sum over tokens, so its gradient is a sum of gradients, and it does not matter who adds
which term. Nothing else is exchanged. One process is a team of one, and adds nothing up.

    torchrun --nproc_per_node=2 program.py          with joined(): … in program.py

Every process holds the whole model and the whole state of its optimiser. Models that do not fit
into one device would be cut up between them (`torch.distributed.fsdp.fully_shard`); that is left
out here. So is what makes Li et al. fast: they send the first gradients while the last are still
being computed; here all are sent at once, in one copy, after the backward pass.

Processes on several machines need a file system that all of them see: only the first writes
checkpoints, and all read them.

Source: Li et al. 2020, for the idea.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn


@dataclass(frozen=True)
class Team:
    """The processes that train together: how many, and which of them this one is."""

    rank: int = 0
    size: int = 1

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes, in place, in a single exchange.

        All processes pass tensors of the same shapes, in the same order.
        """
        if self.size == 1 or not tensors:
            return
        together = torch.cat([tensor.reshape(-1) for tensor in tensors])
        distributed.all_reduce(together)
        parts = together.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def share(self, model: nn.Module) -> None:
        """Give every process the parameters and buffers of the first."""
        if self.size > 1:
            for tensor in model.state_dict().values():
                distributed.broadcast(tensor, src=0)

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in order of rank, in each of them."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Go on when all have come here."""
        if self.size > 1:
            distributed.barrier()


ALONE = Team()


def team() -> Team:
    """The processes that have joined: one alone, unless inside `joined()` under torchrun."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return ALONE
    return Team(distributed.get_rank(), distributed.get_world_size())


@contextmanager
def joined() -> Iterator[Team]:
    """Inside the block, the processes that torchrun has started work together.

    On GPUs each takes the one of its local rank, and they talk by nccl; on CPUs, by gloo. In a
    program that torchrun has not started, nothing happens.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ or team().size > 1:
        yield team()
        return
    on_gpu = torch.cuda.is_available() and os.environ.get("NEXT_TOKEN_DEVICE", "cuda") != "cpu"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield team()
    finally:
        distributed.destroy_process_group()
