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
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .attention import scaled_dot_product_attention
from .heads import Attention, Cache, head_width, linear
from .positions import rotate


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
    of_keys, of_values = up.chunk(2, dim=1)  # (H, D, L) each
    width = of_keys.shape[1]
    asking = torch.cat([queries[..., :width] @ of_keys, queries[..., width:]], dim=-1)
    asked = torch.cat([latents, shared], dim=-1)  # (B, 1, S, L + R)
    scale = 1 / math.sqrt(queries.shape[-1])  # not of L + R
    mixed, weights = scaled_dot_product_attention(
        asking, asked, latents, scale=scale, grouped=True, **options
    )
    return mixed @ of_values.mT, weights  # (B, H, T, L) (H, L, D)


class LatentAttention(Attention):
    """Multi-head attention whose cache holds L + R numbers a token, however many heads there are.

    One new token with a cache takes the absorbed form, everything else the plain one.

    Args:
        channels: C.
        heads: H; it divides C unless `head_channels` is given.
        latent: L.
        head_channels: D; None: C / H.
        bias: whether the linear maps have one, but for that up: it could not be absorbed.
        dropout: of the attention weights, while training.
        rotary: whether D / 2 more channels of each query, and of a key that all heads share, are
            rotated by their positions.
        rotary_base, rotary_scale: `base` and `scale` of `rotate`.
        eps: of the norm of the latents, as in `rms_norm`.
        window: as in `MultiHeadAttention`.
        generator: draws the initial weights; on the CPU.
    Raises:
        ValueError: the heads do not divide the channels, or D / 2 is odd and is to be rotated.
    Source: DeepSeek-AI 2024, section 2.1. `query` stacks their W^Q and W^QR, head by head, `down`
    W^DKV and W^KR, `up` W^UK and W^UV, head by head.
    """

    def __init__(
        self,
        channels: int,
        *,
        heads: int,
        latent: int,
        head_channels: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        rotary: bool = False,
        rotary_base: float = 10_000.0,
        rotary_scale: float = 1.0,
        eps: float = 1e-5,
        window: int | None = None,
        generator: torch.Generator,
    ):
        width = head_width(channels, heads, head_channels)
        super().__init__(channels, heads, width, dropout=dropout, window=window)
        turned = turned_width(width) if rotary else 0
        self.latent, self.turned, self.eps = latent, turned, eps
        self.turn = partial(rotate, base=rotary_base, scale=rotary_scale)
        self.query = linear(channels, heads * (width + turned), bias=bias, generator=generator)
        self.down = linear(channels, latent + turned, bias=bias, generator=generator)
        self.up = linear(latent, 2 * heads * width, bias=False, generator=generator)
        self.output = linear(heads * width, channels, bias=bias, generator=generator)
        self.latent_gain = nn.Parameter(torch.ones(latent))

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
        latents = functional.rms_norm(latents, (self.latent,), self.latent_gain, self.eps)
        if self.turned:
            still, turning = queries.split([self.head_channels, self.turned], dim=-1)
            queries = torch.cat([still, self.turn(turning, start=start)], dim=-1)
            shared = self.turn(shared, start=start)
        if cache is not None:
            latents, shared = cache.extend(latents, shared)
        one_more = cache is not None and x.shape[1] == 1
        attend = absorbed_attention if one_more else latent_attention
        gathered, weights = attend(
            queries,
            latents,
            shared,
            self.up.weight.view(self.heads, -1, self.latent),
            mask=self.seen(mask, queries, latents),
            causal=causal,
            bias=bias,
            dropout=self.dropout if self.training else 0.0,
            need_weights=self.record is not None,
        )
        return self.gathered(gathered, weights)


def turned_width(head_channels: int) -> int:
    """R, how many channels more are rotated in latent attention: D / 2, as in DeepSeek-V2.

    Raises:
        ValueError: that is not an even number.
    """
    if head_channels % 4:
        raise ValueError(
            "expected a multiple of 4 channels a head for latent attention with rotary positions, "
            f"half of which are turned in pairs, got {head_channels}"
        )
    return head_channels // 2
