"""Which of the changes between GPT-2 and a model of 2026 help, each for itself, and all together?

Small GPTs learn the micro-world, whose floor is known exactly. Each arm is GPT-2's block with one
switch turned, and gets as many operations: as many steps where those of a token agree within 2 %,
else more or fewer. The learning rate is tuned for each arm, in runs of half the length with two
seeds of their own, in steps of a factor of two, until the best rate has a worse one on either side.
Then all arms see the same batches and the same test texts, seed by seed: differences are paired.

After the warm-up the rate stays as it is, and what is scored is a mean of the weights, mostly of
the last tenth of the steps. So each point of a curve is as good as if the run had been planned to
end there, and the same curves tell what equal time would have given. How long a step takes is
measured apart, with all arms in turn.

An interrupt (Ctrl-C) ends it after the seeds that are complete; begun again, it goes on from there.
A quarter of an hour of one core.
"""

import statistics
from dataclasses import dataclass
from functools import lru_cache, partial

import torch

from experiments.shared.arms import (
    ADAMW,
    around,
    curve,
    differences,
    seconds_of_steps,
)
from experiments.shared.arms import complete as completed
from experiments.shared.arms import tuned as tuned_by
from src.gpt.gpt2 import GPT, LLAMA_BLOCK, GPTConfig
from src.likelihood.batches import Batches
from src.likelihood.evaluation import corpus_perplexity
from src.texts.microworld import MicroWorld

MODEL = {"context_length": 64, "layers": 2, "heads": 4, "channels": 48}
LOCAL = {"window": 16, "global_every": 2}
BASE = "GPT-2's block"
ARMS = {
    BASE: {},
    "RMSNorm": {"norm_kind": "rms"},
    "no biases": {"bias": False},
    "SwiGLU": {"gated": True, "activation": "silu"},
    "QK-norm": {"qk_norm": True},
    "untied": {"tied": False},
    "rotary": {"positions": "rotary"},
    "2 sets of keys": {"kv_heads": 2},
    "1 set of keys": {"kv_heads": 1},
    "latent": {"latent": 48},  # as many numbers as 2 sets: 2 x 2 x 12
    "local and global": LOCAL,
    "all together": LLAMA_BLOCK | LOCAL | {"qk_norm": True, "tied": False, "kv_heads": 2},
}
BATCH = 8
ALIKE = 0.02  # operations that differ by less count as equal


@dataclass(frozen=True)
class Settings:
    seeds: tuple = tuple(range(10))
    tuning: tuple = (100, 101)
    steps: int = 200  # of GPT-2's block
    every: int = 50
    texts: int = 10_000
    exam: int = 200
    rounds: int = 20  # of the clock


QUICK = Settings(seeds=(0, 1), tuning=(100, 101), steps=4, every=2, texts=200, exam=10, rounds=2)


# ---- one run -----------------------------------------------------------------------------------


def config_of(arm):
    return GPTConfig(len(MicroWorld().vocabulary), **MODEL, **ARMS[arm])


def steps_of(arm, steps):
    """As many as GPT-2's block takes with the same operations."""
    share = config_of(BASE).flops_per_token() / config_of(arm).flops_per_token()
    return steps if abs(share - 1) < ALIKE else round(steps * share)


@lru_cache(maxsize=2)
def texts_of(seed, settings):
    """A stream to learn from, texts to score, each behind an end token, and their floor."""
    world, end = MicroWorld(), torch.zeros(1, dtype=torch.long)
    texts, exam = (
        world.sample_texts(count, generator=torch.Generator().manual_seed(1_000 * part + seed))
        for part, count in ((1, settings.texts), (2, settings.exam))
    )
    floor = world.floor_of(exam).loss
    return torch.cat([end, *texts]), [torch.cat([end, text]) for text in exam], floor


def prepared(arm, seed):
    """An untrained model."""
    return GPT(config_of(arm), generator=torch.Generator().manual_seed(seed))


def trained(cells, arm, seed, rate, half):
    """Nats per token above the floor on the way; or on the way to half of the steps."""
    settings = cells.settings
    stream, exam, floor = texts_of(seed, settings)
    return curve(
        prepared(arm, seed),
        Batches(stream, batch_size=BATCH, context_length=MODEL["context_length"], seed=seed),
        partial(above, exam=exam, floor=floor),
        steps=steps_of(arm, settings.steps // 2 if half else settings.steps),
        every=settings.every,
        rate=rate,
    )


def above(model, exam, floor):
    """Nats per token above the floor."""
    score = corpus_perplexity(model, exam, context_length=MODEL["context_length"], batch_size=50)
    return score.loss - floor


# ---- rates and seconds -------------------------------------------------------------------------


def tried(cells, arm, rate):
    """The mean gap with one of the rates, over the seeds of the tuning."""
    runs = [
        {"arm": arm, "seed": seed, "rate": rate, "half": True} for seed in cells.settings.tuning
    ]
    return statistics.fmean(each["scores"][-1] for each in cells.all(trained, runs))


def tuned(cells, arm):
    """{rate: mean gap}: the best of them has a neighbour on either side, or ends the list."""
    return tuned_by(partial(tried, cells, arm))


def seconds(cells):
    """{arm: seconds of a step}."""
    stream, _, _ = texts_of(0, cells.settings)
    data = Batches(stream, batch_size=BATCH, context_length=MODEL["context_length"], seed=0)
    models = {arm: (prepared(arm, 0), ADAMW) for arm in ARMS}
    return seconds_of_steps(models, data, cells.settings.rounds)


# ---- the record --------------------------------------------------------------------------------


def complete(cells, rates):
    """The seeds of which all arms have run."""

    def run(seed):
        for arm, rate in rates.items():
            cells(trained, arm=arm, seed=seed, rate=rate, half=False)

    return completed(cells.settings.seeds, run)


def find(cells):
    rates = {arm: tuned(cells, arm) for arm in ARMS}
    best = {arm: min(found, key=found.get) for arm, found in rates.items()}
    cells(seconds)
    seeds = complete(cells, best)
    for arm in ARMS:  # again, if there was an interrupt: what was taken is counted
        tuned(cells, arm)
    clock = cells(seconds)
    runs = {
        arm: [cells(trained, arm=arm, seed=seed, rate=best[arm], half=False) for seed in seeds]
        for arm in ARMS
    }
    found = {}
    for arm, several in runs.items():
        config = config_of(arm)
        found[arm] = {
            "rate": best[arm],
            "tried": [[rate, gap] for rate, gap in rates[arm].items()],
            "parameters": config.parameters,
            "operations_per_token": config.flops_per_token(),
            "cached_per_token": config.cached_per_token,
            "seconds_per_step": clock[arm],
            "steps": several[0]["steps"],
            "gaps": [each["scores"] for each in several],
            "minus": differences(several, runs[BASE], clock[arm], clock[BASE]),
        }
    return {
        "model": MODEL,
        "base": BASE,
        "batch": BATCH,
        "seeds": seeds,
        "tuning_seeds": cells.settings.tuning,
        "arms": found,
    }


def table(kept):
    seeds, arms = len(kept["seeds"]), kept["arms"]
    base = arms[kept["base"]]
    lines = [
        "Switches from GPT-2 to a model of 2026, on the micro-world",
        f"Nats per token above the floor, and minus GPT-2's block, paired over {seeds} seeds "
        "(95 %).",
        "",
        "| switch | rate | steps | operations a token | ms a step | cached a token | above the "
        "floor | at equal operations | at equal time |",
        "|:---|---:|---:|---:|---:|---:|---:|:---|:---|",
    ]
    for name, arm in arms.items():
        ends = statistics.fmean(gaps[-1] for gaps in arm["gaps"])
        minus = ["", ""] if arm is base else [around(each) for each in arm["minus"].values()]
        lines.append(
            f"| {name} | {arm['rate']:g} | {arm['steps'][-1]} | "
            f"{arm['operations_per_token']:,} | {1_000 * arm['seconds_per_step']:.1f} | "
            f"{arm['cached_per_token']} | {ends:.4f} | {minus[0]} | {minus[1]} |"
        )
    tuning = [
        f"| {name} | {', '.join(f'{rate:g}: {gap:.4f}' for rate, gap in arm['tried'])} |"
        for name, arm in arms.items()
    ]
    return [
        *lines,
        "",
        "| switch | rates tried: above the floor after half the steps, mean of two other seeds |",
        "|:---|:---|",
        *tuning,
    ]
