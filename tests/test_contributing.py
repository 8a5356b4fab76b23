"""What CONTRIBUTING.md and the page on architecture name exists: commands, tests, files, rules.

Each check is a function of a text, and is proven on planted defects before it judges the pages.
"""

import re
import shlex
import sysconfig
from pathlib import Path

import pytest
import yaml
from chapters import ROOT, chapters
from recipe import CHAPTER_RULES, NOTEBOOK_RULES

NAMES = ["CONTRIBUTING.md", "book/architecture.md"]
GUIDE, HOUSE = (ROOT.joinpath(name).read_text(encoding="utf-8") for name in NAMES)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]

SCRIPTS = Path(sysconfig.get_path("scripts"))
MADE = {".venv", "_build/html", "_build/experiments"}  # by `make`
EXAMPLE = "book/likelihood/coin_tosses.md"  # of a chapter that is begun
PATH = re.compile(r"[\w.-]+(/[\w.-]*)+|[\w.-]+\.(md|py|toml|txt|yml|yaml|bib)")


def commands(text):
    """The lines of the blocks in the language of the shell."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()


def quoted(text):
    """What stands between backticks in a line."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)


def command_faults(line):
    """What a command names that does not exist: a program, a target, a path, a test, a chapter."""
    words = shlex.split(line, comments=True)
    while words and "=" in words[0]:
        del words[0]
    program, *arguments = words
    if program == "make":
        for target in (word for word in arguments if "=" not in word):
            if not re.search(rf"^{target}:", MAKEFILE, re.MULTILINE):
                yield f"{line}: there is no target {target}"
        return
    if program.startswith(".venv/bin/") and not (SCRIPTS / Path(program).name).exists():
        yield f"{line}: {program} is not installed"
    elif not program.startswith(".venv/bin/") and program != "export":
        yield f"{line}: expected make or a program of .venv, got {program}"
    for word in arguments:
        if PATH.fullmatch(word) and not (ROOT / word).exists():
            yield f"{line}: there is no {word}"
    if "-k" in arguments:
        word = arguments[arguments.index("-k") + 1]
        found = [path.stem for path in chapters()]
        for file in (ROOT / each for each in arguments if each.endswith(".py")):
            found += re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))
        if not any(word in name for name in found):
            yield f"{line}: no test and no chapter has '{word}' in its name"
    if program.endswith("python") and not arguments[-1].startswith("-"):
        name = arguments[-1]
        if not PATH.fullmatch(name) and name not in {path.stem for path in chapters()}:
            yield f"{line}: there is no chapter {name}"


def name_faults(text):
    """What a text names between backticks, or links, that does not exist."""
    for word in quoted(text):
        if word.startswith(("make ", ".venv/bin/")):
            yield from command_faults(word)
        elif PATH.fullmatch(word) and not ((ROOT / word).exists() or word in MADE | {EXAMPLE}):
            yield f"there is no {word}"
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target and not (ROOT / target).exists():
            yield f"a link leads to {target}, which does not exist"


# ---- planted defects -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("make book  # builds", None),
        ("make chapter NAME=a/b", None),
        ("make books", "there is no target books"),
        (".venv/bin/pytest --nbval book/index.md", None),
        (".venv/bin/pytests", ".venv/bin/pytests is not installed"),
        (".venv/bin/pytest tests/test_x.py", "there is no tests/test_x.py"),
        (".venv/bin/pytest tests/test_contributing.py -k hook", None),
        (".venv/bin/pytest tests/test_recipe.py -k heads", None),
        (".venv/bin/pytest tests/test_recipe.py -k shoulders", "no test and no chapter has 'shou"),
        (".venv/bin/python tests/reproduce.py heads", None),
        ("A=b:c .venv/bin/python -m teeth shoulders", "there is no chapter shoulders"),
        ("export A=1", None),
        ("curl book", "expected make or a program of .venv, got curl"),
    ],
)
def test_a_command_that_names_what_is_not_there_is_found(line, message):
    found = list(command_faults(line))
    assert len(found) == (message is not None), found
    assert all(message in each for each in found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("In `book/`, [index](book/index.md), `make book` and `_ext`, `a + b`, `part of it`.", []),
        ("In `books/`.", ["there is no books/"]),
        ("In `READYOU.md`.", ["there is no READYOU.md"]),
        ("[x](book/x.md)", ["a link leads to book/x.md, which does not exist"]),
        ("Say `make books`.", ["make books: there is no target books"]),
    ],
)
def test_a_name_of_what_is_not_there_is_found(text, found):
    assert list(name_faults(text)) == found


# ---- the pages -------------------------------------------------------------------------------


@pytest.mark.parametrize("line", list(commands(GUIDE)))
def test_each_command_of_the_guide_can_be_given(line):
    found = list(command_faults(line))
    assert not found, "\n".join(found)


def test_the_guide_shows_commands():
    assert len(list(commands(GUIDE))) > 10


@pytest.mark.parametrize("text", [GUIDE, HOUSE], ids=NAMES)
def test_all_that_a_page_names_exists(text):
    assert len(quoted(text)) > 20
    found = list(name_faults(text))
    assert not found, "\n".join(found)


def test_the_example_of_a_chapter_is_that_of_the_command():
    name = re.search(r"make chapter NAME=(\S+)", GUIDE)[1]
    assert f"book/{name}.md" == EXAMPLE
    assert f"`{EXAMPLE}`" in GUIDE


def test_the_guide_says_what_each_rule_of_the_recipe_asks():
    rules = [rule.__name__ for rule in NOTEBOOK_RULES + CHAPTER_RULES]
    assert re.findall(r"^\| `(\w+)` \| \w", GUIDE, re.MULTILINE) == rules


def test_the_readme_leads_to_the_guide():
    assert "](CONTRIBUTING.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


# ---- what runs at a commit -------------------------------------------------------------------


def test_no_hook_comes_from_the_network():
    assert [repository["repo"] for repository in HOOKS] == ["local"]


@pytest.mark.parametrize("hook", HOOKS[0]["hooks"], ids=lambda hook: hook["id"])
def test_each_hook_is_a_command_of_the_guide(hook):
    assert hook["language"] == "system"
    assert list(command_faults(hook["entry"])) == []
    program, *words = (word for word in hook["entry"].split() if not word.startswith("-"))
    assert any(line.startswith(" ".join([program, *words])) for line in commands(GUIDE))


def test_the_recipe_runs_when_a_chapter_changed():
    (recipe,) = (hook for hook in HOOKS[0]["hooks"] if hook["id"] == "recipe")
    changed = [path.relative_to(ROOT).as_posix() for path in chapters()]
    assert all(
        re.search(recipe["files"], name) for name in [*changed, "tests/recipe.py", "pyproject.toml"]
    )
    assert not re.search(recipe["files"], "src/gpt/gpt2.py")
