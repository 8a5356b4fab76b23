"""Where each topic is shown: the page of the back matter that says so is true.

A row of the page asks a question, leads to a section or an exercise, and quotes what is asserted
there. The builder checks that the place exists; here the quotation must be the assertion of a cell
of that chapter that runs. The rules are proven on planted defects before they judge the page.
"""

import ast
import re
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import pytest
import yaml
from chapters import ROOT, Page, read
from recipe import at
from sphinx_external_toc.parsing import parse_toc_data

TOPICS = {"L": 14, "T": 7, "A": 11, "G": 17, "M": 9}  # how many each part has
LABELS = [f"{part}{n}" for part, last in TOPICS.items() for n in range(1, last + 1)]


class Row(NamedTuple):
    """One line of a table; `target` is a chapter.md, or the label of an exercise."""

    line: int
    label: str
    question: str
    target: str
    excerpt: str


def rows_of(page):
    for line, (question, section, claim) in page.table_rows:
        target = re.search(r"(?:\]\(|<)([^)>#]+)", section.content) or [None, "nothing"]
        codes = [child.content for child in claim.children if child.type == "code_inline"]
        label = claim.content.split(" ")[0]
        yield Row(line, label, question.content, target[1], "".join(codes))


def targets_in(pages):
    """{chapter.md or label of an exercise: the page}."""
    found = {page.name.removeprefix("book/"): page for page in pages}
    exercises = ((each, page) for page in pages for each in page.directives)
    return found | {each.options.get("label"): page for each, page in exercises}


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


def order(row):
    """Where a question stands: by its bold word."""
    return re.sub(r"[^\w ]", "", row.question.split("**: ")[0]).casefold()


def faults(page, targets, labels):
    """Topics that are missing or misplaced, and rows that no cell of their chapter asserts."""
    rows = list(rows_of(page))
    for label in sorted({*labels} ^ {row.label for row in rows}):
        yield f"expected a question of each topic and no other, got a difference: {label}"
    for row, following in pairwise(rows):
        if order(following) < order(row):
            yield at(page, following.line, f"'{following.question}' stands after '{row.question}'")
    for row in rows:
        chapter = targets.get(row.target)
        if chapter is None:
            yield at(page, row.line, f"no chapter is or has '{row.target}'")
        elif ast.dump(ast.parse(row.excerpt, mode="eval").body) not in asserted(
            chapter.name, chapter.text
        ):
            yield at(page, row.line, f"no cell of {chapter.name} asserts `{row.excerpt}`")


@cache
def asserted(name, text):
    return {claim for cell in Page(name, text).cells for claim in claims(cell)}


# ---- proven on a small book -------------------------------------------------------------------

CHAPTER = """\
# One

```{code-cell} ipython3
assert a == 1 and (b
                   < 2)
if a:
    assert 'c' in d
def never_called():
    assert e
shown(1)
```

```
assert shown_only
```

```{code-cell} ipython3
:tags: [raises-exception]

g = 0
table(17)
```

```{exercise-start} Try $it$ ★★
:label: ex-try
```
"""
HEADER = "| question | section | asserted |\n|:--|:--|:--|\n"
SECTION, EXERCISE = "[First](a/one.md#first)", "{ref}`Try <ex-try>`"


def found_in(*rows):
    lines = [f"| **{word}**: what? | {section} | {end} |\n" for word, section, end in rows]
    targets = targets_in([Page("book/a/one.md", CHAPTER)])
    return list(faults(Page("t.md", HEADER + "".join(lines)), targets, ["A1", "A2"]))


@pytest.mark.parametrize(
    ("section", "excerpt", "message"),
    [
        (SECTION, "b < 2", None),
        (SECTION, "a == 1 and b < 2", None),
        (SECTION, '"c" in d', None),
        (EXERCISE, "table(17)", None),
        (SECTION, "a == 2", "no cell of book/a/one.md asserts `a == 2`"),
        (SECTION, "e", "asserts `e`"),
        (SECTION, "shown_only", "asserts `shown_only`"),
        (SECTION, "shown(1)", "asserts `shown(1)`"),
        ("[Below](a/two.md#below)", "a == 1", "no chapter is or has 'a/two.md'"),
        ("{ref}`Try <ex-tried>`", "a == 1", "no chapter is or has 'ex-tried'"),
        ("Below", "a == 1", "no chapter is or has 'nothing'"),
    ],
)
def test_a_row_holds_if_a_cell_of_its_chapter_asserts_it(section, excerpt, message):
    found = found_in(("A", SECTION, "A1 `a == 1`"), ("B", section, f"A2 `{excerpt}`"))
    assert len(found) == (message is not None), found
    assert all(text.startswith("t.md:4: ") and message in text for text in found), found


def test_a_topic_that_is_missing_or_misplaced_is_found():
    assert "difference: A2" in found_in(("A", SECTION, "A1 `a == 1`"))[0]
    assert "difference: A3" in found_in(*((w, SECTION, f"A{w} `a == 1`") for w in "123"))[0]
    two = [("b", SECTION, "A1 `a == 1`"), ("a", SECTION, "A2 `a == 1`")]
    assert found_in(*two) == ["t.md:4: '**a**: what?' stands after '**b**: what?'"]


# ---- the page of this book --------------------------------------------------------------------


def test_each_topic_is_asserted_where_the_page_says():
    toc = parse_toc_data(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8")))
    names = [f"{file}.md" for file in toc if file.count("/") == 2]
    page, targets = read(ROOT / "book/topics.md"), targets_in([read(ROOT / each) for each in names])
    assert len(list(rows_of(page))) == sum(line.startswith("| **") for line in page.lines) > 0
    found = list(faults(page, targets, LABELS))
    assert not found, "\n".join(found)
