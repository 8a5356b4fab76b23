"""A chapter as a list of statements, and what each reads, sets, calls and asserts."""

import ast
import builtins
import linecache
from dataclasses import dataclass, field

from chapters import read

from teeth.mutations import ASSERTED, names_bound

RECORDS = ("json.loads(", "read_text(")


@dataclass(frozen=True)
class Assertion:
    """One `assert` of a chapter: where it stands, what it says, and the names that it reads."""

    line: int
    column: int
    text: str
    reads: frozenset

    @property
    def key(self):
        return f"{self.line}:{self.column}"


@dataclass
class Statement:
    """One top-level statement of a cell; assertions in it report and do not stop."""

    cell: int
    filename: str
    tree: ast.stmt
    must_raise: bool
    reads: frozenset
    sets: frozenset
    assertions: list
    of_record: bool = False
    given: bool = False  # data written out: what follows from it is computed elsewhere
    seconds: float = 0.0
    called: dict = field(default_factory=dict)  # code objects in order of their first call

    def code(self, tree=None):
        module = ast.Module([tree or self.tree], [])
        return compile(module, self.filename, "exec")


class Reporting(ast.NodeTransformer):
    """Let `assert test` become `__asserted__(key, lambda: test)`, which writes down if it held."""

    def __init__(self, first_line):
        self.first_line, self.found = first_line, []

    def visit_Assert(self, node):
        line = self.first_line + node.lineno - 1
        text = " ".join(ast.unparse(node.test).split())
        found = Assertion(line, node.col_offset, text, frozenset(data_read(node.test)))
        self.found.append(found)
        nothing = ast.arguments([], [], None, [], [], None, [])
        arguments = [ast.Constant(found.key), ast.Lambda(nothing, node.test)]
        call = ast.Call(ast.Name(ASSERTED, ast.Load()), arguments, [])
        return ast.copy_location(ast.Expr(call), node)


def statements(path, root):
    """The statements of the chapter at `path`, in order."""
    page, found = read(path, root), []
    for number, cell in enumerate(page.cells):
        filename, lines = f"{page.name}:{cell.line}", cell.source.splitlines(keepends=True)
        linecache.cache[filename] = (len(cell.source), None, lines, filename)
        for tree in ast.parse(cell.source).body:
            raises = "raises-exception" in cell.tags
            reporting = Reporting(cell.line)
            if not raises:
                tree = ast.fix_missing_locations(reporting.visit(tree))
            found.append(
                Statement(
                    number,
                    filename,
                    tree,
                    raises,
                    frozenset(names(tree, ast.Load)),
                    frozenset(names_set(tree)),
                    reporting.found,
                )
            )
    mark_records(found)
    mark_given(found)
    return found


def names(tree, context):
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, context):
            yield node.id


def names_set(tree):
    """Names that a statement binds, or may change in place: `x.append(1)`, `fit(model)`."""
    yield from names(tree, ast.Store | ast.Del)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.Expr | ast.Assign | ast.AugAssign):
            yield from names_bound(node)
        if isinstance(node, ast.Call):
            for each in node.args:
                if isinstance(each, ast.Name):
                    yield each.id


def data_read(test):
    """Names whose values an assertion reads itself, as against functions that it calls."""
    called = {id(node.func) for node in ast.walk(test) if isinstance(node, ast.Call)}
    own = set(names(test, ast.Store))
    for node in ast.walk(test):
        if not isinstance(node, ast.Name) or id(node) in called or node.id in own:
            continue
        if not hasattr(builtins, node.id):
            yield node.id


def mark_records(found):
    """Mark the statements whose assertions only read what a committed file says."""
    imported, pure, recorded = set(dir(builtins)) | {ASSERTED}, set(), set()
    for each in found:
        if isinstance(each.tree, ast.Import | ast.ImportFrom):
            imported |= each.sets
            continue
        if isinstance(each.tree, ast.FunctionDef | ast.ClassDef):
            (recorded if each.reads & recorded else imported).update(each.sets)
            continue
        local = set(names(each.tree, ast.Store))
        source = ast.unparse(each.tree)
        known = each.reads - imported - local - pure - recorded
        if any(word in source for word in RECORDS):  # wherever the file's path comes from
            recorded |= local
            continue
        calls_src = any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FRESH
            for node in ast.walk(each.tree)
        )
        if not known and each.reads & recorded and not calls_src:
            recorded |= set(names(each.tree, ast.Store))
            each.of_record = bool(each.assertions)
        elif not known and not calls_src and is_constant(each.tree, pure):
            pure |= local
        else:
            recorded -= local
            pure -= local


FRESH = {"open_run", "load", "train", "fit"}  # what brings in something besides the record


def mark_given(found):
    """Mark the statements that write data out: lists, texts, tables, of literals alone.

    A constant in them may move even if an assertion reads their name, for it says something about
    these data; a single number may not, for it may be the bound that the assertion names.
    """
    imported = set(dir(builtins))
    for each in found:
        if isinstance(each.tree, ast.Import | ast.ImportFrom):
            imported |= each.sets
        elif isinstance(each.tree, ast.Assign) and isinstance(each.tree.targets[0], ast.Name):
            value = each.tree.value
            own = set(names(value, ast.Store))
            written_out = any(
                isinstance(node, ast.List | ast.Dict | ast.Set)
                or (isinstance(node, ast.Constant) and isinstance(node.value, str))
                for node in ast.walk(value)
            )
            each.given = written_out and set(names(value, ast.Load)) <= imported | own


def is_constant(tree, pure):
    """Whether a statement only gives names to literals, or to what follows from literals."""
    calls = any(isinstance(node, ast.Call) for node in ast.walk(tree))
    return isinstance(tree, ast.Assign) and not calls and set(names(tree, ast.Load)) <= pure


def upstream(found, target):
    """Numbers of the statements on which `target` depends: itself, then the nearest first."""
    wanted, needed = set(found[target].reads), [target]
    for number in range(target - 1, -1, -1):
        each = found[number]
        if each.sets & wanted:
            needed.append(number)
            wanted |= each.reads
    return needed
