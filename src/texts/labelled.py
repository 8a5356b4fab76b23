"""What is a labelled example, and how is a task of one's own read from a file?

    family          texts of an example            labels
    classification  one text                       names
    entailment      premise, hypothesis            names; the order counts
    similarity      first, second                  names; the order does not count
    choice          context, choice, choice, …     which choice

A reader's own examples come from a file with one JSON object a line, `load`. The tasks of the
micro-world are in `texts/tasks`. Source: Radford et al. 2018, section 3.3 (the four families).
Chapter: `gpt/gpt1_finetuning`.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .corpora import check_shares, read_text

FAMILIES = ("classification", "entailment", "similarity", "choice")
PARTS = ("train", "validation", "test")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


# ---- examples and tasks --------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """Some texts and the right answer.

    Attributes:
        texts: one text; premise and hypothesis; a first and a second text; or a context and its
            choices.
        label: a place in the task's labels; for choices, which one is right.
    """

    texts: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class Task:
    """Examples in three parts that share no example, and what is known about their answers.

    Attributes:
        name: for tables and figures.
        family: one of `FAMILIES`.
        labels: their names; for choices "first", "second", …, as many as there are choices.
        train, validation, test: to learn from, to choose by, to report on.
        ceiling: the accuracy that a perfect reader expects on the texts of the test part; None if
            nobody knows.
        ceiling_error: its standard error, as an estimate for all such texts.
    Raises:
        ValueError: fewer than two labels, an example that does not fit them, or one in two parts.
    """

    name: str
    family: str
    labels: tuple[str, ...]
    train: tuple[Example, ...]
    validation: tuple[Example, ...] = ()
    test: tuple[Example, ...] = ()
    ceiling: float | None = None
    ceiling_error: float | None = None

    def __post_init__(self) -> None:
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"expected two or more different labels, got {self.labels}")
        where: dict[tuple[str, ...], str] = {}
        for part in PARTS:
            for example in getattr(self, part):
                _check_example(self.family, self.labels, example)
                other = where.setdefault(identity_of(self.family, example.texts), part)
                if other != part:
                    raise ValueError(f"expected no copy of {example.texts} of {other} in {part}")

    def counts(self, part: str = "test") -> dict[str, int]:
        """How many examples of each label a part has."""
        counted = Counter(example.label for example in getattr(self, part))
        return {name: counted[label] for label, name in enumerate(self.labels)}

    @property
    def chance(self) -> float:
        """The accuracy of the best constant answer on the test part."""
        return max(self.counts("test").values()) / len(self.test)

    def with_labels(self, count: int, *, generator: torch.Generator) -> "Task":
        """The same task with only `count` labelled examples to learn from, drawn at random.

        The labels are as balanced as the number and the examples permit. For generators in the same
        state, more examples contain the fewer.

        Raises:
            ValueError: fewer examples than labels, or more than there are.
        """
        least, most = len(self.labels), len(self.train)
        if not least <= count <= most:
            raise ValueError(f"expected {least} (one a label) to {most} examples, got {count}")
        seen: Counter[int] = Counter()
        ranked = []
        for i in torch.randperm(len(self.train), generator=generator).tolist():
            ranked.append((seen[self.train[i].label], self.train[i]))
            seen[self.train[i].label] += 1
        ranked.sort(key=lambda each: each[0])  # the first of each label, the second of each, …
        return replace(self, train=tuple(example for _, example in ranked[:count]))


def _check_example(family: str, labels: Sequence[str], example: Example) -> None:
    texts, label = example.texts, example.label
    wanted = {"classification": 1, "choice": 1 + len(labels)}.get(family, 2)
    if not isinstance(texts, tuple) or len(texts) != wanted:
        raise ValueError(f"expected a tuple of {wanted} texts ({family}), got {texts!r}")
    _check_texts(texts)
    if family == "choice" and len(set(texts[1:])) < len(labels):
        raise ValueError(f"expected choices that differ, got {texts[1:]}")
    if type(label) is not int or not 0 <= label < len(labels):
        raise ValueError(f"expected a label from 0 to {len(labels) - 1}, got {label!r}")


def _check_texts(texts: Sequence[str]) -> None:
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError(f"expected texts that are not empty, got {texts!r}")


def identity_of(family: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    """What two examples have in common if they are one example in another order."""
    if family == "similarity":
        return tuple(sorted(texts))
    return (texts[0], *sorted(texts[1:])) if family == "choice" else texts


# ---- files ---------------------------------------------------------------------------------------


KEYS = {
    "classification": ("text",),
    "entailment": ("premise", "hypothesis"),
    "similarity": ("first", "second"),
    "choice": ("context", "choices"),
}


class _Record(NamedTuple):
    """What a line of a file says: the label is a name, or the right choice; no part: None."""

    line: int
    family: str
    texts: tuple[str, ...]
    label: str
    part: str | None


def load(path: Path | str, *, validation: float = 0.15, test: float = 0.15, seed: int = 0) -> Task:
    """A task from a UTF-8 file with one JSON object a line; what its keys are decides the family.

        {"text": "…", "label": "praise"}
        {"premise": "…", "hypothesis": "…", "label": "true"}
        {"first": "…", "second": "…", "label": 1}
        {"context": "…", "choices": ["…", "…"], "label": 0}        (which choice, from 0)

    "split": "train", "validation" or "test" may be on every line. Otherwise examples are ordered
    by the SHA-256 of the seed and what they begin with, so that all those of one premise or context
    are in one part, and the parts do not depend on the order of the lines. Copies of an example
    count once. Labels are in alphabetical order, or in that of numbers.

    Args:
        validation, test: the shares of examples in these parts, if the file does not say.
        seed: another number gives another split.
    Raises:
        ValueError: a line cannot be read, does not go with the others, or contradicts one of them
            (the message names file and line); shares out of range; or too few examples.
        OSError: there is no such file.
    """
    check_shares(validation, test)
    path, kept = Path(path), dict[tuple[str, ...], _Record]()
    for line, content in enumerate(read_text(path).split("\n"), start=1):
        if not content.strip():
            continue
        try:
            record = _record(line, json.loads(content))
            first = next(iter(kept.values()), record)
            same = kept.setdefault(identity_of(record.family, record.texts), record)
            _check_together(record, first, same)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}:{line}: {error}") from error
    records, family = [*kept.values()], first.family
    if family == "choice":
        k = len(first.texts) - 1
        labels = ORDINALS[:k] if k <= len(ORDINALS) else tuple(map(str, range(1, k + 1)))
    else:
        labels = tuple(sorted({each.label for each in records}, key=_label_order))
    part_of = _parts(records, validation, test, seed)
    made: dict[str, list[Example]] = {part: [] for part in PARTS}
    for line, _, texts, label, _ in records:
        answers = texts[1:] if family == "choice" else labels
        made[part_of[line]].append(Example(texts, answers.index(label)))
    train, held_out, last = (tuple(made[part]) for part in PARTS)
    return Task(path.stem, family, labels, train, held_out, last)


def _record(line: int, record: Any) -> _Record:
    """What one object says."""
    keys = set(record) - {"label", "split"} if isinstance(record, dict) else set()
    family = next((f for f, names in KEYS.items() if set(names) == keys), "")
    if not family or "label" not in record:
        known = "; ".join(", ".join((*names, "label")) for names in KEYS.values())
        raise ValueError(f"expected the keys {known}, got {record!r:.60}")
    texts, label, part = texts_of(record, family), record["label"], record.get("split")
    if part not in (None, *PARTS):
        raise ValueError(f"expected a split among {PARTS}, got {part!r}")
    if family == "choice":
        _check_example(family, texts[1:], Example(texts, label))
        label = texts[1 + label]
    elif type(label) not in (int, str) or label == "":
        raise ValueError(f"expected as label a name or a number, got {label!r}")
    return _Record(line, family, texts, str(label), part)


def texts_of(record: Mapping[str, Any], family: str) -> tuple[str, ...]:
    """The texts of one object of a file, which has the keys of its family.

    Raises:
        ValueError: a text is no text, or is empty, or there are fewer than two choices.
    """
    first, *others = (record[name] for name in KEYS[family])
    if family == "choice":
        [others] = others
        if not isinstance(others, list) or len(others) < 2:
            raise ValueError(f"expected a list of two choices or more, got {others!r}")
    texts = (first, *others)
    _check_texts(texts)
    return texts


def _check_together(record: _Record, first: _Record, same: _Record) -> None:
    """Refuse a line that is of another kind than the first, or contradicts one with its texts."""
    kind, wanted = ((r.family, len(r.texts), r.part is None) for r in (record, first))
    if kind != wanted:
        other = f"{first.family} with {len(first.texts)} texts as in line {first.line}"
        raise ValueError(f"expected {other}, and a split on every line or on none")
    if record[3:] != same[3:]:
        raise ValueError(f"expected {same[3:]} as of the same texts in line {same.line}")


def _parts(records: Sequence[_Record], validation: float, test: float, seed: int) -> dict[int, str]:
    """{line: part}: as the file says, or by the order of hashes."""
    if given := {record.line: record.part for record in records if record.part is not None}:
        return given
    groups = defaultdict(list)
    for line, family, texts, _, _ in records:
        group = "\n".join(sorted(texts)) if family == "similarity" else texts[0]
        groups[hashlib.sha256(f"{seed}\n{group}".encode()).digest()].append(line)
    order = [lines for _, lines in sorted(groups.items())]
    parts: dict[int, str] = {}
    for part, share in (("test", test), ("validation", validation), ("train", 1.0)):
        taken = 0
        while order and taken < share * len(records):
            lines = order.pop()
            parts |= dict.fromkeys(lines, part)
            taken += len(lines)
    return parts


def _label_order(name: str) -> tuple[bool, int, str]:
    """Numbers by size, then names by alphabet."""
    return (False, len(name), name) if name.isdecimal() else (True, 0, name)
