"""What a chapter's outputs depend on: its cells, the modules of `src` that it imports, the data.

python _ext/dependencies.py book/gpt/cache.md     # the modules, and the key
"""

import ast
import hashlib
import sys
from functools import cache
from pathlib import Path

from jupytext.myst import myst_to_notebook

ROOT = Path(__file__).parents[1]


def code_of(path):
    """The code of a chapter's cells, one after the other."""
    notebook = myst_to_notebook(path.read_text(encoding="utf-8"))
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


@cache
def imported(source, package=("src",)):
    """Names of all that some code imports, lazily or not, relative names as seen from `package`."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def modules(source, root=ROOT):
    """Files of `src` that some code needs, those included which these import in turn."""
    found, waiting = set(), list(imported(source))
    while waiting:
        parts = waiting.pop().split(".")
        if parts[0] != "src":
            continue
        for length in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:length])
            for path in (place.with_suffix(".py"), place / "__init__.py"):
                if path.is_file() and path not in found:
                    found.add(path)
                    package = path.relative_to(root).parent.parts
                    waiting += imported(path.read_text(encoding="utf-8"), package)
    return sorted(found)


def data(source, path, root=ROOT):
    """Files that are no code: what lies beside the chapter, and the records that it names."""
    found = [each for each in path.parent.rglob("*") if each.is_file() and each.suffix != ".md"]
    for record in (root / "results").glob("*"):
        if f'"{record.name}"' in source:
            found += [each for each in [record, *record.rglob("*")] if each.is_file()]
    hidden = ("__pycache__", ".ipynb_checkpoints")
    return sorted(each for each in found if not any(part in hidden for part in each.parts))


def key(path, root=ROOT, *more):
    """A text that changes when something changes that the chapter's outputs depend on."""
    source = code_of(path)
    files = [*modules(source, root), *data(source, path, root), *more]
    digest = hashlib.sha256(source.encode())
    for each in files:
        digest.update(each.relative_to(root).as_posix().encode() + b"\0" + each.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        chapter = Path(name).resolve()
        for each in modules(code_of(chapter)):
            print(each.relative_to(ROOT))
        print(key(chapter))
