"""A figure that answers when it is touched: the directive `live`.

    :::{live} numbers attention attention_step
    Which word wins if the query turns round?
    :::

The question stands below the still figure; `_static/reader.js` adds a button to it. A touch loads
these modules of `live/` in this order, of which the last draws. No page loads them before. Two
kinds of names are made into scripts: a record with a model, by its folder in `results`, is its
weights, its settings, and its tokenizer; `micro_world` is the words and odds of the language that
the models of `results/gpt2` have learned. What `:later:` names is there for the figure to load.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective
from sphinx.util.fileutil import copy_asset

from next_token.pages import as_script

FOLDER = "live"
WORLD = "micro_world"


def script(root, name):
    """The text of a module; None: there is none."""
    if (file := root / FOLDER / f"{name}.js").is_file():
        return file.read_text(encoding="utf-8")
    if name == WORLD:
        return world_script(root)
    record = root / "results" / name
    for folder in (record / "model", record):
        if (folder / "config.json").is_file():
            return as_script(folder)
    return None


def world_script(root):
    """Words, tables and settings of the micro-world, as `live/microworld.js` reads them."""
    from src.gpt.released import read_toml, world_of
    from src.texts import microworld_tables, microworld_words

    world = world_of(read_toml(root / "results" / "gpt2" / "recipe.toml"))
    found = {**vars(microworld_words), **vars(microworld_tables)}
    found = {name: value for name, value in found.items() if name.isupper()}
    found |= asdict(world) | vars(microworld_tables.Tables(world))
    for name in ("verbs", "value"):  # whose keys have several parts
        found[name] = {",".join(map(str, key)): each for key, each in found[name].items()}
    said = json.dumps(found, default=odds)
    return f"globalThis.nextToken ??= {{}};\nnextToken.world = {said};\n"


def odds(value):
    """A choice as {option: probability}; a set as a list."""
    if isinstance(value, frozenset):
        return sorted(value)
    return dict(zip(value.options, value.probs, strict=True))


class Live(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar = {"later": directives.unchanged}

    def run(self):
        names, later = self.arguments[0].split(), self.options.get("later", "").split()
        for name in (*names, *later):
            if script(Path(self.env.app.confdir), name) is None:
                raise self.severe(f"expected modules of {FOLDER}, got {name!r}")
        self.env.metadata[self.env.docname].setdefault("live", []).extend((*names, *later))
        up = "../" * self.env.docname.count("/")
        scripts = " ".join(f"{up}{FOLDER}/{name}.js" for name in names)
        start = f'<div class="live" data-figure="{names[-1]}" data-scripts="{scripts}">'
        question = nodes.container("")
        self.state.nested_parse(self.content, self.content_offset, question)
        return [
            nodes.raw("", start, format="html"),
            question,
            nodes.raw("", "</div>", format="html"),
        ]


def copy(app, _):
    root, shown = Path(app.confdir), Path(app.outdir, FOLDER)
    copy_asset(root / FOLDER, shown, excluded=lambda file: file.endswith(".html"))  # no pages
    for name in {name for page in app.env.metadata.values() for name in page.get("live", ())}:
        file = shown / f"{name}.js"
        file.parent.mkdir(exist_ok=True)
        file.write_text(script(root, name), encoding="utf-8")


def setup(app):
    app.add_directive("live", Live)
    app.connect("build-finished", copy)
    return {"parallel_read_safe": True}
