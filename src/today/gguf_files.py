"""What stands in a GGUF file, and how is one read that nobody vouches for?

    "GGUF", version, how many tensors, how many values     4 + 4 + 8 + 8 bytes, little-endian
    for each value     its name, its kind, itself          (a text: its length, then UTF-8)
    for each tensor    its name, its sizes, its kind, where it begins
    the tensors        each from a multiple of the alignment on, counted from the first

Numbers are kept as they are, or 32 neighbours of a row in a block with a scale d (and a minimum
m):

    F32, F16     w = q
    Q8_0         w = d q,      q from -127 to 127          2 + 32 bytes a block: 8.5 bits a weight
    Q4_1         w = d q + m,  q from 0 to 15          2 + 2 + 16 bytes a block: 5 bits a weight

A file is data. Each length, number and place in it is compared with what the file has before
anything is made of it; the tensors are mapped, and decoded one by one. So a file cannot run code,
nor ask for more memory than a few times its own size, whatever it says.

Source: the specification of GGUF 3 and the block formats of the library `ggml` (Gerganov et al.).
"""

import math
import mmap
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

Value = bool | int | float | str | list[str] | np.ndarray


class GGUFError(ValueError):
    """A file is no GGUF file, or not whole, or holds what is not read here; it says what to do."""


@dataclass(frozen=True)
class Kind:
    """How the numbers of a tensor are kept.

    Attributes:
        name: as in the specification.
        block: how many neighbours of a row stand together.
        n_bytes: how many bytes they take.
        decode: bytes, (blocks, n_bytes), to float32, (blocks, block).
    """

    name: str
    block: int
    n_bytes: int
    decode: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Stored:
    """A tensor in a file.

    Attributes:
        shape: as arrays have it, the rows first: (outputs, inputs) of a matrix.
        kind: how its numbers are kept.
        start, n_bytes: where they are in the file.
    """

    shape: tuple[int, ...]
    kind: Kind
    start: int
    n_bytes: int


# ---- the kinds of tensors ------------------------------------------------------------------------


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


KINDS = {
    0: Kind("F32", 1, 4, lambda blocks: blocks.view("<f4").astype(np.float32)),
    1: Kind("F16", 1, 2, lambda blocks: blocks.view("<f2").astype(np.float32)),
    3: Kind("Q4_1", 32, 20, decode_q4_1),
    8: Kind("Q8_0", 32, 34, decode_q8_0),
}
_OTHER_KINDS = {2: "Q4_0", 6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K"}
_OTHER_KINDS |= {13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS"}
_OTHER_KINDS |= {19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8"}
_OTHER_KINDS |= {25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16"}
_OTHER_KINDS |= {34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4"}

# ---- the kinds of values -------------------------------------------------------------------------

_NUMBERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4"}
_NUMBERS |= {7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
_TEXT, _ARRAY = 8, 9
_LONGEST_NAME = 1 << 16  # bytes; the specification's longest
_AXES = 4  # at most


class GGUFFile:
    """A GGUF file, checked and mapped: its values, and its tensors one by one.

    Attributes:
        values: what the file says of itself: numbers, texts, lists of texts, arrays of numbers.
        tensors: by their names.

    Args:
        path: the file.
    Raises:
        FileNotFoundError: there is none.
        GGUFError: it is not a whole GGUF file of version 2 or 3, or has a tensor of another kind
            than F32, F16, Q8_0 and Q4_1.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        reader = _Reader(self.path)
        n_tensors, n_values = reader.head()
        self.values: Mapping[str, Value] = reader.values(n_values)
        self.tensors: Mapping[str, Stored] = reader.tensors(n_tensors, _alignment(self))
        self._held = reader.held

    def array(self, name: str) -> np.ndarray:
        """The numbers of a tensor as float32, in its shape.

        Raises:
            GGUFError: there is no such tensor, or a number in it is not finite.
        """
        if (stored := self.tensors.get(name)) is None:
            raise GGUFError(f"expected a tensor {name!r} in {self.path}, found none")
        kind = stored.kind
        held = np.frombuffer(self._held, np.uint8, stored.n_bytes, stored.start)
        with np.errstate(invalid="ignore"):  # what is not finite is refused below
            numbers = kind.decode(held.reshape(-1, kind.n_bytes)).reshape(stored.shape)
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


def _alignment(file: GGUFFile) -> int:
    given = file.value("general.alignment", int, 32)
    if given < 8 or given & (given - 1) or given > 1 << 20:
        raise GGUFError(
            f"expected general.alignment in {file.path} to be a power of 2 from 8 to 2^20, got "
            f"{given}"
        )
    return given


# ---- reading -------------------------------------------------------------------------------------


class _Reader:
    """Reads a file from its beginning; `place` is how far it is."""

    def __init__(self, path: Path):
        self.path, self.place = path, 0
        if path.exists() and not path.is_file():
            raise GGUFError(f"expected a file at {path}, got something else, such as a folder")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise GGUFError(f"expected a GGUF file at {path}, got an empty file")
            self.held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.size = len(self.held)

    def error(self, expected: str, got: object) -> GGUFError:
        return GGUFError(
            f"expected {expected} at byte {self.place:,} of {self.path}, got {got}; the file is "
            "damaged or not a GGUF file: get it again"
        )

    def room_for(self, count: int, n_bytes: int, what: str) -> None:
        """Refuse `count` things of at least so many bytes each, if the file ends before that."""
        if count * n_bytes > self.size - self.place:
            raise GGUFError(
                f"expected {what} at byte {self.place:,} of {self.path}, but the file has only "
                f"{self.size - self.place:,} bytes more; it was cut off, or made up: get it again"
            )

    def take(self, n_bytes: int, what: str) -> bytes:
        self.room_for(1, n_bytes, f"{what} ({n_bytes:,} bytes)")
        self.place += n_bytes
        return self.held[self.place - n_bytes : self.place]

    def number(self, kind: str, what: str) -> int:
        (found,) = struct.unpack(kind, self.take(struct.calcsize(kind), what))
        return found

    def text(self, what: str, longest: int | None = None) -> str:
        length = self.number("<Q", f"the length of {what}")
        if longest is not None and length > longest:
            raise self.error(f"{what} of at most {longest:,} bytes", f"{length:,}")
        held = self.take(length, what)
        try:
            return held.decode()
        except UnicodeDecodeError as error:
            raise self.error(f"{what} as UTF-8", str(error)) from None

    def head(self) -> tuple[int, int]:
        """How many tensors and how many values there are."""
        if (magic := self.held[:4]) != b"GGUF":
            hint = "a note that Git leaves in the place of a large file" * (magic == b"vers")
            raise self.error("the four letters GGUF", hint or repr(magic))
        self.place = 4
        version = self.number("<I", "the version")
        if version not in (2, 3):
            order = " (of the other byte order)" * (version in (2 << 24, 3 << 24))
            raise GGUFError(
                f"expected version 2 or 3 of GGUF in {self.path}, got {version}{order}; write the "
                "file anew with a later version of the tool that made it"
            )
        n_tensors, n_values = (self.number("<Q", "a count") for _ in range(2))
        # A tensor takes at least 8 + 4 + 8 + 4 + 8 bytes, a value 8 + 4 + 1.
        self.room_for(n_tensors, 32, f"{n_tensors:,} tensors")
        self.room_for(n_values, 13, f"{n_values:,} values")
        return n_tensors, n_values

    def values(self, count: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for _ in range(count):
            name = self.text("the name of a value", _LONGEST_NAME)
            if name in found:
                raise self.error("each value once", f"{name!r} twice")
            found[name] = self.value(name)
        return found

    def value(self, name: str) -> Value:
        kind = self.number("<I", f"the kind of {name!r}")
        if kind == _TEXT:
            return self.text(repr(name))
        if kind == _ARRAY:
            return self.array(name)
        return self.numbers(kind, 1, name)[0].item()

    def array(self, name: str) -> list[str] | np.ndarray:
        kind = self.number("<I", f"the kind of the entries of {name!r}")
        count = self.number("<Q", f"the length of {name!r}")
        if kind == _TEXT:
            self.room_for(count, 8, f"{count:,} texts of {name!r}")
            return self.texts(count, name)
        if kind == _ARRAY:
            raise self.error(f"texts or numbers in the array {name!r}", "arrays in an array")
        return self.numbers(kind, count, name)

    def texts(self, count: int, name: str) -> list[str]:
        """As many texts, in one loop: a vocabulary has a hundred thousand."""
        held, place, found = self.held, self.place, []
        length_at = struct.Struct("<Q").unpack_from
        for _ in range(count):
            start = place + 8
            place = start + length_at(held, place)[0] if start <= self.size else start
            if place > self.size:
                self.room_for(1, place - self.place, f"all {count:,} texts of {name!r}")
            found.append(held[start:place])
        self.place = place
        try:
            return [text.decode() for text in found]
        except UnicodeDecodeError as error:
            raise self.error(f"the texts of {name!r} as UTF-8", str(error)) from None

    def numbers(self, kind: int, count: int, name: str) -> np.ndarray:
        if kind not in _NUMBERS:
            raise self.error(f"a kind of value from 0 to 12 for {name!r}", kind)
        dtype = np.dtype(_NUMBERS[kind])
        self.room_for(count, dtype.itemsize, f"{count:,} numbers of {name!r}")
        held = self.take(count * dtype.itemsize, repr(name))
        if dtype.kind == "b" and not set(held) <= {0, 1}:
            raise self.error(f"0 or 1 for {name!r}", "another byte")
        return np.frombuffer(held, dtype)

    def tensors(self, count: int, alignment: int) -> dict[str, Stored]:
        found: dict[str, Stored] = {}
        for _ in range(count):
            name = self.text("the name of a tensor", _LONGEST_NAME)
            if name in found:
                raise self.error("each tensor once", f"{name!r} twice")
            found[name] = self.tensor(name)
        first = -(-self.place // alignment) * alignment
        for name, stored in found.items():
            if stored.start % alignment:
                raise GGUFError(
                    f"expected {name} of {self.path} at a multiple of {alignment}, got "
                    f"{stored.start:,}; the file is damaged: get it again"
                )
            if (end := first + stored.start + stored.n_bytes) > self.size:
                raise GGUFError(
                    f"expected {name} of {self.path} within its {self.size:,} bytes, got an end at "
                    f"{end:,}; the file was cut off, or made up: get it again"
                )
        self.check_apart(found)
        return {
            name: Stored(stored.shape, stored.kind, first + stored.start, stored.n_bytes)
            for name, stored in found.items()
        }

    def tensor(self, name: str) -> Stored:
        """A tensor, whose start is counted from the first."""
        axes = self.number("<I", f"the number of axes of {name!r}")
        if not 1 <= axes <= _AXES:
            raise self.error(f"1 to {_AXES} axes of {name!r}", axes)
        sizes = [self.number("<Q", f"a size of {name!r}") for _ in range(axes)]
        number = self.number("<I", f"the kind of {name!r}")
        start = self.number("<Q", f"the place of {name!r}")
        if number not in KINDS:
            read = ", ".join(kind.name for kind in KINDS.values())
            raise GGUFError(
                f"expected {name} of {self.path} as {read}, got "
                f"{_OTHER_KINDS.get(number, f'kind {number}')}; quantise the model anew, as one of "
                "these"
            )
        kind = KINDS[number]
        if 0 in sizes or sizes[0] % kind.block:
            raise self.error(
                f"sizes of {name!r} above 0, the first a multiple of {kind.block} ({kind.name})",
                sizes,
            )
        n_bytes = math.prod(sizes) // kind.block * kind.n_bytes
        return Stored(tuple(reversed(sizes)), kind, start, n_bytes)

    def check_apart(self, tensors: Mapping[str, Stored]) -> None:
        """Refuse tensors that share bytes: many of them could be made of few."""
        ordered = sorted(tensors, key=lambda name: tensors[name].start)
        for before, after in pairwise(ordered):
            end = tensors[before].start + tensors[before].n_bytes
            if end > tensors[after].start:
                raise GGUFError(
                    f"expected tensors with bytes of their own in {self.path}, got {before} and "
                    f"{after} that share some; the file was made up: do not use it"
                )
