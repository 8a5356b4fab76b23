"""``reproduce.py`` reports whatever differs between two runs, and nothing else."""

from contextlib import redirect_stdout
from io import StringIO

import pytest
from reproduce import differences, main

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


def reproduced(folder, **chapters):
    """(exit status, all that was printed) for a book of some chapters."""
    root = folder.resolve()
    (root / "book").mkdir(parents=True)
    for name, text in chapters.items():
        (root / "book" / f"{name}.md").write_text(text, encoding="utf-8")
    with redirect_stdout(StringIO()) as printed:
        status = main([], root)
    return status, printed.getvalue()


def test_all_differences_and_failures_are_reported_with_their_lines(tmp_path):
    status, said = reproduced(tmp_path, different=DIFFERENT, failing=FAILING)
    assert status == 1
    assert "book/different.md:4: stdout: the two runs differ\n" in said
    assert "\n    -– 0." in said
    assert "\n    +– 0." in said
    assert "book/different.md:10: glued 'now', text/plain: the two runs differ\n" in said
    assert "book/failing.md:10: AssertionError: no\n" in said
    assert said.endswith("chapters: 2; cells: 2; differences or failures: 3\n")


def test_equal_outputs_intended_failures_and_tagged_timings_pass(tmp_path):
    status, said = reproduced(tmp_path, same=SAME)
    assert status == 0
    assert "book/same.md: 2 cells gave the same twice\n" in said


@pytest.mark.parametrize("other", [{"output 1, image/svg+xml": "<svg id='b'/>"}, {}])
def test_another_figure_and_none_are_reported(other):
    figure = {"output 1, image/svg+xml": "<svg id='a'/>"}
    assert list(differences(figure, dict(figure))) == []
    assert len(list(differences(figure, other))) == len(list(differences(other, figure))) == 1


def test_no_chapter_and_an_unknown_chapter_are_errors(tmp_path):
    with pytest.raises(SystemExit, match="found no chapter"):
        main([], tmp_path)
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "a.md").write_text(SAME, encoding="utf-8")
    with pytest.raises(SystemExit, match="no chapter 'b'; there are a"):
        main(["b"], tmp_path)
