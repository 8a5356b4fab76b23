"""Which checkpoints do the chapters on GPT-1 begin from, and is each one what it is said to be?

Trains the recipe of results/gpt1/recipe.toml for three seeds, as the command line does, and
releases each run to results/gpt1/seed-N. Beside them it records what a test compares: check sums,
the losses of the first steps, and the loss on fixed texts.

    python benchmarks/gpt1.py [FOLDER]    an hour of one core; runs begun in FOLDER are gone on with
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from released import TEXTS, released, rows, trained
from rounds import RESULTS, machine, record

from src.gpt.runs import RunConfig, read_toml

FOLDER = RESULTS / "gpt1"
SEEDS = (0, 1, 2)


def checkpoint(seed, home):
    """Train and release one run; what there is to say about it."""
    config = RunConfig.from_tables(read_toml(FOLDER / "recipe.toml"), {"data": {"seed": seed}})
    name = f"seed-{seed}"
    run, texts = trained(config, home / name), list(config.parts().test)[:TEXTS]
    return released(run, home / name, FOLDER / name, texts)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        points = [checkpoint(seed, home) for seed in SEEDS]
    kept = {"machine": machine(), "command": "python benchmarks/gpt1.py", "checkpoints": points}
    (FOLDER / "checkpoints.json").write_text(json.dumps(kept, indent=1) + "\n")
    record("gpt1", table(kept))


def table(kept):
    return [
        "# The released checkpoints of the miniature GPT-1",
        "",
        f"`{kept['command']}`; {kept['machine']}. Recipe: `gpt1/recipe.toml`; each run is"
        " `python -m src train --config results/gpt1/recipe.toml --seed N --folder RUN`, then"
        " `python -m src release RUN results/gpt1/seed-N`. Loss and floor are of the first"
        f" {TEXTS} test documents.",
        "",
        *rows(kept["checkpoints"]),
    ]


if __name__ == "__main__":
    main()
