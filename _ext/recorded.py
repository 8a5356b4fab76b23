"""A figure that was not computed with its page says so: where, when and in what time it was.

Such a caption ends with the word *Recorded*; the record is the first that the chapter reads.
"""

import json
import re
from html import escape
from pathlib import Path

from docutils import nodes

RECORD = re.compile(r'results / "(\w+)" / "result.json"')
WORD = "Recorded."


def badge(name, record, place):
    """Two words on a record, and the rest of what is known of it, which a click shows."""
    minutes = record.get("core_minutes", record.get("minutes"))
    known = [record.get("machine")]
    if "core_minutes" in record:
        known.append(f"{minutes:.0f} minutes of one core")
    said = "recorded" if minutes is None else f"recorded, {minutes:.0f} min"
    more = ", ".join([*filter(None, known), f"in results/{name}"])
    return (
        f'<button type="button" class="recorded" popovertarget="{place}">{said}</button>'
        f'<span popover class="record" id="{place}">{escape(more)}</span>'
    )


def mark(app, doctree):
    """Put a badge in place of the last word of such a caption."""
    captions = [c for c in doctree.findall(nodes.caption) if c.astext().rstrip().endswith(WORD)]
    if not captions:
        return
    page = Path(app.env.doc2path(app.env.docname))
    found = RECORD.search(page.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{page.name}: a caption says {WORD!r}, but no record is read")
    name = found[1]
    record = Path(app.srcdir, "results", name, "result.json").read_text(encoding="utf-8")
    for number, caption in enumerate(captions):
        last = list(caption.findall(nodes.Text))[-1]
        rest = last.astext().rstrip().removesuffix(WORD)
        last.parent.replace(last, nodes.Text(rest))
        html = badge(name, json.loads(record), f"recorded-{number}")
        caption += nodes.raw("", html, format="html")


def setup(app):
    app.connect("doctree-read", mark)
