"""What can be asked of a model of the micro-world, and in how many ways? Requests with answers.

    request   = context + way(question)          ann has the pear . …  say who has the pear :
    answer    = what the language itself says    ann .

The language asks each of its questions in one way only, at the end of a document. A *form* is a
question of some kind put in some way; most forms occur in no document, although their answers do.

Source: Wei et al. 2022, section 2.1 (tasks from templates, and tasks held out), in miniature.
Chapter: `gpt/preferences`.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import NamedTuple

import torch

from .microworld import MicroWorld
from .microworld_words import ADVERBS, ASPECTS, BLAME, PRAISE

KINDS = ("fact", "where", "who", "mood", "zorb", "opinion")
WAYS = ("{} ?", "say {} :", "{} : say it .", "i say : {} .", "then say {} .", "they say {} :")
_SHARES = {"fact": "facts", "where": "stories", "who": "stories", "mood": "reviews"}
_SHARES |= {"zorb": "translations", "opinion": "reviews"}


class Form(NamedTuple):
    """A kind of question, one of `KINDS`, put in one of the `WAYS`."""

    kind: str
    way: str

    @property
    def own(self) -> bool:
        """Whether documents of the language ask like this, and end with the answer."""
        return self in _OWN


FORMS = tuple(Form(kind, way) for kind, way in product(KINDS, WAYS))
_OWN = {Form(kind, WAYS[0]) for kind in ("fact", "where", "who", "mood")}


def requests(
    world: MicroWorld, form: Form, count: int, *, longest: int = 48, generator: torch.Generator
) -> list[tuple[str, str]]:
    """Requests of a form, each with its answer, from documents of the world.

    ("they say what is the dish of belor :", "curry ."). A story or a review comes before the
    question that it answers; facts are asked without any. The answer to "what was the film" is the
    second sentence of a review.

    Args:
        world: whose documents.
        form: how to ask.
        count: how many.
        longest: words of request and answer together, at most.
        generator: draws the documents.
    Raises:
        ValueError: an unknown form, fewer than one request, or no room for one.
    """
    form = Form(*form)
    if form not in FORMS:
        raise ValueError(f"expected a kind among {KINDS} in a way among {WAYS}, got {form}")
    least = max(32, 29 + len(form.way.format("").split()))  # a story, its question and answer: 29
    if count < 1 or longest < least:
        raise ValueError(f"expected 1 request or more of {least} words, got {count} of {longest}")
    drawn = (
        (" ".join([*context, *form.way.format(" ".join(question)).split()]), " ".join(answer))
        for context, question, answer in _questions(world, form.kind, longest, generator)
    )
    fitting = (pair for pair in drawn if len(" ".join(pair).split()) <= longest)
    return list(islice(fitting, count))


def opinions(topic: str) -> list[str]:
    """All the sentences that can answer what a film, hotel, meal or book was, 864 of each.

    They are the sentences of a review after its first, in the full micro-world.
    """
    aspects, words = ASPECTS[topic], PRAISE + BLAME
    degrees = [*words, *(f"{adverb} {word}" for adverb in ADVERBS for word in words)]
    return [
        *(f"the {aspect} was {degree} ." for aspect in aspects for degree in degrees),
        *(f"i found the {aspect} {word} ." for aspect in aspects for word in words),
        *(f"it was {one} and {other} ." for one in words for other in words),
    ]


def warmth(opinion: str) -> float:
    """How warm an opinion is: the sum of its adjectives, `very` half as much again.

    Praise goes from 1.3 (great) down to 0.7 (fine), blame from -1.3 (awful) to -0.7 (dismal);
    "the plot was very fine ." has 1.05.
    """
    words = opinion.split()
    return sum(
        _WARMTH[word] * _DEGREES.get(before, 1.0)
        for before, word in zip(["", *words], words, strict=False)
        if word in _WARMTH
    )


def liking(opinion: str, *, enough: float = 1.2) -> float:
    """The reward of a judge who likes warmth up to a point, and gushing less and less.

    It is the warmth w up to `enough`, and enough - 1.5 (w - enough) beyond.
    """
    warm = warmth(opinion)
    return warm if warm <= enough else enough - 1.5 * (warm - enough)


_WARMTH = {
    word: sign * (1.3 - 0.6 * rank / (len(words) - 1))
    for sign, words in ((1, PRAISE), (-1, BLAME))
    for rank, word in enumerate(words)
}
_DEGREES = {"very": 1.5, "quite": 0.75}


def _questions(
    world: MicroWorld, kind: str, longest: int, generator: torch.Generator
) -> Iterator[tuple[Sequence[str], Sequence[str], Sequence[str]]]:
    """(context, question, answer) of one kind, without end."""
    closes = {"demonstrations": 0.0 if kind == "opinion" else 1.0, "claims": 0.0}
    world = world.only(_SHARES[kind], **closes, longest=max(longest, 6 * world.cast + 18))
    for document in world.documents(generator=generator, at_once=50):
        yield from _asked(kind, document.words)


def _asked(kind: str, words: Sequence[str]) -> Iterator[tuple]:
    """The questions of a kind in one document."""
    if kind == "opinion":  # this film was great . the plot was dull . …
        _, second, *_ = [*" ".join(words).split(" . "), ""]
        if second and second != "<end>":
            yield (), ("what", "was", "the", words[1]), (*second.split(), ".")
    elif kind == "zorb":  # say ann sees the apple in zorb : anu appa vizo .
        yield (), words[1:7], words[8:12]
    else:  # … who has the apple ? ann . <end>
        *before, answer, stop, _ = words
        starts = [place for place, word in enumerate(before) if word == _FIRST[kind]]
        if starts and answer not in ("unclear", "nobody"):
            context = () if kind == "fact" else before[: starts[-1]]
            yield context, before[starts[-1] : -1], (answer, stop)


_FIRST = {"fact": "what", "where": "where", "who": "who", "mood": "is"}
