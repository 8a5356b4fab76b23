"""How are the parameters of a model found from data? By one loop, for every model of the book.

    loss   = nats / tokens of one batch, divided once
    g      = d loss / d theta, scaled down to the norm `clip` where it is longer
    theta  = optimiser(theta, g)                                 AdamW unless told otherwise

`fit` is the loop for a chapter's minute; `gpt/training` takes the same steps for longer runs. A
batch's sum may be taken in parts, by several processes even:

    d loss / d theta = sum over parts of d (nats of the part / tokens of the WHOLE batch) / d theta

The model maps inputs to logits (B, T, V), and knows of none of this. What a batch is, is told in
`likelihood/batches`. Any other loss is a function `nats_of`: its sum over a batch, which the loop
divides by the number of the batch's targets. Parameters with requires_grad=False stay as they are.

Source: Loshchilov and Hutter 2019 (AdamW); Pascanu et al. 2013 (clipping).
Derived in the chapters `likelihood/gradient_descent`, `likelihood/overfitting` (keep_best) and
`gpt/optimisation`.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW, Optimizer

from ..tools.parallel import ALONE, Team
from ..tools.progress import progress as progress_bar
from .batches import Batch, LazyBatch
from .maximum_likelihood import negative_log_likelihood
from .models import device_of, evaluating

After = Callable[[int, nn.Module], None]
NatsOf = Callable[[nn.Module, Batch], Tensor]


@dataclass
class History:
    """What happened on the way, in nats per token.

    Attributes:
        losses: the loss of each step's batch, *before* that step changed the parameters.
        norms: the norm of each step's gradient, before it was clipped.
        validation: {steps done: loss on the validation batches}; 0 is before the first step.
        tokens: how many were learnt from.
    """

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    validation: dict[int, float] = field(default_factory=dict)
    tokens: int = 0

    @property
    def best_step(self) -> int:
        """After how many steps the validation loss was least, the first of them in a tie.

        Raises:
            ValueError: there was no validation.
        """
        if not self.validation:
            raise ValueError("expected a history with validation losses: pass validation= to fit")
        return min(self.validation, key=self.validation.__getitem__)


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
    after: After | None = None,
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
        after: called as after(step, model) when a step has been taken and validated; step 0 is
            before the first. An error raised there stops the run.
        progress: whether to show a bar.
    Raises:
        ValueError: a setting is out of range, or the data run out.
        FloatingPointError: the loss, or the gradient's norm, is no longer finite.
    """
    _check_settings(steps, learning_rate, clip, every, validation, keep_best)
    history, best, supply = History(), None, _endless(data)

    class InMemory:
        def keep(self, step: int, history: History) -> None:
            nonlocal best
            if keep_best and step in history.validation and history.best_step == step:
                best = {name: value.clone() for name, value in model.state_dict().items()}

    def validate(step: int) -> float | None:
        if validation is None or (step % every and step != steps):
            return None
        return mean_loss(model, validation, nats_of=nats_of)

    numbers = range(steps + 1)  # 0: before the first step
    take_steps(
        model,
        lambda step: next(supply),
        optimiser(model.parameters(), lr=learning_rate, weight_decay=weight_decay),
        history,
        watched(numbers, history) if progress else numbers,
        rate=lambda step: learning_rate * (schedule(step) if schedule else 1.0),
        clip=math.inf if clip is None else clip,
        nats_of=nats_of,
        validate=validate,
        keepers=[InMemory()],
        after=after,
    )
    if best is not None:
        model.load_state_dict(best)
    return history


# ---- the loop ------------------------------------------------------------------------------------


class Keeper(Protocol):
    """What keeps something of a run: its weights, its state, its log."""

    def keep(self, step: int, history: History) -> None:
        """Keep what is due after a step."""


def take_steps(
    model: nn.Module,
    supply: Callable[[int], Batch | LazyBatch],
    optimiser: Optimizer,
    history: History,
    steps: Iterable[int],
    *,
    rate: Callable[[int], float],
    clip: float,
    parts: int = 1,
    team: Team = ALONE,
    averaged: bool = False,
    nats_of: NatsOf | None = None,
    validate: Callable[[int], float | None],
    keepers: Sequence[Keeper] = (),
    after: After | None = None,
) -> None:
    """Take the steps, one after the other, and write down what happened: the loop itself.

    What learns without gradients has a method `end_step(add_up)`, as the shifts of `Experts` have.

    Args:
        supply: the batch of a step. rate: its learning rate.
        steps: which; step 0 comes before the first, and is only validated and kept.
        parts, team, averaged, nats_of: as of `backward`.
        validate: the loss on the validation batches after a step; None: not now.
        keepers: told of each step that is done: checkpoints, a log.
        after: called with the number of each step that is done, and the model.
    Raises:
        FloatingPointError: the loss or the gradient's norm is not finite; nothing was changed.
    """
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    endings = [e for part in model.modules() if (e := getattr(part, "end_step", None))]
    for step in steps:
        if step > 0:
            batch = supply(step)
            optimiser.zero_grad()
            loss = backward(
                model, batch, optimiser, parts=parts, team=team, averaged=averaged, nats_of=nats_of
            )
            norm = _whole(nn.utils.clip_grad_norm_(parameters, clip)).item()
            _check_finite(step, loss, norm, rate(step))
            for group in optimiser.param_groups:
                group["lr"] = rate(step)
            optimiser.step()
            for end_step in endings:
                end_step(team.add_up)
            history.losses.append(loss)
            history.norms.append(norm)
            history.tokens += count_tokens(batch)
        if (validation_loss := validate(step)) is not None:
            history.validation[step] = validation_loss
        for keeper in keepers:
            keeper.keep(step, history)
        if after:
            after(step, model)


def backward(
    model: nn.Module,
    batch: Batch | LazyBatch,
    optimiser: Optimizer,
    *,
    parts: int = 1,
    team: Team = ALONE,
    averaged: bool = False,
    nats_of: NatsOf | None = None,
) -> float:
    """Forward, loss and backward: add the gradient of a batch's loss to the parameters' `grad`.

    Args:
        optimiser: whose parameters have their gradients added up over the processes.
        parts: in how many parts this process takes its share of the batch.
        averaged: whether an engine of torch averages the gradients over the processes meanwhile
            (`gpt/many_cores`); then they are not added up here.
        nats_of: the nats of a batch; None: `nats_of_batch`.
    Returns:
        The loss, nats per token.
    """
    model.train()
    tokens = count_tokens(batch)  # of the whole batch, before it is shared out
    losses = []
    mine = _split(batch, parts * team.size)[team.rank :: team.size]
    for number, part in enumerate(mine, start=1):
        own = part.read() if isinstance(part, LazyBatch) else part
        waits = isinstance(model, DistributedDataParallel) and number < parts
        with cast(DistributedDataParallel, model).no_sync() if waits else nullcontext():
            loss = (nats_of or nats_of_batch)(model, own) / tokens
            (loss * team.size if averaged else loss).backward()  # adds to the gradients there are
        losses.append(loss.detach())
    loss = torch.stack(losses).sum()
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    gradients = [p.grad for p in parameters if p.grad is not None]
    team.add_up([loss] if averaged else [loss, *gradients])
    return loss.item()


def _whole(tensor: Tensor) -> Tensor:
    """A tensor that processes may have shared out, in each of them.

    It is told by its method: its class takes half a second to import.
    """
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def watched(steps: range, history: History) -> Iterator[int]:
    """The steps behind a bar that says loss and speed."""
    started, before = time.perf_counter(), history.tokens

    def status() -> str:
        tokens = history.tokens - before
        speed = tokens / (time.perf_counter() - started)
        return f"loss {history.losses[-1]:.3f}, {speed:,.0f} tokens/s" if tokens else ""

    return progress_bar(steps, "training", status=status)


# ---- losses --------------------------------------------------------------------------------------


def mean_loss(model: nn.Module, data: Iterable[Batch], *, nats_of: NatsOf | None = None) -> float:
    """The loss over all tokens of some batches, in nats per token: summed, and divided once.

    Dropout and its like are switched off meanwhile.

    Args:
        nats_of: another loss, as in `fit`.
    Raises:
        ValueError: there are no batches.
    """
    return team_mean_loss(model, data, nats_of=nats_of or nats_of_batch, team=ALONE)


def team_mean_loss(
    model: nn.Module, data: Iterable[Batch], *, nats_of: NatsOf, team: Team
) -> float:
    """The loss of some batches, shared out between processes."""
    mine = islice(data, team.rank, None, team.size)
    with evaluating(model):
        scored = [(float(nats_of(model, batch)), count_tokens(batch)) for batch in mine]
    scored = [each for share in team.gather(scored) for each in share]
    if not scored:
        raise ValueError("expected at least one batch to take the loss of, got none")
    return sum(nats for nats, _ in scored) / sum(tokens for _, tokens in scored)


def nats_of_batch(model: nn.Module, batch: Batch) -> Tensor:
    """The surprise of all real tokens of a batch, summed, on the model's device."""
    inputs, targets, mask = _to_device(batch, device_of(model))
    return negative_log_likelihood(_precise(model(*inputs)), targets, mask=mask)[0]


def fused_nats_of_batch(model: nn.Module, batch: Batch) -> Tensor:
    """The same, unchecked: without a look at the ids it can be compiled in one piece."""
    inputs, targets, mask = _to_device(batch, device_of(model))
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
    moved = [None if part is None else _moved(part, device) for part in (*inputs, targets, *mask)]
    return tuple(moved[: len(inputs)]), moved[len(inputs)], moved[-1] if mask else None


def _moved(part: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; to a GPU it is copied while the processor goes on."""
    if device.type == "cuda" and part.device.type == "cpu":
        return part.pin_memory().to(device, non_blocking=True)
    return part.to(device)


# ---- batches -------------------------------------------------------------------------------------


def count_tokens(batch: Batch | LazyBatch) -> int:
    """The real tokens of a batch."""
    if isinstance(batch, LazyBatch):
        return batch.tokens
    _, targets, *mask = batch
    tokens = int(mask[0].sum()) if mask else targets.numel()
    if tokens == 0:
        raise ValueError("expected at least one real token, got only padding or nothing")
    return tokens


def _split(batch: Batch | LazyBatch, parts: int) -> Sequence[Batch | LazyBatch]:
    """A batch as several of nearly equally many rows; each may be padding alone."""
    if parts == 1:
        return [batch]
    rows = len(batch.starts if isinstance(batch, LazyBatch) else batch[1])
    if rows < parts:
        raise ValueError(
            f"expected batches of at least {parts} rows, one for each part (accumulation times "
            f"processes), got {rows}"
        )
    if isinstance(batch, LazyBatch):
        return batch.split(parts)
    inputs, *rest = batch
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
                "be gone through again, or an iterator without end, such as Batches(…)"
            )


# ---- checks --------------------------------------------------------------------------------------


def check_validation(validation: Sequence[Batch] | None) -> None:
    """Refuse batches that can be gone through only once."""
    if isinstance(validation, Iterator):
        raise ValueError(
            "expected a list of validation batches, scored many times, got an iterator, which can "
            "be used up only once: pass list(islice(it, n))"
        )


def _check_settings(
    steps: int,
    learning_rate: float,
    clip: float | None,
    every: int,
    validation: Sequence[Batch] | None,
    keep_best: bool,
) -> None:
    if steps < 0 or every < 1:
        raise ValueError(f"expected steps >= 0 and every >= 1, got steps={steps}, every={every}")
    if not learning_rate >= 0 or (clip is not None and not clip > 0):
        raise ValueError(
            f"expected a learning rate >= 0 and a clip above 0 (None: no clipping), got "
            f"learning_rate={learning_rate} and clip={clip}"
        )
    check_validation(validation)
    if keep_best and validation is None:
        raise ValueError("expected validation batches to tell the best parameters by, got None")


def _check_finite(step: int, loss: float, norm: float, rate: float) -> None:
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise FloatingPointError(
            f"expected a finite loss and gradient, got a loss of {loss} and a gradient of norm "
            f"{norm} at step {step} (learning rate {rate:g}). Try a tenth of the learning rate, or "
            "clip=1.0; at step 1 look for an infinite or NaN value in the model or its inputs"
        )
