"""What an installed package brings: the command `next-token`, its dependencies, its files."""

import ast
import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from chapters import ROOT, chapters
from dependencies import code_of, imported
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
EXTRAS = PROJECT["optional-dependencies"]
OF_CHAPTERS = [Requirement(line) for line in EXTRAS.pop("chapters")]  # `src` needs the others
DECLARED = [Requirement(line) for line in sum(EXTRAS.values(), PROJECT["dependencies"])]
NEEDED_BY_ALL = {Requirement(line).name for line in PROJECT["dependencies"]}

# ---- the command -----------------------------------------------------------------------------

PROGRAM = Path(sysconfig.get_path("scripts"), "next-token")


@pytest.fixture
def elsewhere(tmp_path):
    """A folder with a `src` of its own, which is not ours."""
    folder = tmp_path / "elsewhere"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "__init__.py").write_text("raise SystemExit('another src')\n")
    return folder


def said(command, folder):
    """Exit status and all that a command says in a folder, where an installed `src` is found."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--help"], 0, "usage: next-token [-h] command"),
        ([], 2, "required: command"),
        (["info", "nowhere"], 1, "error: "),
    ],
)
def test_the_command_says_what_it_does_or_expects_or_why_it_failed(words, status, text, tmp_path):
    found, all_said = said([PROGRAM, *words], tmp_path)
    assert found == status
    assert text in all_said


def test_the_command_works_beside_another_src(elsewhere):
    assert said([PROGRAM, "--help"], elsewhere)[0] == 0
    assert said([sys.executable, "-m", "next_token", "--help"], elsewhere) == (1, "another src\n")


# ---- dependencies ----------------------------------------------------------------------------


def outside_imports(source, *, on_import):
    """Packages beyond Python's own that some code imports: all, or only when it is imported."""
    tree = ast.parse(source)
    for node in tree.body if on_import else ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        else:
            continue
        for name in (name.split(".")[0] for name in names):
            if name not in sys.stdlib_module_names and name not in ("src", "next_token"):
                yield canonicalize_name(name)


def imported_by(paths, *, on_import=False):
    sources = (path.read_text(encoding="utf-8") for path in paths)
    return {name for each in sources for name in outside_imports(each, on_import=on_import)}


MODULES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("next_token/*.py")])


def test_outside_imports_are_found():
    source = "import ast, numpy.linalg\nfrom . import files\nfrom src import gpt\n"
    source += "def late():\n    from matplotlib_inline.config import x\n"
    assert list(outside_imports(source, on_import=False)) == ["numpy", "matplotlib-inline"]
    assert list(outside_imports(source, on_import=True)) == ["numpy"]


def test_all_that_the_packages_import_is_declared_and_nothing_else():
    plugged_in = {"backports.zstd"}  # imported by fsspec
    assert imported_by(MODULES) == {requirement.name for requirement in DECLARED} - plugged_in


def test_what_a_module_needs_to_be_imported_is_no_extra_but_for_figures():
    modules = [path for path in MODULES if path.stem != "figures"]
    assert imported_by(modules, on_import=True) - NEEDED_BY_ALL == set()


def test_all_that_chapters_import_is_in_their_extra():
    """What who has only a chapter's notebook installs."""
    [own] = [each for each in OF_CHAPTERS if each.name == PROJECT["name"]]
    assert own.extras == EXTRAS.keys()
    cells = "\n".join(code_of(path) for path in chapters() if path.stem != "architecture")
    found = set(outside_imports(cells, on_import=False))
    # tiktoken brings a package of another name; `architecture` reads the book's own sources.
    assert found - {each.name for each in DECLARED + OF_CHAPTERS} == {"tiktoken-ext"}


# ---- files -----------------------------------------------------------------------------------


def test_the_package_brings_all_its_files():
    for package, files in SETTINGS["tool"]["setuptools"]["package-data"].items():
        found = [path for path in (ROOT / package).rglob("*") if path.is_file()]
        found = [
            each for each in found if each.suffix != ".py" and each.parent.name != "__pycache__"
        ]
        assert sorted(each.relative_to(ROOT / package).as_posix() for each in found) == files


def test_each_folder_of_the_package_is_a_package():
    """setuptools would leave out a folder without `__init__.py`, and all that it holds."""
    folders = {path.parent for path in MODULES}
    assert [f for f in folders if not Path(f, "__init__.py").is_file()] == []


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda p: p.stem)
def test_a_benchmark_is_run_as_a_module_and_names_its_neighbours_so(path):
    beside = {each.stem for each in path.parent.glob("*.py")}
    names = imported(path.read_text(encoding="utf-8"))
    assert not beside & {name.split(".")[0] for name in names}
