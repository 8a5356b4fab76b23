"""What the builder of the site makes of a page: bars, previews, drawings, less weight."""

import json
import re
from functools import partial
from types import SimpleNamespace

import pytest
import tinycss2
from card import as_markdown, mark
from cells import checked, contents, fold_cells, parted, shorten_tracebacks
from chapters import ROOT, chapters
from docutils import nodes
from finish import (
    sizes,
    themed,
    with_lines,
    without_idle_scripts,
    without_plain_spans,
)
from head import ShowHead, way_of
from pygments.styles import get_style_by_name
from pygments.token import Token
from sphinx import addnodes
from terms import note_uses
from weight import trimmed

from src.tools.figures import INK, ORANGE

PLOT = (
    '<svg width="72pt" height="144pt">'
    '<g style="fill: #000" transform="translate(1 2) scale(0.1 -0.1)"><path/></g></svg>'
)


LOOP = "for x in xs:\n    assert x\n    assert -x"


@pytest.mark.parametrize(
    ("code", "does", "checks"),
    [
        (LOOP, "", LOOP),
        ('b = 1\n# why\nglue("b", b)\nprint(b)', "b = 1\nprint(b)", '# why\nglue("b", b)'),
        (LOOP.replace("assert -x", "print(x)"), LOOP.replace("assert -x", "print(x)"), ""),
        ("%timeit f()", "%timeit f()", ""),
    ],
)
def test_what_only_asserts_or_quotes_is_told_from_what_does_something(code, does, checks):
    assert parted(code) == (does, checks)


def test_a_bar_says_what_is_behind_it():
    assert checked("assert a\nglue('a', a)") == "checked: 1 assertion holds"
    assert checked("assert a\nassert b") == "checked: 2 assertions hold"
    assert checked("glue('a', a)") == "1 number for the text"
    assert contents("a = 1\n\nb = 2") == "Code, 2 lines"
    assert contents("def f():\n    pass\n\n\nclass C: pass", "What") == "What: f, C, 3 lines"


def cell_of(code, *tags, shown=(), hidden=None, inside=None):
    """What a code cell becomes, in a chapter: its code, its outputs, the titles of its bars."""
    source = nodes.container("", nodes.literal_block(code, code), nb_element="cell_code_source")
    outputs = [nodes.container("", nb_element="cell_code_output") for _ in shown]
    classes = [f"tag_{tag}" for tag in tags]
    cell = nodes.container("", source, *outputs, nb_element="cell_code", classes=classes)
    other = nodes.container("", nodes.container(""), nb_element="cell_code", classes=["tag_key"])
    if hidden:
        cell["hide_mode"] = hidden
    box = nodes.container("", cell, classes=[inside] if inside else [])
    fold_cells(nodes.container("", other, box))
    found = []
    for each in cell:
        if isinstance(each, nodes.raw):
            found += re.findall("<summary>(.*)</summary>", each.astext())
        elif each.get("nb_element") == "cell_code_output":
            found.append("output")
        elif not (found and isinstance(each.previous_sibling(), nodes.raw)):
            found.append(each.astext())
    return found


def test_only_the_key_cells_of_a_chapter_are_open():
    assert cell_of("f()", "key", shown="x") == ["f()", "output"]
    assert cell_of("f()", shown="x") == ["Code, 1 line", "output"]
    assert cell_of("f()", inside="exercise") == cell_of("f()", inside="solution") == ["f()"]


def test_a_hidden_input_stands_below_what_it_shows():
    assert cell_of("f()", shown="x", hidden="input") == ["output", "Code, 1 line"]
    assert cell_of("f()", shown="x", hidden="input+output") == ["f()", "output"]  # the builder's


def test_what_checks_in_an_open_cell_is_behind_a_bar_unless_it_is_what_teaches():
    bar = "checked: 1 assertion holds"
    assert cell_of("f()\nassert a", "key", shown="x") == ["f()", "output", bar]
    assert cell_of("f()\nassert a") == ["Code, 1 line", bar]
    assert cell_of("assert a", "key") == ["assert a"]
    assert cell_of("f()\nassert a", "key", "raises-exception") == ["f()\nassert a"]


def test_a_bar_says_what_is_behind_it_whatever_the_tags_of_the_cell():
    for hidden in (None, "input"):
        assert cell_of("import a", hidden=hidden) == ["Set-up"]
        assert cell_of("assert a", hidden=hidden) == ["checked: 1 assertion holds"]


def box(kind, *texts):
    parts = [nodes.paragraph("", "", *each) for each in texts]
    return nodes.admonition("", nodes.title("", kind), *parts, classes=[kind])


def head_of(*more):
    time = [nodes.strong("", "Time"), nodes.Text(": about 5 minutes to read")]
    goals = box("objectives", [nodes.Text("You will.")], time)
    page = nodes.container("", box("question", [nodes.Text("Why?")]), *more, goals)
    app = SimpleNamespace(confdir=ROOT)
    made = SimpleNamespace(document=page, app=app, env=SimpleNamespace(docname="book/tokens/bpe"))
    made.strip = partial(ShowHead.strip, made)
    ShowHead.run(made)
    return page.children


def test_the_head_of_a_chapter_has_its_times_its_question_and_a_row_of_goals():
    head, lead, opens, goal, closes = head_of()
    assert (head["classes"], lead["classes"]) == (["chapter-head"], ["lead", "question"])
    assert head.children[0].astext() == "About 5 minutes to read"
    assert (lead.astext(), goal.astext()) == ("Why?", "You will.")
    assert opens.astext().startswith('<details class="objectives">')
    assert closes.astext() == "</details>"


def test_a_strip_stands_below_the_times_with_how_far_we_are():
    strip = head_of(box("strip", [nodes.strong("", "7"), nodes.Text(" bytes")]))[1]
    assert strip["classes"] == ["strip"]
    bar = '<progress max="15" value="2" aria-label="Chapter 2 of 15"></progress>'
    assert strip.astext() == f"{bar}\n\n7 bytes"
    assert way_of("book/attention/heads") == way_of("book/tokens/bpe") != way_of("book/gpt/gpt2")


CARD = {"says": "nats <per> token", "lines": [{"tried": "as shown", "mean": 1, "half": 0.5}]}


def test_a_card_shows_what_was_tried_and_a_name_that_is_not_known_is_refused(tmp_path):
    place = tmp_path / "results" / "cards"
    place.mkdir(parents=True)
    missing = {"tried": "longer", "why": "it takes a day"}
    card = CARD | {"lines": [CARD["lines"][0] | {"seeds": 3}, missing]}
    record = {"cards": {"claim": card}, "machine": "here"}
    (place / "page.json").write_text(json.dumps(record), encoding="utf-8")
    lines = as_markdown(tmp_path, "book/part/page", "claim")
    assert lines[0] == "**What would reverse this?** Nats <per> token, 3 seeds or texts:"
    assert lines[2:4] == ["- as shown: 1.00 ± 0.50", "- longer: not run: it takes a day"]
    with pytest.raises(ValueError, match=r"book/part/page: expected a card .*\(claim\), got 'no'"):
        as_markdown(tmp_path, "book/part/page", "no")


def test_a_traceback_keeps_its_error_and_no_path():
    shown = 'Traceback\n  File "/home/a/b.py", line 3\n    f()\nValueError: expected 1,\ngot 2'
    block = nodes.literal_block(shown, shown, classes=["traceback"])
    other = nodes.literal_block(shown, shown)
    document = nodes.container("", block, other)
    shorten_tracebacks(None, document)
    assert block.astext() == "ValueError: expected 1,\ngot 2"
    assert other.astext() == shown


def test_a_term_is_introduced_where_a_title_names_it_or_a_link_leads_to_it():
    def section(anchor, title, *terms):
        links = [addnodes.pending_xref("", reftype="term", reftarget=each) for each in terms]
        return nodes.section(
            "", nodes.title("", title), nodes.paragraph("", "", *links), ids=[anchor]
        )

    page = section("top", "The probability of a text: the chain rule")
    page += [
        section("one", "Temperature", "Nat"),
        section("two", "Units", "nat", "chain rule", "bit"),
    ]
    env = SimpleNamespace(docname="here", metadata={"here": {}})
    note_uses(SimpleNamespace(env=env), page)
    found = env.metadata["here"]["terms"]
    wanted = {"chain rule": "top", "temperature": "one", "nat": "one", "bit": "two"}
    assert {term: found[term] for term in wanted} == wanted


def test_a_plot_has_its_size_in_pixels_and_the_least_width_at_which_its_letters_have_nine():
    assert sizes(PLOT) == (96, 192, 65)  # letters of 100 · 4/3 · 0.1 pixels; 96 · 9 / 13.3 = 64.8
    assert sizes("<svg></svg>") is None


def test_the_inks_of_a_plot_follow_the_page():
    drawing = f'<svg width="1pt"><path style="stroke: {INK}"/><path style="fill: {ORANGE}"/></svg>'
    made = themed(drawing)
    assert INK not in made.split("</style>")[1]
    assert 'style="stroke: var(--c0)"' in made
    assert "prefers-color-scheme:dark" in made


def test_a_script_stays_where_it_has_something_to_do():
    script = '<script src="../_static/copybutton.js?v=1"></script>\n'
    assert without_idle_scripts(f"{script}<p>a</p>") == "<p>a</p>"
    assert without_idle_scripts(f"{script}<pre>a</pre>") == f"{script}<pre>a</pre>"
    other = '<script src="other.js"></script>\n<p>a</p>'
    assert without_idle_scripts(other) == other
    settings = "<script>window.MathJax = {}</script>\n"
    assert without_idle_scripts(f"{settings}<p>a</p>") == "<p>a</p>"


def test_each_line_of_code_is_an_element():
    opens, lines = '<div class="highlight"><pre><span></span>', ["a b\n", "\n", "c\n"]
    marked = "".join(f'<span class="line">{line}</span>' for line in lines)
    assert with_lines(f"{opens}{''.join(lines)}</pre>") == f"{opens}{marked}</pre>"
    assert with_lines("<pre>a\n</pre>") == "<pre>a\n</pre>"


def test_code_that_has_the_colour_of_the_text_has_no_element_of_its_own():
    code = '<span class="{}">{}</span>'
    plain = [("n", "a"), ("w", " "), ("nn", "b"), ("p", "(&lt;")]
    assert without_plain_spans("".join(code.format(*each) for each in plain)) == "a b(&lt;"
    for kept in (code.format("w", "a"), code.format("k", "in"), code.format("p", "<b>:</b>")):
        assert without_plain_spans(kept) == kept
    for scheme in ("a11y-high-contrast-light", "a11y-high-contrast-dark"):
        style, text = get_style_by_name(scheme), Token.Text
        plain = (text, text.Whitespace, Token.Name, Token.Name.Namespace, Token.Punctuation)
        assert len({style.style_for_token(each)["color"] for each in plain}) == 1


def styles(text, words):
    rules = tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True)
    return trimmed(rules, words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".used .unused{a:b}", ""),
        (".used,.unused{a:b}", ".used{a:b}"),
        ("p:not(.unused){a:b}", "p:not(.unused){a:b}"),
        ("@media print{.unused{a:b}}", ""),
        ("@font-face{font-family:a}", "@font-face{font-family:a}"),
    ],
)
def test_a_rule_stays_if_some_page_can_have_its_classes(text, expected):
    assert styles(text, {"used"}) == expected


def test_every_coloured_box_says_what_its_formulas_are_printed_on():
    """Else a long formula in it stands between two patches of the page's colour."""
    kinds = set()
    for chapter in chapters(ROOT):
        kinds |= set(re.findall(r"^`{3,}\{prf:(\w+)\}", chapter.read_text("utf-8"), re.M))
    style = (ROOT / "_static" / "custom.css").read_text(encoding="utf-8")
    grounds = set(re.findall(r"div\.(\w+) \{ --ground: color-mix", style))
    assert {"definition", "proposition"} <= kinds
    assert kinds - {"proof"} <= grounds


def test_a_recorded_figure_says_where_and_when(tmp_path):
    (tmp_path / "results" / "a").mkdir(parents=True)
    record = '{"machine": "one core, 2026-11-22", "core_minutes": 7.8}'
    (tmp_path / "results" / "a" / "result.json").write_text(record, encoding="utf-8")
    page = tmp_path / "page.md"
    read = 'results / "a" / "result.json", results / "b" / "result.json"'  # the first counts
    page.write_text(read, encoding="utf-8")
    env = SimpleNamespace(docname="page", doc2path=lambda name: str(page))
    app = SimpleNamespace(env=env, srcdir=tmp_path)
    recorded = nodes.caption("", "", nodes.Text("All. "), nodes.emphasis("", "Recorded."))
    computed = nodes.caption("", "", nodes.Text("None was recorded."))
    mark(app, nodes.container("", recorded, computed))
    assert ">recorded, 8 min</button>" in recorded.astext()
    assert ">one core, 2026-11-22, 8 minutes of one core, in results/a</span>" in recorded.astext()
    assert computed.astext() == "None was recorded."
    page.write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="no record is read"):
        mark(app, nodes.container("", nodes.caption("", "", nodes.Text("Recorded."))))
