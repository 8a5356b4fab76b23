"""`make test-changed` runs what no green run has seen as it is now, and nothing else."""

import re
from types import SimpleNamespace

import pytest
import shares
from seen import Seen, drawn, executed, states_of
from test_execute import edit, write
from test_nbval import HEADER, make_book, run_pytest

CHAPTER = """
```{code-cell} ipython3
import sys
sys.path.insert(0, "../..")
from src.one import VALUE
assert VALUE > 0
```
"""
FILES = {
    "README.md": "Read me.\n",
    "src/__init__.py": "",
    "src/one.py": "VALUE = 1\n",
    "src/two.py": "VALUE = 2\n",
    "tests/helper.py": "from src.two import VALUE\n",
    "tests/place.py": "from pathlib import Path\n\nROOT = Path(__file__).parents[1]\n",
    "tests/test_one.py": "from src.one import VALUE\n\n\ndef test():\n    assert VALUE == 1\n",
    "tests/test_two.py": "from helper import VALUE\n\n\ndef test():\n    assert VALUE == 2\n",
    "tests/test_anywhere.py": "from place import ROOT\n\n\ndef test():\n"
    '    assert any(ROOT.glob("READ*"))\n',
    "tests/test_program.py": "import subprocess, sys\n\n\ndef test():\n"
    '    subprocess.run([sys.executable, "-c", "import src.two"], check=True)\n',
}


@pytest.fixture
def project(tmp_path):
    make_book(tmp_path, {"chapter": HEADER + CHAPTER})
    for name, text in FILES.items():
        write(tmp_path / name, text)
    return tmp_path


def states(project):
    found = states_of([project / "book", project / "tests"], project)
    return {short(name): state for name, state in found.items()}


def short(name):
    return re.sub(r".*/(test_)?|\..*", "", name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("src/one.py", {"one", "chapter"}),
        ("src/two.py", {"two", "program"}),
        ("tests/helper.py", {"two"}),
        ("tests/test_one.py", {"one"}),
        ("README.md", set()),
        ("book/part/chapter.md", set()),  # a chapter's prose
        ("conftest.py", {"chapter", "one", "two", "program"}),
    ],
)
def test_an_edit_changes_the_state_of_what_may_see_it(project, name, expected):
    before = states(project)
    path = project / name
    path.write_text(path.read_text(encoding="utf-8") + "\n# more\n", encoding="utf-8")
    changed = {name for name, state in states(project).items() if state != before[name]}
    assert changed == expected | {"anywhere"}


def run_of(project, which, failing=(), **more):
    """Names of what a run takes; what is remembered of it is what is remembered of a real one."""
    config = SimpleNamespace(rootpath=project, args=["book", "tests"])
    config.invocation_params = SimpleNamespace(dir=project)
    config.option = SimpleNamespace(
        seen=which, measure=False, **{"keyword": "", "maxfail": 0} | more
    )
    seen = Seen(config)
    taken = [name for name in seen.states if not seen.pytest_ignore_collect(project / name)]
    for name in taken:
        failed = short(name) in failing
        report = SimpleNamespace(nodeid=f"{name}::test", duration=1.0, failed=failed)
        seen.pytest_runtest_logreport(report)
    seen.pytest_sessionfinish(SimpleNamespace(), pytest.ExitCode.TESTS_FAILED)
    return {short(name) for name in taken}


def test_what_has_passed_is_run_again_only_after_a_change(project):
    every = set(states(project))
    assert run_of(project, "changed") == every
    assert run_of(project, "changed") == set()
    assert run_of(project, "all") == every
    edit(project / "src/one.py", "1", "-1")
    changed = {"one", "chapter", "anywhere"}
    assert run_of(project, "changed", failing={"one", "chapter"}) == changed
    assert run_of(project, "changed", failing={"one"}) == {"one", "chapter"}
    assert run_of(project, "changed") == {"one"}
    edit(project / "src/one.py", "-1", "1")
    assert run_of(project, "changed") == changed
    assert run_of(project, "changed") == set()


@pytest.mark.parametrize("part", [{"keyword": "other"}, {"maxfail": 1}])
def test_a_run_of_a_part_is_not_remembered(project, part):
    every = set(states(project))
    assert run_of(project, "all", **part) == run_of(project, "changed") == every


def test_what_the_builder_has_executed_is_taken_over_until_it_changes(project):
    chapter = project / "book/part/chapter.md"
    others = [chapter.with_stem(f"other{i}") for i in range(11)]
    for other in others:
        write(other, chapter.read_text(encoding="utf-8"))
    every = set(states(project))
    executed([chapter, *others], project)
    again = run_of(project, "all") & {"chapter", *(path.stem for path in others)}
    assert len(again) == 2  # a tenth of twelve, and no less
    assert run_of(project, "changed") == set()
    edit(project / "src/one.py", "1", "3")  # which all of them import
    assert run_of(project, "all") == every


def test_each_commit_draws_another_tenth(monkeypatch, tmp_path):
    tenths = []
    for commit in ("a", "b", None):
        monkeypatch.setattr("seen.git", lambda *a, commit=commit: commit)
        tenths.append(drawn([f"chapter {i}" for i in range(50)], tmp_path))
    assert [len(tenth) for tenth in tenths] == [5, 5, 5]
    assert tenths[0] != tenths[1]


def run(project, *options):
    """{module or chapter: whether it passed} of those that were run, and the run."""
    done = run_pytest(project, *options, "-rA", "--nbval", "book", "tests")
    lines = re.findall(r"^(PASSED|FAILED) (\S+?)::", done.stdout, re.MULTILINE)
    return {short(name): outcome == "PASSED" for outcome, name in lines}, done


@pytest.mark.weekly
def test_pytest_runs_in_several_processes_or_in_one_what_changed(project):
    passed, done = run(project, "--seen=all", "--measure", "-n", "2", "--no-loadscope-reorder")
    assert passed == dict.fromkeys(states(project), True), done.stdout
    measured = shares.seconds(project / "_ext/seconds.json")
    assert measured.keys() == states_of([project / "book", project / "tests"], project).keys()
    edit(project / "src/one.py", "1", "-1")
    passed, done = run(project, "--seen=changed", "-n", "2")
    assert passed == {"one": False, "chapter": False, "anywhere": True}
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    edit(project / "src/one.py", "-1", "1")
    assert run_of(project, "changed") == passed.keys()
    passed, done = run(project, "--seen=changed")
    assert (passed, done.returncode) == ({}, pytest.ExitCode.OK), done.stdout
