"""Where each topic is shown: the page of the back matter that says so is true.

A row of the page asks a question, and names a section and what is asserted there.  The rules below
look for each of them: the section in a chapter that readers can find, the assertion in a cell of it
that runs.  They are proven on planted defects before they judge the page.
"""

import ast
import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import pytest
import yaml
from chapters import ROOT, Page, read
from recipe import at, stars
from test_book import toc_files

NAME = "book/topics.md"
TOPICS = {"L": 14, "T": 7, "A": 11, "G": 17, "M": 9}  # how many each part has
LABELS = [f"{part}{n}" for part, last in TOPICS.items() for n in range(1, last + 1)]


@cache
def page_of(name):
    return read(ROOT / name)


# ---- the page ---------------------------------------------------------------------------------


@dataclass
class Row:
    """One line of a table: `target` is chapter.md#place, or the label of an exercise."""

    line: int
    label: str
    question: str
    title: str
    target: str
    excerpt: str


def rows_of(page):
    return [row_of(line, cells) for line, cells in page.table_rows]


def row_of(line, cells):
    question, section, claim = cells
    title, target = linked(section)
    codes = [child.content for child in claim.children if child.type == "code_inline"]
    label = claim.content.split(" ")[0]
    return Row(line, label, question.content, title, target, "".join(codes))


def linked(cell):
    """Title and target of `[title](target)` or of {ref}`title <target>`."""
    role = re.fullmatch(r"\{ref\}`(.+) <(.+)>`", cell.content)
    link = re.fullmatch(r"\[(.+)\]\((.+)\)", cell.content)
    return (role or link or re.match("()()", "")).groups()


# ---- the chapters -----------------------------------------------------------------------------


def slug(title):
    """What MyST calls the place of a heading: its text, without formulas and marks."""
    text = re.sub(r"\$[^$]+\$", "", title).lower().replace(" ", "-")
    return re.sub(r"[^\w-]", "", text)


def section_of(page, place):
    """(title, first line, last line) of the section at a place, its subsections included."""
    for number, heading in enumerate(page.headings):
        if heading.level > 1 and slug(heading.title) == place:
            later = (h.line for h in page.headings[number + 1 :] if h.level <= heading.level)
            return heading.title, heading.line, next(later, len(page.lines) + 1) - 1
    return None


def exercise_of(pages, label):
    """(page, title, first line, last line) of an exercise with its solution, in any page."""
    for page in pages:
        for directive in page.directives:
            if directive.name == "exercise-start" and directive.options.get("label") == label:
                ends = (d.line for d in page.directives if d.name == "solution-end")
                last = next(line for line in ends if line > directive.line)
                title = directive.argument.removesuffix(stars(directive.argument)).strip()
                # the text of a reference is not parsed: a formula would stand there as its source
                return page, title.replace("$", ""), directive.line, last
    return None


def statements(body):
    """All statements that run where they stand: those inside of functions may never be called."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            for block in ("body", "orelse", "finalbody"):
                yield from statements(getattr(node, block, []))


def claims(cell):
    """What a cell asserts, one claim for each `and`; or how it fails, if it is meant to fail."""
    tree = ast.parse(cell.source)
    for node in statements(tree.body):
        if isinstance(node, ast.Assert):
            yield ast.dump(node.test)
            if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And):
                yield from map(ast.dump, node.test.values)
    if "raises-exception" in cell.tags and isinstance(tree.body[-1], ast.Expr):
        yield ast.dump(tree.body[-1].value)


# ---- the rules --------------------------------------------------------------------------------


def label_faults(page, rows, labels):
    """Topics that are missing or unknown, and questions that are not in alphabetical order."""
    found = {row.label for row in rows}
    for label in labels:
        if label not in found:
            yield at(page, 1, f"expected a question of the topic {label}")
    for row in rows:
        if row.label not in labels:
            yield at(page, row.line, f"unknown topic '{row.label}'")
    for row, following in pairwise(rows):
        if order(following.question) < order(row.question):
            yield at(page, following.line, f"'{following.question}' stands after '{row.question}'")


def order(question):
    """Where a question stands: by its bold word."""
    return re.sub(r"[^\w ]", "", question.split("**: ")[0]).casefold()


def row_faults(page, row, names, page_of=page_of):
    """What is wrong with a row: nothing, if a cell of that section asserts what it says."""
    if not row.target:
        yield at(page, row.line, "expected [title](chapter.md#place) or {ref}`title <ex-…>`")
        return
    found = place_of(row.target, names, page_of)
    if found is None:
        yield at(page, row.line, f"no chapter has a section or an exercise '{row.target}'")
        return
    chapter, title, first, last = found
    if row.title != title:
        yield at(page, row.line, f"the section is called '{title}', got '{row.title}'")
    yield from claim_faults(page, row, chapter, (first, last))


def place_of(target, names, page_of):
    """(page, title, first line, last line) of chapter.md#place, or of an exercise's label."""
    if target.startswith("ex-"):
        return exercise_of(map(page_of, names), target)
    file, _, place = target.partition("#")
    page = page_of(f"book/{file}") if f"book/{file}" in names else None
    found = section_of(page, place) if page else None
    return (page, *found) if found else None


def claim_faults(page, row, chapter, span):
    try:
        wanted = ast.dump(ast.parse(row.excerpt, mode="eval").body)
    except SyntaxError:
        yield at(page, row.line, f"expected an expression of Python, got '{row.excerpt}'")
        return
    cells = [cell for cell in chapter.cells if span[0] <= cell.line <= span[1]]
    if not any(wanted in claims(cell) for cell in cells):
        where = f"{chapter.name}, lines {span[0]} to {span[1]}"
        yield at(page, row.line, f"no cell of '{row.title}' ({where}) asserts `{row.excerpt}`")


# ---- proven on a small book -------------------------------------------------------------------

CHAPTER = """\
(one)=
# One

## First things: $x$ and *y*

```{code-cell} ipython3
assert a == 1 and (b
                   < 2)
if a:
    assert 'c' in d
def never_called():
    assert e
```

### Below

```{code-cell} ipython3
assert f(1)
shown(1)
```

```
assert shown_only
```

## Second

```{code-cell} ipython3
:tags: [raises-exception]

g = 0
table(17)
```

```{exercise-start} Try $it$ ★★
:label: ex-try
```

```{exercise-end}
```

```{solution-start} ex-try
```

```{code-cell} ipython3
assert h
```

```{solution-end}
```
"""

HEADER = """\
# Where

| question | section | asserted |
|:--|:--|:--|
"""
FIRST = "[First things: $x$ and *y*](a/one.md#first-things--and-y)"
SECOND = "[Second](a/one.md#second)"
EXERCISE = "{ref}`Try it <ex-try>`"


def small_book(name):
    return {"book/a/one.md": Page("book/a/one.md", CHAPTER)}[name]


@pytest.mark.parametrize(
    ("section", "excerpt", "message"),
    [
        (FIRST, "b < 2", None),
        (FIRST, "a == 1 and b < 2", None),
        (FIRST, "f(1)", None),
        (SECOND, "table(17)", None),
        (EXERCISE, "h", None),
        ("[Below](a/one.md#below)", "a == 1", "asserts `a == 1`"),
        (FIRST, "e", "asserts `e`"),
        (FIRST, "shown_only", "asserts `shown_only`"),
        (FIRST, "shown(1)", "asserts `shown(1)`"),
        (FIRST, "a ==", "expected an expression"),
        ("[Below](a/two.md#below)", "f(1)", "no chapter has a section"),
        ("[Below](a/one.md#beyond)", "f(1)", "no chapter has a section"),
        ("[Beneath](a/one.md#below)", "f(1)", "is called 'Below', got 'Beneath'"),
        ("{ref}`Try it <ex-tried>`", "h", "or an exercise 'ex-tried'"),
        ("Below", "f(1)", "expected [title]"),
    ],
)
def test_a_row_holds_if_a_cell_of_its_section_asserts_it(section, excerpt, message):
    page = Page("t.md", f"{HEADER}| **A**: what? | {section} | L1 `{excerpt}` |\n")
    (row,) = rows_of(page)
    found = list(row_faults(page, row, ["book/a/one.md"], small_book))
    assert len(found) == (message is not None), found
    assert all(text.startswith("t.md:5: ") and message in text for text in found), found


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("A3 a, A1 b, A2 b, A2 c", None),
        ("A1 a, A3 b", "expected a question of the topic A2"),
        ("A1 b, A2 a, A3 c", "t.md:6: '**a**: what?' stands after '**b**: what?'"),
        ("A1 a, A2 b, A3 c, A4 d", "unknown topic 'A4'"),
    ],
)
def test_a_topic_that_is_missing_or_misplaced_is_found(rows, message):
    pairs = [row.split(" ") for row in rows.split(", ")]
    lines = "".join(f"| **{word}**: what? | {SECOND} | {label} `a` |\n" for label, word in pairs)
    page = Page("t.md", HEADER + lines)
    found = list(label_faults(page, list(rows_of(page)), ["A1", "A2", "A3"]))
    assert any(message in text for text in found) if message else not found, found


# ---- the page of this book --------------------------------------------------------------------

ROWS = list(rows_of(page_of(NAME)))


def test_the_page_has_each_topic_in_order():
    assert len(ROWS) == sum(line.startswith("| **") for line in page_of(NAME).lines)
    found = list(label_faults(page_of(NAME), ROWS, LABELS))
    assert not found, "\n".join(found)


def test_each_topic_is_asserted_where_the_page_says():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    names = [f"{file}.md" for file in toc_files(toc) if file.count("/") == 2]
    found = [fault for row in ROWS for fault in row_faults(page_of(NAME), row, names)]
    assert not found, "\n".join(found)
