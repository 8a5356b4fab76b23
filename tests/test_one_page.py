"""The book on one page: its download is what the page shows, and each line has a witness.

`python tests/test_one_page.py` writes the download. The program is the visible cells but the last;
the folded cell behind a piece is its witness.
"""

import ast
import os
import random
import re
import signal
import subprocess
import sys

import pytest
from chapters import ROOT, read

DOWNLOAD = ROOT / "book" / "one_page.py"
SECONDS = 20  # of processor time, of a program with a fault; more is a loop without an end


def cells():
    """(source, whether it is folded) of each."""
    page = read(ROOT / "book" / "one_page.md")
    return [(cell.source, "hide-input" in cell.tags) for cell in page.cells]


def program():
    shown = [source for source, folded in cells() if not folded][:-1]
    return "\n\n\n".join(source.strip("\n") for source in shown) + "\n"


def test_the_download_is_what_the_page_shows_in_200_lines_and_needs_torch_alone():
    text = DOWNLOAD.read_text(encoding="utf-8")
    assert text == program(), f"python {os.path.relpath(__file__, ROOT)}"
    assert len(text.splitlines()) <= 200
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or node.names[0].name]
    }
    assert imported - set(sys.stdlib_module_names) == {"torch"}


@pytest.mark.weekly
def test_the_download_runs_alone(tmp_path):
    text = tmp_path / "some.txt"
    text.write_text("\n\n".join(f"{n} and one is {n + 1} ." for n in range(200)), encoding="utf-8")
    short = DOWNLOAD.read_text(encoding="utf-8").replace("steps=1_000", "steps=25")
    path = tmp_path / "one_page.py"
    path.write_text(short, encoding="utf-8")
    command = [sys.executable, "-I", path, text]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


# ---- faults --------------------------------------------------------------------------------------

CHANGES = [  # of a line that cannot be left out: sign, constant, index
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" / ", " * "),
    (r"\b1\b", "2"),
    (r"\b0\b", "1"),
    (r"\b2\b", "3"),
    (r"\.(mT|T)\b", ""),
    (r"\.logsumexp\(-1\)", ".amax(-1)"),
    (r"\((\w+), (\w+)", r"(\2, \1"),
    (r"\breturn (.*)", r"return -(\1)"),
    (r" in (.*):$", r" in list(\1)[1:]:"),
    (r"= (.*)$", r"= -(\1)"),
]


def fate(pieces, number, source):
    """In a process of its own: 0, or 1 if the own witness fails, 2 if another, 3 a crash."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)  # which then ends the process
    space, own = {"__name__": "page"}, False
    for at, (piece, folded) in enumerate(pieces):
        own = own or (folded and at > number)
        try:
            exec(source if at == number else piece, space)
        except AssertionError:
            os._exit(1 if own and all(not f for _, f in pieces[number + 1 : at]) else 2)
        except BaseException:
            os._exit(3)
    os._exit(0)


def variants(source, line):
    """The piece without a line of it, then with the line changed."""
    lines = source.splitlines()
    blank = len(lines[line]) - len(lines[line].lstrip())
    yield "\n".join([*lines[:line], " " * blank + "pass", *lines[line + 1 :]])
    code = lines[line].split("  # ")[0]
    for old, new in CHANGES:
        if (changed := re.sub(old, new, code, count=1)) != code:
            yield "\n".join([*lines[:line], changed, *lines[line + 1 :]])


def drawn(pieces, count):
    """(piece, line) of lines of code, without what only names something."""
    dull = re.compile(r'\s*($|#|"""|def |class |import |from |@|if len\(sys)|    main\(')
    found = [
        (number, line)
        for number, (source, folded) in enumerate(pieces)
        if not folded
        for line, text in enumerate(source.splitlines())
        if not dull.match(text)
    ]
    return random.Random(0).sample(found, count)


@pytest.mark.weekly
def test_forty_lines_have_a_witness():
    everything = cells()
    last = next(n for n, (source, _) in enumerate(everything) if "def main" in source)
    pieces, crashes, lost = everything[:last], [], []
    assert fate(pieces, -1, "") == 0
    for number, line in drawn(pieces, 40):
        source = pieces[number][0]
        fates = []
        for each in variants(source, line):
            fates.append(fate(pieces, number, each))
            if fates[-1] in (0, 1, 2):
                break
        told = f"{source.splitlines()[line].strip()}: {fates}"
        print(told)
        if fates[-1] in (0, 2):
            lost.append(told)
        elif fates[-1] != 1:
            crashes.append(told)
    assert not lost, "\n".join(lost)
    assert len(crashes) <= 20, "\n".join(crashes)


if __name__ == "__main__":
    DOWNLOAD.write_text(program(), encoding="utf-8")
