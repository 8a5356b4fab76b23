"""What if a cache held neither keys nor values, but what both are made of?

    c        = rms_norm(x Wdown)                        L numbers a token, kept            (B, S, L)
    k        = rotate(x Wshared)                        R more, one key for all heads      (B, S, R)
    q_h, p_h = x Wq_h, rotate(x Wp_h)                   two queries a head                 D and R
    plain    scores = (q_h (c Wk_h)' + p_h k') / sqrt(D + R),   output_h = weights (c Wv_h)
    absorbed scores = ((q_h Wk_h') c' + p_h k') / sqrt(D + R),  output_h = (weights c) Wv_h

The brackets are all that differs. Plain, every token kept is projected up, once for each head;
absorbed, only the query and the mixture are, and all heads look at the same L + R numbers: it is
multi-query attention. A rotation between q_h and Wk_h' would forbid that, so positions have queries
and a key of their own.

Axes: B texts, T positions that ask, S positions that are asked, C channels, H heads, D channels of
a head, L of the latent, R of what is rotated: D / 2, or 0 without rotary positions.
Source: DeepSeek-AI 2024 (DeepSeek-V2), section 2.1 and appendix C: our c, k, q, p are their c^KV,
k^R, q^C, q^R. As in their small model, queries are not compressed.
Builds on the chapter `attention/heads`.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .attention import scaled_dot_product_attention
from .config import BlockConfig
from .heads import Attention, Cache, linear


def latent_attention(
    queries: Tensor, latents: Tensor, shared: Tensor, up: Tensor, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Attention to keys and values that are projected up from latents, as the equations say: plain.

    Args:
        queries: (B, H, T, D + R); the last R are rotated.
        latents: (B, 1, S, L).
        shared: (B, 1, S, R); the rotated key of all heads.
        up: (H, 2 D, L); the rows of each head make its key, then its value.
        options: of `scaled_dot_product_attention`.
    Returns:
        (output, weights): (B, H, T, D), and (B, H, T, S) or None.
    """
    keys, values = (latents @ up.mT).chunk(2, dim=-1)  # (B, H, S, D) each
    keys = torch.cat([keys, shared.expand(*keys.shape[:-1], -1)], dim=-1)  # (B, H, S, D + R)
    return scaled_dot_product_attention(queries, keys, values, **options)


def absorbed_attention(
    queries: Tensor, latents: Tensor, shared: Tensor, up: Tensor, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """What `latent_attention` gives, and no key or value is ever made.

    For one query and S tokens it takes about 2 S H (2 L + R) operations, where projecting all of
    them up takes 4 S H D L.

    Args:
        queries, latents, shared, up, options: as there.
    Returns:
        As there.
    Source: DeepSeek-AI 2024, section 2.1.2.
    """
    up_keys, up_values = up.chunk(2, dim=1)  # (H, D, L) each
    plain, rotated = queries.tensor_split([up_keys.shape[1]], dim=-1)  # D and R
    queries = torch.cat([plain @ up_keys, rotated], dim=-1)  # (B, H, T, L + R)
    keys = torch.cat([latents, shared], dim=-1)  # (B, 1, S, L + R)
    scale = 1 / math.sqrt(plain.shape[-1] + rotated.shape[-1])  # not of L + R
    mixed, weights = scaled_dot_product_attention(
        queries, keys, latents, scale=scale, grouped=True, **options
    )
    return mixed @ up_values.mT, weights  # (B, H, T, L) (H, L, D)


class LatentAttention(Attention):
    """Multi-head attention whose cache holds L + R numbers a token, however many heads there are.

    One new token with a cache takes the absorbed form, everything else the plain one.

    Args:
        config: its sizes and switches. The map up has no bias: it could not be absorbed.
        generator: draws the initial weights; on the CPU.
    Source: DeepSeek-AI 2024, section 2.1. `query` stacks their W^Q and W^QR, head by head, `down`
    W^DKV and W^KR, `up` W^UK and W^UV, head by head.
    """

    def __init__(self, config: BlockConfig, *, generator: torch.Generator):
        super().__init__(config)
        channels, heads, width, bias = config.channels, config.heads, config.head_width, config.bias
        self.latent, self.turned = config.latent or 0, config.turned_width
        queries = heads * (width + self.turned)
        self.query = linear(channels, queries, bias=bias, generator=generator)
        self.down = linear(channels, self.latent + self.turned, bias=bias, generator=generator)
        self.up = linear(self.latent, 2 * heads * width, bias=False, generator=generator)
        self.output = linear(heads * width, channels, bias=bias, generator=generator)
        self.latent_gain = nn.Parameter(torch.ones(self.latent))

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        bias: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """What each position gathers, (B, T, C); arguments as in `MultiHeadAttention.forward`."""
        start = 0 if cache is None else cache.length
        queries = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, D + R)
        latents, shared = self.down(x)[:, None].split([self.latent, self.turned], dim=-1)
        latents = functional.rms_norm(latents, (self.latent,), self.latent_gain, self.config.eps)
        if self.turned:
            still, turning = queries.split([self.head_channels, self.turned], dim=-1)
            queries = torch.cat([still, self.turn(turning, start=start)], dim=-1)
            shared = self.turn(shared, start=start)
        if cache is not None:
            latents, shared = cache.extend(latents, shared)
        one_more = cache is not None and x.shape[1] == 1
        attend = absorbed_attention if one_more else latent_attention
        mixed, weights = attend(
            queries,
            latents,
            shared,
            self.up.weight.view(self.heads, -1, self.latent),
            mask=self.within_window(mask, queries, latents),
            causal=causal,
            bias=bias,
            dropout=self.config.dropout if self.training else 0.0,
            need_weights=self.record is not None,
        )
        if self.record is not None and weights is not None:
            self.record(weights.detach())
        return self.output(self.join_heads(mixed))
