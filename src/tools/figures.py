"""How does every figure of the book come out in one style, on white and on black, byte for byte?

Ink is a grey that stands out from both backgrounds, the background is transparent, and series
differ in colour, marker and line style at once (the colours are Okabe and Ito's, 2008, chosen
for colour-blind readers). The SVG carries no date and no random ids, so that an unchanged figure
is an unchanged file. The plots here are those that several chapters share; they take arrays.
"""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

INK = "#777777"  # 4.5 : 1 on white, 4 : 1 on the dark theme
BLUE, ORANGE, GREEN = "#0F83C9", "#E69F00", "#009E73"
RED, PURPLE, SKY = "#D55E00", "#CC79A7", "#56B4E9"
PHONE = 4.2  # inches; the width of a figure whose letters need not shrink on a phone
_COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
_MARKERS = ("o", "s", "^", "D", "v", "P")


def use_style() -> None:
    """Set the book's style for every figure that follows, and SVG as the notebook's format."""
    from IPython import get_ipython
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    inked = ["text.color", "axes.edgecolor", "axes.labelcolor"]
    inked += ["xtick.color", "ytick.color", "grid.color"]
    clear = ["figure.facecolor", "axes.facecolor", "savefig.facecolor"]
    colours: dict[Any, str] = dict.fromkeys(inked, INK) | dict.fromkeys(clear, "none")
    mpl.rcParams.update(colours)
    mpl.rcParams.update(
        {
            "figure.figsize": (5.8, 3.5),
            "savefig.bbox": "tight",
            "font.size": 11,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": cycler(color=_COLOURS, linestyle=_DASHES, marker=_MARKERS),
            "grid.alpha": 0.25,
            "axes.grid": True,
            "legend.frameon": False,
            "lines.markersize": 5,
            "svg.hashsalt": "the next token",  # ids from the content, not from chance
            "svg.fonttype": "path",  # the same letters on every machine
        }
    )
    if shell := get_ipython():
        set_matplotlib_formats("svg")
        shell.display_formatter.formatters["image/svg+xml"].for_type(
            Figure, lambda figure: svg_of(figure, stacked(figure))
        )


def baseline(axes: Axes, value: float, label: str, *, colour: str = INK) -> Line2D:
    """A dashed horizontal line that says what better and worse are measured against.

    Args:
        axes: where to draw.
        value: its height, in the unit of the y axis.
        label: its name in the legend.
        colour: any that matplotlib knows.
    """
    return axes.axhline(value, color=colour, linestyle=(0, (6, 3)), marker="", label=label)


def band(
    axes: Axes,
    x: Sequence[float],
    runs: Sequence[Sequence[float]],
    label: str,
    *,
    colour: str = BLUE,
    marker: str = "o",
) -> Line2D:
    """The mean of several runs as a line, and their whole spread, least to greatest, as a band.

    Args:
        axes: where to draw.
        x: (X,); what was varied.
        runs: (R, X); one row for each seed.
        label: the line's name in the legend.
        colour, marker: any that matplotlib knows; each line of a figure has its own of both.
    """
    runs = np.asarray(runs, dtype=float)
    axes.fill_between(x, runs.min(0), runs.max(0), color=colour, alpha=0.25, linewidth=0)
    return axes.plot(x, runs.mean(0), color=colour, linestyle="-", marker=marker, label=label)[0]


def attention_map(
    axes: Axes,
    weights: Sequence[Sequence[float]],
    *,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    colour: str = BLUE,
) -> AxesImage:
    """Who looks where: a row for each query, a column for each key, ink from 0 to 1.

    Args:
        axes: where to draw.
        weights: (T, S); each row sums to 1, or is a mask of True and False.
        queries: T labels; keys: S labels; None: no ticks.
        colour: of a weight of 1; a weight of 0 leaves the ground as it is.
    Raises:
        ValueError: there are not as many labels as rows or columns.
    """
    ink = LinearSegmentedColormap.from_list("ink", [colour + "00", colour + "ff"])
    weights = np.asarray(weights, dtype=float)
    image = axes.imshow(weights, vmin=0, vmax=1, cmap=ink, aspect="equal")
    axes.grid(False)
    sides = zip((axes.yaxis, axes.xaxis), (queries, keys), weights.shape, strict=True)
    for axis, labels, size in sides:
        axis.set_ticks(range(size if labels else 0), list(labels or []))
    axes.tick_params(axis="x", rotation=90 if keys and max(map(len, keys)) > 2 else 0)
    return image


def svg_of(figure: Figure, description: str | None = None) -> str:
    """The text of a figure's SVG, with no date in it."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Description": description})
    return drawn.getvalue()


def stacked(figure: Figure) -> str | None:
    """The SVG of a figure whose panels stand below one another, as wide as a phone.

    A notebook carries it in the description of the figure, where the builder of the site finds it.
    None: the figure has no two panels side by side, or is so narrow that a phone has room for them.
    """
    places = {panel: place for panel in figure.axes if (place := panel.get_subplotspec())}
    cells = list(dict.fromkeys(places.values()))
    width, height = figure.get_size_inches()
    if width <= 1.1 * PHONE or len({cell.colspan.start for cell in cells}) < 2:
        return None
    before, engine = {}, figure.get_layout_engine()
    figure.set_layout_engine("constrained", h_pad=0.1)
    figure.set_size_inches(PHONE, height * len(cells) / cells[0].get_gridspec().nrows)
    rows = GridSpec(len(cells), 1, figure)
    for panel, cell in places.items():
        before[panel] = panel.get_ylabel(), panel.yaxis.get_tick_params()["labelleft"]
        panel.set_subplotspec(rows[cells.index(cell)])
        alike = panel.get_shared_y_axes().get_siblings(panel)
        if len(alike) > 1:  # only the first of a row has labels
            panel.set_ylabel(panel.get_ylabel() or min(alike, key=figure.axes.index).get_ylabel())
            panel.tick_params(axis="y", labelleft=True)
    narrow = svg_of(figure)
    figure.set_layout_engine(engine)
    figure.set_size_inches(width, height)
    for panel, (label, labelled) in before.items():
        panel.set_subplotspec(places[panel])
        panel.set_ylabel(label)
        panel.tick_params(axis="y", labelleft=labelled)
    return narrow


def filled(template: str, parts: Mapping[str, str]) -> str:
    """A template with parts in the place of their names; names within a part stay as they are."""
    return re.sub("|".join(parts), lambda name: parts[name[0]], template)
