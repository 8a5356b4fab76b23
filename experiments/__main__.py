"""Repeat what chapters show as recorded:  python -m experiments [NAME …] [--quick]

Each module of this folder is an experiment: `Settings` are those of the record, and `QUICK` smaller
ones for the same code. `find(cells)` computes what is recorded; `table(kept)` has it as lines, the
title first; `release(cells, folder)`, where there is one, puts checkpoints beside the record. What
the same code computed before is taken from `_build/experiments`. The word `cards` with names of
chapters makes their cards (`shared/cards.py`).
"""

import argparse
import json
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from _ext.provenance import ROOT, provenance, told
from experiments.shared import cards
from experiments.shared.cells import Cells, one_thread
from src.tools.files import write_text

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem[0] != "_")


def run(name, *, quick, target, home, jobs):
    """Compute an experiment, and write its record to a folder."""
    command = f"python -m experiments {name}{' --quick' if quick else ''}"
    made = provenance(command)
    experiment = import_module(f"experiments.{name}")
    settings = experiment.QUICK if quick else experiment.Settings()
    cells = Cells(ROOT / "experiments" / f"{name}.py", settings, home / name, jobs=jobs)
    found = experiment.find(cells)
    about = {
        "machine": told(made),
        "command": command,
        "core_minutes": round(cells.seconds / 60, 1),
        "provenance": made,
    }
    target.mkdir(parents=True, exist_ok=True)
    if hasattr(experiment, "release"):
        experiment.release(cells, target)
    kept = about | json.loads(json.dumps(found))  # as a chapter will read it
    write_text(target / "result.json", json.dumps(kept, indent=1) + "\n")
    write_text(target / "table.md", "\n".join([*page(experiment, kept), ""]))
    print(f"{name}: {target}, {cells.seconds:.0f} s of one core", flush=True)


def make_cards(arguments, home, target):
    """Write the cards of chapters; without a chapter, list the bold claims that have none."""
    parser = argparse.ArgumentParser(prog="python -m experiments cards", description=cards.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER", type=cards.known)
    chapters = parser.parse_args(arguments).chapters
    (target / "cards").mkdir(parents=True, exist_ok=True)
    for chapter in chapters:
        command = f"python -m experiments cards {chapter}"
        made = provenance(command)
        work = Cells(Path(cards.__file__), cards.Settings(), home / "cards")
        found = {"cards": cards.find(work, chapter), "machine": told(made)}
        about = {"core_minutes": round(work.seconds / 60, 1), "provenance": made}
        write_text(target / "cards" / f"{chapter}.json", json.dumps(found | about, indent=1) + "\n")
    if not chapters:
        lines = cards.listed()
        print("\n".join([*lines, f"{len(lines)} bold claims without a card"]))


def page(experiment, kept):
    """The lines of a record as a page: title, how it was made, table."""
    title, *lines = experiment.table(kept)
    how = f"`{kept['command']}`; {kept['machine']}; {kept['core_minutes']} minutes of one core"
    return [f"# {title}", "", how, "", *lines]


def known(name):
    """The name of an experiment; argparse says why another word is none."""
    if name not in NAMES:
        raise argparse.ArgumentTypeError(f"expected a name of {NAMES}, got {name!r}")
    return name


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "names", nargs="*", type=known, metavar="NAME", help=f"of {', '.join(NAMES)}; or all"
    )
    parser.add_argument("--quick", action="store_true", help="smaller; never into results")
    parser.add_argument("--to", type=Path, help="where the records go; results, if not quick")
    parser.add_argument("--cache", type=Path, default=ROOT / "_build" / "experiments")
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes side by side, where they can"
    )
    arguments = sys.argv[1:] if arguments is None else arguments
    one_thread()
    if arguments[:1] == ["cards"]:
        home = ROOT / "_build" / "experiments"
        return make_cards(arguments[1:], home, ROOT / "results")
    options = parser.parse_args(arguments)
    default = tempfile.mkdtemp() if options.quick and not options.to else ROOT / "results"
    target = Path(options.to or default)
    if options.quick and target.resolve() == ROOT / "results":
        parser.error("expected another folder than results: a quick run is no record")
    for name in options.names or NAMES:
        common = {"quick": options.quick, "home": options.cache, "jobs": options.jobs}
        run(name, target=target / name, **common)


if __name__ == "__main__":
    sys.exit(main())
