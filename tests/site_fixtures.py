"""What the tests of the built site share: a browser, the address of the site, a context.

A plug-in and no conftest.py: that name belongs to the one in the root, which tests import.
"""

import os
from pathlib import Path

import browsing
import pytest


@pytest.fixture(scope="module")
def browser():
    """Chromium, wherever it is."""
    from playwright.sync_api import sync_playwright  # only the tests of the site need it

    with sync_playwright() as playwright:
        path = browsing.find_chromium()
        own = Path(playwright.chromium.executable_path)
        if path is None and own.exists() and "CHROMIUM" not in os.environ:
            path = str(own)
        if path is None:
            pytest.fail(browsing.NO_BROWSER, pytrace=False)
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def address():
    """The built site, served on this machine."""
    if not (browsing.SITE / "genindex.html").is_file():
        pytest.fail("no site in _build/html: run `make book` first", pytrace=False)
    with browsing.served(browsing.SITE) as address:
        yield address


@pytest.fixture(scope="module")
def context(browser):
    """A desk's window."""
    context = browser.new_context(viewport=browsing.DESK, accept_downloads=True)
    context.set_default_timeout(20_000)
    yield context
    context.close()
