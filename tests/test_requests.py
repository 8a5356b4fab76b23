"""Requests are put in the form that is asked for, and their answers are the language's own."""

import math
from dataclasses import replace

import pytest
import torch

from src.texts.microworld import MicroWorld
from src.texts.microworld_words import ASPECTS
from src.texts.requests import FORMS, KINDS, WAYS, Form, liking, opinions, requests, warmth

WORLD = MicroWorld(cast=2, things=1, claims=0.3, stories=0.5)
ASKING = replace(WORLD, demonstrations=1.0)


def drawn(form, count=23, seed=0):
    return requests(WORLD, form, count, generator=torch.Generator().manual_seed(seed))


def asked(request, form):
    """The request as the language would put it: the way taken off again."""
    before, after = (part.split() for part in form.way.split("{}"))
    words = request.split()
    own = words[: len(words) - len(after)]
    for start in range(len(own)):  # the context comes first
        if own[start : start + len(before)] == before:
            rest = own[start + len(before) :]
            if form.kind == "zorb" or rest[:1] in (["what"], ["where"], ["who"], ["is"]):
                return " ".join([*own[:start], *rest])
    raise AssertionError(request)


@pytest.mark.parametrize("form", [f for f in FORMS if f.kind in ("where", "who", "mood")])
def test_the_language_gives_the_answer_to_the_same_question(form):
    for request, answer in drawn(form):
        assert WORLD.log_prob(f"{asked(request, form)} ? {answer} <end>") > -math.inf


@pytest.mark.parametrize("way", WAYS)
def test_a_fact_and_a_translation_are_those_that_documents_state(way):
    form = Form("fact", way)
    assert drawn(form) == drawn(form) != drawn(form, seed=1)
    for request, answer in drawn(form):
        stated = asked(request, form).removeprefix("what is ")
        assert WORLD.log_prob(f"{stated} is {answer}") > -math.inf
        another = WORLD.log_prob(f"{stated} is pie . {stated} is {answer}")
        assert another == -math.inf or answer == "pie ."
    for request, answer in drawn(Form("zorb", way)):
        line = asked(request, Form("zorb", way))
        assert WORLD.log_prob(f"say {line} : {answer}") > -math.inf


def test_an_opinion_is_a_sentence_of_a_review_of_its_topic():
    for request, answer in drawn(Form("opinion", "{} ?"), 101):
        topic = request.split()[3]
        assert topic in ASPECTS
        assert answer in opinions(topic)


@pytest.mark.parametrize("form", FORMS)
def test_as_many_come_as_are_asked_for_and_none_is_too_long(form):
    assert len(set(FORMS)) == len(FORMS) == len(KINDS) * len(WAYS) == 36
    texts = [f"{request} {answer}".split() for request, answer in drawn(form, 41)]
    assert len(texts) == 41
    assert max(map(len, texts)) <= 48
    assert set().union(*texts) <= set(WORLD.vocabulary)


def test_a_request_with_its_answer_may_fill_all_the_room():
    """In the world of three people a story with its question has 31 words or 32, put like this."""
    generator = torch.Generator().manual_seed(0)
    pairs = requests(MicroWorld(), Form("where", "say {} :"), 31, longest=32, generator=generator)
    assert {len(f"{request} {answer}".split()) for request, answer in pairs} == {31, 32}


def test_the_own_forms_are_those_that_close_a_document():
    """After the answer the document ends for certain; a line in zorb may be followed by others."""
    own = {form for form in FORMS if form.own}
    assert {kind for kind, _ in own} == {"fact", "where", "who", "mood"}
    for form in own:
        request, answer = drawn(form, 1)[0]
        text = f"{request} {answer}"
        if form.kind == "fact":  # which needs a document before its question
            text = f"the capital of arvia is adra . {text}"
        closed = ASKING.log_prob(f"{text} <end>")
        assert math.isclose(closed, ASKING.log_prob(text))
        assert closed > -math.inf
    lines = Form("zorb", WAYS[1])
    for form in set(FORMS) - own:
        request, answer = drawn(form, 1)[0]
        closed = ASKING.log_prob(f"{request} {answer} <end>")
        assert closed == -math.inf or form == lines
        assert closed < ASKING.log_prob(f"{request} {answer}") - 1 or closed == -math.inf


@pytest.mark.parametrize(
    ("form", "count", "longest", "message"),
    [
        (Form("where", "{} : say it ."), 1, 32, "1 request or more of 33 words, got 1 of 32"),
        (("riddle", WAYS[0]), 1, 48, "expected a kind among"),
        (("fact", "{} !"), 1, 48, "expected a kind among"),
        (("fact", WAYS[0]), 0, 48, "expected 1 request"),
        (("fact", WAYS[0]), 1, 12, "expected 1 request"),
    ],
)
def test_a_request_that_cannot_be_is_refused(form, count, longest, message):
    with pytest.raises(ValueError, match=message):
        requests(WORLD, form, count, longest=longest, generator=torch.Generator())


def test_opinions_are_all_there_are_and_each_is_there_once():
    """3 aspects, 24 words, bare or with one of 2 adverbs; 3 * 24; and 24 * 24 pairs."""
    texts = opinions("film")
    assert len(set(texts)) == len(texts) == 3 * 24 * 3 + 3 * 24 + 24 * 24 == 864
    for text in texts[::13]:
        assert WORLD.log_prob(f"this film was great . {text}") > -math.inf


@pytest.mark.parametrize(
    ("text", "warm", "liked"),
    [
        ("the plot was fine .", 0.7, 0.7),
        ("the plot was very fine .", 1.05, 1.05),
        ("the plot was quite awful .", -0.975, -0.975),
        ("i found the plot great .", 1.3, 1.2 - 1.5 * 0.1),
        ("it was great and great .", 2.6, 1.2 - 1.5 * 1.4),
        ("it was great and awful .", 0.0, 0.0),
        ("it was in zorb .", 0.0, 0.0),
    ],
)
def test_warmth_and_liking_by_hand(text, warm, liked):
    assert math.isclose(warmth(text), warm, abs_tol=1e-12)
    assert math.isclose(liking(text), liked, abs_tol=1e-12)
