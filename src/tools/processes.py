"""How does a notebook run one function in several processes?

    answers = in_processes(2, work, seed=0)

starts two fresh Pythons with torchrun, joins them (`tools/parallel`), runs `work(team, seed=0)` in
each, and collects what they return. A fresh Python knows nothing of the notebook, so the *text* of
the function is sent: it has to bring its own imports, as a program does.

Used from the chapter `gpt/many_cores` on.
"""

import inspect
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_PROGRAM = """
import torch
from src.tools.parallel import joined

{source}

with joined() as team:
    arguments = torch.load("arguments.pt", weights_only=True)
    torch.save({name}(team, **arguments), f"answer-{{team.rank}}.pt")
"""


def in_processes(
    processes: int, work: Callable[..., Any], *, seconds: float = 300, **arguments: Any
) -> list[Any]:
    """What `work(team, **arguments)` returns in each of several processes, in order of rank.

    The processes run on the CPU, with one thread each, and talk over gloo.

    Args:
        processes: how many.
        work: a function written with `def`, in a file or in a notebook's cell. Names from outside,
            imports among them, are unknown to it.
        seconds: after that time the processes are stopped.
        arguments: plain values and tensors; so are the answers.
    Raises:
        RuntimeError: a process failed; the message ends with its traceback.
        subprocess.TimeoutExpired: they did not end in time, perhaps because one waits for another.
    """
    program = _PROGRAM.format(source=textwrap.dedent(inspect.getsource(work)), name=work.__name__)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={processes}", "program.py"]
    surroundings = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "NEXT_TOKEN_DEVICE": "cpu",
        "OMP_NUM_THREADS": "1",
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(program, encoding="utf-8")
        torch.save(arguments, folder / "arguments.pt")
        torchrun = subprocess.Popen(
            command, cwd=folder, env=surroundings, stderr=subprocess.PIPE, text=True
        )
        try:
            said = torchrun.communicate(timeout=seconds)[1]
        finally:
            torchrun.terminate()  # upon which it stops its processes; no effect if it has ended
            torchrun.communicate()
        if torchrun.returncode:
            raise RuntimeError(f"of {processes} processes one failed:\n{_first_error(said)}")
        answers = (folder / f"answer-{rank}.pt" for rank in range(processes))
        return [torch.load(answer, weights_only=True) for answer in answers]


def _first_error(said: str) -> str:
    """The first traceback, which is that of the process; torchrun's own comes after."""
    return "\n".join(said[max(said.find("Traceback"), 0) :].splitlines()[:30])
