"""`next_token.engines`: many processes, engines, compiling and changes, all around one loop."""

import json
import math
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch
from fork_server import ForkServer
from torch.nn import functional
from training_runs import held_out, numbered, ragged, small_gpt

from next_token.engines import RunTraining, fused_nats_of_batch, train
from next_token.processes import locked
from src.gpt import training
from src.gpt.training import TrainConfig
from src.likelihood import fitting
from src.tools import checkpoints

KILLED = -signal.SIGKILL


def test_a_second_process_in_a_folder_is_refused(tmp_path):
    with locked(tmp_path / "new"):
        refusal = pytest.raises(BlockingIOError, match=r"alone in .*, another process trains there")
        with refusal, locked(tmp_path / "new"):
            pass
    with locked(tmp_path / "new"):
        pass


def run(model, folder, data=None, **options):
    own = ("validation", "resume", "changed", "after")
    rest = {name: options.pop(name) for name in own if name in options}
    config = RunTraining(**({"steps": 12, "learning_rate": 0.01, "every": 4} | options))
    return train(model, data or numbered(), config, folder=folder, progress=False, **rest)


def begun(folder, **options):
    """A run of 12 steps with dropout."""
    torch.manual_seed(5)
    return run(small_gpt(0.2), folder, save_every=3, **({"validation": held_out()} | options))


def resumed(folder, **options):
    return begun(folder, resume=True, validation=None, **options)


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.fixture(scope="module")
def server():
    return ForkServer("training_runs")


# ---- one process -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"accumulation": 3}, {"precision": "bfloat16"}])
def test_of_one_process_the_run_is_that_of_src_to_the_bit(tmp_path, options):
    ours = begun(tmp_path / "ours", **options)
    torch.manual_seed(5)
    config = TrainConfig(12, 0.01, every=4, save_every=3, **options)
    model, more = small_gpt(0.2), {"validation": held_out(), "progress": False}
    theirs = training.train(model, numbered(), config, folder=tmp_path / "theirs", **more)
    assert ours == theirs
    one, other = (checkpoints.read(tmp_path / f / "last.pt") for f in ("ours", "theirs"))
    assert equal(one["model"], other["model"])
    resumed(tmp_path / "theirs", **options)
    assert one["settings"] == other["settings"] | {"engine": "sum", "compile": False}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"engine": "mpi"}, ValueError, r"engine one of \['sum', 'ddp', 'fsdp'\], got 'mpi'"),
        ({"compile": 1}, TypeError, "compile of type bool, got 1"),
    ],
)
def test_a_setting_out_of_range_is_named(change, error, message):
    with pytest.raises(error, match=message):
        RunTraining(10, 1e-3, **change)


@pytest.mark.parametrize("masked", [True, False])
def test_the_loss_that_is_compiled_is_the_loss(masked):
    data, model = ragged()[0][: 2 + masked], small_gpt().double()
    ours, fused = fitting.nats_of_batch(model, data), fused_nats_of_batch(model, data)
    assert torch.allclose(ours, fused, rtol=1e-12)


def test_compile_makes_one_graph_of_model_and_loss_for_all_steps(tmp_path, monkeypatch):
    """torch's own compiler front end, without the minute that its code generator takes."""
    graphs = []

    def run_as_it_is(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()  # what other tests have compiled
    monkeypatch.setattr(
        torch, "compile", partial(torch.compile, backend=run_as_it_is, fullgraph=True)
    )
    history = run(small_gpt(), tmp_path / "compiled", compile=True)
    (graph,) = graphs  # no break in it, and no second one for a later step
    called = {node.target for node in graph.graph.nodes}
    assert {functional.cross_entropy, functional.embedding} <= called
    assert history.losses == pytest.approx(run(small_gpt(), tmp_path / "plain").losses, rel=1e-4)


CHANGES = {"steps": 20, "precision": "bfloat16", "accumulation": 2, "every": 3}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"steps": 20}, "steps = 20, saved with 12"),
        ({"learning_rate": 0.02, "changed": print}, "learning_rate = 0.02, saved with 0.01"),
        ({"steps": 11, "changed": print}, "steps of at least 12"),
    ],
)
def test_what_may_not_be_changed_is_named(tmp_path, change, named):
    begun(tmp_path)
    with pytest.raises(ValueError, match=named):
        resumed(tmp_path, **change)


def test_a_run_may_go_on_for_longer_in_another_precision_and_says_so(tmp_path):
    begun(tmp_path)
    told, losses = [], checkpoints.read(tmp_path / "last.pt")["history"]["losses"]
    history = resumed(tmp_path, data=numbered(batch_size=3), changed=told.append, **CHANGES)
    assert history.losses[:12] == losses
    assert len(history.losses) == 20
    assert [line.split(" = ")[0] for line in told] == sorted({"data.batch_size", *CHANGES})
    assert "steps = 20 after step 12, 12 before: the learning rate follows" in told[-1]
    assert checkpoints.read(tmp_path / "last.pt")["settings"]["steps"] == 20


def test_a_run_that_goes_on_for_longer_takes_the_steps_of_a_loop_that_does(tmp_path):
    """As if the run had stopped at step 12 of a schedule of 20, all but the rates before that."""
    begun(tmp_path / "short")
    state = checkpoints.read(tmp_path / "short" / "last.pt")
    state["settings"]["steps"] = 20  # what a run of 20 steps would have written
    checkpoints.write(tmp_path / "long" / "last.pt", state)
    longer = resumed(tmp_path / "short", changed=lambda _: None, steps=20)
    assert longer == resumed(tmp_path / "long", steps=20)
    one, other = (checkpoints.read(tmp_path / f / "last.pt")["model"] for f in ("short", "long"))
    assert equal(one, other)


def test_another_number_of_threads_is_named(tmp_path, monkeypatch):
    begun(tmp_path)
    threads, told = torch.get_num_threads(), []
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads + 1)
    with pytest.raises(ValueError, match=f"threads = {threads + 1}, saved with {threads}"):
        resumed(tmp_path)
    resumed(tmp_path, steps=20, changed=told.append)
    assert any(f"threads = {threads + 1} after step 12" in line for line in told)


def test_a_run_that_diverges_names_the_step(tmp_path):
    def poison(step, model):
        if step == 7:
            next(model.parameters()).data.fill_(math.nan)

    with pytest.raises(FloatingPointError, match="at step 8 "):
        run(small_gpt(), tmp_path, save_every=3, after=poison)
    options = {"learning_rate": 3e38, "weight_decay": 9.0, "steps": 1, "end": 1.0}
    with pytest.raises(FloatingPointError, match="finite parameters"):
        run(small_gpt(), tmp_path / "other", **options)


# ---- several processes -----------------------------------------------------------------------


def together(server, folder, processes, name="losses", **options):
    folder.mkdir(exist_ok=True)
    result = folder / name
    arguments = {"folder": str(folder), "result": str(result), "processes": processes}
    codes = server.call("train_together", children=processes, **arguments, **options)
    assert codes == [0] * processes
    return [json.loads(Path(f"{result}-{rank}.json").read_text()) for rank in range(processes)]


def stopped_and_moved(server, folder, ways, **options):
    """One run that others go on with: after each way, its processes and what they found."""
    for processes, engine, stop in ways:
        found = None
        with suppress(AssertionError):  # it is stopped
            found = together(
                server, folder, processes, engine=engine, stop_at=stop, free=True, **options
            )
        yield processes, found


def same_losses(found, alone):
    names = ("losses", "validation")
    return all(found[name] == pytest.approx(alone[name], abs=1e-5) for name in names)


@pytest.mark.parametrize(("engine", "rows"), [("sum", 7), ("ddp", 8), ("fsdp", 8)])
def test_two_processes_give_the_losses_of_one(server, tmp_path, engine, rows):
    (alone,) = together(server, tmp_path / "one", 1, rows=rows)
    first, second = together(server, tmp_path / "two", 2, rows=rows, engine=engine)
    assert first["losses"] == second["losses"]
    assert engine != "sum" or first == second  # parameters too
    assert len(first["losses"]) == 50
    assert same_losses(first, alone)
    assert same_losses(second, alone)
    assert list(first["validation"]) == ["0", "10", "20", "30", "40", "50"]
    assert sum(alone["losses"][-5:]) < sum(alone["losses"][:5]) - 0.5  # something was learnt


def test_two_processes_drop_other_units_and_resume_to_the_bit(server, tmp_path):
    whole, _ = together(server, tmp_path / "whole", 2, dropout=0.3, rows=8)
    parts = tmp_path / "parts"
    with suppress(AssertionError):
        together(server, parts, 2, dropout=0.3, rows=8, stop_at=23)
    assert not (parts / "losses-0.json").exists()
    assert saved_step(parts) == 20
    again, _ = together(server, parts, 2, dropout=0.3, rows=8)
    assert again == whole
    one, other = checkpoints.read(parts / "run" / "last.pt")["random"]
    assert not torch.equal(one["torch"], other["torch"])


def test_a_run_of_two_processes_is_not_resumed_by_one(server, tmp_path):
    together(server, tmp_path, 2, dropout=0.2)
    options = {"steps": 50, "warm_up": 5, "clip": 0.5, "every": 10, "save_every": 10}
    with pytest.raises(ValueError, match="processes = 1, saved with 2"):
        run(small_gpt(0.2), tmp_path / "run", ragged(), resume=True, accumulation=2, **options)


def test_ddp_sends_with_the_last_part_of_a_batch_only(server, tmp_path):
    """Were it to send with each, or with none, the processes' parameters would differ."""
    first, second = together(server, tmp_path, 2, rows=12, parts=3, engine="ddp")
    assert first["weights"] == second["weights"]
    assert first["sent"] == second["sent"] == 50


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_a_run_goes_on_with_other_engines_and_numbers_of_processes(server, tmp_path, engine):
    """One process, two that share out the model, four that add up or share, and one again."""
    (alone,) = together(server, tmp_path / "alone", 1, rows=8)
    ways = ((1, "sum", 13), (2, "fsdp", 25), (4, engine, 36), (1, "sum", None))
    *_, (_, found) = stopped_and_moved(server, tmp_path / "moved", ways, rows=8)
    assert found[0]["losses"] == pytest.approx(alone["losses"], abs=1e-5)
    rounding = "sums are taken in another order"
    assert found[0]["notes"] == [
        f"engine = 'sum' after step 30, {engine!r} before: {rounding}, which changes the last bits",
        f"processes = 1 after step 30, 4 before: {rounding}, and other units are dropped",
    ]


def test_folders_that_processes_do_not_share_end_the_run_in_all_of_them(server, tmp_path):
    for answer in together(server, tmp_path, 3, apart=True):  # and none waits for another
        assert "a shared file system" in answer["error"]
        assert "is not seen by [1, 2]" in answer["error"]
    assert list(tmp_path.glob("run-*/*")) == []


@pytest.mark.weekly
@pytest.mark.parametrize("engine", ["sum", "fsdp"])
def test_one_of_four_processes_is_killed_and_none_waits_for_it(server, tmp_path, engine):
    """`experiments/many_processes` does so twenty times, and has torchrun start them again."""
    options = {"engine": engine, "dropout": 0.2, "rows": 8}
    whole = together(server, tmp_path / "whole", 4, **options)
    folder = tmp_path / "killed"
    folder.mkdir()
    options |= {"folder": str(folder), "result": str(folder / "losses"), "processes": 4}
    for victim in (0, 2):
        before = saved_step(folder)
        kill = {"kill_rank": victim, "kill_at": before + 15}
        codes = server.call("train_together", children=4, **kill, **options)
        assert codes[victim] == KILLED
        assert all(codes)  # the others lost it, and ended
        assert before < saved_step(folder) < 50
    del options["folder"], options["result"], options["processes"]
    assert together(server, folder, 4, name="end", **options) == whole


def saved_step(folder):
    path = folder / "run" / "last.pt"
    return checkpoints.read(path)["step"] if path.exists() else 0
