"""Cells as the page shows them: what a reader need not read steps back, and opens on a click.

* `FoldQuietCells`: a cell that only asserts, or gives numbers to the text, becomes a bar that says
  so; imports, and what else sets up a chapter, a bar *Set-up*. Code that its tag hides stands
  below what it shows: a reader sees the figure first.
* `shorten_tracebacks`: of an intended error the page shows what went wrong, and no folder of the
  machine on which it did. The notebook that one can save has all of it.
* `offer_switch`: a button in the header hides and shows all code; `_static/reader.js` does it.
"""

import ast
import re

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from shown import sets_up
from sphinx.transforms.post_transforms import SphinxPostTransform

WHAT = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Warning|Exit)?(: |$)")
BUTTON = {
    "type": "javascript",
    "javascript": "switchCode()",
    "tooltip": "Hide or show all code",
    "icon": "fas fa-code",
    "label": "code-button",
    "classes": "pst-navbar-icon",
}


def is_glue(node):
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id="glue"))):
            return True
    return False


def checks(code):
    """How many assertions and how many numbers for the text a cell has, if it has nothing else."""
    try:
        statements = ast.parse(code).body
    except SyntaxError:  # a magic command
        return None
    for each in statements:
        inner = each.body if isinstance(each, ast.For) else [each]
        if not all(isinstance(one, ast.Assert) or is_glue(one) for one in inner):
            return None
    found = [one for each in statements for one in ast.walk(each)]
    return sum(isinstance(one, ast.Assert) for one in found), sum(map(is_glue, found))


def bar(asserted, quoted):
    """What stands on the bar in place of such a cell."""
    if asserted:
        return (
            "checked: 1 assertion holds"
            if asserted == 1
            else f"checked: {asserted} assertions hold"
        )
    return "1 number for the text" if quoted == 1 else f"{quoted} numbers for the text"


class FoldQuietCells(SphinxPostTransform):
    """Put each cell that only asserts, quotes or sets up behind a bar, and each hidden input."""

    default_priority = 198  # before the builder's own, which would put a hidden input first
    formats = ("html",)

    def run(self, **kwargs):
        for cell in list(self.document.findall(nodes.container)):
            if cell.get("nb_element") != "cell_code" or not cell.children:
                continue
            source, hidden = cell.children[0], cell.get("hide_mode")
            if source.get("nb_element") != "cell_code_source" or hidden not in (None, "input"):
                continue
            found = checks(source.astext())
            if len(cell.children) == 1 and sets_up(source.astext()):
                says, kind = ("Set-up", "Set-up"), ["sets-up"]
            elif found and any(found):
                says, kind = (bar(*found), bar(*found)), ["checks"]
            elif hidden:
                says, kind = (cell["prompt_show"], cell["prompt_hide"]), []
            else:
                continue
            folded = HideCodeCellNode(prompt_show=says[0], prompt_hide=says[1])
            folded["classes"] += ["above-input", *kind]
            cell.remove(source)
            folded.append(source)
            cell.insert(len(cell.children) if hidden else 0, folded)
            cell["hide_mode"] = None


def shorten_tracebacks(app, doctree):
    """Leave of each traceback the exception and its message."""
    for block in doctree.findall(nodes.literal_block):
        if "traceback" in block["classes"]:
            lines = block.astext().rstrip().split("\n")
            last = max((i for i, line in enumerate(lines) if WHAT.match(line)), default=0)
            text = "\n".join(lines[last:])
            block.rawsource = text
            block.children = [nodes.Text(text)]


def offer_switch(app, pagename, templatename, context, doctree):
    if "header_buttons" in context and 'class="cell ' in (context.get("body") or ""):
        context["header_buttons"].append(BUTTON)


def setup(app):
    app.add_post_transform(FoldQuietCells)
    app.connect("doctree-read", shorten_tracebacks)
    app.connect("html-page-context", offer_switch, priority=502)  # behind the theme's own
    return {"parallel_read_safe": True, "parallel_write_safe": True}
