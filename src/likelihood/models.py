"""What must a language model be able to do, so that all code of the book can work with it?

    logits = model(ids)                          (B, T) -> (B, T, V)

At position t stand the logits of the next token, which look at no id after t. That is all that a
score or a sample needs: an n-gram model is such a model, a language whose law is known is one, and
so is a plain function. A network also takes the two steps apart, and says what it is made of:

    logits = model.unembed(model.states(ids))    (B, T) -> (B, T, C) -> (B, T, V)

Axes: B texts, T positions, C channels, V vocabulary.
Derived in the chapter `likelihood/text_probability`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn


class LanguageModel(Protocol):
    """Anything that is called with ids, (B, T), and gives logits, (B, T, V).

    One that reads only so many tokens says so by an attribute `context_length`.
    """

    def __call__(self, ids: Tensor, /) -> Tensor: ...


class Network(LanguageModel, Protocol):
    """A model with parameters, which can be fine-tuned: a GPT, an LSTM, an encoder.

    Attributes:
        kind: its name in files.
        causal: whether no state looks at later tokens. Otherwise `extracted(ids, lengths)` gives
            the states of texts that are filled up on the right.
        vocabulary_size, channels: V and C.
        context_length: the longest text, in tokens; None: any.
        token_table: the vectors of the tokens, (V, C).
        settings: plain values, from which a model of the same sizes can be built.
    """

    @property
    def kind(self) -> str: ...
    @property
    def causal(self) -> bool: ...
    @property
    def vocabulary_size(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def context_length(self) -> int | None: ...
    @property
    def token_table(self) -> nn.Parameter: ...
    @property
    def settings(self) -> dict[str, Any]: ...

    def states(self, ids: Tensor) -> Tensor:
        """What the logits are made from, (B, T, C)."""

    def unembed(self, states: Tensor) -> Tensor:
        """Logits, (..., V), from states, (..., C)."""

    def layers(self) -> list[list[nn.Parameter]]:
        """All parameters by depth: embeddings, each layer, and what is above the last."""

    # What of `nn.Module` is asked for; no type can be said to be that and a protocol at once.
    training: bool

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...
    def state_dict(self) -> dict[str, Tensor]: ...
    def to(self, like: Tensor, /) -> Self: ...
    def train(self, mode: bool = True, /) -> Self: ...


def context_length_of(model: LanguageModel, wanted: int | None = None) -> int | None:
    """How many tokens a model sees: those wanted, or else what it says; None: any number.

    Raises:
        ValueError: no token is wanted.
    """
    if wanted is None:
        return getattr(model, "context_length", None)
    if wanted < 1:
        raise ValueError(f"expected a context of 1 token or more, got context_length={wanted}")
    return wanted


def last_logits(model: LanguageModel, ids: Tensor, **options: Any) -> Tensor:
    """The logits of the next token after each text, (B, V).

    Of a network only the last state meets the vocabulary: in GPT-2 small that product is more than
    a quarter of a token's work. Options are those of its `states`, such as a cache.
    """
    if hasattr(model, "states") and hasattr(model, "unembed"):
        return model.unembed(model.states(ids, **options)[:, -1])
    return model(ids)[:, -1]


def device_of(model: LanguageModel) -> torch.device:
    """Where a model's parameters are; without any, on the CPU."""
    parameters = model.parameters() if isinstance(model, nn.Module) else iter(())
    return next((p.device for p in parameters), torch.device("cpu"))


def endings(model: nn.Module) -> list[Callable]:
    """To be called after each step: the methods `end_step` of what learns without gradients."""
    return [each for module in model.modules() if (each := getattr(module, "end_step", None))]


@contextmanager
def evaluating(*models: object) -> Iterator[None]:
    """Inside the block models are scored or draw: no dropout, no gradients; then all is as before.

    Whatever scores or draws does it in here, so that its caller need not think of `model.eval()`.
    """
    training = [p for m in models if isinstance(m, nn.Module) for p in m.modules() if p.training]
    for part in training:
        part.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True
