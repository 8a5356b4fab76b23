"""What an experiment has computed: each result once for its settings and its code.

A result is looked up by the function that makes it, its arguments, all settings of the experiment,
and a hash of the code: the experiment's own file, the modules that this imports (at any remove),
the data that it reads, and the environment (`_ext/dependencies.py`). If a constant, a module or a
package has changed, nothing is found, and the result is computed anew. So is one whose file was
cut.

Each result is a file of its own, which appears whole or not at all. Two processes may work side by
side: at worst both compute the same.
"""

import json
import secrets
import time
from concurrent.futures import ProcessPoolExecutor
from copy import copy
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context

import torch

from _ext.dependencies import ROOT, digest, files_in, hashed, state_of_experiment
from src.tools import checkpoints
from src.tools.files import replacing


class Cells:
    """The results of one experiment with certain settings.

    Work is a function of a module, called as `work(cells, **arguments)`. Its arguments are plain
    values, which JSON can hold. It may ask for other results, by the `cells` that it is given.

    Args:
        path: the file of the experiment.
        settings: a dataclass; work reads it as `cells.settings`.
        home: the folder of the results.
        jobs: how many processes `all` may use.
    """

    def __init__(self, path, settings, home, *, jobs=1, root=ROOT):
        self.path, self.settings, self.home, self.root = path, settings, home, root
        self.jobs = jobs
        self.state = state_of_experiment(path, root)
        self.taken = {}  # seconds of each result that was asked for
        self.inside = 0.0  # seconds of all that this process computed
        home.mkdir(parents=True, exist_ok=True)

    def __call__(self, work, **arguments):
        """What some work found: plain values and tensors."""
        return self._found(work, arguments, partial(work, self, **arguments))

    def folder(self, work, **arguments):
        """A folder that some work filled, called as `work(cells, folder, **arguments)`."""

        def fill():
            folder = self.home / f"{self.name(work, arguments)}-{secrets.token_hex(4)}"
            folder.mkdir()
            work(self, folder, **arguments)
            return {"folder": folder.name, "content": content(folder)}

        def is_whole(found):
            return content(self.home / found["folder"]) == found["content"]

        return self.home / self._found(work, arguments, fill, is_whole)["folder"]

    def all(self, work, several):
        """What some work found with each of several sets of arguments, side by side."""
        several = list(several)
        missing = [each for each in several if self._kept(self.name(work, each)) is None]
        if self.jobs > 1 and len(missing) > 1:
            alone, context = copy(self), get_context("spawn")
            alone.jobs = 1  # a process of several has none of its own
            with ProcessPoolExecutor(self.jobs, context, initializer=one_thread) as pool:
                for future in [pool.submit(alone, work, **each) for each in missing]:
                    future.result()
        return [self(work, **each) for each in several]

    @property
    def seconds(self):
        """What all results took that were asked for, whenever they were computed."""
        return sum(self.taken.values())

    def name(self, work, arguments):
        """The name of a result: of the work, and a key of all that it depends on."""
        asked = [work.__module__, work.__qualname__, asdict(self.settings), arguments]
        text = json.dumps(asked, sort_keys=True)
        return f"{work.__name__}-{digest(self.state, text)}"

    def _found(self, work, arguments, compute, is_whole=lambda found: True):
        name = self.name(work, arguments)
        kept = self._kept(name)
        if kept is None or not is_whole(kept["found"]):
            kept = self._computed(compute)
            if state_of_experiment(self.path, self.root) != self.state:
                raise RuntimeError(
                    f"expected the code of {self.path.name} to stay as it was while it runs, and "
                    "it has changed: begin again"
                )
            kept["taken"][name] = kept.pop("seconds")
            self._keep(name, kept)
            told = ", ".join(f"{key} {value}" for key, value in arguments.items())
            print(f"{kept['taken'][name]:7.1f} s  {work.__name__} {told}"[:100], flush=True)
        self.taken |= kept["taken"]
        return kept["found"]

    def _computed(self, compute):
        """What is found, its own seconds, and those of all results that it asked for."""
        outer, self.taken = self.taken, {}
        before, begun = self.inside, time.process_time()
        found = compute()
        seconds = time.process_time() - begun
        own, self.inside = seconds - (self.inside - before), before + seconds
        taken, self.taken = self.taken, outer
        return {"found": found, "taken": taken, "seconds": own}

    def _kept(self, name):
        """What is kept under a name; None if there is nothing, or nothing whole."""
        try:
            return checkpoints.read(self._file(name))
        except (FileNotFoundError, ValueError):
            return None

    def _keep(self, name, kept):
        try:
            with replacing(self._file(name)) as partial_file:
                torch.save(kept, partial_file)
        except PermissionError:  # on Windows, if another process reads what it has kept meanwhile
            if self._kept(name) is None:
                raise

    def _file(self, name):
        return self.home / f"{name}.pt"


def content(folder):
    """A text that stands for all files in a folder."""
    return digest(*hashed(sorted(files_in(folder)), folder)) if folder.is_dir() else None


def one_thread():
    torch.set_num_threads(1)
