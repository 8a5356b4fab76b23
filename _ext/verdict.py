"""Is a chapter right? Read off its cells as they came back from a kernel, by nbval or the builder.

A cell must not fail; one tagged `raises-exception` must: an intended failure that has gone is a
defect. And a cell must not glue a NumPy number, which the builder cannot format: it would show
nothing instead. A fault is told at the line of the failing statement.
"""

import re

from jupytext.myst import get_parser

ANSI_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CELL_FRAME = re.compile(r"Cell In\[\d+\], line (\d+)")
CHAINED = re.compile(r"(?:During handling of|The above exception was)[^\n]*exception[^\n]*\n")
GLUED = "application/papermill.record/text/plain"  # what `glue` keeps for the text


def code_cells(text, notebook):
    """Pair each code cell with the line, counted from 1, on which its code begins."""
    fences = [
        token
        for token in get_parser().parse(text + "\n")
        if token.type == "fence" and token.level == 0 and token.info.startswith("{code-cell}")
    ]
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for fence, cell in zip(fences, cells, strict=True):
        closing_line = fence.map[1]
        yield closing_line - len(cell.source.split("\n")), cell


def must_raise(cell):
    return "raises-exception" in cell.metadata.get("tags", [])


def error_in(outputs):
    """The error that the kernel sent back, if any."""
    return next((each for each in outputs if each.output_type == "error"), None)


def said_by(error):
    return f"{error.ename}: {error.evalue}".removesuffix(": ")


def fault_of(cell, outputs):
    """Why a cell that was run is wrong; None if it is right."""
    error = error_in(outputs)
    if error and not must_raise(cell):
        return said_by(error)
    if must_raise(cell) and not error:
        return (
            "the cell is tagged raises-exception, but it raised nothing: "
            "drop the tag, or restore the failure that the text speaks of"
        )
    for data in (each.get("data", {}) for each in outputs):
        if data.get(GLUED, "").startswith("np."):
            return f"expected a plain number to glue, got {data[GLUED]}: float(…)"
    return None


def failing_line(first_line, outputs):
    """The statement that failed in a cell: its frame opens the last traceback."""
    error = error_in(outputs)
    traceback = "\n".join(error.traceback) if error else ""
    last = CHAINED.split(ANSI_COLOUR.sub("", traceback))[-1]
    frame = CELL_FRAME.search(last)
    return first_line + (int(frame[1]) - 1 if frame else 0)


def faults(text, notebook):
    """Line and reason of each fault in a chapter whose cells were run."""
    for line, cell in code_cells(text, notebook):
        if cell.execution_count is not None and (reason := fault_of(cell, cell.outputs)):
            yield failing_line(line, cell.outputs), reason


def stopped_at(text, notebook):
    """The line at which a chapter was stopped: in the last cell that began."""
    cells = list(code_cells(text, notebook))
    begun = [pair for pair in cells if pair[1].execution_count is not None]
    line, cell = (begun or cells)[-1]
    return failing_line(line, cell.outputs)
