"""What are Llama's weights called in the files of others, and what in ours?

    ours                                      theirs, below "model."                     stored
    embedding                                 embed_tokens.weight                        as ours
    decoder.blocks.i.attention.qkv            layers.i.self_attn.q_proj, k_proj, v_proj  in three,
                                                                                         q, k turned
    decoder.blocks.i.attention.output         layers.i.self_attn.o_proj                  as ours
    decoder.blocks.i.feed_forward.gate        layers.i.mlp.gate_proj                     as ours
    decoder.blocks.i.feed_forward.expand      layers.i.mlp.up_proj                       as ours
    decoder.blocks.i.feed_forward.contract    layers.i.mlp.down_proj                     as ours
    decoder.blocks.i.attention_norm.gain      layers.i.input_layernorm.weight            as ours
    decoder.blocks.i.feed_forward_norm.gain   layers.i.post_attention_layernorm.weight   as ours
    decoder.final_norm.gain                   norm.weight                                as ours
    unembedding (untied only)                 lm_head.weight, without "model."           as ours

Turned: we rotate neighbouring channels of a head, 2 i and 2 i + 1, as Su et al. 2021 do and Llama's
own code does; `transformers` rotates i and i + D / 2. A product of a query and a key does not mind
in which order its channels stand, so it is enough to sort the rows of both matrices.

Used by `gpt/pretrained`, which reads and writes the files. Chapter: `today/a_real_model`.
Source: Touvron et al. 2023 (Llama); the library `transformers` (Wolf et al. 2020), whose names
these are.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .gpt2 import LLAMA_BLOCK, GPTConfig

Views = Callable[[GPTConfig, Mapping[str, Tensor]], dict[str, Tensor]]


@dataclass(frozen=True)
class Layout:
    """How the files of a kind of model name and hold its weights.

    Attributes:
        prefix: what stands before most names; without it they are called bare.
        table: the bare name of the embedding.
        block: matches a bare name in a block, and captures the block's number.
        ignored: matches bare names of what is stored, but is no weight.
        views: their tensors by their bare names, as views of our state, so that what is copied into
            them is in ours; `as_stored` gives them the shape that they have in the file.
        stored_config: what `config.json` is to hold; a ValueError if the format cannot say it.
    """

    prefix: str
    table: str
    block: re.Pattern[str]
    ignored: re.Pattern[str]
    views: Views
    stored_config: Callable[[GPTConfig], dict[str, Any]]


def halves(weight: Tensor, heads: int) -> Tensor:
    """Queries or keys whose pairs are neighbours, as a view in which i and i + D / 2 are a pair.

    >>> as_stored(halves(Tensor([0, 1, 2, 3]), heads=1))
    tensor([0., 2., 1., 3.])

    Args:
        weight: (H D, ...).
        heads: H.
    Returns:
        (H, 2, D / 2, ...).
    """
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2)


def as_stored(view: Tensor) -> Tensor:
    """What a file holds of a view of `Layout.views`: the rows of all heads one below the other."""
    return view.flatten(0, 2) if view.ndim > 2 else view


_FIELDS = {
    "vocabulary_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "channels": "hidden_size",
    "hidden": "intermediate_size",
}
_OTHERS = {"eps": "rms_norm_eps", "tied": "tie_word_embeddings", "dropout": "attention_dropout"}
_OTHERS |= {"initial_std": "initializer_range"}
_SAID = {*_FIELDS, *_OTHERS, "kv_heads", "head_channels", "rotary_base", "rotary_scale"}
_SAID |= {"scaled_residuals"}  # those who use the weights need not know
_PARTS = {
    "attention.output": "self_attn.o_proj",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.expand": "mlp.up_proj",
    "feed_forward.contract": "mlp.down_proj",
}
_NORMS = {
    "attention_norm": "input_layernorm",
    "feed_forward_norm": "post_attention_layernorm",
}


def config_of(stored: Mapping[str, Any]) -> GPTConfig:
    """The configuration that a `config.json` of Llama describes.

    Args:
        stored: what it holds.
    Raises:
        ValueError, TypeError: a size is missing or cannot be, or the model is another than ours.
    """
    if absent := [name for name in _FIELDS.values() if name not in stored]:
        raise ValueError(f"expected {', '.join(absent)}, found none")
    biases = [stored.get(name, False) for name in ("attention_bias", "mlp_bias")]
    if biases[0] != biases[1] or stored.get("hidden_act", "silu") != "silu":
        raise ValueError(
            "expected biases everywhere or nowhere, and hidden_act silu, got attention_bias="
            f"{biases[0]}, mlp_bias={biases[1]}, hidden_act={stored.get('hidden_act')!r}"
        )
    turning = stored.get("rope_parameters") or stored.get("rope_scaling") or {}
    kind = turning.get("rope_type", turning.get("type", "default"))
    if kind not in ("default", "linear"):
        raise ValueError(f"expected rotary positions as they are or linear, got {kind!r}")
    base = turning.get("rope_theta", stored.get("rope_theta", 10_000.0))
    given = {ours: stored[theirs] for ours, theirs in _FIELDS.items()}
    heads = stored.get("num_key_value_heads")
    return GPTConfig(
        **given,
        **LLAMA_BLOCK | {"bias": bool(biases[0])},
        eps=stored.get("rms_norm_eps", 1e-6),
        tied=bool(stored.get("tie_word_embeddings", False)),
        dropout=stored.get("attention_dropout") or 0.0,
        initial_std=stored.get("initializer_range") or 0.02,
        kv_heads=None if heads == given["heads"] else heads,
        head_channels=stored.get("head_dim"),
        scaled_residuals=False,
        rotary_base=float(base),
        rotary_scale=float(turning.get("factor", 1.0)) if kind == "linear" else 1.0,
    )


def _stored_config(config: GPTConfig) -> dict[str, Any]:
    block = LLAMA_BLOCK | {"bias": config.bias}
    differing = {name: v for name in block if (v := getattr(config, name)) != block[name]}
    if unusual := config.unusual(_SAID | block.keys()) | differing:
        raise ValueError(
            "expected a model of Llama's blocks, as in GPTConfig.llama, got "
            + ", ".join(f"{name}={value!r}" for name, value in unusual.items())
        )
    scaled = {"rope_type": "linear", "factor": config.rotary_scale}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **{theirs: getattr(config, ours) for ours, theirs in (_FIELDS | _OTHERS).items()},
        "intermediate_size": config.width,
        "initializer_range": config.initial_std or 0.02,
        "num_key_value_heads": config.kv_heads or config.heads,
        "head_dim": config.head_width,
        "hidden_act": "silu",
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "rope_theta": config.rotary_base,
        "rope_scaling": scaled if config.rotary_scale != 1 else None,
    }


def _views(config: GPTConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    views = {
        "embed_tokens.weight": state["embedding"],
        "norm.weight": state["decoder.final_norm.gain"],
    }
    kv_heads = config.kv_heads or config.heads
    heads = {"q": config.heads, "k": kv_heads, "v": kv_heads}
    for i in range(config.layers):
        ours, theirs = f"decoder.blocks.{i}", f"layers.{i}"
        for part, name in _NORMS.items():
            views[f"{theirs}.{name}.weight"] = state[f"{ours}.{part}.gain"]
        for kind in ("weight", "bias") if config.bias else ("weight",):
            for part, name in _PARTS.items():
                views[f"{theirs}.{name}.{kind}"] = state[f"{ours}.{part}.{kind}"]
            stacked = state[f"{ours}.attention.qkv.{kind}"]
            rows = stacked.split([n * config.head_width for n in heads.values()])
            for each, part in zip("qkv", rows, strict=True):
                turned = part if each == "v" else halves(part, heads[each])
                views[f"{theirs}.self_attn.{each}_proj.{kind}"] = turned
    return views if config.tied else views | {"lm_head.weight": state["unembedding.weight"]}


LLAMA = Layout(
    prefix="model.",
    table="embed_tokens.weight",
    block=re.compile(r"layers\.(\d{1,18})\."),
    ignored=re.compile(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),
    views=_views,
    stored_config=_stored_config,
)
