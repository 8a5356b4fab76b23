"""Each kernel that JupyterLab starts for the book runs this first: `glued` says what was glued.

A number in the prose of a chapter is shown by an expression, say `glued("typical:.0e", "1e-07")`,
which JupyterLab evaluates whenever its cell is run. Before the value has been glued, the second
argument stands for it: what the last build of the book computed.
"""

from IPython import get_ipython


class Glued:
    """Listens to what cells put out, and keeps what they glue."""

    def __init__(self, publisher):
        self.texts = {}
        publisher.register_hook(self.listen)

    def listen(self, message):
        content = message["content"]
        about = content.get("metadata", {}).get("scrapbook")
        if about:
            self.texts[about["name"]] = content["data"][f"{about['mime_prefix']}text/plain"]
        return message

    def __call__(self, wanted, built="…"):
        from myst_nb.core.variables import format_plain_text

        name, _, form = wanted.rpartition(":") if ":" in wanted else (wanted, "", "s")
        return Words(format_plain_text(self.texts[name], form) if name in self.texts else built)


class Words(str):
    """A text that is shown without quotation marks."""

    def __repr__(self):
        return str(self)


glued = Glued(get_ipython().display_pub)
