"""How much does a model expect to be surprised, and in which unit is that said?

    H(p)       = -sum_x p(x) log p(x)
    H(p, q)    = -sum_x p(x) log q(x) = H(p) + KL(p || q)
    perplexity = exp(loss)
    bits/byte  = nats / (log 2 · bytes)

Axes: V vocabulary. Logarithms are natural, so every figure is in nats unless it says bits.
Source: Cover and Thomas 2006, chapter 2. Derived in the chapter `likelihood/surprise`.
"""

import math

import torch
from torch import Tensor

NATS_PER_BIT = math.log(2)


def entropy(probs: Tensor) -> Tensor:
    """The mean surprise of a distribution about its own draws.

    A fair coin has log 2 nats, which is one bit; a coin that always shows heads has 0.

    Args:
        probs: (…, V); each row sums to one.
    Returns:
        (…); nats, from 0 to log V.
    Raises:
        ValueError: a row is no distribution.
    """
    return cross_entropy(probs, probs)


def cross_entropy(truth: Tensor, model: Tensor) -> Tensor:
    """The mean surprise of a model about draws from another distribution.

    Args:
        truth: (…, V); the distribution p that draws; each row sums to one.
        model: (…, V); the distribution q that is surprised; each row sums to one.
    Returns:
        (…); nats, at least the entropy of the truth; infinite where the model gives probability 0
        to something that the truth can draw.
    Raises:
        ValueError: a row is no distribution, or the vocabularies differ.
    """
    _check_distributions(truth, model)
    return -torch.special.xlogy(truth, model).sum(-1)


def kl_divergence(truth: Tensor, model: Tensor) -> Tensor:
    """The part of the cross-entropy that a better model could avoid; 0 only if both are equal.

    Args:
        truth, model: (…, V); as for `cross_entropy`.
    Returns:
        (…); nats, at least 0, infinite where the cross-entropy is.
    Raises:
        ValueError: as for `cross_entropy`.
    """
    _check_distributions(truth, model)
    excess = torch.special.xlogy(truth, truth) - torch.special.xlogy(truth, model)
    return excess.sum(-1).clamp(min=0.0)


def perplexity(loss: float | Tensor) -> float:
    """How many equally likely choices would be as surprising: exp of the mean surprise.

    Divide the nats by the tokens first: a mean of exponentials is not the exponential of a mean.

    >>> round(perplexity(math.log(50_257)))
    50257

    Args:
        loss: nats per token, over all tokens at once.
    Returns:
        A number of choices; at least 1, infinite for an infinite loss.
    Raises:
        ValueError: the loss is negative or NaN: it is no mean surprise.
    """
    loss = float(loss)
    if not loss >= 0:  # NaN too
        raise ValueError(f"expected a mean surprise of at least 0 nats per token, got {loss}")
    return math.exp(loss) if loss < 709 else math.inf  # exp(710) overflows 64 bits


def bits_per_byte(nats: float | Tensor, n_bytes: int | None) -> float:
    """Total surprise in bits, shared by the bytes of the text: a unit that no tokenizer changes.

    Args:
        nats: of the whole text, summed, end tokens included.
        n_bytes: the length of the text in UTF-8 bytes; None, unknown, is refused.
    Returns:
        Bits per byte.
    Raises:
        ValueError: there are no bytes.
    """
    if n_bytes is None or n_bytes < 1:
        raise ValueError(f"expected at least 1 byte, got {n_bytes}; pass n_bytes when scoring")
    return float(nats) / NATS_PER_BIT / n_bytes


def _check_distributions(truth: Tensor, model: Tensor) -> None:
    size = truth.shape[-1]
    for name, probs in (("truth", truth), ("model", model)):
        rounding = 1e-9 if probs.dtype == torch.float64 else 1e-4
        whole = (probs.sum(-1) - 1).abs().max() < rounding and probs.min() >= 0  # NaN is not
        if not whole or probs.shape[-1] != size:
            raise ValueError(f"expected {name}: {size} probabilities of the sum 1, got {probs}")
