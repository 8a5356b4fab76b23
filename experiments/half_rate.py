"""Is the rate of GPT-2's block in `adds_up` too high for 4,000 steps? The same at half of it.

It was tuned in runs of 800 steps. Here the block learns at half of that rate, with the first seeds
of that record, so the same batches and the same texts; and on English, with one seed, at half and
at twice that rate. Six minutes of one core.
"""

from dataclasses import dataclass

from experiments.adds_up import BASE, ENGLISH, WORLD, batches, prepared, scorer
from experiments.adds_up import QUICK as OF_ADDS_UP
from experiments.adds_up import Settings as OfAddsUp
from experiments.shared.arms import curve
from experiments.switches import MODEL

RATE = 0.0025  # half of the rate in `adds_up`


@dataclass(frozen=True)
class Settings(OfAddsUp):
    seeds: tuple = tuple(range(5))


QUICK = OF_ADDS_UP


def trained(cells, text, seed, rate):
    """The scores on the way."""
    settings = cells.settings
    return curve(
        prepared(text, BASE, seed, settings),
        batches(text, seed, settings),
        scorer(text, seed, settings, "test"),
        steps=settings.steps,
        every=settings.every,
        rate=rate,
    )


def find(cells):
    seeds = cells.settings.seeds
    runs = [{"text": WORLD, "seed": seed, "rate": RATE} for seed in seeds]
    runs += [{"text": ENGLISH, "seed": seeds[0], "rate": rate} for rate in (RATE, 4 * RATE)]
    several = cells.all(trained, runs)
    arm = {
        "rate": RATE,
        "steps": several[0]["steps"],
        "scores": [each["scores"] for each in several[: len(seeds)]],
    }
    english = [
        run | each for run, each in zip(runs[len(seeds) :], several[len(seeds) :], strict=True)
    ]
    return {"model": MODEL, "base": BASE, "seeds": seeds, "arms": {BASE: arm}, "english": english}


def table(kept):
    arm = kept["arms"][kept["base"]]
    columns = [f"micro-world, seed {seed}" for seed in kept["seeds"]]
    columns += [
        f"{each['text']} at {each['rate']:g}, seed {each['seed']}" for each in kept["english"]
    ]
    several = arm["scores"] + [each["scores"] for each in kept["english"]]
    lines = [
        f"Other rates than that of `adds_up`: {kept['base']} at {arm['rate']:g}",
        "Nats per token above the floor on the micro-world, bits per byte on English.",
        "",
        "| after | " + " | ".join(columns) + " |",
        "|---:|" + "---:|" * len(columns),
    ]
    for number, steps in enumerate(arm["steps"]):
        scores = " | ".join(f"{run[number]:.4f}" for run in several)
        lines.append(f"| {steps:,} | {scores} |")
    return lines
