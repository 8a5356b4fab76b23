"""What if each token chose which feed-forward networks work on it?

    p        = softmax(x Wrouter)                                   of each of E experts   (N, E)
    chosen   = the K experts of the greatest p_e + shift_e                                 (N, K)
    y        = sum over the chosen: w_e expert_e(x),  w_e = p_e / (p of all chosen)        (N, C)
    balance  = E times the sum over e of (share of all choices that are e) (mean of p_e)
    shift_e += rate sign(mean load - load of e)                     after each step

With K = 1 the weight is p_e itself: divided by itself it would teach the router nothing.
The parameters are those of E networks, the operations those of K. By itself nothing keeps all
experts busy. There are two remedies: add the balance to the loss, or move the shifts, which choose
but do not weigh, after each step. No expert has a capacity: none turns a token away.

Axes: B texts, T positions, N = B T tokens, C channels, E experts, K of them used.
Source: Shazeer et al. 2017; Fedus et al. 2022, equations 4 to 6 (balance); Jiang et al. 2024
(Mixtral: the weights); Wang et al. 2024 (shifts: loss-free balancing).
Derived in the chapter `today/experts`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .config import BlockConfig
from .feed_forward import FeedForward
from .heads import linear, recorded


class Routing(NamedTuple):
    """Where tokens go.

    Attributes:
        probs: (N, E); of the router.
        chosen: (N, K); numbers of experts.
        weights: (N, K); of their outputs; rows sum to 1 if K > 1.
    """

    probs: Tensor
    chosen: Tensor
    weights: Tensor


def route(logits: Tensor, used: int, *, shift: Tensor | None = None) -> Routing:
    """The experts of each token.

    Args:
        logits: (N, E).
        used: K.
        shift: (E,); added to the probabilities to choose, not to weigh.
    Source: Jiang et al. 2024, section 2.1; Fedus et al. 2022, equation 2 (K = 1); Wang et al. 2024,
    equation 3 (shift).
    """
    probs = torch.softmax(logits, dim=-1)
    chosen = (probs if shift is None else probs + shift).topk(used, dim=-1).indices
    weights = probs.gather(-1, chosen)
    if used > 1:
        weights = weights / weights.sum(-1, keepdim=True)
    return Routing(probs, chosen, weights)


def loads(routing: Routing) -> Tensor:
    """The share of all choices that fell on each expert, (E,); they sum to 1."""
    experts = routing.probs.shape[-1]
    counts = torch.bincount(routing.chosen.flatten(), minlength=experts)
    return counts / routing.chosen.numel()


def balance_loss(routing: Routing) -> Tensor:
    """E times the sum of load times mean probability: 1 if all loads are alike, at most E / K.

    Descent lowers a token's logits for experts that are busier than the mean load, weighted with
    the token's own probabilities, and raises the others, each in proportion to its probability.

    Source: Fedus et al. 2022, equation 4; with K > 1 our loads are shares of all choices.
    """
    return routing.probs.shape[-1] * (loads(routing) * routing.probs.mean(0)).sum()


def moved(shift: Tensor, load: Tensor, *, rate: float) -> Tensor:
    """The shifts after a step: up for experts of less than the mean load, down for the others.

    Args:
        shift: (E,).
        load: (E,); how many choices of the whole batch fell on each.
        rate: by how much.
    Source: Wang et al. 2024, algorithm 1.
    """
    return shift + rate * torch.sign(load.sum() - len(load) * load)


class Experts(nn.Module):
    """E feed-forward networks, of which each token uses K.

    Args:
        config: E, K, the rate at which shifts move after each step of training, and each network.
        generator: draws the initial weights; on the CPU.
    """

    shift: Tensor
    counts: Tensor

    def __init__(self, config: BlockConfig, *, generator: torch.Generator):
        super().__init__()
        experts = config.experts or 1
        self.used, self.shift_rate = config.experts_used, config.experts_shift
        self.router = linear(config.channels, experts, bias=False, generator=generator)
        self.experts = nn.ModuleList(
            FeedForward(config, generator=generator) for _ in range(experts)
        )
        self.register_buffer("shift", torch.zeros(experts))
        # of the choices in a step so far: a checkpoint comes between two steps, and needs none
        self.register_buffer("counts", torch.zeros(experts, dtype=torch.long), persistent=False)
        # called with each routing, if anybody wants them: `recorded_routings`
        self.record: Callable[[Routing], None] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        tokens = x.flatten(0, -2)  # (N, C)
        routing = route(self.router(tokens), self.used, shift=self.shift)
        result = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            token, place = (routing.chosen == number).nonzero(as_tuple=True)
            part = routing.weights[token, place, None] * expert(tokens[token])
            result = result.index_add(0, token, part.to(result.dtype))
        if self.record is not None:
            self.record(routing)
        if self.training and torch.is_grad_enabled():
            self.counts += torch.bincount(routing.chosen.flatten(), minlength=len(self.counts))
        return result.view_as(x)

    def end_step(self, add_up: Callable[[list[Tensor]], None] = lambda counts: None) -> None:
        """Move the shifts by the load of all that was read in a step, in whatever process.

        `fit` and `train` call this; so has a loop of your own, after the optimiser's step.

        Args:
            add_up: puts the sums over all processes in the place of its own counts.
        """
        add_up([self.counts])
        self.shift.copy_(moved(self.shift, self.counts, rate=self.shift_rate))
        self.counts.zero_()


def recorded_routings(model: nn.Module) -> AbstractContextManager[dict[str, Routing]]:
    """Inside the block, the last routing of each `Experts` is kept: {name of the module: routing}.

    They carry gradients: sum(map(balance_loss, routings.values())) can be added to a loss.

    Raises:
        ValueError: the model has no experts.
    """
    return recorded(model, Experts)
