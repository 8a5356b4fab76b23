"""How the checks read the book: which files are chapters, and what stands on which line.

A *page* is any Markdown file under `book/`; a *chapter* is a page with code cells.  Markdown is
parsed with markdown-it, in the dialect that jupytext reads, plus ``:::`` fences.
"""

import re
import sys
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from jupytext.myst import matches_mystnb, myst_to_notebook
from markdown_it import MarkdownIt
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.front_matter import front_matter_plugin
from mdit_py_plugins.myst_blocks import myst_block_plugin
from mdit_py_plugins.myst_role import myst_role_plugin

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "_ext"))  # for programs; pytest has done so

from verdict import code_cells  # noqa: E402

VERBATIM = ("code-cell", "code-block", "literalinclude", "math", "raw")
DIRECTIVE = re.compile(r"\{([\w:-]+)\}\s*(.*)")
OPTION = re.compile(r":([\w-]+):\s*(.*)")


def pages(root=ROOT):
    """Every Markdown file of the book, without built copies and editors' backups."""
    found = sorted((root / "book").rglob("*.md"))
    return [path for path in found if not is_hidden(path.relative_to(root))]


def is_hidden(path):
    return any(part.startswith((".", "_")) for part in path.parts)


def chapters(root=ROOT):
    """Every page with code cells."""
    found = pages(root)
    return [p for p in found if matches_mystnb(p.read_text(encoding="utf-8"), requires_meta=False)]


def choose(names, root):
    """The chapters that were asked for, by path or by name; all of them if none was."""
    found = chapters(root)
    if not found:
        raise SystemExit(f"found no chapter in {root / 'book'}")
    for name in names:
        if not any(is_called(path, name) for path in found):
            known = ", ".join(path.stem for path in found)
            raise SystemExit(f"there is no chapter '{name}'; there are {known}")
    return [path for path in found if not names or any(is_called(path, name) for name in names)]


def is_called(path, name):
    return name == path.stem or Path(name).resolve() == path


def read(path, root=ROOT):
    """The page at `path`, named as seen from the root."""
    return Page(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))


@dataclass
class Directive:
    """A fenced directive: ```` ```{name} argument ```` with its options, on line `line`."""

    name: str
    argument: str
    line: int
    content: str
    options: dict
    top_level: bool


@dataclass
class Heading:
    level: int
    title: str
    line: int


@dataclass
class CodeCell:
    line: int
    source: str
    metadata: dict

    @property
    def tags(self):
        return self.metadata.get("tags", [])


@dataclass
class Page:
    """A page's name and text, and what the parsers see in it; lines are counted from 1."""

    name: str
    text: str

    @cached_property
    def lines(self):
        return self.text.splitlines()

    @cached_property
    def tokens(self):
        return markdown_parser().parse(self.text)

    @cached_property
    def cells(self):
        pairs = code_cells(self.text, myst_to_notebook(self.text))
        return [CodeCell(line, cell.source, dict(cell.metadata)) for line, cell in pairs]

    @cached_property
    def headings(self):
        pairs = zip(self.tokens, self.tokens[1:], strict=False)
        return [
            Heading(int(opening.tag[1]), inline.content, opening.map[0] + 1)
            for opening, inline in pairs
            if opening.type == "heading_open" and opening.level == 0
        ]

    @cached_property
    def table_rows(self):
        """(line, cells) of each row of all tables, their heads left out; a cell is a token."""
        return list(find_rows(self.tokens))

    @cached_property
    def directives(self):
        """Fenced directives of the page, those inside other directives included."""
        return list(find_directives(self.tokens))

    @cached_property
    def roles(self):
        """(role, content, line) of each role in the text: {cite}`key` and its like."""
        return [*find_roles(self.tokens), *self.caption_roles()]

    def caption_roles(self):
        for cell in self.cells:
            caption = nested(cell.metadata, "mystnb", "figure", "caption")
            yield from find_roles(markdown_parser().parse(str(caption)), cell.line - 1)

    def section(self, title):
        """(first line, last line) under the heading that begins with `title`, or None."""
        level_two = [h for h in self.headings if h.level <= 2]
        for heading, following in zip(level_two, [*level_two[1:], None], strict=True):
            if heading.level == 2 and heading.title.startswith(title):
                return heading.line, following.line - 1 if following else len(self.lines)
        return None


def nested(options, *keys):
    """The value under a path of keys in a cell's options, or an empty text."""
    for key in keys:
        options = (options or {}).get(key) if isinstance(options, dict) else None
    return options or ""


def markdown_parser():
    parser = MarkdownIt("commonmark").enable("table").use(front_matter_plugin)
    return parser.use(myst_block_plugin).use(myst_role_plugin).use(colon_fence_plugin)


def directive_tokens(tokens):
    """(token, name, argument) of each fence that is a directive."""
    for token in tokens:
        match = DIRECTIVE.match(token.info.strip())
        if token.type in ("fence", "colon_fence") and match:
            yield token, match[1], match[2].strip()


def find_rows(tokens):
    tokens = iter(tokens)
    for token in tokens:
        if token.type == "thead_open":
            next(token for token in tokens if token.type == "thead_close")
        elif token.type == "tr_open":
            row = takewhile(lambda other: other.type != "tr_close", tokens)
            yield token.map[0] + 1, [cell for cell in row if cell.type == "inline"]


def find_directives(tokens, offset=0):
    """The directives among `tokens`, each followed by those inside it."""
    for token, name, argument in directive_tokens(tokens):
        line = offset + token.map[0] + 1
        top_level = offset == 0 and token.level == 0
        yield Directive(name, argument, line, token.content, options_of(token), top_level)
        if name not in VERBATIM:
            yield from find_directives(markdown_parser().parse(token.content), line)


def options_of(token):
    """The ``:key: value`` lines that open a directive."""
    matches = (OPTION.match(line) for line in token.content.splitlines())
    return {match[1]: match[2].strip() for match in takewhile(bool, matches)}


def find_roles(tokens, offset=0):
    """The roles among `tokens`, those in directives and in their titles included."""
    for token in tokens:
        line = offset + (token.map[0] + 1 if token.map else 0)
        yield from inline_roles(token, line)
    for token, name, argument in directive_tokens(tokens):
        if name not in VERBATIM:
            line = offset + token.map[0] + 1
            yield from find_roles(markdown_parser().parse(token.content), line)
            yield from find_roles(markdown_parser().parseInline(argument), line - 1)


def inline_roles(token, line):
    for child in token.children or ():
        if child.type == "myst_role":
            yield child.meta["name"], child.content, line
        yield from inline_roles(child, line)
