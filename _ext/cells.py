"""Cells as the page shows them: what a reader need not read steps back, and opens on a click.

* `fold_cells`: on a chapter's page the cells tagged `key` are open, and all other code stands
  behind a bar that says what it holds. Of an open cell the lines that only assert, or give numbers
  to the text, are behind a bar of their own, "checked: n assertions hold". A hidden input stands
  below what it shows: a reader sees the figure first. Exercises and solutions stay as they are.
* `shorten_tracebacks`: of an intended error the page shows what went wrong, and no folder of the
  machine on which it did. The notebook that one can save has all of it.
"""

import ast
import re
from html import escape

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

WHAT = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Warning|Exit)?(: |$)")
KEY = "tag_key"  # the class of a cell with this tag


def sets_up(source):
    """Does a cell set up a chapter, and show nothing? Half of it or more are imports."""
    blocks = re.findall(r"^(?:import|from) (?:.*\([^)]*\)|.*)$", source, re.MULTILINE)
    lines = [line for line in source.split("\n") if line.strip()]
    imports = sum(block.count("\n") + 1 for block in blocks)
    return imports > 0 and 2 * imports >= len(lines) and not re.search(r"print\(|assert ", source)


def is_glue(node):
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id="glue"))):
            return True
    return False


def is_quiet(statement):
    """Does it only assert or glue?"""
    inner = statement.body if isinstance(statement, ast.For) else [statement]
    return all(isinstance(each, ast.Assert) or is_glue(each) for each in inner)


def parted(code):
    """(code that does something, code that only asserts or glues), each with its own comments."""
    lines, quiet = code.split("\n"), set()
    try:
        statements = ast.parse(code).body
    except SyntaxError:  # a magic command
        return code, ""
    for each in filter(is_quiet, statements):
        first = each.lineno - 1
        while first and lines[first - 1].startswith("#"):
            first -= 1
        quiet |= set(range(first, each.end_lineno))
    open_, shut = (
        [line for i, line in enumerate(lines) if (i in quiet) == which] for which in (False, True)
    )
    text = re.sub(r"\n{4,}", "\n\n\n", "\n".join(open_))
    return text.strip("\n"), "\n".join(shut)


def checked(code):
    """What stands on the bar in place of code that only asserts or glues."""
    found = list(ast.walk(ast.parse(code)))
    asserted = sum(isinstance(one, ast.Assert) for one in found)
    if asserted:
        return f"checked: {count(asserted, 'assertion')} {'holds' if asserted == 1 else 'hold'}"
    return f"{count(sum(map(is_glue, found)), 'number')} for the text"


def count(number, word):
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def contents(code, what="Code"):
    """What stands on the bar in place of other code."""
    named = re.findall(r"^(?:def|class) (\w+)", code, re.MULTILINE)
    lines = count(sum(bool(line.strip()) for line in code.split("\n")), "line")
    return f"{what}: {', '.join(named)}, {lines}" if named else f"{what}, {lines}"


def set_code(block, code):
    block.rawsource, block.children = code, [nodes.Text(code)]


def folded(source, code, title, *kinds):
    """A bar with this title, behind which some code of a cell stands, as nodes."""
    block = source.next_node(nodes.literal_block).copy()
    set_code(block, code)
    kinds = " ".join(["hide", *kinds])
    opens = f'<details class="{kinds}"><summary>{escape(title)}</summary>'
    return [
        nodes.raw("", opens, format="html"),
        nodes.container("", block, **source.attributes),
        nodes.raw("", "</details>", format="html"),
    ]


def fold_cells(document):
    """Put the code of a page behind bars, but for what a reader should read."""
    cells = [
        each
        for each in document.findall(nodes.container)
        if each.get("nb_element") == "cell_code" and each.children
    ]
    of_a_chapter = any(KEY in each["classes"] for each in cells)
    for cell in cells:
        fold(cell, of_a_chapter)


def fold(cell, of_a_chapter):
    source, hidden = cell.children[0], cell.get("hide_mode")
    if source.get("nb_element") != "cell_code_source" or hidden not in (None, "input"):
        return
    code = source.astext()
    does, checks = parted(code)
    teaches = KEY in cell["classes"]
    if teaches and (not does or "tag_raises-exception" in cell["classes"]):
        return  # here the assertion is what teaches
    figure = "figure" in cell.get("cell_metadata", {}).get("mystnb", {})
    bars = []
    if len(cell.children) == 1 and sets_up(code) and not teaches:
        bars = folded(source, code, "Set-up", "sets-up")
    elif checks and not does:
        bars = folded(source, code, checked(code), "checks")
    elif hidden:
        bars = folded(source, code, contents(code, "The figure's code" if figure else "Code"))
    elif of_a_chapter and not asks(cell):
        if not teaches:
            bars = folded(source, does, contents(does))
        if checks:
            bars += folded(source, checks, checked(checks), "checks")
    if not bars:
        return
    if teaches:
        set_code(source.next_node(nodes.literal_block), does)
    else:
        cell.remove(source)
    if hidden or teaches:
        cell.extend(bars)
    else:  # where the code stood
        cell.insert(0, bars)
    cell["hide_mode"] = None


def asks(cell):
    """Does a cell stand in an exercise or in a solution?"""
    above = cell.parent
    while above is not None:
        if {"exercise", "solution"} & set(above.get("classes", ())):
            return True
        above = above.parent
    return False


class FoldCells(SphinxPostTransform):
    default_priority = 198  # before the builder's own, which would put a hidden input first

    def run(self, **kwargs):
        fold_cells(self.document)


def shorten_tracebacks(app, doctree):
    """Leave of each traceback the exception and its message."""
    for block in doctree.findall(nodes.literal_block):
        if "traceback" in block["classes"]:
            lines = block.astext().rstrip().split("\n")
            last = max((i for i, line in enumerate(lines) if WHAT.match(line)), default=0)
            text = "\n".join(lines[last:])
            block.rawsource = text
            block.children = [nodes.Text(text)]


def setup(app):
    app.add_post_transform(FoldCells)
    app.connect("doctree-read", shorten_tracebacks)
