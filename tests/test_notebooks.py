"""The book as notebooks, in JupyterLab and to download: none shows a role or a directive."""

import re
from collections import defaultdict

import lab
import nbformat
import plain
import pytest
import yaml
from chapters import ROOT, chapters
from jupytext.myst import myst_to_notebook
from nbformat.v4 import new_code_cell, new_notebook, new_output

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
    "sections": ["14", "14.1", "14.2"],
}
# What a page shows of which nothing is known: the same words for each reference.
ANY = SHOWN | {"roles": defaultdict(lambda: ["there", "#there"]), "sections": []}
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
    return tmp_path


def page_of(path):
    return path.relative_to(ROOT).with_suffix("").as_posix()


# ---- in JupyterLab -------------------------------------------------------------------------------


@pytest.fixture
def built(tmp_path):
    """A book of two chapters whose notebooks the site offers."""
    names, parts = ("a", "b"), [{"caption": "Part", "numbered": True}]
    parts[0]["chapters"] = [{"file": f"book/part/{name}"} for name in names]
    (tmp_path / "_toc.yml").write_text(yaml.safe_dump({"root": "book/index", "parts": parts}))
    for folder in ("book/part", lab.OFFERED / "book/part"):
        (tmp_path / folder).mkdir(parents=True)
    for name in names:
        head = f"# Chapter {name}\n\n**You need** nothing.\n\n**Time**: 5 minutes to read\n"
        (tmp_path / f"book/part/{name}.md").write_text(head)
        offer(tmp_path, name, "as it ran")
    return tmp_path


def offer(root, name, text):
    (root / lab.OFFERED / f"book/part/{name}.ipynb").write_text(text)


def test_a_notebook_that_a_reader_changed_stays_and_the_others_follow_the_book(built):
    mine, other = (built / lab.LAB / "part" / f"{name}.ipynb" for name in ("a", "b"))
    assert lab.put_notebooks(built) == []
    mine.write_text("mine")
    for name in ("a", "b"):
        offer(built, name, "as it ran again")
    for _ in range(2):
        assert lab.put_notebooks(built) == ["part/a.ipynb"]
        assert (mine.read_text(), other.read_text()) == ("mine", "as it ran again")
    mine.unlink()
    assert lab.put_notebooks(built) == []
    assert mine.read_text() == "as it ran again"


# ---- to download ---------------------------------------------------------------------------------


def rendered(path):
    """A chapter for any viewer, as if it had just been made."""
    notebook = myst_to_notebook(path.read_text(encoding="utf-8"))
    return plain.notebook(notebook, ANY, page_of(path), ROOT, "The Next Token")


def plain_text(source, root, site=""):
    return plain.Texts(SHOWN, "book/page", root, site).plain(source)


@pytest.mark.parametrize("path", OFFERED, ids=page_of)
def test_no_notebook_to_download_shows_a_role_or_a_directive(path):
    notebook = rendered(path)
    nbformat.validate(notebook)
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    for text in texts:
        assert not re.search(r"^(`{3,}|:{3,})\{|^\([\w-]+\)=$", text, re.MULTILINE), text
        assert not [found for found in plain.SPAN.finditer(text) if found["role"]], text
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


def test_headings_have_the_numbers_of_the_site(root):
    source = "# One\n\n```sh\n# no heading\n```\n\n## Two\n\n### Three"
    numbered = "# 14 One\n\n```sh\n# no heading\n```\n\n## 14.1 Two\n\n### 14.2 Three"
    assert plain_text(source, root) == numbered


def test_a_value_shows_its_text(root):
    assert plain_text("{glue:text}`name`", root) == "GPT"
