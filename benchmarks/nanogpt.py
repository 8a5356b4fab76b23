"""How fast do we train beside nanoGPT's own program, and do we end at the same loss?

Run by `make bench`. NANOGPT names the folder of a copy of nanoGPT (written for commit 3adf61e);
without it nothing is done. Both programs run as their users run them: nanoGPT's `train.py` with its
settings for a CPU (4 layers, 4 heads, 128 channels, 64 tokens, 12 texts), and `next-token train`.
Both get the same tokens, the characters of `python-docs`, from the disk.

- Speed: runs of a few hundred steps take turns, a pair a round. Each program says the time of its
  steps, validations left out, by the processor's clock; the ratio of a round is kept.
- Loss: whole runs with several seeds, ours once with nanoGPT's settings and once with our own. The
  last weights of all runs are scored on the same validation batches.

`python -m benchmarks.nanogpt quick` does all of it in small, and keeps nothing.
"""

import os
import pickle
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from benchmarks.shared.rounds import ROOT, finish, in_turns
from next_token.run_log import read
from next_token.token_folders import TokenFolder
from next_token.tokenizing import tokenize_files
from src.gpt.gpt2 import GPT, GPTConfig
from src.likelihood.batches import Batches
from src.likelihood.fitting import mean_loss
from src.texts.corpora import load
from src.tools import checkpoints

LAYERS, HEADS, CHANNELS, LENGTH, TEXTS = 4, 4, 128, 64, 12
SETTINGS = {  # of `config/train_shakespeare_char.py` and the line for a CPU in nanoGPT's README
    "learning_rate": 1e-3,
    "end": 0.1,  # of the learning rate: nanoGPT's min_lr of 1e-4
    "beta2": 0.99,
    "weight_decay": 0.1,
    "clip": 1.0,
}
OWN = {"learning_rate": 3e-3, "end": 0.1}  # what `next-token` does untold
THEIRS, OURS, UNTOLD = "nanoGPT", "ours, with its settings", "ours, with our own"
# What is taken on one thread is the processor's time: waiting for it on a busy machine is no work.
OUR_PROGRAM = """
import sys, time
time.perf_counter = time.process_time
from next_token.__main__ import main
sys.exit(main())
"""
SPEED = "tokens per second, against nanoGPT"


@dataclass(frozen=True)
class Sizes:
    rounds: int = 5
    timed: int = 300  # steps of a round
    steps: int = 2_000  # of the runs that are scored
    seeds: int = 3
    scored: int = 400  # validation batches


def run(command, folder):
    """What a program says; it has one thread, and may not fail."""
    surroundings = os.environ | {"OMP_NUM_THREADS": "1", "NEXT_TOKEN_DEVICE": "cpu"}
    surroundings["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env=surroundings,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


# ---- the two programs ------------------------------------------------------------------------


def prepare(place, copied):
    """The characters of `python-docs` for both: our tokens, and nanoGPT's files with the ids."""
    (place / "text.txt").write_bytes(
        "\n\0\n".join(document.text for document in load("python-docs")).encode()
    )
    folder = place / "tokens"
    tokenize_files(
        [place / "text.txt"], folder, tokenizer="characters", separator="\n\0\n", processes=1
    )
    token_folder, theirs = TokenFolder(folder), copied / "data" / "characters"
    theirs.mkdir(parents=True)
    for ours, name in (("train", "train"), ("validation", "val")):
        stream = token_folder.parts[ours]
        stream.piece(0, len(stream)).astype(np.uint16).tofile(theirs / f"{name}.bin")
    with (theirs / "meta.pkl").open("wb") as file:
        pickle.dump({"vocab_size": token_folder.tokenizer.vocabulary_size}, file)
    return token_folder


def train_theirs(place, copied, name, *, steps, seed, every):
    """A run of nanoGPT's program; tokens per second."""
    program = (copied / "train.py").read_text(encoding="utf-8")
    seeded = re.sub(r"torch\.manual_seed\(\d+", f"torch.manual_seed({seed}", program)
    seeded = seeded.replace("time.time()", "time.process_time()")
    (copied / "seeded.py").write_text(seeded, encoding="utf-8")
    options = {
        "out_dir": place / name,
        "dataset": "characters",
        "device": "cpu",
        "compile": False,
        "eval_iters": 20,
        "eval_interval": every,
        "log_interval": 1,
        "always_save_checkpoint": True,
        "block_size": LENGTH,
        "batch_size": TEXTS,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_embd": CHANNELS,
        "max_iters": steps,
        "lr_decay_iters": steps,
        "dropout": 0.0,
    }
    flags = [f"--{key}={value}" for key, value in options.items()]
    said = run(["seeded.py", "config/train_shakespeare_char.py", *flags], copied)
    times = {int(n): float(ms) for n, ms in re.findall(r"iter (\d+): .*time ([\d.]+)ms", said)}
    steady = [ms for n, ms in times.items() if n % every and n > 5]  # a validation is in the others
    return 1e3 * TEXTS * LENGTH / statistics.fmean(steady)


def train_ours(place, name, *, steps, seed, every, settings):
    """A run of `next-token train`; tokens per second, as its log has them."""
    model = {"context_length": LENGTH, "layers": LAYERS, "heads": HEADS, "channels": CHANNELS}
    tables = {
        "model": {**model, "bias": settings is OWN},
        "training": {
            **settings,
            "warm_up": min(100, steps // 2),
            "steps": steps,
            "every": every,
            "save_every": every,
        },
        "data": {"batch_size": TEXTS, "seed": seed},
    }
    lines = []
    for table, values in tables.items():
        lines += [f"[{table}]", *(f"{key} = {str(v).lower()}" for key, v in values.items())]
    path = place / f"{name}.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    command = ["train", place / "tokens", "--folder", place / name, "--config", path]
    run(["-c", OUR_PROGRAM, *command], place)
    rows = read(place / name / "log.csv")[1:]
    return statistics.fmean(row["tokens_per_second"] for row in rows)


# ---- what they end with ----------------------------------------------------------------------


def their_model(copied, folder):
    """The last checkpoint of nanoGPT's program, as a model that maps ids to logits."""
    theirs = ModuleType("theirs")
    sys.modules["theirs"] = theirs  # where its dataclass looks for itself
    exec(
        compile((copied / "model.py").read_text(encoding="utf-8"), "model.py", "exec"), vars(theirs)
    )
    kept = torch.load(folder / "ckpt.pt", weights_only=True)
    model = theirs.GPT(theirs.GPTConfig(**kept["model_args"]))
    model.load_state_dict(kept["model"])

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(ids, ids.contiguous())[0]  # with targets it unembeds every position

    return Logits()


def our_model(folder, vocabulary_size, *, bias):
    """The last weights of one of our runs."""
    config = GPTConfig(
        vocabulary_size,
        context_length=LENGTH,
        layers=LAYERS,
        heads=HEADS,
        channels=CHANNELS,
        bias=bias,
    )
    model = GPT(config, generator=torch.Generator())
    model.load_state_dict(checkpoints.read(folder / "last.pt")["model"])
    return model


def losses(place, copied, token_folder, sizes):
    """{program: validation loss of each seed}, nats per token."""
    vocabulary_size = token_folder.tokenizer.vocabulary_size
    batches = Batches(token_folder.parts["validation"], batch_size=TEXTS, context_length=LENGTH)
    scored, found = list(islice(batches, sizes.scored)), {THEIRS: [], OURS: [], UNTOLD: []}
    common = {"steps": sizes.steps, "every": max(1, sizes.steps // 4)}
    for seed in range(sizes.seeds):
        train_theirs(place, copied, f"theirs-{seed}", seed=seed, **common)
        models = {THEIRS: their_model(copied, place / f"theirs-{seed}")}
        for name, short, settings in ((OURS, "same", SETTINGS), (UNTOLD, "own", OWN)):
            folder = f"{short}-{seed}"
            train_ours(place, folder, seed=seed, settings=settings, **common)
            models[name] = our_model(place / folder, vocabulary_size, bias=settings is OWN)
        for name, model in models.items():
            found[name].append(mean_loss(model, scored))
            print(seed, name, found[name][-1], flush=True)
    return found


def main():
    if not (named := os.environ.get("NANOGPT")):
        print("NANOGPT names no folder of nanoGPT: nothing is compared with it")
        return
    quick = sys.argv[1:] == ["quick"]
    sizes = Sizes(rounds=2, timed=40, steps=40, seeds=2, scored=4) if quick else Sizes()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        copied = Path(shutil.copytree(named, place / "nanogpt"))
        token_folder, rounds = prepare(place, copied), []
        for number in range(sizes.rounds):
            common = {"steps": sizes.timed, "seed": number, "every": sizes.timed}
            speeds, _ = in_turns(
                {
                    THEIRS: partial(train_theirs, place, copied, f"fast-theirs-{number}", **common),
                    OURS: partial(
                        train_ours, place, f"fast-ours-{number}", settings=SETTINGS, **common
                    ),
                }
            )
            rounds.append({SPEED: speeds[OURS] / speeds[THEIRS]})
            print(speeds, flush=True)
        found = losses(place, copied, token_folder, sizes)
    means = {name: statistics.fmean(each) for name, each in found.items()}
    noise = max(statistics.stdev(each) for each in found.values())
    gap, missed = means[OURS] - means[THEIRS], []
    if gap > 3 * noise:
        missed.append("the loss with nanoGPT's settings")
    if means[UNTOLD] - means[THEIRS] > 3 * noise:
        missed.append("the loss with our settings")
    table = [
        f"| {name} | {', '.join(format(x, '.4f') for x in each)} | {means[name]:.4f} |"
        for name, each in found.items()
    ]
    lines = [
        "# A GPT trained beside nanoGPT's own program",
        "",
        "Written by `make bench` (`benchmarks/nanogpt.py`): `next-token train` and nanoGPT's",
        f"`train.py`, as their users run them, {LAYERS} layers, {HEADS} heads, {CHANNELS}",
        f"channels, {TEXTS} texts of {LENGTH} tokens, characters of `python-docs`, one thread.",
        "",
        f"| validation loss after {sizes.steps:,} steps, nats per token | seeds | mean |",
        "|:---|:---|---:|",
        *table,
    ]
    notes = [
        f"- speed: {sizes.rounds} rounds of {sizes.timed} steps, ours with nanoGPT's settings,",
        "  in the processor's time; nanoGPT's program has another seed and clock, and nothing else",
        f"- loss: {sizes.scored} batches of the validation part, the same for all; last weights;",
        f"  asked: ours at most 3 standard deviations of seeds ({noise:.4f}) above nanoGPT",
        "- nanoGPT decays the embeddings, too, and draws weights with 0.02; ours decays matrices",
        "  only, and draws with 0.8 / sqrt(channels). With its settings ours has no biases, either",
    ]
    if quick:
        print(*lines, rounds, missed, sep="\n")
        return
    finish("nanogpt", lines, rounds, {SPEED: ("≥", 1.0)}, notes, missed)


if __name__ == "__main__":
    main()
