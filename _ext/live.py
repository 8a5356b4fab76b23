"""A figure that answers when it is touched: the directive `live`.

    :::{live} numbers attention attention_step
    Which word wins if the query turns round?
    :::

The question stands below the still figure; `_static/reader.js` adds a button to it. A touch loads
these modules of `live/` in this order, of which the last draws. No page loads them before.
"""

from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from sphinx.util.fileutil import copy_asset

FOLDER = "live"


class Live(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self):
        names = self.arguments[0].split()
        for name in names:
            if not Path(self.env.app.confdir, FOLDER, f"{name}.js").is_file():
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
    copy_asset(Path(app.confdir, FOLDER), Path(app.outdir, FOLDER))


def setup(app):
    app.add_directive("live", Live)
    app.connect("build-finished", copy)
    return {"parallel_read_safe": True}
