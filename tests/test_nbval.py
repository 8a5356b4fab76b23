"""``pytest --nbval book`` fails where a chapter is wrong, and says where.

A small book of planted defects is run once, in two workers; each test reads one claim off its
report.
"""

import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import pytest_ignore_collect

ROOT = Path(__file__).parents[1]

HEADER = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
---

"""

SOUND = """\
# Zwölf – 十二

```{code-cell} python3
---
tags: [hide-input]
mystnb:
  figure:
    name: fig-x
---
import sys

print("on stdout –")
x = 1
```

```{code-cell} python3
assert x == 1
```
"""

FALSE = """\
# A false assertion

```{code-cell} python3
:tags: [hide-input]

def checked(x):
    assert x == 2, f"x is {x}"
```

```{code-cell} python3
import sys

print("seen before the failure")
print("a warning", file=sys.stderr)
checked(
    x=1,
)
```

```{code-cell} python3
print("never run")
```
"""

CHAINED = """\
# The failing statement is the one of this cell, not that of the error's cause

```{code-cell} python3
def look_up(word):
    try:
        return {}[word]
    except KeyError as error:
        raise ValueError("no such word") from error
```

```{code-cell} python3
word = "key"
look_up(word)
```
"""

RAISES = """\
# An intended failure

```{code-cell} python3
:tags: [raises-exception]

1 / 0
```

```{code-cell} python3
assert True
```
"""

STALE = RAISES.replace("1 / 0", "1 / 1")

SKIPPING = """\
# nbval's ways out are closed

```{code-cell} python3
:tags: [nbval-skip]

# NBVAL_SKIP
assert False, "not skipped"
```
"""

GLUING = """\
# Numbers for the text

```{code-cell} python3
import numpy as np
from myst_nb import glue

glue("plain", 0.5, display=False)
```

```{code-cell} python3
glue("numpy", np.float64(0.5), display=False)
```
"""

UNHEADED = "# No header\n\n```{code-cell}\nassert 1 + 1 == 2\n```\n"
PLAIN = "# A page\n\n````markdown\n```{code-cell}\nassert False\n```\n````\n"


def make_book(folder, chapters):
    """A project with this repository's settings, and these chapters in one part."""
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    made = shutil.ignore_patterns("__pycache__", "seconds.json")
    shutil.copytree(ROOT / "_ext", folder / "_ext", ignore=made)
    part = folder / "book" / "part"
    part.mkdir(parents=True)
    for name, text in chapters.items():
        (part / f"{name}.md").write_text(text, encoding="utf-8")
    return folder


def run_pytest(folder, *options):
    """Run pytest in `folder` as a reader would."""
    command = [sys.executable, "-m", "pytest", "--color=no", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run over all the planted chapters, and its JUnit report as `outcomes`."""
    chapters = {
        "sound": HEADER + SOUND,
        "false": HEADER + FALSE,
        "chained": HEADER + CHAINED,
        "raises": HEADER + RAISES,
        "stale": HEADER + STALE,
        "skipping": HEADER + SKIPPING,
        "gluing": HEADER + GLUING,
        "unheaded": UNHEADED,
        "plain": PLAIN,
    }
    folder = make_book(tmp_path_factory.mktemp("planted"), chapters)
    workers = ("-n", "2", "--dist", "loadfile")
    done = run_pytest(folder, "--nbval", "book", "--junitxml=report.xml", "-rA", *workers)
    done.outcomes = read_outcomes(folder / "report.xml")
    return done


def read_outcomes(report):
    """{chapter: the outcome of each of its cells, in order}"""
    outcomes = {}
    for case in ET.parse(report).iter("testcase"):
        chapter = case.get("classname").split(".")[-2]
        outcome = next((c.tag for c in case if c.tag in ("failure", "error", "skipped")), "passed")
        outcomes.setdefault(chapter, []).append((int(case.get("name").split()[-1]), outcome))
    return {
        chapter: [outcome for _, outcome in sorted(cells)] for chapter, cells in outcomes.items()
    }


def line_of(text, statement):
    """The line of `statement` in a chapter, counted from 1."""
    return text.splitlines().index(statement) + 1


def test_the_run_fails_and_counts_each_cell(run):
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert "5 failed, 8 passed, 2 skipped" in run.stdout


def test_a_chapter_that_prints_and_asserts_passes(run):
    assert run.outcomes["sound"] == ["passed", "passed"]
    assert "on stdout –" in run.stdout


def test_a_false_assertion_is_reported_with_file_and_line(run):
    line = line_of(HEADER + FALSE, "checked(")
    assert f"\nbook/part/false.md:{line}: AssertionError: x is 1\n" in run.stdout


def test_the_cells_after_a_failure_are_skipped(run):
    assert run.outcomes["false"] == ["passed", "failure", "skipped"]
    line = line_of(HEADER + FALSE, "checked(")
    assert f"line {line} of this chapter failed" in run.stdout
    assert "never run" not in run.stdout


def test_a_failed_cell_shows_what_it_printed(run):
    assert "seen before the failure" in run.stdout
    assert "a warning" in run.stdout


def test_a_chained_error_is_reported_at_the_statement_of_its_own_cell(run):
    line = line_of(HEADER + CHAINED, "look_up(word)")
    assert f"\nbook/part/chained.md:{line}: ValueError: no such word\n" in run.stdout


def test_an_intended_failure_passes_and_the_chapter_goes_on(run):
    assert run.outcomes["raises"] == ["passed", "passed"]


def test_an_intended_failure_that_no_longer_fails_is_a_failure(run):
    assert run.outcomes["stale"] == ["failure", "skipped"]
    line = line_of(HEADER + STALE, "1 / 1")
    assert f"book/part/stale.md:{line}: the cell is tagged raises-exception, but" in run.stdout


def test_a_number_that_the_builder_cannot_format_is_a_failure(run):
    assert run.outcomes["gluing"] == ["passed", "failure"]
    assert "expected a plain number to glue, got np.float64(0.5)" in run.stdout


def test_no_cell_can_opt_out(run):
    assert run.outcomes["skipping"] == ["failure"]


def test_a_chapter_without_a_header_is_run_too(run):
    assert run.outcomes["unheaded"] == ["passed"]


def test_plain_markdown_is_ignored(run):
    assert "plain" not in run.outcomes


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["one-process", "workers"])
def test_a_run_that_collects_no_cell_is_a_failure(tmp_path, workers):
    folder = make_book(tmp_path, {"plain": PLAIN})
    (folder / "test_other.py").write_text("def test_passes():\n    pass\n")
    done = run_pytest(folder, "--nbval", "book", "test_other.py", *workers)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "--nbval found no code cell in 'book test_other.py'" in done.stdout


def test_a_module_whose_mark_is_not_asked_for_is_not_even_collected(tmp_path):
    def left_out(text, marks):
        (tmp_path / "test_one.py").write_text(text)
        config = SimpleNamespace(option=SimpleNamespace(markexpr=marks))
        return pytest_ignore_collect(tmp_path / "test_one.py", config)

    assert left_out("pytestmark = pytest.mark.site\n", "not site and not weekly")
    assert not left_out("pytestmark = pytest.mark.site\n", "site")
    assert not left_out("@pytest.mark.site\ndef test(): ...\n", "not site")
