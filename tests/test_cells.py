"""ruff reads the cells of each chapter by the project's own rules.

A chapter becomes a program whose lines stand where they stand in the chapter, so what ruff says of
the program it says of the chapter. The rules left out, and why, are in `pyproject.toml`.
"""

import subprocess
import sys

import pytest
from chapters import ROOT, Page, chapters, read


def program(page):
    """The code of a chapter's cells on the lines where it stands, and nothing on the others."""
    lines = [""] * len(page.lines)
    for cell in page.cells:
        code = cell.source.split("\n")
        lines[cell.line - 1 : cell.line - 1 + len(code)] = code
    return "\n".join(lines) + "\n"


def findings(pages, folder):
    """What ruff finds in the cells of pages, as `page:line:column: rule …`."""
    for page in pages:
        file = folder / f"{page.name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(program(page), encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--quiet", "--no-cache"]
    command += ["--output-format=concise", f"--config={ROOT / 'pyproject.toml'}", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return [line.replace(".md.py:", ".md:") for line in done.stdout.splitlines()]


CHAPTER = """# A chapter

```{code-cell} ipython3
import math
```

Text.

```{code-cell} ipython3
:tags: [hide-input]

CODE
```
"""


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("math.pi", None),  # shown below the cell
        ("math.pi\nimport os", "13:8: F401"),
        ("total = math.sin(x)", "12:18: F821"),
        ("fs = [lambda: math.sin(i) for i in range(3)]", "12:24: B023"),
    ],
)
def test_a_fault_is_found_where_it_stands_in_the_chapter(code, message, tmp_path):
    found = findings([Page("a.md", CHAPTER.replace("CODE", code))], tmp_path)
    assert [line.startswith(f"a.md:{message} ") for line in found] == [True] * bool(message), found


def test_ruff_finds_nothing_in_the_cells_of_any_chapter(tmp_path):
    found = findings(map(read, chapters()), tmp_path)
    assert not found, "\n".join(found)
