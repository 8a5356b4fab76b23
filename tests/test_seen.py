"""`make test` takes over what `make book` has executed, and nothing that has changed since."""

import re

import pytest
from seen import drawn, executed, unchanged
from test_execute import edit, write
from test_nbval import HEADER, make_book, run_pytest

CHAPTER = """
```{code-cell} ipython3
import sys
sys.path.insert(0, "../..")
from src.one import VALUE
assert VALUE > 0
```
"""
NAMES = [f"chapter{i}" for i in range(12)]


@pytest.fixture
def project(tmp_path):
    make_book(tmp_path, {name: HEADER + CHAPTER for name in NAMES})
    for name, text in {"__init__": "", "one": "VALUE = 1\n", "other": ""}.items():
        write(tmp_path / f"src/{name}.py", text)
    executed([tmp_path / f"book/part/{name}.md" for name in NAMES], tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "old", "new", "left"),
    [
        ("src/other.py", "", "import os", 12),
        ("book/part/chapter0.md", "\n```{", "\nProse.\n\n```{", 12),
        ("book/part/chapter0.md", "VALUE > 0", "VALUE > -1", 11),
        ("src/one.py", "1", "3", 0),
        ("conftest.py", '"""Let', '"""May', 0),
    ],
)
def test_what_the_builder_has_executed_is_taken_over_until_it_changes(
    project, name, old, new, left
):
    edit(project / name, old, new)
    assert len(unchanged(project)) == left


def test_each_commit_draws_another_tenth(monkeypatch, tmp_path):
    tenths = []
    for commit in ("a", "b", None):
        monkeypatch.setattr("seen.git", lambda *a, commit=commit: commit)
        tenths.append(drawn([f"chapter {i}" for i in range(50)], tmp_path))
    assert [len(tenth) for tenth in tenths] == [5, 5, 5]
    assert tenths[0] != tenths[1]


@pytest.mark.weekly
@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadfile")], ids=["one", "two"])
def test_pytest_runs_a_tenth_of_it(project, workers):
    done = run_pytest(project, "--take-over", "-rA", "--nbval", "book", *workers)
    assert "10 chapters were executed by `make book`" in done.stdout
    passed = set(re.findall(r"^PASSED (\S+?)::", done.stdout, re.MULTILINE))
    assert len(passed) == 2
