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


def test_the_command_works_beside_another_src(elsewhere):
    assert said([PROGRAM, "--help"], elsewhere)[0] == 0
    assert said([sys.executable, "-m", "next_token", "--help"], elsewhere) == (1, "another src\n")


# ---- dependencies ----------------------------------------------------------------------------


def outside(source):
    """Packages beyond Python's own that some code imports."""
    names = {
        name.split(".")[0] for name in imported(source, ("src", "src"))
    } - sys.stdlib_module_names
    return {canonicalize_name(name) for name in names - {"src", "next_token", ""}}


def on_import(source):
    """What some code imports when it is imported itself."""
    body = [
        node for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    return ast.unparse(ast.Module(body, []))


MODULES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("next_token/*.py")])


SOURCES = {path: path.read_text(encoding="utf-8") for path in MODULES}


def test_all_that_the_packages_import_is_declared_and_nothing_else():
    found = set().union(*map(outside, SOURCES.values()))
    plugged_in = {"backports.zstd"}  # imported by fsspec
    assert found == {requirement.name for requirement in DECLARED} - plugged_in


def test_what_a_module_needs_to_be_imported_is_no_extra_but_for_figures():
    sources = [on_import(text) for path, text in SOURCES.items() if path.stem != "figures"]
    assert set().union(*map(outside, sources)) <= NEEDED_BY_ALL


def test_all_that_chapters_import_is_in_their_extra():
    """What who has only a chapter's notebook installs."""
    [own] = [each for each in OF_CHAPTERS if each.name == PROJECT["name"]]
    assert own.extras == EXTRAS.keys()
    cells = "\n".join(code_of(path) for path in chapters() if path.stem != "architecture")
    found = outside(cells)
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
