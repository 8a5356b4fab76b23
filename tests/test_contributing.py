"""What CONTRIBUTING.md and the page on architecture name exists: paths, tests, targets, rules."""

import re

import pytest
from chapters import ROOT
from recipe import CHAPTER_RULES, NOTEBOOK_RULES

NAMES = ["CONTRIBUTING.md", "book/architecture.md"]
GUIDE, HOUSE = (ROOT.joinpath(name).read_text(encoding="utf-8") for name in NAMES)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
MADE = {".venv", "_build/html", "_build/experiments"}  # by `make`
PATH = re.compile(r"[\w.-]+(/[\w.-]*)+|[\w.-]+\.(md|py|toml|txt|yml|yaml|bib)")


def commands(text):
    """The lines of the blocks in the language of the shell."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()


def missing(text):
    """What a text names in commands, between backticks or in links, and what does not exist."""
    fences = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    words = [*commands(text), *re.findall(r"(?<!`)`([^`\n]+)`(?!`)", fences)]
    links = [each for each in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in each]
    for word in {each for line in words for each in line.split("#")[0].split()} | {*links}:
        made = word in MADE or word.startswith(".venv/bin/")
        if (word in links or PATH.fullmatch(word)) and not (made or (ROOT / word).exists()):
            yield f"there is no {word}"
    for line in words:
        target = re.match(r"make ([a-z-]+)", line)
        if target and not re.search(rf"^{target[1]}:", MAKEFILE, re.MULTILINE):
            yield f"there is no target {target[1]}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("In `book/`, [index](book/index.md), `make book` and `_ext`, `a + b`, `part of it`.", []),
        ("[x](book/x.md)", ["there is no book/x.md"]),
        ("Say `make books`.", ["there is no target books"]),
        ("```sh\n.venv/bin/pytest tests/test_x.py\n```", ["there is no tests/test_x.py"]),
    ],
)
def test_a_name_of_what_is_not_there_is_found(text, found):
    assert list(missing(text)) == found


@pytest.mark.parametrize("text", [GUIDE, HOUSE], ids=NAMES)
def test_all_that_a_page_names_exists(text):
    assert list(missing(text)) == []


def test_the_guide_says_what_each_rule_of_the_recipe_asks():
    rules = [rule.__name__ for rule in NOTEBOOK_RULES + CHAPTER_RULES]
    assert re.findall(r"^\| `(\w+)` \| \w", GUIDE, re.MULTILINE) == rules
