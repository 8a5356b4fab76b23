"""What a record was made with: commit, versions, processor, threads, date.

Records of `experiments` hold it as data, those of `benchmarks` as their last line.
"""

import platform
import re
import subprocess
from datetime import date
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUMBERS = {"family": "cpu family", "model": "model"}
FLAGS = ["avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve"]


def provenance(command, root=ROOT):
    """What a record that a command makes now is made with.

    The tree is clean if all files are as in the commit; those of `results` do not count, which the
    command writes. Without git both are None.
    """
    import torch

    name, abilities = processor()
    changed = git(root, "status", "--porcelain", "--", ".", ":(exclude)results")
    return {
        "command": command,
        "commit": git(root, "rev-parse", "HEAD"),
        "clean": None if changed is None else not changed,
        "python": platform.python_version(),
        "torch": version("torch"),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": name,
        "flags": abilities,
        "threads": torch.get_num_threads(),
        "date": str(date.today()),
    }


def told(made):
    """The same as one line."""
    commit = "no commit"
    if made["commit"] is not None:
        commit = f"commit {made['commit'][:12]}{'' if made['clean'] else '+'}"
    threads = "one thread" if made["threads"] == 1 else f"{made['threads']} threads"
    return (
        f"Python {made['python']}, torch {made['torch']}, {commit}, "
        f"{made['processor']} ({made['flags']}), {threads} each, {made['date']}"
    )


def git(root, *arguments):
    """What git says; None where there is no git, or no repository."""
    try:
        said = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip()


def processor():
    """(name, abilities) of the processor, as far as the system tells.

    Abilities tell those of one name apart: family, model, and the instructions that count.
    """
    try:
        about = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine(), platform.machine()
    said = dict(re.findall(r"^([\w ]+?)\s*:\s*(.*)$", about, re.MULTILINE))
    has = set(said.get("flags", said.get("Features", "")).split())
    numbers = [f"{name} {said[key]}" for name, key in NUMBERS.items() if key in said]
    name = said.get("model name") or platform.processor() or platform.machine()
    return name, " ".join([*numbers, *(flag for flag in FLAGS if flag in has)])
