"""`src.tools.checkpoints`: whole or not at all, and nothing but tensors and plain values."""

import os
import pickle
import random
import resource
import zipfile
from unittest.mock import Mock

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


def test_a_full_disk_is_named_in_a_line_and_the_old_checkpoint_is_whole(path):
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    checkpoints.write(path, {"step": 0})
    for room in (100, 1_000, 4_500, 30_000):  # at the beginning, in the tensor, at the end
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, old[1]))
            with pytest.raises(OSError, match=r"could not write .*File too large; what stood"):
                checkpoints.write(path, {"step": 1, "x": torch.zeros(7_600)})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        assert checkpoints.read(path) == {"step": 0}
        assert os.listdir(path.parent) == ["last.pt"]


def test_nothing_but_the_checkpoint_stays_in_the_folder_and_a_failure_leaves_the_old_one(path):
    for step in range(3):
        checkpoints.write(path, {"step": step})
    assert os.listdir(path.parent) == ["last.pt"]
    with pytest.raises((AttributeError, pickle.PicklingError, TypeError)):
        checkpoints.write(path, {"step": 3, "model": lambda: None})
    assert checkpoints.read(path) == {"step": 2}


def test_the_bytes_are_on_the_disk_before_the_name_is(path, monkeypatch):
    calls = Mock()
    for name in ("fsync", "replace"):
        getattr(calls, name).side_effect = getattr(os, name)
        monkeypatch.setattr(os, name, getattr(calls, name))
    checkpoints.write(path, {"step": 1})
    assert [call[0] for call in calls.mock_calls[:2]] == ["fsync", "replace"]


def test_a_missing_file_is_named(path):
    with pytest.raises(FileNotFoundError, match=r"last\.pt"):
        checkpoints.read(path)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_refused(path, share):
    checkpoints.write(path, {"weights": torch.randn(1000)})
    length = int(path.stat().st_size * share)
    os.truncate(path, length)
    with pytest.raises(ValueError, match="it is truncated"):
        checkpoints.read(path)


class Program:
    def __reduce__(self):
        return os.mkdir, ("planted",)


def an_archive(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (lambda path: path.write_text("step: 3\n"), "of another format"),
        (an_archive, "expected tensors and plain values"),
        (lambda path: torch.save({"step": Program()}, path), "tensors and plain values"),
        (lambda path: path.write_bytes(pickle.dumps({"step": Program()})), "of another format"),
        (lambda path: torch.save({"model": nn.Linear(2, 3)}, path), "tensors and plain values"),
        (lambda path: torch.save(torch.arange(3), path), "no attribute"),
    ],
)
def test_what_is_no_checkpoint_is_refused_and_not_run(path, plant, message, monkeypatch):
    path.parent.mkdir()
    monkeypatch.chdir(path.parent)
    plant(path)
    with pytest.raises(ValueError, match=message):
        checkpoints.read(path)
    assert not os.path.exists("planted")


def test_weights_are_restored():
    one, other = nn.Linear(2, 3), nn.Linear(2, 3)
    checkpoints.restore(other, one.state_dict(), source="x.pt")
    assert torch.equal(one.weight, other.weight)
    one.weight.data.zero_()
    assert other.weight.any()  # copied, not shared


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (nn.Linear(2, 5), r"(?s)x.pt does not fit.*size mismatch for bias"),
        (nn.Linear(2, 3, bias=False), r"(?s)another model\?.*Missing key.*bias"),
        (nn.Sequential(nn.Linear(2, 3)), "(?s)Unexpected key.*0.bias"),
    ],
)
def test_weights_of_another_model_are_refused(other, message):
    with pytest.raises(ValueError, match=message):
        checkpoints.restore(nn.Linear(2, 3), other.state_dict(), source="x.pt")


def test_every_global_generator_is_put_back(path):
    checkpoints.write(path, checkpoints.random_state(CPU))

    def draw():
        return random.random(), random.gauss(0, 1), np.random.normal(), float(torch.randn(()))

    first = draw()
    assert all(a != b for a, b in zip(first, draw(), strict=True))
    checkpoints.set_random_state(checkpoints.read(path), CPU)
    assert draw() == first
