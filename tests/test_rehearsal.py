"""The rehearsed device refuses what a GPU refuses, and computes what the CPU computes.

Where there is a GPU, the same programs run on it: what it refuses and accepts is the measure.
"""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from rehearsal import __main__ as rehearsal
from rehearsal.chapter import Found
from rehearsal.device import install
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.weekly

DEVICES = ["rehearsed", *(["cuda"] if torch.cuda.is_available() else [])]
ROOT = Path(__file__).parents[1]
HEADER = (ROOT / "book/likelihood/surprise.md").read_text(encoding="utf-8").split("\n(")[0]


@pytest.fixture(scope="module")
def elsewhere():
    """Calls a function of this module in a process in which the device is installed."""
    with ProcessPoolExecutor(1, rehearsal.FRESH, initializer=install) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


# ---- planted errors: a GPU refuses each, whether or not it is asked in inference mode -----------


class Masked(nn.Module):
    """Its mask is no buffer, so `.to` does not know it."""

    def __init__(self):
        super().__init__()
        self.mask = torch.ones(3, 3, dtype=torch.bool).tril()

    def forward(self, scores):
        return scores.masked_fill(~self.mask, -torch.inf)


ONE_DEVICE = RuntimeError, "same device|found at least two devices"
ANOTHER_GENERATOR = RuntimeError, "device type for generator but found 'cpu'"
NO_NUMPY = TypeError, "can't convert .* device type tensor to numpy"
PLANTED = {
    "x + torch.ones(3)": ONE_DEVICE,
    "torch.ones(3) * x.sum()": ONE_DEVICE,
    "torch.zeros(()).add_(x.sum())": (RuntimeError, "device"),
    "nn.Linear(3, 4)(x)": ONE_DEVICE,
    "nn.Embedding(5, 3).to(where)(torch.tensor([1, 2]))": ONE_DEVICE,
    "Masked().to(where)(x)": (RuntimeError, "device"),
    "torch.ones(3)[x.long()]": (RuntimeError, "indices should be either on cpu or on"),
    "x.index_put_((torch.tensor([0, 1]),), torch.ones(2))": (RuntimeError, "device"),
    "torch.randn(3, device=where, generator=torch.Generator())": ANOTHER_GENERATOR,
    "x.numpy()": NO_NUMPY,
}


def evaluated(program, where, inference):
    with torch.inference_mode(inference):
        return eval(program, globals(), {"where": where, "x": torch.ones(3, device=where)})


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("program", PLANTED)
def test_a_planted_error_is_refused(elsewhere, program, where):
    error, message = PLANTED[program]
    for inference in (False, True):
        with pytest.raises(error, match=message):
            elsewhere(evaluated, program, where, inference)


# ---- programs without an error: each returns plain values -------------------------------------


def numbers_and_indices_of_the_cpu(where):
    x = torch.arange(6.0, device=where).reshape(2, 3)
    x[torch.tensor([1])] += torch.tensor(1.0)
    x[0, torch.tensor([True, False, True])] = torch.tensor(7.0)
    picked = x.masked_fill(x > 4, torch.tensor(-1.0)).clamp(max=torch.tensor(5.0))
    return [*x.tolist(), *picked.tolist(), f"{x.sum():.2f}", int(x.argmax()), x.cpu().numpy().sum()]


def views_that_write_through(where):
    x = torch.zeros(3, 4, device=where)
    x.T[1] += 1
    x.view(-1)[5:7].fill_(3)
    with torch.inference_mode():
        x[2, :2] = 4  # a view, in inference mode, of a tensor from outside
        fresh = x.reshape(-1).to(torch.float64).unfold(0, 2, 5)
        assert fresh.is_inference()
        assert not x[1].is_inference()
    x.requires_grad_()
    (x[:, 1] * x[:, 2]).sum().backward()
    return [x.tolist(), fresh.tolist(), x.grad.tolist()]


def in_the_short_type(where):
    x, kind = torch.linspace(0, 1, 8, device=where).reshape(2, 4), torch.device(where).type
    with torch.autocast(kind, torch.bfloat16):
        product = functional.linear(x, x)
        dtypes = [product.dtype, product.exp().dtype, nn.LayerNorm(2).to(where)(product).dtype]
    with torch.autocast(kind, torch.bfloat16, enabled=False):
        plain = x @ x.T
    short = [torch.bfloat16, torch.float32, torch.float32]
    assert where == "cpu" or dtypes == short  # the CPU has lists of its own
    assert plain.dtype == torch.float32
    return [product.tolist(), plain.tolist()]


CLEAN = [numbers_and_indices_of_the_cpu, views_that_write_through, in_the_short_type]


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("program", CLEAN, ids=lambda program: program.__name__)
def test_a_clean_program_gives_what_the_cpu_gives(elsewhere, program, where):
    there, here = elsewhere(program, where), program("cpu")
    for one, other in zip(there, here, strict=True):
        assert one == (other if isinstance(one, str) else pytest.approx(np.array(other), rel=1e-5))


# ---- chapters ----------------------------------------------------------------------------------

BEGINNING = """
import torch
from src.tools.runtime import device
from src.likelihood.fitting import fit

where = device()
x = torch.ones(4, 3).to(where)
assert x.device.type == "rehearsed" and x.sum() == 12
"""
UNTRAINED = """
product = x @ torch.ones(3)
assert product.sum() == 12  # cannot be asked
for n in (1, 2):
    assert n * x.sum() > 99
for n in (1, 2):
    assert x.numpy()
fit(torch.nn.Linear(3, 2), [(x, x)], steps=1, learning_rate=1)
assert device("cpu").type == "cpu"
"""
TRAINED = """
model = torch.nn.Linear(3, 2)
torch.nn.init.normal_(model.weight, generator=torch.Generator().manual_seed(0))
torch.nn.init.zeros_(model.bias)
batch = x, torch.zeros(4, dtype=torch.long)
history = fit(model.to(where), [batch], steps=40, learning_rate=0.1, every=10,
              validation=[batch], progress=False)
assert len(history.losses) == 40 and sorted(history.validation) == [0, 10, 20, 30, 40]
assert history.losses[2:] == [history.losses[2]] * 38
assert history.losses[-1] < 0.1 * history.losses[0]
assert x.device.type == "cpu"
next(loss for loss in history.losses if loss < 0.01)
x[0].numpy()
"""


def written(folder, *cells):
    """A chapter of some cells, (tag, code) each, and its lines."""
    path = folder / "book" / "planted.md"
    path.parent.mkdir()
    fences = [f"```{{code-cell}} ipython3\n{tag}{code.strip()}\n```" for tag, code in cells]
    path.write_text("\n\n".join([HEADER, "# Planted", *fences, ""]), encoding="utf-8")
    return path, path.read_text(encoding="utf-8").splitlines()


RAISES = ":tags: [raises-exception]\n\n"


def test_what_a_chapter_shows_on_the_device(tmp_path):
    raising = [(RAISES, "x.numpy()\nnever = reached"), (RAISES, "x.cpu().numpy()")]
    path, lines = written(tmp_path, ("", BEGINNING), ("", UNTRAINED), *raising)
    found = rehearsal.rehearsed(path, tmp_path, steps=3)
    assert not found.shortened
    assert not found.unjudged
    assert found.failed == [place(lines, "    assert n * x.sum() > 99") + ": n * x.sum() > 99"]
    expected = {
        "product = x @ torch.ones(3)": "RuntimeError: Expected all tensors to be on the same",
        "    assert x.numpy()": "TypeError: can't convert rehearsed:0 device type tensor to numpy",
        "fit(torch.nn.Linear(3, 2), [(x, x)], steps=1, learning_rate=1)": "(in src/",
        "x.cpu().numpy()": "is to raise, and did not",
    }
    assert len(found.errors) == len(expected), found.errors
    for error, (line, part) in zip(found.errors, expected.items(), strict=True):
        assert error.startswith(place(lines, line))
        assert part in error


def place(lines, line):
    return f"book/planted.md:{lines.index(line) + 1}"


def test_training_is_shortened_and_what_follows_is_not_judged(tmp_path):
    path, lines = written(tmp_path, ("", BEGINNING), ("", TRAINED))
    found = rehearsal.rehearsed(path, tmp_path, steps=3)
    assert found.shortened
    assert not found.failed
    assert [e.partition(": ")[0] for e in found.errors] == [place(lines, "x[0].numpy()")]
    expected = {
        "next(loss for loss in history.losses if loss < 0.01)": "StopIteration: ",
        "assert history.losses[-1] < 0.1 * history.losses[0]": "0.1 * history.losses[0]",
        'assert x.device.type == "cpu"': "== 'cpu' (not on the CPU)",
    }
    assert len(found.unjudged) == len(expected), found.unjudged
    for fault, (line, end) in zip(found.unjudged, expected.items(), strict=True):
        assert fault.startswith(place(lines, line))
        assert fault.endswith(end)


def test_a_chapter_that_ends_its_process_is_no_success(tmp_path):
    path, _ = written(tmp_path, ("", "import os\nos._exit(1)"))
    assert "its process died" in rehearsal.rehearsed(path, tmp_path, 3).errors[0]


@pytest.mark.parametrize(
    ("found", "status"), [(Found(unjudged=["a"]), 0), (Found(failed=["a"]), 1)]
)
def test_a_fault_of_a_chapter_is_one_of_the_run(monkeypatch, capsys, found, status):
    monkeypatch.setattr(rehearsal, "rehearsed", lambda *arguments: found)
    assert rehearsal.main(["heads"]) == status
    assert f"{1 - status} of 1 chapters whole" in capsys.readouterr().out
