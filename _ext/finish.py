"""Each page of the site as it is finished: its drawings, what its links lead to, its scripts.

A cell draws in one grey and some colours that must do on white and on black. On the page they need
not: the file of a drawing names each for a light and for a dark ground, and the browser takes that
of the page. A drawing is never shown so small that its smallest letters have less than nine
pixels; where there is no room, it slides in its figure. And its place is kept free while it loads.
A plot with panels side by side holds another in its description, with its panels below one another
(`src.tools.figures`): that one is shown where the first would have to slide.

What a link to a term, a proposition or a citation leads to is shown where the pointer rests: each
page has, in a `template` that no browser draws, a copy of what its own links lead to.
`_static/reader.js` shows it. So it works offline, and on a file.

A page loads what it shows: no MathJax where there is no formula, no index where nobody searches.
The theme's script of two thousand icons is on no page: the same icons are in a font.
"""

import html
import re
from functools import cache
from pathlib import Path
from posixpath import dirname, join, normpath

from bs4 import BeautifulSoup
from docutils import nodes

from src.tools.figures import INK, ORANGE, PURPLE, SKY

# ---- drawings ------------------------------------------------------------------------------------

COLOURS = {  # on a light ground, on a dark one
    INK: ("#5f6368", "#a8adb3"),
    ORANGE: ("#b97f00", ORANGE),
    SKY: ("#3291cc", SKY),
    PURPLE: ("#b8618f", PURPLE),
}
SMALLEST = 9  # pixels of a letter
LETTERS = re.compile(r'<g style="[^"]*" transform="[^"]*scale\((0\.\d+) -0\.\d+\)">')  # of plots
FONT = re.compile(r"text\{font:(\d+)px")  # of `src.tools.drawing`
SIZE = re.compile(r'<svg[^>]* width="([\d.]+)(pt|)" height="([\d.]+)\2"')
IMAGE = re.compile(r'<img ([^>]*?src="([^"]*_images/([^"/]+))\.svg"[^>]*>)')
STACKED = re.compile(r"<dc:description>(.*?)</dc:description>", re.DOTALL)
MARGINS = 32  # pixels beside the text on a phone
PIXELS = 4 / 3  # of a point


def themed(drawing):
    """A drawing whose colours follow the page."""
    light = "".join(f"--c{i}:{shades[0]};" for i, shades in enumerate(COLOURS.values()))
    dark = "".join(f"--c{i}:{shades[1]};" for i, shades in enumerate(COLOURS.values()))
    for i, colour in enumerate(COLOURS):
        there = re.compile(rf"(fill|stroke|stop-color)(: ?){colour}", re.IGNORECASE)
        drawing = there.sub(rf"\1\2var(--c{i})", drawing)
    style = f"<style>:root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    return re.sub(r"<svg[^>]*>", rf"\g<0>{style}", drawing, count=1)


def sizes(drawing):
    """Width and height of a drawing, and the least width at which it can be read, in pixels."""
    found = SIZE.search(drawing)
    if not found:
        return None
    unit = PIXELS if found[2] else 1
    width, height = float(found[1]) * unit, float(found[3]) * unit
    letters = [100 * PIXELS * float(scale) for scale in LETTERS.findall(drawing)]
    letters += [float(size) for size in FONT.findall(drawing)]
    least = width * SMALLEST / min(letters) if letters else 0
    return round(width), round(height), min(round(width), round(least + 0.5))


def with_sizes(page, known):
    """A page each of whose drawings has a size before it is loaded."""

    def add(found):
        rest, address, name = found.groups()
        if known.get(f"{name}.svg") is None:
            return found[0]
        width, height, least = known[f"{name}.svg"]
        source = ""
        if stacked := known.get(f"{name}-stacked.svg"):
            source = (
                f'<source media="(max-width: {least + MARGINS}px)" width="{stacked[0]}"'
                f' height="{stacked[1]}" srcset="{address}-stacked.svg">'
            )
            least = stacked[2]
        image = f'<img width="{width}" height="{height}" style="min-width: {least}px" {rest}'
        return f"<picture>{source}{image}</picture>" if source else image

    return IMAGE.sub(add, page)


# ---- lines of code -------------------------------------------------------------------------------

CODE = re.compile(r'(<div class="highlight"><pre>(?:<span></span>)?)(.*?)(</pre>)', re.DOTALL)
LINE = re.compile(r".*\n|.+")
PLAIN_SPANS = re.compile(r'<span class="(?:w">(\s*)|(?:n|nn|p)">([^<]*))</span>')


def without_plain_spans(text):
    """A page on which no element surrounds code that would look the same without it."""
    return PLAIN_SPANS.sub(r"\1\2", text)


def with_lines(text):
    """A page of whose code each line is an element: on a phone lines are wrapped."""

    def divided(found):
        lines = LINE.sub(r'<span class="line">\g<0></span>', found[2])
        return f"{found[1]}{lines}{found[3]}"

    return CODE.sub(divided, text)


# ---- what links lead to --------------------------------------------------------------------------

LINK = re.compile(r'<a class="reference internal" href="([^"#]*)#([^"]+)"')


def explained(text):
    """{anchor: what stands there, as HTML} of the terms and boxes that a page explains."""
    soup = BeautifulSoup(text, "html.parser")
    found = {box["id"]: box for box in soup.select("div.proof[id], div.citation[id]")}
    for term in soup.select("dl.glossary dt[id]"):
        found[term["id"]] = term.find_next_sibling("dd")
    return {anchor: plain(part) for anchor, part in found.items() if part}


def plain(part):
    """A copy without anchors and links, which would lead elsewhere on another page."""
    for link in part.select(".headerlink, .introduced, .cited-in, .label"):
        link.decompose()
    for link in part.find_all("a"):
        link.unwrap()
    for node in [part, *part.find_all(id=True)]:
        del node["id"]
    inner = part.decode_contents() if part.name == "dd" else part.decode()
    return re.sub(r"[ \t\r\n]+", " ", inner).strip()  # a space that does not break stays


def with_previews(text, page, explanations):
    """A page with a template for each of its links to something that is explained.

    Args:
        page: its name below the site's folder.
        explanations: what a page explains, by its name.
    """
    made = {}
    for where, anchor in LINK.findall(text):
        target = normpath(join(dirname(page), where)) if where else page
        if part := explanations(target).get(anchor):
            made[f"{where}#{anchor}"] = part
    templates = "".join(
        f'<template data-preview="{link}">{part}</template>\n' for link, part in made.items()
    )
    return text.replace("</body>", f"{templates}</body>")


# ---- scripts -------------------------------------------------------------------------------------

# What a page must contain for a script to be of use on it; never: nothing.
NEVER = "\0"
NEEDS = {
    "fontawesome.js": NEVER,
    "tex-chtml.js": 'class="math ',
    "formulas.js": 'class="math ',
    "searchindex.js": 'id="search-results"',  # elsewhere `_static/reader.js` fetches it
    "clipboard.min.js": "<pre>",
    "copybutton.js": "<pre>",
    "togglebutton.js": "dropdown admonition",
    "design-tabs.js": "sd-tab-",
}
SCRIPT = re.compile(
    r'[ \t]*<script[^>]*\bsrc="(?:[^"?]*/)?([^"/?]+)(?:\?[^"]*)?"[^>]*></script>\n?'
)
SETTINGS = re.compile(r"[ \t]*<script>window\.MathJax = .*?</script>\n?")  # beside MathJax only


def without_idle_scripts(text):
    """A page without the scripts that have nothing to do on it."""

    def keep(found):
        return found[0] if NEEDS.get(found[1], "") in text else ""

    text = SCRIPT.sub(keep, text)
    return text if NEEDS["tex-chtml.js"] in text else SETTINGS.sub("", text)


# ---- screen readers ------------------------------------------------------------------------------

ROLES = {  # the first is of an older standard; lines of a signature are no list of terms
    'role="doc-biblioentry"': 'role="listitem"',
    "<dl>\n<dd>": '<dl role="presentation">\n<dd>',
}


# ---- when pages are made -------------------------------------------------------------------------


def describe(app, pagename, templatename, context, doctree):
    """Put the question of a chapter, or the first paragraph of another page, in the page's head."""
    if doctree is None:
        return
    leads = (each for each in doctree.findall(nodes.container) if "lead" in each["classes"])
    first = next(next(leads, doctree).findall(nodes.paragraph), None)
    if first is not None:
        text = html.escape(" ".join(first.astext().split()), quote=True)
        metatags = context.get("metatags", "")
        context["metatags"] = f'{metatags}<meta name="description" content="{text}" />\n'


def note(app, pagename, templatename, context, doctree):
    app.written.append(f"{pagename}.html")


def finish(app, error):
    """Finish what this build has written; the rest of the site was finished when it was written."""
    if error:
        return
    site, known = Path(app.outdir), {}
    for name in app.builder.images.values():
        if name.endswith(".svg"):
            file = site / "_images" / name
            drawing = file.read_text(encoding="utf-8")
            files = {file: STACKED.sub("", drawing)}
            if found := STACKED.search(drawing):
                files[file.with_stem(f"{file.stem}-stacked")] = html.unescape(found[1])
            for path, each in files.items():
                known[path.name] = sizes(each)
                path.write_text(themed(each), encoding="utf-8")
    made = {}
    for page in app.written:
        text = with_sizes((site / page).read_text(encoding="utf-8"), known)
        made[page] = with_lines(without_plain_spans(text))

    @cache
    def explanations(page):
        file = site / page
        earlier = file.read_text(encoding="utf-8") if file.is_file() else ""
        return explained(made.get(page, earlier))

    for page, text in made.items():
        text = without_idle_scripts(with_previews(text, page, explanations))
        for old, new in ROLES.items():
            text = text.replace(old, new)
        (site / page).write_text(text, encoding="utf-8")


def setup(app):
    app.written = []
    app.connect("html-page-context", describe)
    app.connect("html-page-context", note)
    app.connect("build-finished", finish, priority=800)
