"""A figure that answers when it is touched: the directive `live`.

    :::{live} numbers attention attention_step
    Which word wins if the query turns round?
    :::

The question stands below the still figure; `_static/reader.js` adds a button to it. A touch loads
these modules of `live/` in this order, of which the last draws. No page loads them before. A name
that is a record with a model is a script, too: its weights, its settings, and its tokenizer. So is
one of `TOKENIZERS`: its merges.
"""

import json
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from sphinx.util.fileutil import copy_asset

from next_token.pages import as_script
from src.texts.corpora import load, split
from src.tokens.bpe import BytePairTokenizer
from src.tokens.vocabularies import released

FOLDER = "live"


@cache
def our_tokenizer():
    """That of the chapter `tokens/bpe`."""
    texts = (document.text for document in split(load("python-docs")).train)
    return BytePairTokenizer.train(texts, vocabulary_size=2048)


TOKENIZERS = {"our_merges": our_tokenizer, "gpt2_merges": lambda: released("gpt2")}


def is_made(root, name):
    """Whether a script is no file of `live/`, but made for the site."""
    return name in TOKENIZERS or (root / "results" / name / "model").is_dir()


@cache
def made_script(root, name):
    if name not in TOKENIZERS:
        return as_script(root / "results" / name / "model")
    pairs = "".join(chr(left) + chr(right) for left, right in TOKENIZERS[name]().merges)
    said = json.dumps(pairs, ensure_ascii=False).replace("<", "\\u003c")
    return f"globalThis.nextToken ??= {{}};\n(nextToken.merges ??= {{}}).{name} = {said};\n"


class Live(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self):
        names = self.arguments[0].split()
        root = Path(self.env.app.confdir)
        made = [name for name in names if is_made(root, name)]
        page = self.env.metadata[self.env.docname]
        page["scripts"] = " ".join([page.get("scripts", ""), *made])
        for name in names:
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
    copy_asset(folder, shown, excluded=lambda file: file.endswith(".html"))  # which are no pages
    for page in app.env.metadata.values():
        for name in page.get("scripts", "").split():
            text = made_script(Path(app.confdir), name)
            (shown / f"{name}.js").write_text(text, encoding="utf-8")


def setup(app):
    app.add_directive("live", Live)
    app.connect("build-finished", copy)
    return {"parallel_read_safe": True}
