"""The drawings of cells, finished for the page: ink that can be read, a size, and fewer bytes.

A cell draws in one grey and some colours that must do on white and on black. On the page they need
not: the file of a drawing names each for a light and for a dark ground, and the browser takes that
of the page. A drawing is never shown so small that its smallest letters have less than nine
pixels; where there is no room, it slides in its figure. And its place is kept free while it loads.
A plot with panels side by side holds another in its description, with its panels below one another
(`src.tools.figures`): that one is shown where the first would have to slide.
"""

import html
import re
from collections import Counter
from pathlib import Path

from src.tools.figures import INK, ORANGE, PURPLE, SKY

COLOURS = {  # on a light ground, on a dark one
    INK: ("#5f6368", "#a8adb3"),
    ORANGE: ("#b97f00", ORANGE),
    SKY: ("#3291cc", SKY),
    PURPLE: ("#b8618f", PURPLE),
}
SMALLEST = 9  # pixels of a letter
OFTEN = 4  # a style that is repeated so often gets a name
STYLE = re.compile(r' style="([^"]*)"')
LETTERS = re.compile(r'<g style="[^"]*" transform="[^"]*scale\((0\.\d+) -0\.\d+\)">')  # of plots
FONT = re.compile(r"text\{font:(\d+)px")  # of `src.tools.drawing`
SIZE = re.compile(r'<svg[^>]* width="([\d.]+)(pt|)" height="([\d.]+)\2"')
IMAGE = re.compile(r'<img ([^>]*?src="([^"]*_images/([^"/]+))\.svg"[^>]*>)')
STACKED = re.compile(r"<dc:description>(.*?)</dc:description>", re.DOTALL)
MARGINS = 32  # pixels beside the text on a phone
PIXELS = 4 / 3  # of a point


def themed(drawing):
    """A drawing whose colours follow the page, and in which no style is written out again."""
    styles = Counter(STYLE.findall(drawing))
    names = {style: f"s{i}" for i, style in enumerate(styles) if styles[style] >= OFTEN}

    def name(found):
        return f' class="{names[found[1]]}"' if found[1] in names else found[0]

    drawing = re.sub(r"\n[ \t]+", "\n", STYLE.sub(name, drawing))
    rules = [f".{name}{{{style}}}" for style, name in names.items()]
    light, dark = [], []
    for i, (colour, grounds) in enumerate(COLOURS.items()):
        for declared, value in zip((light, dark), grounds, strict=True):
            declared.append(f"--c{i}:{value}")
        there = re.compile(rf"(fill|stroke|stop-color)(: ?){colour}", re.IGNORECASE)
        drawing = there.sub(rf"\1\2var(--c{i})", drawing)
        rules = [there.sub(rf"\1\2var(--c{i})", rule) for rule in rules]
    on_dark = f"@media(prefers-color-scheme:dark){{:root{{{';'.join(dark)}}}}}"
    rules = [f":root{{{';'.join(light)}}}", on_dark, *rules]
    return re.sub(r"(<svg[^>]*>)", rf"\1<style>{''.join(rules)}</style>", drawing, count=1)


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


def finish(app, error):
    """Finish all drawings of the built site, and name their sizes on its pages."""
    if error or app.builder.name != "html":
        return
    site, known = Path(app.outdir), {}
    for file in sorted(site.glob("_images/*.svg")):
        drawing = file.read_text(encoding="utf-8")
        files = {file: STACKED.sub("", drawing)}
        if found := STACKED.search(drawing):
            files[file.with_stem(f"{file.stem}-stacked")] = html.unescape(found[1])
        for path, drawing in files.items():
            known[path.name] = sizes(drawing)
            path.write_text(themed(drawing), encoding="utf-8")
    for page in site.glob("book/**/*.html"):
        text = page.read_text(encoding="utf-8")
        page.write_text(with_sizes(text, known), encoding="utf-8")


def setup(app):
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
