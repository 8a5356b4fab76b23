"""What can be done with any pre-trained model of the book, whatever it is built of?

Add tokens to it, take some of its layers over into another, measure how far two of them are apart,
write its settings down and build it again. What the model says of itself is in `likelihood/models`.

Source: Radford et al. 2018, section 5 (layers transferred).
Derived in the chapter `gpt/gpt1_finetuning`.
"""

import math
from copy import deepcopy
from dataclasses import fields
from itertools import chain
from typing import Any

import torch
from torch import nn

from ..attention.recurrence import LSTM, RNN
from ..likelihood.models import Network
from .both_sides import EncoderDecoderLM, EncoderLM
from .gpt2 import GPT, Configured, GPTConfig

KINDS: dict[str, type[GPT | RNN | LSTM | EncoderLM | EncoderDecoderLM]] = {
    each.kind: each for each in (GPT, RNN, LSTM, EncoderLM, EncoderDecoderLM)
}
NEW_TOKENS = 3


def parts(backbone: Network) -> list[list[str]]:
    """The names of a model's parameters by depth: embeddings, each layer, and what is above."""
    names = {parameter: name for name, parameter in backbone.named_parameters()}
    return [[names[parameter] for parameter in layer] for layer in backbone.layers()]


@torch.no_grad()
def with_new_tokens(
    backbone: Network, count: int = NEW_TOKENS, *, generator: torch.Generator
) -> Network:
    """A copy of a language model with `count` tokens more, whose ids come after the others.

    Their vectors are drawn with the standard deviation of the others; a bias of theirs is 0.
    """
    settings = settings_of(backbone)
    size = settings["vocabulary_size"]
    grown = built_from(settings | {"vocabulary_size": size + count}).to(backbone.token_table)
    own = grown.state_dict()  # shares memory with the parameters
    for name, old in backbone.state_dict().items():
        own[name][: len(old)] = old
        if len(old) < len(own[name]):
            std = float(old.std()) if old.ndim > 1 else 0.0
            new = torch.empty(count, *old.shape[1:]).normal_(std=std, generator=generator)
            own[name][size:] = new
    return grown.train(backbone.training)


@torch.no_grad()
def transferred(backbone: Network, fresh: Network, *, layers: int) -> Network:
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
        raise ValueError(f"expected two models of the same settings, got {ours} and {theirs}")
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


def lowest_layers(backbone: Network, layers: int) -> list[str]:
    """The parameters of the embeddings and of so many blocks; with all blocks, all parameters.

    Raises:
        ValueError: more layers than there are, or fewer than 0.
    """
    by_depth = parts(backbone)
    most = len(by_depth) - 2
    if not 0 <= layers <= most:
        raise ValueError(f"expected from 0 to {most} layers, as many as there are, got {layers}")
    return [*chain(*(by_depth if layers == most else by_depth[: layers + 1]))]


def settings_of(backbone: Network) -> dict[str, Any]:
    """What `built_from` needs to make a model of the same sizes."""
    return {"kind": backbone.kind} | backbone.settings


def built_from(settings: dict[str, Any]) -> Network:
    """A new model of the sizes that `settings_of` gave.

    Raises:
        KeyError: another kind.
    """
    settings = dict(settings)
    kind = KINDS[settings.pop("kind")]
    generator = torch.Generator().manual_seed(0)
    if not issubclass(kind, Configured):
        return kind(**settings, generator=generator)
    sizes = {each.name for each in fields(GPTConfig)} & settings.keys()
    config = GPTConfig(**{name: settings.pop(name) for name in sizes})
    # An encoder-decoder is called with two texts, so it is no LanguageModel.
    return kind(config, **settings, generator=generator)  # type: ignore[return-value]
