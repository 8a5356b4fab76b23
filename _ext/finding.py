"""The index of the site's search: what each section is about, and how it is called.

A word counts in the section that has it; in a heading it counts for many, as does a term of the
glossary in the section that introduces it. `search.js` ranks pages by it. Spellings are folded here
as there: `colour` and `color`, `back-propagation` and `backpropagation` are one word. Code, output
and formulas are left out. A name, such as a heading or a line of `keywords.yml`, counts more if a
question has all of its words.
"""

import json
import pickle
import re
from collections import Counter
from functools import cache
from pathlib import Path

import yaml
from docutils import nodes
from snowballstemmer import stemmer
from sphinx import addnodes
from terms import GLOSSARY, entries, introduced

# How often a word counts that stands in the title of a page, or in a name.
TITLE, HEADING = 80, 20
APART = re.compile(r"[-\u2013'\u2019]")
WORD = re.compile(r"[^\W_]+(?:[-\u2013'\u2019][^\W_]+)*")
# What both languages spell alike, as Python and the browser read it.
FOLDS = {"is(?=e|ing|ation|abl)": "iz", "our": "or", "ll": "l", "ogue$": "og", "(?<=t)re$": "er"}
LEFT_OUT = (nodes.literal_block, nodes.math, nodes.math_block, nodes.raw, nodes.comment)
PLACES = (nodes.section, nodes.definition_list_item, addnodes.desc)
KEPT = "about.pickle"  # beside the pages as the builder has read them
KEYWORDS = Path(__file__).with_name("keywords.yml")
stem = stemmer("porter").stemWord


def words(text):
    """The words of a text as the search knows them; a compound also by its parts."""
    for found in WORD.findall(text.lower()):
        parts = APART.split(found)
        for part in {*parts, "".join(parts)}:
            yield folded(part)


@cache
def folded(word):
    for old, new in FOLDS.items():
        word = re.sub(old, new, word)
    return stem(word) if len(word) > 2 else word  # as the stemmer of the pages does


def place_of(node):
    """(anchor, title) of the section, term, function or class that a text belongs to, or None."""
    first = node.children[0] if isinstance(node, PLACES) and node.children else None
    is_method = isinstance(node.parent, addnodes.desc_content)
    if isinstance(first, nodes.title):
        return node["ids"][0], plain(first)
    if isinstance(first, nodes.term | addnodes.desc_signature) and first["ids"] and not is_method:
        return first["ids"][0], first.get("fullname") or plain(first)
    return node.parent and place_of(node.parent)


def plain(node):
    """The text of a node as a line; a formula would be TeX."""
    texts = ("…" if isinstance(t.parent, nodes.math) else t for t in node.findall(nodes.Text))
    return " ".join("".join(texts).split())


def sections(doctree):
    """[anchor, title, first paragraph, Counter of words, other names] of each section and entry."""
    found = {}
    brief = doctree.next_node(addnodes.desc)  # of the reference, what stands first in each entry
    for node in doctree.findall(nodes.TextElement):
        if isinstance(node, LEFT_OUT) or not (place := place_of(node)):
            continue
        anchor, title = place
        entry = found.setdefault(anchor, [anchor, title, "", Counter(), []])
        if brief and entry[2]:
            continue
        times = 1
        if isinstance(node, nodes.title | nodes.term | addnodes.desc_signature):
            times = TITLE if node.parent.parent is doctree else HEADING
        text = "".join(t if isinstance(t, nodes.Text) else " " for t in node.children)
        for word in words(title if isinstance(node, addnodes.desc_signature) else text):
            entry[3][word] += times
        if isinstance(node, nodes.paragraph) and not entry[2]:
            entry[2] = plain(node)
    return list(found.values())


def begin(app):
    """Take up what earlier builds have kept of pages, and let Sphinx write its own index aside."""
    file = Path(app.doctreedir, KEPT)
    app.about = pickle.loads(file.read_bytes()) if file.is_file() else {}
    app.builder.searchindex_filename = str(file.with_name("searchindex.js"))


def note(app, doctree, docname):
    """Keep what a page is about."""
    app.about[docname] = sections(doctree)


def phrases(text):
    """A name as questions may have it: its words, with compounds in parts and in one."""
    text = text.lower().removeprefix("the ")
    return {" ".join(map(folded, WORD.findall(APART.sub(gap, text)))) for gap in (" ", "")}


def index(app, idle):
    """What `search.js` reads: pages, sections, and where each word and each name is."""
    pages, listed, found, last, names = [], [], {}, {}, {}
    for page in sorted(app.about):
        pages.append([page, app.env.titles[page].astext()])
        for anchor, title, text, counts, others in app.about[page]:
            for word, count in counts.items():
                if word not in idle and any(map(str.isalpha, word)):
                    step = len(listed) - last.get(word, -1)
                    last[word] = len(listed)
                    found.setdefault(word, []).extend([step] if count == 1 else [-step, count])
            if not anchor.startswith("src."):  # a question names no function
                others = [*title.split(": "), *others]
            for name in {name for each in others for name in phrases(each)}:
                names.setdefault(name, []).append(len(listed))
            size = 180 if page == GLOSSARY else 75
            short = text if len(text) <= size else text[:size].rpartition(" ")[0] + " …"
            listed.append([len(pages) - 1, anchor, title, short])
    return {"pages": pages, "sections": listed, "words": found, "names": names}


def call(app, page, anchor, names):
    """Let names count in a section; without an anchor in the whole of a page."""
    for entry in app.about.get(page, ()):
        if anchor in (entry[0], None):
            entry[4] += names
            entry[3].update(dict.fromkeys(set(words(" ".join(names))), HEADING))
            return


def write(app, error):
    if error:
        return
    Path(app.doctreedir, KEPT).write_bytes(pickle.dumps(app.about))
    for _, names in entries(app.env.get_doctree(GLOSSARY)):
        call(app, *(introduced(app.env, names) or (None, None)), names)
    labels = app.env.get_domain("std").labels
    said = yaml.safe_load(KEYWORDS.read_text(encoding="utf-8"))
    for label, names in said["labels"].items():
        call(app, labels[label][0], None, names.split(", "))
    idle = said["idle"].split()
    written = index(app, set(map(folded, idle))) | {"idle": idle, "folds": FOLDS}
    written = json.dumps(written, ensure_ascii=False, separators=(",", ":"))
    Path(app.outdir, "searchindex.js").write_text(f"Search.setIndex({written})", encoding="utf-8")


def setup(app):
    app.connect("builder-inited", begin)
    app.connect("doctree-resolved", note, priority=900)
    app.connect("build-finished", write, priority=800)
