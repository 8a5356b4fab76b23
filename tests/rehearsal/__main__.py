"""Would the book run on a GPU?  ``make rehearse``, or ``python -m rehearsal chapter …``.

Each chapter that asks for a device runs on a rehearsed one, which refuses what a GPU refuses
(`device.py`), and so do the tests of the commands. Training runs are shortened, to REHEARSED_STEPS
steps: 5, unless told. Errors count, and so do assertions that fail. After a shortened run a failing
assertion is only listed; so is an error that the chapter, shortened alike, raises on the CPU, too.

What a rehearsal cannot see: the rounding of a GPU's kernels, their order and their speed; memory
that runs out; work that goes on while Python is ahead (errors told late, times that do not wait);
cuDNN's own rules; several devices; what `torch.compile` makes; programs that a test starts; a
gradient on the CPU that is given to `backward`; and chapters that never ask for a device.
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from chapters import ROOT, choose
from dependencies import code_of, imported

from rehearsal.chapter import Found, rehearse

STEPS = 5
FRESH = get_context("forkserver")  # copies of a process that has imported torch, and no more
FRESH.set_forkserver_preload(["torch", "rehearsal.chapter"])
DEVICE, COMMANDS = "runtime.device", "__main__.main"  # what asks for a device


def imports(code, name):
    return any(each.endswith(name) for each in imported(code))


def tests(root):
    """The tests that run commands."""
    files = sorted((root / "tests").glob("test_*.py"))
    return [path for path in files if imports(path.read_text(encoding="utf-8"), COMMANDS)]


def in_a_process(path, root, steps, **options):
    try:
        with ProcessPoolExecutor(1, mp_context=FRESH) as pool:
            return pool.submit(rehearse, path, root, steps, **options).result()
    except BrokenProcessPool:
        return Found(errors=[f"{path}: its process died"])


def rehearsed(path, root, steps):
    """What a chapter shows on the device, compared with the CPU where a run was shortened."""
    found = in_a_process(path, root, steps)
    if found.shortened and (found.errors or found.unjudged):
        plain = in_a_process(path, root, steps, on_device=False)
        both = [error for error in found.errors if error in plain.errors]
        found.errors = [error for error in found.errors if error not in both]
        only = [fault for fault in found.unjudged if fault not in plain.unjudged]
        found.unjudged = both + [
            f"{f} (not on the CPU)" if f in only else f for f in found.unjudged
        ]
    return found


def told(name, found):
    """The lines that are printed of a chapter."""
    faults = [*found.errors, *(f"fails: {fault}" for fault in found.failed)]
    words = [f"{len(faults)} faults" if faults else "whole", f"{found.seconds:.0f} s"]
    if found.shortened:
        words += ["training shortened", f"{len(found.unjudged)} not judged"]
    lines = [f"{name}: {', '.join(words)}", *faults]
    return [*lines, *(f"not judged: {fault}" for fault in found.unjudged)]


def main(arguments=None, root=ROOT):
    parser = argparse.ArgumentParser(description="Run what asks for a device on a rehearsed one.")
    parser.add_argument("chapters", nargs="*", help="path or name; these, and no tests")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    steps = int(os.environ.get("REHEARSED_STEPS", STEPS))
    chosen = [path for path in choose(options.chapters, root) if imports(code_of(path), DEVICE)]
    faulty = 0
    with ThreadPoolExecutor(options.workers) as pool:
        everything = pool.map(lambda path: (path, rehearsed(path, root, steps)), chosen)
        for path, found in everything:
            name = Path(path).relative_to(root).as_posix()
            print("\n  ".join(told(name, found)), flush=True)
            faulty += bool(found.errors or found.failed)
    print(f"{len(chosen) - faulty} of {len(chosen)} chapters whole", flush=True)
    if not options.chapters:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "rehearsal.plugin", *tests(root)]
        faulty += subprocess.run(command, cwd=root).returncode != 0
    return min(faulty, 1)


if __name__ == "__main__":
    sys.exit(main())
