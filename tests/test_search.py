"""What a reader types leads to the page that answers: `questions.yml`, asked of the built site."""

import re

import pytest
import yaml
from browsing import SITE, Visit
from chapters import ROOT, pages
from docutils.core import publish_doctree
from finding import KEYWORDS, phrases, sections, words

pytest_plugins = ["site_fixtures"]
QUESTIONS = yaml.safe_load((ROOT / "tests/questions.yml").read_text("utf-8"))
LABEL = re.compile(r"\A(?:---\n.*?\n---\n\s*)?\((\w+)\)=\n# ", re.DOTALL)
LABELS = {
    found[1]: path.relative_to(ROOT).with_suffix("").as_posix()
    for path in pages()
    if (found := LABEL.match(path.read_text(encoding="utf-8")))
}
FIRST = """all => Object.fromEntries(all.map(question => {
  const hits = Find.search(question);
  return [question, hits.map(hit => Search._index.pages[hit.page][0])];
}))"""


def pages_of(labels):
    return {LABELS[label] for label in ([labels] if isinstance(labels, str) else labels)}


SPELLINGS = {"colour": "color", "modelling": "modeling", "back-propagation": "backpropagation"}
SPELLINGS |= {"quantisation": "quantization", "centre": "center"}


@pytest.mark.parametrize(("one", "other"), SPELLINGS.items())
def test_two_spellings_are_one_word(one, other):
    assert set(words(other)) <= set(words(one))
    assert phrases(other) <= phrases(one)


def test_a_word_counts_in_its_section_and_more_in_a_heading():
    text = "Page\n====\n\nOne.\n\nPart\n----\n\nTwo two::\n\n  code\n"
    page, part = sections(publish_doctree(text, settings_overrides={"doctitle_xform": False}))
    assert [page[:3], part[:3]] == [["page", "Page", "One."], ["part", "Part", "Two two:"]]
    assert page[3]["page"] > part[3]["part"] > part[3]["two"] == 2
    assert "code" not in part[3]


def test_keywords_and_questions_name_pages_of_the_book():
    keywords = yaml.safe_load(KEYWORDS.read_text(encoding="utf-8"))["labels"]
    asked = [pages_of(labels) for kind in QUESTIONS.values() for labels in kind.values()]
    assert set(keywords) <= set(LABELS)
    assert all(asked)


@pytest.mark.site
@pytest.mark.parametrize(("kind", "wanted"), [("tuned", 0.9), ("words", 1), ("others", 0.75)])
def test_questions_lead_to_their_page_first_and_to_none_twice(kind, wanted, context, address):
    visit = Visit(context, f"{address}/search.html")
    found = visit.page.evaluate(FIRST, list(QUESTIONS[kind]))
    visit.page.close()
    right = {question: pages_of(labels) for question, labels in QUESTIONS[kind].items()}
    missed = [question for question in right if not right[question] & set(found[question][:1])]
    assert len(missed) <= (1 - wanted) * len(found), missed
    assert visit.outside + visit.errors == []
    assert all(len(set(hits)) == len(hits) for hits in found.values())


@pytest.mark.site
def test_a_hit_shows_its_section_and_a_term_its_definition_from_a_disk_too(context):
    visit = Visit(context, f"{(SITE / 'search.html').as_uri()}?q=absolute discounting")
    hits = visit.page.locator("#search-results li")
    shown = hits.all_inner_texts()
    found = hits.locator("a").first.get_attribute("href")
    visit.page.close()
    assert found.startswith(LABELS["smoothing"] + ".html#")
    assert "› Absolute discounting" in shown[0]
    (term,) = [text for text in shown if text.startswith("Glossary")]
    assert "takes the same amount from each count" in term
    assert not [text for text in shown if "\\(" in text]


@pytest.mark.site
@pytest.mark.parametrize("page", ["glossary", "topics"])
def test_a_long_list_has_letters_and_a_filter(page, context, address):
    tab = Visit(context, f"{address}/book/{page}.html").page
    shown = tab.locator(":is(dl.glossary dt, tbody tr):visible")
    letters = tab.locator("nav.finder a").all_inner_texts()
    assert letters == sorted(set(letters))
    tab.locator("nav.finder a", has_text="S").click()
    assert tab.locator(":target").inner_text().strip()[0].upper() == "S"
    whole = shown.count()
    tab.locator("nav.finder input").fill("perplexity")
    found = shown.count()
    assert 0 < found < whole / 5
    assert "perplexity" in " ".join(shown.all_inner_texts()).lower()
    tab.locator("nav.finder input").fill("")
    assert shown.count() == whole
    tab.close()
