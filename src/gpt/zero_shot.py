"""What can a language model do that nobody taught it? Questions to a model of the micro-world.

A question is a text. The model answers it by going on, or by finding one of some choices likelier
than the others. Nothing is tuned, and no example of the task is shown.

    family         prompt                                       answer      known to the language
    reading        a story … where is the kite ?                hall        yes
    facts          some facts … what is the dish of arvia ?     curry       the asked pairs only
    sentiment      a review … is this praise ?                  yes         yes
    translation    say ann sees the apple in zorb :             anu …       the paired words only
    last word      a story … the kite is with                   ann         yes
    endings        a story …                                    a sentence  yes

The right answer follows from what the world is, so it is known even where the language never
asks: facts that are stated but not asked for (`microworld_tables.unasked`).

Source: Radford et al. 2019, section 3; Paperno et al. 2016 (last word). Chapter: `gpt/zero_shot`.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from torch import Generator, Tensor

from ..likelihood.models import LanguageModel, device_of
from ..texts import microworld_words, tasks
from ..texts.microworld import MicroWorld
from ..texts.microworld_tables import unasked, unpaired
from ..texts.microworld_words import (
    ACTS,
    ATTRIBUTES,
    CAPITALS,
    COUNTRIES,
    OBJECTS,
    PEOPLE,
    PLACES,
    VALUES,
    ZORB,
)
from ..tools.runtime import rng_of
from .choices import ChoiceScore, choice_scores, chosen, greedy_answers
from .released import Run

_LONGEST = 54  # of what stands before a question, so that both fit a context of 64


@dataclass(frozen=True)
class Item:
    """A question, the answers that are offered, and which of them is right.

    Attributes:
        prompt: what the model reads.
        choices: possible answers, two or more.
        label: the place of the right one.
    """

    prompt: str
    choices: tuple[str, ...]
    label: int

    @property
    def answer(self) -> str:
        """The right answer."""
        return self.choices[self.label]


@dataclass(frozen=True)
class TextModel:
    """A language model that is asked in texts: the model, and how texts become its tokens and back.

    Attributes:
        model: from (B, T) ids to (B, T, V) logits.
        encode, decode: from a text to ids, and back.
        end: the id that stands before each prompt.
        context_length: the most inputs that the model takes.
    """

    model: LanguageModel
    encode: Callable[[str], Sequence[int]]
    decode: Callable[[Sequence[int]], str]
    end: int
    context_length: int

    @classmethod
    def from_run(cls, run: Run) -> "TextModel":
        """The model of a run."""
        words, length = run.tokenizer, run.model.context_length
        return cls(run.model, words.encode, words.decode, run.end, length)

    @classmethod
    def from_world(cls, world: MicroWorld) -> "TextModel":
        """The language itself, which knows every probability of what it can say."""
        end = int(world.encode(microworld_words.END))
        return cls(
            world, lambda text: world.encode(text).tolist(), world.decode, end, world.longest
        )

    def prompt(self, text: str) -> Tensor:
        """The ids of a prompt, an end token in front: a document begins."""
        return self._tensor([self.end, *self.encode(text)])

    def scores(self, items: Sequence[Item], unconditional: str | None = None) -> list:
        """For each item a `ChoiceScore` for each of its choices.

        They know their bytes unless a choice loses some as tokens: what is lost would be free.
        """
        known = {c: self._tensor(self.encode(c)) for item in items for c in item.choices}
        whole = all(self.decode(ids.tolist()) == choice for choice, ids in known.items())
        return choice_scores(
            self.model,
            [(self.prompt(item.prompt), [known[c] for c in item.choices]) for item in items],
            context_length=self.context_length,
            unconditional=None if unconditional is None else self.prompt(unconditional),
            n_bytes=[[len(c.encode()) for c in each.choices] for each in items] if whole else None,
        )

    def write(self, items: Sequence[Item], *, stop: str = ".") -> list[str]:
        """What the model goes on with after each prompt, up to a word that ends the answer."""
        most = max(len(self.encode(item.answer)) for item in items) + 1
        (stop_id,) = self.encode(stop)
        answers = greedy_answers(
            self.model,
            [self.prompt(item.prompt) for item in items],
            context_length=self.context_length,
            max_new_tokens=most,
            stop=stop_id,
        )
        return [self.decode(ids.tolist()) for ids in answers]

    def _tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=device_of(self.model))


def accuracy(
    items: Sequence[Item], scores: Sequence[Sequence[ChoiceScore]], by: str = "sum"
) -> float:
    """The share of items whose right choice is the best by one of `choices.MEASURES`."""
    return fmean(best == item.label for best, item in zip(chosen(scores, by), items, strict=True))


def chance(items: Sequence[Item]) -> float:
    """The accuracy that guessing expects."""
    return fmean(1 / len(item.choices) for item in items)


def ceiling(world: MicroWorld, items: Sequence[Item]) -> float:
    """The accuracy that a perfect reader of the language expects: mean of max p(choice | prompt).

    Raises:
        ValueError: a prompt that no document begins with: the language says nothing about what
            follows it.
    """
    for item in items:
        if world.log_prob(item.prompt) == -math.inf:
            raise ValueError(f"expected prompts that the language can say, got {item.prompt!r}")
    best = []
    for row in TextModel.from_world(world).scores(items):
        probs = [math.exp(each.measure("sum")) for each in row]
        best.append(max(probs) / sum(probs))
    return fmean(best)


# ---- the families --------------------------------------------------------------------------------


def reading(
    world: MicroWorld, count: int, *, ask: str = "where", generator: Generator
) -> list[Item]:
    """a story … where is the kite ? hall . / who has the kite ? ann .

    The story names two places or more, and two people, so that somebody who answers with the only
    one named would be wrong at times. "unclear" and "nobody" are answers, too.

    Args:
        count: how many items.
        ask: "where" or "who".
    """
    names, none = {"where": (PLACES, "unclear"), "who": (PEOPLE, "nobody")}[ask]
    choices = (*names[: world.places if ask == "where" else world.people], none)
    stories = world.only("stories", demonstrations=1.0, longest=min(world.longest, _LONGEST))

    def draw(words: tuple[str, ...]) -> Item | None:
        *prompt, answer, _, _ = words
        *story, asked, _, _, _, _ = prompt
        named = {word for word in story if word in names}
        if asked != ask or len(named) < 2:
            return None
        return Item(" ".join(prompt), choices, choices.index(answer))

    return _distinct(draw, stories, count, generator)


def facts(
    world: MicroWorld,
    count: int,
    *,
    asked: bool = True,
    stated: bool = False,
    generator: Generator,
) -> list[Item]:
    """some facts … what is the dish of arvia ? curry .

    What is asked for does not stand in the text: who has read of the countries before, knows. Given
    the text, each attribute of each country that it does not name is equally likely to be asked
    for; so those of which documents often speak are asked for less often.

    Args:
        asked: whether of the pairs of attribute and country that documents ask for, or of those
            that they state but never ask for.
        stated: no question but a fact, "… the dish of arvia is", to be completed.
    """
    rng = rng_of(generator)
    pairs = [
        (attribute, country)
        for j, attribute in enumerate(ATTRIBUTES)
        for i, country in enumerate(COUNTRIES[: world.countries])
        if unasked(i, j) != asked
    ]
    form = "the {} of {} is" if stated else "what is the {} of {} ?"
    texts = world.only("facts", demonstrations=0.0, longest=min(world.longest, 36))

    def draw(words: tuple[str, ...]) -> Item | None:
        attribute, country = rng.choice(pairs)
        if country in words:
            return None
        choices = VALUES.get(attribute, CAPITALS[: world.countries])
        prompt = " ".join((*words[:-1], form.format(attribute, country)))
        return Item(prompt, tuple(choices), choices.index(world.fact(country, attribute)))

    return _distinct(draw, texts, count, generator)


def sentiment(world: MicroWorld, count: int, *, generator: Generator) -> list[Item]:
    """a review … is this praise ? yes . The texts of `tasks.sentiment`, half of them praise."""
    task = tasks.sentiment(world, train=2, validation=0, test=count, generator=generator)
    return [
        Item(f"{each.texts[0]} is this praise ?", ("no", "yes"), each.label) for each in task.test
    ]


def translation(world: MicroWorld, count: int, *, generator: Generator) -> list[Item]:
    """say ann sees the apple in zorb : anu appa vizo .

    The choices are the right line and three with one of its words replaced. Verb and object are of
    those that documents translate together.
    """
    rng, people = rng_of(generator), PEOPLE[: world.people]
    combinations = [
        (who, act, what)
        for who in people
        for i, act in enumerate(ACTS)
        for j, what in enumerate(OBJECTS[: world.objects])
        if not unpaired(i, j)
    ]

    def line(*parts: str) -> str:
        who, act, what = parts
        return f"{ZORB[who]} {ZORB[what]} {ZORB[act]}"

    items = []
    for parts in rng.sample(combinations, count):
        who, act, what = parts
        choices = [right := line(*parts)]
        for place, kind in enumerate((people, ACTS, OBJECTS[: world.objects])):
            other = rng.choice([word for word in kind if word != parts[place]])
            choices.append(line(*parts[:place], other, *parts[place + 1 :]))
        rng.shuffle(choices)
        prompt = f"say {who} {act} the {what} in zorb :"
        items.append(Item(prompt, tuple(choices), choices.index(right)))
    return items


def last_word(world: MicroWorld, count: int, *, generator: Generator) -> list[Item]:
    """a story … the kite is in the hall . / … the kite is with ann . Which word is the last?

    The story names two places or people at least, and the one that it named last is wrong: what
    happened further back decides. Stories without questions have such sentences, too, so that no
    demonstration is needed to learn this.
    """
    stories = world.only("stories", demonstrations=0.0, longest=min(world.longest, _LONGEST))

    def draw(words: tuple[str, ...]) -> Item | None:
        *passage, answer, _, _ = words
        if passage[-3:] == ["is", "in", "the"] and passage[-5] == "the":
            choices = PLACES[: world.places]
        elif passage[-2:] == ["is", "with"]:
            choices = PEOPLE[: world.people]
        else:
            return None
        named = [word for word in passage if word in choices]
        if len(set(named)) < 2 or named[-1] == answer:
            return None
        return Item(" ".join(passage), choices, choices.index(answer))

    return _distinct(draw, stories, count, generator)


def endings(world: MicroWorld, count: int, *, generator: Generator) -> list[Item]:
    """Which of four sentences can follow a story? The other three name what it names, and cannot.

    The sentences differ in length, from 6 words to 10, whether right or wrong.
    """
    rng = rng_of(generator)
    # 17 tokens are the longest sentence and the longest close: the world could go on here.
    stories = world.only("stories", demonstrations=0.0, longest=world.longest - 17)
    judge = replace(stories, claims=0.1, longest=world.longest)

    def draw(words: tuple[str, ...]) -> Item | None:
        story = words[:-1]
        people, places, things = (
            [w for w in dict.fromkeys(story) if w in kind] for kind in (PEOPLE, PLACES, OBJECTS)
        )
        sentences = _sentences(people, places, things, rng)
        can = [s for s in sentences if judge.log_prob((*story, *s.split())) > -math.inf]
        cannot = [s for s in sentences if s not in can]
        if len(places) < 2 or not can or len(cannot) < 3:
            return None
        right = rng.choice(can)
        choices = [right, *rng.sample(cannot, 3)]
        rng.shuffle(choices)
        return Item(" ".join(story), tuple(choices), choices.index(right))

    return _distinct(draw, stories, count, generator)


# ---- what the families share ---------------------------------------------------------------------


def _sentences(
    people: Sequence[str], places: Sequence[str], things: Sequence[str], rng: random.Random
) -> list[str]:
    """Sentences of every form about what a story has named, one each with drawn names."""
    result = []
    for _ in range(3):
        one, other = rng.sample(people, 2)
        what, place = rng.choice(things), rng.choice(places or PLACES)
        result += [
            f"then {one} went to the {place} .",
            f"then {one} is in the {place} .",
            f"then {one} gave the {what} to {other} .",
            f"then {one} got the {what} from {other} .",
            f"then {one} took the {what} .",
            f"then {one} dropped the {what} .",
            f"the {what} is in the {place} .",
            f"the {what} is with {one} .",
            f"they say {one} is in the {place} : {rng.choice(('true', 'false'))} .",
            f"they say {one} has the {what} : {rng.choice(('true', 'false'))} .",
        ]
    return [*dict.fromkeys(result)]


def _distinct(
    draw: Callable[[tuple[str, ...]], Item | None],
    world: MicroWorld,
    count: int,
    generator: Generator,
    patience: int = 20_000,
) -> list[Item]:
    """`count` items of different prompts, from documents of a world.

    Raises:
        ValueError: that many documents in a row gave none.
    """
    items: dict[str, Item] = {}
    documents, idle = world.documents(generator=generator, at_once=200), 0
    while len(items) < count:
        item = draw(next(documents).words)
        idle += 1
        if item is not None and item.prompt not in items:
            items[item.prompt], idle = item, 0
        if idle > patience:
            raise ValueError(f"expected {count} different items, got {len(items)}: ask for fewer")
    return list(items.values())
