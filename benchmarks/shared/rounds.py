"""What the benchmarks share: time in turns, keep only ratios, record medians and quartiles.

In each round everybody does the same work, one after another, so that a busy machine slows all of
them; the ratio of one round is all that is kept of it.
"""

import random
import statistics
import sys
import time

from _ext.provenance import ROOT, provenance, told

RESULTS = ROOT / "results" / "benchmarks"


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


def record(name, lines):
    """Print a record, what it was made with as its last line, and keep it."""
    text = "\n".join([*lines, f"- {told(provenance('make bench'))}", ""])
    print(text)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")


def finish(name, introduction, rounds, targets, notes, missed=()):
    """Record a comparison: introduction, table, notes. Exit, with 1 if anything was missed."""
    lines, slow = rows(rounds, targets)
    record(name, [*introduction, "", *lines, "", *notes])
    missed = [*missed, *slow]
    sys.exit(f"missed: {missed}" if missed else 0)
