"""How long reading takes, in the contents: minutes at each chapter, hours at each part.

They are those that the box at the head of each chapter names, and of which the landing page has
the sum (`prerequisites.py`).
"""

from pathlib import Path

from prerequisites import chapters, hours


def with_times(contents, found, addresses):
    """The contents of the book, of which each link to a chapter says how long it takes.

    Args:
        contents: a soup, with a caption and a list for each part; it is changed.
        found: the chapters. addresses: where the link to each of them leads, by label.
    """
    chapter_at = {addresses[each.label]: each for each in found}
    for caption in contents.select("p.caption"):
        links = caption.find_next_sibling("ul").select("a[href]")
        here = [chapter_at[link["href"]] for link in links if link["href"] in chapter_at]
        if not here or caption.select(".time"):
            continue
        _say(contents, caption, f"{hours(here):g} hours")
        for link in links:
            if link["href"] in chapter_at:
                _say(contents, link, f"{chapter_at[link['href']].minutes} min")
    return contents


def _say(contents, element, time):
    said = contents.new_tag("span", attrs={"class": "time"})
    said.string = time
    element.extend([" ", said])


def add_times(app, pagename, templatename, context, doctree):
    """Let the theme's function for the contents add them; a page's link to itself is a mere #."""
    make = context.get("generate_toctree_html")
    if app.builder.name != "html" or not make:
        return
    found = app.env.chapters_with_times
    addresses = {
        each.label: "#"
        if each.page == pagename
        else app.builder.get_relative_uri(pagename, each.page)
        for each in found
    }
    context["generate_toctree_html"] = lambda *args, **options: with_times(
        make(*args, **options), found, addresses
    )


def read_times(app, env):
    """Once for all pages."""
    env.chapters_with_times = chapters(Path(app.confdir))


def setup(app):
    app.connect("env-check-consistency", read_times)
    app.connect("html-page-context", add_times, priority=600)  # behind the theme, at 500
