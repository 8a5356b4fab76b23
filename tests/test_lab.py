"""What `make lab` puts before a reader: contents that lead to every notebook, and these run.

The folder `lab` is a copy in a temporary folder, with the notebooks of the built site.
"""

import re

import lab
import nbformat
import pytest
from chapters import ROOT
from nbclient import execute
from prerequisites import chapters
from seen import drawn

pytestmark = pytest.mark.site

NAMES = [lab.notebook_of(each.page) for each in chapters(ROOT)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A copy of the repository, as far as the folder `lab` needs it."""
    root = tmp_path_factory.mktemp("book")
    for name in ("book", "_build", "_toc.yml"):
        (root / name).symlink_to(ROOT / name)
    lab.put_notebooks(root)
    return root


def test_the_contents_lead_to_every_notebook(folder):
    contents = (folder / lab.LAB / "contents.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((.+?)\)", contents) == NAMES
    assert all((folder / lab.LAB / name).is_file() for name in NAMES)


@pytest.mark.parametrize("name", drawn(NAMES, ROOT, share=50))
def test_a_notebook_runs_and_once_saved_is_the_readers_own(name, folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    file = folder / lab.LAB / name
    notebook = nbformat.read(file, as_version=4)
    execute(notebook, cwd=str(file.parent), timeout=300)  # fails where a cell does
    before = {*lab.put_notebooks(folder)}  # those that another draw has saved
    nbformat.write(notebook, file)
    assert {*lab.put_notebooks(folder)} - before == {name}
