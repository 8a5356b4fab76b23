"""What would a perfect model score? A small language written as a program that knows its own odds.

A document of the micro-world is a story, a review, some facts, or some lines in an invented
tongue. The language is ONE program, `MicroWorld.program(g)`; what draws, scores, predicts and
enumerates it are the handlers g of `src.texts.programs`. Hidden are only the kind of a document and
the mood of a review, both at its head, so that sums over them are short and everything is exact.
Its words are in `texts/microworld_words`, its odds in `texts/microworld_tables`.

No document is longer than `longest`: the program asks how much room is left before it begins a
sentence, so that nothing is ever cut or thrown away.

Axes: B texts, T positions, V vocabulary. Source: Weston et al. 2015 (stories with questions).
Chapter: `gpt/microworld`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..tools.checks import check_batch
from . import programs
from .corpora import Corpus, Document
from .microworld_tables import FACT_ROOM, LINE_ROOM, REVIEW_ROOM, STORY_ROOM, Settings, Tables
from .microworld_words import ADVERBS, ASPECTS, ATTRIBUTES, END, ZORB


class Floor(NamedTuple):
    """The mean surprise of a perfect model, nats per token, and the standard error of the mean."""

    loss: float
    error: float


@dataclass(frozen=True)
class MicroWorld(Settings):
    """A language of some 220 words, of which every probability is known.

    The four shares are weights of the kinds of document; those of kinds that are not wanted are 0.

    Args:
        people, places, objects, countries, adjectives: how many of each there are to speak of
            (adjectives: of praise, and as many of blame).
        cast, things: how many people and objects are in one story.
        stories, reviews, facts, translations: the shares of the kinds.
        demonstrations: how often a story, a review or a document of facts closes with a task and
            its answer, rather than just so; and the share of lines in the invented tongue that
            come with their English.
        claims: the share of a story's sentences that are claims, with a verdict.
        polarity_noise: how often a review's adjective is of the other polarity.
        stop: how probable it is that a document ends with the sentence just written.
        zipf: the country of rank r is spoken of in proportion to 1 / r^zipf.
        longest: no document has more tokens, its end token included.
    Raises:
        ValueError: a size is out of range, or a share is no share.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._tables  # now: weights that are none are refused at once

    @cached_property
    def _tables(self) -> Tables:
        return Tables(self)

    # -- text and ids

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """The words, (V,); a token's id is its place, and 0 is the end token."""
        return self._tables.vocabulary

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.vocabulary)}

    def encode(self, text: Tensor | str | Sequence[str]) -> Tensor:
        """The ids, (T,), of a text: a list of words, or a string with spaces between them.

        Raises:
            ValueError: a word is not in the vocabulary.
        """
        return torch.tensor([self._ids[word] for word in self._words(text)], dtype=torch.long)

    def decode(self, ids: Tensor | Sequence[int]) -> str:
        """The words of some token ids, with spaces between them."""
        return " ".join(self._words(ids))

    def only(self, kind: str, **changes: Any) -> "MicroWorld":
        """This world, changed, with documents of one kind: "stories", "reviews", "facts", …"""
        shares = dict.fromkeys(("stories", "reviews", "facts", "translations"), 0.0) | {kind: 1.0}
        return replace(self, **shares | changes)

    def fact(self, country: str, attribute: str) -> str:
        """What is true: the dish of arvia, "curry"."""
        return self._tables.value[country, attribute]

    # -- the handlers at work

    def documents(
        self, *, generator: torch.Generator, at_once: int = 100
    ) -> Iterator[programs.Derivation]:
        """Documents without end, as from `sample`, drawn so many at a time."""
        while True:
            yield from self.sample(at_once, generator=generator)

    def sample(self, count: int, *, generator: torch.Generator) -> list[programs.Derivation]:
        """`count` documents, each with what was hidden and the log-probability of both.

        What that means, and how it differs from `log_prob`: see `src.texts.programs.sample`.
        """
        return programs.sample(self.program, count, generator=generator)

    def sample_texts(self, count: int, *, generator: torch.Generator) -> list[Tensor]:
        """`count` documents as ids, each (T_n,) and closed by the end token."""
        return [self.encode(each.words) for each in self.sample(count, generator=generator)]

    def derivations(self, text: Tensor | str | Sequence[str]) -> list[programs.Derivation]:
        """All the ways in which a document can begin with a text, or be it; none if it cannot.

        Their probabilities, divided by their sum, are those of the hidden choices given the text.

        Args:
            text: one document, or how it begins: ids (T,), words, or a string.
        Raises:
            ValueError: a word or an id is not in the vocabulary.
        """
        return programs.derivations(self.program, self._words(text))

    def log_prob(self, text: Tensor | str | Sequence[str]) -> float:
        """The exact log-probability that the language begins with a text, in nats.

        For a document closed by its end token that is the probability of the document; documents
        may follow each other, and each owes nothing to the one before. -inf for what cannot be.

        Args:
            text: ids (T,), words, or a string.
        Raises:
            ValueError: a word or an id is not in the vocabulary.
        """
        return self._log_prob(self._words(text))

    def _log_prob(self, words: tuple[str, ...]) -> float:
        return sum((programs.log_prob(self.program, each) for each in _documents(words)), 0.0)

    def first_impossible(self, text: Tensor | str | Sequence[str]) -> int | None:
        """The place of the first token that cannot follow those before it; None if all can."""
        place = 0
        for words in _documents(self._words(text)):
            inside = programs.first_impossible(self.program, words)
            if inside is not None:
                return place + inside
            place += len(words)
        return None

    def __call__(self, ids: Tensor) -> Tensor:
        """Logits, (B, T, V), of the token after each position: exact log-probabilities.

        Position t sees ids[:, : t + 1]. A row begins with a document, or with an end token, after
        which a document begins. Where a document cannot go on as the row does (as in padding), no
        next token is likelier than another, until an end token starts afresh.

        Args:
            ids: (B, T); token ids.
        Returns:
            (B, T, V), on the device of the ids, in 64 bits where the device has them.
        Raises:
            ValueError: another shape or type, or an id outside the vocabulary.
        """
        check_batch(ids, len(self.vocabulary))
        with np.errstate(divide="ignore"):  # log 0 = -inf is meant
            rows = np.log(np.stack([self._after_each(row) for row in ids.tolist()]))
        precise = torch.float32 if ids.device.type == "mps" else torch.float64
        return torch.from_numpy(rows).to(ids.device, precise)

    def token_log_probs(self, text: Tensor | str | Sequence[str]) -> Tensor:
        """The exact log-probability of each token after those before it, (T,); nats.

        -inf for the first token that cannot follow. What comes after it, up to the next end token,
        has no probability; it is scored as one of V equally likely tokens.

        Raises:
            ValueError: a word or an id is not in the vocabulary.
        """
        words = self._words(text)
        probs = [
            row[self._ids[word]]
            for document in _documents(words)
            for row, word in zip(self._inside(document), document, strict=False)
        ]
        return torch.tensor(probs, dtype=torch.float64).log()

    def corpus(self, count: int, *, generator: torch.Generator) -> Corpus:
        """A text of `count` documents drawn, without their end tokens, which `stream_of` writes."""
        drawn = self.sample(count, generator=generator)
        texts = (" ".join(each.words[:-1]) for each in drawn)
        return Corpus("micro-world", tuple(Document(str(n), text) for n, text in enumerate(texts)))

    def floor(self, count: int, *, generator: torch.Generator) -> Floor:
        """The least loss that any model can have in the long run, from `count` documents.

        Every token of every document counts alike, end tokens too: nats divided by tokens. The
        error is that of a quotient of two means over independent documents.

        Raises:
            ValueError: fewer than 2 documents.
        """
        return self.floor_of([each.words for each in self.sample(count, generator=generator)])

    def floor_of(self, texts: Sequence[Tensor | str | Sequence[str]]) -> Floor:
        """The loss of a perfect model on given documents, and its standard error as an estimate.

        Raises:
            ValueError: fewer than 2 documents, or words or ids outside the vocabulary.
        """
        if len(texts) < 2:
            raise ValueError(f"expected at least 2 documents, got {len(texts)}: one has no spread")
        words = [self._words(text) for text in texts]
        nats = np.array([-self._log_prob(each) for each in words])
        tokens = np.array([len(each) for each in words])
        loss = nats.sum() / tokens.sum()
        spread = np.std(nats - loss * tokens, ddof=1)
        return Floor(float(loss), float(spread * math.sqrt(len(words)) / tokens.sum()))

    def enumerate_texts(self, most: int) -> tuple[programs.Beginnings, programs.Beginnings]:
        """All documents of at most `most` words, end token included, and how longer ones begin.

        Both with their probabilities, which sum to one together. The work grows exponentially:
        choose a small world and 12 words or so.
        """
        return programs.enumerate_texts(self.program, most)

    # -- the program: what a document is

    def program(self, g: programs.Handler) -> None:
        """One document, every choice of it made by the handler `g`."""
        kinds = {"story": self._story, "review": self._review, "facts": self._facts}
        kinds["translation"] = self._translation
        kinds[g.hide(self._tables.kinds)](g)

    def _story(self, g: programs.Handler) -> None:
        """ann has the apple . … then ann gave the apple to bob . … where is the apple ? hall ."""
        tables, scene = self._tables, _Scene(self._tables.places)
        for _ in range(self.things):
            who = scene.enters(g, tables.people)
            g.say("has", "the")
            what = g.one_of([o for o in tables.objects if o not in scene.holder])
            scene.holder[what] = who
            g.say(".")
        for _ in range(self.cast - self.things):
            who = scene.enters(g, tables.people)
            g.say("is", "in", "the")
            scene.where[who] = g.one_of(tables.places)
            g.say(".")
        scene.things = tuple(scene.holder)
        word = "then"
        while word not in tables.story_ends:
            room = g.length() <= self.longest - STORY_ROOM
            word = g.pick(tables.story if room else tables.story_close)
            if word == "then":
                self._event(g, scene)
            elif word == "the":
                self._recap(g, scene)
            elif word == "they":
                self._claim(g, scene)
        if word == "where":
            g.say("is", "the")
            g.say("?", scene.place_of(g.one_of(scene.things)) or "unclear", ".", END)
        elif word == "who":
            g.say("has", "the")
            g.say("?", scene.holder.get(g.one_of(scene.things), "nobody"), ".", END)

    def _event(self, g: programs.Handler, scene: "_Scene") -> None:
        """then bob went to the hall ."""
        who = g.one_of(scene.cast)
        here, holder, near = scene.where[who], scene.holder, scene.near(who)
        mine = [what for what in scene.things if holder.get(what) == who]
        theirs = [what for what in scene.things if holder.get(what) in near]
        lying = [what for what in scene.things if scene.lies.get(what) == here]
        can = (here in scene.places, bool(near), bool(mine), bool(theirs), bool(lying))
        verb = g.pick(self._tables.verbs[can])
        if verb in ("went", "walked"):
            g.say("to", "the")
            scene.where[who] = g.one_of(self._tables.elsewhere.get(here, scene.places))
        elif verb in ("gave", "handed"):
            g.say("the")
            what = g.one_of(mine)
            g.say("to")
            holder[what] = g.one_of(near)
            scene.meet(who, holder[what])
        elif verb in ("got", "received"):
            g.say("the")
            what = g.one_of(theirs)
            g.say("from", holder[what])
            scene.meet(who, holder[what])
            holder[what] = who
        elif verb in ("dropped", "left"):
            g.say("the")
            what = g.one_of(mine)
            del holder[what]
            scene.lies[what] = here
        elif verb in ("took", "grabbed"):
            g.say("the")
            what = g.one_of(lying)
            del scene.lies[what]
            holder[what] = who
        elif verb == "is":
            g.say("in", "the", here)
        else:  # has
            g.say("a")
            g.one_of(sorted({self._tables.kind_of[o] for o in mine}))
        g.say(".")

    def _recap(self, g: programs.Handler, scene: "_Scene") -> None:
        """the apple is in the hall ."""
        what = g.one_of(scene.things)
        g.say("is")
        ways: dict[str, tuple[str, ...]] = {}
        if who := scene.holder.get(what):
            ways["with"] = (who,)
        if place := scene.place_of(what):
            ways["in"] = ("the", place)
        g.say(*ways[g.one_of(tuple(ways))], ".")

    def _claim(self, g: programs.Handler, scene: "_Scene") -> None:
        """they say bob is in the hall : true ."""
        g.say("say")
        who = g.one_of(scene.cast)
        if g.one_of(("is", "has")) == "is":
            g.say("in", "the")
            here = scene.where[who]
            claimed = g.pick(self._tables.around.get(here, self._tables.anywhere))
            verdict = str(claimed == here).lower() if here in scene.places else "unclear"
        else:
            g.say("the")
            verdict = str(scene.holder.get(g.one_of(scene.things)) == who).lower()
        g.say(":", verdict, ".")

    def _review(self, g: programs.Handler) -> None:
        """this film was great . the plot was very fine . … is this praise ? yes ."""
        tables = self._tables
        mood = g.hide(tables.moods)
        adjective, degree = tables.adjectives[mood], tables.degrees[mood]
        g.say("this")
        aspects = ASPECTS[g.one_of(tables.topics)]
        g.say("was")
        word = g.pick(adjective)
        while word not in tables.review_ends:
            g.say(".")
            room = g.length() <= self.longest - REVIEW_ROOM
            word = g.pick(tables.review if room else tables.review_close)
            if word == "the":
                g.one_of(aspects)
                g.say("was")
                if g.pick(degree) in ADVERBS:
                    g.pick(adjective)
            elif word == "i":
                g.say("found", "the")
                g.one_of(aspects)
                g.pick(adjective)
            elif word == "it":
                g.say("was")
                g.pick(adjective)
                g.say("and")
                g.pick(adjective)
        if word == "is":
            g.say("this", "praise", "?", "yes" if mood == "praise" else "no", ".", END)

    def _facts(self, g: programs.Handler) -> None:
        """the capital of arvia is adra . … what is the dish of belor ? curry ."""
        tables = self._tables
        word = g.pick(tables.fact_first)
        while word in ("the", "in"):
            if word == "the":
                attribute = g.one_of(ATTRIBUTES)
                g.say("of")
                country = g.pick(tables.country)
            else:
                country = g.pick(tables.country)
                g.say("the")
                attribute = g.one_of(ATTRIBUTES)
            g.say("is", tables.value[country, attribute], ".")
            room = g.length() <= self.longest - FACT_ROOM
            word = g.pick(tables.fact if room else tables.fact_close)
        if word == "what":
            g.say("is", "the")
            attribute = g.one_of(tables.askable)
            g.say("of")
            country = g.pick(tables.asked[attribute])
            g.say("?", tables.value[country, attribute], ".", END)

    def _translation(self, g: programs.Handler) -> None:
        """zorb : anu appa vizo . say ann sees the apple in zorb : anu appa vizo ."""
        tables = self._tables
        word = g.pick(tables.line_first)
        while word != END:
            if word == "say":
                who, act = g.one_of(tables.people), g.one_of(tables.paired_acts)
                g.say("the")
                what = g.one_of(tables.paired[act])
                g.say("in", "zorb", ":", ZORB[who], ZORB[what], ZORB[act], ".")
            else:
                g.say(":")
                for words in tables.zorb:
                    g.one_of(words)
                g.say(".")
            room = g.length() <= self.longest - LINE_ROOM
            word = g.pick(tables.line if room else tables.line_close)

    # -- below the surface

    def _words(self, text: Tensor | str | Sequence) -> tuple[str, ...]:
        """The words of a text, whatever it came as."""
        items = text.tolist() if isinstance(text, Tensor) else text
        items = tuple(items.split() if isinstance(items, str) else items)
        size, numbers = len(self.vocabulary), bool(items) and isinstance(items[0], int)
        unknown = set(items).difference(range(size) if numbers else self._ids)
        if unknown:
            raise ValueError(f"expected words or ids below {size}, got {sorted(unknown)[:10]}")
        return tuple(self.vocabulary[i] for i in items) if numbers else items

    def _after_each(self, ids: list[int]) -> np.ndarray:
        """The next token's distribution after each position of a row, (T, V)."""
        size = len(self.vocabulary)
        result = np.empty((len(ids), size))
        at = 0
        for words in _documents(tuple(self.vocabulary[i] for i in ids)):
            inside = len(words) - (words[-1] == END)  # after its end another document begins
            result[at : at + inside] = self._inside(words[:inside])[1:]
            at += inside
            if inside < len(words):
                result[at] = self._first
                at += 1
        return result

    @cached_property
    def _first(self) -> np.ndarray:
        """What a document can begin with, (V,)."""
        return self._inside(())[0]

    def _inside(self, words: tuple[str, ...]) -> np.ndarray:
        """What can follow each beginning of one document, the empty one first, (T + 1, V)."""
        result = np.zeros((len(words) + 1, len(self.vocabulary)))
        for row, following in zip(result, programs.next_words(self.program, words), strict=True):
            for word, prob in following.items():
                row[self._ids[word]] = prob
            if not following:  # no document begins like this: nothing is known
                row[:] = 1 / len(self.vocabulary)
        return result


class _Scene:
    """What a story has told so far: who is where, who has what, what lies where.

    A place that was not told has a name all the same, that of somebody who is or was there: people
    in one untold place then share its name, and all learn of it at once.
    """

    def __init__(self, places: Sequence[str]):
        self.places = places
        self.cast: list[str] = []
        self.things: tuple[str, ...] = ()
        self.where: dict[str, str] = {}
        self.holder: dict[str, str] = {}
        self.lies: dict[str, str] = {}

    def enters(self, g: programs.Handler, people: Sequence[str]) -> str:
        """Somebody new, in a place untold."""
        who = g.one_of([person for person in people if person not in self.cast])
        self.cast.append(who)
        self.where[who] = who
        return who

    def near(self, who: str) -> list[str]:
        """Who may be in the same place."""
        here, where = self.where[who], self.where
        others = [each for each in self.cast if each != who]
        if here not in self.places:  # it may be any
            return others
        return [o for o in others if where[o] == here or where[o] not in self.places]

    def meet(self, one: str, other: str) -> None:
        """Two who hand each other things are in one place, which may have been told of one."""
        there, here = self.where[one], self.where[other]
        if there in self.places:
            there, here = here, there
        for person, place in self.where.items():
            if place == there:
                self.where[person] = here

    def place_of(self, what: str) -> str | None:
        """Where an object is, as far as told."""
        place = self.lies.get(what) or self.where[self.holder[what]]
        return place if place in self.places else None


def _documents(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The documents of a text, each with its end token; the last may be unfinished."""
    start = 0
    for _ in range(words.count(END)):
        stop = words.index(END, start) + 1
        yield words[start:stop]
        start = stop
    if start < len(words):
        yield words[start:]
