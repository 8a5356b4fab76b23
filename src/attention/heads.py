"""What do several attentions side by side give, and what do they cost?

    head_h = attention(x Wq_h, x Wk_h, x Wv_h)             each in D = C / H channels
    grouped                                                G sets of keys and values for H heads:
                                                           head_h takes set h G / H, rounded down
    output = [head_1 … head_H] Wo

With G = 1 all heads share one set (multi-query attention). A cache holds G sets, not H.
A layer may have a window, and its heads a sink (`attention/attention`).

Axes: B texts, T positions that ask (queries), S positions that are asked (keys), C channels,
H heads, G heads of keys and values, D channels of a head, by default C / H.
Source: Vaswani et al. 2017, section 3.2.2; Shazeer 2019 (multi-query); Ainslie et al. 2023
(grouped); Henry et al. 2020 and Dehghani et al. 2023 (norms of queries and keys).
Derived in the chapter `attention/heads`.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from .attention import scaled_dot_product_attention
from .config import BlockConfig
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
        config: its sizes and switches.
    """

    output: nn.Linear

    def __init__(self, config: BlockConfig):
        super().__init__()
        self.config, self.channels, self.heads = config, config.channels, config.heads
        self.head_channels, self.window = config.head_width, config.window
        # called with the weights, if anybody wants them: `recorded_weights`
        self.record: Callable[[Tensor], None] | None = None

    def turn(self, x: Tensor, *, start: int) -> Tensor:
        """Queries or keys, (B, H or G, T, D), rotated by their positions."""
        config = self.config
        return rotate(x, start=start, base=config.rotary_base, scale=config.rotary_scale)

    def within_window(self, mask: Tensor | None, queries: Tensor, keys: Tensor) -> Tensor | None:
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
        config: its sizes and switches.
        generator: draws the initial weights; on the CPU.
    Source: Vaswani et al. 2017, section 3.2.2; `qkv` stacks their Wq, Wk, Wv of all heads. Ainslie
    et al. 2023 (`kv_heads`).
    """

    def __init__(self, config: BlockConfig, *, generator: torch.Generator):
        super().__init__(config)
        channels, heads, width, bias = config.channels, config.heads, config.head_width, config.bias
        self.kv_heads, self.rotary = config.kv_heads or heads, config.rotary
        rows = (heads + 2 * self.kv_heads) * width
        self.qkv = linear(channels, rows, bias=bias, generator=generator)
        self.output = linear(heads * width, channels, bias=bias, generator=generator)
        self.query_gain = nn.Parameter(torch.ones(width)) if config.qk_norm else None
        self.key_gain = nn.Parameter(torch.ones(width)) if config.qk_norm else None
        self.sink = nn.Parameter(torch.zeros(heads)) if config.sink else None

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
            raise ValueError("expected a memory or a cache, got both: its keys would be kept twice")
        queries, keys, values = map(self.split_heads, self._project(x, memory))
        if self.query_gain is not None and self.key_gain is not None:
            shape, eps = self.query_gain.shape, self.config.eps
            queries = functional.rms_norm(queries, shape, self.query_gain, eps)
            keys = functional.rms_norm(keys, shape, self.key_gain, eps)
        if self.rotary:
            start = 0 if cache is None else cache.length
            queries, keys = self.turn(queries, start=start), self.turn(keys, start=start)
        if cache is not None:
            keys, values = cache.extend(keys, values)
        mixed, weights = scaled_dot_product_attention(
            queries,
            keys,
            values,
            mask=self.within_window(mask, queries, keys),
            causal=causal,
            bias=bias,
            sink=None if self.sink is None else self.sink[:, None, None],  # (H, 1, 1)
            dropout=self.config.dropout if self.training else 0.0,
            grouped=self.kv_heads < self.heads,
            need_weights=self.record is not None,
        )
        if self.record is not None and weights is not None:
            self.record(weights.detach())
        return self.output(self.join_heads(mixed))

    def _project(self, x: Tensor, memory: Tensor | None) -> tuple[Tensor, ...]:
        """Queries, keys and values of all heads, (B, T, H D), (B, S, G D), (B, S, G D)."""
        for part in (x, memory):
            if part is not None and part.ndim != 3:  # its positions would be taken for heads
                raise ValueError(f"expected (B, T, {self.channels}), got {tuple(part.shape)}")
        rows, kv_rows = self.heads * self.head_channels, self.kv_heads * self.head_channels
        if memory is None:
            return self.qkv(x).split([rows, kv_rows, kv_rows], dim=-1)
        weight, bias = self.qkv.weight, self.qkv.bias
        queries = functional.linear(x, weight[:rows], None if bias is None else bias[:rows])
        pairs = functional.linear(memory, weight[rows:], None if bias is None else bias[rows:])
        return queries, *pairs.chunk(2, dim=-1)


def recorded_weights(model: nn.Module) -> AbstractContextManager[dict[str, Tensor]]:
    """Inside the block, the model's attention weights are kept: {name of the module: (B, H, T, S)}.

    Each run of the model overwrites those of the run before. With `model = MultiHeadAttention(...)`
    itself the name is the empty text.

    Raises:
        ValueError: the model holds no attention.
    """
    return recorded(model, Attention)


@contextmanager
def recorded(model: nn.Module, kind: type[nn.Module]) -> Iterator[dict[str, Any]]:
    """Inside the block, what the modules of a kind call `record` with is kept by their names.

    Raises:
        ValueError: the model holds no such module.
    """
    modules: dict[str, Any] = {n: m for n, m in model.named_modules() if isinstance(m, kind)}
    if not modules:
        raise ValueError(f"expected a model with {kind.__name__}, got {type(model).__name__}")
    records: dict[str, Any] = {}
    for name, module in modules.items():
        module.record = lambda value, name=name: records.__setitem__(name, value)
    try:
        yield records
    finally:
        for module in modules.values():
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
