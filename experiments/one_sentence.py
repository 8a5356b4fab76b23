"""A small GPT for one English sentence, which two parts of the book follow into it.

Trains the recipe of results/one_sentence/recipe.toml on the embedded English, releases it to
results/one_sentence/model, and records what its test compares, the tokens of the sentence, and
what the model expects after it. Three minutes of one core.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.shared.released import described, place, published
from next_token.run_config import RunConfig
from src.gpt.released import open_run, read_toml

RECIPE = read_toml(Path(__file__).parents[1] / "results" / "one_sentence" / "recipe.toml")
SENTENCE = "The naïve quokka returns 42 if the"


@dataclass(frozen=True)
class Settings:
    steps: int = RECIPE["training"]["steps"]
    texts: int = 200  # for the loss
    likeliest: int = 10  # next tokens


QUICK = Settings(steps=20, texts=20)


def checkpoint(cells):
    """What there is to say about the run."""
    changed = changes(cells.settings)
    texts = list(RunConfig.from_tables(RECIPE, changed).parts().test)[: cells.settings.texts]
    return described(cells, texts, RECIPE, changed)


def changes(settings):
    """How the run differs from the recipe."""
    every = min(RECIPE["training"]["every"], settings.steps)
    training = {"warm_up": min(100, settings.steps // 2), "every": every, "save_every": every}
    return {"training": {"steps": settings.steps, **training}}


def find(cells):
    point = cells(checkpoint)
    changed = changes(cells.settings)
    run = open_run(cells.folder(published, recipe=RECIPE, changes=changed))
    ids = torch.tensor([run.tokenizer.encode(SENTENCE)])
    with torch.no_grad():
        probs = run.model(ids)[0, -1].softmax(-1)
    best = probs.topk(cells.settings.likeliest)
    said = [run.tokenizer.decode([i]) for i in best.indices.tolist()]
    return {
        "checkpoints": [point],
        "sentence": SENTENCE,
        "tokens": [run.tokenizer.decode([i]) for i in ids[0].tolist()],
        "next": dict(zip(said, best.values.tolist(), strict=True)),
    }


def release(cells, target):
    place(cells, target, RECIPE, {"model": changes(cells.settings)})


def table(kept):
    point = kept["checkpoints"][0]
    return [
        "A small GPT that reads one English sentence",
        f"`recipe.toml`; {point['parameters']:,} parameters, step {point['best_step']:,};"
        f" {point['test_loss']:.3f} nats per token on the first {point['test_texts']} test"
        f" documents. SHA-256 `{point['sha256'][:16]}…`.",
        "",
        f"*{kept['sentence']}*: " + " | ".join(kept["tokens"]),
        "",
        "| next | probability |",
        "|:---|---:|",
        *(f"| {token!r} | {share:.3f} |" for token, share in kept["next"].items()),
    ]
