"""Small changes of Python code, as syntax trees: what an assertion should notice.

A change is a `Mutation(kind, node, place)`: which operator, on which node of the tree (its number
in `ast.walk`), and on which part of it.  `mutations(tree)` lists those that a tree allows,
`mutated` makes one.  Nothing inside an assertion is ever changed: changes lie upstream of it.
"""

import ast
import copy
from dataclasses import dataclass
from itertools import zip_longest

NOISE, ROWS, ASSERTED = "__noise__", "__rows__", "__asserted__"
TURNED = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPPOSITE = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitOr: ast.BitAnd,
}
BINDING = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.For, ast.With, ast.Return)
SEEDING = ("seed", "generator", "Random", "rng")


@dataclass(frozen=True)
class Mutation:
    """A change `kind` of the node numbered `node`, at its part `place`; `binds`: names it sets."""

    kind: str
    node: int
    place: int
    line: int
    text: str
    binds: frozenset = frozenset()


def mutations(tree):
    """Every mutation of the tree: one of each kind, coarse kinds first, then the next of each.

    Of one kind the last line comes first: it is nearest to the assertions that follow.
    """
    found, silent, owner = [], set(), {}
    for node in ast.walk(tree):
        left_alone = is_assertion(node) or seeds_something(node)
        for part in [node] if left_alone else only_shown(node):
            silent |= {id(inner) for inner in ast.walk(part)}
        for child in ast.iter_child_nodes(node):
            owner[id(child)] = node if isinstance(node, BINDING) else owner.get(id(node))
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in silent:
            continue
        binds = names_bound(node if isinstance(node, BINDING) else owner.get(id(node)))
        for kind, place, text in changes(node):
            found.append(Mutation(kind, number, place, getattr(node, "lineno", 0), text, binds))
    order = (
        *("noise", "rows", "rival", "turned", "dropped", "opposite", "constant", "left out"),
        "text",
    )
    found.sort(key=lambda each: -each.line)
    of_kind = {kind: [each for each in found if each.kind == kind] for kind in order}
    return [each for row in zip_longest(*of_kind.values()) for each in row if each]


def is_assertion(node):
    node = node.value if isinstance(node, ast.Expr) else node
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return isinstance(node, ast.Assert) or (called and node.func.id == ASSERTED)


def seeds_something(node):
    """Another seed is no defect: it is tried by itself, on the whole chapter."""
    if isinstance(node, ast.keyword):
        return "seed" in (node.arg or "")
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        return name.split(".")[-1].endswith(SEEDING)
    return False


def only_shown(node):
    """What is no result: a docstring, or how a number is formatted."""
    match node:
        case ast.Expr(value=ast.Constant() as text):
            return [text]
        case ast.FormattedValue(format_spec=ast.JoinedStr() as spec):
            return [spec]
    return []


def names_bound(statement):
    """The names that one simple statement sets or changes in place."""
    match statement:
        case ast.Assign(targets=targets):
            parts = targets
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            parts = [target]
        case ast.With(items=items):
            parts = [item.optional_vars for item in items if item.optional_vars]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=changed))):
            parts = [changed]
        case _:
            parts = []
    return frozenset(name for part in parts for name in owners(part))


def owners(target):
    """The names that a target of an assignment changes: `table` of `table[row].column`."""
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Subscript(value=inner) | ast.Attribute(value=inner) | ast.Starred(value=inner):
            yield from owners(inner)
        case ast.Call(func=ast.Attribute(value=inner)):
            yield from owners(inner)
        case ast.Tuple(elts=inner) | ast.List(elts=inner):
            for each in inner:
                yield from owners(each)


def changes(node):
    """(kind, place, words) of each change that one node allows."""
    match node:
        case (
            ast.Assign(value=value)
            | ast.AugAssign(value=value)
            | ast.Return(value=value)
            | ast.Yield(value=value)
        ) if value is not None:
            yield "noise", 0, f"noise for {short(value)}"
            yield "rows", 0, f"rows permuted in {short(value)}"
        case ast.Constant(value=bool()):
            yield "turned", 0, f"not {node.value}"
        case ast.Constant(value=int() | float()):
            yield "constant", 0, f"{node.value} moved"
            if node.value:
                yield "constant", 1, f"0 for {node.value}"
        case ast.Constant(value=str(text)) if text:
            yield "text", 0, f"{short(node)} the other way round"
        case ast.Tuple(elts=[_, _, *_], ctx=ast.Load()) | ast.List(elts=[_, _, *_]):
            yield "rival", 0, f"exchanged: {short(node)}"
        case ast.Dict(values=[_, _, *_]):
            yield "rival", 0, f"exchanged: {short(node)}"
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                if type(op) in TURNED:
                    yield "turned", place, f"turned: {short(node)}"
        case ast.BoolOp():
            yield "turned", 0, f"and/or turned: {short(node)}"
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            yield "turned", 0, f"not left out: {short(node)}"
        case ast.UnaryOp(op=ast.USub()):
            yield "opposite", 0, f"the opposite sign in {short(node)}"
        case ast.BinOp(op=op) if type(op) in OPPOSITE:
            yield "dropped", 0, f"only the left of {short(node)}"
            yield "dropped", 1, f"only the right of {short(node)}"
            yield "opposite", 0, f"the opposite sign in {short(node)}"
        case ast.Call(args=args, keywords=keywords):
            if len(args) >= 2 and not any(isinstance(each, ast.Starred) for each in args[:2]):
                yield "rival", 0, f"arguments swapped: {short(node)}"
            for place, each in enumerate(keywords):
                if each.arg:
                    yield "dropped", place, f"without {each.arg}=: {short(node)}"
        case ast.Expr(value=ast.Call()):
            yield "left out", 0, f"left out: {short(node)}"


def short(node):
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else text[:57] + "…"


def mutated(tree, mutation):
    """A copy of the tree with the mutation in it."""
    tree = copy.deepcopy(tree)
    node = next(each for number, each in enumerate(ast.walk(tree)) if number == mutation.node)
    replacement = changed(node, mutation)
    if replacement is not node:
        tree = Replaced(node, replacement).visit(tree)
    return ast.fix_missing_locations(tree)


class Replaced(ast.NodeTransformer):
    def __init__(self, old, new):
        self.old, self.new = old, ast.copy_location(new, old)

    def visit(self, node):
        return self.new if node is self.old else self.generic_visit(node)


def changed(node, mutation):
    """The node with one change, made in place where its class stays the same."""
    place = mutation.place
    match mutation.kind, node:
        case (("noise" | "rows"), _):
            name = NOISE if mutation.kind == "noise" else ROWS
            node.value = ast.Call(ast.Name(name, ast.Load()), [node.value], [])
        case "constant", _:
            value = node.value
            moved = value + 1 if isinstance(value, int) else value * 1.5 or 1.0
            node.value = type(value)(0) if place else moved
        case "text", _:
            node.value = node.value[::-1] if node.value[::-1] != node.value else node.value + "x"
        case "turned", ast.Compare():
            node.ops[place] = TURNED[type(node.ops[place])]()
        case "turned", ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case "turned", ast.Constant():
            node.value = not node.value
        case "turned", _:
            return node.operand
        case "dropped", ast.BinOp():
            return node.right if place else node.left
        case "dropped", _:
            del node.keywords[place]
        case "opposite", ast.UnaryOp():
            return node.operand
        case "opposite", _:
            node.op = OPPOSITE[type(node.op)]()
        case "rival", ast.Call():
            node.args[:2] = node.args[1::-1]
        case "rival", ast.Dict():
            node.values[:2] = node.values[1::-1]
        case "rival", _:
            node.elts[:2] = node.elts[1::-1]
        case "left out", _:
            return ast.Pass()
    return node
