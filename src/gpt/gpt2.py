"""What is a GPT, as one page of code and one of numbers?

    h = E[x] (+ P)                      embeddings of tokens and of positions        (B, T, C)
    h = block_L(... block_1(h))         causal blocks of attention and feed-forward
    logits = norm(h) E'                 pre-norm: one last norm; tied: E once more   (B, T, V)

GPT-1, GPT-2 and Llama are settings of one configuration. Of the first two:

    ours                 GPT-1             GPT-2                 released name
    norm                 post              pre, and a last one   ln_1, ln_2, ln_f
    scaled_residuals     no                yes                   -
    embedding            40,478 tokens     50,257                wte
    positions            512               1,024                 wpe
    attention.qkv, .output                                       attn.c_attn, attn.c_proj
    feed_forward.expand, .contract                               mlp.c_fc, mlp.c_proj

Axes: B texts, T positions, C channels, V vocabulary.
Source: Radford et al. 2018, section 4.1; Radford et al. 2019, section 2.3; Brown et al. 2020;
Touvron et al. 2023 (Llama).
Derived in the chapter `gpt/gpt2`.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, fields
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..attention.block import Decoder
from ..attention.config import BlockConfig
from ..attention.experts import Experts
from ..attention.feed_forward import FeedForward
from ..attention.heads import Attention, linear
from ..attention.positions import LearnedPositions
from ..tools.checks import check_batch
from .cache import KeyValueCache, WindowCache

_OF_2019 = {"channels", "heads", "hidden", "norm", "activation", "bias", "eps", "dropout"}
SWITCHES = {each.name for each in fields(BlockConfig)} - _OF_2019  # whose defaults are GPT-2
_SIZES: dict[str, dict[str, Any]] = {  # of GPT-2; GPT-1 is as large as the smallest
    "small": {"layers": 12, "heads": 12, "channels": 768},
    "medium": {"layers": 24, "heads": 16, "channels": 1024},
    "large": {"layers": 36, "heads": 20, "channels": 1280},
    "xl": {"layers": 48, "heads": 25, "channels": 1600},
}
# GPT-1 and -2
_RELEASED: dict[str, Any] = {"activation": "gelu_tanh", "initial_std": 0.02, "dropout": 0.1}
LLAMA_BLOCK: dict[str, Any] = {"norm_kind": "rms", "gated": True, "activation": "silu"}
LLAMA_BLOCK |= {"positions": "rotary", "bias": False}
_LLAMA = {"eps": 1e-6, "tied": False, "initial_std": 0.02, "scaled_residuals": False}


@dataclass(frozen=True)
class GPTConfig(BlockConfig):
    """Everything that a GPT is, but for its weights: what its blocks are, and the following.

    Attributes:
        vocabulary_size: V.
        positions: "learnt" (a table that is added to the embeddings), "rotary", or "none".
        context_length: the longest text, in tokens.
        layers: L.
        tied: whether the embedding is the unembedding, too.
        initial_std: of all matrices and tables at the start; None: 0.8 / sqrt(C). GPT's 0.02 is
            for C = 768 and above; narrow models begin to learn later with it. (OpenAI's code for
            GPT-2 draws the positions with 0.01; here they are drawn like the rest.)
        scaled_residuals: whether the 2 L maps that write into the residual stream start smaller,
            by 1 / sqrt(2 L), so that its variance does not grow with the depth. The paper says
            1 / sqrt(N) with N "the number of residual layers"; that N is 2 L is the usual reading,
            and OpenAI's published code has no such factor.
    Raises:
        ValueError: as in `BlockConfig`.
    """

    vocabulary_size: int
    _: KW_ONLY
    context_length: int
    layers: int
    positions: str = "learnt"
    tied: bool = True
    initial_std: float | None = None
    scaled_residuals: bool = True

    @classmethod
    def gpt1(cls) -> "GPTConfig":
        """GPT of 2018: 116,534,784 parameters."""
        sizes = _SIZES["small"] | _RELEASED
        return cls(40_478, context_length=512, norm="post", scaled_residuals=False, **sizes)

    @classmethod
    def gpt2(cls, size: str = "small") -> "GPTConfig":
        """GPT-2 of 2019: "small", "medium", "large" or "xl", 124 to 1,558 million parameters.

        Raises:
            ValueError: another size.
        """
        if size not in _SIZES:
            raise ValueError(f"expected a size among {list(_SIZES)}, got {size!r}")
        return cls(50_257, context_length=1_024, **_SIZES[size], **_RELEASED)

    @classmethod
    def gpt3(cls) -> "GPTConfig":
        """GPT-3 of 2020: 175 billion. (Its banded attention layers have the same parameters.)"""
        sizes = _RELEASED | {"layers": 96, "heads": 96, "channels": 12_288, "dropout": 0.0}
        return cls(50_257, context_length=2_048, **sizes)

    @classmethod
    def llama(cls, vocabulary_size: int, **settings: Any) -> "GPTConfig":
        """A model of Llama's blocks: `LLAMA_BLOCK`, and as published untied, eps 1e-6, std 0.02.

        Of Llama 3.2 1B: 1,235,814,400 parameters.

        >>> sizes = {"layers": 16, "heads": 32, "kv_heads": 8, "channels": 2048, "hidden": 8192}
        >>> GPTConfig.llama(128_256, context_length=8_192, tied=True, **sizes).parameters
        1235814400

        Args:
            vocabulary_size: V.
            settings: the sizes, as in `GPTConfig`, and what is to differ from Llama.
        Source: Touvron et al. 2023, section 2.2.
        """
        return cls(vocabulary_size, **(LLAMA_BLOCK | _LLAMA | settings))

    @property
    def settings(self) -> dict[str, Any]:
        """The fields as plain values, but for the switches that are off.

        What was saved before there was a switch is thus as it would be saved now.
        """
        on = self.unusual()
        return {k: v for k, v in asdict(self).items() if k not in SWITCHES or k in on}

    @property
    def cached_per_token(self) -> int:
        """How many numbers a cache keeps of each token, in all layers."""
        if self.latent:
            return self.layers * (self.latent + self.turned_width)
        return self.layers * 2 * (self.kv_heads or self.heads) * self.head_width

    def cached(self, length: int) -> int:
        """How many numbers a rolling cache keeps after so many tokens; see `GPT.new_cache`.

        Args:
            length: how many tokens; of them a local layer keeps the last window - 1.
        """
        windows = [self.layer(number).window for number in range(self.layers)]
        kept = sum(length if w is None else min(length, w - 1) for w in windows)
        return kept * self.cached_per_token // self.layers

    @property
    def parameters(self) -> int:
        """How many parameters the model has, each counted once.

        >>> GPTConfig.gpt2("small").parameters
        124439808
        """
        return _count(self)[0]

    @property
    def used_parameters(self) -> int:
        """How many of them one token uses: those of K experts, and all others."""
        return _count(self)[1]

    def flops_per_token(self, length: int | None = None) -> int:
        """Multiplications and additions for one token of the forward pass, in matrix products.

        Two for each weight of a matrix, and 4 T H D a layer for the scores and the mixing in a text
        of length T, or 2 T H (2 D + R) in latent attention, the plain form (a kernel may skip those
        that causality or a window forbids; they are counted whole, as they are computed where the
        weights are wanted). The backward pass takes twice as many: together about 6 N for N
        parameters.

        Args:
            length: T; None: the whole context.
        """
        length = self.context_length if length is None else length
        mixing = self.layers * self.heads * (2 * self.head_width + self.turned_width)
        return 2 * (_count(self)[2] + length * mixing)


@lru_cache(maxsize=16)  # of the largest models it takes a second
def _count(config: GPTConfig) -> tuple[int, int, int]:
    """Numbers of all parameters, of those that one token uses, and in matrices that multiply it.

    They are counted on the device meta, where a tensor has a shape and takes no memory.
    """
    with torch.device("meta"):
        model = GPT(config, generator=torch.Generator("cpu"))
    routed = [part for part in model.modules() if isinstance(part, Experts)]
    idle = {p for each in routed for p in each.experts[each.used :].parameters()}
    total = sum(p.numel() for p in model.parameters())
    unused = sum(p.numel() for p in idle)
    matrices = sum(p.numel() for p in model.decoder.parameters() if p.ndim == 2 and p not in idle)
    return total, total - unused, matrices + config.vocabulary_size * config.channels


def new_positions(config: GPTConfig, *, generator: torch.Generator) -> LearnedPositions | None:
    """The table of positions that a configuration describes; None if they are not learnt."""
    if config.positions != "learnt":
        return None
    return LearnedPositions(config.context_length, channels=config.channels, generator=generator)


@torch.no_grad()
def initialise(model: nn.Module, config: GPTConfig, *, generator: torch.Generator) -> None:
    """All matrices N(0, std), those that write into the stream smaller; biases and gains stay.

    Args:
        model: of blocks, a GPT or one of `src.gpt.both_sides`; it is changed.
        config: its `initial_std`, `scaled_residuals`, channels and layers.
        generator: draws; on the CPU.
    """
    std = config.initial_std or 0.8 / math.sqrt(config.channels)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.normal_(std=std, generator=generator)
    for part in model.modules() if config.scaled_residuals else ():
        if isinstance(part, Attention | FeedForward):
            writer = part.output if isinstance(part, Attention) else part.contract
            writer.weight.div_(math.sqrt(2 * config.layers))


class Configured(nn.Module):
    """What all models that a `GPTConfig` describes say of themselves; see `likelihood/models`."""

    config: GPTConfig

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return self.config.vocabulary_size

    @property
    def channels(self) -> int:
        """C."""
        return self.config.channels

    @property
    def context_length(self) -> int:
        """The longest text, in tokens."""
        return self.config.context_length

    @property
    def token_table(self) -> nn.Parameter:
        """The vectors of the tokens, (V, C)."""
        return self.get_parameter("embedding")

    @property
    def settings(self) -> dict[str, Any]:
        """Plain values, from which a model of the same sizes can be built."""
        return self.config.settings


class GPT(Configured):
    """A causal language model: ids in, logits of the next token out.

    >>> config = GPTConfig(5, context_length=7, layers=1, heads=2, channels=4)
    >>> GPT(config, generator=torch.Generator())(torch.tensor([[3, 1]])).shape
    torch.Size([1, 2, 5])

    Args:
        config: what it is.
        generator: draws the initial weights; on the CPU.
    """

    kind, causal = "gpt", True  # of the protocol `Network`, in likelihood/models

    def __init__(self, config: GPTConfig, *, generator: torch.Generator):
        super().__init__()
        size, channels = config.vocabulary_size, config.channels
        self.config = config
        self.embedding = nn.Parameter(torch.empty(size, channels))
        self.positions = new_positions(config, generator=generator)
        self.decoder = Decoder(config.layers, config, generator=generator)
        self.unembedding = None
        if not config.tied:
            self.unembedding = linear(channels, size, bias=False, generator=generator)
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()
        initialise(self, config, generator=generator)

    def forward(self, ids: Tensor, *, cache: Sequence[KeyValueCache] | None = None) -> Tensor:
        """The logits of the token after each token, (B, T, V), from ids, (B, T).

        Args:
            ids: (B, T).
            cache: from `new_cache`, holding the tokens before these; it takes these up.
        Raises:
            ValueError: ids outside the vocabulary, or more tokens than the context holds.
        """
        return self.unembed(self.states(ids, cache=cache))

    def states(self, ids: Tensor, *, cache: Sequence[KeyValueCache] | None = None) -> Tensor:
        """What the logits are made from, (B, T, C): the stream at its end, after the last norm."""
        start = cache[0].length if cache else 0  # how many tokens came before
        x = self._embed(ids, start)  # (B, T, C)
        return self.decoder(x, cache=cache)

    def hidden_states(self, ids: Tensor) -> list[Tensor]:
        """The residual stream before the first block and after each, L + 1 of (B, T, C).

        The last norm is not applied to any of them.
        """
        states = [self._embed(ids, 0)]
        for block in self.decoder.blocks:
            states.append(block(states[-1], causal=True))
        return states

    def unembed(self, states: Tensor) -> Tensor:
        """Logits, (..., V), from states, (..., C)."""
        if self.unembedding is None:
            return functional.linear(states, self.embedding)  # states @ E', tied
        return self.unembedding(states)

    def layers(self) -> list[list[nn.Parameter]]:
        """Its parameters by depth: embeddings, each block, and what is above the last."""
        below = [self.embedding, *(self.positions.parameters() if self.positions else ())]
        blocks = [[*block.parameters()] for block in self.decoder.blocks]
        above = [*self.decoder.final_norm.parameters()]
        if self.unembedding is not None:
            above += self.unembedding.parameters()
        return [below, *blocks, above]

    def new_cache(self, *, rolling: bool = False) -> list[KeyValueCache]:
        """An empty cache, one for each block, for as many tokens as the context holds.

        Args:
            rolling: whether local layers keep their window only; the cache then cannot be set back.
        """
        limit, layers = self.config.context_length, range(self.config.layers)
        windows = [self.config.layer(number).window if rolling else None for number in layers]
        return [
            WindowCache(limit, window) if window else KeyValueCache(limit) for window in windows
        ]

    def _embed(self, ids: Tensor, start: int) -> Tensor:
        check_batch(ids, self.config.vocabulary_size)
        if (length := start + ids.shape[1]) > (limit := self.config.context_length):
            expected = f"expected at most {limit} tokens, the model's context"
            raise ValueError(f"{expected}, got {length}; cut the text, or score it in windows")
        embedded = functional.embedding(ids, self.embedding)
        if self.positions is not None:
            embedded = embedded + self.positions(ids.shape[1], start)
        return self.dropout(embedded)
