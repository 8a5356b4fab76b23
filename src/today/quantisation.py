"""With how few bits does a number do, and what does that cost?

    q = round((w - m) / d),   w' = d q + m          |w - w'| <= d / 2
    without a minimum      m = 0,           d = max |w| / (2^(b - 1) - 1)
    with a minimum         m = min w,       d = (max w - min w) / (2^b - 1)

A scale d (and a minimum m) belongs to a row, or to a block of neighbours in a row. The smaller the
block, the less a single large number costs the others, and the more bits its scale costs them:
with 16 bits each, b + 16 / N, or b + 32 / N with a minimum, for blocks of N. The formats Q8_0 and
Q4_1 of `today/gguf_files` are N = 32 with b = 8 and no minimum, and with b = 4 and one.

A product with a matrix in 8 bits, a row a scale, needs a slab of it in float32:

    y_i = d_i sum_j q_ij x_j                    all but q in float32, a slab of rows at a time

Axes: T tokens, C channels of an input.
Source: Dettmers et al. 2022 (scales for parts of a matrix, and the numbers that stand out).
Derived in the chapter `today/small_enough`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

BITS = range(2, 9)
SLAB = 2**20  # numbers of a packed matrix that are float32 at a time: 4 MiB


@dataclass(frozen=True)
class Quantised:
    """A matrix in few bits.

    Attributes:
        codes: q, (rows, blocks, N), whole numbers of 8 bits.
        scale: d, (rows, blocks, 1).
        least: m, (rows, blocks, 1); None: 0.
        bits: b.
    """

    codes: Tensor
    scale: Tensor
    least: Tensor | None
    bits: int

    def restored(self) -> Tensor:
        """w' = d q + m, (rows, columns)."""
        numbers = self.codes * self.scale
        return (numbers if self.least is None else numbers + self.least).flatten(1)

    @property
    def bits_per_weight(self) -> float:
        """b, and the share that each weight has in scales and minima of 16 bits."""
        shared = 16 if self.least is None else 32
        return self.bits + shared / self.codes.shape[-1]


def quantise(
    weight: Tensor, bits: int, *, block: int | None = None, minimum: bool = False
) -> Quantised:
    """A matrix in b bits a number.

    >>> quantise(torch.tensor([[0.0, 1.0, 2.0, 3.0]]), 2, minimum=True).restored()
    tensor([[0., 1., 2., 3.]])

    Args:
        weight: (rows, columns).
        bits: b, from 2 to 8.
        block: N, how many neighbours of a row share a scale; it divides the columns. None: all.
        minimum: whether each block has a minimum too.
    Raises:
        ValueError: another number of bits. (torch refuses blocks that do not divide the columns.)
    """
    if bits not in BITS:
        raise ValueError(f"expected from {BITS[0]} to {BITS[-1]} bits, got {bits}")
    block = weight.shape[-1] if block is None else block
    blocks = weight.detach().float().unflatten(1, (-1, block))  # (rows, blocks, N)
    if minimum:
        least = blocks.amin(-1, keepdim=True)
        scale = (blocks.amax(-1, keepdim=True) - least) / (2**bits - 1)
        low, high, kind = 0, 2**bits - 1, torch.uint8
    else:
        least = None
        high = 2 ** (bits - 1) - 1
        scale = blocks.abs().amax(-1, keepdim=True) / high
        low, kind = -high, torch.int8
    shifted = blocks if least is None else blocks - least
    # A block of one value has no scale: any will do, since all its codes are 0.
    codes = (shifted / torch.where(scale > 0, scale, 1.0)).round().clamp(low, high).to(kind)
    return Quantised(codes, scale, least, bits)


@torch.no_grad()
def quantise_model(
    model: nn.Module,
    bits: int,
    *,
    block: int | None = None,
    minimum: bool = False,
    chosen: Callable[[str], bool] = lambda name: True,
) -> float:
    """Put each matrix of a model through b bits and back; return the bits per weight that it took.

    The numbers stay float32, so that any code can compute with them: this shows what the bits cost
    in quality, and saves nothing.

    Args:
        model: is changed.
        bits, block, minimum: as for `quantise`.
        chosen: which parameters, by their names; of these, the matrices.
    Raises:
        ValueError: as `quantise`. ZeroDivisionError: no matrix is chosen.
    """
    used = weights = 0.0
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and chosen(name):
            found = quantise(parameter, bits, block=block, minimum=minimum)
            parameter.copy_(found.restored())
            used += found.bits_per_weight * parameter.numel()
            weights += parameter.numel()
    return used / weights


# ---- what flows through a model ------------------------------------------------------------------


@contextmanager
def changed_inputs(
    model: nn.Module,
    change: Callable[[Tensor], Tensor],
    *,
    chosen: Callable[[str], bool] = lambda name: True,
) -> Iterator[None]:
    """Inside the block, linear layers read change(x) in the place of x.

    Args:
        model: of `nn.Linear` layers; an unembedding that is the embedding is none.
        change: from (..., C) to the same shape, such as a rounding.
        chosen: which layers, by their names.
    Raises:
        ValueError: no linear layer is chosen.
    """
    found = [m for name, m in model.named_modules() if isinstance(m, nn.Linear) and chosen(name)]
    if not found:
        raise ValueError("expected a linear layer whose input to change, got none that was chosen")
    hooks = [m.register_forward_pre_hook(lambda _, given: (change(given[0]),)) for m in found]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


# ---- a product that reads 8 bits -----------------------------------------------------------------


class PackedLinear(nn.Module):
    """A linear map whose matrix is kept in 8 bits, a scale for each row, and read as it is kept.

    A slab of rows is turned into float32, multiplied, and forgotten, before the next one is read.
    It is meant to stay in the processor's own cache, so that mostly codes travel from memory, a
    byte for each number. Nothing but the matrix is rounded: outputs are those of the matrix that
    the codes stand for, up to the order of float32 sums. It cannot be trained.

    Args:
        weight: (outputs, inputs).
        bias: (outputs,).
    """

    codes: Tensor  # q, (outputs, inputs), int8
    scale: Tensor  # d, (outputs,)
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__()
        found = quantise(weight, 8)
        self.register_buffer("codes", found.codes.flatten(1).contiguous())
        self.register_buffer("scale", found.scale.flatten())
        self.register_buffer("bias", None if bias is None else bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        slabs = self.codes.split(max(1, SLAB // self.codes.shape[1]))
        y = torch.cat([functional.linear(x, slab.to(x.dtype)) for slab in slabs], -1) * self.scale
        return y if self.bias is None else y + self.bias


def pack(model: nn.Module) -> None:
    """Put a `PackedLinear` in the place of each linear layer of a model, which is changed.

    An embedding stays as it is, to look up its rows; where it is the unembedding, too, that gets a
    packed copy.

    Args:
        model: such as a `GPT`.
    """
    found: list[tuple[nn.Module, str, PackedLinear]] = [
        (part, name, PackedLinear(layer.weight, layer.bias))
        for part in model.modules()
        for name, layer in part.named_children()
        if isinstance(layer, nn.Linear)
    ]
    if getattr(model, "unembedding", nn.Identity()) is None:
        found.append((model, "unembedding", PackedLinear(model.get_parameter("embedding"))))
    for part, name, packed in found:
        setattr(part, name, packed)
