"""How does a model know where a token stands, and how far apart two of them are?

    sinusoidal    P[t, 2i] = sin(t w_i),  P[t, 2i + 1] = cos(t w_i),  w_i = base^(-2i / C)
    rotary        pair i of a query's or key's channels, turned by the angle t w_i
    interpolated  the same with t / scale in the place of t
    learnt        P[t] = row t of a table

The first and the last are added to a model's input; rotary positions turn queries and keys, whose
product then depends on the difference of their positions only. A model whose positions are rotary
reads longer texts than it has learnt from if its angles stay those that it knows: with a scale, all
of them; with a greater base, the slow ones.

Axes: T positions, C channels, D channels of a head.
Source: Vaswani et al. 2017, section 3.5; Su et al. 2021 (rotary positions); Chen et al. 2023
(interpolation); Peng et al. 2024, section 3.1 (a greater base).
Derived in the chapter `attention/positions`.
"""

from functools import lru_cache

import torch
from torch import Tensor, nn


def sinusoidal_positions(length: int, channels: int, *, base: float = 10_000.0) -> Tensor:
    """(T, C): entry (t, 2i) is sin(t w_i) and (t, 2i + 1) is cos(t w_i), w_i = base^(-2i / C).

    Raises:
        ValueError: the number of channels is odd.
    Source: Vaswani et al. 2017, section 3.5.
    """
    angles = torch.arange(length)[:, None] * _frequencies(channels, base)  # (T, C / 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


def rotate(x: Tensor, *, start: int = 0, base: float = 10_000.0, scale: float = 1.0) -> Tensor:
    """Rotary positions: pair i of the channels at position t is turned by the angle t w_i.

    The product of a rotated query and a rotated key depends on the *difference* of their
    positions only. The pairs are (2i, 2i + 1), as in `sinusoidal_positions`.

    Args:
        x: (..., T, D); queries or keys.
        start: the position of the first of the T.
        base: sets the frequencies w_i = base^(-2i / D).
        scale: positions are divided by it: with 2, position 2 t is turned as t was.
    Raises:
        ValueError: D is odd.
    Source: Su et al. 2021, section 3.2.2; Chen et al. 2023, equation 4 (scale).
    """
    cos, sin = _turns(start, x.shape[-2], x.shape[-1], base, scale, x.device, x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def extended_base(base: float, factor: float, *, channels: int) -> float:
    """The base that slows the slowest pair by `factor` and leaves the fastest as it is.

    base * factor^(D / (D - 2)): w_0 = 1 whatever the base, and w of the last pair, D / 2 - 1, is
    divided by the factor.

    Args:
        base: before.
        factor: how many times as long the texts become.
        channels: D, of a head; 4 or more, a fast pair and a slow one.
    Raises:
        ValueError: fewer than 4 channels.
    Source: Peng et al. 2024, section 3.1 ("NTK-aware").
    """
    if channels < 4:
        raise ValueError(f"expected 4 channels or more, got {channels}")
    return base * factor ** (channels / (channels - 2))


@lru_cache(maxsize=4)  # the queries and keys of all layers are turned alike
def _turns(
    start: int,
    length: int,
    channels: int,
    base: float,
    scale: float,
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """The cosines and sines of `rotate`, (T, D / 2) each."""
    with torch.inference_mode(False):  # else no later call could have a gradient
        places = torch.arange(start, start + length, dtype=torch.float64) / scale
        angles = places[:, None] * _frequencies(channels, base)  # float64
        return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def _frequencies(channels: int, base: float) -> Tensor:
    if channels % 2:
        raise ValueError(f"expected an even number of channels, in pairs, got {channels}")
    # float64: at position 10,000 a float32 angle can be off in its fourth decimal.
    return base ** (-torch.arange(0, channels, 2, dtype=torch.float64) / channels)


class LearnedPositions(nn.Module):
    """A table with a vector for each position, learnt like any other parameter.

    Args:
        context_length: how many positions the table has.
        channels: C.
        generator: draws the initial table, N(0, 1 / C); on the CPU.
    """

    def __init__(self, context_length: int, *, channels: int, generator: torch.Generator):
        super().__init__()
        table = torch.empty(context_length, channels)
        self.table = nn.Parameter(table.normal_(std=channels**-0.5, generator=generator))

    def forward(self, length: int, start: int = 0) -> Tensor:
        """The vectors of the positions from start, (T, C).

        Raises:
            ValueError: a position lies outside the table.
        """
        if not 0 <= start <= start + length <= len(self.table):
            got = f"{length} from position {start}; a learnt table says nothing of later ones"
            raise ValueError(f"expected positions within the {len(self.table)} learnt, got {got}")
        return self.table[start : start + length]
