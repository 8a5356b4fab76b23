"""How can one program draw a text, score it, predict its next word, and list all that it can say?

The program is a function of a handler g, to which it leaves every choice:

    g.say(*words)     certain words
    g.one_of(words)   one visible word, all equally likely
    g.pick(choice)    one visible word, weighted
    g.hide(choice)    something that is decided but not written
    g.length()        how many words there are so far

Another handler, another use. A choice that is written costs one word at once, so a text decides it.
Only the hidden choices k have to be tried, and what is true of the language is a sum over them:

    p(x) = sum_k p(k) prod_t p(x_t | x_<t, k)
    p(x_t | x_<t) = sum_k p(k | x_<t) p(x_t | x_<t, k),   p(k | x_<t) in proportion to p(k, x_<t)

The work is that of one run of the program for each row of hidden choices. So they should stand at
the head of a text, and be few: a hidden coin in every sentence doubles the work with each.

Axes: T positions. Sources: Wingate, Stuhlmueller and Goodman 2011 (a program replayed along its
choices); van de Meent et al. 2018 (handlers). Derived in the chapter `gpt/microworld`.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Generic, NamedTuple, TypeVar

import torch

_Option = TypeVar("_Option")
Beginnings = dict[tuple[str, ...], float]

# ---- choices -----------------------------------------------------------------------------------


class Choice(Generic[_Option]):
    """Options with their probabilities, in proportion to weights; what has weight 0 is left out.

    >>> Choice({"tea": 3, "coffee": 1, "ink": 0}).probs
    (0.75, 0.25)

    Args:
        weights: {option: weight}.
    Raises:
        ValueError: a weight is negative or NaN, or no weight is positive.
    """

    def __init__(self, weights: Mapping[_Option, float]):
        total = sum(weights.values())
        if not (total > 0 and all(weight >= 0 for weight in weights.values())):
            raise ValueError(f"expected weights of at least 0, one of them above, got {weights}")
        self.options = tuple(option for option, weight in weights.items() if weight > 0)
        self.probs = tuple(weight / total for weight in weights.values() if weight > 0)
        self.log_probs = {o: math.log(p) for o, p in zip(self.options, self.probs, strict=True)}
        self.cumulative = [sum(self.probs[: i + 1]) for i in range(len(self.probs))]
        self.cumulative[-1] = 1.0  # a draw lies below it, whatever the rounding


def uniform(options: Iterable[_Option]) -> Choice[_Option]:
    """All options equally likely."""
    return Choice(dict.fromkeys(options, 1.0))


class Derivation(NamedTuple):
    """One way to come by a text: its words, what was hidden, and the probability of both, logged.

    Attributes:
        words: the text, its end token included if it is finished.
        hidden: the hidden choices, in their order: the kind of document first.
        log_prob: log p(words, hidden); nats.
    """

    words: tuple[str, ...]
    hidden: tuple[object, ...]
    log_prob: float


# ---- handlers ----------------------------------------------------------------------------------


class _MismatchError(Exception):
    """The text goes on as this derivation cannot."""


class _UnfinishedError(Exception):
    """The text stops before the document does."""


class Handler(ABC):
    """To whom a program leaves its choices: it writes them down and adds up their log-probability.

    How they are made, the handlers below say, by `_place` and `_option`.
    """

    def __init__(self) -> None:
        self.log_prob = 0.0
        self.words: list[str] = []
        self.hidden: list[object] = []

    @abstractmethod
    def _place(self, size: int) -> int:
        """The place of one of `size` options that are equally likely."""

    def _option(self, choice: Choice) -> int:
        """The place of one of the options of a choice."""
        return self._place(len(choice.options))

    def length(self) -> int:
        return len(self.words)

    def say(self, *words: str) -> None:
        self.words += words

    def one_of(self, options: Sequence[str]) -> str:
        size = len(options)
        word = options[self._place(size)]
        self.words.append(word)
        self.log_prob -= math.log(size)
        return word

    def pick(self, choice: Choice[str]) -> str:
        word = choice.options[self._option(choice)]
        self.words.append(word)
        self.log_prob += choice.log_probs[word]
        return word

    def hide(self, choice: Choice[_Option]) -> _Option:
        option = choice.options[self._option(choice)]
        self.hidden.append(option)
        self.log_prob += choice.log_probs[option]
        return option


Program = Callable[[Handler], None]


class _Sampler(Handler):
    """Draws its choices."""

    def __init__(self, draw: Callable[[], float]):
        super().__init__()
        self.draw = draw

    def _place(self, size: int) -> int:
        return int(self.draw() * size)

    def _option(self, choice: Choice) -> int:
        return bisect_right(choice.cumulative, self.draw())


class _Follower(Handler):
    """Takes its choices from a path, and the first option where the path ends."""

    def __init__(self, path: tuple[int, ...]):
        super().__init__()
        self.path = path
        self.taken: list[int] = []
        self.sizes: list[int] = []

    def _place(self, size: int) -> int:
        k = len(self.taken)
        self.taken.append(self.path[k] if k < len(self.path) else 0)
        self.sizes.append(size)
        return self.taken[-1]

    def siblings(self) -> Iterator[tuple[int, ...]]:
        """The paths that branch off behind the given one."""
        for k in range(len(self.path), len(self.taken)):
            for i in range(1, self.sizes[k]):
                yield (*self.taken[:k], i)


class _Enumerator(_Follower):
    """Takes all its choices from a path, visible ones too, and stops at a number of words."""

    def __init__(self, most: int, path: tuple[int, ...]):
        super().__init__(path)
        self.most = most

    def say(self, *words: str) -> None:
        for word in words:
            self._room()
            self.words.append(word)

    def one_of(self, options: Sequence[str]) -> str:
        self._room()
        return super().one_of(options)

    def pick(self, choice: Choice[str]) -> str:
        self._room()
        return super().pick(choice)

    def _room(self) -> None:
        if len(self.words) == self.most:
            raise _UnfinishedError


class _Reader(_Follower):
    """Makes the visible choices that a given text has made, and adds up their log-probabilities."""

    def __init__(self, words: tuple[str, ...], path: tuple[int, ...]):
        super().__init__(path)
        self.text, self.at = words, 0

    def length(self) -> int:
        return self.at

    def say(self, *words: str) -> None:
        stop = self.at + len(words)
        if self.text[self.at : stop] != words:
            for word in words:
                self._read((word,))
        self.at = stop

    def one_of(self, options: Sequence[str]) -> str:
        word = self._read(options)
        self.log_prob -= math.log(len(options))
        return word

    def pick(self, choice: Choice[str]) -> str:
        word = self._read(choice.log_probs)
        self.log_prob += choice.log_probs[word]
        return word

    def _read(self, options: Collection[str]) -> str:
        if self.at == len(self.text):
            raise _UnfinishedError
        word = self.text[self.at]
        if word not in options:
            raise _MismatchError
        self.at += 1
        return word


class _Watcher(_Reader):
    """Follows a text and notes, at each position, what could have come and how likely it got there.

    Attributes:
        rows: for each position the words that could come, and their probabilities.
        before: for each position log p(words before it, hidden).
    """

    def __init__(self, words: tuple[str, ...], path: tuple[int, ...]):
        super().__init__(words, path)
        self.rows: list[tuple[Sequence[str], Sequence[float]]] = []
        self.before: list[float] = []

    def say(self, *words: str) -> None:
        for word in words:
            self._note((word,), (1.0,))
            self._read((word,))

    def one_of(self, options: Sequence[str]) -> str:
        self._note(options, (1 / len(options),) * len(options))
        return super().one_of(options)

    def pick(self, choice: Choice[str]) -> str:
        self._note(choice.options, choice.probs)
        return super().pick(choice)

    def _note(self, words: Sequence[str], probs: Sequence[float]) -> None:
        self.rows.append((words, probs))
        self.before.append(self.log_prob)


_Run = TypeVar("_Run", bound=_Follower)


def _runs(
    program: Program, make: Callable[[tuple[int, ...]], _Run]
) -> Iterator[tuple[_Run, type[Exception] | None]]:
    """(handler, how its run ended) for each path of choices; None: the document was finished."""
    agenda: list[tuple[int, ...]] = [()]
    while agenda:
        g = make(agenda.pop())
        try:
            program(g)
            outcome = None
        except (_MismatchError, _UnfinishedError) as stopped:
            outcome = type(stopped)
        agenda.extend(g.siblings())
        yield g, outcome


# ---- what follows from a program ---------------------------------------------------------------


def sample(program: Program, count: int, *, generator: torch.Generator) -> list[Derivation]:
    """`count` independent runs of a program, each with its words and its log-probability.

    The log-probability is that of words and hidden choices together; that of the words alone,
    `log_prob`, is never less.
    """
    draw, results = _uniform_draws(generator).__next__, []
    for _ in range(count):
        g = _Sampler(draw)
        program(g)
        results.append(Derivation(tuple(g.words), tuple(g.hidden), g.log_prob))
    return results


def derivations(program: Program, words: tuple[str, ...]) -> list[Derivation]:
    """All the ways in which a text can begin with these words, or be them; none if it cannot.

    Their probabilities, divided by their sum, are those of the hidden choices given the words.
    """
    return [
        Derivation(words, tuple(g.hidden), g.log_prob)
        for g, outcome in _runs(program, lambda path: _Reader(words, path))
        if outcome is not _MismatchError and g.at == len(words)
    ]


def log_prob(program: Program, words: tuple[str, ...]) -> float:
    """The log-probability that a text begins with these words, in nats; -inf if none can.

    If the words are a whole text, of which no other is the beginning, it is that of the text.
    """
    terms = [derivation.log_prob for derivation in derivations(program, words)]
    if len(terms) < 2:
        return terms[0] if terms else -math.inf
    largest = max(terms)
    return largest + math.log(sum(math.exp(term - largest) for term in terms))


def first_impossible(program: Program, words: tuple[str, ...]) -> int | None:
    """The place of the first word that cannot follow those before it; None if all can."""
    runs = list(_runs(program, lambda path: _Reader(words, path)))
    furthest = max(g.at for g, _ in runs)
    return None if furthest == len(words) else furthest


def next_words(program: Program, words: tuple[str, ...]) -> list[dict[str, float]]:
    """What can follow the first 0, 1, …, T words, and how probably: T + 1 times {word: p}.

    All positions in one pass. Empty where nothing can follow: after a whole text, and after words
    with which no text begins.
    """
    runs = [g for g, _ in _runs(program, lambda path: _Watcher(words, path))]
    results = []
    for t in range(len(words) + 1):
        there = [g for g in runs if t < len(g.rows)]
        if len(there) == 1:  # nothing hidden is left open
            options, probs = there[0].rows[t]
            results.append(dict(zip(options, probs, strict=True)))
            continue
        largest = max((g.before[t] for g in there), default=0.0)
        weights = [math.exp(g.before[t] - largest) for g in there]  # p(k, x_<t), up to a factor
        total = sum(weights)
        mixed: dict[str, float] = {}
        for g, weight in zip(there, weights, strict=True):
            for word, prob in zip(*g.rows[t], strict=True):
                mixed[word] = mixed.get(word, 0.0) + weight / total * prob
        results.append(mixed)
    return results


def enumerate_texts(program: Program, most: int) -> tuple[Beginnings, Beginnings]:
    """All texts of at most `most` words, and all beginnings of that length of longer ones.

    Both with their probabilities, each added up along its own derivations, so that together they
    sum to one only if nothing was lost. The work grows exponentially: take a small language and 12
    words or so.
    """
    texts: Beginnings = {}
    cut: Beginnings = {}
    for g, outcome in _runs(program, lambda path: _Enumerator(most, path)):
        where, words = cut if outcome is _UnfinishedError else texts, tuple(g.words)
        where[words] = where.get(words, 0.0) + math.exp(g.log_prob)
    return texts, cut


def _uniform_draws(generator: torch.Generator) -> Iterator[float]:
    """Numbers from [0, 1), drawn in blocks: one at a time they would cost more than the words."""
    device = generator.device
    return chain.from_iterable(
        torch.rand(4096, generator=generator, dtype=torch.float64, device=device).tolist()
        for _ in repeat(None)
    )
