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
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..attention.block import Block, FeedForward, hidden_width
from ..attention.encoder_decoder import Decoder, Encoder, layer_windows
from ..attention.heads import head_width, linear
from ..attention.latent import turned_width
from ..attention.positions import LearnedPositions
from ..tools.checks import check_batch
from .cache import KeyValueCache, WindowCache
from .experts import Experts

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),  # as in the released GPT-1 and -2
    "relu": functional.relu,
    "silu": functional.silu,
}
SWITCHES = {  # fields of `GPTConfig` that came after GPT-2; their defaults are GPT-2
    *("norm_kind", "gated", "positions", "rotary_base", "rotary_scale"),
    *("kv_heads", "head_channels", "qk_norm", "latent", "window", "global_every", "sink"),
    *("experts", "experts_used", "experts_shift"),
}
_SIZES: dict[str, dict[str, Any]] = {  # of GPT-2; GPT-1 is as large as the smallest
    "small": {"layers": 12, "heads": 12, "channels": 768},
    "medium": {"layers": 24, "heads": 16, "channels": 1024},
    "large": {"layers": 36, "heads": 20, "channels": 1280},
    "xl": {"layers": 48, "heads": 25, "channels": 1600},
}
# GPT-1 and -2
_RELEASED: dict[str, Any] = {"activation": "gelu_tanh", "initial_std": 0.02, "dropout": 0.1}
LLAMA_BLOCK: dict[str, Any] = {
    "norm_kind": "rms",
    "gated": True,
    "activation": "silu",
    "positions": "rotary",
    "bias": False,
}


@dataclass(frozen=True)
class GPTConfig:
    """Everything that a GPT is, but for its weights.

    Attributes:
        vocabulary_size: V.
        context_length: the longest text, in tokens.
        layers, heads, channels: L, H, C.
        kv_heads: G, heads of keys and values, each shared by H / G heads; None: H. 1: multi-query.
        head_channels: D, the channels of a head; None: C / H.
        qk_norm: whether queries and keys go through an RMSNorm each, as in `MultiHeadAttention`.
        latent: L of `LatentAttention`, which takes the place of all these but D; None: keys and
            values of their own.
        window: how many tokens a local layer sees, the last one included; None: all.
        global_every: with a window, every so-manieth layer sees all; None: no layer does.
        sink: whether each head has a sink, as in `MultiHeadAttention`.
        hidden: width of the feed-forward networks; None: `hidden_width`, 4 C or gated 8 C / 3.
        norm: "pre" or "post".
        norm_kind: "layer" or "rms".
        activation: "gelu", "gelu_tanh" (its approximation, twice as slow on a CPU), "relu" or
            "silu".
        gated: whether the feed-forward networks have a gate; with "silu" this is SwiGLU.
        experts: E, how many feed-forward networks each block has; None: one, without a router.
        experts_used: K, how many of them each token uses.
        experts_shift: the rate at which their shifts move, as in `Experts`; 0: they stay 0.
        bias: whether linear maps and norms have one.
        eps: of the norms.
        dropout: of embeddings, attention weights and what each part adds.
        tied: whether the embedding is the unembedding, too.
        positions: "learnt" (a table that is added to the embeddings), "rotary", or "none".
        rotary_base, rotary_scale: `base` and `scale` of `rotate`; they extend the context.
        initial_std: of all matrices and tables at the start; None: 0.8 / sqrt(C). GPT's 0.02 is
            for C = 768 and above; narrow models begin to learn later with it. (OpenAI's code for
            GPT-2 draws the positions with 0.01; here they are drawn like the rest.)
        scaled_residuals: whether the 2 L maps that write into the residual stream start smaller,
            by 1 / sqrt(2 L), so that its variance does not grow with the depth. The paper says
            1 / sqrt(N) with N "the number of residual layers"; that N is 2 L is the usual reading,
            and OpenAI's published code has no such factor.
    Raises:
        ValueError: a size is below 1, the heads do not divide the channels, or a name is unknown.
    """

    vocabulary_size: int
    _: KW_ONLY
    context_length: int
    layers: int
    heads: int
    channels: int
    kv_heads: int | None = None
    head_channels: int | None = None
    qk_norm: bool = False
    latent: int | None = None
    window: int | None = None
    global_every: int | None = None
    sink: bool = False
    hidden: int | None = None
    norm: str = "pre"
    norm_kind: str = "layer"
    activation: str = "gelu"
    gated: bool = False
    experts: int | None = None
    experts_used: int = 2
    experts_shift: float = 0.0
    bias: bool = True
    eps: float = 1e-5
    dropout: float = 0.0
    tied: bool = True
    positions: str = "learnt"
    rotary_base: float = 10_000.0
    rotary_scale: float = 1.0
    initial_std: float | None = None
    scaled_residuals: bool = True

    def __post_init__(self) -> None:
        needed = ("vocabulary_size", "context_length", "layers", "heads", "channels")
        optional = ("kv_heads", "head_channels", "latent", "window", "global_every", "hidden")
        for name in (*needed, *optional, "experts", "experts_used"):
            size = getattr(self, name)
            if size is None and name not in needed:
                continue
            if type(size) is not int or size < 1:  # True is no size
                raise ValueError(f"expected {name} to be a whole number above 0, got {size!r}")
        for name in ("qk_norm", "sink", "gated", "bias", "tied", "scaled_residuals"):
            if type(switch := getattr(self, name)) is not bool:  # any text would count as True
                raise ValueError(f"expected {name} to be True or False, got {switch!r}")
        if self.experts and self.experts_used > self.experts:
            raise ValueError(
                f"expected at most experts={self.experts} to be used, got {self.experts_used}"
            )
        if self.latent and (self.kv_heads or self.qk_norm or self.sink):
            raise ValueError(
                "expected latent attention without kv_heads, qk_norm and sink, got both"
            )
        width = self.head_width
        if self.kv_heads and self.heads % self.kv_heads:
            raise ValueError(
                f"expected kv_heads that divide the heads, got kv_heads={self.kv_heads} and "
                f"heads={self.heads}"
            )
        if self.norm not in ("pre", "post"):
            raise ValueError(f'expected norm "pre" or "post", got {self.norm!r}')
        if self.norm_kind not in ("layer", "rms"):
            raise ValueError(f'expected a norm_kind "layer" or "rms", got {self.norm_kind!r}')
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"expected an activation among {sorted(ACTIVATIONS)}, got {self.activation!r}"
            )
        if self.positions not in ("learnt", "rotary", "none"):
            raise ValueError(
                f'expected positions "learnt", "rotary" or "none", got {self.positions!r}'
            )
        if self.positions == "rotary" and width % 2:
            raise ValueError(f"expected an even number of channels a head, got {width}")
        _ = self.turned_width  # its own check
        for name in ("rotary_base", "rotary_scale"):
            if not getattr(self, name) > 0:
                raise ValueError(f"expected {name} above 0, got {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"expected a dropout from 0 to below 1, got {self.dropout}")
        if not 0 < self.eps < math.inf:
            raise ValueError(f"expected eps above 0 and finite, got {self.eps}")
        if not 0 <= self.experts_shift < math.inf:
            raise ValueError(f"expected experts_shift from 0 on, got {self.experts_shift}")
        if self.initial_std is not None and not self.initial_std > 0:
            raise ValueError(f"expected an initial_std above 0, got {self.initial_std}")

    @classmethod
    def gpt1(cls) -> "GPTConfig":
        """GPT of 2018: 116,534,784 parameters."""
        return cls(
            40_478,
            context_length=512,
            **_SIZES["small"],
            norm="post",
            scaled_residuals=False,
            **_RELEASED,
        )

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
        return cls(
            50_257,
            context_length=2_048,
            layers=96,
            heads=96,
            channels=12_288,
            activation="gelu_tanh",
            initial_std=0.02,
        )

    @classmethod
    def llama(
        cls,
        vocabulary_size: int,
        *,
        context_length: int,
        layers: int,
        heads: int,
        channels: int,
        hidden: int,
        **options: Any,
    ) -> "GPTConfig":
        """A model of Llama's blocks: `LLAMA_BLOCK`, and as published untied, eps 1e-6, std 0.02.

        Of Llama 3.2 1B: 1,235,814,400 parameters.

        >>> sizes = {"layers": 16, "heads": 32, "kv_heads": 8, "channels": 2048, "hidden": 8192}
        >>> GPTConfig.llama(128_256, context_length=8_192, tied=True, **sizes).parameters
        1235814400

        Args:
            vocabulary_size, context_length, layers, heads, channels, hidden: as in `GPTConfig`.
            options: further fields, such as `kv_heads`, `rotary_base`, and what is to differ.
        Source: Touvron et al. 2023, section 2.2.
        """
        sizes = {"layers": layers, "heads": heads, "channels": channels, "hidden": hidden}
        published = {"eps": 1e-6, "tied": False, "initial_std": 0.02, "scaled_residuals": False}
        settings = {"context_length": context_length} | sizes | LLAMA_BLOCK | published
        return cls(vocabulary_size, **(settings | options))

    @property
    def settings(self) -> dict[str, Any]:
        """The fields as plain values, but for the switches that are off.

        What was saved before there was a switch is thus as it would be saved now.
        """
        on = self.unusual(())
        return {k: v for k, v in asdict(self).items() if k not in SWITCHES or k in on}

    def unusual(self, allowed: Collection[str]) -> dict[str, Any]:
        """The fields that differ from their defaults, but for those that are allowed to."""
        return {
            each.name: value
            for each in fields(self)
            if each.name not in allowed and (value := getattr(self, each.name)) != each.default
        }

    @property
    def width(self) -> int:
        """The width of the feed-forward networks."""
        if self.hidden is None:
            return hidden_width(self.channels, gated=self.gated)
        return self.hidden

    @property
    def head_width(self) -> int:
        """D, the channels of a head."""
        return head_width(self.channels, self.heads, self.head_channels)

    @property
    def turned_width(self) -> int:
        """R, how many channels more a head of latent attention rotates."""
        return turned_width(self.head_width) if self.latent and self.positions == "rotary" else 0

    @property
    def windows(self) -> list[int | None]:
        """How many tokens each layer sees; None: all."""
        return layer_windows(self.layers, self.window, self.global_every)

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
        kept = sum(length if w is None else min(length, w - 1) for w in self.windows)
        return kept * self.cached_per_token // self.layers

    @property
    def parameters(self) -> int:
        """How many parameters the model has, each counted once.

        >>> GPTConfig.gpt2("small").parameters
        124439808
        """
        return self._parameters(self.experts)

    @property
    def used_parameters(self) -> int:
        """How many of them one token uses: those of K experts, and all others."""
        return self._parameters(self.experts and self.experts_used)

    def _parameters(self, experts: int | None) -> int:
        c, bias = self.channels, int(self.bias)
        norm = c if self.norm_kind == "rms" else c + bias * c
        attention = sum(i * o + o * (bias and has_bias) for i, o, has_bias in self._attention_maps)
        attention += 2 * self.head_width * self.qk_norm + (self.latent or 0)  # gains
        attention += self.heads * self.sink
        expanding = 1 + self.gated  # maps of C channels to the width
        feed_forward = (1 + expanding) * c * self.width + bias * (expanding * self.width + c)
        if experts and self.experts:
            feed_forward = experts * feed_forward + c * self.experts
        table = self.context_length if self.positions == "learnt" else 0
        embeddings = (self.vocabulary_size + table) * c
        unembedding = 0 if self.tied else self.vocabulary_size * c
        last = norm if self.norm == "pre" else 0
        return self.layers * (attention + feed_forward + 2 * norm) + embeddings + unembedding + last

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
        matrices = sum(i * o for i, o, _ in self._attention_maps)
        feed_forward = (2 + self.gated) * self.channels * self.width
        if self.experts:
            feed_forward = self.experts_used * feed_forward + self.channels * self.experts
        matrices += feed_forward
        mixing = self.heads * (2 * self.head_width + self.turned_width)
        layer = 2 * matrices + 2 * length * mixing
        return self.layers * layer + 2 * self.vocabulary_size * self.channels

    @property
    def _attention_maps(self) -> list[tuple[int, int, bool]]:
        """The matrices of an attention: inputs, outputs, and whether it may have a bias."""
        c, of_heads = self.channels, self.heads * self.head_width
        if self.latent is None:
            rows = (self.heads + 2 * (self.kv_heads or self.heads)) * self.head_width
            return [(c, rows, True), (of_heads, c, True)]
        turned = self.turned_width
        down = [(c, of_heads + self.heads * turned, True), (c, self.latent + turned, True)]
        return [*down, (self.latent, 2 * of_heads, False), (of_heads, c, True)]


def blocks_of(
    kind: type[Encoder | Decoder], config: GPTConfig, *, generator: torch.Generator
) -> Encoder | Decoder:
    """The blocks that a configuration describes, (B, T, C) to (B, T, C).

    Args:
        kind: `Encoder` or `Decoder`: whether all are seen or only those before.
        config: what they are.
        generator: draws the initial weights; on the CPU.
    """
    of_keys: dict[str, Any] = {"kv_heads": config.kv_heads, "qk_norm": config.qk_norm}
    of_keys["sink"] = config.sink
    of_experts: dict[str, Any] = {"experts": config.experts, "used": config.experts_used}
    make_experts = partial(Experts, **of_experts, shift_rate=config.experts_shift)
    return kind(
        config.layers,
        channels=config.channels,
        heads=config.heads,
        head_channels=config.head_channels,
        **({"latent": config.latent} if config.latent else of_keys),
        window=config.window,
        global_every=config.global_every,
        hidden=config.hidden,
        norm=config.norm,
        norm_kind=config.norm_kind,
        activation=ACTIVATIONS[config.activation],
        gated=config.gated,
        make_feed_forward=make_experts if config.experts else FeedForward,
        bias=config.bias,
        eps=config.eps,
        dropout=config.dropout,
        rotary=config.positions == "rotary",
        rotary_base=config.rotary_base,
        rotary_scale=config.rotary_scale,
        generator=generator,
    )


def positions_of(config: GPTConfig, *, generator: torch.Generator) -> LearnedPositions | None:
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
    blocks = [part for part in model.modules() if isinstance(part, Block)]
    for block in blocks if config.scaled_residuals else ():
        attentions = [block.attention, *([block.cross_attention] if block.cross else [])]
        networks = [m for m in block.feed_forward.modules() if isinstance(m, FeedForward)]
        for writer in (*(m.output for m in attentions), *(m.contract for m in networks)):
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

    kind, causal = "gpt", True

    def __init__(self, config: GPTConfig, *, generator: torch.Generator):
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocabulary_size, config.channels))
        self.positions = positions_of(config, generator=generator)
        self.decoder = blocks_of(Decoder, config, generator=generator)
        self.unembedding = None
        if not config.tied:
            self.unembedding = linear(
                config.channels, config.vocabulary_size, bias=False, generator=generator
            )
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
        return self.decoder(self._embed(ids, cache[0].length if cache else 0), cache=cache)

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
            return functional.linear(states, self.embedding)
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
        limit, windows = self.config.context_length, self.config.windows
        if not rolling:
            return [KeyValueCache(limit) for _ in windows]
        return [KeyValueCache(limit) if w is None else WindowCache(limit, w) for w in windows]

    def _embed(self, ids: Tensor, start: int) -> Tensor:
        check_batch(ids, self.config.vocabulary_size)
        if start + ids.shape[1] > self.config.context_length:
            before = f" after {start} in the cache" if start else ""
            raise ValueError(
                f"expected at most {self.config.context_length} tokens, the model's context, got "
                f"{ids.shape[1]}{before}; cut the text, or score it in windows"
            )
        embedded = functional.embedding(ids, self.embedding)
        if self.positions is not None:
            embedded = embedded + self.positions(ids.shape[1], start)
        return self.dropout(embedded)
