"""How does one model read a text and write another? An encoder, a decoder, and what joins them.

    memory = encoder(source)                     all of it sees all of it           (B, S, C)
    states = decoder(target, memory)             causal, and it sees the memory     (B, T, C)
    logits = states U'                                                              (B, T, V)

Axes: B texts, T and S positions (target and source), C channels, V vocabulary.
Source: Vaswani et al. 2017, section 3. Derived in the chapter `attention/encoder_decoder`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..tools.checks import check_batch
from .block import Decoder, Encoder
from .config import BlockConfig
from .heads import linear
from .positions import LearnedPositions


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
