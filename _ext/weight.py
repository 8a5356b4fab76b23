"""A page loads what it shows, and no more: less to fetch, and less to read before it can be read.

* `without_idle_scripts` takes a script off every page on which it has nothing to do: MathJax where
  there is no formula, the search index where nobody searches. The theme's script of two thousand
  icons is on no page: the same icons are in a font.
* `without_plain_spans` takes away the elements that the colouring of code puts around blanks, and
  around names and signs that have the colour of the text.
* `with_lines` puts an element around each line of code: on a phone lines are wrapped.
* `trim` reads the finished site and takes out of the style sheets each rule about a class that no
  page has and no script names, of the font of icons all that no rule shows, and of the files those
  that no page can ask for: maps of sources, and MathJax for other kinds of input and output.
* `describe` writes the sentence that search engines and previews show.

Only the builder of the site does this; what it leaves out is tested in `tests/test_site.py`.
"""

import html
import logging
import re
from itertools import pairwise
from pathlib import Path

import tinycss2
from docutils import nodes
from fontTools import subset

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

MATHJAX = ("tex-chtml.js", "input/tex/", "output/chtml/")  # what our formulas ask for
ICONS = "fa-solid-900"  # the one font of icons that the pages show
ICON = re.compile("[\ue000-\uf8ff]")
ESCAPED = re.compile(r"\\([ef][0-9a-f]{3})\b", re.IGNORECASE)


def without_idle_scripts(text):
    """A page without the scripts that have nothing to do on it."""

    def keep(found):
        return found[0] if NEEDS.get(found[1], "") in text else ""

    text = SCRIPT.sub(keep, text)
    return text if NEEDS["tex-chtml.js"] in text else SETTINGS.sub("", text)


PLAIN_SPANS = re.compile(r'<span class="(?:w">(\s*)|(?:n|nn|p)">([^<]*))</span>')


def without_plain_spans(text):
    """A page on which no element surrounds code that would look the same without it."""
    return PLAIN_SPANS.sub(r"\1\2", text)


CODE = re.compile(r'(<div class="highlight"><pre>(?:<span></span>)?)(.*?)(</pre>)', re.DOTALL)
LINE = re.compile(r".*\n|.+")


def with_lines(text):
    """A page of whose code each line is an element."""

    def divided(found):
        lines = LINE.sub(r'<span class="line">\g<0></span>', found[2])
        return f"{found[1]}{lines}{found[3]}"

    return CODE.sub(divided, text)


def words_of(site):
    """All that may be a class on some page: what pages have and what scripts name."""
    words = set()
    for file in site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        for classes in re.findall(r'class="([^"]*)"', text):
            words.update(html.unescape(classes).split())
        for script in re.findall(r"<script.*?</script>", text, re.DOTALL):
            words.update(re.findall(r"[\w-]+", script))
    for file in site.rglob("*.js"):
        if not file.is_relative_to(site / "_static" / "mathjax") and file.name != "searchindex.js":
            words.update(re.findall(r"[\w-]+", file.read_text(encoding="utf-8")))
    return words


def classes_in(selector):
    """The classes that an element, or one above it, must have: not those within brackets."""
    return {b.value for a, b in pairwise(selector) if a == "." and b.type == "ident"}


def trimmed(rules, words):
    """Rules of a style sheet, as text, without those about classes that are not among the words."""
    kept = []
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors, last = [], []
            for token in [*rule.prelude, None]:
                if token is None or token == ",":
                    selectors.append(last)
                    last = []
                else:
                    last.append(token)
            selectors = [each for each in selectors if classes_in(each) <= words]
            if not selectors:
                continue
            names = ",".join(tinycss2.serialize(each).strip() for each in selectors)
            kept.append(f"{names}{{{tinycss2.serialize(rule.content).strip()}}}")
        elif rule.type == "at-rule" and rule.lower_at_keyword in ("media", "supports"):
            inner = tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
            if text := trimmed(inner, words):
                kept.append(f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{text}}}")
        else:
            kept.append(rule.serialize())
    return "\n".join(kept)


def trim_styles(static, words):
    """Trim every style sheet, and return the icons that what is left may show."""
    icons = set()
    for file in static.rglob("*.css"):
        text = file.read_text(encoding="utf-8-sig")
        rules = tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True)
        text = trimmed(rules, words)
        text = text.replace(f'{ICONS}.woff2) format("woff2")', f'{ICONS}.woff) format("woff")')
        file.write_text(f'@charset "utf-8";\n{text}\n', encoding="utf-8")
        icons.update(ICON.findall(text))
        icons.update(chr(int(code, 16)) for code in ESCAPED.findall(text))
    return icons


def trim_icons(fonts, icons):
    """The font of icons with these alone, and no other font beside it."""
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # else it tells every step
    options = subset.Options(flavor="woff", notdef_outline=True)
    font = subset.load_font(str(fonts / f"{ICONS}.ttf"), options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=map(ord, icons))
    subsetter.subset(font)
    subset.save_font(font, str(fonts / f"{ICONS}.woff"), options)
    for file in fonts.glob("fa-*.[tw]*"):
        if file.suffix != ".woff":
            file.unlink()


def trim(app, error):
    """Make the finished site as light as what it shows."""
    if error or app.builder.name != "html":
        return
    site, static = Path(app.outdir), Path(app.outdir, "_static")
    for page in site.rglob("*.html"):
        if not page.is_relative_to(static):
            text = page.read_text(encoding="utf-8")
            text = with_lines(without_plain_spans(without_idle_scripts(text)))
            page.write_text(text, encoding="utf-8")
    for file in static.rglob("fontawesome.js*"):
        file.unlink()
    for file in static.rglob("*.map"):
        file.unlink()
    mathjax = static / "mathjax"
    for file in mathjax.rglob("*"):
        if file.is_file() and not file.relative_to(mathjax).as_posix().startswith(MATHJAX):
            file.unlink()
    icons = trim_styles(static, words_of(site))
    trim_icons(static / "vendor" / "fontawesome" / "webfonts", icons)


def describe(app, pagename, templatename, context, doctree):
    """Put the question of a chapter, or the first paragraph of another page, in the page's head."""
    if doctree is None or app.builder.name != "html":
        return
    leads = (each for each in doctree.findall(nodes.container) if "lead" in each["classes"])
    first = next(next(leads, doctree).findall(nodes.paragraph), None)
    if first is not None:
        text = html.escape(" ".join(first.astext().split()), quote=True)
        metatags = context.get("metatags", "")
        context["metatags"] = f'{metatags}<meta name="description" content="{text}" />\n'


def setup(app):
    app.connect("html-page-context", describe)
    app.connect("build-finished", trim, priority=900)  # after all who copy files
    return {"parallel_read_safe": True, "parallel_write_safe": True}
