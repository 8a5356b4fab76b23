"""Does each assertion of the book bite?  ``make teeth``, or ``python -m teeth chapter …``.

An assertion counts if it has been seen to fail because of what it guards.  Each chapter is run
once; then small changes are made upstream of each assertion, in its cell, in cells before it, in
functions of `src` that these call, until the assertion fails.  A change of a name that the
assertion itself reads does not count.  Told for each assertion: *killed* by which change, or *never
seen to fail*; *fragile* if another seed alone makes it fail; *of a record* if all that it reads is
a committed file.

Results are kept under `tests/teeth/found`, by chapter, with the commit and the date, a key of its
cells and data, and what the functions of `src` that it called said (`called.py`): a run that was
stopped goes on, and after an edit only the chapters that it concerns are examined anew, the change
that killed an assertion before being tried first.  `results/teeth.md` is the table.
"""

import argparse
import json
import sys
import tomllib
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from multiprocessing import get_context
from pathlib import Path

from chapters import ROOT, chapters, choose
from provenance import git

from teeth.called import edited, own_key
from teeth.search import BUDGET, examine

HERE = Path(__file__).parent

COLUMNS = (
    *("chapter", "assertions", "killed", "never seen to fail"),
    *("of a record", "of these killed", "fragile", "seconds", "commit", "date"),
)
KEPT = HERE / "found"

# ---- the table --------------------------------------------------------------------------------


def report(results, reasons, changed):
    """The text of `results/teeth.md`; `changed`: {chapter: what was edited since}."""
    waiting = [name for name, result in results.items() if result["key"] is None]
    results = {name: result for name, result in results.items() if name not in waiting}
    lines = [
        "# Teeth: has each assertion been seen to fail?",
        "",
        "`make teeth`: small changes upstream of each assertion (noise or permuted rows for a",
        "result, a term dropped, a comparison turned, a constant moved, arguments swapped), in the",
        "chapter's cells and in the functions of `src` that they call. *Killed*: some change made",
        "it fail, or fail to be evaluated. *Of a record*: it reads a committed file only, and is",
        "counted apart. *Fragile*: another seed alone makes it fail. The time is the processor's.",
        "",
        *([f"Not examined yet: {', '.join(waiting)}.", ""] if waiting else []),
        *([f"To be examined again: {', '.join(changed)}.", ""] if changed else []),
        f"| {' | '.join(COLUMNS)} |",
        f"|:---|{'---:|' * (len(COLUMNS) - 3)}:---|:---|",
    ]
    totals = [0] * 7
    for name, result in results.items():
        counts = [*counted(result["assertions"]), result["seconds"]]
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        when = [result.get("commit", ""), result.get("date", "")]
        lines.append(f"| {' | '.join([name, *rounded(counts), *when])} |")
    lines.append(f"| {' | '.join(['**all**', *rounded(totals), '', ''])} |")
    live = totals[1] + totals[2]
    lines += ["", f"Killed: {totals[1]:.0f} of {live:.0f} ({totals[1] / max(live, 1):.1%})."]
    for title, wanted in (("Never seen to fail", survives), ("Fragile", lambda r: r["fragile"])):
        lines += ["", f"## {title}", ""]
        for name, result in results.items():
            for row in filter(wanted, result["assertions"]):
                why = reasons.get((name, row["text"]), "")
                lines.append(f"- {name}: `{row['text'][:150]}`{': ' + why if why else ''}")
    return "\n".join(lines) + "\n"


def rounded(numbers):
    return [f"{each:.0f}" for each in numbers]


def survives(row):
    return not row["record"] and not row["killed"]


def counted(rows):
    live = [row for row in rows if not row["record"]]
    of_record = [row for row in rows if row["record"]]
    killed = sum(bool(row["killed"]) for row in live)
    return (
        len(rows),
        killed,
        len(live) - killed,
        len(of_record),
        sum(bool(row["killed"]) for row in of_record),
        sum(bool(row["fragile"]) for row in rows),
    )


def reasons_given():
    """{(chapter, text): why an assertion that no change kills is right as it is}."""
    text = (HERE / "explained.toml").read_text(encoding="utf-8")
    return {(e["chapter"], e["text"]): e["why"] for e in tomllib.loads(text).get("kept", [])}


def named(path):
    return path.relative_to(ROOT / "book").with_suffix("").as_posix()


def place_of(path):
    return KEPT / f"{named(path).replace('/', '.')}.json"


def kept(path):
    """What was found when the chapter was last examined; with nothing in it, if it never was."""
    file = place_of(path)
    nothing = {"key": None, "assertions": [], "seconds": 0.0, "error": "never examined"}
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else nothing


def keep(path, result):
    """One line for each assertion, so that a change of one shows as one line."""
    head = {name: value for name, value in result.items() if name != "assertions"}
    rows = [json.dumps(each, ensure_ascii=False) for each in result["assertions"]]
    text = json.dumps(head | {"assertions": []}, ensure_ascii=False)
    text = text.removesuffix("]}") + "\n" + ",\n".join(rows) + "\n]}\n"
    place_of(path).write_text(text, encoding="utf-8")


def killers(path):
    """{text of an assertion: the change that killed it when the chapter was last examined}."""
    return {row["text"]: row["killed"] for row in kept(path)["assertions"] if row["killed"]}


def today():
    """{"commit": …, "date": …} of an examination that ends now."""
    made = [":(exclude)results", ":(exclude)tests/teeth/found"]  # by an examination
    commit = git(ROOT, "rev-parse", "--short", "HEAD") or "none"
    changed = git(ROOT, "status", "--porcelain", "--", ".", *made)
    return {"commit": commit + ("+" if changed else ""), "date": date.today().isoformat()}


def main(arguments=None):
    parser = argparse.ArgumentParser(description="See each assertion of the book fail.")
    parser.add_argument("chapters", nargs="*", help="path or name; all chapters if none is given")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--budget", type=float, default=BUDGET, help="for each second of a chapter")
    parser.add_argument("--table", action="store_true", help="examine nothing, write the table")
    options = parser.parse_args(arguments)
    KEPT.mkdir(parents=True, exist_ok=True)
    chosen = choose(options.chapters, ROOT)
    waiting = [path for path in chosen if edited(kept(path), path, ROOT)]
    if options.table:
        waiting = []
    with ProcessPoolExecutor(
        options.workers, mp_context=get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        pending = {
            pool.submit(examine, path, ROOT, options.budget, killers(path)): path
            for path in waiting
        }
        for future in as_completed(pending):
            path, result = pending[future], future.result()
            keep(path, today() | {"key": own_key(path, ROOT)} | result)
            total, killed, never, *_ = counted(result["assertions"])
            print(f"{named(path)}: {killed} of {total} killed, {never} never", end="; ")
            print(f"{result['seconds']:.0f} s", result["error"] or "", flush=True)
    results = {named(path): kept(path) for path in chosen}
    changed = {named(p): edited(kept(p), p, ROOT) for p in chosen if kept(p)["key"]}
    changed = {name: what for name, what in changed.items() if what}
    text = report(results, reasons_given(), changed)
    if len(chosen) == len(chapters(ROOT)):
        (ROOT / "results" / "teeth.md").write_text(text, encoding="utf-8")
    else:
        print(text, *(f"{name}: {', '.join(what)}" for name, what in changed.items()), sep="\n")
    return 1 if any(result["error"] for result in results.values() if result["key"]) else 0


if __name__ == "__main__":
    sys.exit(main())
