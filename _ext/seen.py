"""What a green run has seen: ``make test`` remembers it, ``make test-changed`` runs the rest.

A plugin of pytest, which `conftest.py` registers where one of its options is given. What it
remembers are files: a chapter, or a module of tests, and the state in which all in it passed
(`dependencies.py`). ``--seen=all`` runs everything but chapters that `make book` has executed in
this state, as strictly (`verdict.py`); of these nbval runs a tenth once more, which the commit
draws. ``--seen=changed`` runs what has not passed in the state in which it is now. ``--measure``
keeps the seconds that each file took (`shares.py`).
"""

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest
from dependencies import RUNS_TESTS, digest, files_in, kept, state_of_chapter, state_of_test
from provenance import git
from shares import expected, foretold, keep, together

EXECUTED = Path("_build", "chapters.json")  # {chapter: its state}, by `make book`
PASSED = Path("_build", "passed.json")
RUN = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)  # to the end


def add_options(parser):
    group = parser.getgroup("seen")
    group.addoption("--seen", choices=("all", "changed"), help="remember what passed, run the rest")
    group.addoption("--measure", action="store_true", help="keep the seconds that each file takes")


def states_of(places, root):
    """{path from the root: state} of all chapters and modules of tests below some places."""
    states = {}
    for path in sorted(each for place in places for each in files_in(place)):
        name = path.relative_to(root).as_posix()
        if path.suffix == ".md" and "{code-cell}" in path.read_text(encoding="utf-8"):
            states[name] = state_of_chapter(path, root, *(root / each for each in RUNS_TESTS))
        elif path.suffix == ".py" and path.name.startswith("test_"):
            states[name] = state_of_test(path, root)
    return states


def executed(paths, root):
    """Remember that the builder has executed these chapters, and found no fault."""
    found = kept(root / EXECUTED) | states_of(paths, root)
    (root / EXECUTED).parent.mkdir(exist_ok=True)
    (root / EXECUTED).write_text(json.dumps(found), encoding="utf-8")


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
        self.passed, self.states, self.left_out, self.by_builder = {}, {}, set(), set()
        self.seconds, self.failed = defaultdict(float), set()
        if hasattr(config, "workerinput"):
            self.left_out = set(config.workerinput["left_out"])
        elif config.option.seen:
            places = [config.invocation_params.dir / each for each in config.args]
            self.states = states_of(places, self.root)
            self.passed = kept(self.root / PASSED)
            same = self.states.items() & kept(self.root / EXECUTED).items()
            self.by_builder = {name for name, _ in same}
            self.again = drawn(self.by_builder, self.root)
            self.left_out = self.by_builder - set(self.again)
            if config.option.seen == "changed":
                same = {name for name, _ in self.states.items() & self.passed.items()}
                self.left_out = self.by_builder | same

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node):
        node.workerinput["left_out"] = sorted(self.left_out)

    def pytest_report_header(self):
        left, workers = self.states.keys() - self.left_out, self.config.getoption("numprocesses", 1)
        duration = foretold(together(expected(left), workers or 1))
        lines = [f"files: {len(left)} of {len(self.states)}, {duration}"] if self.states else []
        if taken := self.by_builder & self.left_out:
            lines.append(f"{len(taken)} chapters were executed by `make book`, unchanged since")
        return lines

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
        if report.failed:
            self.failed.add(file_of(report.nodeid))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.left_out:
            session.exitstatus = pytest.ExitCode.OK
        partly = self.config.option.keyword or self.config.option.maxfail
        if hasattr(self.config, "workerinput") or partly or exitstatus not in RUN:
            return
        self.passed |= {name: self.states[name] for name in self.by_builder}
        for name in self.seconds.keys() & self.states.keys():
            self.passed.pop(name, None)
            if name not in self.failed:
                self.passed[name] = self.states[name]
        if self.config.option.seen:
            (self.root / PASSED).parent.mkdir(exist_ok=True)
            (self.root / PASSED).write_text(json.dumps(self.passed), encoding="utf-8")
        if self.config.option.measure:
            keep(self.seconds, self.root)
