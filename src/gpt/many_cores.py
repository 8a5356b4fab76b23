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
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ..attention.block import Block
from ..tools.parallel import ENGINES, Team, local


def reduce_scatter(pieces: Sequence[Tensor], team: Team) -> Tensor:
    """The sum over all processes of the piece whose number is this process's rank.

    The sum of a piece travels once around the ring, and each process adds its own.

    Args:
        pieces: one tensor for each process, of the same shapes in all of them.
    """
    check_pieces(pieces, team)
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
    check_pieces(like, team)
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


def check_pieces(pieces: Sequence[Tensor], team: Team) -> None:
    """Raise a ValueError unless there is one piece for each process."""
    if len(pieces) != team.size:
        raise ValueError(f"expected one piece for each of {team.size} processes, got {len(pieces)}")


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
        ValueError: a number is out of range.
    """
    if parameters < 1 or processes < 1:
        raise ValueError(
            f"expected 1 or more parameters and processes, got {parameters} and {processes}"
        )
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


def _local_bytes(tensor: Tensor) -> int:
    return local(tensor).numel() * local(tensor).element_size()


def shared(model: nn.Module, engine: str, team: Team) -> nn.Module:
    """A GPT whose gradients torch averages over the processes.

    With "ddp" every process holds the whole model, with "fsdp" a share of each parameter; before a
    block is needed its parameters are gathered, and afterwards they are dropped. Every process has
    to pass a model of the same weights. Call what comes back, not the model: only its forward pass
    knows of the others.

    Raises:
        ValueError: the engine is unknown, or FSDP is to share out a model without blocks.
    """
    if engine not in ENGINES:
        raise ValueError(f"expected one of the engines {[*ENGINES]}, got {engine!r}")
    if team.size == 1:
        return model
    if engine == "ddp":
        return DistributedDataParallel(model)
    blocks = [part for part in model.modules() if isinstance(part, Block)]
    if not blocks:
        raise ValueError(f"expected a model of blocks for fsdp, got {type(model).__name__}")
    for block in blocks:
        fully_shard(block)
    fully_shard(model)
    return model


_WHOLE = StateDictOptions(full_state_dict=True)
_WHOLE_AT_FIRST = StateDictOptions(full_state_dict=True, cpu_offload=True)


def gathered_state(model: nn.Module, optimiser: Optimizer) -> tuple[dict, dict]:
    """The state dicts of a shared model and its optimiser, as one process alone would have them.

    All processes have to call it; only the first gets the tensors.
    """
    weights = get_model_state_dict(model, options=_WHOLE_AT_FIRST)
    if not optimiser.state:  # before the first step; torch would take one to have a state
        return weights, optimiser.state_dict()
    by_name: dict[str, Any] = get_optimizer_state_dict(model, optimiser, options=_WHOLE_AT_FIRST)
    if not weights:
        return {}, {}
    numbers = {name: number for number, name in enumerate(_names(model, optimiser))}
    return weights, {
        "state": {numbers[name]: state for name, state in by_name["state"].items()},
        "param_groups": _renamed(by_name["param_groups"], numbers),
    }


def spread_state(
    model: nn.Module, optimiser: Optimizer, weights: dict[str, Any], state: dict[str, Any]
) -> None:
    """Give each process its share of what `gathered_state` has returned, on any number of them."""
    set_model_state_dict(model, weights, options=_WHOLE)
    if not state["state"]:
        return
    names = dict(enumerate(_names(model, optimiser)))
    by_name: dict[str, Any] = {
        "state": {names[number]: each for number, each in state["state"].items()},
        "param_groups": _renamed(state["param_groups"], names),
    }
    set_optimizer_state_dict(model, optimiser, by_name, options=_WHOLE)


def _names(model: nn.Module, optimiser: Optimizer) -> list[str]:
    """The names of the parameters, in the order in which the optimiser has them."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [names[p] for group in optimiser.param_groups for p in group["params"]]


def _renamed(groups: list[dict[str, Any]], names: dict) -> list[dict[str, Any]]:
    return [group | {"params": [names[each] for each in group["params"]]} for group in groups]
