"""A figure that answers when it is touched: the directive `live`.

    :::{live} numbers attention attention_step
    Which word wins if the query turns round?
    :::

The question stands below the still figure; `_static/reader.js` adds a button to it. A touch loads
these scripts in this order, of which the last draws. No page loads them before. A name is that of a
module of `live/`, of a record with a model (its weights, settings and tokenizer), or of `MADE`:
merges, or the words and odds of the language that the models of `results/gpt2` have learned. What
`:later:` names is there for the figure to load.
"""

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective
from sphinx.util.fileutil import copy_asset

from next_token.pages import as_script
from src.gpt.released import read_toml, world_of
from src.texts import microworld_tables, microworld_words
from src.texts.corpora import load, split
from src.tokens.bpe import BytePairTokenizer
from src.tokens.vocabularies import released
from src.tools.places import place_of

FOLDER = "live"


def script_of(name, said):
    return f"globalThis.nextToken ??= {{}};\nnextToken.{name} = {said};\n"


def merges(name, tokenizer):
    """The two ids of each merge as two characters."""
    pairs = "".join(chr(left) + chr(right) for left, right in tokenizer.merges)
    return script_of(name, json.dumps(pairs, ensure_ascii=False).replace("<", "\\u003c"))


def our_tokenizer():
    """That of the chapter `tokens/bpe`."""
    texts = (document.text for document in split(load("python-docs")).train)
    return BytePairTokenizer.train(texts, vocabulary_size=2048)


def micro_world():
    """Words, tables and settings, as `live/microworld.js` reads them."""
    world = world_of(read_toml(place_of("results") / "gpt2" / "recipe.toml"))
    found = {**vars(microworld_words), **vars(microworld_tables)}
    found = {name: value for name, value in found.items() if name.isupper()}
    found |= asdict(world) | vars(microworld_tables.Tables(world))
    for name in ("verbs", "value"):  # whose keys have several parts
        found[name] = {",".join(map(str, key)): each for key, each in found[name].items()}
    return script_of("world", json.dumps(found, default=odds))


def odds(value):
    """A choice as {option: probability}; a set as a list."""
    if isinstance(value, frozenset):
        return sorted(value)
    return dict(zip(value.options, value.probs, strict=True))


MADE = {
    "our_merges": lambda: merges("ourMerges", our_tokenizer()),
    "gpt2_merges": lambda: merges("gpt2Merges", released("gpt2")),
    "micro_world": micro_world,
}


def model_of(root, name):
    """The folder of a record's model: one of its own, or the record itself."""
    record = root / "results" / name
    return record / "model" if (record / "model").is_dir() else record


def is_made(root, name):
    """Whether a script is no file of `live/`, but made for the site."""
    return name in MADE or (model_of(root, name) / "config.json").is_file()


@cache
def made_script(root, name):
    return MADE[name]() if name in MADE else as_script(model_of(root, name))


class Live(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar = {"later": directives.unchanged}

    def run(self):
        names, later = self.arguments[0].split(), self.options.get("later", "").split()
        root = Path(self.env.app.confdir)
        made = [name for name in (*names, *later) if is_made(root, name)]
        self.env.metadata[self.env.docname].setdefault("scripts", []).extend(made)
        for name in (*names, *later):
            if name not in made and not (root / FOLDER / f"{name}.js").is_file():
                raise self.severe(f"expected modules of {FOLDER}, got {name!r}")
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
    folder, shown = Path(app.confdir, FOLDER), Path(app.outdir, FOLDER)
    copy_asset(folder, shown)
    for page in app.env.metadata.values():
        for name in page.get("scripts", ()):
            text, file = made_script(Path(app.confdir), name), shown / f"{name}.js"
            file.parent.mkdir(exist_ok=True)  # a name may have a folder
            file.write_text(text, encoding="utf-8")


def setup(app):
    app.add_directive("live", Live)
    app.connect("build-finished", copy)
