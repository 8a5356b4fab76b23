"""Is a released checkpoint the one that was recorded, and does its recipe make it?

What `experiments/shared/released.py` records of a checkpoint is compared here, for every model that
is released: check sum, settings, loss on fixed texts, and the losses of the first steps.
Checkpoints of one corpus share it, since making it takes longer than the rest.
"""

import hashlib
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from next_token import runs
from next_token.run_config import RunConfig
from next_token.runs import config_in, train_run
from src.gpt.released import floor_of, open_run, read_toml, scores
from src.likelihood.evaluation import total
from src.tools import checkpoints

RESULTS = Path(__file__).parents[1] / "results"


def recorded(name):
    """The folder of a model's checkpoints, and what was recorded of each."""
    folder = RESULTS / name
    found = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    if "checkpoints" not in found:  # in 0.1.0 they had a file of their own
        found = json.loads((folder / "checkpoints.json").read_text(encoding="utf-8"))
    return folder, found["checkpoints"]


def config_of(folder, changes):
    """The recipe of a folder, changed."""
    return RunConfig.from_tables(read_toml(folder / "recipe.toml"), changes)


def check_weights(folder, point):
    weights = (folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == point["sha256"]


def check_recipe(folder, point, config):
    run = open_run(folder)
    assert config_in(run.tables) == config
    assert run.step == point["best_step"]


def check_loss(folder, point, texts):
    run = open_run(folder)
    assert len(texts) == point["test_texts"]
    found = total(scores(run, texts)).loss
    assert found == pytest.approx(point["test_loss"], abs=1e-4)
    assert floor_of(run.tables, texts).loss == pytest.approx(point["test_floor"], abs=1e-9)


def check_first_steps(config, point, folder, monkeypatch):
    """The run of a recipe, in an empty folder, interrupted after its first steps."""
    steps, train = len(point["first_losses"]), runs.train
    tables = config.tables()
    tables["training"]["save_every"] = steps
    config = RunConfig.from_tables(tables)

    def stop(step, model):
        if step == steps:
            raise KeyboardInterrupt

    monkeypatch.setattr(runs, "train", partial(train, after=stop))
    with pytest.raises(KeyboardInterrupt):
        train_run(config, folder, device=torch.device("cpu"), progress=False)
    losses = checkpoints.read(folder / "last.pt")["history"]["losses"]
    assert losses == pytest.approx(point["first_losses"], abs=1e-3)


class Corpora:
    """Remembers what was made of the corpus that was asked for last: parts, tokenizer, streams."""

    def __init__(self):
        self.key = None

    def remember(self, monkeypatch):
        """Have runs take from here what is known."""
        of_config, kinds, stream_of = RunConfig.parts, runs.TOKENIZERS, runs.stream_of

        def parts(config):
            key = (config.data, tuple(sorted(config.world.items())))
            if key != self.key:
                self.key, self.made, self.known = key, of_config(config), {}
            return self.made

        def train(kind, *arguments):
            if kind not in self.known:
                self.known[kind] = kinds[kind].train(*arguments)
            return self.known[kind]

        def stream(documents, tokenizer):
            if documents is not self.made.train:
                return stream_of(documents, tokenizer)
            if "stream" not in self.known:
                self.known["stream"] = stream_of(documents, tokenizer)
            return self.known["stream"]

        monkeypatch.setattr(RunConfig, "parts", parts)
        once = {kind: SimpleNamespace(train=partial(train, kind)) for kind in kinds}
        monkeypatch.setattr(runs, "TOKENIZERS", once)
        monkeypatch.setattr(runs, "stream_of", stream)
