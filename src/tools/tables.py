"""How is a table of numbers shown so that a reader can compare them?

A `Table` knows how each column is written. A terminal shows it as lines of text, a page or a
notebook as a table of HTML, which takes its looks, light or dark, from the page around it: texts on
the left with their spaces, numbers on the right, and the first cell of a row as its title. An empty
cell, None, is written "–" and infinity "∞".
"""

import html
import math
from collections.abc import Mapping, Sequence

Cell = str | int | float | None


class Table:
    """A table that a cell of a chapter ends with, so that the page shows it.

    >>> Table({"model": "", "nats per token": ".3f"}, [("uniform", 2.4849), ("pairs", math.inf)])
    model    nats per token
    -----------------------
    uniform           2.485
    pairs                 ∞

    Args:
        columns: the title of each column, and how its numbers are written, as in an f-string:
            ".3f", ",d". "" writes them as `str` does.
        rows: the cells of each row; a number may be a tensor's of one element.
        caption: a sentence that says what the table shows.
    """

    def __init__(
        self,
        columns: Mapping[str, str],
        rows: Sequence[Sequence[Cell]],
        *,
        caption: str | None = None,
    ):
        self.columns, self.caption = dict(columns), caption
        self.rows = [tuple(row) for row in rows]

    def written(self) -> list[list[str]]:
        """The cells as they are shown, row by row; a ValueError if a row has too many or few."""
        formats = self.columns.values()
        return [[as_text(*pair) for pair in zip(row, formats, strict=True)] for row in self.rows]

    def __repr__(self) -> str:
        shown = [list(self.columns), *self.written()]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        right = self._is_right()
        lines = [
            "  ".join(
                cell.rjust(width) if flush else cell.ljust(width)
                for cell, width, flush in zip(row, widths, right, strict=True)
            ).rstrip()
            for row in shown
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        return "\n".join([*([self.caption] if self.caption else []), *lines])

    def _repr_html_(self) -> str:
        """The table for a page: the class is the theme's, and whatever is in a cell is text."""
        styles = [
            ' style="text-align: right; font-variant-numeric: tabular-nums"'
            if right
            else ' style="text-align: left; white-space: pre-wrap"'
            for right in self._is_right()
        ]
        head = [
            f'<th scope="col"{style}>{html.escape(title)}</th>'
            for title, style in zip(self.columns, styles, strict=True)
        ]
        lines = [f"<tr>{''.join(head)}</tr>", "</thead>", "<tbody>"]
        for row in self.written():
            cells = [html.escape(cell).replace("± ", "±&nbsp;") for cell in row]  # on one line
            title = f'<th scope="row"{styles[0]}>{cells[0]}</th>'
            rest = zip(cells[1:], styles[1:], strict=True)
            lines.append(f"<tr>{title}{''.join(f'<td{s}>{cell}</td>' for cell, s in rest)}</tr>")
        caption = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        top = ['<div class="pst-scrollable-table-container">', f'<table class="table">{caption}']
        return "\n".join([*top, "<thead>", *lines, "</tbody>", "</table>", "</div>"])

    def _is_right(self) -> list[bool]:
        """Which columns stand on the right: those that hold numbers, and no text."""
        return [
            any(cell is not None for cell in column)
            and not any(isinstance(cell, str) for cell in column)
            for column in zip(*self.rows, strict=True)
        ] or [False] * len(self.columns)


def as_text(cell: Cell, form: str) -> str:
    """A cell as it is shown, a real minus sign before numbers; `form` as in an f-string."""
    if cell is None or isinstance(cell, str):
        return "–" if cell is None else cell
    if math.isinf(cell):
        return "∞" if cell > 0 else "−∞"
    number = int(cell) if form.endswith("d") else float(cell) if form else cell
    return format(number, form).replace("-", "−")
