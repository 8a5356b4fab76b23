"""What is a Transformer made of, besides attention?

    layer_norm(x) = gain (x - mean) / sqrt(variance + eps) + bias       each position by itself
    rms_norm(x)   = gain x / sqrt(mean of the squares + eps)            each position by itself
    ffn(x)        = W2 activation(W1 x + b1) + b2                       each position by itself
    gated ffn(x)  = W2 (activation(Wg x) * W1 x)                        with silu: SwiGLU
    pre-norm      h = x + attention(norm(x));     y = h + ffn(norm(h))            GPT-2
    post-norm     h = norm(x + attention(x));     y = norm(h + ffn(h))            GPT-1

Only attention moves information between positions.

Axes: B texts, T and S positions (of the text and of a memory), C channels.
Source: Vaswani et al. 2017, section 3; Ba et al. 2016 (LayerNorm); Xiong et al. 2020 (pre-norm);
Zhang and Sennrich 2019 (RMSNorm); Shazeer 2020 (gated feed-forward networks).
Derived in the chapter `attention/block`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .heads import Cache, MultiHeadAttention, linear
from .latent import LatentAttention


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
    """`rms_norm` with a gain that is learnt, from 1, by torch's kernel.

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


def norm_of(
    kind: str, channels: int, *, eps: float = 1e-5, bias: bool = True
) -> LayerNorm | RMSNorm:
    """A new norm of C channels: "layer" is a `LayerNorm`, "rms" an `RMSNorm`, which has no bias.

    Raises:
        ValueError: another kind.
    """
    if kind not in ("layer", "rms"):
        raise ValueError(f'expected a norm_kind "layer" or "rms", got {kind!r}')
    return RMSNorm(channels, eps=eps) if kind == "rms" else LayerNorm(channels, eps=eps, bias=bias)


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between them, the same at every position.

    Gated, the non-linearity goes to a third map, which is multiplied by the first, elementwise:
    contract(activation(gate(x)) * expand(x)).

    Args:
        channels: C.
        hidden: width in between; None: 4 C, or gated 8 C / 3, which are as many parameters.
        activation: applied to the hidden layer, or to the gate, elementwise.
        bias: whether the linear maps have one.
        gated: whether there is a gate.
        generator: draws the initial weights; on the CPU.
    """

    def __init__(
        self,
        channels: int,
        *,
        hidden: int | None = None,
        activation: Callable[[Tensor], Tensor] = functional.gelu,
        bias: bool = True,
        gated: bool = False,
        generator: torch.Generator,
    ):
        super().__init__()
        hidden = hidden_width(channels, gated=gated) if hidden is None else hidden
        self.expand = linear(channels, hidden, bias=bias, generator=generator)
        self.contract = linear(hidden, channels, bias=bias, generator=generator)
        self.gate = None
        if gated:
            self.gate = linear(channels, hidden, bias=bias, generator=generator)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        if self.gate is None:
            return self.contract(self.activation(self.expand(x)))
        return self.contract(self.activation(self.gate(x)) * self.expand(x))


def hidden_width(channels: int, *, gated: bool = False) -> int:
    """The usual width of a feed-forward network: 4 C, or gated 8 C / 3, rounded down.

    Two matrices of 4 C² numbers are as many as three of 8 C² / 3.

    Source: Vaswani et al. 2017, section 3.3; Shazeer 2020, section 3.
    """
    return 8 * channels // 3 if gated else 4 * channels


class Block(nn.Module):
    """Attention, then (with `cross`) attention to a memory, then a feed-forward network.

    Around each of them goes a residual connection; dropout falls on what is added to it.

    Args:
        channels: C.
        heads: H.
        hidden: width of the feed-forward network; None: `hidden_width`.
        norm: "pre" (before each part, inside the residual) or "post" (after the sum).
        norm_kind: "layer" or "rms".
        cross: whether there is attention to a memory.
        activation: of the feed-forward network.
        gated: whether the feed-forward network has a gate.
        bias: whether linear maps and norms have one.
        eps: of the norms.
        dropout: of the attention weights and of what each part adds.
        make_feed_forward: makes what is in the place of the feed-forward network, with its options.
        generator: draws the initial weights; on the CPU.
        of_attention: further options of `MultiHeadAttention`, or, with `latent`, those of
            `LatentAttention`. Attention to a memory is a `MultiHeadAttention`, not rotary and
            without a window: places of two texts do not compare.
    Raises:
        ValueError: norm is neither "pre" nor "post", or as `MultiHeadAttention`.
    """

    def __init__(
        self,
        channels: int,
        *,
        heads: int,
        hidden: int | None = None,
        norm: str = "pre",
        norm_kind: str = "layer",
        cross: bool = False,
        activation: Callable[[Tensor], Tensor] = functional.gelu,
        gated: bool = False,
        bias: bool = True,
        eps: float = 1e-5,
        dropout: float = 0.0,
        make_feed_forward: Callable[..., nn.Module] = FeedForward,
        generator: torch.Generator,
        **of_attention: Any,
    ):
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f'expected norm "pre" or "post", got {norm!r}')

        of_attention |= {"heads": heads, "bias": bias, "dropout": dropout, "generator": generator}
        of_attention["eps"] = eps
        self.norm, self.cross = norm, cross
        of_norms: dict[str, Any] = {"kind": norm_kind, "eps": eps, "bias": bias}
        kind = LatentAttention if "latent" in of_attention else MultiHeadAttention
        self.attention = kind(channels, **of_attention)
        self.attention_norm = norm_of(channels=channels, **of_norms)
        if cross:
            of_attention |= {"rotary": False, "window": None}
            of_attention.pop("latent", None)
            self.cross_attention = MultiHeadAttention(channels, **of_attention)
            self.cross_norm = norm_of(channels=channels, **of_norms)
        self.feed_forward = make_feed_forward(
            channels,
            hidden=hidden,
            activation=activation,
            bias=bias,
            gated=gated,
            generator=generator,
        )
        self.feed_forward_norm = norm_of(channels=channels, **of_norms)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        memory_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C).

        Args:
            x: (B, T, C); the residual stream.
            memory: (B, S, C); what cross-attention looks at.
            mask, causal: who may attend to whom within x.
            memory_mask: who of x may attend to whom of the memory.
            cache: of the tokens before x, for self-attention.
        Raises:
            ValueError: there is a memory but no cross-attention, or the other way round.
        """
        if self.cross != (memory is not None):
            expected = "a memory for" if self.cross else "no memory without"
            raise ValueError(f"expected {expected} cross-attention (cross={self.cross})")
        drop, within = self.dropout, {"mask": mask, "causal": causal, "cache": cache}
        if self.norm == "pre":
            x = x + drop(self.attention(self.attention_norm(x), **within))
            if self.cross:
                x = x + drop(self.cross_attention(self.cross_norm(x), memory, mask=memory_mask))
            return x + drop(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + drop(self.attention(x, **within)))
        if self.cross:
            x = self.cross_norm(x + drop(self.cross_attention(x, memory, mask=memory_mask)))
        return self.feed_forward_norm(x + drop(self.feed_forward(x)))
