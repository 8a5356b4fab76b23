"""The interactive figures of the built site, used as a reader would: `make check-site`.

The network is blocked: every request but those to the server of the site is refused and noted.
"""

import json

import pytest
from browsing import PHONE, Visit

pytestmark = [pytest.mark.site, pytest.mark.xdist_group("interactive")]  # one page
pytest_plugins = ["site_fixtures"]

LANDING = "book/index.html"


@pytest.fixture(scope="module")
def story_visit(context, address):
    return Visit(context, f"{address}/{LANDING}")


@pytest.fixture
def story(story_visit):
    figure = story_visit.page.locator("#story")
    figure.get_by_role("radio").last.click()
    return figure


def told(figure):
    """The word that is marked, the two lists, and the sentence below them."""
    lists = [
        [tuple(row.inner_text().split("\n")) for row in each.locator("li").all()]
        for each in figure.locator("ol").all()
    ]
    marked = figure.locator("[aria-checked=true]").all_inner_texts()
    return marked, lists, figure.locator("[aria-live]").inner_text()


def as_data_has_it(figure, at):
    data = json.loads(figure.locator("script").text_content())
    lists = [[(word, f"{p} %") for word, p in own] for own in data["guesses"][at]]
    return [data["words"][at]], lists, data["says"][at]


def test_a_touch_on_a_word_shows_what_both_readers_expected_there(story_visit, story):
    words = story.get_by_role("radio").all()
    assert len(words) > 15
    before = told(story)
    for at in (3, 16, 5, -1):
        words[at].click()
        assert told(story) == as_data_has_it(story, at)
        assert (told(story) == before) == (at == -1)
        marked = [word for word in words if word.get_attribute("class") == "later"]
        assert len(marked) == (0 if at == -1 else len(words) - 1 - at)
    widths = (
        story.locator("ol").last.locator("i").evaluate_all("bars => bars.map(e => e.style.width)")
    )
    assert widths == ["100%", *4 * ["0%"]]
    assert story_visit.outside + story_visit.errors == []


def test_the_keyboard_steps_through_the_story_and_tab_leaves_it(story_visit, story):
    keyboard = story_visit.page.keyboard
    last = story.get_by_role("radio").count() - 1
    story.get_by_role("radio").last.focus()
    for key, at in (
        ("Home", 0),
        ("ArrowLeft", 0),
        ("ArrowRight", 1),
        ("ArrowDown", 2),
        ("End", last),
    ):
        keyboard.press(key)
        assert told(story) == as_data_has_it(story, at)
    keyboard.press("ArrowUp")
    assert told(story) == as_data_has_it(story, last - 1)
    assert story.locator("[tabindex='0']").count() == 1
    assert story.locator(":focus").get_attribute("aria-checked") == "true"
    keyboard.press("Tab")
    assert story.locator(".words :focus").count() == 0


def test_without_scripts_the_story_stands_at_its_last_word(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/{LANDING}")
    figure = page.locator("#story")
    assert told(figure)[1:] == as_data_has_it(figure, -1)[1:]
    assert "needs JavaScript" not in figure.inner_text()
    context.close()


@pytest.mark.parametrize("size", [PHONE, {"width": 1440, "height": 900}], ids=["phone", "desk"])
def test_the_first_screen_holds_the_buttons_and_the_whole_story(browser, address, size):
    context = browser.new_context(viewport=size, has_touch=True, is_mobile=size is PHONE)
    page = Visit(context, f"{address}/{LANDING}").page
    figure = page.locator("#story")
    assert page.locator(".go a").count() == 3
    for control in (*page.locator(".go a").all(), *figure.get_by_role("radio").all()):
        assert control.bounding_box()["height"] >= 44
    for at in (3, -1):  # whatever the sentence says
        figure.get_by_role("radio").nth(at).tap()
        box = figure.bounding_box()
        assert box["y"] + box["height"] <= size["height"]
    context.close()
