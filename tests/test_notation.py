"""The page of symbols owns up to each letter that it uses twice."""

import re

from chapters import ROOT

PAGE = (ROOT / "book/notation.md").read_text(encoding="utf-8")
# Several rows, one meaning: x_t and x_{<t}; p and its hat; a length and the axis along it.
FAMILIES = {"x", "p", r"\theta", "T", "V"}


def rows_of(page):
    """(first cell, whole line) of each row of each table, heads left out."""
    for line in page.splitlines():
        if re.match(r"\| [$`]", line):
            yield line.split(" | ")[0].removeprefix("| "), line


def letters_of(cell):
    """The letter that each formula of a cell begins with, or the axis in code.

    >>> sorted(letters_of(r"$\\hat p$, $\\beta_1$"))
    ['\\\\beta', 'p']
    """
    formulas = re.findall(r"\$([^$]+)\$", cell) or re.findall(r"`([A-Z])`", cell)
    bare = (re.sub(r"\\(hat|log|frac|mathrm|mathcal|operatorname) ?", "", f) for f in formulas)
    return {found[0] for f in bare if (found := re.match(r"\\?[A-Za-z]+?(?![a-z])", f))}


def faults(page):
    symbols, _, twice = page.partition("(two-meanings)=")
    listed = set().union(*(letters_of(cell) for cell, _ in rows_of(twice)))
    rows = [(letters_of(cell), "†" in line) for cell, line in rows_of(symbols)]
    marked = set().union(*(letters for letters, dagger in rows if dagger))
    for letter in sorted(listed - marked):
        yield f"{letter} has several meanings, and no row with it has a dagger"
    for letters, dagger in rows:
        if dagger and not letters & listed:
            yield f"a dagger at {sorted(letters)}, but the last table has none of them"
        for letter in sorted(letters):
            times = sum(letter in other for other, _ in rows)
            if times > 1 and letter not in listed | FAMILIES:
                yield f"{letter} stands in {times} rows, but not in the last table"
            if letter in listed and not dagger:
                yield f"{letter} has several meanings: expected a dagger in its row"


def test_a_letter_with_two_meanings_is_marked_and_explained():
    assert list(faults(PAGE)) == []


def test_a_second_meaning_that_nobody_explains_is_found():
    assert any("z stands in 2 rows" in f for f in faults("| $z$ | – | one more |\n" + PAGE))
    unmarked = PAGE.replace(r"$\sigma(z)$ †", r"$\sigma(z)$")
    assert any("expected a dagger" in f for f in faults(unmarked))
    assert any("no row with it" in f for f in faults(PAGE + "| $\\eta$ | a rate; a letter |\n"))
