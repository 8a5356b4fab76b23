"""How does a run go, and how long will it still take? One line for each validation.

    train loss     = mean of the batches' losses since the last line, nats per token
    bits / byte    = validation loss / log 2 · tokens / bytes, of the validation part
    tokens / s     = of the steps alone, without the validations and without a process's first step,
                     in which torch still loads parts of itself
    share of peak  = tokens / s · operations per token / what the GPUs could do at most
    time left      = steps that are left · seconds per step, with the validations

Where tensorboard is installed, the same numbers go to a folder of that name. The lines are kept in
`log.csv`, in the folder of the run, and can be printed as they come. After a resumed run the file
has each step once, as if nothing had happened; a run of version 0.1.0, which kept no log, gets its
old lines from the history in its checkpoint.

Used by `gpt/runs`, and so by the command line.
"""

import csv
import io
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from src.gpt import sampling
from src.gpt.gpt2 import GPT
from src.likelihood.fitting import History
from src.tokens.bytes import END, Tokenizer
from src.tools.files import write_text

COLUMNS = (
    "step",
    "tokens",
    "train_loss",
    "validation_loss",
    "bits_per_byte",
    "learning_rate",
    "gradient_norm",
    "tokens_per_second",
    "share_of_peak",
    "seconds_left",
)
Row = dict[str, float | None]


class RunLog:
    """A keeper for `train`: it writes a row, and says a line, after each validation.

    Args:
        folder: where `log.csv` stands; it is made where it is missing.
        steps: how many the run has.
        rate: the learning rate of a step.
        tokens_per_byte: of the validation part; None: bits per byte are left out.
        flops_per_token: what a step computes for each token, forward and backward.
        peak: operations per second of all devices together, at most; None: not known.
        sample: draws a text, which is said after the line; None: none is.
        say: called with each line; None: nobody listens.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        steps: int,
        rate: Callable[[int], float],
        tokens_per_byte: float | None = None,
        flops_per_token: float = 0.0,
        peak: float | None = None,
        sample: Callable[[], str] | None = None,
        say: Callable[[str], None] | None = None,
    ):
        self.path, self.steps, self.rate = Path(folder) / "log.csv", steps, rate
        self.tokens_per_byte, self.say, self.sample = tokens_per_byte, say, sample
        self.flops_per_token, self.peak = flops_per_token, peak
        self._board = _board(Path(folder))
        self.done = 0  # at the last line
        self._begun: float | None = None
        self._warm = False  # the first step has been taken
        self._alone = self._all = 0.0  # seconds of steps without validations, of all steps
        self._timed = self._count = 0  # how many these were

    def keep(self, step: int, history: History) -> None:
        """Count the time of a step; after a validation, write its row and say its line."""
        now = time.perf_counter()
        if self._begun is None:
            self.done = max((n for n in history.validation if n < step), default=0)
        elif not self._warm:
            self._warm = True
        else:
            self._all += now - self._begun
            self._count += 1
            if step not in history.validation:
                self._alone, self._timed = self._alone + now - self._begun, self._timed + 1
        if step in history.validation:
            row = self.row(step, self.done, history)
            if self._count:
                each = self._all / self._count
                alone = self._alone / self._timed if self._timed else each
                speed = history.tokens / step / alone
                row["tokens_per_second"] = speed
                row["share_of_peak"] = (
                    speed * self.flops_per_token / self.peak if self.peak else None
                )
                row["seconds_left"] = (self.steps - step) * each
            self._write(row, history)
            for name, value in row.items() if self._board else ():
                if name != "step" and value is not None:
                    self._board.add_scalar(name, value, step)
            if self.say:
                self.say(line(row, self.steps))
                if self.sample:
                    self.say("    " + self.sample().replace("\n", "\n    "))
            self.done = step
            self._clear()
        self._begun = time.perf_counter()

    def row(self, step: int, before: int, history: History) -> Row:
        """What the history knows of a validation: of the steps after `before`, up to `step`."""
        losses, loss = history.losses[before:step], history.validation[step]
        done = len(history.losses)
        bits = None
        if self.tokens_per_byte is not None:
            bits = loss / math.log(2) * self.tokens_per_byte
        return {
            **dict.fromkeys(COLUMNS),
            "step": step,
            "tokens": history.tokens * step // done if done else 0,
            "train_loss": sum(losses) / len(losses) if losses else None,
            "validation_loss": loss,
            "bits_per_byte": bits,
            "learning_rate": self.rate(step) if step else None,
            "gradient_norm": history.norms[step - 1] if step else None,
        }

    def _clear(self) -> None:
        self._all, self._count, self._alone, self._timed = 0.0, 0, 0.0, 0

    def _write(self, row: Row, history: History) -> None:
        rows = {int(each["step"] or 0): each for each in read(self.path)}
        earlier = sorted(step for step in history.validation if step < int(row["step"] or 0))
        kept = [
            rows.get(step) or self.row(step, before, history)
            for before, step in zip([0, *earlier], earlier, strict=False)
        ]
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for each in (*kept, row):
            whole = {name: int(each[name] or 0) for name in ("step", "tokens")}
            writer.writerow(each | whole)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, text.getvalue())


def read(path: Path | str) -> list[Row]:
    """The rows of a `log.csv`; none if there is no file.

    Raises:
        ValueError: the file is no such log.
    """
    path = Path(path)
    if not path.exists():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"expected the columns {', '.join(COLUMNS)} in {path}, got others")
        try:
            return [{k: float(v) if v else None for k, v in row.items()} for row in reader]
        except (TypeError, ValueError) as error:
            raise ValueError(f"expected numbers in {path}, got others: {error}") from error


def line(row: Row, steps: int) -> str:
    """A row as a line for people; what is not known is left out."""
    shapes = {
        "step": "step {:,.0f}" + f"/{steps:,}",
        "tokens": "{:,.0f} tokens",
        "train_loss": "train {:.4f}",
        "validation_loss": "validation {:.4f}",
        "bits_per_byte": "{:.3f} bits/byte",
        "learning_rate": "rate {:.2e}",
        "gradient_norm": "norm {:.2f}",
        "tokens_per_second": "{:,.0f} tokens/s",
        "share_of_peak": "{:.1%} of peak",
    }
    said = [shape.format(row[name]) for name, shape in shapes.items() if row[name] is not None]
    if (left := row["seconds_left"]) is not None:
        minutes, seconds = divmod(round(left), 60)
        said.append(f"{minutes}:{seconds:02} left")
    return "  ".join(said)


def sample_of(model: GPT, tokenizer: Tokenizer, tokens: int) -> str:
    """A text that a model draws as it is now; of the same weights the same."""
    end = tokenizer.specials[END]
    generator = torch.Generator().manual_seed(
        0
    )  # of its own, or a resumed run would draw otherwise
    (text,) = sampling.generate(
        model, [[end]], max_new_tokens=tokens, stop=end, generator=generator
    )
    return tokenizer.decode([token for token in text.tolist() if token != end])


def _board(folder: Path) -> Any:
    """What writes for TensorBoard; None where that is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"))
