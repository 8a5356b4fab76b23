"""The checkpoints under results/gpt1 are those that their recipe makes, and that were recorded."""

import hashlib
import json
from pathlib import Path

import pytest
import torch

from src import checkpoints, runs
from src.evaluation import total
from src.runs import RunConfig, floor_of, open_run, read_toml, scores, train_run

FOLDER = Path(__file__).parents[1] / "results" / "gpt1"
RECORDED = json.loads((FOLDER / "checkpoints.json").read_text())["checkpoints"]


@pytest.fixture(scope="module", params=RECORDED, ids=lambda point: f"seed-{point['seed']}")
def recorded(request):
    return request.param


def test_the_weights_are_those_that_were_recorded(recorded):
    weights = (FOLDER / f"seed-{recorded['seed']}" / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == recorded["sha256"]


def test_the_run_is_of_the_recipe(recorded):
    run = open_run(FOLDER / f"seed-{recorded['seed']}")
    seed = {"data": {"seed": recorded["seed"]}}
    assert run.config == RunConfig.from_tables(read_toml(FOLDER / "recipe.toml"), seed)
    assert run.step == recorded["best_step"]


def test_the_loss_on_fixed_texts_is_what_was_recorded(recorded):
    run = open_run(FOLDER / f"seed-{recorded['seed']}")
    texts = list(run.config.parts().test)[: recorded["test_texts"]]
    found = total(scores(run, texts)).loss
    assert found == pytest.approx(recorded["test_loss"], abs=1e-4)
    assert floor_of(run, texts).loss == pytest.approx(recorded["test_floor"], abs=1e-9)


def test_the_first_steps_of_the_recipe_repeat(recorded, tmp_path, monkeypatch):
    steps, train = len(recorded["first_losses"]), runs.train

    class Stops:
        """Batches that are interrupted after the first steps."""

        def __init__(self, data):
            self.data, self.settings = data, data.settings

        def __getitem__(self, number):
            if number == steps:
                raise KeyboardInterrupt
            return self.data[number]

    monkeypatch.setattr(
        runs,
        "train",
        lambda model, data, *rest, **options: train(model, Stops(data), *rest, **options),
    )
    tables = read_toml(FOLDER / "recipe.toml")
    tables["training"] |= {"save_every": steps}
    config = RunConfig.from_tables(tables, {"data": {"seed": recorded["seed"]}})
    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path, device=torch.device("cpu"), progress=False)
    losses = checkpoints.read(tmp_path / "last.pt")["history"]["losses"]
    assert losses == pytest.approx(recorded["first_losses"], abs=1e-3)
