"""How many bits per byte does a GPT need after how much computing, and whom does it overtake when?

Each point is a run of its own, with its own schedule, on the embedded English; the model grows no
further, only its training. Beside it stand the n-gram models on the same tokens and on bytes, and
the compressors, which see the training part first. Differences are paired by document. Half an
hour of one core.
"""

import bz2
import lzma
import statistics
import tempfile
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch

from next_token.run_config import RunConfig
from next_token.runs import train_run
from src.gpt.released import open_run, scores
from src.likelihood.evaluation import Score, paired_bootstrap, total
from src.likelihood.smoothing import NgramModel
from src.tokens.bytes import stream_of

MODEL = {"context_length": 128, "layers": 3, "heads": 4, "channels": 128}
ORDERS = (2, 3, 4, 5)


@dataclass(frozen=True)
class Settings:
    """Each run is (steps, dropout, seed), with dropout where it sees the text several times."""

    runs: tuple = (
        *((1_200, 0.0, 0), (2_400, 0.0, 0), (6_000, 0.1, 0), (12_000, 0.1, 0)),
        *((1_200, 0.0, 1), (1_200, 0.0, 2), (2_400, 0.0, 1)),
    )
    tested: int | None = None  # documents of the test part; None: all


QUICK = Settings(runs=((4, 0.0, 0), (8, 0.1, 0)), tested=4)


def compressors(cells):
    """Bits per byte of the test part given the training part, the same bytes for all."""
    parts = RunConfig().parts()
    train, test = parts.train, parts.test
    before, both = train.to_bytes(), train.to_bytes() + test.to_bytes()[1:]
    packers = {"zlib": lambda b: zlib.compress(b, 9), "bz2": bz2.compress, "xz": lzma.compress}
    return {
        name: 8 * (len(pack(both)) - len(pack(before))) / test.n_bytes
        for name, pack in packers.items()
    }


def ngrams(parts, test, tokenizer):
    """{name: score of each test document} of Kneser-Ney models on the GPT's tokens."""
    train = stream_of(parts.train, tokenizer)
    end = tokenizer.specials["<|endoftext|>"]
    texts = [stream_of([document], tokenizer) for document in test]
    sizes = [document.n_bytes for document in test]
    found = {}
    for order in ORDERS:
        model = NgramModel.fit(
            train.numpy(), order=order, vocabulary_size=tokenizer.vocabulary_size, end=end
        )
        found[f"{order}-gram"] = [
            Score(float(model.score(text.numpy()).sum()), len(text) - 1, size)
            for text, size in zip(texts, sizes, strict=True)
        ]
    return found


def run(steps, dropout, seed, folder):
    """One trained model: CPU seconds, what happened on the way, the run."""
    config = RunConfig.from_tables(
        {
            "data": {"seed": seed},
            "model": MODEL | {"dropout": dropout},
            "training": {
                "steps": steps,
                "warm_up": min(100, steps // 2),
                "learning_rate": 3e-3,
                "every": min(steps, max(100, steps // 12)),
                "save_every": steps,
            },
        }
    )
    started = time.process_time()
    history = train_run(config, folder, device=torch.device("cpu"), progress=False)
    return time.process_time() - started, history, open_run(folder)


def point(cells, steps, dropout, seed):
    """One run: its losses, and the scores of the test documents, ours and the n-grams'."""
    parts = RunConfig().parts()
    test = list(parts.test)[: cells.settings.tested]
    with tempfile.TemporaryDirectory() as folder:
        seconds, history, trained = run(steps, dropout, seed, Path(folder) / "run")
    scored, lines = scores(trained, test), ngrams(parts, test, trained.tokenizer)
    draw = torch.Generator().manual_seed(0)
    against = {
        name: paired_bootstrap(scored, theirs, generator=draw) for name, theirs in lines.items()
    }
    return {
        "point": {
            "steps": steps,
            "dropout": dropout,
            "seed": seed,
            "cpu_seconds": round(seconds, 1),
            "parameters": trained.model.config.parameters,
            "best_step": history.best_step,
            "validation_nats_per_token": min(history.validation.values()),
            "training_nats_per_token": statistics.fmean(history.losses[-100:]),
            "test_bits_per_byte": total(scored).bits_per_byte,
            "minus": {n: [i.estimate, i.low, i.high] for n, i in against.items()},
        },
        "ngrams": {name: total(s).bits_per_byte for name, s in lines.items()},
    }


def find(cells):
    names = ("steps", "dropout", "seed")
    found = cells.all(point, (dict(zip(names, each, strict=True)) for each in cells.settings.runs))
    return {
        "model": MODEL,
        "points": [each["point"] for each in found],
        "ngrams": found[0]["ngrams"],
        "compressors": cells(compressors),
    }


def table(kept):
    lines = [
        "Bits per byte over compute (embedded English, test part)",
        "| steps | dropout | seed | CPU seconds | test bits per byte | minus 5-gram (95 %) |",
        "|---:|---:|---:|---:|---:|:---|",
    ]
    for point in kept["points"]:
        estimate, low, high = point["minus"]["5-gram"]
        lines.append(
            f"| {point['steps']:,} | {point['dropout']} | {point['seed']} | "
            f"{point['cpu_seconds']:.0f} | {point['test_bits_per_byte']:.3f} | "
            f"{estimate:+.3f} ({low:+.3f} to {high:+.3f}) |"
        )
    lines += ["", "| others | bits per byte |", "|:---|---:|"]
    others = kept["ngrams"] | kept["compressors"]
    lines += [f"| {name} | {value:.3f} |" for name, value in others.items()]
    return lines
