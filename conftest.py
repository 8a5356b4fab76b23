"""Let ``pytest --nbval book`` run the chapters, which are MyST Markdown notebooks.

nbval knows only ``.ipynb`` files and is satisfied when it finds none.  Here

* every Markdown file with code cells becomes a chapter, and every cell one test;
* a failure reads ``book/part/chapter.md:<line>: <error>``, the line being that of the failing
  statement, and the cells after it are skipped, since they would fail for the same reason;
* a cell tagged ``raises-exception`` must raise: an intended failure that has gone is a defect;
* a cell that glues a NumPy number fails: the builder cannot format it, and shows nothing instead;
* a run with ``--nbval`` that has no cell to run fails.

A chapter keeps no outputs, so nbval has none to compare: a chapter tests what it asserts.
A chapter's cells share one kernel (see `_ext/kernels.py`); with several workers say
``-n 2 --dist loadfile``.
"""

import re
from collections import defaultdict

import pytest
from jupytext.myst import matches_mystnb, myst_to_notebook
from nbval.plugin import IPyNbCell, IPyNbFile
from verdict import code_cells, error_in, failing_line, fault_of, must_raise, said_by

MODULE_MARK = re.compile(r"^pytestmark = pytest\.mark\.(\w+)", re.MULTILINE)


def pytest_addoption(parser):
    parser.addoption("--take-over", action="store_true", help="leave out what was just executed")


def pytest_configure(config):
    if config.option.nbval:
        from kernels import use_local_sockets  # pytest's own setting finds it, and `seen`

        use_local_sockets()
    if config.option.take_over:
        from seen import Seen

        config.pluginmanager.register(Seen(config), "seen")


def pytest_ignore_collect(collection_path, config):
    """Leave out a module of tests whose mark is not asked for: to collect it takes longer."""
    if collection_path.suffix == ".py" and collection_path.name.startswith("test_"):
        mark = MODULE_MARK.search(collection_path.read_text(encoding="utf-8"))
        if mark and f"not {mark[1]}" in config.option.markexpr:
            return True
    return None  # leaves it to others


def pytest_collect_file(file_path, parent):
    """Take each Markdown file that holds code cells; leave plain pages alone."""
    if not parent.config.option.nbval or file_path.suffix != ".md":
        return None
    if not matches_mystnb(file_path.read_text(encoding="utf-8"), requires_meta=False):
        return None
    return Chapter.from_parent(parent, path=file_path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session, config, items):
    """Add a failure where no cell is left to run: a run of no cells proves nothing."""
    if config.option.nbval and not any(isinstance(item, Cell) for item in items):
        items.append(NoCell.from_parent(session, name="no code cell"))


class NoCell(pytest.Item):
    """A failing test, since it is also seen where a worker's error would pass unnoticed."""

    def reportinfo(self):
        return self.path, None, self.name

    def runtest(self):
        pytest.fail(
            f"--nbval found no code cell in '{' '.join(self.config.args)}': expected MyST Markdown "
            "chapters there, with ```{code-cell} fences; check the path.",
            pytrace=False,
        )


class Chapter(IPyNbFile):
    """One Markdown notebook, run from top to bottom in one kernel."""

    failed_line = None

    def collect(self):
        text = self.path.read_text(encoding="utf-8")
        self.nb = myst_to_notebook(text)
        for number, (line, cell) in enumerate(code_cells(text, self.nb)):
            yield Cell.from_parent(
                self, name=f"line {line}", cell_num=number, cell=cell, first_line=line
            )


class Cell(IPyNbCell):
    """One code cell; its options come from its tags, and `raises-exception` is the only one."""

    def __init__(self, *, first_line, cell, **kwargs):
        options = defaultdict(bool, check_exception=must_raise(cell))
        super().__init__(cell=cell, options=options, **kwargs)
        self.obj.__doc__ = cell.source  # shown by --collect-only -v
        self.first_line = first_line

    def reportinfo(self):
        return self.path, self.first_line - 1, f"{self.parent.nodeid}:{self.first_line}"

    def setup(self):
        if self.parent.failed_line is not None:
            pytest.skip(f"line {self.parent.failed_line} of this chapter failed")

    def runtest(self):
        try:
            super().runtest()
            if reason := fault_of(self.cell, self.outputs):
                self.raise_cell_error(reason)
        except Exception:
            self.parent.failed_line = failing_line(self.first_line, self.outputs)
            raise
        finally:
            self.show_streams()

    @property
    def outputs(self):
        return self.test_outputs or ()

    def show_streams(self):
        for name in ("stdout", "stderr"):
            text = "".join(o.text for o in self.outputs if o.get("name") == name)
            if text:
                self.add_report_section("call", name, text)

    def repr_failure(self, excinfo):
        error = error_in(self.outputs)
        reason = said_by(error) if error and not self.parent.timed_out else str(excinfo.value)
        traceback = "\n".join(error.traceback) if error else self.cell.source
        line = failing_line(self.first_line, self.outputs)
        return f"{self.parent.nodeid}:{line}: {reason}\n\n{traceback}"
