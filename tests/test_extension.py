"""The hooks that this book adds to Jupyter Book, where no build is needed to see them work.

The executed notebooks and their buttons are tested on the built site, in `test_site.py`.
"""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

FILE = Path(__file__).resolve().parents[1] / "_ext" / "book_site.py"
SPEC = importlib.util.spec_from_file_location("book_site", FILE)
book_site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(book_site)


def options_for(url):
    config = SimpleNamespace(html_theme_options={"launch_buttons": {"binderhub_url": "b"}})
    if url is not None:
        config.html_theme_options["repository_url"] = url
    book_site.show_repository_buttons(None, config)
    return config.html_theme_options


@pytest.mark.parametrize("url", [None, "", book_site.PLACEHOLDER])
def test_without_a_repository_no_button_is_shown(url):
    assert options_for(url) == dict.fromkeys(book_site.BUTTONS, False)


def test_a_named_repository_brings_every_button():
    options = options_for("https://git.example.org/someone/book/")
    assert options["repository_url"] == "https://git.example.org/someone/book"
    assert all(options[button] for button in book_site.BUTTONS)
    assert options["launch_buttons"]


def test_the_placeholder_is_the_default_of_jupyter_book():
    jupyter_book = importlib.util.find_spec("jupyter_book")
    defaults = Path(jupyter_book.origin).with_name("default_config.yml")
    assert book_site.PLACEHOLDER in defaults.read_text(encoding="utf-8")
