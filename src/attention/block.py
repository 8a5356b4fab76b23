"""What is a Transformer made of?

    pre-norm      h = x + attention(norm(x));     y = h + ffn(norm(h))            GPT-2
    post-norm     h = norm(x + attention(x));     y = norm(h + ffn(h))            GPT-1
    encoder       blocks in which all see all
    decoder       blocks in which each position sees itself and what came before; with `cross`, a
                  memory as well

Only attention moves information between positions; norms and feed-forward networks
(`attention/feed_forward`) work on each position by itself.

Axes: B texts, T and S positions (of the text and of a memory), C channels.
Source: Vaswani et al. 2017, section 3; Xiong et al. 2020 (pre-norm).
Derived in the chapter `attention/block`.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from .config import BlockConfig
from .experts import Experts
from .feed_forward import FeedForward, new_norm
from .heads import Cache, MultiHeadAttention
from .latent import LatentAttention


class Block(nn.Module):
    """Attention, then (with `cross`) attention to a memory, then a feed-forward network.

    Around each of them goes a residual connection; dropout falls on what is added to it. Attention
    to a memory is a `MultiHeadAttention`, not rotary and without a window: places of two texts do
    not compare.

    Args:
        config: its sizes and switches.
        cross: whether there is attention to a memory.
        generator: draws the initial weights; on the CPU.
    """

    def __init__(self, config: BlockConfig, *, cross: bool = False, generator: torch.Generator):
        super().__init__()
        self.norm, self.cross = config.norm, cross  # "pre" or "post"; whether there is a memory
        # LatentAttention and Experts are of later years: the part `today`.
        attention = LatentAttention if config.latent else MultiHeadAttention
        self.attention = attention(config, generator=generator)
        self.attention_norm = new_norm(config)
        if cross:  # only in a translator: attention/encoder_decoder
            across = replace(config, positions="none", window=None, latent=None)
            self.cross_attention = MultiHeadAttention(across, generator=generator)
            self.cross_norm = new_norm(config)
        feed_forward = Experts if config.experts else FeedForward
        self.feed_forward = feed_forward(config, generator=generator)
        self.feed_forward_norm = new_norm(config)
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()

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
        drop = self.dropout
        options = {"mask": mask, "causal": causal, "cache": cache}
        if self.norm == "pre":
            x = x + drop(self.attention(self.attention_norm(x), **options))
            if self.cross:
                x = x + drop(self.cross_attention(self.cross_norm(x), memory, mask=memory_mask))
            return x + drop(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + drop(self.attention(x, **options)))
        if self.cross:
            x = self.cross_norm(x + drop(self.cross_attention(x, memory, mask=memory_mask)))
        return self.feed_forward_norm(x + drop(self.feed_forward(x)))


class _Stack(nn.Module):
    """Blocks one after another; after pre-norm blocks a last norm, which they leave to do."""

    def __init__(
        self, layers: int, config: BlockConfig, *, cross: bool = False, generator: torch.Generator
    ):
        super().__init__()
        self.blocks = nn.ModuleList(
            Block(config.layer(number), cross=cross, generator=generator)
            for number in range(layers)
        )
        self.final_norm = new_norm(config) if config.norm == "pre" else nn.Identity()


class Encoder(_Stack):
    """Blocks in which every position sees every other.

    Args:
        layers: how many.
        config: what each of them is.
        generator: draws the initial weights; on the CPU.
    """

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """(B, S, C) -> (B, S, C); the mask keeps padding out."""
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.final_norm(x)


class Decoder(_Stack):
    """Blocks in which a position sees no later one.

    Args:
        layers, config: as in `Encoder`.
        cross: whether each block looks at a memory as well.
        generator: draws the initial weights; on the CPU.
    """

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: Sequence[Cache] | None = None,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C), causally; the masks only forbid more.

        Args:
            x: (B, T, C).
            memory, mask, memory_mask: as in `Block`.
            cache: one for each block, of the tokens before x.
        """
        # No cache: nothing for each block.
        caches: Sequence[Cache | None] = cache or [None] * len(self.blocks)
        for block, stored in zip(self.blocks, caches, strict=True):
            x = block(x, memory, mask=mask, causal=True, memory_mask=memory_mask, cache=stored)
        return self.final_norm(x)
