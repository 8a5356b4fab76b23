"""`src.tools.drawing`: diagrams that are checked while they are drawn."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from test_figures import contrast

from src.tools import drawing
from src.tools.drawing import SIZE, WIDTH, Box, Drawing, text_width, written

SVG = "{http://www.w3.org/2000/svg}"
GROUNDS = ("#ffffff", "#121212")  # of the page, light and dark


@pytest.fixture
def sheet():
    return Drawing("A test", "Shown: 1 < 2 & 3.")


def parsed(sheet):
    return ET.fromstring(sheet._repr_svg_())


def texts(sheet):
    return ["".join(node.itertext()).strip() for node in parsed(sheet).iter(f"{SVG}text")]


# ---- widths and numbers ----------------------------------------------------------------------


def test_the_width_of_a_text_is_the_sum_of_its_letters():
    assert text_width("cat") == pytest.approx((0.5 + 0.556 + 0.278) * 18)
    assert text_width("一") == 18  # not in the table, but as wide as high
    assert text_width("cat", bold=True) == pytest.approx(text_width("cat") * 16 / 15)
    index = 0.75 * text_width("t")
    # stars mark a formula and are not shown
    assert text_width("*q*_t k") == pytest.approx(text_width("q k") + index)


def test_each_letter_has_one_width():
    letters = "".join(drawing._WIDTHS.values())
    assert len(set(letters)) == len(letters) > 80


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (-1.0, None, "−1"),
        (0.125, None, "0.12"),
        (2.0, 1, "2.0"),
        (float("-inf"), None, "−∞"),
        (float("inf"), 2, "∞"),
        (7087872, None, "7,087,872"),
        ("the", None, "the"),
    ],
)
def test_numbers_are_written_as_in_print(value, digits, expected):
    assert written(value, digits=digits) == expected


# ---- what is drawn ---------------------------------------------------------------------------


def test_the_numbers_and_the_shape_shown_are_those_of_the_tensor(sheet):
    values = torch.tensor([[1.0, -2.0, 0.25], [3.0, 4.0, -torch.inf]])
    rows = sheet.cells(100, 60, values, name="keys", rows=("a", "b"), size=(60, 28))
    expected = ["keys", "(2, 3)", "1", "−2", "0.25", "3", "4", "−∞", "a", "b"]
    assert texts(sheet) == expected
    assert rows == [Box(100, 60, 280, 88), Box(100, 88, 280, 116)]


def test_a_vector_is_a_column(sheet):
    assert sheet.cells(100, 60, np.arange(2), shape=False)[1] == Box(100, 88, 132, 116)


def test_strong_and_hatched_cells_are_those_that_were_named(sheet):
    sheet.cells(0, 0, np.zeros((2, 2)), shape=False, strong=[[0, 1], [0, 0]], hatched=[0, 1])
    looks = [(r.get("fill"), r.get("fill-opacity")) for r in parsed(sheet).iter(f"{SVG}rect")]
    plain, hatch = drawing._FILLS["grey"], "url(#drawing-a-test-hatch)"
    assert looks == [(plain, "0.2"), (plain, "0.45"), (hatch, "1"), (hatch, "1")]


def test_a_listener_gets_the_title_and_the_description(sheet):
    svg = parsed(sheet)
    named = {node.get("id"): node.text for node in svg.iter() if node.get("id")}
    assert [named[name] for name in svg.get("aria-labelledby").split()] == [
        "A test",
        "Shown: 1 < 2 & 3.",
    ]


def test_each_text_says_how_wide_it_is_and_none_is_small(sheet):
    sheet.text(200, 20, "*q*_t *k*_1", size=24)
    sheet.box(0, 40, 90, 50, "two\nlines")
    expected = [text_width("*q*_t *k*_1", size=24), text_width("two"), text_width("lines")]
    found = [float(node.get("textLength")) for node in parsed(sheet).iter(f"{SVG}text")]
    assert found == pytest.approx(expected, abs=0.01)
    assert SIZE * 342 / WIDTH >= 9  # the figure of a phone of 390 pixels is 342 wide


def test_an_index_is_lower_and_smaller_and_what_follows_is_not(sheet):
    sheet.text(200, 20, "*q*_t *k*")
    spans = list(parsed(sheet).iter(f"{SVG}tspan"))
    assert [(span.text, span.get("dy"), span.get("font-size")) for span in spans] == [
        ("q", None, None),
        ("t", "4", "75%"),
        (" ", "-4", None),
        ("k", None, None),
    ]


def test_the_head_of_an_arrow_is_at_its_end(sheet):
    sheet.arrow((10, 50), (110, 50), gap=0)
    tip = re.match(r"(\S+),(\S+) ", next(parsed(sheet).iter(f"{SVG}polygon")).get("points"))
    assert tuple(map(float, tip.groups())) == (110, 50)


def test_the_sheet_is_as_high_as_what_is_on_it(sheet):
    sheet.box(0, 20, 50, 94)
    assert parsed(sheet).get("viewBox") == f"0 16 {WIDTH} 102"


def test_an_unchanged_drawing_is_the_same_bytes(sheet):
    same = Drawing("A test", "Shown: 1 < 2 & 3.")
    for each in (sheet, same):
        each.cells(100, 60, torch.eye(2), name="*I*")
        each.plus(20, 20)
    assert sheet._repr_svg_() == same._repr_svg_() == sheet._repr_svg_()


def test_all_inks_can_be_read_on_both_pages():
    for inks in drawing._INKS.values():
        for ink, ground in zip(inks, GROUNDS, strict=True):
            assert contrast(ink, ground) >= 4.5, ink


# ---- what is refused -------------------------------------------------------------------------


def test_a_text_too_wide_for_its_box_is_refused(sheet):
    sheet.box(0, 0, 62, 30, "thirteen"[:6])
    with pytest.raises(ValueError, match="fits into a box of 62 × 30, got 'thirteen'"):
        sheet.box(0, 40, 62, 30, "thirteen")


def test_a_text_too_high_for_its_box_is_refused(sheet):
    with pytest.raises(ValueError, match="in 2 lines"):
        sheet.box(0, 0, 90, 40, "two\nlines")


def test_two_labels_that_overlap_are_refused(sheet):
    sheet.text(100, 50, "one", align="start")
    sheet.text(100 + text_width("one"), 50, "two", align="start")  # touching is allowed
    with pytest.raises(ValueError, match="the labels 'three' and 'one' overlap"):
        sheet.text(100, 60, "three", align="start")


@pytest.mark.parametrize("first", ["line", "text"])
def test_a_line_through_a_label_is_refused_whichever_comes_first(sheet, first):
    both = {
        "line": lambda: sheet.line((0, 40), (200, 60)),
        "text": lambda: sheet.text(100, 50, "crossed"),
    }
    both.pop(first)()
    with pytest.raises(ValueError, match="crosses the label 'crossed'"):
        next(iter(both.values()))()


def test_a_line_beside_a_label_is_allowed(sheet):
    sheet.text(100, 50, "beside")
    sheet.line((0, 60), (200, 60))
    sheet.line((10, 0), (10, 100))
    sheet.line((0, 0), (200, 30))


@pytest.mark.parametrize(("x", "y"), [(10, 50), (635, 50)])
def test_a_label_that_leaves_the_sheet_is_refused(sheet, x, y):
    with pytest.raises(ValueError, match="'label' leaves the sheet, which is 640 wide"):
        sheet.text(x, y, "label")


def test_small_letters_an_unknown_colour_and_three_axes_are_refused(sheet):
    with pytest.raises(ValueError, match="letters of 18 or more for 'x', got 17"):
        sheet.text(100, 50, "x", size=17)
    with pytest.raises(ValueError, match=r"a colour among ink, grey, .*, got 'pink'"):
        sheet.text(100, 50, "x", colour="pink")
    with pytest.raises(ValueError, match=r"one or two axes .* got shape \(1, 2, 3\)"):
        sheet.cells(100, 50, torch.zeros(1, 2, 3))
    with pytest.raises(ValueError, match=r"a label for each row, got shape \(2,\) and 1 labels"):
        sheet.cells(100, 50, torch.zeros(2), rows=("one",))
