"""Several processes on the CPU against one."""

import pytest
import torch

from src.gpt.gpt2 import GPTConfig
from src.gpt.many_cores import Held, all_reduce, bytes_held, check_pieces, reduce_scatter, shared
from src.tools.parallel import Team, joined
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
        for rank, answer in enumerate(answers):
            assert answer[at]["summed"].shape == (1, count)
            assert torch.allclose(answer[at]["summed"][0], truth, atol=1e-14)
            assert torch.allclose(answer[at]["back"], truth, atol=1e-14)
            assert torch.allclose(
                answer[at]["piece"], truth.tensor_split(processes)[rank], atol=1e-14
            )


def losses_of_engines(team, engines, dtype, optimiser, steps):
    import torch
    from torch.nn import functional

    from src.gpt.gpt2 import GPT, GPTConfig
    from src.gpt.many_cores import held_by, shared
    from src.tools.parallel import ALONE
    from src.tools.runtime import seed_everything

    losses, held = {}, {}
    for engine in engines:
        generator = seed_everything(0)
        config = GPTConfig(61, context_length=16, layers=2, heads=2, channels=32)
        model = GPT(config, generator=generator).to(getattr(torch, dtype))
        texts = torch.randint(61, (steps, 8, 17), generator=generator)
        party = ALONE if engine == "alone" else team
        run = shared(model, "ddp" if engine == "alone" else engine, party)
        rate = {"SGD": 0.5, "AdamW": 1e-3}[optimiser]
        take = getattr(torch.optim, optimiser)(run.parameters(), lr=rate)
        losses[engine] = []
        for batch in texts:
            mine = batch[party.rank :: party.size]
            loss = functional.cross_entropy(run(mine[:, :-1]).mT, mine[:, 1:])
            loss.backward()
            take.step()
            total = [loss.detach().clone()]
            party.add_up(total)
            losses[engine].append(float(total[0]) / party.size)
            held[engine] = list(held_by(run, take))
            take.zero_grad()
    return {"losses": losses, "held": held}


@pytest.mark.weekly
@pytest.mark.parametrize("processes", [2, 4])
def test_engines_give_the_losses_of_one_process(processes):
    """Plain SGD in float64, for Adam would hide a factor in the gradients."""
    (answer, *others) = in_processes(
        processes,
        losses_of_engines,
        engines=["alone", "ddp", "fsdp"],
        dtype="float64",
        optimiser="SGD",
        steps=25,
    )
    alone = torch.tensor(answer["losses"]["alone"], dtype=torch.float64)
    assert alone[0] - alone[-1] > 0.05  # it learns, so that a wrong step would show
    for engine in ("ddp", "fsdp"):
        found = torch.tensor(answer["losses"][engine], dtype=torch.float64)
        assert (found - alone).abs().max() < 1e-10
    for other in others:
        assert other["losses"]["ddp"] == answer["losses"]["ddp"]


@pytest.mark.weekly
def test_fsdp_holds_the_share_that_the_table_says():
    answers = in_processes(
        2, losses_of_engines, engines=["ddp", "fsdp"], dtype="float32", optimiser="AdamW", steps=2
    )
    config = GPTConfig(61, context_length=16, layers=2, heads=2, channels=32)
    for stage, engine in ((0, "ddp"), (3, "fsdp")):
        said = bytes_held(config.parameters, processes=2, stage=stage)
        for answer in answers:
            assert answer["held"][engine] == pytest.approx(list(said), rel=0.01)
        totals = [sum(parts) for parts in zip(*(a["held"][engine] for a in answers), strict=True)]
        assert totals == [2 * part for part in said]  # rows that two do not divide even out


def test_bytes_follow_the_stages():
    assert bytes_held(100) == Held(400, 400, 800)
    assert bytes_held(100).total == 1600
    assert bytes_held(100, processes=4, stage=1) == Held(400, 400, 200)
    assert bytes_held(100, processes=4, stage=2) == Held(400, 100, 200)
    assert bytes_held(100, processes=4, stage=3) == Held(100, 100, 200)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"parameters": 0}, "1 or more parameters"),
        ({"parameters": 5, "processes": 0}, "1 or more parameters and processes, got 5 and 0"),
        ({"parameters": 5, "stage": 4}, "a stage from 0 to 3, got 4"),
    ],
)
def test_bytes_refuse_what_cannot_be(wrong, expected):
    with pytest.raises(ValueError, match=expected):
        bytes_held(**wrong)


def test_one_process_alone_needs_no_engine():
    model = torch.nn.Linear(2, 2)
    assert shared(model, "fsdp", Team()) is model
    with pytest.raises(ValueError, match="expected one of the engines"):
        shared(model, "mpi", Team())


def test_pieces_are_as_many_as_processes():
    with pytest.raises(ValueError, match="one piece for each of 1 processes, got 2"):
        reduce_scatter([torch.ones(1), torch.ones(1)], Team())
    check_pieces([torch.ones(1)], Team())
    assert all_reduce(torch.ones(2, 3), Team()).tolist() == [[1.0] * 3] * 2


def failing(team):
    raise KeyError(f"no such thing in process {team.rank}")


def waiting(team):
    import time

    if team.rank == 0:
        time.sleep(600)


def test_a_failure_in_a_process_shows_its_traceback():
    with pytest.raises(RuntimeError, match=r"(?s)one failed:\nTraceback.*no such thing in process"):
        in_processes(2, failing)


def test_processes_that_wait_for_ever_are_stopped():
    with pytest.raises(TimeoutError, match="2 processes to end within 12 s"):
        in_processes(2, waiting, seconds=12)


def waiting_for_one_that_sleeps(team):
    import time

    if team.rank == 0:
        time.sleep(600)
    team.wait()


def test_a_process_does_not_wait_for_another_for_ever(monkeypatch):
    monkeypatch.setenv("NEXT_TOKEN_TIMEOUT", "3")
    with pytest.raises(RuntimeError, match=r"(?s)one failed:\nTraceback.*[Tt]imed out"):
        in_processes(2, waiting_for_one_that_sleeps, seconds=120)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf", "nan"])
def test_a_time_to_wait_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("NEXT_TOKEN_TIMEOUT", text)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    with pytest.raises(ValueError, match=f"NEXT_TOKEN_TIMEOUT in seconds, above 0, got '{text}'"):
        joined().__enter__()
