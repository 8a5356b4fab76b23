"""What does a run of the command need around the loop of `src.gpt.training`?

    many processes    each takes a share of the batch, and they add up:
                      sum over the batch = sum over processes of (sum over its share)
    engines           who adds up: "sum", all gradients at once after the backward pass; "ddp" and
                      "fsdp", torch, meanwhile (`src.gpt.many_cores`)
    compile           model and loss as one program
    changes           a run that is resumed may go on in other ways, and says so
    a lock            one run in a folder

The loop is the same: a `Together` is its `Learner`. Nothing but sums is exchanged in a step. The
first process writes, and the checkpoint is that of one process alone.

Used by `runs` and `adapters`, and so by the command line.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from src.gpt import training
from src.gpt.training import TrainConfig, changed_settings, in_parts, read_run
from src.likelihood.batches import Batch, Numbered
from src.likelihood.fitting import After, History, count_tokens, nats_of_batch, to_device
from src.likelihood.models import device_of, endings, evaluating
from src.tools import checkpoints

from .processes import Team, locked, team
from .run_log import RunLog

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
ENGINES = ("sum", "ddp", "fsdp")


@dataclass(frozen=True)
class RunTraining(TrainConfig):
    """The settings of a run's training; batches are those of all processes together.

    Attributes:
        engine: who adds up the gradients of several processes: "sum", "ddp", or "fsdp", with which
            each process holds a share of the model only.
        compile: whether torch.compile turns model and loss into one program first; a minute's wait.
    Raises:
        ValueError: a value is out of range. TypeError: it is of another type.
    """

    engine: str = "sum"
    compile: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine not in ENGINES:
            raise ValueError(f"expected engine one of {[*ENGINES]}, got {self.engine!r}")


def train(
    model: nn.Module,
    data: Numbered,
    config: RunTraining,
    *,
    folder: Path | str,
    validation: Sequence[Batch] | None = None,
    resume: bool = False,
    changed: Callable[[str], None] | None = None,
    after: After | None = None,
    log: RunLog | None = None,
    progress: bool = True,
) -> History:
    """Train a model in place, in all processes that have joined; return the losses on the way.

    All processes call this alike. They must all see the same folder, on several machines a shared
    file system; that is checked first.

    Args:
        model, data, config, validation, folder, resume, after, progress: as of
            `src.gpt.training.train`.
        changed: called, when a run is resumed, with a sentence for each setting that is another now
            and may be (`CHANGEABLE`): longer, in other batches, in another precision; it says what
            that does to the numbers. None: every change is an error, for only a run with the same
            settings ends in the same bits.
        log: told of each step when it has been validated and saved, in the first process.
    Raises:
        ValueError: not all processes see the same folder; and as `src.gpt.training.train`.
        BlockingIOError: another process trains in the folder.
    """
    together, folder = team(), Path(folder)
    together.check_shared(folder)
    learner = Together(model, config, together, changed)

    def kept(step: int, model: nn.Module) -> None:
        if log and together.rank == 0:
            log.keep(step, learner.history)
        if after:
            after(step, model)

    with locked(None if together.rank else folder):
        return training.train(
            model,
            data,
            config,
            validation=validation,
            folder=folder,
            resume=resume,
            after=kept,
            progress=progress and together.rank == 0,
            learner=learner,
        )


class Together(training.Learner):
    """A `Learner` that shares each batch out between processes, by rows.

    Args:
        model: every process passes one; the parameters of the first count.
        config: the settings.
        together: the processes.
        changed: as of `train`.
    """

    def __init__(
        self,
        model: nn.Module,
        config: RunTraining,
        together: Team,
        changed: Callable[[str], None] | None = None,
    ):
        self.team, self.changed = together, changed
        self.averaged = config.engine != "sum" and together.size > 1  # by an engine of torch's
        self.whole = not (self.averaged and config.engine == "fsdp")
        together.share(model)
        self.run = model
        if self.averaged:
            from src.gpt import many_cores  # torch's engines take a second to import

            self.run = many_cores.shared(model, config.engine, together)
        self.nats_of = torch.compile(fused_nats_of_batch) if config.compile else nats_of_batch
        super().__init__(model, config)
        if together.rank:  # each process drops other units
            torch.manual_seed(torch.initial_seed() + together.rank)

    def backward(self, batch: Batch) -> float:
        """Add the gradient of a batch's loss to the parameters' `grad`, in all processes."""
        self.run.train()
        tokens, losses = count_tokens(batch), []
        size, parts = self.team.size, self.config.accumulation
        for number, part in enumerate(in_parts(batch, parts * size)[self.team.rank :: size], 1):
            waits = isinstance(self.run, DistributedDataParallel) and number < parts
            with cast(DistributedDataParallel, self.run).no_sync() if waits else nullcontext():
                loss = self.nats(self.run, part, self.nats_of) / tokens
                (loss * size if self.averaged else loss).backward()
            losses.append(loss.detach())
        total = torch.stack(losses).sum()
        gradients = [p.grad for p in self.trained if p.grad is not None]
        self.team.add_up([total] if self.averaged else [total, *gradients])
        return total.item()

    def clip(self) -> float:
        """The norm of the whole gradient, of which a process may hold a share."""
        norm: Any = nn.utils.clip_grad_norm_(self.trained, self.config.clip)
        return (norm if self.whole else norm.full_tensor()).item()

    def end_step(self) -> None:
        """Shifts of `Experts` move by the load of the whole batch."""
        for end_step in endings(self.model):
            end_step(self.team.add_up)

    def mean_loss(self, batches: Sequence[Batch]) -> float:
        """The loss over all tokens of some batches, shared out between the processes.

        A shared model is gathered block by block: there all have to score the same batches.
        """
        scorers = self.team if self.whole else Team()
        with evaluating(self.model):
            mine = [
                (float(self.nats(self.model, batch)), count_tokens(batch))
                for batch in batches[scorers.rank :: scorers.size]
            ]
        scored = [each for share in scorers.gather(mine) for each in share]
        return sum(nats for nats, _ in scored) / sum(tokens for _, tokens in scored)

    def settings(self, data: Numbered) -> dict[str, Any]:
        """Those of one process, and how many there are."""
        return super().settings(data) | {"processes": self.team.size}

    def state(self) -> dict[str, Any]:
        """That of one process alone, but the generators of all."""
        own = [p if self.whole else cast(Any, p).to_local() for p in self.trained]
        if not all(self.team.gather(all(bool(p.isfinite().all()) for p in own))):
            raise FloatingPointError("expected finite parameters to save, got others")
        if self.averaged:
            from . import shared_states  # torch's engines take a second to import

            weights, optimiser = shared_states.gathered(self.model, self.optimiser)
        else:
            weights, optimiser = self.model.state_dict(), self.optimiser.state_dict()
        random = self.team.gather(checkpoints.random_state(self.device))
        return {"model": weights, "optimiser": optimiser, "random": random}

    def load(self, path: Path, settings: Mapping[str, Any]) -> int:
        """Go on from a checkpoint, in other ways if that is allowed; say which."""
        state, free = read_run(path), CHANGEABLE if self.changed else ()
        saved, step = state["settings"], state["step"]
        differ = changed_settings(saved, settings, source=path, free=free)
        if self.config.steps < step:
            raise ValueError(f"expected steps of at least {step}, as many as {path} has taken")
        if self.averaged:
            from . import shared_states

            checkpoints.check_fits(self.model, state["model"], source=path)
            shared_states.spread(self.model, self.optimiser, state["model"], state["optimiser"])
        else:
            checkpoints.restore(self.model, state["model"], source=path)
            self.optimiser.load_state_dict(state["optimiser"])
        vars(self.history).update(state["history"])
        states, rank = state["random"], self.team.rank
        checkpoints.set_random_state(states[rank % len(states)], self.device)
        if rank >= len(states):  # there were fewer processes
            torch.manual_seed(int(torch.randint(2**62, ())) + rank)
        if self.changed and rank == 0:
            for name in differ:
                self.changed(
                    f"{name} = {settings.get(name)!r} after step {step}, {saved.get(name)!r} "
                    f"before: {CHANGEABLE[name]}"
                )
        return step

    def write(self, path: Path, state: Mapping[str, Any]) -> None:
        """Write a checkpoint, in the first process."""
        if self.team.rank == 0:
            super().write(path, state)


def fused_nats_of_batch(model: nn.Module, batch: Batch) -> Tensor:
    """`nats_of_batch`, unchecked: without a look at the ids it can be compiled in one piece."""
    inputs, targets, mask = to_device(batch, device_of(model))
    if mask is not None:
        targets = targets.masked_fill(~mask, -100)
    logits = model(*inputs).flatten(0, -2)  # (B, T, V) -> (B * T, V)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(logits, targets.flatten(), ignore_index=-100, reduction="sum")


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
            f"expected {last} to go on from: put it back, or begin anew with --init-from {folder}"
        )
