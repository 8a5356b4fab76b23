"""How is a task of several texts written as one sequence, which a language model can read?

    classification     [start] text [extract]
    entailment         [start] premise [delim] hypothesis [extract]
    similarity         [start] a [delim] b [extract]  and  [start] b [delim] a [extract]
    choice             [start] context [delim] choice [extract], one a choice

Axes: S sequences of an example, T positions. Source: Radford et al. 2018, section 3.3.
Derived in the chapter `gpt/gpt1_finetuning`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..texts.labelled import FAMILIES
from ..tokens.bytes import Tokenizer

START, DELIM, EXTRACT = range(3)  # after the V tokens of the vocabulary: V, V + 1, V + 2
Texts = tuple[str, ...]


def sequences(
    family: str, texts: Sequence[Sequence[int]], *, vocabulary_size: int
) -> list[list[int]]:
    """What the model reads of one example: one sequence, both orders, or one for each choice.

    >>> sequences("similarity", [[5, 6], [7]], vocabulary_size=10)
    [[10, 5, 6, 11, 7, 12], [10, 7, 11, 5, 6, 12]]

    Args:
        family: of the task.
        texts: the ids of each text: text | premise, hypothesis | first, second | context, choices.
        vocabulary_size: V; the new tokens come after it.
    Raises:
        ValueError: another family, or not as many texts as it has.
    """
    start, delim, extract = (vocabulary_size + token for token in (START, DELIM, EXTRACT))
    check_family(family)
    _check_count(family, len(texts))
    if family == "classification":
        return [[start, *texts[0], extract]]
    first, *others = texts
    pairs = [(first, other) for other in others]
    if family == "similarity":
        pairs.append((others[0], first))
    return [[start, *one, delim, *two, extract] for one, two in pairs]


@dataclass(frozen=True)
class InputForms:
    """How the texts of a task become tensors.

    Texts that are too long together are cut on request only, at their ends, as in the released
    code: the longer one until they fit or both have half of the room, which does not depend on
    their order. Of several choices the longest decides, so that all share one context.

    Attributes:
        family: one of `labelled.FAMILIES`.
        labels: their names.
        tokenizer: makes ids of texts.
        context_length: the longest sequence, new tokens included; None: no limit.
        cut: whether texts that are too long are cut.
    Raises:
        ValueError: another family, or fewer than two labels.
    """

    family: str
    labels: tuple[str, ...]
    tokenizer: Tokenizer
    context_length: int | None = None
    cut: bool = False

    def __post_init__(self) -> None:
        check_family(self.family)
        if len(self.labels) < 2:
            raise ValueError(f"expected at least two labels to tell apart, got {self.labels!r}")

    def tensors(self, examples: Sequence[Texts]) -> tuple[Tensor, Tensor]:
        """Ids, (N, S, T), filled up on the right, and lengths, (N, S), from the texts of examples.

        Raises:
            ValueError: no examples, a text without tokens, texts that are not as many as the family
                has, or too long.
            TypeError: an example is not a tuple of texts.
        """
        if not examples:
            raise ValueError("expected at least one example, got none")
        encoded = [self._encoded(number, texts) for number, texts in enumerate(examples)]
        encoded = self._within_context(encoded)
        size = self.tokenizer.vocabulary_size
        rows = [sequences(self.family, texts, vocabulary_size=size) for texts in encoded]
        lengths = torch.tensor([[len(one) for one in row] for row in rows])
        # Any id fills up, for no position looks to its right. But an LSTM may set itself back at
        # end tokens, and would do so at each of these: so the start token.
        ids = torch.full((*lengths.shape, int(lengths.max())), size + START)
        for row, of_row in zip(ids, rows, strict=True):
            for sequence, one in zip(row, of_row, strict=True):
                sequence[: len(one)] = torch.tensor(one)
        return ids, lengths

    def _encoded(self, number: int, texts: Texts) -> list[list[int]]:
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"expected a tuple of texts as example {number}, got {texts!r}")
        choices = len(self.labels) if self.family == "choice" else None
        _check_count(self.family, len(texts), choices=choices, where=f" in example {number}")
        encoded = [self.tokenizer.encode(text) for text in texts]
        for text, ids in zip(texts, encoded, strict=True):
            if not ids:
                raise ValueError(
                    f"expected texts of at least one token, got {text!r} in example {number}"
                )
        return encoded

    def _within_context(self, encoded: list[list[list[int]]]) -> list[list[list[int]]]:
        if self.context_length is None:
            return encoded
        room = self.context_length - (2 if self.family == "classification" else 3)
        if room < (1 if self.family == "classification" else 2):
            raise ValueError(f"expected a longer context than {self.context_length} tokens")
        surplus = [_longest(texts) - room for texts in encoded]
        if max(surplus) <= 0:
            return encoded
        if not self.cut:
            worst = max(range(len(surplus)), key=surplus.__getitem__)
            raise ValueError(
                f"expected texts of at most {room} tokens together (a context of "
                f"{self.context_length}, less the new tokens), got {sum(s > 0 for s in surplus)} "
                f"of {len(encoded)} examples that are longer, example {worst} by {surplus[worst]}: "
                "cut=True cuts them off at their ends"
            )
        return [_cut(texts, room) for texts in encoded]


def _longest(texts: list[list[int]]) -> int:
    """The tokens of an example's longest sequence, without the new ones."""
    return len(texts[0]) + max(map(len, texts[1:]), default=0)


def _cut(texts: list[list[int]], room: int) -> list[list[int]]:
    first, *others = texts
    if not others:
        return [first[:room]]
    one, two = len(first), max(map(len, others))
    half = room // 2
    one, two = min(one, max(half, room - two)), min(two, max(half, room - one))
    return [first[:one], *(other[:two] for other in others)]


def check_family(family: str) -> None:
    """Refuse a family of tasks that is none of the four."""
    if family not in FAMILIES:
        raise ValueError(f"expected a family among {[*FAMILIES]}, got {family!r}")


def _check_count(family: str, count: int, *, choices: int | None = None, where: str = "") -> None:
    """Refuse another number of texts than the family has."""
    expected = {"classification": 1, "entailment": 2, "similarity": 2}.get(family)
    if family == "choice" and choices:
        expected = 1 + choices
    if count < 3 if expected is None else count != expected:
        wanted = "a context and two choices or more" if expected is None else f"{expected} texts"
        raise ValueError(f"expected {wanted} for {family}, got {count}{where}")
