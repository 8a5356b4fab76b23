"""Which labelled examples does the micro-world make, and how well could a perfect reader do?

The micro-world makes its tasks by construction: labels are balanced, no example is in two parts,
and since every probability is known, so is the best that any reader of x can do on a test part,

    ceiling = mean over x of max_y p(y | x)        (1 where x alone decides y)

Sources: Radford et al. 2018, section 3.3 (the four families); Warstadt et al. 2019 (acceptability);
Bowman et al. 2015 (entailment); Gururangan et al. 2018 (hypotheses that give the label away).
Chapter: `gpt/gpt1_finetuning`.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, TypeVar

import torch

from ..tools.runtime import rng_of
from .labelled import ORDINALS, Example, Task, identity_of
from .microworld import MicroWorld
from .microworld_words import (
    ACTS,
    ASPECTS,
    ATTRIBUTES,
    CAPITALS,
    COUNTRIES,
    OBJECTS,
    PEOPLE,
    PLACES,
    VALUES,
    ZORB,
)
from .programs import Derivation

# ---- classification ------------------------------------------------------------------------------


def sentiment(world: MicroWorld, *, generator: torch.Generator, **sizes: Any) -> Task:
    """Is a review praise or blame? The first one to three sentences; the label is the hidden mood.

    An adjective of the other polarity slips in now and then (`polarity_noise`), so nobody can be
    always right. The ceiling comes from the exact p(mood | text).
    """
    world, rng = _reviews(world), rng_of(generator)

    def draw(document: Derivation, _: int) -> Example:
        text = _first_sentences(document.words, rng.randint(1, 3))
        return Example((text,), _MOODS.index(document.hidden[1]))

    def best(example: Example) -> float:
        praise = _praise(world, example.texts[0])
        return max(praise, 1 - praise)

    task = ("sentiment", "classification", _MOODS)
    return _build(task, draw, world.documents(generator=generator), rng, best, **sizes)


def acceptability(world: MicroWorld, *, generator: torch.Generator, **sizes: Any) -> Task:
    """Can the language say this? A document, or one made impossible by the least change.

    Two of its words change places, or one gives way to another of its kind: a person, a place, a
    capital, as often as each is spoken of. Both labels take documents for which that was found, so
    that length and subject tell nothing. What is possible has a probability above 0 and the rest
    has none, so the ceiling is 1.
    """
    world, rng = replace(world, longest=min(world.longest, 59)), rng_of(generator)
    pools: dict[int | None, list[str]] = {}  # kind: its words, as often as they are spoken of
    for each in world.sample(300, generator=generator):
        for word in each.words:
            pools.setdefault(_KIND_OF.get(word), []).append(word)

    def changed(words: Sequence[str], swap: bool) -> list[str]:
        result = list(words)
        if swap:
            i, j = rng.sample(range(len(words)), 2)
            result[i], result[j] = words[j], words[i]
        elif places := [i for i, word in enumerate(words) if word in _KIND_OF]:
            i = rng.choice(places)
            result[i] = rng.choice(pools[_KIND_OF[words[i]]])
        return result

    def draw(document: Derivation, label: int) -> Example | None:
        words, swap = document.words[:-1], rng.random() < 0.5
        for _ in range(20):
            other = changed(words, swap)
            if world.log_prob(other) == -math.inf:
                return Example((" ".join(words if label else other),), label)
        return None

    task = ("acceptability", "classification", ("impossible", "possible"))
    return _build(task, draw, world.documents(generator=generator), rng, **sizes)


# ---- entailment ----------------------------------------------------------------------------------


def entailment(
    world: MicroWorld, *, generator: torch.Generator, has: float = 0.25, **sizes: Any
) -> Task:
    """Does a claim follow from a story? "bob is in the hall", "ann has the apple".

    The verdict is the language's own: the only one of true, false and unclear that can follow the
    story and "they say bob is in the hall :". Claims name only what the story names. Every story
    could have had each label, so it gives none away. That somebody has a thing is never unclear:
    who sees the claim alone is right in 1/3 + has/3 of the cases at most, in expectation.

    Args:
        world: whose stories.
        generator: draws them, and the claims.
        has: the share of claims of having among the true and among the false ones.
        sizes: train, validation and test, as of all tasks here.
    """
    stories, judge = _stories(world)
    rng, labels = rng_of(generator), ("false", "true", "unclear")

    def follows(words: Sequence[str], claim: str, verdict: str) -> bool:
        said = (*words, "they", "say", *claim.split(), ":", verdict)
        return judge.log_prob(said) > -math.inf

    def draw(document: Derivation, label: int) -> Example | None:
        words = document.words[:-1]
        cast, places, things = (_named(words, kind) for kind in (PEOPLE, PLACES, OBJECTS))
        if not places:
            return None
        claims: dict[tuple[str, str], list[str]]
        claims = {(verb, name): [] for verb in ("is", "has") for name in labels}
        unsure = [who for who in cast if follows(words, f"{who} is in the {places[0]}", labels[2])]
        for who in cast if unsure else ():  # most stories leave nobody's place open
            claimed = [f"{who} is in the {place}" for place in places]
            claimed += [f"{who} has the {what}" for what in things]
            for claim in claimed:
                verb, verdict = claim.split()[1], labels[follows(words, claim, "true")]
                if verb == "is" and who in unsure:  # then it is, whatever the place
                    verdict = "unclear"
                claims[verb, verdict].append(claim)
        if not all(found for key, found in claims.items() if key != ("has", "unclear")):
            return None
        verb = "has" if labels[label] != "unclear" and rng.random() < has else "is"
        return Example((" ".join(words), rng.choice(claims[verb, labels[label]])), label)

    task = ("entailment", "entailment", labels)
    return _build(task, draw, stories.documents(generator=generator), rng, **sizes)


# ---- similarity ----------------------------------------------------------------------------------


def paraphrases(world: MicroWorld, *, generator: torch.Generator, **sizes: Any) -> Task:
    """Same facts in other words, or the same words in other roles?

    same:  then ann gave the apple to bob .   then bob received the apple from ann .
    other: then ann gave the apple to bob .   then ann received the apple from bob .

    The two verbs differ, whatever the label; only who gives and who receives is exchanged. The
    words of both texts, counted, therefore have the same distribution under both labels. In two of
    three pairs another fact stands before or behind, the same in both texts. The ceiling is 1.
    """
    rng = rng_of(generator)
    people, places = PEOPLE[: world.people], PLACES[: world.places]
    objects = OBJECTS[: world.objects]

    def draw(_: None, label: int) -> Example:
        giver, receiver = rng.sample(people, 2)
        verbs, (what, thing) = rng.sample(_TRANSFERS, 2), rng.sample(objects, 2)
        roles = ((giver, receiver), (giver, receiver) if label else (receiver, giver))
        texts = [_transfer(verb, *pair, what) for verb, pair in zip(verbs, roles, strict=True)]
        where, who = rng.randrange(3), rng.choice(people)
        ways, rest = rng.choice(
            (
                (("went", "walked"), f"to the {rng.choice(places)}"),
                (("dropped", "left"), f"the {thing}"),
                (("took", "grabbed"), f"the {thing}"),
            )
        )
        for i in range(2):
            more = f"then {who} {rng.choice(ways)} {rest} ."
            texts[i] = (texts[i], f"{more} {texts[i]}", f"{texts[i]} {more}")[where]
        return Example(tuple(texts), label)

    task = ("paraphrases", "similarity", ("other", "same"))
    return _build(task, draw, repeat(None), rng, **sizes)


def same_polarity(world: MicroWorld, *, generator: torch.Generator, **sizes: Any) -> Task:
    """Are two reviews of one mind? Beginnings of one or two sentences each, of any two topics.

    With p and q the probabilities of praise given each text, p(same) = p q + (1 − p)(1 − q).
    """
    world, rng = _reviews(world), rng_of(generator)

    def draw(pair: tuple[Derivation, Derivation], _: int) -> Example:
        texts = (_first_sentences(each.words, rng.randint(1, 2)) for each in pair)
        return Example(tuple(texts), int(pair[0].hidden == pair[1].hidden))

    def best(example: Example) -> float:
        p, q = (_praise(world, text) for text in example.texts)
        same = p * q + (1 - p) * (1 - q)
        return max(same, 1 - same)

    reviews = world.documents(generator=generator)
    task = ("same polarity", "similarity", ("opposite", "same"))
    return _build(task, draw, zip(reviews, reviews, strict=True), rng, best, **sizes)


# ---- choice --------------------------------------------------------------------------------------


def endings(world: MicroWorld, *, generator: torch.Generator, **sizes: Any) -> Task:
    """Which sentence can follow a story? "the apple is in the hall .", "… the barn .", …

    Three sentences about one thing, of three places or of three people that the story names, of
    which the language can say exactly one; that there is one, is checked. The ceiling is 1.
    """
    stories, judge = _stories(world)
    rng = rng_of(generator)

    def draw(document: Derivation, label: int) -> Example | None:
        words = document.words[:-1]
        what = rng.choice(_named(words, OBJECTS))
        start, names = rng.choice((("with", PEOPLE), ("in the", PLACES)))
        choices = [f"the {what} is {start} {name} ." for name in _named(words, names)]
        can = [each for each in choices if judge.log_prob((*words, *each.split())) > -math.inf]
        if len(choices) < 3 or len(can) != 1:
            return None
        shown = rng.sample([each for each in choices if each not in can], 2)
        shown.insert(label, can[0])
        return Example((" ".join(words), *shown), label)

    task = ("endings", "choice", ORDINALS[:3])
    return _build(task, draw, stories.documents(generator=generator), rng, **sizes)


def answers(world: MicroWorld, *, generator: torch.Generator, **sizes: Any) -> Task:
    """What is the dish of arvia? Some facts that close with a question, and three answers to it.

    The answer seldom stands in the context: who has read of the countries before, knows. The
    choices are the answers to three drawn questions of a kind, one of which is then asked, so that
    no choice is likelier than another to whoever sees the choices alone. The ceiling is 1.
    """
    facts = world.only("facts", claims=0.0, demonstrations=1.0, longest=min(world.longest, 48))
    rng = rng_of(generator)
    waiting: dict[int, dict[str, str]] = {}  # kind of answer: {answer: context}

    def draw(document: Derivation, label: int) -> Example | None:
        *context, right, _, _ = document.words
        alike = waiting.setdefault(_KIND_OF[right], {})
        alike[right] = " ".join(context)
        if len(alike) < 3:
            return None
        shown = rng.sample([*alike], 3)
        context = alike[shown[label]]
        alike.clear()
        return Example((context, *(f"{each} ." for each in shown)), label)

    task = ("answers", "choice", ORDINALS[:3])
    return _build(task, draw, facts.documents(generator=generator), rng, **sizes)


# ---- what the builders share ---------------------------------------------------------------------


_MOODS = ("blame", "praise")
_PLAIN = {"claims": 0.0, "demonstrations": 0.0}  # no claims, and no question at the end
_PATIENCE = 5_000  # how often in a row nothing new may come
_TRANSFERS = ("gave", "handed", "got", "received")
_KIND_OF = {
    word: kind
    for kind, words in enumerate(
        (
            *(PEOPLE, PLACES, OBJECTS, COUNTRIES, CAPITALS, ATTRIBUTES, ACTS, *VALUES.values()),
            *([ZORB[word] for word in words] for words in (PEOPLE, OBJECTS, ACTS)),
            *(("true", "false", "unclear"), [a for words in ASPECTS.values() for a in words]),
        )
    )
    for word in words
}


def _reviews(world: MicroWorld) -> MicroWorld:
    """Short reviews."""
    return world.only("reviews", **_PLAIN, cast=1, things=1, longest=min(world.longest, 32))


def _stories(world: MicroWorld) -> tuple[MicroWorld, MicroWorld]:
    """Stories that leave room for one more sentence, and the world that says whether it can be."""
    longest = min(world.longest, 64)
    # 8: the longest of its sentences
    stories = world.only("stories", **_PLAIN, longest=longest - 8)
    return stories, replace(stories, claims=(1 - world.stop) / 2, longest=longest)


def _named(words: Sequence[str], kind: Sequence[str]) -> list[str]:
    """The words of a kind in the order in which a text names them."""
    return [word for word in dict.fromkeys(words) if word in kind]


def _first_sentences(words: Sequence[str], most: int) -> str:
    """At most the first `most` sentences of a document, as a text."""
    stops = [i for i, word in enumerate(words, start=1) if word == "."]
    return " ".join(words[: stops[:most][-1]])


def _praise(world: MicroWorld, review: str) -> float:
    """The exact p(praise | how a review begins)."""
    probs = {each.hidden[1]: math.exp(each.log_prob) for each in world.derivations(review)}
    return probs.get("praise", 0.0) / sum(probs.values())


def _transfer(verb: str, giver: str, receiver: str, what: str) -> str:
    """then ann gave the apple to bob .   then bob got the apple from ann ."""
    if verb in _TRANSFERS[:2]:
        return f"then {giver} {verb} the {what} to {receiver} ."
    return f"then {receiver} {verb} the {what} from {giver} ."


_Material = TypeVar("_Material")


def _build(
    task: tuple[str, str, tuple[str, ...]],
    draw: Callable[[_Material, int], Example | None],
    material: Iterable[_Material],
    rng: random.Random,
    best: Callable[[Example], float] = lambda example: 1.0,
    *,
    train: int,
    validation: int,
    test: int,
) -> Task:
    """A task of different examples, every label as often as the others in each part (or once more).

    Args:
        task: name, family, labels.
        draw: makes an example from material, with the given label where it has the choice; None if
            this material does not do.
        material: what examples are made of, one after the other.
        rng: draws labels, and shuffles.
        best: the probability of an example's likeliest label.
        train, validation, test: the sizes of the parts.
    Raises:
        ValueError: sizes out of range, or not so many different examples.
    """
    _, family, labels = task
    sizes, k = (train, validation, test), len(labels)
    if min(sizes) < 0 or train < 2:
        raise ValueError(f"expected 2 or more training examples and no size below 0, got {sizes}")
    quotas = [[size // k + (label < size % k) for label in range(k)] for size in sizes]
    wanted = [sum(column) for column in zip(*quotas, strict=True)]
    found: list[list[Example]] = [[] for _ in labels]
    seen, idle, supply = set(), 0, iter(material)
    while lacking := [label for label in range(k) if len(found[label]) < wanted[label]]:
        example = draw(next(supply), rng.choice(lacking))
        identity = example and identity_of(family, example.texts)
        idle += 1
        if example and example.label in lacking and identity not in seen:
            seen.add(identity)
            found[example.label].append(example)
            idle = 0
        if idle > _PATIENCE:
            got = f"{[*map(len, found)]}: ask for fewer, or for a larger world"
            raise ValueError(f"expected {wanted} different examples of {labels}, got {got}")
    for examples in found:
        rng.shuffle(examples)
    parts = []
    for quota in quotas:
        part = [found[label].pop() for label in range(k) for _ in range(quota[label])]
        rng.shuffle(part)
        parts.append(tuple(part))
    sure = [best(example) for example in parts[2]]
    ceiling = statistics.fmean(sure) if sure else None
    error = statistics.stdev(sure) / math.sqrt(len(sure)) if len(sure) > 1 else None
    return Task(*task, parts[0], parts[1], parts[2], ceiling, error)
