"""What can be done with any pre-trained model of the book, whatever it is built of?

Ask for its vocabulary and its layers, add tokens to it, take some of its layers over into another,
measure how far two of them are apart, write its settings down and build it again.

Source: Radford et al. 2018, section 5 (layers transferred).
Derived in the chapter `gpt/gpt1_finetuning`.
"""

import math
from copy import deepcopy
from dataclasses import asdict
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ..attention.encoder_decoder import Decoder, Encoder
from ..attention.recurrence import LSTM, RNN
from .both_sides import EncoderDecoderLM, EncoderLM
from .gpt2 import GPT, GPTConfig

Backbone = GPT | RNN | LSTM | EncoderLM | EncoderDecoderLM
NEW_TOKENS = 3


def vocabulary_size(backbone: Backbone) -> int:
    """V: how many tokens a language model knows."""
    return len(embedding_table(backbone))


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
    depths[id(embedding_table(backbone))] = 0  # also where it is the unembedding
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
    settings = settings_of(backbone)
    size = settings["vocabulary_size"]
    grown = built_from(settings | {"vocabulary_size": size + count}).to(embedding_table(backbone))
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
    if (ours := settings_of(backbone)) != (theirs := settings_of(fresh)):
        differing = {k: (v, theirs.get(k)) for k, v in ours.items() if v != theirs.get(k)}
        raise ValueError(f"expected two models of the same settings, got {differing}")
    result = deepcopy(fresh)
    own, others = result.state_dict(), backbone.state_dict()
    for name in lowest_layers(backbone, layers):
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


def lowest_layers(backbone: Backbone, layers: int) -> list[str]:
    """The parameters of the embeddings and of so many blocks; with all blocks, all parameters."""
    by_depth = parts(backbone)
    most = len(by_depth) - 2
    if not 0 <= layers <= most:
        raise ValueError(f"expected from 0 to {most} layers, as many as there are, got {layers}")
    return [*chain(*(by_depth if layers == most else by_depth[: layers + 1]))]


def embedding_table(backbone: Backbone) -> Tensor:
    """The table of a model's tokens, (V, C)."""
    embedding = backbone.embedding
    return embedding.weight if isinstance(embedding, nn.Embedding) else embedding


def context_length_of(backbone: Backbone) -> int | None:
    """How many tokens a model can read; None: any number."""
    return None if isinstance(backbone, RNN | LSTM) else backbone.config.context_length


_KINDS = {
    "gpt": GPT,
    "rnn": RNN,
    "lstm": LSTM,
    "encoder": EncoderLM,
    "encoder-decoder": EncoderDecoderLM,
}
_OWN = {"gpt": (), "encoder": ("segments",), "encoder-decoder": ("start", "padding")}
BOTH_SIDES = (EncoderLM, EncoderDecoderLM)  # to which padding on the right is no future


def settings_of(backbone: Backbone) -> dict[str, Any]:
    """What `built_from` needs to make a model of the same sizes."""
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


def built_from(settings: dict[str, Any]) -> Backbone:
    """A new model of the sizes that `settings_of` told."""
    settings = dict(settings)
    kind = settings.pop("kind")
    generator = torch.Generator().manual_seed(0)
    own = {name: settings.pop(name) for name in _OWN.get(kind, ())}
    if kind in _OWN:
        return _KINDS[kind](GPTConfig(**settings), **own, generator=generator)
    return _KINDS[kind](settings.pop("vocabulary_size"), **settings, generator=generator)
