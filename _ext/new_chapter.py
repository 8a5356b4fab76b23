"""Begin a chapter from the template: ``python _ext/new_chapter.py part/name [TITLE]``.

It writes `book/part/name.md` from `_ext/chapter.md` and lists it last of its part, in `_toc.yml`
and in `README.md`.  The new chapter passes the recipe and can be built as it is; then replace its
words and cells by your own.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEMPLATE = Path(__file__).with_name("chapter.md")
USAGE = 'make chapter NAME=part/name TITLE="What it is about"'

NEXT = """\
PAGE is there, and is listed last of its part in _toc.yml and README.md. Next:
1. Run it, and ask whether it has all that a chapter has:
       .venv/bin/pytest --nbval PAGE
       .venv/bin/pytest tests/test_recipe.py tests/test_book.py
2. Replace the template's words and cells by your own; `make lab` opens it as a notebook.
3. Move its line in _toc.yml, and in README.md, to where readers should meet it.
4. Say in book/index.md how many chapters the part has now, and in CHANGELOG.md what is new.
5. Add what it teaches to book/topics.md, its terms to book/glossary.md, its symbols to
   book/notation.md, and what it cites to references.bib.
`make book` builds it; `make test` runs all that must hold."""


def begin(name, title="", root=ROOT):
    """Write the chapter `part/name` and list it; return its path as seen from the root.

    Raises:
        ValueError: there can be no such chapter; the message says what to do instead.
    """
    found = re.fullmatch(r"([a-z][a-z0-9_]*)/([a-z][a-z0-9_]*)", name)
    if not found:
        expected = "expected part/name, in small letters, digits and _"
        raise ValueError(f"{expected}, got '{name}'; say  {USAGE}")
    part, stem = found.groups()
    title = title.strip() or stem.replace("_", " ").capitalize()
    if re.search(r"[\n\[\]`]", title):
        raise ValueError(f"expected a TITLE of one line without [, ] and `, got {title!r}")
    page = f"book/{part}/{stem}.md"
    contents, readme = ((root / each).read_text("utf-8") for each in ("_toc.yml", "README.md"))
    parts = set(re.findall(r"^ +- file: book/(\w+)/", contents, re.MULTILINE))
    parts = sorted(parts & set(re.findall(r"^\d+\. .*\(book/(\w+)/", readme, re.MULTILINE)))
    if part not in parts:
        expected = f"there is no part '{part}'; expected one of {', '.join(parts)}"
        raise ValueError(
            f"{expected}. For a new part, write its caption and first line into _toc.yml"
        )
    check_unused(stem, title, root)
    listed = after_last(rf" +- file: book/{part}/.*\n", contents, f"  - file: book/{part}/{stem}\n")
    line = rf"(\d+)\. \[.*\]\(book/{part}/.*\n"
    number = int(re.findall(f"^{line}", readme, re.MULTILINE)[-1]) + 1
    linked = after_last(line, readme, f"{number}. [{title}]({page})\n")
    words = {"TITLE": title, "NAME": stem, "TAG": stem.replace("_", "-")}
    text = re.sub("|".join(words), lambda word: words[word[0]], TEMPLATE.read_text("utf-8"))
    for path, content in ((page, text), ("_toc.yml", listed), ("README.md", linked)):
        (root / path).write_text(content, encoding="utf-8", newline="\n")
    return page


def check_unused(stem, title, root):
    """Refuse a name or a title that a page of the book has; labels hold for the whole book."""
    for path in sorted((root / "book").rglob("*.md")):
        text, place = path.read_text("utf-8"), path.relative_to(root).as_posix()
        if path.stem == stem or f"({stem})=" in text.splitlines():
            raise ValueError(f"{place} has the name '{stem}' already: choose another")
        if f"# {title}" in text.splitlines():
            raise ValueError(f"{place} is called '{title}' already: choose another TITLE")


def after_last(pattern, text, line):
    """The text with a line after the last one that the pattern matches."""
    *_, last = re.finditer(f"^{pattern}", text, re.MULTILINE)
    return text[: last.end()] + line + text[last.end() :]


def main(arguments):
    try:
        page = begin(*arguments)
    except ValueError as reason:
        print(f"make chapter: {reason}", file=sys.stderr)
        return 2
    print(NEXT.replace("PAGE", page))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
