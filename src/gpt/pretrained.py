"""How do GPT-2's published weights become our model's, and ours GPT-2's? And Llama's?

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
`model-00001-of-00002.safetensors`. They hold numbers only, and can run no code. What Llama's
weights are called is in `gpt/llama`.

Source: the layout of the checkpoints that OpenAI published for Radford et al. 2019, as the library
`transformers` (Wolf et al. 2020) stores them.
Derived in the chapter `gpt/gpt2`.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..tokens.files import GPT2_FILES, fetched
from ..tools.files import replacing, write_text
from .gpt2 import GPT, GPTConfig
from .llama import LLAMA, Layout, Views, as_stored, config_of

_NAMES = {"small": "gpt2", "medium": "gpt2-medium", "large": "gpt2-large", "xl": "gpt2-xl"}
SIZES = {name: size for size, name in _NAMES.items()}
_WEIGHTS = "model.safetensors"
_FIELDS = {
    "vocabulary_size": "vocab_size",
    "context_length": "n_positions",
    "layers": "n_layer",
    "heads": "n_head",
    "channels": "n_embd",
}
_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}
# What a file can say in other fields, or need not say to those who use the weights.
_SAID = {*_FIELDS, "hidden", "activation", "eps", "dropout", "tied"}
_SAID |= {"initial_std", "scaled_residuals"}
# What a released model may say of itself, and the only value that our model has.
_FIXED = {
    "model_type": "gpt2",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
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
    """The model of a folder in the released format of GPT-2 or Llama, evaluating, on the CPU.

    Names and shapes are compared before memory is taken for any weight, so that a small folder
    cannot ask for a large model.

    Raises:
        CheckpointError: a file is missing, cut off or of another kind; names, shapes or settings
            are not those of a GPT-2 or a Llama; a weight is no floating-point number, or not
            finite; or a tensor stands there under two names, with different values.
    """
    folder = Path(folder)
    layout, config = _read_config(folder)
    stored = _stored(folder, layout, tied=config.tied)
    model = without_weights(
        {name: tuple(each.file.get_slice(each.name).get_shape()) for name, each in stored.items()},
        config,
        layout.views,
        block=layout.block,
        where=f"{folder} (config.json)",
        error=CheckpointError,
    )
    model.to_empty(device="cpu")
    for name, view in layout.views(config, model.state_dict()).items():
        view.copy_(_checked(stored[name], folder).view(view.shape))
    return model.eval()


def save(model: GPT, folder: str | os.PathLike[str], *, end: int | None = None) -> Path:
    """Write a model in the released format of GPT-2, or of Llama if it is one; return the folder.

    Each file takes its place whole or not at all.

    Args:
        end: the end token of the model's tokenizer, at which others stop; None: at none.
    Raises:
        ValueError: the model has something that the format cannot say, such as post-norm.
    """
    config, folder = model.config, Path(folder)
    layout = LLAMA if config.positions == "rotary" else _GPT2
    stored = layout.stored_config(config)
    released = {
        f"{'' if name.startswith('lm_head') else layout.prefix}{name}": as_stored(view).contiguous()
        for name, view in layout.views(config, model.state_dict()).items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / _WEIGHTS) as path:
        save_file(released, path, metadata={"format": "pt"})
    stored |= {"bos_token_id": end, "eos_token_id": end}
    write_text(folder / "config.json", json.dumps(stored, indent=2) + "\n")
    return folder


def download(size: str = "small", folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of a published GPT-2, fetched unless it is there already: weights and tokenizer.

    Hand it to `load`, or to `open_run` and the command line. 0.5 to 6.4 GB.

    Args:
        size: "small", "medium", "large" or "xl".
        folder: as for `src.tokens.files.fetched`.
    Raises:
        ValueError: another size.
        OSError: a file could not be fetched.
    """
    if size not in _NAMES:
        raise ValueError(f"expected a size among {', '.join(_NAMES)}, got {size!r}")
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


def _is_transposed(name: str) -> bool:
    return name.startswith("decoder.") and name.endswith(".weight")  # norms have gains


# ---- config.json -----------------------------------------------------------------------------


def _read_config(folder: Path) -> tuple[Layout, GPTConfig]:
    path = folder / "config.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"expected config.json in {folder}, found none; a folder in the released format holds "
            f"config.json and {_WEIGHTS}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"expected JSON in {path}, got something else: {error}") from None
    if not isinstance(stored, dict):
        raise CheckpointError(f"expected an object in {path}, got {type(stored).__name__}")
    if stored.get("model_type") == "llama":
        try:
            return LLAMA, config_of(stored)
        except (TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{path} describes no Llama that is known: {error}") from error
    return _GPT2, _gpt2_config(stored, path)


def _gpt2_config(stored: Mapping, path: Path) -> GPTConfig:
    for name, only in _FIXED.items():
        if stored.get(name, only) != only:
            raise CheckpointError(
                f"expected {name} = {only!r} in {path}, got {stored[name]!r}: a model of another "
                "kind than GPT-2 and Llama"
            )
    if absent := [name for name in _FIELDS.values() if name not in stored]:
        raise CheckpointError(f"expected {', '.join(absent)} in {path}, found none")
    known = {theirs: ours for ours, theirs in _ACTIVATIONS.items()}
    activation = str(stored.get("activation_function", "gelu_new"))
    try:
        return GPTConfig(
            **{ours: stored[theirs] for ours, theirs in _FIELDS.items()},
            hidden=stored.get("n_inner"),
            activation=known.get(activation, activation),
            eps=stored.get("layer_norm_epsilon", 1e-5),
            dropout=stored.get("resid_pdrop", 0.1) or 0.0,
            tied=stored.get("tie_word_embeddings", True),
            initial_std=stored.get("initializer_range") or 0.02,
        )
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path} describes no GPT-2: {error}") from error


def _released_config(config: GPTConfig) -> dict:
    if unusual := config.unusual(_SAID):
        raise ValueError(
            "expected a pre-norm model with biases, as GPT-2 is, got "
            + ", ".join(f"{name}={value!r}" for name, value in unusual.items())
        )
    return {
        "architectures": ["GPT2LMHeadModel"],
        **_FIXED,
        **{theirs: getattr(config, ours) for ours, theirs in _FIELDS.items()},
        "n_inner": config.hidden,
        "activation_function": _ACTIVATIONS[config.activation],
        "layer_norm_epsilon": config.eps,
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), config.dropout),
        "tie_word_embeddings": config.tied,
        "initializer_range": config.initial_std or 0.02,
    }


# ---- weights ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stored:
    """A tensor in a file, and its full name there."""

    file: safe_open
    name: str

    def read(self) -> Tensor:
        return self.file.get_tensor(self.name)


def _stored(folder: Path, layout: Layout, *, tied: bool) -> dict[str, _Stored]:
    """The stored tensors by their bare names; second names must say the same."""
    paths = sorted(folder.glob("model*.safetensors"))
    if not paths:
        raise CheckpointError(
            f"expected {_WEIGHTS} in {folder}, found none; a pytorch_model.bin, which could run "
            "code, is not read: save it as safetensors where you trust it"
        )
    stored: dict[str, _Stored] = {}
    for file in map(_open, paths):
        for full in file.keys():  # noqa: SIM118
            bare = full.removeprefix(layout.prefix)
            if layout.ignored.fullmatch(bare):
                continue
            found = _Stored(file, full)
            _check_equal(stored.setdefault(bare, found), found, folder)
    if tied and (second := stored.pop("lm_head.weight", None)) and layout.table in stored:
        hint = "; tie_word_embeddings in config.json must be false where the two differ"
        _check_equal(stored[layout.table], second, folder, hint)
    return stored


def _open(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"expected a whole safetensors file at {path}, got something else ({error}); it may "
            "have been cut off, or be the note that Git leaves in the place of a large file: copy "
            "or download it again, or say `git lfs pull` in that folder"
        ) from error


def _check_equal(one: _Stored, other: _Stored, folder: Path, hint: str = "") -> None:
    if one is not other and not torch.equal(one.read(), other.read()):
        raise CheckpointError(
            f"expected {one.name} and {other.name} in {folder} to be two names of the same "
            f"weights, got different ones{hint}"
        )


def without_weights(
    found: Mapping[str, tuple[int, ...]],
    config: GPTConfig,
    views: Views,
    *,
    block: re.Pattern[str],
    where: str,
    error: type[ValueError],
) -> GPT:
    """The model that a file describes, if the file holds its tensors: no memory is taken for any.

    `to_empty` gives it memory, whose numbers are to be overwritten.

    Args:
        found: the shape of each tensor, by name.
        config, views: what the model is; its tensors by their names there, from our state.
        block: matches the names of tensors of a block; its group is the number.
        where: the file, and where it describes itself, for the message.
        error: what is raised.
    """
    cure = "; description and weights are of two models: take both from one place"
    blocks = {int(match[1]) for name in found if (match := block.match(name))}
    if len(blocks) != config.layers:  # a thousand million blocks are not made to compare
        raise error(
            f"expected tensors of {config.layers:,} blocks in {where}, got {len(blocks):,}{cure}"
        )
    try:
        with torch.device("meta"):
            model = GPT(config, generator=torch.Generator("cpu"))
    except RuntimeError as too_large:
        raise error(f"expected sizes that can be in {where}: {too_large}") from too_large
    theirs = views(config, model.state_dict())
    expected = {name: tuple(as_stored(view).shape) for name, view in theirs.items()}
    missing = sorted(expected.keys() - found.keys())
    unknown = sorted(found.keys() - expected.keys())
    if missing or unknown:
        parts = [
            f"{kind}: {', '.join(names[:3])}{' …' if len(names) > 3 else ''} ({len(names)})"
            for kind, names in (("missing", missing), ("unknown", unknown))
            if names
        ]
        raise error(f"expected the tensors that {where} implies, got {'; '.join(parts)}{cure}")
    for name, shape in expected.items():
        if found[name] != shape:
            raise error(
                f"expected {name} in {where} to have the shape {shape}, got {found[name]}{cure}"
            )
    return model


def _views(config: GPTConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        theirs: state[ours].mT if _is_transposed(ours) else state[ours]
        for ours, theirs in released_names(config).items()
    }


_GPT2 = Layout(
    prefix="transformer.",
    table="wte.weight",
    block=re.compile(r"h\.(\d{1,18})\."),
    ignored=re.compile(r"h\.\d+\.attn\.(bias|masked_bias)"),  # masks
    views=_views,
    stored_config=_released_config,
)


def _checked(stored: _Stored, folder: Path) -> Tensor:
    weight = stored.read()
    if not weight.dtype.is_floating_point:
        raise CheckpointError(
            f"expected {stored.name} in {folder} as floating-point numbers, got {weight.dtype}"
        )
    if not weight.isfinite().all():
        raise CheckpointError(
            f"expected finite numbers in {stored.name} in {folder}, got NaN or infinity; a "
            "training run that went wrong may have saved them"
        )
    return weight
