"""`make book` executes what changed, or what depends on what changed, and nothing else."""

from types import SimpleNamespace

import execute
import pytest
import shares
from chapters import ROOT, chapters
from dependencies import RUNS_TESTS
from execute import CACHE, forget_stale, read, state_of_chapter
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn

HEADER = (ROOT / "book/likelihood/surprise.md").read_text(encoding="utf-8").split("\n(")[0]

FILES = {
    "_toc.yml": "format: jb-book\nroot: index\nchapters:\n"
    "- file: book/part/one\n- file: book/part/two\n",
    "_config.yml": "execute: {timeout: 60}\n",
    "index.md": "# Contents\n",
    **dict.fromkeys(RUNS_TESTS, ""),
    "src/__init__.py": "",
    "src/alone.py": "def value():\n    return 1\n",
    "src/shared.py": "VALUE = 2\n",
    "src/late.py": "def value():\n    from .shared import VALUE\n    return VALUE\n",
    "src/unused.py": "",
    "results/one.json": "{}",
    "results/two.json": "{}",
    "book/part/one.md": "\n# One\n\n```{code-cell} ipython3\nfrom src.alone import value\n"
    'recorded = "one.json"\nprint(value())\n```\n',
    "book/part/two.md": "\n# Two\n\n```{code-cell} ipython3\n:tags: [hide-input]\n\n"
    "import src.late\nprint(src.late.value())\n```\n",
}


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A book of two chapters, whose kernels find its own `src`."""
    for name, text in FILES.items():
        write(tmp_path / name, HEADER + text if name.startswith("book/") else text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def states_of(book):
    return {path: state_of_chapter(path, book) for path in execute.chapters(book)}


def take_for_executed(book):
    """As if every chapter of the book had been executed as it is now."""
    cache = get_cache(str(book / CACHE))
    for path, state in states_of(book).items():
        kept = CacheBundleIn(read(path), str(path), data={"state": state})
        cache.cache_notebook_bundle(kept, check_validity=False, overwrite=True)


def stale(book):
    return [path.stem for path in forget_stale(states_of(book), book)]


def test_every_chapter_is_executed_once():
    assert sorted(execute.chapters()) == chapters()


def test_at_first_every_chapter_is_stale_and_once_executed_none(book):
    assert stale(book) == ["one", "two"]
    take_for_executed(book)
    assert stale(book) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("src/alone.py", "1", "3", ["one"]),
        ("src/shared.py", "2", "4", ["two"]),  # imported by a module, and late
        ("src/unused.py", "", "import os", []),
        ("results/one.json", "{}", "[]", ["one"]),
        ("book/part/one.md", "print(value())", "print(-value())", ["one"]),
        ("book/part/one.md", "# One", "# Uno", []),
        ("book/part/two.md", "hide-input", "raises-exception", ["two"]),
    ],
)
def test_what_depends_on_an_edit_is_stale_and_nothing_else(book, name, old, new, expected):
    take_for_executed(book)
    edit(book / name, old, new)
    assert stale(book) == expected
    assert stale(book) == expected  # it is gone: the builder must not find it


@pytest.mark.parametrize("name", ["book/part/data.txt", "src/page.html"])
def test_a_new_file_of_data_makes_what_may_read_it_stale(book, name):
    take_for_executed(book)
    write(book / name, "new")
    assert stale(book) == ["one", "two"]


def test_another_environment_makes_everything_stale(book, monkeypatch):
    take_for_executed(book)
    monkeypatch.setenv("NEXT_TOKEN_DEVICE", "elsewhere")
    assert stale(book) == ["one", "two"]


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("recorded =", 'command = ["python", "-m", "next_token"]\nrecorded =', "src/unused.py"),
        ('"one.json"', '"results", "o" + "ne.json"', "results/two.json"),
    ],
)
def test_a_chapter_that_does_not_tell_what_it_reads_depends_on_all(book, old, new, name):
    edit(book / "book/part/one.md", old, new)
    take_for_executed(book)
    write(book / name, "[]")
    assert stale(book) == ["one"]


def outputs(book, name):
    """What the cache holds of a chapter."""
    notebook = read(book / f"book/part/{name}.md")
    _, found = get_cache(str(book / CACHE)).merge_match_into_notebook(notebook)
    return found.cells[-1].outputs[0].text


@pytest.fixture
def built(monkeypatch):
    """The calls of the builder of pages, which does nothing here."""
    calls, done = [], SimpleNamespace(returncode=0)
    monkeypatch.setattr(execute.subprocess, "run", lambda *a, **k: calls.append(a) or done)
    return calls


def test_after_an_edit_the_cache_holds_what_the_edited_code_puts_out(book, built, capfd):
    assert execute.main(["--workers", "2"], book) == 0
    assert (outputs(book, "one"), outputs(book, "two")) == ("1\n", "2\n")
    assert "2 of 2 chapters" in capfd.readouterr().out
    assert execute.main([], book) == 0
    assert capfd.readouterr() == ("== Book: nothing changed; open _build/html/index.html\n", "")
    assert len(built) == 1
    edit(book / "src/shared.py", "2", "5")
    assert execute.main([], book) == 0
    assert (outputs(book, "one"), outputs(book, "two")) == ("1\n", "5\n")
    said, warned = capfd.readouterr()
    assert "book/part/two.md" in said
    assert "book/part/one.md" not in said
    assert warned == ""


@pytest.mark.parametrize(
    ("name", "old", "new", "kept"),
    [
        ("book/part/one.md", "# One", "# Uno", True),
        ("book/part/three.md", "", "# Three", False),
        ("src/unused.py", "", "import os", False),  # the reference is made of all modules
    ],
)
def test_the_pages_are_kept_after_an_edit_of_their_texts_alone(book, built, name, old, new, kept):
    take_for_executed(book)
    assert execute.main([], book) == 0
    page = book / "_build" / "html" / "page.html"
    write(page, "")
    (book / name).touch()
    edit(book / name, old, new)
    assert execute.main([], book) == 0
    assert page.exists() == kept


def test_after_a_build_that_failed_no_page_is_kept(book, monkeypatch):
    """Sphinx would not say again what is wrong with a page that it does not read again."""
    take_for_executed(book)
    page = book / "_build" / "html" / "page.html"
    for status, text in ((0, "# Uno"), (1, "# Une"), (0, "# Eins")):
        done = SimpleNamespace(returncode=status)
        monkeypatch.setattr(execute.subprocess, "run", lambda *a, done=done, **k: done)
        edit(book / "book/part/one.md", "# ", f"{text}\n\n## ")
        assert execute.main([], book) == status
        assert page.exists() == (status == 1)
        write(page, "")


FAULTS = {
    "assert 1 == 2, 'not so'": "AssertionError: not so",
    "import time\ntime.sleep(60)": "the cell took more than 5 seconds",
    "import os\nos._exit(1)": "Kernel died",
}


@pytest.mark.parametrize("cell", FAULTS)
def test_each_fault_stops_the_build_and_is_told_with_file_and_line(book, built, capfd, cell):
    take_for_executed(book)
    edit(book / "_config.yml", "60", "5" if "sleep" in cell else "120")
    edit(book / "book/part/one.md", "print(value())", f"print(value())\n{cell}")
    assert execute.main([], book) == 1
    assert built == []
    said = capfd.readouterr().out
    assert "book/part/one.md: FAILED" in said
    assert FAULTS[cell] in said
    text = (book / "book/part/one.md").read_text(encoding="utf-8")
    line = "" if "_exit" in cell else text[: text.rindex("```")].count("\n")
    assert f"\nbook/part/one.md:{line}" in said
    assert stale(book) == ["one"]


@pytest.mark.parametrize(
    ("cores", "gigabytes", "expected"),
    [(2, 64, 2), (8, 8, 2), (8, 2, 1), (64, 500, 8)],
)
def test_there_are_as_many_workers_as_cores_and_memory_allow(cores, gigabytes, expected):
    assert shares.workers(cores, gigabytes * 2**30) == expected
