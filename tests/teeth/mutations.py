"""Small changes of Python code, as syntax trees: what an assertion should notice.

A change is a `Mutation(kind, node, place)`: of which kind, on which node of the tree (its number
in `ast.walk`), and which of the changes that this node allows.  `mutations(tree)` lists those of a
tree, `mutated` makes one.  Nothing inside an assertion is ever changed: changes lie upstream of it.
"""

import ast
import copy
from dataclasses import dataclass
from itertools import zip_longest

NOISE, ROWS, ASSERTED = "__noise__", "__rows__", "__asserted__"
KINDS = ("noise", "rows", "rival", "turned", "dropped", "opposite", "constant", "left out", "text")


def both_ways(*pairs):
    return {one: other for pair in pairs for one, other in (pair, pair[::-1])}


ORDERS = (ast.Lt, ast.GtE), (ast.Gt, ast.LtE)
TURNED = both_ways(*ORDERS, (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot))
RINGS = (ast.Add, ast.Sub), (ast.Mult, ast.Div)
OPPOSITE = both_ways(*RINGS, (ast.FloorDiv, ast.Mod), (ast.BitAnd, ast.BitOr))
OPPOSITE[ast.Pow] = ast.Mult
BINDING = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.For, ast.With, ast.Return)
SEEDING = ("seed", "generator", "Random", "rng")


@dataclass(frozen=True)
class Mutation:
    """Change `place` of those that the node numbered `node` allows; `binds`: names it sets."""

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
        for place, (kind, text, _) in enumerate(changes(node)):
            found.append(Mutation(kind, number, place, getattr(node, "lineno", 0), text, binds))
    found.sort(key=lambda each: -each.line)
    of_kind = {kind: [each for each in found if each.kind == kind] for kind in KINDS}
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
    """(kind, words, what stands in its stead) of each change that one node allows."""
    match node:
        case (
            ast.Assign(value=ast.expr() as value)
            | ast.AugAssign(value=value)
            | ast.Return(value=ast.expr() as value)
            | ast.Yield(value=ast.expr() as value)
        ):
            for kind, call, words in (("noise", NOISE, "noise for"), ("rows", ROWS, PERMUTED)):
                other = ast.Call(ast.Name(call, ast.Load()), [value], [])
                yield kind, f"{words} {short(value)}", like(node, value=other)
        case ast.Constant(value=bool(value)):
            yield "turned", f"not {value}", like(node, value=not value)
        case ast.Constant(value=int() | float() as value):
            moved = value + 1 if isinstance(value, int) else value * 1.5 or 1.0
            yield "constant", f"{value} moved", like(node, value=moved)
            if value:
                yield "constant", f"0 for {value}", like(node, value=type(value)(0))
        case ast.Constant(value=str(text)) if text:
            other = text[::-1] if text[::-1] != text else text + "x"
            yield "text", f"{short(node)} the other way round", like(node, value=other)
        case (
            ast.Tuple(elts=[one, two, *more], ctx=ast.Load())
            | ast.List(elts=[one, two, *more], ctx=ast.Load())
        ):
            yield "rival", f"exchanged: {short(node)}", like(node, elts=[two, one, *more])
        case ast.Dict(values=[one, two, *more]):
            yield "rival", f"exchanged: {short(node)}", like(node, values=[two, one, *more])
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                if type(op) in TURNED:
                    other = [*ops[:place], TURNED[type(op)](), *ops[place + 1 :]]
                    yield "turned", f"turned: {short(node)}", like(node, ops=other)
        case ast.BoolOp(op=op):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "turned", f"and/or turned: {short(node)}", like(node, op=other)
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            yield "turned", f"not left out: {short(node)}", node.operand
        case ast.UnaryOp(op=ast.USub()):
            yield "opposite", f"the opposite sign in {short(node)}", node.operand
        case ast.BinOp(op=op) if type(op) in OPPOSITE:
            yield "dropped", f"only the left of {short(node)}", node.left
            yield "dropped", f"only the right of {short(node)}", node.right
            other = like(node, op=OPPOSITE[type(op)]())
            yield "opposite", f"the opposite sign in {short(node)}", other
        case ast.Call(args=args, keywords=keywords):
            if len(args) >= 2 and not any(isinstance(each, ast.Starred) for each in args[:2]):
                other = like(node, args=[*args[1::-1], *args[2:]])
                yield "rival", f"arguments swapped: {short(node)}", other
            for each in keywords:
                if each.arg:
                    other = like(node, keywords=[one for one in keywords if one is not each])
                    yield "dropped", f"without {each.arg}=: {short(node)}", other
        case ast.Expr(value=ast.Call()):
            yield "left out", f"left out: {short(node)}", ast.Pass()


PERMUTED = "rows permuted in"


def like(node, **fields):
    """A copy of a node with some other fields."""
    other = copy.copy(node)
    vars(other).update(fields)
    return other


def short(node):
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else text[:57] + "…"


def mutated(tree, mutation):
    """A copy of the tree with the mutation in it."""
    tree = copy.deepcopy(tree)
    node = next(each for number, each in enumerate(ast.walk(tree)) if number == mutation.node)
    *_, other = list(changes(node))[mutation.place]
    return ast.fix_missing_locations(Replaced(node, other).visit(tree))


class Replaced(ast.NodeTransformer):
    def __init__(self, old, new):
        self.old, self.new = old, ast.copy_location(new, old)

    def visit(self, node):
        return self.new if node is self.old else self.generic_visit(node)
