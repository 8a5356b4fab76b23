"""What every chapter has, as rules: each takes a page and yields what is wrong with it.

A message reads ``book/part/chapter.md:<line>: <what was expected, what came, what to do>``.
`NOTEBOOK_RULES` hold for every page with code cells, `CHAPTER_RULES` for the chapters of a part.
"""

import ast
import re

from chapters import nested

HEADER = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  name: python3
  display_name: Python 3 (ipykernel)
  language: python
---
"""

TAGS = {
    *("hide-cell", "hide-input", "hide-output"),
    *("remove-cell", "remove-input", "remove-output", "remove-stdout", "remove-stderr"),
    *("nbval-ignore-output", "raises-exception", "full-width", "margin", "key"),
}

SECTIONS = ["Experiment", "What this does not show", "Summary", "Exercises", "Further reading"]
LEVELS = ["★", "★★", "★★★"]
SUMMARY_ITEMS = 3
LEAST_EXERCISES = 3
FEWEST_KEYS, MOST_KEYS = 4, 7
WIDEST_CODE = 80  # what the built page shows without scrolling


def at(page, line, message):
    return f"{page.name}:{line}: {message}"


def title_line(page):
    return next((h.line for h in page.headings if h.level == 1), 1)


# ---- rules for every page with code cells ----------------------------------------------------


def has_the_canonical_header(page):
    if not page.text.startswith(HEADER):
        yield at(page, 1, f"the file must begin with the header that JupyterLab writes:\n{HEADER}")


def names_the_language_of_its_cells(page):
    for directive in page.directives:
        if directive.name == "code-cell" and directive.argument != "ipython3":
            found = directive.argument or "nothing"
            yield at(
                page, directive.line, f"write {{code-cell}} ipython3, as Save does; got {found}"
            )


def has_its_cells_at_the_top_level(page):
    """A cell inside a directive is shown but neither built nor tested."""
    for directive in page.directives:
        if directive.name == "code-cell" and not directive.top_level:
            yield at(
                page, directive.line, "a code cell inside a directive is never run: move it out"
            )


def has_cells_that_parse(page):
    for cell in page.cells:
        try:
            ast.parse(cell.source)
        except SyntaxError as error:
            line = cell.line + (error.lineno or 1) - 1
            yield at(page, line, f"the cell does not parse: {error.msg}")


def keeps_its_code_in_the_column(page):
    for cell in page.cells:
        for number, code in enumerate(cell.source.splitlines()):
            if len(code) > WIDEST_CODE:
                message = f"expected at most {WIDEST_CODE} characters of code, got {len(code)}"
                yield at(page, cell.line + number, message)


def uses_known_tags_only(page):
    """Among the unknown ones are nbval-skip and skip-execution, which would hide a cell."""
    for cell in page.cells:
        tags = cell.tags if isinstance(cell.tags, list) else [str(cell.tags)]
        for tag in sorted(set(tags) - TAGS):
            yield at(page, cell.line, f"unknown tag '{tag}'; expected one of {sorted(TAGS)}")


def uses_no_nbval_comments(page):
    for cell in page.cells:
        for number, text in enumerate(cell.source.splitlines()):
            if re.search(r"#\s*(NBVAL_|PYTEST_VALIDATE)", text):
                yield at(page, cell.line + number, f"drop '{text.strip()}': a chapter uses tags")


def begins_no_line_with_a_sign(page):
    """Inside a formula Markdown would take it for the mark of a list; after % it skips a line."""
    dollars, inside = 0, False
    for number, line in enumerate(page.lines, 1):
        if line.startswith("```"):
            inside = line.startswith("```{code-cell}")
        if inside or not line.strip():
            dollars = 0
            continue
        if line.startswith("%"):
            yield at(page, number, "a line that begins with % is on no page: break it elsewhere")
        if dollars % 2 and re.match(r"\s*[-+*] ", line):
            yield at(page, number, "a formula goes on here with a sign: break the line elsewhere")
        dollars += len(re.findall(r"(?<!\\)\$", line.replace("$$", "")))


def glues_after_its_bars(page):
    """A progress bar clears the cell's outputs, and with them what was glued before it."""
    for cell in page.cells:
        glued, bar = cell.source.find("glue("), cell.source.rfind("progress(")
        if 0 <= glued < bar:
            line = cell.line + cell.source.count("\n", 0, glued)
            yield at(page, line, "glue after the progress bar, which clears what came before it")


NOTEBOOK_RULES = [
    has_the_canonical_header,
    names_the_language_of_its_cells,
    has_its_cells_at_the_top_level,
    has_cells_that_parse,
    keeps_its_code_in_the_column,
    uses_known_tags_only,
    uses_no_nbval_comments,
    glues_after_its_bars,
    begins_no_line_with_a_sign,
]

# ---- rules for the chapters of a part --------------------------------------------------------


def has_a_labelled_title(page):
    titles = [h for h in page.headings if h.level == 1]
    if len(titles) != 1:
        yield at(page, titles[1].line if titles else 1, f"one title expected, got {len(titles)}")
        return
    label = f"({page.name.rsplit('/', 1)[-1].removesuffix('.md')})="
    above = page.lines[titles[0].line - 2]
    if above != label:
        yield at(
            page, titles[0].line, f"expected {label} on the line above the title, got '{above}'"
        )


def opens_with_a_question(page):
    yield from missing_box(page, "question", [r"\?"])


def states_its_objectives(page):
    wanted = ["able to", "You need", r"\*\*Time\*\*", r"\d minutes? to read", r"\d \w+ to run"]
    yield from missing_box(page, "objectives", wanted)


def missing_box(page, kind, wanted):
    """What an admonition of the class `kind`, above the first section, lacks of `wanted`."""
    first = next((h.line for h in page.headings if h.level == 2), len(page.lines) + 1)
    boxes = [d for d in page.directives if kind in d.options.get("class", "").split()]
    box = next((d for d in boxes if d.name == "admonition" and d.line < first), None)
    if box is None:
        expected = f":::{{admonition}} … with :class: {kind} before the first section"
        yield at(page, title_line(page), f"expected {expected}, found none")
        return
    for pattern in wanted:
        if not re.search(pattern, box.content):
            yield at(page, box.line, f"the {kind} box holds nothing like '{pattern}'")


def has_its_sections_in_order(page):
    found = {name: page.section(name) for name in SECTIONS}
    for name, span in found.items():
        if span is None:
            yield at(page, len(page.lines), f"expected a section '## {name}', found none")
        elif not "".join(page.lines[span[0] : span[1]]).strip():
            yield at(page, span[0], f"the section '{name}' is empty")
    starts = [(span[0], name) for name, span in found.items() if span]
    for (line, name), (earlier, before) in zip(starts[1:], starts, strict=False):
        if line < earlier:
            yield at(page, line, f"'{name}' comes after '{before}': expected {SECTIONS}")


def asserts_its_experiment(page):
    span = page.section("Experiment")
    if span and not any(asserts(cell) for cell in cells_between(page, *span)):
        yield at(
            page, span[0], "the experiment claims nothing: expected a code cell with an assert"
        )


def marks_its_key_cells(page):
    """A reader of the text, the figures and these few cells can restate the derivation."""
    keys = [cell for cell in page.cells if "key" in cell.tags]
    if not FEWEST_KEYS <= len(keys) <= MOST_KEYS:
        expected = f"{FEWEST_KEYS} to {MOST_KEYS} cells with the tag 'key'"
        yield at(page, title_line(page), f"expected {expected}, got {len(keys)}")
    for cell in keys:
        hidden = [tag for tag in cell.tags if tag.startswith(("hide-", "remove-"))]
        if hidden:
            yield at(page, cell.line, f"a key cell is shown: drop {hidden} or 'key'")


def asserts(cell):
    try:
        return any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(cell.source)))
    except SyntaxError:  # another rule reports it
        return False


def cells_between(page, first, last):
    return [cell for cell in page.cells if first <= cell.line <= last]


def describes_its_figures(page):
    figures = [cell for cell in page.cells if "mystnb" in cell.metadata]
    if not figures:
        yield at(page, title_line(page), "expected a cell with mystnb.figure options, found none")
    for cell in figures:
        for group, key in (("figure", "name"), ("figure", "caption"), ("image", "alt")):
            if not str(nested(cell.metadata, "mystnb", group, key)).strip():
                yield at(page, cell.line, f"the figure has no mystnb.{group}.{key}")


def summarises_in_three_sentences(page):
    span = page.section("Summary")
    if span is None:
        return
    items = list(numbered_items(page, *span))
    if len(items) != SUMMARY_ITEMS:
        expected = f"a numbered list of {SUMMARY_ITEMS} items"
        yield at(page, span[0], f"the summary must be {expected}, got {len(items)}")
    for line, text in items:
        if not text.endswith((".", "!", "?")) or re.search(r"[.!?]\s+[A-Z]", text):
            yield at(page, line, f"expected one sentence with its full stop, got '{text}'")


def numbered_items(page, first, last):
    """(line, text) of the items of the numbered lists between two lines."""
    depth, line, texts = [], None, []
    for token in page.tokens:
        if token.type in ("ordered_list_open", "bullet_list_open"):
            depth.append(token.type)
        elif token.type in ("ordered_list_close", "bullet_list_close"):
            depth.pop()
        elif token.type == "list_item_open" and depth == ["ordered_list_open"]:
            line, texts = token.map[0] + 1, []
        elif token.type == "inline" and line:
            texts.append(" ".join(token.content.split()))
        elif token.type == "list_item_close" and depth == ["ordered_list_open"]:
            if first <= line <= last:
                yield line, " ".join(texts)
            line = None


def has_exercises_of_all_levels(page):
    exercises = [d for d in page.directives if d.name == "exercise-start"]
    line = (page.section("Exercises") or (len(page.lines),))[0]
    if len(exercises) < LEAST_EXERCISES:
        yield at(page, line, f"expected {LEAST_EXERCISES} exercises or more, got {len(exercises)}")
    levels = {exercise.line: stars(exercise.argument) for exercise in exercises}
    for level in LEVELS:
        if level not in levels.values():
            yield at(page, line, f"no exercise has the level {level}")
    for number, level in levels.items():
        if level not in LEVELS:
            yield at(page, number, "the exercise's title must end with its level: ★, ★★ or ★★★")
    if not any("bug" in exercise.options.get("class", "").split() for exercise in exercises):
        yield at(page, line, "no exercise has a planted bug (:class: bug)")


def stars(title):
    return re.search(r"★*$", title)[0]


def solves_each_exercise(page):
    """Each exercise is a gated pair, followed at once by its hidden, asserting solution."""
    parts = ("exercise", "exercise-start", "exercise-end")
    parts += ("solution", "solution-start", "solution-end")
    gates = [d for d in page.directives if d.name in parts]
    order = ["exercise-start", "exercise-end", "solution-start", "solution-end"]
    for number, gate in enumerate(gates):
        if gate.name != order[number % 4]:
            yield at(page, gate.line, f"expected {{{order[number % 4]}}} here, got {{{gate.name}}}")
            return
    if len(gates) % 4:
        yield at(page, gates[-1].line, f"{{{order[len(gates) % 4]}}} is missing after this")
    for index in range(0, len(gates) - 3, 4):
        yield from solution_faults(page, gates[index], *gates[index + 2 : index + 4])


def solution_faults(page, exercise, solution, end):
    label = exercise.options.get("label", "")
    if not label.startswith("ex-"):
        yield at(page, exercise.line, f"expected :label: ex-…, got '{label}'")
    if solution.argument != label:
        yield at(page, solution.line, f"solves '{solution.argument}', expected '{label}'")
    if "dropdown" not in solution.options.get("class", "").split():
        yield at(page, solution.line, "a solution is hidden: expected :class: dropdown")
    if not any(asserts(cell) for cell in cells_between(page, solution.line, end.line)):
        yield at(page, solution.line, "the solution is not checked: expected a cell with an assert")


def cites_further_reading(page):
    span = page.section("Further reading")
    if span and not any(cites(role) and span[0] <= line <= span[1] for role, _, line in page.roles):
        yield at(page, span[0], "expected a {cite} role under 'Further reading', found none")


def cites(role):
    return "cite" in role and not role.startswith("nocite")


CHAPTER_RULES = [
    has_a_labelled_title,
    opens_with_a_question,
    states_its_objectives,
    has_its_sections_in_order,
    asserts_its_experiment,
    marks_its_key_cells,
    describes_its_figures,
    summarises_in_three_sentences,
    has_exercises_of_all_levels,
    solves_each_exercise,
    cites_further_reading,
]
