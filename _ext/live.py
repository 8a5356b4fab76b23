"""A figure that answers when it is touched: the directive `live`.

    :::{live} numbers attention attention_step
    Which word wins if the query turns round?
    :::

The question stands below the still figure; `_static/reader.js` adds a button to it. A touch loads
these modules of `live/` in this order, of which the last draws. No page loads them before. A name
that is a record with a model is a script, too: its weights, its settings, and its tokenizer.
"""

from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from sphinx.util.fileutil import copy_asset

from next_token.pages import as_script

FOLDER = "live"


def model_of(root, name):
    return root / "results" / name / "model"


class Live(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self):
        names = self.arguments[0].split()
        root = Path(self.env.app.confdir)
        for name in names:
            if model_of(root, name).is_dir():
                self.env.metadata[self.env.docname]["model"] = name
            elif not (root / FOLDER / f"{name}.js").is_file():
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
        if name := page.get("model"):
            file = shown / f"{name}.js"
            file.write_text(as_script(model_of(Path(app.confdir), name)), encoding="utf-8")


def setup(app):
    app.add_directive("live", Live)
    app.connect("build-finished", copy)
    return {"parallel_read_safe": True}
