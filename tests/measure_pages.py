"""How long the pages of the built site are, and what stands where on them.

    python tests/measure_pages.py            a table of all chapters, and the sums
    python tests/measure_pages.py --keep     writes it to tests/pages.json, the ratchet of test_site

For a desk and a phone: `screens` of the window, `code` in % of the height, `heading` and `picture`
in px from the top (the first h2, the first figure; no figure: the height), `cut` boxes of code that
hide the end of a line, and the words of the longest `caption`.
"""

import json
import sys
from pathlib import Path

from browsing import PHONE, SITE, find_chromium

KEPT = Path(__file__).with_name("pages.json")
SIZES = {"desk": {"width": 1440, "height": 900}, "narrow": {"width": 1280, "height": 900}}
SIZES["phone"] = PHONE
SETTLE = """async () => { await document.fonts.ready; await window.MathJax?.startup?.promise;
  for (const each of document.querySelectorAll("img[loading=lazy]")) each.loading = "eager";
  await Promise.all([...document.images].map(each => each.decode().catch(() => {}))); }"""
MEASURE = """() => {
  const seen = query => [...document.querySelectorAll(`article ${query}`)]
    .filter(e => e.checkVisibility() && e.offsetHeight !== 0 && !e.closest(".toggle-hidden"));
  const top = e => e ? Math.round(e.getBoundingClientRect().top + scrollY) : null;
  const height = document.documentElement.scrollHeight;
  const code = seen("div.cell_input").reduce((sum, e) => sum + e.getBoundingClientRect().height, 0);
  return {
    screens: +(height / innerHeight).toFixed(1),
    code: +(100 * code / document.querySelector("article").offsetHeight).toFixed(1),
    heading: top(seen("h2")[0]), picture: top(seen("figure :is(img, svg)")[0]) ?? height,
    cut: seen("div.cell_input pre").filter(e => e.scrollWidth > e.clientWidth + 1).length,
    caption: Math.max(0, ...seen("figcaption").map(e => e.innerText.split(/\\s+/).length)),
  }; }"""


def measured(page):
    """The numbers of a page that is open in a browser."""
    page.evaluate(SETTLE)
    return page.evaluate(MEASURE)


def all_measured(chapters):
    """{page: {size: numbers}} of pages of the built site, opened from their files."""
    from playwright.sync_api import sync_playwright

    found = {name: {} for name in chapters}
    with sync_playwright() as playwright:
        path = find_chromium() or playwright.chromium.executable_path
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for size, window in SIZES.items():
            page = browser.new_page(viewport=window)
            for name in chapters:
                page.goto((SITE / name).as_uri())
                found[name][size] = measured(page)
    return found


def main():
    from test_site import NUMBERED

    found = all_measured(NUMBERED)
    for name, sizes in found.items():
        print(name, *(f"{size} {list(numbers.values())}" for size, numbers in sizes.items()))
    for size in SIZES:
        rows = [sizes[size] for sizes in found.values()]
        screens = sum(row["screens"] for row in rows)
        share = sum(row["code"] * row["screens"] for row in rows) / screens
        print(f"{size}: {screens:.0f} screens, code {share:.1f} % of all")
    if "--keep" in sys.argv:
        KEPT.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
