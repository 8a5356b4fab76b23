"""`src.tools.figures`: one style, and files that do not change when the figure does not."""

import io
import re
import subprocess
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from src.tools import figures

mpl.use("Agg")

DRAW = """
import sys, matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
from src.tools import figures
figures.use_style()
figure, axes = plt.subplots()
figures.band(axes, [1, 2, 3], [[1, 2, 3], [2, 3, 5]], "runs")
figures.baseline(axes, 1.5, "floor")
axes.legend()
sys.stdout.write(figures.svg_of(figure))
"""


@pytest.fixture
def axes():
    with mpl.rc_context():
        figures.use_style()
        figure, axes = plt.subplots()
        yield axes
        plt.close(figure)


def luminance(colour):
    """WCAG 2 relative luminance of a colour."""
    rgb = np.array(mpl.colors.to_rgb(colour))
    linear = np.where(rgb <= 0.03928, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one, two):
    dark, light = sorted((luminance(one), luminance(two)))
    return (light + 0.05) / (dark + 0.05)


def test_two_processes_draw_the_same_bytes():
    one, two = (
        subprocess.run([sys.executable, "-c", DRAW], capture_output=True, check=True).stdout
        for _ in range(2)
    )
    assert one == two
    assert b"<svg" in one
    assert b"<dc:date>" not in one


@pytest.mark.parametrize("background", ["#ffffff", "#14181e"])
def test_ink_can_be_read_on_white_and_on_the_dark_theme(background):
    assert contrast(figures.INK, background) >= 3.9


def test_series_differ_in_more_than_colour(axes):
    lines = [axes.plot([0, 1], [i, i])[0] for i in range(6)]
    looks = {(line.get_color(), str(line._dash_pattern), line.get_marker()) for line in lines}
    for part in range(3):
        assert len({look[part] for look in looks}) == len(lines)


def test_the_page_shines_through(axes):
    buffer = io.BytesIO()
    axes.figure.savefig(buffer, format="png")
    buffer.seek(0)
    assert plt.imread(buffer)[0, 0, 3] == 0.0  # the corner is transparent


def test_a_band_spans_least_to_greatest_around_the_mean(axes):
    line = figures.band(axes, [1, 2], [[0.0, 4.0], [2.0, 6.0], [1.0, 8.0]], "three seeds")
    assert line.get_ydata().tolist() == [1.0, 6.0]
    edges = axes.collections[0].get_paths()[0].vertices
    assert (edges[:, 1].min(), edges[:, 1].max()) == (0.0, 8.0)


def test_a_baseline_lies_at_its_value(axes):
    assert set(figures.baseline(axes, 0.5, "chance").get_ydata()) == {0.5}


def test_panels_side_by_side_are_drawn_again_below_one_another_for_a_phone(axes):
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.6), sharey=True)
    panels[0].set_ylabel("bits")
    before = figures.svg_of(figure)
    narrow = figures.stacked(figure)
    assert figures.svg_of(figure) == before
    width, height = map(float, re.search(r'width="(.*?)pt" height="(.*?)pt"', narrow).groups())
    assert width < 1.1 * 72 * figures.PHONE < height
    assert (before.count("<!-- bits -->"), narrow.count("<!-- bits -->")) == (1, 2)


def test_a_figure_that_fits_a_phone_or_has_no_row_of_panels_is_not_drawn_again(axes):
    assert figures.stacked(plt.subplots(1, 2, figsize=(4.4, 3))[0]) is None
    assert figures.stacked(plt.subplots(2, 1, figsize=(8.4, 3))[0]) is None


def test_an_attention_map_has_a_row_for_each_query_and_a_column_for_each_key(axes):
    weights = [[1.0, 0.0, 0.0], [0.25, 0.25, 0.5]]
    image = figures.attention_map(axes, weights, queries="ab", keys=["x", "y", "long"])
    assert np.array_equal(image.get_array(), weights)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["x", "y", "long"]
    assert image.cmap(image.norm(0.0))[3] == 0  # no weight leaves the ground as it is
    assert image.cmap(image.norm(1.0))[3] == 1


def test_the_ink_of_an_attention_map_means_the_same_in_every_map(axes):
    image = figures.attention_map(axes, [[0.25, 0.75]])
    assert image.get_clim() == (0, 1)


def test_labels_that_do_not_fit_an_attention_map_are_refused(axes):
    with pytest.raises(ValueError, match=r"locations \(3\).* labels \(2\)"):
        figures.attention_map(axes, [[1, 0, 0]], keys="ab")
