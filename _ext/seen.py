"""``make test`` takes over what ``make book`` has executed.

A plugin of pytest, which `conftest.py` registers where ``--take-over`` is given. It leaves out the
chapters that the builder has executed as they are now, as strictly (`verdict.py`); of these nbval
runs a tenth once more, which the commit draws.
"""

import json
import math
from pathlib import Path

import pytest
from dependencies import RUNS_TESTS, digest, kept, state_of_chapter
from provenance import git

EXECUTED = Path("_build", "chapters.json")  # {chapter: its state}, by `make book`


def states_of(paths, root):
    """{path from the root: state} of chapters."""
    settings = [root / name for name in RUNS_TESTS]
    return {
        path.relative_to(root).as_posix(): state_of_chapter(path, root, *settings)
        for path in paths
        if path.is_file()
    }


def executed(paths, root):
    """Remember that the builder has executed these chapters, and found no fault."""
    found = kept(root / EXECUTED) | states_of(paths, root)
    (root / EXECUTED).parent.mkdir(exist_ok=True)
    (root / EXECUTED).write_text(json.dumps(found), encoding="utf-8")


def unchanged(root):
    """The chapters that are as they were when the builder executed them."""
    found = kept(root / EXECUTED)
    return {name for name, _ in found.items() & states_of([root / n for n in found], root).items()}


def drawn(names, root, share=10):
    """One in `share` of these, others for each commit."""
    commit = git(root, "rev-parse", "HEAD") or ""
    return sorted(names, key=lambda name: digest(commit, name))[: math.ceil(len(names) / share)]


class Seen:
    """One run, in the process that starts it or in one of its workers."""

    def __init__(self, config):
        self.root = config.rootpath
        if hasattr(config, "workerinput"):
            self.left_out = set(config.workerinput["left_out"])
        else:
            found = unchanged(self.root)
            self.left_out = found - set(drawn(found, self.root))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node):
        node.workerinput["left_out"] = sorted(self.left_out)

    def pytest_report_header(self):
        return f"{len(self.left_out)} chapters were executed by `make book`"

    def pytest_ignore_collect(self, collection_path):
        left_out = any(collection_path == self.root / name for name in self.left_out)
        return True if left_out else None  # None leaves it to others
