"""Is it the number of parameters, or how they are used? Models of equal size and other shape.

The recipe of results/gpt2, in fewer steps. About 34 thousand parameters are spent on one layer of
40 channels, on two of 32, or on nine of 16; and 16 channels stand in one layer as well, so that
depth grows alone. Each shape has its own learning rate, searched on a seed of its own, by
validation loss, until the best of them has a worse one on both sides. In two controls the nine
layers have one head instead of four, or read twice as much. Each seed draws its own text, and all
are scored on texts that were drawn apart. Nine minutes of one core.
"""

import statistics
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch
from torch.optim import AdamW

from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.optimisation import cosine, parameter_groups
from src.gpt.released import read_toml, world_of
from src.likelihood.batches import Batches
from src.likelihood.evaluation import document_scores, total
from src.likelihood.fitting import fit
from src.texts.microworld_words import END

RECIPE = read_toml(Path(__file__).parents[1] / "results" / "gpt2" / "recipe.toml")
WORLD = world_of(RECIPE)
SHAPES = ((1, 40), (2, 32), (9, 16), (1, 16))  # (layers, channels)
HEADS, CONTEXT, BATCH, VALIDATION = 4, 64, 32, 20
RATES = (3e-3, 1e-2, 3e-2)
TEXTS_SEED = 10_099  # as in experiments/gpt2.py


@dataclass(frozen=True)
class Settings:
    seeds: tuple = (0, 1, 2)
    searching: int = 100
    steps: int = 600
    read: int = 500  # texts for the loss
    at_most: int = 6  # rates in a search


QUICK = Settings(seeds=(0, 1), steps=6, read=10, at_most=3)


def drawn(seed):
    return torch.Generator().manual_seed(seed)


@cache
def stream(documents, seed):
    return torch.cat(WORLD.sample_texts(documents, generator=drawn(seed)))


@cache
def held_out(settings):
    """Texts that were drawn apart: each from an end token to the next."""
    end = WORLD.encode(END).reshape(1)
    texts = WORLD.sample_texts(settings.read, generator=drawn(TEXTS_SEED))
    return [torch.cat([end, text]) for text in texts]


def adamw(model, _, *, lr, weight_decay):
    groups = parameter_groups(model, weight_decay=weight_decay)
    return AdamW(groups, lr=lr, betas=(0.9, 0.98), fused=True)


def trained(cells, layers, channels, heads, steps, rate, seed):
    """The size of a model, its validation loss, and its loss on texts that were drawn apart."""
    config = GPTConfig(
        len(WORLD.vocabulary), context_length=CONTEXT, layers=layers, heads=heads, channels=channels
    )
    model, end = GPT(config, generator=drawn(1_000 + seed)), int(WORLD.encode(END))
    training, validation = (
        Batches(
            stream(2 * BATCH * count, 2 * seed + part),
            batch_size=BATCH,
            context_length=CONTEXT,
            seed=seed,
            first=end,
        )
        for part, count in ((0, steps), (1, 2 * VALIDATION))
    )
    history = fit(
        model,
        (training[number] for number in range(steps)),
        steps=steps,
        learning_rate=rate,
        schedule=cosine(steps, warm_up=min(100, steps // 2), end=RECIPE["training"]["end"]),
        weight_decay=RECIPE["training"]["weight_decay"],
        optimiser=partial(adamw, model),
        validation=[validation[number] for number in range(VALIDATION)],
        every=steps,
        progress=False,
    )
    scored = document_scores(
        model.eval(), held_out(cells.settings), context_length=CONTEXT, stride=CONTEXT // 2
    )
    return {
        "parameters": config.parameters,
        "validation": history.validation[steps],
        "loss": total(scored).loss,
    }


def searched(cells, layers, channels):
    """The rate of a shape: the best of several, and the loss of each."""
    settings, losses, rates = cells.settings, {}, list(RATES)
    while True:
        for rate in rates:
            losses[rate] = cells(
                trained,
                layers=layers,
                channels=channels,
                heads=HEADS,
                steps=settings.steps,
                rate=rate,
                seed=settings.searching,
            )["validation"]
        best = min(losses, key=losses.get)
        inside = min(losses) < best < max(losses)
        if inside or len(losses) >= settings.at_most:
            return {
                "best": best,
                "inside": inside,
                "losses": {f"{r:g}": x for r, x in losses.items()},
            }
        rates = [best / 3 if best == min(losses) else best * 3]


def find(cells):
    settings, found = cells.settings, []
    rates = {shape: cells(searched, layers=shape[0], channels=shape[1]) for shape in SHAPES}
    arms = [(*shape, HEADS, settings.steps) for shape in SHAPES]
    arms += [(9, 16, 1, settings.steps), (9, 16, HEADS, 2 * settings.steps)]
    for layers, channels, heads, steps in arms:
        about = {"layers": layers, "channels": channels, "heads": heads, "steps": steps}
        about["rate"] = rates[layers, channels]["best"]
        several = [about | {"seed": seed} for seed in settings.seeds]
        found += [
            one | other for one, other in zip(several, cells.all(trained, several), strict=True)
        ]
    floor = WORLD.floor_of([text[1:] for text in held_out(settings)])
    return {
        "floor": floor.loss,
        "floor_error": floor.error,
        "rates": [{"layers": k[0], "channels": k[1]} | rate for k, rate in rates.items()],
        "cells": found,
    }


def table(kept):
    lines = [
        "Equal parameters, other shape: nats per token above the floor",
        f"Texts drawn apart, floor {kept['floor']:.4f} ± {kept['floor_error']:.4f}.",
        "",
        "| layers | channels | heads | steps | rate | parameters | mean | by seed |",
        "|---:|---:|---:|---:|---:|---:|---:|:---|",
    ]
    names = ("layers", "channels", "heads", "steps", "rate", "parameters")
    for arm in dict.fromkeys(tuple(cell[name] for name in names) for cell in kept["cells"]):
        gaps = [
            cell["loss"] - kept["floor"]
            for cell in kept["cells"]
            if tuple(cell[name] for name in names) == arm
        ]
        row = [
            f"{value:g}" if name == "rate" else f"{value:,}"
            for name, value in zip(names, arm, strict=True)
        ]
        row += [f"{statistics.fmean(gaps):.4f}", ", ".join(f"{gap:.4f}" for gap in gaps)]
        lines.append("| " + " | ".join(row) + " |")
    return lines
