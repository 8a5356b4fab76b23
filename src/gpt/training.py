"""How does a run outlive a power cut, and come out the same to the bit?

    batch n         = a function of the seed and of n, and of nothing before it
    the next step   = a function of the checkpoint

`train` takes the steps of `likelihood/fitting`. Its settings are a value, its batches are numbered,
and everything that the next step depends on is in the checkpoint. Several processes may share each
batch.

Derived in the chapter `gpt/training`.
"""

import math
from collections.abc import Callable, Sequence, Sized
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from ..likelihood.batches import Batch, Batches, LazyBatch, Numbered
from ..likelihood.fitting import (
    After,
    History,
    Keeper,
    NatsOf,
    check_validation,
    fused_nats_of_batch,
    nats_of_batch,
    take_steps,
    team_mean_loss,
    watched,
)
from ..likelihood.models import device_of
from ..tools import checkpoints, parallel
from ..tools.files import locked
from ..tools.parallel import ALONE, ENGINES, Team, local
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
        engine: who adds up the gradients of several processes: "sum", this loop; "ddp", torch,
            while they are being computed; "fsdp", torch, and each process holds a share of the
            model only (`many_cores`).
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
    engine: str = "sum"
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
            "engine": (self.engine in ("sum", *ENGINES), f"one of {['sum', *ENGINES]}"),
            "every": (self.every >= 1, "1 or more"),
            "save_every": (self.save_every >= 1, "1 or more"),
        }
        for name, (holds, expected) in rules.items():
            if not holds:
                raise ValueError(f"expected {name} {expected}, got {getattr(self, name)!r}")

    def rate(self, step: int) -> float:
        """The learning rate of a step, 1 or more."""
        factor = cosine(self.steps, warm_up=self.warm_up, end=self.end)
        return self.learning_rate * factor(step)


# What may be changed when a run is resumed, and what that does to its numbers.
CHANGEABLE = {
    "steps": "the learning rate follows the new schedule from here on",
    "data.batch_size": "the next batches have other rows than they would have had",
    "precision": "products of matrices are rounded in another way from here on",
    "accumulation": "sums are taken in another order, which changes the last bits",
    "compile": "sums are taken in another order, which changes the last bits",
    "engine": "sums are taken in another order, which changes the last bits",
    "processes": "sums are taken in another order, and other units are dropped",
    "threads": "sums are taken in another order, which changes the last bits",
    "every": "other steps are validated, no other number changes",
    "save_every": "no number changes",
}

# Settings of version 0.2 that have gone. A run that had another value than this is refused.
GONE = {"sharded": False}

_PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def train(
    model: nn.Module,
    data: Numbered,
    config: TrainConfig,
    *,
    validation: Sequence[Batch] | None = None,
    folder: Path | str | None = None,
    resume: bool = False,
    changed: Callable[[str], None] | None = None,
    after: After | None = None,
    keepers: Sequence[Keeper] = (),
    progress: bool = True,
) -> History:
    """Train a model in place, in a way that survives interruption; return the losses on the way.

    With a folder, `last.pt` holds the whole state of the run every so often, and `best.pt` the
    weights of the least validation loss. Resumed on a CPU, the run ends in the same bits as one
    that was never interrupted. Inside `parallel.joined()`, all processes call this alike: each
    batch is shared out between them by rows, and the first process writes. They must all see the
    same folder, on several machines a shared file system; that is checked first.

    Args:
        model: maps inputs, (B, T), to logits, (B, T, V); on the device where it is to be trained.
        data: `data[n]` is the batch of step n + 1: `Batches`, or a list, gone through in circles.
        config: the settings.
        validation: batches that are scored but never trained on.
        folder: where checkpoints go, the same for all processes; None: nowhere.
        resume: go on from the folder's checkpoint if there is one; otherwise one is an error.
        changed: called, when a run is resumed, with a sentence for each setting that is another now
            and may be (`CHANGEABLE`): longer, in other batches, in another precision; it says what
            that does to the numbers. None: every change is an error, for only a run with the same
            settings ends in the same bits.
        after: called as after(step, model) when a step has been taken, validated and, where it is
            due, saved; step 0 is before the first. An error raised there stops the run. What it
            draws should come from a generator of its own, or a resumed run draws otherwise.
        keepers: told of each step when it has been validated and saved, as a `RunLog` wants to be;
            by the first process only.
        progress: whether to show a bar.
    Raises:
        TypeError: data are an iterator, in which there is no going back to a place.
        ValueError: model, data or settings are not those of the checkpoint, which is named; or the
            checkpoint is damaged; or not all processes see the same folder.
        FileExistsError: the folder holds a run already.
        FileNotFoundError: the folder holds a run whose last checkpoint has gone.
        BlockingIOError: another process trains in the folder.
        OSError: the disk is full; the last checkpoint is whole.
        FloatingPointError: the loss, the gradient or a parameter is no longer finite; the message
            names the step and the last good checkpoint.
    """
    _check_numbered(data, validation)
    team, device = parallel.team(), device_of(model)
    averaged = config.engine != "sum" and team.size > 1
    team.share(model)
    run_model = _engines().shared(model, config.engine, team) if averaged else model
    optimiser = _adamw(model, config, device)
    history, done, run = History(), -1, None
    if folder is not None:
        team.check_shared(folder)
        settings = _settings(model, data, config, team)
        run = _Run(Path(folder), model, optimiser, config, settings, team, averaged)
        if run.last.exists():
            if not resume:
                raise FileExistsError(
                    f"expected a folder without a run, {run.last} exists: pass resume=True to go "
                    "on with it, or choose another folder"
                )
            done = run.load(history, changed)
        else:
            check_last(Path(folder))
        team.wait()  # nobody writes before all have looked
    if done < 0 and team.rank:  # each process drops other units
        torch.manual_seed(torch.initial_seed() + team.rank)

    def in_precision(nats_of: NatsOf) -> NatsOf:
        def nats(model: nn.Module, batch: Batch) -> Tensor:
            # Anew for each part: inside, torch keeps the parameters' short copies, changed or not.
            with torch.autocast(device.type, torch.bfloat16, enabled=config.precision != "float32"):
                return nats_of(model, batch)

        return nats

    scored = in_precision(nats_of_batch)
    trained = in_precision(torch.compile(fused_nats_of_batch)) if config.compile else scored

    def validate(step: int) -> float | None:
        if validation is None or (step % config.every and step != config.steps):
            return None
        # A shared model is gathered block by block: there all have to score the same batches.
        scorers = ALONE if averaged and config.engine == "fsdp" else team
        return team_mean_loss(model, validation, nats_of=scored, team=scorers)

    steps = range(done + 1, config.steps + 1)
    try:
        with locked(None if team.rank else folder):
            take_steps(
                run_model,
                lambda step: _batch(data, step - 1),
                optimiser,
                history,
                watched(steps, history) if progress and team.rank == 0 else steps,
                rate=config.rate,
                clip=config.clip,
                parts=config.accumulation,
                team=team,
                averaged=averaged,
                nats_of=trained,
                validate=validate,
                keepers=[*([run] if run else []), *(() if team.rank else keepers)],
                after=after,
            )
    except FloatingPointError as error:
        where = run.hint() if run else "There is no checkpoint, for there is no folder"
        raise FloatingPointError(f"{error}. {where}") from None
    return history


def check_last(folder: Path, *, logged: bool = False) -> None:
    """Refuse to begin again over a run whose last checkpoint has gone.

    A run that was killed before its first checkpoint may begin again: it has no log, and weights of
    step 0 at most.

    Args:
        logged: whether there is a log.
    Raises:
        FileNotFoundError: there are later weights or a log, and no `last.pt`.
    """
    last, best = folder / "last.pt", folder / "best.pt"
    if not last.exists() and (logged or (best.exists() and checkpoints.read(best).get("step"))):
        raise FileNotFoundError(
            f"expected {last} to go on from, found a run without it: put it back, or begin a new "
            f"run in another folder with --init-from {folder}, which takes the best weights"
        )


def load_best(model: nn.Module, folder: Path | str) -> int:
    """Give a model the weights of a run's least validation loss; after how many steps they were.

    Raises:
        FileNotFoundError: there are none. ValueError: they are of another model, or damaged.
    """
    path = Path(folder) / "best.pt"
    state = checkpoints.read(path)
    if missing := {"step", "model"} - state.keys():
        raise ValueError(
            f"expected the best weights of a run in {path}, got no {', '.join(sorted(missing))}: "
            "was another file renamed?"
        )
    checkpoints.restore(model, state["model"], source=path)
    return state["step"]


@dataclass
class _Run:
    """A run and its folder: what is written there, and read again."""

    folder: Path
    model: nn.Module
    optimiser: Optimizer
    config: TrainConfig
    settings: dict[str, Any]
    team: Team
    averaged: bool  # by an engine of torch's, which may hold a share of the model only
    saved: int | None = None
    lost: bool = False  # the best weights of a run that is resumed: then the next will have to do

    def __post_init__(self) -> None:
        self.last, self.best = self.folder / "last.pt", self.folder / "best.pt"

    def keep(self, step: int, history: History) -> None:
        """Write the best weights if they are new, and the state of the run if it is due."""
        if step in history.validation and (history.best_step == step or self.lost):
            self.save_best(step, history)
            self.lost = False
        if step % self.config.save_every == 0 or step == self.config.steps:
            self.save(step, history)

    def save(self, step: int, history: History) -> None:
        finite = all(local(p).isfinite().all() for p in self.model.parameters())
        if not all(self.team.gather(bool(finite))):
            raise FloatingPointError(f"expected finite parameters after step {step}, got others")
        weights, optimiser = self._whole_state()
        self._write(
            self.last,
            settings=self.settings,
            step=step,  # the position in the schedule and in the data as well
            random=self.team.gather(checkpoints.random_state(device_of(self.model))),
            history=asdict(history),
            model=weights,
            optimiser=optimiser,
        )
        self.saved = step

    def save_best(self, step: int, history: History) -> None:
        loss = history.validation[step]
        weights, _ = self._whole_state()
        self._write(self.best, step=step, model=weights, validation=loss)

    def load(self, history: History, changed: Callable[[str], None] | None = None) -> int:
        """Put everything back to where it was; how many steps were done."""
        state = checkpoints.read(self.last)
        known = state.keys() | state.get("history", {}).keys()
        missing = {"settings", "step", "model", "optimiser", "random", "history", "tokens"} - known
        if missing:
            raise ValueError(
                f"expected the checkpoint of a run in {self.last}, got one without "
                f"{sorted(missing)}: is it of version 0.1, or was another file renamed?"
            )
        saved, free = GONE | state["settings"], CHANGEABLE if changed else ()
        differ = checkpoints.check_same(saved, GONE | self.settings, source=self.last, free=free)
        if self.config.steps < state["step"]:
            raise ValueError(
                f"expected steps of at least {state['step']}, which {self.last} has taken already, "
                f"got {self.config.steps}"
            )
        checkpoints.check_fits(self.model, state["model"], source=self.last)
        _engines().spread_state(self.model, self.optimiser, state["model"], state["optimiser"])
        self._set_random_state(state["random"])
        vars(history).update(state["history"])
        self.saved, self.lost = state["step"], not self.best.exists()
        if changed and self.team.rank == 0:
            for name in differ:
                changed(
                    f"{name} = {self.settings[name]!r} after step {self.saved}, "
                    f"{saved.get(name)!r} before: {CHANGEABLE[name]}"
                )
        return self.saved

    def _whole_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The state dicts of model and optimiser, as one process alone has them."""
        if self.averaged:
            return _engines().gathered_state(self.model, self.optimiser)
        return self.model.state_dict(), self.optimiser.state_dict()

    def _set_random_state(self, states: list[dict[str, Any]]) -> None:
        """That of this process; where there were fewer, one that is drawn from another's."""
        rank, known = self.team.rank, len(states)
        checkpoints.set_random_state(states[rank % known], device_of(self.model))
        if rank >= known:
            torch.manual_seed(int(torch.randint(2**62, ())) + rank)

    def hint(self) -> str:
        if self.saved is None:
            return "There is no checkpoint yet"
        return f"The last good checkpoint is {self.last}, after {self.saved} steps"

    def _write(self, path: Path, **state: Any) -> None:
        if self.team.rank == 0:
            checkpoints.write(path, state)


def _engines() -> ModuleType:
    """Imported where it is needed: torch's engines take a second."""
    from . import many_cores

    return many_cores


def _settings(model: nn.Module, data: Numbered, config: TrainConfig, team: Team) -> dict[str, Any]:
    """All that a resumed run must have in common with the one before, by name."""
    own = getattr(model, "config", None)
    length = len(data) if isinstance(data, Sized) else None
    of_model = asdict(own) if is_dataclass(own) and not isinstance(own, type) else {}
    parts = {
        "": asdict(config) | {"processes": team.size, "threads": torch.get_num_threads()},
        "data.": getattr(data, "settings", None) or {"batches": length},
        "model.": getattr(own, "settings", None) or of_model,
        "parameters.": {"dtype": str(next(model.parameters()).dtype)},
    }
    plain = (bool, int, float, str, type(None))
    return {
        prefix + name: value if isinstance(value, plain) else repr(value)
        for prefix, part in parts.items()
        for name, value in part.items()
    }


def _batch(data: Numbered, number: int) -> Batch | LazyBatch:
    """The batch of that number: of a list, gone through in circles; unread, if it can be so."""
    if isinstance(data, Batches):
        return data.lazy(number)
    return data[number % len(data) if isinstance(data, Sized) else number]


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
