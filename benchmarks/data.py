"""How do memory and time grow with the text, tokenized and trained on? Run by `make bench`.

Three texts, each ten times as long as the one before: the documentation of Python, its documents
numbered anew in each copy. Each is tokenized by two processes, with merges learnt from it, and then
trained on; each step in a process of its own, so that its greatest memory is its own. Copies make
the text longer and not richer: the different words of a sample are what learning merges holds.

The files take up to six times the bytes of the longest text, below TMPDIR; they are deleted.
"""

import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from benchmarks.shared.rounds import record
from src.texts.corpora import load

SIZES = (20_000_000, 200_000_000, 2_000_000_000)  # bytes of text
PROCESSES, VOCABULARY, STEPS = 2, 4_096, 100
MOST = 300  # megabytes of a process that tokenizes
GROWTH = 1.25  # how much more memory ten times the text may take in training

# What a process does: its name, then its arguments. It prints seconds, megabytes and what it made.
PROGRAM = """
import json, resource, sys, time
started = time.perf_counter()
MEGA = 1e6 if sys.platform == "darwin" else 1e3
def told(**more):
    seconds = time.perf_counter() - started
    own, child = (resource.getrusage(who).ru_maxrss / MEGA
                  for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({"seconds": seconds, "own": own, "child": child, **more}))
def tokenize(text, folder, processes, vocabulary):
    from next_token.tokenizing import tokenize_files
    made = tokenize_files([text], folder, tokenizer=vocabulary, processes=int(processes))
    told(tokens=sum(map(len, made.parts.values())), torch="torch" in sys.modules)
def train(folder, steps):
    import torch
    torch.set_num_threads(1)
    from src.gpt.gpt2 import GPT, GPTConfig
    from src.gpt.training import TrainConfig, train
    from next_token.runs import StreamBatches
    from next_token.token_folders import TokenFolder
    loaded = time.perf_counter()
    opened = TokenFolder(folder)
    opened.check()
    checked = time.perf_counter()
    size = opened.tokenizer.vocabulary_size
    config = GPTConfig(size, context_length=64, layers=2, heads=2, channels=32)
    model = GPT(config, generator=torch.Generator().manual_seed(0))
    data = StreamBatches(opened.parts["train"], batch_size=16, context_length=64)
    train(model, data, TrainConfig(1, 1e-3), progress=False)  # torch's first optimiser loads much
    began = time.perf_counter()
    train(model, data, TrainConfig(int(steps), 1e-3), progress=False)
    done = time.perf_counter()
    reading = time.perf_counter()
    for number in range(1000):
        data[number]
    told(check=checked - loaded, step=(done - began) / int(steps),
         batch=(time.perf_counter() - reading) / 1000)
if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
"""


def measured(program, *arguments):
    """What a process of its own tells of a step."""
    done = subprocess.run(
        [sys.executable, str(program), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout)


def write_text(path, size):
    """A text of at least that many bytes, whose documents are all different; how many it has."""
    documents = [document.text for document in load("python-docs")]
    copy, written = 0, 0
    with path.open("w", encoding="utf-8", newline="") as file:
        while written < size:
            copy += 1
            for text in documents:
                block = f"Copy {copy}.\n{text}\n\n"
                written += len(block.encode())
                file.write(block)
    return written


def main():
    rows, missed = [], []
    with tempfile.TemporaryDirectory() as place:
        text, program = Path(place, "text.txt"), Path(place, "program.py")
        program.write_text(PROGRAM)
        for size in SIZES:
            n_bytes, folder = write_text(text, size), Path(place, f"tokens-{size}")
            made = measured(program, "tokenize", text, folder, PROCESSES, VOCABULARY)
            text.unlink()
            trained = measured(program, "train", folder, STEPS)
            rows.append((n_bytes, made, trained))
            print(n_bytes, made, trained, flush=True)
    if any(made["torch"] for _, made, _ in rows):
        missed.append("torch was imported to tokenize")
    if any(max(made["own"], made["child"]) > MOST for _, made, _ in rows):
        missed.append(f"a process that tokenizes took more than {MOST} MB")
    own = [trained["own"] for _, _, trained in rows]
    if any(more > GROWTH * less for less, more in pairwise(own)):
        missed.append("memory of training grew with the text")
    lines = [
        "# Memory and time against the size of the text",
        "",
        "Written by `make bench` (`benchmarks/data.py`). Greatest memory of each process, all",
        f"included (asked: at most {MOST} MB to tokenize; at most {GROWTH} times as much to train",
        "on ten times the text).",
        "",
        "| bytes of text | tokens | tokenize: seconds | the process that reads and writes, MB | "
        "one that encodes, MB | train: MB | SHA-256 of all files, s | a step, ms | a batch, ms |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for n_bytes, made, trained in rows:
        lines.append(
            f"| {n_bytes:,} | {made['tokens']:,} | {made['seconds']:,.1f} | {made['own']:.0f} | "
            f"{made['child']:.0f} | {trained['own']:.0f} | {trained['check']:.2f} | "
            f"{1e3 * trained['step']:.1f} | {1e3 * trained['batch']:.2f} |"
        )
    lines += [
        "",
        f"- documentation of Python, copied with numbered documents; {VOCABULARY:,} tokens learnt",
        "  from at most 100 MB of the training part, whose seconds are among those of tokenizing",
        f"- {PROCESSES} processes encode, and one reads and writes; none imports torch",
        f"- {STEPS} steps of 16 texts of 64 tokens, 2 layers of 32 channels, one thread; a batch",
        "  is read from the disk, where the machine's cache of files may help",
    ]
    record("data", lines)
    sys.exit(f"missed: {missed}" if missed else 0)


if __name__ == "__main__":
    main()
