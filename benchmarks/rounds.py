"""What the benchmarks share: time in turns, keep only ratios, record medians and quartiles.

In each round everybody does the same work, one after another, so that a busy machine slows all of
them; the ratio of one round is all that is kept of it.
"""

import platform
import random
import re
import statistics
import subprocess
import sys
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"


def seconds(function, *arguments, clock=time.perf_counter):
    """What a function returns, and how long it took."""
    started = clock()
    result = function(*arguments)
    return result, clock() - started


def in_turns(functions, *arguments, clock=time.perf_counter):
    """What each of {name: function} returns and how long it took, two dictionaries.

    They take their turns in an order drawn at random.
    """
    results, taken = {}, {}
    for name in random.sample(list(functions), len(functions)):
        results[name], taken[name] = seconds(functions[name], *arguments, clock=clock)
    return results, taken


def processor():
    """The name of the processor, as far as the system tells it."""
    try:
        return re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())[1]
    except (OSError, TypeError):
        return platform.processor() or platform.machine()


def abilities():
    """What tells processors of one name apart: family, model, and the instructions that count."""
    try:
        about = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    told = dict(re.findall(r"^(cpu family|model|flags|Features)\s*:\s*(.*)$", about, re.MULTILINE))
    has = set(told.get("flags", told.get("Features", "")).split())
    numbers = [f"{name} {told[key]}" for name, key in _NUMBERS.items() if key in told]
    return " ".join([*numbers, *(name for name in _INSTRUCTIONS if name in has)])


_NUMBERS = {"family": "cpu family", "model": "model"}
_INSTRUCTIONS = ["avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve"]


def commit():
    """Which state of the repository this is; `+` after it: with changes."""
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            cwd=RESULTS.parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "no commit"
    return f"commit {said.stdout.strip()}"


def rows(rounds, targets):
    """The table of a record, and the names of the measures whose median misses what is asked.

    Args:
        rounds: a list of {name: ratio}; a measure may be missing from some of them.
        targets: name -> ("≥" or "≤", what is asked of the median), or None: only recorded.
    """
    lines, missed = ["| | median | quartiles | asked |", "|:---|---:|---:|---:|"], []
    for name, target in targets.items():
        ratios = [one[name] for one in rounds if name in one]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        digits = ".2f" if middle < 10 else ",.0f"
        shown = [format(ratio, digits) for ratio in (middle, low, high)]
        asked = "–" if target is None else f"{target[0]} {target[1]:,}"
        if target and (middle < target[1] if target[0] == "≥" else middle > target[1]):
            missed.append(name)
            asked += ", **missed**"
        lines.append(f"| {name} | {shown[0]} | {shown[1]} – {shown[2]} | {asked} |")
    return lines, missed


def machine():
    """Where, when, and with what, as one line of a record."""
    made_of = f"Python {platform.python_version()}, torch {version('torch')}, {commit()}"
    return f"{made_of}, {processor()} ({abilities()}), one thread each, {date.today()}"


def record(name, lines):
    """Print a record and keep it under results/."""
    text = "\n".join([*lines, ""])
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")


def finish(name, introduction, rounds, targets, notes, missed=()):
    """Record a comparison: introduction, table, notes. Exit, with 1 if anything was missed."""
    lines, slow = rows(rounds, targets)
    record(name, [*introduction, "", *lines, "", *notes, f"- {machine()}"])
    missed = [*missed, *slow]
    sys.exit(f"missed: {missed}" if missed else 0)
