"""``make lab``: the chapters as notebooks of the reader's own, in the folder `lab`.

Each is the notebook that its page offers (`plain.py`): as it ran, with its numbers, figures and
captions. JupyterLab shows that folder and nothing else, so nothing that it saves is a file of the
book. A notebook that was changed there stays as it is; the others follow the last `make book`.
"""

import json
import os
import re
import sys
from pathlib import Path

from dependencies import ROOT, digest, kept
from prerequisites import chapters

LAB = Path("lab")
OFFERED = Path("_build", "html", "_sources")  # where `book_site.py` puts what a page offers
MADE = ".made.json"  # {name: digest of the notebook as it was put there}


def put_notebooks(root=ROOT):
    """Copy each chapter's notebook; the names of those that stay, because somebody changed them."""
    lab, own = root / LAB, []
    lab.mkdir(exist_ok=True)
    made = kept(lab / MADE)
    for each in chapters(root):
        name = notebook_of(each.page)
        content = (root / OFFERED / f"{each.page}.ipynb").read_bytes()
        target = lab / name
        if target.is_file() and digest(target.read_bytes()) != made.get(name):
            own.append(name)
            continue
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)
        made[name] = digest(content)
    (lab / MADE).write_text(json.dumps(made, indent=0), encoding="utf-8")
    (lab / "contents.md").write_text(contents(root), encoding="utf-8")
    return own


def notebook_of(page):
    """book/gpt/cache -> gpt/cache.ipynb"""
    return f"{page.removeprefix('book/')}.ipynb"


def contents(root=ROOT):
    """A page with links to all chapters, in the book's order, and how long each takes to read."""
    lines = [
        "# The Next Token",
        "",
        "A click opens a chapter. There, *Shift+Enter* runs a cell, and *Run › Run All Cells* runs",
        f"them all. What you change is saved in the folder `{LAB}`; the book stays as it is.",
        "",
    ]
    for number, each in enumerate(chapters(root), 1):
        link = f"[{title(root / f'{each.page}.md')}]({notebook_of(each.page)})"
        lines.append(f"{number}. {link}, {each.minutes} min")
    return "\n".join(lines) + "\n"


def title(path):
    """The first heading of a page."""
    return re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)[1]


def main():
    own = put_notebooks()
    if own:
        print(f"   {len(own)} notebooks of yours stay as they are, such as {LAB / own[0]}")
    os.chdir(ROOT / LAB)
    os.environ["JUPYTER_CONFIG_PATH"] = str(ROOT / ".jupyter")
    command = [sys.executable, "-m", "jupyterlab", "--LabApp.default_url=/lab/tree/contents.md"]
    os.execv(sys.executable, [*command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
