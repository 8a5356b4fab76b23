"""How does a run outlive a power cut, and come out the same to the bit?

    batch n         = a function of the seed and of n, and of nothing before it
    the next step   = a function of the checkpoint

`train` takes the steps of `likelihood/fitting`, with numbered batches. Its settings are a value,
and everything that the next step depends on is in the checkpoint: the number of steps, the weights,
what the optimiser remembers, and where the random number generators stand. A batch may be taken in
parts, for less memory:

    d loss / d theta = sum over parts of d (nats of the part / tokens of the WHOLE batch) / d theta

What the command does besides, with many processes, engines and a log, is `next_token.engines`.

Derived in the chapters `gpt/training` and `gpt/optimisation` (parts, precision).
"""

import math
from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from ..likelihood import fitting
from ..likelihood.batches import Batch, Numbered
from ..likelihood.fitting import After, History, NatsOf, nats_of_batch
from ..likelihood.models import device_of, endings
from ..tools import checkpoints
from .optimisation import cosine, parameter_groups


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a long run, as plain values: `TrainConfig(**tomllib.load(file))`.

    Attributes:
        steps: how many updates.
        learning_rate: the greatest, reached at the end of the warm-up.
        warm_up: steps in which the learning rate rises to it, in a straight line.
        end: the share of the learning rate that is left at the last step.
        weight_decay: of the matrices; see `parameter_groups`.
        beta1, beta2, eps: of AdamW.
        clip: greatest norm of the gradient of all parameters together; inf: no limit.
        accumulation: in how many parts a batch is taken: more parts, less memory, the same step.
        precision: "float32", or "bfloat16" for the products of matrices (torch's autocast). The
            parameters, their sums and the loss keep their type.
        every: steps between two validations; one comes before the first step, one after the last.
        save_every: steps between two checkpoints; one comes before the first step too.
    Raises:
        ValueError: a value is out of range. TypeError: it is of another type.
    """

    steps: int
    learning_rate: float
    warm_up: int = 0
    end: float = 0.1
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    clip: float = 1.0
    accumulation: int = 1
    precision: str = "float32"
    every: int = 100
    save_every: int = 100

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if type(value) not in ((int, float) if kind is float else (kind,)):  # 1 for 1.0
                raise TypeError(f"expected {name} of type {kind.__name__}, got {value!r}")
        ranges = {
            "steps": (self.steps >= 1, "1 or more"),
            "learning_rate": (0 < self.learning_rate < math.inf, "above 0"),
            "warm_up": (0 <= self.warm_up < self.steps, f"from 0 to {self.steps - 1}, below steps"),
            "end": (0 <= self.end <= 1, "from 0 to 1"),
            "weight_decay": (0 <= self.weight_decay < math.inf, "0 or more"),
            "beta1": (0 <= self.beta1 < 1, "from 0 to below 1"),
            "beta2": (0 <= self.beta2 < 1, "from 0 to below 1"),
            "eps": (0 <= self.eps < math.inf, "0 or more"),
            "clip": (self.clip > 0, "above 0 (inf: no clipping)"),
            "accumulation": (self.accumulation >= 1, "1 or more"),
            "precision": (self.precision in ("float32", "bfloat16"), "float32 or bfloat16"),
            "every": (self.every >= 1, "1 or more"),
            "save_every": (self.save_every >= 1, "1 or more"),
        }
        for name, (holds, expected) in ranges.items():
            if not holds:
                raise ValueError(f"expected {name} {expected}, got {getattr(self, name)!r}")

    def rate(self, step: int) -> float:
        """The learning rate of a step, 1 or more."""
        factor = cosine(self.steps, warm_up=self.warm_up, end=self.end)
        return self.learning_rate * factor(step)


def train(
    model: nn.Module,
    data: Numbered,
    config: TrainConfig,
    *,
    validation: Sequence[Batch] | None = None,
    folder: Path | str | None = None,
    resume: bool = False,
    after: After | None = None,
    progress: bool = True,
    learner: "Learner | None" = None,
) -> History:
    """Train a model in place, in a way that survives interruption; return the losses on the way.

    With a folder, `last.pt` holds the whole state of the run every so often, and `best.pt` the
    weights of the least validation loss. Resumed on a CPU, the run ends in the same bits as one
    that was never interrupted.

    Args:
        model: maps inputs, (B, T), to logits, (B, T, V); on the device where it is to be trained.
        data: `data[n]` is the batch of step n + 1: `Batches`, or a list, gone through in circles.
        config: the settings.
        validation: batches that are scored but never trained on.
        folder: where checkpoints go; None: nowhere.
        resume: go on from the folder's checkpoint if there is one; otherwise one is an error.
        after: called as after(step, model) when a step has been taken, validated and, where it is
            due, saved; step 0 is before the first. An error raised there stops the run. What it
            draws should come from a generator of its own, or a resumed run draws otherwise.
        progress: whether to show a bar.
        learner: of the model; another one than `Learner` shares the work out to many processes.
    Raises:
        ValueError: model, data or settings are not those of the checkpoint, which is named; or the
            checkpoint is damaged.
        FileExistsError: the folder holds a run already.
        OSError: the disk is full; the last checkpoint is whole.
        FloatingPointError: the loss, the gradient or a parameter is no longer finite.
    """
    learner = learner or Learner(model, config)
    history, optimiser = learner.history, learner.optimiser
    settings = learner.settings(data)
    last = Path(folder, "last.pt") if folder else None
    best = Path(folder, "best.pt") if folder else None
    done = -1  # nothing is done, not even step 0
    if last and last.exists():
        if not resume:
            raise FileExistsError(f"{last} exists: pass resume=True, or choose another folder")
        done = learner.load(last, settings)
    best_is_missing = best is not None and not best.exists()  # the next measured becomes it
    steps = range(done + 1, config.steps + 1)  # 0: before the first step
    for step in fitting.watched(steps, history) if progress else steps:
        if step > 0:
            batch = batch_of(data, step)
            optimiser.zero_grad()
            loss = learner.backward(batch)
            norm = learner.clip()  # returns the norm that the gradient had
            fitting.check_finite(step, loss, norm, config.rate(step))
            for group in optimiser.param_groups:
                group["lr"] = config.rate(step)
            optimiser.step()
            learner.end_step()
            history.add(batch, loss, norm)
        if validation is not None and (step % config.every == 0 or step == config.steps):
            validation_loss = history.validation[step] = learner.mean_loss(validation)
            if best and (history.best_step == step or best_is_missing):
                best_is_missing = False
                weights = learner.state()["model"]
                learner.write(best, {"step": step, "model": weights, "validation": validation_loss})
        if last and (step % config.save_every == 0 or step == config.steps):
            state = {"settings": settings, "step": step, "history": asdict(history)}
            learner.write(last, state | learner.state())
        if after:
            after(step, model)
    return history


def batch_of(data: Numbered, step: int) -> Batch:
    """The batch of a step, counted from 1; a collection that ends is gone through in circles."""
    number = step - 1
    return data[number % len(data) if isinstance(data, Sized) else number]


class Learner:
    """A model, its optimiser and its history: what a step changes, and a checkpoint holds.

    Args:
        model: on the device where it is to be trained.
        config: the settings.
    """

    def __init__(self, model: nn.Module, config: TrainConfig):
        self.model, self.config, self.history = model, config, History()
        self.device = device_of(model)
        self.optimiser = AdamW(
            parameter_groups(model, weight_decay=config.weight_decay),
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            fused=self.device.type in ("cpu", "cuda", "mps"),  # one kernel for all of a step
        )
        self.trained = [p for group in self.optimiser.param_groups for p in group["params"]]

    def nats(self, model: nn.Module, batch: Batch, nats_of: NatsOf = nats_of_batch) -> Tensor:
        """The nats of a batch, its products of matrices in the precision of the run."""
        # One block for each part: within a block torch goes on using its 16-bit copies of the
        # parameters, even after a step has changed the parameters themselves.
        short = self.config.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=short):
            return nats_of(model, batch)

    def backward(self, batch: Batch) -> float:
        """Add the gradient of a batch's loss to the parameters' `grad`; return the loss."""
        self.model.train()
        tokens, losses = fitting.count_tokens(batch), []
        for part in in_parts(batch, self.config.accumulation):
            loss = self.nats(self.model, part) / tokens
            loss.backward()  # adds to the gradients there are
            losses.append(loss.detach())
        return torch.stack(losses).sum().item()

    def clip(self) -> float:
        """Scale the gradient down where it is too long; return the norm that it had."""
        return nn.utils.clip_grad_norm_(self.trained, self.config.clip).item()

    def end_step(self) -> None:
        """What learns without gradients, as the shifts of `Experts` do."""
        for end_step in endings(self.model):
            end_step()

    def mean_loss(self, batches: Sequence[Batch]) -> float:
        """The loss over all tokens of some batches."""
        return fitting.mean_loss(self.model, batches, nats_of=self.nats)

    def settings(self, data: Numbered) -> dict[str, Any]:
        """All that a resumed run must have in common with the one before, by name."""
        own = getattr(self.model, "config", None)
        model = getattr(own, "settings", None) or (asdict(own) if own else {})
        batches = {"batches": len(data) if isinstance(data, Sized) else None}
        return (
            asdict(self.config)
            | {"processes": 1, "threads": torch.get_num_threads()}
            | {f"data.{name}": value for name, value in getattr(data, "settings", batches).items()}
            | {f"model.{name}": value for name, value in model.items()}
            | {"parameters.dtype": str(next(self.model.parameters()).dtype)}
        )

    def state(self) -> dict[str, Any]:
        """What decides the next step, beside its number."""
        if not all(p.isfinite().all() for p in self.model.parameters()):
            raise FloatingPointError("expected finite parameters to save, got others")
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "random": [checkpoints.random_state(self.device)],
        }

    def load(self, path: Path, settings: Mapping[str, Any]) -> int:
        """Put everything back to where it was; how many steps were done."""
        state = read_run(path)
        changed_settings(state["settings"], settings, source=path)
        checkpoints.restore(self.model, state["model"], source=path)
        self.optimiser.load_state_dict(state["optimiser"])
        checkpoints.set_random_state(state["random"][0], self.device)
        vars(self.history).update(state["history"])
        return state["step"]

    def write(self, path: Path, state: Mapping[str, Any]) -> None:
        """Write a checkpoint."""
        checkpoints.write(path, state)


def in_parts(batch: Batch, parts: int) -> list[Batch]:
    """A batch as several of nearly equally many rows; each may be padding alone.

    Raises:
        ValueError: it has fewer rows than that.
    """
    inputs, targets, *mask = batch
    if len(targets) < parts:
        expected = f"expected at least {parts} rows in a batch, accumulation times processes"
        raise ValueError(f"{expected}, got {len(targets)}")
    several = inputs if isinstance(inputs, tuple) else (inputs,)  # an encoder's and a decoder's
    rows: Any = zip(*(each.tensor_split(parts) for each in several), strict=True)
    if not isinstance(inputs, tuple):
        rows = [row[0] for row in rows]  # as they came: a tensor, not a tuple of one
    rest = [each.tensor_split(parts) for each in (targets, *mask)]
    return list(zip(rows, *rest, strict=True))


# What settings are where a checkpoint does not name them: of old checkpoints, and of `train`.
LEFT_OUT = {"sharded": False, "engine": "sum", "compile": False}


def changed_settings(
    saved: Mapping[str, Any],
    now: Mapping[str, Any],
    *,
    source: Path | str,
    free: Collection[str] = (),
) -> list[str]:
    """Names of the settings in which a run differs from its beginning, in order of the alphabet.

    Args:
        saved, now: plain values by name; None is as good as no entry.
        source: where the saved ones come from, for the message.
        free: names of settings that may differ.
    Raises:
        ValueError: another setting differs.
    """
    saved, now = LEFT_OUT | dict(saved), LEFT_OUT | dict(now)
    differ = [n for n in sorted(saved.keys() | now.keys()) if saved.get(n) != now.get(n)]
    for name in differ:
        if name not in free:
            got = f"got {name} = {now.get(name)!r}, saved with {saved.get(name)!r}"
            hint = "resume with the same, or begin in another folder"
            raise ValueError(f"expected the settings that {source} was saved with, {got}: {hint}")
    return differ


def read_run(path: Path | str) -> dict[str, Any]:
    """The checkpoint of a run.

    Raises:
        ValueError: it is damaged, or something else.
    """
    state = checkpoints.read(path)
    wanted = {"settings", "model", "optimiser", "random", "step", "tokens"}
    if missing := sorted(wanted - state.keys() - state.get("history", {}).keys()):
        hint = "is it of version 0.1, or was another file renamed?"
        raise ValueError(f"expected the checkpoint of a run in {path}, got no {missing}: {hint}")
    return state


def load_best(model: nn.Module, folder: Path | str) -> int:
    """Give a model the weights of a run's least validation loss; after how many steps they were.

    Raises:
        FileNotFoundError: there are none. ValueError: they are of another model, or damaged.
    """
    path = Path(folder) / "best.pt"
    state = checkpoints.read(path)
    if "model" not in state:
        raise ValueError(f"expected the best weights of a run in {path}: was another file renamed?")
    checkpoints.restore(model, state["model"], source=path)
    return state["step"]
