"""`src.tools.tables`: the same numbers as text and as HTML."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
import torch

from src.tools.tables import Table

COLUMNS = {"model": "", "nats": ".2f", "numbers": ",d"}


@pytest.fixture
def table():
    rows = [("uniform", 2.4849, 0), ("a <b> & c", -0.125, 65536), ("pairs", math.inf, None)]
    return Table(COLUMNS, rows, caption="A & B.")


def cells(table):
    """Titles of the columns, and all rows, as a browser would read them from the HTML."""
    found = ET.fromstring(table._repr_html_()).find("table")
    head = [each.text for each in found.find("thead/tr")]
    return head, [[each.text for each in row] for row in found.find("tbody")]


def test_text_is_aligned_numbers_on_the_right_and_texts_on_the_left(table):
    assert repr(table).split("\n") == [
        "A & B.",
        "model       nats  numbers",
        "-------------------------",
        "uniform     2.48        0",
        "a <b> & c  −0.12   65,536",
        "pairs          ∞        –",
    ]


def test_html_says_what_the_text_says_whatever_letters_are_in_it(table):
    head, rows = cells(table)
    assert head == list(COLUMNS)
    assert rows == table.written()
    assert [" ".join(row) for row in rows] == [
        re.sub(" {2,}", " ", line) for line in repr(table).split("\n")[3:]
    ]


def test_html_marks_titles_of_columns_and_rows_and_has_the_caption(table):
    found = ET.fromstring(table._repr_html_()).find("table")
    assert found.find("caption").text == "A & B."
    assert [each.get("scope") for each in found.iter("th")] == ["col"] * 3 + ["row"] * 3
    assert "right" not in found.find("tbody/tr/th").get("style")
    assert all("right" in each.get("style") for each in found.iter("td"))


def test_html_uses_the_class_of_the_themes_own_tables_and_no_colours(table):
    said = table._repr_html_()
    assert 'class="table"' in said
    assert "color" not in said


def test_a_column_with_a_text_in_it_stands_on_the_left():
    assert repr(Table({"a": "", "b": ""}, [("x", 1), ("y", "two")])).split("\n")[2] == "x  1"


def test_a_number_may_be_a_tensor_of_one_element():
    assert Table({"x": ".1f"}, [(torch.tensor(1.25),), (torch.tensor(math.inf),)]).written() == [
        ["1.2"],
        ["∞"],
    ]


def test_a_table_without_rows_shows_its_columns():
    assert repr(Table(COLUMNS, [])) == "model  nats  numbers\n--------------------"


@pytest.mark.parametrize("row", [("uniform", 1.0), ("uniform", 1.0, 2, 3)])
def test_a_row_that_does_not_fit_the_columns_is_refused(row):
    with pytest.raises(ValueError, match=r"zip\(\) argument"):
        repr(Table(COLUMNS, [row]))


def test_a_page_shows_the_space_with_which_a_token_begins():
    shown = Table({"token": "", "rank": ",d"}, [(" the", 262)])._repr_html_()
    assert 'white-space: pre-wrap"> the</th>' in shown


def test_the_half_of_an_interval_stays_on_the_line_of_its_sign():
    shown = Table({"arm": "", "95 %": ""}, [("local", "± 0.05")])._repr_html_()
    assert ">±&nbsp;0.05</td>" in shown
