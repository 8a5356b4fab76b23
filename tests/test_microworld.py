"""`src.texts.microworld` against enumeration, its own samples, and oracles that read the
documents.
"""

import math
from itertools import product

import numpy as np
import pytest
import torch

from src.texts.microworld import MicroWorld
from src.texts.microworld_tables import unasked, unpaired
from src.texts.microworld_words import (
    ACTS,
    ATTRIBUTES,
    COUNTRIES,
    END,
    OBJECTS,
    PEOPLE,
    PLACES,
    ZORB,
)

WORLD = MicroWorld()
ONE_OF_ALL = {"people": 1, "places": 2, "objects": 1, "countries": 1, "adjectives": 1}
TINY = MicroWorld(**ONE_OF_ALL, cast=1, things=1, longest=24)
SMALL = MicroWorld(**dict.fromkeys(ONE_OF_ALL, 2), cast=1, things=1, longest=24)
STORIES = MicroWorld(
    **ONE_OF_ALL | {"people": 2}, cast=2, things=1, longest=30, reviews=0, facts=0, translations=0
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def drawn():
    return WORLD.sample(1_000, generator=generator(1))


@pytest.fixture(scope="module")
def stories():
    world = WORLD.only("stories", claims=0.2, demonstrations=0.9, stop=0.04)
    return [each.words[:-1] for each in world.sample(1_000, generator=generator(2))]


# exactness


@pytest.mark.parametrize(("world", "most"), [(TINY, 12), (SMALL, 12), (STORIES, 22)])
def test_all_documents_up_to_a_length_and_the_beginnings_of_longer_ones_sum_to_one(world, most):
    texts, cut = world.enumerate_texts(most)
    assert len(texts) > 50
    assert sum(texts.values()) + sum(cut.values()) == pytest.approx(1, abs=1e-12)
    for text, prob in texts.items():
        assert math.exp(world.log_prob(text)) == pytest.approx(prob, rel=1e-12)


@pytest.mark.parametrize(("world", "most"), [(SMALL, 12), (STORIES, 20)])
def test_the_next_word_is_the_ratio_of_enumerated_sums(world, most):
    texts, cut = world.enumerate_texts(most)
    begins = {}
    for text, prob in (texts | cut).items():
        for t in range(len(text) + 1):
            begins[text[:t]] = begins.get(text[:t], 0.0) + prob
    several = [text for text in (texts | cut) if begins[text] > 0][::37]
    assert len(several) > 5
    for text in several:
        ids = torch.cat([torch.zeros(1, dtype=torch.long), world.encode(text[:-1])])
        probs = world(ids[None])[0].exp()
        for t, row in enumerate(probs):
            ratios = [begins.get((*text[:t], word), 0.0) for word in world.vocabulary]
            assert row.numpy() == pytest.approx(np.array(ratios) / begins[text[:t]], abs=1e-12)


def test_a_document_is_never_less_probable_than_its_recorded_derivation(drawn):
    for each in drawn:
        exact = WORLD.log_prob(each.words)
        assert float(WORLD.token_log_probs(each.words).sum()) == pytest.approx(exact, abs=1e-10)
        assert exact >= each.log_prob - 1e-10
        if each.hidden[0] == "review":  # the other mood could have said it too
            assert len(WORLD.derivations(each.words)) == 2 - ("?" in each.words)
        else:
            assert exact == pytest.approx(each.log_prob, abs=1e-10)


def test_few_derivations_stay_alive(drawn):
    for each in drawn:
        alive = [len(WORLD.derivations(each.words[:t])) for t in (0, 1, 2, 5, len(each.words))]
        assert max(alive) <= 8
        assert max(alive[1:]) <= 2  # the first word gives the kind away


@pytest.mark.parametrize("stop", [0.12, 1e-9])
def test_no_document_is_longer_than_promised(stop):
    drawn = MicroWorld(stop=stop).sample(2_000, generator=generator())
    lengths = [len(each.words) for each in drawn]
    assert max(lengths) <= 64
    assert stop > 0.1 or min(lengths) > 64 - 18


# the model and the floor


def test_the_floor_has_the_spread_that_it_says():
    floors = [WORLD.floor(200, generator=generator(seed)) for seed in range(60)]
    spread = np.std([floor.loss for floor in floors], ddof=1)
    promised = np.mean([floor.error for floor in floors])
    assert spread / promised == pytest.approx(1, abs=0.3)  # 3 standard errors of a spread from 60


def test_later_tokens_do_not_change_earlier_predictions(drawn):
    ids = WORLD.encode(drawn[0].words)
    changed = ids.clone()
    changed[9:] = WORLD.encode("zorb")
    assert torch.equal(WORLD(ids[None])[0, :9], WORLD(changed[None])[0, :9])
    assert not torch.equal(WORLD(ids[None])[0, 9:], WORLD(changed[None])[0, 9:])


def test_each_document_of_a_stream_starts_afresh(drawn):
    first, second = (WORLD.encode(each.words) for each in drawn[:2])
    stream, alone = torch.cat([first, second]), [*map(WORLD.token_log_probs, (first, second))]
    assert torch.equal(WORLD.token_log_probs(stream), torch.cat(alone))
    assert WORLD.log_prob(stream) == pytest.approx(WORLD.log_prob(first) + WORLD.log_prob(second))


def test_predictions_in_and_after_padding_are_distributions():
    parts = [WORLD.encode("ann has the"), torch.zeros(3).long(), WORLD.encode("zorb zorb :")]
    probs = WORLD(torch.cat(parts)[None])[0].exp()
    assert probs.sum(-1).tolist() == pytest.approx([1] * len(probs))
    assert torch.allclose(probs[-1], torch.full_like(probs[-1], 1 / len(WORLD.vocabulary)))


def test_a_text_outside_the_language_names_its_first_fault():
    text = "ann has the apple . ann is in the hall ."
    assert WORLD.log_prob(text) == -math.inf
    assert WORLD.first_impossible(text) == 5  # she is in the story already
    assert WORLD.first_impossible("ann has the apple . bob") is None
    assert WORLD.token_log_probs(text).tolist()[5] == -math.inf
    both = f"this film was fine . {END} zorb : ann"
    assert WORLD.first_impossible(both) == 8


# what the documents say


def test_verdicts_and_answers_are_those_of_all_possible_worlds(stories):
    judged = {"true": 0, "false": 0, "unclear": 0, "place": 0}
    for words in stories:
        for verdict in check_story(words):
            judged[verdict if verdict in judged else "place"] += 1
    assert min(judged.values()) > 50


def check_story(words):
    """Follow a story through every placing of its people that it allows; yields what it judged."""
    sentences = [s.split() for s in " ".join(words).replace(" ?", "").split(" .") if s.strip()]
    cast = sorted({s[0] for s in sentences[:3]})
    worlds = [dict(zip(cast, at, strict=True)) for at in product(PLACES, repeat=len(cast))]
    held, lies = {}, {}
    for sentence in sentences:
        if sentence[2] in ("got", "received"):  # the same, the other way round
            sentence = ["then", sentence[6], "gave", *sentence[3:5], "to", sentence[1]]
        match sentence:
            case ["then", who, "went" | "walked", *_, place]:
                for world in worlds:
                    world[who] = place
            case [who, "is", "in", "the", place] | ["then", who, "is", "in", "the", place]:
                worlds = [world for world in worlds if world[who] == place]
            case [who, "has", "the", what]:
                held[what] = who
            case ["then", who, "has", "a", kind]:
                mine = [OBJECTS.index(what) % 3 for what in held if held[what] == who]
                assert ["fruit", "tool", "toy"].index(kind) in mine
            case ["then", one, "gave" | "handed", "the", what, "to", other]:
                assert held[what] == one
                held[what] = other
                worlds = [world for world in worlds if world[one] == world[other]]
            case ["then", who, "dropped" | "left", "the", what]:
                assert held.pop(what) == who
                (lies[what],) = {world[who] for world in worlds}
            case ["then", who, "took" | "grabbed", "the", what]:
                assert {lies.pop(what)} == {world[who] for world in worlds}
                held[what] = who
            case ["the", what, "is", "with", who]:
                assert held[what] == who
            case ["the", what, "is", "in", "the", place]:
                assert places_of(what, worlds, held, lies) == {place}
            case ["they", "say", who, "is", "in", "the", place, ":", verdict]:
                could = {world[who] == place for world in worlds}
                assert verdict == ("unclear" if len(could) == 2 else str(could.pop()).lower())
                yield verdict
            case ["they", "say", who, "has", "the", what, ":", verdict]:
                assert verdict == str(held.get(what) == who).lower()
                yield verdict
            case ["where", "is", "the", what, answer]:
                could = places_of(what, worlds, held, lies)
                assert answer == (could.pop() if len(could) == 1 else "unclear")
                yield "place"
            case ["who", "has", "the", what, answer]:
                assert answer == held.get(what, "nobody")
            case _:
                raise AssertionError(f"what does {' '.join(sentence)!r} say?")
        assert worlds, f"no world is like this: {' '.join(words)}"


def places_of(what, worlds, held, lies):
    return {lies.get(what) or world[held[what]] for world in worlds}


def test_facts_never_change_and_some_are_never_asked():
    world = MicroWorld(stories=0, reviews=0, translations=0, demonstrations=1.0, zipf=0.0)
    told, asked = {}, set()
    for each in world.sample(3_000, generator=generator(6)):
        for sentence in " ".join(each.words[:-1]).split(" .")[:-1]:
            match sentence.split():
                case ["the", what, "of", where, "is", value]:
                    assert told.setdefault((where, what), value) == value
                case ["in", where, "the", what, "is", value]:
                    assert told.setdefault((where, what), value) == value
                case ["what", "is", "the", what, "of", where, "?", value]:
                    assert told.setdefault((where, what), value) == value
                    asked.add((where, what))
    pairs = [(i, j) for i in range(len(COUNTRIES)) for j in range(len(ATTRIBUTES))]
    assert asked == {(COUNTRIES[i], ATTRIBUTES[j]) for i, j in pairs if not unasked(i, j)}
    assert len(told) == len(pairs) == 96


def test_some_pairs_of_words_are_never_translated():
    world = MicroWorld(stories=0, reviews=0, facts=0, demonstrations=0.5)
    paired, spoken = set(), set()
    for each in world.sample(3_000, generator=generator(7)):
        for sentence in " ".join(each.words[:-1]).split(" .")[:-1]:
            match sentence.split():
                case ["say", who, act, "the", what, "in", "zorb", ":", *zorb]:
                    assert zorb == [ZORB[who], ZORB[what], ZORB[act]]
                    paired.add((act, what))
                case ["zorb", ":", _, what, act]:
                    spoken.add((act, what))
    pairs = [(i, j) for i in range(len(ACTS)) for j in range(len(OBJECTS))]
    assert paired == {(ACTS[i], OBJECTS[j]) for i, j in pairs if not unpaired(i, j)}
    assert len(spoken) == len(pairs)
    assert set(PEOPLE) <= ZORB.keys()


def test_a_review_is_of_one_mood_but_for_the_noise():
    world = MicroWorld(stories=0, facts=0, translations=0, polarity_noise=0.0, demonstrations=1.0)
    for each in world.sample(300, generator=generator(8)):
        (found,) = world.derivations(each.words)
        assert found.hidden == each.hidden
        assert each.words[-3] == ("yes" if each.hidden[1] == "praise" else "no")


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_demonstrations_are_as_frequent_as_asked_for(share):
    world = MicroWorld(demonstrations=share)
    drawn = world.sample(2_000, generator=generator(9))
    closes = ["?" in d.words[-5:] for d in drawn if d.hidden[0] != "translation"]
    assert np.mean(closes) == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / 1_700))
    lines = " ".join(" ".join(d.words) for d in drawn if d.hidden[0] == "translation").split()
    say, all_lines = lines.count("say"), lines.count(":")
    assert say / all_lines == pytest.approx(share, abs=0.1)


def test_the_shares_of_the_kinds_are_weights():
    world = MicroWorld(stories=3, reviews=0, facts=1, translations=0)
    kinds = [each.hidden[0] for each in world.sample(2_000, generator=generator(10))]
    assert set(kinds) == {"story", "facts"}
    assert kinds.count("story") / 2_000 == pytest.approx(0.75, abs=5 * 0.01)


# words, ids and bad input


def test_encode_and_decode_are_inverse_and_the_end_is_zero(drawn):
    assert WORLD.vocabulary[0] == END
    assert len(set(WORLD.vocabulary)) == len(WORLD.vocabulary)
    assert 200 <= len(WORLD.vocabulary) <= 300
    for each in drawn[:50]:
        ids, text = WORLD.encode(each.words), " ".join(each.words)
        assert WORLD.decode(ids) == text
        assert WORLD.log_prob(each.words) == WORLD.log_prob(text) == WORLD.log_prob(ids)


def test_a_world_of_one_kind_has_no_others():
    world = WORLD.only("facts", longest=40)
    assert (world.longest, world.people) == (40, WORLD.people)
    assert {each.hidden[0] for each in world.sample(30, generator=generator())} == {"facts"}


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_a_fact_is_what_documents_say(attribute):
    said = f"the {attribute} of {COUNTRIES[1]} is"
    world = WORLD.only("facts")
    told = world.log_prob(f"{said} {WORLD.fact(COUNTRIES[1], attribute)}")
    assert told == pytest.approx(world.log_prob(said))  # it is certain


def test_documents_without_end_are_those_of_samples():
    drawn, whole = generator(), generator()
    endless = WORLD.documents(generator=drawn, at_once=3)
    samples = [each for _ in range(2) for each in WORLD.sample(3, generator=whole)]
    assert [next(endless) for _ in range(6)] == samples
    texts = WORLD.sample_texts(3, generator=generator())
    assert list(map(WORLD.decode, texts)) == [" ".join(each.words) for each in samples[:3]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: WORLD.log_prob("ann has the zebra ."), "zebra"),
        (lambda: WORLD.encode("zebra"), "zebra"),
        (lambda: WORLD.log_prob(torch.tensor([-1])), r"ids below \d+, got \[-1\]"),
        (lambda: WORLD(torch.tensor([[len(WORLD.vocabulary)]])), "ids from 0 to"),
        (lambda: WORLD.floor_of([f"this film was fine . {END}"]), "at least 2 documents"),
    ],
)
def test_what_is_not_of_the_language_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"people": 9}, "people from 3 to 8"),
        ({"people": 2}, "people from 3 to 8"),
        ({"places": 1}, "places from 2"),
        ({"objects": 1}, "objects from 2"),
        ({"countries": 0}, "countries from 1"),
        ({"adjectives": 13}, "adjectives from 1 to 12"),
        ({"things": 4}, "things from 1 to 3"),
        ({"cast": 0}, "cast from 1"),
        ({"longest": 30}, "longest from 36"),
        ({"demonstrations": 1.1}, "demonstrations from 0 to 1"),
        ({"polarity_noise": -0.1}, "polarity_noise from 0 to 1"),
        ({"stop": 0.0}, "stop from 1e-09 to 1"),
        ({"stop": 0.6, "claims": 0.6}, r"claims from 0 to 0\.4, got 0\.6"),
        ({"stories": -1.0}, "weights of at least 0"),
        ({"stories": 0, "reviews": 0, "facts": 0, "translations": 0}, "one of them above"),
    ],
)
def test_a_setting_out_of_range_is_named(setting, message):
    with pytest.raises(ValueError, match=message):
        MicroWorld(**setting)
