"""A picture of what builds on what, drawn from the chapters' own lines *You need*.

The directive `prerequisites` becomes a list of all chapters, each a link, in the order of the book.
A line leads from a chapter to each one that it names in its first sentence after *You need*. (What
comes ready-made is said in a second.) What follows through other chapters is left out: if C needs
B, and B needs A, no line leads from C to A.
"""

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

TIME = re.compile(r"\*\*Time\*\*.*?(\d+) minutes? to read", re.DOTALL)
LABEL = re.compile(r"\{ref\}`(?:[^`<]*<)?([\w-]+)>?`")
ROW, TOP, NAMES, WIDTH = 31, 20, 196, 640  # px of the picture; names begin at NAMES


@dataclass(frozen=True)
class Chapter:
    """A chapter: its page, as Sphinx names it, the labels of the chapters that it needs, and the
    minutes that its own box says reading takes."""

    page: str
    part: int
    needs: frozenset
    minutes: int

    @property
    def label(self):
        return Path(self.page).name


def chapters(root):
    """The chapters in the order of the book; those of unnumbered parts are none."""
    contents = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    parts = [part for part in contents["parts"] if part["numbered"]]
    pages = [(i, each["file"]) for i, part in enumerate(parts) for each in part["chapters"]]
    labels = {Path(page).name for _, page in pages}
    found = []
    for part, page in pages:
        text = (root / f"{page}.md").read_text(encoding="utf-8")
        said = re.search(r"\*\*You need\*\*(.*?)(?:\.\s|\n\n)", text, re.S)
        named = set(LABEL.findall(said[1])) if said else set()
        time = TIME.search(text)
        if not time:
            raise ValueError(f"{page}: expected '**Time**: … minutes to read' in its first box")
        found.append(Chapter(page, part, frozenset(named & labels), int(time[1])))
    return found


def hours(found):
    """How long it takes to read some chapters, to half an hour."""
    return round(sum(each.minutes for each in found) / 30) / 2


def reduced(needs):
    """{label: needs} without what follows through others; the needs must not run in a circle."""

    def all_below(label, above=()):
        if label in above:
            raise ValueError(f"expected no circle, got {' needs '.join([*above, label])}")
        return {b for a in needs[label] for b in (a, *all_below(a, (*above, label)))}

    below = {label: all_below(label) for label in needs}
    return {a: {b for b in needs[a] if not any(b in below[c] for c in needs[a])} for a in needs}


def drawing(found, titles, addresses):
    """The picture as SVG, from chapters, their titles and their addresses, by label."""
    needs = reduced({each.label: each.needs for each in found})
    place = {each.label: TOP + ROW * i for i, each in enumerate(found)}
    lines = [
        f'<svg class="prerequisites" viewBox="0 0 {WIDTH} {ROW * len(found) + 16}" role="group" '
        'aria-label="All chapters; a line leads from each to those that it needs">'
    ]
    for number, each in enumerate(found, 1):
        y, title = place[each.label], escape(titles[each.label])
        lines.append(f'<g class="part-{each.part}">')
        for label in sorted(needs[each.label], key=place.__getitem__):
            x, reach = NAMES - 14, min((y - place[label]) * 0.7, (NAMES - 20) * 4 / 3)
            bend = f"C {x - reach:.0f} {y}, {x - reach:.0f} {place[label]}, {x} {place[label]}"
            lines.append(f'<path d="M {x} {y} {bend}"/>')
        lines += [
            f'<a href="{escape(addresses[each.label])}"><circle cx="{NAMES - 9}" cy="{y}" r="4"/>',
            f'<text x="{NAMES + 6}" y="{y + 6}"><tspan>{number}</tspan> {title}</text></a></g>',
        ]
    return "\n".join([*lines, "</svg>"])


class prerequisites(nodes.Element):  # noqa: N801  docutils names its nodes so
    """Where the picture will stand, once all titles are known."""


class Prerequisites(SphinxDirective):
    def run(self):
        root = Path(self.env.app.confdir)
        node = prerequisites()
        node["chapters"] = chapters(root)
        for each in node["chapters"]:  # the page is written anew when one of them changes
            self.env.note_dependency(str(root / f"{each.page}.md"))
        return [node]


def draw(app, doctree, docname):
    """Put the picture in place; only pages in a browser have one."""
    for node in list(doctree.findall(prerequisites)):
        titles, addresses = {}, {}
        for each in node["chapters"] if app.builder.format == "html" else ():
            titles[each.label] = app.env.titles[each.page].astext().split(": ")[0]
            addresses[each.label] = app.builder.get_relative_uri(docname, each.page)
        svg = drawing(node["chapters"], titles, addresses) if titles else ""
        node.replace_self([nodes.raw("", svg, format="html")] if svg else [])


def setup(app):
    app.add_node(prerequisites)
    app.add_directive("prerequisites", Prerequisites)
    app.connect("doctree-resolved", draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
