"""What the roles of a page show, for its notebook.

A role such as ``{ref}`masks` `` stands for a title, a number, a citation or a value. Only the
builder knows it. So it notes, for each page, what it has put there.
The notebook of a page (`plain.py`), to download and for JupyterLab, shows the same.

    roles    {":ref:`masks`": [text, address as seen from the page]}
    numbers  {"prop-shift": "Proposition 2.1"}, of boxes and figures
    glued    {"typical": "9.9e-08"}, as the cells put it out
    sections ["2", "2.1", …], the numbers of the headings in their order
"""

from docutils import nodes
from sphinx import addnodes


def on_page(app, page, notebook):
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
    roles = {" ".join(each.rawsource.split()): [markdown(each), address(each)] for each in holders}
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
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            kept = output.get("metadata", {}).get("scrapbook")
            if kept:
                found[kept["name"]] = output.data[f"{kept['mime_prefix']}text/plain"]
    return found
