"""What do several attentions side by side give, and what do they cost?

    head_h = attention(x Wq_h, x Wk_h, x Wv_h)             each in D = C / H channels
    grouped                                                G sets of keys and values for H heads:
                                                           head_h takes set h G / H, rounded down
    output = [head_1 … head_H] Wo

With G = 1 all heads share one set (multi-query attention). A cache holds G sets, not H.
A layer may have a window, and its heads a sink (`attention/attention`).

Axes: B texts, T positions that ask (queries), S positions that are asked (keys), C channels,
H heads, G heads of keys and values, D channels of a head, C / H unless told otherwise.
Source: Vaswani et al. 2017, section 3.2.2; Shazeer 2019 (multi-query); Ainslie et al. 2023
(grouped); Henry et al. 2020 and Dehghani et al. 2023 (norms of queries and keys).
Derived in the chapter `attention/heads`.
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
from .masks import banded_mask
from .positions import rotate


class Cache(Protocol):
    """What attention asks of a cache: how many tokens it holds, and to add the keys of new ones."""

    length: int

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of T new tokens, (B, G, T, D); return those of all so far, (B, G, S, D)."""


class Attention(nn.Module):
    """What `MultiHeadAttention` and `LatentAttention` share: heads, windows, recorded weights.

    Args:
        channels, heads, head_channels: C, H and D.
        dropout: of the attention weights, while training.
        window: as in `MultiHeadAttention`.
    """

    output: nn.Linear

    def __init__(
        self, channels: int, heads: int, head_channels: int, *, dropout: float, window: int | None
    ):
        super().__init__()
        self.channels, self.heads, self.head_channels = channels, heads, head_channels
        self.dropout, self.window = dropout, window
        # called with the weights, if anybody wants them: `recorded_weights`
        self.record: Callable[[Tensor], None] | None = None

    def seen(self, mask: Tensor | None, queries: Tensor, keys: Tensor) -> Tensor | None:
        """A mask for all heads, (T, S) or (B, 1 or H, T, S), that hides what is out of the window.

        Args:
            mask: (T, S), or (B, T, S) for all heads alike, or (B, H, T, S); None: all is seen.
            queries, keys: (..., T, any width) and (..., S, any width).
        """
        if mask is not None and mask.ndim == 3:
            mask = mask[:, None]  # (B, 1, T, S): the same for every head
        length, n_keys = queries.shape[-2], keys.shape[-2]
        if self.window is None or n_keys <= self.window:
            return mask
        band = banded_mask(length, self.window, keys=n_keys, device=queries.device)
        return band if mask is None else mask & band

    def gathered(self, of_heads: Tensor, weights: Tensor | None) -> Tensor:
        """What all heads gathered, (B, H, T, D), put together, (B, T, C); the weights are told."""
        if self.record is not None and weights is not None:
            self.record(weights.detach())
        return self.output(self.join_heads(of_heads))

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, H D) -> (B, H, T, D): head h takes the channels from h D up to (h + 1) D."""
        return x.unflatten(-1, (-1, self.head_channels)).transpose(1, 2)

    def join_heads(self, x: Tensor) -> Tensor:
        """(B, H, T, D) -> (B, T, H D): the inverse of `split_heads`."""
        return x.transpose(1, 2).flatten(-2)


class MultiHeadAttention(Attention):
    """H attentions side by side, each in D channels; a matrix puts their outputs together.

        head_h = attention(x Wq_h, memory Wk_h, memory Wv_h)
        output = (head_1, ..., head_H) Wo

    Without `memory` a text attends to itself.

    Args:
        channels: C.
        heads: H; it divides C unless `head_channels` is given.
        kv_heads: G, of keys and values; it divides H. None: H. 1: all heads share one.
        head_channels: D; None: C / H.
        bias: whether the linear maps have one.
        dropout: of the attention weights, while training.
        rotary: whether queries and keys are rotated by their positions.
        rotary_base, rotary_scale: `base` and `scale` of `rotate`.
        qk_norm: whether each query and each key is divided by the root of its mean square, and
            stretched by a gain that all heads share, before it is rotated.
        eps: of that norm, as in `rms_norm`.
        window: how far a position sees, as the width of `banded_mask`; None: everywhere.
        sink: whether each head has one more key, of a learnt score (0 at first) and the value 0,
            as in `scaled_dot_product_attention`: a head that finds nothing can gather nothing.
        generator: draws the initial weights; on the CPU.
    Raises:
        ValueError: the heads do not divide the channels, or those of keys and values not the heads;
            or rotary positions are asked for and a
            head has an odd number of channels.
    Source: Vaswani et al. 2017, section 3.2.2; `qkv` stacks their Wq, Wk, Wv of all heads. Ainslie
    et al. 2023 (`kv_heads`).
    """

    def __init__(
        self,
        channels: int,
        *,
        heads: int,
        kv_heads: int | None = None,
        head_channels: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        rotary: bool = False,
        rotary_base: float = 10_000.0,
        rotary_scale: float = 1.0,
        qk_norm: bool = False,
        eps: float = 1e-5,
        window: int | None = None,
        sink: bool = False,
        generator: torch.Generator,
    ):
        width = head_width(channels, heads, head_channels)
        super().__init__(channels, heads, width, dropout=dropout, window=window)
        kv_heads = heads if kv_heads is None else kv_heads
        if kv_heads < 1 or heads % kv_heads:
            raise ValueError(
                f"expected kv_heads that divide the heads, got kv_heads={kv_heads} and "
                f"heads={heads}"
            )
        if rotary and width % 2:
            raise ValueError(
                "expected an even number of channels a head for rotary positions, which turn them "
                f"in pairs, got {channels} / {heads} = {width}"
            )
        self.kv_heads, self.rotary, self.eps = kv_heads, rotary, eps
        self.turn = partial(rotate, base=rotary_base, scale=rotary_scale)
        rows = (heads + 2 * kv_heads) * width
        self.qkv = linear(channels, rows, bias=bias, generator=generator)
        self.output = linear(heads * width, channels, bias=bias, generator=generator)
        self.query_gain = nn.Parameter(torch.ones(width)) if qk_norm else None
        self.key_gain = nn.Parameter(torch.ones(width)) if qk_norm else None
        self.sink = nn.Parameter(torch.zeros(heads)) if sink else None

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
        if self.query_gain is not None and self.key_gain is not None:
            shape = self.query_gain.shape
            queries = functional.rms_norm(queries, shape, self.query_gain, self.eps)
            keys = functional.rms_norm(keys, shape, self.key_gain, self.eps)
        if self.rotary:
            start = 0 if cache is None else cache.length
            queries, keys = self.turn(queries, start=start), self.turn(keys, start=start)
        if cache is not None:
            keys, values = cache.extend(keys, values)
        gathered, weights = scaled_dot_product_attention(
            queries,
            keys,
            values,
            mask=self.seen(mask, queries, keys),
            causal=causal,
            bias=bias,
            sink=None if self.sink is None else self.sink[:, None, None],  # (H, 1, 1)
            dropout=self.dropout if self.training else 0.0,
            grouped=self.kv_heads < self.heads,
            need_weights=self.record is not None,
        )
        return self.gathered(gathered, weights)

    def _project(self, x: Tensor, memory: Tensor | None) -> tuple[Tensor, ...]:
        """Queries, keys and values of all heads, (B, T, H D), (B, S, G D), (B, S, G D)."""
        for name, part in (("x", x), ("memory", memory)):
            if part is not None and (part.ndim != 3 or part.shape[-1] != self.channels):
                raise ValueError(
                    f"expected {name} of shape (B, T, {self.channels}), got {tuple(part.shape)}"
                )
        asking, asked = self.heads * self.head_channels, self.kv_heads * self.head_channels
        if memory is None:
            return self.qkv(x).split([asking, asked, asked], dim=-1)
        split = [asking, 2 * asked]
        of_queries, of_the_rest = self.qkv.weight.split(split)
        bias, bias_of_the_rest = (
            (None, None) if self.qkv.bias is None else self.qkv.bias.split(split)
        )
        keys_and_values = functional.linear(memory, of_the_rest, bias_of_the_rest)
        return functional.linear(x, of_queries, bias), *keys_and_values.chunk(2, dim=-1)


def head_width(channels: int, heads: int, head_channels: int | None = None) -> int:
    """D, the channels of a head: C / H unless told otherwise.

    Raises:
        ValueError: the heads do not divide the channels, and nothing else was told; or a size is
            below 1.
    """
    if heads < 1 or (head_channels is None and channels % heads):
        raise ValueError(
            f"expected heads that divide the channels, got channels={channels} and heads={heads}"
        )
    if head_channels is not None and head_channels < 1:
        raise ValueError(f"expected head_channels of 1 or more, got {head_channels}")
    return channels // heads if head_channels is None else head_channels


@contextmanager
def recorded_weights(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Inside the block, the model's attention weights are kept: {name of the module: (B, H, T, S)}.

    Each run of the model overwrites those of the run before. With `model = MultiHeadAttention(...)`
    itself the name is the empty text.

    Raises:
        ValueError: the model holds no attention.
    """
    found = {n: m for n, m in model.named_modules() if isinstance(m, Attention)}
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
