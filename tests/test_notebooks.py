"""The book as notebooks: in JupyterLab, where it is also edited, and to download.

Opened and saved, every page of the book is the same bit by bit; what a reader edits in between is
what has changed in the file. No notebook to download shows a role or a directive.
"""

import json
import re

import nbformat
import plain
import pytest
import shown
import yaml
from chapters import ROOT, chapters
from jupytext.myst import myst_to_notebook
from lab import BOX, contents, open_notebook, opened, save_notebook, saved
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

PAGES = sorted((ROOT / "book").rglob("*.md"))
OFFERED = [path for path in chapters() if path.name != "index.md"]
SHOWN = {
    "roles": {
        ":ref:`masks`": ["Who may look where", "masks.html#masks"],
        ":cite:t:`vaswani2017attention`": ["Vaswani et al. [2017]", "../bibliography.html#id1"],
        ":prf:ref:`prop-x`": ["Proposition 14.1", "#prop-x"],
    },
    "numbers": {
        "prop-x": "Proposition 14.1",
        "ex-x": "Exercise 14.2",
        "fig-x": "Figure 14.3",
    },
    "glued": {"typical": "9.9e-08", "name": "'GPT'"},
}
PROSE = "It passes {glue:text}`typical:.0e` ({cite:t}`vaswani2017attention`), see {ref}`masks`."
EXERCISE = """```{exercise-start} Twice ★★
:label: ex-x
:class: bug
```

What is wrong? {prf:ref}`prop-x` helps.

```{exercise-end}
```

```{solution-start} ex-x
:class: dropdown
```

The scale."""
FIGURE = {"name": "fig-x", "caption": "**Up.** By\n{glue:text}`typical:.0e`."}
CELLS = [PROSE, EXERCISE, "More of it.", "```{solution-end}\n```\n\nAnd on.", "Last."]
PROPOSITION = "```{prf:proposition} A limit\n:label: prop-x\n\nLet $x > 0$.\n```"


@pytest.fixture
def root(tmp_path):
    """A book of which one page, `book/page`, has been made; it shows what stands above."""
    shown.keep(SHOWN, "book/page", tmp_path)
    (tmp_path / "book").mkdir()
    return tmp_path


def texts_of(path):
    notebook = myst_to_notebook(path.read_text(encoding="utf-8"))
    return [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]


def page_of(path):
    return path.relative_to(ROOT).with_suffix("").as_posix()


# ---- in JupyterLab -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=page_of)
def test_a_page_that_was_opened_is_saved_bit_by_bit(path):
    texts = texts_of(path)
    shows = opened(texts, page_of(path))
    assert saved(shows) == texts
    roles = re.compile(r"\{(glue:text|ref|prf:ref|cite(:[tp])?|term|exercise-\w+|solution-\w+)\}")
    left = [text for text in shows for prose, text in shown.pieces(text) if prose]
    left = [found[0] for text in left for found in shown.SPAN.finditer(text) if found[1]]
    assert not [text for text in left if roles.match(text)]
    assert not re.search(r"^`+\{(exercise|solution|prf:)", "\n".join(shows), re.MULTILINE)


def test_numbers_titles_and_citations_are_shown_for_roles(root):
    (text,) = opened([PROSE], "book/page", root)
    assert '{eval}`glued("typical:.0e", "1e-07")`' in text
    assert "[Who may look where](masks.md " in text
    assert "[Vaswani et al. [2017]](../bibliography.md " in text


def test_a_value_that_was_never_computed_is_shown_as_unknown(tmp_path):
    (text,) = opened(["{glue:text}`typical:.0e`"], "book/page", tmp_path)
    assert text == '{eval}`glued("typical:.0e", "…")`'


def test_a_box_shows_the_number_that_it_has_in_the_book(root):
    (text,) = opened([PROPOSITION], "book/page", root)
    assert text.startswith(
        "```{admonition} Proposition 14.1 (A limit)\n:class: seealso prf-proposition\n"
    )


def test_a_solution_is_folded_in_each_cell_in_which_it_says_something(root):
    exercise, more, end = opened(CELLS, "book/page", root)[1:4]
    assert f"{BOX}{{admonition}} Exercise 14.2 (Twice ★★)\n:label: ex-x\n:class: bug " in exercise
    assert f"{BOX}{{admonition}} Solution to Exercise 14.2\n:class: dropdown " in exercise
    head = f"{BOX}{{admonition}} Solution to Exercise 14.2, continued\n:class: dropdown "
    assert more.startswith(head)
    assert end == "% solution-end\n\nAnd on."  # no box, since nothing would be in it


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("passes", "lets through", PROSE.replace("passes", "lets through")),
        ("[Who may", "[Where may", PROSE.replace("`masks`", "`Where may look where <masks>`")),
        ("It", "A {term}`key`. It", PROSE.replace("It", "A {term}`key`. It")),
    ],
)
def test_what_is_edited_is_kept_and_nothing_else_changes(before, after, kept, root):
    (text,) = opened([PROSE], "book/page", root)
    assert before in text
    assert saved([text.replace(before, after, 1)]) == [kept]


def test_a_title_of_a_box_can_be_edited(root):
    (text,) = opened([PROPOSITION], "book/page", root)
    assert saved([text.replace("A limit", "No limit")]) == [
        PROPOSITION.replace("A limit", "No limit")
    ]


def test_cells_can_be_divided_joined_and_moved(root):
    shows = opened(CELLS, "book/page", root)
    head, tail = shows[0].split(", see")
    assert "".join(saved([head, ", see" + tail])) == PROSE
    assert saved(["\n\n".join(shows)]) == saved(["\n\n".join(CELLS)]) == ["\n\n".join(CELLS)]
    assert saved([shows[4], shows[0]]) == [CELLS[4], CELLS[0]]


def test_a_new_exercise_may_be_written_as_in_a_file(root):
    own = [EXERCISE, "```{solution-end}\n```"]
    assert saved(own) == own
    assert saved([own[0], BOX]) == own


def test_a_notebook_is_opened_folded_and_saved_as_it_was(root):
    cells = [
        new_code_cell("import math\n\nimport torch"),
        *map(new_markdown_cell, CELLS[:2]),
        new_code_cell("assert True"),
        *map(new_markdown_cell, CELLS[2:]),
        new_code_cell("plot()", metadata={"tags": ["hide-input"], "mystnb": {"figure": FIGURE}}),
        new_code_cell("x = 1"),
    ]
    notebook = new_notebook(cells=cells)
    before = [cell.source for cell in cells]
    open_notebook(notebook, "book/page", root)
    hidden = [cell.metadata.get("jupyter") for cell in cells if cell.cell_type == "code"]
    folded = {"source_hidden": True}
    assert hidden == [folded, folded | {"outputs_hidden": True}, folded, None]
    caption = notebook.cells[8]
    assert caption.source == '**Figure 14.3.** **Up.** By {eval}`glued("typical:.0e", "1e-07")`.'
    for cell in (cells[1], caption):
        (said,) = cell.metadata["user_expressions"]
        assert said["result"]["data"] == {"text/plain": "1e-07"}
    nbformat.validate(notebook)
    save_notebook(notebook)
    assert [cell.source for cell in notebook.cells] == before


def test_a_caption_that_was_edited_is_kept_as_a_cell(root):
    notebook = new_notebook(
        cells=[new_code_cell("plot()", metadata={"mystnb": {"figure": FIGURE}})]
    )
    open_notebook(notebook, "book/page", root)
    notebook.cells[1].source += " Mine."
    save_notebook(notebook)
    assert notebook.cells[1].source == "**Figure 14.3.** **Up.** By {glue:text}`typical:.0e`. Mine."


def test_the_contents_lead_to_all_pages_in_order():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    pages = [page["file"] for part in toc["parts"] for page in part["chapters"]]
    numbered = sum(len(part["chapters"]) for part in toc["parts"] if part["numbered"])
    links = re.findall(r"\]\(\.\./(\S+)\.md\)", contents())
    assert links == [toc["root"], *pages]
    numbers = re.findall(r"^(\d+)\. ", contents(), re.MULTILINE)
    assert numbers == [str(number + 1) for number in range(numbered)]


# ---- to download ---------------------------------------------------------------------------------


def rendered(path):
    """A chapter for any viewer, as if it had just been made."""
    notebook = myst_to_notebook(path.read_text(encoding="utf-8"))
    page = page_of(path)
    return plain.notebook(notebook, shown.kept(page, ROOT), page, ROOT, "The Next Token")


def plain_text(source, root, site=""):
    return plain.Texts(SHOWN, "book/page", root, site).plain(source)


@pytest.mark.parametrize("path", OFFERED, ids=page_of)
def test_no_notebook_to_download_shows_a_role_or_a_directive(path):
    notebook = rendered(path)
    nbformat.validate(notebook)
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    for text in texts:
        assert not re.search(r"^(`{3,}|:{3,})\{|^\([\w-]+\)=$", text, re.MULTILINE), text
        assert not [found for found in shown.SPAN.finditer(text) if found[1]], text
        assert text.count("<details>") == text.count("</details>"), text


def test_roles_become_text_and_lead_to_the_site_where_there_is_one(root):
    says = "It passes 1e-07 (Vaswani et al. [2017]), see *Who may look where*."
    assert plain_text(PROSE, root) == says
    link = "[Who may look where](https://book.org/book/masks.html#masks)"
    assert link in plain_text(PROSE, root, "https://book.org")


def test_boxes_become_plain_markdown_with_their_formulas_intact(root):
    question = ":::{admonition} The question\n:class: question\n\nIs\n\n$$\na < b\n$$\n\nso?\n:::"
    quote = "> **The question**\n>\n> Is\n>\n> $$ a < b $$\n>\n> so?"
    assert plain_text(question, root) == quote
    bold = "**Proposition 14.1 (A limit).**\n\nLet $x > 0$."
    assert plain_text(PROPOSITION, root) == bold
    proof = "```{prf:proof}\n$$\na\n$$\n```"
    assert plain_text(proof, root) == "**Proof.**\n\n$$\na\n$$\n\n∎"


def test_solutions_are_folded_cell_by_cell(root):
    texts = plain.Texts(SHOWN, "book/page", root)
    _, exercise, more, end, last = map(texts.plain, CELLS)
    assert exercise.startswith("**Exercise 14.2 (Twice ★★).**")
    assert "<summary>Solution to Exercise 14.2</summary>\n\nThe scale.\n\n</details>" in exercise
    assert more.startswith("<details>\n<summary>Solution, continued</summary>")
    assert (end, last) == ("And on.", "Last.")


@pytest.mark.parametrize("source", ["{kbd}`x`", "```{mermaid}\nx\n```"])
def test_what_is_not_known_ends_the_build(source, root):
    with pytest.raises(ValueError, match="no plain text is known"):
        plain_text(source, root)


def test_a_figure_has_its_caption_and_a_glued_value_no_output(root):
    glued = new_output("display_data", {f"{plain.RECORD}/text/plain": "1"})
    shows = new_output("stream", text="1\n")
    cell = new_code_cell("plot()", metadata={"mystnb": {"figure": FIGURE}}, outputs=[glued, shows])
    made = plain.notebook(new_notebook(cells=[cell]), SHOWN, "book/page", root, "A book")
    _, code, caption = made.cells
    assert caption.source == "**Figure 14.3.** **Up.** By 1e-07."
    assert code.outputs == [shows]


def test_the_first_cell_says_how_to_get_src(root):
    empty = new_notebook()
    (said,) = plain.notebook(empty, SHOWN, "book/page", root, "A book").cells
    assert "A book" in said.source
    assert "pip install" in said.source
    where = {"repository": "https://forge.org/book", "branch": "main"}
    _, code = plain.notebook(empty, SHOWN, "book/page", root, "A book", **where).cells
    assert "git+https://forge.org/book@main" in code.source


def test_what_a_page_shows_is_kept_and_read_again(root):
    assert shown.kept("book/page", root) == SHOWN
    assert shown.kept("book/other", root) == shown.PLAIN
    assert json.loads((root / shown.KEPT / "book/page.json").read_text("utf-8")) == SHOWN
    assert shown.value(SHOWN, "name") == "GPT"
