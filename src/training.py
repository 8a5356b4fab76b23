"""How are the parameters of a model found from data? By one loop, for every model of the book.

    loss   = nats / tokens of one batch, divided once
    g      = d loss / d theta, scaled down to the norm `clip` where it is longer
    theta  = optimiser(theta, g)                                 AdamW unless told otherwise

`fit` is the loop for a chapter's minute. `train` is the same loop for runs that must outlive a
power cut: its settings are a value, its batches are numbered, and everything that the next step
depends on is in the checkpoint. A batch's sum may be taken in parts, by several processes even:

    d loss / d theta = sum over parts of d (nats of the part / tokens of the WHOLE batch) / d theta

A batch is (inputs, targets) or (inputs, targets, mask), each (B, T); the mask is True where a real
token stands. The model maps inputs to logits (B, T, V), and knows of none of this. A model of
several inputs, such as source and target of a translation, gets a tuple of them. Any other loss
is a function `nats_of`: its sum over a batch, which the loop divides by the number of the batch's
targets. Parameters with requires_grad=False stay as they are.

Source: Loshchilov and Hutter 2019 (AdamW); Pascanu et al. 2013 (clipping).
Derived in the chapters `likelihood/neural`, `gpt/optimisation` and `gpt/training`.
"""

import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW, Optimizer

from . import checkpoints, parallel
from .likelihood import negative_log_likelihood
from .parallel import ALONE, Team
from .progress import progress as progress_bar

Inputs = Tensor | tuple[Tensor, ...]
Batch = tuple[Inputs, Tensor] | tuple[Inputs, Tensor, Tensor]
NatsOf = Callable[[nn.Module, Batch], Tensor]


class Numbered(Protocol):
    """Batches that can be asked for by number: a list, or `Batches`."""

    def __getitem__(self, number: int) -> Batch: ...


@dataclass
class History:
    """What happened on the way, in nats per token.

    Attributes:
        losses: the loss of each step's batch, *before* that step changed the parameters.
        norms: the norm of each step's gradient, before it was clipped.
        validation: {steps done: loss on the validation batches}; 0 is before the first step.
    """

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    validation: dict[int, float] = field(default_factory=dict)

    @property
    def best_step(self) -> int:
        """After how many steps the validation loss was least, the first of them in a tie.

        Raises:
            ValueError: there was no validation.
        """
        if not self.validation:
            raise ValueError("expected a history with validation losses: pass validation= to fit")
        return min(self.validation, key=self.validation.get)


# ---- batches ---------------------------------------------------------------------------------


def batches(
    ids: Tensor, *, batch_size: int, context_length: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches without end of random pieces of a stream: (inputs, targets), each (B, T).

    Each piece begins anywhere, all beginnings equally likely; targets are inputs one token later.

    Args:
        ids: (N,); the stream, on the device where the batches are wanted.
        batch_size: B.
        context_length: T.
        generator: draws where the pieces begin; on the CPU, whatever the device of the ids.
    Raises:
        ValueError: a size is below 1, or the stream is too short for one piece.
    """
    _check_stream(ids, batch_size, context_length)

    def draw() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            starts = torch.randint(len(ids) - context_length, (batch_size,), generator=generator)
            yield _pieces(ids, starts, context_length)

    return draw()


class Batches:
    """The same, but numbered: batch n is a function of the seed and of n, and of nothing before it.

    So a run that begins again at step n + 1 needs to remember no more than n. Going through them
    never ends.

    Args:
        ids: (N,); the stream, on the device where the batches are wanted.
        batch_size: B, all processes and parts of a step together.
        context_length: T.
        seed: which sequence of batches.
        first: the token that every piece begins with, such as an end token, so that no document
            is seen without its beginning; None: pieces begin anywhere.
    Raises:
        ValueError: a size is below 1, the stream is too short for one piece, the seed negative, or
            no piece begins with the token.
    """

    def __init__(
        self,
        ids: Tensor,
        *,
        batch_size: int,
        context_length: int,
        seed: int = 0,
        first: int | None = None,
    ):
        _check_stream(ids, batch_size, context_length)
        if seed < 0:
            raise ValueError(f"expected a seed of 0 or more, got {seed}")
        self.ids, self.batch_size, self.context_length = ids, batch_size, context_length
        self.seed, self.first = seed, first
        last = len(ids) - context_length  # no piece begins here or after
        self._starts = np.arange(last)
        if first is not None:
            self._starts = (ids[:last] == first).nonzero()[:, 0].cpu().numpy()
        if not len(self._starts):
            raise ValueError(
                f"expected a piece of {context_length + 1} tokens that begins with token {first}, "
                "found none in the stream"
            )

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """Batch `number`, counted from 0: (inputs, targets), each (B, T)."""
        if number < 0:
            raise IndexError(f"expected a batch number of 0 or more, got {number}: there is no end")
        draw = np.random.default_rng([self.seed, number])  # made to mix a seed and a position
        starts = self._starts[draw.integers(len(self._starts), size=self.batch_size)]
        return _pieces(self.ids, torch.from_numpy(starts), self.context_length)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return map(self.__getitem__, count())

    @property
    def settings(self) -> dict[str, int]:
        """What tells these batches from others."""
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "context_length": self.context_length,
            "first": self.first,
            "tokens": len(self.ids),
            "checksum": zlib.crc32(self.ids.cpu().contiguous().numpy()),
        }


def _pieces(ids: Tensor, starts: Tensor, context_length: int) -> tuple[Tensor, Tensor]:
    offsets = torch.arange(context_length + 1, device=ids.device)
    pieces = ids[starts[:, None].to(ids.device) + offsets]  # (B, T + 1)
    return pieces[:, :-1], pieces[:, 1:]


# ---- fit: a chapter's minute -----------------------------------------------------------------


def fit(
    model: nn.Module,
    data: Iterable[Batch],
    *,
    steps: int,
    learning_rate: float,
    schedule: Callable[[int], float] | None = None,
    weight_decay: float = 0.0,
    clip: float | None = 1.0,
    optimiser: Callable[..., Optimizer] = AdamW,
    validation: Sequence[Batch] | None = None,
    every: int = 100,
    keep_best: bool = False,
    nats_of: NatsOf | None = None,
    progress: bool = True,
) -> History:
    """Train a model in place by maximum likelihood; return the losses on the way.

    Args:
        model: maps inputs, (B, T), to logits, (B, T, V); batches are moved to its device.
        data: the batches, one a step. A finite collection is gone through again and again, so
            `[everything]` makes every step see everything, and a list of batches makes one epoch a
            pass. (With `[everything]`, optimiser=torch.optim.SGD and clip=None it is plain gradient
            descent; with AdamW it is not.)
        steps: how many updates.
        learning_rate: handed to the optimiser.
        schedule: by what the learning rate of a step (1, 2, … steps) is multiplied; None: by 1.
        weight_decay: handed to the optimiser; it shrinks every trained parameter.
        clip: greatest norm of the gradient of all parameters together; None: no limit.
        optimiser: called as optimiser(parameters, lr=…, weight_decay=…), like those of torch.optim.
        validation: batches that are scored but never trained on.
        every: steps between two validations; one comes before the first step, one after the last.
        keep_best: leave the model with the parameters of its least validation loss.
        nats_of: called as nats_of(model, batch); the sum of the losses of a batch, which is divided
            by the number of its targets. Batches come as they are, on whatever device. Validation
            calls it, too, with the model in evaluation mode. None: the surprise of the targets.
        progress: whether to show a bar.
    Raises:
        ValueError: a setting is out of range, or the data run out.
        FloatingPointError: the loss, or the gradient's norm, is no longer finite.
    """
    _check_settings(steps, learning_rate, clip, every, validation, keep_best)
    history, best, supply = History(), None, _endless(data)

    def keep(step: int) -> None:
        nonlocal best
        if keep_best and step in history.validation and history.best_step == step:
            best = {name: value.clone() for name, value in model.state_dict().items()}

    _loop(
        model,
        lambda step: next(supply),
        optimiser(model.parameters(), lr=learning_rate, weight_decay=weight_decay),
        history,
        range(steps + 1),  # 0: before the first step
        rate=lambda step: learning_rate * (schedule(step) if schedule else 1.0),
        take=partial(_training_step, clip=math.inf if clip is None else clip, nats_of=nats_of),
        score=partial(mean_loss, nats_of=nats_of),
        validation=validation,
        every=every,
        after=keep,
        progress=progress,
    )
    if best is not None:
        model.load_state_dict(best)
    return history


def cosine(steps: int, *, warm_up: int = 0, end: float = 0.0) -> Callable[[int], float]:
    """A schedule: a straight rise to 1 at step `warm_up`, then half a cosine down to `end`.

    It is never 0 at the first step, and is `end` at the last: cosine(4) gives 0.85, 0.5, 0.15, 0.
    A step after the last has the factor of the last.

    Args:
        steps: how many there will be.
        warm_up: how many of them rise.
        end: the factor of the last step.
    Raises:
        ValueError: there is no step left to fall in.
    Source: Loshchilov and Hutter 2017.
    """
    _check_warm_up(steps, warm_up)

    def factor(step: int) -> float:
        if warm_up and step <= warm_up:
            return step / warm_up
        fallen = (min(step, steps) - warm_up) / (steps - warm_up)
        return end + (1 - end) * (1 + math.cos(math.pi * fallen)) / 2

    return factor


def linear_decay(steps: int, *, warm_up: int = 0) -> Callable[[int], float]:
    """A schedule: a straight rise to 1 at step `warm_up`, then a straight fall.

    The line would reach 0 one step after the last, so that no step is in vain: linear_decay(4)
    gives 0.8, 0.6, 0.4, 0.2. A step after the last has the factor of the last.

    Args:
        steps: how many there will be.
        warm_up: how many of them rise.
    Raises:
        ValueError: there is no step left to fall in.
    """
    _check_warm_up(steps, warm_up)

    def factor(step: int) -> float:
        if warm_up and step <= warm_up:
            return step / warm_up
        return (steps + 1 - min(step, steps)) / (steps + 1 - warm_up)

    return factor


# ---- train: the same loop, for long runs -----------------------------------------------------


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

    def __post_init__(self):
        for each in fields(self):
            value, kind = getattr(self, each.name), each.type
            number = kind is float and type(value) is int  # 1 for 1.0
            if type(value) is not kind and not number:
                raise TypeError(f"expected {each.name} of type {kind.__name__}, got {value!r}")
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


def parameter_groups(model: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """The parameters of a model in two groups for an optimiser: decayed, and not.

    Decayed are the matrices that multiply: parameters of two or more axes that are called `weight`,
    as torch's layers call theirs. Not decayed are

    - gains and biases: a gain belongs near 1, not 0, and there are too few of them to over-fit;
    - tables whose rows are looked up, embeddings and positions: a row that no batch asks for gets
      no gradient, but decay would shrink it at every step all the same. A table that is tied to
      the unembedding counts as a table.
    """
    tables = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        multiplies = parameter.ndim >= 2 and name.split(".")[-1].startswith("weight")
        (decayed if multiplies and id(parameter) not in tables else others).append(parameter)
    groups = ((decayed, weight_decay), (others, 0.0))
    return [{"params": members, "weight_decay": decay} for members, decay in groups if members]


def train(
    model: nn.Module,
    data: Numbered,
    config: TrainConfig,
    *,
    validation: Sequence[Batch] | None = None,
    folder: Path | str | None = None,
    resume: bool = False,
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
    team, device = parallel.team(), next(model.parameters()).device
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

    def keep(step: int) -> None:
        if run and step in history.validation and history.best_step == step:
            run.save_best(step, history)
        if run and (step % config.save_every == 0 or step == config.steps):
            run.save(step, history)

    def in_precision(nats_of: NatsOf) -> NatsOf:
        def nats(model: nn.Module, batch: Batch) -> Tensor:
            # Anew for each part: inside, torch keeps the parameters' short copies, changed or not.
            with torch.autocast(device.type, torch.bfloat16, enabled=config.precision != "float32"):
                return nats_of(model, batch)

        return nats

    rise_and_fall = cosine(config.steps, warm_up=config.warm_up, end=config.end)
    try:
        _loop(
            model,
            lambda step: data[(step - 1) % len(data) if hasattr(data, "__len__") else step - 1],
            optimiser,
            history,
            range(done + 1, config.steps + 1),
            rate=lambda step: config.learning_rate * rise_and_fall(step),
            take=partial(
                _training_step,
                clip=config.clip,
                parts=config.accumulation,
                team=team,
                nats_of=in_precision(torch.compile(_fused_nats) if config.compile else _nats),
            ),
            score=partial(_mean_loss, nats_of=in_precision(_nats), team=team),
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

    def __post_init__(self):
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

    def _write(self, path: Path, **state) -> None:
        if self.team.rank == 0:
            checkpoints.write(path, state)

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def _settings(model: nn.Module, data: Numbered, config: TrainConfig, team: Team) -> dict[str, Any]:
    """All that a resumed run must have in common with the one before, by name."""
    own = getattr(model, "config", None)
    parts = {
        "": asdict(config) | {"processes": team.size},
        "data.": data.settings if hasattr(data, "settings") else {"batches": len(data)},
        "model.": asdict(own) if is_dataclass(own) else {},
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


# ---- the loop --------------------------------------------------------------------------------


def _loop(
    model: nn.Module,
    supply: Callable[[int], Batch],
    optimiser: Optimizer,
    history: History,
    steps: range,
    *,
    rate: Callable[[int], float],
    take: Callable[..., tuple[float, float]],
    score: Callable[[nn.Module, Sequence[Batch]], float],
    validation: Sequence[Batch] | None,
    every: int,
    after: Callable[[int], None],
    progress: bool,
) -> None:
    """Take the steps, score the validation batches now and then, and write down what happened.

    Args:
        supply: the batch of a step. rate: its learning rate. take: takes it. score: the loss of the
            validation batches.
        steps: which; step 0 comes before the first, and only validates.
        after: called with the number of each step that is done.
    """
    started, tokens = time.perf_counter(), 0

    def status() -> str:
        speed = tokens / (time.perf_counter() - started)
        return f"loss {history.losses[-1]:.3f}, {speed:,.0f} tokens/s" if tokens else ""

    for step in progress_bar(steps, "training", status=status) if progress else steps:
        if step:
            for group in optimiser.param_groups:
                group["lr"] = rate(step)
            batch = supply(step)
            loss, norm = take(model, batch, optimiser, step=step)
            history.losses.append(loss)
            history.norms.append(norm)
            tokens += _count_tokens(batch)
        if validation is not None and (step % every == 0 or step == steps[-1]):
            history.validation[step] = score(model, validation)
        after(step)


def _training_step(
    model: nn.Module,
    batch: Batch,
    optimiser: Optimizer,
    *,
    step: int,
    clip: float = math.inf,
    parts: int = 1,
    team: Team = ALONE,
    nats_of: NatsOf | None = None,
) -> tuple[float, float]:
    """Change the parameters by one step on one batch.

    Args:
        parts: in how many parts this process takes its share of the batch.
        nats_of: the nats of a batch; None: `_nats`.
    Returns:
        The loss before the step, nats per token; the norm of the gradient, before clipping.
    Raises:
        FloatingPointError: the loss or the gradient's norm is not finite; nothing was changed.
    """
    model.train()
    tokens = _count_tokens(batch)  # of the whole batch, before it is shared out
    optimiser.zero_grad()
    losses = []
    for part in _split(batch, parts * team.size)[team.rank :: team.size]:
        loss = (nats_of or _nats)(model, part) / tokens
        loss.backward()  # adds to the gradients that are there
        losses.append(loss.detach())
    loss = torch.stack(losses).sum()
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    team.add_up([loss, *(p.grad for p in parameters if p.grad is not None)])
    norm = nn.utils.clip_grad_norm_(parameters, clip)
    loss, norm = loss.item(), norm.item()
    _check_finite(step, loss, norm, optimiser)
    optimiser.step()
    return loss, norm


def mean_loss(model: nn.Module, data: Iterable[Batch], *, nats_of: NatsOf | None = None) -> float:
    """The loss over all tokens of some batches, in nats per token: summed, and divided once.

    Dropout and its like are switched off meanwhile.

    Args:
        nats_of: another loss, as in `fit`.
    Raises:
        ValueError: there are no batches.
    """
    return _mean_loss(model, data, nats_of=nats_of or _nats, team=ALONE)


@torch.no_grad()
def _mean_loss(model: nn.Module, data: Iterable[Batch], *, nats_of: NatsOf, team: Team) -> float:
    was_training = model.training
    model.eval()
    mine = islice(data, team.rank, None, team.size)
    scored = [(float(nats_of(model, batch)), _count_tokens(batch)) for batch in mine]
    model.train(was_training)
    scored = [each for share in team.gather(scored) for each in share]
    if not scored:
        raise ValueError("expected at least one batch to take the loss of, got none")
    return sum(nats for nats, _ in scored) / sum(tokens for _, tokens in scored)


def _nats(model: nn.Module, batch: Batch) -> Tensor:
    """The surprise of all real tokens of a batch, summed, on the model's device."""
    inputs, targets, mask = _to_device(batch, next(model.parameters()).device)
    return negative_log_likelihood(_precise(model(*inputs)), targets, mask=mask)[0]


def _fused_nats(model: nn.Module, batch: Batch) -> Tensor:
    """The same, unchecked: without a look at the ids it can be compiled in one piece."""
    inputs, targets, mask = _to_device(batch, next(model.parameters()).device)
    if mask is not None:
        targets = targets.masked_fill(~mask, -100)
    logits = _precise(model(*inputs)).flatten(0, -2)  # (B, T, V) -> (B * T, V)
    return functional.cross_entropy(logits, targets.flatten(), ignore_index=-100, reduction="sum")


def _precise(logits: Tensor) -> Tensor:
    """Logits of 16 bits with 32: their exponentials are about to be added up."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def _to_device(batch: Batch, device: torch.device) -> tuple[tuple, Tensor, Tensor | None]:
    inputs, targets, *mask = batch
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    moved = [None if part is None else part.to(device) for part in (*inputs, targets, *mask)]
    return tuple(moved[: len(inputs)]), moved[len(inputs)], moved[-1] if mask else None


def _count_tokens(batch: Batch) -> int:
    """The real tokens of a batch."""
    _, targets, *mask = batch
    tokens = int(mask[0].sum()) if mask else targets.numel()
    if tokens == 0:
        raise ValueError("expected at least one real token, got only padding or nothing")
    return tokens


def _split(batch: Batch, parts: int) -> list[Batch]:
    """A batch as several of nearly equally many rows; each may be padding alone."""
    if parts == 1:
        return [batch]
    inputs, *rest = batch
    if len(rest[0]) < parts:
        raise ValueError(
            f"expected batches of at least {parts} rows, one for each part (accumulation times "
            f"processes), got {len(rest[0])}"
        )
    several = inputs if isinstance(inputs, tuple) else (inputs,)
    columns = [part.tensor_split(parts) for part in (*several, *rest)]
    n = len(several)
    return [
        (row[:n] if isinstance(inputs, tuple) else row[0], *row[n:])
        for row in zip(*columns, strict=True)
    ]


def _endless(data: Iterable[Batch]) -> Iterator[Batch]:
    """The batches, from the beginning again whenever they have come to an end."""
    count = 0
    while True:
        before = count
        for batch in data:
            count += 1
            yield batch
        if count == before:
            raise ValueError(
                f"expected a batch for every step, got only {count} in all: pass a list, which can "
                "be gone through again, or an iterator without end, such as batches(…)"
            )


# ---- checks ----------------------------------------------------------------------------------


def _check_stream(ids: Tensor, batch_size: int, context_length: int) -> None:
    if batch_size < 1 or context_length < 1:
        raise ValueError(
            f"expected at least one piece of at least one token, got batch_size={batch_size} and "
            f"context_length={context_length}"
        )
    if ids.ndim != 1 or len(ids) <= context_length:
        raise ValueError(
            f"expected a stream of at least {context_length + 1} tokens (context_length inputs and "
            f"the target of the last), got ids of shape {tuple(ids.shape)}"
        )


def _check_numbered(data: Numbered, validation: Sequence[Batch] | None) -> None:
    if not hasattr(data, "__getitem__"):
        raise TypeError(
            f"expected batches that can be asked for by number, got {type(data).__name__}: pass "
            "Batches(…) or a list; for an iterator there is fit"
        )
    if hasattr(data, "__len__") and len(data) == 0:
        raise ValueError("expected at least one batch, got an empty list")
    _check_validation(validation)


def _check_validation(validation: Sequence[Batch] | None) -> None:
    if isinstance(validation, Iterator):
        raise ValueError(
            "expected a list of validation batches, scored many times, got an iterator, which can "
            "be used up only once: pass list(islice(it, n))"
        )


def _check_warm_up(steps: int, warm_up: int) -> None:
    if not 0 <= warm_up < steps:
        raise ValueError(f"expected a warm-up shorter than the {steps} steps, got {warm_up}")


def _check_settings(steps, learning_rate, clip, every, validation, keep_best) -> None:
    if steps < 0 or every < 1:
        raise ValueError(f"expected steps >= 0 and every >= 1, got steps={steps}, every={every}")
    if not learning_rate >= 0 or (clip is not None and not clip > 0):
        raise ValueError(
            f"expected a learning rate >= 0 and a clip above 0 (None: no clipping), got "
            f"learning_rate={learning_rate} and clip={clip}"
        )
    _check_validation(validation)
    if keep_best and validation is None:
        raise ValueError("expected validation batches to tell the best parameters by, got None")


def _check_finite(step: int, loss: float, norm: float, optimiser: Optimizer) -> None:
    if not (math.isfinite(loss) and math.isfinite(norm)):
        rate = optimiser.param_groups[0]["lr"]
        raise FloatingPointError(
            f"expected a finite loss and gradient, got a loss of {loss} and a gradient of norm "
            f"{norm} at step {step} (learning rate {rate:g}). Try a tenth of the learning rate, or "
            "clip=1.0; at step 1 look for an infinite or NaN value in the model or its inputs"
        )
