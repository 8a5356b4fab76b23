"""Folders of tokens: what a tokenizer says is written, whole or not at all; what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from gpt2_files import gpt2_file
from local_server import hub

from next_token import folders, token_folders, tokenizing
from next_token.__main__ import main
from next_token.streams import parts_of_file
from next_token.token_folders import MANIFEST, TokenFolder, TokensError
from next_token.tokenizing import tokenize_files
from src.texts.corpora import Document
from src.tokens import files
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
    """The tokens of the text; read only."""
    return tokenize_files([text], tmp_path_factory.mktemp("data") / "tokens", **SMALL)


@pytest.fixture
def tokenized(text, tmp_path):
    """Makes a folder of tokens, of the text or another, with some options instead of the small."""
    return lambda name="made", *files, **options: tokenize_files(
        files or [text], tmp_path / name, **SMALL | options
    )


@pytest.fixture
def copied(made, tmp_path):
    return Path(shutil.copytree(made.folder, tmp_path / "copied"))


def sides(path, validation=0.1, test=0.1, **options):
    """The documents of each part, by the rule that places them."""
    found = {side: [] for side in token_folders.PARTS}
    blocks = tokenizing._blocks(parts_of_file(path, **options), validation, test)
    for side, part in chain.from_iterable(blocks):
        found[side].append(Document(part.title, part.text))
    return found


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- what is written -------------------------------------------------------------------------


def test_each_part_is_the_stream_of_its_documents(made, text):
    for side, documents in sides(text, separator="\n\n").items():
        stream, expected = made.parts[side], stream_of(documents, ByteTokenizer()).tolist()
        assert stream.piece(0, len(stream)).tolist() == expected
        assert stream.piece(7, 9).tolist() == expected[7:16]
        assert stream.documents == len(documents) > 10
        assert stream.bytes == sum(document.n_bytes for document in documents)
        starts = stream.starts.tolist()
        assert starts == [at for at, token in enumerate(expected[:-1]) if token == 0]
        assert np.memmap(stream.path, "<u2").tolist() == expected
        assert np.memmap(stream.path.with_suffix(".starts"), "<i8").tolist() == starts


def test_pieces_beyond_the_end_are_refused_and_end_no_process(copied):
    stream = TokenFolder(copied).parts["test"]
    for start, length in ((-1, 2), (len(stream), 1), (len(stream) - 3, 4)):
        with pytest.raises((ValueError, OSError)):
            stream.piece(start, length)
    os.truncate(stream.path, 10)  # while it is read
    with pytest.raises(ValueError, match="smaller than requested"):
        stream.piece(3, 3)


@pytest.mark.parametrize("more", [0, 1])
def test_ids_have_as_many_bits_as_they_need(tokenized, tmp_path, more):
    characters = [chr(0x10000 + n) for n in range((1 << 16) - 4 + more)]
    (tmp_path / "released").mkdir()
    (tmp_path / "released" / "run.toml").touch()
    files.save(CharacterTokenizer(characters), tmp_path / "released" / "tokenizer.json")
    (tmp_path / "last.txt").write_text(characters[-1], encoding="utf-8")
    options = ALL_TRAIN | {"tokenizer": str(tmp_path / "released")}
    part = tokenized("new", tmp_path / "last.txt", **options).parts["train"]
    assert part.piece(0, 3).tolist() == [3, (1 << 16) - 1 + more, 3]
    assert part.path.stat().st_size == 3 * (4 if more else 2)


@pytest.mark.parametrize("processes", [1, 3])
def test_more_processes_and_other_blocks_write_the_same(tokenized, made, monkeypatch, processes):
    monkeypatch.setattr(tokenizing, "_BLOCK", 700)
    assert content(tokenized(processes=processes).folder) == content(made.folder)


def test_at_most_one_block_waits_for_each_process(made):
    read = []
    blocks = ([] for number in range(20) if not read.append(number))
    for number, _ in enumerate(tokenizing._encoded(blocks, made.tokenizer, "<u2", 2)):
        assert len(read) <= number + 3


def test_a_document_in_parts_is_one_document(tokenized, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("one two three four five six\n\nseven eight nine ten")
    whole = tokenized("whole", tmp_path / "a.txt", **ALL_TRAIN)
    monkeypatch.setattr("next_token.streams.PART", 9)
    assert len(list(parts_of_file(tmp_path / "a.txt", separator="\n\n"))) > 2
    cut = tokenized("cut", tmp_path / "a.txt", **ALL_TRAIN)
    assert content(cut.folder) == content(whole.folder)
    assert cut.parts["train"].documents == 2


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


def test_a_sample_is_drawn_from_all_of_a_text_and_is_no_longer_than_it_may_be(text, monkeypatch):
    monkeypatch.setattr(tokenizing, "SAMPLE", 2_000)
    [block] = tokenizing._blocks(parts_of_file(text, separator="\n\n"), 0.1, 0.1)
    chosen = list(tokenizing._sample(block, [text]))
    assert 1_000 < len("".join(chosen).encode()) <= 2_000
    assert {int(one.split()[1][:-1]) // 100 for one in chosen} == {0, 1, 2}


def test_the_characters_are_those_of_the_training_part(text, tokenized):
    made = tokenized(tokenizer="characters")
    train = "".join(document.text for document in sides(text, separator="\n\n")["train"])
    assert made.tokenizer.vocabulary_size == 4 + len(set(train))
    stream = made.parts["train"]
    assert made.tokenizer.decode(stream.piece(0, len(stream)).tolist()).replace(END, "") == train


def test_the_tokenizer_of_a_folder_is_taken(made, tokenized, tmp_path):
    files.save_gpt2(BytePairTokenizer.train(TEXT, 280), tmp_path / "released")
    (tmp_path / "released" / "config.json").write_text("{}")
    for number, folder in enumerate((made.folder, tmp_path / "released")):
        again = tokenized(str(number), tokenizer=str(folder)).tokenizer
        expected = folders.open_tokenizer(folder)
        assert again.encode(TEXT[:99]) == expected.encode(TEXT[:99])
        assert again.specials == expected.specials


def test_gpt2s_own_tokenizer_is_fetched_once(tmp_path, monkeypatch):
    asked = []
    with hub({name: gpt2_file(name) for name in files.GPT2_FILES}, asked):
        for _ in range(2):
            assert folders.gpt2_tokenizer(tmp_path).encode("Hello world") == [15496, 995]
    assert asked == [*files.GPT2_FILES]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert folders.gpt2_tokenizer(tmp_path).encode("Hello world") == [15496, 995]
    with pytest.raises(OSError, match="connection"):
        folders.gpt2_tokenizer(tmp_path / "elsewhere")


# ---- whole or not at all ---------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_names_the_place_and_leaves_nothing(text, tokenized, tmp_path, processes):
    bad, options = tmp_path / "bad.jsonl", {"separator": None, "processes": processes}
    bad.write_text('{"text": "one"}\n{"text": "t\\u0000wo"}\n')
    with pytest.raises(ValueError, match=r"bad\.jsonl, line 2: .*without the byte 0"):
        tokenized("new", text, bad, **ALL_TRAIN, **options)
    assert [*tmp_path.iterdir()] == [bad]


def test_a_folder_that_is_there_is_left_as_it_is(copied, tokenized):
    before = content(copied)
    with pytest.raises(FileExistsError, match=f"no {copied} yet"):
        tokenized(copied.name)
    assert content(copied) == before


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for processes")
@pytest.mark.parametrize("ended", ["killed", "worker killed", "interrupted"])
def test_a_process_that_ends_early_leaves_no_folder_and_no_other_process(tmp_path, ended):
    (tmp_path / "long.txt").write_text(TEXT * 3_000)
    options = "long.txt --folder new --tokenizer bytes --quiet --processes 2"
    process = subprocess.Popen(
        [sys.executable, "-m", "next_token", "tokenize", *options.split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    partial, task = tmp_path / "new.partial", f"/proc/{process.pid}/task/{process.pid}/children"
    grown = partial / "train.bin"
    while not grown.exists() or grown.stat().st_size < 10_000_000:  # so all workers have begun
        time.sleep(0.02)
    workers = [Path(f"/proc/{child}") for child in Path(task).read_text().split()]
    assert process.poll() is None
    assert not any("torch" in (each / "maps").read_text() for each in workers)
    if ended == "interrupted":
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
    else:
        os.kill(process.pid if ended == "killed" else int(workers[-1].name), signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    deadline = time.monotonic() + 30
    while any(each.exists() for each in workers):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not (tmp_path / "new").exists()
    assert partial.exists() == (ended == "killed")
    assert "Traceback" not in said
    assert ("a process that encodes text died" in said) == (ended == "worker killed")
    if ended == "killed":
        with pytest.raises(FileNotFoundError, match=r"not ended if there is a .*new\.partial"):
            TokenFolder(tmp_path / "new")
        with pytest.raises(FileExistsError, match=r"new\.partial, of a killed process"):
            tokenize_files([tmp_path / "long.txt"], tmp_path / "new", **SMALL)


# ---- what a reader refuses -------------------------------------------------------------------


def test_a_changed_byte_is_found(copied):
    opened = TokenFolder(copied)
    opened.check()
    for name in opened.files:
        whole = (copied / name).read_bytes()
        (copied / name).write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        with pytest.raises(TokensError, match=rf"{name} with SHA-256.*changed or damaged"):
            opened.check()
        (copied / name).write_bytes(whole)
    opened.check()


@pytest.mark.parametrize("name", ["train.bin", "test.starts"])
def test_a_short_and_a_missing_file_are_named(copied, name):
    size = (copied / name).stat().st_size
    os.truncate(copied / name, size - 1)
    with pytest.raises(TokensError, match=rf"{name} with {size:,} bytes.*got {size - 1:,}"):
        TokenFolder(copied)
    (copied / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        TokenFolder(copied)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tokens 2", "tokens 1", r"'next-token tokens 2' in .*tokens 1.*tokenize again"),
        ('"format"', '"kind"', "KeyError"),
        ('"<u2"', '"<f8"', "KeyError: '<f8'"),
        ('"<u2"', '["<u2"]', "unhashable"),
        ('"<u2"', '"<u4"', "train.bin with"),
        ('"train.bin"', '"../train.bin"', "KeyError.*train.bin"),
        ('"parts"', '"parts": [], "more"', "TypeError"),
        ('"tokens": ', '"tokens": 99999999999999999999', "train.bin with"),
        ('"tokens": ', '"tokens": Infinity, "more": ', "OverflowError"),
        ('"documents": ', '"documents": -', "train.starts with -"),
        ('"bytes": ', '"bytes": "many", "more": ', "ValueError"),
        ("{", "[" * 99_999, "RecursionError"),
        ("{", "\0", "UnicodeDecodeError"),
    ],
)
def test_a_forged_manifest_is_refused(copied, old, new, message):
    manifest = (copied / MANIFEST).read_text()
    assert old in manifest
    (copied / MANIFEST).write_text(manifest.replace(old, new, 1))
    with pytest.raises(TokensError, match=message):
        TokenFolder(copied)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": "letters"}, "bytes, characters, gpt2, a folder .* got 'letters'"),
        ({"tokenizer": "100"}, "vocabulary_size from 257"),
        ({"validation": 0.6, "test": 0.5}, "together below 1"),
        ({"processes": -1}, "documents to train on, got none"),
        ({"separator": ""}, "no separator ''"),
        ({"separator": "|", "validation": 0.6, "test": 0.3}, "documents to train on, got none"),
    ],
)
def test_an_option_that_cannot_be_is_refused(tokenized, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        tokenized("new", **options)
    assert not list(tmp_path.iterdir())


def test_the_command_tokenizes_several_files(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one|two|three" * 9, encoding="utf-8")
    (tmp_path / "b.txt").write_text("four|five", encoding="utf-8")
    options = "--tokenizer characters --separator | --validation 0 --test 0 --processes 1 --quiet"
    command = ["tokenize", *(str(tmp_path / name) for name in ("a.txt", "b.txt"))]
    assert main([*command, "--folder", str(tmp_path / "new"), *options.split()]) == 0
    part = TokenFolder(tmp_path / "new").parts["train"]
    assert "train: 21 documents, 107 bytes, 129 tokens" in capsys.readouterr().out.splitlines()
    assert (part.documents, part.bytes, len(part)) == (19 + 2, 107, 107 + 22)
    assert json.loads((tmp_path / "new" / MANIFEST).read_text())["sources"] == ["a.txt", "b.txt"]
