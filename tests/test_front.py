"""The first screen tells the truth: what two readers expect, how many chapters and hours, and what
builds on what. And README.md shows that screen as it is.
"""

import re

import numpy as np
import pytest
from bs4 import BeautifulSoup
from chapters import ROOT, read
from picture import sources, taken_from
from prerequisites import LABEL, chapters, columns, hours, reduced

INDEX = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
CHAPTERS = chapters(ROOT)
WORDS = (
    "no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen"
)


def slug(title):
    """What MyST calls the place of a heading: its text, without formulas and marks."""
    text = re.sub(r"\$[^$]+\$", "", title).lower().replace(" ", "-")
    return re.sub(r"[^\w-]", "", text)


def labelled(labels):
    return [each for each in CHAPTERS if each.label in labels]


def path(name):
    """The hours that a path says it takes, and the chapters that it names."""
    text = re.search(rf"\}} {name}\n:[^\n]*\n\*\*([\d.]+) hours?\*\*: (.*?)\n\n", INDEX, re.S)
    return float(text[1]), re.findall(r"\{ref\}`(\w+)`", text[2])


def test_the_landing_page_counts_chapters_and_hours():
    said = re.search(r"\*\*(\d+) chapters, about (\d+) hours", INDEX)
    assert int(said[1]) == len(CHAPTERS)
    assert int(said[2]) == round(hours(CHAPTERS))
    assert path("A semester")[0] == hours(CHAPTERS)
    assert f"all {len(CHAPTERS)} chapters" in INDEX


def test_the_landing_page_counts_the_chapters_and_the_hours_of_each_part():
    footers = re.findall(r":::\{card-footer\}\n(\w+) chapters, ([\d.]+) hours", INDEX)
    parts = [[each for each in CHAPTERS if each.part == part] for part in range(len(footers))]
    assert [WORDS.split().index(word.lower()) for word, _ in footers] == [*map(len, parts)]
    assert [float(said) for _, said in footers] == [*map(hours, parts)]
    assert sum(map(len, parts)) == len(CHAPTERS)


def test_the_landing_page_leads_to_each_figure_that_answers():
    live = set()
    for each in CHAPTERS:
        page = read(ROOT / f"{each.page}.md")
        for line in (d.line for d in page.directives if d.name == "live"):
            above = [h.title for h in page.headings if h.line < line]
            live.add(f"{each.page.removeprefix('book/')}.md#{slug(above[-1])}")
    assert live
    listed = INDEX.split("## Try it\n")[1].split("\n## ")[0]
    assert set(re.findall(r"\]\((.*?)\)", listed)) == live


def test_the_shorter_paths_take_as_long_as_they_say():
    said, first = path("An afternoon")
    assert said == hours(labelled(first))
    said, then = path("A weekend")
    assert said == hours(labelled(first + then))


def test_the_shorter_paths_follow_the_order_of_the_book():
    order = [each.label for each in CHAPTERS]
    both = [order.index(label) for name in ("An afternoon", "A weekend") for label in path(name)[1]]
    assert both == sorted(both)


def test_every_chapter_names_what_it_needs_and_only_what_stands_before_it():
    order, late = [each.label for each in CHAPTERS], set()
    assert CHAPTERS[0].needs == set()
    assert all(each.needs for each in CHAPTERS[1:])
    for i, each in enumerate(CHAPTERS):
        text = (ROOT / f"{each.page}.md").read_text(encoding="utf-8")
        paragraph = re.search(r"\*\*You need\*\*.*?\n\n", text, re.S)[0]
        late |= {(each.label, x) for x in LABEL.findall(paragraph) if x in order[i:]}
    assert late == set()


def test_each_address_of_version_0_2_is_still_a_page():
    """A page that moves leaves one behind that leads on."""
    addresses = (ROOT / "tests/addresses.txt").read_text(encoding="utf-8").split()
    assert addresses
    assert [each for each in addresses if not (ROOT / f"{each}.md").is_file()] == []


def test_what_follows_through_others_is_left_out():
    needs = {"a": set(), "b": {"a"}, "c": {"a", "b"}, "d": {"a"}}
    assert reduced(needs) == {"a": set(), "b": {"a"}, "c": {"b"}, "d": {"a"}}


def test_the_list_has_a_link_for_each_chapter_and_a_number_for_each_need():
    names = {each.label: f"<{each.label}>" for each in CHAPTERS}
    made = columns(CHAPTERS, names, names, [f"Part {i}" for i in range(5)])
    needs = reduced({each.label: each.needs for each in CHAPTERS})
    order = list(names)
    expected = [
        (f"<{name}>", sorted(order.index(below) + 1 for below in needs[name])) for name in order
    ]
    items = BeautifulSoup(made, "html.parser").select("li")
    found = [(item.a["href"], item.small.text if item.small else "") for item in items]
    assert [(link, [*map(int, re.findall(r"\d+", said))]) for link, said in found] == expected


def test_the_button_says_how_long_the_first_chapter_takes():
    said = re.search(r"Start: chapter 1, (\d+) minutes", INDEX)
    assert int(said[1]) == CHAPTERS[0].minutes
    assert f"{{button-ref}} {CHAPTERS[0].page.removeprefix('book/')}\n" in INDEX


def test_each_part_has_a_picture_and_words_for_who_cannot_see_it():
    found = re.findall(r":img-top: (\S+)\n:img-alt: (.+)\n", INDEX)
    assert len(found) == len({each.part for each in CHAPTERS}) == INDEX.count(":img-top:")
    assert all((ROOT / "book" / name).is_file() for name, _ in found)


# ---- the story -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def story():
    """The names of the cell that makes the figure, and what the cell shows."""
    source = read(ROOT / "book" / "index.md").cells[0].source
    before, shown = source.rsplit("\nHTML(", 1)
    exec(f"{before}\nshown = HTML({shown}", names := {})
    return names


def test_the_story_ends_with_the_five_likeliest_words_of_each_reader(story):
    world, at = story["world"], story["answer"]
    begun, scorer = story["text"][: at + 1], story["counting"].log_probs
    laws = np.exp(scorer(begun)), world(begun[None])[0, -1].exp().numpy()
    rows = re.findall(r"<li.*?><span>(.*?)</span><i .*?><span>(\d+) %<", story["shown"].data)
    for law, said in zip(laws, (rows[:5], rows[5:]), strict=True):
        words, shares = zip(*said, strict=True)
        probs = law[world.encode(words)]
        assert [*map(int, shares)] == pytest.approx(100 * probs, abs=0.501)
        assert sorted(probs) == pytest.approx(np.sort(law)[-5:], abs=1e-6)
        assert len(set(words)) == 5


def test_the_story_that_one_goes_on_with_is_that_of_the_still(story):
    script = (ROOT / "live" / "story.js").read_text(encoding="utf-8")
    assert f'"{story["story"].removesuffix(" <end>")}"' in script
    assert f"at: {story['answer']} }}" in script
    assert re.sub(r"</?b>", "", story["shown"].data).count(" eve.<") == 1


# ---- README.md -------------------------------------------------------------------------------


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_picture_of_the_readme_shows_the_first_screen_as_it_is():
    assert taken_from() == sources(), "make book && .venv/bin/python tests/picture.py"
