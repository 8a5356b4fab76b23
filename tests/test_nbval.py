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

# {chapter: its cells, what becomes of each, the statement and the words of the failure}
CHAPTERS = {
    "sound": (
        [
            "---\ntags: [hide-input]\nmystnb:\n  figure:\n    name: x\n---\nprint('Zwölf – 十二')",
            "assert 1 + 1 == 2",
        ],
        "passed passed",
        None,
    ),
    "false": (
        [
            ":tags: [hide-input]\n\ndef checked(x):\n    assert x == 2, f'x is {x}'",
            "import sys\nprint('seen before the failure')\nprint('a warning', file=sys.stderr)\n"
            "checked(\n    x=1,\n)",
            "print('never run')",
        ],
        "passed failure skipped",
        ("checked(", "AssertionError: x is 1\n"),
    ),
    "chained": (  # the failing statement is the one of this cell, not that of the error's cause
        [
            "def look_up(word):\n    try:\n        return {}[word]\n    except KeyError as error:\n"
            "        raise ValueError('no such word') from error",
            "word = 'key'\nlook_up(word)",
        ],
        "passed failure",
        ("look_up(word)", "ValueError: no such word\n"),
    ),
    "raises": ([":tags: [raises-exception]\n\n1 / 0", "assert True"], "passed passed", None),
    "stale": (
        [":tags: [raises-exception]\n\n1 / 1", "assert True"],
        "failure skipped",
        ("1 / 1", "the cell is tagged raises-exception, but"),
    ),
    "skipping": (  # nbval's ways out are closed
        [":tags: [nbval-skip]\n\n# NBVAL_SKIP\nassert False, 'not skipped'"],
        "failure",
        ("assert False, 'not skipped'", "AssertionError: not skipped"),
    ),
    "gluing": (
        [
            "import numpy as np\nfrom myst_nb import glue\nglue('plain', 0.5, display=False)",
            "glue('numpy', np.float64(0.5), display=False)",
        ],
        "passed failure",
        ("glue('numpy', np.float64(0.5), display=False)", "expected a plain number to glue, got"),
    ),
}
FAILING = [name for name, (*_, failure) in CHAPTERS.items() if failure]
UNHEADED = "# No header\n\n```{code-cell}\nassert 1 + 1 == 2\n```\n"
PLAIN = "# A page\n\n````markdown\n```{code-cell}\nassert False\n```\n````\n"


def text_of(cells):
    fences = (f"\n```{{code-cell}} python3\n{cell}\n```\n" for cell in cells)
    return HEADER + "# Planted\n" + "".join(fences)


def make_book(folder, chapters):
    """A project with this repository's settings, and these chapters in one part."""
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "_ext", folder / "_ext", ignore=shutil.ignore_patterns("__pycache__"))
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
    chapters = {name: text_of(cells) for name, (cells, *_) in CHAPTERS.items()}
    chapters |= {"unheaded": UNHEADED, "plain": PLAIN}
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
    return {name: " ".join(each for _, each in sorted(cells)) for name, cells in outcomes.items()}


def test_the_run_fails_and_counts_each_cell(run):
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert "5 failed, 8 passed, 2 skipped" in run.stdout


def test_each_cell_passes_or_fails_and_the_cells_after_a_failure_are_skipped(run):
    expected = {name: outcomes for name, (_, outcomes, _) in CHAPTERS.items()}
    assert run.outcomes == expected | {"unheaded": "passed"}


@pytest.mark.parametrize("name", FAILING)
def test_a_failure_is_reported_with_file_and_line_of_the_statement(run, name):
    cells, _, (statement, words) = CHAPTERS[name]
    line = text_of(cells).splitlines().index(statement) + 1
    assert f"\nbook/part/{name}.md:{line}: {words}" in run.stdout
    if "skipped" in run.outcomes[name]:
        assert f"line {line} of this chapter failed" in run.stdout


def test_what_a_cell_printed_is_shown_even_if_it_fails(run):
    for text in ("Zwölf – 十二", "seen before the failure", "a warning"):
        assert text in run.stdout
    assert "never run" not in run.stdout


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
