"""The notebook to download: a chapter as it ran, for viewers that know plain Markdown only.

Titles, numbers, citations and values stand in place of roles (`shown.py`). The directives of the
chapters, which are few, become plain Markdown: boxes are block quotes, propositions and exercises
stand under bold heads, solutions and dropdowns in <details>. All else is left as it was written,
since it is Markdown already. A role or a directive that is not known here ends the build.

The first cell says how to get `src`; if the book names a repository, it installs it from there.
"""

import copy
import re
from collections import namedtuple
from urllib.parse import urljoin

from card import as_markdown
from nbformat.v4 import new_code_cell, new_markdown_cell
from shown import (
    EXPLICIT,
    FENCE,
    OPTION,
    PARTS,
    REFERENCES,
    UNKNOWN,
    caption,
    fold,
    option,
    reference,
    replaced,
    value,
)

HEADING = re.compile(r"^(#{1,3}) ")
TARGET = re.compile(r"^\([\w-]+\)=\n", re.MULTILINE)
RECORD = "application/papermill.record"  # what `glue` puts out for the builder only
NEEDED = """\
This is a chapter of *{book}*, as it ran when the book was made. *Shift+Enter* runs a cell, and
*Run All* runs them all. They need `src`, the Python package of the book, which brings its records
and texts along, and what the chapters import."""
LOCAL = """ To run them, say in the book's folder:

    pip install ".[chapters]"

After that the notebook runs in any folder. A released model is in a package of its own; if a cell
misses one, it says how to install it."""
END_OF_FOLD = ["", "</details>"]
REMOTE = """\
import importlib.util

if not importlib.util.find_spec("src"):
    %pip install --quiet "next-token[chapters] @ git+{repository}@{branch}"\
"""


def notebook(executed, shown, page, root, book, *, site="", repository="", branch="main"):
    """A notebook for everybody, from the one that the builder has executed.

    Args:
        shown: what the page shows (`shown.on_page`).
        book: the book's title.
        site, repository: addresses of the published book and of its code; "" if there are none.
    """
    made = copy.deepcopy(executed)
    fold(made)
    texts = Texts(shown, page, root, site)
    cells = _first(book, repository, branch)
    for cell in made.cells:
        if cell.cell_type == "markdown":
            cell.source = texts.plain(cell.source)
            cell.metadata.clear()
            if cell.source:
                cells.append(cell)
        else:
            cells += [cell, *_caption(cell, texts)]
            _for_any_viewer(cell)
    made.cells = cells
    made.metadata.pop("jupytext", None)
    return made


def _first(book, repository, branch):
    text = NEEDED.format(book=book)
    if not repository:
        return [new_markdown_cell(text + LOCAL, id="needed")]
    code = REMOTE.format(repository=repository, branch=branch)
    said = f"{text} The next cell installs both if `src` is not there."
    return [new_markdown_cell(said, id="needed"), new_code_cell(code, id="install")]


def _caption(cell, texts):
    said = caption(cell, texts.numbers)
    return [new_markdown_cell(texts.without_roles(said), id=f"{cell.id}-caption")] if said else []


def _for_any_viewer(cell):
    cell.outputs = [
        each
        for each in cell.get("outputs", ())
        if not each.get("data") or any(not kind.startswith(RECORD) for kind in each.data)
    ]
    known = {name: cell.metadata[name] for name in ("tags", "jupyter") if name in cell.metadata}
    cell.metadata.clear()
    cell.metadata.update(known)


class Texts:
    """Writes one cell's text after the other; knows what a cell before has left open."""

    def __init__(self, shown, page, root, site=""):
        self.shown, self.page, self.root = shown, page, root
        self.numbers, self.site = shown["numbers"], site
        self.inside = None  # "exercise" or "solution"
        self.sections = iter(shown["sections"])

    def plain(self, source):
        """The text of the next cell."""
        lines = self.without_roles(TARGET.sub("", source)).split("\n")
        written, boxes, place = [], [], 0  # boxes: those that are open
        unfolded = self.inside == "solution" and not _says_before_end(lines)
        if self.inside == "solution" and not unfolded:
            written += _folded("Solution, continued")
        code = False  # in a block of plain code
        while place < len(lines):
            line = lines[place]
            place += 1
            fence = FENCE.fullmatch(line)
            code ^= bool(fence and not fence[2] and not (boxes and line == boxes[-1].fence))
            if not (boxes or code) and HEADING.match(line):
                line = HEADING.sub(rf"\1 {next(self.sections, '')} ", line).replace("  ", " ")
            if boxes and line == boxes[-1].fence:
                written += boxes.pop().end
            elif not (fence and fence[2]):
                quoted = bool(boxes) and boxes[-1].quoted
                if quoted and line == "$$":
                    # a viewer may look for formulas first, and take the marks of the quote for TeX
                    end = lines.index("$$", place)
                    line = " ".join(lines[place - 1 : end + 1])
                    place = end + 1
                written.append(f"> {line}".rstrip() if quoted else line)
            else:
                first = place
                while place < len(lines) and OPTION.fullmatch(lines[place]):
                    place += 1
                options = lines[first:place]
                kind, _, what = fence[2].partition("-")
                if kind not in PARTS:
                    head, box = self._box(fence, options)
                    written += head
                    boxes.append(box)
                    continue
                place += 1  # its closing fence
                if what == "start":
                    self.inside, unfolded = kind, False
                    written += self._head(kind, fence[3], options)
                else:
                    written += END_OF_FOLD if kind == "solution" and not unfolded else []
                    self.inside = None
        if self.inside == "solution":
            written += END_OF_FOLD
        text = re.sub(r"(?m)^(>\n){2,}", r"\1", "\n".join(written))
        return re.sub(r"\n{3,}", "\n\n", text).strip("\n")

    def without_roles(self, source):
        return replaced(source, self._role)

    def _role(self, role, content):
        if role == "glue:text":
            text = value(self.shown, content)
            return UNKNOWN if text is None else text
        if role == "math":
            return f"${content}$"
        if role == "download":  # what it leads to lies beside the page
            return f"*{EXPLICIT.fullmatch(content)[1]}*"
        if role not in REFERENCES:
            raise ValueError(f"{self.page}: no plain text is known for the role {role!r}")
        text, where = reference(self.shown, role, content)
        if self.site:
            return f"[{text}]({urljoin(f'{self.site}/{self.page}.html', where)})"
        named = EXPLICIT.fullmatch(content) or re.search(r" [\d.]+$", text)
        return f"*{text}*" if role in ("ref", "doc") and not named else text

    def _head(self, kind, argument, options):
        if kind == "solution":
            return _folded(f"Solution to {self.numbers.get(argument, 'the exercise')}")
        return [_bold(self.numbers.get(option(options, "label"), "Exercise"), argument)]

    def _box(self, fence, options):
        """(lines that open a box, the box)."""
        mark, name, title = fence.groups()
        if name == "admonition" and "dropdown" in option(options, "class").split():
            return _folded(title), Box(mark, END_OF_FOLD)
        if name == "card":
            return as_markdown(self.root, self.page, title), Box(mark, [])
        if name == "live":  # its question can be answered by changing a cell
            return [], Box(mark, [])
        if name == "admonition":
            return [f"> **{title}**", ">"], Box(mark, [], quoted=True)
        family, _, kind = name.partition(":")
        if family != "prf":
            raise ValueError(f"{self.page}: no plain text is known for the directive {name!r}")
        number = self.numbers.get(option(options, "label"), kind.capitalize())
        return [_bold(number, title), ""], Box(mark, ["", "∎"] if kind == "proof" else [])


# One that is open: its fence, the lines that end it, whether its lines are quoted.
Box = namedtuple("Box", "fence end quoted", defaults=[False])


def _folded(title):
    return ["<details>", f"<summary>{title}</summary>", ""]


def _bold(name, title):
    return f"**{name} ({title}).**" if title else f"**{name}.**"


def _says_before_end(lines):
    """Does a solution that is open before a cell say anything in it?"""
    end = next((n for n, line in enumerate(lines) if line == "```{solution-end}"), len(lines))
    return any(line.strip() for line in lines[:end])
