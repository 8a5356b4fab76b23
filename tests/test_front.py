"""The first screen tells the truth: how many chapters and hours, and what builds on what."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from chapters import ROOT, read
from prerequisites import chapters, drawing, hours, reduced
from test_topics import slug

INDEX = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
CHAPTERS = chapters(ROOT)
WORDS = (
    "no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen"
)


def labelled(labels):
    return [each for each in CHAPTERS if each.label in labels]


def path(name):
    """The hours that a path says it takes, and the chapters that it names."""
    text = re.search(rf"\*\*{name}\*\* \(([\d.]+) hours?\): (.*?)\n\n", INDEX, re.S)
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


def test_the_landing_page_leads_to_each_figure_that_answers_and_their_titles_say_try():
    live = {}
    for each in CHAPTERS:
        page = read(ROOT / f"{each.page}.md")
        for cell in page.cells:
            if re.search(r"^interactive\(", cell.source, re.MULTILINE):
                above = [h.title for h in page.headings if h.line < cell.line]
                live[f"{each.page.removeprefix('book/')}.md#{slug(above[-1])}"] = above[-1]
    assert live
    assert all(re.search(r"\btry\b", title, re.IGNORECASE) for title in live.values())
    listed = INDEX.split("## Try it\n")[1].split("\n## ")[0]
    assert set(re.findall(r"\]\((.*?)\)", listed)) == set(live)


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
    place = {each.label: number for number, each in enumerate(CHAPTERS)}
    assert CHAPTERS[0].needs == set()
    assert all(each.needs for each in CHAPTERS[1:])
    late = [(x.label, y) for x in CHAPTERS for y in x.needs if place[y] >= place[x.label]]
    assert late == []


def test_what_follows_through_others_is_left_out():
    needs = {"a": set(), "b": {"a"}, "c": {"a", "b"}, "d": {"a"}}
    assert reduced(needs) == {"a": set(), "b": {"a"}, "c": {"b"}, "d": {"a"}}


def test_a_circle_is_refused():
    with pytest.raises(ValueError, match="no circle, got a needs b needs a"):
        reduced({"a": {"b"}, "b": {"a"}})


def test_the_picture_has_a_link_for_each_chapter_and_a_line_for_each_need():
    names = {each.label: f"<{each.label}>" for each in CHAPTERS}
    svg = ElementTree.fromstring(drawing(CHAPTERS, names, names))
    assert [link.get("href") for link in svg.iter("a")] == list(names.values())
    needs = reduced({each.label: each.needs for each in CHAPTERS})
    assert len([*svg.iter("path")]) == sum(map(len, needs.values()))
