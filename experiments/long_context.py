"""What is a longer context worth, and what do windows, sinks and slower angles cost?

Small GPTs with rotary positions learn the address book, whose floor is known for each number of
pairs that a reader sees. Arms differ in one switch: all layers global; all local; a local layer
below a global one; global with a sink for each head. The learning rate is tuned for the global arm
with two seeds of their own, in runs of half the length and in steps of a factor of two, and is used
for all. All arms see the same batches and the same exam, seed by seed: differences are paired.

Each model then reads texts four times as long as those of its training. Three global ones read them
with their angles as they are, with positions divided by four, and with a greater base; before and
after a little training on long texts, with as many tokens for each.

The micro-world has its part, too: the exact nats of a review for a reader of its last sentences.

An interrupt (Ctrl-C) ends it after the seeds that are complete. Some minutes of one core.
"""

import math
import statistics
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.nn import functional

from src.attention.heads import recorded_weights
from src.attention.masks import banded_mask
from src.attention.positions import extended_base
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.optimisation import cosine
from src.likelihood.fitting import fit
from src.texts.address_book import AddressBook
from src.texts.microworld import MicroWorld
from src.texts.microworld_words import ASPECTS, BLAME, PRAISE
from src.tools.intervals import interval

BOOK = AddressBook(names=8, houses=4)
PAIRS, FACTOR = 16, 4  # of training; how many times as long the long texts are
MODEL = {
    "context_length": 2 * PAIRS * FACTOR,
    "layers": 2,
    "heads": 4,
    "channels": 32,
    "hidden": 64,
    "norm_kind": "rms",
    "bias": False,
    "positions": "rotary",
}
WINDOW = 6
BASE = "global"
ARMS = {
    BASE: {},
    "local": {"window": WINDOW},
    "local and global": {"window": WINDOW, "global_every": 2},
    "sink": {"sink": True},
}
WAYS = {
    "as trained": {},
    "interpolation": {"rotary_scale": float(FACTOR)},
    "greater base": {"rotary_base": extended_base(10_000.0, FACTOR, channels=8)},
}
KEPT = 8  # pairs that a sliding cache keeps
BATCH, WARM_UP, LONG_BATCH = 16, 20, 4
RATES = [0.0025 * 2**k for k in range(5)]
ADAMW = partial(torch.optim.AdamW, fused=True)


@dataclass(frozen=True)
class Settings:
    seeds: tuple = tuple(range(5))
    tuning: tuple = (100, 101)
    steps: int = 400
    more: int = 60  # steps on long texts
    exam: int = 100
    reviews: int = 200
    sentences: int = 8


QUICK = Settings(seeds=(0, 1), steps=4, more=2, exam=8, reviews=8, sentences=2)


# ---- the address book --------------------------------------------------------------------------


def generator(part, seed):
    return torch.Generator().manual_seed(1_000 * part + seed)


def exam_of(seed, settings):
    """Long texts, (B, 1 + 2 N), and what each house costs a perfect reader, (B, N)."""
    ids = BOOK.sample(settings.exam, PAIRS * FACTOR, generator=generator(3, seed))
    return ids, BOOK.surprise(ids)


@torch.no_grad()
def gaps(model, ids, surprise):
    """Nats of each house above the perfect reader, the mean over the texts, a list of N."""
    nats = []
    for some in ids.split(50):
        inputs, targets, _ = BOOK.batch(some)
        log_probs = model(inputs).log_softmax(-1).gather(-1, targets[..., None])[..., 0]
        nats.append(-log_probs[:, 1::2].double())
    return (torch.cat(nats) - surprise).mean(0).tolist()


def learn(model, rate, steps, *, batch, pairs, draws):
    data = [BOOK.batch(BOOK.sample(batch, pairs, generator=draws)) for _ in range(steps)]
    fit(
        model,
        data,
        steps=steps,
        learning_rate=rate,
        schedule=cosine(steps, warm_up=min(WARM_UP, steps // 2)),
        optimiser=ADAMW,
        progress=False,
    )


def trained(cells, arm, seed, rate, half):
    """The weights after training, and the gap of each pair on long texts."""
    settings = cells.settings
    config = GPTConfig(BOOK.vocabulary_size, **MODEL, **ARMS[arm])
    model = GPT(config, generator=generator(1, seed))
    steps = settings.steps // 2 if half else settings.steps
    learn(model, rate, steps, batch=BATCH, pairs=PAIRS, draws=generator(2, seed))
    return {"gaps": gaps(model, *exam_of(seed, settings)), "weights": model.state_dict()}


def model_of(cells, arm, seed, rate, **changes):
    """A trained model, with some fields of its configuration changed."""
    weights = cells(trained, arm=arm, seed=seed, rate=rate, half=False)["weights"]
    config = replace(GPTConfig(BOOK.vocabulary_size, **MODEL, **ARMS[arm]), **changes)
    model = GPT(config, generator=generator(1, seed))
    model.load_state_dict(weights)
    return model


def extended(cells, seed, rate, way):
    """Gaps of a global model on long texts, before and after a little training on such."""
    exam = exam_of(seed, cells.settings)
    model = model_of(cells, BASE, seed, rate, **WAYS[way])
    before = gaps(model, *exam)
    learn(
        model,
        rate / 4,
        cells.settings.more,
        batch=LONG_BATCH,
        pairs=PAIRS * FACTOR,
        draws=generator(4, seed),
    )
    return {"before": before, "after": gaps(model, *exam)}


@torch.no_grad()
def slid(cells, arm, seed, rate):
    """Gaps within the trained length with a sliding cache, and how much weight goes nowhere.

    The cache keeps the last KEPT pairs in each layer; with a first or another token besides, the
    begin token or the name behind it.
    """
    ids, surprise = exam_of(seed, cells.settings)
    ids, surprise = ids[:, : 1 + 2 * PAIRS], surprise[:, :PAIRS]
    model = model_of(cells, arm, seed, rate)
    length = ids.shape[1] - 1
    band = banded_mask(length, 2 * KEPT + 1)
    masks = {"everything": None, "window": band}
    for name, place in (("window and the first", 0), ("window and another", 1)):
        masks[name] = band.clone()
        masks[name][:, place] = True
    found = {}
    for name, mask in masks.items():

        def masked(inputs, mask=mask):
            states = functional.embedding(inputs, model.embedding)
            return model.unembed(model.decoder(states, mask=mask))

        found[name] = gaps(masked, ids, surprise)
    with recorded_weights(model) as maps:
        model(ids[:100, :-1])
    late = [each[:, :, 2 * KEPT :] for each in maps.values()]  # (B, H, T, S) of each layer
    return {
        "gaps": found,
        "to_first": [each[..., 0].mean((0, 2)).tolist() for each in late],
        "to_none": [(1 - each.sum(-1)).mean((0, 2)).tolist() for each in late],
    }


# ---- the micro-world ---------------------------------------------------------------------------


def review_world():
    """Reviews only, long ones, without a task at their end."""
    return MicroWorld(stop=0.05, demonstrations=0.0, longest=10_000).only("reviews")


def beginnings():
    """First sentences that stand for all: each topic, with praise and with blame.

    What came before the last sentences matters only through topic and mood, and adjectives of one
    polarity are all alike.
    """
    return [
        ("this", topic, "was", adjectives[0], ".")
        for topic in ASPECTS
        for adjectives in (PRAISE, BLAME)
    ]


def log_sum(values):
    top = max(values)
    return -math.inf if top == -math.inf else top + math.log(sum(math.exp(v - top) for v in values))


def last_sentences(cells):
    """Nats per token of the sentence behind the 8th (or so), for a reader of the 0, 1, … last.

    One list for each review that is long enough: tokens, and the nats for each number of sentences.
    """
    world, most = review_world(), cells.settings.sentences
    found = []
    for document in world.sample(cells.settings.reviews, generator=generator(5, 0)):
        sentences, words = [], []
        for word in document.words:
            words.append(word)
            if word == ".":
                sentences.append(tuple(words))
                words = []
        if len(sentences) < most + 2:
            continue
        nats = []
        for seen in range(most + 1):
            window = sum(sentences[most + 1 - seen : most + 1], ())
            both = [
                log_sum([world.log_prob(first + text) for first in beginnings()])
                for text in (window, window + sentences[most + 1])
            ]
            nats.append(both[0] - both[1])
        whole = sum(sentences[: most + 1], ())
        exact = world.log_prob(whole) - world.log_prob(whole + sentences[most + 1])
        found.append({"tokens": len(sentences[most + 1]), "nats": nats, "whole": exact})
    return found


# ---- the record --------------------------------------------------------------------------------


def tuned(cells):
    """{rate: mean gap of the trained pairs}; the best has a worse one on either side, if it can."""

    def tried(number):
        runs = [
            cells(trained, arm=BASE, seed=seed, rate=RATES[number], half=True)
            for seed in cells.settings.tuning
        ]
        return statistics.fmean(statistics.fmean(each["gaps"][:PAIRS]) for each in runs)

    found = {number: tried(number) for number in (1, 2)}
    while True:
        best = min(found, key=found.get)
        wider = {best - 1, best + 1} & set(range(len(RATES))) - set(found)
        if not wider:
            return {RATES[number]: found[number] for number in sorted(found)}
        found |= {number: tried(number) for number in sorted(wider)}


def find(cells):
    rates = tuned(cells)
    rate = min(rates, key=rates.get)
    reviews = cells(last_sentences)
    done = []
    found = {"arms": {}, "extended": {}, "slid": {}}
    try:
        for seed in cells.settings.seeds:
            one = {
                "arms": {
                    arm: cells(trained, arm=arm, seed=seed, rate=rate, half=False)["gaps"]
                    for arm in ARMS
                },
                "extended": {way: cells(extended, seed=seed, rate=rate, way=way) for way in WAYS},
                "slid": {arm: cells(slid, arm=arm, seed=seed, rate=rate) for arm in (BASE, "sink")},
            }
            for part, several in one.items():
                for name, each in several.items():
                    found[part].setdefault(name, []).append(deepcopy(each))
            done.append(seed)
    except KeyboardInterrupt:
        if len(done) < 2:
            raise
    return {
        "model": MODEL,
        "window": WINDOW,
        "kept": KEPT,
        "pairs": PAIRS,
        "factor": FACTOR,
        "steps": cells.settings.steps,
        "more": cells.settings.more,
        "seeds": done,
        "rate": rate,
        "tried": [[each, gap] for each, gap in rates.items()],
        "reviews": reviews,
        **found,
    }


def around(values):
    mean, half = interval(values)
    return f"{mean:.3f} ± {half:.3f}"


def table(kept):
    pairs, far = kept["pairs"], kept["pairs"] * (kept["factor"] - 1)
    stretches = {"last quarter of the trained length": slice(pairs * 3 // 4, pairs)}
    stretches["last quarter of the long texts"] = slice(far, None)

    def cells_of(runs):
        return [
            around([statistics.fmean(run[where]) for run in runs]) for where in stretches.values()
        ]

    rows = [(name, *cells_of(runs)) for name, runs in kept["arms"].items()]
    for when in ("before", "after"):
        for way, runs in kept["extended"].items():
            rows.append((f"{way}, {when} training on", *cells_of([run[when] for run in runs])))
    lines = [
        "Long texts: windows, sinks and slower angles, on the address book",
        f"Nats of a house above the perfect reader; {len(kept['seeds'])} seeds (95 %).",
        "",
        f"| arm | {' | '.join(stretches)} |",
        "|:---|---:|---:|",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        "| sliding cache | above the perfect reader, last quarter |",
        "|:---|---:|",
    ]
    where = slice(pairs * 3 // 4, pairs)
    for arm, runs in kept["slid"].items():
        for name in runs[0]["gaps"]:
            ends = [statistics.fmean(run["gaps"][name][where]) for run in runs]
            lines.append(f"| {arm}: {name} | {around(ends)} |")
    tokens = sum(each["tokens"] for each in kept["reviews"])
    lines += ["", "| sentences seen | nats per token of a review |", "|---:|---:|"]
    for seen in range(len(kept["reviews"][0]["nats"])):
        nats = sum(each["nats"][seen] for each in kept["reviews"])
        lines.append(f"| {seen} | {nats / tokens:.4f} |")
    nats = sum(each["whole"] for each in kept["reviews"])
    return [*lines, f"| all | {nats / tokens:.4f} |"]
