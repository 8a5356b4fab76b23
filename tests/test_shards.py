"""Shards of tokens: what a tokenizer says is written, whole or not at all; what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpt2_files import gpt2_file
from hypothesis import given, settings
from hypothesis import strategies as st

from next_token import shards, shards_of_files
from next_token.__main__ import main
from next_token.shards import MANIFEST, ShardError, Shards, ShardWriter, packed
from next_token.shards_of_files import tokenize_files
from next_token.streams import parts_of_file
from src.texts.corpora import Document
from src.tokens import folders
from src.tokens.bpe import BytePairTokenizer
from src.tokens.bytes import END, ByteTokenizer, CharacterTokenizer, stream_of

TEXT = "".join(f"Story {i}: the {i % 7} né sat – on {i * i}.\n\n" for i in range(300))
SMALL = {"processes": 1, "tokenizer": "bytes", "separator": "\n\n"}
ALL_TRAIN = {"validation": 0, "test": 0}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "mine.txt"
    path.write_text(TEXT, encoding="utf-8", newline="")
    return path


@pytest.fixture(scope="module")
def made(text, tmp_path_factory):
    """Shards of 1,000 bytes; read only."""
    folder = tmp_path_factory.mktemp("data") / "shards"
    return tokenize_files([text], folder, **SMALL, tokens_per_shard=1_000)


@pytest.fixture
def tokenized(text, tmp_path):
    """Makes a folder of shards, of the text or another, with some options instead of the small."""
    return lambda name="made", *files, **options: tokenize_files(
        files or [text], tmp_path / name, **SMALL | options
    )


@pytest.fixture
def copied(made, tmp_path):
    return Path(shutil.copytree(made.folder, tmp_path / "copied"))


def sides(path, validation=0.1, test=0.1, **options):
    """The documents of each part, by the rule that places them."""
    found = {side: [] for side in shards.PARTS}
    for placed in shards_of_files._placed(parts_of_file(path, **options), validation, test):
        found[placed.side].append(Document(placed.part.title, placed.part.text))
    return found


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- what is written -------------------------------------------------------------------------


def test_each_part_is_the_stream_of_its_documents(made, text):
    for side, documents in sides(text, separator="\n\n").items():
        stream, expected = made.parts[side], stream_of(documents, ByteTokenizer()).tolist()
        assert stream.piece(0, len(stream)).tolist() == expected
        assert stream.told.documents == len(documents) > 10
        assert stream.told.bytes == sum(document.n_bytes for document in documents)
        starts = [stream.start_of(number) for number in range(len(documents))]
        assert starts == [at for at, token in enumerate(expected[:-1]) if token == 0]


def test_a_stream_is_cut_into_shards_of_one_size(made):
    files = made.parts["train"].told.shards
    assert [file.name for file in files] == [f"train-{n:05}.bin" for n in range(len(files))]
    assert {file.size for file in files[:-1]} == {2_000}
    assert 0 < files[-1].size <= 2_000
    assert len(files) > 5


@settings(deadline=None)  # a busy machine is no counter-example
@given(st.lists(st.integers(0, 99), max_size=30), st.integers(1, 9), st.data())
def test_any_piece_of_any_stream_is_read_across_shards(tmp_path_factory, ids, per_shard, data):
    folder = tmp_path_factory.mktemp("shards")
    writer = ShardWriter(folder, "train", kind="uint16", end=7, tokens_per_shard=per_shard)
    cut = data.draw(st.integers(0, len(ids)))
    writer.add(packed(ids[:cut], "uint16"), 1, first=True, last=False)
    writer.add(packed(ids[cut:], "uint16"), 1, first=False, last=True)
    stream = shards.ShardedStream(folder, writer.close(), "uint16", per_shard)
    start = data.draw(st.integers(0, len(ids) + 2))
    length = data.draw(st.integers(0, len(ids) + 2 - start))
    assert stream.piece(start, length).tolist() == [7, *ids, 7][start : start + length]


def test_pieces_beyond_the_end_are_refused(made):
    stream = made.parts["test"]
    for start, length in ((-1, 2), (len(stream), 1), (len(stream) - 3, 4)):
        with pytest.raises(IndexError):
            stream.piece(start, length)
    with pytest.raises(IndexError):
        stream.start_of(stream.told.documents)


@pytest.mark.parametrize("kind", ["uint16", "uint32"])
def test_the_least_significant_byte_comes_first(kind):
    assert packed([258], kind) == (258).to_bytes(2 if kind == "uint16" else 4, "little")


@pytest.mark.parametrize(("size", "kind"), [(1 << 16, "uint16"), ((1 << 16) + 1, "uint32")])
def test_ids_have_as_many_bits_as_they_need(size, kind):
    characters = [chr(0x10000 + n) for n in range(size - 4)]
    assert shards.kind_for(CharacterTokenizer(characters)) == kind


@pytest.mark.parametrize("processes", [1, 3])
def test_more_processes_and_other_blocks_write_the_same(tokenized, made, monkeypatch, processes):
    monkeypatch.setattr(shards_of_files, "_BLOCK", 700)
    again = tokenized(processes=processes, tokens_per_shard=1_000)
    assert content(again.folder) == content(made.folder)


def test_a_document_in_parts_is_one_document(tokenized, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("one two three four five six\n\nseven eight nine ten")
    whole = tokenized("whole", tmp_path / "a.txt", **ALL_TRAIN)
    monkeypatch.setattr("next_token.streams.PART", 9)
    cut = tokenized("cut", tmp_path / "a.txt", **ALL_TRAIN)
    assert content(cut.folder) == content(whole.folder)
    assert cut.parts["train"].told.documents == 2


def test_copies_of_a_document_are_never_on_two_sides(text, tmp_path):
    (tmp_path / "more.txt").write_text("A word.\n\n" + TEXT, encoding="utf-8", newline="")
    texts = []
    for path in (text, tmp_path / "more.txt"):
        parts = sides(path, separator="\n\n", validation=0.3, test=0.3).values()
        texts.append([{document.text for document in documents} for documents in parts])
    assert all(len(one) > 50 for one in texts[0])
    assert [one - {"A word."} for one in texts[1]] == texts[0]


# ---- tokenizers ------------------------------------------------------------------------------


def test_merges_are_learnt_from_the_training_part_alone(text, tokenized):
    found = tokenized(tokenizer="300").tokenizer.merges
    train = [document.text for document in sides(text, separator="\n\n")["train"]]
    everything = [part.text for part in parts_of_file(text, separator="\n\n")]
    assert found == BytePairTokenizer.train(train, 300).merges
    assert found != BytePairTokenizer.train(everything, 300).merges


@pytest.mark.filterwarnings("ignore:vocabulary_size is")
def test_a_sample_is_drawn_from_all_of_a_text_and_is_no_longer_than_it_may_be(text, monkeypatch):
    monkeypatch.setattr(shards_of_files, "SAMPLE", 2_000)
    read = shards_of_files._placed(parts_of_file(text, separator="\n\n"), 0.1, 0.1)
    chosen = list(shards_of_files._sample(read, [text]))
    assert 1_000 < len("".join(chosen).encode()) <= 2_000
    hundreds = [int(one.split()[1][:-1]) // 100 for one in chosen]
    assert hundreds == sorted(hundreds)
    assert {*hundreds} == {0, 1, 2}


def test_the_characters_are_those_of_the_training_part(text, tokenized):
    made = tokenized(tokenizer="characters")
    train = "".join(document.text for document in sides(text, separator="\n\n")["train"])
    assert made.tokenizer.vocabulary_size == 4 + len(set(train))
    stream = made.parts["train"]
    assert made.tokenizer.decode(stream.piece(0, len(stream)).tolist()).replace(END, "") == train


def test_the_tokenizer_of_a_folder_is_taken(made, tokenized, tmp_path):
    BytePairTokenizer.train(TEXT, 280).save_gpt2(tmp_path / "released")
    (tmp_path / "released" / "config.json").write_text("{}")
    for number, folder in enumerate((made.folder, tmp_path / "released")):
        again = tokenized(str(number), tokenizer=str(folder)).tokenizer
        expected = folders.open_tokenizer(folder)
        assert again.encode(TEXT[:99]) == expected.encode(TEXT[:99])
        assert again.specials == expected.specials


def test_gpt2s_own_tokenizer_is_fetched_once(tmp_path):
    fetch = {"folder": tmp_path, "source": "http://127.0.0.1:1/nowhere"}
    with pytest.raises(OSError, match=r"127\.0\.0\.1"):
        folders.gpt2_tokenizer(**fetch)
    for name in folders.GPT2_FILES:
        shutil.copy(gpt2_file(name), tmp_path / name)
    assert folders.gpt2_tokenizer(**fetch).encode("Hello world") == [15496, 995]
    (tmp_path / "vocab.json").write_bytes(b"{}")
    with pytest.raises(OSError, match=r"there is now another"):
        folders.gpt2_tokenizer(**fetch)


def test_bytes_are_saved_as_any_tokenizer_is(made, tmp_path):
    assert type(folders.open_tokenizer(made.folder)) is ByteTokenizer
    held = json.loads((made.folder / "tokenizer.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps(held | {"pieces": ["a"]}))
    with pytest.raises(ValueError, match="no pieces beside the bytes, got 1"):
        ByteTokenizer.load(tmp_path / "other.json")


# ---- whole or not at all ---------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_names_the_place_and_leaves_nothing(text, tokenized, tmp_path, processes):
    bad, options = tmp_path / "bad.jsonl", {"separator": None, "processes": processes}
    bad.write_text('{"text": "one"}\n{"text": "t\\u0000wo"}\n')
    with pytest.raises(ValueError, match=r"bad\.jsonl, line 2: .*without the byte 0"):
        tokenized("new", text, bad, **ALL_TRAIN, **options)
    assert [*tmp_path.iterdir()] == [bad]


def test_a_folder_that_is_there_is_left_as_it_is_and_an_empty_one_will_do(
    copied, tokenized, tmp_path
):
    before = content(copied)
    with pytest.raises(FileExistsError, match="is there already"):
        tokenized(copied.name)
    assert content(copied) == before
    (tmp_path / "new").mkdir()
    assert len(tokenized("new").parts["train"]) > 1_000


PROGRAM = "import sys; from next_token.__main__ import main; sys.exit(main(sys.argv[1:]))"


def children_of(process):
    """The processes that one has started."""
    task = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(child) for child in task.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for processes")
@pytest.mark.parametrize("killed", ["all", "worker"])
def test_a_killed_process_leaves_no_folder_and_no_other_process(tmp_path, killed):
    (tmp_path / "long.txt").write_text(TEXT * 3_000)
    BytePairTokenizer.train(TEXT, 400).save_gpt2(tmp_path / "known")
    (tmp_path / "known" / "config.json").write_text("{}")
    arguments = ["tokenize", "long.txt", "--folder", "new", "--tokenizer", "known", "--quiet"]
    command = [sys.executable, "-c", PROGRAM, *arguments, "--processes", "2"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    grown = tmp_path / "new.partial" / "train-00000.bin"
    while process.poll() is None and not (grown.exists() and grown.stat().st_size):
        time.sleep(0.02)
    workers = children_of(process)
    assert process.poll() is None
    assert not any("torch" in Path(f"/proc/{each}/maps").read_text() for each in workers)
    os.kill(process.pid if killed == "all" else workers[-1], signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert not (tmp_path / "new").exists()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{each}").exists() for each in workers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(Path(f"/proc/{each}").exists() for each in workers)
    if killed == "worker":
        assert process.returncode == 1
        assert "a process that encodes text died" in said
        assert not grown.parent.exists()
        return
    with pytest.raises(FileNotFoundError, match=r"new\.partial is there, so a run was killed"):
        Shards(tmp_path / "new")
    with pytest.raises(FileExistsError, match=r"new\.partial.*remove it and begin again"):
        tokenize_files([tmp_path / "long.txt"], tmp_path / "new", **SMALL)


# ---- what a reader refuses -------------------------------------------------------------------


def test_a_changed_byte_is_found(copied):
    opened = Shards(copied)
    opened.check()
    for file in opened.files[1:]:
        whole = (copied / file.name).read_bytes()
        held = bytearray(whole)
        held[len(held) // 2] ^= 1
        (copied / file.name).write_bytes(held)
        with pytest.raises(ShardError, match=rf"{file.name} with SHA-256.*changed or damaged"):
            Shards(copied).check()
        (copied / file.name).write_bytes(whole)
    opened.check()


def test_a_missing_and_a_short_file_are_named(copied):
    path = copied / "train-00001.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ShardError, match=r"train-00001\.bin with 2,000 bytes.*got 1,999"):
        Shards(copied)
    path.unlink()
    with pytest.raises(ShardError, match=r"train-00001\.bin with 2,000 bytes.*got no such file"):
        Shards(copied)
    path.mkdir()
    with pytest.raises(ShardError, match="no such file"):
        Shards(copied)


def test_a_file_that_is_cut_while_it_is_read_is_named(copied):
    stream = Shards(copied).parts["train"]
    os.truncate(copied / "train-00000.bin", 10)
    with pytest.raises(ShardError, match=r"6 bytes at 6 in .*got 4: the file was cut"):
        stream.piece(3, 3)


def test_a_folder_without_a_manifest_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no manifest\.json: `next-token tokenize`"):
        Shards(tmp_path)


def put(held, path, value):
    *above, last = path
    for key in above:
        held = held[key]
    held[last] = value
    if value is None:
        del held[last]


TRAIN = ("parts", "train")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "next-token shards 2", "the format 'next-token shards 1', got .*2'"),
        (("kind",), "float64", r"numbers among \['uint16', 'uint32'\], got 'float64'"),
        (("kind",), None, "'kind'.*got none"),
        (("kind",), "uint32", "files for .* tokens"),
        (("kind",), ["uint16"], "manifest"),
        (("tokens_per_shard",), 0, "uint16', 0"),
        (("tokens_per_shard",), 1 << 61, "files for"),
        (("tokenizer", "name"), "../tokenizer.json", "called tokenizer.json, got '../tokenizer"),
        (("parts",), [], "manifest"),
        (("parts", "train"), None, r"the parts \['train'"),
        (("parts", "more"), {}, "'tokens'"),
        ((*TRAIN, "tokens"), 1 << 70, "a number from 0 to 2^62"),
        ((*TRAIN, "tokens"), -1, "got -1"),
        ((*TRAIN, "tokens"), True, "got True"),
        ((*TRAIN, "documents"), 3, "3 documents, got others"),
        ((*TRAIN, "shards"), [], "files for"),
        ((*TRAIN, "shards"), None, "'shards'"),
        ((*TRAIN, "shards", 0, "name"), "../secret", "train-00000.bin, got '../secret'"),
        ((*TRAIN, "shards", 1, "name"), "train-00000.bin", "train-00001.bin, got"),
        ((*TRAIN, "shards", 0, "name"), 3, "got 3"),
        ((*TRAIN, "shards", 0, "size"), 1 << 60, "files for"),
        ((*TRAIN, "shards", 0, "sha256"), 5, "a SHA-256 for train-00000.bin, got 5"),
        ((*TRAIN, "starts", "name"), "test.starts", "train.starts, got"),
        ((*TRAIN, "starts", "size"), 8, "documents, got others"),
        (("vocabulary_size",), 255, "with 255 tokens and the end token 0, got one with 256"),
        (("end",), 1, "the end token 1, got one with 256 and 0"),
    ],
)
def test_a_forged_manifest_is_refused(copied, path, value, message):
    held = json.loads((copied / MANIFEST).read_text())
    put(held, path, value)
    (copied / MANIFEST).write_text(json.dumps(held))
    message = message.replace("2^62", r"2\^62")
    with pytest.raises(ShardError, match=message):
        Shards(copied)


@pytest.mark.parametrize("held", ["", "[]", '{"format"', "[" * 99_999, "\0", '"next-token"'])
def test_what_is_no_manifest_is_refused(copied, held):
    (copied / MANIFEST).write_text(held)
    with pytest.raises(ShardError, match="the manifest of shards in"):
        Shards(copied)


def test_a_manifest_that_is_too_long_is_not_read(copied, monkeypatch):
    monkeypatch.setattr(shards, "_LARGEST_MANIFEST", 100)
    with pytest.raises(ShardError, match="at most 100 bytes"):
        Shards(copied)


def test_another_tokenizer_is_found(copied):
    tokenizer = copied / "tokenizer.json"
    tokenizer.write_bytes(tokenizer.read_bytes().replace(b"bytes", b"words"))
    with pytest.raises(ShardError, match=r"tokenizer of the manifest.*with 4 and 3"):
        Shards(copied)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": "letters"}, "bytes, characters, gpt2, a folder .* got 'letters'"),
        ({"tokenizer": "100"}, "from 257"),
        ({"validation": 0.6, "test": 0.5}, "together below 1"),
        ({"validation": -0.1}, "at least 0"),
        ({"processes": 0}, "at least one process, got 0"),
        ({"tokens_per_shard": 0}, "at least one token"),
        ({"separator": ""}, "at least one character"),
    ],
)
def test_an_option_that_cannot_be_is_refused(tokenized, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        tokenized("new", **options)
    assert not list(tmp_path.iterdir())


def test_files_without_a_document_to_train_on_are_refused(text, tmp_path):
    (tmp_path / "blank.txt").write_text(" \n\n ")
    for files, message in (
        ([tmp_path / "blank.txt"], "documents to train on, got 0 in all"),
        (str(text), "a list of at least one file, got"),
        ([], "at least one file"),
    ):
        with pytest.raises(ValueError, match=message):
            tokenize_files(files, tmp_path / "new", **SMALL)


# ---- the command -----------------------------------------------------------------------------


def test_the_command_tokenizes_several_files(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one|two|three" * 9, encoding="utf-8")
    (tmp_path / "b.txt").write_text("four|five", encoding="utf-8")
    options = "--tokenizer characters --separator | --validation 0 --test 0 --processes 1 --quiet"
    command = ["tokenize", *(str(tmp_path / name) for name in ("a.txt", "b.txt"))]
    assert main([*command, "--folder", str(tmp_path / "new"), *options.split()]) == 0
    told = Shards(tmp_path / "new").parts["train"].told
    expected = f"train: {told.documents} documents, {told.bytes} bytes, {told.tokens} tokens"
    assert expected in capsys.readouterr().out.splitlines()
    assert told.documents == 19 + 2
    sources = json.loads((tmp_path / "new" / MANIFEST).read_text())["sources"]
    assert sources == [{"name": "a.txt", "size": 117}, {"name": "b.txt", "size": 9}]
