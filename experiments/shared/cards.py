"""The cards of a chapter: what its bold claims become when one thing in its code is changed.

    python -m experiments cards memorisation    writes results/cards/memorisation.json
    python -m experiments cards                 lists bold captions and cards, and what has none

`experiments/cards/CHAPTER.toml` names the changes, each a piece of the chapter's own code and what
stands in its place, and for each card a `measure`, an expression over what the cells computed with
one value for each seed. The chapter's cells are run as they stand and once with each change,
without assertions, which are about the chapter as it is. On the page the directive `card` shows
them (`_ext/card.py`).
"""

import ast
import re
import tomllib
from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path

from _ext.dependencies import ROOT, cells_of, state_of_chapter
from src.tools.intervals import interval

SPECIFICATIONS = Path("experiments", "cards")
CLAIM = re.compile(r"\*\*([^*]{20,}?[.?!])\*\*")
CARD = re.compile(r"^:{3,}\{card\} ([\w-]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Settings:
    """None: what is run stands in the files of cards."""


class WithoutChecks(ast.NodeTransformer):
    """Takes out what only asserts, or gives numbers to the text."""

    def visit_Assert(self, node):
        return ast.Pass()

    def visit_Expr(self, node):
        call = node.value
        glues = isinstance(call, ast.Call) and getattr(call.func, "id", None) == "glue"
        return ast.Pass() if glues else node


def specification(chapter, root=ROOT):
    """What the chapter's file of cards says."""
    return tomllib.loads((root / SPECIFICATIONS / f"{chapter}.toml").read_text(encoding="utf-8"))


def known(chapter, root=ROOT):
    """The name of a chapter that has a file of cards; argparse says why another word is none."""
    names = sorted(path.stem for path in (root / SPECIFICATIONS).glob("*.toml"))
    if chapter not in names:
        raise ArgumentTypeError(f"expected a name of {names}, got {chapter!r}")
    return chapter


def page(chapter, root=ROOT):
    """The chapter's source."""
    return next((root / "book").glob(f"*/{chapter}.md"))


def changed(sources, replace):
    """The sources of cells with pieces of code replaced, each of which stands there just once."""
    text = "\0".join(sources)
    for old, new in replace:
        if text.count(old) != 1:
            raise ValueError(
                f"expected {old!r} once in the chapter, got it {text.count(old)} times"
            )
        text = text.replace(old, new)
    return text.split("\0")


def measured(cells, *, chapter, replace, measures, state):
    """{measure: its value for each seed} with the cells run one after the other, as far as needed.

    Args:
        state: a key of the chapter and all that it depends on; only the cache reads it.
    """
    import matplotlib

    matplotlib.use("Agg")
    space, found = {"__name__": "__main__"}, {}
    whole = [
        c for c in cells_of(page(chapter)) if "raises-exception" not in c.metadata.get("tags", [])
    ]
    for source in changed([cell.source for cell in whole], replace):
        tree = ast.fix_missing_locations(WithoutChecks().visit(ast.parse(source)))
        exec(compile(tree, chapter, "exec"), space)
        for measure in set(measures) - set(found):
            names = {node.id for node in ast.walk(ast.parse(measure)) if isinstance(node, ast.Name)}
            if names <= set(space):
                found[measure] = [float(value) for value in eval(measure, space)]
        if len(found) == len(measures):
            return found
    raise ValueError(f"expected the cells to compute {sorted(set(measures) - set(found))}")


def find(cells, chapter):
    """{name of a card: what it says, and a line for each thing that was tried}."""
    wanted = specification(chapter)
    common, state = wanted.get("all", {}).get("replace", []), state_of_chapter(page(chapter))
    changes = {"": {"tried": "as shown", "replace": []}} | wanted["change"]

    def line(name, measure):
        using = [c["measure"] for c in wanted["card"].values() if name in ("", *c["changes"])]
        replace = common + changes[name]["replace"]
        values = cells(
            measured, chapter=chapter, replace=replace, measures=sorted(set(using)), state=state
        )[measure]
        mean, half = interval(values)
        return {"tried": changes[name]["tried"], "mean": mean, "half": half, "seeds": len(values)}

    return {
        name: {"says": card["says"]}
        | {"lines": [line(change, card["measure"]) for change in ("", *card["changes"])]}
        for name, card in wanted["card"].items()
    }


def listed(root=ROOT):
    """A line for each chapter's bold claim that has no card within the next lines, and a count."""
    lines = []
    for path in sorted((root / "book").glob("*/*.md")):
        text = path.read_text(encoding="utf-8").partition("\n## What this does not show")[0]
        claims, cards = list(CLAIM.finditer(text)), [found.start() for found in CARD.finditer(text)]
        for claim in claims:
            ahead = [place for place in cards if place > claim.end()]
            others = [c for c in claims if c.start() > claim.end()]
            if not ahead or (others and others[0].start() < ahead[0]):
                number = text.count("\n", 0, claim.start()) + 1
                lines.append(f"{path.relative_to(root)}:{number}: {' '.join(claim[1].split())}")
    return lines
