"""The page of errata and the changelog say what the repository says."""

import re
from functools import cache

import pytest
import yaml
from chapters import ROOT, Page, pages, read

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


def still_said(rows, others):
    """Each false statement that stands somewhere else still: (place, statement)."""
    texts = {other.name: plain(other.text) for other in others}
    for row in rows:
        for quotation in quotations(row):
            yield from (
                f"{name}: '{quotation}'" for name, text in texts.items() if quotation in text
            )


def missing_sections(rows, titles):
    """Sections that a row names and its chapter has not: `titles` is {label: its headings}."""
    for row in rows:
        label = None
        for piece in re.findall(r"\{ref\}`([^`]+)`|\*([^*]+)\*", row[0] + " " + row[3]):
            label = piece[0] if piece[0] in titles else label
            if piece[1] and label and piece[1] not in titles[label]:
                yield f"{label}: '{piece[1]}'"


@cache
def rows():
    return [[cell.content for cell in cells] for _, cells in read(ROOT / NAME).table_rows]


@cache
def book():
    return [read(path) for path in pages() if path.relative_to(ROOT).as_posix() != NAME]


def code():
    for path in sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("next_token/*.py")]):
        yield Page(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def titles():
    """{label of a page: what its sections, notes and exercises are called}."""
    found = {}
    for page in book():
        label = re.search(r"^\((\w+)\)=\n# ", page.text, re.MULTILINE)
        if label:
            names = [heading.title for heading in page.headings]
            names += [directive.argument for directive in page.directives]
            found[label[1]] = {re.sub(r'[*"★]', "", name).strip() for name in names}
    return found


ROW = ["{ref}`one`", 'Said "the floor is four nats a token" of it.', "It is three.", "*Floors*"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("We said: the floor *is* four\nnats a token.", ["a.md: 'the floor is four nats a token'"]),
        ("The floor is three nats a token.", []),
    ],
)
def test_a_false_statement_that_still_stands_is_found(text, found):
    assert list(still_said([ROW], [Page("a.md", text)])) == found


def test_a_section_that_is_not_there_is_found():
    assert list(missing_sections([ROW], {"one": {"Floors"}})) == []
    assert list(missing_sections([ROW], {"one": {"Ceilings"}})) == ["one: 'Floors'"]


def test_no_false_statement_of_an_earlier_edition_stands():
    found = list(still_said(rows(), [*book(), *code()]))
    assert not found, "\n".join(found)


def test_each_erratum_names_a_section_that_exists():
    found = list(missing_sections(rows(), titles()))
    assert not found, "\n".join(found)


def test_each_erratum_says_what_is_true_and_where():
    assert rows()
    assert all(cell.strip() for row in rows() for cell in row)


def test_one_version_holds_everywhere():
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\]", text_of("CHANGELOG.md"), re.MULTILINE)[1]
    package = re.search(r'^version = "(.+)"', text_of("pyproject.toml"), re.MULTILINE)[1]
    book = yaml.safe_load(text_of("_config.yml"))["sphinx"]["config"]["version"]
    assert newest == package == book == yaml.safe_load(text_of("CITATION.cff"))["version"]
