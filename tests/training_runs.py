"""What the children of the fork server do: train, be killed, train together."""

import io
import json
import os
import signal
from datetime import timedelta
from itertools import count
from pathlib import Path

import torch
import torch._dynamo  # torch's first optimiser imports it, which takes a second in each child
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from next_token import engines
from next_token.engines import RunTraining
from src.gpt import many_cores
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.many_cores import local
from src.gpt.training import TrainConfig, train
from src.likelihood.batches import Batches
from src.tools import checkpoints
from src.tools.runtime import seed_everything

V, T, N = 11, 5, 300


def small_gpt(dropout=0.0, seed=3):
    """Its shifts move by what the whole batch chose, however it is cut and shared out."""
    sizes = {"layers": 1, "heads": 2, "channels": 6, "experts": 3, "experts_used": 1}
    config = GPTConfig(V, context_length=T, dropout=dropout, experts_shift=0.01, **sizes)
    return GPT(config, generator=torch.Generator().manual_seed(seed))


def stream(seed=0):
    return torch.randint(V, (N,), generator=torch.Generator().manual_seed(seed))


def numbered(batch_size=4, seed=1):
    return Batches(stream(), batch_size=batch_size, context_length=T, seed=seed)


def held_out():
    return [numbered(seed=2)[n] for n in range(2)]


def ragged(rows=7, n_batches=5):
    """Batches whose rows differ in length, one of them nearly empty."""
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randint(V, (n_batches, rows, T), generator=generator)
    targets = torch.randint(V, (n_batches, rows, T), generator=generator)
    lengths = torch.randint(1, T + 1, (n_batches, rows, 1), generator=generator)
    lengths[:, 0] = 1
    return list(zip(inputs, targets, torch.arange(T) < lengths, strict=True))


def train_and_be_killed(folder, steps, rank, kill=None):
    """A run with dropout that saves at every step; `kill` is (where, in which save)."""
    seed_everything(5)  # Python's own generator is seeded anew in each fork
    config = TrainConfig(steps, 0.01, warm_up=3, every=4, save_every=1)
    if kill:
        plant(*kill)
    options = {"validation": held_out(), "folder": folder, "resume": True, "progress": False}
    train(small_gpt(dropout=0.2), numbered(), config, **options)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def plant(where, number):
    """Have this process killed inside its save of that number, counted from 1."""
    write, saves = checkpoints.write, count(1)

    def counted(path, state):
        if next(saves) == number:
            arm(where)
        write(path, state)

    checkpoints.write = counted


def arm(where):
    save, replace, fsync = torch.save, os.replace, os.fsync

    def save_in_part(state, file):
        buffer = io.BytesIO()
        save(state, buffer)
        written = buffer.getvalue()
        share = {"nothing written": 0, "half written": len(written) // 2}.get(where, len(written))
        file.write(written[:share])
        file.flush()
        die()

    def replace_and_die(old, new):
        if where == "replaced":
            replace(old, new)
        die()

    def fsync_and_die(handle):
        fsync(handle)
        die()

    if where.endswith("written"):
        torch.save = save_in_part
    elif where == "synced":
        os.fsync = fsync_and_die
    else:
        os.replace = replace_and_die


KILLS = ["nothing written", "half written", "all written", "synced", "not replaced", "replaced"]


def count_buckets():
    """A list that grows with each bucket of gradients that DDP sends."""
    sent, wrap = [], many_cores.DistributedDataParallel

    def wrapped(model):
        run = wrap(model)

        def hook(group, bucket):
            sent.append(bucket.index())
            return default_hooks.allreduce_hook(group, bucket)

        run.register_comm_hook(None, hook)
        return run

    many_cores.DistributedDataParallel = wrapped
    return sent


def train_together(
    folder,
    result,
    processes,
    rank,
    dropout=0.0,
    rows=7,
    stop_at=None,
    free=False,
    apart=False,
    kill_rank=None,
    kill_at=None,
    parts=2,
    **settings,
):
    """Fifty steps in several processes; the losses go into a file."""
    if processes > 1:
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{folder}/rendezvous-{stop_at}-{kill_at}",
            rank=rank,
            world_size=processes,
            timeout=timedelta(seconds=30),
        )
    seed_everything(6)
    model, notes = small_gpt(dropout, seed=rank), []  # the first process's parameters count
    sent = count_buckets() if settings.get("engine") == "ddp" else []
    settings |= {"warm_up": 5, "clip": 0.5, "every": 10, "save_every": 10, "accumulation": parts}

    def after(step, model):
        if step == stop_at:
            raise KeyboardInterrupt
        if step == kill_at and rank == kill_rank:
            die()

    try:
        history = engines.train(
            model,
            ragged(rows),
            RunTraining(50, 0.01, **settings),
            validation=held_out(),
            folder=f"{folder}/run-{rank}" if apart else f"{folder}/run",
            resume=True,
            changed=notes.append if free else None,
            after=after,
            progress=False,
        )
        found = {"losses": history.losses, "validation": history.validation, "notes": notes}
        found["weights"] = [local(p).flatten().tolist() for p in model.state_dict().values()]
        found["sent"] = len(sent)
    except ValueError as error:
        found = {"error": str(error)}
    Path(f"{result}-{rank}.json").write_text(json.dumps(found))
