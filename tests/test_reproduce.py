"""``reproduce.py`` reports whatever differs between two runs, and nothing else."""

from contextlib import redirect_stdout
from io import StringIO

import pytest
from chapters import Page
from reproduce import Run, compare, differences, main

pytestmark = pytest.mark.weekly

SAME = """\
# What is the same each time, or need not be

```{code-cell} ipython3
print(1)
1 + 1
```

```{code-cell} ipython3
:tags: [raises-exception]

1 / 0
```

```{code-cell} ipython3
:tags: [nbval-ignore-output]

import time
print(time.time_ns())
```
"""

DIFFERENT = """\
# What is not

```{code-cell} ipython3
import random
print("same")
print("–", random.random())
```

```{code-cell} ipython3
from myst_nb import glue
glue("now", random.random(), display=False)
```
"""

FAILING = """\
# A false assertion

```{code-cell} ipython3
assert 1 + 1 == 2
```

```{code-cell} ipython3
:tags: [hide-input]

assert 1 == 2, "no"
```
"""


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """(exit status, all that was printed) for a book of the three chapters."""
    root = tmp_path_factory.mktemp("book").resolve()
    part = root / "book" / "part"
    part.mkdir(parents=True)
    for name, text in (("same", SAME), ("different", DIFFERENT), ("failing", FAILING)):
        (part / f"{name}.md").write_text(text, encoding="utf-8")
    with redirect_stdout(StringIO()) as printed:
        status = main([], root)
    return status, printed.getvalue()


def test_the_run_fails_and_counts(reproduced):
    status, said = reproduced
    assert status == 1, said
    assert said.endswith("chapters: 3; cells: 4; differences or failures: 3\n"), said


def test_equal_outputs_intended_failures_and_tagged_timings_pass(reproduced):
    _, said = reproduced
    assert "book/part/same.md: 2 cells gave the same twice\n" in said


def test_a_random_number_is_reported_with_its_line_and_both_texts(reproduced):
    _, said = reproduced
    assert "book/part/different.md:4: stdout: the two runs differ\n" in said
    assert "\n    -– 0." in said
    assert "\n    +– 0." in said


def test_a_glued_value_is_compared_even_though_it_is_not_shown(reproduced):
    _, said = reproduced
    assert "book/part/different.md:10: glued 'now', text/plain: the two runs differ\n" in said


def test_a_failing_cell_is_reported_with_its_line(reproduced):
    _, said = reproduced
    assert "book/part/failing.md:10: AssertionError: no\n" in said


def test_nothing_but_equal_outputs_is_a_success(tmp_path, monkeypatch, capsys):
    async def run_nothing(path):
        return Run([{"stdout": "1"}] * 3)

    monkeypatch.setattr("reproduce.run_chapter", run_nothing)
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "same.md").write_text(SAME, encoding="utf-8")
    assert main(["same"], tmp_path) == 0
    assert "chapters: 1; cells: 2; differences or failures: 0" in capsys.readouterr().out


def test_a_figure_that_moves_by_one_byte_is_reported():
    figure = {"output 1, image/svg+xml": "<svg id='a'/>"}
    (message,) = differences(figure, {"output 1, image/svg+xml": "<svg id='b'/>"})
    assert "not the same byte for byte" in message
    assert list(differences(figure, dict(figure))) == []


def test_an_output_of_only_one_run_is_reported():
    assert list(differences({"stderr": "x"}, {})) == ["stderr: only in the first run"]
    assert list(differences({}, {"stderr": "x"})) == ["stderr: only in the second run"]


def test_a_failure_of_only_one_run_is_reported():
    page = Page("a.md", "```{code-cell}\n1\n```\n")
    bad = Run([{}], 0, "ValueError: x")
    for runs in ((Run([{}]), bad), (bad, Run([{}]))):
        assert compare(page, *runs) == (0, ["a.md:2: ValueError: x"])


def test_no_chapter_and_an_unknown_chapter_are_errors(tmp_path):
    with pytest.raises(SystemExit, match="found no chapter"):
        main([], tmp_path)
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "a.md").write_text(SAME, encoding="utf-8")
    with pytest.raises(SystemExit, match="no chapter 'b'; there are a"):
        main(["b"], tmp_path)
