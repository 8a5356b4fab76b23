"""What does a block do with each position by itself?

    layer_norm(x) = gain (x - mean) / sqrt(variance + eps) + bias
    rms_norm(x)   = gain x / sqrt(mean of the squares + eps)
    ffn(x)        = W2 activation(W1 x + b1) + b2
    gated ffn(x)  = W2 (activation(Wg x) * W1 x)                        with silu: SwiGLU

Axes: C channels.
Source: Vaswani et al. 2017, section 3; Ba et al. 2016 (LayerNorm); Zhang and Sennrich 2019
(RMSNorm); Shazeer 2020 (gated feed-forward networks).
Derived in the chapters `attention/block` and `today/norms_and_gates`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from .config import ACTIVATIONS, BlockConfig
from .heads import linear


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor | None, *, eps: float = 1e-5) -> Tensor:
    """Each row of x with mean 0 and variance 1, then stretched by `gain` and shifted by `bias`.

    The variance is that of the row itself, divided by C, not by C - 1.

    >>> layer_norm(torch.tensor([[1.0, 3.0]]), torch.ones(2), torch.zeros(2), eps=0.0)
    tensor([[-1.,  1.]])

    Args:
        x: (..., C).
        gain, bias: (C,).
        eps: added to the variance, inside the root, so that a constant row is not divided by 0.
    """
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    normal = centred / (variance + eps).sqrt() * gain
    return normal if bias is None else normal + bias


class LayerNorm(nn.Module):
    """`layer_norm` with a gain and a bias that are learnt, from 1 and 0.

    It runs torch's kernel, which is the same function in one pass over the memory.

    Args:
        channels: C.
        eps: as in `layer_norm`.
        bias: whether there is one.
    """

    def __init__(self, channels: int, *, eps: float = 1e-5, bias: bool = True):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return functional.layer_norm(x, self.gain.shape, self.gain, self.bias, self.eps)


def rms_norm(x: Tensor, gain: Tensor, *, eps: float = 1e-5) -> Tensor:
    """Each row of x divided by the root of its mean square, then stretched by `gain`.

    `layer_norm` without the mean: a constant added to a row changes the result.

    >>> rms_norm(torch.tensor([[1.0, 7.0]]), torch.ones(2), eps=0.0)
    tensor([[0.2000, 1.4000]])

    Args:
        x: (..., C).
        gain: (C,).
        eps: added to the mean square, inside the root.
    Source: Zhang and Sennrich 2019, equation 4.
    """
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gain


class RMSNorm(nn.Module):
    """`rms_norm` with a gain that is learnt, from 1, by torch's function.

    Args:
        channels: C.
        eps: as in `rms_norm`.
    """

    def __init__(self, channels: int, *, eps: float = 1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return functional.rms_norm(x, self.gain.shape, self.gain, self.eps)


def new_norm(config: BlockConfig) -> LayerNorm | RMSNorm:
    """The norm that a configuration describes; an `RMSNorm` has no bias."""
    if config.norm_kind == "rms":
        return RMSNorm(config.channels, eps=config.eps)
    return LayerNorm(config.channels, eps=config.eps, bias=config.bias)


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between them, the same at every position.

    Gated, the non-linearity goes to a third map, which is multiplied by the first, elementwise:
    contract(activation(gate(x)) * expand(x)).

    Args:
        config: its channels, `width`, activation, bias, and whether there is a gate.
        generator: draws the initial weights; on the CPU.
    """

    def __init__(self, config: BlockConfig, *, generator: torch.Generator):
        super().__init__()
        channels, hidden, bias = config.channels, config.width, config.bias
        self.expand = linear(channels, hidden, bias=bias, generator=generator)
        self.contract = linear(hidden, channels, bias=bias, generator=generator)
        self.gate = None
        if config.gated:
            self.gate = linear(channels, hidden, bias=bias, generator=generator)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        if self.gate is None:
            return self.contract(self.activation(self.expand(x)))
        return self.contract(self.activation(self.gate(x)) * self.expand(x))
