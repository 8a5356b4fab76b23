"""How does a run outlive a power cut, and come out the same to the bit?

    batch n         = a function of the seed and of n, and of nothing before it
    the next step   = a function of the checkpoint

`train` takes the steps of `likelihood/fitting`. Its settings are a value, its batches are numbered,
and everything that the next step depends on is in the checkpoint. Several processes may share each
batch.

Derived in the chapter `gpt/training`.
"""

import math
from collections.abc import Sequence, Sized
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from ..likelihood.batches import Batch, Numbered
from ..likelihood.fitting import (
    After,
    History,
    NatsOf,
    check_validation,
    fused_nats_of_batch,
    nats_of_batch,
    take_steps,
    team_mean_loss,
    training_step,
)
from ..likelihood.models import device_of
from ..tools import checkpoints, parallel
from ..tools.parallel import Team
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
        accumulation: in how many parts each process takes its share of a batch: more parts, less
            memory, the same step.
        precision: "float32", or "bfloat16" for the products of matrices (torch's autocast). The
            parameters, their sums and the loss keep their type.
        compile: whether torch.compile turns model and loss into one program first; a minute's wait.
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
    compile: bool = False
    every: int = 100
    save_every: int = 100

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            number = kind is float and type(value) is int  # 1 for 1.0
            if type(value) is not kind and not number:
                raise TypeError(f"expected {name} of type {kind.__name__}, got {value!r}")
        rules = {
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
            "precision": (self.precision in _PRECISIONS, f"one of {[*_PRECISIONS]}"),
            "every": (self.every >= 1, "1 or more"),
            "save_every": (self.save_every >= 1, "1 or more"),
        }
        for name, (holds, expected) in rules.items():
            if not holds:
                raise ValueError(f"expected {name} {expected}, got {getattr(self, name)!r}")


_PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


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
) -> History:
    """Train a model in place, in a way that survives interruption; return the losses on the way.

    With a folder, `last.pt` holds the whole state of the run every so often, and `best.pt` the
    weights of the least validation loss. Resumed on a CPU, the run ends in the same bits as one
    that was never interrupted. Inside `parallel.joined()`, all processes call this alike: each
    batch is shared out between them by rows, and the first process writes. They must all see the
    same folder, on several machines a shared file system: each looks for itself whether there is a
    checkpoint, and if only some find one, they fail, or wait for each other for ever.

    Args:
        model: maps inputs, (B, T), to logits, (B, T, V); on the device where it is to be trained.
        data: `data[n]` is the batch of step n + 1: `Batches`, or a list, gone through in circles.
        config: the settings.
        validation: batches that are scored but never trained on.
        folder: where checkpoints go, the same for all processes; None: nowhere.
        resume: go on from the folder's checkpoint if there is one; otherwise one is an error.
        after: called as after(step, model) when a step has been taken, validated and, where it is
            due, saved; step 0 is before the first. An error raised there stops the run. What it
            draws should come from a generator of its own, or a resumed run draws otherwise.
        progress: whether to show a bar.
    Raises:
        TypeError: data are an iterator, in which there is no going back to a place.
        ValueError: model, data or settings are not those of the checkpoint, which is named; or the
            checkpoint is damaged.
        FileExistsError: the folder holds a run already.
        FloatingPointError: the loss, the gradient or a parameter is no longer finite; the message
            names the step and the last good checkpoint.
    """
    _check_numbered(data, validation)
    team, device = parallel.team(), device_of(model)
    optimiser = _adamw(model, config, device)
    history, done, run = History(), -1, None
    if folder is not None:
        run = _Run(Path(folder), model, optimiser, _settings(model, data, config, team), team)
        if run.last.exists():
            run.check_wanted(resume)
            done = run.load(history)
        team.wait()  # nobody writes before all have looked
    if done < 0:
        team.share(model)
        if team.rank:  # each process drops other units
            torch.manual_seed(torch.initial_seed() + team.rank)

    def keep(step: int, model: nn.Module) -> None:
        if run and step in history.validation and history.best_step == step:
            run.save_best(step, history)
        if run and (step % config.save_every == 0 or step == config.steps):
            run.save(step, history)
        if after:
            after(step, model)

    def in_precision(nats_of: NatsOf) -> NatsOf:
        def nats(model: nn.Module, batch: Batch) -> Tensor:
            # Anew for each part: inside, torch keeps the parameters' short copies, changed or not.
            with torch.autocast(device.type, torch.bfloat16, enabled=config.precision != "float32"):
                return nats_of(model, batch)

        return nats

    rise_and_fall = cosine(config.steps, warm_up=config.warm_up, end=config.end)
    try:
        take_steps(
            model,
            lambda step: data[(step - 1) % len(data) if isinstance(data, Sized) else step - 1],
            optimiser,
            history,
            range(done + 1, config.steps + 1),
            rate=lambda step: config.learning_rate * rise_and_fall(step),
            take=partial(
                training_step,
                clip=config.clip,
                parts=config.accumulation,
                team=team,
                nats_of=in_precision(
                    torch.compile(fused_nats_of_batch) if config.compile else nats_of_batch
                ),
            ),
            score=partial(team_mean_loss, nats_of=in_precision(nats_of_batch), team=team),
            validation=validation,
            every=config.every,
            after=keep,
            progress=progress and team.rank == 0,
        )
    except FloatingPointError as error:
        where = run.hint() if run else "There is no checkpoint, for there is no folder"
        raise FloatingPointError(f"{error}. {where}") from None
    return history


def load_best(model: nn.Module, folder: Path | str) -> int:
    """Give a model the weights of a run's least validation loss; after how many steps they were.

    Raises:
        FileNotFoundError: there are none. ValueError: they are of another model, or damaged.
    """
    path = Path(folder) / "best.pt"
    state = checkpoints.read(path)
    checkpoints.restore(model, state["model"], source=path)
    return state["step"]


@dataclass
class _Run:
    """A run and its folder: what is written there, and read again."""

    folder: Path
    model: nn.Module
    optimiser: Optimizer
    settings: dict[str, Any]
    team: Team
    saved: int | None = None

    def __post_init__(self) -> None:
        self.last, self.best = self.folder / "last.pt", self.folder / "best.pt"

    def save(self, step: int, history: History) -> None:
        if not all(p.isfinite().all() for p in self.model.parameters()):
            raise FloatingPointError(f"expected finite parameters after step {step}, got others")
        random_states = self.team.gather(checkpoints.random_state(self._device))
        self._write(
            self.last,
            settings=self.settings,
            step=step,  # the position in the schedule and in the data as well
            model=self.model.state_dict(),
            optimiser=self.optimiser.state_dict(),
            random=random_states,
            history=asdict(history),
        )
        self.saved = step

    def save_best(self, step: int, history: History) -> None:
        loss = history.validation[step]
        self._write(self.best, step=step, model=self.model.state_dict(), validation=loss)

    def load(self, history: History) -> int:
        """Put everything back to where it was; how many steps were done."""
        state = checkpoints.read(self.last)
        missing = {"settings", "step", "model", "optimiser", "random", "history"} - state.keys()
        if missing:
            raise ValueError(
                f"expected the checkpoint of a run in {self.last}, got one without "
                f"{sorted(missing)}: was another file renamed?"
            )
        checkpoints.check_same(state["settings"], self.settings, source=self.last)
        checkpoints.restore(self.model, state["model"], source=self.last)
        self.optimiser.load_state_dict(state["optimiser"])
        checkpoints.set_random_state(state["random"][self.team.rank], self._device)
        vars(history).update(state["history"])
        self.saved = state["step"]
        return self.saved

    def hint(self) -> str:
        if self.saved is None:
            return "There is no checkpoint yet"
        return f"The last good checkpoint is {self.last}, after {self.saved} steps"

    def check_wanted(self, resume: bool) -> None:
        if not resume:
            raise FileExistsError(
                f"expected a folder without a run, {self.last} exists: pass resume=True to go on "
                "with it, or choose another folder"
            )

    def _write(self, path: Path, **state: Any) -> None:
        if self.team.rank == 0:
            checkpoints.write(path, state)

    @property
    def _device(self) -> torch.device:
        return device_of(self.model)


def _settings(model: nn.Module, data: Numbered, config: TrainConfig, team: Team) -> dict[str, Any]:
    """All that a resumed run must have in common with the one before, by name."""
    own = getattr(model, "config", None)
    length = len(data) if isinstance(data, Sized) else None
    parts = {
        "": asdict(config) | {"processes": team.size},
        "data.": getattr(data, "settings", None) or {"batches": length},
        "model.": asdict(own) if is_dataclass(own) and not isinstance(own, type) else {},
        "parameters.": {"dtype": str(next(model.parameters()).dtype)},
    }
    plain = (bool, int, float, str, type(None))
    return {
        prefix + name: value if isinstance(value, plain) else repr(value)
        for prefix, part in parts.items()
        for name, value in part.items()
    }


def _adamw(model: nn.Module, config: TrainConfig, device: torch.device) -> AdamW:
    return AdamW(
        parameter_groups(model, weight_decay=config.weight_decay),
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=device.type in ("cpu", "cuda", "mps"),  # one kernel for all that a step does
    )


def _check_numbered(data: Numbered, validation: Sequence[Batch] | None) -> None:
    if not hasattr(data, "__getitem__"):
        raise TypeError(
            f"expected batches that can be asked for by number, got {type(data).__name__}: pass "
            "Batches(…) or a list; for an iterator there is fit"
        )
    if isinstance(data, Sized) and len(data) == 0:
        raise ValueError("expected at least one batch, got an empty list")
    check_validation(validation)
