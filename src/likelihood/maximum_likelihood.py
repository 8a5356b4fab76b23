"""How probable are the tokens of a text under a model's logits, and what is the loss?

    log softmax(z)_i = z_i - logsumexp(z)
    log L            = sum over tokens of log p(token | before)
    loss             = -(sum of log-probabilities) / (number of tokens), divided once, at the end

Axes: B texts, T positions, V vocabulary. Logarithms are natural, so every figure is in nats.
Derived in the chapters `likelihood/maximum_likelihood` and `likelihood/gradient_descent`.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from ..tools.checks import check_ids


def logsumexp(logits: Tensor, dim: int = -1, *, keepdim: bool = False) -> Tensor:
    """log(sum(exp(logits))) along `dim`, for logits of any size.

    The largest logit m is taken out first, m + log(sum(exp(z - m))): every exponent is then
    at most 0 and one of them is 0, so the sum lies between 1 and V and cannot overflow.

    >>> logsumexp(torch.tensor([1000.0, 1000.0]))
    tensor(1000.6932)

    Args:
        logits: (…, V); real numbers, -inf allowed.
        dim: the axis to sum over.
        keepdim: whether that axis stays, with length 1.
    Returns:
        (…); nats. A row of nothing but -inf, an empty sum, gives -inf.
    """
    largest = _largest_finite(logits, dim)
    total = (logits - largest).exp().sum(dim, keepdim=True).log() + largest
    return total if keepdim else total.squeeze(dim)


def log_softmax(logits: Tensor, dim: int = -1) -> Tensor:
    """The logarithm of the softmax: logits shifted so that their exponentials sum to one.

    Args:
        logits: (…, V); real numbers.
        dim: the axis of the vocabulary.
    Returns:
        (…, V); log-probabilities in nats.
    """
    shifted = logits - _largest_finite(logits, dim)  # small numbers keep more digits
    return shifted - logsumexp(shifted, dim, keepdim=True)


def token_log_probs(logits: Tensor, targets: Tensor) -> Tensor:
    """The log-probability that the logits give to each target token.

    Logits over two tokens, [0, log 3]: token 1 has probability 3/4, log 3/4 = -0.2877 nats.

    Args:
        logits: (…, V); unnormalised, one row for each target.
        targets: (…); integer token ids, 0 … V - 1. Padding needs a valid id as well: mask it later.
    Returns:
        (…); nats, at most 0.
    Raises:
        ValueError: the shapes do not fit, or an id lies outside the vocabulary.
        TypeError: the targets are not integers.
    """
    check_ids(targets, logits.shape[-1])
    if logits.shape[:-1] != targets.shape:
        raise ValueError(f"expected logits for each of {targets.shape}, got {logits.shape}")
    shifted = logits - _largest_finite(logits, -1)
    chosen = shifted.gather(-1, targets.long().unsqueeze(-1)).squeeze(-1)  # (…, V) -> (…)
    return chosen - logsumexp(shifted)  # log_softmax, computed at the targets only


def sequence_log_likelihood(log_probs: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """The log-probability of each text of a batch: the sum of those of its tokens.

    Args:
        log_probs: (…, T); nats, one for each token.
        mask: (…, T); True where a real token stands, False at padding. None: all are real.
    Returns:
        (…); nats.
    Raises:
        ValueError: the mask has another shape.
    """
    return _without_padding(log_probs, mask).sum(-1)


def corpus_log_likelihood(texts: Iterable[Tensor]) -> tuple[Tensor, int]:
    """The log-likelihood of a corpus of texts of unequal length, and its number of tokens.

    Args:
        texts: for each text its token log-probabilities, (T_n,); nats.
    Returns:
        The sum over all tokens of all texts, in nats, and the count of those tokens.
        Their quotient is the mean per token; no mean of means is ever taken.
    """
    texts = list(texts)
    return torch.stack([text.sum() for text in texts]).sum(), sum(len(text) for text in texts)


def negative_log_likelihood(
    logits: Tensor, targets: Tensor, *, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Total surprise of the targets, and the number of tokens it is shared by.

    Add up both over as many batches as there are, then divide once: `loss = nats / tokens`.

    Args:
        logits: (…, T, V); unnormalised.
        targets: (…, T); token ids.
        mask: (…, T); True where a real token stands, False at padding. None: all are real.
    Returns:
        nats: (); the sum of -log p over the real tokens.
        tokens: (); how many they are.
    Raises:
        ValueError: the shapes do not fit, an id lies outside the vocabulary, or all is padding.
        TypeError: the targets are not integers.
    """
    log_probs = _without_padding(token_log_probs(logits, targets), mask)
    tokens = torch.tensor(targets.numel(), device=logits.device) if mask is None else mask.sum()
    if tokens == 0:
        raise ValueError("expected at least one real token, got only padding or nothing")
    return -log_probs.sum(), tokens


def _largest_finite(logits: Tensor, dim: int) -> Tensor:
    """The largest logit of each row; 0 for a row of only -inf, where -inf - (-inf) is NaN."""
    largest = logits.detach().amax(dim, keepdim=True)
    return torch.where(largest.isfinite(), largest, 0.0)


def _without_padding(log_probs: Tensor, mask: Tensor | None) -> Tensor:
    """Log-probabilities with 0 at padding, even where the model's own value is -inf or NaN."""
    if mask is None:
        return log_probs
    if mask.shape != log_probs.shape:  # another would be stretched, and its tokens miscounted
        raise ValueError(f"expected a mask {tuple(log_probs.shape)}, got {tuple(mask.shape)}")
    return log_probs.masked_fill(~mask, 0.0)
