"""`src.today.adapters` and `train --lora`: only A and B are kept, and used beside their model."""

import pytest
import torch
from gguf_writing import small_llama
from oracles import greatest_difference

from src.__main__ import main
from src.gpt.training import _Run
from src.today import gguf_models
from src.today.adapters import Adapter, LoRAConfig, adapter_in, with_adapter
from src.today.gguf_models import open_model
from src.tools import checkpoints

TEXT = "".join(f"paragraph {i}: the thin thing is in the inn!!\n\n" for i in range(60))
FLAGS = "--steps 6 --learning-rate 0.05 --context-length 8 --every 3 --save-every 3 --quiet"
SHORT = FLAGS.split()
IDS = torch.tensor([[5, 200, 31, 7, 0, 250]])


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("NEXT_TOKEN_DEVICE", "cpu")
    monkeypatch.setattr(gguf_models, "_kept_in", lambda: tmp_path / "weights")


@pytest.fixture
def base(tmp_path):
    return small_llama().write(tmp_path / "model.gguf")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def learn(base, text, tmp_path):
    """Train LoRA in a folder; returns the exit status."""

    def run(*more, folder="adapter", begun=()):
        what = begun or [text, "--init-from", base, "--lora", *SHORT]
        command = ["train", *what, "--folder", tmp_path / folder, *more]
        return main([str(each) for each in command])

    return run


def test_only_what_learns_is_kept(learn, tmp_path):
    assert learn("--rank", "3") == 0
    kept = checkpoints.read(tmp_path / "adapter" / "best.pt")["model"]
    maps = [(32, 64), (32, 32), (32, 64), (64, 32), (32, 64)]  # of a block: qkv, output, …
    assert sum(each.numel() for each in kept.values()) == 2 * 3 * sum(i + o for i, o in maps)
    assert {name.rsplit("/", 1)[1] for name in kept} == {"down", "up"}
    assert adapter_in(tmp_path / "adapter").rank == 3


def test_the_own_parameters_of_an_adapter_are_all_that_learn(base):
    model = open_model(base).model
    config = LoRAConfig(2, 4.0, "")
    adapter = Adapter(model, config, generator=torch.Generator().manual_seed(0))
    learns = {id(each) for each in model.parameters() if each.requires_grad}
    assert learns == {id(each) for each in adapter.parameters()}
    assert torch.equal(adapter(IDS), model(IDS))


def test_the_merged_model_says_what_the_adapter_said(learn, base, tmp_path):
    assert learn() == 0
    folder = tmp_path / "adapter"
    merged = with_adapter(base, folder).model
    model = open_model(base).model
    with torch.no_grad():
        untouched = model(IDS)
        adapter = Adapter(model, adapter_in(folder), generator=torch.Generator())
        checkpoints.restore(
            adapter, checkpoints.read(folder / "best.pt")["model"], source="best.pt"
        )
        expected = adapter(IDS)
        assert greatest_difference(merged(IDS), expected) < 1e-4
        assert greatest_difference(untouched, expected) > 1e-2


def test_the_file_of_the_model_stays_as_it_was(learn, base):
    before = base.read_bytes()
    expected = open_model(base).model(IDS)
    assert learn() == 0
    assert base.read_bytes() == before
    assert torch.equal(open_model(base).model(IDS), expected)


def test_a_run_that_stopped_ends_in_the_same_bits(learn, tmp_path, monkeypatch):
    assert learn() == 0

    saving = _Run.save

    def interrupted(run, step, history):
        saving(run, step, history)
        if step == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(_Run, "save", interrupted)
    assert learn(folder="cut") == 130
    monkeypatch.setattr(_Run, "save", saving)
    assert learn(folder="cut", begun=["--lora", "--resume", "--quiet"]) == 0
    whole, cut = (
        checkpoints.read(tmp_path / name / "last.pt")["model"] for name in ("adapter", "cut")
    )
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_a_text_is_completed_with_an_adapter(learn, base, tmp_path, capsys):
    assert learn() == 0
    command = ["complete", str(base), "the", "--tokens", "6"]
    capsys.readouterr()
    assert main(command) == 0
    plain = capsys.readouterr().out
    assert main([*command, "--adapter", str(tmp_path / "adapter")]) == 0
    assert capsys.readouterr().out != plain


# ---- refused -------------------------------------------------------------------------------------


def test_an_adapter_of_another_model_is_refused(learn, tmp_path, capsys):
    assert learn() == 0
    other = small_llama().set(llama__rope__freq_base=59.0).write(tmp_path / "other.gguf")
    adapter = str(tmp_path / "adapter")
    assert main(["complete", str(other), "the", "--adapter", adapter]) == 1
    assert "expected the model that the adapter" in capsys.readouterr().err


def test_a_folder_without_an_adapter_is_refused(base, tmp_path, capsys):
    assert main(["complete", str(base), "the", "--adapter", str(tmp_path)]) == 1
    assert "expected an adapter" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("[lora]\nrank = 8\n", "expected [lora] with rank, alpha and base"),
        ('[lora]\nrank = "8"\nalpha = 16.0\nbase = "0"\n', "expected a rank"),
        ("[lora", "expected TOML"),
    ],
)
def test_damaged_settings_are_refused(learn, base, tmp_path, capsys, changed, message):
    (tmp_path / "adapter.toml").write_text(changed, encoding="utf-8")
    assert main(["complete", str(base), "the", "--adapter", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err


def test_damaged_weights_are_refused(learn, base, tmp_path, capsys):
    assert learn() == 0
    best = tmp_path / "adapter" / "best.pt"
    best.write_bytes(best.read_bytes()[:100])
    assert main(["complete", str(base), "the", "--adapter", str(best.parent)]) == 1
    assert "best.pt" in capsys.readouterr().err


def test_an_adapter_is_not_overwritten(learn, capsys):
    assert learn() == 0
    assert learn() == 1
    assert "holds an adapter already" in capsys.readouterr().err


def test_a_run_is_resumed_with_its_own_rank_only(learn, capsys):
    assert learn() == 0
    assert learn(begun=["--lora", "--resume", "--quiet", "--rank", "2"]) == 1
    assert "rank" in capsys.readouterr().err


@pytest.mark.parametrize("other", [["--rank", "2"], ["--init-from", "OTHER", "--rank", "3"]])
def test_what_is_refused_on_resuming_leaves_the_adapter_its_settings(learn, base, tmp_path, other):
    assert learn("--rank", "3") == 0
    settings = tmp_path / "adapter" / "adapter.toml"
    before = settings.read_text(encoding="utf-8")
    another = small_llama().set(llama__rope__freq_base=59.0).write(tmp_path / "other.gguf")
    assert learn("--resume", *(str(another) if each == "OTHER" else each for each in other)) == 1
    assert settings.read_text(encoding="utf-8") == before
    with_adapter(base, settings.parent)
    with pytest.raises(ValueError, match="expected the model that the adapter"):
        with_adapter(another, settings.parent)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--layers", "2"], "expected no layers beside --lora"),
        (["--tokenizer", "words"], "expected no tokenizer beside --lora"),
        (["--rank", "500"], "expected a rank from 1 to"),
        (["--context-length", "500"], "expected a context of at most"),
    ],
)
def test_what_lora_has_no_use_for_is_refused(learn, capsys, more, message, tmp_path):
    assert learn(*more) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "adapter").exists()


def test_a_file_is_refused_what_a_flag_is(learn, capsys, tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text('[model]\nlayers = 12\n[training]\nengine = "fsdp"\n', encoding="utf-8")
    assert learn("--config", settings) == 1
    assert "expected no engine, layers beside --lora" in capsys.readouterr().err
    assert not (tmp_path / "adapter").exists()


def test_a_text_that_is_too_short_is_refused(base, tmp_path, capsys):
    short = tmp_path / "short.txt"
    short.write_text("the inn\n\n" * 2 + "the thing\n", encoding="utf-8")
    command = ["train", short, "--init-from", base, "--lora", "--folder", tmp_path / "a", *SHORT]
    assert main([str(each) for each in command]) == 1
    assert "expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--init-from", "MODEL"], "expected --lora beside --init-from"),
        (["--rank", "4"], "expected --rank with --lora only"),
        (["--lora"], "expected --init-from"),
        (["--lora", "--init-from", "nowhere.gguf"], "expected a GGUF file"),
        (["--lora", "--init-from", "FOLDER"], "expected a GGUF file"),
        (["--lora", "--init-from", "TEXT"], "GGUF"),
    ],
)
def test_what_does_not_go_together_is_refused(base, text, tmp_path, capsys, options, message):
    named = {"MODEL": str(base), "FOLDER": str(tmp_path), "TEXT": str(text)}
    options = [named.get(each, each) for each in options]
    assert main(["train", str(text), "--folder", str(tmp_path / "a"), *options]) == 1
    assert message in capsys.readouterr().err
