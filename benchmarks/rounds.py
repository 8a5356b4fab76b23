"""What the benchmarks share: time in turns, keep only ratios, record medians and quartiles.

In each round everybody does the same work, one after another, so that a busy machine slows all of
them; the ratio of one round is all that is kept of it.
"""

import platform
import re
import statistics
import time
from datetime import date
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"


def seconds(function, *arguments):
    """What a function returns, and how long it took."""
    started = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - started


def processor():
    """The name of the processor, as far as the system tells it."""
    try:
        return re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())[1]
    except (OSError, TypeError):
        return platform.processor() or platform.machine()


def rows(rounds, targets):
    """A Markdown row and a verdict for each measure: `name: (comparison, target)`.

    Args:
        rounds: a list of {name: ratio}.
        targets: name -> ("≥" or "≤", what the issue asks of the median).
    Returns:
        The lines of a table, and the names of the measures that missed.
    """
    lines, missed = ["| | median | quartiles | asked |", "|:---|---:|---:|---:|"], []
    for name, (sign, target) in targets.items():
        ratios = [one[name] for one in rounds if name in one]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        lines.append(f"| {name} | {middle:,.3g} | {low:,.3g} – {high:,.3g} | {sign} {target:,} |")
        if (middle < target) if sign == "≥" else (middle > target):
            missed.append(name)
    return lines, missed


def machine():
    """Where and when, as one line of a record."""
    return f"Python {platform.python_version()}, {processor()}, one thread each, {date.today()}"


def record(name, lines):
    """Print a record and keep it under results/."""
    text = "\n".join([*lines, ""])
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
