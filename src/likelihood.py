"""How probable is a text under a model, in nats?

    p(x_1 … x_T)     = prod_t p(x_t | x_1 … x_{t-1})        the chain rule
    log p(x_1 … x_T) = sum_t log p(x_t | window of t)       exact where the window loses nothing
    log softmax(z)_i = z_i - logsumexp(z)
    loss             = -(sum of log-probabilities) / (number of tokens), divided once, at the end
    H(p, q)          = -sum_x p(x) log q(x) = H(p) + KL(p || q)
    perplexity       = exp(loss)

Axes: B texts, T positions, V vocabulary. Logarithms are natural, so every figure is in nats.
Derived in the chapters `likelihood/text_probability`, `likelihood/maximum_likelihood` and
`likelihood/surprise`. Source for the last three: Cover and Thomas 2006, chapter 2.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor


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
    _check_ids(targets, logits.shape[-1])
    if logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"expected one row of logits for each target, {(*targets.shape, logits.shape[-1])} "
            f"for targets of shape {tuple(targets.shape)}, got {tuple(logits.shape)}"
        )
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
        ValueError: the mask is not boolean or has another shape.
    """
    return _without_padding(log_probs, mask).sum(-1)


def corpus_log_likelihood(texts: Iterable[Tensor]) -> tuple[Tensor, int]:
    """The log-likelihood of a corpus of texts of unequal length, and its number of tokens.

    Args:
        texts: for each text its token log-probabilities, (T_n,); nats.
    Returns:
        The sum over all tokens of all texts, in nats, and the count of those tokens.
        Their quotient is the mean per token; no mean of means is ever taken.
    Raises:
        ValueError: there is no text, or a text has no tokens.
    """
    texts = list(texts)
    lengths = [len(text) for text in texts]
    if not texts or 0 in lengths:
        raise ValueError(
            f"expected texts of at least one token (the end token counts), got lengths {lengths}"
        )
    return torch.stack([text.sum() for text in texts]).sum(), sum(lengths)


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
    if length is not None and length < 1:
        raise ValueError(f"expected a context length of at least 1 token, got {length}")
    if not 0 <= t <= len(ids):
        raise ValueError(f"expected a position from 0 to {len(ids)} (the text's length), got {t}")
    return ids[0 if length is None else max(0, t - length) : t]


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
        _check_ids(target, len(log_probs))
        terms.append(log_probs[target])
    return torch.stack(terms).sum()


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
    _check_distributions(truth=truth, model=model)
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
    _check_distributions(truth=truth, model=model)
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


def bits_per_byte(nats: float | Tensor, n_bytes: int) -> float:
    """Total surprise in bits, shared by the bytes of the text: a unit that no tokenizer changes.

    Args:
        nats: of the whole text, summed, end tokens included.
        n_bytes: the length of the text in UTF-8 bytes.
    Returns:
        Bits per byte.
    Raises:
        ValueError: there are no bytes.
    """
    if n_bytes < 1:
        raise ValueError(f"expected a text of at least 1 byte, got {n_bytes}")
    return float(nats) / NATS_PER_BIT / n_bytes


def check_batch(ids: Tensor, vocabulary_size: int) -> None:
    """Refuse what is not a batch of texts, (B, T), of token ids below the vocabulary size.

    Inside torch.compile only shape and type are looked at: a look at the ids would cut the program.

    Raises:
        ValueError: another shape or type, or an id outside the vocabulary.
    """
    if ids.ndim != 2 or ids.dtype != torch.long:
        raise ValueError(
            f"expected ids of shape (B, T) and type torch.int64, got {tuple(ids.shape)} of type "
            f"{ids.dtype}; a single text needs a batch axis: ids[None]"
        )
    if not torch.compiler.is_compiling():
        _check_ids(ids, vocabulary_size)


def _check_distributions(**distributions: Tensor) -> None:
    for name, probs in distributions.items():
        sums = probs.sum(-1)
        rounding = 1e-9 if probs.dtype == torch.float64 else 1e-4
        if not ((sums - 1).abs().max() < rounding and probs.min() >= 0):  # NaN fails as well
            raise ValueError(
                f"expected {name} to hold probabilities that sum to 1, got values from "
                f"{float(probs.min())} to {float(probs.max())} and sums from "
                f"{float(sums.min())} to {float(sums.max())}; are they logits?"
            )
    sizes = [probs.shape[-1] for probs in distributions.values()]
    if len(set(sizes)) > 1:
        raise ValueError(f"expected distributions over one vocabulary, got {sizes} tokens")


def _largest_finite(logits: Tensor, dim: int) -> Tensor:
    """The largest logit of each row; 0 for a row of only -inf, where -inf - (-inf) is NaN."""
    largest = logits.detach().amax(dim, keepdim=True)
    return torch.where(largest.isfinite(), largest, 0.0)


def _check_ids(ids: Tensor, vocabulary_size: int) -> None:
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(f"expected integer token ids, got {ids.dtype}")
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary_size:
        raise ValueError(
            f"expected token ids from 0 to {vocabulary_size - 1} (a vocabulary of "
            f"{vocabulary_size}), got ids from {int(ids.min())} to {int(ids.max())}; "
            "was the text encoded with another tokenizer?"
        )


def _without_padding(log_probs: Tensor, mask: Tensor | None) -> Tensor:
    """Log-probabilities with 0 at padding, even where the model's own value is -inf or NaN."""
    if mask is None:
        return log_probs
    if mask.dtype != torch.bool or mask.shape != log_probs.shape:
        raise ValueError(
            f"expected a boolean mask of shape {tuple(log_probs.shape)}, True at real tokens, "
            f"got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    return log_probs.masked_fill(~mask, 0.0)
