"""A race: several entries learn in turns, each until its own CPU seconds are over.

An entry is a function `entry(task, seed, clock)` that yields its model after each step of learning.
Its clock runs while the entry does, from its first line on, and stands still while others have
their turn, while a model is checked, and while it is scored. So a busy machine hits all alike.
What counts is the model that was yielded last.
"""

import math
import statistics
import time

import torch

from experiments.shared.arms import around, p_value
from src.likelihood.models import evaluating

TURN = 0.5  # seconds
LATE, LEAST = 0.02, 0.5  # by how much a last step may be late: a share, and seconds in any case
LEVEL, SEEDS = 0.01, 5  # what a verdict needs
ALIKE = 1e-3  # logits that differ by less are the same
WINS, LOSES, UNCLEAR = "wins", "loses", "cannot tell"


class EntryError(ValueError):
    """An entry that breaks a rule, and by what."""


# ---- time --------------------------------------------------------------------------------------


class Clock:
    """How many seconds an entry may use, and has used; it runs inside of `with clock:`.

    Args:
        now: tells the time; the default counts what all threads of this process compute.
    """

    def __init__(self, seconds, now=time.process_time):
        self.seconds, self.now = seconds, now
        self.stopped, self.began = 0.0, None

    def __enter__(self):
        self.began = self.now()

    def __exit__(self, *error):
        self.stopped, self.began = self.used, None

    @property
    def used(self):
        return self.stopped + (0.0 if self.began is None else self.now() - self.began)

    @property
    def share(self):
        """Of its seconds the share that is used, 0 to 1: what a schedule is a function of."""
        return min(1.0, self.used / self.seconds)


class Runner:
    """An entry on its way."""

    def __init__(self, name, entry, task, seed, clock):
        self.name, self.task, self.clock = name, task, clock
        self.model, self.steps, self.over = None, 0, False
        with clock:
            self.models = iter(entry(task, seed, clock))

    def take_turn(self):
        """Take steps until the turn is over, the time is, or the entry says that it is done."""
        until = min(self.clock.used + TURN, self.clock.seconds)
        while not self.over and self.clock.used < until:
            with self.clock:
                model = next(self.models, self)
            if model is self:
                self.over = True
                break
            if self.steps == 0:
                check(model, self.task, self.name)
            self.model, self.steps = model, self.steps + 1
        self.over |= self.clock.used >= self.clock.seconds
        self._check_turn()

    def _check_turn(self):
        limit = self.clock.seconds + max(LATE * self.clock.seconds, LEAST)
        if self.clock.used > limit:
            raise EntryError(
                f"expected {self.name} to be done after {limit:g} seconds, it used "
                f"{self.clock.used:.2f}: take smaller steps, or look at clock.share"
            )
        if self.over and self.model is None:
            raise EntryError(
                f"expected {self.name} to yield its model after each step, it ended without one: "
                "write `yield model` inside of its loop"
            )


def race(entries, task, score, *, seed, seconds, now=time.process_time):
    """{name: {"score", "steps", "seconds"}} of entries that learnt in turns.

    Args:
        entries: {name: entry}.
        task: what they may see: `stream`, `vocabulary_size`, `context_length`, `end`.
        score: called with a model; the less the better.
    Raises:
        EntryError: an entry took too long, has no model, or one that `check` refuses.
    """
    runners = [
        Runner(name, entry, task, seed, Clock(seconds, now)) for name, entry in entries.items()
    ]
    while waiting := [runner for runner in runners if not runner.over]:
        for runner in waiting:
            runner.take_turn()
    return {
        runner.name: {
            "score": scored(runner.model, task, score, runner.name),
            "steps": runner.steps,
            "seconds": runner.clock.used,
        }
        for runner in runners
    }


def scored(model, task, score, name):
    """The score of a model that is checked once more: it may have changed while it learnt."""
    check(model, task, name)
    with evaluating(model):
        found = score(model)
    if not math.isfinite(found):
        raise EntryError(
            f"expected a finite score of {name}, got {found}: it gives some token the probability 0"
        )
    return found


# ---- what a model must be ----------------------------------------------------------------------


@torch.no_grad()
def check(model, task, name):
    """Refuse what is no model of the next token.

    That a model's probabilities sum to one need not be checked: it gives logits, and the scorer
    turns them into probabilities itself.

    Raises:
        EntryError: it is no function, gives other shapes, draws or remembers, looks at other rows
            of its batch, or at later tokens.
    """
    if not callable(model):
        raise EntryError(
            f"expected {name} to yield a model, called with ids (B, T), got {type(model).__name__}"
        )
    length, size = task.context_length, task.vocabulary_size
    ids = task.stream[:length]
    others = (ids + 1) % size  # not one of them is the same
    with evaluating(model):
        alone = logits_of(model, ids[None], size, name)[0]
        if not same(alone, logits_of(model, ids[None], size, name)[0]):
            raise EntryError(
                f"expected {name} to give the same logits for the same ids, got others the second "
                "time: it draws at random, or remembers what it has read"
            )
        beside = logits_of(model, torch.stack([others, ids]), size, name)[1]
        if not same(alone, beside):
            raise EntryError(
                f"expected {name} to read each row of a batch for itself, got other logits beside "
                "another row"
            )
        known = torch.ones(length, length, dtype=torch.bool).tril()  # row t keeps tokens 0 … t
        for rows in known.split(16):
            logits = logits_of(model, torch.where(rows, ids, others), size, name)
            for row, changed in zip(rows, logits, strict=True):
                if not same(alone[row], changed[row]):
                    raise EntryError(
                        f"expected the logits of {name} to depend on earlier tokens only, got "
                        f"others when the tokens after the first {int(row.sum())} changed: it "
                        "looks ahead; look at its mask"
                    )


def logits_of(model, ids, size, name):
    """The logits of the next tokens, (B, T, V), if that is what the model gives."""
    logits = model(ids)
    expected = (*ids.shape, size)
    if not isinstance(logits, torch.Tensor) or tuple(logits.shape) != expected:
        got = getattr(logits, "shape", type(logits).__name__)
        got = tuple(got) if isinstance(got, torch.Size) else got
        raise EntryError(
            f"expected {name} to give logits (B, T, V) = {expected} for ids {tuple(ids.shape)}, "
            f"got {got}"
        )
    return logits


def same(one, other):
    return torch.allclose(one, other, rtol=ALIKE, atol=ALIKE)


# ---- who wins ----------------------------------------------------------------------------------


def verdict(differences):
    """Whether an entry wins, loses, or we cannot tell, from its scores minus the baseline's.

    Args:
        differences: one for each seed. With fewer than five there is no verdict.
    """
    if len(differences) < SEEDS or p_value(differences) >= LEVEL:
        return UNCLEAR
    return WINS if statistics.fmean(differences) < 0 else LOSES


def told(name, base, differences):
    """The verdict as a sentence."""
    mean = around(differences) if len(differences) > 1 else f"{differences[0]:+.4f}"
    text = f"{name} minus {base}: {mean}, {len(differences)} seeds: {verdict(differences)}"
    if len(differences) < SEEDS:
        return f"{text}, a verdict needs {SEEDS} seeds"
    return f"{text}, p = {p_value(differences):.2g}"
