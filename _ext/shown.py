"""What the roles of a page show, for its notebook.

A role such as ``{ref}`masks` `` stands for a title, a number, a citation or a value. Only the
builder knows it. So it notes, for each page, what it has put there.
The notebook of a page (`plain.py`), to download and for JupyterLab, shows the same.

    roles    {":ref:`masks`": [text, address as seen from the page]}
    numbers  {"prop-shift": "Proposition 2.1"}, of boxes and figures
    glued    {"typical": "9.9e-08"}, as the cells put it out
    sections ["2", "2.1", …], the numbers of the headings in their order
"""

import re
from functools import cache

from docutils import nodes
from myst_nb.core.variables import format_plain_text
from sphinx import addnodes

REFERENCES = ("ref", "numref", "eq", "prf:ref", "term", "doc", "cite", "cite:t", "cite:p")
EXPLICIT = re.compile(r"(.+?)\s*<([^<>]+)>", re.DOTALL)  # words of one's own for a target
FENCE = re.compile(r"(`{3,}|:{3,})(?:\{([\w:-]+)\} ?(.*)|.*)")
# A fence, with the plain code that it opens; or a code span, and the name of a role before it.
SPAN = re.compile(
    r"(?m:^(`{3,}|:{3,})(?:\{[\w:-]+\}.*|[^\n{].*\n(?s:.*?)^\1|)$)"
    r"|(?:\{(?P<role>[\w:+.-]+)\})?(?<!`)(?P<mark>`+)(?!`)(?P<content>(?s:.+?))(?<!`)(?P=mark)(?!`)"
)
OPTION = re.compile(r":([\w-]+): *(.*)")
PARTS = ("exercise", "solution")  # what has its beginning and its end in different cells
PART = re.compile(r"^```\{(exercise|solution)-(start|end)\}", re.MULTILINE)
UNKNOWN = "…"  # a value that was never computed here


# ---- when the pages are made ---------------------------------------------------------------------


def on_page(app, page, notebook=None):
    """All that the builder has put for the roles of a page.

    It resolves the page's references once more, each of them in a holder from which its text can
    be taken: the page itself stays as it is.
    """
    tree, holders = app.env.get_doctree(page), []
    for reference in list(tree.findall(addnodes.pending_xref)):
        if reference.rawsource:
            holder = nodes.inline(reference.rawsource)
            reference.replace_self(holder)
            holder += reference
            holders.append(holder)
    app.env.apply_post_transforms(tree, page)
    roles = {_single(each.rawsource): [markdown(each), address(each)] for each in holders}
    sections = app.env.toc_secnumbers.get(page, {}).values()
    return {
        "roles": roles,
        "numbers": numbers(app.env, page),
        "glued": glued_in(notebook),
        "sections": [".".join(map(str, each)) for each in sections],
    }


def markdown(node):
    """The text below a node, with the marks of Markdown."""
    match node:
        case nodes.Text():
            return node.astext()
        case nodes.math():
            return f"${node.astext()}$"
        case nodes.literal() if not node.next_node(nodes.reference):
            own = {"xref", "std-numref"} & set(node["classes"])  # set as code by the builder only
            return node.astext() if own else f"`{node.astext()}`"
        case nodes.emphasis():
            return f"*{node.astext()}*"
    return "".join(map(markdown, node.children))


def address(node):
    """Where the first link below a node leads, or nothing."""
    for link in node.findall(nodes.reference):
        return link.get("refuri") or f"#{link['refid']}"
    return ""


def numbers(env, page):
    """{label: name and number} of the boxes and figures of a page."""
    return {
        label: f"{kind.capitalize()} {'.'.join(map(str, number))}"
        for kind, found in env.toc_fignumbers.get(page, {}).items()
        for label, number in found.items()
    }


def glued_in(notebook):
    """{name: text} of what the cells of a notebook have glued."""
    found = {}
    for cell in notebook.cells if notebook else ():
        for output in cell.get("outputs", ()):
            kept = output.get("metadata", {}).get("scrapbook")
            if kept:
                found[kept["name"]] = output.data[f"{kept['mime_prefix']}text/plain"]
    return found


# ---- wherever it is read -------------------------------------------------------------------------


def reference(shown, role, content):
    """(text, address from the page) of a reference."""
    return tuple(shown["roles"][f":{role}:`{_single(content)}`"])


def value(shown, content):
    """The text that a glued value shows, or None: `content` is a name, and a format if need be."""
    name, _, form = content.rpartition(":") if ":" in content else (content, "", "s")
    text = shown["glued"].get(name)
    return None if text is None else format_plain_text(text, form)


def replaced(source, show):
    """Markdown with each role replaced by what `show(role, content)` says, None for itself."""

    def role_or_code(match):
        new = show(match["role"], match["content"]) if match["role"] else None
        return match[0] if new is None else new

    return SPAN.sub(role_or_code, source)


@cache
def title(path):
    """The first heading of a page."""
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else path.stem


def _single(text):
    """A text on one line."""
    return " ".join(text.split())


# ---- what both kinds of notebooks need -----------------------------------------------------------


def option(options, name):
    """One of the options of a box, from the lines that hold them."""
    found = (OPTION.fullmatch(each).groups() for each in options)
    return next((value for key, value in found if key == name), "")


def fold(notebook):
    """Fold the cells that the page folds: those of solutions, of figures, and of imports."""
    inside = None
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            for kind, what in PART.findall(cell["source"]):
                inside = kind if what == "start" else None
        elif cell["cell_type"] == "code":
            solves = inside == "solution"
            tags = {"hide-input", "hide-cell"} & set(cell["metadata"].get("tags", ()))
            if solves or tags or sets_up(cell["source"]):
                hidden = {"source_hidden": True} | ({"outputs_hidden": True} if solves else {})
                cell["metadata"]["jupyter"] = cell["metadata"].get("jupyter", {}) | hidden


def sets_up(source):
    """Does a cell set up a chapter, and show nothing? Half of it or more are imports."""
    blocks = re.findall(r"^(?:import|from) (?:.*\([^)]*\)|.*)$", source, re.MULTILINE)
    lines = [line for line in source.split("\n") if line.strip()]
    imports = sum(block.count("\n") + 1 for block in blocks)
    return imports > 0 and 2 * imports >= len(lines) and not re.search(r"print\(|assert ", source)


def caption(cell, numbers):
    """The caption of a cell's figure, with its number in the book, or None."""
    figure = cell["metadata"].get("mystnb", {}).get("figure", {})
    if "caption" not in figure:
        return None
    return f"**{numbers.get(figure.get('name'), 'Figure')}.** {_single(figure['caption'])}"
