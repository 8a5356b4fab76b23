"""What do the changes between GPT-2 and a model of 2026 add up to, in runs twenty times as long?

The arms of `switches`, and the optimiser as one change more: Muon for the matrices of the blocks,
AdamW for the rest. Small GPTs learn two texts. In the micro-world the score is nats per token above
the floor, in the embedded English bits per byte of the test part, and the rates are tuned on the
validation part. Each arm gets as many operations as GPT-2's block; those of Muon itself are
counted. Its steps follow AdamW's in size, so both parts have one rate.

All arms see the same batches, seed by seed, and differences are paired. A mean over seeds stands
out if it survives Holm's correction for all comparisons of its text. The seeds are the outer loop:
an interrupt (Ctrl-C) ends it after those that are complete; begun again, it goes on from there.
Two and a half hours of one core.
"""

import statistics
from dataclasses import dataclass
from functools import lru_cache, partial

import torch

from experiments.shared.arms import (
    ADAMW,
    around,
    complete,
    curve,
    differences,
    p_value,
    read_at,
    seconds_of_steps,
    survivors,
    tuned,
)
from experiments.switches import ALIKE, ARMS, BASE, BATCH, MODEL, above, texts_of
from next_token.run_config import RunConfig
from src.gpt.gpt2 import GPT, GPTConfig
from src.likelihood.batches import Batches
from src.likelihood.evaluation import corpus_perplexity
from src.texts.microworld import MicroWorld
from src.tokens.bpe import BytePairTokenizer
from src.tokens.bytes import stream_of

WORLD, ENGLISH = "micro-world", "English"
UNITS = {WORLD: "nats per token above the floor", ENGLISH: "bits per byte of the test part"}
TOGETHER, MUON, BOTH = "all together", "Muon", "all, and Muon"
OPTIONS = ARMS | {MUON: {}, BOTH: ARMS[TOGETHER]}
OF = {
    WORLD: (*ARMS, MUON, BOTH),
    ENGLISH: (BASE, "rotary", "local and global", TOGETHER, MUON, BOTH),
}
WAYS = ("operations", "time", "few operations")
PARTS = (  # of "all together"
    *("RMSNorm", "no biases", "SwiGLU", "QK-norm", "untied", "rotary", "2 sets of keys"),
    "local and global",
)


@dataclass(frozen=True)
class Settings:
    seeds: tuple = tuple(range(10))
    english_seeds: int = 5  # the first of them
    tuning: tuple = (100, 101)
    steps: int = 4_000  # of GPT-2's block
    tuning_steps: int = 800
    every: int = 200
    short: int = 200  # as long as the runs of `switches`
    texts: int = 52_000  # about as many tokens as are read
    exam: int = 200
    tokens: int = 512  # of English
    documents: int = 2  # of each part of the English, every so-manieth is scored
    rounds: int = 30  # of the clock


QUICK = Settings(
    seeds=(0, 1),
    english_seeds=2,
    steps=4,
    tuning_steps=2,
    every=2,
    short=2,
    texts=200,
    exam=10,
    tokens=280,
    documents=20,
    rounds=2,
)


# ---- Muon --------------------------------------------------------------------------------------


def matrices(model):
    """The matrices of the blocks; tables, gains and biases are no such matrices."""
    return [p for p in model.decoder.parameters() if p.ndim == 2]


class MuonAndAdamW:
    """Two optimisers as one, with one rate: Muon for the matrices of the blocks, AdamW else."""

    def __init__(self, model, *, lr, weight_decay):
        inside = matrices(model)
        found = {id(each) for each in inside}
        others = [p for p in model.parameters() if id(p) not in found]
        settings = {"lr": lr, "weight_decay": weight_decay}
        self.parts = [
            torch.optim.Muon(inside, adjust_lr_fn="match_rms_adamw", **settings),
            ADAMW(others, **settings),
        ]

    @property
    def param_groups(self):
        return [group for part in self.parts for group in part.param_groups]

    def zero_grad(self):
        for part in self.parts:
            part.zero_grad()

    def step(self):
        for part in self.parts:
            part.step()


def optimiser_of(arm, model):
    """What `fit` takes."""
    if arm not in (MUON, BOTH):
        return ADAMW
    return lambda parameters, **settings: MuonAndAdamW(model, **settings)


def muon_operations(model, iterations=5):
    """Of the matrix products of one step: X X', its square, and (...) X, five times."""
    total = 0
    for short, long in (sorted(each.shape) for each in matrices(model)):
        total += iterations * (4 * short**2 * long + 2 * short**3)
    return total


# ---- texts -------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def english(settings):
    """A tokenizer, the stream to learn from, and the parts to tune and to report by."""
    parts = RunConfig().parts()
    tokenizer = BytePairTokenizer.train((each.text for each in parts.train), settings.tokens)
    exams = {}
    for name in ("validation", "test"):
        documents = list(getattr(parts, name))[:: settings.documents]
        texts = [stream_of([each], tokenizer) for each in documents]
        exams[name] = {"texts": texts, "n_bytes": sum(each.n_bytes for each in documents)}
    return tokenizer, stream_of(parts.train, tokenizer), exams


def stream(text, seed, settings):
    return english(settings)[1] if text == ENGLISH else texts_of(seed, settings)[0]


def scorer(text, seed, settings, part):
    """What scores a model."""
    if text == WORLD:
        _, exam, floor = texts_of(seed, settings)
        return partial(above, exam=exam, floor=floor)
    return partial(bits_per_byte, **english(settings)[2][part])


def bits_per_byte(model, texts, n_bytes):
    score = corpus_perplexity(
        model, texts, context_length=MODEL["context_length"], batch_size=50, n_bytes=n_bytes
    )
    return score.bits_per_byte


# ---- one run -----------------------------------------------------------------------------------


def prepared(text, arm, seed, settings):
    """An untrained model."""
    words = MicroWorld().vocabulary
    size = english(settings)[0].vocabulary_size if text == ENGLISH else len(words)
    generator = torch.Generator().manual_seed(seed)
    return GPT(GPTConfig(size, **MODEL, **OPTIONS[arm]), generator=generator)


def operations(arm, model):
    """Of one step: forward, twice that backward, and those of Muon."""
    tokens = BATCH * MODEL["context_length"]
    of_muon = muon_operations(model) if arm in (MUON, BOTH) else 0
    return 3 * model.config.flops_per_token() * tokens + of_muon


@lru_cache
def steps_of(text, arm, steps, settings):
    """As many as GPT-2's block takes with the same operations."""
    share = operations(BASE, prepared(text, BASE, 0, settings)) / operations(
        arm, prepared(text, arm, 0, settings)
    )
    return steps if abs(share - 1) < ALIKE else round(steps * share)


def batches(text, seed, settings):
    return Batches(
        stream(text, seed, settings),
        batch_size=BATCH,
        context_length=MODEL["context_length"],
        seed=seed,
    )


def trained(cells, text, arm, seed, rate, tuning):
    """The scores on the way; of a shorter run to tune the rate, at its end only."""
    settings = cells.settings
    model = prepared(text, arm, seed, settings)
    steps = steps_of(text, arm, settings.tuning_steps if tuning else settings.steps, settings)
    return curve(
        model,
        batches(text, seed, settings),
        scorer(text, seed, settings, "validation" if tuning else "test"),
        steps=steps,
        every=steps if tuning else settings.every,
        rate=rate,
        optimiser=optimiser_of(arm, model),
    )


def rates_of(cells, text, arm):
    """{rate: mean score over the seeds of the tuning}."""

    def tried(rate):
        runs = [
            {"text": text, "arm": arm, "seed": seed, "rate": rate, "tuning": True}
            for seed in cells.settings.tuning
        ]
        return statistics.fmean(each["scores"][-1] for each in cells.all(trained, runs))

    return tuned(tried)


def seconds(cells, text):
    """{arm: seconds of a step}."""
    arms = {}
    for arm in OF[text]:
        model = prepared(text, arm, 0, cells.settings)
        arms[arm] = (model, optimiser_of(arm, model))
    return seconds_of_steps(arms, batches(text, 0, cells.settings), cells.settings.rounds)


# ---- the record --------------------------------------------------------------------------------


def compared(cells, text, tried, seeds):
    """What the arms scored on one text."""
    clock, settings = cells(seconds, text=text), cells.settings
    best = {arm: min(found, key=found.get) for arm, found in tried.items()}
    runs = {
        arm: [
            cells(trained, text=text, arm=arm, seed=seed, rate=rate, tuning=False) for seed in seeds
        ]
        for arm, rate in best.items()
    }
    found = {}
    for arm, several in runs.items():
        model = prepared(text, arm, 0, settings)
        minus = differences(several, runs[BASE], clock[arm], clock[BASE])
        minus["few operations"] = [
            read_at(one, steps_of(text, arm, settings.short, settings))
            - read_at(base, settings.short)
            for one, base in zip(several, runs[BASE], strict=True)
        ]
        found[arm] = {
            "rate": best[arm],
            "tried": [[rate, score] for rate, score in tried[arm].items()],
            "parameters": model.config.parameters,
            "operations_per_step": operations(arm, model),
            "seconds_per_step": clock[arm],
            "steps": several[0]["steps"],
            "scores": [each["scores"] for each in several],
            "minus": minus,
            "p": {way: p_value(values) for way, values in minus.items() if arm != BASE},
        }
    return {"unit": UNITS[text], "seeds": seeds, "arms": found}


def find(cells):
    settings = cells.settings
    tried = {text: {arm: rates_of(cells, text, arm) for arm in OF[text]} for text in OF}
    best = {
        text: {arm: min(found, key=found.get) for arm, found in arms.items()}
        for text, arms in tried.items()
    }
    for text in OF:
        cells(seconds, text=text)

    def run(seed):
        for text, arms in best.items():
            if text == WORLD or seed in settings.seeds[: settings.english_seeds]:
                for arm, rate in arms.items():
                    cells(trained, text=text, arm=arm, seed=seed, rate=rate, tuning=False)

    seeds = complete(settings.seeds, run)
    for text, arms in OF.items():  # again, if there was an interrupt: what was taken is counted
        for arm in arms:
            rates_of(cells, text, arm)
    return {
        "model": MODEL,
        "base": BASE,
        "parts": PARTS,
        "together": TOGETHER,
        "batch": BATCH,
        "short": settings.short,
        "tuning_seeds": settings.tuning,
        "tuning_steps": settings.tuning_steps,
        "texts": {
            text: compared(
                cells,
                text,
                tried[text],
                seeds[: settings.english_seeds] if text == ENGLISH else seeds,
            )
            for text in OF
        },
    }


def summed(arms, parts, way):
    """The effects of the single switches added up, seed by seed."""
    return [sum(each) for each in zip(*(arms[part]["minus"][way] for part in parts), strict=True)]


def table(kept):
    lines = ["What the switches from GPT-2 to a model of 2026 add up to"]
    for text, of_text in kept["texts"].items():
        lines += [*table_of(text, of_text, kept["base"]), ""]
    arms = kept["texts"][WORLD]["arms"]
    lines += [
        "| micro-world, minus GPT-2's block | at equal operations | at equal time | after few "
        "operations |",
        "|:---|:---|:---|:---|",
    ]
    together = {way: arms[kept["together"]]["minus"][way] for way in WAYS}
    added = {way: summed(arms, kept["parts"], way) for way in WAYS}
    both = {
        way: [one - other for one, other in zip(together[way], added[way], strict=True)]
        for way in WAYS
    }
    for name, ways in (
        ("sum of the single switches", added),
        ("all together", together),
        ("all together minus the sum", both),
    ):
        lines.append(f"| {name} | " + " | ".join(around(each) for each in ways.values()) + " |")
    return lines


def table_of(text, of_text, base):
    """The lines of one text."""
    arms = of_text["arms"]
    others = [arm for arm in arms if arm != base]
    kept = {way: survivors({arm: arms[arm]["p"][way] for arm in others}) for way in WAYS}
    lines = [
        f"## {text}: {of_text['unit']}",
        "",
        f"Minus GPT-2's block, paired over {len(of_text['seeds'])} seeds (95 %); * survives "
        f"Holm's correction for {len(others)} comparisons.",
        "",
        "| switch | rate | steps | million operations a step | ms a step | score | at equal "
        "operations | at equal time | after few operations |",
        "|:---|---:|---:|---:|---:|---:|:---|:---|:---|",
    ]
    for name, arm in arms.items():
        score = statistics.fmean(scores[-1] for scores in arm["scores"])
        minus = [
            "" if name == base else around(arm["minus"][way]) + " *" * (name in kept[way])
            for way in WAYS
        ]
        lines.append(
            f"| {name} | {arm['rate']:g} | {arm['steps'][-1]} | "
            f"{arm['operations_per_step'] / 1e6:.1f} | {1_000 * arm['seconds_per_step']:.1f} | "
            f"{score:.4f} | {' | '.join(minus)} |"
        )
    lines += ["", "| switch | rates tried: mean score of two other seeds |", "|:---|:---|"]
    lines += [
        f"| {name} | {', '.join(f'{rate:g}: {score:.4f}' for rate, score in arm['tried'])} |"
        for name, arm in arms.items()
    ]
    return lines
