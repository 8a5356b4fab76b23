"""How is a mechanism drawn from the very tensors that it works on?

A `Drawing` collects boxes, arrows, labels and the cells of tensors, and a notebook shows it as SVG.
Places are given in pixels of a sheet 640 wide and as high as what is on it, x to the right and y
downwards. On a phone the sheet is shown about 340 wide, so that letters of 18 become letters of 9.

    1. The layout is checked: a text that leaves its box or the sheet, two labels that overlap, and
       a line through a label are errors.
    2. Each text says how wide it is (the SVG attribute textLength), so any font fits. The widths
       are those of Helvetica, which Arial and Liberation Sans share.
    3. The ground is transparent. Inks are light or dark as the reader's system says; where the SVG
       stands in a page with a switch (data-theme), as the page says.
    4. One colour, one meaning: queries blue, keys orange, values green, what is added red; all else
       is grey. The hues are those of `tools/figures`.

In a text, letters between stars are those of a formula, and may have an index: "*q*_t".
"""

import itertools
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .figures import BLUE, GREEN, ORANGE, RED, filled
from .tables import as_text

WIDTH = 640  # of a sheet
SIZE = 18  # of letters; only an index is smaller
INDEX = 0.75  # the size of an index, that of its letter being 1
Point = tuple[float, float]

# The ink of text and lines on a light page and on a dark one: at least 4.5 : 1 on both grounds.
_INKS = {
    "ink": ("#222832", "#ced6dd"),
    "grey": ("#48566b", "#9ca4af"),
    "blue": ("#0b6aa4", "#56b4e9"),
    "orange": ("#8a5f00", "#e69f00"),
    "green": ("#00735a", "#1fb98c"),
    "red": ("#b04a00", "#f0884a"),
}
_INK = {name: f"var(--{name})" for name in _INKS}
_FILLS = {"grey": "#7b8794", "blue": BLUE, "orange": ORANGE, "green": GREEN, "red": RED}
_TINT, _STRONG = "0.2", "0.45"
_SHEET = Path(__file__).with_name("drawing.svg")
# Widths in Helvetica, in thousandths of the size of the letters.
_WIDTHS = {
    222: "ijl'’",
    278: " !,./:;I[]|ft·",
    333: "()-r“”*",
    500: "Jckvxyzs",
    556: "0123456789?#$L_abdeghnopqu–",
    584: "+<=>−×√",
    611: "FTZ",
    667: "&ABEKPSVXY",
    722: "CDHNRUw∞",
    778: "GOQ",
    833: "Mm",
    889: "%",
    944: "W",
    1000: "—…→←↑↓",
}
_WIDTH_OF = {letter: width for width, letters in _WIDTHS.items() for letter in letters}
_LOOKS = {"plain": {}, "letters": {"class": "m"}, "index": {"font-size": f"{INDEX:.0%}", "dy": "4"}}
_PART = re.compile(r"\*(?P<letters>[^*]+)\*(?:_(?P<index>\w+))?|(?P<plain>[^*]+)")


class Box(NamedTuple):
    """A rectangle of the sheet, in pixels. Arrows go between the middles of its sides."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def centre(self) -> Point:
        """The point in the middle."""
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    @property
    def north(self) -> Point:
        """The middle of the upper side."""
        return self.centre[0], self.top

    @property
    def south(self) -> Point:
        """The middle of the lower side."""
        return self.centre[0], self.bottom

    @property
    def west(self) -> Point:
        """The middle of the left side."""
        return self.left, self.centre[1]

    @property
    def east(self) -> Point:
        """The middle of the right side."""
        return self.right, self.centre[1]


Label = tuple[Box, str]  # its room, and what it says


def text_width(said: str, *, size: float = SIZE, bold: bool = False) -> float:
    """How wide a text is in Helvetica: c, a, t have 0.500, 0.556, 0.278 of the size.

    >>> round(text_width("cat", size=1000))
    1334

    Args:
        said: the text; the stars around the letters of a formula take no room.
        size: of the letters, in pixels.
        bold: bold letters are a fifteenth wider.
    Returns:
        pixels. A letter that is not in the table counts 0.6 of the size, from U+2E80 on (Chinese,
        Japanese, emoji) all of it.
    """
    wide = 0.0
    for part in _PART.finditer(said):
        for kind, text in part.groupdict(default="").items():
            each = (_WIDTH_OF.get(letter, 1000 if letter >= "⺀" else 600) for letter in text)
            wide += sum(each) * (INDEX if kind == "index" else 1)
    return wide * size / 1000 * (16 / 15 if bold else 1)


def written(value: str | float, *, digits: int | None = None) -> str:
    """A number as a drawing shows it: a real minus sign, and ∞ for infinity.

    Args:
        value: a number, or a text, which stays what it is.
        digits: behind the point; None writes whole numbers without a point, others with 2 digits.
    """
    if digits is None and not isinstance(value, str):
        digits = 0 if float(value).is_integer() else 2
    return as_text(value, f",.{digits}f")


class Drawing:
    """A sheet to draw on. A notebook shows the last value of a cell, so end the cell with its name.

    Args:
        title: what it shows, for those who listen.
        description: what a listener should know, with the numbers; a sentence or a few.
        width: of the sheet, in pixels.
    """

    def __init__(self, title: str, description: str, *, width: float = WIDTH) -> None:
        self.title, self.description, self.width = title, description, width
        self._name = "drawing-" + re.sub(r"\W+", "-", title.lower()).strip("-")
        self._top, self._bottom = math.inf, 0.0
        self._ground, self._shapes = ET.Element("g"), ET.Element("g")  # tints lie below the rest
        self._labels: list[Label] = []
        self._lines: list[tuple[Point, Point]] = []

    def text(
        self,
        x: float,
        y: float,
        said: str,
        *,
        align: str = "middle",
        colour: str = "ink",
        bold: bool = False,
        size: float = SIZE,
    ) -> Box:
        """A label of one line.

        Args:
            x: of its middle, or of where it starts or ends.
            y: of the middle of the line.
            said: the text.
            align: "start", "middle" or "end".
            colour: "ink", "grey", "blue", "orange", "green" or "red".
            bold: or not.
            size: of the letters, 18 pixels or more.
        Returns:
            The room that it takes.
        Raises:
            ValueError: the label leaves the sheet, overlaps another or is crossed by a line.
        """
        wide = text_width(said, size=size, bold=bold)
        left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[align]
        room = Box(left, y - size / 2, left + wide, y + size / 2)
        self._take(room, said)
        node = self._add(
            "text", x=x, y=y + 0.36 * size, text_anchor=align, fill=_INK[colour], textLength=wide
        )
        node.set("lengthAdjust", "spacingAndGlyphs")
        if bold or size != SIZE:
            node.set("style", "font-weight:700;" * bold + f"font-size:{_number(size)}px")
        _write(node, said)
        return room

    def box(
        self,
        left: float,
        top: float,
        width: float,
        height: float,
        said: str = "",
        *,
        colour: str = "grey",
        strong: bool = False,
        hatched: bool = False,
        bold: bool = False,
    ) -> Box:
        """A rectangle, and the text in its middle.

        Args:
            left, top, width, height: where, in pixels.
            said: the text; each line of it is a label.
            colour: of the tint: "grey", "blue", "orange", "green" or "red".
            strong: a fuller tint, for what is being talked about.
            hatched: lines instead of a tint, for what is masked or missing.
            bold: bold letters.
        Returns:
            The rectangle.
        Raises:
            ValueError: the text is wider or higher than the box, or as for `Drawing.text`.
        """
        room = Box(left, top, left + width, top + height)
        self._inside(room, said)
        fill = f"url(#{self._name}-hatch)" if hatched else _FILLS[colour]
        opacity = "1" if hatched else _STRONG if strong else _TINT
        self._add(
            "rect", x=left, y=top, width=width, height=height, rx=3, fill=fill, fill_opacity=opacity
        )
        lines = said.split("\n") if said else []
        for number, line in enumerate(lines):
            if text_width(line, bold=bold) > width - 2 or SIZE * 1.2 * len(lines) > height:
                raise ValueError(f"expected a text for a box of {width} × {height}, got {said!r}")
            y = room.centre[1] + (number - (len(lines) - 1) / 2) * SIZE * 1.25
            ink = "grey" if hatched else "ink"
            self.text(room.centre[0], y, line, bold=bold, colour=ink)
        return room

    def cells(
        self,
        left: float,
        top: float,
        values: Any,
        *,
        name: str = "",
        shape: bool = True,
        rows: Sequence[str] = (),
        colour: str = "grey",
        strong: Any = False,
        hatched: Any = False,
        size: tuple[float, float] = (32, 28),
        digits: int | None = None,
    ) -> list[Box]:
        """The numbers of a tensor in cells, with its name and its shape above.

        Args:
            left, top: the corner of the first cell, in pixels.
            values: (n,), drawn as a column, or (n, m); numbers or texts, a tensor or lists.
            name: in bold above; shape: below the name, as code prints it.
            rows: n labels to the left.
            colour: of the tint.
            strong, hatched: True and False for each cell, or for all; as in `Drawing.box`.
            size: of a cell, width and height.
            digits: behind the point; see `written`.
        Returns:
            A box for each row.
        Raises:
            ValueError: as for `Drawing.box`.
        """
        table = np.asarray(values)
        grid = table[:, None] if table.ndim == 1 else table
        wide, high = size
        ink = colour if colour != "grey" else "ink"
        middle = left + grid.shape[1] * wide / 2
        if name:
            self.text(middle, top - (40 if shape else 14), name, colour=ink, bold=True)
        if shape:
            self.text(middle, top - 15, str(table.shape), colour="grey")
        fuller, masked = (  # for each cell, or for each row
            np.broadcast_to(np.asarray(each).T, grid.T.shape).T for each in (strong, hatched)
        )
        for (row, column), value in np.ndenumerate(grid):
            self.box(
                left + column * wide + 1,
                top + row * high + 1,
                wide - 2,
                high - 2,
                written(value, digits=digits),
                colour=colour,
                strong=bool(fuller[row, column]),
                hatched=bool(masked[row, column]),
            )
        for row, said in enumerate(rows):
            self.text(left - 8, top + (row + 0.5) * high, said, align="end")
        right = left + grid.shape[1] * wide
        return [Box(left, top + r * high, right, top + (r + 1) * high) for r in range(len(grid))]

    def line(self, *points: Point, colour: str = "grey", width: float = 2) -> None:
        """A line through points.

        Args:
            points: two or more (x, y).
            colour: as of a text.
            width: in pixels.
        Raises:
            ValueError: it crosses a label or leaves the sheet.
        """
        lines = list(itertools.pairwise(points))
        _check_crossings(lines, self._labels)
        self._lines += lines
        for x, y in points:
            self._inside(Box(x, y, x, y), "a line")
        path = "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
        self._add("path", d=path, fill="none", stroke=_INK[colour], stroke_width=width)

    def arrow(self, *points: Point, colour: str = "grey", width: float = 2, gap: float = 4) -> None:
        """A line with a head at its last point.

        Args:
            points: two or more (x, y).
            colour: as of a text.
            width: of the line, in pixels; the head grows with it.
            gap: how far from the first and the last point it begins and ends, in pixels.
        Raises:
            ValueError: as for `Drawing.line`.
        """
        start, end = _towards(points[0], points[1], gap), _towards(points[-1], points[-2], gap)
        long = 6 + 2 * width
        neck = _towards(end, points[-2], long)
        self.line(start, *points[1:-1], neck, colour=colour, width=width)
        across = ((end[1] - neck[1]) / long, (neck[0] - end[0]) / long)
        half = 2.5 + 1.1 * width
        sides = [(neck[0] + s * half * across[0], neck[1] + s * half * across[1]) for s in (1, -1)]
        corners = " ".join(f"{_number(x)},{_number(y)}" for x, y in (end, *sides))
        self._add("polygon", points=corners, fill=_INK[colour])

    def plus(self, x: float, y: float, *, radius: float = 13) -> Box:
        """A sign that two things are added here.

        Args:
            x, y: the middle, in pixels.
            radius: in pixels.
        Returns:
            The room that it takes.
        """
        room = Box(x - radius, y - radius, x + radius, y + radius)
        self._take(room, "+")
        arm = radius * 0.55
        self._add("circle", cx=x, cy=y, r=radius, fill=RED)
        path = f"M{_number(x - arm)} {_number(y)}h{_number(2 * arm)}"
        path += f"M{_number(x)} {_number(y - arm)}v{_number(2 * arm)}"
        self._add("path", d=path, stroke="#fff", stroke_width=2.6)
        return room

    def _repr_svg_(self) -> str:
        top = math.floor(min(self._top, self._bottom)) - 4
        high = math.ceil(self._bottom) + 4 - top
        light, dark = (
            ";".join(f"--{name}:{inks[which]}" for name, inks in _INKS.items()) for which in (0, 1)
        )
        parts = {"ID": self._name, "SIZE": str(SIZE), "LIGHT": light, "DARK": dark}
        parts |= {"WIDTH": _number(self.width), "HEIGHT": str(high), "TOP": str(top)}
        parts |= {
            "TITLE": escape(self.title, quote=False),
            "DESCRIPTION": escape(self.description, quote=False),
        }
        layers = (self._ground, self._shapes)
        parts["SHAPES"] = "".join(ET.tostring(each, encoding="unicode") for each in layers)
        return filled(_SHEET.read_text(encoding="utf-8").rstrip(), parts)

    def _add(self, tag: str, **attributes: float | str) -> ET.Element:
        node = ET.SubElement(self._ground if tag == "rect" else self._shapes, tag)
        for name, value in attributes.items():
            node.set(name.replace("_", "-"), value if isinstance(value, str) else _number(value))
        node.tail = "\n"
        return node

    def _inside(self, room: Box, said: str) -> None:
        if room.left < 0 or room.right > self.width:
            raise ValueError(f"{said!r} leaves the sheet, which is {self.width} wide: {room}")
        self._top, self._bottom = min(self._top, room.top), max(self._bottom, room.bottom)

    def _take(self, room: Box, said: str) -> None:
        self._inside(room, said)
        for other, what in self._labels:
            wide = min(room.right, other.right) - max(room.left, other.left)
            high = min(room.bottom, other.bottom) - max(room.top, other.top)
            if wide > 0 and high > 0:
                raise ValueError(f"the labels {said!r} and {what!r} overlap: {room} and {other}")
        _check_crossings(self._lines, [(room, said)])
        self._labels.append((room, said))


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _write(node: ET.Element, said: str) -> None:
    """Put a text into an element, with the letters of formulas in italics and indices lower."""
    back = ""  # how far up the next part goes, after an index
    for part in _PART.finditer(said):
        for kind, text in part.groupdict().items():
            if text:
                span = ET.SubElement(node, "tspan", _LOOKS[kind])
                span.text = text
                if back and kind != "index":
                    span.set("dy", back)
                back = "-4" if kind == "index" else ""


def _check_crossings(lines: Sequence[tuple[Point, Point]], labels: Sequence[Label]) -> None:
    """Refuse a line of which one of 1,000 points lies within a label."""
    for start, end in lines:
        x, y = np.linspace(start, end, 1_000).T
        for room, said in labels:
            if np.any((room.left < x) & (x < room.right) & (room.top < y) & (y < room.bottom)):
                raise ValueError(f"a line from {start} to {end} crosses the label {said!r}")


def _towards(start: Point, end: Point, distance: float) -> Point:
    long = math.dist(start, end) or 1.0
    return (
        start[0] + (end[0] - start[0]) * distance / long,
        start[1] + (end[1] - start[1]) * distance / long,
    )
