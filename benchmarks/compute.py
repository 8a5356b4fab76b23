"""How many bits per byte does a GPT need after how much computing, and whom does it overtake when?

Each point is a run of its own, with its own schedule, on the embedded English; the model grows no
further, only its training. Beside it stand the n-gram models on the same tokens and on bytes, and
the compressors, which see the training part first. Differences are paired by document.

    python benchmarks/compute.py          half an hour of one core; writes results/compute.json, .md
"""

import bz2
import json
import lzma
import tempfile
import time
import zlib
from pathlib import Path

import torch
from rounds import RESULTS, machine, record

from src.gpt.runs import RunConfig, open_run, scores, stream_of, train_run
from src.likelihood.evaluation import Score, paired_bootstrap, total
from src.likelihood.ngrams import NgramModel

MODEL = {"context_length": 128, "layers": 3, "heads": 4, "channels": 128}
# (steps, dropout, seed); dropout where the text is gone through several times
RUNS = [
    *((1_200, 0.0, 0), (2_400, 0.0, 0), (6_000, 0.1, 0), (12_000, 0.1, 0)),
    *((1_200, 0.0, 1), (1_200, 0.0, 2), (2_400, 0.0, 1)),
]
ORDERS = (2, 3, 4, 5)


def compressors(train, test):
    """Bits per byte of the test part given the training part, the same bytes for all."""
    before, both = train.to_bytes(), train.to_bytes() + test.to_bytes()[1:]
    packers = {"zlib": lambda b: zlib.compress(b, 9), "bz2": bz2.compress, "xz": lzma.compress}
    return {
        name: 8 * (len(pack(both)) - len(pack(before))) / test.n_bytes
        for name, pack in packers.items()
    }


def ngrams(parts, tokenizer):
    """{name: score of each test document} of Kneser-Ney models on the GPT's tokens."""
    train = stream_of(parts.train, tokenizer)
    end = tokenizer.specials["<|endoftext|>"]
    texts = [stream_of([document], tokenizer) for document in parts.test]
    sizes = [document.n_bytes for document in parts.test]
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
    """One trained model: (CPU seconds, validation loss, the run)."""
    config = RunConfig.from_tables(
        {
            "data": {"seed": seed},
            "model": MODEL | {"dropout": dropout},
            "training": {
                "steps": steps,
                "warm_up": 100,
                "learning_rate": 3e-3,
                "every": max(100, steps // 12),
                "save_every": steps,
            },
        }
    )
    started = time.process_time()
    history = train_run(config, folder, device=torch.device("cpu"), progress=False)
    return config, time.process_time() - started, history, open_run(folder)


def main():
    torch.set_num_threads(1)
    parts = RunConfig().parts()
    points, lines = [], None
    for steps, dropout, seed in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            _, seconds, history, trained = run(steps, dropout, seed, Path(folder) / "run")
        scored = scores(trained, list(parts.test))
        if lines is None:
            lines = ngrams(parts, trained.tokenizer)
        draw = torch.Generator().manual_seed(0)
        against = {
            name: paired_bootstrap(scored, theirs, generator=draw) for name, theirs in lines.items()
        }
        points.append(
            {
                "steps": steps,
                "dropout": dropout,
                "seed": seed,
                "cpu_seconds": round(seconds, 1),
                "parameters": trained.model.config.parameters,
                "best_step": history.best_step,
                "validation_nats_per_token": min(history.validation.values()),
                "training_nats_per_token": sum(history.losses[-100:]) / 100,
                "test_bits_per_byte": total(scored).bits_per_byte,
                "minus": {n: [i.estimate, i.low, i.high] for n, i in against.items()},
            }
        )
        kept = {
            "machine": machine(),
            "command": "python benchmarks/compute.py",
            "model": MODEL,
            "points": points,
            "ngrams": {name: total(s).bits_per_byte for name, s in lines.items()},
            "compressors": compressors(parts.train, parts.test),
        }
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "compute.json").write_text(json.dumps(kept, indent=1) + "\n")
        print(points[-1], flush=True)
    record("compute", table(kept))


def table(kept):
    lines = [
        "# Bits per byte over compute (embedded English, test part)",
        "",
        f"`{kept['command']}`; {kept['machine']}",
        "",
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


if __name__ == "__main__":
    main()
