"""What a reader does in JupyterLab: open the contents, a chapter from there, run all, save.

The folder `lab` is a copy in a temporary folder, with the notebooks of the built site.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import lab
import pytest
from chapters import ROOT, chapters
from seen import drawn
from shown import title

pytestmark = pytest.mark.site
pytest_plugins = ["site_fixtures"]

CHAPTERS = [path.relative_to(ROOT / "book").with_suffix("").as_posix() for path in chapters()]
CHAPTERS = [name for name in CHAPTERS if "/" in name]
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

IS_OPEN = """(path) => {
    const panel = window.jupyterapp?.shell.currentWidget;
    return panel?.context?.path === path && panel.content.widgets?.length > 0;
}"""

SAVE = """async () => {
    await window.jupyterapp.commands.execute('docmanager:save');
    return window.jupyterapp.shell.currentWidget.context.model.dirty;
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A copy of the repository, as far as the folder `lab` needs it."""
    root = tmp_path_factory.mktemp("book")
    for name in ("book", "_build", "_toc.yml", ".jupyter"):
        (root / name).symlink_to(ROOT / name)
    lab.put_notebooks(root)
    return root


@pytest.fixture(scope="module")
def lab_url(folder, tmp_path_factory):
    """The address of a JupyterLab that knows the repository's settings and nobody else's."""
    home = tmp_path_factory.mktemp("home")
    own = {"JUPYTER_CONFIG_DIR": home / "config", "JUPYTER_DATA_DIR": home / "data"}
    environment = os.environ | {name: str(path) for name, path in own.items()}
    environment |= {"JUPYTER_CONFIG_PATH": str(ROOT / ".jupyter"), "PYTHONPATH": str(ROOT)}
    url = f"http://127.0.0.1:{free_port()}"
    log = home / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            lab_command(url), cwd=folder / lab.LAB, env=environment, stdout=output, stderr=output
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


@pytest.mark.parametrize("chapter", sorted(drawn(CHAPTERS, ROOT, share=50)))
def test_a_chapter_opens_from_the_contents_runs_and_is_saved(chapter, folder, lab_url, browser):
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(1000 * START_LIMIT)
    page.goto(f"{lab_url}/lab/tree/contents.md?reset", wait_until="domcontentloaded")
    name = title(ROOT / f"book/{chapter}.md")
    page.get_by_role("link", name=name, exact=True).click()
    page.wait_for_function(IS_OPEN, arg=f"{chapter}.ipynb")
    seen = page.evaluate(RUN_ALL, RUN_LIMIT)
    assert seen == {"cells": seen["cells"], "errors": [], "finished": True}
    assert seen["cells"] > 0
    assert not page.evaluate(SAVE)
    page.close()
    assert lab.put_notebooks(folder) == [f"{chapter}.ipynb"]  # it is the reader's own now
