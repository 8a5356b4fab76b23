"""Execute the chapters that changed, some side by side: ``python _ext/execute.py [WORKERS]``.

The builder executes one chapter after the other. What this leaves in its cache it only has to read;
a chapter that fails here is executed once more by the builder, which then says what is wrong.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import yaml
from jupyter_cache import get_cache
from jupyter_cache.executors import load_executor

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "_build" / ".jupyter_cache"
READER = {"name": "myst_nb_md", "type": "plugin"}


def chapters():
    """The pages of the table of contents that have code cells, the longest first."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    found = [ROOT / f"{name}.md" for name in files_of(contents)]
    found = [path for path in found if "{code-cell}" in path.read_text(encoding="utf-8")]
    return sorted(found, key=lambda path: -path.stat().st_size)


def files_of(contents):
    """All names under the key "file", however deep."""
    if isinstance(contents, list):
        return [name for each in contents for name in files_of(each)]
    if not isinstance(contents, dict):
        return []
    own = [contents["file"]] if "file" in contents else []
    return own + [name for each in contents.values() for name in files_of(each)]


def execute(pk, limit):
    """Execute one chapter into the cache; whether it went well."""
    cache = get_cache(str(CACHE))
    executor = load_executor("local-serial", cache)
    return bool(executor.run_and_cache(filter_pks=[pk], timeout=limit).succeeded)


def main():
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    limit = settings["execute"]["timeout"]
    cache = get_cache(str(CACHE))
    records = [cache.add_nb_to_project(str(path), read_data=READER) for path in chapters()]
    records = cache.list_unexecuted(filter_pks=[record.pk for record in records])
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        pending = [pool.submit(execute, record.pk, limit) for record in records]
        for record, result in zip(records, pending, strict=True):
            path = Path(record.uri).relative_to(ROOT)
            print(f"   {path}: {'executed' if result.result() else 'FAILED'}", flush=True)


if __name__ == "__main__":
    main()
