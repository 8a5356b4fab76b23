"""`make chapter`: what it writes has all that a chapter has, and runs; what it refuses, and how."""

import os
import re
import shutil
import subprocess
import sys

import matplotlib
import pytest
from chapters import ROOT, pages, read
from new_chapter import TEMPLATE, begin, main
from recipe import CHAPTER_RULES, NOTEBOOK_RULES
from test_book import import_faults, save_changes, toc_disagreements

NAME = "likelihood/coin_tosses"
PAGE = f"book/{NAME}.md"
TITLE = "Coins: the least language"


def copied(folder):
    """What `begin` reads and writes, in a folder of its own."""
    shutil.copytree(ROOT / "book", folder / "book")
    for name in ("_toc.yml", "README.md"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A copy of the book with a new chapter; read only."""
    root = copied(tmp_path_factory.mktemp("book"))
    assert begin(NAME, TITLE, root) == PAGE
    return root


@pytest.fixture(scope="module")
def page(book):
    return read(book / PAGE, book)


# ---- what it writes --------------------------------------------------------------------------


@pytest.mark.parametrize("rule", NOTEBOOK_RULES + CHAPTER_RULES, ids=lambda rule: rule.__name__)
def test_a_new_chapter_follows_the_recipe(page, rule):
    assert list(rule(page)) == []


def test_a_new_chapter_is_the_only_new_page(book):
    names = {path.relative_to(book).as_posix() for path in pages(book)}
    assert names - {path.relative_to(ROOT).as_posix() for path in pages()} == {PAGE}


def test_a_new_chapter_is_listed_last_of_its_part(book):
    contents = (book / "_toc.yml").read_text(encoding="utf-8")
    names = [path.relative_to(book).as_posix() for path in pages(book)]
    assert list(toc_disagreements(contents, names)) == []
    line = f"  - file: {PAGE.removesuffix('.md')}\n"
    assert f"{line}- caption: " in contents
    assert contents.replace(line, "") == (ROOT / "_toc.yml").read_text(encoding="utf-8")


def test_the_readme_links_a_new_chapter_with_the_next_number(book):
    before, after = ((root / "README.md").read_text("utf-8").splitlines() for root in (ROOT, book))
    (line,) = set(after) - set(before)
    number = before[after.index(line) - 1].partition(".")[0]
    assert line == f"{int(number) + 1}. [{TITLE}]({PAGE})"
    assert after[after.index(line) + 1] == ""


def test_a_new_chapter_imports_what_exists(page):
    assert list(import_faults(page)) == []


def test_saving_a_new_chapter_changes_nothing(page):
    assert save_changes(PAGE, page.text) == ""


def test_no_placeholder_is_left(page):
    assert not {"NAME", "TITLE", "TAG"} & set(page.text.replace("-", " ").split())
    assert "(coin_tosses)=\n# Coins: the least language\n" in page.text
    assert ":label: ex-coin-tosses-bug\n" in page.text


def test_the_cells_of_a_new_chapter_run(page):
    matplotlib.use("Agg")
    names = {}
    with matplotlib.rc_context():
        for cell in page.cells:
            exec(compile(cell.source, f"{PAGE}:{cell.line}", "exec"), names)
    assert names["exact"].max() > 0


def test_without_a_title_the_name_becomes_one(tmp_path):
    begin(NAME, root=copied(tmp_path))
    assert "\n# Coin tosses\n" in (tmp_path / PAGE).read_text(encoding="utf-8")


# ---- what it refuses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "title", "message"),
    [
        ("", "", "expected part/name, in small letters, digits and _, got ''; say  make chapter"),
        ("coins", "", "got 'coins'; say  make chapter NAME=part/name"),
        ("likelihood/Coins", "", "got 'likelihood/Coins'"),
        ("likelihood/../coins", "", "got 'likelihood/../coins'"),
        ("likelihood/coins.md", "", "got 'likelihood/coins.md'"),
        ("tossing/coins", "", "no part 'tossing'; expected one of attention, gpt, likelihood, tod"),
        ("gpt/cache", "", "book/gpt/cache.md has the name 'cache' already: choose another"),
        ("tokens/cache", "", "book/gpt/cache.md has the name 'cache' already"),
        ("tokens/index", "", "book/index.md has the name 'index' already"),
        ("gpt/new", "Counting [again]", "expected a TITLE of one line without [, ] and `"),
    ],
)
def test_what_cannot_be_a_chapter_is_refused_and_nothing_is_written(book, name, title, message):
    before = {path: path.stat().st_mtime_ns for path in book.rglob("*")}
    with pytest.raises(ValueError, match=re.escape(message)):
        begin(name, title, book)
    assert {path: path.stat().st_mtime_ns for path in book.rglob("*")} == before


def test_a_second_chapter_of_the_same_title_is_refused(book):
    with pytest.raises(ValueError, match=f"{PAGE} is called '{TITLE}' already: choose another"):
        begin("likelihood/more_coins", TITLE, book)


# ---- what it says ----------------------------------------------------------------------------


def test_a_refusal_is_said_without_a_traceback(capsys):
    assert main(["", ""]) == 2
    assert capsys.readouterr().err.startswith("make chapter: expected part/name")


def test_what_to_do_next_is_said_and_names_what_exists(tmp_path):
    root = copied(tmp_path)
    (root / "_ext").mkdir()
    for path in (TEMPLATE, TEMPLATE.with_name("new_chapter.py")):
        shutil.copy(path, root / "_ext")
    command = [sys.executable, "_ext/new_chapter.py", NAME, TITLE]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert f".venv/bin/pytest --nbval {PAGE}\n" in done.stdout
    named = {word.rstrip(",.") for word in done.stdout.split() if "/" in word or ".md" in word}
    named -= {".venv/bin/pytest"}
    assert len(named) > 8
    missing = [each for each in named if not ((root / each).exists() or (ROOT / each).exists())]
    assert missing == []
