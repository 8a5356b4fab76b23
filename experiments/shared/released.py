"""What is kept of a checkpoint that is released, so that anybody can tell it from another one.

Shared by the experiments that train the checkpoints under results/: train by a recipe, release, and
record what a test compares (`tests/released.py`).
"""

import hashlib
import shutil

import torch

from next_token.run_config import RunConfig
from next_token.runs import release, train_run
from src.gpt.released import floor_of, open_run, scores
from src.likelihood.evaluation import total
from src.tools import checkpoints

FIRST_STEPS = 20


def trained(cells, folder, recipe, changes):
    """Fill a folder with the run of a recipe, changed; both are tables."""
    config = RunConfig.from_tables(recipe, changes)
    train_run(config, folder, device=torch.device("cpu"), progress=False)


def published(cells, folder, recipe, changes):
    """Fill a folder with that run as it is released."""
    release(open_run(cells.folder(trained, recipe=recipe, changes=changes)), folder)


def minutes(folder):
    """How long a run took, from its first file to its last."""
    begun, ended = ((folder / name).stat().st_mtime for name in ("run.toml", "last.pt"))
    return (ended - begun) / 60


def described(cells, texts, recipe, changes):
    """What there is to say about that run, and its loss on some texts."""
    options = {"recipe": recipe, "changes": changes}
    folder, target = (cells.folder(work, **options) for work in (trained, published))
    run = open_run(folder)
    score, floor = total(scores(run, texts)), floor_of(run.tables, texts)
    history = checkpoints.read(folder / "last.pt")["history"]
    weights = (target / "model.safetensors").read_bytes()
    return {
        "seed": run.tables["data"]["seed"],
        "parameters": run.model.config.parameters,
        "bytes": len(weights),
        "sha256": hashlib.sha256(weights).hexdigest(),
        "minutes": round(minutes(folder), 1),
        "best_step": run.step,
        "first_losses": history["losses"][:FIRST_STEPS],
        "validation": history["validation"],
        "test_texts": len(texts),
        "test_loss": score.loss,
        "test_floor": floor and floor.loss,  # of real text nobody knows it
    }


def place(cells, target, recipe, folders):
    """Put the checkpoints beside a record: {name of a folder: changes of the recipe}."""
    for name, changes in folders.items():
        shutil.rmtree(target / name, ignore_errors=True)
        shutil.copytree(cells.folder(published, recipe=recipe, changes=changes), target / name)


def rows(points, *more):
    """A table of such points; `more` are columns to begin with: (title, function of a point)."""
    titles = [title for title, _ in more]
    titles += ["seed", "parameters", "bytes", "minutes", "step"]
    titles += ["loss, nats per token", "floor"]
    lines = ["| " + " | ".join([*titles, "SHA-256"]) + " |", "|" + "---:|" * len(titles) + ":---|"]
    for point in points:
        cells = [str(cell(point)) for _, cell in more]
        cells += [
            str(point["seed"]),
            f"{point['parameters']:,}",
            f"{point['bytes']:,}",
            f"{point['minutes']:.0f}",
            f"{point['best_step']:,}",
            f"{point['test_loss']:.4f}",
            f"{point['test_floor']:.4f}",
            f"`{point['sha256'][:16]}…`",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
