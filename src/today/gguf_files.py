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
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gguf import (
    GGML_QUANT_SIZES,
    GGMLQuantizationType,
    GGUFReader,
    GGUFValueType,
    ReaderField,
    dequantize,
)

Value = bool | int | float | str | list[str] | np.ndarray
_MOST = 1 << 13  # tensors, and values; a model has hundreds, and the library takes 5 kB for each


class GGUFError(ValueError):
    """A file is no GGUF file, or not whole, or holds what is not read here; it says what to do."""


class Stored(NamedTuple):
    """A tensor in a file.

    Attributes:
        shape: as arrays have it, the rows first: (outputs, inputs) of a matrix.
        kind: how its numbers are kept; `gguf.GGML_QUANT_SIZES` says how many of them stand in a
            block, and how many bytes a block has.
        start: the byte of the file at which it begins.
    """

    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    start: int


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
        _check_head(self.path)
        try:
            reader = _Reader(self.path)
            self.values: Mapping[str, Value] = {n: _value(f) for n, f in reader.fields.items()}
        except (ValueError, KeyError) as error:
            raise GGUFError(
                f"expected a whole GGUF file at {self.path}, got one that was cut off, damaged or "
                f"made up ({error}): get it again"
            ) from error
        if sum(tensor.n_bytes for tensor in reader.tensors) > len(reader.data):
            raise GGUFError(
                f"expected tensors with bytes of their own in {self.path}, got some that share "
                "them; the file was made up: do not use it"
            )
        self._held = {tensor.name: tensor.data for tensor in reader.tensors}
        self.tensors: Mapping[str, Stored] = {
            tensor.name: Stored(
                tuple(reversed(tensor.shape.tolist())), tensor.tensor_type, tensor.data_offset
            )
            for tensor in reader.tensors
        }

    def array(self, name: str) -> np.ndarray:
        """The numbers of a tensor as float32, in its shape.

        Raises:
            GGUFError: there is no such tensor, nobody here can decode it, or a number in it is not
                finite.
        """
        if (stored := self.tensors.get(name)) is None:
            raise GGUFError(f"expected a tensor {name!r} in {self.path}, found none")
        shape, kind, _ = stored
        held = self._held[name]
        with np.errstate(all="ignore"):  # what is not finite is refused below
            if kind in _DECODERS:
                blocks = held.reshape(-1, GGML_QUANT_SIZES[kind][1])
                numbers = _DECODERS[kind](blocks).reshape(shape)
            else:
                try:
                    numbers = np.array(dequantize(held, kind))
                except NotImplementedError:
                    raise GGUFError(
                        f"expected {name} of {self.path} in a form that the library gguf decodes, "
                        f"got {kind.name}; quantise the model anew, say as Q4_K or Q8_0"
                    ) from None
        if not np.isfinite(numbers).all():
            raise GGUFError(
                f"expected finite numbers in {name} of {self.path}, got NaN or infinity; the file "
                "is damaged: get it again"
            )
        return numbers

    def value(self, name: str, kind: type, default: Value | None = None) -> Any:
        """What the file says of itself under this name.

        Args:
            name: such as "general.architecture".
            kind: what it must be: str, bool, int, float, list (of texts) or `numpy.ndarray`; a
                whole number will do as a float.
            default: what it is where the file says nothing; None: then it is an error.
        Raises:
            GGUFError: the file says nothing, or something of another kind.
        """
        if (found := self.values.get(name, default)) is None:
            raise GGUFError(f"expected a value {name!r} in {self.path}, found none")
        if kind is float and type(found) is int:
            return float(found)
        if type(found) is not kind:
            raise GGUFError(
                f"expected {name} in {self.path} as {kind.__name__}, got {type(found).__name__}"
            )
        return found


# ---- reading -------------------------------------------------------------------------------------


def _check_head(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(24)
    if head[:4] != b"GGUF" or len(head) < 24:
        hint = " (the note that Git leaves in the place of a large file)" * (head[:4] == b"vers")
        raise GGUFError(f"expected a GGUF file at {path}, got one that begins {head[:8]!r}{hint}")
    version, *counts = struct.unpack("<IQQ", head[4:])
    if version not in (2, 3):
        order = " (of the other byte order)" * (version in (2 << 24, 3 << 24))
        raise GGUFError(
            f"expected version 2 or 3 of GGUF in {path}, got {version}{order}; write the file anew "
            "with a later version of the tool that made it"
        )
    if max(counts) > _MOST:
        raise GGUFError(
            f"expected at most {_MOST:,} tensors and as many values in {path}, got {counts[0]:,} "
            f"and {counts[1]:,}; the file was made up: do not use it"
        )


class _Reader(GGUFReader):
    """The library's reader, which takes no more than the file has, and each array in one piece."""

    def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **options: Any) -> Any:
        if offset + int(count) * np.dtype(dtype).itemsize > len(self.data):
            raise ValueError(f"it ends before {int(count):,} × {np.dtype(dtype)} at {offset:,}")
        return super()._get(offset, dtype, count, *order, **options)

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list, list, list]:
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind = GGUFValueType(self._get(orig_offs, np.uint32)[0])
        count, start = int(self._get(orig_offs + 4, np.uint64)[0]), orig_offs + 12
        if kind == GGUFValueType.STRING:
            found, end = self._texts(count, start)
        elif kind in self.gguf_scalar_to_np:
            found = np.asarray(self._get(start, self.gguf_scalar_to_np[kind], count))
            end = start + found.nbytes
        else:
            raise ValueError(f"arrays in an array at {start:,}")
        return end - orig_offs, [found], [0], [GGUFValueType.ARRAY, kind]

    def _texts(self, count: int, place: int) -> tuple[list[str], int]:
        """As many texts from a place on, and where they end: a vocabulary has 100,000."""
        held, found = self.data.data, []
        for _ in range(count):
            start = place + 8
            place = start + int.from_bytes(held[place:start], "little")
            if place > len(held):
                raise ValueError(f"it ends before all {count:,} texts")
            found.append(str(held[start:place], "utf-8"))
        return found, place


def _value(field: ReaderField) -> Value:
    in_one_piece = field.types[0] == GGUFValueType.ARRAY
    return field.parts[field.data[0]] if in_one_piece else field.contents()
