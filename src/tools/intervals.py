"""How far may a mean of a few runs be from what many more would give?

    values         mean ± t s / sqrt(n)                          t: of n - 1 degrees of freedom
    crossed table  mean ± t sqrt(v_a / S + v_b / D)              v_a: variance of the S rows' means,
                                                                 v_b: of the D columns' means

where t is the quantile of Student's distribution, s² and v are variances with n - 1 below, and the
degrees of freedom of the table are Welch's. In a table every seed meets every draw, so its cells
are not independent; the noise of single cells counts twice, and the interval is rather too long.

Source: Student 1908. Derived in the chapter `gpt/gpt1_finetuning`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special


class Interval(NamedTuple):
    """A mean, and half of the interval around it."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        """Where the interval begins."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Where the interval ends."""
        return self.mean + self.half


def interval(values: ArrayLike, *, level: float = 0.95) -> Interval:
    """The mean of what independent runs gave, say one for each seed, with its interval.

    >>> mean, half = interval([1.0, 2.0, 6.0])
    >>> round(mean, 3), round(half, 3)
    (3.0, 6.572)

    Args:
        values: two or more.
        level: how often such an interval holds the mean of all runs, if these are normal.
    Raises:
        ValueError: fewer than two values, or several axes.
    """
    values = np.asarray(values, dtype=float)
    _check(values.shape, 1)
    return _around(values.mean(), [values], level)


def crossed(table: ArrayLike, *, level: float = 0.95) -> Interval:
    """The mean of a table in which every row meets every column, such as (seeds, draws).

    Args:
        table: (S, D), both two or more.
        level: as for `interval`.
    Raises:
        ValueError: fewer than two rows or columns, or other axes.
    """
    table = np.asarray(table, dtype=float)
    _check(table.shape, 2)
    return _around(table.mean(), [table.mean(1), table.mean(0)], level)


def _around(mean: float, ways: Sequence[np.ndarray], level: float) -> Interval:
    """From the squared errors that the ways of looking at the spread give, added up."""
    errors = [float(means.var(ddof=1)) / len(means) for means in ways]
    if not sum(errors):
        return Interval(float(mean), 0.0)
    parts = (e**2 / (len(means) - 1) for e, means in zip(errors, ways, strict=True))
    degrees = sum(errors) ** 2 / sum(parts)  # Welch's; n - 1 if there is one way
    t = float(special.stdtrit(degrees, (1 + level) / 2))
    return Interval(float(mean), t * math.sqrt(sum(errors)))


def _check(shape: tuple[int, ...], axes: int) -> None:
    if len(shape) != axes or min(shape) < 2:
        raise ValueError(f"expected an array of {axes} axes of two or more, got shape {shape}")
