"""The checkpoints under results/gpt1 are those that their recipe makes, and that were recorded."""

import pytest
from released import (
    Corpora,
    check_first_steps,
    check_loss,
    check_recipe,
    check_weights,
    config_of,
    recorded,
)

FOLDER, POINTS = recorded("gpt1")


@pytest.fixture(scope="module", params=POINTS, ids=lambda point: f"seed-{point['seed']}")
def point(request):
    return request.param


@pytest.fixture(scope="module")
def corpora():
    return Corpora()


@pytest.fixture
def config(point, corpora, monkeypatch):
    corpora.remember(monkeypatch)
    return config_of(FOLDER, {"data": {"seed": point["seed"]}})


@pytest.fixture
def folder(point):
    return FOLDER / f"seed-{point['seed']}"


def test_the_weights_are_those_that_were_recorded(folder, point):
    check_weights(folder, point)


def test_the_run_is_of_the_recipe(folder, point, config):
    check_recipe(folder, point, config)


def test_the_loss_on_fixed_texts_is_what_was_recorded(folder, point, config):
    check_loss(folder, point, list(config.parts().test)[: point["test_texts"]])


def test_the_first_steps_of_the_recipe_repeat(point, config, tmp_path, monkeypatch):
    check_first_steps(config, point, tmp_path, monkeypatch)
