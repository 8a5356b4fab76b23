"""`src.tools.drawing`: diagrams that are checked while they are drawn."""

import math
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
    letters = "".join(drawing._WIDTHS.values())
    assert len(set(letters)) == len(letters) > 80, "each letter has one width"
    assert text_width("cat") == pytest.approx((0.5 + 0.556 + 0.278) * 18)
    assert text_width("一") == 18  # not in the table, but as wide as high
    assert text_width("cat", bold=True) == pytest.approx(text_width("cat") * 16 / 15)
    index = 0.75 * text_width("t")
    # stars mark a formula and are not shown
    assert text_width("*q*_t k") == pytest.approx(text_width("q k") + index)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(-1.0, "−1"), (0.125, "0.12"), (-math.inf, "−∞"), (7087872, "7,087,872"), ("the", "the")],
)
def test_numbers_are_written_as_in_print(value, expected):
    assert written(value) == expected
    assert written(2.0, digits=1) == "2.0"
    assert written(math.inf, digits=2) == "∞"


# ---- what is drawn ---------------------------------------------------------------------------


def test_the_numbers_and_the_shape_shown_are_those_of_the_tensor(sheet):
    values = torch.tensor([[1.0, -2.0, 0.25], [3.0, 4.0, -torch.inf]])
    rows = sheet.cells(100, 60, values, name="keys", rows=("a", "b"), size=(60, 28))
    expected = ["keys", "(2, 3)", "1", "−2", "0.25", "3", "4", "−∞", "a", "b"]
    assert texts(sheet) == expected
    assert rows == [Box(100, 60, 280, 88), Box(100, 88, 280, 116)]
    column = sheet.cells(300, 60, np.arange(2), shape=False)  # a vector
    assert column[1] == Box(300, 88, 332, 116)


def test_strong_and_hatched_cells_are_those_that_were_named(sheet):
    sheet.cells(0, 0, np.zeros((2, 2)), shape=False, strong=[[0, 1], [0, 0]], hatched=[0, 1])
    looks = [(r.get("fill"), r.get("fill-opacity")) for r in parsed(sheet).iter(f"{SVG}rect")]
    plain, hatch = drawing._FILLS["grey"], "url(#drawing-a-test-hatch)"
    assert looks == [(plain, "0.2"), (plain, "0.45"), (hatch, "1"), (hatch, "1")]


def test_a_listener_gets_the_title_and_the_description(sheet):
    svg = parsed(sheet)
    named = {node.get("id"): node.text for node in svg.iter() if node.get("id")}
    title, description = svg.get("aria-labelledby").split()
    assert (named[title], named[description]) == ("A test", "Shown: 1 < 2 & 3.")


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
    assert [span.text for span in spans] == ["q", "t", " ", "k"]
    assert [span.get("dy") for span in spans] == [None, "4", "-4", None]
    assert [span.get("font-size") for span in spans] == [None, "75%", None, None]


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


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda s: s.box(0, 40, 62, 30, "thirteen"), "a box of 62 × 30, got 'thirteen'"),
        (lambda s: s.box(0, 0, 90, 40, "two\nlines"), "a box of 90 × 40, got 'two"),
        (lambda s: s.text(10, 50, "label"), "'label' leaves the sheet, which is 640 wide"),
        (lambda s: s.text(635, 50, "label"), "'label' leaves the sheet, which is 640 wide"),
        (lambda s: s.cells(100, 50, torch.zeros(1, 2, 3)), "unpack"),
    ],
)
def test_what_does_not_fit_and_cannot_be_read_is_refused(sheet, draw, message):
    sheet.box(0, 0, 62, 30, "thirte")
    with pytest.raises(ValueError, match=message):
        draw(sheet)


def test_two_labels_that_overlap_are_refused(sheet):
    sheet.text(100, 50, "one", align="start")
    sheet.text(100 + text_width("one"), 50, "two", align="start")  # touching is allowed
    with pytest.raises(ValueError, match="the labels 'three' and 'one' overlap"):
        sheet.text(100, 60, "three", align="start")


@pytest.mark.parametrize("order", [1, -1])
def test_a_line_through_a_label_is_refused_whichever_comes_first(sheet, order):
    first, second = [
        lambda: sheet.line((0, 40), (200, 60)),
        lambda: sheet.text(100, 50, "crossed"),
    ][::order]
    first()
    with pytest.raises(ValueError, match="crosses the label 'crossed'"):
        second()


def test_a_line_beside_a_label_is_allowed(sheet):
    sheet.text(100, 50, "beside")
    sheet.line((0, 60), (200, 60))
    sheet.line((10, 0), (10, 100))
    sheet.line((0, 0), (200, 30))
