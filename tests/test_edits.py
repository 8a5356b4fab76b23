"""After an edit Sphinx writes the page alone, or all pages if they show what has changed."""

import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

PAGE = """(label-{0})=
# {0}

**Time**: about 5 minutes to read.

```{{prf:proposition}} A
It holds.
```

So it is.
"""
FILES = {
    "conf.py": 'extensions = ["myst_parser", "sphinx_proof", "edits"]\n',
    "_toc.yml": "parts:\n- caption: Part\n  numbered: true\n"
    "  chapters: [{file: book/one}, {file: book/two}]\n",
    "index.md": "# Book\n\n```{toctree}\nbook/one\nbook/two\nbook/glossary\n```\n",
    "book/one.md": PAGE.format("One"),
    "book/two.md": PAGE.format("Two"),
    "book/glossary.md": "# Glossary\n\n```{glossary}\nnat\n  A unit.\n```\n",
}
ALL = {"index", "book/one", "book/two", "book/glossary"}
ALONE = {"index", "book/one", "book/glossary"}  # the glossary leads to chapters


def written(book):
    """The pages that a build writes."""
    found = set()
    with docutils_namespace():
        app = Sphinx(book, book, book / "html", book / "read", "html", status=None)
        app.connect("doctree-resolved", lambda app, doctree, page: found.add(page))
        app.build()
    assert app.statuscode == 0
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    book = tmp_path_factory.mktemp("book")
    for name, text in FILES.items():
        (book / name).parent.mkdir(exist_ok=True)
        (book / name).write_text(text, encoding="utf-8")
    assert written(book) == ALL
    return book


@pytest.mark.parametrize(
    ("page", "old", "new", "expected"),
    [
        ("one", "So it is.", "So it will be.", ALONE),
        ("one", "# One", "# First", ALL),
        ("one", "5 minutes", "6 minutes", ALL),
        ("one", "```\n\nSo", "```\n\n```{prf:lemma}\nB.\n```\n\nSo", ALL),
        ("glossary", "A unit.", "Some unit.", ALL),
    ],
)
def test_a_page_is_written_alone_unless_others_show_what_has_changed(
    built, page, old, new, expected
):
    file = built / f"book/{page}.md"
    text = file.read_text(encoding="utf-8")
    assert old in text
    try:
        file.write_text(text.replace(old, new), encoding="utf-8")
        assert written(built) == expected
    finally:
        file.write_text(text, encoding="utf-8")
        written(built)
