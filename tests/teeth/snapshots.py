"""Run a chapter once, statement by statement, and go back to any statement as often as one likes.

Before a statement the process forks, at most once in `GAP` seconds; the copy waits. Asked to, it
forks again, and that copy runs on from there with something changed. So a change late in a chapter
costs what follows it, and not the training run that stands before.
"""

import ast
import gc
import io
import linecache
import os
import random
import signal
import sys
import time
import types
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from multiprocessing import Pipe

from teeth import mutations, noise
from teeth.chapter import Reporting
from teeth.mutations import ASSERTED, NOISE, ROWS
from teeth.noise import UnchangedError

GAP = 0.2  # seconds of work between two snapshots
PATIENCE = 4.0  # how many times longer a changed run may take


class Snapshots:
    """The chapter's base run, and its snapshots: {statement: pipes of a waiting copy}."""

    def __init__(self, found, folder, *, seed_shift=0):
        self.found, self.namespace = found, {"__name__": "__main__"}
        self.outcomes, self.copies, self.failed = {}, {}, None
        self.running, self.reached = 0, {}  # {assertion: the statement that came to it first}
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        if seed_shift:
            shift_seeds(seed_shift)
        for name, value in ((NOISE, noise.noise), (ROWS, noise.rows)):
            setattr(sys.modules["builtins"], name, value)
        setattr(sys.modules["builtins"], ASSERTED, self._asserted)

    def _asserted(self, key, held):
        try:
            held = bool(held())
        except (UnchangedError, NameError):
            raise
        except KeyError:  # what it asks about bears another name now: no answer
            return
        except Exception:  # as with a tensor of another shape
            held = False
        self.reached.setdefault(key, self.running)
        self.outcomes[key] = self.outcomes.get(key, True) and held

    def run(self, *, keep=True, watch=True):
        """The base run; it stops at a statement that fails."""
        last = -GAP
        for number, each in enumerate(self.found):
            if keep and (number == 0 or time.monotonic() - last >= GAP):
                self._keep(number)
                last = time.monotonic()
            begun = time.process_time()
            error = self._execute(number, watch=watch)
            each.seconds = time.process_time() - begun
            if error and not each.must_raise:
                self.failed = f"{each.filename}: {error}"
                if keep:
                    return

    def _execute(self, number, tree=None, *, watch=False):
        """Run one statement; the error in words, or nothing."""
        each, self.running = self.found[number], number
        next_cell = number + 1 == len(self.found) or self.found[number + 1].cell != each.cell
        seen = each.called
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                code = each.code(tree)
                if watch:
                    sys.settrace(lambda frame, event, _: seen.setdefault(frame.f_code))
                try:
                    exec(code, self.namespace)
                finally:
                    sys.settrace(None)
            return None
        except UnchangedError as error:
            return f"Unchanged: {error}"
        except BaseException as error:  # SystemExit, too, ends a statement and not this program
            return f"{type(error).__name__}: {str(error)[:200]}"
        finally:
            if next_cell and "matplotlib.pyplot" in sys.modules:
                sys.modules["matplotlib.pyplot"].close("all")

    def _keep(self, number):
        ours, its = Pipe()
        if os.fork():
            its.close()
            self.copies[number] = ours
            return
        for each in (ours, *self.copies.values()):
            each.close()
        frozen.update(functions())
        gc.freeze()  # else a collection would copy all the memory that is shared
        with suppress(EOFError, OSError):  # until this end of the pipe is closed
            while True:
                its.send(self._forked(number, *its.recv()))
        os._exit(0)

    def _forked(self, number, changes, last, limit):
        """What `changed` returns, from a copy of this copy, which is stopped at the limit."""

        def run():
            signal.setitimer(signal.ITIMER_PROF, limit)
            signal.setitimer(signal.ITIMER_REAL, 20 * limit)  # should it wait for ever
            self.outcomes = {}
            try:
                self._changed_run(number, changes, last)
            except UnchangedError:
                return {}
            return self.outcomes

        outcomes, seconds = in_a_copy(run)
        return outcomes or {}, seconds

    def _changed_run(self, start, changes, last):
        """Run on after an error, too, past whatever reads a name that it left unset."""
        trees, spoilt = {}, set()
        for number, mutation, _ in (each for each in changes if each[2] is None):
            trees[number] = mutations.mutated(self.found[number].tree, mutation)
        for number in range(start, last + 1):
            for _, mutation, function in (c for c in changes if c[0] == number and c[2]):
                replace_code(function, mutation)
            each = self.found[number]
            if spoilt & each.reads:
                spoilt |= each.sets
                continue
            error = self._execute(number, trees.get(number))
            if error and error.startswith("Unchanged"):
                return
            if error and not each.must_raise:
                spoilt |= each.sets

    def changed(self, changes, last, *, start=None):
        """({assertion: whether it held}, processor seconds) of a run with changes, up to `last`.

        Args:
            changes: (number of the statement from which it holds, Mutation, function) each; the
                function is a place of code as `code_place` says, or None for the statement itself.
            start: the statement from whose snapshot to run; that of the first change unless told.
        """
        first = min((number for number, *_ in changes), default=start)
        start = max(number for number in self.copies if number <= first)
        cost = sum(each.seconds for each in self.found[start : last + 1])
        self.copies[start].send((changes, last, PATIENCE * cost + 2))
        return self.copies[start].recv()

    def close(self):
        for each in self.copies.values():
            each.close()


def in_a_copy(function):
    """(what a function returns in a copy of this process, or None, seconds of the processor)."""
    reading, writing = Pipe(duplex=False)
    child = os.fork()
    if not child:
        os.setpgrp()
        try:
            writing.send(function())
        finally:
            os._exit(0)
    writing.close()
    try:
        result = reading.recv()
    except (EOFError, OSError):  # it was stopped
        result = None
    reading.close()
    with suppress(OSError):
        os.killpg(child, signal.SIGKILL)  # what it has started and left behind
    _, _, usage = os.wait4(child, 0)
    return result, usage.ru_utime + usage.ru_stime


# ---- functions of `src`, changed where they stand ---------------------------------------------


def code_place(code):
    """What finds a function's code again in another process: its file, name and first line."""
    return code.co_filename, code.co_qualname, code.co_firstlineno


def codes_in(code):
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from codes_in(each)


@cache
def parsed(filename):
    """The tree of a file, or of a cell, whose assertions report."""
    tree = ast.parse("".join(linecache.getlines(filename)))
    cell = filename.rpartition(".md:")[2]
    return ast.fix_missing_locations(Reporting(int(cell)).visit(tree)) if cell.isdigit() else tree


def function_tree(place):
    """(the file's tree, the function's tree in it), or None for what is no `def`."""
    tree = parsed(place[0])
    name = place[1].split(".")[-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first == place[2]:
                return tree, node
    return None


def replace_code(place, mutation):
    """Give every function object that runs this code the changed code in its stead."""
    tree, function = function_tree(place)
    changed = mutations.mutated(function, mutation)
    tree = mutations.Replaced(function, changed).visit(tree)
    code = compile(ast.fix_missing_locations(tree), place[0], "exec")
    found = [each for each in codes_in(code) if code_place(each) == place]
    for each in frozen.get(place, []) + functions().get(place, []):
        if each.__code__.co_freevars != found[0].co_freevars:  # as without a call of super()
            raise UnchangedError(place[1])
        each.__code__ = found[0]


frozen = {}  # what `functions` found before this copy was made: the collector sees it no longer


def functions():
    """{place of code: the functions that run it}, of `src` and of the chapter."""
    known = {}
    for each in gc.get_objects():
        if type(each) is types.FunctionType and is_ours(each.__code__):
            known.setdefault(code_place(each.__code__), []).append(each)
    return known


def is_ours(code):
    return "/src/" in code.co_filename or ".md:" in code.co_filename


# ---- seeds ---------------------------------------------------------------------------------------


def shift_seeds(offset):
    """Let whatever is seeded with n be seeded with n + offset, from here on, in this process."""
    import numpy as np
    import torch

    class Generator(torch.Generator):
        def manual_seed(self, seed):
            return super().manual_seed(seed + offset)

    class Random(random.Random):
        def seed(self, a=None, version=2):
            super().seed(a + offset if isinstance(a, int) else a, version)

    manual_seed, default_rng = torch.manual_seed, np.random.default_rng

    def shifted(seed=None):
        if isinstance(seed, list | tuple):
            return default_rng([*seed, offset])
        return default_rng(seed + offset if isinstance(seed, int) else seed)

    torch.Generator, random.Random = Generator, Random
    torch.manual_seed = lambda seed: manual_seed(seed + offset)
    np.random.default_rng = shifted
