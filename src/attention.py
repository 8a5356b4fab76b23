"""How does a position of a text look at the others, and at whom may it look?

    scores  = Q K' / sqrt(D)                 how well each query matches each key    (T, S)
    weights = softmax(scores)                over the keys that the mask allows
    output  = weights V                      a mixture of the values                 (T, D)

A mask is boolean: True means *may attend*. Its rows are queries, its columns keys. Attention
itself knows nothing of order; what a model knows of positions is added to its input
(`sinusoidal_positions`, `LearnedPositions`) or turned into its queries and keys (`rotate`).

Axes: B texts, T positions that ask (queries), S positions that are asked (keys), C channels,
H heads, D = C / H channels of a head.
Source: Vaswani et al. 2017, sections 3.2 and 3.5; Su et al. 2021 (rotary positions).
Derived in the chapters `attention/attention`, `masks`, `heads` and `positions`.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

# ---- who may look where ----------------------------------------------------------------------


def causal_mask(length: int, keys: int | None = None, *, device=None) -> Tensor:
    """Each position may attend to itself and to what came before it, (T, S).

    >>> causal_mask(3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]

    Args:
        length: T.
        keys: S; the queries are the *last* T of S positions. None: S = T.
        device: where the mask is made.
    """
    keys = length if keys is None else keys
    return torch.ones(length, keys, dtype=torch.bool, device=device).tril(keys - length)


def banded_mask(length: int, width: int, *, device=None) -> Tensor:
    """Each position may attend to those fewer than `width` places away on either side, (T, T).

    `causal_mask(T) & banded_mask(T, width)` is the causal band: itself and the width - 1 before it.

    Raises:
        ValueError: the width is below 1, so that a position could not even see itself.
    """
    if width < 1:
        raise ValueError(f"expected a band of width 1 or more, got {width}")
    places = torch.arange(length, device=device)
    return (places[:, None] - places).abs() < width


def padding_mask(lengths: Tensor, length: int) -> Tensor:
    """Everybody may attend to the real tokens of their own text, nobody to padding, (B, 1, S).

    Args:
        lengths: (B,); how many real tokens each text has; padding stands after them.
        length: S; to how many positions the texts were padded.
    Raises:
        ValueError: a text is longer than that, or has no tokens at all.
    """
    if len(lengths) and not 1 <= int(lengths.min()) <= int(lengths.max()) <= length:
        raise ValueError(
            f"expected texts of 1 to {length} tokens (the padded length), got lengths from "
            f"{int(lengths.min())} to {int(lengths.max())}"
        )
    return torch.arange(length, device=lengths.device) < lengths[:, None, None]


def sparse_mask(
    length: int, *, window: int, global_tokens: int, random: int, generator: torch.Generator
) -> Tensor:
    """A band, some tokens that see and are seen by all, and a few keys by chance, (T, T).

    Args:
        length: T.
        window: width of the band, as in `banded_mask`.
        global_tokens: how many tokens, the first of the text, see all and are seen by all.
        random: how many keys are drawn for each query, from anywhere.
        generator: draws them; on the CPU, as is the mask.
    Raises:
        ValueError: more global or random tokens are asked for than there are.
    Source: Zaheer et al. 2020.
    """
    if not (0 <= global_tokens <= length and 0 <= random <= length):
        raise ValueError(
            f"expected 0 to {length} global tokens and random keys (the length), got "
            f"global_tokens={global_tokens} and random={random}"
        )
    mask = banded_mask(length, window)
    mask[:global_tokens] = True
    mask[:, :global_tokens] = True
    drawn = torch.rand(length, length, generator=generator).argsort()[:, :random]
    return mask.scatter(1, drawn, True)


# ---- attention -------------------------------------------------------------------------------


def scaled_dot_product_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    need_weights: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """softmax(Q K' * scale + bias) V, and the weights that mixed the values.

    Without weights, torch's fused kernel gives the same output and never holds all T x S scores.
    A query that may attend to no key has no distribution over keys: that is an error here, neither
    NaN nor a silent zero.

    Args:
        queries: (..., T, D).
        keys: (..., S, D).
        values: (..., S, any width).
        mask: broadcasts to (..., T, S); True where a query may attend to a key. None: everywhere.
        causal: whether the queries are the last T of the S positions and see no later key.
        bias: broadcasts to (..., T, S); added to the scores, as relative positions are.
        scale: of the scores; None: 1 / sqrt(D).
        dropout: the probability that a weight is dropped; the others grow by 1 / (1 - dropout).
        need_weights: whether the weights are wanted.
    Returns:
        (output, weights): (..., T, width of the values), and (..., T, S), rows summing to 1
        before dropout, or None.
    Raises:
        ValueError: shapes, types or devices do not fit, or a query may attend to nothing.
    """
    scale = 1 / math.sqrt(queries.shape[-1]) if scale is None else scale
    _check_parts(queries, keys, values)
    if not need_weights and mask is None and bias is None and _is_plain(queries, keys, causal):
        is_causal = causal and queries.shape[-2] > 1
        return functional.scaled_dot_product_attention(
            queries, keys, values, dropout_p=dropout, is_causal=is_causal, scale=scale
        ), None
    allowed = _allowed(mask, causal, queries, keys)
    if not need_weights:
        added = allowed if bias is None else _forbidden_to_minus_infinity(bias, allowed)
        return functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=added, dropout_p=dropout, scale=scale
        ), None
    scores = queries @ keys.mT * scale  # (..., T, S)
    if bias is not None:
        scores = scores + bias
    weights = torch.softmax(_forbidden_to_minus_infinity(scores, allowed), dim=-1)
    weights = functional.dropout(weights, dropout, training=dropout > 0)
    return weights @ values, weights


def _is_plain(queries: Tensor, keys: Tensor, causal: bool) -> bool:
    """Whether the fused kernel's own idea of causality, the first T of S, is ours."""
    return not causal or queries.shape[-2] in (1, keys.shape[-2])


def _allowed(mask: Tensor | None, causal: bool, queries: Tensor, keys: Tensor) -> Tensor | None:
    """The mask and causality in one; None: everything is allowed."""
    length, n_keys = queries.shape[-2], keys.shape[-2]
    if mask is not None:
        _check_mask(mask, queries, keys)
    if causal:
        earlier = causal_mask(length, n_keys, device=queries.device)
        mask = earlier if mask is None else mask & earlier
    if mask is not None:
        _check_rows(mask)
    return mask


def _forbidden_to_minus_infinity(scores: Tensor, allowed: Tensor | None) -> Tensor:
    # Zero would be a score like any other, of weight e^0; minus infinity has weight 0 exactly.
    return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)


def linear(
    inputs: int, outputs: int, *, bias: bool = True, generator: torch.Generator
) -> nn.Linear:
    """A linear layer whose weights are N(0, 1 / inputs), so that it keeps the variance; bias 0.

    Args:
        inputs, outputs: channels before and after.
        bias: whether there is one.
        generator: draws the weights; on the CPU.
    """
    # skip_init: the layer's own initialisation would draw from the global generator.
    device = torch.get_default_device()
    layer = skip_init(nn.Linear, inputs, outputs, bias=bias, device=device)
    with torch.no_grad():
        layer.weight.normal_(std=1 / math.sqrt(inputs), generator=generator)
        if bias:
            layer.bias.zero_()
    return layer


class KeyValueCache:
    """The keys and values of the tokens so far, so that they are computed once.

    One belongs to one attention module and one batch. In causal attention the keys and values of
    a prefix do not change when the text goes on; that is all that it relies on.

    Args:
        limit: for how many tokens there will be room.
    Derived in the chapter `gpt/cache`.
    """

    def __init__(self, limit: int):
        self.limit, self.length = limit, 0
        self._keys = self._values = None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of T new tokens, (B, H, T, D); return those of all so far, (B, H, S, D).

        Raises:
            ValueError: there is no room left, or the batch is not that of the tokens before.
        """
        end = self.length + keys.shape[-2]
        if end > self.limit:
            raise ValueError(
                f"expected at most {self.limit} tokens in the cache, its limit, got {self.length} "
                f"and {keys.shape[-2]} more"
            )
        if self._keys is None:
            room = (*keys.shape[:-2], self.limit, keys.shape[-1])
            self._keys, self._values = keys.new_empty(room), values.new_empty(room)
        if keys.shape[:-2] != self._keys.shape[:-2]:
            raise ValueError(
                f"expected tokens of the {len(self._keys)} texts that the cache was begun with, "
                f"got a batch of {len(keys)}; begin a new cache for another batch"
            )
        self._keys[..., self.length : end, :] = keys
        self._values[..., self.length : end, :] = values
        self.length = end
        return self._keys[..., :end, :], self._values[..., :end, :]


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each in D = C / H channels; a matrix puts their outputs together.

        head_h = attention(x Wq_h, memory Wk_h, memory Wv_h)
        output = (head_1, ..., head_H) Wo

    Without `memory` a text attends to itself.

    Args:
        channels: C.
        heads: H; it divides C.
        bias: whether the linear maps have one.
        dropout: of the attention weights, while training.
        rotary: whether queries and keys are rotated by their positions.
        generator: draws the initial weights; on the CPU.
    Raises:
        ValueError: the heads do not divide the channels, or rotary positions are asked for and a
            head has an odd number of channels.
    Source: Vaswani et al. 2017, section 3.2.2; `qkv` stacks their Wq, Wk, Wv of all heads.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        rotary: bool = False,
        generator: torch.Generator,
    ):
        super().__init__()
        if heads < 1 or channels % heads:
            raise ValueError(
                f"expected heads that divide the channels, got channels={channels} and "
                f"heads={heads}"
            )
        if rotary and channels // heads % 2:
            raise ValueError(
                "expected an even number of channels a head for rotary positions, which turn them "
                f"in pairs, got {channels} / {heads} = {channels // heads}"
            )
        self.channels, self.heads, self.dropout, self.rotary = channels, heads, dropout, rotary
        self.qkv = linear(channels, 3 * channels, bias=bias, generator=generator)
        self.output = linear(channels, channels, bias=bias, generator=generator)
        self.record = None  # called with the weights, if anybody wants them: `recorded_weights`

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        bias: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """What each position gathers, (B, T, C).

        Args:
            x: (B, T, C); who asks.
            memory: (B, S, C); who is asked; None: x itself.
            mask: (T, S), or (B, T, S) for all heads alike, or (B, H, T, S); 1 may stand for T.
            causal: whether a position sees no later one.
            bias: broadcasts to (B, H, T, S); added to the scores.
            cache: of the tokens before x, if x goes on with a text; the keys are theirs and x's.
        Raises:
            ValueError: shapes do not fit, or there are both a memory and a cache.
        """
        if memory is not None and cache is not None:
            raise ValueError(
                "expected a memory or a cache, got both: a cache gains the keys of the next "
                "tokens, and a memory comes whole each time, so its keys would be kept twice"
            )
        queries, keys, values = map(self.split_heads, self._project(x, memory))
        if self.rotary:
            start = 0 if cache is None else cache.length
            queries, keys = rotate(queries, start=start), rotate(keys, start=start)
        if cache is not None:
            keys, values = cache.extend(keys, values)
        if mask is not None and mask.ndim == 3:
            mask = mask[:, None]  # (B, 1, T, S): the same for every head
        gathered, weights = scaled_dot_product_attention(
            queries,
            keys,
            values,
            mask=mask,
            causal=causal,
            bias=bias,
            dropout=self.dropout if self.training else 0.0,
            need_weights=self.record is not None,
        )
        if self.record is not None:
            self.record(weights.detach())
        return self.output(self.join_heads(gathered))

    def _project(self, x: Tensor, memory: Tensor | None) -> tuple[Tensor, ...]:
        """Queries, keys and values of all heads, (B, T, C), (B, S, C), (B, S, C)."""
        for name, part in (("x", x), ("memory", memory)):
            if part is not None and (part.ndim != 3 or part.shape[-1] != self.channels):
                raise ValueError(
                    f"expected {name} of shape (B, T, {self.channels}), got {tuple(part.shape)}"
                )
        if memory is None:
            return self.qkv(x).chunk(3, dim=-1)
        split = [self.channels, 2 * self.channels]
        of_queries, of_the_rest = self.qkv.weight.split(split)
        bias, bias_of_the_rest = (
            (None, None) if self.qkv.bias is None else self.qkv.bias.split(split)
        )
        keys_and_values = functional.linear(memory, of_the_rest, bias_of_the_rest)
        return functional.linear(x, of_queries, bias), *keys_and_values.chunk(2, dim=-1)

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, H, T, D): head h takes the channels from h D up to (h + 1) D."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def join_heads(self, x: Tensor) -> Tensor:
        """(B, H, T, D) -> (B, T, C): the inverse of `split_heads`."""
        return x.transpose(1, 2).flatten(-2)


@contextmanager
def recorded_weights(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Inside the block, the model's attention weights are kept: {name of the module: (B, H, T, S)}.

    Each run of the model overwrites those of the run before. With `model = MultiHeadAttention(...)`
    itself the name is the empty text.

    Raises:
        ValueError: the model holds no MultiHeadAttention.
    """
    found = {n: m for n, m in model.named_modules() if isinstance(m, MultiHeadAttention)}
    if not found:
        raise ValueError(f"expected a model with attention in it, got {type(model).__name__}")
    maps: dict[str, Tensor] = {}
    for name, module in found.items():
        module.record = lambda weights, name=name: maps.__setitem__(name, weights)
    try:
        yield maps
    finally:
        for module in found.values():
            module.record = None


# ---- positions -------------------------------------------------------------------------------


def sinusoidal_positions(length: int, channels: int, *, base: float = 10_000.0) -> Tensor:
    """(T, C): entry (t, 2i) is sin(t w_i) and (t, 2i + 1) is cos(t w_i), w_i = base^(-2i / C).

    Raises:
        ValueError: the number of channels is odd.
    Source: Vaswani et al. 2017, section 3.5.
    """
    angles = torch.arange(length)[:, None] * _frequencies(channels, base)  # (T, C / 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


def rotate(x: Tensor, *, start: int = 0, base: float = 10_000.0) -> Tensor:
    """Rotary positions: pair i of the channels at position t is turned by the angle t w_i.

    The product of a rotated query and a rotated key depends on the *difference* of their
    positions only. The pairs are (2i, 2i + 1), as in `sinusoidal_positions`.

    Args:
        x: (..., T, D); queries or keys.
        start: the position of the first of the T.
        base: sets the frequencies w_i = base^(-2i / D).
    Raises:
        ValueError: D is odd.
    Source: Su et al. 2021, section 3.2.2.
    """
    places = torch.arange(start, start + x.shape[-2])
    angles = places[:, None] * _frequencies(x.shape[-1], base)  # (T, D / 2), float64
    cos, sin = (part.to(x.device, x.dtype) for part in (angles.cos(), angles.sin()))
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def _frequencies(channels: int, base: float) -> Tensor:
    if channels % 2:
        raise ValueError(
            f"expected an even number of channels, a sine and a cosine each, got {channels}"
        )
    # float64: at position 10,000 a float32 angle can be off in its fourth decimal.
    return base ** (-torch.arange(0, channels, 2, dtype=torch.float64) / channels)


class LearnedPositions(nn.Module):
    """A table with a vector for each position, learnt like any other parameter.

    Args:
        context_length: how many positions the table has.
        channels: C.
        generator: draws the initial table, N(0, 1 / C); on the CPU.
    """

    def __init__(self, context_length: int, channels: int, *, generator: torch.Generator):
        super().__init__()
        table = torch.empty(context_length, channels)
        self.table = nn.Parameter(table.normal_(std=channels**-0.5, generator=generator))

    def forward(self, length: int, start: int = 0) -> Tensor:
        """The vectors of the positions from start, (T, C).

        Raises:
            ValueError: a position lies outside the table.
        """
        if not 0 <= start <= start + length <= len(self.table):
            raise ValueError(
                f"expected positions within the {len(self.table)} that were learnt, got "
                f"{length} from position {start}; a learnt table says nothing of later ones"
            )
        return self.table[start : start + length]


# ---- checks ----------------------------------------------------------------------------------


def _check_parts(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    if queries.shape[-1] != keys.shape[-1]:
        raise ValueError(
            f"expected queries and keys of one width, got {queries.shape[-1]} and {keys.shape[-1]}"
        )
    if keys.shape[-2] != values.shape[-2]:
        raise ValueError(
            f"expected a value for every key, got {keys.shape[-2]} keys and "
            f"{values.shape[-2]} values"
        )
    _check_devices(queries, keys=keys, values=values)


def _check_devices(queries: Tensor, **others: Tensor) -> None:
    for name, other in others.items():
        if other.device != queries.device:
            raise ValueError(
                f"expected {name} on the device of the queries, {queries.device}, got "
                f"{other.device}; move one of them with .to(…)"
            )


def _check_mask(mask: Tensor, queries: Tensor, keys: Tensor) -> None:
    if mask.dtype != torch.bool:
        raise ValueError(
            f"expected a boolean mask, True where a query may attend, got {mask.dtype}; "
            "what is to be added to the scores is called bias"
        )
    _check_devices(queries, mask=mask)
    shape = (*queries.shape[:-1], keys.shape[-2])
    short = mask.ndim <= len(shape)
    if not short or any(
        m not in (1, n) for m, n in zip(mask.shape[::-1], shape[::-1], strict=False)
    ):
        raise ValueError(
            f"expected a mask that broadcasts to (..., T, S) = {shape}, got {tuple(mask.shape)}; "
            "rows are queries, columns are keys"
        )


def _check_rows(allowed: Tensor) -> None:
    rows = allowed.any(-1)
    if not rows.all():
        first = (~rows).nonzero()[0].tolist()
        raise ValueError(
            f"expected every query to have a key that it may attend to, got {int((~rows).sum())} "
            f"of {rows.numel()} without one, the first at index {first}; a softmax over nothing "
            "is NaN. Let padding see itself, and a position see its own"
        )
