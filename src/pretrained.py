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

A folder holds `config.json` and the weights: `model.safetensors`, or pieces of it with an index,
or an older `pytorch_model.bin`. No file can run code: safetensors holds numbers only, and the
older format is read with `weights_only=True`.

Source: the layout of the checkpoints that OpenAI published for Radford et al. 2019, as the library
`transformers` (Wolf et al. 2020) stores them.
Derived in the chapter `gpt/gpt2`.
"""

import json
import os
import pickle
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from . import corpora
from .files import replacing, write_text
from .gpt import GPT, GPTConfig

SOURCE = "https://huggingface.co/openai-community"
_NAMES = {"small": "gpt2", "medium": "gpt2-medium", "large": "gpt2-large", "xl": "gpt2-xl"}
_WEIGHTS, _INDEX, _OLD = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
_FIELDS = {
    "vocabulary_size": "vocab_size",
    "context_length": "n_positions",
    "layers": "n_layer",
    "heads": "n_head",
    "channels": "n_embd",
}
_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}
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
_MASKS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")  # stored in the files, not learnt


class CheckpointError(ValueError):
    """A folder does not hold the model that it says it holds; the message says what to do."""


def load(folder: str | os.PathLike[str]) -> GPT:
    """The model of a folder in the released format of GPT-2, in evaluation mode, on the CPU.

    Names and shapes are compared before anything is copied.

    Raises:
        CheckpointError: a file is missing, cut off or of another kind, or names, shapes or
            settings are not those of a GPT-2.
    """
    folder = Path(folder)
    config = _read_config(folder)
    model = GPT(config, generator=torch.Generator().manual_seed(0))
    names = released_names(config)
    with _opened(folder) as (shapes, read):
        shapes = {name.removeprefix("transformer."): shape for name, shape in shapes.items()}
        if config.tied:
            shapes.pop("lm_head.weight", None)  # a second name of wte.weight
        _check_names(set(names.values()), {n for n in shapes if not _MASKS.fullmatch(n)}, folder)
        own = model.state_dict()
        for ours, theirs in names.items():
            expected = own[ours].mT.shape if _is_transposed(ours) else own[ours].shape
            if shapes[theirs] != tuple(expected):
                raise CheckpointError(
                    f"expected {theirs} in {folder} to have the shape {tuple(expected)} (from "
                    f"config.json), got {shapes[theirs]}; config and weights are of two models"
                )
        weights = {ours: read(theirs) for ours, theirs in names.items()}
    model.load_state_dict({n: w.mT if _is_transposed(n) else w for n, w in weights.items()})
    return model.eval()


def save(model: GPT, folder: str | os.PathLike[str]) -> Path:
    """Write a model in the released format of GPT-2; return the folder.

    Each file takes its place whole or not at all.

    Raises:
        ValueError: the model has something that the format cannot say: post-norm or no biases.
    """
    config, folder = model.config, Path(folder)
    if config.norm != "pre" or not config.bias:
        raise ValueError(
            "expected a pre-norm model with biases, as GPT-2 is, got "
            f"norm={config.norm!r}, bias={config.bias}"
        )
    state = model.state_dict()
    released = {
        f"{'' if theirs.startswith('lm_head') else 'transformer.'}{theirs}": (
            state[ours].mT if _is_transposed(ours) else state[ours]
        ).contiguous()
        for ours, theirs in released_names(config).items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / _WEIGHTS) as path:
        save_file(released, path, metadata={"format": "pt"})
    write_text(folder / "config.json", json.dumps(_released_config(config), indent=2) + "\n")
    return folder


def download(
    size: str = "small", folder: str | os.PathLike[str] | None = None, *, source: str = SOURCE
) -> Path:
    """The folder of a published GPT-2, fetched unless it is there already; hand it to `load`.

    The checksum is the one that the server announces for the stored file, so it proves that the
    bytes came whole; whom to trust is your choice of the source. 0.5 to 6.4 GB.

    Args:
        size: "small", "medium", "large" or "xl".
        folder: where to; None: the cache of `src.corpora`.
        source: an address below which `gpt2/resolve/main/model.safetensors` lies.
    Raises:
        ValueError: another size.
        src.corpora.DownloadError: the file could not be fetched whole.
    """
    config = GPTConfig.gpt2(size)
    folder = Path(folder) if folder else corpora.cache_folder() / _NAMES[size]
    sums = folder / "SHA256"
    url = f"{source}/{_NAMES[size]}/resolve/main/{_WEIGHTS}"
    digest = sums.read_text("ascii").strip() if sums.exists() else _announced_checksum(url)
    corpora.download(url, folder / _WEIGHTS, sha256=digest)
    write_text(folder / "config.json", json.dumps(_released_config(config), indent=2) + "\n")
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


def _read_config(folder: Path) -> GPTConfig:
    path = folder / "config.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"expected config.json in {folder}, found none; a folder in the released format holds "
            f"config.json and {_WEIGHTS}"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"expected JSON in {path}, got something else: {error}") from None
    if not isinstance(stored, dict):
        raise CheckpointError(f"expected an object in {path}, got {type(stored).__name__}")
    for name, only in _FIXED.items():
        if stored.get(name, only) != only:
            raise CheckpointError(
                f"expected {name} = {only!r} in {path}, got {stored[name]!r}: a model of another "
                "kind than GPT-2"
            )
    absent = [name for name in _FIELDS.values() if name not in stored]
    if absent:
        raise CheckpointError(f"expected {', '.join(absent)} in {path}, found none")
    activation = stored.get("activation_function", "gelu_new")
    known = {theirs: ours for ours, theirs in _ACTIVATIONS.items()}
    if activation not in known:
        raise CheckpointError(
            f"expected an activation_function among {sorted(known)} in {path}, got {activation!r}"
        )
    try:
        return GPTConfig(
            **{ours: stored[theirs] for ours, theirs in _FIELDS.items()},
            hidden=stored.get("n_inner"),
            activation=known[activation],
            eps=stored.get("layer_norm_epsilon", 1e-5),
            dropout=stored.get("resid_pdrop", 0.1),
            tied=stored.get("tie_word_embeddings", True),
            initial_std=stored.get("initializer_range", 0.02),
        )
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path} describes no GPT-2: {error}") from error


def _released_config(config: GPTConfig) -> dict:
    dropouts = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), config.dropout)
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
        **dict.fromkeys(("bos_token_id", "eos_token_id"), config.vocabulary_size - 1),
    }


# ---- weights ---------------------------------------------------------------------------------

Opened = tuple[Mapping[str, tuple[int, ...]], Callable[[str], Tensor]]


@contextmanager
def _opened(folder: Path) -> Iterator[Opened]:
    """Names and shapes of all stored tensors, and a function that reads one by its bare name."""
    if (folder / _INDEX).exists():
        paths = _pieces(folder)
    elif (folder / _WEIGHTS).exists():
        paths = [folder / _WEIGHTS]
    elif (folder / _OLD).exists():
        tensors = _read_old(folder / _OLD)
        bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
        yield {name: tuple(t.shape) for name, t in bare.items()}, bare.__getitem__
        return
    else:
        raise CheckpointError(f"expected {_WEIGHTS}, {_INDEX} or {_OLD} in {folder}, found none")
    files = {path: _open(path) for path in paths}
    homes = {name: file for file in files.values() for name in file.keys()}  # noqa: SIM118
    full = {name.removeprefix("transformer."): name for name in homes}
    shapes = {name: tuple(file.get_slice(name).get_shape()) for name, file in homes.items()}
    yield shapes, lambda name: homes[full[name]].get_tensor(full[name])


def _open(path: Path):
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise CheckpointError(f"expected {path.name} in {path.parent}, found none") from None
    except SafetensorError as error:
        raise CheckpointError(
            f"expected a whole safetensors file at {path}, got something else ({error}); "
            "it may have been cut off: copy or download it again"
        ) from error


def _pieces(folder: Path) -> list[Path]:
    try:
        places = json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values()
        names = sorted(set(places))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(
            f"expected a weight_map of names to files in {folder / _INDEX}, got something else"
        ) from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise CheckpointError(f"expected names of files in {folder}, got {name!r}")
    return [folder / name for name in names]


def _read_old(path: Path) -> dict[str, Tensor]:
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise CheckpointError(
            f"expected {path} to hold tensors and nothing else, got something that is cut off or "
            "would run code when opened; save it as safetensors where you trust it"
        ) from error
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise CheckpointError(f"expected names and tensors in {path}, got something else")
    return tensors


def _check_names(expected: set[str], found: set[str], folder: Path) -> None:
    missing, unknown = sorted(expected - found), sorted(found - expected)
    if missing or unknown:
        parts = [
            f"{kind}: {', '.join(names[:3])}{' …' if len(names) > 3 else ''} ({len(names)})"
            for kind, names in (("missing", missing), ("unknown", unknown))
            if names
        ]
        raise CheckpointError(
            f"expected the tensors that config.json in {folder} implies, got {'; '.join(parts)}"
        )


# ---- the announced checksum ------------------------------------------------------------------


class _StayHere(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None  # the checksum stands in the answer that redirects


def _announced_checksum(url: str) -> str:
    """The SHA-256 that the server names for a large file, in its header X-Linked-Etag."""
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.build_opener(_StayHere).open(request, timeout=30) as answer:
            headers = answer.headers
    except urllib.error.HTTPError as error:
        headers = error.headers
        error.close()
        if error.code not in (301, 302, 303, 307, 308):
            raise corpora.DownloadError(
                f"expected a file at {url}, the server answered HTTP {error.code}; check the "
                "source, or try again later"
            ) from error
    except OSError as error:
        raise corpora.DownloadError(
            f"could not reach {url} ({error}); are you online? A folder that you have already "
            "can be given to `load`"
        ) from error
    digest = headers.get("X-Linked-Etag", "").strip('"')
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise corpora.DownloadError(
            f"expected a SHA-256 in the header X-Linked-Etag of {url}, got {digest!r}; fetch the "
            "file by other means and hand its folder to `load`"
        )
    return digest
