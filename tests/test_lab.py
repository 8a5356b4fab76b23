"""Every chapter opens in JupyterLab as a notebook and is saved without a change; some run there.

What a reader does: double-click the chapter, look at it, *Run All Cells*, *Save*, look at ``git
diff``. Numbers show before and after, solutions are folded, and to open a chapter is no change.
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
from contextlib import contextmanager

import pytest
from chapters import ROOT, chapters
from execute import chapters as in_order
from lab import CONTENTS
from seen import drawn
from shown import SPAN, UNKNOWN, title

pytestmark = pytest.mark.site

CHAPTERS = [path.relative_to(ROOT).as_posix() for path in chapters()]
CHAPTERS_IN_ORDER = [path.relative_to(ROOT).as_posix() for path in in_order()]
FIRST_OF_PARTS = {name.rpartition("/")[0]: name for name in reversed(CHAPTERS_IN_ORDER)}.values()
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

# What a notebook is as soon as its kernel has started: the kernel's word on itself is no change.
OPENED = """async () => {
    const panel = window.jupyterapp.shell.currentWidget;
    await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
    await new Promise(resolve => setTimeout(resolve, 500));
    const cells = [...panel.content.model.cells];
    return {
        edited: panel.context.model.dirty,
        texts: cells.filter(cell => cell.type === 'markdown').map(cell => cell.sharedModel.source),
        folded: cells.filter(cell => (cell.getMetadata('jupyter') || {}).source_hidden).length,
    };
}"""

VALUES = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
    .flatMap(cell => cell.getMetadata('user_expressions') || [])
    .map(each => [each.expression, (each.result.data || {})['text/plain']])"""

IS_OPEN = """(path) => {
    const panel = window.jupyterapp?.shell.currentWidget;
    return panel?.context?.path === path && panel.content.widgets?.length > 0;
}"""

REPLACE = """([before, after]) => {
    const cells = [...window.jupyterapp.shell.currentWidget.content.model.cells];
    const cell = cells.find(cell => cell.sharedModel.source.includes(before));
    cell.sharedModel.setSource(cell.sharedModel.source.replace(before, after));
}"""

# JupyterLab renders only what is near the window, and shows the source until it has done so.
SHOW = """async ([words, seconds]) => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    const place = notebook.widgets.findIndex(
        cell => cell.model.sharedModel.source.includes(words));
    await notebook.scrollToItem(place, 'center');
    const texts = () => [0, 1].map(more => notebook.widgets[place + more].node.innerText);
    const deadline = Date.now() + 1000 * seconds;
    let before, now = texts();
    do {
        before = now;
        await new Promise(resolve => setTimeout(resolve, 1000));
        now = texts();
    } while ((`${now}` != `${before}` || now[0].includes('{eval}')) && Date.now() < deadline);
    return now;
}"""

SAVE = """async () => {
    await window.jupyterapp.commands.execute('docmanager:save');
    return window.jupyterapp.shell.currentWidget.context.model.dirty;
}"""


TO_ROOT = "() => window.jupyterapp.commands.execute('filebrowser:go-to-path', {path: '/'})"

# An edit that was not saved is dropped; else closing would ask what to do with it.
END = """async () => {
    const panel = window.jupyterapp.shell.currentWidget;
    await panel.sessionContext.shutdown();
    panel.context.model.dirty = false;
    panel.close();
}"""


@pytest.fixture(scope="module")
def lab_root(tmp_path_factory):
    """A copy of what JupyterLab needs: the book, what its pages show, and the settings."""
    folder = tmp_path_factory.mktemp("lab")
    backups = shutil.ignore_patterns(".ipynb_checkpoints")
    shutil.copytree(ROOT / "book", folder / "book", ignore=backups)
    for name in (".jupyter", "_ext", "_build/shown"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("jupytext.toml", "_config.yml", "_toc.yml"):
        shutil.copy(ROOT / name, folder)
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


@pytest.fixture(scope="module")
def lab(lab_url, browser):
    """JupyterLab in a window, with its file browser at the root."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(f"{lab_url}/lab?reset", wait_until="domcontentloaded")
    page.wait_for_selector(".jp-DirListing-itemName", timeout=1000 * START_LIMIT)
    yield page
    page.close()


@contextmanager
def opened(chapter, page):
    """Walk down the file browser to the chapter and double-click it; its kernel ends with it."""
    page.evaluate(TO_ROOT)
    for name in chapter.split("/"):
        exactly = re.compile(f"^{re.escape(name)}$")
        entry = page.locator(".jp-DirListing-itemName").filter(has_text=exactly)
        entry.first.dblclick(timeout=1000 * START_LIMIT)
    page.wait_for_function(IS_OPEN, arg=chapter, timeout=1000 * START_LIMIT)
    try:
        yield page
    finally:
        page.evaluate(END)


@pytest.mark.parametrize(
    "chapter",
    [
        pytest.param(name, marks=[] if name in drawn(CHAPTERS, ROOT) else pytest.mark.weekly)
        for name in CHAPTERS
    ],
)
def test_a_chapter_opens_in_jupyterlab_and_is_saved_unchanged(chapter, lab_root, lab):
    with opened(chapter, lab) as page:
        first = page.evaluate(OPENED)
        assert not first["edited"], f"{chapter} counts as edited as soon as it is opened"
        shown_as_pages_are(chapter, first, page.evaluate(VALUES))
        assert not page.evaluate(SAVE), f"{chapter}: JupyterLab did not save it"
    not_changed(chapter, lab_root)


@pytest.mark.parametrize("chapter", FIRST_OF_PARTS)
def test_a_chapter_runs_in_jupyterlab_and_is_saved_unchanged(chapter, lab_root, lab):
    """The first of each part: the cells of all of them are run by nbval, in the same kernel."""
    with opened(chapter, lab) as page:
        page.evaluate(OPENED)
        seen = page.evaluate(RUN_ALL, RUN_LIMIT)
        assert not seen["errors"], f"{chapter}: Run All Cells gave {seen['errors']}"
        assert seen["finished"], f"{chapter}: cells were still waiting after {RUN_LIMIT} s"
        assert seen["cells"] > 0, f"{chapter}: JupyterLab found no code cell"
        expected = dict(page.evaluate(VALUES))
        assert None not in expected.values(), f"{chapter}: not evaluated: {expected}"
        assert not page.evaluate(SAVE), f"{chapter}: JupyterLab did not save it"
    not_changed(chapter, lab_root)


def not_changed(chapter, lab_root):
    changes = "".join(git_diff(lab_root, chapter))
    assert not changes, f"Save changed {chapter}; put the chapter into this form:\n{changes}"


def shown_as_pages_are(chapter, first, values):
    """Numbers show before anything has run, roles do not, and solutions are folded."""
    source = (ROOT / chapter).read_text(encoding="utf-8")
    assert len(values) == source.count("{glue:text}`")
    assert not [text for _, text in values if UNKNOWN in text]
    left = [found[1] for text in first["texts"] for found in SPAN.finditer(text) if found[1]]
    assert set(left) <= {"eval", "math"}, f"{chapter} shows {set(left)}"
    assert first["folded"] >= source.count("{solution-start}")


def test_a_number_is_live_and_a_solution_folded(lab):
    with opened("book/attention/attention.md", lab) as page:
        page.evaluate(OPENED)
        words = "At width 1024 the typical unscaled softmax passes"
        built, _ = page.evaluate(SHOW, [words, START_LIMIT])
        assert re.search(rf"{words} \de-\d\d of what arrives", built)
        solution, code = page.evaluate(SHOW, ["Solution to Exercise", START_LIMIT])  # the first one
        assert re.search(r"Solution to Exercise \d+\.1\b", solution)
        assert "The scores are" not in solution
        assert "assert" not in code
        page.evaluate(REPLACE, ["float(torch.tensor(typical).mean(0)[-1])", "0.25"])
        page.evaluate(RUN_ALL, RUN_LIMIT)
        live, _ = page.evaluate(SHOW, [words, START_LIMIT])
        assert f"{words} 2e-01 of what arrives" in live


def test_the_laboratory_opens_on_the_contents(lab_url, browser):
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    try:
        page.goto(lab_url, wait_until="domcontentloaded")
        page.wait_for_function(IS_OPEN, arg=str(CONTENTS), timeout=1000 * START_LIMIT)
        assert not page.evaluate(OPENED)["edited"]
        link = page.get_by_role("link", name=title(ROOT / CHAPTERS_IN_ORDER[0]), exact=True)
        link.click(timeout=1000 * START_LIMIT)
        page.wait_for_function(IS_OPEN, arg=CHAPTERS_IN_ORDER[0], timeout=1000 * START_LIMIT)
    finally:
        page.close()


def git_diff(lab_root, chapter):
    """The lines by which the saved chapter differs, line ends included."""
    before, after = (read_bytes_as_text(root / chapter) for root in (ROOT, lab_root))
    lines = (text.splitlines(keepends=True) for text in (before, after))
    return difflib.unified_diff(*lines, fromfile=chapter, tofile=f"{chapter}, saved")


def read_bytes_as_text(path):
    return path.read_bytes().decode("utf-8")


def test_there_are_chapters_to_open():
    assert CHAPTERS, "expected MyST notebooks in book/, found none"
