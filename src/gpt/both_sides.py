"""What reads a text from both sides? The blocks of Part III without the causal mask.

    encoder            h = E[x] + P (+ S);   h = blocks(h), all see all;   logits = norm(h) E'
    encoder-decoder    memory = encoder(source);   logits = decoder(target, memory) E'

Both are described by the configuration of a GPT. A GPT and an encoder of one configuration differ
in nothing but in who may look where. An encoder-decoder has two stacks, with cross-attention, and
about twice the parameters. The encoder's logits at a position are for the token *at* that position,
and mean something where it was hidden; the decoder's are for the next token, as ever.

Axes: B texts, T positions (S and U of source and target), C channels, V vocabulary.
Sources: Devlin et al. 2019, section 3; Raffel et al. 2020, section 3.2.
Derived in the chapter `gpt/both_sides`.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..attention.block import Encoder
from ..attention.encoder_decoder import EncoderDecoder
from ..attention.masks import padding_mask
from ..likelihood.models import evaluating
from ..tools.checks import check_batch
from .gpt2 import Configured, GPTConfig, initialise, new_positions


class EncoderLM(Configured):
    """A language model of hidden tokens: BERT, and with a prefix mask a prefix language model.

    >>> config = GPTConfig(5, context_length=7, layers=1, heads=2, channels=4)
    >>> EncoderLM(config, generator=torch.Generator())(torch.tensor([[3, 1]])).shape
    torch.Size([1, 2, 5])

    Args:
        config: its sizes; the embedding is the unembedding, too.
        segments: how many parts of a text are told apart by a vector of their own (BERT: 2);
            0: none.
        generator: draws the initial weights; on the CPU.
    Raises:
        ValueError: the configuration is not tied.
    """

    kind, causal = "encoder", False

    def __init__(self, config: GPTConfig, *, segments: int = 0, generator: torch.Generator):
        super().__init__()
        if not config.tied:
            raise ValueError("expected a configuration with tied=True, got tied=False")
        self.config, self.n_segments = config, segments
        self.embedding = nn.Parameter(torch.empty(config.vocabulary_size, config.channels))
        self.positions = new_positions(config, generator=generator)
        self.segments = None
        if segments:
            self.segments = nn.Parameter(torch.empty(segments, config.channels))
        self.encoder = Encoder(config.layers, config, generator=generator)
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()
        initialise(self, config, generator=generator)

    def forward(
        self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """The logits of the token at each place, (B, T, V); the arguments are those of `states`."""
        return self.unembed(self.states(ids, mask, segments))

    def states(
        self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """What the logits are made from, (B, T, C).

        Args:
            ids: (B, T).
            mask: (B, T, T) or (B, 1, T); who may attend to whom; None: all to all. Texts that are
                filled up need `padding_mask`: here padding is in nobody's future.
            segments: (B, T); to which part each token belongs; None: all to the first.
        Raises:
            ValueError: ids outside the vocabulary, more tokens than the context holds, or segments
                for a model that has none.
        """
        check_batch(ids, self.config.vocabulary_size)
        if ids.shape[1] > self.context_length:
            raise ValueError(f"expected {self.context_length} tokens at most, got {ids.shape[1]}")
        x = functional.embedding(ids, self.embedding)
        if self.positions is not None:
            x = x + self.positions(ids.shape[1])
        if self.segments is not None:
            segments = torch.zeros_like(ids) if segments is None else segments
            x = x + functional.embedding(segments, self.segments)
        elif segments is not None:
            raise ValueError("expected no segments for a model built without: segments=2")
        return self.encoder(self.dropout(x), mask=mask)

    def extracted(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The states of texts that are filled up on the right, (B, T, C); padding is not seen."""
        return self.states(ids, padding_mask(lengths, ids.shape[1]))

    def unembed(self, states: Tensor) -> Tensor:
        """Logits, (..., V), from states, (..., C)."""
        return functional.linear(states, self.embedding)

    def layers(self) -> list[list[nn.Parameter]]:
        """Its parameters by depth: embeddings, each block, and what is above the last."""
        below = [self.embedding, *(self.positions.parameters() if self.positions else ())]
        if self.segments is not None:
            below.append(self.segments)
        blocks = [[*block.parameters()] for block in self.encoder.blocks]
        return [below, *blocks, [*self.encoder.final_norm.parameters()]]

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration's, and the number of segments."""
        return super().settings | {"segments": self.n_segments}


class EncoderDecoderLM(Configured, EncoderDecoder):
    """`EncoderDecoder` with one vocabulary and one table for source, target and logits, as in T5.

    Args:
        config: its sizes; encoder and decoder have `layers` blocks each.
        start: the id that every target is shifted behind.
        padding: id that fills short sources up; None: no source is padded.
        generator: draws the initial weights; on the CPU.
    Raises:
        ValueError: the configuration is not tied, or its positions are not learnt.
    """

    kind, causal = "encoder-decoder", False

    def __init__(
        self,
        config: GPTConfig,
        *,
        start: int,
        padding: int | None = None,
        generator: torch.Generator,
    ):
        if (got := (config.tied, config.positions)) != (True, "learnt"):
            raise ValueError(f'expected tied=True and positions="learnt", got {got}')
        super().__init__(
            config.vocabulary_size,
            config.vocabulary_size,
            config,
            layers=config.layers,
            context_length=config.context_length,
            padding=padding,
            generator=generator,
        )
        self.config, self.start = config, start
        self.target_embedding = self.unembedding.weight = self.source_embedding
        initialise(self, config, generator=generator)

    @property
    def embedding(self) -> Tensor:
        """The table of the vocabulary, (V, C)."""
        return self.source_embedding

    def extracted(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """What the decoder is about to answer to each source, (B, 1, C): its state at the start.

        Args:
            ids: (B, S); sources, filled up on the right.
            lengths: (B,); of the sources.
        """
        mask = padding_mask(lengths, ids.shape[1])
        embedded = self._embed(ids, self.source_embedding, self.source_positions)
        memory = self.encoder(embedded, mask=mask)
        begin = torch.full_like(ids[:, :1], self.start)
        begin = self._embed(begin, self.target_embedding, self.target_positions)
        return self.decoder(begin, memory, memory_mask=mask)

    def layers(self) -> list[list[nn.Parameter]]:
        """Its parameters by depth: block d of both stacks is one layer."""
        positions = (self.source_positions, self.target_positions)
        stacks = (self.encoder, self.decoder)
        below = [self.embedding, *(p for each in positions for p in each.parameters())]
        levels = zip(*(stack.blocks for stack in stacks), strict=True)
        blocks = [[p for block in level for p in block.parameters()] for level in levels]
        return [below, *blocks, [p for s in stacks for p in s.final_norm.parameters()]]

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration's, and the two ids."""
        return super().settings | {"start": self.start, "padding": self.padding}

    def answer(self, source: Tensor, *, most: int, stop: int) -> list[int]:
        """The likeliest next token again and again, until `stop` or `most` tokens; without `stop`.

        Args:
            source: (S,); ids.
            most: how many tokens at most.
            stop: the id after which nothing is written.
        """
        written = [self.start]
        with evaluating(self):
            memory, mask = self.encode(source[None])
            while len(written) <= most:
                target = torch.tensor([written], device=source.device)
                written.append(int(self.decode(target, memory, mask)[0, -1].argmax()))
                if written[-1] == stop:
                    return written[1:-1]
        return written[1:]
