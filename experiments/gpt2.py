"""What does a language model do untaught, as it grows? Checkpoints of seven sizes, and a record.

Trains the recipe of results/gpt2/recipe.toml for each size and three seeds, releases each run to
results/gpt2/SIZE-seed-N, and asks all of them the questions of `src.gpt.zero_shot`. Beside them,
not released, stand the cells of two more questions:

    data     all sizes but the largest on less text: the loss against parameters and tokens
    depth    small models have one layer and large ones two: a wide one of one, a narrow of two

What is asked and read is the same for every model: fixed questions and fixed texts, which are drawn
apart from those that are trained on. Learning rates of the sizes were chosen by the validation loss
of shorter pilots. An hour or two of one core.
"""

import statistics
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch

from experiments.shared.released import described, minutes, place, rows, trained
from next_token.run_config import RunConfig
from next_token.runs import config_in
from src.gpt import zero_shot
from src.gpt.choices import exact_match
from src.gpt.released import open_run, read_toml, scores
from src.likelihood.evaluation import total
from src.texts.corpora import Document
from src.tools import checkpoints

# channels: (layers, heads, learning rate)
SIZES = {
    4: (1, 2, 2e-2),
    8: (1, 2, 2e-2),
    12: (1, 4, 2e-2),
    16: (1, 4, 2e-2),
    32: (2, 4, 1e-2),
    64: (2, 4, 3e-3),
    128: (2, 4, 2e-3),
}
RECIPE = read_toml(Path(__file__).parents[1] / "results" / "gpt2" / "recipe.toml")
DOCUMENTS, SHARE = RECIPE["world"]["documents"], RECIPE["world"]["demonstrations"]
# Sizes with up to 16 channels have one layer and those from 32 on have two. Here depth and size
# change apart: (layers, channels); 4 heads. The first seed is trained with both rates that the
# sizes next to these have, and the others with the one of less validation loss.
DEPTHS, DEPTH_RATES = ((1, 40), (2, 16)), (1e-2, 2e-2)
ITEMS_SEED, TEXTS_SEED = 10_000, 10_099


@dataclass(frozen=True)
class Settings:
    seeds: tuple = (0, 1, 2)
    steps: int = RECIPE["training"]["steps"]
    documents: int = DOCUMENTS  # to train on in so many steps; in fewer, fewer
    held_out: int = round(RECIPE["data"]["test"] * DOCUMENTS)
    shorter: tuple = (1_000, 2_000)
    items: int = 300  # questions of each family
    translations: int = 288
    read: int = 1_000  # texts for the loss
    texts: int = 200  # of these, for that of the checkpoints


QUICK = Settings(
    seeds=(0,),
    steps=4,
    documents=2_000,
    held_out=40,
    shorter=(3,),
    items=6,
    translations=6,
    read=10,
    texts=5,
)


# ---- runs: what tells one from the others, and how its settings differ from the recipe ----------


def changes_of(settings, *, seed, steps):
    """As many documents for each step as the recipe has, and always as many held out."""
    documents = steps * settings.documents // settings.steps
    held_out = settings.held_out / documents
    return {
        "data": {"seed": seed, "validation": held_out, "test": held_out},
        "world": {"documents": documents, "demonstrations": SHARE},
        "training": {
            "steps": steps,
            "warm_up": min(RECIPE["training"]["warm_up"], steps // 2),
            "every": min(RECIPE["training"]["every"], steps),
            "save_every": steps,
        },
    }


def grid_run(settings, channels, steps, seed):
    layers, heads, rate = SIZES[channels]
    changes = changes_of(settings, seed=seed, steps=steps)
    changes["model"] = {"layers": layers, "heads": heads, "channels": channels}
    changes["training"]["learning_rate"] = rate
    return {"channels": channels, "steps": steps, "seed": seed}, changes


def depth_run(settings, layers, channels, rate, seed):
    changes = changes_of(settings, seed=seed, steps=settings.steps)
    changes["model"] = {"layers": layers, "heads": 4, "channels": channels}
    changes["training"]["learning_rate"] = rate
    return {"channels": channels, "layers": layers, "rate": rate, "seed": seed}, changes


def released_runs(settings):
    return [
        grid_run(settings, channels, settings.steps, seed)
        for seed in settings.seeds
        for channels in reversed(SIZES)
    ]


def data_runs(settings):
    return [
        grid_run(settings, channels, steps, seed)
        for seed in settings.seeds
        for steps in settings.shorter
        for channels in sorted(SIZES)[:-1]
    ]


def depth_runs(settings):
    """Those of the first seed."""
    seed = settings.seeds[0]
    return [depth_run(settings, *shape, rate, seed) for shape in DEPTHS for rate in DEPTH_RATES]


# ---- asking ------------------------------------------------------------------------------------


@cache
def world():
    return RunConfig.from_tables(RECIPE).micro_world()


def drawn(seed):
    return torch.Generator().manual_seed(seed)


@cache
def questions(settings):
    """Those of each family."""
    w, items = world(), settings.items
    makers = {
        "where": partial(zero_shot.reading, w, items, ask="where"),
        "who": partial(zero_shot.reading, w, items, ask="who"),
        "facts": partial(zero_shot.facts, w, items),
        "sentiment": partial(zero_shot.sentiment, w, items),
        "translation": partial(zero_shot.translation, w, settings.translations),
        "last word": partial(zero_shot.last_word, w, items),
        "endings": partial(zero_shot.endings, w, items),
    }
    return {name: make(generator=drawn(ITEMS_SEED)) for name, make in makers.items()}


@cache
def texts(settings):
    """Documents of the language that were drawn apart from all that is trained on."""
    documents = world().sample(settings.read, generator=drawn(TEXTS_SEED))
    return [Document(str(i), " ".join(each.words[:-1])) for i, each in enumerate(documents)]


def answers_of(run, settings):
    """{family: the share of right choices; what is translated is written, too}."""
    reader, found = zero_shot.TextModel.from_run(run), {}
    for name, items in questions(settings).items():
        scored = reader.scores(items)
        found[name] = {"sum": zero_shot.accuracy(items, scored, "sum")}
        if name == "translation":  # an answer of several words
            written = [each or "nothing" for each in reader.write(items)]
            found[name]["written"] = exact_match(written, [item.answer for item in items])
    return found


def looked(cells, changes, ask):
    """What is to be recorded of one run."""
    settings = cells.settings
    folder = cells.folder(trained, recipe=RECIPE, changes=changes)
    run = open_run(folder)
    config, context = config_in(run.tables), run.model.config.context_length
    found = {
        "parameters": run.model.config.parameters,
        "tokens": config.training.steps * config.data.batch_size * context,
        "step": run.step,
        "minutes": round(minutes(folder), 1),
        "loss": total(scores(run, texts(settings))).loss,
        "validation": min(checkpoints.read(folder / "last.pt")["history"]["validation"].values()),
    }
    return found | ({"answers": answers_of(run, settings)} if ask else {})


def looked_at(cells, runs, *, ask=True):
    """The same of several, with what tells them apart."""
    found = cells.all(looked, [{"changes": changes, "ask": ask} for _, changes in runs])
    return [about | each for (about, _), each in zip(runs, found, strict=True)]


# ---- the record --------------------------------------------------------------------------------


def checkpoint(cells, folder, changes):
    settings = cells.settings
    found = described(cells, texts(settings)[: settings.texts], RECIPE, changes)
    return {"folder": folder, "changes": changes, "texts_seed": TEXTS_SEED} | found


def released_folders(settings):
    """{name of a folder: changes of the recipe}."""
    return {
        f"c{about['channels']}-seed-{about['seed']}": changes
        for about, changes in released_runs(settings)
    }


def points_of(cells):
    folders = released_folders(cells.settings).items()
    return cells.all(
        checkpoint, [{"folder": name, "changes": changes} for name, changes in folders]
    )


def release(cells, target):
    place(cells, target, RECIPE, released_folders(cells.settings))


def depth_of(cells):
    """The control of depth, with the rates that were tried."""
    settings, found = cells.settings, []
    tried = looked_at(cells, depth_runs(settings))
    for shape in DEPTHS:
        of_shape = [run for run in tried if (run["layers"], run["channels"]) == shape]
        best = min(of_shape, key=lambda run: run["validation"])
        rest = [depth_run(settings, *shape, best["rate"], seed) for seed in settings.seeds[1:]]
        found += [best, *looked_at(cells, rest)]
    names = ("layers", "channels", "rate", "validation")
    return {
        "steps": settings.steps,
        "tried": [{name: run[name] for name in names} for run in tried],
        "cells": found,
    }


def families(cells):
    """Of each family of questions: how many, the seed, by chance, at best."""
    found = {}
    for name, items in questions(cells.settings).items():
        possible = all(world().log_prob(item.prompt) > float("-inf") for item in items)
        found[name] = {
            "items": len(items),
            "seed": ITEMS_SEED,
            "chance": zero_shot.chance(items),
            "ceiling": zero_shot.ceiling(world(), items) if possible else None,
        }
    return found


def find(cells):
    settings = cells.settings
    floor = world().floor_of([[*text.text.split(), "<end>"] for text in texts(settings)])
    return {
        "floor": floor.loss,
        "floor_error": floor.error,
        "texts": settings.read,
        "sizes": {str(channels): SIZES[channels] for channels in SIZES},
        "families": cells(families),
        "checkpoints": points_of(cells),
        "released": looked_at(cells, released_runs(settings)),
        "data": looked_at(cells, data_runs(settings), ask=False),
        "depth": depth_of(cells),
    }


def percent(values):
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{100 * statistics.fmean(values):.1f} ± {100 * spread:.1f}"


def table(kept):
    points = kept["checkpoints"]
    lines = [
        "The released checkpoints of the miniature GPT-2, and what they answer untaught",
        "Recipe: `recipe.toml`; sizes and learning rates in each folder's `run.toml`. Loss and"
        f" floor of the first table are of the first {points[0]['test_texts']} of"
        f" {kept['texts']:,} documents that were drawn apart.",
        "",
        *rows(points, ("folder", lambda point: f"`{point['folder']}`")),
        "",
        f"Loss on {kept['texts']:,} fixed documents, floor {kept['floor']:.4f} ±"
        f" {kept['floor_error']:.4f}, and the share of right choices (sum of log-probabilities),"
        f" mean and standard deviation of {len(kept['depth']['cells']) // len(DEPTHS)} seeds.",
        "",
        "| family | chance | ceiling | " + " | ".join(f"C = {c}" for c in SIZES) + " |",
        "|:---|---:|---:|" + "---:|" * len(SIZES),
    ]
    by_size = {c: [p for p in kept["released"] if p["channels"] == c] for c in SIZES}
    gaps = [
        f"{statistics.fmean(p['loss'] for p in points) - kept['floor']:.4f}"
        for points in by_size.values()
    ]
    lines.append("| loss above the floor | | | " + " | ".join(gaps) + " |")
    for name, about in kept["families"].items():
        best = "–" if about["ceiling"] is None else f"{100 * about['ceiling']:.1f}"
        shares = [percent([p["answers"][name]["sum"] for p in of]) for of in by_size.values()]
        cells = [name, f"{100 * about['chance']:.1f}", best, *shares]
        lines.append("| " + " | ".join(cells) + " |")
    return lines + depth_table(kept)


def depth_table(kept):
    """Depth and size apart: the sizes on both sides of the change of depth, and the control."""
    shapes = {}
    for channels in (16, 32):
        layers, _, rate = SIZES[channels]
        of = [p for p in kept["released"] if p["channels"] == channels]
        shapes[layers, channels] = [p | {"rate": rate} for p in of]
    for layers, channels in DEPTHS:
        shapes[layers, channels] = [p for p in kept["depth"]["cells"] if p["channels"] == channels]
    families = ("who", "where", "last word", "endings", "facts", "sentiment")
    lines = [
        "",
        "Depth: sizes up to C = 16 have one layer and those from C = 32 on have two. Beside them,"
        " a wider model of one layer and a narrower one of two:"
        f" {kept['depth']['steps']:,} steps; of the rates"
        f" {' and '.join(f'{rate:g}' for rate in DEPTH_RATES)} the one with the lower validation"
        " loss of the first seed. Share of right choices (translation: written), by seed.",
        "",
        "| layers | C | parameters | rate | loss above the floor | translation | "
        + " | ".join(families)
        + " |",
        "|---:|---:|---:|---:|:---|:---|" + ":---|" * len(families),
    ]
    for (layers, channels), of in sorted(shapes.items(), key=lambda item: parameters(item[1])):
        gaps = ", ".join(f"{p['loss'] - kept['floor']:.4f}" for p in of)
        shares = [[p["answers"]["translation"]["written"] for p in of]]
        shares += [[p["answers"][name]["sum"] for p in of] for name in families]
        shown = [", ".join(f"{100 * share:.1f}" for share in each) for each in shares]
        cells = [str(layers), str(channels), f"{parameters(of):,}", f"{of[0]['rate']:g}", gaps]
        lines.append("| " + " | ".join(cells + shown) + " |")
    return lines


def parameters(cells):
    return cells[0]["parameters"]
