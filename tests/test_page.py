"""What the builder of the site makes of a page: bars, previews, drawings, less weight."""

import re
from types import SimpleNamespace

import book_site
import cells
import pytest
import tinycss2
from back_matter import fold_assertions, linked
from bs4 import BeautifulSoup
from cells import bar, checks, shorten_tracebacks
from chapters import ROOT, chapters
from docutils import nodes
from pictures import sizes, themed, with_sizes
from prerequisites import Chapter
from previews import explained, with_previews
from pygments.styles import get_style_by_name
from pygments.token import Token
from recorded import RECORD, WORD, mark
from sphinx import addnodes
from sphinx_exercise.nodes import solution_node
from terms import note_uses
from times import with_times
from weight import (
    FACE,
    ask_for_the_face,
    classes_in,
    trim_index,
    trimmed,
    without_idle_scripts,
    without_plain_spans,
)

from src.tools.drawing import Drawing
from src.tools.figures import INK, ORANGE

PLOT = (
    '<svg width="72pt" height="144pt">'
    '<g style="fill: #000" transform="translate(1 2) scale(0.1 -0.1)"><path/></g></svg>'
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("assert a\nassert b", (2, 0)),
        ("for x in xs:\n    assert x\n    assert -x", (2, 0)),
        ('glue("a", a)\nassert a', (1, 1)),
        ("b = a\nassert b", None),
        ("for x in xs:\n    print(x)\n    assert x", None),
        ("print(1)", None),
        ("%timeit f()", None),
        ("", (0, 0)),
    ],
)
def test_only_a_cell_that_asserts_or_quotes_alone_is_a_check(code, expected):
    assert checks(code) == expected


def test_the_bar_says_how_many():
    assert bar(1, 3) == "checked: 1 assertion holds"
    assert bar(2, 0) == "checked: 2 assertions hold"
    assert (bar(0, 1), bar(0, 2)) == ("1 number for the text", "2 numbers for the text")


def cell_of(code, shown=(), hidden=None):
    """What is left of a code cell, as (class, its bar), after the quiet ones were folded."""
    source = nodes.container("", nodes.literal_block(code, code), nb_element="cell_code_source")
    outputs = [nodes.container("", nb_element="cell_code_output") for _ in shown]
    cell = nodes.container("", source, *outputs, nb_element="cell_code")
    if hidden:
        cell["hide_mode"], cell["prompt_show"], cell["prompt_hide"] = hidden, "Show", "Hide"
    cells.FoldQuietCells.run(SimpleNamespace(document=nodes.container("", cell)))
    return [
        (each.get("nb_element") or each["classes"][-1], each.get("prompt_show")) for each in cell
    ]


def test_a_hidden_input_stands_below_what_it_shows():
    source, output = ("cell_code_source", None), ("cell_code_output", None)
    assert cell_of("f()", "x") == [source, output]
    assert cell_of("f()", "x", "input") == [output, ("above-input", "Show")]
    assert cell_of("f()", "x", "input+output") == [source, output]  # left to the builder


@pytest.mark.parametrize("hidden", [None, "input"])
def test_a_bar_says_what_is_behind_it_whatever_the_tags_of_the_cell(hidden):
    assert cell_of("import a", hidden=hidden) == [("sets-up", "Set-up")]
    assert cell_of("assert a", hidden=hidden) == [("checks", "checked: 1 assertion holds")]


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
    env = SimpleNamespace(docname="here")
    note_uses(SimpleNamespace(env=env), page)
    found = env.uses_of_terms["here"]
    wanted = {"chain rule": "top", "temperature": "one", "nat": "one", "bit": "two"}
    assert {term: found[term] for term in wanted} == wanted


def test_a_page_asks_for_the_files_of_its_face(pytestconfig):
    builder = SimpleNamespace(name="html")
    context = {"pathto": lambda name, resource: f"../{name}", "metatags": "<meta>"}
    ask_for_the_face(SimpleNamespace(builder=builder), "book/page", "", context, None)
    static = pytestconfig.rootpath / "_static"
    style = (static / "custom.css").read_text(encoding="utf-8")
    assert style.count('url("fonts/') == len(FACE)
    for name in FACE:
        assert (
            f'as="font" type="font/woff2" crossorigin href="../_static/fonts/{name}"'
            in context["metatags"]
        )
        assert f'url("fonts/{name}")' in style
        assert (static / "fonts" / name).is_file()


def test_a_plot_has_its_size_in_pixels_and_the_least_width_at_which_its_letters_have_nine():
    assert sizes(PLOT) == (96, 192, 65)  # letters of 100 · 4/3 · 0.1 pixels; 96 · 9 / 13.3 = 64.8
    assert sizes("<svg></svg>") is None


def test_a_drawing_has_its_size_and_the_least_width_too():
    sheet = Drawing("A", "One box.")
    sheet.box(0, 0, 100, 92)
    assert sizes(sheet._repr_svg_()) == (640, 100, 320)  # letters of 18


def test_a_page_names_the_sizes_of_its_drawings():
    page = '<p><img alt="a" src="../_images/x.svg"/><img src="../_images/y.svg"/></p>'
    assert with_sizes(page, {"x.svg": (96, 192, 65), "y.svg": None}) == (
        '<p><img width="96" height="192" style="min-width: 65px" alt="a" src="../_images/x.svg"/>'
        '<img src="../_images/y.svg"/></p>'
    )


def test_the_inks_of_a_plot_follow_the_page():
    drawing = f'<svg width="1pt"><path style="stroke: {INK}"/><path style="fill: {ORANGE}"/></svg>'
    made = themed(drawing)
    assert INK not in made.split("</style>")[1]
    assert 'style="stroke: var(--c0)"' in made
    assert "prefers-color-scheme:dark" in made


def test_a_style_that_is_repeated_gets_a_name():
    path = '<path style="fill: none"/>'
    assert themed(f"<svg>{path * 4}</svg>").count("fill: none") == 1
    assert themed(f"<svg>{path * 3}</svg>").count("fill: none") == 3


def test_a_script_stays_where_it_has_something_to_do():
    script = '<script src="../_static/copybutton.js?v=1"></script>\n'
    assert without_idle_scripts(f"{script}<p>a</p>") == "<p>a</p>"
    assert without_idle_scripts(f"{script}<pre>a</pre>") == f"{script}<pre>a</pre>"
    other = '<script src="other.js"></script>\n<p>a</p>'
    assert without_idle_scripts(other) == other


def test_settings_of_mathjax_stay_with_it():
    settings = "<script>window.MathJax = {}</script>\n"
    assert without_idle_scripts(f"{settings}<p>a</p>") == "<p>a</p>"
    with_formula = f'{settings}<span class="math notranslate">x</span>'
    assert without_idle_scripts(with_formula) == with_formula


def test_code_that_has_the_colour_of_the_text_has_no_element_of_its_own():
    code = '<span class="{}">{}</span>'
    plain = [("n", "a"), ("w", " "), ("nn", "b"), ("p", "(&lt;")]
    assert without_plain_spans("".join(code.format(*each) for each in plain)) == "a b(&lt;"
    for kept in (code.format("w", "a"), code.format("k", "in"), code.format("p", "<b>:</b>")):
        assert without_plain_spans(kept) == kept


def test_what_loses_its_element_has_the_colour_of_the_text_on_light_and_dark():
    for scheme in ("a11y-high-contrast-light", "a11y-high-contrast-dark"):
        style = get_style_by_name(scheme)
        plain = (
            Token.Text,
            Token.Text.Whitespace,
            Token.Name,
            Token.Name.Namespace,
            Token.Punctuation,
        )
        colours = {style.style_for_token(each)["color"] for each in plain}
        assert len(colours) == 1


def test_the_search_index_keeps_words_and_loses_numbers_and_blanks():
    made = (
        'Search.setIndex({"docnames": ["a b"], "terms": {"16n": 0, "0.57": 0}, "titleterms": {}})'
    )
    kept = 'Search.setIndex({"docnames":["a b"],"terms":{"16n":0},"titleterms":{}})'
    assert trim_index(made) == kept


def styles(text, words):
    rules = tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True)
    return trimmed(rules, words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".used{a:b}", ".used{a:b}"),
        (".unused{a:b}", ""),
        (".used .unused{a:b}", ""),
        (".used,.unused{a:b}", ".used{a:b}"),
        ("p{a:b}", "p{a:b}"),
        ("p:not(.unused){a:b}", "p:not(.unused){a:b}"),
        ("@media print{.unused{a:b}}", ""),
        ("@media print{.used{a:b}}", "@media print{.used{a:b}}"),
        ("@font-face{font-family:a}", "@font-face{font-family:a}"),
    ],
)
def test_a_rule_stays_if_some_page_can_have_its_classes(text, expected):
    assert styles(text, {"used"}) == expected


def test_classes_within_brackets_are_not_required():
    prelude = tinycss2.parse_component_value_list("a.x:is(.y, .z) > .w")
    assert classes_in(prelude) == {"x", "w"}


def test_every_coloured_box_says_what_its_formulas_are_printed_on():
    """Else a long formula in it stands between two patches of the page's colour."""
    kinds = set()
    for chapter in chapters(ROOT):
        kinds |= set(re.findall(r"^`{3,}\{prf:(\w+)\}", chapter.read_text("utf-8"), re.M))
    style = (ROOT / "_static" / "custom.css").read_text(encoding="utf-8")
    grounds = set(re.findall(r"div\.(\w+) \{ --ground: color-mix", style))
    assert {"definition", "proposition"} <= kinds
    assert kinds - {"proof"} <= grounds


EXPLAINING = """<dl class="glossary"><dt id="term-nat">nat<a class="headerlink">#</a></dt>
<dd id="x"><p>A unit of <a href="#b">surprise</a>.</p><p class="introduced">there</p></dd></dl>
<div class="proof proposition" id="prop-a"><p id="y">Let <a class="headerlink">#</a> it.</p></div>
<div class="note" id="note">no</div>"""


def test_what_a_page_explains_has_no_links_and_no_anchors():
    assert explained(EXPLAINING) == {
        "term-nat": "<p>A unit of surprise.</p>",
        "prop-a": '<div class="proof proposition"><p>Let it.</p></div>',
    }


def test_a_page_shows_what_its_own_links_lead_to_once_each():
    link = '<a class="reference internal" href="%s">nat</a>'
    to = link % "../glossary.html#term-nat"
    page = f"<body>{to}{to}{link % '#own'}{link % '../glossary.html#none'}</body>"
    asked = []

    def explanations(name):
        asked.append(name)
        return {"book/a/b.html": {"own": "<p>I</p>"}, "book/glossary.html": {"term-nat": "N"}}[name]

    made = with_previews(page, "book/a/b.html", explanations)
    assert set(asked) == {"book/glossary.html", "book/a/b.html"}
    assert made == page.replace(
        "</body>",
        '<template data-preview="../glossary.html#term-nat">N</template>\n'
        '<template data-preview="#own"><p>I</p></template>\n</body>',
    )


def test_a_number_of_arxiv_becomes_a_link():
    made = nodes.paragraph("", "", *linked("A. arXiv:1607.06450, 2016. B."))
    assert made.astext() == "A. arXiv:1607.06450, 2016. B."
    (link,) = made.findall(nodes.reference)
    assert (link.astext(), link["refuri"]) == (
        "arXiv:1607.06450",
        "https://arxiv.org/abs/1607.06450",
    )
    assert linked("none") == [nodes.Text("none")]


@pytest.mark.parametrize(
    ("exercise", "named"),
    [
        (" Exercise 3.4 (By how much (or not) ★★)", "Exercise 3.4"),
        (" Exercise 3.4", "Exercise 3.4"),
    ],
)
def test_a_solution_is_called_so_and_tells_by_number_whose_it_is(exercise, named):
    link = nodes.reference("", "", nodes.Text(exercise), refuri="#ex")
    title = nodes.title("", "", nodes.Text("Solution to"), link)
    page = nodes.container("", solution_node("", title), nodes.paragraph("", "It is."))
    book_site.ShortenSolutionTitles.run(SimpleNamespace(document=page))
    word, whose = title.children
    assert (word.astext(), whose.astext()) == ("Solution", f" to {named}")
    assert whose["classes"] == ["whose"]  # out of sight, but for paper and for who hears the page
    assert not list(title.findall(nodes.reference))


CONTENTS = """<p class="caption"><span>One</span></p>
<ul><li><a href="#">1. A</a></li><li><a href="b.html">2. B</a></li></ul>
<p class="caption"><span>Back matter</span></p><ul><li><a href="c.html">C</a></li></ul>"""


def test_the_contents_say_how_long_each_chapter_and_each_part_takes():
    found = [Chapter("x/a", 0, frozenset(), 65), Chapter("x/b", 0, frozenset(), 25)]
    soup = BeautifulSoup(CONTENTS, "html.parser")
    for _ in range(2):  # the theme may ask twice, and then gives the same soup
        with_times(soup, found, {"a": "#", "b": "b.html"})
    lines = [element.get_text() for element in soup.select("p, li")]
    assert lines == ["One 1.5 hours", "1. A 65 min", "2. B 25 min", "Back matter", "C"]


def table(name):
    row = nodes.row("", nodes.entry("", nodes.paragraph("", "a")), nodes.entry())
    body = nodes.tbody("", row)
    head = nodes.thead("", nodes.row("", nodes.entry(), nodes.entry()))
    return nodes.table("", nodes.tgroup("", head, body), classes=[name])


@pytest.mark.parametrize(("name", "folds"), [("topics", 1), ("other", 0)])
def test_the_last_column_of_a_table_of_topics_is_folded(name, folds):
    app = SimpleNamespace(builder=SimpleNamespace(format="html"))
    page = nodes.container("", table(name))
    fold_assertions(app, page, "page")
    assert sum("<details>" in raw.astext() for raw in page.findall(nodes.raw)) == folds
    assert not list(next(page.findall(nodes.thead)).findall(nodes.raw))


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
    said = "All. recorded, one core, 2026-11-22, 8 minutes of one core, in results/a"
    assert recorded.astext() == said
    assert computed.astext() == "None was recorded."
    page.write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="no record is read"):
        mark(app, nodes.container("", nodes.caption("", "", nodes.Text("Recorded."))))


@pytest.mark.parametrize("path", chapters(ROOT), ids=lambda path: path.stem)
def test_a_recorded_figure_has_a_record_for_its_badge(path):
    text = path.read_text(encoding="utf-8")
    if f"{WORD}'" in text:
        assert RECORD.search(text)
