"""What is true in the micro-world, and how likely is each of its words where one is drawn?

Which country has which capital, which adjective praises, what somebody can do next: all that does
not change from document to document. Chapter: `gpt/microworld`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from .microworld_words import (
    ACTS,
    ADVERBS,
    ASPECTS,
    ATTRIBUTES,
    BLAME,
    CAPITALS,
    COUNTRIES,
    END,
    FUNCTION_WORDS,
    KINDS,
    OBJECTS,
    PEOPLE,
    PLACES,
    PRAISE,
    VALUES,
    ZORB,
)
from .programs import Choice, uniform

# The longest sentence and the longest close, in tokens: without room for both, the close comes now.
STORY_ROOM = 10 + 8  # they say ann is in the hall : true .    where is the apple ? hall . <end>
REVIEW_ROOM = 6 + 7  # the plot was very fine .                is this praise ? yes . <end>
FACT_ROOM = (
    7 + 10
)  # the dish of arvia is pie .               what is the dish of arvia ? pie . <end>
LINE_ROOM = 12 + 1  # say ann sees the apple in zorb : anu appa vizo .                       <end>


@dataclass(frozen=True)
class Settings:
    """The numbers that make a world; `MicroWorld` says what each is."""

    people: int = 8
    places: int = 8
    objects: int = 12
    countries: int = 24
    adjectives: int = 12
    cast: int = 3
    things: int = 2
    stories: float = 0.35
    reviews: float = 0.4
    facts: float = 0.15
    translations: float = 0.1
    demonstrations: float = 0.4
    claims: float = 0.1
    polarity_noise: float = 0.04
    stop: float = 0.12
    zipf: float = 1.0
    longest: int = 64

    def __post_init__(self) -> None:
        limits = {
            "cast": (1, len(PEOPLE)),
            "things": (1, self.cast),
            "people": (self.cast, len(PEOPLE)),
            "places": (2, len(PLACES)),
            "objects": (self.things, len(OBJECTS)),
            "countries": (1, len(COUNTRIES)),
            "adjectives": (1, len(PRAISE)),
            "longest": (6 * self.cast + STORY_ROOM, 10_000),
            "demonstrations": (0, 1),
            "polarity_noise": (0, 1),
            "stop": (1e-9, 1),
            "claims": (0, 1 - self.stop),
        }
        for name, (least, most) in limits.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"expected {name} from {least} to {most}, got {value}")


class Tables:
    """The choices of one world that do not change from document to document."""

    def __init__(self, world: Settings):
        self.people, self.places = PEOPLE[: world.people], PLACES[: world.places]
        self.objects, self.countries = OBJECTS[: world.objects], COUNTRIES[: world.countries]
        self.kinds = Choice(
            {
                "story": world.stories,
                "review": world.reviews,
                "facts": world.facts,
                "translation": world.translations,
            }
        )
        self._tell(world)
        self._judge(world)
        self._know(world)
        self._translate(world)
        self.vocabulary = (
            *(END, *FUNCTION_WORDS, *self.people, *self.places, *self.objects, *KINDS),
            *(*ASPECTS, *(aspect for aspects in ASPECTS.values() for aspect in aspects)),
            *(*ADVERBS, *PRAISE[: world.adjectives], *BLAME[: world.adjectives], *ATTRIBUTES),
            *(*self.countries, *CAPITALS[: world.countries]),
            *(value for values in VALUES.values() for value in values),
            *(*ACTS, *(ZORB[word] for word in (*self.people, *self.objects, *ACTS))),
        )

    def _tell(self, world: Settings) -> None:
        ends = {END: 1 - world.demonstrations} | dict.fromkeys(
            ("where", "who"), world.demonstrations / 2
        )
        rest = 1 - world.stop - world.claims
        goes_on = {"then": 0.85 * rest, "the": 0.15 * rest, "they": world.claims}
        self.story, self.story_close = _going_on(goes_on, ends, world.stop)
        self.story_ends = frozenset(ends)
        self.verbs = {can: Choice(_verbs(*can)) for can in product((False, True), repeat=5)}
        self.elsewhere = {here: tuple(p for p in self.places if p != here) for here in self.places}
        others = len(self.places) - 1
        self.around = {
            here: Choice({p: 0.5 if p == here else 0.5 / others for p in self.places})
            for here in self.places
        }
        self.anywhere = uniform(self.places)
        self.kind_of = {what: KINDS[i % len(KINDS)] for i, what in enumerate(self.objects)}

    def _judge(self, world: Settings) -> None:
        ends = {END: 1 - world.demonstrations, "is": world.demonstrations}
        goes_on = dict.fromkeys(("the", "i", "it"), (1 - world.stop) / 3)
        self.review, self.review_close = _going_on(goes_on, ends, world.stop)
        self.review_ends = frozenset(ends)
        self.moods, self.topics = uniform(("praise", "blame")), tuple(ASPECTS)
        self.adjectives: dict[str, Choice[str]] = {}
        self.degrees: dict[str, Choice[str]] = {}
        praise, blame = PRAISE[: world.adjectives], BLAME[: world.adjectives]
        for mood, fitting, other in (("praise", praise, blame), ("blame", blame, praise)):
            weights = dict.fromkeys(fitting, 1 - world.polarity_noise)
            weights |= dict.fromkeys(other, world.polarity_noise)
            total = sum(weights.values())
            self.adjectives[mood] = Choice(weights)
            self.degrees[mood] = Choice(weights | dict.fromkeys(ADVERBS, total / 5))

    def _know(self, world: Settings) -> None:
        goes_on = dict.fromkeys(("the", "in"), (1 - world.stop) / 2)
        ends = {END: 1 - world.demonstrations, "what": world.demonstrations}
        self.fact, self.fact_close = _going_on(goes_on, ends, world.stop)
        self.fact_first = uniform(("the", "in"))
        ranks = {country: (i + 1) ** -world.zipf for i, country in enumerate(self.countries)}
        self.country = Choice(ranks)
        self.value: dict[tuple[str, str], str] = {}
        self.asked: dict[str, Choice[str]] = {}
        for j, attribute in enumerate(ATTRIBUTES):
            values = VALUES.get(attribute, CAPITALS)
            for i, country in enumerate(self.countries):
                # An odd step goes through all of them, and each round begins one further on.
                place = i if values is CAPITALS else i * (2 * j + 1) + i // len(values)
                self.value[country, attribute] = values[place % len(values)]
            asked = {c: w for i, (c, w) in enumerate(ranks.items()) if not unasked(i, j)}
            if asked:
                self.asked[attribute] = Choice(asked)
        self.askable = tuple(self.asked)

    def _translate(self, world: Settings) -> None:
        lines = {"say": world.demonstrations, "zorb": 1 - world.demonstrations}
        goes_on = {word: (1 - world.stop) * share for word, share in lines.items()}
        self.line, self.line_close = _going_on(goes_on, {END: 1.0}, world.stop)
        self.line_first = Choice(lines)
        self.zorb = [
            tuple(ZORB[word] for word in words) for words in (self.people, self.objects, ACTS)
        ]
        paired = {
            act: tuple(what for j, what in enumerate(self.objects) if not unpaired(i, j))
            for i, act in enumerate(ACTS)
        }
        self.paired = {act: objects for act, objects in paired.items() if objects}
        self.paired_acts = tuple(self.paired)


def unasked(country: int, attribute: int) -> bool:
    """Whether no document ever asks for this attribute of this country: one pair in four."""
    return (country + attribute) % 4 == 3


def unpaired(act: int, thing: int) -> bool:
    """Whether no line with its English ever has this verb with this object: one pair in four."""
    return (act + thing) % 4 == 3


def _going_on(
    goes_on: Mapping[str, float], ends: Mapping[str, float], stop: float
) -> tuple[Choice[str], Choice[str]]:
    """What follows a sentence: another one or a close; and the same without room for another."""
    closes = {word: stop * share for word, share in ends.items()}
    return Choice({**goes_on, **closes}), Choice(ends)


def _verbs(here: bool, near: bool, mine: bool, theirs: bool, lying: bool) -> dict[str, float]:
    """What somebody can do, or be said to be, and how likely each verb is."""
    allowed = {
        ("went", "walked"): 1.0,
        ("gave", "handed"): 1.5 * (near and mine),
        ("got", "received"): 1.0 * theirs,
        ("dropped", "left"): 4.0 * (here and mine),
        ("took", "grabbed"): 6.0 * lying,
        ("is",): 0.7 * here,
        ("has",): 0.4 * mine,
    }
    return {verb: weight / len(verbs) for verbs, weight in allowed.items() for verb in verbs}
