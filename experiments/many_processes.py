"""Do several processes find what one finds, and what if one of them is killed?

In float64, with plain SGD and without clipping, which would hide a factor in the gradients: 50
steps of `train` with every engine on 1, 2 and 4 processes, against one process alone. In
float32 with AdamW: the same difference, beside that of one process which takes each batch in parts,
and so only adds up in another order. A run that moves from 1 process to 2, to 4 and back. And a run
of four processes under torchrun, one of which is killed at random moments: torchrun starts all of
them again, and in the end every bit must be that of a run that nobody disturbed.

Linux only, for it looks for the processes with `ps`. Half an hour of two cores.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from _ext.provenance import ROOT
from src.tools import checkpoints
from src.tools.processes import in_processes

ENGINES = ("sum", "ddp", "fsdp")
WAYS = ("sum", "fsdp")


@dataclass(frozen=True)
class Settings:
    processes: tuple = (1, 2, 4)
    steps: int = 50
    kills: int = 10  # in each way
    killed_steps: int = 1_500


QUICK = Settings(processes=(1, 2), steps=4, kills=1, killed_steps=60)


# ---- losses ----------------------------------------------------------------------------------


def losses_of(team, engine, dtype, rule, steps, parts):
    import torch

    from next_token.engines import RunTraining, Together
    from next_token.processes import team
    from src.gpt.gpt2 import GPT, GPTConfig
    from src.gpt.training import train
    from src.likelihood.batches import Batches

    draws = torch.Generator().manual_seed(0)
    config = GPTConfig(61, context_length=16, layers=2, heads=2, channels=32)
    model = GPT(config, generator=draws).to(getattr(torch, dtype))
    data = Batches(
        torch.randint(61, (3_000,), generator=draws), batch_size=8, context_length=16, seed=1
    )
    rate = {"SGD": 0.5, "AdamW": 3e-3}[rule]
    clip = {"SGD": float("inf"), "AdamW": 1.0}[rule]
    settings = RunTraining(steps, rate, end=1.0, clip=clip, accumulation=parts, engine=engine)
    learner = Together(model, settings, team())
    learner.optimiser = getattr(torch.optim, rule)(learner.run.parameters(), lr=rate)
    learner.trained = [*learner.run.parameters()]
    history = train(model, data, settings, learner=learner, progress=False)
    return history.losses


def losses(cells, engine, processes, dtype, rule, parts=1):
    """The losses of a run, the same in all processes."""
    several = in_processes(
        processes,
        losses_of,
        engine=engine,
        dtype=dtype,
        rule=rule,
        steps=cells.settings.steps,
        parts=parts,
    )
    assert all(each == several[0] for each in several)
    return several[0]


def far(one, other):
    """The greatest difference of two lists of losses."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


# ---- moving ----------------------------------------------------------------------------------


def moved_of(team, folder, engine, steps, until):
    import torch

    from next_token.engines import RunTraining, train
    from src.gpt.gpt2 import GPT, GPTConfig
    from src.likelihood.batches import Batches
    from src.tools.runtime import seed_everything

    draws = seed_everything(0)
    config = GPTConfig(61, context_length=16, layers=2, heads=2, channels=32)
    model = GPT(config, generator=draws).double()
    data = Batches(
        torch.randint(61, (3_000,), generator=draws), batch_size=8, context_length=16, seed=1
    )

    def after(step, model):
        if step == until:
            raise KeyboardInterrupt

    history = []
    try:
        settings = RunTraining(steps, 3e-3, eps=1e-3, engine=engine, save_every=5)
        history = train(
            model,
            data,
            settings,
            folder=folder,
            resume=True,
            changed=lambda what: None,
            after=after,
            progress=False,
        ).losses
    except KeyboardInterrupt:
        pass
    return history


def moves(cells):
    """How far the losses of a run are that moves, in float64."""
    steps = 4 * 13 if cells.settings.steps > 10 else 4 * 6
    with tempfile.TemporaryDirectory() as home:
        common = {"steps": steps}
        (alone,) = in_processes(
            1, moved_of, folder=f"{home}/alone", engine="sum", until=None, **common
        )
        ways = ((1, "sum"), (2, "fsdp"), (4, "ddp"), (1, "sum"))
        for number, (processes, engine) in enumerate(ways, start=1):
            until = None if number == len(ways) else steps * number // 4
            answers = in_processes(
                processes, moved_of, folder=f"{home}/moved", engine=engine, until=until, **common
            )
    return {"ways": ways, "steps": steps, "far": far(alone, answers[0])}


# ---- killing ---------------------------------------------------------------------------------

SIZES = "--context-length 16 --layers 2 --heads 2 --channels 32 --batch-size 8"
RUN = "--vocabulary-size 300 --dropout 0.1 --save-every 10 --every 500 --quiet"


def started(folder, engine, steps, restarts):
    """Four processes that train, under torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
    command += [f"--max-restarts={restarts}", "--monitor-interval=0.1", "-m", "next_token", "train"]
    command += [folder.parent / "text.txt", "--folder", folder, "--resume", "--engine", engine]
    command += ["--steps", steps, *SIZES.split(), *RUN.split()]
    surroundings = {"OMP_NUM_THREADS": "1", "NEXT_TOKEN_DEVICE": "cpu", "PYTHONPATH": str(ROOT)}
    with open(folder.with_suffix(".log"), "ab") as log:
        return subprocess.Popen(
            [*map(str, command)],
            cwd=ROOT,
            env=os.environ | surroundings,
            stdout=log,
            stderr=log,
        )


def children_of(process):
    """The processes that torchrun has started."""
    done = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], stdout=subprocess.PIPE, text=True
    )
    return [int(line) for line in done.stdout.split()]


def saved(folder):
    """The step of the last checkpoint; 0: none."""
    path = folder / "last.pt"
    return checkpoints.read(path)["step"] if path.exists() else 0


def killed(cells, engine):
    """What became of a run one of whose processes was killed again and again."""
    settings, chance, steps = cells.settings, random.Random(0), []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        lines = (f"Story {i}: the {i % 7} cats sat on {i * i} mats.\n\n" for i in range(2_000))
        (home / "text.txt").write_text("".join(lines), encoding="utf-8")
        whole, cut = home / "whole", home / "cut"
        common = (engine, settings.killed_steps)
        assert started(whole, *common, 0).wait(timeout=3_600) == 0
        run = started(cut, *common, settings.kills + 2)
        longest = 0.0
        while len(steps) < settings.kills:
            before, began = saved(cut), time.monotonic()
            while saved(cut) <= before and run.poll() is None:
                if time.monotonic() - began > 600:
                    raise TimeoutError(f"expected a new checkpoint after {before}, there is none")
                time.sleep(0.1)
            longest = max(longest, time.monotonic() - began)
            time.sleep(chance.uniform(0, 2))
            victims = children_of(run)
            if run.poll() is not None or len(victims) != 4:
                break
            os.kill(chance.choice(victims), signal.SIGKILL)
            steps.append(saved(cut))
        code = run.wait(timeout=3_600)
        if code:
            said = cut.with_suffix(".log").read_text(encoding="utf-8")
            raise RuntimeError(f"expected torchrun to end well, got {code}:\n{said[-3_000:]}")
        ended = [checkpoints.read(folder / "best.pt") for folder in (whole, cut)]
        last = [checkpoints.read(folder / "last.pt") for folder in (whole, cut)]
        same = all(
            torch.equal(ended[0]["model"][key], ended[1]["model"][key]) for key in ended[0]["model"]
        )
        return {
            "engine": engine,
            "steps": steps,
            "longest": longest,
            "same_weights": same,
            "same_losses": last[0]["history"] == last[1]["history"],
        }


# ---- the record ------------------------------------------------------------------------------


def find(cells):
    rows, several = [], cells.settings.processes
    for dtype, rule in (("float64", "SGD"), ("float32", "AdamW")):
        common = {"dtype": dtype, "rule": rule}
        alone = cells(losses, engine="sum", processes=1, **common)
        for parts in several[1:]:
            again = cells(losses, engine="sum", processes=1, parts=parts, **common)
            rows.append({**common, "how": f"1 process, {parts} parts", "far": far(alone, again)})
        for engine in ENGINES:
            for processes in several:
                again = cells(losses, engine=engine, processes=processes, **common)
                how = f"{processes} process{'es' if processes > 1 else ''}, {engine}"
                rows.append({**common, "how": how, "far": far(alone, again)})
        rows.append({**common, "how": "learnt in all", "far": alone[0] - alone[-1]})
    return {
        "losses": rows,
        "moves": cells(moves),
        "killed": [cells(killed, engine=engine) for engine in WAYS],
    }


def table(kept):
    lines = [
        "Several processes against one, and one of four killed",
        "| numbers | rule | how | greatest difference of a loss |",
        "|:---|:---|:---|---:|",
    ]
    for row in kept["losses"]:
        lines.append(f"| {row['dtype']} | {row['rule']} | {row['how']} | {row['far']:.1e} |")
    moves = kept["moves"]
    ways = ", then ".join(f"{processes} ({engine})" for processes, engine in moves["ways"])
    lines += [
        "",
        f"A run of {moves['steps']} steps that moves from one number of processes to another, in",
        f"float64 with AdamW and clipping: {ways}. Its losses differ by at most {moves['far']:.1e}",
        "from those of a run on one process.",
        "",
        "| engine | killed | after the checkpoints | longest wait for a new one, s | "
        "weights equal to the bit | losses, too |",
        "|:---|---:|:---|---:|:---|:---|",
    ]
    for row in kept["killed"]:
        lines.append(
            f"| {row['engine']} | {len(row['steps'])} | "
            f"{', '.join(map(str, row['steps']))} | {row['longest']:.0f} | "
            f"{row['same_weights']} | {row['same_losses']} |"
        )
    return lines
