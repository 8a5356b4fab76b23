"""The challenge: which model has learnt most after a minute of one core?

Two texts, three tracks. `world`: nats per token above the floor of the micro-world, after 60 CPU
seconds. `english`: bits per byte of the embedded English, test part, after 60. `long`: the same
after 1,000. The baseline is the GPT of Part IV: GPT-2's block and AdamW. Beside it stand the best
that Part V knows, and a 5-gram model, which only counts. The two GPTs have one size, and each its
own rate: tuned in shorter runs of two other seeds, in steps of a factor of two, until the best rate
has a worse one on either side. The record of the two short tracks takes half an hour of one core,
that of `long`, the experiment `challenge_long`, three hours.

RULES

1. An entry is a function `entry(task, seed, clock)` that yields its model after each step. It may
   see `task.stream`, the training part as token ids, and nothing else of the text: not the test
   part, not the program that writes the micro-world, no weights from elsewhere.
2. The clock counts the CPU time of all that the entry does, from its first line to its last step.
   All learning happens on the clock. The tokens are given, and the scoring is not counted. An entry
   runs in this process alone, on the CPU, and leaves torch's global settings as they are.
3. A model maps ids, (B, T), to logits, (B, T, V). It is refused if a later token, another row or an
   earlier call changes its logits. The scorer turns logits into probabilities itself, so these sum
   to one. It shows texts in windows of `task.context_length` tokens.
4. Choose settings by other seeds and, in English, by the validation part: `--tuning`.
5. Baseline and entry learn in turns, in one process, with the same seeds, 0 to 4. The entry wins if
   the mean of the five differences is below 0 and Student's paired test says p < 0.01 (two-sided).
   If you try ten entries on the test part, divide 0.01 by ten.
6. A verifier reads the entry's code and runs the command again: it lets both learn anew, with these
   seeds and with five others (`--seeds 5 6 7 8 9`). CPU time is never twice the same, so the last
   digits will differ; the verdict must not.

OWN ENTRIES

Your entry is a file with a dictionary. `GPTEntry` of `experiments/challenge.py` makes GPTs:

    from experiments.challenge import GPTEntry

    ENTRIES = {"wider": GPTEntry(rate=0.01, sizes={"layers": 1, "heads": 4, "channels": 96})}

Anything else is a function. This one counts, takes a single step, and is done early:

    from src.likelihood.smoothing import NgramModel

    def trigram(task, seed, clock):
        sizes = {"vocabulary_size": task.vocabulary_size, "end": task.end}
        yield NgramModel.fit(task.stream.numpy(), order=3, **sizes)

    ENTRIES = {"trigram": trigram}

A function that takes many steps yields its model after each of them. `clock.share` goes from 0 to 1
as the time runs out: let the learning rate fall with it. First tune the entry, then hear the
verdict:

    python -m experiments.challenge my_entry.py --track world --tuning
    python -m experiments.challenge my_entry.py --track world

The file is run as it is, so run only what you have read.
"""

import argparse
import os
import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch.nn import functional

from experiments.shared.arms import ADAMW, around, complete, p_value, tuned
from experiments.shared.cells import one_thread
from experiments.shared.races import LEVEL, SEEDS, Clock, EntryError, race, told, verdict
from experiments.switches import texts_of
from next_token.run_config import RunConfig
from src.gpt.gpt2 import GPT, LLAMA_BLOCK, GPTConfig
from src.likelihood.batches import Batches
from src.likelihood.evaluation import corpus_perplexity
from src.likelihood.smoothing import NgramModel
from src.texts.microworld import MicroWorld
from src.tokens.bpe import BytePairTokenizer
from src.tokens.bytes import END, stream_of

BASE = "baseline"
WARM_UP = 0.02  # of the time
TUNING_SEEDS = (100, 101)
RULES, OWN = (part.strip() for part in __doc__.split("\nRULES\n")[1].split("\nOWN ENTRIES\n"))


class Track(NamedTuple):
    """What is read, how it is scored, and after how many CPU seconds."""

    text: str
    unit: str
    seconds: float
    context_length: int


WORLD, ENGLISH = "micro-world", "English"
BITS = "bits per byte of the test part"
TRACKS = {
    "world": Track(WORLD, "nats per token above the floor", 60, 64),
    "english": Track(ENGLISH, BITS, 60, 128),
    "long": Track(ENGLISH, BITS, 1_000, 128),
}


@dataclass(frozen=True)
class Settings:
    tracks: tuple = ("world", "english")
    seeds: tuple = tuple(range(SEEDS))
    seconds: float | None = None  # None: those of the track
    tuning_seconds: float = 10
    texts: int = 100_000  # of the micro-world
    exam: int = 1_000
    documents: int = 1  # of each part of the English, every so-manieth is scored


QUICK = Settings(
    seeds=(0, 1),
    seconds=0.5,
    tuning_seconds=0.2,
    texts=2_000,
    exam=20,
    documents=20,
)


# ---- entries -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class GPTEntry:
    """A GPT, learning by AdamW; its rate rises, then falls in a line to 0 when the time is over.

    Attributes:
        rate: the highest.
        batch: pieces of `task.context_length` tokens in a step.
        sizes: `layers`, `heads`, `channels`.
        options: further fields of `GPTConfig`.
    """

    rate: float
    batch: int = 8
    sizes: Mapping = field(default_factory=lambda: {"layers": 2, "heads": 4, "channels": 48})
    options: Mapping = field(default_factory=dict)

    def config(self, task):
        sizes = {"context_length": task.context_length} | self.sizes
        return GPTConfig(task.vocabulary_size, **sizes, **self.options)

    def __call__(self, task, seed, clock):
        model = GPT(self.config(task), generator=torch.Generator().manual_seed(seed))
        optimiser = ADAMW(model.parameters(), weight_decay=0.0)
        sizes = {"batch_size": self.batch, "context_length": task.context_length}
        for inputs, targets in Batches(task.stream, **sizes, seed=seed):
            model.train()
            logits = model(inputs)  # (B, T, V)
            optimiser.zero_grad()
            functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for group in optimiser.param_groups:
                group["lr"] = self.rate * factor(clock.share)
            optimiser.step()
            yield model


def factor(share):
    """By what the rate is multiplied when a share of the time is used: up, then down in a line."""
    return min(share / WARM_UP, (1 - share) / (1 - WARM_UP))


def five_gram(task, seed, clock):
    """Counts with Kneser-Ney smoothing: done in one step, long before the time is over."""
    yield NgramModel.fit(
        task.stream.numpy(), order=5, vocabulary_size=task.vocabulary_size, end=task.end
    )


ROTARY = {"positions": "rotary"}
TOGETHER = LLAMA_BLOCK | {  # of the chapter on ablations
    "qk_norm": True,
    "tied": False,
    "kv_heads": 2,
    "window": 16,
    "global_every": 2,
}
LARGE = {"layers": 3, "heads": 4, "channels": 128}
ENTRIES = {  # with the rates that the record found
    "world": {
        BASE: GPTEntry(rate=0.005),
        "rotary": GPTEntry(rate=0.005, options=ROTARY),
        "5-gram": five_gram,
    },
    "english": {
        BASE: GPTEntry(rate=0.01),
        "all together": GPTEntry(rate=0.01, options=TOGETHER),
        "5-gram": five_gram,
    },
    "long": {  # the size and the dropout of the chapter on training
        BASE: GPTEntry(rate=0.0025, sizes=LARGE, options={"dropout": 0.1}),
        "all together": GPTEntry(rate=0.005, sizes=LARGE, options=TOGETHER | {"dropout": 0.1}),
        "5-gram": five_gram,
    },
}


# ---- texts -------------------------------------------------------------------------------------


class Task(NamedTuple):
    """All that an entry may see."""

    stream: torch.Tensor  # (N,), the training part, an end token before and after each document
    vocabulary_size: int
    context_length: int
    end: int


@lru_cache(maxsize=1)
def english_of(settings):
    """A stream to learn from, its tokenizer, and of each other part the texts and their bytes."""
    parts = RunConfig().parts()
    size = RunConfig().data.vocabulary_size
    tokenizer = BytePairTokenizer.train((each.text for each in parts.train), size)
    exams = {}
    for name in ("validation", "test"):
        documents = list(getattr(parts, name))[:: settings.documents]
        texts = [stream_of([each], tokenizer) for each in documents]
        exams[name] = texts, sum(each.n_bytes for each in documents)
    return stream_of(parts.train, tokenizer), tokenizer, exams


def given(track, seed, settings, *, tuning=False):
    """The task of a track, and what scores a model."""
    length = TRACKS[track].context_length
    options = {"context_length": length, "batch_size": 32}
    if TRACKS[track].text == WORLD:
        stream, exam, floor = texts_of(seed, settings)
        task = Task(stream, len(MicroWorld().vocabulary), length, end=0)
        return task, lambda model: corpus_perplexity(model, exam, **options).loss - floor
    stream, tokenizer, exams = english_of(settings)
    texts, n_bytes = exams["validation" if tuning else "test"]
    options["n_bytes"] = n_bytes
    task = Task(stream, tokenizer.vocabulary_size, length, tokenizer.specials[END])
    return task, lambda model: corpus_perplexity(model, texts, **options).bits_per_byte


def warm(task):
    """What a process does once, such as loading kernels, is on no entry's clock."""
    for _ in islice(GPTEntry(rate=1e-3)(task, 0, Clock(1)), 3):
        pass


# ---- the record --------------------------------------------------------------------------------


def shorter(cells, track, name, rate, seed):
    """The score of one entry with one of the rates, after less time."""
    task, score = given(track, seed, cells.settings, tuning=True)
    warm(task)
    entries = {name: replace(ENTRIES[track][name], rate=rate)}
    return race(entries, task, score, seed=seed, seconds=cells.settings.tuning_seconds)[name]


def rates_of(cells, track):
    """{entry: {rate: mean score}}: each best rate has a worse neighbour on either side."""

    def mean(name, rate):
        runs = [cells(shorter, track=track, name=name, rate=rate, seed=s) for s in TUNING_SEEDS]
        return fmean(each["score"] for each in runs)

    return {
        name: tuned(partial(mean, name))
        for name, entry in ENTRIES[track].items()
        if isinstance(entry, GPTEntry)
    }


def best_of(tried):
    """{entry: its best rate}."""
    return {name: min(found, key=found.get) for name, found in tried.items()}


def entries_of(track, rates):
    """{name: entry} with other rates, {name: rate}."""
    return {
        name: replace(entry, rate=rates[name]) if name in rates else entry
        for name, entry in ENTRIES[track].items()
    }


def raced(cells, track, seed, rates):
    """{entry: score, steps, seconds} of all entries of a track."""
    task, score = given(track, seed, cells.settings)
    warm(task)
    seconds = cells.settings.seconds or TRACKS[track].seconds
    return race(entries_of(track, rates), task, score, seed=seed, seconds=seconds)


def found_of(cells, track, seeds, tried):
    """What the record holds of one track."""
    rates = best_of(tried)
    runs = [cells(raced, track=track, seed=seed, rates=rates) for seed in seeds]
    task, _ = given(track, 0, cells.settings)
    found = {}
    for name, entry in entries_of(track, rates).items():
        of_entry = {key: [run[name][key] for run in runs] for key in ("score", "steps", "seconds")}
        if name != BASE:
            minus = [run[name]["score"] - run[BASE]["score"] for run in runs]
            of_entry["minus"] = minus
            if len(minus) > 1:
                of_entry |= {"p": p_value(minus), "verdict": verdict(minus)}
        if isinstance(entry, GPTEntry):
            of_entry |= {
                "rate": entry.rate,
                "batch": entry.batch,
                "sizes": dict(entry.sizes),
                "options": dict(entry.options),
                "parameters": entry.config(task).parameters,
                "tried": [[rate, score] for rate, score in tried.get(name, {}).items()],
            }
        found[name] = of_entry
    return {"seeds": list(seeds), "entries": found}


def find(cells):
    settings = cells.settings
    tried = {track: rates_of(cells, track) for track in settings.tracks}

    def run(seed):
        for track in settings.tracks:
            cells(raced, track=track, seed=seed, rates=best_of(tried[track]))

    done = complete(settings.seeds, run)
    tracks = {}
    for track in settings.tracks:
        rates_of(cells, track)  # again, if there was an interrupt: what was taken is counted
        seconds = settings.seconds or TRACKS[track].seconds
        tracks[track] = {"unit": TRACKS[track].unit, "seconds": seconds}
        tracks[track] |= found_of(cells, track, done, tried[track])
    return {
        "base": BASE,
        "level": LEVEL,
        "tuning_seeds": TUNING_SEEDS,
        "tuning_seconds": settings.tuning_seconds,
        "tracks": tracks,
    }


def table(kept):
    lines = ["The challenge: who has learnt most after a minute of one core?"]
    for track, found in kept["tracks"].items():
        lines += [*table_of(track, found, kept), ""]
    return [*lines, "## Rules", "", RULES, "", "## An entry of your own", "", OWN]


def table_of(track, found, kept):
    """The lines of one track."""
    lines = [
        f"## {track}: {found['unit']}, after {found['seconds']:,} CPU seconds",
        "",
        f"Lower is better. Minus the {kept['base']}: paired over {len(found['seeds'])} seeds, with "
        "95 % in brackets.",
        "",
        "| entry | what it is | rate | steps | score | minus the baseline | p | verdict |",
        "|:---|:---|---:|---:|---:|:---|---:|:---|",
    ]
    for name, entry in found["entries"].items():
        minus = ["", "", ""]
        if "p" in entry:
            minus = [around(entry["minus"]), f"{entry['p']:.1g}", entry["verdict"]]
        rate = f"{entry['rate']:g}" if "rate" in entry else ""
        lines.append(
            f"| {name} | {shape_of(entry)} | {rate} | {fmean(entry['steps']):,.0f} | "
            f"{fmean(entry['score']):.4f} | {' | '.join(minus)} |"
        )
    of_rates = [
        f"| {name} | {', '.join(f'{rate:g}: {score:.4f}' for rate, score in entry['tried'])} |"
        for name, entry in found["entries"].items()
        if entry.get("tried")
    ]
    if of_rates:
        seconds = kept["tuning_seconds"]
        head = f"rates tried: mean score of two other seeds after {seconds:g} seconds"
        lines += ["", f"| entry | {head} |", "|:---|:---|", *of_rates]
    return lines


def shape_of(entry):
    if "sizes" not in entry:
        return "counts, in one step"
    sizes, options = entry["sizes"], entry["options"]
    shape = f"{sizes['layers']} layers of {sizes['channels']} channels"
    shape += f", {entry['parameters']:,} parameters, {entry['batch']} pieces a step"
    return ", ".join([shape, *(f"{name} {value}" for name, value in options.items())])


# ---- an entry of a reader ----------------------------------------------------------------------


def entries_in(path):
    """The dictionary ENTRIES of a reader's program, which is run."""
    if not path.is_file():
        raise EntryError(f"expected a program with a dictionary ENTRIES, found no file {path}")
    entries = runpy.run_path(str(path)).get("ENTRIES")
    if not isinstance(entries, dict) or not entries:
        raise EntryError(
            f"expected {path} to define ENTRIES, a dictionary of entries by their names, got "
            f"{entries!r}: write  ENTRIES = {{'mine': entry}}"
        )
    for name, entry in entries.items():
        if not callable(entry):
            raise EntryError(
                f"expected {name!r} of {path} to be a function (task, seed, clock), got "
                f"{type(entry).__name__}"
            )
    return entries


def chosen(entries, name):
    """One of the entries, and its name."""
    names = [each for each in entries if each != BASE]
    if name is None and len(names) == 1:
        name = names[0]
    if name not in names:
        raise EntryError(f"expected --entry with one of {names}, got {name!r}")
    return name, entries[name]


def compare(track, name, entry, seeds, settings, *, tuning=False):
    """Let an entry and the baseline learn in turns; print their scores, and the verdict."""
    seconds = settings.seconds or TRACKS[track].seconds
    part = ", tuning: no verdict" if tuning else ""
    print(f"{track}: {TRACKS[track].unit}, after {seconds:g} CPU seconds{part}")
    print(
        "| seed | baseline | steps | entry | steps | difference |\n|---:|---:|---:|---:|---:|---:|"
    )
    minus = []
    for seed in seeds:
        task, score = given(track, seed, settings, tuning=tuning)
        warm(task)
        pair = {BASE: ENTRIES[track][BASE], name: entry}
        base, other = race(pair, task, score, seed=seed, seconds=seconds).values()
        minus.append(other["score"] - base["score"])
        print(
            f"| {seed} | {base['score']:.4f} | {base['steps']} | {other['score']:.4f} | "
            f"{other['steps']} | {minus[-1]:+.4f} |",
            flush=True,
        )
    if tuning:
        print(f"{name} minus {BASE}: {fmean(minus):+.4f}; the verdict is one of other seeds")
    else:
        print(told(name, BASE, minus))
    return minus


def main(arguments=None, *, settings=None):
    parser = argparse.ArgumentParser(prog="python -m experiments.challenge", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path, nargs="?", help="with ENTRIES; if left out, the book's")
    parser.add_argument("--track", default="world", help=f"of {', '.join(TRACKS)}")
    parser.add_argument("--entry", metavar="NAME", help="which entry, if there are several")
    parser.add_argument("--seconds", type=float, help="CPU seconds, if not those of the track")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="N", help="if not 0 to 4")
    parser.add_argument(
        "--tuning", action="store_true", help="seeds 100 and 101, validation part, no verdict"
    )
    options = parser.parse_args(arguments)
    settings = replace(settings or Settings(), seconds=options.seconds)
    one_thread()
    try:
        if options.track not in TRACKS:
            raise EntryError(f"expected a track of {[*TRACKS]}, got {options.track!r}")
        if options.seconds is not None and not options.seconds > 0:
            raise EntryError(f"expected seconds above 0, got {options.seconds:g}")
        entries = entries_in(options.file) if options.file else ENTRIES[options.track]
        name, entry = chosen(entries, options.entry)
        seeds = options.seeds or (TUNING_SEEDS if options.tuning else settings.seeds)
        if len(set(seeds)) < len(seeds):
            raise EntryError(f"expected each seed once, got {seeds}")
        compare(options.track, name, entry, seeds, settings, tuning=options.tuning)
    except EntryError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
