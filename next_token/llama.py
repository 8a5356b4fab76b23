"""What are Llama's weights called in the folders of others, and how is such a folder opened?

    in a GGUF file         in a folder, below "model."                       stored
    token_embd             embed_tokens                                      as ours
    blk.i.attn_q, attn_k   layers.i.self_attn.q_proj, k_proj                 turned
    blk.i.attn_v, …        layers.i.self_attn.v_proj, …                      as ours
    output (untied only)   lm_head, without "model."                         as ours

Turned: we rotate neighbouring channels of a head, 2 i and 2 i + 1, as Su et al. 2021 do and Llama's
own code does; `transformers` rotates i and i + D / 2. A product of a query and a key does not mind
in which order its channels stand, so it is enough to sort the rows of both matrices.

What each is in our model says `today/gguf_models`.
Source: Touvron et al. 2023 (Llama); the library `transformers` (Wolf et al. 2020), whose names
these are.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from src.gpt import pretrained, released
from src.gpt.gpt2 import GPT, LLAMA_BLOCK, GPTConfig
from src.today import gguf_models

from .folders import open_tokenizer

_FIELDS: dict[str, tuple[str, Any]] = {  # ours: theirs, and what it is where a file says nothing
    "vocabulary_size": ("vocab_size", None),
    "context_length": ("max_position_embeddings", None),
    "layers": ("num_hidden_layers", None),
    "heads": ("num_attention_heads", None),
    "channels": ("hidden_size", None),
    "hidden": ("intermediate_size", None),
    "head_channels": ("head_dim", None),
    "bias": ("attention_bias", False),
    "eps": ("rms_norm_eps", 1e-6),
    "tied": ("tie_word_embeddings", False),
}
_NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "output": "lm_head",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def open_run(folder: Path | str, *, device: torch.device | str = "cpu") -> released.Run:
    """As `src.gpt.released.open_run`; a released model may be a Llama, with its own tokenizer."""
    return released.open_run(folder, device=device, load=load, read_tokenizer=open_tokenizer)


def load(folder: str | os.PathLike[str]) -> GPT:
    """The model of a folder in the released format of GPT-2 or Llama, evaluating, on the CPU.

    Raises:
        FileNotFoundError, CheckpointError: as `src.gpt.pretrained.load`.
    """
    folder = Path(folder)
    config = pretrained.read_config(folder, _config_of_either)
    if config.positions != "rotary":
        return pretrained.load(folder)
    table = "embed_tokens.weight" if config.tied else None
    weights = pretrained.read_weights(folder, "model.", table)

    def read(name: str) -> Tensor:
        heads = _turned_heads(config, name)
        return neighbours(weights[name], heads) if heads else weights[name]

    return pretrained.with_weights(config, views, weights, read, where=f"{folder}")


def save(model: GPT, folder: str | os.PathLike[str], *, end: int | None = None) -> Path:
    """Write a model in the released format of GPT-2, or of Llama if it is one; return the folder.

    Args:
        end: as for `src.gpt.pretrained.save`.
    Raises:
        ValueError: the model has something that the format cannot say, such as a window.
    """
    if model.config.positions != "rotary":
        return pretrained.save(model, folder, end=end)
    config = model.config
    config = replace(config, hidden=config.width, head_channels=config.head_width)
    stored = stored_config(config)
    pretrained.check_told(config, config_of(stored), "Llama's blocks, as in GPTConfig.llama")
    weights = released_weights(config, model.state_dict())
    named = {"model." * (n != "lm_head.weight") + n: w for n, w in weights.items()}
    return pretrained.write(Path(folder), named, stored, end)


def halves(weight: Tensor, heads: int) -> Tensor:
    """Rows of queries or keys, sorted so that i and i + D / 2 of a head are a pair, not neighbours.

    >>> halves(Tensor([0, 1, 2, 3]), heads=1)
    tensor([0., 2., 1., 3.])
    """
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def neighbours(weight: Tensor, heads: int) -> Tensor:
    """The inverse of `halves`."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def views(config: GPTConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a folder by their names, as views of our state; none is turned."""
    return {_renamed(name): view for name, view in gguf_models.views(config, state).items()}


def released_weights(config: GPTConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a folder holds of our state, by its names without "model."."""
    return {
        name: halves(view, heads) if (heads := _turned_heads(config, name)) else view
        for name, view in views(config, state).items()
    }


def _renamed(name: str) -> str:
    *block, part, kind = name.replace("blk.", "layers.").rsplit(".", 2)
    return ".".join([*block, _NAMES[part], kind])


def _config_of_either(stored: Mapping[str, Any]) -> GPTConfig:
    kind = config_of if stored.get("model_type") == "llama" else pretrained.config_of
    return kind(stored)


def _turned_heads(config: GPTConfig, name: str) -> int | None:
    """How many heads a matrix of queries or keys has; None: it is another."""
    kv_heads = config.kv_heads or config.heads
    return config.heads if ".q_proj." in name else kv_heads if ".k_proj." in name else None


def config_of(stored: Mapping[str, Any]) -> GPTConfig:
    """The configuration that a `config.json` of Llama describes.

    Raises:
        ValueError, TypeError: a size is missing or cannot be, or the model is another than ours.
    """
    fixed = [stored.get("model_type"), stored.get("hidden_act", "silu")]
    biases = [stored.get(name, False) for name in ("attention_bias", "mlp_bias")]
    turning = stored.get("rope_parameters") or stored.get("rope_scaling") or {}
    kind = turning.get("rope_type", turning.get("type", "default"))
    if fixed != ["llama", "silu"] or biases[0] != biases[1] or kind not in ("default", "linear"):
        wanted = "llama, hidden_act silu, rotary default or linear, biases everywhere or nowhere"
        raise ValueError(f"expected {wanted}, got {fixed}, {kind!r}, {biases}")
    fields = {ours: stored.get(theirs, default) for ours, (theirs, default) in _FIELDS.items()}
    kv_heads = stored.get("num_key_value_heads")
    return GPTConfig(
        **LLAMA_BLOCK | fields,
        dropout=stored.get("attention_dropout") or 0.0,
        initial_std=stored.get("initializer_range") or 0.02,
        kv_heads=None if kv_heads == fields["heads"] else kv_heads,
        scaled_residuals=False,
        rotary_base=float(turning.get("rope_theta", stored.get("rope_theta", 10_000.0))),
        rotary_scale=float(turning.get("factor", 1.0)) if kind == "linear" else 1.0,
    )


def stored_config(config: GPTConfig) -> dict[str, Any]:
    """What the `config.json` of a Llama is to hold."""
    scaled = {"rope_type": "linear", "factor": config.rotary_scale}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **{theirs: asdict(config)[ours] for ours, (theirs, _) in _FIELDS.items()},
        "attention_dropout": config.dropout,
        "initializer_range": config.initial_std or 0.02,
        "num_key_value_heads": config.kv_heads or config.heads,
        "hidden_act": "silu",
        "mlp_bias": config.bias,
        "rope_theta": config.rotary_base,
        "rope_scaling": scaled if config.rotary_scale != 1 else None,
    }
