"""The checkpoints under results/gpt2 are those that their recipe makes, and that were recorded.

Their first steps are repeated for all sizes of one seed, whose corpus they share: making another
takes longer than all the steps.
"""

import pytest
import torch
from released import (
    RESULTS,
    Corpora,
    check_first_steps,
    check_loss,
    check_recipe,
    check_weights,
    config_of,
    recorded,
)

from src.gpt.released import open_run
from src.texts.corpora import Document

FOLDER, POINTS = recorded("gpt2")
REPEATED = [point for point in POINTS if point["seed"] == 0]


def name_of(point):
    return point["folder"]


def config(point):
    return config_of(FOLDER, point["changes"])


@pytest.fixture(scope="module")
def texts():
    """Drawn as experiments/gpt2.py does, apart from all that is trained on."""
    point = POINTS[0]
    generator = torch.Generator().manual_seed(point["texts_seed"])
    drawn = config(point).micro_world().sample(point["test_texts"], generator=generator)
    return [Document(str(i), " ".join(each.words[:-1])) for i, each in enumerate(drawn)]


@pytest.fixture(scope="module")
def corpora():
    return Corpora()


def test_every_folder_is_recorded():
    folders = {path.name for path in (RESULTS / "gpt2").iterdir() if path.is_dir()}
    assert folders == {point["folder"] for point in POINTS}
    assert len({(point["parameters"], point["seed"]) for point in POINTS}) == len(POINTS)


@pytest.mark.parametrize("point", POINTS, ids=name_of)
def test_the_weights_are_those_that_were_recorded(point):
    check_weights(FOLDER / point["folder"], point)
    assert open_run(FOLDER / point["folder"]).model.config.parameters == point["parameters"]


@pytest.mark.parametrize("point", POINTS, ids=name_of)
def test_the_run_is_of_the_recipe(point):
    check_recipe(FOLDER / point["folder"], point, config(point))


@pytest.mark.parametrize("point", POINTS, ids=name_of)
def test_the_loss_on_fixed_texts_is_what_was_recorded(point, texts):
    check_loss(FOLDER / point["folder"], point, texts)


@pytest.mark.parametrize("point", REPEATED, ids=name_of)
def test_the_first_steps_of_the_recipe_repeat(point, corpora, tmp_path, monkeypatch):
    corpora.remember(monkeypatch)
    check_first_steps(config(point), point, tmp_path, monkeypatch)
