"""What is a Transformer made of, besides attention?

    layer_norm(x) = gain (x - mean) / sqrt(variance + eps) + bias       each position by itself
    ffn(x)        = W2 activation(W1 x + b1) + b2                       each position by itself
    pre-norm      h = x + attention(norm(x));     y = h + ffn(norm(h))            GPT-2
    post-norm     h = norm(x + attention(x));     y = norm(h + ffn(h))            GPT-1

An encoder is a stack of blocks that see the whole text; a decoder sees only the past, and with
`cross` looks at the encoder's output as well. Only attention moves information between positions.

Axes: B texts, T and S positions (target and source), C channels, V vocabulary.
Source: Vaswani et al. 2017, section 3; Ba et al. 2016 (LayerNorm); Xiong et al. 2020 (pre-norm).
Derived in the chapters `attention/block` and `attention/encoder_decoder`.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from .attention import KeyValueCache, LearnedPositions, MultiHeadAttention, linear
from .likelihood import check_batch


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor | None, *, eps: float = 1e-5) -> Tensor:
    """Each row of x with mean 0 and variance 1, then stretched by `gain` and shifted by `bias`.

    The variance is that of the row itself, divided by C, not by C - 1.

    >>> layer_norm(torch.tensor([[1.0, 3.0]]), torch.ones(2), torch.zeros(2), eps=0.0)
    tensor([[-1.,  1.]])

    Args:
        x: (..., C).
        gain, bias: (C,).
        eps: added to the variance, inside the root, so that a constant row is not divided by 0.
    """
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    normal = centred / (variance + eps).sqrt() * gain
    return normal if bias is None else normal + bias


class LayerNorm(nn.Module):
    """`layer_norm` with a gain and a bias that are learnt, from 1 and 0.

    It runs torch's kernel, which is the same function in one pass over the memory.

    Args:
        channels: C.
        eps: as in `layer_norm`.
        bias: whether there is one.
    """

    def __init__(self, channels: int, *, eps: float = 1e-5, bias: bool = True):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return functional.layer_norm(x, self.gain.shape, self.gain, self.bias, self.eps)


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between them, the same at every position.

    Args:
        channels: C.
        hidden: width in between; None: 4 C.
        activation: applied to the hidden layer, elementwise.
        bias: whether the linear maps have one.
        generator: draws the initial weights; on the CPU.
    """

    def __init__(
        self,
        channels: int,
        *,
        hidden: int | None = None,
        activation: Callable[[Tensor], Tensor] = functional.gelu,
        bias: bool = True,
        generator: torch.Generator,
    ):
        super().__init__()
        hidden = 4 * channels if hidden is None else hidden
        self.expand = linear(channels, hidden, bias=bias, generator=generator)
        self.contract = linear(hidden, channels, bias=bias, generator=generator)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return self.contract(self.activation(self.expand(x)))


class Block(nn.Module):
    """Attention, then (with `cross`) attention to a memory, then a feed-forward network.

    Around each of them goes a residual connection; dropout falls on what is added to it.

    Args:
        channels: C.
        heads: H.
        hidden: width of the feed-forward network; None: 4 C.
        norm: "pre" (before each part, inside the residual) or "post" (after the sum).
        cross: whether there is attention to a memory.
        activation: of the feed-forward network.
        bias: whether linear maps and norms have one.
        eps: of the norms.
        dropout: of the attention weights and of what each part adds.
        rotary: whether self-attention rotates its queries and keys.
        generator: draws the initial weights; on the CPU.
    Raises:
        ValueError: norm is neither "pre" nor "post", or as `MultiHeadAttention`.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        *,
        hidden: int | None = None,
        norm: str = "pre",
        cross: bool = False,
        activation: Callable[[Tensor], Tensor] = functional.gelu,
        bias: bool = True,
        eps: float = 1e-5,
        dropout: float = 0.0,
        rotary: bool = False,
        generator: torch.Generator,
    ):
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f'expected norm "pre" or "post", got {norm!r}')

        def attention(rotary: bool) -> MultiHeadAttention:
            return MultiHeadAttention(
                channels, heads, bias=bias, dropout=dropout, rotary=rotary, generator=generator
            )

        self.norm, self.cross = norm, cross
        self.attention = attention(rotary)
        self.attention_norm = LayerNorm(channels, eps=eps, bias=bias)
        if cross:
            self.cross_attention = attention(rotary=False)  # places of two texts do not compare
            self.cross_norm = LayerNorm(channels, eps=eps, bias=bias)
        self.feed_forward = FeedForward(
            channels, hidden=hidden, activation=activation, bias=bias, generator=generator
        )
        self.feed_forward_norm = LayerNorm(channels, eps=eps, bias=bias)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        memory_mask: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C).

        Args:
            x: (B, T, C); the residual stream.
            memory: (B, S, C); what cross-attention looks at.
            mask, causal: who may attend to whom within x.
            memory_mask: who of x may attend to whom of the memory.
            cache: of the tokens before x, for self-attention.
        Raises:
            ValueError: there is a memory but no cross-attention, or the other way round.
        """
        if self.cross != (memory is not None):
            expected = "a memory for" if self.cross else "no memory without"
            raise ValueError(f"expected {expected} cross-attention (cross={self.cross})")
        x = self._add(
            x,
            self.attention_norm,
            lambda x: self.attention(x, mask=mask, causal=causal, cache=cache),
        )
        if self.cross:
            x = self._add(
                x, self.cross_norm, lambda x: self.cross_attention(x, memory, mask=memory_mask)
            )
        return self._add(x, self.feed_forward_norm, self.feed_forward)

    def _add(self, x: Tensor, norm: LayerNorm, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm == "pre":
            return x + self.dropout(part(norm(x)))
        return norm(x + self.dropout(part(x)))


class _Stack(nn.Module):
    """Blocks one after another; after pre-norm blocks a last norm, which they leave to do."""

    def __init__(self, layers: int, channels: int, heads: int, **options):
        super().__init__()
        if layers < 0:
            raise ValueError(f"expected 0 layers or more, got {layers}")
        self.blocks = nn.ModuleList(Block(channels, heads, **options) for _ in range(layers))
        pre = options.get("norm", "pre") == "pre"
        norm = {"eps": options.get("eps", 1e-5), "bias": options.get("bias", True)}
        self.final_norm = LayerNorm(channels, **norm) if pre else nn.Identity()


class Encoder(_Stack):
    """Blocks in which every position sees every other: Encoder(layers, channels, heads, **options).

    The options are those of `Block`.
    """

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """(B, S, C) -> (B, S, C); the mask keeps padding out."""
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.final_norm(x)


class Decoder(_Stack):
    """Blocks in which a position sees no later one: Decoder(layers, channels, heads, **options).

    With cross=True each block looks at a memory as well. The options are those of `Block`.
    """

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: Sequence[KeyValueCache] | None = None,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C), causally; the masks only forbid more.

        Args:
            x: (B, T, C).
            memory, mask, memory_mask: as in `Block`.
            cache: one for each block, of the tokens before x.
        """
        for block, stored in zip(self.blocks, cache or [None] * len(self.blocks), strict=True):
            x = block(x, memory, mask=mask, causal=True, memory_mask=memory_mask, cache=stored)
        return self.final_norm(x)


class EncoderDecoder(nn.Module):
    """p(target | source): an encoder reads the source, a decoder predicts the target's next token.

    Args:
        source_vocabulary, target_vocabulary: their sizes.
        channels, heads, layers: C, H and the depth, of encoder and decoder each.
        context_length: of source and target, in tokens.
        norm: "pre" or "post".
        dropout: as in `Block`; it falls on the embeddings, too.
        padding: id that fills short sources up; nobody attends to it. None: no source is padded.
        generator: draws the initial weights; on the CPU.
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        channels: int,
        heads: int,
        layers: int,
        context_length: int,
        norm: str = "pre",
        dropout: float = 0.0,
        padding: int | None = None,
        generator: torch.Generator,
    ):
        super().__init__()

        def table(rows: int) -> nn.Parameter:
            return nn.Parameter(linear(channels, rows, bias=False, generator=generator).weight)

        def positions() -> LearnedPositions:
            return LearnedPositions(context_length, channels, generator=generator)

        options = {"norm": norm, "dropout": dropout, "generator": generator}
        self.padding, self.dropout = padding, nn.Dropout(dropout)
        self.source_embedding, self.source_positions = table(source_vocabulary), positions()
        self.target_embedding, self.target_positions = table(target_vocabulary), positions()
        self.encoder = Encoder(layers, channels, heads, **options)
        self.decoder = Decoder(layers, channels, heads, cross=True, **options)
        self.unembedding = linear(channels, target_vocabulary, bias=False, generator=generator)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """The logits of the token after each token of the target, (B, T, V).

        Args:
            source: (B, S); ids.
            target: (B, T); ids, shifted right: they begin with a start token.
        """
        return self.decode(target, *self.encode(source))

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor | None]:
        """The memory, (B, S, C), and its mask, (B, 1, S): what the decoder needs of the source."""
        mask = None if self.padding is None else (source != self.padding)[:, None]
        x = self._embed(source, self.source_embedding, self.source_positions)
        return self.encoder(x, mask=mask), mask

    def decode(self, target: Tensor, memory: Tensor, memory_mask: Tensor | None = None) -> Tensor:
        """The logits of the token after each token of the target, (B, T, V), given a memory."""
        x = self._embed(target, self.target_embedding, self.target_positions)
        return self.unembedding(self.decoder(x, memory, memory_mask=memory_mask))

    def _embed(self, ids: Tensor, table: Tensor, positions: LearnedPositions) -> Tensor:
        check_batch(ids, len(table))
        return self.dropout(functional.embedding(ids, table) + positions(ids.shape[1]))
