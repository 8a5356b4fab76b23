"""Is the rate of GPT-2's block in `adds_up` too high for 4,000 steps? The same at half of it.

It was tuned in runs of 800 steps. Here the block learns at half of that rate, with the first seeds
of that record, so the same batches and the same texts. Four minutes of one core.
"""

from dataclasses import dataclass

from experiments.adds_up import BASE, WORLD, batches, prepared, scorer
from experiments.adds_up import QUICK as OF_ADDS_UP
from experiments.adds_up import Settings as OfAddsUp
from experiments.shared.arms import curve
from experiments.switches import MODEL

RATE = 0.0025  # half of the rate in `adds_up`


@dataclass(frozen=True)
class Settings(OfAddsUp):
    seeds: tuple = tuple(range(5))


QUICK = OF_ADDS_UP


def trained(cells, arm, seed):
    """The scores on the way."""
    settings = cells.settings
    return curve(
        prepared(WORLD, arm, seed, settings),
        batches(WORLD, seed, settings),
        scorer(WORLD, seed, settings, "test"),
        steps=settings.steps,
        every=settings.every,
        rate=RATE,
    )


def find(cells):
    seeds = cells.settings.seeds
    several = [cells(trained, arm=BASE, seed=seed) for seed in seeds]
    arm = {
        "rate": RATE,
        "steps": several[0]["steps"],
        "scores": [each["scores"] for each in several],
    }
    return {"model": MODEL, "base": BASE, "seeds": seeds, "arms": {BASE: arm}}


def table(kept):
    arm = kept["arms"][kept["base"]]
    lines = [
        f"Half the rate of `adds_up`: {kept['base']} at {arm['rate']:g}",
        "Nats per token above the floor, on the micro-world.",
        "",
        "| after | " + " | ".join(f"seed {seed}" for seed in kept["seeds"]) + " |",
        "|---:|" + "---:|" * len(kept["seeds"]),
    ]
    for number, steps in enumerate(arm["steps"]):
        scores = " | ".join(f"{run[number]:.4f}" for run in arm["scores"])
        lines.append(f"| {steps:,} | {scores} |")
    return lines
