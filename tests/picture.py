"""The picture that opens README.md: the first screen of the built site, in Chromium.

python tests/picture.py                 # after `make book`; writes .github/page.png

The picture holds a digest of what the screen is made of. `test_front.py` compares it, so whoever
changes the screen takes the picture anew.
"""

import io
import sys

from browsing import SITE, Visit, find_chromium, served
from chapters import ROOT
from dependencies import digest, hashed
from PIL import Image, PngImagePlugin

PICTURE = ROOT / ".github" / "page.png"
SIZE = {"width": 1440, "height": 900}
END = "\n## "  # of the first screen, in the page's source


def sources(root=ROOT):
    """A digest of what the first screen is made of: text and cells, script, style and form."""
    text = (root / "book" / "index.md").read_text(encoding="utf-8").split(END)[0]
    return digest(text, *hashed(sorted((root / "live").glob("story.*")), root))


def taken_from(picture=PICTURE):
    """The digest that a picture holds."""
    with Image.open(picture) as image:
        return image.text.get("sources")


def main(site=SITE, picture=PICTURE):
    from playwright.sync_api import sync_playwright

    with served(site) as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox"]
        )
        visit = Visit(chromium.new_context(viewport=SIZE), f"{address}/book/index.html")
        if visit.errors:  # as when no site is there
            sys.exit(f"expected the site's first page, got {visit.errors}: run make book")
        shot = visit.page.screenshot()
        chromium.close()
    about = PngImagePlugin.PngInfo()
    about.add_text("sources", sources())
    Image.open(io.BytesIO(shot)).convert("P", palette=Image.Palette.ADAPTIVE).save(
        picture, optimize=True, pnginfo=about
    )


if __name__ == "__main__":
    sys.exit(main())
