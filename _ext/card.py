"""A card under a bold claim: what becomes of it when one thing is changed.

    :::{card} wrong-model
    :::

shows the card of this name in `results/cards/CHAPTER.json`, which `python -m experiments cards
CHAPTER` makes. A name that is not there ends the build.

A figure that was not computed with its page says so: where, when and in what time it was. Such a
caption ends with the word *Recorded*; the record is the first that the chapter reads.
"""

import json
import re
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

RECORD = re.compile(r'results / "(\w+)" / "result.json"')
WORD = "Recorded."
TITLE = "What would reverse this?"


def kept(root, page, name):
    """(the card of this name, how it was made)."""
    file = root / "results" / "cards" / f"{Path(page).name}.json"
    record = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"cards": {}}
    if name not in record["cards"]:
        known = ", ".join(sorted(record["cards"])) or "none"
        raise ValueError(f"{page}: expected a card of results/cards ({known}), got {name!r}")
    return record["cards"][name], record["machine"]


def rows(card):
    """(what was tried, what came of it) for each line of a card."""
    found = []
    for line in card["lines"]:
        if "mean" in line:
            digits = 2 if line["half"] >= 0.01 else 3
            value = f"{line['mean']:.{digits}f} ± {line['half']:.{digits}f}"
        else:
            value = f"not run: {line['why']}"
        found.append((line["tried"], value))
    return found


def times(card):
    """How often each line was measured."""
    return max(line.get("seeds", 0) for line in card["lines"])


def as_markdown(root, page, name):
    """The card for readers of plain Markdown."""
    card, _ = kept(root, page, name)
    head = [f"**{TITLE}** {card['says'].capitalize()}, {times(card)} seeds or texts:", ""]
    return [*head, *(f"- {tried}: {value}" for tried, value in rows(card)), ""]


class Card(SphinxDirective):
    required_arguments = 1

    def run(self):
        root = Path(self.env.app.confdir)
        page, name = self.env.docname, self.arguments[0]
        try:
            card, machine = kept(root, page, name)
        except ValueError as error:
            raise self.severe(str(error)) from error
        self.env.note_dependency(str(root / "results" / "cards" / f"{Path(page).name}.json"))
        lines = "".join(
            f"<tr><th scope='row'>{escape(tried)}</th><td>{escape(value)}</td></tr>"
            for tried, value in rows(card)
        )
        html = (
            f'<details class="claim"><summary>{TITLE}</summary><table>'
            f"<thead><tr><th>tried</th><th>{escape(card['says'])}</th></tr></thead>"
            f"<tbody>{lines}</tbody></table><p>Means over {times(card)} seeds or texts, with "
            f"intervals of 95 %. {escape(machine)}</p></details>"
        )
        return [nodes.raw("", html, format="html")]


# ---- badges --------------------------------------------------------------------------------------


def badge(name, record, place):
    """Two words on a record, and the rest of what is known of it, which a click shows."""
    said, more = "recorded", record["machine"]
    if minutes := record.get("core_minutes"):
        said += f", {minutes:.0f} min"
        more += f", {minutes:.0f} minutes of one core"
    return (
        f'<button type="button" class="recorded" popovertarget="{place}">{said}</button>'
        f'<span popover class="record" id="{place}">{escape(more)}, in results/{name}</span>'
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
    app.add_directive("card", Card, override=True)  # sphinx-design has one that the book never uses
