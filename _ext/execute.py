"""``make book``: execute the chapters that changed, some side by side, and write the site.

What a chapter put out is kept in the builder's cache, together with a key of all that it depends on
(`dependencies.py`). The cache itself would notice a change of the chapter's cells only, so what has
another key by now is taken out before anything is executed. A chapter is judged as nbval judges it
(`verdict.py`), and `make test` takes over what passed (`seen.py`). A faulty book is not built.
"""

import argparse
import json
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import yaml
from dependencies import ROOT, digest, environment, files_in, kept, state_of_chapter
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from jupyter_cache.readers import get_reader
from kernels import use_local_sockets
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from seen import executed
from sphinx_external_toc.parsing import parse_toc_yaml
from verdict import faults, stopped_at

CACHE = Path("_build", ".jupyter_cache")
READER = {"name": "myst_nb_md", "type": "plugin"}
PAGES = ("book", "live", "_ext", "_static", "_config.yml", "_toc.yml", "references.bib")


def chapters(root=ROOT):
    """The pages of the table of contents that have code cells."""
    found = [root / f"{name}.md" for name in parse_toc_yaml(root / "_toc.yml")]
    return [path for path in found if "{code-cell}" in path.read_text(encoding="utf-8")]


def read(path):
    """The chapter as the builder reads it."""
    return get_reader(READER)(str(path))


def forget_stale(states, root=ROOT):
    """Take out of the cache what is kept of chapters that have another state now, and list them.

    Those that took longest the last time come first: else all would wait for them in the end.
    """
    cache, stale = get_cache(str(root / CACHE)), []
    records = cache.list_cache_records()
    seconds = {each.uri: each.data.get("execution_seconds", 0) for each in records}
    for path, state in states.items():
        try:
            record = cache.match_cache_notebook(read(path))
        except KeyError:
            stale.append(path)
        else:
            if record.data.get("state") != state:
                cache.remove_cache(record.pk)
                stale.append(path)
    return sorted(stale, key=lambda path: -seconds.get(str(path), 0))


def execute(path, state, limit, root=ROOT):
    """Execute one chapter; what is to be kept of it, or what is wrong with it."""
    name, notebook = path.relative_to(root).as_posix(), read(path)
    try:
        result = single_nb_execution(notebook, str(path.parent), limit, allow_errors=False)
    except DeadKernelError as error:
        return f"{name}: {error}"
    text = path.read_text(encoding="utf-8")
    found = list(faults(text, result.nb))
    if isinstance(result.err, CellTimeoutError):  # it was interrupted, and may have said so
        found[-1:] = [(stopped_at(text, result.nb), f"the cell took more than {limit} seconds")]
    if found:
        return "\n".join(f"{name}:{line}: {reason}" for line, reason in found)
    kept = {"execution_seconds": result.time, "state": state}
    return CacheBundleIn(result.nb, str(path), data=kept)


def execute_all(states, workers, limit, root=ROOT):
    """Execute these chapters side by side, in this order; what is wrong with them."""
    print(f"   {len(states)} to execute, up to {workers} side by side", flush=True)
    cache, spawn = get_cache(str(root / CACHE)), get_context("spawn")
    found = []
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=use_local_sockets) as pool:
        pending = {
            pool.submit(execute, path, state, limit, root): path for path, state in states.items()
        }
        for number, result in enumerate(as_completed(pending), 1):
            path, done = pending[result], result.result()
            failed = isinstance(done, str)
            said = "FAILED" if failed else f"{done.data['execution_seconds']:.0f} s"
            name = path.relative_to(root)
            print(f"   {name}: {said}; {number} of {len(states)} chapters", flush=True)
            if failed:
                found.append(done)
                continue
            # Here, in one process: of several each may take out what another is about to write.
            cache.cache_notebook_bundle(done, check_validity=False, overwrite=True)
            executed([path], root)
    return found


def main(arguments=None, root=ROOT):
    parser = argparse.ArgumentParser(description="Execute what changed, and write the site.")
    parser.add_argument("--workers", type=int, default=2)
    workers = parser.parse_args(arguments).workers
    folders = ("src", "next_token", "results", *PAGES)
    inputs = [file for name in folders for file in files_in(root / name)]
    now = {file.relative_to(root).as_posix(): digest(file.read_bytes()) for file in inputs}
    now = {name: each for name, each in now.items() if not name.endswith(".ipynb")}
    now["environment"], built = environment(), root / "_build" / "built.json"
    before = kept(built)
    changed = {name for name, _ in now.items() ^ before.items()}
    if not changed:
        print("== Book: nothing changed; open _build/html/index.html")
        return 0
    print("== Book, step 1 of 2: chapters", flush=True)
    built.unlink(missing_ok=True)
    states = {path: state_of_chapter(path, root) for path in chapters(root)}
    stale = forget_stale(states, root)
    if stale:
        settings = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
        limit = settings["execute"]["timeout"]
        found = execute_all({path: states[path] for path in stale}, workers, limit, root)
        if found:
            print("== Book: not written, since a chapter is wrong", *found, sep="\n")
            return 1
    print("== Book, step 2 of 2: pages", flush=True)
    # Sphinx reads again what was edited (`edits.py`), and repeats no warning about other pages. So
    # it starts afresh after a build that failed, or if something else changed than texts of pages.
    edited = {name for name in changed if name.startswith("book/") and name.endswith(".md")}
    if not changed == edited <= now.keys() & before.keys():
        for made in ("html", ".doctrees", "jupyter_execute"):
            shutil.rmtree(root / "_build" / made, ignore_errors=True)
    builder = [Path(sys.executable).with_name("jupyter-book"), "build", ".", "-q"]
    status = subprocess.run([*builder, "-W", "-n", "--keep-going"], cwd=root).returncode
    if status == 0:
        built.write_text(json.dumps(now), encoding="utf-8")
        print("== Book: built; open _build/html/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
