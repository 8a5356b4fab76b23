"""What earlier versions wrote opens as before: runs, tasks, tokenizers.

The files under `tests/kept` were written by the version that their folder names. `expected.json`
holds what that version made of them: losses of a run that was not interrupted, a score, ids,
probabilities. `run` was interrupted in its sixth step, after a checkpoint at its fourth.
"""

import json
import shutil
from pathlib import Path

import pytest

from next_token.__main__ import main
from next_token.runs import config_in
from src.gpt import gpt1_finetuning
from src.gpt.released import open_run, scores
from src.likelihood.evaluation import total
from src.texts import labelled
from src.tokens import bpe
from src.tokens.unigram import UnigramTokenizer
from src.tools import checkpoints

KEPT = Path(__file__).parent / "kept"
VERSIONS = sorted(path.name for path in KEPT.iterdir())
ROUNDED = 1e-4  # of a loss or a probability in float32, on another processor

TOKENIZERS = {
    "characters.json": bpe.load,
    "words.json": bpe.load,
    "byte-pair.json": bpe.load,
    "unigram.json": UnigramTokenizer.load,
    "gpt2": bpe.BytePairTokenizer.load_gpt2,
    "hugging-face.json": bpe.BytePairTokenizer.load_hugging_face,
}


@pytest.fixture(params=VERSIONS)
def kept(request, tmp_path, monkeypatch):
    """A copy of what a version wrote, in the folder in which it was written."""
    monkeypatch.chdir(shutil.copytree(KEPT / request.param, tmp_path / "kept"))
    return json.loads(Path("expected.json").read_text(encoding="utf-8"))


@pytest.mark.usefixtures("kept")
def test_a_version_is_kept():
    assert "0.1.0" in VERSIONS
    assert {path.name for path in Path("tokenizers").iterdir()} == set(TOKENIZERS)


def test_an_interrupted_run_goes_on_as_if_it_had_not_been(kept, monkeypatch):
    monkeypatch.setenv("NEXT_TOKEN_DEVICE", "cpu")  # where it began: others draw another dropout
    before = checkpoints.read("run/last.pt")["step"]
    assert 0 < before < len(kept["losses"])
    assert main(["train", "--folder", "run", "--resume", "--quiet"]) == 0
    losses = checkpoints.read("run/last.pt")["history"]["losses"]
    assert losses == pytest.approx(kept["losses"], abs=ROUNDED)


def test_a_run_scores_its_text_as_it_did(kept):
    run = open_run(Path("run"))
    score = total(scores(run, list(config_in(run.tables).parts().test)))
    assert score.tokens == kept["tokens"]
    assert score.nats / score.tokens == pytest.approx(kept["nats"] / kept["tokens"], abs=ROUNDED)


def test_a_task_is_answered_as_it_was(kept):
    tuned = gpt1_finetuning.load(Path("tuned"))
    found = gpt1_finetuning.predict(tuned, [(text,) for text in kept["texts"]])
    for row, expected in zip(found.tolist(), kept["probabilities"], strict=True):
        assert row == pytest.approx(expected, abs=ROUNDED)
    assert sum(row) == pytest.approx(1, abs=ROUNDED)
    assert list(labelled.load("task.jsonl").labels) == kept["labels"]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_tokenizer_encodes_as_it_did(kept, name):
    tokenizer = TOKENIZERS[name](Path("tokenizers", name))
    kind = name.removesuffix(".json")
    assert tokenizer.encode(kept["sample"]) == kept["ids"].get(kind, kept["ids"]["byte-pair"])


@pytest.mark.usefixtures("kept")
def test_no_file_holds_the_name_of_a_module():
    """A name on a reader's disk would bind every later version to today's folders."""
    for path in Path().rglob("*.*"):
        assert b"src." not in (path.read_bytes() if path.is_file() else b""), path
