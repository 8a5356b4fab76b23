"""`src.tools.checkpoints`: whole or not at all, and nothing but tensors and plain values."""

import os
import pickle
import random
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from src.tools import checkpoints

CPU = torch.device("cpu")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "last.pt"


def test_what_was_written_is_read(path):
    state = {"step": 3, "rate": 0.1, "none": None, "nested": {"x": [torch.arange(5), (1, "a")]}}
    checkpoints.write(path, state)
    found = checkpoints.read(path)
    assert torch.equal(found["nested"]["x"].pop(0), torch.arange(5))
    del state["nested"]["x"][0]
    assert found == state


def test_nothing_but_the_checkpoint_stays_in_the_folder(path):
    for step in range(3):
        checkpoints.write(path, {"step": step})
    assert os.listdir(path.parent) == ["last.pt"]
    assert checkpoints.read(path) == {"step": 2}


def test_a_failure_while_writing_leaves_the_old_checkpoint(path):
    checkpoints.write(path, {"step": 1})
    with pytest.raises((AttributeError, pickle.PicklingError, TypeError)):
        checkpoints.write(path, {"step": 2, "model": lambda: None})
    assert checkpoints.read(path) == {"step": 1}


def test_the_bytes_are_on_the_disk_before_the_name_is(path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *a, real=real, name=name: (calls.append(name), real(*a))
        )
    checkpoints.write(path, {"step": 1})
    assert calls[:2] == ["fsync", "replace"]


def test_the_first_setting_that_differs_is_named():
    saved = {"steps": 5, "rate": 0.1, "text": "a"}
    for now, message in [
        ({**saved, "text": "b"}, "last.pt was saved with, got text = 'b', saved with 'a'"),
        ({**saved, "dropout": 0.1}, "dropout = 0.1, saved with None"),
        ({"rate": 0.1, "text": "a"}, "steps = None, saved with 5"),
    ]:
        with pytest.raises(ValueError, match=message):
            checkpoints.check_same(saved, now, source="last.pt")


def test_a_setting_of_none_is_as_good_as_no_setting():
    checkpoints.check_same({"steps": 5}, {"steps": 5, "clip": None}, source="last.pt")


def test_a_missing_file_is_named(path):
    with pytest.raises(FileNotFoundError, match=r"last\.pt, found no file"):
        checkpoints.read(path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.99])
def test_a_truncated_file_is_refused(path, share):
    checkpoints.write(path, {"weights": torch.randn(1000)})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ValueError, match=f"{int(len(whole) * share)} bytes that are none"):
        checkpoints.read(path)


def test_a_file_of_another_format_under_this_name_is_refused(path):
    path.parent.mkdir()
    path.write_text("step: 3\n")
    with pytest.raises(ValueError, match="another format under this name"):
        checkpoints.read(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(ValueError, match="could not read it"):
        checkpoints.read(path)


class Program:
    def __reduce__(self):
        return os.mkdir, ("planted",)


@pytest.mark.parametrize("dump", [torch.save, lambda x, path: path.write_bytes(pickle.dumps(x))])
def test_a_pickle_is_refused_and_not_run(path, dump, monkeypatch):
    path.parent.mkdir()
    monkeypatch.chdir(path.parent)
    dump({"step": Program()}, path)
    with pytest.raises(ValueError, match=r"refused to read more|bytes that are none"):
        checkpoints.read(path)
    assert not os.path.exists("planted")


def test_a_whole_model_is_refused(path):
    path.parent.mkdir()
    torch.save({"model": nn.Linear(2, 3)}, path)
    with pytest.raises(ValueError, match="tensors and plain values"):
        checkpoints.read(path)


def test_what_is_no_dictionary_is_refused(path):
    path.parent.mkdir()
    torch.save(torch.arange(3), path)
    with pytest.raises(ValueError, match="got Tensor"):
        checkpoints.read(path)


def test_weights_are_restored():
    one, other = nn.Linear(2, 3), nn.Linear(2, 3)
    checkpoints.restore(other, one.state_dict(), source="x.pt")
    assert torch.equal(one.weight, other.weight)
    one.weight.data.zero_()
    assert other.weight.any()  # copied, not shared


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (nn.Linear(2, 5), r"weight of shape \(3, 2\).*in x.pt, got \(5, 2\)"),
        (nn.Linear(2, 3, bias=False), r"missing \['bias'\]"),
        (nn.Sequential(nn.Linear(2, 3)), r"not known \['0.bias', '0.weight'\]"),
    ],
)
def test_weights_of_another_model_are_refused_before_anything_is_copied(other, message):
    model = nn.Linear(2, 3)
    before = model.weight.clone()
    with pytest.raises(ValueError, match=message):
        checkpoints.restore(model, other.state_dict(), source="x.pt")
    assert torch.equal(model.weight, before)


def test_every_global_generator_is_put_back(path):
    checkpoints.write(path, checkpoints.random_state(CPU))

    def draw():
        return random.random(), random.gauss(0, 1), np.random.normal(), float(torch.randn(()))

    first = draw()
    assert all(a != b for a, b in zip(first, draw(), strict=True))
    checkpoints.set_random_state(checkpoints.read(path), CPU)
    assert draw() == first
