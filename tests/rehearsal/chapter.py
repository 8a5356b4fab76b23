"""Run a chapter's cells, with the rehearsed device as the one that `device()` finds."""

import builtins
import io
import os
import sys
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from teeth.chapter import statements
from teeth.mutations import ASSERTED


@dataclass
class Found:
    """What a run of a chapter showed; each fault begins with its place, `chapter.md:<line>`.

    Attributes:
        errors: what was raised, and by no cell that is to raise.
        failed: assertions that did not hold.
        unjudged: those that did not hold after a training run was shortened.
        shortened: whether one was.
    """

    errors: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    shortened: bool = False
    seconds: float = 0.0


class Shortened:
    """Each training run takes its first steps only; in all others the model stays as it is.

    So losses, validations and checkpoints are as many as the chapter expects.
    """

    def __init__(self, steps):
        from src.gpt.training import Learner
        from src.likelihood import fitting

        self.steps, self.happened, self.taken = steps, False, WeakKeyDictionary()
        fit, backward = fitting.fit, Learner.backward

        def shorter_fit(model, data, *, nats_of=None, **options):
            run, nats_of = Run(), nats_of or fitting.nats_of_batch

            def nats(model, batch):
                if not torch.is_grad_enabled():  # a validation
                    return nats_of(model, batch)
                nats = self.step(run, lambda: nats_of(model, batch))
                return nats if nats.grad_fn else nats.requires_grad_()

            return fit(model, data, nats_of=nats, **options)

        fitting.fit = shorter_fit
        Learner.backward = lambda learner, batch: self.step(
            learner, lambda: backward(learner, batch)
        )

    def step(self, run, take):
        """What a step gives, or what the last one gave: without a gradient nothing changes."""
        count, last = self.taken.get(run, (0, None))
        if count >= self.steps:
            self.happened = True
            return last
        taken = take()
        last = taken.detach() if isinstance(taken, torch.Tensor) else taken
        self.taken[run] = count + 1, last
        return taken


class Run:
    """One call of `fit`."""


def put_in_place(where):
    """Let `device()` give this device, unless another is asked for, as everywhere, after this."""
    from src.tools import runtime

    os.environ.pop("NEXT_TOKEN_DEVICE", None)
    known = runtime.device

    def device(name=None):
        return known(name) if name or os.environ.get("NEXT_TOKEN_DEVICE") else where

    runtime.device = device


def rehearse(path, root, steps, *, on_device=True):
    """What a run of a chapter shows; for a process of its own.

    Args:
        steps: how many each training run takes.
        on_device: False: on the CPU, to compare.
    """
    os.environ["MPLBACKEND"] = "agg"
    os.chdir(path.parent)
    sys.path.insert(0, str(path.parent))
    if on_device:
        from rehearsal.device import install

        put_in_place(install())
    found, shortened, begun = Found(), Shortened(steps), time.monotonic()
    run(statements(path, root), found, shortened)
    found.shortened, found.seconds = shortened.happened, time.monotonic() - begun
    return found


def run(parts, found, shortened):
    """Run the statements; after an error go on with those that read nothing it left unset."""
    namespace, spoilt, raised = {"__name__": "__main__"}, set(), set()
    texts = {each.key: each.text for part in parts for each in part.assertions}

    def asserted(key, held):
        if not held():
            fault = f"{parts[0].filename.rpartition(':')[0]}:{key.partition(':')[0]}: {texts[key]}"
            faults = found.unjudged if shortened.happened else found.failed
            faults.extend([fault] if fault not in faults else [])

    setattr(builtins, ASSERTED, asserted)
    for part in parts:
        if spoilt & part.reads or part.cell in raised:
            spoilt |= part.sets
            continue
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                exec(part.code(), namespace)
        except BaseException as error:  # SystemExit, too, ends a statement and not this program
            spoilt |= part.sets
            if part.must_raise:
                raised.add(part.cell)
            else:
                found.errors.append(described(error, part.filename))
        finally:
            if "matplotlib.pyplot" in sys.modules:
                sys.modules["matplotlib.pyplot"].close("all")
    calm = {part.cell: part.filename for part in parts if part.must_raise}
    found.errors += [
        f"{calm[cell]}: is to raise, and did not" for cell in calm if cell not in raised
    ]


def described(error, filename):
    """Where in the chapter and in the package an error arose, and what it says."""
    name, _, cell = filename.rpartition(":")
    frames = traceback.extract_tb(error.__traceback__)
    lines = [int(cell) + f.lineno - 1 for f in frames if f.filename.startswith(f"{name}:")]
    below = [f"src/{f.filename.rpartition('/src/')[2]}" for f in frames if "/src/" in f.filename]
    place = f"{name}:{lines[-1] if lines else cell}" + (f" (in {below[-1]})" if below else "")
    return f"{place}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
