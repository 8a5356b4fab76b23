"""How are the parameters of a model found from data? By one loop, for every model of the book.

    loss   = nats / tokens of one batch, divided once
    g      = d loss / d theta, scaled down to the norm `clip` where it is longer
    theta  = optimiser(theta, g)                                 AdamW unless told otherwise

Gradient descent, SGD and mini-batches are one loop with different data: all examples each time,
one, or some. A batch is (inputs, targets) or (inputs, targets, mask), each (B, T); the mask is True
where a real token stands. The model maps inputs to logits (B, T, V), and knows of none of this. A
model of several inputs, such as source and target of a translation, gets a tuple of them.

Source: Loshchilov and Hutter 2019 (AdamW); Pascanu et al. 2013 (clipping).
Derived in the chapter `likelihood/neural`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from .likelihood import negative_log_likelihood
from .progress import progress as progress_bar

Inputs = Tensor | tuple[Tensor, ...]
Batch = tuple[Inputs, Tensor] | tuple[Inputs, Tensor, Tensor]


@dataclass
class History:
    """What happened on the way, in nats per token.

    Attributes:
        losses: the loss of each step's batch, *before* that step changed the parameters.
        validation: {steps done: loss on the validation batches}; 0 is before the first step.
    """

    losses: list[float] = field(default_factory=list)
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
    return _random_pieces(ids, batch_size, context_length, generator)


def _random_pieces(ids, batch_size, context_length, generator):
    offsets = torch.arange(context_length + 1, device=ids.device)
    while True:
        starts = torch.randint(len(ids) - context_length, (batch_size, 1), generator=generator)
        pieces = ids[starts.to(ids.device) + offsets]  # (B, T + 1)
        yield pieces[:, :-1], pieces[:, 1:]


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
    progress: bool = True,
) -> History:
    """Train a model in place by maximum likelihood; return the losses on the way.

    Args:
        model: maps inputs, (B, T), to logits, (B, T, V); batches are moved to its device.
        data: the batches, one a step. A finite collection is gone through again and again, so
            `[everything]` is gradient descent, and a list of batches makes one epoch a pass.
        steps: how many updates.
        learning_rate: handed to the optimiser.
        schedule: by what the learning rate of a step (1, 2, … steps) is multiplied; None: by 1.
        weight_decay: handed to the optimiser; it shrinks every trained parameter.
        clip: greatest norm of the gradient of all parameters together; None: no limit.
        optimiser: called as optimiser(parameters, lr=…, weight_decay=…), like those of torch.optim.
        validation: batches that are scored but never trained on.
        every: steps between two validations; one comes before the first step, one after the last.
        keep_best: leave the model with the parameters of its least validation loss.
        progress: whether to show a bar.
    Raises:
        ValueError: a setting is out of range, or the data run out.
        FloatingPointError: the loss, or the gradient's norm, is no longer finite.
    """
    _check_settings(steps, learning_rate, clip, every, validation, keep_best)
    rule = optimiser(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
    history, best, supply = History(), None, _endless(data)
    counted = range(steps + 1)  # 0: before the first step
    for step in progress_bar(counted, "training") if progress else counted:
        if step:
            for group in rule.param_groups:
                group["lr"] = learning_rate * (schedule(step) if schedule else 1.0)
            history.losses.append(_training_step(model, next(supply), rule, step=step, clip=clip))
        if validation is not None and (step % every == 0 or step == steps):
            history.validation[step] = mean_loss(model, validation)
            if keep_best and history.best_step == step:
                best = {name: value.clone() for name, value in model.state_dict().items()}
    if best is not None:
        model.load_state_dict(best)
    return history


def cosine(steps: int, *, warm_up: int = 0, end: float = 0.0) -> Callable[[int], float]:
    """A schedule: a straight rise to 1 at step `warm_up`, then half a cosine down to `end`.

    It is never 0 at the first step, and is `end` at the last: cosine(4) gives 0.85, 0.5, 0.15, 0.

    Args:
        steps: how many there will be.
        warm_up: how many of them rise.
        end: the factor of the last step.
    Raises:
        ValueError: there is no step left to fall in.
    Source: Loshchilov and Hutter 2017.
    """
    if not 0 <= warm_up < steps:
        raise ValueError(f"expected a warm-up shorter than the {steps} steps, got {warm_up}")

    def factor(step: int) -> float:
        if step <= warm_up:
            return step / warm_up
        fallen = (step - warm_up) / (steps - warm_up)
        return end + (1 - end) * (1 + math.cos(math.pi * fallen)) / 2

    return factor


def _training_step(
    model: nn.Module, batch: Batch, optimiser: Optimizer, *, step: int, clip: float | None = None
) -> float:
    """Change the parameters by one step on one batch; return the loss before it, nats per token.

    Raises:
        FloatingPointError: the loss or the gradient's norm is not finite; nothing was changed.
    """
    model.train()
    nats, tokens = _surprise(model, batch)
    loss = nats / tokens
    optimiser.zero_grad()
    loss.backward()
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    norm = nn.utils.clip_grad_norm_(parameters, math.inf if clip is None else clip)
    _check_finite(step, loss.item(), norm.item(), optimiser)
    optimiser.step()
    return loss.item()


@torch.no_grad()
def mean_loss(model: nn.Module, data: Iterable[Batch]) -> float:
    """The loss over all tokens of some batches, in nats per token: summed, and divided once.

    Dropout and its like are switched off meanwhile.

    Raises:
        ValueError: there are no batches.
    """
    was_training = model.training
    model.eval()
    scored = [_surprise(model, batch) for batch in data]
    model.train(was_training)
    if not scored:
        raise ValueError("expected at least one batch to take the loss of, got none")
    return sum(float(nats) for nats, _ in scored) / sum(int(tokens) for _, tokens in scored)


def _surprise(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Nats and tokens of a batch, on the model's device."""
    device = next(model.parameters()).device
    inputs, *rest = batch
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    targets, *mask = (part.to(device) for part in rest)
    logits = model(*(part.to(device) for part in inputs))
    return negative_log_likelihood(logits, targets, mask=mask[0] if mask else None)


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


def _check_settings(steps, learning_rate, clip, every, validation, keep_best) -> None:
    if steps < 0 or every < 1:
        raise ValueError(f"expected steps >= 0 and every >= 1, got steps={steps}, every={every}")
    if not learning_rate >= 0 or (clip is not None and not clip > 0):
        raise ValueError(
            f"expected a learning rate >= 0 and a clip above 0 (None: no clipping), got "
            f"learning_rate={learning_rate} and clip={clip}"
        )
    if isinstance(validation, Iterator):
        raise ValueError(
            "expected a list of validation batches, scored many times, got an iterator, which can "
            "be used up only once: pass list(islice(it, n))"
        )
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
