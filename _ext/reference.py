"""The reference: pages that Sphinx writes from the docstrings of `src`, a page for each module.

* `write_as_rst`: our docstrings are plain text with `names`; Sphinx reads reStructuredText. A block
  that is indented, such as an equation, stays as it is, and a name leads to what it names.
* `leave_out`, `sign`: no line on fields that a docstring lists already, no arguments of a protocol.
* `lead_to_chapters`, `lead_to_code`: from each entry to the chapter that teaches it, if its module
  names one, and from the head of each chapter to the modules behind it.
"""

import importlib
import inspect
import re
from functools import cache

from dependencies import ROOT, code_of, imported
from docutils import nodes
from sphinx import addnodes

PAGES = "book/reference/"
SECTION = re.compile(r"^(?:Args|Attributes|Raises|Returns|Warns|Yields):$", re.MULTILINE)
BLOCK = re.compile(r"(^(?: .*\n|\n(?= ))+|^>>> (?:.+\n)+)", re.MULTILINE)  # equations, examples
CODE = "\n.. code-block:: text\n\n"
QUOTED = re.compile(r"`([^`]+)`")
# A name, an emphasis, or a sign that would not stand for itself: what comes last begins no list.
MARKED = re.compile(
    r"`(?P<name>[^`]+)`"
    r"|(?<![\w*])(?P<mark>\*\*?)(?=[^\s*])(?P<stressed>[^*`]{1,99})(?<=\S)(?P=mark)(?![\w*])"
    r"|[\\|*]|(?<=\w)_(?!\w)|(?<=: )(?=\(?\w{1,3}[.)](?:\s|$))"
)
TEACHES = re.compile(r"(?:[Cc]hapters?:?|Derived in)((?:[\s,]|and|\([^)]*\)|`[\w/]+`)+)")


# ---- docstrings ----------------------------------------------------------------------------------


def as_rst(text, linked):
    """A docstring in reStructuredText; `linked` writes what stands between backticks."""
    text = text.rstrip() + "\n"
    first = SECTION.search(text)
    cut = first.start() if first else len(text)
    parts = BLOCK.split(text[:cut])
    parts[::2] = [inline(part, linked) for part in parts[::2]]
    parts[1::2] = [f"\n{'' if part[0] == '>' else CODE}{part}\n" for part in parts[1::2]]
    # without the colon napoleon would read `x: …` as a type and what is of it
    return "".join(parts) + re.sub(r"(?m)^(Returns:\n +)", r"\1: ", inline(text[cut:], linked))


def inline(text, linked):
    """Text with its names linked, its emphasis kept, and its other signs taken for signs."""

    def written(found):
        if found["name"]:
            joined = text[found.end() : found.end() + 1].isalnum()
            return linked(found["name"]) + (r"\ " if joined else "")
        if found["mark"]:
            return found["mark"] + inline(found["stressed"], linked) + found["mark"]
        return f"\\{found[0]}"

    return MARKED.sub(written, text)


@cache
def modules():
    """All modules in the rooms of `src`."""
    found = (path.relative_to(ROOT).with_suffix("").parts for path in ROOT.glob("src/*/*.py"))
    return sorted(".".join(parts) for parts in found if parts[-1] != "__init__")


def named(word, module, owner=""):
    """(kind, full name) of what a docstring means by a word; None if the reference has no such.

    A module is named as `room/name`, what is in one as `name` or `Class.name`, and if the module is
    another as `module.name`.
    """
    name = word.replace("/", ".")
    full = f"src.{name.removeprefix('src.')}"
    if full in modules():
        return "mod", full
    where, _, last = name.rpartition(".")
    tried = [(module, f"{owner}.{name}".lstrip(".")), (module, name)]
    tried += [(other, last) for other in modules() if f".{other}".endswith(f".{where}")]
    found = (documented(*each) for each in tried)
    return next((("obj", each) for each in found if each), None)


@cache
def documented(module, name):
    """The full name of a public class, function or method with a docstring, or None."""
    found = importlib.import_module(module)
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None)
        found = getattr(found, "__func__", found)
    if not (inspect.isclass(found) or inspect.isroutine(found)) or not found.__doc__:
        return None
    full = f"{found.__module__}.{found.__qualname__}"
    return full if full.startswith("src.") and not re.search(r"\._|<", full) else None


def write_as_rst(app, what, name, obj, options, lines):
    """Let Sphinx read our docstrings; before napoleon, which reads their sections."""
    module = next(each for each in modules() if f"{name}.".startswith(f"{each}."))
    inside = name.removeprefix(module).removeprefix(".")
    owner = inside if what == "class" else inside.rpartition(".")[0]

    def linked(word):
        if f"book/{word}" in app.env.found_docs:
            return f":doc:`/book/{word}`"
        kind, full = named(word, module, owner) or (None, None)
        return f":py:{kind}:`{word} <{full}>`" if kind else f"``{word}``"

    lines[:] = as_rst("\n".join(lines), linked).split("\n")


def leave_out(app, what, name, obj, skip, options):
    """Drop fields of named tuples, of which Python says no more than their number."""
    return True if (inspect.getdoc(obj) or "").startswith("Alias for field number") else None


def sign(app, what, name, obj, options, signature, returns):
    """A protocol is not called."""
    return ("", "") if what == "class" and getattr(obj, "_is_protocol", False) else None


# ---- links between chapters and code -------------------------------------------------------------


def taught(docstring):
    """The chapters, as `part/name`, to which a module's docstring says that it belongs."""
    return [name for phrase in TEACHES.findall(docstring) for name in QUOTED.findall(phrase)]


@cache
def chapters_of(module):
    """The chapters that a module names."""
    names = taught(importlib.import_module(module).__doc__)
    return [name for name in names if (ROOT / f"book/{name}.md").is_file()]


@cache
def imported_by(chapter):
    """All that a chapter's cells import."""
    return imported(code_of(ROOT / f"book/{chapter}.md"))


def chapter_of(module, name):
    """The first chapter named by a module that imports this entry; else the first; or None."""
    found = chapters_of(module)
    using = [each for each in found if f"{module}.{name}" in imported_by(each)]
    return next(iter(using + found), None)


@cache
def in_order():
    """All modules in the order of the reference's pages."""
    contents = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    found = re.findall(rf"^ *- file: {PAGES}(\w+)/(\w+)$", contents, re.MULTILINE)
    return [f"src.{room}.{name}" for room, name in found]


def code_behind(chapter):
    """(modules that name a chapter, others that it imports); tools are none of these others."""
    own = [name for name in in_order() if chapter in chapters_of(name)]
    others = [name for name in in_order() if name in imported_by(chapter) and name not in own]
    return own, [name for name in others if not name.startswith("src.tools.")]


def link(domain, kind, name, text, page):
    """A link that Sphinx fills in, or warns of."""
    shown = nodes.literal(text, text) if domain == "py" else nodes.inline(text, text)
    where = {"refdomain": domain, "reftype": kind, "reftarget": name, "refdoc": page}
    return addnodes.pending_xref("", shown, refexplicit=True, **where)


def lead_to_chapters(app, doctree):
    """Put a link to its chapter behind each function and class of the reference."""
    page = app.env.docname
    for node in doctree.findall():  # else each page would be kept with all that is known of others
        node.document = doctree
    for entry in doctree.findall(addnodes.desc) if page.startswith(PAGES) else ():
        signature = entry.next_node(addnodes.desc_signature)
        module, name = signature["module"], signature["fullname"]
        for each in chapters_of(module):  # which lead to here by what they import
            app.env.note_dependency(str(ROOT / f"book/{each}.md"))
        chapter = None if "." in name else chapter_of(module, name)
        if chapter:
            shown = link("std", "doc", f"/book/{chapter}", "chapter", page)
            signature += nodes.inline("", "", shown, classes=["to-chapter"])


def lead_to_code(app, doctree):
    """Say at the head of a chapter, in the box of its objectives, where its code is."""
    page = app.env.docname
    boxes = [box for box in doctree.findall(nodes.admonition) if "objectives" in box["classes"]]
    if not boxes or f"{PAGES}tools" not in app.env.found_docs:
        return
    line = nodes.paragraph("", "", nodes.strong("", "Code"), classes=["to-code"])
    own, others = code_behind(page.removeprefix("book/"))
    for words, names in ((" ", own), ("; also " if own else " ", others)):
        for number, name in enumerate(names):
            line += [nodes.Text(", " if number else words), link("py", "mod", name, name, page)]
    boxes[0] += line


def setup(app):
    app.connect("autodoc-process-docstring", write_as_rst, priority=400)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-signature", sign)
    app.connect("doctree-read", lead_to_chapters)
    app.connect("doctree-read", lead_to_code)
