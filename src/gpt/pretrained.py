"""How do GPT-2's published weights become our model's, and ours GPT-2's?

    ours                                      released                        stored
    embedding, positions.table                wte.weight, wpe.weight          as ours
    decoder.blocks.i.attention.qkv            h.i.attn.c_attn                 transposed
    decoder.blocks.i.attention.output         h.i.attn.c_proj                 transposed
    decoder.blocks.i.feed_forward.expand      h.i.mlp.c_fc                    transposed
    decoder.blocks.i.feed_forward.contract    h.i.mlp.c_proj                  transposed
    decoder.blocks.i.attention_norm           h.i.ln_1                        gain is "weight"
    decoder.blocks.i.feed_forward_norm        h.i.ln_2                        gain is "weight"
    decoder.final_norm                        ln_f                            gain is "weight"
    unembedding (untied only)                 lm_head                         as ours

The released layers are "Conv1D": x W + b with W of shape (inputs, outputs), where ours hold
(outputs, inputs). A square W fits either way round, so shapes alone prove nothing.

A folder holds `config.json` and the weights: `model.safetensors`, or several such files, as
`model-00001-of-00002.safetensors`. They hold numbers only, and can run no code.

Source: the layout of the checkpoints that OpenAI published for Radford et al. 2019, as the library
`transformers` (Wolf et al. 2020) stores them.
Derived in the chapter `gpt/gpt2`.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..tokens.files import GPT2_FILES, fetched
from ..tools.files import replacing, write_text
from .gpt2 import GPT, GPTConfig

Views = Callable[[GPTConfig, Mapping[str, Tensor]], dict[str, Tensor]]

_NAMES = {"small": "gpt2", "medium": "gpt2-medium", "large": "gpt2-large", "xl": "gpt2-xl"}
SIZES = {name: size for size, name in _NAMES.items()}
_WEIGHTS = "model.safetensors"
_FIELDS: dict[str, tuple[str, Any]] = {  # ours: theirs, and what it is where a file says nothing
    "vocabulary_size": ("vocab_size", None),
    "context_length": ("n_positions", None),
    "layers": ("n_layer", None),
    "heads": ("n_head", None),
    "channels": ("n_embd", None),
    "hidden": ("n_inner", None),
    "eps": ("layer_norm_epsilon", 1e-5),
    "tied": ("tie_word_embeddings", True),
}
_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}
# What a released model may say of itself, and the only value that our model has.
_FIXED = {
    "model_type": "gpt2",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
_NO_WEIGHTS = (".attn.bias", ".attn.masked_bias", ".inv_freq")  # masks, and angles of Llama 1
_PARTS = {
    "attention.qkv": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward.expand": "mlp.c_fc",
    "feed_forward.contract": "mlp.c_proj",
    "attention_norm": "ln_1",
    "feed_forward_norm": "ln_2",
}


class CheckpointError(ValueError):
    """A folder does not hold the model that it says it holds; the message says what to do."""


def load(folder: str | os.PathLike[str]) -> GPT:
    """The model of a folder in GPT-2's released format, evaluating, on the CPU.

    Raises:
        FileNotFoundError: there is no `config.json`.
        CheckpointError: a file is missing, cut off or of another kind; names, shapes or settings
            are not those of a GPT-2; a weight is no floating-point number, or not finite; or a
            tensor stands there under two names, with different values.
    """
    folder = Path(folder)
    config = read_config(folder, config_of)
    weights = read_weights(folder, "transformer.", "wte.weight" if config.tied else None)
    return with_weights(config, views, weights, weights.__getitem__, where=f"{folder}")


def save(model: GPT, folder: str | os.PathLike[str], *, end: int | None = None) -> Path:
    """Write a model in GPT-2's released format; return the folder.

    Args:
        end: the end token of the model's tokenizer, at which others stop; None: at none.
    Raises:
        ValueError: the model has something that the format cannot say, such as post-norm.
    """
    stored = stored_config(model.config)
    check_told(model.config, config_of(stored), "a pre-norm model with biases, as GPT-2 is")
    weights = views(model.config, model.state_dict())
    released = {"transformer." * (n != "lm_head.weight") + n: w for n, w in weights.items()}
    return write(Path(folder), released, stored, end)


def download(size: str = "small", folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of a published GPT-2, fetched unless it is there already: weights and tokenizer.

    Hand it to `load`, or to `open_run` and the command line. 0.5 to 6.4 GB.

    Args:
        size: "small", "medium", "large" or "xl".
        folder: as for `src.tokens.files.fetched`.
    Raises:
        KeyError: another size.
        OSError: a file could not be fetched.
    """
    return fetched(_NAMES[size], ("config.json", _WEIGHTS, *GPT2_FILES), folder)


def released_names(config: GPTConfig) -> dict[str, str]:
    """The name of each of our parameters in the released files, without their prefix."""
    names = {"embedding": "wte.weight", "positions.table": "wpe.weight"}
    for i in range(config.layers):
        for ours, theirs in _PARTS.items():
            gain = "gain" if ours.endswith("norm") else "weight"
            names[f"decoder.blocks.{i}.{ours}.{gain}"] = f"h.{i}.{theirs}.weight"
            names[f"decoder.blocks.{i}.{ours}.bias"] = f"h.{i}.{theirs}.bias"
    names |= {"decoder.final_norm.gain": "ln_f.weight", "decoder.final_norm.bias": "ln_f.bias"}
    return names if config.tied else names | {"unembedding.weight": "lm_head.weight"}


def views(config: GPTConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file by their names, as views of our state: what is copied in is in ours."""
    return {
        theirs: state[ours].mT if _is_transposed(ours) else state[ours]
        for ours, theirs in released_names(config).items()
    }


def _is_transposed(name: str) -> bool:
    return name.startswith("decoder.") and name.endswith(".weight")  # norms have gains


# ---- config.json -----------------------------------------------------------------------------


def config_of(stored: Mapping[str, Any]) -> GPTConfig:
    """The configuration that a `config.json` of GPT-2 describes; a ValueError if it is none."""
    for name, only in _FIXED.items():
        if stored.get(name, only) != only:
            raise ValueError(f"expected {name} = {only!r}, as GPT-2 has it, got {stored[name]!r}")
    known = {theirs: ours for ours, theirs in _ACTIVATIONS.items()}
    activation = str(stored.get("activation_function", "gelu_new"))
    fields = {ours: stored.get(theirs, default) for ours, (theirs, default) in _FIELDS.items()}
    return GPTConfig(
        **fields,
        activation=known.get(activation, activation),
        dropout=stored.get("resid_pdrop", 0.1) or 0.0,
        initial_std=stored.get("initializer_range") or 0.02,
    )


def stored_config(config: GPTConfig) -> dict[str, Any]:
    """What the `config.json` of a GPT-2 is to hold; see `check_told`."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        **_FIXED,
        **{theirs: asdict(config)[ours] for ours, (theirs, _) in _FIELDS.items()},
        "activation_function": _ACTIVATIONS[config.activation],
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), config.dropout),
        "initializer_range": config.initial_std or 0.02,
    }


def check_told(config: GPTConfig, told: GPTConfig, expected: str) -> None:
    """Refuse to save a model of which its `config.json` cannot tell all that its outputs need."""
    at_start = {"initial_std", "scaled_residuals"}  # which those who use the weights need not know
    own, others = asdict(config), asdict(told)
    if lost := [f"{n}={v!r}" for n, v in own.items() if v != others[n] and n not in at_start]:
        raise ValueError(f"expected {expected}, got {', '.join(lost)}")


# ---- files -----------------------------------------------------------------------------------


def read_config(folder: Path, meaning: Callable[[dict[str, Any]], GPTConfig]) -> GPTConfig:
    """The configuration in a folder's `config.json`, whose meaning is that of a kind of model."""
    path = folder / "config.json"
    try:
        return meaning(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} describes no model that is known: {error}") from error


def read_weights(folder: Path, prefix: str, table: str | None) -> dict[str, Tensor]:
    """The tensors of a folder by their names without a prefix, mapped: their memory is the file's.

    Args:
        table: the name of the embedding, if it is the unembedding, too; None: it is not.
    """
    if not (paths := sorted(folder.glob("model*.safetensors"))):
        hint = "a pytorch_model.bin could run code, and is not read"
        raise CheckpointError(f"expected {_WEIGHTS} in {folder}, found none; {hint}")
    weights: dict[str, Tensor] = {}
    for path in paths:
        try:
            tensors = load_file(path)
        except (OSError, SafetensorError) as error:
            hint = "was it cut off, or is it the note that Git leaves (`git lfs pull`)?"
            expected = f"expected a whole safetensors file at {path}"
            raise CheckpointError(f"{expected}, got something else ({error}): {hint}") from error
        for name, tensor in tensors.items():
            if name.endswith(_NO_WEIGHTS):
                continue
            bare = name.removeprefix("_orig_mod.").removeprefix(prefix)  # of torch.compile
            bare = table if table and bare == "lm_head.weight" else bare
            if bare in weights and not torch.equal(weights[bare], tensor):
                hint = f"a different one under a second name, {name}: is the model not tied?"
                raise CheckpointError(f"expected one tensor {bare} in {folder}, got {hint}")
            weights[bare] = tensor
    return weights


def write(folder: Path, weights: dict[str, Tensor], config: dict, end: int | None) -> Path:
    """Write weights and `config.json`, each file whole or not at all; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / _WEIGHTS) as path:
        save_file({n: w.contiguous() for n, w in weights.items()}, path, {"format": "pt"})
    config |= {"bos_token_id": end, "eos_token_id": end}
    write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")
    return folder


def with_weights(
    config: GPTConfig,
    views: Views,
    stored: Mapping[str, Any],
    read: Callable[[str], Tensor],
    *,
    where: str,
    by_columns: bool = False,
) -> GPT:
    """A model with the weights of a file, evaluating.

    Names and shapes are compared before memory is taken for any weight, so that a small file cannot
    ask for a large model.

    Args:
        views: the tensors of such a file by their names, from our state.
        stored: what has the `shape` of each tensor in the file, by name.
        read: the numbers of a tensor, by its name.
        where: the file, for the message.
        by_columns: whether a matrix of more rows than columns lies column by column in memory.
    Raises:
        CheckpointError: the file holds other tensors, or numbers that are none.
    """
    if config.layers > len(stored):  # a thousand million blocks are not made to compare
        got = f"got {len(stored):,} tensors in all"
        raise CheckpointError(f"expected {config.layers:,} blocks in {where}, {got}")
    try:
        with torch.device("meta"):
            model = GPT(config, generator=torch.Generator("cpu"))
    except (RuntimeError, TypeError) as error:
        raise CheckpointError(f"expected sizes that can be in {where}: {error}") from error
    expected = {n: tuple(v.shape) for n, v in views(config, model.state_dict()).items()}
    shapes = {name: tuple(each.shape) for name, each in stored.items()}
    if wrong := sorted(n for n in expected | shapes if expected.get(n) != shapes.get(n)):
        shown = [f"{n} {expected.get(n, 'none')}, got {shapes.get(n, 'none')}" for n in wrong[:3]]
        several = f"{'; '.join(shown)} ({len(wrong)} in all)"
        raise CheckpointError(
            f"expected these shapes in {where}: {several}: are they of two models?"
        )
    state = {}
    for name, weight in model.state_dict().items():
        turned = by_columns and weight.ndim == 2 and len(weight) > weight.shape[1]
        state[name] = torch.empty(weight.mT.shape).mT if turned else torch.empty(weight.shape)
    for name, view in views(config, state).items():
        numbers = read(name)
        if not (numbers.is_floating_point() and numbers.isfinite().all()):
            expected = f"expected finite floating-point numbers in {name} of {where}"
            raise CheckpointError(f"{expected}, got {numbers.dtype}, NaN or infinity")
        view.copy_(numbers)
    model.load_state_dict(state, assign=True)
    return model.eval()
