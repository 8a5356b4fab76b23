"""The cards of chapters: what is changed is found, and a bold claim without a card is listed."""

import ast
from argparse import ArgumentTypeError

import pytest
from chapters import ROOT

from experiments.shared.cards import (
    SPECIFICATIONS,
    WithoutChecks,
    changed,
    known,
    listed,
    page,
    specification,
)

CHAPTERS = sorted(path.stem for path in (ROOT / SPECIFICATIONS).glob("*.toml"))


def test_a_piece_of_code_is_changed_in_the_one_cell_that_has_it():
    assert changed(["a = 1", "b = 2"], [["b = 2", "b = 3"]]) == ["a = 1", "b = 3"]
    for sources, times in ((["a = 1"], 0), (["b = 2", "b = 2"], 2)):
        with pytest.raises(ValueError, match=f"'b = 2' once in the chapter, got it {times} times"):
            changed(sources, [["b = 2", "b = 3"]])


def test_what_asserts_or_glues_is_left_out_also_within_a_loop():
    code = "for x in (1, 2):\n    assert x == 0\nglue('x', x)\ny = x"
    space = {}
    exec(ast.unparse(WithoutChecks().visit(ast.parse(code))), space)
    assert space["y"] == 2


def test_a_bold_claim_is_listed_until_a_card_follows_it(tmp_path):
    chapter = tmp_path / "book" / "part" / "a.md"
    chapter.parent.mkdir(parents=True)
    first, second = "**The first claim holds for all.**\n", "**The second one does as well.**\n"
    card, limits = (
        ":::{card} name\n:::\n",
        "## What this does not show\n\n**That it is always so.**\n",
    )
    chapter.write_text(first + second + card + limits)
    assert listed(tmp_path) == ["book/part/a.md:1: The first claim holds for all."]
    chapter.write_text(first + card + second + card + limits)
    assert listed(tmp_path) == []


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_cards_of_a_chapter_change_its_code_and_each_stands_on_its_page(chapter):
    wanted, text = specification(chapter), page(chapter).read_text(encoding="utf-8")
    common = wanted["all"]["replace"]
    for change in wanted["change"].values():
        changed([text], common + change["replace"])
    for name, card in wanted["card"].items():
        assert f"{{card}} {name}\n" in text
        assert set(card["changes"]) <= set(wanted["change"])


def test_a_chapter_without_a_file_of_cards_is_refused():
    with pytest.raises(ArgumentTypeError, match=r"expected a name of \['.*\], got 'none'"):
        known("none")
