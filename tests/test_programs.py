"""`src.texts.programs` on a language so small that all of it is worked by hand."""

import math

import pytest
import torch

from src.texts.programs import (
    Choice,
    derivations,
    enumerate_texts,
    first_impossible,
    log_prob,
    next_words,
    sample,
    uniform,
)

SEASON = Choice({"summer": 3, "winter": 1})
SKY = {
    "summer": Choice({"sun": 9, "rain": 1}),
    "winter": Choice({"sun": 2, "rain": 3, "snow": 5}),
}
MORE = Choice({"then": 1, "stop": 3})


def weather(g):
    """The season is hidden: sun . then rain . stop"""
    season = g.hide(SEASON)
    word = "then"
    while word == "then":
        g.pick(SKY[season])
        g.say(".")
        word = g.pick(MORE)
    g.say("the", "end")


def crowd(g):
    """One to three of three friends, no one twice, so that what can come depends on the past."""
    left = ["a", "b", "c"]
    for _ in range(1 + g.hide(uniform(range(3)))):
        left.remove(g.one_of(left))
    g.say("!")


def words(text):
    return tuple(text.split())


def test_the_probability_of_a_text_sums_over_what_is_hidden():
    sunny = 3 / 4 * 0.9 * 3 / 4 + 1 / 4 * 0.2 * 3 / 4
    assert log_prob(weather, words("sun . stop the end")) == pytest.approx(math.log(sunny))


def test_the_derivations_of_a_text_name_what_was_hidden():
    found = {d.hidden: math.exp(d.log_prob) for d in derivations(weather, words("rain ."))}
    assert found == pytest.approx({("summer",): 3 / 4 * 0.1, ("winter",): 1 / 4 * 0.3})


def test_the_next_word_is_predicted_from_the_posterior_of_what_is_hidden():
    summer, winter = 3 / 4 * 0.1, 1 / 4 * 0.3  # equally likely after rain
    after = next_words(weather, words("rain . then"))[-1]
    assert after == pytest.approx({"sun": 0.55, "rain": 0.2, "snow": 0.25})
    assert summer == pytest.approx(winter)


def test_the_next_words_at_all_positions_come_in_one_pass():
    text = words("sun . then snow . stop the end")
    rows = next_words(weather, text)
    assert len(rows) == len(text) + 1
    for t, row in enumerate(rows[:-1]):
        assert next_words(weather, text[:t])[-1] == pytest.approx(row)
        assert sum(row.values()) == pytest.approx(1)
    chain = sum(math.log(row[word]) for row, word in zip(rows, text, strict=False))
    assert chain == pytest.approx(log_prob(weather, text))
    assert rows[-1] == {}  # nothing follows a whole text


def test_a_certain_phrase_may_be_cut_in_the_middle():
    assert log_prob(weather, words("sun . stop the")) == log_prob(weather, words("sun . stop"))
    assert next_words(weather, words("sun . stop the"))[-1] == {"end": pytest.approx(1)}


@pytest.mark.parametrize(
    ("text", "place"),
    [("fog .", 0), ("sun sun", 1), ("sun . stop the sun", 4), ("sun . stop the end sun", 5)],
)
def test_the_first_word_that_cannot_follow_is_found(text, place):
    assert log_prob(weather, words(text)) == -math.inf
    assert first_impossible(weather, words(text)) == place
    assert derivations(weather, words(text)) == []
    assert next_words(weather, words(text))[place + 1 :] == [{}] * (len(words(text)) - place)


def test_a_word_that_one_season_cannot_say_leaves_the_other():
    assert first_impossible(weather, words("snow . then sun")) is None
    assert [d.hidden for d in derivations(weather, words("snow"))] == [("winter",)]


@pytest.mark.parametrize("program", [weather, crowd])
@pytest.mark.parametrize("most", [1, 2, 4, 9])
def test_all_texts_and_the_beginnings_of_longer_ones_sum_to_one(program, most):
    texts, cut = enumerate_texts(program, most)
    assert sum(texts.values()) + sum(cut.values()) == pytest.approx(1, abs=1e-13)
    for text, prob in (texts | cut).items():
        assert math.exp(log_prob(program, text)) == pytest.approx(prob, rel=1e-12)
    assert max(map(len, texts), default=0) <= most
    assert {len(text) for text in cut} <= {most}


def test_a_hidden_choice_may_stand_anywhere_at_its_price():
    def coins(g):
        for _ in range(3):
            g.hide(uniform("ht"))
        g.say("toss")

    assert log_prob(coins, ("toss",)) == pytest.approx(0)
    assert len(derivations(coins, ("toss",))) == 8


def test_one_of_any_number_of_words_costs_the_logarithm_of_the_number():
    def lottery(g):
        g.one_of([str(number) for number in range(1_000)])

    (drawn,) = sample(lottery, 1, generator=torch.Generator())
    assert drawn.log_prob == log_prob(lottery, ("999",)) == -math.log(1_000)


def test_samples_are_as_frequent_as_they_are_probable_and_know_their_probability():
    count = 20_000
    drawn = sample(crowd, count, generator=torch.Generator().manual_seed(3))
    for each in drawn[:500]:
        assert each.log_prob == pytest.approx(log_prob(crowd, each.words))
    texts, _ = enumerate_texts(crowd, 4)
    assert len(texts) == 3 + 6 + 6
    for text, prob in texts.items():
        spread = math.sqrt(prob * (1 - prob) / count)
        assert sum(each.words == text for each in drawn) / count == pytest.approx(
            prob, abs=5 * spread
        )


@pytest.mark.parametrize("weights", [{}, {"a": 0}, {"a": -1, "b": 2}, {"a": math.nan}])
def test_weights_that_make_no_distribution_are_refused(weights):
    with pytest.raises(ValueError, match="weights of at least 0"):
        Choice(weights)
