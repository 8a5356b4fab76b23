"""`src` is in rooms: a folder imports only folders before it, no module needs itself, and none
needs `next_token`, which is built on them.

Lazy imports count, and so does `importlib.import_module("src.x")`.
"""

import ast
import io
import subprocess
import sys
import tokenize
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from dependencies import imported

SRC = Path(__file__).parents[1] / "src"

ROOMS = ["tools", "texts", "likelihood", "tokens", "attention", "gpt", "today"]
# Sums of lines of code. Who adds says what goes. The edition ends at 8,000, 2,500, 1,850, 18,000.
MOST_CODE = {"src": 7_870, "next_token": 2_400, "_ext": 1_810, "tests": 17_950}

# What a module must not bring in when it is imported: a chapter on text should not wait for torch.
LIGHT = {
    "src.tools.files": {"torch", "numpy", "rich"},
    "src.tools.places": {"torch", "numpy", "rich"},
    "src.tools.figures": {"torch"},
    "src.tools.drawing": {"torch", "IPython"},
    "src.tools.tables": {"torch", "numpy", "IPython", "rich"},
    "src.tools.progress": {"torch", "numpy", "IPython", "rich"},
    "src.texts.corpora": {"torch", "numpy", "matplotlib", "datasketch"},
    "next_token.streams": {"torch", "numpy", "matplotlib", "rich"},
    "src.likelihood.ngrams": {"torch", "matplotlib"},
    "src.likelihood.smoothing": {"torch", "matplotlib"},
    "src.tokens.bytes": {"torch", "numpy", "matplotlib", "rich"},
    "src.tokens.bpe": {"torch", "numpy", "matplotlib", "rich"},
    "src.tokens.fast_bpe": {"torch", "numpy", "matplotlib", "rich"},
    "src.tokens.files": {"torch", "numpy"},
    "src.tokens.unigram": {"torch", "numpy", "matplotlib", "rich"},
    "next_token.folders": {"torch", "numpy", "matplotlib", "rich"},
    "next_token.token_folders": {"torch", "matplotlib", "rich"},
    "next_token.tokenizing": {"torch", "matplotlib", "rich"},
    "next_token.__main__": {"torch", "matplotlib", "rich"},
    "next_token.engines": {"torch.distributed.checkpoint", "torch.distributed.fsdp"},
    "src.gpt.data_overlap": {"torch", "matplotlib", "datasketch"},
    "src.today.gguf_files": {"torch", "matplotlib", "rich"},
    "src.gpt.data_quality": {"torch", "matplotlib", "datasketch"},
}

MODULES = {
    ".".join(path.relative_to(SRC).with_suffix("").parts): path
    for path in sorted(SRC.rglob("*.py"))
    if path.stem != "__init__"
}
COMMAND = [
    f"next_token.{path.stem}" for path in sorted((SRC.parent / "next_token").glob("[!_]*.py"))
]


def imports(module, source):
    """Dotted names, within src, of all that a module imports from it, wherever in the file."""
    return within("src", imported(source, ("src", *module.split(".")[:-1])))


def within(package, names):
    """The rest of the names that stand for something in a package."""
    return {name.removeprefix(f"{package}.") for name in names if name.startswith(f"{package}.")}


def room(name):
    return name.split(".")[0]


def rooms(module, source):
    """The folders from which a module imports."""
    return {room(name) for name in imports(module, source)}


def up_to(module):
    """The folder of a module and all before it."""
    return set(ROOMS[: ROOMS.index(room(module)) + 1])


# ---- planted defects -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("from ..gpt.gpt2 import GPT", {"gpt"}),
        ("from .. import gpt", {"gpt"}),
        ("import torch, src.gpt.gpt2 as g", {"gpt"}),
        ("class Late:\n    def late(self):\n        import src.gpt.gpt2", {"gpt"}),
        ("import importlib\nimportlib.import_module('src.gpt.gpt2')", {"gpt"}),
        ("from ..unheard_of.x import y", {"unheard_of"}),
        ("from ..texts.markov import Words\nfrom .masks import causal_mask\nimport torch", set()),
    ],
)
def test_an_import_from_a_later_folder_is_found_however_it_is_written(line, expected):
    assert rooms("attention.heads", line) - up_to("attention.heads") == expected


# ---- the package -----------------------------------------------------------------------------


def test_each_room_of_src_is_known_and_none_is_empty():
    assert {room(module) for module in MODULES} == set(ROOMS)


def test_src_does_not_need_the_command():
    sources = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items()}
    found = {name: within("next_token", imported(text)) for name, text in sources.items()}
    assert not any(found.values()), found


def test_a_folder_imports_only_folders_before_it():
    found = {
        module: later
        for module, path in MODULES.items()
        if (later := rooms(module, path.read_text(encoding="utf-8")) - up_to(module))
    }
    assert not found, found


def test_no_module_needs_itself():
    sources = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items()}
    graph = {name: imports(name, source) & sources.keys() for name, source in sources.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_a_package_itself_holds_nothing():
    for path in SRC.rglob("__init__.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert not [node for node in body if not isinstance(node, ast.Expr)], path


def lines_of_code(source):
    """How many lines hold code: no blank ones, no comments, no docstrings."""
    found = set()
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (*silent, tokenize.ENDMARKER):
            found |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            found -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(found)


def test_lines_of_code_are_counted():
    assert lines_of_code('"""A\nb."""\n\nx = """a\nb"""  # c\n\n\ndef f():\n    """D."""\n') == 3


def test_the_folders_keep_to_their_sums():
    sums = {
        folder: sum(
            lines_of_code(path.read_text(encoding="utf-8"))
            for path in (SRC.parent / folder).rglob("*.py")
        )
        for folder in MOST_CODE
    }
    assert all(lines <= MOST_CODE[folder] for folder, lines in sums.items()), sums


# ---- what an import brings in ----------------------------------------------------------------


def said(code):
    """All that a fresh interpreter says that runs some code."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=SRC.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_importing_the_modules_says_nothing():
    assert said(f"import {', '.join([*(f'src.{name}' for name in MODULES), *COMMAND])}") == ""


@pytest.mark.parametrize("unwanted", sorted(set().union(*LIGHT.values())))
def test_light_modules_stay_light(unwanted):
    names = [module for module, unwanteds in LIGHT.items() if unwanted in unwanteds]
    lines = [f"import {each}\nif {unwanted!r} in sys.modules: sys.exit({each!r})" for each in names]
    said("\n".join(["import sys", *lines]))
