"""How JupyterLab opens the book: numbers, titles and citations for roles, and folded solutions.

A chapter's file is MyST. JupyterLab cannot know what stands on other pages or was computed. So the
Markdown of a page is written anew when the page is opened, and back when it is saved:

    {glue:text}`typical:.0e`          {eval}`glued("typical:.0e", "1e-07")`
    {ref}`recurrence`                 [Forgetting](recurrence.md "Forgetting · ref: recurrence")
    ```{prf:definition} Attention     ```{admonition} Definition 14.1 (Attention)
    :label: def-attention             :class: important prf-definition

Each form on the right says by itself what it stands for. So it is written back wherever it stands:
in a cell that was changed, divided, copied or moved. `saved(opened(page))` is the page, bit by bit;
a cell of which this did not hold would be left as it is. What a reader changes in a title, or in
the words of a reference, is kept; only a number cannot be edited, because it is computed.

A value shows what the last `make book` computed, and when its cell has been run, what the chapter
computed since: the kernel has a function `glued` for it (`glued.py`). Captions of figures, which a
page has in the figures' own cells, are cells of their own, as long as they are not edited.
"""

import re
from pathlib import Path

import yaml
from dependencies import ROOT
from ipykernel.ipkernel import IPythonKernel
from jupyter_server.services.kernels.kernelmanager import ServerKernelManager
from jupytext import AsyncTextFileContentsManager
from nbformat.v4 import new_markdown_cell
from shown import (
    EXPLICIT,
    FENCE,
    OPTION,
    PARTS,
    REFERENCES,
    UNKNOWN,
    caption,
    fold,
    kept,
    option,
    pieces,
    reference,
    replaced,
    title,
    value,
)

CAPTION = "caption"  # in a cell's metadata: the text with which it was added
CONTENTS = Path("_build", "contents.md")
BOX = "`" * 6  # the fence of an exercise or a solution, longer than any in it
VALUE = re.compile(r'\{eval\}`(glued\("([^"`]+)"(?:, "([^"`]*)")?\))`')
LINK = re.compile(r'\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^()\s]* "([^"]*) · ([a-z:]+): ([^"]+)"\)')
PROOFS = ("proof", "proposition", "definition", "theorem", "corollary", "lemma")
# The kinds of boxes that JupyterLab tells apart by their colours.
KINDS = {"definition": "important", "proof": "note", "exercise": "tip", "solution": "hint"}
MARK = re.compile(rf"(prf)-({'|'.join(PROOFS)})|(exercise|solution)-start(?:--(\S+))?")


# ---- one cell ------------------------------------------------------------------------------------


def opened(sources, page, root=ROOT):
    """The Markdown of a page's cells, in order, as JupyterLab shows it."""
    show, numbers = showing(page, root), kept(page, root)["numbers"]
    written, before, after = [], None, None
    for source in sources:
        new, opens = _open_boxes(replaced(source, show), numbers, before)
        again, closes = _close_boxes(_restore(new), after)
        same = again == source
        written.append(new if same else source)
        before = opens
        after = closes if same else opens and opens[0]
    return written


def showing(page, root):
    """What JupyterLab shows for a role of a page, as a function of its name and its content."""
    shown = kept(page, root)

    def show(role, content):
        if role == "glue:text":
            computed = value(shown, content)
            return f'{{eval}}`glued("{content}", "{UNKNOWN if computed is None else computed}")`'
        if role not in REFERENCES:
            return None
        text, where = reference(shown, role, content, page, root)
        where = re.sub(r"\.html(#.*)?$", ".md", where)
        return f'[{text}]({where} "{_words(text)} · {role}: {content}")'

    return show


def saved(sources):
    """What `opened` made of a page's cells, edited or not, as it stands in the file."""
    found, inside = [], None
    for source in sources:
        source, inside = _close_boxes(_restore(source), inside)
        found.append(source)
    return found


def _restore(source):
    """Values and references as roles again."""

    def role(match):
        text, words, name, content = match.groups()
        if name not in REFERENCES:
            return match[0]
        if _words(text) == words:
            return f"{{{name}}}`{content}`"
        if name.startswith("cite") or name == "eq":  # words of one's own: an ordinary link
            return match[0]
        named = EXPLICIT.fullmatch(content)
        return f"{{{name}}}`{text} <{named[2] if named else content}>`"

    def edited(text):
        return LINK.sub(role, VALUE.sub(r"{glue:text}`\2`", text))

    return "".join(edited(text) if prose else text for prose, text in pieces(source))


def _words(text):
    """A text as it may stand in the title of a link."""
    return text.replace('"', "")


# ---- boxes ---------------------------------------------------------------------------------------


def _open_boxes(source, numbers, inside):
    """(boxes as admonitions with the book's numbers, the exercise or solution left open)."""
    lines, written, started = source.split("\n"), [], False
    if inside and _reaches_into(source, inside[0]):
        folded = "dropdown " if inside[0] == "solution" else ""
        head = f"{BOX}{{admonition}} {inside[1]}, continued"
        written = [head, f":class: {folded}{KINDS[inside[0]]} {inside[0]}-part", ""]
        started = True
    place, code = 0, None
    while place < len(lines):
        line = lines[place]
        fence = FENCE.fullmatch(line)
        name = fence[2] if fence else None
        place += 1
        if code or not name:
            code = _in_code(fence, code)
            written.append(line)
            continue
        kind, _, what = name.partition("-")
        if what == "end" and kind in PARTS:
            written.append(BOX if started else f"% {name}")
            inside, started = None, False
            place += 1  # its closing fence
        elif (what == "start" and kind in PARTS) or name.startswith("prf:"):
            options = []
            while place < len(lines) and OPTION.fullmatch(lines[place]):
                options.append(lines[place])
                place += 1
            label = option(options, "label")
            if what:
                place += 1
                started = True
            if kind == "solution":
                heading = f"Solution to {numbers.get(fence[3], 'the exercise')}"
                mark = f"solution-start--{fence[3]}"
            else:
                word = (what and kind) or name.removeprefix("prf:")
                heading = numbers.get(label, word.capitalize())
                mark = name.replace(":", "-")
            if what:
                inside = (kind, heading)
            heading += f" ({fence[3]})" if fence[3] and kind != "solution" else ""
            written.append(f"{BOX if what else fence[1]}{{admonition}} {heading}")
            written += _marked(options, mark)
        else:
            written.append(line)
    return "\n".join(written), inside


def _close_boxes(source, inside):
    """(the boxes of `_open_boxes` as they were, the kind of the one left open)."""
    lines, written, place, code = source.split("\n"), [], 0, None
    while place < len(lines):
        line = lines[place]
        fence = FENCE.fullmatch(line)
        place += 1
        end = re.fullmatch(r"% (exercise|solution)-end", line)
        if code:
            code = _in_code(fence, code)
            written.append(line)
        elif end or (line == BOX and inside):
            written += [f"```{{{end[1] if end else inside}-end}}", "```"]
            inside = None
        elif fence and fence[2] == "admonition":
            options = []
            while place < len(lines) and OPTION.fullmatch(lines[place]):
                options.append(lines[place])
                place += 1
            last = option(options, "class").rpartition(" ")[2]
            mark = MARK.fullmatch(last)
            if last.removesuffix("-part") in PARTS and last.endswith("-part"):
                inside = last.removesuffix("-part")
                place += place < len(lines) and not lines[place]
            elif mark:
                written += _unmarked(fence, options, mark)
                inside = mark[3] or inside
            else:
                written += [line, *options]
        else:
            kind, _, what = (fence[2] if fence and fence[2] else "").partition("-")
            if kind in PARTS and what in ("start", "end"):  # as it is written in a file
                inside = kind if what == "start" else None
            code = _in_code(fence, code)
            written.append(line)
    return "\n".join(written), inside


def _in_code(fence, code):
    """The fence of the block of plain code in which the next line stands, or None."""
    if code:
        return None if fence and fence[0] == code else code
    return fence[1] if fence and not fence[2] and fence[0] != fence[1] else None


def _reaches_into(source, kind):
    """Does an exercise or a solution that is open before a cell say anything in it?"""
    return bool(
        re.split(rf"^```\{{{kind}-end\}}$", source, maxsplit=1, flags=re.MULTILINE)[0].strip()
    )


def _marked(options, mark):
    """The options of a box, with one more class, which says what box it is."""
    own = option(options, "class")
    mark = f"{KINDS.get(mark.removeprefix('prf-').split('-')[0], 'seealso')} {mark}"
    if not own:
        return [f":class: {mark}", *options]
    return [f":class: {own} {mark}" if each == f":class: {own}" else each for each in options]


def _unmarked(fence, options, mark):
    classes = " ".join(option(options, "class").split(" ")[:-2])  # the last two are ours
    options = [
        f":class: {classes}" if each.startswith(":class:") else each
        for each in options
        if classes or not each.startswith(":class:")
    ]
    word = mark[2] or mark[3]
    titled = re.fullmatch(rf"{word}(?: [\d.]+)?(?: \((.*)\))?", fence[3], re.IGNORECASE)
    name = f"prf:{word}" if mark[2] else f"{word}-start"
    argument = mark[4] if mark[4] else titled[1] if titled else fence[3]
    head = f"{'```' if mark[3] else fence[1]}{{{name}}}" + (f" {argument}" if argument else "")
    return [head, *options, *(["```"] if mark[3] else [])]


# ---- a notebook ----------------------------------------------------------------------------------


def open_notebook(notebook, page, root=ROOT):
    """Let a notebook, as it was read from a page's file, be one for JupyterLab."""
    texts = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    written = opened([cell["source"] for cell in texts], page, root)
    fold(notebook)
    for cell, source in zip(texts, written, strict=True):
        cell["source"] = source
    add_captions(notebook, page, root)
    for cell in notebook["cells"]:
        found = (match.groups() for match in VALUE.finditer(cell["source"]))
        values = [{"expression": said, "result": _result(text)} for said, _, text in found]
        if values and cell["cell_type"] == "markdown":
            cell["metadata"] |= {"user_expressions": values, "trusted": True}
    # The kernel says this of itself when it starts: as news it would mark the page as edited.
    notebook["metadata"]["language_info"] = dict(IPythonKernel.language_info)


def save_notebook(notebook):
    """Undo what `open_notebook` did to the text; settings of cells are dropped by jupytext.toml."""
    notebook["cells"] = [cell for cell in notebook["cells"] if not is_caption(cell)]
    texts = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    for cell, source in zip(texts, saved([cell["source"] for cell in texts]), strict=True):
        cell["source"] = source


def add_captions(notebook, page, root):
    """Put a cell with its caption below each figure; the page has it in the figure's own cell."""
    show, numbers = showing(page, root), kept(page, root)["numbers"]
    cells = []
    for cell in notebook["cells"]:
        cells.append(cell)
        if said := caption(cell, numbers):
            source = replaced(said, show)
            cells.append(new_markdown_cell(source, metadata={CAPTION: source}))
    notebook["cells"] = cells


def is_caption(cell):
    """Was a cell added by `add_captions`? One that was edited is the reader's own."""
    return cell["metadata"].get(CAPTION) == cell["source"]


def _result(text):
    return {"status": "ok", "data": {"text/plain": text}, "metadata": {}}


# ---- the server ----------------------------------------------------------------------------------


class BookContentsManager(AsyncTextFileContentsManager):
    """Opens and saves the pages of the book; every other file as jupytext does."""

    async def get(self, path, content=True, *args, **options):
        model = await super().get(path, content, *args, **options)
        page = self._page(path)
        if page and content and model["type"] == "notebook":
            open_notebook(model["content"], page)
        return model

    async def save(self, model, path=""):
        if self._page(path) and model["type"] == "notebook":
            save_notebook(model["content"])
        return await super().save(model, path)

    def _page(self, path):
        """The name of a page of the book, or None."""
        file = Path(self.root_dir, path.strip("/")).resolve()
        ours = file == ROOT / CONTENTS or file.is_relative_to(ROOT / "book")
        ours = ours and file.suffix == ".md"
        return file.relative_to(ROOT).with_suffix("").as_posix() if ours else None


class BookKernelManager(ServerKernelManager):
    """Starts kernels that have the function `glued`."""

    def format_kernel_cmd(self, extra_arguments=None):
        more = [f"--IPKernelApp.exec_files={ROOT / '_ext' / 'glued.py'}"]
        python = self.kernel_spec and self.kernel_spec.language == "python"
        return super().format_kernel_cmd([*(extra_arguments or []), *(more if python else [])])


def configure(config):
    """Settings of the server, for `.jupyter/jupyter_server_config.py`, and its first page."""
    config.ServerApp.contents_manager_class = BookContentsManager
    config.MultiKernelManager.kernel_manager_class = "lab.BookKernelManager"
    config.LabApp.default_url = f"/lab/tree/{CONTENTS.as_posix()}"
    path = ROOT / CONTENTS
    path.parent.mkdir(exist_ok=True)
    path.write_text(contents(), encoding="utf-8")


def contents(root=ROOT):
    """A page with links to all chapters, in the book's order."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    book = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["title"]
    template = (root / "_ext" / "chapter.md").read_text(encoding="utf-8")
    header = template[: template.index("---\n", 1)]  # a kernel, else JupyterLab would ask for one
    lines = [f"{header}---\n\n# {book}", ""]
    lines += ["A click opens a chapter as a notebook. What is folded opens, too."]
    lines += [f"First, what the book is: [{title(root / 'book/index.md')}](../{toc['root']}.md)."]
    number = 0
    for part in toc["parts"]:
        lines += ["", f"## {part['caption']}", ""]
        for page in part["chapters"]:
            number += part["numbered"]
            sign = f"{number}." if part["numbered"] else "-"
            path = f"{page['file']}.md"
            lines.append(f"{sign} [{title(root / path)}](../{path})")
    return "\n".join(lines) + "\n"
