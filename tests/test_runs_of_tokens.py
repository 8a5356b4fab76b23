"""Runs on a folder of tokens: the batches and losses of a run in memory, and what is refused."""

import json
import shutil
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_main import done, refused, said, same_weights

from next_token import runs
from next_token.runs import StreamBatches
from next_token.token_folders import MANIFEST
from next_token.tokenizing import tokenize_files
from src.gpt.released import open_run, read_toml, scores
from src.likelihood.batches import Batches
from src.likelihood.evaluation import total
from src.texts.corpora import Document
from src.tools import checkpoints

TEXT = "".join(f"Story {i}: the {i % 7} cat sat on {i * i}.|" for i in range(400))
MODEL = "--context-length 16 --layers 1 --heads 2 --channels 8 --batch-size 4 --warm-up 2"
SHORT = f"{MODEL} --steps 8 --every 4 --save-every 4 --quiet".split()


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setenv("NEXT_TOKEN_DEVICE", "cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tokens of a text; read only."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "mine.txt").write_text(TEXT)
    options = {"tokenizer": "bytes", "separator": "|", "processes": 1}
    return tokenize_files([folder / "mine.txt"], folder / "token_folder", **options)


@pytest.fixture
def copied(made, tmp_path):
    return shutil.copytree(made.folder, tmp_path / "copied")


def in_memory(stream):
    return torch.from_numpy(stream.piece(0, len(stream)))


# ---- batches ---------------------------------------------------------------------------------


@given(
    length=st.integers(1, 700),
    size=st.integers(1, 9),
    seed=st.integers(0, 99),
    number=st.integers(0, 10**9),
    whole=st.booleans(),
)
def test_a_batch_from_the_disk_is_that_of_the_same_stream_in_memory(
    made, length, size, seed, number, whole
):
    stream = made.parts["train"]
    options = {"batch_size": size, "context_length": length, "seed": seed}
    options["first"] = 0 if whole else None
    one, other = StreamBatches(stream, **options), Batches(in_memory(stream), **options)
    ours, theirs = one[number], other[number]
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    assert ours[0].dtype == torch.int64


def test_no_piece_begins_with_a_document_whose_end_is_too_near(made):
    stream = made.parts["test"]
    last = int(stream.starts[-1])
    for length in (len(stream) - last - 1, len(stream) - last):
        data = StreamBatches(stream, batch_size=500, context_length=length, first=0)
        assert len(data.starts) == stream.documents - (length == len(stream) - last)
    with pytest.raises(ValueError, match=f"a stream of at least {len(stream) + 1} tokens"):
        StreamBatches(stream, batch_size=1, context_length=len(stream))


# ---- runs ------------------------------------------------------------------------------------


def test_a_run_on_tokens_is_trained_and_used_by_the_command_line(made, tmp_path, capsys):
    run = tmp_path / "run"
    assert "nats per token after" in done(capsys, "train", made.folder, "--folder", run, *SHORT)
    tables = read_toml(run / "run.toml")
    assert tables["data"].keys().isdisjoint(runs.OF_TEXT)
    assert tables["made"]["sha256"] == made.sha256
    assert tables["made"]["documents"] == 400
    assert open_run(run).tokenizer.encode("né") == [110, 195, 169]
    done(capsys, "sample", run, "--tokens", "5")


def test_a_resumed_run_ends_in_the_same_bits(made, tmp_path, monkeypatch, capsys):
    def stop(step, model):
        if step == 4:
            raise KeyboardInterrupt

    command = ("train", made.folder, "--folder")
    done(capsys, *command, tmp_path / "whole", *SHORT)
    with monkeypatch.context() as patch:
        patch.setattr(runs, "train", partial(runs.train, after=stop))
        assert said(capsys, *command, tmp_path / "cut", *SHORT)[0] == 130
    done(capsys, "train", "--folder", tmp_path / "cut", "--resume", "--quiet")
    one, other = (checkpoints.read(tmp_path / name / "last.pt") for name in ("whole", "cut"))
    assert one["history"] == other["history"]
    assert same_weights(tmp_path / "whole", tmp_path / "cut")


def test_changed_tokens_are_named_before_a_run_begins_and_before_it_goes_on(
    copied, tmp_path, capsys
):
    def command(folder, *options):
        return "train", copied, "--folder", tmp_path / folder, *options

    done(capsys, *command("run", *SHORT))
    manifest = (copied / MANIFEST).read_text()
    (copied / MANIFEST).write_text(json.dumps(json.loads(manifest)))  # written otherwise
    assert "made.sha256" in refused(capsys, *command("run", "--resume"))
    (copied / MANIFEST).write_text(manifest)
    path = copied / "train.bin"
    path.write_bytes(bytes(len(path.read_bytes())))
    for each in (command("run", "--resume"), command("new", *SHORT)):
        assert "train.bin with SHA-256" in refused(capsys, *each)
    assert not (tmp_path / "new").exists()


def test_what_was_decided_when_a_text_was_tokenized_is_no_flag_of_a_run(made, tmp_path, capsys):
    flags = ["--vocabulary-size", "300", "--separator", "|"]
    err = refused(capsys, "train", made.folder, "--folder", tmp_path / "run", *flags)
    assert "expected no separator, vocabulary_size for" in err


@pytest.mark.parametrize("state", ["data", "data.partial"])
def test_a_folder_that_is_not_whole_is_named(tmp_path, capsys, state):
    (tmp_path / state).mkdir()
    err = refused(capsys, "train", tmp_path / "data", "--folder", tmp_path / "run", *SHORT)
    assert "expected a folder of tokens" in err
    assert "has not ended if there is a" in err


# ---- afterwards ------------------------------------------------------------------------------


def test_a_run_is_scored_on_the_test_part_of_its_tokens(made, tmp_path, capsys):
    done(capsys, "train", made.folder, "--folder", tmp_path / "run", *SHORT)
    out, run = done(capsys, "evaluate", tmp_path / "run"), open_run(tmp_path / "run")
    texts = [text for text in TEXT.split("|") if text]
    part = made.parts["test"]
    held = bytes(token for token in part.piece(0, len(part)).tolist() if token < 256).decode()
    documents = [Document(text, text) for text in texts if text in held]
    score = total(scores(run, documents))
    assert f"{part.documents} documents, {part.bytes:,} bytes, {score.tokens:,} tokens" in out
    assert f"{score.loss:.4f} nats per token, {score.bits_per_byte:.4f} bits per byte" in out
    assert f"test: {part}" in done(capsys, "info", made.folder)


def test_what_can_not_be_trained_on_is_not_advised(tmp_path, capsys):
    (tmp_path / "small.txt").write_text("\n\n".join(f"Paragraph {i}." for i in range(60)))
    command = ["tokenize", tmp_path / "small.txt", "--tokenizer", "bytes", "--processes", "1"]
    out = done(capsys, *command, "--folder", tmp_path / "tokens", "--quiet")
    assert "Next:" not in out
    assert "`train` cannot read this folder: its validation part has 1 tokens" in out
