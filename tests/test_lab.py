"""A chapter opens in JupyterLab as a notebook, runs there, and is saved without a change.

What a reader does: double-click the chapter, *Run All Cells*, *Save*, look at ``git diff``.
The browser works on a copy of the book, so the checkout is never touched.
"""

import difflib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from chapters import ROOT, chapters

pytestmark = pytest.mark.site

CHAPTERS = [path.relative_to(ROOT).as_posix() for path in chapters()]
START_LIMIT = 60  # seconds for the server, and again for a chapter to open
RUN_LIMIT = 300  # seconds for all the cells of a chapter

RUN_ALL = """async (seconds) => {
    const panel = window.jupyterapp.shell.currentWidget;
    await panel.sessionContext.ready;
    const code = [...panel.content.model.cells].filter(
        cell => cell.type === 'code' && cell.sharedModel.source.trim());
    const errors = () => code
        .filter(cell => !(cell.getMetadata('tags') || []).includes('raises-exception'))
        .flatMap(cell => cell.outputs.toJSON())
        .filter(output => output.output_type === 'error')
        .map(output => `${output.ename}: ${output.evalue}`);
    const waiting = () => code.some(cell => cell.executionCount === null);
    await window.jupyterapp.commands.execute('notebook:run-all-cells');
    // the command is over at the first error, even an intended one; the cells after it still run
    const deadline = Date.now() + 1000 * seconds;
    while (waiting() && !errors().length && Date.now() < deadline)
        await new Promise(resolve => setTimeout(resolve, 100));
    return {cells: code.length, errors: errors(), finished: !waiting()};
}"""

SAVE = """async () => {
    await window.jupyterapp.commands.execute('docmanager:save');
    return window.jupyterapp.shell.currentWidget.context.model.dirty;
}"""


@pytest.fixture(scope="module")
def lab_root(tmp_path_factory):
    """A copy of what JupyterLab needs: the book and the two settings of the repository."""
    folder = tmp_path_factory.mktemp("lab")
    backups = shutil.ignore_patterns(".ipynb_checkpoints")
    shutil.copytree(ROOT / "book", folder / "book", ignore=backups)
    shutil.copytree(ROOT / ".jupyter", folder / ".jupyter")
    shutil.copy(ROOT / "jupytext.toml", folder)
    return folder


@pytest.fixture(scope="module")
def lab_url(lab_root, tmp_path_factory):
    """The address of a JupyterLab that knows the repository's settings and nobody else's."""
    home = tmp_path_factory.mktemp("home")
    own = {"JUPYTER_CONFIG_DIR": home / "config", "JUPYTER_DATA_DIR": home / "data"}
    environment = os.environ | {name: str(path) for name, path in own.items()}
    environment["JUPYTER_CONFIG_PATH"] = str(lab_root / ".jupyter")
    url = f"http://127.0.0.1:{free_port()}"
    log = home / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            lab_command(url), cwd=lab_root, env=environment, stdout=output, stderr=output
        )
    try:
        wait_until_up(url, server, log)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=START_LIMIT)


def lab_command(url):
    host, port = url.removeprefix("http://").split(":")
    options = ["--no-browser", f"--ip={host}", f"--port={port}", "--ServerApp.port_retries=0"]
    options += ["--IdentityProvider.token=", "--expose-app-in-browser"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")
    return [sys.executable, "-m", "jupyterlab", *options]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_up(url, server, log):
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/api", timeout=5).close()
            return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.3)
    pytest.fail(f"JupyterLab did not start within {START_LIMIT} s:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = shutil.which("chromium")  # else the browser that playwright installed for itself
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def open_by_double_click(page, url, chapter):
    """Walk down the file browser to the chapter and double-click it."""
    page.goto(f"{url}/lab?reset", wait_until="domcontentloaded")
    for name in chapter.split("/"):
        exactly = re.compile(f"^{re.escape(name)}$")
        entry = page.locator(".jp-DirListing-itemName").filter(has_text=exactly)
        entry.first.dblclick(timeout=1000 * START_LIMIT)
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=1000 * START_LIMIT)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_runs_in_jupyterlab_and_is_saved_unchanged(chapter, lab_root, lab_url, browser):
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    try:
        open_by_double_click(page, lab_url, chapter)
        seen = page.evaluate(RUN_ALL, RUN_LIMIT)
        assert not seen["errors"], f"{chapter}: Run All Cells gave {seen['errors']}"
        assert seen["finished"], f"{chapter}: cells were still waiting after {RUN_LIMIT} s"
        assert seen["cells"] > 0, f"{chapter}: JupyterLab found no code cell"
        assert not page.evaluate(SAVE), f"{chapter}: JupyterLab did not save it"
    finally:
        page.close()
    changes = "".join(git_diff(lab_root, chapter))
    assert not changes, f"Save changed {chapter}; put the chapter into this form:\n{changes}"


def git_diff(lab_root, chapter):
    """The lines by which the saved chapter differs, line ends included."""
    before, after = (read_bytes_as_text(root / chapter) for root in (ROOT, lab_root))
    lines = (text.splitlines(keepends=True) for text in (before, after))
    return difflib.unified_diff(*lines, fromfile=chapter, tofile=f"{chapter}, saved")


def read_bytes_as_text(path):
    return path.read_bytes().decode("utf-8")


def test_there_are_chapters_to_open():
    assert CHAPTERS, "expected MyST notebooks in book/, found none"
