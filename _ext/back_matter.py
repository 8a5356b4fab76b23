"""What stands at the back leads on, and keeps for itself what few readers ask for.

* `lead_on`: the bibliography names the chapters that cite a work, and links to arXiv.
* `fold_assertions`: in the table of topics, what is asserted opens on a click.
"""

import re

from docutils import nodes

BIBLIOGRAPHY = "book/bibliography"
ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


def chapters_citing(env):
    """{id of an entry: names of the pages that cite it, in the book's order}."""
    cite = env.get_domain("cite")
    pages = {}
    for place in cite.citation_refs:
        for target in place.targets:
            pages.setdefault(target.key, set()).add(place.docname)
    numbers = env.toc_secnumbers
    in_order = {
        key: sorted((p for p in found if numbers.get(p)), key=lambda p: numbers[p][""])
        for key, found in pages.items()
    }
    return {entry.citation_id: in_order.get(entry.key, []) for entry in cite.citations}


def lead_on(app, doctree, docname):
    """Below each entry the chapters that cite it; a number of arXiv becomes a link."""
    if docname != BIBLIOGRAPHY:
        return
    citing = chapters_citing(app.env)
    for entry in doctree.findall(nodes.citation):
        for text in list(entry.findall(nodes.Text)):
            text.parent.replace(text, linked(text.astext()))
        if pages := citing[entry["ids"][0]]:
            said = nodes.paragraph("", "Cited in ", classes=["cited-in"])
            for page in pages:
                said += [*([nodes.Text(", ")] if len(said) > 1 else []), link(app, page)]
            entry += said


def link(app, page):
    number = ".".join(map(str, app.env.toc_secnumbers[page][""]))
    title = app.env.titles[page].astext()
    address = app.builder.get_relative_uri(BIBLIOGRAPHY, page)
    return nodes.reference("", number, refuri=address, internal=True, reftitle=title)


def linked(text):
    """The text as nodes, each number of arXiv in it a link."""
    made, end = [], 0
    for found in ARXIV.finditer(text):
        made.append(nodes.Text(text[end : found.start()]))
        made.append(nodes.reference("", found[0], refuri=f"https://arxiv.org/abs/{found[1]}"))
        end = found.end()
    return [*made, nodes.Text(text[end:])]


def fold_assertions(app, doctree, docname):
    """Put the last column of a table of topics behind a fold."""
    for table in doctree.findall(nodes.table):
        for row in table.findall(nodes.row) if "topics" in table["classes"] else ():
            if isinstance(row.parent, nodes.tbody):
                entry = row.children[-1]
                opening = "<details><summary>assertion</summary>"
                entry.insert(0, nodes.raw("", opening, format="html"))
                entry.append(nodes.raw("", "</details>", format="html"))


def setup(app):
    app.connect("doctree-resolved", lead_on)
    app.connect("doctree-resolved", fold_assertions)
