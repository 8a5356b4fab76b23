"""How probable is a text under a model of the next token, in nats?

    p(x_1 … x_T)     = prod_t p(x_t | x_1 … x_{t-1})        the chain rule
    log p(x_1 … x_T) = sum_t log p(x_t | window of t)       exact where the window loses nothing

Axes: T positions, V vocabulary. Derived in the chapter `likelihood/text_probability`.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ..tools.checks import check_ids


def joint_log_prob(
    next_log_probs: Callable[[Tensor], Tensor], ids: Tensor, *, context_length: int | None = None
) -> Tensor:
    """The log-probability of a text by the chain rule, from a model of the next token.

    Args:
        next_log_probs: a function from a context, (t,) ids, to log-probabilities, (V,), in nats.
        ids: (T,); the text, its end token included.
        context_length: how many tokens the model sees; None: all that come before.
    Returns:
        (); nats.
    Raises:
        ValueError: the text is empty, the context length is below 1, or an id is not in the
            vocabulary of the log-probabilities.
    """
    if len(ids) == 0:
        raise ValueError("expected a text of at least one token (the end token counts), got none")
    terms = []
    for context, target in windows(ids, length=context_length):
        log_probs = next_log_probs(context)
        check_ids(target, len(log_probs))
        terms.append(log_probs[target])
    return torch.stack(terms).sum()


def windows(ids: Sequence | Tensor, *, length: int | None = None) -> Iterator[tuple]:
    """Each token of a text with its context window: (window, target), from first to last.

    Args:
        ids: a text, as a sequence or a (T,) tensor.
        length: the context length, in tokens; None: everything before the target.
    Raises:
        ValueError: the length is below 1.
    """
    for t in range(len(ids)):
        yield context_window(ids, t, length=length), ids[t]


def context_window(
    ids: Sequence | Tensor, t: int, *, length: int | None = None
) -> Sequence | Tensor:
    """The up to `length` tokens *before* position t: what a model may see to predict token t.

    >>> context_window("the tabby cat walks by".split(), 3, length=2)
    ['tabby', 'cat']

    Args:
        ids: a text, as a sequence or a (T,) tensor.
        t: position of the target, counted from 0; T asks for the window of the token to come.
        length: the context length, in tokens; None: everything before t.
    Returns:
        A slice of `ids` with min(t, length) tokens; empty for the first token.
    Raises:
        ValueError: the length is below 1, or t is not a position of the text.
    """
    if not 0 <= t <= len(ids) or (length is not None and length < 1):
        raise ValueError(f"expected t from 0 to {len(ids)} and length above 0, got {t=}, {length=}")
    return ids[0 if length is None else max(0, t - length) : t]
