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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..tools.files import write_text
from .corpora import check_shares

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
        ValueError: an unknown family, fewer than two labels, an example that does not fit them, a
            training part with a single label, or an example in two parts.
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
        if self.family not in FAMILIES:
            raise ValueError(f"expected a family among {FAMILIES}, got {self.family!r}")
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"expected two or more different labels, got {self.labels}")
        where: dict[tuple[str, ...], str] = {}
        for part in PARTS:
            for i, example in enumerate(getattr(self, part)):
                _check_example(f"{part}[{i}]", self.family, self.labels, example)
                other = where.setdefault(identity_of(self.family, example.texts), part)
                if other != part:
                    raise ValueError(
                        f"expected parts that share no example, got {example.texts} in {other} and "
                        f"in {part}: remove copies before you split"
                    )
        if len({example.label for example in self.train}) < 2:
            raise ValueError(
                "expected training examples of two labels or more, got "
                f"{self.counts('train')}: there is nothing to tell apart; add examples of another"
            )

    def counts(self, part: str = "test") -> dict[str, int]:
        """How many examples of each label a part has."""
        counted = Counter(example.label for example in getattr(self, part))
        return {name: counted[label] for label, name in enumerate(self.labels)}

    @property
    def chance(self) -> float:
        """The accuracy of the best constant answer on the test part.

        Raises:
            ValueError: the test part is empty.
        """
        if not self.test:
            raise ValueError(f"expected a test part, got none in {self.name!r}")
        return max(self.counts("test").values()) / len(self.test)

    def with_labels(self, count: int, *, generator: torch.Generator) -> "Task":
        """The same task with only `count` labelled examples to learn from, drawn at random.

        The labels are as balanced as the number and the examples permit. For generators in the same
        state, more examples contain the fewer.

        Raises:
            ValueError: fewer examples than labels, or more than there are.
        """
        if not len(self.labels) <= count <= len(self.train):
            raise ValueError(
                f"expected from {len(self.labels)} (one a label) to {len(self.train)} training "
                f"examples, got {count}"
            )
        seen: Counter[int] = Counter()
        ranked = []
        for i in torch.randperm(len(self.train), generator=generator).tolist():
            ranked.append((seen[self.train[i].label], self.train[i]))
            seen[self.train[i].label] += 1
        ranked.sort(key=lambda each: each[0])  # the first of each label, the second of each, …
        return replace(self, train=tuple(example for _, example in ranked[:count]))


def _check_example(where: str, family: str, labels: Sequence[str], example: Example) -> None:
    texts, label = example.texts, example.label
    wanted = {"classification": 1, "choice": 1 + len(labels)}.get(family, 2)
    if not isinstance(texts, tuple) or len(texts) != wanted:
        raise ValueError(
            f"{where}: expected a tuple of {wanted} texts ({family}, {len(labels)} labels), got "
            f"{texts!r}"
        )
    _check_texts(where, texts)
    if family == "choice" and len(set(texts[1:])) < len(labels):
        raise ValueError(f"{where}: expected choices that differ, got {texts[1:]}")
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < len(labels):
        raise ValueError(
            f"{where}: expected a label from 0 to {len(labels) - 1} (a place in {labels}), got "
            f"{label!r}"
        )


def _check_texts(where: str, texts: Sequence[str]) -> None:
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{where}: expected texts that are not empty, got {text!r}")
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ValueError(f"{where}: expected whole characters, got half of one in {text!r}")


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
    path = Path(path)
    records = _distinct(path, _records(path))
    if not records:
        raise ValueError(f"{path}: expected one JSON object a line, got no line with one")
    family = records[0].family
    if family == "choice":
        k = len(records[0].texts) - 1
        labels = ORDINALS[:k] if k <= len(ORDINALS) else tuple(map(str, range(1, k + 1)))
    else:
        labels = tuple(sorted({str(each.label) for each in records}, key=_label_order))
    parts = _parts(path, records, validation, test, seed)
    made: dict[str, list[Example]] = {part: [] for part in PARTS}
    for line, _, texts, label, _ in records:
        place = label if isinstance(label, int) else labels.index(label)
        made[parts[line]].append(Example(texts, place))
        if len(labels) > 1:
            _check_example(f"{path}:{line}", family, labels, made[parts[line]][-1])
    try:
        train, validation, test = (tuple(made[part]) for part in PARTS)
        return Task(path.stem, family, labels, train, validation, test)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def save(task: Task, path: Path | str) -> None:
    """Write a task's examples to a file that `load` reads, one JSON object a line."""
    lines = []
    for part in PARTS:
        for example in getattr(task, part):
            record = dict(zip(KEYS[task.family], example.texts, strict=False))
            record["label"] = task.labels[example.label]
            if task.family == "choice":
                record |= {"choices": example.texts[1:], "label": example.label}
            lines.append(json.dumps({**record, "split": part}, ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))


class _Record(NamedTuple):
    """What a line of a file says; the label is a choice's place, or a name; no part: None."""

    line: int
    family: str
    texts: tuple[str, ...]
    label: int | str
    part: str | None


def _records(path: Path) -> Iterator[_Record]:
    """What each line says that is not blank."""
    for line, content in enumerate(path.read_bytes().split(b"\n"), start=1):
        where = f"{path}:{line}"
        try:
            text = content.decode("utf-8-sig" if line == 1 else "utf-8").strip()
            record = json.loads(text) if text else None
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{where}: expected UTF-8, got byte 0x{content[error.start]:02x}: save the file "
                "as UTF-8"
            ) from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: expected one JSON object, got {text[:60]!r}") from error
        if text:
            yield _record(where, line, record)


def _record(where: str, line: int, record: Any) -> _Record:
    """What one object says."""
    keys = set(record) - {"label", "split"} if isinstance(record, dict) else set()
    family = next((f for f, names in KEYS.items() if set(names) == keys), None)
    if family is None or "label" not in record:
        known = "; ".join(", ".join((*names, "label")) for names in KEYS.values())
        got = sorted(record) if isinstance(record, dict) else type(record).__name__
        raise ValueError(f"{where}: expected the keys {known} (and split, or not), got {got}")
    texts, label, part = texts_of(where, record, family), record["label"], record.get("split")
    kinds = int if family == "choice" else (int, str)
    if isinstance(label, bool) or not isinstance(label, kinds) or label == "":
        wanted = "the place of a choice, from 0" if family == "choice" else "a name or a number"
        raise ValueError(f"{where}: expected as label {wanted}, got {label!r}")
    if part not in (None, *PARTS):
        raise ValueError(f"{where}: expected a split among {PARTS}, got {part!r}")
    return _Record(line, family, texts, label if family == "choice" else str(label), part)


def texts_of(where: str, record: Mapping[str, Any], family: str) -> tuple[str, ...]:
    """The texts of one object of a file, which has the keys of its family.

    Args:
        where: the place of the object, for an error's beginning.
    Raises:
        ValueError: a text is no text, or is empty, or there are fewer than two choices.
    """
    first, *others = (record[name] for name in KEYS[family])
    if family == "choice":
        (choices,) = others
        if not isinstance(choices, list) or len(choices) < 2:
            raise ValueError(f"{where}: expected a list of two choices or more, got {choices!r}")
        others = choices
    texts = (first, *others)
    _check_texts(where, texts)
    return texts


def _distinct(path: Path, records: Iterable[_Record]) -> list[_Record]:
    """The records without copies, of one family, all with a split or all without."""
    kept: dict[tuple[str, ...], tuple[_Record, object]] = {}
    for record in records:
        line, family, texts, label, part = record
        answer = texts[1:][label : label + 1] if isinstance(label, int) else label
        first, before = kept.setdefault(identity_of(family, texts), (record, answer))
        start = next(iter(kept.values()))[0]
        if family != start.family or (family == "choice" and len(texts) != len(start.texts)):
            raise ValueError(
                f"{path}:{line}: expected {start.family} with {len(start.texts)} texts as in line "
                f"{start.line}, got {family} with {len(texts)}"
            )
        if (part is None) != (start.part is None):
            raise ValueError(f"{path}:{line}: expected a split on every line or on none")
        if answer != before or part != first.part:
            raise ValueError(
                f"{path}:{line}: expected the label and split of the same texts in line "
                f"{first.line}, {(first.label, first.part)}, got {(label, part)}: remove one of "
                "them"
            )
    return [record for record, _ in kept.values()]


def _parts(
    path: Path, records: Sequence[_Record], validation: float, test: float, seed: int
) -> dict[int, str]:
    """{line: part}: as the file says, or by the order of hashes."""
    if given := {record.line: record.part for record in records if record.part is not None}:
        return given
    groups: dict[bytes, list[int]] = {}
    for line, family, texts, _, _ in records:
        group = "\n".join(sorted(texts)) if family == "similarity" else texts[0]
        groups.setdefault(hashlib.sha256(f"{seed}\n{group}".encode()).digest(), []).append(line)
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
