"""How far has it got? A bar for whatever takes longer than a breath.

The bar belongs to `rich`. What is ours is that it leaves no trace: a chapter's output must be the
same in every run, and a built page must ask nothing of the network, as rich's own notebook bar
would, which needs widgets. This module imports nothing heavy, so that tokenizers can use it.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")


def progress(
    items: Iterable[_Item], description: str, *, status: Callable[[], str] | None = None
) -> Iterator[_Item]:
    """Go through some items behind a progress bar, which disappears when it is done.

    In a notebook the bar shares the cell's output, and takes along what was printed before it.

    Args:
        items: what to go through; the bar knows how far it is if they have a length.
        description: what is being done, in a word or two.
        status: asked, some times a second, how it goes: a few words that end the line.
    """
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, Task
    from rich.text import Text

    class Status(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(status() if status else "")

    ipython = sys.modules.get("IPython")  # only a notebook has loaded it
    notebook = ipython is not None and ipython.get_ipython() is not None
    # As a terminal's bar rather than a notebook's, which would need widgets and their scripts.
    console = Console(force_jupyter=False, force_terminal=notebook or None, stderr=not notebook)
    columns = Progress.get_default_columns() + ((Status(),) if status else ())
    # Whoever runs a notebook keeps some thousand messages of a cell: a slow bar fits for minutes.
    often = 2 if notebook else 10
    with Progress(*columns, console=console, transient=True, refresh_per_second=often) as bar:
        yield from bar.track(items, description=description)
    if ipython is not None and notebook:
        ipython.display.clear_output()
