"""How long is a step, and which parameters decay?

    rate(n) = peak · n / warm_up                          while it warms up, then
    cosine  = floor + (peak - floor) (1 + cos(pi s)) / 2  s from 0 to 1 over the steps that are left
    linear  = peak (1 - s)

Source: Loshchilov and Hutter 2017 (cosine) and 2019 (weight decay).
Derived in the chapter `gpt/optimisation`.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import nn


def cosine(steps: int, *, warm_up: int = 0, end: float = 0.0) -> Callable[[int], float]:
    """A schedule: a straight rise to 1 at step `warm_up`, then half a cosine down to `end`.

    It is never 0 at the first step, and is `end` at the last: cosine(4) gives 0.85, 0.5, 0.15, 0.
    A step after the last has the factor of the last.

    Args:
        steps: how many there will be.
        warm_up: how many of them rise.
        end: the factor of the last step.
    Raises:
        ValueError: there is no step left to fall in.
    Source: Loshchilov and Hutter 2017.
    """
    _check_warm_up(steps, warm_up)

    def factor(step: int) -> float:
        if warm_up and step <= warm_up:
            return step / warm_up
        fallen = (min(step, steps) - warm_up) / (steps - warm_up)
        return end + (1 - end) * (1 + math.cos(math.pi * fallen)) / 2

    return factor


def linear_decay(steps: int, *, warm_up: int = 0) -> Callable[[int], float]:
    """A schedule: a straight rise to 1 at step `warm_up`, then a straight fall.

    The line would reach 0 one step after the last, so that no step is in vain: linear_decay(4)
    gives 0.8, 0.6, 0.4, 0.2. A step after the last has the factor of the last.

    Args:
        steps: how many there will be.
        warm_up: how many of them rise.
    Raises:
        ValueError: there is no step left to fall in.
    """
    _check_warm_up(steps, warm_up)

    def factor(step: int) -> float:
        if warm_up and step <= warm_up:
            return step / warm_up
        return (steps + 1 - min(step, steps)) / (steps + 1 - warm_up)

    return factor


def parameter_groups(model: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """The parameters of a model in two groups for an optimiser: decayed, and not.

    Decayed are the matrices that multiply: parameters of two or more axes that are called `weight`,
    as torch's layers call theirs. Not decayed are

    - gains and biases: a gain belongs near 1, not 0, and there are too few of them to over-fit;
    - tables whose rows are looked up, embeddings and positions: a row that no batch asks for gets
      no gradient, but decay would shrink it at every step all the same. A table that is tied to
      the unembedding counts as a table.
    """
    tables = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        multiplies = parameter.ndim >= 2 and name.split(".")[-1].startswith("weight")
        (decayed if multiplies and id(parameter) not in tables else others).append(parameter)
    groups = ((decayed, weight_decay), (others, 0.0))
    return [{"params": members, "weight_decay": decay} for members, decay in groups if members]


def _check_warm_up(steps: int, warm_up: int) -> None:
    if not 0 <= warm_up < steps:
        raise ValueError(f"expected a warm-up shorter than the {steps} steps, got {warm_up}")
