"""The small GPT of results/one_sentence is the one that was recorded, and so is what it says."""

import json

import pytest
import torch
from released import check_recipe, check_weights, config_of, recorded

from src.gpt.released import open_run

FOLDER, POINTS = recorded("one_sentence")


def test_the_released_model_is_the_recorded_one():
    check_weights(FOLDER / "model", POINTS[0])
    check_recipe(FOLDER / "model", POINTS[0], config_of(FOLDER, {}))


def test_it_reads_the_sentence_as_it_was_recorded():
    kept = json.loads((FOLDER / "result.json").read_text(encoding="utf-8"))
    run = open_run(FOLDER / "model")
    ids = run.tokenizer.encode(kept["sentence"])
    assert [run.tokenizer.decode([i]) for i in ids] == kept["tokens"]
    with torch.no_grad():
        probs = run.model(torch.tensor([ids]))[0, -1].softmax(-1)
    for token, share in kept["next"].items():
        assert probs[run.tokenizer.encode(token)].item() == pytest.approx(share, abs=1e-4)
