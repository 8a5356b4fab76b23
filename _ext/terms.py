"""Where is a term introduced? In the first chapter, in the order of the book, that links to it
or has it as a title, or as a part of one ("The probability of a text: the chain rule").

The glossary says so under each entry; the search (`finding.py`) leads there under each of the
entry's names. So a reader who looks for "RoPE" or "KV cache" finds the chapter, too.
"""

from docutils import nodes
from sphinx import addnodes

GLOSSARY = "book/glossary"


def note_uses(app, doctree):
    """Keep, of each term that a page links to or has as a title, the section that has it first."""
    uses = {}
    for link in doctree.findall():
        if isinstance(link, nodes.title) and isinstance(link.parent, nodes.section):
            for words in link.astext().lower().split(": "):
                uses.setdefault(words.removeprefix("the "), link.parent["ids"][0])
        elif isinstance(link, addnodes.pending_xref) and link.get("reftype") == "term":
            section = link.parent
            while not (isinstance(section, nodes.section) and section.next_node(nodes.title)):
                section = section.parent
            uses.setdefault(link["reftarget"].lower(), section["ids"][0])
    app.env.metadata[app.env.docname]["terms"] = uses


def introduced(env, names):
    """The page and the anchor where one of an entry's names is linked first, or None."""
    numbers = {page: found[""] for page, found in env.toc_secnumbers.items() if found}
    for page in sorted(numbers, key=numbers.get):  # only chapters have numbers
        anchors = env.metadata[page]["terms"]
        for name in names:
            if name.lower() in anchors:
                return page, anchors[name.lower()]
    return None


def entries(glossary):
    """The entries of the glossary, and the names of each."""
    for item in glossary.findall(nodes.definition_list_item):
        names = [child.astext() for child in item.children if isinstance(child, nodes.term)]
        if names:
            yield item, names


def say_where(app, doctree, docname):
    """Under each entry of the glossary, a link to the section that introduces it."""
    if docname != GLOSSARY:
        return
    for item, names in entries(doctree):
        if where := introduced(app.env, names):
            page, anchor = where
            number = ".".join(map(str, app.env.toc_secnumbers[page][""]))
            title = app.env.titles[page].astext().split(": ")[0]
            address = f"{app.builder.get_relative_uri(docname, page)}#{anchor}"
            link = nodes.reference("", f"{number}. {title}", refuri=address, internal=True)
            said = nodes.paragraph("", "", nodes.Text("→ "), link, classes=["introduced"])
            item.children[-1].append(said)


def setup(app):
    app.connect("doctree-read", note_uses)
    app.connect("doctree-resolved", say_where)
