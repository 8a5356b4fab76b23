"""What do several attentions side by side give, and what do they cost?

    head_h = attention(x Wq_h, x Wk_h, x Wv_h)             each in D = C / H channels
    output = [head_1 … head_H] Wo

Axes: B texts, T positions that ask (queries), S positions that are asked (keys), C channels,
H heads, D = C / H channels of a head.
Source: Vaswani et al. 2017, section 3.2.2. Derived in the chapter `attention/heads`.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from .attention import scaled_dot_product_attention
from .positions import rotate


class Cache(Protocol):
    """What attention asks of a cache: how many tokens it holds, and to add the keys of new ones."""

    length: int

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of T new tokens, (B, H, T, D); return those of all so far, (B, H, S, D)."""


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each in D = C / H channels; a matrix puts their outputs together.

        head_h = attention(x Wq_h, memory Wk_h, memory Wv_h)
        output = (head_1, ..., head_H) Wo

    Without `memory` a text attends to itself.

    Args:
        channels: C.
        heads: H; it divides C.
        bias: whether the linear maps have one.
        dropout: of the attention weights, while training.
        rotary: whether queries and keys are rotated by their positions.
        rotary_base, rotary_scale: `base` and `scale` of `rotate`.
        generator: draws the initial weights; on the CPU.
    Raises:
        ValueError: the heads do not divide the channels, or rotary positions are asked for and a
            head has an odd number of channels.
    Source: Vaswani et al. 2017, section 3.2.2; `qkv` stacks their Wq, Wk, Wv of all heads.
    """

    def __init__(
        self,
        channels: int,
        *,
        heads: int,
        bias: bool = True,
        dropout: float = 0.0,
        rotary: bool = False,
        rotary_base: float = 10_000.0,
        rotary_scale: float = 1.0,
        generator: torch.Generator,
    ):
        super().__init__()
        if heads < 1 or channels % heads:
            raise ValueError(
                f"expected heads that divide the channels, got channels={channels} and "
                f"heads={heads}"
            )
        if rotary and channels // heads % 2:
            raise ValueError(
                "expected an even number of channels a head for rotary positions, which turn them "
                f"in pairs, got {channels} / {heads} = {channels // heads}"
            )
        self.channels, self.heads, self.dropout, self.rotary = channels, heads, dropout, rotary
        self.turn = partial(rotate, base=rotary_base, scale=rotary_scale)
        self.qkv = linear(channels, 3 * channels, bias=bias, generator=generator)
        self.output = linear(channels, channels, bias=bias, generator=generator)
        # called with the weights, if anybody wants them: `recorded_weights`
        self.record: Callable[[Tensor], None] | None = None

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        bias: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """What each position gathers, (B, T, C).

        Args:
            x: (B, T, C); who asks.
            memory: (B, S, C); who is asked; None: x itself.
            mask: (T, S), or (B, T, S) for all heads alike, or (B, H, T, S); 1 may stand for T.
            causal: whether a position sees no later one.
            bias: broadcasts to (B, H, T, S); added to the scores.
            cache: of the tokens before x, if x goes on with a text; the keys are theirs and x's.
        Raises:
            ValueError: shapes do not fit, or there are both a memory and a cache.
        """
        if memory is not None and cache is not None:
            raise ValueError(
                "expected a memory or a cache, got both: a cache gains the keys of the next "
                "tokens, and a memory comes whole each time, so its keys would be kept twice"
            )
        queries, keys, values = map(self.split_heads, self._project(x, memory))
        if self.rotary:
            start = 0 if cache is None else cache.length
            queries, keys = self.turn(queries, start=start), self.turn(keys, start=start)
        if cache is not None:
            keys, values = cache.extend(keys, values)
        if mask is not None and mask.ndim == 3:
            mask = mask[:, None]  # (B, 1, T, S): the same for every head
        gathered, weights = scaled_dot_product_attention(
            queries,
            keys,
            values,
            mask=mask,
            causal=causal,
            bias=bias,
            dropout=self.dropout if self.training else 0.0,
            need_weights=self.record is not None,
        )
        if self.record is not None and weights is not None:
            self.record(weights.detach())
        return self.output(self.join_heads(gathered))

    def _project(self, x: Tensor, memory: Tensor | None) -> tuple[Tensor, ...]:
        """Queries, keys and values of all heads, (B, T, C), (B, S, C), (B, S, C)."""
        for name, part in (("x", x), ("memory", memory)):
            if part is not None and (part.ndim != 3 or part.shape[-1] != self.channels):
                raise ValueError(
                    f"expected {name} of shape (B, T, {self.channels}), got {tuple(part.shape)}"
                )
        if memory is None:
            return self.qkv(x).chunk(3, dim=-1)
        split = [self.channels, 2 * self.channels]
        of_queries, of_the_rest = self.qkv.weight.split(split)
        bias, bias_of_the_rest = (
            (None, None) if self.qkv.bias is None else self.qkv.bias.split(split)
        )
        keys_and_values = functional.linear(memory, of_the_rest, bias_of_the_rest)
        return functional.linear(x, of_queries, bias), *keys_and_values.chunk(2, dim=-1)

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, H, T, D): head h takes the channels from h D up to (h + 1) D."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def join_heads(self, x: Tensor) -> Tensor:
        """(B, H, T, D) -> (B, T, C): the inverse of `split_heads`."""
        return x.transpose(1, 2).flatten(-2)


@contextmanager
def recorded_weights(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Inside the block, the model's attention weights are kept: {name of the module: (B, H, T, S)}.

    Each run of the model overwrites those of the run before. With `model = MultiHeadAttention(...)`
    itself the name is the empty text.

    Raises:
        ValueError: the model holds no MultiHeadAttention.
    """
    found = {n: m for n, m in model.named_modules() if isinstance(m, MultiHeadAttention)}
    if not found:
        raise ValueError(f"expected a model with attention in it, got {type(model).__name__}")
    maps: dict[str, Tensor] = {}
    for name, module in found.items():
        module.record = lambda weights, name=name: maps.__setitem__(name, weights)
    try:
        yield maps
    finally:
        for module in found.values():
            module.record = None


def linear(
    inputs: int, outputs: int, *, bias: bool = True, generator: torch.Generator
) -> nn.Linear:
    """A linear layer whose weights are N(0, 1 / inputs), so that it keeps the variance; bias 0.

    Args:
        inputs, outputs: channels before and after.
        bias: whether there is one.
        generator: draws the weights; on the CPU.
    """
    # skip_init: the layer's own initialisation would draw from the global generator.
    device = torch.get_default_device()
    layer = skip_init(nn.Linear, inputs, outputs, bias=bias, device=device)
    with torch.no_grad():
        layer.weight.normal_(std=1 / math.sqrt(inputs), generator=generator)
        if bias:
            layer.bias.zero_()
    return layer
