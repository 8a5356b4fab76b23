"""`src.texts.tasks` against the language it draws from, a possible-worlds reader, and bad files."""

import json
import math
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from test_microworld import check_story

from src.texts import labelled, tasks
from src.texts.labelled import Example, Task
from src.texts.microworld import MicroWorld
from src.texts.microworld_words import BLAME, OBJECTS, PEOPLE, PLACES, PRAISE

WORLD = MicroWorld(stories=0.5, reviews=0.3, facts=0.15, translations=0.05, claims=0.3)
SMALL = MicroWorld(people=4, places=5, objects=4, countries=5, adjectives=3, longest=52)
NAMES = ("sentiment", "acceptability", "entailment", "paraphrases", "same_polarity", "endings")
BUILDERS = {name: getattr(tasks, name) for name in (*NAMES, "answers")}
every_task = pytest.mark.parametrize("name", BUILDERS)
SIZES = {"train": 103, "validation": 32, "test": 61}  # remainders 1 and 2 by 3
ONE = tuple(Example((text,), i % 2) for i, text in enumerate(["a a", "a b", "a c", "a d", "a e"]))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def built():
    return {name: build(WORLD, **SIZES, generator=generator()) for name, build in BUILDERS.items()}


def examples(task):
    return (*task.train, *task.validation, *task.test)


def sequences(task):
    """The words that a model reads at once, for each example."""
    for example in examples(task):
        first, *others = example.texts
        choices = others if task.family == "choice" else [" ".join(others)]
        yield from (f"{first} {choice}".split() for choice in choices)


def possible(text):
    return WORLD.log_prob(text) > -math.inf


# what all tasks of the micro-world have in common


@every_task
@pytest.mark.parametrize("part", SIZES)
def test_labels_are_balanced_in_each_part_and_stand_in_random_order(built, name, part):
    """A pair of neighbours has one label with probability q = sum n_l (n_l - 1) / n (n - 1)."""
    counts = built[name].counts(part).values()
    n = sum(counts)
    assert n == SIZES[part]
    assert max(counts) - min(counts) <= 1
    labels = [example.label for example in getattr(built[name], part)]
    q = sum(count * (count - 1) for count in counts) / (n * (n - 1))
    alike = sum(a == b for a, b in pairwise(labels))
    assert abs(alike - (n - 1) * q) < 5 * math.sqrt((n - 1) * q * (1 - q))


@every_task
def test_no_example_is_there_twice_in_whatever_order(built, name):
    task = built[name]
    of_pair = tuple if task.family == "entailment" else lambda x: frozenset(Counter(x).items())
    assert len({of_pair(e.texts) for e in examples(task)}) == sum(SIZES.values())


@every_task
def test_texts_are_of_the_language_and_leave_room_for_six_more_tokens(built, name):
    lengths = [len(words) for words in sequences(built[name]) if WORLD.encode(words).numel()]
    assert max(lengths) <= 58


@every_task
def test_the_same_seed_makes_the_same_task_and_another_seed_another(built, name):
    again, other = (BUILDERS[name](WORLD, **SIZES, generator=generator(s)) for s in (0, 1))
    assert again == built[name]
    assert other.train != again.train


@every_task
def test_a_small_world_will_do_and_parts_to_report_on_may_be_empty(name):
    task = BUILDERS[name](SMALL, train=11, validation=0, test=0, generator=generator())
    assert all(SMALL.encode(text).numel() for e in examples(task) for text in e.texts)
    assert (task.ceiling, task.ceiling_error) == (None, None)


def test_a_world_with_too_few_different_examples_is_named():
    world = MicroWorld(people=2, objects=2, places=2, cast=1, things=1)
    with pytest.raises(ValueError, match=r"expected \[5000, 5000\] different .*ask for fewer"):
        tasks.paraphrases(world, train=10_000, validation=0, test=0, generator=generator())


@pytest.mark.parametrize("sizes", [(1, 0, 0), (5, -1, 0), (5, 0, -1)])
def test_sizes_out_of_range_are_refused(sizes):
    with pytest.raises(ValueError, match="expected 2 or more training examples"):
        tasks.sentiment(WORLD, **dict(zip(SIZES, sizes, strict=True)), generator=generator())


# classification


@pytest.mark.parametrize(
    ("build", "ceiling"), [(tasks.sentiment, 0.8), (tasks.same_polarity, 0.8 * 0.8 + 0.2 * 0.2)]
)
def test_one_adjective_is_right_but_for_the_noise_and_two_as_bayes_says(build, ceiling):
    """Each review is one sentence: this film was great ."""
    world = replace(SMALL, polarity_noise=0.2, stop=1.0, claims=0.0)
    task = build(world, train=2, validation=0, test=12, generator=generator())
    assert task.ceiling == pytest.approx(ceiling)
    assert task.ceiling_error == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("build", [tasks.sentiment, tasks.same_polarity])
def test_a_perfect_reader_is_right_as_often_as_the_ceiling_says(build):
    """It counts adjectives: each of the mood is as much more likely as each of the other is less.

    4,000 texts: the standard deviation of the share of right answers is below 0.008.
    """
    world = replace(WORLD, polarity_noise=0.25, adjectives=12)
    task = build(world, train=2, validation=0, test=4_000, generator=generator())
    right = 0.0
    for example in task.test:
        texts = [text.split() for text in example.texts]
        decided = math.prod(sum((w in PRAISE) - (w in BLAME) for w in text) for text in texts)
        right += 0.5 if decided == 0 else (decided > 0) == example.label
    assert right / 4_000 == pytest.approx(task.ceiling, abs=4 * 0.008)
    assert 0.6 < task.ceiling < 0.95
    assert 0 < task.ceiling_error < 0.008


def test_reviews_are_shown_up_to_each_of_their_first_sentences(built):
    """One to three of them alone, one or two in a pair; a share as good as all reviews go on."""
    for name, most in (("sentiment", 3), ("same_polarity", 2)):
        shown = Counter(text.split().count(".") for e in examples(built[name]) for text in e.texts)
        n = shown.total()
        assert set(shown) == set(range(1, most + 1))
        assert all(shown[k] < n / most + 5 * math.sqrt(n / most) for k in range(2, most + 1))


def test_acceptable_is_what_the_language_can_say(built):
    for example in examples(built["acceptability"]):
        assert possible(example.texts[0]) == bool(example.label)


def test_words_change_places_in_half_of_the_unacceptable_and_give_way_in_the_others(built):
    """Where a word gave way, the language stumbles at a name; else at another word in two of three.

    So in one of three of them all: near none if no words changed places, two of three if all did.
    """
    texts = [e.texts[0].split() for e in examples(built["acceptability"]) if not e.label]
    stumbles = [text[WORLD.first_impossible(text)] for text in texts]
    others, n = sum(word not in tasks._KIND_OF for word in stumbles), len(texts)
    assert abs(others - n / 3) < 5 * math.sqrt(n * 1 / 3 * 2 / 3)


@pytest.mark.parametrize("name", ["acceptability", "entailment"])
def test_a_text_does_not_tell_the_label_by_its_length(name):
    """The means of 300 lengths with a standard deviation of about 12 words."""
    build, count = BUILDERS[name], 300 * (2 + (name == "entailment"))
    task = build(WORLD, train=count, validation=0, test=0, generator=generator())
    lengths = [[len(e.texts[0].split()) for e in task.train if e.label == k]
               for k in range(len(task.labels))]  # fmt: skip
    means = [sum(each) / len(each) for each in lengths]
    assert max(means) - min(means) < 4 * math.sqrt(2 * 12**2 / 300)


# entailment


def test_the_verdict_is_the_only_one_that_the_language_can_give_and_that_of_all_worlds(built):
    task = built["entailment"]
    for example in examples(task):
        premise, claim = example.texts
        said, verdict = f"{premise} they say {claim} :", task.labels[example.label]
        assert [v for v in task.labels if possible(f"{said} {v}")] == [verdict]
        assert [*check_story(f"{said} {verdict} .".split())] == [verdict]


def test_a_story_makes_no_claims_and_a_claim_names_only_what_its_story_names(built):
    names = {*PEOPLE, *PLACES, *OBJECTS}
    for example in examples(built["entailment"]):
        premise, claim = (set(text.split()) for text in example.texts)
        assert not premise & {"say", "?", "<end>"}
        assert claim & names <= premise
        assert len(claim & names) == 2


@pytest.mark.parametrize("has", [0.0, 0.3, 1.0])
def test_claims_of_having_are_as_frequent_as_asked_for_among_true_and_false(has):
    sizes = {"train": 450, "validation": 0, "test": 0}
    task = tasks.entailment(WORLD, **sizes, generator=generator(), has=has)
    share = Counter(task.labels[e.label] for e in task.train if " has " in e.texts[1])
    assert share["unclear"] == 0
    for name in ("true", "false"):
        assert abs(share[name] - 150 * has) <= 4 * math.sqrt(150 * has * (1 - has))


def test_stories_of_which_no_place_is_told_are_passed_over():
    world = replace(WORLD, cast=2, things=2)
    task = tasks.entailment(world, train=30, validation=0, test=0, generator=generator())
    assert all(set(e.texts[0].split()) & {*PLACES} for e in task.train)


# similarity


GIVES = {"gave": ("to", 1), "handed": ("to", 1), "got": ("from", -1), "received": ("from", -1)}


def transfer(text):
    """(giver, thing, receiver) of the one sentence that tells of a gift, and the other sentence."""
    (gift,) = (s.split() for s in text.split(" .") if set(s.split()) & GIVES.keys())
    _, subject, verb, _, what, word, other = gift
    assert word == GIVES[verb][0]
    roles = (subject, what, other)[:: GIVES[verb][1]]
    return roles, [s.split() for s in text.split(" .") if s and s.split() != gift]


def test_a_gift_is_told_alone_after_another_fact_or_before_it_equally_often(built):
    places, n = Counter(), sum(SIZES.values())
    for example in examples(built["paraphrases"]):
        first, *more = example.texts[0].split(" . ")
        told_first = bool(set(first.split()) & GIVES.keys())
        places["alone" if not more else "before" if told_first else "after"] += 1
    error = math.sqrt(n * 1 / 3 * 2 / 3)
    assert all(abs(places[place] - n / 3) < 5 * error for place in ("alone", "before", "after"))


def test_paraphrases_tell_the_same_facts_and_the_others_exchange_two_people(built):
    for example in examples(built["paraphrases"]):
        (first, more), (second, again) = map(transfer, example.texts)
        assert second == (first if example.label else first[::-1])
        assert [s[:2] + s[3:] for s in more] == [s[:2] + s[3:] for s in again]


def test_words_counted_have_the_same_distribution_under_both_labels():
    """Exchanging giver and receiver in one text turns each pair into one of the other label.

    What is left to compare is the pair of verbs: uniform over the 12 of two different ones.
    """
    task = tasks.paraphrases(WORLD, train=4_800, validation=0, test=0, generator=generator())
    for label in (0, 1):
        pairs = Counter()
        for example in task.train:
            if example.label == label:
                bags = [Counter(text.split()) for text in example.texts]
                (off, on) = (bags[0] - bags[1], bags[1] - bags[0])
                assert not (off + on).keys() & {*PEOPLE, *PLACES, *OBJECTS}
                pairs[tuple(next(w for w in each if w in GIVES) for each in (off, on))] += 1
        assert len(pairs) == 12
        assert all(abs(n - 200) < 5 * math.sqrt(200) for n in pairs.values())


def test_each_text_of_a_pair_can_be_said_in_a_story(built):
    """With the giver first given the thing, and everybody where they have to be."""
    for text in (text for example in built["paraphrases"].test for text in example.texts):
        (giver, what, receiver), more = transfer(text)
        if more and ({"dropped", "left", "took", "grabbed"} & set(more[0])):
            continue  # these need a thing that lies or is held
        named = {giver, receiver, *(more[0] if more else ())}
        third = next(p for p in PEOPLE if p not in named)
        who = more[0][1] if more and more[0][1] not in (giver, receiver) else third
        other = next(thing for thing in OBJECTS if thing != what)
        start = f"{giver} has the {what} . {receiver} has the {other} . {who} is in the hall ."
        moves = not (more and more[0][-1] == "hall")  # nobody goes where they are
        assert not moves or possible(f"{start} {text}")


# choice


@pytest.mark.parametrize("name", ["endings", "answers"])
def test_one_choice_can_be_said_and_it_is_the_right_one(built, name):
    for example in examples(built[name]):
        context, *choices = example.texts
        told = [f"{context} {choice}" for choice in choices]
        assert [possible(text) for text in told] == [k == example.label for k in range(3)]
        if name == "endings":
            assert [*check_story(told.pop(example.label).split())] == []
            for wrong in told:
                with pytest.raises(AssertionError):
                    [*check_story(wrong.split())]


def test_endings_differ_in_one_word_that_the_story_has(built):
    for example in examples(built["endings"]):
        context, *choices = (text.split() for text in example.texts)
        assert len({(*c[:-2], c[-1]) for c in choices}) == 1
        assert len({c[-2] for c in choices} & set(context)) == 3


def test_who_sees_only_the_choices_cannot_tell_the_answer():
    """Of each word, the share of times that it is right where it is offered: 1/3."""
    task = tasks.answers(WORLD, train=3_000, validation=0, test=0, generator=generator())
    offered, right = Counter(), Counter()
    for example in task.train:
        offered.update(example.texts[1:])
        right[example.texts[1 + example.label]] += 1
    assert len(offered) > 40
    for word, n in offered.items():
        assert abs(right[word] - n / 3) < 4.5 * math.sqrt(n * 2 / 9)


# tasks


def test_chance_is_the_best_constant_answer():
    tests = tuple(Example((f"t {i}",), int(i < 2)) for i in range(7))
    assert Task("t", "classification", ("a", "b"), ONE, test=tests).chance == 5 / 7


@pytest.mark.parametrize("count", [3, 4, 10, 44])
def test_a_draw_of_labels_is_balanced_and_from_the_training_part(built, count):
    task = built["entailment"]
    drawn = task.with_labels(count, generator=generator())
    counts = drawn.counts("train").values()
    assert sum(counts) == len(set(drawn.train)) == count
    assert max(counts) - min(counts) <= 1
    assert set(drawn.train) <= set(task.train)
    assert (drawn.test, drawn.ceiling) == (task.test, task.ceiling)


def test_more_labels_contain_the_fewer_and_other_seeds_draw_others(built):
    task = built["sentiment"]
    few, many = (task.with_labels(n, generator=generator()).train for n in (10, 27))
    assert many[:10] == few
    assert set(task.with_labels(10, generator=generator(1)).train) != set(few)


def test_a_rare_label_is_taken_as_far_as_it_goes():
    train = tuple(Example((f"t {i}",), int(i < 2)) for i in range(9))
    drawn = Task("t", "classification", ("a", "b"), train).with_labels(7, generator=generator())
    assert drawn.counts("train") == {"a": 5, "b": 2}


@pytest.mark.parametrize("count", [0, 1, 6])
def test_more_labels_than_there_are_or_fewer_than_one_each_are_refused(count):
    task = Task("t", "classification", ("a", "b"), ONE)
    with pytest.raises(ValueError, match=rf"expected 2 .* to 5 .*, got {count}"):
        task.with_labels(count, generator=generator())


def added(texts, label=1):
    return (*ONE, Example(texts, label))


NO_PLACE, AT = [-1, 2, "a", True, 0.0], "expected "


@pytest.mark.parametrize(
    ("family", "labels", "train", "message"),
    [
        ("classification", "a", added(("x",)), "two or more different labels"),
        ("classification", "aa", added(("x",)), "two or more different labels"),
        ("classification", "ab", added(("x", "y")), AT + "a tuple of 1 texts"),
        ("classification", "ab", added("x"), AT + "a tuple of 1 texts"),
        ("classification", "ab", added((" ",)), AT + "texts that are not empty"),
        ("classification", "ab", added((7,)), AT + "texts that are not empty"),
        *(("classification", "ab", added(("x",), k), AT + "a label from 0 to 1") for k in NO_PLACE),
        ("choice", "ab", (Example(("x", "y", "y"), 1),), "expected choices that differ"),
    ],
)
def test_what_does_not_fit_is_refused(family, labels, train, message):
    with pytest.raises(ValueError, match=message):
        Task("t", family, tuple(labels), train)


@pytest.mark.parametrize(
    ("family", "texts", "copy", "refused"),
    [
        ("entailment", ("x", "y"), ("x", "y"), True),
        ("entailment", ("x", "y"), ("y", "x"), False),
        ("similarity", ("x", "y"), ("y", "x"), True),
        ("choice", ("x", "y", "z"), ("x", "z", "y"), True),
        ("choice", ("x", "y", "z"), ("y", "x", "z"), False),
    ],
)
def test_an_example_in_two_parts_is_refused(family, texts, copy, refused):
    train = (Example(texts, 0), Example((*texts[:-1], "w"), 1))
    error = pytest.raises(ValueError, match=r"no copy of .* of train in test")
    with error if refused else nullcontext():
        Task("t", family, ("a", "b"), train, test=(Example(copy, 1),))


# a reader's own


def written(tmp_path, *records):
    path = tmp_path / "mine.jsonl"
    lines = [r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in records]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def loaded(tmp_path, *records, **options):
    return labelled.load(written(tmp_path, *records), **options)


def texts_of(n):
    return [{"text": f"text {i}", "label": "no" if i % 3 else "yes"} for i in range(n)]


GOOD = {"text": "fine", "label": "yes"}
CHOICE = {"context": "c", "choices": ["d", "e"], "label": 0}


@pytest.mark.parametrize(
    ("record", "family", "texts"),
    [
        ({"text": "あ"}, "classification", ("あ",)),
        ({"premise": "p", "hypothesis": "h"}, "entailment", ("p", "h")),
        ({"first": "a", "second": "b"}, "similarity", ("a", "b")),
        ({"context": "c", "choices": ["d", "e"]}, "choice", ("c", "d", "e")),
    ],
)
def test_the_keys_decide_the_family(tmp_path, record, family, texts):
    other = record | {next(iter(record)): "other", "label": 1}
    task = loaded(tmp_path, record | {"label": 0}, other, validation=0, test=0)
    assert (task.name, task.family) == ("mine", family)
    assert task.train == (Example(texts, 0), Example(("other", *texts[1:]), 1))


def test_a_split_has_the_shares_asked_for_and_depends_on_the_seed_not_on_the_order(tmp_path):
    shares = {"validation": 0.1, "test": 0.2}
    task = loaded(tmp_path, *texts_of(97), **shares)
    assert (len(task.test), len(task.validation), len(task.train)) == (20, 10, 67)
    assert set(loaded(tmp_path, *texts_of(97)[::-1], **shares).test) == set(task.test)
    assert set(loaded(tmp_path, *texts_of(97), **shares, seed=1).test) != set(task.test)


def test_examples_with_one_premise_are_in_one_part(tmp_path):
    records = [
        {"premise": f"p {i // 3}", "hypothesis": f"h {i}", "label": i % 2} for i in range(60)
    ]
    task = loaded(tmp_path, *records, test=0.3)
    premises = [{e.texts[0] for e in getattr(task, part)} for part in labelled.PARTS]
    assert sum(map(len, premises)) == 20
    assert min(map(len, premises)) > 0


def test_copies_count_once_and_blank_lines_and_a_byte_order_mark_do_not_count(tmp_path):
    records = ["\ufeff" + json.dumps(texts_of(1)[0]), "", *texts_of(5), "  "]
    task = loaded(tmp_path, *records, validation=0, test=0)
    assert [e.texts[0] for e in task.train] == [f"text {i}" for i in range(5)]


def test_copies_of_a_choice_in_another_order_count_once(tmp_path):
    turned = {"context": "c", "choices": ["e", "d"], "label": 1}
    other = turned | {"context": "x"}
    assert len(loaded(tmp_path, CHOICE, turned, other, validation=0, test=0).train) == 2


def test_numbers_as_labels_are_in_the_order_of_numbers(tmp_path):
    records = [{"text": f"t {i}", "label": i} for i in (10, 2, 9)]
    assert loaded(tmp_path, *records, test=0).labels == ("2", "9", "10")


def test_the_file_may_say_the_split(tmp_path):
    records = [r | {"split": ("train", "test")[i > 3]} for i, r in enumerate(texts_of(6))]
    task = loaded(tmp_path, *records)
    assert [e.texts[0] for e in task.test] == ["text 4", "text 5"]
    assert len(task.train) == 4


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{", "Expecting property name"),
        ("[" * 100_000, "maximum recursion depth"),
        ("7", "expected the keys .*, got 7"),
        ({"text": "x"}, "expected the keys text, label; .* got {'text': 'x'}"),
        ({"label": "yes"}, "expected the keys"),
        ({"text": "x", "label": "yes", "splt": "test"}, "expected the keys"),
        ({"text": "x", "premise": "x", "label": "yes"}, "expected the keys"),
        ({"text": "", "label": "yes"}, "expected texts that are not empty"),
        ({"text": 7, "label": "yes"}, "expected texts that are not empty"),
        ({"text": "x", "label": True}, "expected as label a name or a number"),
        ({"text": "x", "label": ""}, "expected as label a name or a number"),
        ({"text": "x", "label": "yes", "split": "dev"}, "expected a split among"),
        ({"text": "x", "label": "yes", "split": ["test"]}, "expected a split among"),
        ({"text": "x", "label": "yes", "split": "test"}, "on every line or on none"),
        ({"text": "fine", "label": "no"}, "same texts in line 1"),
        ({"first": "x", "second": "y", "label": "no"}, "as in line 1"),
        ({"context": "c", "choices": ["d"], "label": 0}, "list of two choices or more"),
        ({"context": "c", "choices": "de", "label": 0}, "list of two choices or more"),
        (CHOICE | {"label": "0"}, "label from 0 to 1"),
        ({"context": "d", "choices": ["d", "e"], "label": 2}, "label from 0 to 1"),
        ({"context": "d", "choices": ["d", "e"], "label": -1}, "label from 0 to 1"),
        ({"context": "d", "choices": ["e", "e"], "label": 1}, "choices that differ"),
        ({"context": "d", "choices": ["e", "f", "g"], "label": 1}, "3 texts as in line 1"),
        ({"context": "c", "choices": ["e", "d"], "label": 0}, "same texts in line 1"),
    ],
)
def test_a_bad_line_is_named(tmp_path, bad, message):
    good = CHOICE if "context" in bad else GOOD
    with pytest.raises(ValueError, match=rf"mine\.jsonl:3: .*{message}"):
        loaded(tmp_path, good, "", bad)


def test_copies_in_two_parts_are_named(tmp_path):
    with pytest.raises(
        ValueError, match=r"mine\.jsonl:2: expected .*'train'.* same texts in line 1"
    ):
        loaded(tmp_path, GOOD | {"split": "train"}, GOOD | {"split": "test"})


def test_bytes_that_are_no_utf_8_are_named(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b'\n{"text": "caf\xe9", "label": "no"}')
    with pytest.raises(ValueError, match=r"expected UTF-8 in .*mine\.jsonl, got .* 0xe9 .*line 2"):
        labelled.load(path)


@pytest.mark.parametrize(
    ("records", "message"), [([], "holds no text"), ([GOOD], "two or more different labels")]
)
def test_a_file_that_makes_no_task_is_refused(tmp_path, records, message):
    with pytest.raises(ValueError, match=message):
        loaded(tmp_path, *records, test=0)


@pytest.mark.parametrize("shares", [(-0.1, 0), (0, 1), (0.5, 0.5), (math.nan, 0)])
def test_shares_out_of_range_are_refused(tmp_path, shares):
    with pytest.raises(ValueError, match="expected shares from 0"):
        loaded(tmp_path, GOOD, validation=shares[0], test=shares[1])
