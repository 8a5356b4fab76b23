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

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW

from . import checkpoints, tokenization
from .attention import linear
from .baselines import LSTM, RNN
from .encoders import EncoderDecoderLM, EncoderLM
from .files import replacing, write_text
from .gpt import GPT, GPTConfig
from .likelihood import token_log_probs
from .tasks import FAMILIES, Example, Task
from .tokenization import Tokenizer
from .training import History, fit, linear_decay, parameter_groups
from .transformer import Decoder, Encoder

START, DELIM, EXTRACT = range(3)  # after the V tokens of the vocabulary: V, V + 1, V + 2
NEW_TOKENS = 3

Backbone = GPT | RNN | LSTM | EncoderLM | EncoderDecoderLM
Texts = tuple[str, ...]
TaskBatch = tuple[tuple[Tensor, Tensor], Tensor]  # (ids (B, S, T), lengths (B, S)), labels (B,)


# ---- input forms -----------------------------------------------------------------------------


def sequences(
    family: str, texts: Sequence[Sequence[int]], *, vocabulary_size: int
) -> list[list[int]]:
    """What the model reads of one example: one sequence, both orders, or one for each choice.

    >>> sequences("similarity", [[5, 6], [7]], vocabulary_size=10)
    [[10, 5, 6, 11, 7, 12], [10, 7, 11, 5, 6, 12]]

    Args:
        family: of the task.
        texts: the ids of each text: text | premise, hypothesis | first, second | context, choices.
        vocabulary_size: V; the new tokens come after it.
    Raises:
        ValueError: another family, or not as many texts as it has.
    """
    start, delim, extract = (vocabulary_size + token for token in (START, DELIM, EXTRACT))
    _check_family(family)
    _check_count(family, len(texts))
    if family == "classification":
        return [[start, *texts[0], extract]]
    first, *others = texts
    pairs = [(first, other) for other in others]
    if family == "similarity":
        pairs.append((others[0], first))
    return [[start, *one, delim, *two, extract] for one, two in pairs]


@dataclass(frozen=True)
class InputForms:
    """How the texts of a task become tensors.

    Texts that are too long together are cut on request only, at their ends, as in the released
    code: the longer one until they fit or both have half of the room, which does not depend on
    their order. Of several choices the longest decides, so that all share one context.

    Attributes:
        family: one of `tasks.FAMILIES`.
        labels: their names.
        tokenizer: makes ids of texts.
        context_length: the longest sequence, new tokens included; None: no limit.
        cut: whether texts that are too long are cut.
    Raises:
        ValueError: another family, or fewer than two labels.
    """

    family: str
    labels: tuple[str, ...]
    tokenizer: Tokenizer
    context_length: int | None = None
    cut: bool = False

    def __post_init__(self):
        _check_family(self.family)
        if len(self.labels) < 2:
            raise ValueError(f"expected at least two labels to tell apart, got {self.labels!r}")

    def tensors(self, examples: Sequence[Texts]) -> tuple[Tensor, Tensor]:
        """Ids, (N, S, T), filled up on the right, and lengths, (N, S), from the texts of examples.

        Raises:
            ValueError: no examples, a text without tokens, texts that are not as many as the family
                has, or too long.
            TypeError: an example is not a tuple of texts.
        """
        if not examples:
            raise ValueError("expected at least one example, got none")
        encoded = [self._encoded(number, texts) for number, texts in enumerate(examples)]
        encoded = self._within_context(encoded)
        size = self.tokenizer.vocab_size
        rows = [sequences(self.family, texts, vocabulary_size=size) for texts in encoded]
        lengths = torch.tensor([[len(one) for one in row] for row in rows])
        # Any id fills up, for no position looks to its right. But an LSTM may set itself back at
        # end tokens, and would do so at each of these: so the start token.
        ids = torch.full((*lengths.shape, int(lengths.max())), size + START)
        for row, of_row in zip(ids, rows, strict=True):
            for sequence, one in zip(row, of_row, strict=True):
                sequence[: len(one)] = torch.tensor(one)
        return ids, lengths

    def _encoded(self, number: int, texts: Texts) -> list[list[int]]:
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"expected a tuple of texts as example {number}, got {texts!r}")
        choices = len(self.labels) if self.family == "choice" else None
        _check_count(self.family, len(texts), choices=choices, where=f" in example {number}")
        encoded = [self.tokenizer.encode(text) for text in texts]
        for text, ids in zip(texts, encoded, strict=True):
            if not ids:
                raise ValueError(
                    f"expected texts of at least one token, got {text!r} in example {number}"
                )
        return encoded

    def _within_context(self, encoded: list[list[list[int]]]) -> list[list[list[int]]]:
        if self.context_length is None:
            return encoded
        room = self.context_length - (2 if self.family == "classification" else 3)
        if room < (1 if self.family == "classification" else 2):
            raise ValueError(f"expected a longer context than {self.context_length} tokens")
        surplus = [_longest(texts) - room for texts in encoded]
        if max(surplus) <= 0:
            return encoded
        if not self.cut:
            worst = max(range(len(surplus)), key=surplus.__getitem__)
            raise ValueError(
                f"expected texts of at most {room} tokens together (a context of "
                f"{self.context_length}, less the new tokens), got {sum(s > 0 for s in surplus)} "
                f"of {len(encoded)} examples that are longer, example {worst} by {surplus[worst]}, "
                f"all by {sum(s for s in surplus if s > 0)}: cut=True cuts them off at their ends"
            )
        return [_cut(texts, room) for texts in encoded]


def _longest(texts: list[list[int]]) -> int:
    """The tokens of an example's longest sequence, without the new ones."""
    return len(texts[0]) + max(map(len, texts[1:]), default=0)


def _cut(texts: list[list[int]], room: int) -> list[list[int]]:
    first, *others = texts
    if not others:
        return [first[:room]]
    one, two = len(first), max(map(len, others))
    half = room // 2
    one, two = min(one, max(half, room - two)), min(two, max(half, room - one))
    return [first[:one], *(other[:two] for other in others)]


# ---- backbones ---------------------------------------------------------------------------------


def vocabulary_size(backbone: Backbone) -> int:
    """V: how many tokens a language model knows."""
    return len(_table(backbone))


def parts(backbone: Backbone) -> list[list[str]]:
    """The names of a model's parameters by depth: embeddings, each block, and what is above.

    An LSTM's blocks are its layers; above them stands the output. Above the blocks of the others
    stand the last norm and an unembedding that is not tied. An encoder-decoder has two stacks: its
    depth d is block d of both. What is in no block and not above is an embedding, whatever it is
    called: of tokens, of positions, of segments.
    """
    if isinstance(backbone, RNN | LSTM):
        layers, above = backbone.recurrence.all_weights, [backbone.output]
    else:
        above = [part for part in backbone.modules() if isinstance(part, Encoder | Decoder)]
        levels = zip(*(stack.blocks for stack in above), strict=True)
        layers = [[p for block in level for p in block.parameters()] for level in levels]
        above += [each] if (each := getattr(backbone, "unembedding", None)) is not None else []
    depths = {id(p): len(layers) + 1 for module in above for p in module.parameters()}
    depths |= {id(p): depth for depth, layer in enumerate(layers, start=1) for p in layer}
    depths[id(_table(backbone))] = 0  # also where it is the unembedding
    by_depth: list[list[str]] = [[] for _ in range(len(layers) + 2)]
    for name, parameter in backbone.named_parameters():
        by_depth[depths.get(id(parameter), 0)].append(name)
    return by_depth


@torch.no_grad()
def with_new_tokens(
    backbone: Backbone, count: int = NEW_TOKENS, *, generator: torch.Generator
) -> Backbone:
    """A copy of a language model with `count` tokens more, whose ids come after the others.

    Their vectors are drawn with the standard deviation of the others; a bias of theirs is 0.
    """
    settings = _settings(backbone)
    size = settings["vocabulary_size"]
    grown = _built(settings | {"vocabulary_size": size + count}).to(_table(backbone))
    own = grown.state_dict()  # shares memory with the parameters
    for name, old in backbone.state_dict().items():
        own[name][: len(old)] = old
        if len(old) < len(own[name]):
            std = float(old.std()) if old.ndim > 1 else 0.0
            new = torch.empty(count, *old.shape[1:]).normal_(std=std, generator=generator)
            own[name][size:] = new
    return grown.train(backbone.training)


@torch.no_grad()
def transferred(backbone: Backbone, fresh: Backbone, *, layers: int) -> Backbone:
    """A copy of `fresh` with the embeddings and the first `layers` blocks of `backbone`.

    With all blocks, what is above them is taken over, too: the copy is then the whole backbone.

    Args:
        backbone: pre-trained.
        fresh: of the same sizes.
        layers: from 0, embeddings only, to all.
    Raises:
        ValueError: the two differ in a size, or there are not so many blocks.
    Source: Radford et al. 2018, section 5 (impact of the number of layers transferred).
    """
    if (ours := _settings(backbone)) != (theirs := _settings(fresh)):
        differing = {k: (v, theirs.get(k)) for k, v in ours.items() if v != theirs.get(k)}
        raise ValueError(f"expected two models of the same settings, got {differing}")
    result = deepcopy(fresh)
    own, others = result.state_dict(), backbone.state_dict()
    for name in _lowest(backbone, layers):
        own[name].copy_(others[name])
    return result


@torch.no_grad()
def distance(one: nn.Module, other: nn.Module) -> float:
    """|theta - theta'|, over the parameters that both have; new tokens of the other do not count.

    A model and what became of it in fine-tuning: distance(backbone, tuned.model.backbone).
    """
    others = dict(other.named_parameters())
    squares = [(p - others[name][: len(p)]).square().sum() for name, p in one.named_parameters()]
    return math.sqrt(sum(map(float, squares)))


def _lowest(backbone: Backbone, layers: int) -> list[str]:
    """The parameters of the embeddings and of so many blocks; with all blocks, all parameters."""
    by_depth = parts(backbone)
    most = len(by_depth) - 2
    if not 0 <= layers <= most:
        raise ValueError(f"expected from 0 to {most} layers, as many as there are, got {layers}")
    return [*chain(*(by_depth if layers == most else by_depth[: layers + 1]))]


def _table(backbone: Backbone) -> Tensor:
    embedding = backbone.embedding
    return embedding.weight if isinstance(embedding, nn.Embedding) else embedding


def _context_length(backbone: Backbone) -> int | None:
    return None if isinstance(backbone, RNN | LSTM) else backbone.config.context_length


_KINDS = {
    "gpt": GPT,
    "rnn": RNN,
    "lstm": LSTM,
    "encoder": EncoderLM,
    "encoder-decoder": EncoderDecoderLM,
}
_OWN = {"gpt": (), "encoder": ("segments",), "encoder-decoder": ("start", "padding")}
_BOTH_SIDES = (EncoderLM, EncoderDecoderLM)  # to which padding on the right is no future


def _settings(backbone: Backbone) -> dict[str, Any]:
    """What `_built` needs to make a model of the same sizes."""
    kinds = {kind: name for name, kind in _KINDS.items()}
    if type(backbone) not in kinds:
        raise TypeError(
            "expected a GPT, an RNN, an LSTM, an EncoderLM or an EncoderDecoderLM, got "
            f"{type(backbone).__name__}"
        )
    kind = {"kind": kinds[type(backbone)]}
    if not isinstance(backbone, RNN | LSTM):
        kind |= asdict(backbone.config)
    if isinstance(backbone, GPT):
        return kind
    if isinstance(backbone, EncoderLM):
        return kind | {"segments": backbone.n_segments}
    if isinstance(backbone, EncoderDecoderLM):
        return kind | {"start": backbone.start, "padding": backbone.padding}
    return kind | {
        "vocabulary_size": backbone.vocabulary_size,
        "embedding_size": backbone.recurrence.input_size,
        "hidden_size": backbone.recurrence.hidden_size,
        "layers": backbone.recurrence.num_layers,
        "tied": backbone.output.weight is backbone.embedding.weight,
        "dropout": backbone.dropout.p,
        "end": backbone.end,
    }


def _built(settings: dict[str, Any]) -> Backbone:
    settings = dict(settings)
    kind = settings.pop("kind")
    generator = torch.Generator().manual_seed(0)
    own = {name: settings.pop(name) for name in _OWN.get(kind, ())}
    if kind in _OWN:
        return _KINDS[kind](GPTConfig(**settings), **own, generator=generator)
    return _KINDS[kind](settings.pop("vocabulary_size"), **settings, generator=generator)


# ---- model and loss ----------------------------------------------------------------------------


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
        backbone: Backbone,
        family: str,
        labels: int,
        *,
        dropout: float = 0.1,
        generator: torch.Generator,
    ):
        super().__init__()
        _check_family(family)
        self.backbone, self.family = backbone, family
        recurrent = isinstance(backbone, RNN | LSTM)
        channels = backbone.recurrence.hidden_size if recurrent else backbone.config.channels
        self.dropout = nn.Dropout(dropout)
        self.head = linear(channels, 1 if family == "choice" else labels, generator=generator)
        with torch.no_grad():
            self.head.weight.normal_(std=0.02, generator=generator)
        self.to(_table(backbone))

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The logits of the labels, (B, K), from ids, (B, S, T), and lengths, (B, S)."""
        return self.classify(self.states(ids, lengths), lengths)

    def states(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The last layer's states, (B, S, T, C), from ids, (B, S, T).

        Of an encoder-decoder (B, S, 1, C), the decoder's before its first token. It and an encoder
        need the lengths, (B, S): they would look at the padding.
        """
        rows = ids.flatten(0, 1)
        if isinstance(self.backbone, _BOTH_SIDES):
            if lengths is None:
                raise ValueError("expected lengths for a model that looks to the right, got None")
            states = self.backbone.extracted(rows, lengths.flatten())
        else:
            states = self.backbone.states(rows)
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
    ids, lengths, labels = ids.to(device), lengths.to(device), labels.to(device)
    ids = ids[..., : int(lengths.max())]
    states = model.states(ids, lengths)
    of_task = functional.cross_entropy(model.classify(states, lengths), labels, reduction="none")
    if not language:
        return of_task, torch.zeros_like(of_task)
    targets = ids[..., 1:]
    real = torch.arange(ids.shape[-1] - 1, device=device) < lengths[..., None] - 1  # (B, S, T - 1)
    logits = model.backbone.unembed(states[..., :-1, :][real])  # (real tokens, V)
    surprise = torch.zeros_like(real, dtype=logits.dtype)
    surprise[real] = -token_log_probs(logits, targets[real])
    return of_task, (surprise.sum(-1) / (lengths - 1)).mean(-1)


# ---- fine-tuning -------------------------------------------------------------------------------


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
        weight_decay: of the matrices; see `training.parameter_groups`.
        dropout: before the head; that of the backbone is its own.
        every: steps between two validations.
        seed: of the head and the new tokens, the order of the batches, and dropout.
    Raises:
        ValueError: a value is out of range.
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

    def __post_init__(self):
        least = {"steps": 1, "batch_size": 1, "every": 1, "frozen": 0, "head_first": 0, "seed": 0}
        least |= {"learning_rate": 0, "auxiliary": 0, "weight_decay": 0}
        for name, value in least.items():
            if not value <= getattr(self, name) < math.inf:
                raise ValueError(f"expected {name} {value} or more, got {getattr(self, name)!r}")
        for name in ("warm_up", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"expected {name} from 0 to below 1, got {getattr(self, name)!r}")

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
    backbone: Backbone,
    tokenizer: Tokenizer,
    task: Task,
    config: FinetuneConfig | None = None,
    *,
    cut: bool = False,
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
        progress: whether to show a bar.
    Raises:
        ValueError: the tokenizer is of another size than the backbone, there is nothing to validate
            with, or a text is empty or too long. (Labels are for `Task` to check.)
        TypeError: the backbone is of an unknown kind, or an example is not a tuple of texts.
        FloatingPointError: the loss is no longer finite.
    """
    config = config or FinetuneConfig()
    size = vocabulary_size(backbone)
    if tokenizer.vocab_size != size:
        raise ValueError(
            f"expected the tokenizer that the model was trained with, of {size} tokens, got one "
            f"of {tokenizer.vocab_size}"
        )
    if isinstance(backbone, _BOTH_SIDES) and config.auxiliary:
        raise ValueError(
            f"expected auxiliary=0 for an {type(backbone).__name__}, got {config.auxiliary}: its "
            "states have seen the next token, and there is nothing to predict"
        )
    forms = InputForms(task.family, task.labels, tokenizer, _context_length(backbone), cut)
    if not task.train or not task.validation:
        raise ValueError(
            "expected examples to train on and others to validate with, got "
            f"{len(task.train)} and {len(task.validation)}"
        )
    training, validation = _batch(task.train, forms), _batch(task.validation, forms)
    generator = torch.Generator().manual_seed(config.seed)
    model = TaskModel(
        with_new_tokens(backbone, generator=generator),
        task.family,
        len(task.labels),
        dropout=config.dropout,
        generator=generator,
    )
    held_out = list(_chunks(validation, torch.arange(len(validation[1])), _SCORED))
    history, all_layers = History(), len(parts(backbone)) - 2
    stages = [(config.head_first, all_layers)] if config.head_first else []
    for steps, frozen in [*stages, (config.steps, config.frozen)]:
        with _frozen(model, frozen), _seeded(config.seed, model.head.weight.device):
            more = fit(
                model,
                _shuffled(training, config.batch_size, generator),
                steps=steps,
                learning_rate=config.learning_rate,
                schedule=linear_decay(steps, warm_up=int(config.warm_up * steps)),
                weight_decay=config.weight_decay,
                optimiser=partial(_adamw, model),
                validation=held_out,
                every=config.every,
                keep_best=True,
                nats_of=partial(_joint_nats, auxiliary=config.auxiliary),
                progress=progress,
            )
        _go_on(history, more)
    return Tuned(model.eval(), forms, history)


def _joint_nats(model: TaskModel, batch: TaskBatch, *, auxiliary: float) -> Tensor:
    """The loss of a batch, summed over its examples: L2 + lambda L1 in training, else L2 alone."""
    wanted = auxiliary > 0 and model.training
    of_task, of_language = loss_parts(model, batch, language=wanted)
    return (of_task + auxiliary * of_language).sum()


def _adamw(model: TaskModel, _, *, lr: float, weight_decay: float) -> AdamW:
    return AdamW(parameter_groups(model, weight_decay=weight_decay), lr=lr)


@contextmanager
def _frozen(model: TaskModel, layers: int) -> Iterator[None]:
    """Inside the block, embeddings and lowest layers are not trained, but for the new tokens' rows.

    These stay rows of the one table, as in the model that will be used, and the gradient of the
    others is made zero. Adam then leaves those as they are, to the bit, and no decay touches them.
    """
    backbone, undo = model.backbone, []
    names = set(_lowest(backbone, layers)) if layers else set()
    for name, parameter in backbone.named_parameters():
        if parameter is _table(backbone) and name in names:
            old = (
                torch.arange(len(parameter), device=parameter.device) < len(parameter) - NEW_TOKENS
            )
            hook = parameter.register_hook(lambda g, old=old: g.masked_fill(old[:, None], 0.0))
            undo.append(hook.remove)
        elif name in names:
            undo.append(partial(parameter.requires_grad_, parameter.requires_grad))
            parameter.requires_grad_(False)
    try:
        yield
    finally:
        for each in undo:
            each()


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


def _go_on(history: History, more: History) -> None:
    """Add what happened next to a history."""
    done = len(history.losses)
    history.losses += more.losses
    history.norms += more.norms
    history.validation |= {done + step: loss for step, loss in more.validation.items()}


def _batch(examples: Sequence[Example], forms: InputForms) -> TaskBatch:
    """All examples as one batch."""
    count = len(forms.labels)
    for number, example in enumerate(examples):
        if type(example.label) is not int or not 0 <= example.label < count:
            raise ValueError(
                f"expected labels from 0 to {count - 1}, the places in {forms.labels}, got "
                f"{example.label!r} in example {number}"
            )
    inputs = forms.tensors([example.texts for example in examples])
    return inputs, torch.tensor([example.label for example in examples])


# ---- use ---------------------------------------------------------------------------------------

_SCORED = 64  # examples scored at a time


@torch.no_grad()
def predict(tuned: Tuned, examples: Sequence[Texts]) -> Tensor:
    """The probability of each label, (N, K), from the texts of N examples; on the CPU.

    Raises:
        ValueError, TypeError: as `InputForms.tensors`.
    """
    model = tuned.model.eval()
    ids, lengths = (part.to(model.head.weight.device) for part in tuned.forms.tensors(examples))
    logits = [
        model(some[..., : int(long.max())], long)
        for some, long in zip(ids.split(_SCORED), lengths.split(_SCORED), strict=True)
    ]
    return torch.cat(logits).softmax(-1).cpu()


def accuracy(tuned: Tuned, examples: Sequence[Example]) -> float:
    """The share of examples whose likeliest label is the right one.

    Raises:
        ValueError, TypeError: as `finetune`.
    """
    _, labels = _batch(examples, tuned.forms)
    guesses = predict(tuned, [example.texts for example in examples]).argmax(-1)
    return float((guesses == labels).double().mean())


def save(tuned: Tuned, folder: Path | str) -> Path:
    """Keep a fine-tuned model in three files, none of which can run code; return the folder.

    Each of `task.json`, `tokenizer.json` and `model.safetensors` takes its place whole or not at
    all.
    """
    folder, forms = Path(folder), tuned.forms
    folder.mkdir(parents=True, exist_ok=True)
    forms.tokenizer.save(folder / "tokenizer.json")
    content = {
        "format": _FORMAT,
        "family": forms.family,
        "labels": forms.labels,
        "cut": forms.cut,
        "backbone": _settings(tuned.model.backbone),
    }
    write_text(folder / "task.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    with replacing(folder / "model.safetensors") as path:
        # Clones: tied parameters have two names and one memory, which the format refuses.
        save_file({n: v.clone().contiguous() for n, v in tuned.model.state_dict().items()}, path)
    return folder


def load(folder: Path | str, *, device: torch.device | str = "cpu") -> Tuned:
    """The model that `save` kept, without its history.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: one is damaged, or of another format or model.
    """
    folder = Path(folder)
    content = _read_task(folder / "task.json")
    tokenizer = tokenization.load(folder / "tokenizer.json")
    try:
        backbone, labels = _built(content["backbone"]), tuple(content["labels"])
        limit = _context_length(backbone)
        forms = InputForms(content["family"], labels, tokenizer, limit, content["cut"])
        generator = torch.Generator().manual_seed(0)
        model = TaskModel(backbone, forms.family, len(labels), generator=generator)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"expected a task in {folder / 'task.json'}, got {error!r}") from error
    size = vocabulary_size(backbone) - NEW_TOKENS
    if tokenizer.vocab_size != size:
        raise ValueError(
            f"expected a tokenizer of {size} tokens in {folder}, got {tokenizer.vocab_size}"
        )
    path = folder / "model.safetensors"
    try:
        checkpoints.restore(model, load_file(path), source=path)
    except SafetensorError as error:
        raise ValueError(f"expected a whole safetensors file at {path}, got: {error}") from error
    return Tuned(model.to(device).eval(), forms, History())


_FORMAT = "next-token task 1"


def _read_task(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(
            f"expected a fine-tuned model in {path.parent}, found no {path.name}"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"expected JSON in {path}, got something else: {error}") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"expected the format {_FORMAT!r} in {path}")
    return content


# ---- checks ------------------------------------------------------------------------------------


def _check_family(family: str) -> None:
    if family not in FAMILIES:
        raise ValueError(f"expected a family among {[*FAMILIES]}, got {family!r}")


def _check_count(family: str, count: int, *, choices: int | None = None, where: str = "") -> None:
    """Refuse another number of texts than the family has."""
    expected = {"classification": 1, "entailment": 2, "similarity": 2}.get(family)
    if family == "choice" and choices:
        expected = 1 + choices
    if count < 3 if expected is None else count != expected:
        wanted = "a context and two choices or more" if expected is None else f"{expected} texts"
        raise ValueError(f"expected {wanted} for {family}, got {count}{where}")
