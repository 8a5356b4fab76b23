"""Are the rates of `adds_up` too high for 4,000 steps? The micro-world again, at half of them.

They were tuned in runs of 800 steps. Here GPT-2's block, rotary positions and all switches together
learn at half of their rates, with the first seeds of that record: the same batches, texts and
operations. A fourth arm is GPT-2's block at its own rate with no positions at all, which says how
much of what rotary positions gain comes from leaving out the table. An interrupt (Ctrl-C) ends it
after the arms that are complete. Nine minutes of one core.
"""

from dataclasses import dataclass

import torch

from experiments.adds_up import BASE, OPTIONS, TOGETHER, WORLD, batches, scorer, steps_of
from experiments.adds_up import QUICK as OF_ADDS_UP
from experiments.adds_up import Settings as OfAddsUp
from experiments.shared.arms import around, complete, curve
from experiments.switches import MODEL
from src.gpt.gpt2 import GPT, GPTConfig
from src.texts.microworld import MicroWorld

RATE, NOWHERE = 0.005, "no positions"  # the rate of these arms in `adds_up`
ARMS = {arm: (OPTIONS[arm], RATE / 2) for arm in (BASE, "rotary", TOGETHER)}
ARMS[NOWHERE] = ({"positions": "none"}, RATE)


@dataclass(frozen=True)
class Settings(OfAddsUp):
    seeds: tuple = (0, 1, 2)


QUICK = OF_ADDS_UP


def trained(cells, arm, seed):
    """The scores on the way."""
    settings, (options, rate) = cells.settings, ARMS[arm]
    config = GPTConfig(len(MicroWorld().vocabulary), **MODEL, **options)
    like = BASE if arm == NOWHERE else arm  # a sum with the table is no product of matrices
    return curve(
        GPT(config, generator=torch.Generator().manual_seed(seed)),
        batches(WORLD, seed, settings),
        scorer(WORLD, seed, settings, "test"),
        steps=steps_of(WORLD, like, settings.steps, settings),
        every=settings.every,
        rate=rate,
    )


def find(cells):
    seeds = list(cells.settings.seeds)

    def run(arm):
        for seed in seeds:
            cells(trained, arm=arm, seed=seed)

    found = {}
    for arm in complete(ARMS, run):
        several = [cells(trained, arm=arm, seed=seed) for seed in seeds]
        found[arm] = {
            "rate": ARMS[arm][1],
            "steps": several[0]["steps"],
            "scores": [each["scores"] for each in several],
        }
    return {"model": MODEL, "base": BASE, "seeds": seeds, "arms": found}


def table(kept):
    seeds, arms = kept["seeds"], kept["arms"]
    ends = {arm: [run[-1] for run in each["scores"]] for arm, each in arms.items()}
    lines = [
        "Half the rates of `adds_up`, and no positions",
        f"Nats per token above the floor, seeds {', '.join(map(str, seeds))}; minus GPT-2's block "
        "at half its rate, paired (95 %).",
        "",
        "| arm | rate | steps | scores | minus GPT-2's block at half its rate |",
        "|:---|---:|---:|:---|:---|",
    ]
    for name, arm in arms.items():
        minus = [a - b for a, b in zip(ends[name], ends[kept["base"]], strict=True)]
        lines.append(
            f"| {name} | {arm['rate']:g} | {arm['steps'][-1]} | "
            f"{', '.join(f'{each:.4f}' for each in ends[name])} | "
            f"{'' if name == kept['base'] else around(minus)} |"
        )
    return lines
