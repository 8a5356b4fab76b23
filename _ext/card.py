"""A card under a bold claim: what becomes of it when one thing is changed.

    :::{card} wrong-model
    :::

shows the card of this name in `results/cards/CHAPTER.json`, which `python -m experiments cards
CHAPTER` makes. A name that is not there ends the build.
"""

import json
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

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


def seeds(card):
    return max(line.get("seeds", 0) for line in card["lines"])


def as_markdown(root, page, name):
    """The card for readers of plain Markdown."""
    card, _ = kept(root, page, name)
    head = [f"**{TITLE}** {card['says'].capitalize()}, {seeds(card)} seeds:", ""]
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
            f"<tbody>{lines}</tbody></table><p>Means over {seeds(card)} seeds, with intervals of "
            f"95 %. {escape(machine)}</p></details>"
        )
        return [nodes.raw("", html, format="html")]


def setup(app):
    app.add_directive("card", Card, override=True)  # sphinx-design has one that the book never uses
