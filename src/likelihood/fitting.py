"""How are the parameters of a model found from data? By one loop, for every model of the book.

    loss   = nats / tokens of one batch, divided once
    g      = d loss / d theta, scaled down to the norm `clip` where it is longer
    theta  = optimiser(theta, g)                                 AdamW unless told otherwise

`fit` is that loop, from top to bottom; `gpt/training` takes the same steps, and survives a power
cut. The model maps inputs to logits (B, T, V), and knows of none of this. What a batch is, is told
in `likelihood/batches`. Any other loss is a function `nats_of`: its sum over a batch, which the
loop divides by the number of the batch's targets. Parameters with requires_grad=False stay as they
are.

Source: Loshchilov and Hutter 2019 (AdamW); Pascanu et al. 2013 (clipping).
Derived in the chapters `likelihood/gradient_descent`, `likelihood/overfitting` (keep_best) and
`gpt/optimisation`.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from ..tools.progress import progress as progress_bar
from .batches import Batch
from .maximum_likelihood import negative_log_likelihood
from .models import device_of, endings, evaluating

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

    def add(self, batch: Batch, loss: float, norm: float) -> None:
        """Write down a step."""
        self.losses.append(loss)
        self.norms.append(norm)
        self.tokens += count_tokens(batch)

    @property
    def best_step(self) -> int:
        """After how many steps the validation loss was least, the first of them in a tie."""
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
        ValueError: a setting is out of range, or the data or the validation batches run out.
        FloatingPointError: the loss, or the gradient's norm, is no longer finite.
    """
    possible = steps >= 0 and every > 0 and (clip is None or clip > 0)
    if not possible or (keep_best and validation is None):
        expected = "steps >= 0, every and clip > 0, validation= for keep_best"
        raise ValueError(f"expected {expected}, got {steps=}, {every=}, {clip=} and {keep_best=}")
    update = optimiser(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
    # What the optimiser moves.
    trained = [p for group in update.param_groups for p in group["params"]]
    nats_of = nats_of or nats_of_batch
    history, batches, best = History(), _endless(data), None
    numbers = range(steps + 1)  # step 0 learns nothing: it only validates
    for step in watched(numbers, history) if progress else numbers:
        if step > 0:
            batch = next(batches)
            rate = learning_rate * (schedule(step) if schedule else 1.0)
            model.train()
            update.zero_grad()
            loss = nats_of(model, batch) / count_tokens(batch)
            loss.backward()
            # inf: the norm is only measured
            norm = nn.utils.clip_grad_norm_(trained, math.inf if clip is None else clip)
            check_finite(step, loss.item(), norm.item(), rate)
            for group in update.param_groups:
                group["lr"] = rate
            update.step()
            for end_step in endings(model):  # such as the shifts of experts
                end_step()
            history.add(batch, loss.item(), norm.item())
        if validation is not None and (step % every == 0 or step == steps):
            history.validation[step] = mean_loss(model, validation, nats_of=nats_of)
            if keep_best and history.best_step == step:  # the least so far
                best = {name: value.clone() for name, value in model.state_dict().items()}
        if after:
            after(step, model)
    if best is not None:
        model.load_state_dict(best)
    return history


def check_finite(step: int, loss: float, norm: float, rate: float) -> None:
    """Raise a FloatingPointError if a step would spoil the parameters."""
    if not (math.isfinite(loss) and math.isfinite(norm)):
        got = f"a loss of {loss} and a norm of {norm} at step {step} (learning rate {rate:g})"
        raise FloatingPointError(f"expected finite numbers, got {got}; lower the rate, or clip=1.0")


def _endless(data: Iterable[Batch]) -> Iterator[Batch]:
    """The batches, from the beginning again whenever they have come to an end."""
    count = 0
    while True:
        before = count
        for batch in data:
            count += 1
            yield batch
        if count == before:
            raise ValueError(f"expected a batch for every step, got only {count}: pass a list")


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
    nats_of = nats_of or nats_of_batch
    with evaluating(model):
        scored = [(float(nats_of(model, batch)), count_tokens(batch)) for batch in data]
    if not scored:
        raise ValueError("expected at least one batch, got none; was an iterator used up?")
    return sum(nats for nats, _ in scored) / sum(tokens for _, tokens in scored)


def nats_of_batch(model: nn.Module, batch: Batch) -> Tensor:
    """The surprise of all real tokens of a batch, summed, on the model's device."""
    inputs, targets, mask = to_device(batch, device_of(model))
    logits = model(*inputs)
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()  # their exponentials are about to be added up
    return negative_log_likelihood(logits, targets, mask=mask)[0]


def to_device(batch: Batch, device: torch.device) -> tuple[tuple, Tensor, Tensor | None]:
    """(inputs, targets, mask) of a batch, on a device."""
    inputs, targets, *mask = batch
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    moved = [part.to(device, non_blocking=True) for part in (*inputs, targets, *mask)]
    return tuple(moved[: len(inputs)]), moved[len(inputs)], moved[-1] if mask else None


def count_tokens(batch: Batch) -> int:
    """The real tokens of a batch."""
    _, targets, *mask = batch
    return int(mask[0].sum()) if mask else targets.numel()
