"""What builds on what, from the chapters' own lines *You need*.

The directive `prerequisites` becomes a list of all chapters, each a link, in the order of the book.
Behind each stand the numbers of those that it names in its first sentence after *You need*. (What
comes ready-made is said in a second.) What follows through other chapters is left out: if C needs
B, and B needs A, C does not list A.

The contents beside each page say how long reading takes: minutes at each chapter, hours at each
part. They are those that the box at the head of each chapter names, and of which the landing page
has the sum.
"""

import re
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

TIME = re.compile(r"\*\*Time\*\*.*?(\d+) minutes? to read", re.DOTALL)
LABEL = re.compile(r"\{ref\}`(?:[^`<]*<)?([\w-]+)>?`")


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


def parts(root):
    """The numbered parts in the table of contents."""
    contents = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return [part for part in contents["parts"] if part["numbered"]]


def chapters(root):
    """The chapters in the order of the book; those of unnumbered parts are none."""
    pages = [(i, each["file"]) for i, part in enumerate(parts(root)) for each in part["chapters"]]
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
    """{label: needs} without what follows through others."""

    def all_below(label):
        return needs[label].union(*map(all_below, needs[label]))

    below = {label: all_below(label) for label in needs}
    return {a: {b for b in needs[a] if not any(b in below[c] for c in needs[a])} for a in needs}


def columns(found, titles, addresses, captions):
    """The list as HTML, from chapters, their titles and addresses, by label, and parts' names."""
    needs = reduced({each.label: each.needs for each in found})
    number = {each.label: i for i, each in enumerate(found, 1)}
    lines = []
    for part, caption in enumerate(captions):
        here = [each for each in found if each.part == part]
        first = number[here[0].label]
        lines.append(f'<p class="part-{part}">{escape(caption)}</p>\n<ol start="{first}">')
        for each in here:
            below = sorted(number[label] for label in needs[each.label])
            link = f'<a href="{escape(addresses[each.label])}">{escape(titles[each.label])}</a>'
            on = f"<small>needs {', '.join(map(str, below))}</small>" if below else ""
            lines.append(f"<li>{link} {on}</li>")
        lines.append("</ol>")
    return "\n".join(['<div class="builds-on">', *lines, "</div>"])


class prerequisites(nodes.Element):  # noqa: N801  docutils names its nodes so
    """Where the list will stand, once all titles are known."""


class Prerequisites(SphinxDirective):
    def run(self):
        for each in self.env.all_chapters:  # the page is written anew when one of them changes
            self.env.note_dependency(self.env.doc2path(each.page))
        return [prerequisites()]


def put(app, doctree, docname):
    """Put the list in place."""
    for node in list(doctree.findall(prerequisites)):
        found, captions = app.env.all_chapters, [e["caption"] for e in parts(Path(app.confdir))]
        titles = {each.label: app.env.titles[each.page].astext().split(": ")[0] for each in found}
        made = columns(found, titles, addresses_from(app, docname), captions)
        node.replace_self(nodes.raw("", made, format="html"))


def addresses_from(app, docname):
    """Where a page's links to chapters lead, by label; one to itself is a mere #."""
    address = partial(app.builder.get_relative_uri, docname)
    pages = {each.label: each.page for each in app.env.all_chapters}
    return {label: "#" if page == docname else address(page) for label, page in pages.items()}


# ---- the contents --------------------------------------------------------------------------------


def with_times(contents, found, addresses):
    """The contents of the book, of which each link to a chapter says how long it takes.

    Args:
        contents: a soup, with a caption and a list for each part; it is changed.
        found: the chapters. addresses: where the link to each of them leads, by label.
    """
    chapter_at = {addresses[each.label]: each for each in found}
    for caption in contents.select("p.caption"):
        links = caption.find_next_sibling("ul").select("a[href]")
        here = [chapter_at[link["href"]] for link in links if link["href"] in chapter_at]
        if not here or caption.select(".time"):
            continue
        _say(contents, caption, f"{hours(here):g} hours")
        for link in links:
            if link["href"] in chapter_at:
                _say(contents, link, f"{chapter_at[link['href']].minutes} min")
    return contents


def _say(contents, element, time):
    said = contents.new_tag("span", attrs={"class": "time"})
    said.string = time
    element.extend([" ", said])


def add_times(app, pagename, templatename, context, doctree):
    """Let the theme's function for the contents add them."""
    make = context.get("generate_toctree_html")
    if not make:
        return
    found, addresses = app.env.all_chapters, addresses_from(app, pagename)
    context["generate_toctree_html"] = lambda *args, **options: with_times(
        make(*args, **options), found, addresses
    )


def read_chapters(app, env, docnames):
    """Once for all pages."""
    env.all_chapters = chapters(Path(app.confdir))


def setup(app):
    app.connect("env-before-read-docs", read_chapters)
    app.connect("html-page-context", add_times, priority=600)  # behind the theme, at 500
    app.add_directive("prerequisites", Prerequisites)
    app.connect("doctree-resolved", put)
