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

A folder holds `config.json` and the weights: `model.safetensors`, or pieces of it with an index,
or an older `pytorch_model.bin`. No file can run code: safetensors holds numbers only, and the
older format is read with `weights_only=True`. What Llama's weights are called is in `gpt/llama`.

Source: the layout of the checkpoints that OpenAI published for Radford et al. 2019, as the library
`transformers` (Wolf et al. 2020) stores them.
Derived in the chapter `gpt/gpt2`.
"""

import json
import math
import os
import pickle
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..tokens.folders import SOURCE, fetch_gpt2_files
from ..tools import downloads
from ..tools.files import replacing, write_text
from .gpt2 import GPT, GPTConfig
from .llama import LLAMA, Layout, Shapes, config_of

_NAMES = {"small": "gpt2", "medium": "gpt2-medium", "large": "gpt2-large", "xl": "gpt2-xl"}
SIZES = {name: size for size, name in _NAMES.items()}
_WEIGHTS, _INDEX, _OLD = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
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
_DROPOUTS = ("attn_pdrop", "embd_pdrop", "resid_pdrop")
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
    Warns:
        UserWarning: the three dropouts of the released format differ; ours is one.
    """
    folder = Path(folder)
    layout, config = _read_config(folder)
    with _opened(folder) as (stored, read):
        names = _bare_names(stored, read, layout, tied=config.tied, folder=folder)
        shapes = {bare: stored[full] for bare, full in names.items()}
        check_shapes(
            shapes,
            config,
            layout.shapes_of,
            block=layout.block,
            where=f"{folder} (config.json)",
            error=CheckpointError,
        )
        model = without_weights(config)
        weights = layout.read_from(
            config, lambda theirs: _checked(read(names[theirs]), theirs, folder)
        )
        state = {}
        for ours, weight in weights.items():
            own = torch.empty(weight.shape)  # a copy: stored tensors may share their memory
            state[ours] = nn.Parameter(own.copy_(weight))
    model.load_state_dict(state, assign=True)
    return model.eval()


def without_weights(config: GPTConfig) -> GPT:
    """A model whose parameters have shapes and no numbers: no memory is taken, nothing is drawn.

    `load_state_dict(state, assign=True)` gives it weights.
    """
    with torch.device("meta"), _NothingDrawn():
        return GPT(config, generator=torch.Generator("cpu"))


class _NothingDrawn(TorchFunctionMode):
    """To draw numbers that have no memory changes nothing, but loads much of torch."""

    def __torch_function__(
        self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        return args[0] if func is Tensor.normal_ else func(*args, **(kwargs or {}))


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
        f"{'' if name.startswith('lm_head') else layout.prefix}{name}": tensor.contiguous()
        for name, tensor in layout.written(config, model.state_dict()).items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / _WEIGHTS) as path:
        save_file(released, path, metadata={"format": "pt"})
    _write_config(stored, folder, end)
    return folder


def download(
    size: str = "small", folder: str | os.PathLike[str] | None = None, *, source: str = SOURCE
) -> Path:
    """The folder of a published GPT-2, fetched unless it is there already: weights and tokenizer.

    Hand it to `load`, or to `open_run` and the command line. The weights' checksum is the one that
    the server announces for the stored file, so it proves that the bytes came whole; whom to trust
    is your choice of the source. That of the tokenizer is known: all sizes share it. 0.5 to 6.4 GB.

    Args:
        size: "small", "medium", "large" or "xl".
        folder: where to; None: the cache of `src.tools.downloads`.
        source: an address below which `gpt2/resolve/main/model.safetensors` lies, and beside it
            `vocab.json` and `merges.txt`.
    Raises:
        ValueError: another size.
        src.tools.downloads.DownloadError: a file could not be fetched whole.
    """
    config = GPTConfig.gpt2(size)
    folder = Path(folder) if folder else downloads.cache_folder() / _NAMES[size]
    sums = folder / "SHA256"
    place = f"{source}/{_NAMES[size]}/resolve/main"
    url = f"{place}/{_WEIGHTS}"
    digest = sums.read_text("ascii").strip() if sums.exists() else _announced_checksum(url)
    downloads.download(url, folder / _WEIGHTS, sha256=digest)
    fetch_gpt2_files(folder, place)
    _write_config(_released_config(config), folder, end=config.vocabulary_size - 1)
    write_text(sums, digest + "\n")
    return folder


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
    absent = [name for name in _FIELDS.values() if name not in stored]
    if absent:
        raise CheckpointError(f"expected {', '.join(absent)} in {path}, found none")
    activation = stored.get("activation_function", "gelu_new")
    known = {theirs: ours for ours, theirs in _ACTIVATIONS.items()}
    if not isinstance(activation, str) or activation not in known:
        raise CheckpointError(
            f"expected an activation_function among {sorted(known)} in {path}, got {activation!r}"
        )
    if not isinstance(tied := stored.get("tie_word_embeddings", True), bool):
        raise CheckpointError(f"expected tie_word_embeddings true or false in {path}, got {tied!r}")
    try:
        return GPTConfig(
            **{ours: stored[theirs] for ours, theirs in _FIELDS.items()},
            hidden=stored.get("n_inner"),
            activation=known[activation],
            eps=stored.get("layer_norm_epsilon", 1e-5),
            dropout=_dropout(stored, path),
            tied=tied,
            initial_std=_initial_std(stored),
        )
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path} describes no GPT-2: {error}") from error


def _dropout(stored: Mapping, path: Path) -> float:
    """The dropout of a model that has one for all places; what adds to the stream decides."""
    rates = {name: stored.get(name, 0.1) or 0.0 for name in _DROPOUTS}  # null: none
    if len(set(rates.values())) > 1:
        warnings.warn(
            f"{path} asks for {rates}, but this model has one dropout: training goes on with "
            f"{rates['resid_pdrop']!r} everywhere (nothing else depends on it)",
            stacklevel=5,
        )
    return rates["resid_pdrop"]


def _initial_std(stored: Mapping) -> float:
    """Weights that are there need none: a value that cannot be is no reason to refuse them."""
    value = stored.get("initializer_range")
    return value if isinstance(value, int | float) and 0 < value < math.inf else 0.02


def _write_config(stored: dict, folder: Path, end: int | None) -> None:
    """Write `config.json`; one that is silent about the end token makes others take their own."""
    stored |= {"bos_token_id": end, "eos_token_id": end}
    write_text(folder / "config.json", json.dumps(stored, indent=2) + "\n")


def _released_config(config: GPTConfig) -> dict:
    if unusual := config.unusual(_SAID):
        raise ValueError(
            "expected a pre-norm model with biases, as GPT-2 is, got "
            + ", ".join(f"{name}={value!r}" for name, value in unusual.items())
        )
    dropouts = dict.fromkeys(_DROPOUTS, config.dropout)
    return {
        "architectures": ["GPT2LMHeadModel"],
        **_FIXED,
        **{theirs: getattr(config, ours) for ours, theirs in _FIELDS.items()},
        "n_inner": config.hidden,
        "activation_function": _ACTIVATIONS[config.activation],
        "layer_norm_epsilon": config.eps,
        **dropouts,
        "tie_word_embeddings": config.tied,
        "initializer_range": config.initial_std or 0.02,
    }


# ---- weights ---------------------------------------------------------------------------------

Opened = tuple[Mapping[str, tuple[int, ...]], Callable[[str], Tensor]]


@contextmanager
def _opened(folder: Path) -> Iterator[Opened]:
    """Names and shapes of all stored tensors, and a function that reads one by its name."""
    if (folder / _INDEX).exists():
        paths = _pieces(folder)
    elif (folder / _WEIGHTS).exists():
        paths = [folder / _WEIGHTS]
    elif (folder / _OLD).exists():
        tensors = _read_old(folder / _OLD)
        yield {name: tuple(t.shape) for name, t in tensors.items()}, tensors.__getitem__
        return
    else:
        raise CheckpointError(f"expected {_WEIGHTS}, {_INDEX} or {_OLD} in {folder}, found none")
    homes = {}
    for path in paths:
        file = _open(path)
        for name in file.keys():  # noqa: SIM118
            if name in homes:
                raise CheckpointError(f"expected {name} once in {folder}, got it in two files")
            homes[name] = file
    shapes = {name: tuple(file.get_slice(name).get_shape()) for name, file in homes.items()}
    yield shapes, lambda name: homes[name].get_tensor(name)


def _open(path: Path) -> safe_open:
    if not path.exists():
        raise CheckpointError(f"expected {path.name} in {path.parent}, found none")
    _check_file(path)
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise CheckpointError(
            f"expected a whole safetensors file at {path}, got something else ({error}); "
            "it may have been cut off: copy or download it again"
        ) from error


def _check_file(path: Path) -> None:
    """Refuse what is no file, and the note that Git leaves in the place of a large one."""
    if not path.is_file():
        raise CheckpointError(f"expected a file at {path}, got something else, such as a folder")
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise CheckpointError(
                f"expected weights in {path}, got the note that Git leaves in their place; "
                "`git lfs pull` in that folder fetches them"
            )


_POINTER = b"version https://git-lfs"


def _pieces(folder: Path) -> list[Path]:
    try:
        places = json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values()
        names = sorted(set(places))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"expected a weight_map of names to files in {folder / _INDEX}, got something else"
        ) from error
    for name in names:
        if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
            raise CheckpointError(f"expected names of files in {folder}, got {name!r}")
    return [folder / name for name in names]


def _read_old(path: Path) -> dict[str, Tensor]:
    _check_file(path)
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        if not path.stat().st_size:
            raise CheckpointError(f"expected weights in {path}, got an empty file") from None
        raise CheckpointError(
            f"expected {path} to hold tensors and nothing else, got something that is cut off or "
            "would run code when opened; save it as safetensors where you trust it"
        ) from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in tensors.items()
    ):
        raise CheckpointError(f"expected names and tensors in {path}, got something else")
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
            raise CheckpointError(f"expected {name} in {path} as plain numbers, got another kind")
        if (held := tensor.untyped_storage().nbytes()) < tensor.numel() * tensor.element_size():
            raise CheckpointError(
                f"expected all {tensor.numel():,} numbers of {name} in {path}, got {held:,} bytes, "
                "some of which stand for many"
            )
    return tensors


def _bare_names(
    stored: Collection[str],
    read: Callable[[str], Tensor],
    layout: Layout,
    *,
    tied: bool,
    folder: Path,
) -> dict[str, str]:
    """The stored name of each tensor by its bare name; second names must say the same."""
    names: dict[str, str] = {}
    for full in stored:
        bare = full.removeprefix(layout.prefix)
        if layout.ignored.fullmatch(bare):
            continue
        if bare in names:
            _check_equal(names[bare], full, read, folder)
        names[bare] = full
    if tied and (second := names.pop("lm_head.weight", None)) and layout.table in names:
        hint = "; tie_word_embeddings in config.json must be false where the two differ"
        _check_equal(names[layout.table], second, read, folder, hint)
    return names


def _check_equal(
    one: str, other: str, read: Callable[[str], Tensor], folder: Path, hint: str = ""
) -> None:
    if not torch.equal(read(one), read(other)):
        raise CheckpointError(
            f"expected {one} and {other} in {folder} to be two names of the same weights, got "
            f"different ones{hint}"
        )


def check_shapes(
    found: Mapping[str, tuple[int, ...]],
    config: GPTConfig,
    shapes_of: Callable[[GPTConfig], Shapes],
    *,
    block: re.Pattern[str],
    where: str,
    error: type[ValueError],
) -> None:
    """Whether a file holds what it says, by arithmetic: nothing is made to find out.

    Args:
        found: the shape of each tensor, by name.
        config, shapes_of: what there should be.
        block: matches the names of tensors of a block; its group is the number.
        where: the file, and where it describes itself, for the message.
        error: what is raised.
    """
    cure = "; description and weights are of two models: take both from one place"
    blocks = {int(match[1]) for name in found if (match := block.match(name))}
    if len(blocks) != config.layers:  # a thousand million names are not written out to compare
        raise error(
            f"expected tensors of {config.layers:,} blocks in {where}, got {len(blocks):,}{cure}"
        )
    expected = shapes_of(config)
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


def _released_shapes(config: GPTConfig) -> Shapes:
    """The shape of each tensor in the released files, which hold (inputs, outputs)."""
    c, width = config.channels, config.width
    sizes: Shapes = {
        "attn.c_attn": (c, 3 * c),
        "attn.c_proj": (c, c),
        "mlp.c_fc": (c, width),
        "mlp.c_proj": (width, c),
        "ln_1": (c,),
        "ln_2": (c,),
    }
    shapes: Shapes = {"wte.weight": (config.vocabulary_size, c)}
    shapes["wpe.weight"] = (config.context_length, c)
    for i in range(config.layers):
        for part, shape in sizes.items():
            shapes |= {f"h.{i}.{part}.weight": shape, f"h.{i}.{part}.bias": shape[-1:]}
    shapes |= {"ln_f.weight": (c,), "ln_f.bias": (c,)}
    return shapes if config.tied else shapes | {"lm_head.weight": shapes["wte.weight"]}


def _ours(config: GPTConfig, read: Callable[[str], Tensor]) -> dict[str, Tensor]:
    return {
        ours: read(theirs).mT if _is_transposed(ours) else read(theirs)
        for ours, theirs in released_names(config).items()
    }


def _theirs(config: GPTConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        theirs: state[ours].mT if _is_transposed(ours) else state[ours]
        for ours, theirs in released_names(config).items()
    }


_GPT2 = Layout(
    prefix="transformer.",
    table="wte.weight",
    block=re.compile(r"h\.(\d{1,18})\."),
    ignored=re.compile(r"h\.\d+\.attn\.(bias|masked_bias)"),  # masks
    shapes_of=_released_shapes,
    read_from=_ours,
    written=_theirs,
    stored_config=_released_config,
)


def _checked(weight: Tensor, name: str, folder: Path) -> Tensor:
    if not weight.dtype.is_floating_point:
        raise CheckpointError(
            f"expected {name} in {folder} as floating-point numbers, got {weight.dtype}"
        )
    if not weight.isfinite().all():
        raise CheckpointError(
            f"expected finite numbers in {name} in {folder}, got NaN or infinity; a training run "
            "that went wrong may have saved them"
        )
    return weight


# ---- the announced checksum ------------------------------------------------------------------


def _announced_checksum(url: str) -> str:
    """The SHA-256 that the hub names for a large file; no token is sent, whatever is set."""
    from huggingface_hub import errors, get_hf_file_metadata

    try:
        digest = get_hf_file_metadata(url, token=False, timeout=30).etag or ""
    except (OSError, errors.HTTPError) as error:
        raise downloads.DownloadError(
            f"expected the checksum of {url}; instead: {error}; are you online, and is the source "
            "right? A folder that you have already can be given to `load`"
        ) from error
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise downloads.DownloadError(
            f"expected a SHA-256 in the header X-Linked-Etag of {url}, got {digest!r}; fetch the "
            "file by other means and hand its folder to `load`"
        )
    return digest
