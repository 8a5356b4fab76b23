"""`next-token` and `next_token.runs`: a small run from beginning to end, and what is refused."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from oracles import greatest_difference

from next_token import run_commands as commands
from next_token import run_log, runs
from next_token import tuned as tuned_models
from next_token.__main__ import main
from next_token.llama import open_run
from next_token.run_commands import _texts
from next_token.run_config import RunConfig
from next_token.runs import config_in
from src.gpt import gpt1_finetuning, pretrained, training
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.released import floor_of, read_toml, scores
from src.likelihood.evaluation import total
from src.likelihood.smoothing import NgramModel
from src.texts import labelled
from src.texts.corpora import Corpus, Document
from src.tokens.bpe import BytePairTokenizer
from src.tokens.files import load as load_tokenizer
from src.tokens.files import save_gpt2
from src.tools import checkpoints

TEXT = "".join(
    f"Paragraph {i}: the {animal} sat on the {thing}.\n\n"
    for i in range(40)
    for animal, thing in [("cat", "mat"), ("dog", "log"), ("fox", "box")]
)
TINY = "--vocabulary-size 280 --context-length 16 --layers 1 --heads 2 --channels 8 --batch-size 4"
SHORT = f"{TINY} --warm-up 2 --every 4 --save-every 4 --quiet".split()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "mine.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module", autouse=True)
def on_the_cpu():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXT_TOKEN_DEVICE", "cpu")
        yield


@pytest.fixture(scope="module")
def folder(text, tmp_path_factory):
    """A run of 8 steps; read only."""
    return trained(tmp_path_factory.mktemp("runs") / "whole", text, steps=8)


def said(capsys, *arguments):
    """Exit status, and what a command wrote to its two streams."""
    capsys.readouterr()
    status = main([str(argument) for argument in arguments])
    return status, *capsys.readouterr()


def done(capsys, *arguments):
    """What a command that succeeds says."""
    status, out, _ = said(capsys, *arguments)
    assert status == 0
    return out


def refused(capsys, *arguments):
    """The error of a command that fails."""
    status, _, err = said(capsys, *arguments)
    assert status == 1
    return err


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def trained(folder, *arguments, steps=4):
    """A folder with a small run in it."""
    command = ["train", "--folder", folder, "--steps", steps, *SHORT, *arguments]
    assert main([str(each) for each in command]) == 0
    return folder


def same_weights(one, other, name="last.pt"):
    """Whether two folders hold the same parameters, to the bit."""
    states = [checkpoints.read(folder / name)["model"] for folder in (one, other)]
    return all(torch.equal(states[0][key], states[1][key]) for key in states[0])


# a run from beginning to end


def test_a_run_keeps_all_that_is_needed_to_repeat_it(folder, text):
    tables = read_toml(folder / "run.toml")
    assert tables["data"]["text"] == str(text)
    assert tables["model"] == {"context_length": 16, "layers": 1, "heads": 2, "channels": 8}
    assert tables["training"]["steps"] == 8
    assert tables["made"]["torch"] == torch.__version__
    assert len(tables["made"]["sha256"]) == 64
    assert {*content(folder)} == {"best.pt", "last.pt", "log.csv", "run.toml", "tokenizer.json"}


def test_a_run_is_scored_on_the_part_of_its_text_that_it_never_saw(folder, capsys):
    out, run = done(capsys, "evaluate", folder), open_run(folder)
    assert "the test part of" in out
    test = config_in(run.tables).parts().test
    score = total(scores(run, list(test)))
    assert f"{score.bits_per_byte:.4f} bits per byte" in out
    assert score.n_bytes == test.n_bytes


def test_texts_are_drawn_from_a_run_and_a_seed_repeats_them(folder, capsys):
    def drawn(*flags):
        command = ["sample", folder, "--prompt", "The", "--tokens", "12", "--texts", "2"]
        return done(capsys, *command, *flags)

    first = drawn("--seed", "3")
    assert all(part.startswith("The") for part in first.split(f"\n{'-' * 72}\n"))
    assert first == drawn("--seed", "3") != drawn("--seed", "4")
    narrowest = [("--temperature", "0"), ("--top-k", "1"), ("--top-p", "1e-9"), ("--min-p", "1")]
    assert len({drawn(*flags, "--seed", seed) for flags in narrowest for seed in "34"}) == 1


def test_a_screen_shows_what_it_can_of_a_text(folder, monkeypatch):
    """One that knows ASCII only, as where a log is kept in an old code."""
    screen = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    monkeypatch.setattr("sys.stdout", screen)
    assert main(["sample", str(folder), "--prompt", "née", "--tokens", "0"]) == 0
    assert screen.buffer.getvalue() == b"n?e\n"


def test_the_tokens_of_a_text_are_shown(folder, capsys):
    *lines, last = done(capsys, "tokens", folder, "the cat né").splitlines()
    ids = load_tokenizer(folder / "tokenizer.json").encode("the cat né")
    assert [int(line.split()[0]) for line in lines] == ids
    assert last == f"{len(ids)} tokens, 11 bytes"


def test_a_text_is_tokenized_without_reading_weights(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runs.llama, "load", None)
    monkeypatch.setattr(training, "load_best", None)
    save_gpt2(BytePairTokenizer.train(TEXT, 300), tmp_path)
    (tmp_path / "config.json").write_text("{}")
    for each in (folder, tmp_path):
        assert done(capsys, "tokens", each, "The cat").endswith("tokens, 7 bytes\n")


def test_a_folder_says_what_it_holds(folder, capsys):
    out = done(capsys, "info", folder)
    assert f"{open_run(folder).model.config.parameters:,} parameters" in out
    assert "learning_rate = 0.003" in out


def test_a_run_that_was_interrupted_goes_on_to_the_same_end(folder, text, tmp_path, monkeypatch):
    cut = tmp_path / "cut"

    def interrupt(step, model):
        if step == 6:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runs, "train", partial(runs.train, after=interrupt))
        assert main(["train", str(text), "--folder", str(cut), "--steps", "8", *SHORT]) == 130
    begun = (cut / "tokenizer.json").stat().st_mtime_ns
    assert main(["train", "--folder", str(cut), "--resume", "--quiet"]) == 0
    assert (cut / "tokenizer.json").stat().st_mtime_ns == begun  # it was not made anew
    assert same_weights(folder, cut)


def test_a_named_text_is_begun_where_there_is_no_run_and_says_so(text, tmp_path, capsys):
    command = ["train", text, "--folder", tmp_path / "new", "--resume", "--steps", "4", *SHORT]
    status, _, err = said(capsys, *command)
    assert status == 0
    assert f"note: no run in {tmp_path / 'new'}: begun afresh" in err
    assert "afresh" not in said(capsys, *command)[2]


def test_a_run_that_has_lost_its_last_checkpoint_is_not_begun_again(folder, text, tmp_path, capsys):
    lost = shutil.copytree(folder, tmp_path / "lost", ignore=shutil.ignore_patterns("last.pt"))
    before = content(lost)
    err = refused(capsys, "train", "--folder", lost, "--resume", "--steps", "12", "--quiet")
    assert f"expected {lost / 'last.pt'} to go on from" in err
    assert content(lost) == before
    advised = ["train", "--init-from", lost, "--folder", tmp_path / "on", "--steps", "2", "--quiet"]
    done(capsys, *advised, text)


def test_a_run_that_was_killed_before_its_first_checkpoint_may_begin_again(folder, tmp_path):
    gone = shutil.ignore_patterns("last.pt", "log.csv")
    killed = shutil.copytree(folder, tmp_path / "killed", ignore=gone)
    best = checkpoints.read(killed / "best.pt")
    checkpoints.write(killed / "best.pt", best | {"step": 0})
    assert main(["train", "--folder", str(killed), "--resume", "--quiet"]) == 0
    assert same_weights(folder, killed)


def test_flags_win_over_a_file_and_a_file_over_the_defaults(text, tmp_path):
    (tmp_path / "small.toml").write_text(
        "[training]\nsteps = 5\nlearning_rate = 0.01\n[model]\ndropout = 0.5\n[data]\nseed = 7\n"
    )
    run = trained(tmp_path / "run", text, "--config", tmp_path / "small.toml", steps=3)
    tables = read_toml(run / "run.toml")
    assert tables["training"]["steps"] == 3
    assert tables["training"]["learning_rate"] == 0.01
    assert tables["model"]["dropout"] == 0.5
    assert tables["data"]["seed"] == 7
    assert RunConfig.from_tables({k: tables[k] for k in ("data", "model", "training")})


@pytest.mark.parametrize(
    ("written", "separator"),
    [("◆\\n", "◆\n"), ("\\t", "\t"), ("\\r", "\r"), ("\\\\n", "\\n"), ("\\x41é", "\\x41é")],
)
def test_any_character_can_separate_documents(tmp_path, capsys, written, separator):
    path = tmp_path / "text.txt"
    path.write_text(separator.join([TEXT] * 5), encoding="utf-8")
    run = trained(tmp_path / "run", path, "--separator", written)
    assert capsys.readouterr().err == ""
    assert read_toml(run / "run.toml")["data"]["separator"] == separator


@pytest.mark.parametrize(("steps", "warm_up"), [(1, 0), (2, 1), (9, 4), (150, 75), (2_000, 100)])
def test_a_warm_up_that_nobody_asked_for_leaves_half_of_the_steps(steps, warm_up):
    assert RunConfig.from_tables({"training": {"steps": steps}}).training.warm_up == warm_up


def test_a_run_without_a_test_part_says_so(text, tmp_path, capsys):
    (tmp_path / "all.toml").write_text("[data]\ntest = 0.0\n")
    run = trained(tmp_path / "run", text, "--config", tmp_path / "all.toml")
    message = "is empty: name a text"
    assert message in refused(capsys, "evaluate", run)


def test_the_same_seed_makes_the_same_run_dropout_included(text, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for disturbed, folder in enumerate((one, other)):
        torch.manual_seed(disturbed)
        trained(folder, text, "--dropout", "0.5")
    assert same_weights(one, other, "best.pt")
    assert not open_run(one).model.training


def test_the_seed_decides_the_first_weights(folder):
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    configs = [RunConfig.from_tables({"data": {"seed": seed}}) for seed in (0, 0, 1)]
    one, again, other = (runs._model(config, tokenizer, "cpu").embedding for config in configs)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_windows_advance_by_half_a_context_unless_told_otherwise(folder):
    run, documents = open_run(folder), [Document("a", TEXT[:300])]
    assert scores(run, documents) == scores(run, documents, stride=8)
    assert scores(run, documents) != scores(run, documents, stride=1)
    with pytest.raises(ValueError, match="got batch_size=8, stride=0"):
        scores(run, documents, stride=0)


@pytest.mark.weekly
def test_two_processes_make_the_run_of_one(folder, text, tmp_path):
    shared = tmp_path / "shared"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command = ["-m", "next_token", "train", text, "--folder", shared, "--steps", "8", *SHORT]
    done = subprocess.run(
        [sys.executable, *torchrun, *command],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("least validation loss") == 1
    assert read_toml(shared / "run.toml")["made"]["processes"] == 2
    one, two = (checkpoints.read(f / "last.pt")["history"] for f in (folder, shared))
    assert two["losses"] == pytest.approx(one["losses"], abs=1e-5)


# a released model


def test_a_released_model_is_used_like_a_run(tmp_path, capsys):
    tokenizer = BytePairTokenizer.train(TEXT, 300)
    save_gpt2(tokenizer, tmp_path)
    config = GPTConfig(tokenizer.vocabulary_size, context_length=32, layers=1, heads=2, channels=8)
    pretrained.save(GPT(config, generator=torch.Generator().manual_seed(0)), tmp_path)
    out = done(capsys, "sample", tmp_path, "--prompt", "The", "--tokens", "5")
    assert out.startswith("The")
    assert f"{config.parameters:,} parameters" in done(capsys, "info", tmp_path)


# the micro-world


@pytest.fixture(scope="module")
def world_run(tmp_path_factory):
    """A run of 4 steps on the micro-world, word by word; read only."""
    folder = tmp_path_factory.mktemp("worlds")
    (folder / "recipe.toml").write_text(
        '[data]\ntext = "micro-world"\ntokenizer = "words"\nseed = 3\n'
        "[world]\ndocuments = 400\nstories = 0.5\n"
    )
    return trained(folder / "run", "--config", folder / "recipe.toml")


def test_a_run_on_the_micro_world_draws_its_documents_by_the_seed(world_run):
    config = config_in(open_run(world_run).tables)
    drawn = config.micro_world().sample(400, generator=torch.Generator().manual_seed(3))
    texts = [document.text.split() for document in config.corpus()]
    assert texts == [[*each.words[:-1]] for each in drawn]
    assert config.micro_world().stories == 0.5


@pytest.mark.parametrize("tokenizer", ["words", "byte-pair"])
def test_a_perfect_model_is_named_beside_the_score(world_run, tmp_path, capsys, tokenizer):
    if tokenizer == "byte-pair":  # several tokens a word
        recipe = (world_run.parent / "recipe.toml").read_text(encoding="utf-8")
        (tmp_path / "recipe.toml").write_text(recipe.replace("words", tokenizer))
        world_run = trained(tmp_path / "run", "--config", tmp_path / "recipe.toml")
    out, run = done(capsys, "evaluate", world_run), open_run(world_run)
    config = config_in(run.tables)
    test, world = config.parts().test, config.micro_world()
    nats = -sum(world.log_prob(document.text + " <end>") for document in test)
    tokens = sum(len(run.tokenizer.encode(document.text)) + 1 for document in test)
    assert f"a perfect model: {nats / tokens:.4f} nats" in out
    assert f"{tokens:,} tokens" in out
    assert " bits per byte" in out  # all words are known


def test_text_that_a_tokenizer_loses_gives_no_bits_per_byte(world_run, tmp_path, capsys):
    strange = tmp_path / "strange.txt"
    strange.write_text("qwx vbn mmq . zzy\n\nxxv qqp .\n", encoding="utf-8")
    out = done(capsys, "evaluate", world_run, strange)
    assert "no bits per byte: the tokenizer loses text" in out
    assert "nats per token" in out


def test_the_log_of_a_tokenizer_that_loses_text_has_no_bits_per_byte(tmp_path):
    words = [f"{one}{other}" for one in "abcdefghijklmnop" for other in "qrstuvwxyz"]
    documents = [" ".join(words[i : i + 12]) for i in range(0, 160, 4)]  # many words are rare
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    flags = [tmp_path / "text.txt", "--tokenizer", "words", "--vocabulary-size", 40]
    run = trained(tmp_path / "run", *flags)
    assert [row["bits_per_byte"] for row in run_log.read(run / "log.csv")] == [None, None]
    assert main(["train", "--folder", str(run), "--resume", "--steps", "8"]) == 0


LLAMA = "--norm-kind rms --gated --activation silu --positions rotary --kv-heads 1"
OTHERS = "--qk-norm --window 5 --global-every 2 --no-gated"
SMALL = (
    "micro-world --tokenizer words --quiet --layers 2 --heads 2 --channels 8 --context-length 16"
)


@pytest.mark.parametrize("released", [True, False])
def test_the_switches_of_a_model_are_flags_and_are_kept(tmp_path, capsys, released):
    flags = f"{SMALL} --steps 2 --every 2 {LLAMA} {'' if released else OTHERS}".split()
    config = tmp_path / "config.toml"
    config.write_text("[model]\nbias = false\n[world]\ndocuments = 300\n", "utf-8")
    done(capsys, "train", "--folder", tmp_path / "run", "--config", config, *flags)
    run = open_run(tmp_path / "run")
    llama = {"norm_kind": "rms", "activation": "silu", "positions": "rotary", "kv_heads": 1}
    more = {"qk_norm": True, "window": 5, "global_every": 2}
    expected = llama | {"bias": False} | ({"gated": True} if released else more)
    sizes = {"vocabulary_size", "context_length", "layers", "heads", "channels"}
    assert run.model.config.unusual(sizes) == expected
    release, ids = ["release", tmp_path / "run", tmp_path / "out"], torch.arange(8)[None]
    if not released:
        assert "Llama's blocks" in refused(capsys, *release)
        return
    done(capsys, *release)
    assert greatest_difference(open_run(tmp_path / "out").model(ids), run.model(ids)) < 1e-6


def test_a_released_run_gives_the_same_model_and_says_how_it_was_made(world_run, tmp_path, capsys):
    out = tmp_path / "out"
    done(capsys, "release", world_run, out)
    assert {*content(out)} == {"config.json", "model.safetensors", "tokenizer.json", "run.toml"}
    run, released = open_run(world_run), open_run(out)
    assert json.loads((out / "config.json").read_text())["eos_token_id"] == run.end
    assert released.step == run.step
    assert config_in(released.tables) == config_in(run.tables)
    ids = torch.tensor([run.tokenizer.encode("ann has the apple .")])
    assert torch.equal(run.model(ids), released.model(ids))
    assert "got a released model" in refused(capsys, "release", out, tmp_path / "again")
    assert "holds something" in refused(capsys, "release", world_run, out)
    assert "byte pairs" in refused(capsys, "page", world_run, "--to", tmp_path / "page.html")


# what is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modle": {}}, r"tables among \['data', 'model', 'training', 'world'\], got \[modle\]"),
        ({"model": {"layer": 3}}, r"in \[model\], got 'layer'"),
        ({"model": {"vocabulary_size": 3}}, "got 'vocabulary_size'"),
        ({"model": {"heads": 3}}, "channels=128 and heads=3"),
        ({"training": {"steps": "many"}}, "steps of type int, got 'many'"),
        ({"training": {"warm_up": 7, "steps": 2}}, "warm_up from 0 to 1, below steps, got 7"),
        ({"model": {"dropout": "no"}}, "not supported"),
        ({"model": {"tied": "no"}}, "tied to be True or False, got 'no'"),
        ({"model": {"eps": float("inf")}}, "eps above 0 and finite, got eps=inf"),
        ({"model": {"experts": 4, "experts_shift": -1.0}}, "got experts_shift=-1"),
        ({"model": "gpt2"}, r"a table \[model\], got model = 'gpt2'"),
        ({"data": {"whole": "no"}}, "whole to be true or false, got 'no'"),
        ({"data": {"tokenizer": "letters"}}, "tokenizer among .*, got 'letters'"),
        ({"world": {"stories": 1.0}}, 'for the text "micro-world" only'),
        ({"data": {"text": "micro-world"}, "world": {"documents": 0}}, "documents above 0, got 0"),
        ({"data": {"text": "micro-world"}, "world": {"people": 99}}, "people from 3 to 8, got 99"),
        ({"data": {"text": "micro-world"}, "world": {"dragons": 1}}, "got 'dragons'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        RunConfig.from_tables(changes)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train missing.txt --folder new", "missing.txt"),
        ("train --folder new --config missing.toml", "missing.toml"),
        ("train --folder new --heads 3", "channels=128 and heads=3"),
        ("train --folder typo --resume", "expected a run in typo to go on with, found none"),
        ("train {examples} --folder new", "`tokenize` reads it"),
        ("train {run}/log.csv --folder new", r"or cut a file by --separator='\n'"),
        ("train {text} --folder {run} --steps 9", "holds a run already: --resume, or choose"),
        ("train {text} --folder {text}", "mine.txt is a file: choose another name"),
        ("train {text} --folder new --batch-size 2 --accumulation 3", "batch_size of at least 3"),
        ("train {text} --folder new --batch-size 0", "batch_size from 1 to below 2^63, got 0"),
        ("train {text} --folder new --seed -1", "seed from 0 to below 2^63, got -1"),
        ("train {text} --folder new --seed 99999999999999999999", "seed from 0 to below 2^63"),
        ("train {text} --folder new --global-every 2", "expected a window beside global_every"),
        ("train --folder {run} --resume --steps 3", "steps of at least 8"),
        ("train --lora --folder typo --resume", "expected a run in typo to go on with, found none"),
        ("train --folder {run} --resume --learning-rate 1", "rate = 1.0, saved with 0.003"),
        ("train {text} --folder new --init-from {run} --layers 2", "no layers beside init_from"),
        ("train {text} --folder new --init-from {run} --vocabulary-size 3", "no vocabulary_size"),
        ("finetune {run} {examples} --folder {run}", "holds a run already"),
        ("finetune {run} {examples} --folder {tuned}", "holds a fine-tuned model already"),
        ("classify {run}", "expected a fine-tuned model"),
        ("evaluate missing", "found nothing in missing"),
        ("page {tuned} --to page.html", "found model.safetensors, task.json"),
        ("page {run} --to {text}", "expected a new file, got "),
        ("page {run} --to no/page.html", "expected to write no/page.html, got No such file"),
        ("evaluate {run} {examples}", "expected plain text"),
        ("plot missing --to none.svg", "log.csv"),
        ("plot {run} --to loss.png", "the name of an SVG after --to"),
        ("plot {run} --to loss.svg --ngram 0", "got order=0"),
        ("sample {run} --temperature -1", "got -1.0"),
        ("sample {run} --top-k 0", "got k=0"),
        ("sample {run} --top-p 1.5", "got 1.5"),
        ("sample {run} --min-p -0.1", "got -0.1"),
        ("sample {run} --tokens -1", "0 new tokens or more, got -1"),
        ("sample {run} --texts 0", "texts of at least one token each"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(
    folder, tuned, examples, text, tmp_path, monkeypatch, capsys, command, message
):
    monkeypatch.chdir(tmp_path)
    names = {"run": folder, "tuned": tuned[0], "examples": examples, "text": text}
    before = content(folder), content(tuned[0])
    err = refused(capsys, *command.format(**names).split())
    assert err.startswith("error: ")
    assert message in err
    assert (content(folder), content(tuned[0])) == before
    assert not list(tmp_path.iterdir())


HELD = {"config.json": "a released model", "task.json": "a fine-tuned model"}
HELD |= {"adapter.toml": "an adapter", "manifest.json": "tokens"}


@pytest.mark.parametrize("name", HELD)
def test_a_folder_with_something_else_is_not_trained_into(text, tmp_path, capsys, name):
    (tmp_path / name).write_text("kept")
    err = refused(capsys, "train", text, "--folder", tmp_path, "--steps", "3", *SHORT)
    assert f"holds {HELD[name]} already: choose another folder" in err
    assert content(tmp_path) == {name: b"kept"}


def test_a_run_is_continued_for_longer_and_says_what_that_changes(text, tmp_path, capsys):
    run = trained(tmp_path / "run", text, steps=8)
    longer = ["train", "--folder", run, "--resume", "--steps", 12, "--quiet"]
    status, out, err = said(capsys, *longer)
    assert status == 0
    assert out.startswith("12 steps on cpu")
    assert err.startswith("note: steps = 12 after step 8, 8 before: ")
    assert read_toml(run / "run.toml")["training"]["steps"] == 12
    assert checkpoints.read(run / "last.pt")["step"] == 12
    assert said(capsys, *longer)[2] == ""  # nothing is changed any more


STEPS = "--batch-size 4 --steps 4 --warm-up 2"
FURTHER = f"{STEPS} --every 2 --save-every 2 --quiet".split()


@pytest.mark.parametrize("kind", ["run", "GPT-2"])
def test_a_model_is_trained_further_from_where_it_ended(folder, text, tmp_path, kind):
    first, new, source = open_run(folder), tmp_path / "new", folder
    if kind == "GPT-2":  # as its authors released it
        source = tmp_path / "gpt2"
        pretrained.save(first.model, source)
        save_gpt2(first.tokenizer, source)
    command = ["train", str(text), "--folder", str(new), "--init-from", str(source)]
    assert main([*command, *FURTHER]) == 0
    further = open_run(new)
    assert further.model.config.channels == 8
    assert further.tokenizer.encode(TEXT) == first.tokenizer.encode(TEXT)
    begun, ended = (
        [row["validation_loss"] for row in run_log.read(each / "log.csv")] for each in (new, folder)
    )
    assert begun[0] == pytest.approx(min(ended), abs=1e-5) != ended[0]
    assert main(["train", "--folder", str(new), "--resume", "--steps", "6", "--quiet"]) == 0


def test_what_is_released_says_in_no_path_whose_it_is(folder, text, tmp_path, capsys):
    new, out = tmp_path / "new", tmp_path / "out"
    done(capsys, "train", text, "--folder", new, "--init-from", folder, *FURTHER)
    done(capsys, "release", new, out)
    data = read_toml(out / "run.toml")["data"]
    assert (data["text"], data["init_from"]) == (text.name, folder.name)
    assert "mine.txt" in refused(capsys, "evaluate", out)


def test_a_model_is_trained_further_by_a_recipe_that_is_given_again(folder, text, tmp_path, capsys):
    lines = ("steps = 4", "warm_up = 2", "every = 2", "save_every = 2", "[data]", "batch_size = 4")
    (tmp_path / "recipe.toml").write_text("\n".join(["[training]", *lines]))
    command = ["train", text, "--folder", tmp_path / "new", "--init-from", folder, "--quiet"]
    for _ in range(2):
        done(capsys, *command, "--config", tmp_path / "recipe.toml", "--resume")


def test_tokens_of_another_tokenizer_are_no_text_to_go_on_with(folder, text, tmp_path, capsys):
    tokens = ["tokenize", text, "--folder", tmp_path / "tokens", "--tokenizer", "bytes", "--quiet"]
    done(capsys, *tokens, "--separator", "fox")
    options = ["--folder", tmp_path / "new", "--init-from", folder, *FURTHER]
    err = refused(capsys, "train", tmp_path / "tokens", *options)
    assert "tokens of the first model's tokenizer" in err
    assert not (tmp_path / "new").exists()


def test_runs_are_drawn_side_by_side(folder, tmp_path, capsys):
    other = tmp_path / "other"
    other.mkdir()
    for name in ("log.csv", "tokenizer.json"):
        shutil.copy(folder / name, other)
    assert str(other) in done(capsys, "plot", folder, other, "--to", tmp_path / "both.svg")
    drawn = (tmp_path / "both.svg").read_text(encoding="utf-8")
    assert drawn.lstrip().startswith("<?xml")
    assert "Date" not in drawn
    assert drawn.count('id="line2d') > 2
    assert drawn.count('id="legend_1') == 1


def test_runs_with_other_tokenizers_are_drawn_in_bits_per_byte(folder, text, tmp_path, capsys):
    other, to = trained(tmp_path / "other", text, "--vocabulary-size", 290), tmp_path / "a.svg"
    alone, both = (
        done(capsys, "plot", *runs, "--to", to, "--ngram", 2).splitlines()[-1].split()
        for runs in ([folder], [folder, other])
    )
    first = run_log.read(folder / "log.csv")[0]
    per_nat = first["bits_per_byte"] / first["validation_loss"]
    assert (alone[3:], both[3:]) == (["nats", "per", "token"], ["bits", "per", "byte"])
    assert float(both[2]) == pytest.approx(float(alone[2]) * per_nat, abs=1e-3)
    rows = (other / "log.csv").read_text(encoding="utf-8")
    bits = str(run_log.read(other / "log.csv")[0]["bits_per_byte"])
    (other / "log.csv").write_text(rows.replace(bits, ""))
    assert "whose tokenizer loses text" in refused(capsys, "plot", folder, other, "--to", to)


def test_a_run_is_drawn_beside_a_model_that_counts(folder, tmp_path, capsys):
    out = done(capsys, "plot", folder, "--to", tmp_path / "beside.svg", "--ngram", 2)
    name, height = out.splitlines()[-1].removesuffix(" nats per token").split(": ")
    assert name == "2-gram model"
    run = open_run(folder)
    config = config_in(run.tables)
    data, scored = runs.batches_of(config, run.tokenizer, config.parts())
    options = {"order": 2, "vocabulary_size": run.tokenizer.vocabulary_size, "end": run.end}
    model = NgramModel.fit(data.ids.numpy(), **options)
    nats = [model.score(torch.cat([x, y[:, -1:]], 1).numpy()) for x, y in islice(scored, 20)]
    assert float(height) == pytest.approx(float(np.mean(nats)), abs=1e-4)
    assert '<g id="legend_1">' in (tmp_path / "beside.svg").read_text(encoding="utf-8")


def test_a_run_on_the_micro_world_is_drawn_beside_a_perfect_model(world_run, tmp_path, capsys):
    out = done(capsys, "plot", world_run, "--to", tmp_path / "world.svg")
    tables = open_run(world_run).tables
    floor = floor_of(tables, list(config_in(tables).parts().validation))
    assert f"a perfect model: {floor.loss:.4f} nats per token" in out


def test_a_run_that_is_not_quiet_says_a_line_and_a_text_for_each_validation(text, tmp_path, capsys):
    talkative, histories, indented = [word for word in SHORT if word != "--quiet"], [], []
    for tokens in (9, 0):
        folder = tmp_path / str(tokens)
        command = ["train", text, "--folder", folder, "--steps", "4", *talkative]
        lines = done(capsys, *command, "--sample-tokens", tokens).splitlines()
        assert sum(line.startswith("step ") and "bits/byte" in line for line in lines) == 2
        indented.append(sum(line.startswith("    ") for line in lines))
        histories.append(checkpoints.read(folder / "last.pt")["history"])
    assert indented[0] >= 2 > indented[1] == 0
    assert histories[0] == histories[1]


def test_a_published_model_or_text_is_fetched_once(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(pretrained, "download", lambda size, folder: asked.append(size) or folder)
    out = done(capsys, "fetch", "gpt2-medium", "--folder", tmp_path / "a b")
    assert asked == ["medium"]
    assert f"next-token sample '{tmp_path / 'a b'}'" in out
    corpus = Corpus("shakespeare", (Document("one", "To be"),))
    monkeypatch.setattr(commands.corpora, "load", {"shakespeare": corpus}.__getitem__)
    assert done(capsys, "fetch", "shakespeare").startswith("shakespeare: 5 bytes")
    with pytest.raises(SystemExit, match="2"):
        said(capsys, "fetch", "gpt5")


def test_the_fastest_precision_of_the_device_is_taken_unless_one_is_named(
    text, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(commands.gpus, "fast_precision", lambda device: "bfloat16")
    for more, precision in (([], "bfloat16"), (["--precision", "float32"], "float32")):
        run = trained(tmp_path / precision, text, *more)
        assert read_toml(run / "run.toml")["training"]["precision"] == precision
    assert said(capsys, "train", "--folder", run, "--resume", "--quiet")[2] == ""  # as begun


def test_the_examples_of_settings_can_be_read():
    paths = {path.stem: path for path in (Path(__file__).parents[1] / "configs").glob("*.toml")}
    made = {name: RunConfig.from_tables(read_toml(path)) for name, path in paths.items()}
    assert made["minute"].training.rate(500) == pytest.approx(3e-4)
    assert made["characters"].training.rate(2_000) == pytest.approx(1e-4)
    assert made["python-docs"].data.text == "python-docs"
    one, eight = made["gpt2-124m"], made["gpt2-124m-8"]
    assert one.gpt(50_257).parameters == 124_439_808  # Hugging Face's count
    assert one.model == eight.model
    assert one.data.batch_size / one.training.accumulation == 12
    assert eight.data.batch_size / eight.training.accumulation / 8 == 12


def test_a_changed_text_is_noticed_when_a_run_is_resumed(tmp_path, capsys):
    path = tmp_path / "mine.txt"
    path.write_text(TEXT)
    run = trained(tmp_path / "run", path, steps=3)
    path.write_text(TEXT.replace("fox", "ox"))
    assert "sha256" in refused(capsys, "train", "--folder", run, "--resume")
    plot = ["plot", run, "--ngram", 2, "--to", tmp_path / "a.svg"]
    for command in (["evaluate", run], plot):
        assert "as it was when the run was trained" in refused(capsys, *command)
    done(capsys, "evaluate", run, path, "--stride", 16)  # as any other text


@pytest.mark.filterwarnings("ignore:vocabulary_size is")
def test_a_text_shorter_than_a_window_is_refused(tmp_path, capsys):
    (tmp_path / "short.txt").write_text("one\n\ntwo\n\nthree\n\nfour\n\nfive\n\n")
    arguments = ["train", tmp_path / "short.txt", "--folder", tmp_path / "new", *SHORT]
    err = refused(capsys, *arguments, "--steps", "3")
    assert "use a longer text or a shorter context" in err
    assert not (tmp_path / "new").exists()


def test_a_damaged_run_is_refused(folder, tmp_path, capsys):
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    torch.save({"a": 1}, damaged / "best.pt")
    assert "expected the best weights of a run in" in refused(capsys, "sample", damaged)
    (damaged / "run.toml").write_text("[data")
    refused(capsys, "info", damaged)


# a task of a reader's own


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """One letter decides."""
    path = tmp_path_factory.mktemp("task") / "mine.jsonl"
    lines = [
        {"text": f"{left} {'good' if good else 'bad'} {right}", "label": ("no", "yes")[good]}
        for good in (0, 1)
        for left in ("cat", "dog", "fox", "mat")
        for right in ("log", "box", "sat", "the")
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tuned(folder, examples, tmp_path_factory):
    """(folder, what was said); read only."""
    made = tmp_path_factory.mktemp("tuned") / "model"
    command = ["finetune", folder, examples, "--folder", made, "--steps", "20", "--every", "5"]
    options = ["--learning-rate", "0.02", "--labels", "12", "--batch-size", "4", "--quiet"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([str(part) for part in [*command, *options]]) == 0
    return made, out.getvalue()


def test_a_task_is_learnt_from_a_file_and_scored_against_chance(tuned, examples):
    folder, out = tuned
    task, model = labelled.load(examples), tuned_models.load(folder)
    assert "classification: no, yes; 12 examples to learn from" in out
    for name, part in (("validation", task.validation), ("test", task.test)):
        share = gpt1_finetuning.accuracy(model, part)
        assert f"{name}: {share:.1%} of {len(part)} examples right" in out
    assert f"chance: {task.chance:.1%}" in out


def test_the_lines_of_a_file_are_given_labels_and_probabilities(tuned, tmp_path, capsys):
    lines = ["the good cat", "", '{"text": "a bad\\tdog", "label": "?"}', "a\u2028b\x85c\x0cd\re"]
    (tmp_path / "new.txt").write_bytes("\n".join([*lines, ""]).encode())
    out = done(capsys, "classify", tuned[0], tmp_path / "new.txt")
    texts = [("the good cat",), ("a bad\tdog",), (lines[3],)]
    expected = gpt1_finetuning.predict(tuned_models.load(tuned[0]), texts)
    one, *others = (f"{('no', 'yes')[int(p.argmax())]}\t{float(p.max()):.4f}" for p in expected)
    assert out.split("\n") == [one, "", *others, ""]  # line by line, the blank one, too


def test_lines_are_read_from_the_standard_input_too(tuned, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("good " * 90 + "\n"))
    assert len(done(capsys, "classify", tuned[0], "--cut").splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "family", "texts"),
    [
        ('{"label": 1, "hypothesis": "b", "premise": "a"}', "entailment", ("a", "b")),
        ('{"second": "b", "first": "a"}', "similarity", ("a", "b")),
        ('{"choices": ["b", "c"], "context": "a"}', "choice", ("a", "b", "c")),
        ("a\tb \t c", "choice", ("a", "b", "c")),
    ],
)
def test_a_line_is_read_like_one_of_the_examples(line, family, texts):
    assert _texts(line, family) == texts


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"premise": "a"}', "a JSON object with text for classification"),
        ("{", "a JSON object with text"),
        ('{"text": ' + "[" * 100_000, "a JSON object with text"),
        ('{"text": 3}', "got (3,)"),
        ("one\ttwo", "1 texts for classification, got ('one', 'two')"),
        ("cat\n\n" + "good " * 90, "line 3: expected texts of at most 14 tokens"),
        ("good " * 90, "--cut cuts them off"),
        ("", "at least one example"),
    ],
)
def test_a_line_that_fits_no_task_is_refused(tuned, tmp_path, capsys, line, message):
    (tmp_path / "new.txt").write_text(line + "\n")
    status, out, err = said(capsys, "classify", tuned[0], tmp_path / "new.txt")
    assert (status, out) == (1, "")
    assert message in err


def test_choices_that_are_no_list_are_refused():
    with pytest.raises(ValueError, match="a list of two choices or more, got 'ab'"):
        _texts('{"context": "x", "choices": "ab"}', "choice")


def test_a_byte_order_mark_is_no_part_of_the_first_text(tuned, tmp_path, capsys):
    answers = set()
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / encoding).write_text('{"text": "the good cat"}\n', encoding)
        answers.add(done(capsys, "classify", tuned[0], tmp_path / encoding))
    assert len(answers) == 1


def test_what_a_finetuned_folder_holds_is_said(tuned, capsys):
    assert "classification: no, yes" in done(capsys, "info", tuned[0])


def test_a_mistake_of_ours_is_not_shown_as_one_of_the_user(folder, monkeypatch):
    monkeypatch.setattr(commands, "filters_of", lambda options: len(None))
    with pytest.raises(TypeError, match="object of type 'NoneType'"):
        main(["sample", str(folder)])


def test_the_help_names_every_command_and_an_unknown_one_is_not_understood(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(name in out for name in ("train", "evaluate", "sample", "info", "finetune"))
    with pytest.raises(SystemExit, match="2"):
        main(["fly"])


def test_a_reader_who_has_seen_enough_gets_no_message(folder, capsys, monkeypatch):
    """As `next-token info RUN | head -1`."""
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "w") as nobody:
        monkeypatch.setattr("sys.stdout", nobody)
        assert main(["info", str(folder)]) == 141
    assert capsys.readouterr().err == ""


def test_a_run_whose_text_is_elsewhere_asks_for_one(folder, tmp_path, capsys):
    copied = shutil.copytree(folder, tmp_path / "run")
    settings = (copied / "run.toml").read_text(encoding="utf-8")
    (copied / "run.toml").write_text(settings.replace("mine.txt", "gone.txt"), encoding="utf-8")
    assert "the run's text is not here: name one to score" in refused(capsys, "evaluate", copied)
    (copied / "tokenizer.json").unlink()
    assert "tokenizer.json" in refused(capsys, "evaluate", copied)
