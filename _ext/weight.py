"""A style sheet of the site holds what its pages show, and no more.

`trim` takes out of the style sheets each rule about a class that no page has and no script names,
and out of the font of icons all that no rule shows. It halves what a page of plain text loads.
"""

import html
import logging
import re
from itertools import groupby, pairwise
from pathlib import Path

import tinycss2
from fontTools import subset

ICONS = "fa-solid-900"  # the one font of icons that the pages show
ICON = re.compile("[\ue000-\uf8ff]")
ESCAPED = re.compile(r"\\([ef][0-9a-f]{3})\b", re.IGNORECASE)


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
            parts = groupby(rule.prelude, key=lambda token: token == ",")
            selectors = [list(part) for is_comma, part in parts if not is_comma]
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


def trim(app, error):
    """Make the style sheets of the finished site as light as what it shows."""
    if not error:
        static = Path(app.outdir, "_static")
        icons = trim_styles(static, words_of(Path(app.outdir)))
        trim_icons(static / "vendor" / "fontawesome" / "webfonts", icons)


def setup(app):
    app.connect("build-finished", trim, priority=900)  # after all who copy files or finish pages
