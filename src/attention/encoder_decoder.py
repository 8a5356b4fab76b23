"""What does one build of blocks? Encoders, decoders, and a model that translates.

    encoder            memory = blocks(source), all see all
    decoder            states = blocks(target), each sees itself and what came before; with
                       `cross`, the memory as well
    encoder-decoder    logits = states E'

Axes: B texts, T and S positions (target and source), C channels, V vocabulary.
Source: Vaswani et al. 2017, section 3. Derived in the chapters `attention/block` (stacks) and
`attention/encoder_decoder`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..tools.checks import check_batch
from .block import Block
from .config import BlockConfig
from .feed_forward import new_norm
from .heads import Cache, linear
from .positions import LearnedPositions


class _Stack(nn.Module):
    """Blocks one after another; after pre-norm blocks a last norm, which they leave to do."""

    def __init__(
        self, layers: int, config: BlockConfig, *, cross: bool = False, generator: torch.Generator
    ):
        super().__init__()
        self.blocks = nn.ModuleList(
            Block(config.layer(number), cross=cross, generator=generator)
            for number in range(layers)
        )
        self.final_norm = new_norm(config) if config.norm == "pre" else nn.Identity()


class Encoder(_Stack):
    """Blocks in which every position sees every other.

    Args:
        layers: how many.
        config: what each of them is.
        generator: draws the initial weights; on the CPU.
    """

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """(B, S, C) -> (B, S, C); the mask keeps padding out."""
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.final_norm(x)


class Decoder(_Stack):
    """Blocks in which a position sees no later one.

    Args:
        layers, config: as in `Encoder`.
        cross: whether each block looks at a memory as well.
        generator: draws the initial weights; on the CPU.
    """

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: Sequence[Cache] | None = None,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C), causally; the masks only forbid more.

        Args:
            x: (B, T, C).
            memory, mask, memory_mask: as in `Block`.
            cache: one for each block, of the tokens before x.
        """
        caches: Sequence[Cache | None] = cache or [None] * len(self.blocks)
        for block, stored in zip(self.blocks, caches, strict=True):
            x = block(x, memory, mask=mask, causal=True, memory_mask=memory_mask, cache=stored)
        return self.final_norm(x)


class EncoderDecoder(nn.Module):
    """p(target | source): an encoder reads the source, a decoder predicts the target's next token.

    Args:
        source_vocabulary, target_vocabulary: their sizes.
        config: of the blocks; their dropout falls on the embeddings, too.
        layers: the depth, of encoder and decoder each.
        context_length: of source and target, in tokens.
        padding: id that fills short sources up; nobody attends to it. None: no source is padded.
        generator: draws the initial weights; on the CPU.
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        config: BlockConfig,
        *,
        layers: int,
        context_length: int,
        padding: int | None = None,
        generator: torch.Generator,
    ):
        super().__init__()
        channels = config.channels

        def table(rows: int) -> nn.Parameter:
            return nn.Parameter(linear(channels, rows, bias=False, generator=generator).weight)

        def positions() -> LearnedPositions:
            return LearnedPositions(context_length, channels=channels, generator=generator)

        self.padding, self.dropout = padding, nn.Dropout(config.dropout)
        self.source_embedding, self.source_positions = table(source_vocabulary), positions()
        self.target_embedding, self.target_positions = table(target_vocabulary), positions()
        self.encoder = Encoder(layers, config, generator=generator)
        self.decoder = Decoder(layers, config, cross=True, generator=generator)
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
