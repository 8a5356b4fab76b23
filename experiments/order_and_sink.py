"""Two questions about the models of `long_context`: does the slow order get there, and who needs
the first token?

A global layer below a local one learns the address book slowly. Here it has more steps, at the rate
of that record and at a lower one; the other order learns at the lower rate, too. And models of
global layers read with a cache that keeps the last entries (a name and its house), with and without
the first token, in both layers or in one, and with another word in the first place: names that were
told lately, earlier, or never are told apart.

Four minutes of one core.
"""

from dataclasses import dataclass

import torch

from experiments.long_context import (
    ADAMW,
    ARMS,
    BATCH,
    BOOK,
    KEPT,
    MODEL,
    PAIRS,
    RATE,
    WARM_UP,
    exam_of,
    nats,
)
from src.attention.heads import MultiHeadAttention, recorded_weights
from src.attention.masks import banded_mask
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.optimisation import cosine
from src.likelihood.fitting import fit

SLOW = 0.003
WORDS = (1, BOOK.names, BOOK.names + 1)  # the first name, the last, and the first house
BELOW, ABOVE = "local above global", "global above local"


@dataclass(frozen=True)
class Settings:
    seeds: tuple = (0, 1)
    steps: int = 1_500
    longer: int = 4_000
    every: int = 250
    exam: int = 300


QUICK = Settings(steps=4, longer=6, every=2, exam=8)


def learnt(arm, seed, rate, steps, settings):
    """A model of an arm, and what it needs on the way."""
    generator = torch.Generator().manual_seed(seed)
    model = GPT(GPTConfig(BOOK.vocabulary_size, **MODEL), generator=generator)
    layers = [each for each in model.modules() if isinstance(each, MultiHeadAttention)]
    for layer, window in zip(layers, ARMS[arm], strict=True):
        layer.window = window
    data = [BOOK.batch(BOOK.sample(BATCH, PAIRS, generator=generator)) for _ in range(steps)]
    exam = exam_of(settings)[:, : 1 + 2 * PAIRS]
    found = {"steps": [], "nats": []}

    def after(step, model):
        if step % settings.every == 0:
            found["steps"].append(step)
            found["nats"].append(nats(model, exam))

    fit(
        model,
        data,
        steps=steps,
        learning_rate=rate,
        schedule=cosine(steps, warm_up=min(WARM_UP, steps // 2)),
        optimiser=ADAMW,
        after=after,
        progress=False,
    )
    return model, found


def on_the_way(cells, arm, rate, steps, seed):
    """What an arm needs after so many steps, and before."""
    return learnt(arm, seed, rate, steps, cells.settings)[1]


def kinds_of(names):
    """Which late questions are for a name that was never told, told lately, or only earlier."""
    never, lately = [], []
    for t in range(names.shape[1]):
        same = names[:, :t] == names[:, t : t + 1]
        never.append(~same.any(1))
        lately.append(same[:, max(0, t - KEPT) :].any(1))
    never, lately = torch.stack(never, 1), torch.stack(lately, 1)  # (B, N)
    late = torch.arange(names.shape[1]) >= PAIRS // 2
    return {"never": never & late, "lately": lately & late, "earlier": ~never & ~lately & late}


def with_cache(cells, seed):
    """Nats of each kind of question with rolling caches, and the first token's share of weight."""
    settings = cells.settings
    model, _ = learnt("global", seed, RATE, settings.steps, settings)
    model.requires_grad_(False)
    ids = exam_of(settings)[:, : 1 + 2 * PAIRS]
    inputs, targets, _ = BOOK.batch(ids)
    kinds = kinds_of(ids[:, 1::2])
    band = banded_mask(2 * PAIRS, 2 * KEPT + 1)  # the name that asks, and the last entries
    both = band.clone()
    both[:, 0] = True
    ways = {  # the masks of the two layers, and the word in the first place
        "everything": (None, None, 0),
        "the last entries": (band, band, 0),
        "and the first token": (both, both, 0),
        "the last entries, below": (band, None, 0),
        "the last entries, above": (None, band, 0),
    }
    for word in WORDS:
        ways |= {f"{word} in the first place": (both, both, word)}
        ways |= {f"everything, {word} in the first place": (None, None, word)}
    found = {}
    for name, (*masks, word) in ways.items():
        x = model.embedding[torch.cat([torch.full_like(inputs[:, :1], word), inputs[:, 1:]], 1)]
        for block, mask in zip(model.decoder.blocks, masks, strict=True):
            x = block(x, mask=mask, causal=True)
        logits = model.unembed(model.decoder.final_norm(x))
        each = -logits.log_softmax(-1).gather(-1, targets[..., None])[:, 1::2, 0].double()
        found[name] = {kind: each[where].mean().item() for kind, where in kinds.items()}
    with recorded_weights(model) as maps:
        model(inputs)
    asks = [each[:, :, 1::2, 0].transpose(1, 2) for each in maps.values()]  # (B, N, H)
    first = {kind: [each[where].mean(0).tolist() for each in asks] for kind, where in kinds.items()}
    counts = {kind: int(where.sum()) for kind, where in kinds.items()}
    return {"nats": found, "first": first, "counts": counts}


def find(cells):
    settings = cells.settings
    plans = ((BELOW, SLOW, settings.longer), (ABOVE, SLOW, settings.steps))
    plans += ((BELOW, RATE, settings.longer),)
    runs = [
        {"arm": arm, "rate": rate, "steps": steps, "seed": seed}
        for arm, rate, steps in plans
        for seed in settings.seeds
    ]
    caches = cells.all(with_cache, [{"seed": seed} for seed in settings.seeds])
    longer = [
        {name: run[name] for name in ("arm", "rate", "seed")} | each
        for run, each in zip(runs, cells.all(on_the_way, runs), strict=True)
    ]
    perfect = BOOK.surprise(exam_of(settings)).mean(0)[:PAIRS].tolist()
    return {"model": MODEL, "kept": KEPT, "perfect": perfect, "longer": longer, "caches": caches}


def table(kept):
    late = slice(PAIRS // 2, PAIRS)
    floor = sum(kept["perfect"][late]) / (PAIRS // 2)
    lines = [
        "Two more questions on the address book: the slow order, and who needs the first token",
        f"Nats of a house in the second half of the trained length; a perfect reader {floor:.3f}.",
        "",
        "| arm | rate | seed | steps | nats |",
        "|:---|---:|---:|---:|---:|",
    ]
    for run in kept["longer"]:
        for step, each in zip(run["steps"], run["nats"], strict=True):
            score = sum(each[late]) / (PAIRS // 2)
            lines.append(
                f"| {run['arm']} | {run['rate']:g} | {run['seed']} | {step} | {score:.3f} |"
            )
    kinds = list(kept["caches"][0]["counts"])
    lines += ["", f"| the cache keeps | seed | {' | '.join(kinds)} |", "|:---|---:|---:|---:|---:|"]
    for seed, each in enumerate(kept["caches"]):
        for name, scores in each["nats"].items():
            row = " | ".join(f"{scores[kind]:.3f}" for kind in kinds)
            lines.append(f"| {name} | {seed} | {row} |")
    return lines
