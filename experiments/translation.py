"""Does the translator of `attention/encoder_decoder` learn, whatever the seed?

The chapter trains one model live for each of its two tasks. This runs the chapter's own cells, as
far as its experiment, and then trains three of each, with other data and other initial weights:
exact matches on what was held out and on what never met in training, and the seconds it took. Four
minutes of one core.
"""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jupytext

CHAPTER = Path(__file__).parents[1] / "book/attention/encoder_decoder.md"


@dataclass(frozen=True)
class Settings:
    seeds: tuple = (0, 1, 2)
    shorter: int = 1  # by how much steps and tests are divided


QUICK = Settings(seeds=(0,), shorter=10)


@cache
def definitions():
    """The names that the chapter's cells define before its experiment."""
    names = {}
    for cell in jupytext.read(CHAPTER).cells:
        if cell.cell_type == "markdown" and "## Experiment" in cell.source:
            return names
        if cell.cell_type == "code":
            exec(cell.source, names)  # our own chapter
    raise ValueError(f"expected a section '## Experiment' in {CHAPTER}")


def numbers(chapter, seed):
    """{test: share of exact matches} of one model for both directions, steps, and its training."""
    train, tests = chapter["number_task"](seed)
    pairs = {
        f"{name}, {way}": [chapter["both_ways"](n)[i] for n in found]
        for name, found in tests.items()
        for i, way in enumerate(("to digits", "to words"))
    }
    train = [pair for n in train for pair in chapter["both_ways"](n)]
    return train, pairs, chapter["NUMBER_STEPS"]


def sentences(chapter, seed):
    """The same for the invented language."""

    def both(sentence):
        return chapter["english"](sentence), chapter["invented"](sentence)

    train, tests = chapter["sentence_task"](seed)
    pairs = {name: [both(sentence) for sentence in found] for name, found in tests.items()}
    return [both(sentence) for sentence in train], pairs, chapter["SENTENCE_STEPS"]


TASKS = {
    "Numbers, both ways, one model": numbers,
    "English to the invented language": sentences,
}


def run(cells, task, seed):
    """Exact matches by test, seconds of training, parameters."""
    chapter, shorter = definitions(), cells.settings.shorter
    train, tests, steps = TASKS[task](chapter, seed)
    started = time.perf_counter()
    model, _ = chapter["translator"](train, steps=steps // shorter, seed=seed)
    seconds = time.perf_counter() - started
    shares = {
        name: float(chapter["exact"](model, found[: len(found) // shorter]).double().mean())
        for name, found in tests.items()
    }
    parameters = sum(parameter.numel() for parameter in model.parameters())
    about = {"steps": steps // shorter, "pairs": len(train), "parameters": parameters}
    return about | {"right": shares, "seconds": round(seconds, 1)}


def find(cells):
    seeds = cells.settings.seeds
    runs = cells.all(run, [{"task": task, "seed": seed} for task in TASKS for seed in seeds])
    found = {task: runs[i * len(seeds) :][: len(seeds)] for i, task in enumerate(TASKS)}
    return {"seeds": seeds, "device": definitions()["where"].type, "tasks": found}


def table(kept):
    lines = [
        "Translation, three seeds",
        "The cells of the chapter, with other data and weights: the share of translations that are "
        "right to the last word, by test and seed.",
    ]
    for task, runs in kept["tasks"].items():
        lines += ["", f"**{task}**", ""]
        lines += ["| | " + " | ".join(f"seed {seed}" for seed in kept["seeds"]) + " |"]
        lines += ["|:---|" + "---:|" * len(runs)]
        rows = {name: [f"{r['right'][name]:.1%}" for r in runs] for name in runs[0]["right"]}
        rows["seconds of training"] = [f"{r['seconds']:.0f}" for r in runs]
        rows["parameters"] = [f"{r['parameters']:,}" for r in runs]
        lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
    told = [f"{r[0]['pairs']:,} pairs, {r[0]['steps']:,} steps" for r in kept["tasks"].values()]
    return [*lines, "", f"- {'; '.join(told)} of 32 pairs; {kept['device']}"]
