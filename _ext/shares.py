"""How many chapters or tests run side by side: ``python _ext/shares.py`` prints it."""

import os
from pathlib import Path

import psutil

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


if __name__ == "__main__":
    print(workers(available_cores(), psutil.virtual_memory().available))
