"""What stands in a GGUF file, and how is one read that nobody vouches for?

    "GGUF", version, how many tensors, how many values     4 + 4 + 8 + 8 bytes, little-endian
    for each value     its name, its kind, itself          (a text: its length, then UTF-8)
    for each tensor    its name, its sizes, its kind, where it begins
    the tensors        each from a multiple of the alignment on, counted from the first

Numbers are kept as they are, or neighbours of a row in a block. In two of the forms, 32 neighbours
have a scale d (and a minimum m):

    Q8_0         w = d q,      q from -127 to 127          2 + 32 bytes a block: 8.5 bits a weight
    Q4_1         w = d q + m,  q from 0 to 15          2 + 2 + 16 bytes a block: 5 bits a weight

The library `gguf` reads the file, and decodes the other forms. A file is data: it runs no code.
Here each length in it is compared with what the file has before anything is made of it, so that to
look into it takes no more memory than 64 MB and a few times its size, whatever it says.

Source: the specification of GGUF 3 and the block formats of the library `ggml` (Gerganov et al.).
Derived in the chapter `today/small_enough`.
"""

import os
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gguf import (
    GGML_QUANT_SIZES,
    GGMLQuantizationType,
    GGUFReader,
    GGUFValueType,
    dequantize,
)

_MOST = 1 << 13  # tensors, and values; a model has hundreds, and the library takes 5 kB for each


class GGUFError(ValueError):
    """A file is no GGUF file, or not whole, or holds what is not read here."""


class Stored(NamedTuple):
    """A tensor in a file.

    Attributes:
        shape: as arrays have it, the rows first: (outputs, inputs) of a matrix.
        kind: how its numbers are kept; `gguf.GGML_QUANT_SIZES` says how many of them stand in a
            block, and how many bytes a block has.
        data: its bytes, or numbers where they are kept as they are.
    """

    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    data: np.ndarray


def decode_q8_0(blocks: np.ndarray) -> np.ndarray:
    """Blocks of 34 bytes, (N, 34), to their numbers, (N, 32): d q, d of 16 bits, q of 8."""
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)  # (N, 1)
    return scale * blocks[:, 2:].view(np.int8)


def decode_q4_1(blocks: np.ndarray) -> np.ndarray:
    """Blocks of 20 bytes, (N, 20), to their numbers, (N, 32): d q + m, d and m of 16 bits, q of 4.

    The lower halves of the last 16 bytes are the first 16 numbers, the upper halves the others.
    """
    scale, least = np.split(blocks[:, :4].copy().view("<f2").astype(np.float32), 2, axis=1)
    halves = blocks[:, 4:]
    return scale * np.concatenate([halves & 15, halves >> 4], axis=1) + least


_DECODERS = {GGMLQuantizationType.Q8_0: decode_q8_0, GGMLQuantizationType.Q4_1: decode_q4_1}


class GGUFFile:
    """A GGUF file, checked and mapped: its values, and its tensors one by one.

    Attributes:
        values: what the file says of itself: numbers, texts, lists of texts, arrays of numbers.
        tensors: by their names.

    Args:
        path: the file.
    Raises:
        OSError: there is none, or it cannot be read.
        GGUFError: it is not a whole GGUF file of version 2 or 3.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        with self.path.open("rb") as file:
            magic, version, *counts = struct.unpack("<4sIQQ", file.read(24).ljust(24, b"\0"))
        try:
            if magic != b"GGUF" or version not in (2, 3) or max(counts) > _MOST:
                raise ValueError(f"it begins with {magic!r}, {version}, {counts}")
            reader = _Reader(self.path)
            if sum(tensor.n_bytes for tensor in reader.tensors) > len(reader.data):
                raise ValueError("tensors that share bytes")
            self.values: dict[str, Any] = {
                name: field.parts[-1] if field.types[0] == GGUFValueType.ARRAY else field.contents()
                for name, field in reader.fields.items()
            }
        except (ValueError, KeyError, IndexError) as error:
            raise GGUFError(
                f"expected a whole GGUF file of version 2 or 3 at {path}, got another one ({error})"
                "; it may be cut off, or the note that Git leaves in the place of a large file"
            ) from error
        self.tensors = {
            each.name: Stored(tuple(each.shape.tolist()[::-1]), each.tensor_type, each.data)
            for each in reader.tensors
        }

    def array(self, name: str) -> np.ndarray:
        """The numbers of a tensor as float32, in its shape.

        Raises:
            KeyError: there is no such tensor.
            GGUFError: nobody here can decode it.
        """
        shape, kind, data = self.tensors[name]
        with np.errstate(all="ignore"):  # a damaged file may hold any scale
            if kind in _DECODERS:
                blocks = data.reshape(-1, GGML_QUANT_SIZES[kind][1])
                return _DECODERS[kind](blocks).reshape(shape)
            try:
                return np.array(dequantize(data, kind))
            except NotImplementedError:
                raise GGUFError(f"{self.path}: nobody here decodes {kind.name} of {name}") from None

    def value(self, name: str, kind: type, default: Any = None) -> Any:
        """What the file says of itself under this name.

        Args:
            name: such as "general.architecture".
            kind: what it must be: str, bool, int, float, list (of texts) or `numpy.ndarray`; a
                whole number will do as a float.
            default: what it is where the file says nothing; None: then it is an error.
        Raises:
            GGUFError: the file says nothing, or something of another kind.
        """
        found = self.values.get(name, default)
        if kind is float and type(found) is int:
            return float(found)
        if type(found) is not kind:
            raise GGUFError(f"{self.path}: expected {name} as {kind.__name__}, got {found!r:.60}")
        return found


class _Reader(GGUFReader):
    """The library's reader; an array comes in one piece, and takes no more than the file has."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list, list, list]:
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind = GGUFValueType(self._get(orig_offs, np.uint32)[0])
        count, start = int(self._get(orig_offs + 4, np.uint64)[0]), orig_offs + 12
        found: list[str] | np.ndarray
        if kind == GGUFValueType.STRING:
            found, end = self._texts(count, start)
        else:  # a KeyError for an array of arrays
            found = np.asarray(self._get(start, self.gguf_scalar_to_np[kind], count))
            end = start + found.nbytes
        if len(found) < count:
            raise ValueError(f"it ends before all {count:,} entries of an array")
        return end - orig_offs, [found], [0], [GGUFValueType.ARRAY, kind]

    def _texts(self, count: int, place: int) -> tuple[list[str], int]:
        """As many texts from a place on, and where they end: a vocabulary has 100,000."""
        held = self.data.data
        found: list[str] = []
        while len(found) < count and place < len(held):
            start = place + 8
            place = start + int.from_bytes(held[place:start], "little")
            found.append(str(held[start:place], "utf-8"))
        return found, place
