"""At whom may a position look?

A mask is boolean: True means *may attend*. Its rows are queries, its columns keys, (T, S).

Axes: B texts, T positions that ask (queries), S positions that are asked (keys).
Source: Vaswani et al. 2017, section 3.2. Derived in the chapter `attention/masks`.
"""

import torch
from torch import Tensor

from ..tools.checks import outside


def causal_mask(
    length: int, keys: int | None = None, *, device: torch.device | None = None
) -> Tensor:
    """Each position may attend to itself and to what came before it, (T, S).

    >>> causal_mask(3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]

    Args:
        length: T.
        keys: S; the queries are the *last* T of S positions. None: S = T.
        device: where the mask is made.
    """
    keys = length if keys is None else keys
    return torch.ones(length, keys, dtype=torch.bool, device=device).tril(keys - length)


def banded_mask(
    length: int, width: int, *, keys: int | None = None, device: torch.device | None = None
) -> Tensor:
    """Each position may attend to those fewer than `width` places away on either side, (T, S).

    `causal_mask(T) & banded_mask(T, width)` is the causal band: itself and the width - 1 before it.

    Args:
        length: T.
        width: how many positions the band has on each side, the position itself included.
        keys: S; the queries are the *last* T of S positions. None: S = T.
        device: where the mask is made.
    """
    places = torch.arange(length if keys is None else keys, device=device)
    return (places[len(places) - length :, None] - places).abs() < width


def padding_mask(lengths: Tensor, length: int) -> Tensor:
    """Everybody may attend to the real tokens of their own text, nobody to padding, (B, 1, S).

    Args:
        lengths: (B,); how many real tokens each text has; padding stands after them.
        length: S; to how many positions the texts were padded.
    Raises:
        ValueError: a text is longer than that, or has no tokens at all.
    """
    if outside(lengths, 1, length):
        raise ValueError(f"expected texts of 1 to {length} tokens, got {lengths.tolist()}")
    return torch.arange(length, device=lengths.device) < lengths[:, None, None]


def sparse_mask(
    length: int, *, window: int, global_tokens: int, random: int, generator: torch.Generator
) -> Tensor:
    """A band, some tokens that see and are seen by all, and a few keys by chance, (T, T).

    Args:
        length: T.
        window: width of the band, as in `banded_mask`.
        global_tokens: how many tokens, the first of the text, see all and are seen by all.
        random: how many keys are drawn for each query, from anywhere.
        generator: draws them; on the CPU, as is the mask.
    Raises:
        ValueError: more global or random tokens are asked for than there are.
    Source: Zaheer et al. 2020.
    """
    if not (0 <= global_tokens <= length and 0 <= random <= length):
        raise ValueError(f"expected 0 to {length} of each, got {global_tokens=} and {random=}")
    mask = banded_mask(length, window)
    mask[:global_tokens] = True
    mask[:, :global_tokens] = True
    drawn = torch.rand(length, length, generator=generator).argsort()[:, :random]
    return mask.scatter(1, drawn, True)
