"""A browser, a little server, and a page with everything that happened on it.

For the tests that open the built site. Every request but those to the server of this file is
refused, and a refused request is noted.
"""

import functools
import http.server
import os
import shutil
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
NO_BROWSER = """No Chromium was found. Install it:
  Debian, Ubuntu  apt-get install chromium   (where that is a snap: `playwright install chromium`)
  Fedora          dnf install chromium
  macOS           brew install --cask chromium
or name one:      CHROMIUM=/path/to/binary make check-site"""


def find_chromium():
    """The path of a Chromium, or None: $CHROMIUM, the PATH, the usual places, Playwright's own."""
    if chosen := os.environ.get("CHROMIUM"):
        return chosen if shutil.which(chosen) else None
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    apps = [f"/Applications/{a}.app/Contents/MacOS/{a}" for a in ("Chromium", "Google Chrome")]
    return next(filter(None, map(shutil.which, (*names, *apps))), None)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def served(folder):
    """Serve a folder on this machine alone and yield its address."""
    handler = functools.partial(QuietHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class Visit:
    """One page, opened, settled, and what it asked for and complained about meanwhile."""

    def __init__(self, context, url):
        self.url, self.outside, self.errors, self.pending = url, [], [], 0
        self.asked = set()
        self.base = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}/"
        self.name = url.removeprefix(self.base)
        self.page = context.new_page()
        self.page.route("**/*", self._guard)
        for event, change in (("request", 1), ("requestfinished", -1), ("requestfailed", -1)):
            self.page.on(event, functools.partial(self._count, change))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda line: line.type == "error" and self.errors.append(line.text))
        self.page.goto(url, wait_until="load")
        # MathJax starts after the page has loaded, and says when it is done
        self.page.evaluate("() => window.MathJax?.startup?.promise")
        deadline = time.monotonic() + 10
        self.page.wait_for_timeout(100)
        while self.pending > 0 and time.monotonic() < deadline:
            self.page.wait_for_timeout(20)  # "networkidle" would cost half a second a page

    def resize(self, size):
        """Give the window a size, if it has another, and wait until the page has seen it."""
        if self.page.viewport_size == size:
            return
        self.page.set_viewport_size(size)
        self.page.evaluate(  # reader.js measures when a width has been the same for 50 ms
            "() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 60)))"
        )

    def _count(self, change, request):
        self.pending += change
        self.asked.add(urldefrag(request.url).url)

    def _guard(self, route):
        url = route.request.url
        if url.startswith((self.base, "data:", "blob:")):
            route.continue_()
        else:
            self.outside.append(url)
            route.abort()
