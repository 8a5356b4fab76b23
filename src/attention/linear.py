"""What remains of attention without its softmax? A recurrent network whose state is a matrix.

    linear       S_t = S_{t-1} + v_t k_t'                              o_t = S_t q_t
    with decay   S_t = a_t S_{t-1} + v_t k_t'                          a_t from 0 to 1
    delta rule   S_t = a_t S_{t-1} (I - b_t k_t k_t') + b_t v_t k_t'   |k_t| = 1, b_t from 0 to 1
    parallel     o = ((Q K') * M) U         M_ts = a_{s+1} ... a_t for s <= t, 0 for s > t

S is (values, keys): what a key was last told to be. Linear attention only adds, so that keys that
are not orthogonal blur each other; decay forgets everything alike; the delta rule first takes away
what its key holds, S k, and writes the new value in its place: one step of gradient descent, at
rate b, on |S k - v|^2 / 2. In the parallel form U = V, but for the delta rule, where u_t is what is
truly written, b_t (v_t - a_t S_{t-1} k_t): the solution of a triangular system,
(I + b (K K' * M below its diagonal)) U = b V. The recurrent form takes T steps of D E operations
and keeps D E numbers, however long the text is.

Axes: ... texts and heads, T positions, D channels of queries and keys, E of values.
Source: Katharopoulos et al. 2020 (linear); Sun et al. 2023 and Dao and Gu 2024 (decay); Schlag et
al. 2021, Yang et al. 2024 and 2025 (delta rule, parallel, gated).
Builds on the chapter `attention/attention`.
"""

import torch
from torch import Tensor

from ..tools.checks import readable


def linear_attention_recurrent(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    decay: Tensor | None = None,
    rate: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Token by token, as the equations say.

    Args:
        queries, keys: (..., T, D).
        values: (..., T, E).
        decay: (..., T); a, from 0 to 1. None: 1, nothing is forgotten.
        rate: (..., T); b of the delta rule, for keys of length 1. None: plain addition.
        state: (..., E, D); after the tokens before. None: 0.
    Returns:
        (outputs, state): (..., T, E) and (..., E, D).
    """
    outputs = []
    if state is None:
        state = values.new_zeros(*values.shape[:-2], values.shape[-1], keys.shape[-1])
    for t in range(keys.shape[-2]):
        q, k, written = queries[..., t, :], keys[..., t, :], values[..., t, :]
        if decay is not None:
            state = decay[..., t, None, None] * state
        if rate is not None:
            held = (state @ k[..., None])[..., 0]  # (..., E)
            written = rate[..., t, None] * (written - held)
        state = state + written[..., None] * k[..., None, :]  # (..., E, D)
        outputs.append((state @ q[..., None])[..., 0])
    return torch.stack(outputs, dim=-2), state


def linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    decay: Tensor | None = None,
    rate: Tensor | None = None,
) -> Tensor:
    """All tokens at once: what `linear_attention_recurrent` gives from an empty state.

    Args:
        queries, keys, values, decay, rate: as there; decay is above 0.
    Returns:
        (..., T, E).
    """
    within = decay_mask(keys.new_ones(keys.shape[:-1]) if decay is None else decay)  # (..., T, T)
    if rate is not None:
        below = (keys @ keys.mT * within).tril(-1) * rate[..., None]  # row t: b_t
        system = below + torch.eye(keys.shape[-2], dtype=keys.dtype, device=keys.device)
        values = torch.linalg.solve_triangular(
            system, rate[..., None] * values, upper=False, unitriangular=True
        )
    return (queries @ keys.mT * within) @ values


def decay_mask(decay: Tensor) -> Tensor:
    """M, what is left at t of what was written at s: (..., T, T), 0 above the diagonal.

    >>> decay_mask(torch.tensor([0.3, 0.5, 0.5]))
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 1.0000, 0.0000],
            [0.2500, 0.5000, 1.0000]])

    Args:
        decay: (..., T); above 0. The first has nothing to act on.
    Raises:
        ValueError: a decay is 0 or below, which has no logarithm; the recurrent form takes 0, too.
    """
    if readable(decay) and not (decay > 0).all():
        raise ValueError(f"expected decays above 0, got {float(decay.min())}")
    total = decay.log().cumsum(-1)
    differences = total[..., :, None] - total[..., None, :]
    later = torch.ones(differences.shape[-2:], dtype=torch.bool, device=decay.device).triu(1)
    return differences.masked_fill(later, -torch.inf).exp()
