"""Several processes on the CPU against one."""

import subprocess

import pytest
import torch

from next_token.processes import joined
from src.gpt.many_cores import Held, all_reduce, bytes_held, reduce_scatter, shared
from src.tools.parallel import Team
from src.tools.processes import in_processes


def pieces_of_every_size(team, elements):
    import torch

    from src.gpt.many_cores import all_gather, all_reduce, reduce_scatter

    found = []
    for count in elements:
        generator = torch.Generator().manual_seed(team.rank)
        mine = torch.randn(count, generator=generator, dtype=torch.float64)
        summed = all_reduce(mine.view(1, -1), team)
        pieces = mine.tensor_split(team.size)
        piece = reduce_scatter(pieces, team)
        back = torch.cat(all_gather(piece, pieces, team))
        found.append({"mine": mine, "summed": summed, "piece": piece, "back": back})
    return found


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_a_ring_adds_up_whatever_the_size(processes):
    elements = [1, 2, 7, 12]
    answers = in_processes(processes, pieces_of_every_size, elements=elements)
    for at, count in enumerate(elements):
        truth = sum(answer[at]["mine"] for answer in answers)
        for answer, piece in zip(answers, truth.tensor_split(processes), strict=True):
            assert answer[at]["summed"].shape == (1, count)
            assert torch.allclose(answer[at]["summed"][0], truth, atol=1e-14)
            assert torch.allclose(answer[at]["back"], truth, atol=1e-14)
            assert torch.allclose(answer[at]["piece"], piece, atol=1e-14)


def test_bytes_follow_the_stages():
    assert bytes_held(100) == Held(400, 400, 800)
    assert bytes_held(100).total == 1600
    assert bytes_held(100, processes=4, stage=1) == Held(400, 400, 200)
    assert bytes_held(100, processes=4, stage=2) == Held(400, 100, 200)
    assert bytes_held(100, processes=4, stage=3) == Held(100, 100, 200)


PIECE = torch.ones(1)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: bytes_held(5, stage=4), "a stage from 0 to 3, got 4"),
        (lambda: shared(torch.nn.Linear(2, 2), "mpi", Team()), "expected one of the engines"),
        (lambda: reduce_scatter([PIECE, PIECE], Team()), "each of 1 processes, got 2"),
    ],
)
def test_what_cannot_be_is_refused(work, message):
    with pytest.raises(ValueError, match=message):
        work()


def test_one_process_alone_needs_no_engine_and_sends_nothing():
    model = torch.nn.Linear(2, 2)
    assert shared(model, "fsdp", Team()) is model
    assert all_reduce(torch.ones(2, 3), Team()).tolist() == [[1.0] * 3] * 2


def failing(team):
    raise KeyError(f"no such thing in process {team.rank}")


def waiting(team):
    import time

    if team.rank == 0:
        time.sleep(600)


def waited_for(team):
    import time

    from torch import distributed

    from next_token.processes import joined

    distributed.destroy_process_group()  # that of `in_processes`, which waits half an hour
    if team.rank == 0:
        time.sleep(600)
    with joined() as team:
        team.wait()


def test_a_failure_in_a_process_shows_its_traceback():
    with pytest.raises(RuntimeError, match=r"(?s)one failed:\nTraceback.*no such thing in process"):
        in_processes(2, failing)


def test_processes_that_wait_for_ever_are_stopped():
    with pytest.raises(subprocess.TimeoutExpired):
        in_processes(2, waiting, seconds=12)


def test_a_process_does_not_wait_for_another_for_ever(monkeypatch):
    monkeypatch.setenv("NEXT_TOKEN_TIMEOUT", "3")
    with pytest.raises(RuntimeError, match=r"(?s)one failed:\nTraceback.*(imed out|timeout)"):
        in_processes(2, waited_for, seconds=120)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf", "nan"])
def test_a_time_to_wait_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("NEXT_TOKEN_TIMEOUT", text)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    with pytest.raises(ValueError, match=f"NEXT_TOKEN_TIMEOUT in seconds, above 0, got '{text}'"):
        joined().__enter__()
