"""What does a new user see? A text becomes tokens, a run, is killed, goes on, is drawn and sampled.

Each command is run as it is typed, and what it says is the record. The text is the first part of
the documentation of Python; in the second half a folder in GPT-2's released format, with random
weights, is trained further on the same text. A few minutes of one core.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from _ext.provenance import ROOT
from src.gpt import pretrained
from src.gpt.gpt2 import GPT, GPTConfig
from src.texts.corpora import load
from src.tokens.bpe import BytePairTokenizer
from src.tokens.files import save_gpt2
from src.tools import checkpoints

KILL = "kill -9 %1"


@dataclass(frozen=True)
class Settings:
    letters: int = 400_000  # of the text
    steps: int = 400


QUICK = Settings(letters=60_000, steps=40)


def typed(steps):
    """The commands, in order; None: the one before is killed when half of its steps are saved."""
    half = steps // 2
    often = f"--every {half // 2} --save-every {half // 2}"
    return [
        "next-token tokenize your.txt --folder data --tokenizer 1024",
        f"next-token train data --folder run --steps {steps} {often}",
        KILL,
        "next-token train --folder run --resume",
        f"next-token train --folder run --resume --steps {steps + half} --precision bfloat16",
        "next-token plot run --ngram 3",
        "next-token sample run --prompt 'The ' --tokens 40",
        "next-token tokenize your.txt --folder of-gpt2 --tokenizer gpt2-folder",
        f"next-token train of-gpt2 --folder further --init-from gpt2-folder --steps {half}",
        "next-token sample further --prompt 'The ' --tokens 40",
    ]


def prepare(home, letters):
    """The text, and a folder as GPT-2 is published, with random weights."""
    text = "\n\n".join(document.text for document in load("python-docs"))[:letters]
    (home / "your.txt").write_bytes(text.encode())
    tokenizer = BytePairTokenizer.train(text[:50_000], 600)
    config = GPTConfig(
        tokenizer.vocabulary_size,
        context_length=64,
        layers=2,
        heads=2,
        channels=64,
        activation="gelu_tanh",
    )
    model = GPT(config, generator=torch.Generator().manual_seed(0))
    pretrained.save(model, home / "gpt2-folder")
    save_gpt2(tokenizer, home / "gpt2-folder")


def begun(line, home):
    """A command that runs in a folder."""
    arguments = [sys.executable, "-m", "next_token", *shlex.split(line)[1:]]
    surroundings = {"OMP_NUM_THREADS": "1", "NEXT_TOKEN_DEVICE": "cpu", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        arguments,
        cwd=home,
        env=os.environ | surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_when_saved(process, path, step):
    """Kill a run after it has saved a step."""
    while process.poll() is None:
        if path.exists() and checkpoints.read(path)["step"] >= step:
            process.send_signal(signal.SIGKILL)
            return
        time.sleep(0.05)
    raise RuntimeError(f"expected to kill a run after step {step}, it had ended")


def transcript(cells):
    """The lines of a terminal."""
    commands, lines = typed(cells.settings.steps), []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        prepare(home, cells.settings.letters)
        for line, after in zip(commands, [*commands[1:], ""], strict=True):
            lines.append(f"$ {line}{' &' if after == KILL else ''}")
            if line == KILL:
                continue
            process = begun(line, home)
            if after == KILL:
                kill_when_saved(process, home / "run" / "last.pt", cells.settings.steps // 2)
            said = process.communicate()[0]
            if process.returncode not in (0, -signal.SIGKILL):
                raise RuntimeError(f"expected {line} to end well:\n{said}")
            lines += [each for each in said.splitlines() if "tokens/s" in each or "\r" not in each]
    return {"lines": lines}


def find(cells):
    return cells(transcript)


def table(kept):
    lines = [line.rstrip() for line in kept["lines"]]
    return ["From a text to a model, as it is typed", "```console", *lines, "```"]
