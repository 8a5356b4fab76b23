"""Where do labelled examples come from, and how well could a perfect reader answer them?

    family          texts of an example            labels
    classification  one text                       names
    entailment      premise, hypothesis            names; the order counts
    similarity      first, second                  names; the order does not count
    choice          context, choice, choice, …     which choice

The micro-world makes its tasks by construction: labels are balanced, no example is in two parts,
and since every probability is known, so is the best that any reader of x can do on a test part,

    ceiling = mean over x of max_y p(y | x)        (1 where x alone decides y)

A reader's own examples come from a file with one JSON object a line, `load`.

Sources: Radford et al. 2018, section 3.3 (the four families); Warstadt et al. 2019 (acceptability);
Bowman et al. 2015 (entailment); Gururangan et al. 2018 (hypotheses that give the label away).
Chapter: `gpt/gpt1_finetuning`.
"""

import hashlib
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path

import torch

from .files import write_text
from .microworld import (
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
    MicroWorld,
)

FAMILIES = ("classification", "entailment", "similarity", "choice")
PARTS = ("train", "validation", "test")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


# ---- examples and tasks ------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """Some texts and the right answer.

    Attributes:
        texts: one text; premise and hypothesis; a first and a second text; or a context and its
            choices.
        label: a place in the task's labels; for choices, which one is right.
    """

    texts: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class Task:
    """Examples in three parts that share no example, and what is known about their answers.

    Attributes:
        name: for tables and figures.
        family: one of `FAMILIES`.
        labels: their names; for choices "first", "second", …, as many as there are choices.
        train, validation, test: to learn from, to choose by, to report on.
        ceiling: the accuracy that a perfect reader expects on the texts of the test part; None if
            nobody knows.
        ceiling_error: its standard error, as an estimate for all such texts.
    Raises:
        ValueError: an unknown family, fewer than two labels, an example that does not fit them, a
            training part with a single label, or an example in two parts.
    """

    name: str
    family: str
    labels: tuple[str, ...]
    train: tuple[Example, ...]
    validation: tuple[Example, ...] = ()
    test: tuple[Example, ...] = ()
    ceiling: float | None = None
    ceiling_error: float | None = None

    def __post_init__(self):
        if self.family not in FAMILIES:
            raise ValueError(f"expected a family among {FAMILIES}, got {self.family!r}")
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"expected two or more different labels, got {self.labels}")
        where = {}
        for part in PARTS:
            for i, example in enumerate(getattr(self, part)):
                _check_example(f"{part}[{i}]", self.family, self.labels, example)
                other = where.setdefault(_identity(self.family, example.texts), part)
                if other != part:
                    raise ValueError(
                        f"expected parts that share no example, got {example.texts} in {other} and "
                        f"in {part}: remove copies before you split"
                    )
        if len({example.label for example in self.train}) < 2:
            raise ValueError(
                "expected training examples of two labels or more, got "
                f"{self.counts('train')}: there is nothing to tell apart; add examples of another"
            )

    def counts(self, part: str = "test") -> dict[str, int]:
        """How many examples of each label a part has."""
        counted = Counter(example.label for example in getattr(self, part))
        return {name: counted[label] for label, name in enumerate(self.labels)}

    @property
    def chance(self) -> float:
        """The accuracy of the best constant answer on the test part.

        Raises:
            ValueError: the test part is empty.
        """
        if not self.test:
            raise ValueError(f"expected a test part, got none in {self.name!r}")
        return max(self.counts("test").values()) / len(self.test)

    def with_labels(self, count: int, *, generator: torch.Generator) -> "Task":
        """The same task with only `count` labelled examples to learn from, drawn at random.

        The labels are as balanced as the number and the examples permit. For generators in the same
        state, more examples contain the fewer.

        Raises:
            ValueError: fewer examples than labels, or more than there are.
        """
        if not len(self.labels) <= count <= len(self.train):
            raise ValueError(
                f"expected from {len(self.labels)} (one a label) to {len(self.train)} training "
                f"examples, got {count}"
            )
        seen, ranked = Counter(), []
        for i in torch.randperm(len(self.train), generator=generator).tolist():
            ranked.append((seen[self.train[i].label], self.train[i]))
            seen[self.train[i].label] += 1
        ranked.sort(key=lambda each: each[0])  # the first of each label, the second of each, …
        return replace(self, train=tuple(example for _, example in ranked[:count]))


def _check_example(where: str, family: str, labels: Sequence[str], example: Example) -> None:
    texts, label = example.texts, example.label
    wanted = {"classification": 1, "choice": 1 + len(labels)}.get(family, 2)
    if not isinstance(texts, tuple) or len(texts) != wanted:
        raise ValueError(
            f"{where}: expected a tuple of {wanted} texts ({family}, {len(labels)} labels), got "
            f"{texts!r}"
        )
    _check_texts(where, texts)
    if family == "choice" and len(set(texts[1:])) < len(labels):
        raise ValueError(f"{where}: expected choices that differ, got {texts[1:]}")
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < len(labels):
        raise ValueError(
            f"{where}: expected a label from 0 to {len(labels) - 1} (a place in {labels}), got "
            f"{label!r}"
        )


def _check_texts(where: str, texts: Sequence[str]) -> None:
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{where}: expected texts that are not empty, got {text!r}")
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ValueError(f"{where}: expected whole characters, got half of one in {text!r}")


def _identity(family: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    """What two examples have in common if they are one example in another order."""
    if family == "similarity":
        return tuple(sorted(texts))
    return (texts[0], *sorted(texts[1:])) if family == "choice" else texts


# ---- tasks of the micro-world: classification ---------------------------------------------------


def sentiment(
    world: MicroWorld, *, train: int, validation: int, test: int, generator: torch.Generator
) -> Task:
    """Is a review praise or blame? The first one to three sentences; the label is the hidden mood.

    An adjective of the other polarity slips in now and then (`polarity_noise`), so nobody can be
    always right. The ceiling comes from the exact p(mood | text).
    """
    world, rng = _reviews(world), _rng(generator)

    def draw(document, _):
        text = _first_sentences(document.words, rng.randint(1, 3))
        return Example((text,), _MOODS.index(document.hidden[1]))

    def best(example):
        praise = _praise(world, example.texts[0])
        return max(praise, 1 - praise)

    task, sizes = ("sentiment", "classification", _MOODS), (train, validation, test)
    return _build(task, draw, _documents(world, generator), sizes, rng, best)


def acceptability(
    world: MicroWorld, *, train: int, validation: int, test: int, generator: torch.Generator
) -> Task:
    """Can the language say this? A document, or one made impossible by the least change.

    Two of its words change places, or one gives way to another of its kind: a person, a place, a
    capital, as often as each is spoken of. Both labels take documents for which that was found, so
    that length and subject tell nothing. What is possible has a probability above 0 and the rest
    has none, so the ceiling is 1.
    """
    world, rng = replace(world, longest=min(world.longest, 59)), _rng(generator)
    pools = {}  # kind: its words, as often as they are spoken of
    for each in world.sample(300, generator=generator):
        for word in each.words:
            pools.setdefault(_KIND_OF.get(word), []).append(word)

    def changed(words, swap):
        result = list(words)
        if swap:
            i, j = rng.sample(range(len(words)), 2)
            result[i], result[j] = words[j], words[i]
        elif places := [i for i, word in enumerate(words) if word in _KIND_OF]:
            i = rng.choice(places)
            result[i] = rng.choice(pools[_KIND_OF[words[i]]])
        return result

    def draw(document, label):
        words, swap = document.words[:-1], rng.random() < 0.5
        for _ in range(20):
            other = changed(words, swap)
            if world.log_prob(other) == -math.inf:
                return Example((" ".join(words if label else other),), label)
        return None

    task, sizes = (
        ("acceptability", "classification", ("impossible", "possible")),
        (train, validation, test),
    )
    return _build(task, draw, _documents(world, generator), sizes, rng)


# ---- entailment ---------------------------------------------------------------------------------


def entailment(
    world: MicroWorld,
    *,
    train: int,
    validation: int,
    test: int,
    generator: torch.Generator,
    has: float = 0.25,
) -> Task:
    """Does a claim follow from a story? "bob is in the hall", "ann has the apple".

    The verdict is the language's own: the only one of true, false and unclear that can follow the
    story and "they say bob is in the hall :". Claims name only what the story names. Every story
    could have had each label, so it gives none away. That somebody has a thing is never unclear:
    who sees the claim alone is right in 1/3 + has/3 of the cases at most, in expectation.

    Args:
        has: the share of claims of having among the true and among the false ones.
    """
    if not 0 <= has <= 1:
        raise ValueError(f"expected has from 0 to 1, got {has}")
    stories, judge = _stories(world)
    rng, labels = _rng(generator), ("false", "true", "unclear")

    def follows(words, claim, verdict):
        said = (*words, "they", "say", *claim.split(), ":", verdict)
        return judge.log_prob(said) > -math.inf

    def draw(document, label):
        words = document.words[:-1]
        cast, places, things = (_named(words, kind) for kind in (PEOPLE, PLACES, OBJECTS))
        if not places:
            return None
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

    task, sizes = ("entailment", "entailment", labels), (train, validation, test)
    return _build(task, draw, _documents(stories, generator), sizes, rng)


# ---- similarity ---------------------------------------------------------------------------------


def paraphrases(
    world: MicroWorld, *, train: int, validation: int, test: int, generator: torch.Generator
) -> Task:
    """Same facts in other words, or the same words in other roles?

    same:  then ann gave the apple to bob .   then bob received the apple from ann .
    other: then ann gave the apple to bob .   then ann received the apple from bob .

    The two verbs differ, whatever the label; only who gives and who receives is exchanged. The
    words of both texts, counted, therefore have the same distribution under both labels. In two of
    three pairs another fact stands before or behind, the same in both texts. The ceiling is 1.
    """
    rng = _rng(generator)
    people, places = PEOPLE[: world.people], PLACES[: world.places]
    objects = OBJECTS[: world.objects]
    if min(len(people), len(objects)) < 2:
        raise ValueError(
            "expected a world of at least 2 people and 2 objects, got "
            f"{len(people)} and {len(objects)}"
        )

    def draw(_, label):
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

    task, sizes = ("paraphrases", "similarity", ("other", "same")), (train, validation, test)
    return _build(task, draw, repeat(None), sizes, rng)


def same_polarity(
    world: MicroWorld, *, train: int, validation: int, test: int, generator: torch.Generator
) -> Task:
    """Are two reviews of one mind? Beginnings of one or two sentences each, of any two topics.

    With p and q the probabilities of praise given each text, p(same) = p q + (1 − p)(1 − q).
    """
    world, rng = _reviews(world), _rng(generator)

    def draw(pair, _):
        texts = (_first_sentences(each.words, rng.randint(1, 2)) for each in pair)
        return Example(tuple(texts), int(pair[0].hidden == pair[1].hidden))

    def best(example):
        p, q = (_praise(world, text) for text in example.texts)
        same = p * q + (1 - p) * (1 - q)
        return max(same, 1 - same)

    reviews = _documents(world, generator)
    task, sizes = ("same polarity", "similarity", ("opposite", "same")), (train, validation, test)
    return _build(task, draw, zip(reviews, reviews, strict=True), sizes, rng, best)


# ---- choice -------------------------------------------------------------------------------------


def endings(
    world: MicroWorld, *, train: int, validation: int, test: int, generator: torch.Generator
) -> Task:
    """Which sentence can follow a story? "the apple is in the hall .", "… the barn .", …

    Three sentences about one thing, of three places or of three people that the story names, of
    which the language can say exactly one; that there is one, is checked. The ceiling is 1.
    """
    stories, judge = _stories(world)
    rng = _rng(generator)

    def draw(document, label):
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

    task, sizes = ("endings", "choice", ORDINALS[:3]), (train, validation, test)
    return _build(task, draw, _documents(stories, generator), sizes, rng)


def answers(
    world: MicroWorld, *, train: int, validation: int, test: int, generator: torch.Generator
) -> Task:
    """What is the dish of arvia? Some facts that close with a question, and three answers to it.

    The answer seldom stands in the context: who has read of the countries before, knows. The
    choices are the answers to three drawn questions of a kind, one of which is then asked, so that
    no choice is likelier than another to whoever sees the choices alone. The ceiling is 1.
    """
    facts = _only(world, "facts", demonstrations=1.0, longest=min(world.longest, 48))
    rng, waiting = _rng(generator), {}

    def draw(document, label):
        *context, right, _, _ = document.words
        alike = waiting.setdefault(_KIND_OF[right], {})
        alike[right] = " ".join(context)
        if len(alike) < 3:
            return None
        shown = rng.sample([*alike], 3)
        context = alike[shown[label]]
        alike.clear()
        return Example((context, *(f"{each} ." for each in shown)), label)

    task, sizes = ("answers", "choice", ORDINALS[:3]), (train, validation, test)
    return _build(task, draw, _documents(facts, generator), sizes, rng)


# ---- what the builders share --------------------------------------------------------------------

_MOODS = ("blame", "praise")
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


def _only(world: MicroWorld, kind: str, **changes) -> MicroWorld:
    """The world with documents of one kind, which make no claims and close with no question."""
    shares = dict.fromkeys(("stories", "reviews", "facts", "translations"), 0.0) | {kind: 1.0}
    plain = {"claims": 0.0, "demonstrations": 0.0}
    return replace(world, **shares | plain | changes)


def _reviews(world: MicroWorld) -> MicroWorld:
    """Short reviews."""
    return _only(world, "reviews", cast=1, things=1, longest=min(world.longest, 32))


def _stories(world: MicroWorld) -> tuple[MicroWorld, MicroWorld]:
    """Stories that leave room for one more sentence, and the world that says whether it can be."""
    longest = min(world.longest, 64)
    stories = _only(world, "stories", longest=longest - 8)  # 8: the longest of its sentences
    return stories, replace(stories, claims=(1 - world.stop) / 2, longest=longest)


def _documents(world: MicroWorld, generator: torch.Generator) -> Iterator:
    """Documents without end."""
    while True:
        yield from world.sample(100, generator=generator)


def _rng(generator: torch.Generator) -> random.Random:
    """Draws of single words; those of torch would cost more than the words."""
    return random.Random(
        int(torch.randint(2**62, (), generator=generator, device=generator.device))
    )


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


def _build(
    task: tuple[str, str, tuple[str, ...]],
    draw: Callable[[object, int], Example | None],
    material: Iterable,
    sizes: tuple[int, int, int],
    rng: random.Random,
    best: Callable[[Example], float] = lambda example: 1.0,
) -> Task:
    """A task of different examples, every label as often as the others in each part (or once more).

    Args:
        task: name, family, labels.
        draw: makes an example from material, with the given label where it has the choice; None if
            this material does not do.
        material: what examples are made of, one after the other.
        sizes: of the three parts.
        best: the probability of an example's likeliest label.
    Raises:
        ValueError: sizes out of range, or not so many different examples.
    """
    _, family, labels = task
    if min(sizes) < 0 or sizes[0] < 2:
        raise ValueError(f"expected 2 or more training examples and no size below 0, got {sizes}")
    k = len(labels)
    quotas = [[size // k + (label < size % k) for label in range(k)] for size in sizes]
    wanted = [sum(of_label) for of_label in zip(*quotas, strict=True)]
    found, seen, idle, material = [[] for _ in labels], set(), 0, iter(material)
    while lacking := [label for label in range(k) if len(found[label]) < wanted[label]]:
        example = draw(next(material), rng.choice(lacking))
        identity = example and _identity(family, example.texts)
        idle += 1
        if example and example.label in lacking and identity not in seen:
            seen.add(identity)
            found[example.label].append(example)
            idle = 0
        if idle > _PATIENCE:
            raise ValueError(
                f"expected {wanted} different examples of {labels}, got {[*map(len, found)]}: ask "
                "for fewer, or for a larger world"
            )
    for examples in found:
        rng.shuffle(examples)
    parts = {}
    for part, quota in zip(PARTS, quotas, strict=True):
        taken = [found[label].pop() for label in range(k) for _ in range(quota[label])]
        rng.shuffle(taken)
        parts[part] = tuple(taken)
    sure = [*map(best, parts["test"])]
    ceiling = statistics.fmean(sure) if sure else None
    error = statistics.stdev(sure) / math.sqrt(len(sure)) if len(sure) > 1 else None
    return Task(*task, **parts, ceiling=ceiling, ceiling_error=error)


# ---- a reader's own task ------------------------------------------------------------------------

KEYS = {
    "classification": ("text",),
    "entailment": ("premise", "hypothesis"),
    "similarity": ("first", "second"),
    "choice": ("context", "choices"),
}


def load(path: Path | str, *, validation: float = 0.15, test: float = 0.15, seed: int = 0) -> Task:
    """A task from a UTF-8 file with one JSON object a line; what its keys are decides the family.

        {"text": "…", "label": "praise"}
        {"premise": "…", "hypothesis": "…", "label": "true"}
        {"first": "…", "second": "…", "label": 1}
        {"context": "…", "choices": ["…", "…"], "label": 0}        (which choice, from 0)

    "split": "train", "validation" or "test" may be on every line. Otherwise examples are ordered
    by the SHA-256 of the seed and what they begin with, so that all those of one premise or context
    are in one part, and the parts do not depend on the order of the lines. Copies of an example
    count once. Labels are in alphabetical order, or in that of numbers.

    Args:
        validation, test: the shares of examples in these parts, if the file does not say.
        seed: another number gives another split.
    Raises:
        ValueError: a line cannot be read, does not go with the others, or contradicts one of them
            (the message names file and line); shares out of range; or too few examples.
        OSError: there is no such file.
    """
    if not (0 <= validation < 1 and 0 <= test < 1 and validation + test < 1):
        raise ValueError(
            f"expected shares from 0 to 1 with a sum below 1, got {validation} and {test}"
        )
    path = Path(path)
    records = _distinct(path, _records(path))
    if not records:
        raise ValueError(f"{path}: expected one JSON object a line, got no line with one")
    _, family, texts, label, _ = records[0]
    if family == "choice":
        k = len(texts) - 1
        labels = ORDINALS[:k] if k <= len(ORDINALS) else tuple(map(str, range(1, k + 1)))
    else:
        labels = tuple(sorted({label for _, _, _, label, _ in records}, key=_label_order))
    parts = _parts(path, records, validation, test, seed)
    made = {part: [] for part in PARTS}
    for line, _, texts, label, _ in records:
        place = label if family == "choice" else labels.index(label)
        made[parts[line]].append(Example(texts, place))
        if len(labels) > 1:
            _check_example(f"{path}:{line}", family, labels, made[parts[line]][-1])
    try:
        return Task(path.stem, family, labels, **{part: tuple(made[part]) for part in PARTS})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def save(task: Task, path: Path | str) -> None:
    """Write a task's examples to a file that `load` reads, one JSON object a line."""
    lines = []
    for part in PARTS:
        for example in getattr(task, part):
            record = dict(zip(KEYS[task.family], example.texts, strict=False))
            record["label"] = task.labels[example.label]
            if task.family == "choice":
                record |= {"choices": example.texts[1:], "label": example.label}
            lines.append(json.dumps({**record, "split": part}, ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))


def _records(path: Path) -> Iterator[tuple]:
    """(line number, family, texts, label, part or None) of each line that is not blank."""
    for line, content in enumerate(path.read_bytes().split(b"\n"), start=1):
        where = f"{path}:{line}"
        try:
            text = content.decode("utf-8-sig" if line == 1 else "utf-8").strip()
            record = json.loads(text) if text else None
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{where}: expected UTF-8, got byte 0x{content[error.start]:02x}: save the file "
                "as UTF-8"
            ) from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: expected one JSON object, got {text[:60]!r}") from error
        if text:
            yield line, *_record(where, record)


def _record(where: str, record: object) -> tuple:
    """Family, texts, label and part of one object."""
    keys = set(record) - {"label", "split"} if isinstance(record, dict) else set()
    family = next((f for f, names in KEYS.items() if set(names) == keys), None)
    if family is None or "label" not in record:
        known = "; ".join(", ".join((*names, "label")) for names in KEYS.values())
        got = sorted(record) if isinstance(record, dict) else type(record).__name__
        raise ValueError(f"{where}: expected the keys {known} (and split, or not), got {got}")
    first, *others = (record[name] for name in KEYS[family])
    if family == "choice":
        (choices,) = others
        if not isinstance(choices, list) or len(choices) < 2:
            raise ValueError(f"{where}: expected a list of two choices or more, got {choices!r}")
        others = choices
    texts, label, part = (first, *others), record["label"], record.get("split")
    _check_texts(where, texts)
    kinds = int if family == "choice" else (int, str)
    if isinstance(label, bool) or not isinstance(label, kinds) or label == "":
        wanted = "the place of a choice, from 0" if family == "choice" else "a name or a number"
        raise ValueError(f"{where}: expected as label {wanted}, got {label!r}")
    if part not in (None, *PARTS):
        raise ValueError(f"{where}: expected a split among {PARTS}, got {part!r}")
    return family, texts, label if family == "choice" else str(label), part


def _distinct(path: Path, records: Iterable[tuple]) -> list[tuple]:
    """The records without copies, of one family, all with a split or all without."""
    kept = {}
    for record in records:
        line, family, texts, label, part = record
        answer = texts[1:][label : label + 1] if family == "choice" else label
        first, before = kept.setdefault(_identity(family, texts), (record, answer))
        start = next(iter(kept.values()))[0]
        if family != start[1] or (family == "choice" and len(texts) != len(start[2])):
            raise ValueError(
                f"{path}:{line}: expected {start[1]} with {len(start[2])} texts as in line "
                f"{start[0]}, got {family} with {len(texts)}"
            )
        if (part is None) != (start[4] is None):
            raise ValueError(f"{path}:{line}: expected a split on every line or on none")
        if answer != before or part != first[4]:
            raise ValueError(
                f"{path}:{line}: expected the label and split of the same texts in line "
                f"{first[0]}, {(first[3], first[4])}, got {(label, part)}: remove one of them"
            )
    return [record for record, _ in kept.values()]


def _parts(
    path: Path, records: Sequence[tuple], validation: float, test: float, seed: int
) -> dict[int, str]:
    """{line: part}: as the file says, or by the order of hashes."""
    if records[0][4] is not None:
        return {record[0]: record[4] for record in records}
    groups = {}
    for line, family, texts, _, _ in records:
        group = "\n".join(sorted(texts)) if family == "similarity" else texts[0]
        groups.setdefault(hashlib.sha256(f"{seed}\n{group}".encode()).digest(), []).append(line)
    order, parts = [lines for _, lines in sorted(groups.items())], {}
    for part, share in (("test", test), ("validation", validation), ("train", 1.0)):
        taken = 0
        while order and taken < share * len(records):
            lines = order.pop()
            parts |= dict.fromkeys(lines, part)
            taken += len(lines)
    return parts


def _label_order(name: str) -> tuple[bool, int, str]:
    """Numbers by size, then names by alphabet."""
    return (False, len(name), name) if name.isdecimal() else (True, 0, name)
