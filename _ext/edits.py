"""After an edit of a page: is it written alone, or do other pages show what has changed?

Sphinx reads again what was edited, and writes that. But each page shows the titles and the reading
times of all chapters, and many show the numbers of others, their propositions, or entries of the
glossary. If one of these is another than at the build before, every page is written.
"""

from pathlib import Path

from back_matter import BIBLIOGRAPHY
from dependencies import digest
from docutils import nodes
from prerequisites import chapters
from terms import GLOSSARY

BACK = {BIBLIOGRAPHY, GLOSSARY}  # which lead to the chapters that use what stands there


def note_boxes(app, doctree):
    """Keep what previews on other pages show of a page: its propositions, its glossary."""
    kinds = {"proof", "glossary"}
    found = (each for each in doctree.findall(nodes.Element) if kinds & set(each["classes"]))
    app.env.metadata[app.env.docname]["boxes"] = [each.pformat() for each in found]


def shown_elsewhere(app):
    """A text that changes when something changes that other pages show."""
    env = app.env
    tables = [
        *(table for name in ("std", "math", "py") for table in env.get_domain(name).data.values()),
        {page: contents.astext() for page, contents in env.tocs.items()},
        {each.page: each.minutes for each in chapters(Path(app.confdir))},
        {page: kept["boxes"] for page, kept in env.metadata.items()},
        *(env.toc_secnumbers, env.toc_fignumbers),
    ]
    tables = [sorted(map(repr, table.items())) for table in tables if isinstance(table, dict)]
    return digest(repr(tables))


def pages_to_write(app, env):
    before, env.shown_elsewhere = getattr(env, "shown_elsewhere", None), shown_elsewhere(app)
    return BACK & env.found_docs if before == env.shown_elsewhere else env.found_docs


def setup(app):
    app.connect("doctree-read", note_boxes)
    app.connect("env-get-updated", pages_to_write, priority=900)  # once all is numbered
