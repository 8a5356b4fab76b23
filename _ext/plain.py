"""The notebook to download: a chapter as it ran, for viewers that know plain Markdown only.

Titles, numbers, citations and values stand in place of roles (`shown.py`). The directives of the
chapters, which are few, become plain Markdown: boxes are block quotes, propositions and exercises
stand under bold heads, solutions and dropdowns in <details>. All else is left as it was written,
since it is Markdown already. A role or a directive that is not known here ends the build.

The first cell says how to get `src`; if the book names a repository, it installs it from there.
"""

import copy
import re
from urllib.parse import urljoin

from card import as_markdown
from cells import sets_up
from myst_nb.core.variables import format_plain_text
from nbformat.v4 import new_code_cell, new_markdown_cell

REFERENCES = ("ref", "numref", "eq", "prf:ref", "term", "doc", "cite", "cite:t", "cite:p")
EXPLICIT = re.compile(r"(.+?)\s*<([^<>]+)>", re.DOTALL)  # words of one's own for a target
# A fence, with the plain code that it opens; or a code span, and the name of a role before it.
SPAN = re.compile(
    r"(?m:^(`{3,}|:{3,})(?:\{[\w:-]+\}.*|[^\n{].*\n(?s:.*?)^\1|)$)"
    r"|(?:\{(?P<role>[\w:+.-]+)\})?(?<!`)(?P<mark>`+)(?!`)(?P<content>(?s:.+?))(?<!`)(?P=mark)(?!`)"
)
# A heading; or a box, or plain code, which has no name.
BLOCK = re.compile(
    r"^(?P<level>#{1,3}) "
    r"|^(?P<fence>`{3,}|:{3,})(?:\{(?P<name>[\w:-]+)\} ?)?(?P<title>.*)\n"
    r"(?P<options>(?::[\w-]+:.*\n)*)(?P<text>(?s:.*?))^(?P=fence)$",
    re.MULTILINE,
)
FORMULA = re.compile(r"^\$\$\n.*?^\$\$$", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"^\([\w-]+\)=\n", re.MULTILINE)
RECORD = "application/papermill.record"  # what `glue` puts out for the builder only
UNKNOWN = "…"  # a value that was never computed here
NEEDED = """\
This is a chapter of *{book}*, as it ran when the book was made. *Shift+Enter* runs a cell, and
*Run All* runs them all. They need `src`, the Python package of the book, which brings its records
and texts along, and what the chapters import."""
LOCAL = """ To run them, say in the book's folder:

    pip install ".[chapters]"

After that the notebook runs in any folder. A released model is in a package of its own; if a cell
misses one, it says how to install it."""
OPENS, CLOSES = "<details>\n<summary>{}</summary>\n\n", "\n\n</details>"
CONTINUED = OPENS.format("Solution, continued")
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
            _for_any_viewer(cell, texts.solves)
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
    figure = cell.metadata.get("mystnb", {}).get("figure", {})
    if "caption" not in figure:
        return []
    number = texts.numbers.get(figure.get("name"), "Figure")
    said = texts.without_roles(f"**{number}.** {_single(figure['caption'])}")
    return [new_markdown_cell(said, id=f"{cell.id}-caption")]


def _for_any_viewer(cell, solves):
    """Leave out what only the builder reads, and fold what the page folds."""
    cell.outputs = [
        each
        for each in cell.get("outputs", ())
        if not each.get("data") or any(not kind.startswith(RECORD) for kind in each.data)
    ]
    known = {"tags": cell.metadata.tags} if "tags" in cell.metadata else {}
    if solves or {"hide-input", "hide-cell"} & set(known.get("tags", ())) or sets_up(cell.source):
        known["jupyter"] = {"source_hidden": True} | ({"outputs_hidden": True} if solves else {})
    cell.metadata.clear()
    cell.metadata.update(known)


class Texts:
    """Writes one cell's text after the other; knows whether a cell before has begun a solution."""

    def __init__(self, shown, page, root, site=""):
        self.shown, self.page, self.root, self.site = shown, page, root, site
        self.numbers, self.sections = shown["numbers"], iter(shown["sections"])
        self.solves = False

    def plain(self, source):
        """The text of the next cell."""
        text = CONTINUED if self.solves else ""
        text += BLOCK.sub(self._block, self.without_roles(TARGET.sub("", source)))
        text += CLOSES if self.solves else ""
        text = re.sub(r"\n{3,}", "\n\n", text)
        return text.replace(CONTINUED + CLOSES.lstrip(), "").strip("\n")

    def without_roles(self, source):
        """Text that shows what the page shows for its roles; code as it is."""
        return SPAN.sub(self._role, source)

    def _role(self, found):
        role, content = found["role"], found["content"]
        if role is None:
            return found[0]
        if role == "glue:text":
            name, _, form = content.partition(":")
            text = self.shown["glued"].get(name)
            return UNKNOWN if text is None else format_plain_text(text, form or "s")
        if role == "math":
            return f"${content}$"
        if role == "download":  # what it leads to lies beside the page
            return f"*{EXPLICIT.fullmatch(content)[1]}*"
        if role not in REFERENCES:
            raise ValueError(f"{self.page}: no plain text is known for the role {role!r}")
        text, where = self.shown["roles"][f":{role}:`{_single(content)}`"]
        if self.site:
            return f"[{text}]({urljoin(f'{self.site}/{self.page}.html', where)})"
        named = EXPLICIT.fullmatch(content) or re.search(r" [\d.]+$", text)
        return f"*{text}*" if role in ("ref", "doc") and not named else text

    def _block(self, found):
        """A heading with its number, a box in plain Markdown, or code as it is."""
        level, _, name, title, options, text = found.groups()
        if level:
            return f"{level} {next(self.sections, '')} ".replace("  ", " ")
        if not name:
            return found[0]
        options = dict(re.findall(r":([\w-]+): *(.*)", options))
        text = BLOCK.sub(self._block, text)
        number = self.numbers.get(options.get("label"))
        family, _, kind = name.partition(":")
        match family:
            case "exercise-start":
                return _bold(number or "Exercise", title)
            case "exercise-end":
                return ""
            case "solution-start":
                self.solves = True
                return OPENS.format(f"Solution to {self.numbers.get(title, 'the exercise')}")
            case "solution-end":
                self.solves = False
                return CLOSES
            case "admonition" if "dropdown" in options.get("class", "").split():
                return OPENS.format(title) + text + CLOSES
            case "admonition":
                return _quoted(f"**{title}**\n\n{text.strip()}")
            case "card":
                return "\n".join(as_markdown(self.root, self.page, title))
            case "live":  # its question can be answered by changing a cell
                return text
            case "prf":
                end = "\n\n∎" if kind == "proof" else ""
                return f"{_bold(number or kind.capitalize(), title)}\n\n{text}{end}"
        raise ValueError(f"{self.page}: no plain text is known for the directive {name!r}")


def _bold(name, title):
    return f"**{name} ({title}).**" if title else f"**{name}.**"


def _quoted(text):
    """A block quote; a viewer may look for formulas first, and take its marks for TeX."""
    text = FORMULA.sub(lambda found: found[0].replace("\n", " "), text)
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _single(text):
    """A text on one line."""
    return " ".join(text.split())
