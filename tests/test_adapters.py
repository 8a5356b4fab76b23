"""`next_token.adapters` and `train --lora`: only A and B are kept, and used beside their model."""

from functools import partial

import pytest
import torch
from gguf_writing import small_llama
from oracles import greatest_difference

from next_token import adapters
from next_token.__main__ import main
from next_token.adapters import Adapter, LoRAConfig, adapter_in, with_adapter
from src.today.gguf_models import open_model
from src.tools import checkpoints

TEXT = "".join(f"paragraph {i}: the thin thing is in the inn!!\n\n" for i in range(60))
FLAGS = "--steps 6 --learning-rate 0.05 --context-length 8 --every 3 --save-every 3 --quiet"
SHORT = FLAGS.split()
IDS = torch.tensor([[5, 200, 31, 7, 0, 250]])


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("NEXT_TOKEN_DEVICE", "cpu")


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


@pytest.fixture
def adapter(learn, tmp_path):
    """The folder of a trained adapter of rank 3."""
    assert learn("--rank", "3") == 0
    return tmp_path / "adapter"


@pytest.fixture
def other(tmp_path):
    """The file of another model."""
    return small_llama().set(llama__rope__freq_base=59.0).write(tmp_path / "other.gguf")


@pytest.fixture
def complete(base):
    def run(folder, model=base):
        return main(["complete", str(model), "the", "--tokens", "6", "--adapter", str(folder)])

    return run


def test_only_what_learns_is_kept(adapter):
    kept = checkpoints.read(adapter / "best.pt")["model"]
    maps = [(32, 64), (32, 32), (32, 64), (64, 32), (32, 64)]  # of a block: qkv, output, …
    assert sum(each.numel() for each in kept.values()) == 2 * 3 * sum(i + o for i, o in maps)
    assert {name.rsplit("/", 1)[1] for name in kept} == {"down", "up"}
    assert adapter_in(adapter).rank == 3


def test_the_own_parameters_of_an_adapter_are_all_that_learn(base):
    model, config = open_model(base).model, LoRAConfig(2, 4.0, "")
    adapter = Adapter(model, config, generator=torch.Generator().manual_seed(0))
    learns = {id(each) for each in model.parameters() if each.requires_grad}
    assert learns == {id(each) for each in adapter.parameters()}
    assert torch.equal(adapter(IDS), model(IDS))


@torch.no_grad()
def test_the_merged_model_says_what_the_adapter_said_and_the_file_stays(adapter, base, tmp_path):
    model = open_model(base).model
    untouched = model(IDS)
    assert base.read_bytes() == small_llama().encoded()
    assert torch.equal(open_model(base).model(IDS), untouched)
    adapted = Adapter(model, adapter_in(adapter), generator=torch.Generator())
    best = checkpoints.read(adapter / "best.pt")["model"]
    checkpoints.restore(adapted, best, source="best.pt")
    expected = adapted(IDS)
    assert greatest_difference(with_adapter(base, adapter).model(IDS), expected) < 1e-4
    assert greatest_difference(untouched, expected) > 1e-2


def test_a_run_that_stopped_ends_in_the_same_bits(learn, tmp_path, monkeypatch):
    assert learn() == 0

    def interrupt(step, model):
        if step == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(adapters, "train", partial(adapters.train, after=interrupt))
        assert learn(folder="cut") == 130
    assert learn(folder="cut", begun=["--lora", "--resume", "--quiet"]) == 0
    whole, cut = (checkpoints.read(tmp_path / n / "last.pt")["model"] for n in ("adapter", "cut"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_a_text_is_completed_with_an_adapter(adapter, base, complete, capsys):
    assert main(["complete", str(base), "the", "--tokens", "6"]) == 0
    plain = capsys.readouterr().out
    assert complete(adapter) == 0
    assert capsys.readouterr().out not in ("", plain)


# ---- refused -------------------------------------------------------------------------------------


def test_an_adapter_of_another_model_or_with_damaged_weights_is_refused(
    adapter, other, complete, capsys
):
    assert complete(adapter, other) == 1
    assert "expected the model that the adapter" in capsys.readouterr().err
    best = adapter / "best.pt"
    best.write_bytes(best.read_bytes()[:100])
    assert complete(adapter) == 1
    assert "best.pt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (None, "adapter.toml"),
        ("[lora]\nrank = 8\n", "expected [lora] with rank, alpha and base"),
        ('[lora]\nrank = "many"\nalpha = 16.0\nbase = "0"\n', "expected [lora] with rank"),
        ("[lora", "expected TOML"),
    ],
)
def test_missing_and_damaged_settings_are_refused(complete, tmp_path, capsys, settings, message):
    if settings:
        (tmp_path / "adapter.toml").write_text(settings, encoding="utf-8")
    assert complete(tmp_path) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "holds an adapter already"),
        (["--resume", "--rank", "2"], "rank"),
        (["--resume", "--rank", "3", "--init-from", "OTHER"], ""),
    ],
)
def test_what_is_refused_in_a_folder_leaves_the_adapter_its_settings(
    learn, adapter, base, other, capsys, more, message
):
    settings = adapter / "adapter.toml"
    before = settings.read_text(encoding="utf-8")
    assert learn(*(other if each == "OTHER" else each for each in more)) == 1
    assert message in capsys.readouterr().err
    assert settings.read_text(encoding="utf-8") == before
    with_adapter(base, adapter)
    with pytest.raises(ValueError, match="expected the model that the adapter"):
        with_adapter(other, adapter)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--layers", "2"], "expected no layers beside --lora"),
        (["--tokenizer", "words"], "expected no tokenizer beside --lora"),
        (["--rank", "500"], "expected a rank from 1 to"),
        (["--context-length", "500"], "expected a context of at most"),
        (["--config", "SETTINGS"], "expected no engine, layers beside --lora"),
    ],
)
def test_what_lora_has_no_use_for_is_refused(learn, capsys, more, message, tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text('[model]\nlayers = 12\n[training]\nengine = "fsdp"\n', encoding="utf-8")
    assert learn(*(settings if each == "SETTINGS" else each for each in more)) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "adapter").exists()


def test_a_text_that_is_too_short_is_refused(learn, text, capsys):
    text.write_text("the inn\n\n" * 2 + "the thing\n", encoding="utf-8")
    assert learn() == 1
    assert "expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--init-from", "MODEL"], "expected --lora beside --init-from"),
        (["--rank", "4"], "expected --rank with --lora only"),
        (["--lora"], "expected --init-from"),
        (["--lora", "--init-from", "nowhere.gguf"], "nowhere.gguf"),
        (["--lora", "--init-from", "FOLDER"], "Is a directory"),
        (["--lora", "--init-from", "TEXT"], "GGUF"),
    ],
)
def test_what_does_not_go_together_is_refused(
    learn, base, text, tmp_path, capsys, options, message
):
    named = {"MODEL": base, "FOLDER": tmp_path, "TEXT": text}
    assert learn(begun=[text, *(named.get(each, each) for each in options)]) == 1
    assert message in capsys.readouterr().err
