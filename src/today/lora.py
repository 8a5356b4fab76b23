"""How does a large model learn from a small text without a copy of all its weights?

    W x + (alpha / r) B A x          A: (r, inputs), B: (outputs, r), W stays as it is

B begins at 0, so that the model begins as it was. Only A and B learn, r (inputs + outputs) numbers
in the place of inputs times outputs. What they add to W has rank r at most. Afterwards it can be
added to W once and for all: the merged model is as fast as before, and says the same.

Source: Hu et al. 2022, section 4.1. Derived in the chapter `today/your_own`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class LoRA(nn.Module):
    """A linear map that stays, and one of low rank beside it that learns.

    Args:
        base: W with its bias; from now on without gradients.
        rank: r.
        alpha: how strongly the second map counts, alpha / r.
        generator: draws A, N(0, 1 / inputs); on the CPU.
    Raises:
        ValueError: a rank below 1, or above the smaller side of W.
    """

    def __init__(self, base: nn.Linear, *, rank: int, alpha: float, generator: torch.Generator):
        super().__init__()
        most = min(base.in_features, base.out_features)
        if not 1 <= rank <= most:
            raise ValueError(f"expected a rank from 1 to {most}, got {rank}")
        self.base, self.scale = base.requires_grad_(False), alpha / rank
        drawn = torch.randn(rank, base.in_features, generator=generator) / base.in_features**0.5
        self.down = nn.Parameter(drawn.to(base.weight))  # A
        self.up = nn.Parameter(base.weight.new_zeros(base.out_features, rank))  # B

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        return self.base(x) + (x @ self.down.mT) @ self.up.mT * self.scale

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """One linear map that does the same: W + (alpha / r) B A. The base is changed."""
        self.base.weight += self.scale * self.up @ self.down
        return self.base


def add_lora(
    model: nn.Module,
    *,
    rank: int = 8,
    alpha: float = 16.0,
    chosen: Callable[[str], bool] = lambda name: True,
    generator: torch.Generator,
) -> list[nn.Parameter]:
    """Put a `LoRA` in the place of each linear map; return what learns. Everything else stays.

    The embedding is no linear map here, nor is the output of a tied model.

    Args:
        model: is changed.
        rank, alpha: as for `LoRA`.
        chosen: which maps, by their names, such as "decoder.blocks.0.attention.qkv".
        generator: draws the initial weights; on the CPU.
    Raises:
        ValueError: the model has such maps already, as after a second run of a cell; or a rank is
            too high.
    """
    if any(isinstance(part, LoRA) for part in model.modules()):
        raise ValueError("expected a model without LoRA, got one that has it: merge it first")
    beside = {
        name: LoRA(part, rank=rank, alpha=alpha, generator=generator)
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear) and chosen(name)
    }
    if not beside:
        raise ValueError("expected a linear map to put LoRA beside, got none that was chosen")
    model.requires_grad_(False)
    for name, made in beside.items():
        _put(model, name, made)
    return [parameter for made in beside.values() for parameter in (made.down, made.up)]


def merge_lora(model: nn.Module) -> None:
    """Add what was learnt to the weights, and be rid of the second maps; all can learn again.

    Args:
        model: is changed.
    """
    for name, part in [*model.named_modules()]:
        if isinstance(part, LoRA):
            _put(model, name, part.merged())
    model.requires_grad_(True)


def _put(model: nn.Module, name: str, part: nn.Module) -> None:
    above, _, own = name.rpartition(".")
    setattr(model.get_submodule(above), own, part)
