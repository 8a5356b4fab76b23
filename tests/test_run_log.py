"""One line for each validation, in a file and to whom it may concern."""

import math

import pytest
import training_runs

from src.gpt import run_log
from src.gpt.run_log import RunLog
from src.gpt.training import TrainConfig, train

CONFIG = TrainConfig(steps=10, learning_rate=0.01, warm_up=3, every=4, save_every=2)


def logged(folder, *, after=None, resume=False, say=None, log=True):
    model = training_runs.small_gpt()
    keeper = RunLog(folder, steps=10, rate=CONFIG.rate, tokens_per_byte=0.5, say=say)
    return train(
        model,
        training_runs.numbered(),
        CONFIG,
        validation=training_runs.held_out(),
        folder=folder,
        resume=resume,
        after=after,
        keepers=[keeper] if log else [],
        progress=False,
    )


def without_times(folder):
    times = ("tokens_per_second", "seconds_left")
    rows = run_log.read(folder / "log.csv")
    return [{name: row[name] for name in row if name not in times} for row in rows]


def unplug(step, model):
    if step == 7:
        raise KeyboardInterrupt


def test_each_validation_has_a_row_of_what_happened_since_the_last(tmp_path):
    history = logged(tmp_path)
    rows = run_log.read(tmp_path / "log.csv")
    assert [row["step"] for row in rows] == [0, 4, 8, 10]
    assert [row["validation_loss"] for row in rows] == list(history.validation.values())
    last = rows[-1]
    assert last["train_loss"] == pytest.approx(sum(history.losses[8:]) / 2)
    assert last["gradient_norm"] == history.norms[-1]
    assert last["learning_rate"] == pytest.approx(0.001)
    assert last["bits_per_byte"] == pytest.approx(history.validation[10] / math.log(2) / 2)
    per_step = training_runs.numbered()[0][1].numel()
    assert [row["tokens"] for row in rows] == [0, 4 * per_step, 8 * per_step, 10 * per_step]
    assert last["seconds_left"] == 0 < last["tokens_per_second"]


def test_a_resumed_run_has_each_step_once(tmp_path):
    logged(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        logged(tmp_path / "cut", after=unplug)
    logged(tmp_path / "cut", resume=True)
    assert without_times(tmp_path / "cut") == without_times(tmp_path / "whole")


def test_a_run_that_kept_no_log_gets_its_old_lines_from_its_history(tmp_path):
    logged(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        logged(tmp_path / "old", after=unplug, log=False)
    logged(tmp_path / "old", resume=True)
    assert without_times(tmp_path / "old") == without_times(tmp_path / "whole")


def test_steps_and_tokens_are_written_as_whole_numbers(tmp_path):
    logged(tmp_path)
    _, *lines = (tmp_path / "log.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in lines] == ["0", "4", "8", "10"]


def test_a_line_says_what_the_row_knows(tmp_path):
    lines = []
    logged(tmp_path, say=lines.append)
    assert len(lines) == 4
    assert lines[0].startswith("step 0/10  0 tokens  validation ")
    for word in ("train ", "bits/byte", "rate 1.00e-03", "norm ", "tokens/s", "0:00 left"):
        assert word in lines[-1]


@pytest.mark.parametrize("text", ["step,loss\n1,2\n", ",".join(run_log.COLUMNS) + "\nmany\n1,x\n"])
def test_a_file_that_is_no_log_is_refused(tmp_path, text):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(ValueError, match=r"log\.csv"):
        run_log.read(tmp_path / "log.csv")
