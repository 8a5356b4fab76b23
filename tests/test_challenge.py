"""The challenge: a fair clock, models that may not cheat, and a verdict that luck does not give."""

import json
import math
import re
import textwrap
from dataclasses import replace
from itertools import count, groupby

import pytest
import torch
from chapters import ROOT

from experiments import challenge, challenge_long
from experiments.shared import races
from experiments.shared.races import Clock, EntryError, check, race, verdict
from src.gpt.gpt2 import GPT, GPTConfig
from src.likelihood.smoothing import NgramModel

V, T = 11, 8
SMALL = {"layers": 1, "heads": 2, "channels": 8}
ENTRY = challenge.GPTEntry(rate=0.01, batch=2, sizes=SMALL)
IN_SMALL = replace(challenge.QUICK, texts=50, exam=3)


def task():
    drawn = torch.randint(1, V, (200,), generator=torch.Generator().manual_seed(0))
    return challenge.Task(drawn, V, T, end=0)


def ticking(step=0.01):
    """A clock that moves on each time that somebody looks at it."""
    ticks = count()
    return lambda: step * next(ticks)


def loss_of(model):
    ids = task().stream[: T + 1]
    return torch.nn.functional.cross_entropy(model(ids[None, :-1])[0], ids[1:]).item()


def raced(entries, *, seconds=0.3, score=loss_of, seed=0):
    return race(entries, task(), score, seed=seed, seconds=seconds, now=ticking())


def onehot(ids):
    return torch.nn.functional.one_hot(ids, V).float()


def yielding(*models):
    """An entry that hands out these models, one a step."""
    return lambda task, seed, clock: iter(models)


# ---- the clock ---------------------------------------------------------------------------------


def test_a_clock_runs_inside_of_its_block_only():
    time = [0.0]
    clock = Clock(10, now=lambda: time[0])
    with clock:
        time[0] += 3
        assert clock.used == 3
    time[0] += 100
    assert (clock.used, clock.share) == (3, 0.3)
    with clock:
        time[0] += 40
        assert clock.share == 1
    assert clock.used == 43


def test_entries_take_turns_and_the_same_time(monkeypatch):
    monkeypatch.setattr(races, "TURN", 0.1)
    order = []

    def entry(name):
        return lambda *_: (order.append(name) or onehot for _ in count())

    found = raced({"a": entry("a"), "b": entry("b")}, seconds=0.3)
    assert [name for name, _ in groupby(order)] == ["a", "b"] * 3
    assert found["a"]["steps"] == found["b"]["steps"] == order.count("a")
    assert math.isclose(found["a"]["seconds"], 0.3, abs_tol=0.03)


def test_what_counts_is_the_model_that_was_yielded_last():
    entry = yielding(onehot, lambda ids: 5 * onehot(ids))
    found = raced({"a": entry}, score=lambda model: model(torch.tensor([[1]]))[0, 0, 1].item())
    assert (found["a"]["score"], found["a"]["steps"]) == (5, 2)


# ---- what is refused ---------------------------------------------------------------------------


def shifted(ids, by):
    return onehot(torch.cat([ids[:, by:], ids[:, :by]], 1))


def ahead_at_one_place(ids):
    logits = onehot(ids)
    if ids.shape[1] > 5:
        logits[:, 4] += onehot(ids)[:, 5]
    return logits


class Remembering:
    def __init__(self):
        self.seen = 0

    def __call__(self, ids):
        self.seen += 1
        return self.seen * onehot(ids)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda ids: shifted(ids, 1), "it looks ahead"),
        (ahead_at_one_place, "tokens after the first 5 changed: it looks ahead"),
        (lambda ids: onehot(ids).cumsum(0), "other logits beside another row"),
        (lambda ids: onehot(ids) + torch.randn(*ids.shape, V), "it draws at random"),
        (Remembering(), "or remembers what it has read"),
        (lambda ids: onehot(ids)[..., 1:], r"expected a to give logits .*\(1, 8, 11\).*got"),
        (lambda ids: None, "got NoneType"),
        (None, "expected a to yield a model, called with ids"),
    ],
)
def test_a_model_that_cheats_or_has_another_shape_is_refused(model, message):
    with pytest.raises(EntryError, match=message):
        check(model, task(), "a")


def gpt(**options):
    config = GPTConfig(V, context_length=T, **SMALL, **options)
    return GPT(config, generator=torch.Generator().manual_seed(0))


N_GRAMS = NgramModel.fit(task().stream.numpy(), order=3, vocabulary_size=V)


@pytest.mark.parametrize("model", [gpt(), gpt(**challenge.ROTARY), gpt(window=3), N_GRAMS])
def test_an_honest_model_is_not_refused(model):
    check(model, task(), "a")


def endless(task, seed, clock):
    while clock.used < 2:
        pass
    yield onehot


@pytest.mark.parametrize(
    ("entry", "score", "message"),
    [
        (yielding(onehot, lambda ids: shifted(ids, 1)), loss_of, "it looks ahead"),
        (endless, loss_of, r"a to be done after 0\.8 seconds, it used 2"),
        (yielding(), loss_of, "it ended without one: write `yield model`"),
        (ENTRY, lambda model: math.inf, "expected a finite score of a, got inf"),
    ],
)
def test_a_race_that_is_not_fair_is_refused(entry, score, message):
    with pytest.raises(EntryError, match=message):
        raced({"a": entry}, score=score)


# ---- entries -----------------------------------------------------------------------------------


def test_a_gpt_learns_and_is_scored_without_dropout():
    modes = []

    def score(model):
        modes.append(model.training)
        return loss_of(model)

    entry = replace(ENTRY, options={"dropout": 0.1})
    early, late = (raced({"a": entry}, seconds=s, score=score)["a"] for s in (0.04, 6.0))
    assert late["steps"] > 20 * early["steps"]
    assert late["score"] < early["score"] - 0.1
    assert modes == [False, False]


def test_arms_are_those_of_the_chapter_on_ablations():
    from experiments.switches import ARMS

    assert ARMS["all together"] == challenge.TOGETHER
    assert ARMS["rotary"] == challenge.ROTARY


@pytest.mark.parametrize("track", challenge.TRACKS)
def test_entries_of_a_track_differ_in_switches_and_rate_only(track):
    base, *others = (e for e in challenge.ENTRIES[track].values() if e != challenge.five_gram)
    kept = {k: v for k, v in base.options.items() if k == "dropout"}
    for other in others:
        plain = {k: v for k, v in other.options.items() if k == "dropout"}
        assert plain == kept
        assert replace(other, rate=base.rate, options=base.options) == base


def test_a_seed_decides_the_first_weights():
    tables = [next(ENTRY(task(), seed, Clock(100))).embedding for seed in (0, 0, 3)]
    assert torch.equal(tables[0], tables[1])
    assert (tables[0] - tables[2]).abs().max() > 0.1


# ---- the verdict -------------------------------------------------------------------------------


def differences(t):
    """Five whose mean is t standard errors above 0."""
    return [t * math.sqrt(0.5) + each for each in (-2, -1, 0, 1, 2)]


@pytest.mark.parametrize(
    ("minus", "expected"),
    [
        (differences(-4.7), "wins"),  # p = 0.01 is at 4.604, four degrees of freedom
        (differences(-4.5), "cannot tell"),
        (differences(4.7), "loses"),
        ([-1.0, -1.01, -0.99, -1.0], "cannot tell"),  # four seeds
        ([-0.1] * 5, "wins"),
    ],
)
def test_a_verdict_needs_five_seeds_and_a_small_p(minus, expected):
    assert verdict(minus) == expected


# ---- a reader's file ---------------------------------------------------------------------------

MINE = """
from experiments.challenge import GPTEntry
ENTRIES = {"mine": GPTEntry(rate=0.01, sizes={"layers": 1, "heads": 2, "channels": 8})}
"""


def run(tmp_path, text, *arguments):
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    challenge.main([str(path), "--seconds", "0.1", *arguments], settings=IN_SMALL)


def test_a_file_with_an_entry_is_compared_with_the_baseline(tmp_path, capsys):
    run(tmp_path, MINE, "--seeds", "0", "1")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "world: nats per token above the floor, after 0.1 CPU seconds"
    assert [line.split(" | ")[0] for line in lines[3:5]] == ["| 0", "| 1"]
    assert lines[-1].startswith("mine minus baseline: ")
    assert lines[-1].endswith("2 seeds: cannot tell, a verdict needs 5 seeds")


@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_of_the_rules_run(number, tmp_path, capsys):
    programs = re.findall(r"(?:^    .*\n|^\n(?=    ))+", challenge.OWN, re.MULTILINE)[:2]
    text = textwrap.dedent(programs[number])
    assert "ENTRIES = " in text
    run(tmp_path, text, "--seeds", "0")
    assert "cannot tell, a verdict needs 5 seeds" in capsys.readouterr().out


NO_LOGITS = "def e(*_):\n yield lambda ids: ids\nENTRIES = {'e': e}"


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (MINE, ["--track", "wrold"], "expected a track of ['world', 'english', 'long'], got"),
        (MINE, ["--entry", "yours"], "expected --entry with one of ['mine'], got 'yours'"),
        (MINE, ["--seeds", "1", "1"], "expected each seed once, got [1, 1]"),
        ("a = 1", [], "to define ENTRIES, a dictionary of entries by their names, got None"),
        ("ENTRIES = {'mine': 3}", [], "'mine' of"),
        (NO_LOGITS, [], "expected e to give logits"),
    ],
)
def test_an_entry_that_cannot_run_is_explained(text, arguments, message, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(tmp_path, text, *arguments)
    assert message in capsys.readouterr().err


def test_the_help_holds_the_rules_and_a_file_that_is_not_there_is_named(tmp_path, capsys):
    for argument in ("--help", str(tmp_path / "none.py")):
        with pytest.raises(SystemExit):
            challenge.main([argument])
    said = capsys.readouterr()
    assert challenge.RULES in said.out
    assert all(f"\n{number}. " in f"\n{challenge.RULES}" for number in range(1, 7))
    assert "found no file" in said.err


# ---- the record --------------------------------------------------------------------------------


def recorded():
    """(track, name, what the record holds of this entry) of all entries."""
    for experiment in (challenge, challenge_long):
        name = experiment.__name__.rpartition(".")[2]
        text = (ROOT / "results" / name / "result.json").read_text(encoding="utf-8")
        for track, found in json.loads(text)["tracks"].items():
            for entry, what in found["entries"].items():
                yield track, entry, what


def test_entries_are_those_of_the_record():
    found = [(track, name) for track, name, _ in recorded()]
    assert found == [(track, name) for track, names in challenge.ENTRIES.items() for name in names]
    for track, name, entry in recorded():
        for key in ("rate", "batch", "sizes", "options") if "rate" in entry else ():
            assert getattr(challenge.ENTRIES[track][name], key) == entry[key]


def test_the_best_rate_of_the_record_has_a_worse_one_on_either_side():
    for _, _, entry in recorded():
        if "rate" in entry:
            rates = [rate for rate, _ in sorted(entry["tried"], key=lambda each: each[1])]
            assert rates[0] == entry["rate"]
            assert min(rates) < rates[0] < max(rates)


def test_verdicts_of_the_record_follow_from_its_differences():
    for _, name, entry in recorded():
        assert len(entry["score"]) == races.SEEDS
        if name != challenge.BASE:
            assert entry["verdict"] == verdict(entry["minus"])
