"""What does one head of attention do, and what does the model lose without it?

    previous token   mean over t of  A[t, t - 1]                          where each token came from
    induction        mean over t of  sum of A[t, s + 1] over all s < t    what came next, last time
                     with x[s] = x[t]; only t whose token has occurred before
    ablation         a head's output replaced by zero, or by its mean over the texts

A score says where a head looks, an ablation what that is worth. Neither replaces the other.
`AttentionOnly` is the smallest model in which heads can work together: no feed-forward network and
no norm. `induction_model` is one whose weights are set by hand, so that what it does is known.

Axes: B texts, T positions, H heads, C channels, D = C / H channels of a head, V vocabulary.
Source: Elhage et al. 2021; Olsson et al. 2022. Derived in the chapter `gpt/in_context`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..attention.config import BlockConfig
from ..attention.heads import MultiHeadAttention, linear
from ..attention.positions import LearnedPositions
from ..tools.checks import check_batch

# ---- where a head looks ----------------------------------------------------------------------


def previous_token_score(weights: Tensor) -> Tensor:
    """How much of its attention each head gives to the token just before, (H,), from 0 to 1.

    The mean over texts and over all positions that have one before them.

    Args:
        weights: (B, H, T, T); rows are queries.
    Raises:
        ValueError: not such weights, or texts of a single token.
    """
    if not 2 <= weights.shape[-1] == weights.shape[-2]:
        raise ValueError(f"expected weights (B, H, T, T), T > 1, got {tuple(weights.shape)}")
    return weights.diagonal(-1, -2, -1).mean((0, 2))  # (B, H, T - 1)


def induction_score(weights: Tensor, ids: Tensor, *, where: Tensor | None = None) -> Tensor:
    """How much of its attention each head gives to what followed its own token before, (H,).

    In `a b c a` the last `a` should look at `b`. The weights on all such places are added up, and
    the mean is taken over the positions whose token has occurred before.

    Args:
        weights: (B, H, T, T); rows are queries.
        ids: (B, T); the tokens of the same texts.
        where: (B, T); True at the positions that count, such as those of inputs; None: all.
    Raises:
        ValueError: weights and ids do not fit each other, or no token occurs twice.
    """
    if (len(weights), *weights.shape[2:]) != (*ids.shape, ids.shape[-1]):
        got = f"got {tuple(weights.shape)} and {tuple(ids.shape)}"
        raise ValueError(f"expected weights (B, H, T, T) and their ids (B, T), {got}")
    targets = induction_targets(ids)
    asks = targets.any(-1)  # (B, T)
    if where is not None:
        asks = asks & where
    if not asks.any():
        raise ValueError("expected a token that occurs twice in its text, got none: nothing to see")
    given = (weights * targets[:, None]).sum(-1)  # (B, H, T)
    return (given * asks[:, None]).sum((0, 2)) / asks.sum()


def induction_targets(ids: Tensor) -> Tensor:
    """True at (t, s + 1) where token s < t is the same as token t, (B, T, T).

    >>> induction_targets(torch.tensor([[5, 7, 5]]))[0].int().tolist()
    [[0, 0, 0], [0, 0, 0], [0, 1, 0]]

    Args:
        ids: (B, T).
    """
    same = (ids[:, :, None] == ids[:, None]).tril(-1)  # (B, T, T); s < t
    return functional.pad(same, (1, 0))[..., :-1]


# ---- what a head is worth --------------------------------------------------------------------


@contextmanager
def ablated(
    model: nn.Module, heads: Mapping[str, Sequence[int]], *, by: str = "zero"
) -> Iterator[None]:
    """Inside the block, what some heads have gathered is thrown away before it is put together.

    The output of head h stands in channels h D up to (h + 1) D before the matrix `output` of its
    module; there it is replaced. The parameters are not touched.

    Args:
        model: with `MultiHeadAttention` in it.
        heads: {name of the module, as in `recorded_weights`: heads, counted from 0}.
        by: "zero", or "mean": the head's mean over the texts of the batch, at each position.
    Raises:
        KeyError: no such module with heads. ValueError: another `by`.
    """
    if by not in ("zero", "mean"):
        raise ValueError(f'expected by "zero" or "mean", got {by!r}')
    modules = {n: m for n, m in model.named_modules() if isinstance(m, MultiHeadAttention)}
    hooks = [
        modules[name].output.register_forward_pre_hook(
            partial(_replaced, heads=which, n_heads=modules[name].heads, by=by)
        )
        for name, which in heads.items()
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _replaced(
    _: nn.Module, inputs: tuple[Tensor], *, heads: Sequence[int], n_heads: int, by: str
) -> tuple[Tensor]:
    parts = inputs[0].unflatten(-1, (n_heads, -1)).clone()  # (B, T, H, D)
    for head in heads:
        parts[:, :, head] = parts[:, :, head].mean(0) if by == "mean" else 0.0
    return (parts.flatten(-2),)


# ---- the smallest model with heads -----------------------------------------------------------


class AttentionOnly(nn.Module):
    """Embeddings, layers of attention that add to them, and an unembedding; nothing else.

        h = E[x] + P;   h = h + attention_l(h) for each layer l;   logits = h U'

    Args:
        vocabulary_size: V.
        context_length: the longest text, in tokens.
        layers, heads, channels: L, H, C.
        rotary: whether positions are rotary; else learnt, and added to the embeddings.
        generator: draws the initial weights; on the CPU.
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        context_length: int,
        layers: int,
        heads: int,
        channels: int,
        rotary: bool = False,
        generator: torch.Generator,
    ):
        super().__init__()
        self.context_length = context_length
        self.embedding = nn.Parameter(
            linear(channels, vocabulary_size, bias=False, generator=generator).weight
        )
        self.positions = (
            None
            if rotary
            else LearnedPositions(context_length, channels=channels, generator=generator)
        )
        positions = "rotary" if rotary else "none"
        config = BlockConfig(channels=channels, heads=heads, positions=positions)
        self.layers = nn.ModuleList(
            MultiHeadAttention(config, generator=generator) for _ in range(layers)
        )
        self.unembedding = linear(channels, vocabulary_size, bias=False, generator=generator)

    def forward(self, ids: Tensor, *, masks: Sequence[Tensor | None] | None = None) -> Tensor:
        """The logits of the token after each token, (B, T, V), from ids, (B, T).

        Args:
            ids: (B, T).
            masks: (T, T) for each layer; it forbids what is not causal anyway. None: nothing more.
        Raises:
            ValueError: ids outside the vocabulary, more tokens than there are positions, or not
                one mask for each layer.
        """
        check_batch(ids, len(self.embedding))
        masks = [None] * len(self.layers) if masks is None else masks
        x = functional.embedding(ids, self.embedding)
        if self.positions is not None:
            x = x + self.positions(ids.shape[1])
        for layer, mask in zip(self.layers, masks, strict=True):
            x = x + layer(x, causal=True, mask=mask)
        return self.unembedding(x)


@torch.no_grad()
def induction_model(
    vocabulary_size: int, *, context_length: int, begin: int = 0, sharpness: float = 30.0
) -> AttentionOnly:
    """Two layers of one head whose weights are set by hand: they complete repeated sequences.

    The stream has four parts: the token itself, the token before, the position, the prediction.

        layer 1   the query of position t is the key of position t - 1; the value is its token,
                  written into the part "before"
        layer 2   the query is the token itself, the key the token *before*; the value is the
                  token itself, written into the part "prediction"

    So a token finds the places whose predecessor it is, and predicts what stands there. Where
    there is no such place it looks at the first position, whose value is nothing: all tokens are
    then equally likely.

    Args:
        vocabulary_size: V.
        context_length: the longest text, in tokens.
        begin: the token that every text begins with and that never comes again.
        sharpness: by how much the right place's score exceeds the others; exp(-sharpness) leaks.
    """
    channels = 3 * vocabulary_size + context_length
    model = AttentionOnly(
        vocabulary_size,
        context_length=context_length,
        layers=2,
        heads=1,
        channels=channels,
        generator=torch.Generator(),
    )
    parts = [vocabulary_size] * 3 + [context_length]
    token, before, prediction, place = torch.arange(channels).split(parts)
    for parameter in model.parameters():
        parameter.zero_()
    model.embedding[:, token] = torch.eye(vocabulary_size)
    assert model.positions is not None  # they are not rotary
    model.positions.table[:, place] = torch.eye(context_length)
    model.unembedding.weight[:, prediction] = sharpness * torch.eye(vocabulary_size)

    strength = 2 * sharpness * math.sqrt(channels)  # scores are divided by the root of D = C
    queries, keys, values = range(3)
    layers = [layer for layer in model.layers if isinstance(layer, MultiHeadAttention)]
    shift, match = (layer.qkv.weight.view(3, channels, channels) for layer in layers)
    shift[queries, place[:-1], place[1:]] = strength
    shift[keys, place, place] = 1.0
    shift[values, before, token] = 1.0
    match[queries, token, token] = strength
    match[keys, token, before] = 1.0
    match[keys, place[0], place[0]] = 1.0
    layers[1].qkv.bias.view(3, channels)[queries, place[0]] = strength / 2
    match[values, prediction, token] = 1.0
    match[values, prediction[begin], token[begin]] = 0.0
    for layer in layers:
        layer.output.weight.copy_(torch.eye(channels))
    return model
