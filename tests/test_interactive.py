"""The interactive figures of the built site, used as a reader would: `make check-site`.

The network is blocked: every request but those to the server of the site is refused and noted.
"""

import itertools
import json
import math
import re

import pytest
import torch
from browsing import PHONE, Visit

from src.gpt.sampling import min_p, nucleus, temperature, top_k
from src.texts.corpora import load, split
from src.tokens.bpe import BytePairTokenizer, split_words

pytestmark = [pytest.mark.site, pytest.mark.xdist_group("interactive")]  # one tokenizer, one page
pytest_plugins = ["site_fixtures"]

PAGE, KNOBS = "book/tokens/bpe.html", "book/gpt/sampling.html"
TEXTS = [
    "sing sings singing",
    "don't  stop\u20142,048!",
    "naïve 👩🏽‍🚀 終わり e\u0301",
    "",
]


@pytest.fixture(scope="module")
def visit(context, address):
    return Visit(context, f"{address}/{PAGE}")


@pytest.fixture
def figure(visit):
    return visit.page.locator("#merge-steps")


@pytest.fixture
def phone(browser):
    """The window of a phone."""
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    yield context
    context.close()


@pytest.fixture(scope="module")
def tokenizer():
    """That of the chapter, trained afresh."""
    texts = (document.text for document in split(load("python-docs")).train)
    return BytePairTokenizer.train(texts, vocabulary_size=2048)


def shown(figure):
    """(id, text) of each token that the figure shows, and how many words they stand in."""
    tokens = figure.locator(".token")
    ids = [int(i) for i in tokens.evaluate_all("tokens => tokens.map(e => e.dataset.id)")]
    return ids, tokens.locator("b").all_text_contents(), figure.locator(".word").count()


def spelled(token):
    """How the figure writes a token's bytes."""
    try:
        return token.decode().replace(" ", "␣")
    except UnicodeDecodeError:
        return token.hex(" ").upper()


def button(figure, name):
    return figure.get_by_role("button", name=name)


def is_disabled(control):
    return control.get_attribute("aria-disabled") == "true"


def check_fits_a_phone(part):
    box = part.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]


def check_fits_a_finger(control):
    check_fits_a_phone(control)
    assert control.bounding_box()["height"] >= 44, "a finger needs 44 pixels"


def test_the_figure_holds_the_merges_of_the_tokenizer(figure, tokenizer):
    data = json.loads(figure.locator("script").text_content())
    assert [tuple(pair) for pair in data["merges"]] == tokenizer.merges
    assert data["pattern"] == tokenizer.pattern


@pytest.mark.parametrize("text", TEXTS)
def test_stepping_to_the_end_shows_the_tokens_of_the_tokenizer(visit, figure, tokenizer, text):
    figure.get_by_label("Your word").fill(text)
    following = button(figure, "next merge")
    ids, *_ = shown(figure)
    assert ids == list(text.encode())
    while not is_disabled(following):
        following.click()
        before, (ids, *_) = ids, shown(figure)
        assert tokenizer.decode(ids) == text
        assert len(ids) < len(before)
    ids, names, n_words = shown(figure)
    assert ids == tokenizer.encode(text)
    assert names == [spelled(tokenizer.token_bytes(i)) for i in ids]
    assert n_words == len(split_words(text))
    assert visit.outside + visit.errors == []


def test_the_keyboard_alone_steps_forth_and_back(visit, figure, tokenizer):
    figure.get_by_label("Your word").fill(" matches")
    start, end = list(b" matches"), tokenizer.encode(" matches")
    visit.page.keyboard.press("Tab")
    for key, expected in (("End", end), ("Home", start), ("ArrowRight", None)):
        visit.page.keyboard.press(key)
        assert expected is None or shown(figure)[0] == expected
    assert len(start) > len(shown(figure)[0]) > len(end)
    visit.page.keyboard.press("ArrowLeft")
    assert shown(figure)[0] == start
    for _ in range(3):  # to the last button
        visit.page.keyboard.press("Tab")
    visit.page.keyboard.press("Enter")
    assert shown(figure)[0] == end


def test_the_merges_open_half_way_where_one_has_been_made_and_another_is_to_come(context, address):
    opened = Visit(context, f"{address}/{PAGE}")
    figure = opened.page.locator("#merge-steps")
    says = figure.locator("[aria-live]").text_content()
    step, last = map(int, re.match(r"Step (\d+) of (\d+): merge", says).groups())
    assert 2 < step < last - 2
    assert figure.locator(".token.new").count() > 0
    assert not figure.locator("[aria-disabled=true]").count()
    figure.get_by_label("Your word").fill("singing")  # whoever types begins with the bytes
    assert shown(figure)[0] == list(b"singing")
    opened.page.close()


def test_a_finger_can_use_it_on_a_phone(phone, address, tokenizer):
    figure = Visit(phone, f"{address}/{PAGE}").page.locator("#merge-steps")
    figure.get_by_label("Your word").fill(" honorificabilitudinitatibus 終わり")
    button(figure, "to the end").tap()
    assert shown(figure)[0] == tokenizer.encode(" honorificabilitudinitatibus 終わり")
    for control in (*figure.get_by_role("button").all(), figure.locator("input")):
        check_fits_a_finger(control)
    for token in figure.locator(".token").all():
        check_fits_a_phone(token)


# ---- the four knobs of sampling ---------------------------------------------------------------


@pytest.fixture(scope="module")
def knobs_visit(context, address):
    return Visit(context, f"{address}/{KNOBS}")


@pytest.fixture
def knobs(knobs_visit):
    figure = knobs_visit.page.locator("#knobs")
    button(figure, "as the model says").click()
    return figure


def turn(figure, data, **wanted):
    """Set each knob to a value of its list; the others stay."""
    for name, value in wanted.items():
        name = name.replace("_", "-")
        figure.locator(f"[data-name={name}]").fill(str(data["knobs"][name].index(value)))


def as_src_has_it(logits, temperature_, k, p, factor):
    logits = temperature(logits, math.inf if temperature_ is None else temperature_)
    return min_p(nucleus(top_k(logits, k), p), factor).softmax(-1)


def test_the_knobs_do_what_the_filters_of_src_do(knobs_visit, knobs):
    data = json.loads(knobs.locator("script").text_content())
    settings = itertools.product((0, 0.5, 1, 2), (1, 20, 1024), (0.3, 0.9, 1), (0, 0.1, 1))
    for context, given in enumerate(data["contexts"]):
        knobs.locator("select").select_option(str(context))
        logits = torch.tensor(given["logits"], dtype=torch.float64)
        for t, k, p, factor in settings if context == 0 else [(0.7, 50, 0.8, 0.02)]:
            turn(knobs, data, temperature=t, top_k=k, nucleus=p, min_p=factor)
            expected = as_src_has_it(logits, t, k, p, factor)
            rows = knobs.locator(".token").evaluate_all(
                "rows => rows.map(e => [+e.dataset.id, +e.dataset.p])"
            )
            for token, prob in rows:
                assert prob == pytest.approx(float(expected[token]), abs=1e-9)
            others = float(knobs.locator(".others").get_attribute("data-p"))
            assert others == pytest.approx(1 - sum(prob for _, prob in rows), abs=1e-9)
            says = knobs.locator("[aria-live]").text_content()
            assert int(says.split(" of ")[0].replace(",", "")) == int((expected > 0).sum())
    assert given["next"] in [token for token, _ in rows]
    assert knobs_visit.outside + knobs_visit.errors == []


def test_at_infinite_temperature_all_tokens_are_alike(knobs):
    turn(knobs, json.loads(knobs.locator("script").text_content()), temperature=None)
    probs = knobs.locator(".token").evaluate_all("rows => rows.map(e => +e.dataset.p)")
    assert probs == pytest.approx([1 / 1024] * len(probs))


def test_the_figure_opens_where_there_is_something_to_see(context, address):
    """The model is not sure there, a filter is at work, and no word is cut in the middle."""
    opened = Visit(context, f"{address}/{KNOBS}")
    figure = opened.page.locator("#knobs")
    data = json.loads(figure.locator("script").text_content())
    probs = figure.locator(".token").evaluate_all("rows => rows.map(e => +e.dataset.p)")
    assert 0.1 < max(probs) < 0.9
    assert sum(prob > 0 for prob in probs) > 3
    assert figure.locator("[aria-pressed=true]").inner_text() == data["opens"][1]
    assert not figure.locator("[aria-live]").text_content().startswith("1,024 of")
    options = figure.locator("option").all_inner_texts()
    assert options == ["sure", "half sure", "not sure"]
    assert figure.locator("select").evaluate("e => e.selectedOptions[0].text") == data["opens"][0]
    for given in data["contexts"]:
        assert re.fullmatch(r"[A-Za-z]+(,? [A-Za-z]+)+", given["text"])
        assert data["names"][given["next"]].startswith("␣")
        figure.locator("select").select_option(given["name"])
        assert given["text"] in figure.locator(".before").inner_text()
    opened.page.close()


def test_each_preset_sets_its_knobs_and_says_so_by_keyboard_too(knobs):
    data = json.loads(knobs.locator("script").text_content())
    for name, wanted in data["settings"].items():
        button(knobs, name).press("Enter")
        for knob, value in wanted.items():
            slider = knobs.locator(f"[data-name={knob}]")
            assert data["knobs"][knob][int(slider.input_value())] == value
        assert knobs.locator("[aria-pressed=true]").all_inner_texts() == [name]
    turn(knobs, data, top_k=3)
    assert knobs.locator("[aria-pressed=true]").count() == 0


def test_ten_draws_are_tokens_that_can_be_drawn(knobs):
    data = json.loads(knobs.locator("script").text_content())
    turn(knobs, data, top_k=3)
    likeliest = knobs.locator(".token").evaluate_all("rows => rows.map(e => +e.dataset.id)")[:3]
    for _ in range(5):
        button(knobs, "draw ten").click()
        drawn = knobs.locator(".drawn").text_content().removeprefix("Ten draws: ").split(" | ")
        assert len(drawn) == 10
        assert set(drawn) <= {data["names"][i] for i in likeliest}


def test_the_knobs_fit_a_phone(phone, address):
    figure = Visit(phone, f"{address}/{KNOBS}").page.locator("#knobs")
    controls = figure.locator("button, select, input").all()
    assert len(controls) == 11
    for control in controls:
        check_fits_a_finger(control)
    settings = figure.get_by_role("group").bounding_box()
    third = figure.locator(".token >> nth=2").bounding_box()
    assert third["y"] + third["height"] - settings["y"] < 600, "one sees what a knob does"
    button(figure, "draw ten").tap()
    assert figure.locator(".drawn").text_content().startswith("Ten draws: ")
