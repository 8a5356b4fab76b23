"""How does a language model learn a task from few labels? One linear map more, and the same loop.

    h       = the last layer's state at the extract token                          (C,)
    L2      = -log p(label),   p = softmax(h W + b)                 nats per example
    L1      = mean over a sequence's tokens of -log p(token | before)   nats per token
    L       = L2 + lambda L1                                        lambda = 0.5
            = (1 + lambda) (alpha L2 + (1 - alpha) L1),             alpha = 1 / (1 + lambda)

    classification     [start] text [extract]
    entailment         [start] premise [delim] hypothesis [extract]
    similarity         [start] a [delim] b [extract]  and  [start] b [delim] a [extract]:  h1 + h2
    choice             [start] context [delim] choice [extract], one a choice: h w, softmax over all

New are the head, W and b, and the vectors of the three tokens. Nothing is frozen unless asked for.

Where paper and released code differ we follow the code: equation 3 of the paper sums log
probabilities, the code takes means, per token of each sequence and per example, and its 0.5 belongs
to means. Its L1 counts every token after the start, delimiter and extract too, as ours does: then
the model also learns where a text ends.

Axes: B examples, S sequences of an example, T positions, C channels, K labels, V vocabulary.
Source: Radford et al. 2018, sections 3.2, 3.3 and 4.1, and their released code.
Derived in the chapter `gpt/gpt1_finetuning`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW

from ..attention.heads import linear
from ..likelihood.fitting import After, History, fit
from ..likelihood.maximum_likelihood import token_log_probs
from ..likelihood.models import Network, evaluating
from ..texts.labelled import Example, Task
from ..tokens.bytes import Tokenizer
from .backbones import NEW_TOKENS, lowest_layers, with_new_tokens
from .input_forms import InputForms, Texts
from .optimisation import linear_decay, parameter_groups

TaskBatch = tuple[tuple[Tensor, Tensor], Tensor]  # (ids (B, S, T), lengths (B, S)), labels (B,)


# ---- model and loss ------------------------------------------------------------------------------


class TaskModel(nn.Module):
    """A language model with a linear head on the last state of the extract token.

    Args:
        backbone: with the new tokens.
        family: of the task.
        labels: K, how many; for choices, how many choices.
        dropout: share of the state's numbers that training sets to zero before the head, the same
            for all sequences of an example; drawn from torch's global generator.
        generator: draws the head, N(0, 0.02), as in the released code; its bias is 0.
    """

    def __init__(
        self,
        backbone: Network,
        family: str,
        labels: int,
        *,
        dropout: float = 0.1,
        generator: torch.Generator,
    ):
        super().__init__()
        self.backbone, self.family = backbone, family
        self.dropout = nn.Dropout(dropout)
        self.head = linear(
            backbone.channels, 1 if family == "choice" else labels, generator=generator
        )
        with torch.no_grad():
            self.head.weight.normal_(std=0.02, generator=generator)
        self.to(backbone.token_table)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The logits of the labels, (B, K), from ids, (B, S, T), and lengths, (B, S)."""
        return self.classify(self.states(ids, lengths), lengths)

    def states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The last layer's states, (B, S, T, C), from ids, (B, S, T), and lengths, (B, S).

        Of an encoder-decoder (B, S, 1, C), the decoder's before its first token. It and an encoder
        need the lengths: they would look at the padding.
        """
        rows = ids.flatten(0, 1)
        if self.backbone.causal:  # then no state looks at the padding
            states = self.backbone.states(rows)
        else:
            states = self.backbone.extracted(rows, lengths.flatten())  # type: ignore[attr-defined]
        return states.unflatten(0, ids.shape[:2])

    def classify(self, states: Tensor, lengths: Tensor) -> Tensor:
        """The logits of the labels, (B, K), from states, (B, S, T, C), and lengths, (B, S).

        The extract token is the last of its sequence; padding comes after it.
        """
        last = (lengths - 1).clamp(max=states.shape[-2] - 1)
        where = last[..., None, None].expand(-1, -1, 1, states.shape[-1])
        extracted = states.gather(2, where).squeeze(2)  # (B, S, T, C) -> (B, S, C)
        extracted = extracted * self.dropout(torch.ones_like(extracted[:, :1]))
        if self.family == "choice":
            return self.head(extracted).squeeze(-1)  # (B, S, 1) -> (B, K), for S = K
        return self.head(extracted.sum(1))  # both orders of a pair are added up


def loss_parts(
    model: TaskModel, batch: TaskBatch, *, language: bool = True
) -> tuple[Tensor, Tensor]:
    """L2 and L1 of each example, (B,) each: nats per example, and nats per token.

    L1 is the mean over the tokens of each sequence, start excepted, and then over the sequences.

    Args:
        model: with or without dropout, as its mode says.
        batch: on any device.
        language: whether L1 is wanted; otherwise it is 0.
    """
    device = model.head.weight.device
    (ids, lengths), labels = batch
    ids = ids[..., : int(lengths.max())]  # before they move: to look at a GPU's numbers is to wait
    ids, lengths, labels = ids.to(device), lengths.to(device), labels.to(device)
    states = model.states(ids, lengths)
    nats = functional.cross_entropy(model.classify(states, lengths), labels, reduction="none")
    if not language:
        return nats, torch.zeros_like(nats)
    targets = ids[..., 1:]
    real = torch.arange(ids.shape[-1] - 1, device=device) < lengths[..., None] - 1  # (B, S, T - 1)
    logits = model.backbone.unembed(states[..., :-1, :][real])  # (real tokens, V)
    surprise = torch.zeros_like(real, dtype=logits.dtype)
    surprise[real] = -token_log_probs(logits, targets[real])
    return nats, (surprise.sum(-1) / (lengths - 1)).mean(-1)


# ---- fine tuning ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class FinetuneConfig:
    """The settings of a fine-tuning, as plain values.

    For 117 million parameters the paper took a learning rate of 6.25e-5, batches of 32, 3 epochs,
    a warm-up of 0.2 % and a linear decay. A model of 64 channels wants some 1e-3.

    Attributes:
        steps: how many updates.
        learning_rate: the greatest.
        batch_size: examples in a batch.
        auxiliary: lambda, the weight of L1 in nats per token beside L2 in nats per example.
        frozen: k; the embeddings and the first k blocks stay as they are, but for the new tokens'
            vectors. With all blocks, so does what is above them: the head is a linear probe. 0:
            nothing is frozen, the embeddings neither.
        head_first: steps before these in which only the head and the new tokens learn.
        warm_up: the share of the steps in which the learning rate rises.
        weight_decay: of the matrices; see `optimisation.parameter_groups`.
        dropout: before the head; that of the backbone is its own.
        every: steps between two validations.
        seed: of the head and the new tokens, the order of the batches, and dropout.
    Raises:
        ValueError: auxiliary, weight_decay or warm_up is out of range; the other settings are
            refused by `finetune`.
    """

    steps: int = 300
    learning_rate: float = 1e-3
    batch_size: int = 32
    auxiliary: float = 0.5
    frozen: int = 0
    head_first: int = 0
    warm_up: float = 0.002
    weight_decay: float = 0.01
    dropout: float = 0.1
    every: int = 25
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.auxiliary >= 0 and self.weight_decay >= 0 and 0 <= self.warm_up < 1):
            raise ValueError(f"expected auxiliary, weight_decay >= 0, 0 <= warm_up < 1, got {self}")

    @property
    def alpha(self) -> float:
        """The share of L2 in the convex form of the loss: alpha L2 + (1 - alpha) L1."""
        return 1 / (1 + self.auxiliary)


@dataclass(frozen=True)
class Tuned:
    """A fine-tuned model with all that is needed to use it.

    Attributes:
        model: in evaluation mode.
        forms: how its texts become tensors.
        history: of the training loss, L2 + lambda L1, and of the validation loss, L2 alone.
    """

    model: TaskModel
    forms: InputForms
    history: History


def finetune(
    backbone: Network,
    tokenizer: Tokenizer,
    task: Task,
    config: FinetuneConfig | None = None,
    *,
    cut: bool = False,
    after: After | None = None,
    progress: bool = True,
) -> Tuned:
    """Teach a copy of a language model a task; keep the parameters of the least validation loss.

    The validation loss is L2 alone, whatever lambda is: the labels are what the model is for. If
    the head learns first, the rest goes on from the best that it came to.

    Args:
        backbone: pre-trained, or new; it is not changed.
        tokenizer: the one that it was trained with.
        task: with examples to train on and to validate with.
        config: the settings; None: the defaults.
        cut: whether texts that are too long are cut; see `InputForms`.
        after: called as after(step, model) with the `TaskModel`, as in `fit`; steps in which only
            the head learns are counted first.
        progress: whether to show a bar.
    Raises:
        ValueError: the tokenizer is of another size than the backbone, there is nothing to learn
            from or to validate with, a text is empty or too long, or a setting is out of range.
        FloatingPointError: the loss is no longer finite.
    """
    config = config or FinetuneConfig()
    size = backbone.vocabulary_size
    if tokenizer.vocabulary_size != size:
        got = tokenizer.vocabulary_size
        raise ValueError(f"expected the model's tokenizer, of {size} tokens, got one of {got}")
    if config.auxiliary and not backbone.causal:  # its states have seen the next token
        raise ValueError(f"expected auxiliary=0 for an {backbone.kind}, got {config.auxiliary}")
    forms = InputForms(task.family, task.labels, tokenizer, backbone.context_length, cut)
    training, validation = _batch(task.train, forms), _batch(task.validation, forms)
    generator = torch.Generator().manual_seed(config.seed)
    model = TaskModel(
        with_new_tokens(backbone, generator=generator),
        task.family,
        len(task.labels),
        dropout=config.dropout,
        generator=generator,
    )
    validation_batches = list(_chunks(validation, torch.arange(len(validation[1])), _SCORED))
    history, all_layers = History(), len(backbone.layers()) - 2
    stages = [(config.head_first, all_layers)] if config.head_first else []
    for steps, frozen in [*stages, (config.steps, config.frozen)]:
        done = len(history.losses)
        with _frozen(model, frozen), _seeded(config.seed, model.head.weight.device):
            more = fit(
                model,
                _shuffled(training, config.batch_size, generator),
                steps=steps,
                learning_rate=config.learning_rate,
                schedule=linear_decay(steps, warm_up=int(config.warm_up * steps)),
                weight_decay=config.weight_decay,
                optimiser=partial(_adamw, model),
                validation=validation_batches,
                every=config.every,
                keep_best=True,
                nats_of=partial(_joint_nats, auxiliary=config.auxiliary),
                after=_counting_on(after, done),
                progress=progress,
            )
        history.losses += more.losses
        history.norms += more.norms
        history.validation |= {done + step: loss for step, loss in more.validation.items()}
    return Tuned(model.eval(), forms, history)


def _joint_nats(model: TaskModel, batch: TaskBatch, *, auxiliary: float) -> Tensor:
    """The loss of a batch, summed over its examples: L2 + lambda L1 in training, else L2 alone."""
    wanted = auxiliary > 0 and model.training
    label_nats, token_nats = loss_parts(model, batch, language=wanted)
    return (label_nats + auxiliary * token_nats).sum()


def _adamw(model: TaskModel, _: object, *, lr: float, weight_decay: float) -> AdamW:
    return AdamW(parameter_groups(model, weight_decay=weight_decay), lr=lr)


@contextmanager
def _frozen(model: TaskModel, layers: int) -> Iterator[None]:
    """Inside the block, embeddings and lowest layers are not trained, but for the new tokens' rows.

    These stay rows of the one table, as in the model that will be used, and the gradient of the
    others is made zero. Adam then leaves those as they are, to the bit, and no decay touches them.
    """
    backbone, table = model.backbone, model.backbone.token_table
    names = lowest_layers(backbone, layers) if layers else []
    frozen = [p for name, p in backbone.named_parameters() if name in names and p is not table]
    for parameter in frozen:
        parameter.requires_grad_(False)
    old = torch.arange(len(table), device=table.device) < len(table) - NEW_TOKENS
    hook = table.register_hook(lambda g: g.masked_fill(old[:, None], 0.0) if layers else g)
    yield
    hook.remove()
    for parameter in frozen:
        parameter.requires_grad_(True)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Inside the block, what dropout draws depends on the seed; outside, nothing has changed."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _shuffled(data: TaskBatch, batch_size: int, generator: torch.Generator) -> Iterator[TaskBatch]:
    """Batches without end: epoch after epoch, each in an order of its own."""
    while True:
        order = torch.randperm(len(data[1]), generator=generator)
        yield from _chunks(data, order, batch_size)


def _chunks(data: TaskBatch, order: Tensor, size: int) -> Iterator[TaskBatch]:
    (ids, lengths), labels = data
    for rows in order.split(size):
        yield (ids[rows], lengths[rows]), labels[rows]


def _counting_on(after: After | None, done: int) -> After | None:
    """The same hook in a second run, which begins after so many steps."""
    if after is None or not done:
        return after
    return lambda step, model: after(done + step, model) if step else None


def _batch(examples: Sequence[Example], forms: InputForms) -> TaskBatch:
    """All examples as one batch."""
    labels = [example.label for example in examples]
    if not {*labels} <= {*range(len(forms.labels))}:
        raise ValueError(f"expected labels from 0 to {len(forms.labels) - 1}, got {[*{*labels}]}")
    return forms.tensors([example.texts for example in examples]), torch.tensor(labels)


# ---- use -----------------------------------------------------------------------------------------


_SCORED = 64  # examples scored at a time


def predict(tuned: Tuned, examples: Sequence[Texts]) -> Tensor:
    """The probability of each label, (N, K), from the texts of N examples; on the CPU.

    Raises:
        ValueError: as `InputForms.tensors`.
    """
    model = tuned.model
    device, (ids, lengths) = model.head.weight.device, tuned.forms.tensors(examples)
    with evaluating(model):
        logits = [
            model(some[..., : int(long.max())].to(device), long.to(device))
            for some, long in zip(ids.split(_SCORED), lengths.split(_SCORED), strict=True)
        ]
    return torch.cat(logits).softmax(-1).cpu()


def accuracy(tuned: Tuned, examples: Sequence[Example]) -> float:
    """The share of examples whose likeliest label is the right one.

    Raises:
        ValueError: as `finetune`.
    """
    _, labels = _batch(examples, tuned.forms)
    guesses = predict(tuned, [example.texts for example in examples]).argmax(-1)
    return float((guesses == labels).double().mean())
