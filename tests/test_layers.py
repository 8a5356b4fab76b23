"""`src` is flat and in layers: a module imports only from layers below its own.

Lazy imports count, and so do `importlib.import_module("src.x")` and `__import__("src.x")`.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"

LAYERS = {
    "files": -1,
    **dict.fromkeys(
        [
            *("likelihood", "corpora", "runtime", "programs", "progress", "figures"),
            *("tokenizer_files", "checkpoints", "parallel"),
        ],
        0,
    ),
    **dict.fromkeys(["microworld", "sources", "tokenization", "ngram", "attention", "overlap"], 1),
    **dict.fromkeys(["transformer", "baselines", "unigram", "instructions", "heads"], 2),
    **dict.fromkeys(["gpt"], 3),
    **dict.fromkeys(["pretrained", "sampling", "training", "encoders"], 4),
    **dict.fromkeys(["evaluation"], 5),
    **dict.fromkeys(["runs", "tasks", "objectives"], 6),
    **dict.fromkeys(["finetuning", "preferences", "zero_shot"], 7),
    **dict.fromkeys(["__main__"], 8),
}

# What a module must not bring in when it is imported: a chapter on text should not wait for torch.
LIGHT = {
    "files": {"torch", "numpy", "rich"},
    "corpora": {"torch", "numpy", "matplotlib", "datasketch"},
    "figures": {"torch"},
    "ngram": {"torch", "matplotlib"},
    "overlap": {"torch", "matplotlib", "datasketch"},
    "progress": {"torch", "numpy", "IPython", "rich"},
    "tokenizer_files": {"torch", "numpy"},
    "tokenization": {"torch", "numpy", "matplotlib", "rich"},
    "unigram": {"torch", "numpy", "matplotlib", "rich"},
}

MODULES = {path.stem: path for path in sorted(SRC.glob("*.py")) if path.stem != "__init__"}


def sibling_imports(source):
    """(line, module of src) for each import of a sibling, wherever in the file it stands."""
    for node in ast.walk(ast.parse(source)):
        for name in imported_names(node):
            parts = name.split(".")
            if parts[0] == "src":
                yield node.lineno, parts[1] if len(parts) > 1 else "__init__"


def imported_names(node):
    """The dotted names that one syntax node imports, relative ones as `src.x`."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(level=0, module="src", names=names):
            return [f"src.{alias.name}" for alias in names]
        case ast.ImportFrom(level=0, module=module):
            return [module]
        case ast.ImportFrom(module=None, names=names):
            return [f"src.{alias.name}" for alias in names]
        case ast.ImportFrom(module=module):
            return [f"src.{module}"]
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
            called = ast.unparse(function).split(".")[-1]
            relative = name.startswith(".")
            dynamic = called in ("import_module", "__import__")
            return [f"src{name}" if relative else name] if dynamic else []
    return []


def layer_violations(module, source, layers=LAYERS):
    """What the module imports from its own layer or from a higher one, as messages."""
    own = layers[module]
    for line, imported in sibling_imports(source):
        other = layers.get(imported)
        if other is None:
            yield f"src/{module}.py:{line}: imports src.{imported}, which has no layer"
        elif other >= own:
            yield (
                f"src/{module}.py:{line}: layer {own} imports src.{imported} of layer {other}; "
                "move the shared part down, or pass it in as an argument"
            )


@pytest.mark.parametrize(
    "line",
    [
        "from .gpt import GPT",
        "from . import gpt",
        "from src.gpt import GPT",
        "from src import gpt",
        "import src.gpt",
        "import torch, src.gpt as g",
        "def late():\n    from .gpt import GPT",
        "class Late:\n    def late(self):\n        import src.gpt",
        "if TYPE_CHECKING:\n    from .gpt import GPT",
        "import importlib\nimportlib.import_module('src.gpt')",
        "import importlib\nimportlib.import_module('.gpt', 'src')",
        "__import__('src.gpt')",
    ],
)
def test_an_import_upwards_is_found_however_it_is_written(line):
    (message,) = layer_violations("attention", line)
    assert message.startswith(
        f"src/attention.py:{line.count(chr(10)) + 1}: layer 1 imports src.gpt"
    )


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("attention", "from .sources import x"),
        ("attention", "from .attention import x"),
        ("figures", "from .likelihood import x"),
    ],
)
def test_an_import_from_the_same_layer_is_found(module, line):
    (message,) = layer_violations(module, line)
    assert "move the shared part down" in message


@pytest.mark.parametrize("line", ["from .unheard_of import x", "import src"])
def test_an_import_of_what_has_no_layer_is_found(line):
    (message,) = layer_violations("attention", line)
    assert "has no layer" in message


@pytest.mark.parametrize(
    "line",
    ["from .likelihood import entropy", "from src.likelihood import entropy", "import torch.nn"],
)
def test_an_import_downwards_or_from_elsewhere_is_allowed(line):
    assert not list(layer_violations("attention", line))


def test_src_is_flat_and_not_empty():
    assert MODULES, f"expected modules in {SRC.name}/, found none"
    nested = [p.relative_to(SRC).as_posix() for p in SRC.rglob("*.py") if p.parent != SRC]
    assert not nested, f"src is flat: move {nested} up"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_a_layer_and_imports_only_from_below_it(module):
    assert module in LAYERS, f"src/{module}.py has no layer: add it to LAYERS (see CONTRIBUTING.md)"
    found = list(layer_violations(module, MODULES[module].read_text(encoding="utf-8")))
    assert not found, "\n".join(found)


def test_the_package_itself_imports_nothing():
    source = (SRC / "__init__.py").read_text(encoding="utf-8")
    assert not list(sibling_imports(source)), "import src must stay free: import the module instead"


def import_report(code, path=SRC.parent):
    """(exit status, all that was said) when a fresh interpreter runs `code`."""
    done = subprocess.run([sys.executable, "-c", code], cwd=path, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def heavy_imports(module, unwanted, path=SRC.parent):
    """Which of the `unwanted` modules `import src.module` brings in."""
    code = f"import sys, src.{module}; print(*(m for m in {sorted(unwanted)} if m in sys.modules))"
    status, said = import_report(code, path)
    assert status == 0, said
    return said.split()


def test_importing_the_modules_says_nothing():
    names = [f"src.{name}" for name in MODULES if name != "__main__"]
    assert import_report(f"import {', '.join(names)}") == (0, "")


@pytest.mark.parametrize("module", sorted(LIGHT.keys() & MODULES.keys()))
def test_a_light_module_stays_light(module):
    found = heavy_imports(module, LIGHT[module])
    assert not found, f"import src.{module} brings in {found}: import it where it is used"


def test_a_loud_and_heavy_import_is_found(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "__init__.py").touch()
    (tmp_path / "src" / "planted.py").write_text("import wave\n")
    assert heavy_imports("planted", {"wave", "torch"}, tmp_path) == ["wave"]
    (tmp_path / "src" / "planted.py").write_text("print('hello')\n")
    assert import_report("import src.planted", tmp_path) == (0, "hello\n")
