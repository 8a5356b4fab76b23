"""Which checkpoints do the chapters on GPT-1 begin from, and is each one what it is said to be?

Trains the recipe of results/gpt1/recipe.toml for three seeds, as the command line does, and
releases each run to results/gpt1/seed-N. Beside them it records what a test compares: check sums,
the losses of the first steps, and the loss on fixed texts.

    python benchmarks/gpt1.py [FOLDER]    an hour of one core; runs begun in FOLDER are gone on with
"""

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from rounds import RESULTS, machine, record

from src import checkpoints
from src.evaluation import total
from src.runs import RunConfig, floor_of, open_run, read_toml, release, scores, train_run

FOLDER = RESULTS / "gpt1"
SEEDS, FIRST_STEPS, TEXTS = (0, 1, 2), 20, 200


def trained(seed, folder):
    """A run of the recipe in a folder, and how many minutes it took to get there."""
    config = RunConfig.from_tables(read_toml(FOLDER / "recipe.toml"), {"data": {"seed": seed}})
    train_run(config, folder, device=torch.device("cpu"), resume=True, progress=False)
    begun, ended = ((folder / name).stat().st_mtime for name in ("run.toml", "last.pt"))
    return open_run(folder), (ended - begun) / 60


def released(seed, home):
    """Release one run; what there is to say about it."""
    run, minutes = trained(seed, home / f"seed-{seed}")
    target = FOLDER / f"seed-{seed}"
    shutil.rmtree(target, ignore_errors=True)
    release(run, target)
    texts = list(run.config.parts().test)[:TEXTS]
    score, floor = total(scores(run, texts)), floor_of(run, texts)
    history = checkpoints.read(home / f"seed-{seed}" / "last.pt")["history"]
    weights = (target / "model.safetensors").read_bytes()
    return {
        "seed": seed,
        "parameters": run.model.config.parameters,
        "bytes": len(weights),
        "sha256": hashlib.sha256(weights).hexdigest(),
        "minutes": round(minutes, 1),
        "best_step": run.step,
        "first_losses": history["losses"][:FIRST_STEPS],
        "validation": history["validation"],
        "test_texts": TEXTS,
        "test_loss": score.loss,
        "test_floor": floor.loss,
    }


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        points = [released(seed, home) for seed in SEEDS]
    kept = {"machine": machine(), "command": "python benchmarks/gpt1.py", "checkpoints": points}
    (FOLDER / "checkpoints.json").write_text(json.dumps(kept, indent=1) + "\n")
    record("gpt1", table(kept))


def table(kept):
    lines = [
        "# The released checkpoints of the miniature GPT-1",
        "",
        f"`{kept['command']}`; {kept['machine']}. Recipe: `gpt1/recipe.toml`; each run is"
        " `python -m src train --config results/gpt1/recipe.toml --seed N --folder RUN`, then"
        " `python -m src release RUN results/gpt1/seed-N`. Loss and floor are of the first"
        f" {TEXTS} test documents.",
        "",
        "| seed | parameters | bytes | minutes | step | loss, nats per token | floor | SHA-256 |",
        "|---:|---:|---:|---:|---:|---:|---:|:---|",
    ]
    for point in kept["checkpoints"]:
        lines.append(
            f"| {point['seed']} | {point['parameters']:,} | {point['bytes']:,} | "
            f"{point['minutes']:.0f} | {point['best_step']:,} | {point['test_loss']:.4f} | "
            f"{point['test_floor']:.4f} | `{point['sha256'][:16]}…` |"
        )
    return lines


if __name__ == "__main__":
    main()
