"""What pages name is there: each command answers --help; paths, targets and rules exist."""

import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
from chapters import ROOT, pages
from recipe import CHAPTER_RULES, NOTEBOOK_RULES
from test_results import folders_read

SOURCES = [*pages(), *(ROOT / name for name in ("README.md", "results/README.md"))]
OURS = ("next_token", "experiments", "benchmarks")
NAMES = ["CONTRIBUTING.md", "book/architecture.md"]
GUIDE, HOUSE = (ROOT.joinpath(name).read_text(encoding="utf-8") for name in NAMES)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
MADE = {".venv", "_build/html", "_build/experiments"}  # by `make`
PATH = re.compile(r"[\w.-]+(/[\w.-]*)+|[\w.-]+\.(md|py|toml|txt|yml|yaml|bib)")


def commands(text):
    """The lines of the blocks in the language of the shell."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()


def printed(text):
    """What a page prints as a command: between backticks, in a block of the shell, of a record."""
    yield from re.findall(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)", text)
    yield from commands(text)
    if "['command']" in text:
        for name in sorted(folders_read(text) - {"benchmarks"}):
            record = (ROOT / "results" / name / "result.json").read_text(encoding="utf-8")
            yield json.loads(record)["command"]


def call_of(command):
    """The module of ours that a command runs, and its first words; None for what is not of ours."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:  # no command: an apostrophe, say
        return None
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        del words[0]
    program = Path(words[0]).name if words else None
    if program not in ("python", "python3", "torchrun", "next-token"):
        return None
    if program == "next-token":
        words[:1] = ["-m", "next_token"]
    if "-m" not in words:
        return (words[1], ()) if len(words) > 1 and words[1].endswith(".py") else None
    module, *rest = words[words.index("-m") + 1 :]
    end = next((i for i, word in enumerate(rest) if not re.fullmatch("[a-z_0-9]+", word)), None)
    return (module, tuple(rest[:end])) if module.split(".")[0] in OURS else None


def fault(call):
    """Why a call cannot be given; None if it answers --help."""
    module, words = call
    if module.endswith(".py"):
        return None if (ROOT / module).exists() else f"there is no {module}"
    try:
        folder = (ROOT / module.replace(".", "/")).is_dir()
        main = import_module(f"{module}.__main__" if folder else module).main
        main([*words, "--help"])
    except ImportError as error:
        return str(error)
    except SystemExit as end:
        return None if end.code == 0 else f"{module} does not know {' '.join(words)}"
    return f"{module} does not answer --help"


def calls(path):
    text = Path(path).read_text(encoding="utf-8")
    return {call for call in map(call_of, printed(text)) if call}


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("Say `python -m experiments gpt2`.", True),
        ("```sh\nOMP_NUM_THREADS=1 next-token train your.txt --folder run  # a run\n```", True),
        ("Say `next-token learn your.txt`.", False),
        ("Say `python -m benchmarks.gpt3`.", False),
        ('results / "gpt2" / "result.json"\nprint(recorded[\'command\'])', False),
    ],
)
def test_a_command_that_is_not_there_is_found(text, good):
    (call,) = {call for call in map(call_of, printed(text)) if call}
    assert (fault(call) is None) == good


def test_each_command_that_the_book_prints_answers_help():
    places = {call: path for path in SOURCES for call in calls(path)}
    assert {"next_token", "experiments", "experiments.challenge"} <= {
        module for module, _ in places
    }
    found = {call: f"{path.name}: {why}" for call, path in places.items() if (why := fault(call))}
    assert not found, "\n".join(found.values())


# ---- paths, targets, rules -----------------------------------------------------------------------


def missing(text):
    """What a text names in commands, between backticks or in links, and what does not exist."""
    fences = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [*commands(text), *re.findall(r"(?<!`)`([^`\n]+)`(?!`)", fences)]
    links = {each for each in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in each}
    words = {each for line in lines for each in line.split("#")[0].split() if PATH.fullmatch(each)}
    for word in sorted(words | links):
        made = word in MADE or word.startswith(".venv/bin/")
        if not made and not (ROOT / word).exists():
            yield word
    targets = re.findall(r"^make ([a-z-]+)", "\n".join(lines), re.MULTILINE)
    yield from (each for each in targets if f"\n{each}:" not in MAKEFILE)


def test_a_name_of_what_is_not_there_is_found():
    text = "[x](book/x.md), `make books`, `make book`, `a + b`\n```sh\npytest tests/test_x.py\n```"
    assert list(missing(text)) == ["book/x.md", "tests/test_x.py", "books"]


@pytest.mark.parametrize("text", [GUIDE, HOUSE], ids=NAMES)
def test_all_that_a_page_names_exists(text):
    assert list(missing(text)) == []


def test_the_guide_says_what_each_rule_of_the_recipe_asks():
    rules = [rule.__name__ for rule in NOTEBOOK_RULES + CHAPTER_RULES]
    assert re.findall(r"^\| `(\w+)` \| \w", GUIDE, re.MULTILINE) == rules
