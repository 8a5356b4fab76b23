"""The page of errata and the changelog say what the repository says."""

import re
from functools import cache

import yaml
from chapters import ROOT, pages, read

NAME = "book/changes.md"
LEAST_WORDS = 5  # a shorter quotation may well stand elsewhere, and be true there


@cache
def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def plain(text):
    """The text on one line, without the marks of emphasis."""
    return re.sub(r"\s+", " ", text.replace("*", ""))


def quotations(row):
    """What an earlier edition said, as far as it is quoted at length."""
    for quotation in re.findall(r'"([^"]+)"', row[1]):
        for part in quotation.split("…"):
            if len(part.split()) >= LEAST_WORDS:
                yield plain(part).strip(" .,;")


def still_said(rows, texts):
    """Each false statement that stands somewhere else still: `texts` is {place: text}."""
    texts = {name: plain(text) for name, text in texts.items()}
    for quotation in (each for row in rows for each in quotations(row)):
        yield from (f"{name}: '{quotation}'" for name, text in texts.items() if quotation in text)


ROW = ["{ref}`one`", 'Said "the floor is four nats a token" of it.', "It is three.", "*Floors*"]


def test_a_false_statement_that_still_stands_is_found():
    texts = {"a.md": "So the floor *is* four\nnats a token.", "b.md": "The floor is three nats."}
    assert list(still_said([ROW], texts)) == ["a.md: 'the floor is four nats a token'"]


def rows():
    return [[cell.content for cell in cells] for _, cells in read(ROOT / NAME).table_rows]


def test_no_false_statement_of_an_earlier_edition_stands():
    files = [*pages(), *ROOT.glob("src/**/*.py"), *ROOT.glob("next_token/*.py")]
    names = {path.relative_to(ROOT).as_posix(): path for path in files}
    texts = {name: path.read_text("utf-8") for name, path in names.items() if name != NAME}
    assert list(still_said(rows(), texts)) == []


def test_each_erratum_says_what_is_true_and_where():
    assert rows()
    assert all(cell.strip() for row in rows() for cell in row)


def test_one_version_holds_everywhere():
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\]", text_of("CHANGELOG.md"), re.MULTILINE)[1]
    package = re.search(r'^version = "(.+)"', text_of("pyproject.toml"), re.MULTILINE)[1]
    book = yaml.safe_load(text_of("_config.yml"))["sphinx"]["config"]["version"]
    assert newest == package == book == yaml.safe_load(text_of("CITATION.cff"))["version"]
