"""What do local layers, slower angles and a rolling cache cost a small model that is trained long?

Small GPTs with rotary positions learn the address book, whose floor is known for each number of
pairs that a reader sees. They are the models of the chapter's live cell, trained for longer. Arms
differ in which of the two layers has a window; in each seed all start from the same weights and see
the same batches. On the way, and at the end, they read one exam, in which texts are four times as
long as those of the training.

At the end each of them reads the exam with its rotary pairs slowed, alone or together, and with a
cache that keeps the last pairs and one of the first three tokens. No weight is changed then.

Some minutes of one core.
"""

from dataclasses import dataclass
from functools import partial

import torch

from src.attention.heads import MultiHeadAttention, recorded_weights
from src.attention.masks import banded_mask
from src.attention.positions import rotate
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.optimisation import cosine
from src.likelihood.fitting import fit
from src.texts.address_book import AddressBook
from src.tools.intervals import interval

BOOK = AddressBook(names=8, houses=4)
PAIRS, FACTOR = 16, 4  # of a text in training; how many times as long those of the exam are
MODEL = {
    "context_length": 2 * PAIRS * FACTOR,
    "layers": 2,
    "heads": 4,
    "channels": 32,  # four pairs of rotary channels in each head
    "hidden": 64,
    "norm_kind": "rms",
    "bias": False,
    "positions": "rotary",
}
WINDOW = 6
ARMS = {  # the windows of the two layers, the lower one first
    "global": (None, None),
    "local": (WINDOW, WINDOW),
    "global above local": (WINDOW, None),
    "local above global": (None, WINDOW),
}
WAYS = {  # by how much each rotary pair is slowed, the fastest first
    "as trained": (1, 1, 1, 1),
    "all pairs": (4, 4, 4, 4),  # position interpolation
    "greater base": tuple(4 ** (i / 3) for i in range(4)),
    "the first only": (4, 1, 1, 1),
    "the second only": (1, 4, 1, 1),
    "the third only": (1, 1, 4, 1),
    "the fourth only": (1, 1, 1, 4),
    "all but the first": (1, 4, 4, 4),
}
KEPT = 8  # pairs that a rolling cache keeps
BATCH, RATE, WARM_UP = 16, 0.01, 20
ADAMW = partial(torch.optim.AdamW, fused=True)


@dataclass(frozen=True)
class Settings:
    seeds: tuple = tuple(range(5))
    steps: int = 1_500
    every: int = 100
    exam: int = 300


QUICK = Settings(seeds=(0, 1), steps=4, every=2, exam=8)


def exam_of(settings):
    """Long texts, (B, 1 + 2 N)."""
    generator = torch.Generator().manual_seed(90)
    return BOOK.sample(settings.exam, PAIRS * FACTOR, generator=generator)


@torch.no_grad()
def nats(model, ids):
    """Of each house, the mean over the texts: a list of N."""
    inputs, targets, _ = BOOK.batch(ids)
    log_probs = model(inputs).log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    return (-log_probs[:, 1::2].double().mean(0)).tolist()


def slowed(by):
    """`rotate` with each pair of channels slowed by its own factor."""

    def turn(x, *, start=0):
        pairs = [
            rotate(x, start=start, scale=float(factor))[..., 2 * i : 2 * i + 2]
            for i, factor in enumerate(by)
        ]
        return torch.cat(pairs, -1)

    return turn


def with_cache(model, ids):
    """Nats within the trained length with rolling caches, and the first token's share of weight."""
    ids = ids[:, : 1 + 2 * PAIRS]
    band = banded_mask(2 * PAIRS, 2 * KEPT + 1)  # the name that asks, and the last pairs
    masks = {"everything": None, "the last pairs": band}
    for place, name in enumerate(("first", "second", "third")):
        masks[f"and the {name} token"] = band.clone()
        masks[f"and the {name} token"][:, place] = True
    found = {}
    for name, mask in masks.items():

        def read(inputs, mask=mask):
            return model.unembed(model.decoder(model.embedding[inputs], mask=mask))

        found[name] = nats(read, ids)
    with torch.no_grad(), recorded_weights(model) as maps:
        model(ids[:, :-1])
    late = [each[:, :, PAIRS:, 0].mean((0, 2)).tolist() for each in maps.values()]
    return {"nats": found, "to_first": late}


def trained(cells, arm, seed):
    """What an arm needs on the way and at the end, and how it reads when it is changed."""
    settings = cells.settings
    generator = torch.Generator().manual_seed(seed)
    model = GPT(GPTConfig(BOOK.vocabulary_size, **MODEL), generator=generator)
    layers = [each for each in model.modules() if isinstance(each, MultiHeadAttention)]
    for layer, window in zip(layers, ARMS[arm], strict=True):
        layer.window = window
    data = [
        BOOK.batch(BOOK.sample(BATCH, PAIRS, generator=generator)) for _ in range(settings.steps)
    ]
    exam = exam_of(settings)
    found = {"steps": [], "nats": []}

    def after(step, model):
        if step % settings.every == 0:
            found["steps"].append(step)
            found["nats"].append(nats(model, exam[:, : 1 + 2 * PAIRS]))

    fit(
        model,
        data,
        steps=settings.steps,
        learning_rate=RATE,
        schedule=cosine(settings.steps, warm_up=min(WARM_UP, settings.steps // 2)),
        optimiser=ADAMW,
        after=after,
        progress=False,
    )
    if arm == "global":
        found["cache"] = with_cache(model, exam)
    found["slowed"] = {}
    for way, by in WAYS.items():
        for layer in layers:
            layer.turn = slowed(by)
        found["slowed"][way] = nats(model, exam)
    return found


def find(cells):
    seeds = cells.settings.seeds
    runs = iter(cells.all(trained, [{"arm": arm, "seed": seed} for arm in ARMS for seed in seeds]))
    exam = exam_of(cells.settings)
    return {
        "model": MODEL,
        "windows": ARMS,
        "slowed_by": WAYS,
        "pairs": PAIRS,
        "kept": KEPT,
        "rate": RATE,
        "seeds": seeds,
        "perfect": BOOK.surprise(exam).mean(0).tolist(),
        "perfect_within": {
            str(last): BOOK.surprise(exam, last=last).mean(0).tolist() for last in (5, KEPT)
        },
        "arms": {arm: [next(runs) for _ in seeds] for arm in ARMS},
    }


# ---- the table ---------------------------------------------------------------------------------


def around(values):
    mean, half = interval(values)
    return f"{mean:.3f} ± {half:.3f}"


def mean_of(nats, where):
    several = nats[where]
    return sum(several) / len(several)


def table(kept):
    pairs, arms = kept["pairs"], kept["arms"]
    late, far = slice(pairs // 2, pairs), slice(-pairs, None)
    perfect = kept["perfect"]
    lines = [
        "Long context: windows, slower angles and a rolling cache, on the address book",
        f"Nats of a house; {len(kept['seeds'])} seeds (95 %). A perfect reader: "
        f"{mean_of(perfect, late):.3f} late in the trained length (second half), and "
        f"{mean_of(perfect, far):.3f} at the end of texts four times as long (last quarter).",
        "",
        "| arm | steps | late in the trained length |",
        "|:---|---:|---:|",
    ]
    for arm, runs in arms.items():
        for number, step in enumerate(runs[0]["steps"]):
            ends = [mean_of(run["nats"][number], late) for run in runs]
            lines.append(f"| {arm} | {step} | {around(ends)} |")
    lines += [
        "",
        "| arm | slowed by four | late in the trained length | at the end of the long texts |",
        "|:---|:---|---:|---:|",
    ]
    for arm, runs in arms.items():
        for way in kept["slowed_by"]:
            both = [
                around([mean_of(run["slowed"][way], where) for run in runs])
                for where in (late, far)
            ]
            lines.append(f"| {arm} | {way} | {both[0]} | {both[1]} |")
    lines += ["", "| the global arm keeps | late in the trained length |", "|:---|---:|"]
    runs = [run["cache"] for run in arms["global"]]
    for name in runs[0]["nats"]:
        lines.append(f"| {name} | {around([mean_of(run['nats'][name], late) for run in runs])} |")
    return lines
