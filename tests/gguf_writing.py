"""GGUF files byte by byte, so that any of them can be wrong; and a small Llama to begin with."""

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from src.tokens.files import bytes_to_unicode

U32, I32, F32, BOOL, TEXT, ARRAY = 4, 5, 6, 7, 8, 9
FORMATS = {U32: "I", I32: "i"}
LAYERS, HEADS, KV_HEADS, C, HIDDEN, LIMIT = 2, 4, 2, 32, 64, 12


class Texts(NamedTuple):
    """An array of texts."""

    texts: list


class Numbers(NamedTuple):
    """An array of numbers of a kind."""

    kind: int
    numbers: list


class Raw(NamedTuple):
    """A value as bytes, its kind included."""

    held: bytes


class Tensor(NamedTuple):
    """A tensor as a file lists it: sizes from the innermost on; `start` counts from the first."""

    sizes: tuple
    kind: int
    held: bytes
    start: int | None = None


def text(said):
    held = said if isinstance(said, bytes) else said.encode()
    return struct.pack("<Q", len(held)) + held


def value(said):
    """A value with its kind."""
    match said:
        case Raw(held):
            return held
        case bool():
            return struct.pack("<IB", BOOL, said)
        case int():
            return struct.pack("<II", U32, said)
        case float():
            return struct.pack("<If", F32, said)
        case Texts(texts):
            head = struct.pack("<IIQ", ARRAY, TEXT, len(texts))
            return head + b"".join(map(text, texts))
        case Numbers(kind, numbers):
            held = struct.pack(f"<{len(numbers)}{FORMATS[kind]}", *numbers)
            return struct.pack("<IIQ", ARRAY, kind, len(numbers)) + held
    return struct.pack("<I", TEXT) + text(said)


@dataclass
class Gguf:
    """What a file is to hold; pairs, so that a name can stand there twice."""

    values: list = field(default_factory=list)
    tensors: list = field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    n_values: int | None = None
    n_tensors: int | None = None
    alignment: int = 32

    def set(self, **changes):
        """Change values by name, `__` for a point; None takes one out."""
        for name, said in changes.items():
            name = name.replace("__", ".")
            at = [n for n, (old, _) in enumerate(self.values) if old == name]
            if said is None:
                del self.values[at[0]]
            elif at:
                self.values[at[0]] = (name, said)
            else:
                self.values.append((name, said))
        return self

    def tensor(self, name, changed):
        """Change a tensor; None takes it out."""
        kept = [(old, held) for old, held in self.tensors if old != name]
        self.tensors = kept + ([(name, changed)] if changed else [])
        return self

    def encoded(self):
        counts = self.n_tensors or len(self.tensors), self.n_values or len(self.values)
        head = self.magic + struct.pack("<IQQ", self.version, *counts)
        head += b"".join(text(name) + value(said) for name, said in self.values)
        held = b""
        for name, tensor in self.tensors:
            start = len(held) if tensor.start is None else tensor.start
            head += text(name) + struct.pack("<I", len(tensor.sizes))
            head += struct.pack(f"<{len(tensor.sizes)}Q", *tensor.sizes)
            head += struct.pack("<IQ", tensor.kind, start)
            held += tensor.held + bytes(-len(tensor.held) % self.alignment)
        return head + bytes(-len(head) % self.alignment) + held

    def write(self, path):
        path.write_bytes(self.encoded())
        return path


def float32(array):
    """A tensor of kind F32."""
    return Tensor(tuple(reversed(array.shape)), 0, array.astype("<f4").tobytes())


MISSING = b"\x04\xff"
MERGES = ["t h", "th e", "Ġ the", "! !", "i n"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tokens():
    """Three special tokens, all bytes but two, and what the merges make."""
    alphabet = [said for byte, said in bytes_to_unicode().items() if byte not in MISSING]
    return [*SPECIALS, *alphabet, *(merge.replace(" ", "") for merge in MERGES)]


def arrays(seed=0):
    """The tensors of a small Llama, drawn."""
    rng, width = np.random.default_rng(seed), C // HEADS * KV_HEADS
    shapes = {"token_embd.weight": (len(tokens()), C), "output_norm.weight": (C,)}
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.{part}_norm.weight": (C,) for part in ("attn", "ffn")}
        shapes |= {f"blk.{i}.attn_{part}.weight": (C, C) for part in ("q", "output")}
        shapes |= {f"blk.{i}.attn_{part}.weight": (width, C) for part in "kv"}
        shapes |= {f"blk.{i}.ffn_{part}.weight": (HIDDEN, C) for part in ("gate", "up")}
        shapes[f"blk.{i}.ffn_down.weight"] = (C, HIDDEN)
    drawn = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return {name: (array / C**0.5).astype(np.float32) for name, array in drawn.items()}


def small_llama(chat_template=None):
    """A file of a small Llama, with its tokenizer."""
    spelled = tokens()
    values = {
        "general.architecture": "llama",
        "llama.block_count": LAYERS,
        "llama.context_length": LIMIT,
        "llama.embedding_length": C,
        "llama.feed_forward_length": HIDDEN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 53.0,
        "llama.rope.dimension_count": C // HEADS,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": Texts(spelled),
        "tokenizer.ggml.merges": Texts(MERGES),
        "tokenizer.ggml.token_type": Numbers(I32, [3 if t in SPECIALS else 1 for t in spelled]),
    }
    if chat_template is not None:
        values["tokenizer.chat_template"] = chat_template
    return Gguf([*values.items()], [(name, float32(a)) for name, a in arrays().items()])
