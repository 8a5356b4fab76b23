"""Run every chapter twice and compare: ``python tests/reproduce.py [chapter …]``.

Each run has a fresh kernel in the chapter's folder and one thread; the two go side by side.  All
that a cell puts out is compared as it stands: text, errors, glued values, the bytes of figures.
Only cells tagged ``nbval-ignore-output`` (timings) are passed over.  A difference is printed as
``book/part/chapter.md:<line>``; the exit status is 1 if there is one, or if a cell fails.
"""

import argparse
import asyncio
import difflib
import os
import sys
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from subprocess import DEVNULL

from chapters import ROOT, chapters, read
from jupytext.myst import myst_to_notebook
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

CELL_LIMIT = 600  # seconds
SHOWN_LINES = 12  # of one difference
SHOWN_WIDTH = 200  # characters of one line
IGNORED = "nbval-ignore-output"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
GLUED = "application/papermill.record/"


@dataclass
class Run:
    """What one run of a chapter put out: for each code cell {label: text}, or how it failed."""

    outputs: list = field(default_factory=list)
    failed_cell: int | None = None
    error: str = ""


async def run_chapter(path):
    """Run the chapter at `path` from top to bottom in a fresh kernel."""
    notebook = myst_to_notebook(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    folder = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=CELL_LIMIT, kernel_name="python3", resources=folder)
    run = Run()
    try:
        await client.async_execute(env=os.environ | ONE_THREAD, stderr=DEVNULL)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        begun = [number for number, cell in enumerate(code) if "execution" in cell.metadata]
        run.failed_cell = begun[-1] if begun else 0
        run.error = getattr(error, "ename", "") or type(error).__name__
        run.error += f": {getattr(error, 'evalue', '') or error}".rstrip(": ")
    run.outputs = [labelled_outputs(cell.outputs) for cell in code]
    return run


def labelled_outputs(outputs):
    """{label: text} of a cell's outputs; a stream is one text, however it arrived."""
    texts, number = {}, 0
    for output in outputs:
        number += output.output_type != "stream"  # streams arrive in any number of parts
        if output.output_type == "stream":
            texts[output.name] = texts.get(output.name, "") + output.text
        elif output.output_type == "error":
            texts["error"] = "\n".join(output.traceback)
        else:
            glued = output.metadata.get("scrapbook", {}).get("name")
            label = f"glued '{glued}'" if glued else f"output {number}"
            for mime, value in output.data.items():
                texts[f"{label}, {mime.removeprefix(GLUED)}"] = str(value)
    return texts


def compare(page, first, second):
    """(number of cells compared, messages) of two runs of one chapter."""
    for run in (first, second):
        if run.failed_cell is not None:
            line = page.cells[run.failed_cell].line
            return 0, [f"{page.name}:{line}: {run.error}"]
    messages, compared = [], 0
    for cell, one, two in zip(page.cells, first.outputs, second.outputs, strict=True):
        if IGNORED not in cell.tags:
            compared += 1
            messages += [f"{page.name}:{cell.line}: {text}" for text in differences(one, two)]
    return compared, messages


def differences(one, two):
    """A message for each output that the two runs do not share to the last character."""
    for label in [*one, *(label for label in two if label not in one)]:
        if label not in one or label not in two:
            yield f"{label}: only in the {'first' if label in one else 'second'} run"
        elif one[label] != two[label] and "image/" in label:
            sizes = f"{len(one[label])} and {len(two[label])} characters"
            yield f"{label}: the figure is not the same byte for byte ({sizes})"
        elif one[label] != two[label]:
            yield f"{label}: the two runs differ\n{short_diff(one[label], two[label])}"


def short_diff(one, two):
    diff = difflib.unified_diff(
        one.splitlines(), two.splitlines(), "first", "second", "", "", 0, ""
    )
    lines = [f"    {line[:SHOWN_WIDTH]}" for line in islice(diff, SHOWN_LINES + 1)]
    return "\n".join(lines[:SHOWN_LINES] + ["    …"] * (len(lines) > SHOWN_LINES))


async def check(path, root):
    """Run one chapter twice, side by side; what `compare` finds."""
    first, second = await asyncio.gather(run_chapter(path), run_chapter(path))
    return compare(read(path, root), first, second)


def choose(names, root):
    """The chapters that were asked for, by path or by name; all of them if none was."""
    found = chapters(root)
    if not found:
        raise SystemExit(f"reproduce: found no chapter in {root / 'book'}")
    for name in names:
        if not any(is_called(path, name) for path in found):
            known = ", ".join(path.stem for path in found)
            raise SystemExit(f"reproduce: there is no chapter '{name}'; there are {known}")
    return [path for path in found if not names or any(is_called(path, name) for name in names)]


def is_called(path, name):
    return name == path.stem or Path(name).resolve() == path


def main(arguments=None, root=ROOT):
    parser = argparse.ArgumentParser(description="Run chapters twice and compare their outputs.")
    parser.add_argument("chapters", nargs="*", help="path or name; all chapters if none is given")
    chosen = choose(parser.parse_args(arguments).chapters, root)
    cells, found = 0, []
    for path in chosen:
        compared, messages = asyncio.run(check(path, root))
        cells, found = cells + compared, found + messages
        name = path.relative_to(root).as_posix()
        print("\n".join(messages) or f"{name}: {compared} cells gave the same twice", flush=True)
    print(f"chapters: {len(chosen)}; cells: {cells}; differences or failures: {len(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
