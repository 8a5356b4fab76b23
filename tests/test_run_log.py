"""One line for each validation, in a file and to whom it may concern."""

import math

import pytest
import torch
import training_runs

from next_token import run_log
from next_token.engines import RunTraining, train
from next_token.run_log import RunLog
from src.gpt.gpt2 import GPT, GPTConfig
from src.likelihood.fitting import History
from src.tokens.bytes import ByteTokenizer

CONFIG = RunTraining(steps=10, learning_rate=0.01, warm_up=3, every=4, save_every=2)


def logged(folder, *, after=None, resume=False, say=None, **more):
    keeper = RunLog(folder, steps=10, rate=CONFIG.rate, tokens_per_byte=0.5, say=say, **more)
    return train(
        training_runs.small_gpt(),
        training_runs.numbered(),
        CONFIG,
        validation=training_runs.held_out(),
        log=keeper,
        **{"folder": folder, "resume": resume, "after": after, "progress": False},
    )


def without_times(folder):
    times = ("tokens_per_second", "share_of_peak", "seconds_left")
    rows = run_log.read(folder / "log.csv")
    return [{name: row[name] for name in row if name not in times} for row in rows]


def unplug(step, model):
    if step == 7:
        raise KeyboardInterrupt


def test_each_validation_has_a_row_of_what_happened_since_the_last(tmp_path):
    history = logged(tmp_path)
    rows = run_log.read(tmp_path / "log.csv")
    _, *lines = (tmp_path / "log.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in lines] == ["0", "4", "8", "10"]  # whole numbers
    assert [row["step"] for row in rows] == [0, 4, 8, 10]
    assert [row["validation_loss"] for row in rows] == list(history.validation.values())
    last = rows[-1]
    assert last["train_loss"] == pytest.approx(sum(history.losses[8:]) / 2)
    assert last["gradient_norm"] == history.norms[-1]
    assert last["learning_rate"] == pytest.approx(0.001)
    assert last["bits_per_byte"] == pytest.approx(history.validation[10] / math.log(2) / 2)
    per_step = training_runs.numbered()[0][1].numel()
    assert [row["tokens"] for row in rows] == [n * per_step for n in (0, 4, 8, 10)]
    assert last["seconds_left"] == 0 < last["tokens_per_second"]


def test_a_resumed_run_has_each_step_once(tmp_path):
    logged(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        logged(tmp_path / "cut", after=unplug)
    logged(tmp_path / "cut", resume=True)
    assert without_times(tmp_path / "cut") == without_times(tmp_path / "whole")


def test_a_speed_is_of_the_steps_since_the_last_line(tmp_path, monkeypatch):
    """A step takes a second, a validation 100; the run is resumed with larger batches."""
    clock, history = [0.0], History()
    monkeypatch.setattr(run_log.time, "perf_counter", lambda: clock[0])
    for per_step, steps in ((32, range(6)), (1_024, range(6, 11))):
        keeper = RunLog(tmp_path, steps=12, rate=CONFIG.rate)
        for step in steps:
            if step:
                clock[0] += 1
                history.tokens += per_step
                history.losses.append(2.0)
                history.norms.append(1.0)
            if step % 5 == 0:
                clock[0] += 100
                history.validation[step] = 2.0
            keeper.keep(step, history)
    rows = run_log.read(tmp_path / "log.csv")
    assert [row["tokens_per_second"] for row in rows] == [None, 32, 1_024]
    assert [row["seconds_left"] for row in rows] == [None, 7 * 26, 2 * 26]  # 4 steps: 104 seconds


def test_a_line_says_what_the_row_knows(tmp_path):
    lines = []
    logged(tmp_path, say=lines.append)
    assert len(lines) == 4
    assert lines[0].startswith("step 0/10  0 tokens  validation ")
    for word in ("train ", "bits/byte", "rate 1.00e-03", "norm ", "tokens/s", "0:00 left"):
        assert word in lines[-1]


def test_the_share_of_the_peak_is_left_out_where_no_peak_is_known(tmp_path):
    lines = []
    logged(tmp_path / "known", flops_per_token=300.0, peak=1e9, say=lines.append)
    last = run_log.read(tmp_path / "known" / "log.csv")[-1]
    assert last["share_of_peak"] == pytest.approx(last["tokens_per_second"] * 300 / 1e9)
    assert f"{last['share_of_peak']:.1%} of peak" in lines[-1]
    logged(tmp_path / "other", flops_per_token=300.0, say=lines.append)
    assert run_log.read(tmp_path / "other" / "log.csv")[-1]["share_of_peak"] is None
    assert "peak" not in lines[-1]


def test_a_text_is_drawn_after_each_validation_and_changes_nothing(tmp_path):
    lines, texts = [], (f"text {n}\nof two lines" for n in range(9))
    drawn = logged(tmp_path / "drawn", say=lines.append, sample=lambda: next(texts))
    assert lines[1::2] == [f"    text {n}\n    of two lines" for n in range(4)]
    assert drawn == logged(tmp_path / "plain")


def test_a_model_draws_a_text_and_goes_on_with_its_dropout_as_it_was():
    tokenizer = ByteTokenizer()
    config = GPTConfig(256, context_length=8, layers=1, heads=2, channels=6, dropout=0.3)
    model = GPT(config, generator=torch.Generator().manual_seed(0)).train()
    before = torch.get_rng_state()
    first, again = (run_log.sample_of(model, tokenizer, 11) for _ in range(2))
    assert first == again
    assert 0 < len(first) <= 11
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("text", ["step,loss\n1,2\n", ",".join(run_log.COLUMNS) + "\nmany\n1,x\n"])
def test_a_file_that_is_no_log_is_refused(tmp_path, text):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(ValueError, match=r"log\.csv"):
        run_log.read(tmp_path / "log.csv")
