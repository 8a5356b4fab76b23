"""Every chapter follows the recipe, and the recipe's rules find what they are for.

A small sound chapter passes every rule; each planted defect is found by its rule, at its line.
"""

import re
from functools import cache

import matplotlib
import pytest
from chapters import ROOT, Page, chapters, read
from recipe import CHAPTER_RULES, HEADER, NOTEBOOK_RULES

NOTEBOOKS = [path.relative_to(ROOT).as_posix() for path in chapters()]
IN_PARTS = [name for name in NOTEBOOKS if name.count("/") == 2]  # book/<part>/<chapter>.md

NAME = "book/part/sound.md"
NESTED = "```{code-cell} ipython3\none = 1\n```"
GLUED = 'glue("x", 1)'

EXERCISE = """
```{exercise-start} Count LEVEL
:label: ex-NUMBER
```

How many?

```{exercise-end}
```

```{solution-start} ex-NUMBER
:class: dropdown
```

One.

```{code-cell} ipython3
assert NUMBER == NUMBER
```

```{solution-end}
```
"""


def exercise(number, level):
    return EXERCISE.replace("NUMBER", str(number)).replace("LEVEL", level)


EXERCISES = "".join(exercise(n, "★" * (1 + n % 3)) for n in range(3)).replace(
    ":label: ex-2\n", ":label: ex-2\n:class: bug\n"
)

KEY = """
```{code-cell} ipython3
:tags: [key]

key = NUMBER
```
"""
KEYS = "".join(KEY.replace("NUMBER", str(number)) for number in range(4))

SOUND = f"""{HEADER}
(sound)=
# A sound chapter

:::{{admonition}} The question
:class: question
What is one – 一?
:::

:::{{admonition}} In this chapter
:class: objectives
You will be able to count. You need nothing. **Time**: about 5 minutes to read, 2 seconds to run.
:::

## Counting

```{{code-cell}} ipython3
---
tags: [hide-input]
mystnb:
  figure:
    name: fig-one
    caption: One is one, as {{cite:t}}`peano` says.
  image:
    alt: A point
---
one = 1
```
{KEYS}
## Experiment: one is one

```{{code-cell}} ipython3
assert one == 1
```

```{{code-cell}} ipython3
:tags: [raises-exception]

assert one == 2
```

## What this does not show

That two is two.

## Summary

1. One is $1.0$.
2. It was
   counted.
3. Two is another number.

## Exercises
{EXERCISES}
## Further reading

Begin with {{cite}}`peano`.
"""

# Rule, what is replaced in the sound chapter, by what, how the line begins that must be reported
# (empty: any line), and a part of the message.
FIRST_KEY = "[key]\n\nkey = 0"
PLANTED = [
    ("has_the_canonical_header", "  name: python3\n", "", "---", "must begin with the header"),
    ("names_the_language_of_its_cells", "ipython3\nassert one", "\nassert one", "", "got nothing"),
    (
        "has_its_cells_at_the_top_level",
        "One.\n",
        f":::{{note}}\n{NESTED}\n:::\n",
        "",
        "move it out",
    ),
    ("has_cells_that_parse", "one = 1", "one = = 1", "one = = 1", "does not parse"),
    ("keeps_its_code_in_the_column", "one = 1", f"one = 1{' + 0' * 20}", "one = 1 + 0", "got 87"),
    ("uses_known_tags_only", "[raises-exception]", "[nbval-skip]", "", "'nbval-skip'"),
    ("uses_no_nbval_comments", "one = 1", "# NBVAL_SKIP", "# NBVAL_SKIP", "drop '# NBVAL_SKIP'"),
    ("glues_after_its_bars", "one = 1", f"{GLUED}\nlist(progress([1]))", GLUED, "clears what came"),
    ("begins_no_line_with_a_sign", "is one – 一?", "is $1\n- 1$ – 一?", "- 1$", "break the line"),
    ("begins_no_line_with_a_sign", "is one – 一?", "is 1\n% – 一?", "% –", "is on no page"),
    ("has_a_labelled_title", "(sound)=", "(other)=", "# A sound chapter", "expected (sound)="),
    ("has_a_labelled_title", "## Counting", "# Counting", "# Counting", "one title expected"),
    ("opens_with_a_question", ":class: question\n", "", "# A sound chapter", ":class: question"),
    ("opens_with_a_question", "一?", "一.", ":::{admonition} The question", "holds nothing like"),
    ("states_its_objectives", "You need", "Give", ":::{admonition} In this chapter", "You need"),
    ("has_its_sections_in_order", "## What this does not show", "## Else", "", "does not show'"),
    ("has_its_sections_in_order", "That two is two.", "", "## What this does not show", "is empty"),
    ("has_its_sections_in_order", "## Counting", "## Summary\n\nNo.", "## Summary", "comes after"),
    (
        "asserts_its_experiment",
        "assert one",
        "print(one)  #",
        "## Experiment: one",
        "claims nothing",
    ),
    ("marks_its_key_cells", FIRST_KEY, "[margin]", "# A sound chapter", "got 3"),
    ("marks_its_key_cells", FIRST_KEY, "[hide-input, key]\n\nkey = 0", "key = 0", "drop ['hide"),
    ("describes_its_figures", "    name: fig-one\n", "", "one = 1", "mystnb.figure.name"),
    ("describes_its_figures", "mystnb:", "mystnc:", "# A sound chapter", "found none"),
    ("summarises_in_three_sentences", "3. Two", "   Two", "", "got 2"),
    (
        "summarises_in_three_sentences",
        "another number.",
        "another",
        "3. Two is another",
        "sentence",
    ),
    ("has_exercises_of_all_levels", exercise(0, "★"), "", "## Exercises", "got 2"),
    ("has_exercises_of_all_levels", "★★★", "★★", "## Exercises", "level ★★★"),
    ("has_exercises_of_all_levels", "Count ★★\n", "Count\n", "", "must end with its level"),
    ("has_exercises_of_all_levels", ":class: bug\n", "", "## Exercises", "planted bug"),
    ("solves_each_exercise", "```{exercise-end}\n```\n", "", "", "expected {exercise-end} here"),
    ("solves_each_exercise", ":label: ex-1", ":label: one", "", "expected :label: ex-"),
    ("solves_each_exercise", "start} ex-1", "start} ex-9", "```{solution-start} ex-9", "'ex-1'"),
    ("solves_each_exercise", ":class: dropdown\n", "", "```{solution-start} ex-0", "dropdown"),
    (
        "solves_each_exercise",
        "assert 2 ==",
        "print(2) #",
        "```{solution-start} ex-2",
        "not checked",
    ),
    ("cites_further_reading", "{cite}`peano`", "Peano", "## Further reading", "{cite} role"),
]

RULES = {rule.__name__: rule for rule in NOTEBOOK_RULES + CHAPTER_RULES}


@cache
def page_of(name):
    return read(ROOT / name)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_each_page_follows_the_rules(name):
    rules = NOTEBOOK_RULES + (CHAPTER_RULES if name in IN_PARTS else [])
    found = [f"{rule.__name__}: {fault}" for rule in rules for fault in rule(page_of(name))]
    assert not found, "\n".join(found)


TEMPLATE = (ROOT / "_ext/chapter.md").read_text(encoding="utf-8")
COINS = re.sub("TITLE|NAME|TAG", lambda word: "sound" if word[0] == "NAME" else "coins", TEMPLATE)


@pytest.mark.parametrize("text", [SOUND, COINS], ids=["sound", "template"])
@pytest.mark.parametrize("rule", RULES)
def test_a_sound_chapter_and_the_template_of_one_pass(rule, text):
    assert list(RULES[rule](Page(NAME, text))) == []


def test_the_cells_of_the_template_run():
    matplotlib.use("Agg")
    with matplotlib.rc_context():
        exec("\n".join(cell.source for cell in Page(NAME, COINS).cells), names := {})
    assert names["exact"].max() > 0


@pytest.mark.parametrize(("rule", "old", "new", "at", "message"), PLANTED)
def test_a_planted_defect_is_found_at_its_line(rule, old, new, at, message):
    page = Page(NAME, SOUND.replace(old, new))
    assert page.text != SOUND, f"the defect was not planted: {old!r} is not in the sound chapter"
    found = list(RULES[rule](page))
    assert any(message in text for text in found), found
    assert all(text.startswith(f"{NAME}:") for text in found), found
    line = next((n for n, text in enumerate(page.lines, 1) if at and text.startswith(at)), None)
    assert line is None or any(text.startswith(f"{NAME}:{line}:") for text in found), (line, found)


def test_every_rule_has_a_planted_defect():
    assert {rule for rule, *_ in PLANTED} == RULES.keys()
