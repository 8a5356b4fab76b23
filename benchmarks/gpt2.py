"""What does a language model do untaught, as it grows? Checkpoints of seven sizes, and a record.

Trains the recipe of results/gpt2/recipe.toml for each size and three seeds, releases each run to
results/gpt2/SIZE-seed-N, and asks all of them the questions of `src.gpt.zero_shot`. Beside them,
not released, stand the cells of four more questions:

    data          all sizes but the largest on less text: the loss against parameters and tokens
    demonstrations    one size, with fewer demonstrations of the tasks in its text, and with none
    ablation      what GPT-2 changed in GPT-1, one change at a time, in a deeper and narrower model
    depth         small models have one layer and large ones two: a wide one of one, a narrow of two

    python benchmarks/gpt2.py [FOLDER] [--train]    two hours of one core; goes on with FOLDER
    python benchmarks/gpt2.py [FOLDER] --anew depth    twenty minutes: this part of it alone

With --train it trains only, a cell that another process has begun left out. What is asked and read
is the same for every model: fixed questions and fixed texts, which are drawn apart from those that
are trained on. Writes results/gpt2.json and .md. Learning rates of the sizes were chosen by the
validation loss of shorter pilots; those of the ablation are among its cells.
"""

import argparse
import fcntl
import hashlib
import json
import os
import statistics
import tempfile
from functools import cache, partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from released import TEXTS, minutes, released, rows, trained
from rounds import RESULTS, machine, record

from src.gpt import zero_shot
from src.gpt.choices import MEASURES, exact_match
from src.gpt.runs import RunConfig, open_run, read_toml, scores
from src.likelihood.evaluation import total
from src.texts.corpora import Document
from src.tools import checkpoints

FOLDER = RESULTS / "gpt2"
SEEDS = (0, 1, 2)
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
RECIPE = read_toml(FOLDER / "recipe.toml")
STEPS, SHORTER = RECIPE["training"]["steps"], (1_000, 2_000)
SHARE = RECIPE["world"]["demonstrations"]
CONTROLLED, CONTROL_STEPS, SHARES = 64, 2_000, (0.4, 0.04, 0.01, 0.0)
DEEP = {"layers": 6, "heads": 4, "channels": 32}
DEEP_STEPS, RATES = 400, (3e-3, 1e-2)
OLD_NORM, OLD_START = {"norm": "post"}, {"scaled_residuals": False}
ABLATION = {  # what is changed back; the last two change what is read, and how
    "GPT-2": {},
    "post-norm": {"model": OLD_NORM},
    "unscaled start": {"model": OLD_START},
    "both: GPT-1": {"model": OLD_NORM | OLD_START},
    "half the context": {"model": {"context_length": RECIPE["model"]["context_length"] // 2}},
    "a quarter of the batch": {
        "data": {"batch_size": RECIPE["data"]["batch_size"] // 4},
        "training": {"steps": 4 * DEEP_STEPS, "every": 4 * DEEP_STEPS // 4},
    },
}
# Sizes with up to 16 channels have one layer and those from 32 on have two. Here depth and size
# change apart: (layers, channels); 4 heads. The first seed is trained with both rates that the
# sizes next to these have, and the others with the one of less validation loss.
DEPTHS, DEPTH_RATES = ((1, 40), (2, 16)), (1e-2, 2e-2)
ITEMS, READ = 300, 1_000  # questions of each family, texts for the loss
TEXTS_SEED = 10_099
# families for which all measures are recorded
MEASURED = ("where", "who", "facts", "sentiment", "translation", "last word", "endings")


# ---- cells: a name and how its settings differ from the recipe ---------------------------------


def changes_of(*, seed, steps, documents=None, demonstrations=SHARE):
    """As many documents for each step as the recipe has, and always as many held out."""
    documents = steps * RECIPE["world"]["documents"] // STEPS if documents is None else documents
    held_out = round(RECIPE["data"]["test"] * RECIPE["world"]["documents"]) / documents
    return {
        "data": {"seed": seed, "validation": held_out, "test": held_out},
        "world": {"documents": documents, "demonstrations": demonstrations},
        "training": {"steps": steps, "save_every": steps},
    }


def grid_cell(channels, steps, demonstrations, seed):
    layers, heads, rate = SIZES[channels]
    changes = changes_of(seed=seed, steps=steps, demonstrations=demonstrations)
    changes["model"] = {"layers": layers, "heads": heads, "channels": channels}
    changes["training"]["learning_rate"] = rate
    about = {"channels": channels, "steps": steps, "demonstrations": demonstrations, "seed": seed}
    return f"c{channels}-l{layers}-s{steps}-d{demonstrations:g}-seed{seed}", about, changes


def ablation_cell(arm, rate, seed):
    changes = changes_of(seed=seed, steps=DEEP_STEPS)
    changes["model"] = dict(DEEP)
    changes["training"] |= {"learning_rate": rate, "every": DEEP_STEPS // 4}
    for table, values in ABLATION[arm].items():
        changes[table] |= values
    changes["training"]["save_every"] = changes["training"]["steps"]
    name = "".join(letter if letter.isalnum() else "-" for letter in arm.lower())
    return (
        f"ablation-{name}-lr{rate:g}-seed{seed}",
        {"arm": arm, "rate": rate, "seed": seed},
        changes,
    )


def depth_cell(layers, channels, rate, seed):
    changes = changes_of(seed=seed, steps=STEPS)
    changes["model"] = {"layers": layers, "heads": 4, "channels": channels}
    changes["training"]["learning_rate"] = rate
    about = {"channels": channels, "layers": layers, "rate": rate, "seed": seed}
    return f"c{channels}-l{layers}-s{STEPS}-lr{rate:g}-seed{seed}", about, changes


def released_cells():
    return [grid_cell(c, STEPS, SHARE, seed) for seed in SEEDS for c in reversed(SIZES)]


def data_cells():
    sizes = sorted(SIZES)[:-1]
    return [grid_cell(c, s, SHARE, seed) for seed in SEEDS for s in SHORTER for c in sizes]


def control_cells():
    return [grid_cell(CONTROLLED, CONTROL_STEPS, d, seed) for seed in SEEDS for d in SHARES]


def ablation_cells():
    return [ablation_cell(arm, rate, s) for s in SEEDS for rate in RATES for arm in ABLATION]


def depth_cells():
    """Those of the first seed."""
    return [depth_cell(*shape, rate, SEEDS[0]) for shape in DEPTHS for rate in DEPTH_RATES]


def config_of(changes):
    return RunConfig.from_tables(RECIPE, changes)


# ---- training ----------------------------------------------------------------------------------


def trained_cell(cell, home):
    """The run of a cell, which is trained, or gone on with, if it is not done."""
    name, _, changes = cell
    config, folder = config_of(changes), home / name
    if (folder / "last.pt").exists():
        done = checkpoints.read(folder / "last.pt")["step"] == config.training.steps
        run = open_run(folder) if done else None
        if done and run.config != config:
            raise ValueError(f"expected the run of the recipe in {folder}, got other settings")
        if done:
            return run
    return trained(config, folder)


def train_all(cells, home):
    """Train what nobody has begun; several processes may do so side by side."""
    home.mkdir(parents=True, exist_ok=True)
    for cell in cells:
        with open(home / f"{cell[0]}.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            print(cell[0], flush=True)
            trained_cell(cell, home)


# ---- asking ------------------------------------------------------------------------------------


@cache
def world():
    return RunConfig.from_tables(RECIPE).micro_world()


def drawn(seed):
    return torch.Generator().manual_seed(seed)


@cache
def questions():
    """{family: (items, an unconditional prompt for its choices, the seed they are drawn with)}."""
    w, seed = world(), 10_000
    asked = {
        "where": partial(zero_shot.reading, w, ITEMS, ask="where"),
        "who": partial(zero_shot.reading, w, ITEMS, ask="who"),
        "facts": partial(zero_shot.facts, w, ITEMS),
        "sentiment": partial(zero_shot.sentiment, w, ITEMS),
        "translation": partial(zero_shot.translation, w, 288),
    }
    makers = {}
    for name, make in asked.items():
        end = ":" if name == "translation" else "?"
        for wording in range(len(zero_shot.WORDINGS[name])):
            full = f"{name}, wording {wording}" if wording else name
            makers[full] = partial(make, wording=wording), end
    makers |= {
        "facts, stated": (partial(asked["facts"], wording=None), "is"),
        "facts, never asked": (partial(asked["facts"], asked=False), "?"),
        "facts, never asked, stated": (partial(asked["facts"], asked=False, wording=None), "is"),
        "translation, never paired": (partial(zero_shot.translation, w, 96, paired=False), ":"),
        "last word": (partial(zero_shot.last_word, w, ITEMS), "is"),
        "endings": (partial(zero_shot.endings, w, ITEMS), "."),
    }
    return {
        name: (make(generator=drawn(seed)), alone, seed) for name, (make, alone) in makers.items()
    }


@cache
def texts():
    """Documents of the language that were drawn apart from all that is trained on."""
    documents = world().sample(READ, generator=drawn(TEXTS_SEED))
    return [Document(str(i), " ".join(each.words[:-1])) for i, each in enumerate(documents)]


@cache
def fingerprint():
    """What an answer depends on beside the model."""
    asked = [questions(), MEASURED, [text.text for text in texts()]]
    return hashlib.sha256(repr(asked).encode()).hexdigest()[:12]


def answers_of(run):
    """{family: accuracies and the like}."""
    reader, found = zero_shot.Reader.of_run(run), {}
    for name, (items, alone, _) in questions().items():
        known = name in MEASURED
        scored = reader.scores(items, alone if known else None)
        right = [of_item[item.label] for item, of_item in zip(items, scored, strict=True)]
        found[name] = {
            by: zero_shot.accuracy(items, scored, by) for by in (MEASURES if known else ("sum",))
        }
        found[name]["nats"] = statistics.fmean(each.score.nats for each in right)
        if name.startswith("translation"):  # an answer of several words
            written = reader.write(items)
            wanted = [item.answer for item in items]
            found[name]["written"] = exact_match([each or "nothing" for each in written], wanted)
            found[name]["words"] = statistics.fmean(
                place < len(each.split()) and each.split()[place] == word
                for answer, each in zip(wanted, written, strict=True)
                for place, word in enumerate(answer.split())
            )
    return found


def looked_at(cell, home, *, ask=True):
    """What is to be recorded of one cell."""
    name, about, _ = cell
    kept = home / name / f"looked-{fingerprint()}-{int(ask)}.json"
    if not kept.exists():
        run = trained_cell(cell, home)
        score = total(scores(run, texts()))
        history = checkpoints.read(home / name / "last.pt")["history"]
        data = run.config.data
        found = {
            "parameters": run.model.config.parameters,
            "tokens": run.config.training.steps * data.batch_size * run.model.config.context_length,
            "step": run.step,
            "minutes": round(minutes(home / name), 1),
            "loss": score.loss,
            "validation": min(history["validation"].values()),
        }
        if ask:
            found["answers"] = answers_of(run)
        kept.write_text(json.dumps(found))
    return about | json.loads(kept.read_text())


# ---- the record --------------------------------------------------------------------------------


def checkpoint(cell, home):
    name, about, changes = cell
    run = trained_cell(cell, home)
    folder = f"c{about['channels']}-seed-{about['seed']}"
    kept = home / name / "released.json"
    target = FOLDER / folder
    if not kept.exists() or not target.exists():
        found = released(run, home / name, target, texts()[:TEXTS])
        more = {"folder": folder, "changes": changes, "texts_seed": TEXTS_SEED}
        kept.write_text(json.dumps(more | found))
    return json.loads(kept.read_text())


def depth_of(home, command):
    """The control of depth, with the rates that were tried, and how it was made."""
    tried = [looked_at(cell, home) for cell in depth_cells()]
    cells = []
    for shape in DEPTHS:
        of_shape = [cell for cell in tried if (cell["layers"], cell["channels"]) == shape]
        best = min(of_shape, key=lambda cell: cell["validation"])
        rest = [depth_cell(*shape, best["rate"], seed) for seed in SEEDS[1:]]
        cells += [best, *(looked_at(cell, home) for cell in rest)]
    return {
        "machine": machine(),
        "command": command,
        "steps": STEPS,
        "tried": [
            {k: cell[k] for k in ("layers", "channels", "rate", "validation")} for cell in tried
        ],
        "cells": cells,
    }


def kept_of(home):
    whole = [looked_at(cell, home) for cell in released_cells()]
    floor = world().floor_of([[*text.text.split(), "<end>"] for text in texts()])
    ceilings = {}
    for name, (items, _, seed) in questions().items():
        possible = all(world().log_prob(item.prompt) > float("-inf") for item in items)
        ceilings[name] = {
            "items": len(items),
            "seed": seed,
            "chance": zero_shot.chance(items),
            "ceiling": zero_shot.ceiling(world(), items) if possible else None,
        }
    return {
        "machine": machine(),
        "command": "python benchmarks/gpt2.py FOLDER",
        "floor": floor.loss,
        "floor_error": floor.error,
        "texts": READ,
        "sizes": {str(channels): SIZES[channels] for channels in SIZES},
        "families": ceilings,
        "released": whole,
        "data": [looked_at(cell, home, ask=False) for cell in data_cells()],
        "demonstrations": [looked_at(cell, home) for cell in control_cells()],
        "ablation": [looked_at(cell, home, ask=False) for cell in ablation_cells()],
        "depth": depth_of(home, "python benchmarks/gpt2.py FOLDER"),
        "ablation_settings": {"steps": DEEP_STEPS} | DEEP,
    }


PARTS = {
    "released": released_cells,
    "demonstrations": control_cells,
    "data": data_cells,
    "ablation": ablation_cells,
    "depth": depth_cells,
}


def percent(values):
    return f"{100 * statistics.fmean(values):.1f} ± {100 * statistics.stdev(values):.1f}"


def table(kept, points):
    lines = [
        "# The released checkpoints of the miniature GPT-2, and what they answer untaught",
        "",
        f"`{kept['command']}`; {kept['machine']}. Recipe: `gpt2/recipe.toml`; sizes and learning"
        " rates in each folder's `run.toml`. Loss and floor of the first table are of the first"
        f" {TEXTS} of {READ:,} documents that were drawn apart.",
        "",
        *rows(points, ("folder", lambda point: f"`{point['folder']}`")),
        "",
        f"Loss on {READ:,} fixed documents, floor {kept['floor']:.4f} ± {kept['floor_error']:.4f},"
        " and the share of right choices (sum of log-probabilities), mean and standard deviation of"
        " three seeds.",
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
    lines += [
        "",
        f"Fewer demonstrations: C = {CONTROLLED}, {CONTROL_STEPS:,} steps.",
        "",
        "| family | " + " | ".join(f"{share:g}" for share in SHARES) + " |",
        "|:---|" + "---:|" * len(SHARES),
    ]
    for name in kept["families"]:
        cells = [
            percent([p["answers"][name]["sum"] for p in kept["demonstrations"] if is_share(p, s)])
            for s in SHARES
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        f"Changes taken back: {DEEP['layers']} layers, {DEEP['channels']} channels,"
        f" {DEEP_STEPS} steps of a full batch; loss above the floor by seed.",
        "",
        "| arm | learning rate | " + " | ".join(f"seed {seed}" for seed in SEEDS) + " |",
        "|:---|---:|" + "---:|" * len(SEEDS),
    ]
    for arm in ABLATION:
        for rate in RATES:
            of = [p for p in kept["ablation"] if (p["arm"], p["rate"]) == (arm, rate)]
            gaps = [f"{p['loss'] - kept['floor']:.4f}" for p in of]
            lines.append(f"| {arm} | {rate:g} | " + " | ".join(gaps) + " |")
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
        f" `{kept['depth']['command']}`; {kept['depth']['machine']};"
        f" {kept['depth']['steps']:,} steps, seeds {', '.join(map(str, SEEDS))}; of the rates"
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


def is_share(point, share):
    return point["demonstrations"] == share


def main():
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--train", nargs="*", choices=PARTS, help="train only, all parts or these")
    parser.add_argument("--anew", choices=["depth"], help="train, ask and record this part alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = options.folder or Path(scratch)
        wanted = [options.anew] if options.anew else options.train or PARTS
        train_all([cell for part in wanted for cell in PARTS[part]()], home)
        if options.train is not None:
            return
        if options.anew:
            kept = json.loads((RESULTS / "gpt2.json").read_text())
            points = json.loads((FOLDER / "checkpoints.json").read_text())["checkpoints"]
            kept["depth"] = depth_of(home, "python benchmarks/gpt2.py FOLDER --anew depth")
        else:
            points = [checkpoint(cell, home) for cell in released_cells()]
            kept = kept_of(home)
    about = {name: kept[name] for name in ("machine", "command")} | {"checkpoints": points}
    if not options.anew:
        (FOLDER / "checkpoints.json").write_text(json.dumps(about, indent=1) + "\n")
    (RESULTS / "gpt2.json").write_text(json.dumps(kept, indent=1) + "\n")
    record("gpt2", table(kept, points))


if __name__ == "__main__":
    main()
