"""The reference: docstrings that agree with what they describe, and pages that leave nothing out.

What a page looks like, and that its links lead somewhere, is tested on the built site.
"""

import importlib
import inspect
import re
from types import SimpleNamespace

import pytest
from chapters import ROOT
from docutils import nodes, utils
from reference import (
    as_rst,
    chapter_of,
    chapters_of,
    code_behind,
    in_order,
    lead_to_chapters,
    modules,
    named,
    taught,
)

SPECIAL = ("__call__", "__getitem__")  # as in _config.yml
HEADS = "src.attention.heads"

# ---- docstrings and signatures ---------------------------------------------------------------


def entries(module):
    """(name, function or class) of all that the reference shows of a module or class."""
    for name, found in vars(module).items():
        found = getattr(found, "__func__", found)
        found = inspect.unwrap(found) if inspect.isroutine(found) else found
        if name.startswith("_") and name not in SPECIAL:
            continue
        owner = module.__name__ if inspect.ismodule(module) else module.__module__
        if getattr(found, "__module__", None) != owner or not hasattr(found, "__qualname__"):
            continue
        if not found.__doc__ and inspect.isclass(module):
            continue  # what a protocol only promises, and the docstring of the class explains
        yield found.__qualname__, found
        if inspect.isclass(found):
            yield from entries(found)


def listed(docstring, section):
    """The names in a section of a docstring, in order; None if there is no such section."""
    found = re.search(rf"^{section}:\n((?:    .*\n|\n(?= ))+)", f"{docstring}\n", re.MULTILINE)
    lines = re.findall(r"^    (\*{0,2}\w+(?:, \w+)*):", found[1], re.MULTILINE) if found else []
    return [name.lstrip("*") for line in lines for name in line.split(", ")] if found else None


def disagreements(entry):
    """What a docstring says of arguments that its signature does not say."""
    docstring = inspect.getdoc(entry) or ""
    fields = hasattr(entry, "__dataclass_fields__") or hasattr(entry, "_fields")
    for section in ("Args", "Attributes") if fields else ("Args",):
        said = listed(docstring, section)
        if said is not None:
            taken = list(inspect.signature(entry).parameters)
            if said != [name for name in taken if name in said]:
                yield f"{section}: expected names of {', '.join(taken)}; got {', '.join(said)}"


def example(one, *, two=2):
    """An example.

    Args:
        NAMES
    Raises:
        ValueError: never.
    """


@pytest.mark.parametrize(
    ("names", "got"),
    [
        ("one: x;\n            y: z.\n        two: y.", None),
        ("two: y.\n        one: x.", "two, one"),
        ("one: x.\n        two: y.\n        three: z.", "one, two, three"),
    ],
)
def test_arguments_that_are_not_those_of_the_signature_are_found(names, got, monkeypatch):
    monkeypatch.setattr(example, "__doc__", example.__doc__.replace("NAMES", names))
    expected = [f"Args: expected names of one, two; got {got}"] if got else []
    assert list(disagreements(example)) == expected


def test_entries_are_public_functions_classes_and_methods_of_the_module_itself():
    shown = dict(entries(importlib.import_module(HEADS)))
    assert {"MultiHeadAttention", "MultiHeadAttention.forward", "Cache.extend", "linear"} < set(
        shown
    )
    assert "causal_mask" not in shown
    assert not any("._" in f".{name}" for name in shown)


@pytest.mark.parametrize("module", modules())
def test_docstrings_name_the_arguments_of_the_signature_in_its_order(module):
    shown = dict(entries(importlib.import_module(module)))
    found = [f"{name}: {each}" for name, entry in shown.items() for each in disagreements(entry)]
    assert not found, "\n".join(found)


# ---- pages -----------------------------------------------------------------------------------


def test_a_module_names_a_chapter_or_it_is_not_in_src():
    """But for the tools, and what opens the recorded runs: see the page *architecture*."""
    nameless = {name for name in modules() if not chapters_of(name)}
    assert {each for each in nameless if not each.startswith("src.tools.")} == {"src.gpt.released"}


def test_the_reference_has_each_module_once():
    assert sorted(in_order()) == modules()


@pytest.mark.parametrize("module", modules())
def test_a_module_has_a_page_of_its_own_without_cells(module):
    page = ROOT / "book/reference" / f"{module.removeprefix('src.').replace('.', '/')}.md"
    expected = f"# {module}\n\n```{{eval-rst}}\n.. automodule:: {module}\n```\n"
    assert page.read_text(encoding="utf-8") == expected


# ---- what Sphinx reads -----------------------------------------------------------------------


def linked(word):
    return f"<{word}>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A `name`.", "A <name>."),
        ("a * b, pi*(y), **options", "a \\* b, pi\\*(y), \\*\\*options"),
        ("What *may* be, *or not\nbe*, **ever**.", "What *may* be, *or not\nbe*, **ever**."),
        ("|A| and x_ or x_t", "\\|A\\| and x\\_ or x_t"),
        (
            "It is\n\n    a `b` = |c|\n\n    d\n\nSo.",
            "It is\n\nTEXT\n\n    a `b` = |c|\n\n    d\n\nSo.",
        ),
        ("It is\n    a = b\nso.", "It is\n\nTEXT\n\n    a = b\n\nso."),
        ("So:\n\n>>> a * b\n|c|\n\nThen.", "So:\n\n>>> a * b\n|c|\n\nThen."),
        ("Args:\n    a: |x|\n        `y`.", "Args:\n    a: \\|x\\|\n        <y>."),
        ("Args:\n    channels: C.\n    a: (B) x.", "Args:\n    channels: \\C.\n    a: \\(B) x."),
        ("Returns:\n    a: (T,).", "Returns:\n    : a: (T,)."),
    ],
)
def test_a_docstring_is_written_as_sphinx_reads_it(text, expected):
    expected = expected.replace("TEXT", ".. code-block:: text")
    assert re.sub("\n{3,}", "\n\n", as_rst(text, linked)) == f"{expected}\n"


@pytest.mark.parametrize(
    ("word", "owner", "expected"),
    [
        ("MultiHeadAttention.forward", "", ("obj", f"{HEADS}.MultiHeadAttention.forward")),
        ("MultiHeadAttention.split_heads", "", ("obj", f"{HEADS}.Attention.split_heads")),
        ("split_heads", "MultiHeadAttention", ("obj", f"{HEADS}.Attention.split_heads")),
        ("attention/masks", "", ("mod", "src.attention.masks")),
        ("fitting.fit", "", ("obj", "src.likelihood.fitting.fit")),
        (
            "scaled_dot_product_attention",
            "",
            ("obj", "src.attention.attention.scaled_dot_product_attention"),
        ),
        ("_check_parts", "", None),
    ],
)
def test_a_name_leads_to_what_it_names(word, owner, expected):
    assert named(word, HEADS, owner) == expected


# ---- from code to chapters, and back ---------------------------------------------------------


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("A. Derived in the chapter `a/b`.", ["a/b"]),
        ("A `d/e`. Derived in the chapters `a/b` (blocks) and\n`c/d`. Not `e/f`.", ["a/b", "c/d"]),
        ("A. Chapters: `a/b`,\n`c/d`; on others see `e/f`.", ["a/b", "c/d"]),
    ],
)
def test_the_chapters_of_a_module_are_found(docstring, expected):
    assert taught(docstring) == expected


def test_an_entry_leads_to_the_chapter_that_imports_it():
    module = "src.attention.feed_forward"
    assert chapter_of(module, "rms_norm") == "today/norms_and_gates"
    assert chapter_of(module, "nothing") == "attention/block"
    assert chapter_of("src.tools.files", "written") is None


def test_a_chapter_leads_to_its_code_first():
    own, others = code_behind("attention/masks")
    assert own == ["src.attention.masks"]
    assert "src.attention.heads" in others
    assert not any("tools" in name for name in others)


def test_a_page_is_kept_without_the_documents_of_which_its_parts_were_made():
    """Through one of them it would be kept with all that is known of the book, nine megabytes."""
    page, part = utils.new_document("page"), utils.new_document("part")
    part += nodes.paragraph("", "", nodes.Text("A sentence."))
    page += nodes.section("", part.children[0])
    lead_to_chapters(SimpleNamespace(env=SimpleNamespace(docname="page")), page)
    assert all(node.document is page for node in page.findall())
