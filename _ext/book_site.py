"""What this book adds to Jupyter Book: small hooks, each on one Sphinx event, and kernels.

* `show_repository_buttons`: repository, edit, issue and launch buttons appear as soon as
  `repository: url:` in `_config.yml` names a repository, and not before.
* `offer_executed_notebook`, `mark_downloads`: the download menu of every chapter offers the
  notebook as it ran, outputs included, rendered for any viewer (`plain.py`), beside the Markdown
  source; both are saved, not shown.
* `drop_thebe`: sphinx-thebe writes an address of a content network into every page, and a
  constant that the theme declares a second time (an uncaught error), even when it is off.
* `pack_source`: while no repository is named, the page *Run it* offers the book as a zip file.
* `shorten_references`: in running text a chapter is called by the first half of its title.
* `ShortenSolutionTitles`: a solution says "Solution", and on paper "Solution to Exercise 3.4".
* `use_local_sockets`: what is not in the cache yet is executed as everywhere else in this project.
"""

import zipfile
from pathlib import Path

import nbformat
import plain
import shown
from dependencies import everything
from docutils import nodes
from jupyter_cache import get_cache
from kernels import use_local_sockets
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx_exercise.nodes import solution_node

BUTTONS = ("use_repository_button", "use_edit_page_button", "use_issues_button")
# What the download menu says, for what the theme calls .ipynb, .md and .pdf.
DOWNLOADS = {
    "download-notebook-button": "Notebook, as it ran",
    "download-source-button": "Source in MyST",
    "download-pdf-button": "Print",
}
# Jupyter Book's own default: it stands in the settings whenever ours name no repository.
PLACEHOLDER = "https://github.com/executablebooks/jupyter-book"


def show_repository_buttons(app, config):
    """Switch every button that needs a repository on or off together."""
    options = config.html_theme_options
    url = (options.get("repository_url") or "").rstrip("/")
    named = bool(url) and url != PLACEHOLDER
    options.update(dict.fromkeys(BUTTONS, named))
    if named:
        app.tags.add("repository")
        options["repository_url"] = url
    else:
        options.pop("repository_url", None)
        options.pop("launch_buttons", None)


def pack_source(app):
    """Write all that is no product into one file, the same bytes each time.

    The file stands in `_build`, where the page's `download` finds it.
    """
    if app.tags.has("repository"):
        return
    root = Path(app.confdir)
    packed = root / "_build" / "next-token.zip"
    packed.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(everything(root)):
            name = file.relative_to(root).as_posix()
            about = zipfile.ZipInfo(f"next-token/{name}")  # of 1980: a build has no time of its own
            about.external_attr = file.stat().st_mode << 16
            archive.writestr(about, file.read_bytes(), zipfile.ZIP_DEFLATED)


def shorten_references(app, env):
    """Let a reference to "Masks: who may look where" read "Masks"; its page keeps the whole."""
    labels = env.get_domain("std").labels
    for label, (page, anchor, title) in labels.items():
        if page.endswith(f"/{label}"):
            labels[label] = (page, anchor, title.split(": ")[0])


class ShortenSolutionTitles(SphinxPostTransform):
    """Call each solution "Solution", and put out of sight to which exercise it is.

    It stands right below its exercise, so nobody needs a link there, nor the exercise's own title.
    Who hears the page, and who prints it, is told the number; `custom.css` hides it from others.
    """

    default_priority = 23  # behind sphinx-exercise

    def run(self, **kwargs):
        for solution in self.document.findall(solution_node):
            title = solution.children[0]
            link = next(iter(title.findall(nodes.reference)), None)
            if link is not None:
                number = link.astext().partition(" (")[0].strip()
                title.children = []
                title += nodes.Text("Solution")
                title += nodes.inline("", f" to {number}", classes=["whose"])


def offer_executed_notebook(app, pagename, templatename, context, doctree):
    """Put the executed notebook beside the page's source; the theme then lists it.

    What the page shows for its references and values stands in it, too (`shown.py`).
    """
    root = Path(app.srcdir)
    runs = "kernelspec" in app.env.metadata.get(pagename, {})
    if not runs or pagename == app.config.root_doc:  # whose cells only draw its pictures
        return
    settings = app.env.mystnb_config
    written = Path(settings.output_folder, f"{pagename}.ipynb")
    notebook = nbformat.read(written, as_version=4)
    if settings.execution_mode == "cache":
        # when the outputs came from the cache, myst-nb 1.4 writes the notebook without them
        _, notebook = get_cache(settings.execution_cache_path).merge_match_into_notebook(notebook)
    notebook.metadata.pop("source_map", None)  # line numbers of the Markdown: of no use outside
    found = shown.on_page(app, pagename, notebook)
    nbformat.write(notebook, written)  # the launch buttons copy this one once more
    offered = Path(app.outdir, "_sources", f"{pagename}.ipynb")
    offered.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(
        plain.notebook(notebook, found, pagename, root, **published(app.config)), offered
    )
    context["ipynb_source"] = f"{pagename}.ipynb"


def published(config):
    """The name of the book, and the addresses of its site and its repository, if it has any."""
    options = config.html_theme_options
    return {
        "book": config.project,
        "site": config.html_baseurl.rstrip("/"),
        "repository": options.get("repository_url", ""),
        "branch": options.get("repository_branch", "main"),
    }


def mark_downloads(app, pagename, templatename, context, doctree):
    """Say what the menu offers, and let the browser save files that it would show as text.

    The theme's button has no place for the attribute, so it rides on the address, which the
    theme writes unescaped between quotation marks. `tests/test_site.py` saves both files.
    """
    for group in context.get("header_buttons", ()):
        for button in group.get("buttons", ()):
            button["text"] = DOWNLOADS.get(button.get("label"), button.get("text"))
            if button.get("label") in ("download-notebook-button", "download-source-button"):
                button["url"] += '" download="'


def drop_thebe(app):
    """Disconnect the one listener of sphinx-thebe that adds scripts to the pages."""
    for listener in list(app.events.listeners["env-before-read-docs"]):
        if listener.handler.__name__ == "init_thebe_core":
            app.disconnect(listener.id)


def setup(app):
    use_local_sockets()
    app.connect("config-inited", show_repository_buttons)
    app.add_post_transform(ShortenSolutionTitles)
    app.connect("builder-inited", drop_thebe)
    app.connect("builder-inited", pack_source)
    app.connect("env-check-consistency", shorten_references)
    # the theme builds its menus at priority 501: the notebook before, the attribute after
    app.connect("html-page-context", offer_executed_notebook, priority=400)
    app.connect("html-page-context", mark_downloads, priority=600)
