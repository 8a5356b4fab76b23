"""How does a run go, and how long will it still take? One line for each validation.

    train loss     = mean of the batches' losses since the last line, nats per token
    bits / byte    = validation loss / log 2 · tokens / bytes, of the validation part
    tokens / s     = tokens since the last line / seconds since, without validations and a process's
                     first step, in which torch still loads parts of itself
    share of peak  = tokens / s · operations per token / what the GPUs could do at most
    time left      = steps that are left · seconds per step, with the validations

The lines are kept in `log.csv`, in the folder of the run, and can be printed as they come. After a
resumed run the file has each step once, as if nothing had happened.

Used by `runs`, and so by the command line.
"""

import csv
import io
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch

from src.gpt import sampling
from src.gpt.gpt2 import GPT
from src.likelihood.fitting import History
from src.tokens.bytes import END, Tokenizer
from src.tools.files import write_text

_SHAPES = {  # of what a line says
    "step": "step {:,.0f}",
    "tokens": "{:,.0f} tokens",
    "train_loss": "train {:.4f}",
    "validation_loss": "validation {:.4f}",
    "bits_per_byte": "{:.3f} bits/byte",
    "learning_rate": "rate {:.2e}",
    "gradient_norm": "norm {:.2f}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "share_of_peak": "{:.1%} of peak",
}
COLUMNS = (*_SHAPES, "seconds_left")
Row = dict[str, float | None]


class RunLog:
    """Of a run of `engines.train`: it writes a row, and says a line, after each validation.

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
        # (step, tokens so far, seconds on the clock) after the last line, and after the last step.
        self._line: tuple[int, int, float] | None = None
        self._last = (0, 0, 0.0)

    def keep(self, step: int, history: History) -> None:
        """Look at the clock; after a validation, write its row and say its line."""
        now = (step, history.tokens, time.perf_counter())
        if step in history.validation:
            row = self._row(now, history)
            self._write(row, history)
            if self.say:
                self.say(line(row, self.steps))
                if self.sample:
                    self.say("    " + self.sample().replace("\n", "\n    "))
            now = (step, history.tokens, time.perf_counter())
        if step and (self._line is None or step in history.validation):
            self._line = now  # not before the first step, in which torch still loads parts
        self._last = now

    def _row(self, now: tuple[int, int, float], history: History) -> Row:
        """What is known after a validation, of the steps since the last one."""
        step = now[0]
        before = max((n for n in history.validation if n < step), default=0)
        losses, loss = history.losses[before:step], history.validation[step]
        speed = left = None
        if self._line is not None:
            steps, _, seconds = (b - a for a, b in zip(self._line, now, strict=True))
            left = (self.steps - step) * seconds / steps
            ended = self._last if self._last[0] > self._line[0] else now  # before the validation
            _, tokens, seconds = (b - a for a, b in zip(self._line, ended, strict=True))
            speed = tokens / seconds
        per_byte = self.tokens_per_byte
        return {
            "step": step,
            "tokens": history.tokens,
            "train_loss": sum(losses) / len(losses) if losses else None,
            "validation_loss": loss,
            "bits_per_byte": None if per_byte is None else loss / math.log(2) * per_byte,
            "learning_rate": self.rate(step) if step else None,
            "gradient_norm": history.norms[step - 1] if step else None,
            "tokens_per_second": speed,
            "share_of_peak": speed * self.flops_per_token / self.peak
            if speed and self.peak
            else None,
            "seconds_left": left,
        }

    def _write(self, row: Row, history: History) -> None:
        rows = {int(each["step"] or 0): each for each in (*read(self.path), row)}
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for step in sorted(rows.keys() & history.validation.keys()):
            writer.writerow(rows[step] | {"step": step, "tokens": int(rows[step]["tokens"] or 0)})
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
        try:
            return [
                {name: float(row[name]) if row[name] else None for name in COLUMNS}
                for row in csv.DictReader(file)
            ]
        except (KeyError, ValueError) as error:
            raise ValueError(f"expected a log of `train` in {path}, got {error!r}") from error


def line(row: Row, steps: int) -> str:
    """A row as a line for people; what is not known is left out."""
    said = [shape.format(row[name]) for name, shape in _SHAPES.items() if row[name] is not None]
    said[0] += f"/{steps:,}"
    if (left := row["seconds_left"]) is not None:
        minutes, seconds = divmod(round(left), 60)
        said.append(f"{minutes}:{seconds:02} left")
    return "  ".join(said)


def sample_of(model: GPT, tokenizer: Tokenizer, tokens: int) -> str:
    """A text that a model draws as it is now; of the same weights the same."""
    end = tokenizer.specials[END]
    own = torch.Generator().manual_seed(0)  # or a resumed run would draw otherwise
    (text,) = sampling.generate(model, [[end]], max_new_tokens=tokens, stop=end, generator=own)
    return tokenizer.decode([token for token in text.tolist() if token != end])
