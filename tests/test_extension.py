"""The hooks that this book adds to Jupyter Book, where no build is needed to see them work.

The executed notebooks and their buttons are tested on the built site, in `test_site.py`.
"""

import zipfile
from types import SimpleNamespace

import book_site
import pytest


def options_for(url):
    config = SimpleNamespace(html_theme_options={"launch_buttons": {"binderhub_url": "b"}})
    if url is not None:
        config.html_theme_options["repository_url"] = url
    tags = set()
    book_site.show_repository_buttons(SimpleNamespace(tags=tags), config)
    assert ("repository" in tags) == config.html_theme_options["use_repository_button"]
    return config.html_theme_options


@pytest.mark.parametrize("url", [None, "", book_site.PLACEHOLDER])
def test_without_a_repository_no_button_is_shown(url):
    assert options_for(url) == dict.fromkeys(book_site.BUTTONS, False)


def test_a_named_repository_brings_every_button():
    options = options_for("https://git.example.org/someone/book/")
    assert options["repository_url"] == "https://git.example.org/someone/book"
    assert all(options[button] for button in book_site.BUTTONS)
    assert options["launch_buttons"]


def packed(folder, tags=()):
    """The files of the book as a zip, as far as there is one."""
    app = SimpleNamespace(confdir=folder, tags=SimpleNamespace(has=lambda tag: tag in tags))
    book_site.pack_source(app)
    made = folder / "_build" / "next-token.zip"
    return made.read_bytes() if made.exists() else None


def test_the_source_is_packed_without_what_was_built(tmp_path):
    for name in ("book/a.md", "_build/html/a.html", ".venv/bin/x", "src/__pycache__/a.pyc"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    first = packed(tmp_path)
    with zipfile.ZipFile(tmp_path / "_build" / "next-token.zip") as archive:
        assert archive.namelist() == ["next-token/book/a.md"]
        assert archive.read("next-token/book/a.md") == b"book/a.md"
    assert packed(tmp_path) == first  # the same bytes each time


def test_a_named_repository_takes_the_place_of_the_packed_source(tmp_path):
    assert packed(tmp_path, tags=("repository",)) is None


def test_a_reference_calls_a_chapter_by_the_first_half_of_its_title():
    labels = {
        "masks": ("book/attention/masks", "masks", "Masks: who may look where"),
        "aside": ("book/attention/masks", "aside", "Aside: not a chapter"),
    }
    domain = SimpleNamespace(labels=labels)
    book_site.shorten_references(None, SimpleNamespace(get_domain=lambda name: domain))
    assert [title for _, _, title in labels.values()] == ["Masks", "Aside: not a chapter"]
