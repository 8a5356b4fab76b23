"""What a chapter's outputs depend on: its cells, the modules of `src` that it imports, the data.

Wherever a text does not tell what is needed, more is taken: then something is executed that need
not be.
"""

import ast
import hashlib
import json
import os
import platform
import re
import sys
import textwrap
from contextlib import suppress
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from jupytext.myst import myst_to_notebook

ROOT = Path(__file__).parents[1]
RUNS_TESTS = ("conftest.py", "pyproject.toml", "_ext/kernels.py", "_ext/verdict.py")
KEPT_FOLDERS = ("_ext", "_static", ".binder", ".ci", ".github", ".jupyter")
OURS = ("next-token ", "next_token ")  # in its folder it is found twice, elsewhere once
NAMED = re.compile(r"(src|next_token)(\.\w+)+")


def cells_of(path):
    """The code cells of a chapter."""
    return cells_in(path.read_text(encoding="utf-8"))


@cache
def cells_in(text):
    return [cell for cell in myst_to_notebook(text).cells if cell.cell_type == "code"]


def code_of(path):
    """The code of a chapter's cells, one after the other."""
    return "\n\n".join(cell.source for cell in cells_of(path))


@cache
def imported(source, package=("src",)):
    """Names of all that some code imports, lazily or not, relative names as seen from `package`.

    A name in a text counts, and so does a text that is itself a program.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package[: len(package) + 1 - level] if level else ()
                base = ".".join([*above, *([module] if module else [])])
                found |= {base} | {f"{base}.{alias.name}" for alias in names}
            case ast.Constant(value=str(text)) if NAMED.fullmatch(text):
                found.add(text)
            case ast.Constant(value=str(text)) if "import " in text:
                with suppress(SyntaxError, ValueError):
                    found |= imported(textwrap.dedent(text), package)
    return found


def modules(source, root=ROOT):
    """Files of `src` that some code needs, those included which these import in turn."""
    found, waiting, seen = set(), list(imported(source)), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            stem = root.joinpath(*parts[:length])
            for path in (stem.with_suffix(".py"), stem / "__init__.py"):
                if path.is_file() and path not in found:
                    found.add(path)
                    package = path.relative_to(root).parent.parts
                    waiting += imported(path.read_text(encoding="utf-8"), package)
    return sorted(found)


def data(source, path, root=ROOT):
    """Files that are no code: what lies beside the chapter, and the records that it names."""
    beside = [each for each in files_in(path.parent) if each.suffix != ".md"]
    return sorted([*beside, *records(source, root), *records(source, root, "live")])


def records(source, root=ROOT, folder="results"):
    """Files of the records, or of what else is in a folder, that a program names."""
    named = (each for each in (root / folder).glob("*") if f'"{each.name}"' in source)
    return [file for each in named for file in files_in(each)]


def files_in(place):
    """The file at `place`, or all below it; without what programs leave there."""
    made = ("__pycache__", ".ipynb_checkpoints", ".DS_Store")
    found = [place, *place.rglob("*")] if place.is_dir() else [place]
    return [p for p in found if p.is_file() and not any(part in made for part in p.parts)]


def kept(path):
    """What a file of JSON keeps, as a rule by name; nothing if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def digest(*texts):
    """A short text that stands for these."""
    found = hashlib.sha256()
    for text in texts:
        found.update(text if isinstance(text, bytes) else text.encode())
    return found.hexdigest()[:16]


def hashed(files, root):
    """Names and contents of files, one after the other."""
    for each in files:
        yield each.relative_to(root).as_posix() + "\0"
        yield each.read_bytes()


# ---- all that decides whether something is executed again ---------------------------------------


@cache
def installed():
    """Names and versions of all that is installed but ourselves."""
    found = {f"{each.name} {each.version}" for each in distributions()}
    return sorted(each for each in found if not each.startswith(OURS))


def environment():
    """What everything depends on: the interpreter, all that is installed, and our settings."""
    chosen = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("NEXT_TOKEN_"))
    return digest(sys.version, sys.platform, platform.machine(), *installed(), *chosen)


def state_of_chapter(path, root=ROOT, *more):
    """A key for what is kept of a chapter: cells' tags, the environment and all doubts included."""
    source = code_of(path)
    texts = texts_in(source)
    doubts = beside_modules(root)
    if any(re.fullmatch(r"(.*-m )?next_token( .*)?", text) for text in texts):
        doubts += [*files_in(root / "src"), *files_in(root / "next_token")]
    if "results" in texts and not records(source, root):
        doubts += files_in(root / "results")
    tags = repr([sorted(cell.metadata.items()) for cell in cells_of(path)])
    files = [*modules(source, root), *data(source, path, root), *more, *sorted(set(doubts))]
    return digest(environment(), tags, digest(source, *hashed(files, root)))


def beside_modules(root):
    """Files of `src` that some module may read: it does not tell which."""
    return [each for each in files_in(root / "src") if each.suffix != ".py"]


def state_of_experiment(path, root=ROOT):
    """A key for what an experiment computes: its code, and all that this imports and reads.

    It may read records, and run the cells of a chapter that it names by its path. Of its own record
    only the recipe counts: the rest is what it writes.
    """
    source = path.read_text(encoding="utf-8")
    named = [root / text for text in sorted(texts_in(source)) if text.endswith(".md")]
    sources = [source, *(code_of(each) for each in named if each.is_file())]
    own = root / "results" / path.stem
    read = [e for e in records(source, root) if own not in e.parents or e.name == "recipe.toml"]
    files = {path, *beside_modules(root), *read}
    files = files.union(*(modules(each, root) for each in sources))
    return digest(environment(), *sources, *hashed(sorted(files), root))


def everything(root):
    """All files of the repository but those that programs make."""
    for place in root.iterdir():
        made = place.name.startswith((".", "_", "lab")) or place.name.endswith(".egg-info")
        if place.is_file() or place.name in KEPT_FOLDERS or not made:
            yield from files_in(place)


def texts_in(source):
    """The texts in a program that might name a module or a file."""
    found = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    plain = re.compile(r"[\w.-][\w./ -]{0,99}")
    return {each for each in found if isinstance(each, str) and plain.fullmatch(each)}
