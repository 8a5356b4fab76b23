"""Run every chapter twice and compare: ``python tests/reproduce.py [chapter …]``.

Each run has a fresh kernel in the chapter's folder and one thread; the two go side by side.  All
that a cell puts out is compared as it stands: text, errors, glued values, the bytes of figures.
Only cells tagged ``nbval-ignore-output`` (timings) are passed over.  A difference is printed as
``book/part/chapter.md:<line>``; the exit status is 1 if there is one, or if a cell is wrong.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from difflib import unified_diff
from pathlib import Path

from chapters import ROOT, chapters
from jupyter_cache.executors.utils import single_nb_execution
from jupytext.myst import myst_to_notebook
from verdict import code_cells, faults

CELL_LIMIT = 600  # seconds
SHOWN_LINES = 12  # of one difference
SHOWN_WIDTH = 200  # characters of one line
IGNORED = "nbval-ignore-output"
GLUED = "application/papermill.record/"


def executed(path):
    """The chapter as a notebook that was run from top to bottom in a fresh kernel."""
    os.environ["OMP_NUM_THREADS"] = "1"
    notebook = myst_to_notebook(path.read_text(encoding="utf-8"))
    return single_nb_execution(notebook, str(path.parent), CELL_LIMIT, allow_errors=False).nb


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


def compare(path, first, second, root):
    """(number of cells compared, messages) of two runs of one chapter."""
    text, name = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
    wrong = {fault for run in (first, second) for fault in faults(text, run)}
    if wrong:
        return 0, [f"{name}:{line}: {reason}" for line, reason in sorted(wrong)]
    messages, compared = [], 0
    pairs = zip(code_cells(text, first), code_cells(text, second), strict=True)
    for (line, one), (_, two) in pairs:
        if IGNORED not in one.metadata.get("tags", []):
            compared += 1
            found = differences(labelled_outputs(one.outputs), labelled_outputs(two.outputs))
            messages += [f"{name}:{line}: {each}" for each in found]
    return compared, messages


def differences(one, two):
    """A message for each output that the two runs do not share to the last character."""
    for label in sorted(one.keys() | two.keys()):
        if one.get(label) != two.get(label):
            texts = (run.get(label, "(nothing)").splitlines() for run in (one, two))
            diff = list(unified_diff(*texts, "first", "second", n=0, lineterm=""))
            lines = [f"    {line[:SHOWN_WIDTH]}" for line in diff[:SHOWN_LINES]]
            yield "\n".join([f"{label}: the two runs differ", *lines])


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
        with ProcessPoolExecutor(2) as pool:
            runs = pool.map(executed, [path, path])
            compared, messages = compare(path, *runs, root)
        cells, found = cells + compared, found + messages
        name = path.relative_to(root).as_posix()
        print("\n".join(messages) or f"{name}: {compared} cells gave the same twice", flush=True)
    print(f"chapters: {len(chosen)}; cells: {cells}; differences or failures: {len(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
