"""How many work side by side, and what takes longest: ``python _ext/shares.py`` prints the first.

`seconds.json` keeps the seconds that each chapter and each module of tests took on a quiet machine.
``pytest --nbval --measure book tests`` writes the file; given some of these, it renews theirs only.
"""

import json
import os
from pathlib import Path
from statistics import median

import psutil

KEPT = Path(__file__).with_name("seconds.json")
MEMORY = 4 * 2**30  # bytes that a chapter may take
MOST = 8  # workers: with more, all would wait for the longest chapter


def workers(cores, memory):
    """As many as there are cores for, and memory; at least one."""
    return max(1, min(cores, round(memory / MEMORY), MOST))


def available_cores(limit=Path("/sys/fs/cgroup/cpu.max")):
    """The cores on which this process may run; a container may be given fewer than there are."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        cores = os.cpu_count() or 1
    try:
        quota, period = limit.read_text(encoding="ascii").split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no container, or "max"
        return cores


def seconds(kept=KEPT):
    """{path of a chapter or a module of tests, from the root: the seconds that it took}."""
    return json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}


def keep(measured, root, kept=KEPT):
    """Renew the seconds of some files, and forget files that are gone."""
    found = sorted((seconds(kept) | measured).items())
    rounded = {name: round(taken, 1) for name, taken in found if (root / name).exists()}
    kept.write_text(json.dumps(rounded, indent=0) + "\n", encoding="utf-8")


def expected(names):
    """{name: seconds}: measured, or the median of what was."""
    kept = seconds()
    usual = median(kept.values()) if kept else 10.0
    return {name: kept.get(name, usual) for name in names}


if __name__ == "__main__":
    print(workers(available_cores(), psutil.virtual_memory().available))
