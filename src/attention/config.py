"""What is a block made of? All its settings, each written once.

GPT-1 and GPT-2 need the first eight. What came in later years stands after them, and is switched
off. Every part of a block reads what it needs from one `BlockConfig`; `GPTConfig` (`gpt/gpt2`) is
one, with what a whole model has besides.

Axes: C channels, H heads, G heads of keys and values, D channels of a head, L of a latent.
Derived in the chapters `attention/heads` and `attention/block`, and in those of the part `today`.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Self

from torch import Tensor
from torch.nn import functional

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),  # as in the released GPT-1 and -2
    "relu": functional.relu,
    "silu": functional.silu,
}
CHOICES: dict[str, Collection[str]] = {
    "norm": ("pre", "post"),
    "activation": ACTIVATIONS,
    "positions": ("learnt", "rotary", "none"),
    "norm_kind": ("layer", "rms"),
}


@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """Everything that a block is, but for its weights.

    >>> BlockConfig(channels=12, heads=3).head_width
    4

    Attributes:
        channels, heads: C, H; the heads divide the channels unless `head_channels` is given.
        hidden: width of the feed-forward network; None: 4 C, or gated 8 C / 3, rounded down, which
            are as many parameters.
        norm: "pre" (before each part, inside the residual) or "post" (after the sum).
        activation: "gelu", "gelu_tanh" (its approximation, twice as slow on a CPU), "relu" or
            "silu".
        bias: whether linear maps and norms have one.
        eps: of the norms.
        dropout: the probability that an attention weight, or a number that a part adds, is dropped.
        positions: "rotary": queries and keys are rotated by their positions. "none": they are not;
            positions may be added to the input. ("learnt" is for a whole model: see `GPTConfig`.)
        rotary_base, rotary_scale: `base` and `scale` of `rotate`; they extend the context.
        norm_kind: "layer" or "rms".
        gated: whether the feed-forward network has a gate; with "silu" this is SwiGLU.
        kv_heads: G, heads of keys and values, each shared by H / G heads; None: H. 1: multi-query.
        head_channels: D, the channels of a head; None: C / H.
        qk_norm: whether each query and each key is divided by the root of its mean square, and
            stretched by a gain that all heads share, before it is rotated.
        latent: L of `LatentAttention`, which takes the place of `MultiHeadAttention`; None: keys
            and values of their own.
        window: how many tokens a local layer sees, the last one included; None: all.
        global_every: with a window, every n-th layer sees all; None: no layer does.
        sink: whether each head has one more key, of a learnt score (0 at first) and the value 0,
            as in `scaled_dot_product_attention`: a head that finds nothing can gather nothing.
        experts: E, how many feed-forward networks each block has; None: one, without a router.
        experts_used: K, how many of them each token uses.
        experts_shift: the rate at which their shifts move, as in `moved`; 0: they stay 0.
    Raises:
        ValueError: a size is below 1, the heads do not divide the channels, or a name is unknown.
    """

    channels: int
    heads: int
    hidden: int | None = None
    norm: str = "pre"
    activation: str = "gelu"
    bias: bool = True
    eps: float = 1e-5
    dropout: float = 0.0
    # of later years
    positions: str = "none"
    rotary_base: float = 10_000.0
    rotary_scale: float = 1.0
    norm_kind: str = "layer"
    gated: bool = False
    kv_heads: int | None = None
    head_channels: int | None = None
    qk_norm: bool = False
    latent: int | None = None
    window: int | None = None
    global_every: int | None = None
    sink: bool = False
    experts: int | None = None
    experts_used: int = 2
    experts_shift: float = 0.0

    @property
    def width(self) -> int:
        """The width of the feed-forward network.

        Two matrices of 4 C² numbers are as many as three of 8 C² / 3.

        Source: Vaswani et al. 2017, section 3.3; Shazeer 2020, section 3.
        """
        return self.hidden or (8 * self.channels // 3 if self.gated else 4 * self.channels)

    @property
    def head_width(self) -> int:
        """D, the channels of a head."""
        return self.head_channels or self.channels // self.heads

    @property
    def rotary(self) -> bool:
        """Whether queries and keys are rotated."""
        return self.positions == "rotary"

    @property
    def turned_width(self) -> int:
        """R, how many channels more a head of latent attention rotates: D / 2 (DeepSeek-V2)."""
        return self.head_width // 2 if self.latent and self.rotary else 0

    def layer(self, number: int) -> Self:
        """The settings of one layer, counted from 0: every `global_every`-th has no window.

        Source: Beltagy et al. 2020 (windows); Gemma Team 2025, section 2 (five local, one global).
        """
        sees_all = self.global_every and (number + 1) % self.global_every == 0
        return replace(self, window=None) if sees_all else self

    def unusual(self, allowed: Collection[str] = ()) -> dict[str, Any]:
        """The settings that differ from their defaults, but for those that are allowed to."""
        differing = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name not in allowed and value != each.default:
                differing[each.name] = value
        return differing

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            # each.type: the field's annotation, here compared with types
            if each.type is bool and type(value) is not bool:  # any text would count as True
                raise ValueError(f"expected {each.name} to be True or False, got {value!r}")
            size = each.type is int or (each.type == int | None and value is not None)
            if size and (type(value) is not int or value < 1):  # True is no size
                expected = f"{each.name} to be a whole number above 0"
                raise ValueError(f"expected {expected}, got {value!r}")
            if each.name in CHOICES and value not in CHOICES[each.name]:
                known = " or ".join(f'"{name}"' for name in CHOICES[each.name])
                raise ValueError(f"expected {each.name} to be {known}, got {value!r}")
        one_size = self.head_channels or self.channels % self.heads == 0
        together = self.heads % (self.kv_heads or 1) == 0
        pairs = not self.rotary or self.head_width % 2 == 0
        halves = self.turned_width == 0 or self.head_width % 4 == 0
        one_kind = not (self.latent and (self.kv_heads or self.qk_norm or self.sink))
        enough = not self.experts or self.experts_used <= self.experts
        for right, expected, settings in (
            (one_size, "heads that divide the channels", "channels heads"),
            (together, "kv_heads that divide the heads", "kv_heads heads"),
            (pairs, "an even number of channels per head for rotary positions", "head_width"),
            (halves, "a multiple of 4 channels per head for rotary latent attention", "head_width"),
            (one_kind, "latent attention without the others", "latent kv_heads qk_norm sink"),
            (enough, "at most as many experts_used as experts", "experts experts_used"),
            (self.rotary_base > 0, "a rotary_base above 0", "rotary_base"),
            (self.rotary_scale > 0, "a rotary_scale above 0", "rotary_scale"),
            (0 <= self.dropout < 1, "a dropout from 0 to below 1", "dropout"),
            (0 < self.eps < math.inf, "eps above 0 and finite", "eps"),
            (0 <= self.experts_shift < math.inf, "experts_shift from 0 on", "experts_shift"),
        ):
            if not right:
                given = " and ".join(f"{name}={getattr(self, name)!r}" for name in settings.split())
                raise ValueError(f"expected {expected}, got {given}")
