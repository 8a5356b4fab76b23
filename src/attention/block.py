"""What is a Transformer made of, besides attention?

    layer_norm(x) = gain (x - mean) / sqrt(variance + eps) + bias       each position by itself
    ffn(x)        = W2 activation(W1 x + b1) + b2                       each position by itself
    pre-norm      h = x + attention(norm(x));     y = h + ffn(norm(h))            GPT-2
    post-norm     h = norm(x + attention(x));     y = norm(h + ffn(h))            GPT-1

Only attention moves information between positions.

Axes: B texts, T and S positions (of the text and of a memory), C channels.
Source: Vaswani et al. 2017, section 3; Ba et al. 2016 (LayerNorm); Xiong et al. 2020 (pre-norm).
Derived in the chapter `attention/block`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from .heads import Cache, MultiHeadAttention, linear


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


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between them, the same at every position.

    Args:
        channels: C.
        hidden: width in between; None: 4 C.
        activation: applied to the hidden layer, elementwise.
        bias: whether the linear maps have one.
        generator: draws the initial weights; on the CPU.
    """

    def __init__(
        self,
        channels: int,
        *,
        hidden: int | None = None,
        activation: Callable[[Tensor], Tensor] = functional.gelu,
        bias: bool = True,
        generator: torch.Generator,
    ):
        super().__init__()
        hidden = 4 * channels if hidden is None else hidden
        self.expand = linear(channels, hidden, bias=bias, generator=generator)
        self.contract = linear(hidden, channels, bias=bias, generator=generator)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return self.contract(self.activation(self.expand(x)))


class Block(nn.Module):
    """Attention, then (with `cross`) attention to a memory, then a feed-forward network.

    Around each of them goes a residual connection; dropout falls on what is added to it.

    Args:
        channels: C.
        heads: H.
        hidden: width of the feed-forward network; None: 4 C.
        norm: "pre" (before each part, inside the residual) or "post" (after the sum).
        cross: whether there is attention to a memory.
        activation: of the feed-forward network.
        bias: whether linear maps and norms have one.
        eps: of the norms.
        dropout: of the attention weights and of what each part adds.
        rotary: whether self-attention rotates its queries and keys.
        generator: draws the initial weights; on the CPU.
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
        cross: bool = False,
        activation: Callable[[Tensor], Tensor] = functional.gelu,
        bias: bool = True,
        eps: float = 1e-5,
        dropout: float = 0.0,
        rotary: bool = False,
        generator: torch.Generator,
    ):
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f'expected norm "pre" or "post", got {norm!r}')

        def attention(rotary: bool) -> MultiHeadAttention:
            return MultiHeadAttention(
                channels,
                heads=heads,
                bias=bias,
                dropout=dropout,
                rotary=rotary,
                generator=generator,
            )

        self.norm, self.cross = norm, cross
        self.attention = attention(rotary)
        self.attention_norm = LayerNorm(channels, eps=eps, bias=bias)
        if cross:
            self.cross_attention = attention(rotary=False)  # places of two texts do not compare
            self.cross_norm = LayerNorm(channels, eps=eps, bias=bias)
        self.feed_forward = FeedForward(
            channels, hidden=hidden, activation=activation, bias=bias, generator=generator
        )
        self.feed_forward_norm = LayerNorm(channels, eps=eps, bias=bias)
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
