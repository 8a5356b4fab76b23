"""How does a model that processes share out get into one file, and out of it again?

    gathered    the shares of all processes, whole, as one process alone would have them
    spread      and back, on any number of processes

Used by `engines`; apart from it, since torch's engines take a second to import.
"""

from typing import Any

from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer

_WHOLE = StateDictOptions(full_state_dict=True)
_WHOLE_AT_FIRST = StateDictOptions(full_state_dict=True, cpu_offload=True)


def gathered(model: nn.Module, optimiser: Optimizer) -> tuple[dict, dict]:
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


def spread(
    model: nn.Module, optimiser: Optimizer, weights: dict[str, Any], state: dict[str, Any]
) -> None:
    """Give each process its share of what `gathered` has returned, on any number of them."""
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
