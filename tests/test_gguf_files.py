"""`src.today.gguf_files` beside the library `gguf`, and against files: cut, damaged, forged."""

import struct
import tracemalloc

import gguf
import numpy as np
import pytest
from gguf_writing import ARRAY, TEXT, U32, Gguf, Numbers, Raw, Tensor, Texts, float32

from src.today.gguf_files import GGUFError, GGUFFile, decode_q4_1, decode_q8_0

MATRIX = np.arange(6 * 64, dtype=np.float32).reshape(6, 64) / 7 - 20
Type = gguf.GGMLQuantizationType


def file_of(*values, **changes):
    made = Gguf(
        [("general.architecture", "llama"), ("a.list", Texts(["né", ""])), ("a.flag", True)],
        [("one", float32(MATRIX)), ("two", float32(MATRIX[0]))],
    )
    for name, changed in changes.items():
        setattr(made, name, changed)
    made.values = [*values] or made.values
    return made


@pytest.fixture
def read(tmp_path):
    return lambda made: GGUFFile(made.write(tmp_path / "f.gguf"))


# ---- what the library writes ---------------------------------------------------------------------


@pytest.fixture(params=[Type.F32, Type.F16, Type.Q8_0, Type.Q4_1], ids=lambda kind: kind.name)
def written(request, tmp_path):
    """A file that the library wrote, and what it makes of the numbers itself."""
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("a.number", 7)
    writer.add_int8("less", -3)
    writer.add_float64("half", 0.5)
    writer.add_bool("flag", True)
    writer.add_array("words", ["Ġa", "", "né"])
    writer.add_array("numbers", [3, 1, 2])
    kept = gguf.quants.quantize(MATRIX, request.param)
    writer.add_tensor("one", kept, raw_dtype=request.param)
    writer.add_tensor("two", MATRIX[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, request.param, gguf.quants.dequantize(kept, request.param)


def test_what_the_library_writes_is_read_as_it_reads_it(written):
    path, kind, expected = written
    file = GGUFFile(path)
    assert file.tensors["one"].kind.name == kind.name
    assert file.tensors["one"].shape == MATRIX.shape
    found = file.array("one")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(file.array("two"), MATRIX[0])


def test_its_values_are_read_too(written):
    values = GGUFFile(written[0]).values
    assert values["general.architecture"] == "llama"
    assert (values["a.number"], values["less"], values["half"]) == (7, -3, 0.5)
    assert values["flag"] is True
    assert values["words"] == ["Ġa", "", "né"]
    assert values["numbers"].tolist() == [3, 1, 2]


def test_blocks_are_decoded_as_the_specification_says():
    """By hand: d = 2, m = -1, the first number 5 and the seventeenth 9, all others 0."""
    head = np.array([2, -1], "<f2").tobytes()
    block = np.frombuffer(head + bytes([5 + 16 * 9]) + bytes(15), np.uint8)[None]
    expected = np.full(32, -1.0)
    expected[[0, 16]] = 2 * 5 - 1, 2 * 9 - 1
    np.testing.assert_array_equal(decode_q4_1(block)[0], expected)
    block = np.frombuffer(head[:2] + bytes([3, 253]) + bytes(30), np.uint8)[None]
    np.testing.assert_array_equal(decode_q8_0(block)[0], [6, -6] + 30 * [0])


# All but NVFP4, whose scales are no bytes of a float, have their scales as 16-bit floats here.
DECODED = sorted(gguf.quants._type_traits, key=lambda kind: kind.name)


@pytest.mark.parametrize("kind", DECODED, ids=lambda kind: kind.name)
def test_each_form_that_the_library_decodes_is_read(read, kind):
    """Random blocks, of which those are kept whose scales are finite."""
    block, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    drawn = np.random.default_rng(0).integers(256, size=(400, n_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        numbers = gguf.dequantize(drawn, kind)
    finite = np.isfinite(numbers).all(axis=1)
    rows, expected = drawn[finite], numbers[finite]
    assert len(rows) > 100
    assert len(np.unique(expected)) > 2
    made = Gguf([], [("q", Tensor((block, len(rows)), kind.value, rows.tobytes()))])
    file = read(made)
    assert file.tensors["q"][:2] == ((len(rows), block), kind)
    np.testing.assert_array_equal(file.array("q"), expected)


@pytest.mark.parametrize("kind", [Type.Q8_1, Type.Q8_K, Type.F64, Type.I32])
def test_a_form_that_the_library_does_not_decode_is_named(read, kind):
    block, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    file = read(Gguf([], [("q", Tensor((block, 1), kind.value, bytes(n_bytes)))]))
    with pytest.raises(GGUFError, match=f"nobody here decodes {kind.name}"):
        file.array("q")


def test_a_value_is_asked_for_by_name_and_kind(read):
    file = read(file_of().set(n=3, x=3.0, numbers=Numbers(U32, [5, 6])))
    assert file.value("a.list", list) == ["né", ""]
    assert file.value("nothing", int, 3) == 3
    assert file.value("numbers", np.ndarray).tolist() == [5, 6]
    assert isinstance(file.value("n", float), float)  # a whole number will do
    with pytest.raises(GGUFError, match="expected nothing as int, got None"):
        file.value("nothing", int)
    with pytest.raises(GGUFError, match=r"expected a\.flag as int, got True"):
        file.value("a.flag", int)
    with pytest.raises(GGUFError, match=r"expected x as int, got 3\.0"):
        file.value("x", int)


@pytest.mark.parametrize(
    "made", [file_of(alignment=128).set(general__alignment=128), file_of(version=2)]
)
def test_another_alignment_and_version_2_are_read(read, made):
    np.testing.assert_array_equal(read(made).array("one"), MATRIX)
    np.testing.assert_array_equal(read(made).array("two"), MATRIX[0])


# ---- files that nobody should trust --------------------------------------------------------------

HUGE = 1 << 62


def of_raw(form, *numbers, held=b""):
    """A file of one value `a`, written as these numbers and bytes."""
    return file_of(("a", Raw(struct.pack(form, *numbers) + held)))


def of_tensor(**changes):
    return file_of(tensors=[("one", float32(MATRIX)._replace(**changes))])


TWICE = [("one", float32(MATRIX))] * 2
SHARED = [(f"{n}", float32(MATRIX)._replace(start=0, held=b"")) for n in range(9)]
SHARED += TWICE[:1]
HOSTILE = [
    (file_of(magic=b"PK\3\4"), r"it begins with b'PK\\x03\\x04', 3, \[2, 3\]"),
    (file_of(magic=b"vers"), "the note that Git leaves"),
    (file_of(version=1), "it begins with b'GGUF', 1, "),
    (file_of(version=3 << 24), "it begins with b'GGUF', 50331648"),
    (file_of(n_tensors=HUGE), r"3, \[4611686018427387904, 3\]"),
    (file_of(n_values=HUGE), r"3, \[2, 4611686018427387904\]"),
    (file_of(("a", 1), ("a", 2)), "Duplicate a already"),
    (of_raw("<IQ", 13, 0), r"13\) is not a valid GGUFValueType"),
    (of_raw("<IQ", TEXT, HUGE), "got another one"),
    (file_of(("a", Texts([b"\xff"]))), "'utf-8' codec can't decode"),
    (of_raw("<IIQ", ARRAY, U32, HUGE), "got another one"),
    (of_raw("<IIQ", ARRAY, TEXT, HUGE), "got another one"),
    (of_raw("<IIQQQ", ARRAY, TEXT, 2, 0, HUGE), "got another one"),
    (of_raw("<IIQIQ", ARRAY, ARRAY, 1, U32, 0), "another one .*ARRAY"),
    (file_of().set(general__alignment=48), "Invalid alignment"),
    (file_of(tensors=TWICE), "duplicated tensor with name one"),
    (of_tensor(sizes=(1,) * 65), "maximum supported dimension|whole GGUF file"),
    (of_tensor(sizes=(33, 2), kind=8), "not a multiple of Q8_0 block size"),
    (of_tensor(kind=77), r"77\) is not a valid GGMLQuantizationType"),
    (of_tensor(sizes=(1 << 40, 1 << 40)), "cannot reshape"),
    (of_tensor(sizes=(1 << 40, 4)), "cannot reshape"),
    (file_of(tensors=SHARED), "tensors that share bytes"),
]


def most_bytes_held(function, *arguments):
    tracemalloc.start()
    try:
        function(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("made", "message"), HOSTILE)
def test_a_hostile_file_is_refused_by_name_in_no_more_memory_than_it_brings(
    tmp_path, made, message
):
    path = made.write(tmp_path / "f.gguf")

    def refused():
        with pytest.raises(GGUFError, match=message) as error:
            GGUFFile(path)
        assert str(path) in str(error.value)

    assert most_bytes_held(refused) < 1 << 20


def test_a_file_that_is_cut_anywhere_is_refused(tmp_path):
    whole, path = file_of().encoded(), tmp_path / "f.gguf"
    for length in (*range(0, len(whole), 7), len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(GGUFError):
            GGUFFile(path)


def test_a_file_with_a_changed_byte_is_read_or_refused(tmp_path):
    """And in no other way, whichever byte of what precedes the numbers is changed, and however."""
    whole, path, refused = file_of().encoded(), tmp_path / "f.gguf", 0
    head = len(whole) - 7 * 64 * 4
    for place in range(head):
        for changed in (0, 0xFF, whole[place] ^ 0x21):
            path.write_bytes(whole[:place] + bytes([changed]) + whole[place + 1 :])
            try:
                file = GGUFFile(path)
                for name in file.tensors:
                    file.array(name)
            except GGUFError:
                refused += 1
    assert refused > head / 2


def test_many_small_things_take_bounded_memory(tmp_path):
    """The worst that a file can bring: texts of two letters, 10 bytes each; and many tensors."""
    path = Gguf([("a", Texts([f"{n % 89 + 10}" for n in range(100_000)]))]).write(tmp_path / "f")
    assert most_bytes_held(GGUFFile, path) < 16 * path.stat().st_size
    tensors = [(f"{n}", Tensor((1,), Type.I8, b"", 0)) for n in range(8_000)] + [("a", TWICE[0][1])]
    path = Gguf([], tensors).write(tmp_path / "f")
    assert most_bytes_held(GGUFFile, path) < 1 << 26


def test_what_is_no_file_or_not_there_is_named(tmp_path):
    with pytest.raises(IsADirectoryError):
        GGUFFile(tmp_path)
    with pytest.raises(FileNotFoundError):
        GGUFFile(tmp_path / "nothing.gguf")
    (tmp_path / "empty").touch()
    with pytest.raises(GGUFError, match=r"begins with b'\\x00"):
        GGUFFile(tmp_path / "empty")
