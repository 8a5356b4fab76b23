"""Records and texts of the book are found in a checkout, and in what a wheel installs anywhere."""

import shutil
import subprocess
import sys

import nbformat
import plain
import pytest
from chapters import ROOT
from jupytext.myst import myst_to_notebook
from kernels import use_local_sockets
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell
from test_notebooks import ANY

from src.tools import places
from src.tools.places import place_of

BUILT_FROM = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md")
BUILT_FROM += ("src", "results", "book", "live")
INSTALL = ("install", "--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
LIMIT = 300  # seconds for a cell
# Chapters that run in seconds: one reads texts of its own, one what was recorded.
CHAPTERS = ("tokens/segmentation", "tokens/fast_bpe")
WHERE = "import src\nfrom pathlib import Path\nprint(src.__file__, sorted(Path().iterdir()))"


def test_a_checkout_has_its_records_beside_src():
    assert place_of("results") == ROOT / "results"
    assert place_of("book/tokens/sentences_en.txt").is_file()


def test_what_a_wheel_carries_goes_before_what_lies_beside_it(tmp_path, monkeypatch):
    package = tmp_path / "src"
    monkeypatch.setattr(places, "PACKAGE", package)
    beside, carried = tmp_path / "results", package / "_book" / "results"
    beside.mkdir()
    package.mkdir()
    assert place_of("results") == beside
    carried.mkdir(parents=True)
    assert place_of("results") == carried


def test_what_is_missing_is_named():
    with pytest.raises(FileNotFoundError, match=r"expected results/none of the book"):
        place_of("results/none")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the package as a wheel brings it, built from a copy of the checkout."""
    copy, folder = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("installed")
    made = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "*.egg-info")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=made)
        else:
            shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", *INSTALL, "--target", str(folder), str(copy)]
    subprocess.run(command, check=True)
    shutil.rmtree(copy)  # nothing may be found there
    return folder


def test_a_wheel_carries_all_records_and_texts(installed):
    carried = installed / "src" / "_book"
    found = {path.relative_to(carried) for path in carried.rglob("*") if path.is_file()}
    wanted = [*(ROOT / "results").rglob("*"), *(ROOT / "book").rglob("*.txt")]
    wanted += (ROOT / "live").iterdir()
    assert found == {path.relative_to(ROOT) for path in wanted if path.is_file()}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_notebook_to_download_runs_in_an_empty_folder(chapter, installed, tmp_path, monkeypatch):
    page = f"book/{chapter}"
    notebook = myst_to_notebook((ROOT / f"{page}.md").read_text(encoding="utf-8"))
    made = plain.notebook(notebook, ANY, page, ROOT, "The Next Token")
    made.cells.append(new_code_cell(WHERE))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    use_local_sockets()
    NotebookClient(made, timeout=LIMIT, kernel_name="python3").execute(cwd=str(tmp_path / "empty"))
    nbformat.validate(made)
    said = [each.text for each in made.cells[-1].outputs]  # a line may come in two
    assert "".join(said) == f"{installed / 'src' / '__init__.py'} []\n"
