"""`src.tools.intervals` against closed forms, scipy's own intervals, and how often they hold."""

import math

import numpy as np
import pytest
from scipy import stats

from src.tools.intervals import Interval, crossed, interval

VALUES = [0.3, 1.7, -2.9, 5.3, 0.7]


def test_three_values_have_the_closed_form_of_two_degrees():
    mean, half = interval([1.0, 2.0, 6.0])
    t = 0.95 / math.sqrt(2 * 0.975 * 0.025)
    assert mean == 3.0
    assert half == pytest.approx(t * math.sqrt(7 / 3))  # variance (4 + 1 + 9) / 2 = 7


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_an_interval_is_that_of_scipy(count, level):
    values = VALUES[:count]
    low, high = stats.t.interval(level, count - 1, loc=np.mean(values), scale=stats.sem(values))
    found = interval(values, level=level)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_an_interval_holds_the_truth_as_often_as_it_says(generator_of_numpy):
    draws = generator_of_numpy.normal(size=(4_000, 3))
    held = np.mean([abs(mean) < half for mean, half in map(interval, draws)])
    assert held == pytest.approx(0.95, abs=0.012)


def test_a_crossed_table_is_worked_by_hand():
    """Means of rows 1, 2, 6 and of columns 2, 4: errors 7/3 and 1, and Welch's degrees."""
    table = np.add.outer([1.0, 2.0, 6.0], [-1.0, 1.0])
    degrees = (7 / 3 + 1) ** 2 / ((7 / 3) ** 2 / 2 + 1**2 / 1)
    half = stats.t.ppf(0.975, degrees) * math.sqrt(7 / 3 + 1)
    assert crossed(table) == pytest.approx((3.0, half))
    assert crossed(table.T) == pytest.approx((3.0, half))


def test_a_crossed_table_holds_the_truth_where_cells_taken_alone_do_not(generator_of_numpy):
    draw = generator_of_numpy.normal
    held = []
    for _ in range(1_500):
        table = draw(size=(3, 1)) + draw(size=(1, 3)) + 0.3 * draw(size=(3, 3))
        ways = (crossed(table), interval(table.ravel()))
        held.append([abs(mean) < half for mean, half in ways])
    careful, careless = np.mean(held, axis=0)
    assert careful > 0.93
    assert careless < 0.8


def test_what_does_not_vary_has_no_interval():
    assert interval([2.0, 2.0]) == crossed(np.full((2, 3), 2.0)) == Interval(2.0, 0.0)


@pytest.mark.parametrize(
    ("call", "values", "message"),
    [
        (interval, [1.0], r"an array of 1 axes of two or more, got shape \(1,\)"),
        (interval, [[1.0, 2.0], [3.0, 4.0]], r"an array of 1 axes .*, got shape \(2, 2\)"),
        (crossed, [1.0, 2.0], "an array of 2 axes"),
        (crossed, [[1.0, 2.0]], r"got shape \(1, 2\)"),
    ],
)
def test_what_gives_no_interval_is_refused(call, values, message):
    with pytest.raises(ValueError, match=message):
        call(values)


@pytest.fixture
def generator_of_numpy():
    return np.random.default_rng(17)
