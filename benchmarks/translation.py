"""Does the translator of `attention/encoder_decoder` learn, whatever the seed? Run by `make bench`.

The chapter trains one model live for each of its two tasks. This runs the chapter's own cells, as
far as its experiment, and then trains three of each, with other data and other initial weights:
exact matches on what was held out and on what never met in training, and the seconds it took.
"""

import sys
import time
from importlib.metadata import version
from pathlib import Path

import jupytext
import torch
from rounds import machine, record

CHAPTER = Path(__file__).parents[1] / "book" / "attention" / "encoder_decoder.md"
SEEDS, LEAST, MOST_SECONDS = (0, 1, 2), 0.99, 45


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


def run(chapter, task, seed):
    """(exact matches by test, seconds of training, parameters)."""
    train, tests, steps = task(chapter, seed)
    started = time.perf_counter()
    model, _ = chapter["translator"](train, steps=steps, seed=seed)
    seconds = time.perf_counter() - started
    shares = {name: float(chapter["exact"](model, found).double().mean())
              for name, found in tests.items()}  # fmt: skip
    return shares, seconds, sum(parameter.numel() for parameter in model.parameters())


def table(title, runs):
    """The lines of a task: a row for each test, a column for each seed."""
    heads = " | ".join(f"seed {seed}" for seed in SEEDS)
    lines = [f"**{title}**", "", f"| | {heads} |", "|:---|" + "---:|" * len(SEEDS)]
    for name in runs[0][0]:
        lines.append(f"| {name} | " + " | ".join(f"{r[0][name]:.1%}" for r in runs) + " |")
    lines.append("| seconds of training | " + " | ".join(f"{r[1]:.0f}" for r in runs) + " |")
    return [*lines, f"| parameters | {' | '.join(f'{r[2]:,}' for r in runs)} |", ""]


def main():
    torch.set_num_threads(1)
    chapter = definitions()
    results = {
        "Numbers, both ways, one model": [run(chapter, numbers, seed) for seed in SEEDS],
        "English to the invented language": [run(chapter, sentences, seed) for seed in SEEDS],
    }
    held_out = [
        share
        for runs in results.values()
        for shares, _, _ in runs
        for name, share in shares.items()
        if name.startswith("held out")
    ]
    slowest = max(seconds for runs in results.values() for _, seconds, _ in runs)
    record(
        "translation",
        [
            "# Translation, three seeds",
            "",
            "Written by `make bench` (`benchmarks/translation.py`), which runs the cells of the",
            "chapter: the share of translations that are right to the last word, by test and seed.",
            "",
            *(line for title, runs in results.items() for line in table(title, runs)),
            f"- least share on held-out items {min(held_out):.1%}, asked ≥ {LEAST:.0%}",
            f"- slowest training {slowest:.0f} s, asked ≤ {MOST_SECONDS} s",
            f"- 20,000 training numbers (40,000 pairs) and 20,000 training sentences; "
            f"{chapter['NUMBER_STEPS']:,} and {chapter['SENTENCE_STEPS']:,} steps of 32 pairs",
            f"- torch {version('torch')}, {chapter['where'].type}",
            f"- {machine()}",
        ],
    )
    sys.exit(0 if min(held_out) >= LEAST and slowest <= MOST_SECONDS else "missed")


if __name__ == "__main__":
    main()
