"""The head of a chapter: how long it takes, what of its code is shown, its question, its goals.

In the source these are boxes, the question and the objectives, as JupyterLab shows them. On the
page the times and the switch stand in one line below the title, the question leads, and goals,
needs and modules are one folded row. `_static/reader.js` moves the switch; without it the page
shows its key code.

A third box, of class `strip`, is one line on what runs through all chapters of a part, with what
this chapter adds to it in bold. On the page a bar shows how far we are, and a reader may guess
what is bold before `reader.js` shows it. In the part on GPT the line begins with the nats above the
floor that a record knows.
"""

import json
from pathlib import Path
from statistics import fmean

from docutils import nodes
from prerequisites import chapters
from sphinx.transforms.post_transforms import SphinxPostTransform

SWITCH = """<div class="code-switch" role="group" aria-label="Code on the page">
<button type="button" data-code="text">Text</button>
<button type="button" data-code="key">Key code</button>
<button type="button" data-code="all">All code</button></div>"""
GOALS = "Goals, what you need, and the modules"
TOGETHER = {"attention": "tokens"}  # folders whose chapters follow one example
RIVALS = "counting {:.2f}, a GPT after a minute {:.2f}, after five {:.2f}"  # of the record


class ShowHead(SphinxPostTransform):
    """Make of the two boxes of a chapter its head; a page that has only one of them keeps it."""

    default_priority = 202  # behind all that reads the boxes or writes in them

    def run(self, **kwargs):
        boxes = {
            kind: each
            for each in self.document.findall(nodes.admonition)
            for kind in ("question", "objectives", "strip")
            if kind in each["classes"]
        }
        if not {"question", "objectives"} <= boxes.keys():
            return
        question, goals = boxes["question"], boxes["objectives"]
        time = next(p for p in goals.findall(nodes.paragraph) if p.astext().startswith("Time"))
        goals.remove(time)
        words = time.astext().removeprefix("Time: ")
        said = nodes.inline("", words[0].upper() + words[1:], classes=["time"])
        switch = nodes.raw("", SWITCH, format="html")
        head = nodes.container("", said, switch, classes=["chapter-head"])
        lead = nodes.container("", *question.children[1:], classes=["lead", "question"])
        opens = f'<details class="objectives"><summary>{GOALS}</summary>'
        row = [nodes.raw("", text, format="html") for text in (opens, "</details>")]
        put(question, head, *([self.strip(boxes["strip"])] if "strip" in boxes else []), lead)
        put(goals, row[0], *goals.children[1:], row[1])

    def strip(self, box):
        """One line: a bar that says how far this chapter is, and the text of the box."""
        page, all_chapters = self.env.docname, chapters(Path(self.app.confdir))
        pages = [each.page for each in all_chapters if way_of(each.page) == way_of(page)]
        done = 1 + pages.index(page)
        said = f'max="{len(pages)}" value="{done}" aria-label="Chapter {done} of {len(pages)}"'
        bar = nodes.raw("", f"<progress {said}></progress>", format="html")
        box.parent.remove(box)
        parts = [bar, *box.children[1:]]
        if way_of(page) == "gpt":
            parts.insert(1, nodes.paragraph("", above_floor(Path(self.app.confdir))))
        return nodes.container("", *parts, classes=["strip"])


def above_floor(root):
    """How far above the floor counting and a small GPT are, in nats per token."""
    record = (root / "results" / "above_floor" / "result.json").read_text(encoding="utf-8")
    means = [fmean(gaps) for gaps in json.loads(record)["above"].values()]
    return f"Nats per token above the floor: {RIVALS.format(*means)}."


def way_of(page):
    """The name of the chapters that follow one example, of a page among them."""
    folder = Path(page).parent.name
    return TOGETHER.get(folder, folder)


def put(box, *parts):
    """Parts in place of a box; `replace_self` would give the first of them its classes."""
    place = box.parent.index(box)
    box.parent[place : place + 1] = parts


def setup(app):
    app.add_post_transform(ShowHead)
