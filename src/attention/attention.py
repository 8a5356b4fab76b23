"""How does a position of a text look at the others?

    scores  = Q K' / sqrt(D)                 how well each query matches each key    (T, S)
    weights = softmax(scores)                over the keys that the mask allows
    output  = weights V                      a mixture of the values                 (T, D)
    with a sink b: weights = e^scores / (e^b + sum of e^scores), which sum to less than 1

Attention itself knows nothing of order; what a model knows of positions is added to its input
or turned into its queries and keys (`attention/positions`).

Axes: T positions that ask (queries), S positions that are asked (keys), D channels.
Source: Vaswani et al. 2017, section 3.2. Derived in the chapter `attention/attention`.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from ..tools.checks import readable
from .masks import causal_mask


def scaled_dot_product_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    bias: Tensor | None = None,
    sink: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    grouped: bool = False,
    need_weights: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """softmax(Q K' * scale + bias) V, and the weights that mixed the values.

    Without weights, torch's fused kernel gives the same output and never holds all T x S scores.
    A query that may attend to no key has no distribution over keys: that is an error here, neither
    NaN nor a silent zero, wherever the mask is `readable`.

    Args:
        queries: (..., T, D).
        keys: (..., S, D).
        values: (..., S, any width).
        mask: broadcasts to (..., T, S); True where a query may attend to a key. None: everywhere.
        causal: whether the queries are the last T of the S positions and see no later key.
        bias: broadcasts to (..., T, S); added to the scores, as relative positions are.
        sink: broadcasts to (..., T, 1); the score of one more key, whose value is 0. The weights
            of the others then sum to sigmoid(logsumexp(scores) - sink). None: there is no such key.
            With it all T x S scores are held in any case.
        scale: of the scores; None: 1 / sqrt(D).
        dropout: the probability that a weight is dropped; the others grow by 1 / (1 - dropout).
        grouped: whether queries are (..., H, T, D) and keys and values (..., G, S, D) of fewer
            heads, each of which is shared by H / G heads of queries that follow one another.
        need_weights: whether the weights are wanted.
    Returns:
        (output, weights): (..., T, width of the values), and (..., T, S), rows summing to 1
        before dropout (to less with a sink), or None.
    Raises:
        ValueError: the mask or the values do not fit, or a query may attend to nothing.
    """
    if keys.shape[-2] != values.shape[-2]:  # torch's kernel would not say so
        raise ValueError(f"expected a value for each key, got {keys.shape} and {values.shape}")
    scale = 1 / math.sqrt(queries.shape[-1]) if scale is None else scale
    if not need_weights and sink is None:  # the equation below, in torch's kernel
        added, own = _kernel_masks(mask, causal, bias, queries, keys)
        output = functional.scaled_dot_product_attention(
            queries, keys, values, added, dropout, own, scale=scale, enable_gqa=grouped
        )
        return output, None
    if grouped:
        share = queries.shape[-3] // keys.shape[-3]  # H / G
        keys, values = (part.repeat_interleave(share, dim=-3) for part in (keys, values))

    scores = queries @ keys.mT * scale  # (..., T, S)
    if bias is not None:
        scores = scores + bias
    allowed = _allowed(mask, causal, queries, keys)
    if allowed is not None:  # a score of 0 would have the weight e^0; minus infinity has 0 exactly
        scores = scores.masked_fill(~allowed, -torch.inf)
    if sink is not None:
        scores = torch.cat([scores, sink.expand(*scores.shape[:-1], 1)], -1)  # (..., T, S + 1)
    weights = torch.softmax(scores, dim=-1)
    weights = weights[..., : keys.shape[-2]]  # without the sink's column
    weights = functional.dropout(weights, dropout, training=dropout > 0)
    output = weights @ values
    return output, weights if need_weights else None


def _kernel_masks(
    mask: Tensor | None, causal: bool, bias: Tensor | None, queries: Tensor, keys: Tensor
) -> tuple[Tensor | None, bool]:
    """What torch's kernel allows or adds; whether it is to use its own causal mask instead."""
    # Its own causal mask is the fastest, but lets the first T of S positions ask, not the last.
    own = causal and mask is None and bias is None and queries.shape[-2] == keys.shape[-2]
    added = None if own else _allowed(mask, causal, queries, keys)
    if bias is not None:
        added = bias if added is None else bias.masked_fill(~added, -torch.inf)
    return added, own


def _allowed(mask: Tensor | None, causal: bool, queries: Tensor, keys: Tensor) -> Tensor | None:
    """Which query may attend to which key, by the mask and by causality; None: each to all."""
    length, n_keys = queries.shape[-2], keys.shape[-2]
    shape = torch.Size((*queries.shape[:-1], n_keys))
    if mask is not None and (
        mask.dtype != torch.bool or torch.broadcast_shapes(mask.shape, shape) != shape
    ):  # torch's kernel would add numbers to the scores; a longer mask would make more rows
        got = f"{mask.dtype} of {tuple(mask.shape)}; what is added to the scores is called bias"
        raise ValueError(f"expected a boolean mask of (..., T, S) = {tuple(shape)}, got {got}")
    if causal and length > 1:  # a single query is the last: it sees all
        earlier = causal_mask(length, n_keys, device=queries.device)
        mask = earlier if mask is None else mask & earlier
    # `readable`: only on the CPU is a look at the mask cheap.
    if mask is not None and readable(mask) and not mask.any(-1).all():
        first = (~mask.any(-1)).nonzero()[0].tolist()
        hint = "a softmax over nothing is NaN. Let padding and each position see itself"
        raise ValueError(f"expected a key for every query, got none at index {first}; {hint}")
    return mask
