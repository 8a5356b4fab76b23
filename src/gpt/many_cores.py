"""How do many processes train one model, when one is too slow or its memory too small?

    all-reduce      =  reduce-scatter, then all-gather
    reduce-scatter     of R pieces, each process gets the sum of one
    all-gather         each process gives its piece to all

In a ring of R processes each step of training sends 2 (R - 1) / R of the gradient from each process
to the next, however many they are. And between the two halves each process holds one finished piece
of the gradient: it can update its piece of the parameters with its piece of the optimiser's state,
and need not hold the others'. That is ZeRO, of which torch's `fully_shard` is the third stage.

    bytes per parameter      parameter    gradient    two moments      (float32)
    one process, DDP             4            4            8
    ZeRO 1                       4            4            8 / R
    ZeRO 2                       4            4 / R        8 / R
    ZeRO 3, FSDP                 4 / R        4 / R        8 / R

Source: Patarasuk and Yuan 2009 (the ring); Rajbhandari et al. 2020 (ZeRO); Li et al. 2020 (DDP);
Zhao et al. 2023 (FSDP). Derived in the chapter `gpt/many_cores`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ..attention.block import Block
from ..tools.parallel import Team

ENGINES = ("ddp", "fsdp")


def reduce_scatter(pieces: Sequence[Tensor], team: Team) -> Tensor:
    """The sum over all processes of the piece whose number is this process's rank.

    The sum of a piece travels once around the ring, and each process adds its own.

    Args:
        pieces: one tensor for each process, of the same shapes in all of them.
    """
    if len(pieces) != team.size:
        raise ValueError(f"expected one piece for each of {team.size} processes, got {len(pieces)}")
    travelling = pieces[team.rank - 1]
    for back in range(2, team.size + 1):
        travelling = _pass_on(travelling, pieces[team.rank - back], team)
        travelling += pieces[team.rank - back]
    return travelling


def all_gather(piece: Tensor, like: Sequence[Tensor], team: Team) -> list[Tensor]:
    """The pieces of all processes, in order of rank.

    Args:
        piece: this process's.
        like: tensors of the shapes of all pieces.
    """
    gathered = {team.rank: piece}
    for back in range(1, team.size):
        place = (team.rank - back) % team.size
        piece = _pass_on(piece, like[place], team)
        gathered[place] = piece
    return [gathered[place] for place in range(team.size)]


def all_reduce(tensor: Tensor, team: Team) -> Tensor:
    """The sum of a tensor over all processes, in each of them: (...), as the tensor."""
    pieces = tensor.flatten().tensor_split(team.size)
    mine = reduce_scatter(pieces, team)
    return torch.cat(all_gather(mine, pieces, team)).view_as(tensor)


def _pass_on(tensor: Tensor, like: Tensor, team: Team) -> Tensor:
    """Send a tensor to the next process in the ring; what came from the one before."""
    came = torch.empty_like(like)
    on, back = (team.rank + 1) % team.size, (team.rank - 1) % team.size
    both = [
        distributed.P2POp(distributed.isend, tensor.contiguous(), on),
        distributed.P2POp(distributed.irecv, came, back),
    ]
    for exchange in distributed.batch_isend_irecv(both):  # a ring of sends alone would never end
        exchange.wait()
    return came


class Held(NamedTuple):
    """What training keeps in the memory of one process, in bytes; activations come on top."""

    parameters: float
    gradients: float
    moments: float

    @property
    def total(self) -> float:
        """All three together."""
        return sum(self)


def bytes_held(parameters: int, *, processes: int = 1, stage: int = 0) -> Held:
    """What each process holds in a step of Adam in float32, with a stage of ZeRO.

    Args:
        parameters: how many the model has.
        processes: R.
        stage: 0: every process holds everything; 1: the moments are shared out; 2: gradients, too;
            3: parameters, too.
    Raises:
        ValueError: there is no such stage.
    """
    if stage not in range(4):
        raise ValueError(f"expected a stage from 0 to 3, got {stage!r}")
    shares = [processes if stage >= at else 1 for at in (3, 2, 1)]
    whole = (4 * parameters, 4 * parameters, 8 * parameters)
    return Held(*(size / share for size, share in zip(whole, shares, strict=True)))


def held_by(model: nn.Module, optimiser: Optimizer) -> Held:
    """What this process holds of a model after a backward pass and a step, counted."""
    parameters = list(model.parameters())
    states = [x for state in optimiser.state.values() for x in state.values()]
    moments = [x for x in states if isinstance(x, Tensor) and x.dim() > 0]  # not the step's number
    gradients = [p.grad for p in parameters if p.grad is not None]
    return Held(*(sum(map(_local_bytes, each)) for each in (parameters, gradients, moments)))


def local(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor; all of it, unless it has been shared out."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _local_bytes(tensor: Tensor) -> int:
    return local(tensor).numel() * local(tensor).element_size()


def shared(model: nn.Module, engine: str, team: Team) -> nn.Module:
    """A GPT whose gradients torch averages over the processes.

    With "ddp" every process holds the whole model, with "fsdp" a share of each parameter; before a
    block is needed its parameters are gathered, and afterwards they are dropped. Every process has
    to pass a model of the same weights. Call what comes back, not the model: only its forward pass
    knows of the others.

    Raises:
        ValueError: the engine is unknown.
    """
    if engine not in ENGINES:
        raise ValueError(f"expected one of the engines {[*ENGINES]}, got {engine!r}")
    if team.size == 1:
        return model
    if engine == "ddp":
        return DistributedDataParallel(model)
    where = next(model.parameters()).device  # untold, torch takes a GPU that is at hand
    mesh = init_device_mesh(where.type, (team.size,))
    for part in model.modules():
        if isinstance(part, Block):
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model
