"""`src.gpt.zero_shot`: every answer against the language, or against what the world is."""

import math
from collections import Counter
from functools import partial

import pytest
import torch

from src.gpt import zero_shot
from src.gpt.choices import MEASURES
from src.gpt.zero_shot import Item, TextModel
from src.texts.microworld import MicroWorld
from src.texts.microworld_tables import unasked, unpaired
from src.texts.microworld_words import ACTS, ATTRIBUTES, COUNTRIES, OBJECTS, PEOPLE, PLACES, ZORB
from src.tokens.bytes import WordTokenizer

WORLD = MicroWorld(stories=0.4, reviews=0.2, facts=0.2, translations=0.2, cast=2, things=1)
OTHER = MicroWorld(people=5, places=4, objects=7, countries=11, adjectives=3, longest=56)
COUNT = 83
KNOWN = {  # prompts that the language can say
    "where": partial(zero_shot.reading, ask="where"),
    "who": partial(zero_shot.reading, ask="who"),
    "facts": zero_shot.facts,
    "stated": partial(zero_shot.facts, stated=True),
    "never asked, stated": partial(zero_shot.facts, asked=False, stated=True),
    "sentiment": zero_shot.sentiment,
    "translation": zero_shot.translation,
    "last word": zero_shot.last_word,
    "endings": zero_shot.endings,
}
every_kind = pytest.mark.parametrize("name", KNOWN)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def known(name, world=WORLD, seed=0, **options):
    return KNOWN[name](world, COUNT, generator=generator(seed), **options)


def possible(world, text):
    return world.log_prob(text) > -math.inf


@pytest.fixture(scope="module", params=[WORLD, OTHER], ids=["world", "other"])
def world(request):
    return request.param


@pytest.fixture(scope="module")
def items(world):
    return {name: known(name, world) for name in KNOWN}


@every_kind
def test_the_language_says_the_right_choice_and_only_that(world, items, name):
    for item in items[name]:
        assert possible(world, item.prompt)
        can = [choice for choice in item.choices if possible(world, f"{item.prompt} {choice}")]
        assert item.answer in can
        assert name == "sentiment" or can == [item.answer]


@every_kind
def test_prompts_and_choices_differ_and_fit_the_context(world, items, name):
    assert len(items[name]) == len({item.prompt for item in items[name]}) == COUNT
    for item in items[name]:
        assert len(set(item.choices)) == len(item.choices) >= 2
        longest = max(len(choice.split()) for choice in item.choices)
        assert len(item.prompt.split()) + longest <= world.longest


@every_kind
def test_no_choice_is_right_by_its_place_or_name_alone(items, name):
    """The commonest answer is far from always right, whichever way it is counted."""
    for answers in ([item.answer for item in items[name]], [item.label for item in items[name]]):
        assert Counter(answers).most_common(1)[0][1] < 0.6 * COUNT


@every_kind
def test_a_generator_makes_the_items_repeatable(name):
    assert known(name, seed=1) == known(name, seed=1) != known(name, seed=2)


@every_kind
def test_the_ceiling_is_one_where_the_prompt_decides_and_the_language_reaches_it(
    world, items, name
):
    best = zero_shot.ceiling(world, items[name])
    if name == "sentiment":
        assert 0.9 < best < 1  # an adjective of the other mood slips in
    else:
        assert best == pytest.approx(1.0)
    right = zero_shot.accuracy(items[name], TextModel.from_world(world).scores(items[name]))
    assert right == pytest.approx(best, abs=4 * math.sqrt(max(best * (1 - best), 0) / COUNT) + 1e-9)


@pytest.mark.parametrize("name", ["where", "facts", "translation", "last word"])
def test_the_language_writes_the_answers(items, world, name):
    some = items[name][:9]
    assert TextModel.from_world(world).write(some) == [item.answer for item in some]


# what was never asked for


def fact_pairs(items, first):
    """(country, attribute) numbers of the questions."""
    for item in items:
        words = item.prompt.split()
        start = len(words) - 1 - words[::-1].index(first)
        attribute, country = (w for w in words[start:] if w in (*ATTRIBUTES, *COUNTRIES))
        yield COUNTRIES.index(country), ATTRIBUTES.index(attribute), words[:start]


@pytest.mark.parametrize("asked", [True, False])
def test_facts_are_asked_for_that_documents_do_or_do_not_ask_for(world, asked):
    items = zero_shot.facts(world, COUNT, asked=asked, generator=generator())
    for item, (i, j, text) in zip(items, fact_pairs(items, "what"), strict=True):
        assert unasked(i, j) != asked
        assert COUNTRIES[i] not in text  # so the text does not say
        assert possible(world, item.prompt) == asked
        stated = f"the {ATTRIBUTES[j]} of {COUNTRIES[i]} is"
        assert possible(world, f"{stated} {item.answer}")


def test_verbs_and_objects_are_translated_that_documents_pair(world):
    items = zero_shot.translation(world, 20, generator=generator())
    for item in items:
        _, who, act, _, what, *_ = item.prompt.split()
        assert unpaired(ACTS.index(act), OBJECTS.index(what)) is False
        assert possible(world, item.prompt)
        assert item.answer == f"{ZORB[who]} {ZORB[what]} {ZORB[act]}"
        for choice in item.choices:
            wrong = sum(a != b for a, b in zip(item.answer.split(), choice.split(), strict=True))
            assert wrong == (choice != item.answer)


# what makes them hard


def test_stories_name_more_than_one_place_and_person(world, items):
    for name, kind in (("where", PLACES), ("who", PEOPLE)):
        for item in items[name]:
            assert len({word for word in item.prompt.split() if word in kind}) >= 2


def test_the_last_word_is_not_the_one_named_last(items):
    for item in items["last word"]:
        kind = PLACES if item.answer in PLACES else PEOPLE
        assert [word for word in item.prompt.split() if word in kind][-1] != item.answer


def test_any_fact_may_be_asked_for_of_countries_that_the_text_does_not_name():
    """Given the text, all these facts alike: 1,200 items, five standard deviations a fact."""
    asked, expected, variance = Counter(), Counter(), Counter()
    for item in zero_shot.facts(OTHER, 1_200, generator=generator()):
        *text, attribute, _, country, _ = item.prompt.split()  # … the dish of arvia ?
        asked[attribute, country] += 1
        free = [
            (name, other)
            for j, name in enumerate(ATTRIBUTES)
            for i, other in enumerate(COUNTRIES[: OTHER.countries])
            if other not in text and not unasked(i, j)
        ]
        expected.update(dict.fromkeys(free, 1 / len(free)))
        variance.update(dict.fromkeys(free, (1 - 1 / len(free)) / len(free)))
    assert asked.keys() <= expected.keys()
    for fact in expected:
        assert abs(asked[fact] - expected[fact]) < 5 * math.sqrt(variance[fact])


def test_right_and_wrong_endings_are_about_equally_long():
    items = zero_shot.endings(WORLD, 400, generator=generator())
    right = [len(item.answer.split()) for item in items]
    wrong = [len(c.split()) for item in items for c in item.choices if c != item.answer]
    assert {*right} == {*wrong} == {*range(6, 11)}
    assert abs(sum(right) / len(right) - sum(wrong) / len(wrong)) < 1


# readers and errors


def test_a_reader_puts_an_end_token_before_a_prompt_and_counts_bytes():
    reader, item = TextModel.from_world(WORLD), Item("zorb :", ("anu", "klu"), 0)
    assert WORLD.decode(reader.prompt("zorb :").tolist()) == "<end> zorb :"
    (found,) = reader.scores([item])
    assert [each.score for each in found] == [found[0].score] * 2
    assert (found[0].score.tokens, found[0].score.n_bytes) == (1, 3)
    assert found[0].score.nats == pytest.approx(math.log(8))
    with_other = reader.scores([item], "zorb : anu appa vizo . zorb :")
    assert [with_other[0][0].measure(by) for by in MEASURES] == pytest.approx(
        [-math.log(8), -math.log(8), -math.log(8) / 3, 0.0]
    )


def test_choices_that_tokens_lose_have_no_bytes_to_be_measured_by():
    words = WordTokenizer.train("zorb : anu")
    reader = TextModel(lambda ids: torch.zeros(*ids.shape, 7), words.encode, words.decode, 3, 9)
    (found,) = reader.scores([Item("zorb :", ("anu", "unheard-of"), 0)])
    assert [each.score.n_bytes for each in found] == [None, None]


def test_accuracy_and_chance_are_shares():
    items = [Item("zorb :", ("anu", "appa"), 0), Item("zorb :", ("appa", "anu", "vizo"), 0)]
    scores = TextModel.from_world(WORLD).scores(items)
    assert zero_shot.accuracy(items, scores) == 0.5
    assert zero_shot.chance(items) == pytest.approx((1 / 2 + 1 / 3) / 2)


TINY = MicroWorld(people=1, places=2, cast=1, things=1, objects=1, longest=24)
ABSURD = [Item("where was the kite ?", ("hall", "barn"), 0)]


def test_a_world_too_small_for_so_many_items_is_refused():
    with pytest.raises(ValueError, match="500 different items, got"):
        zero_shot.last_word(TINY, 500, generator=generator())


def test_a_prompt_that_the_language_cannot_say_has_no_ceiling():
    with pytest.raises(ValueError, match="language can say, got 'where was"):
        zero_shot.ceiling(WORLD, ABSURD)
