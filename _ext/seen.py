"""``make test`` takes over what ``make book`` has executed, and the longest files come first.

A plugin of pytest, which `conftest.py` registers where one of its options is given.
``--take-over`` leaves out the chapters that the builder has executed as they are now, as strictly
(`verdict.py`); of these nbval runs a tenth once more, which the commit draws. ``--measure`` keeps
the seconds that each file took (`shares.py`).
"""

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest
from dependencies import RUNS_TESTS, digest, kept, state_of_chapter
from provenance import git
from shares import expected, keep

EXECUTED = Path("_build", "chapters.json")  # {chapter: its state}, by `make book`


def add_options(parser):
    group = parser.getgroup("seen")
    group.addoption("--take-over", action="store_true", help="leave out what was just executed")
    group.addoption("--measure", action="store_true", help="keep the seconds that each file takes")


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


def file_of(nodeid):
    return nodeid.split("::")[0]


class Seen:
    """One run, in the process that starts it or in one of its workers."""

    def __init__(self, config):
        self.config, self.root = config, config.rootpath
        self.left_out, self.seconds = set(), defaultdict(float)
        if hasattr(config, "workerinput"):
            self.left_out = set(config.workerinput["left_out"])
        elif config.option.take_over:
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

    def pytest_collection_modifyitems(self, items):
        """In several processes the longest files come first: else all would wait for the last."""
        if hasattr(self.config, "workerinput"):
            files = [file_of(item.nodeid) for item in items]
            shares = expected(set(files))
            items.sort(key=lambda item: (-shares[file_of(item.nodeid)], file_of(item.nodeid)))

    def pytest_runtest_logreport(self, report):
        self.seconds[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self):
        if self.config.option.measure and not hasattr(self.config, "workerinput"):
            keep(self.seconds, self.root)
