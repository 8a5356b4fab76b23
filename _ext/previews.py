"""What a link to a term, a proposition or a citation leads to, shown where the pointer rests.

The finished site knows it all: each page gets, in a `template` that no browser draws, a copy of
what its own links lead to. `_static/reader.js` shows it. So it works offline, and on a file.
"""

import re
from functools import cache
from pathlib import Path
from posixpath import dirname, join, normpath

from bs4 import BeautifulSoup

LINK = re.compile(r'<a class="reference internal" href="([^"#]*)#([^"]+)"')
BOXES = ("proof", "citation")  # classes; beside them the entries of the glossary


def explained(text):
    """{anchor: what stands there, as HTML} of all that a page explains."""
    soup = BeautifulSoup(text, "html.parser")
    found = {}
    for term in soup.select("dl.glossary dt[id]"):
        found[term["id"]] = term.find_next_sibling("dd")
    for kind in BOXES:
        found.update((box["id"], box) for box in soup.select(f"div.{kind}[id]"))
    return {anchor: plain(part) for anchor, part in found.items() if part}


def plain(part):
    """A copy without anchors and links, which would lead elsewhere on another page."""
    for link in part.select(".headerlink, .introduced, .cited-in, .label"):
        link.decompose()
    for link in part.find_all("a"):
        link.unwrap()
    for node in [part, *part.find_all(id=True)]:
        del node["id"]
    inner = part.decode_contents() if part.name == "dd" else part.decode()
    return re.sub(r"[ \t\r\n]+", " ", inner).strip()  # a space that does not break stays


def with_previews(text, page, explanations):
    """A page with a template for each of its links to something that is explained.

    Args:
        page: its name below the site's folder.
        explanations: what `explained` says of the page with a given name.
    """
    made = {}
    for where, anchor in LINK.findall(text):
        target = normpath(join(dirname(page), where)) if where else page
        if (part := explanations(target).get(anchor)) is not None:
            made[f"{where}#{anchor}"] = part
    templates = "".join(
        f'<template data-preview="{link}">{part}</template>\n' for link, part in made.items()
    )
    return text.replace("</body>", f"{templates}</body>")


def finish(app, error):
    """Add to each page of the built site what its links lead to."""
    if error or app.builder.name != "html":
        return
    site = Path(app.outdir)

    @cache
    def explanations(page):
        file = site / page
        return explained(file.read_text(encoding="utf-8")) if file.is_file() else {}

    pages = [file.relative_to(site).as_posix() for file in sorted(site.glob("book/**/*.html"))]
    made = {
        page: with_previews((site / page).read_text(encoding="utf-8"), page, explanations)
        for page in pages
    }
    for page, text in made.items():
        (site / page).write_text(text, encoding="utf-8")


def setup(app):
    app.connect("build-finished", finish, priority=800)  # before the scripts are chosen, weight.py
    return {"parallel_read_safe": True, "parallel_write_safe": True}
