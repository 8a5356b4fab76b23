"""Which checkpoints do the chapters on GPT-1 begin from, and is each one what it is said to be?

Trains the recipe of results/gpt1/recipe.toml for three seeds, as the command line does, and
releases each run to results/gpt1/seed-N. Beside them it records what a test compares: check sums,
the losses of the first steps, and the loss on fixed texts. Half an hour of one core.
"""

from dataclasses import dataclass
from pathlib import Path

from experiments.shared.released import described, place, rows
from next_token.run_config import RunConfig
from src.gpt.released import read_toml

RECIPE = read_toml(Path(__file__).parents[1] / "results" / "gpt1" / "recipe.toml")


@dataclass(frozen=True)
class Settings:
    seeds: tuple = (0, 1, 2)
    steps: int = RECIPE["training"]["steps"]
    documents: int = RECIPE["world"]["documents"]
    texts: int = 200  # for the loss


QUICK = Settings(seeds=(0,), steps=20, documents=2_000, texts=20)


def changes(settings, seed):
    """How the run of a seed differs from the recipe."""
    training = {"steps": settings.steps, "warm_up": min(100, settings.steps // 2)}
    training["every"] = training["save_every"] = min(RECIPE["training"]["every"], settings.steps)
    data, world = {"seed": seed}, {"documents": settings.documents}
    return {"data": data, "world": world, "training": training}


def checkpoint(cells, seed):
    """What there is to say about the run of a seed."""
    changed = changes(cells.settings, seed)
    texts = list(RunConfig.from_tables(RECIPE, changed).parts().test)[: cells.settings.texts]
    return described(cells, texts, RECIPE, changed)


def find(cells):
    return {"checkpoints": cells.all(checkpoint, ({"seed": seed} for seed in cells.settings.seeds))}


def release(cells, target):
    settings = cells.settings
    folders = {f"seed-{seed}": changes(settings, seed) for seed in settings.seeds}
    place(cells, target, RECIPE, folders)


def table(kept):
    return [
        "The released checkpoints of the miniature GPT-1",
        "Recipe: `recipe.toml`; each run is"
        " `next-token train --config results/gpt1/recipe.toml --seed N --folder RUN`, then"
        " `next-token release RUN results/gpt1/seed-N`. Loss and floor are of the first"
        f" {kept['checkpoints'][0]['test_texts']} test documents.",
        "",
        *rows(kept["checkpoints"]),
    ]
