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
    match family, texts:
        case "classification", [text]:
            return [[start, *text, extract]]
        case "entailment", [premise, hypothesis]:
            pairs = [(premise, hypothesis)]
        case "similarity", [one, other]:
            pairs = [(one, other), (other, one)]
        case "choice", [context, *choices]:
            pairs = [(context, choice) for choice in choices]
        case _:
            raise ValueError(f"expected a family and its texts, got {family!r} and {len(texts)}")
    return [[start, *one, delim, *two, extract] for one, two in pairs]


@dataclass(frozen=True)
class InputForms:
    """How the texts of a task become tensors.

    Texts that are too long together are cut on request only, at their ends, as in the released
    code: the longer one until they fit or both have half of the room, which does not depend on
    their order. Of several choices the longest decides, so that all share one context.

    Attributes:
        family: one of `labelled.FAMILIES`; another is refused where texts are read.
        labels: their names.
        tokenizer: makes ids of texts.
        context_length: the longest sequence, new tokens included; None: no limit.
        cut: whether texts that are too long are cut.
    """

    family: str
    labels: tuple[str, ...]
    tokenizer: Tokenizer
    context_length: int | None = None
    cut: bool = False

    def tensors(self, examples: Sequence[Texts]) -> tuple[Tensor, Tensor]:
        """Ids, (N, S, T), filled up on the right, and lengths, (N, S), from the texts of examples.

        Raises:
            ValueError: no examples, a text without tokens, texts that are not as many as the family
                has, or too long.
            KeyError: another family.
        """
        if not examples:
            raise ValueError("expected at least one example, got none")
        encoded = [self._encoded(number, texts) for number, texts in enumerate(examples)]
        if self.context_length is not None:
            encoded = self._within(self.context_length, encoded)
        size = self.tokenizer.vocabulary_size
        rows = [sequences(self.family, texts, vocabulary_size=size) for texts in encoded]
        lengths = torch.tensor([[len(one) for one in row] for row in rows])
        # Any id fills up, for no position looks to its right. But an LSTM may set itself back at
        # end tokens, and would do so at each of these: so the start token.
        ids = torch.full((*lengths.shape, int(lengths.max())), size + START)
        for n, row in enumerate(rows):
            for i, sequence in enumerate(row):
                ids[n, i, : len(sequence)] = torch.tensor(sequence)
        return ids, lengths

    def _encoded(self, number: int, texts: Texts) -> list[list[int]]:
        counts = {"classification": 1, "entailment": 2, "similarity": 2}
        count = (counts | {"choice": 1 + len(self.labels)})[self.family]
        if isinstance(texts, str) or len(texts) != count:
            expected = f"a tuple of {count} texts for {self.family}"
            raise ValueError(f"expected {expected}, got {texts!r} as example {number}")
        encoded = [self.tokenizer.encode(text) for text in texts]
        if not all(encoded):
            raise ValueError(f"expected at least one token in each text, got {texts} as {number}")
        return encoded

    def _within(self, context_length: int, encoded: list[list[list[int]]]) -> list[list[list[int]]]:
        room = context_length - (2 if self.family == "classification" else 3)
        if self.cut:
            return [_cut(texts, room) for texts in encoded]
        longest = [len(first) + max(map(len, others), default=0) for first, *others in encoded]
        if max(longest) > room:
            expected = f"expected texts of at most {room} tokens together (of {context_length})"
            raise ValueError(f"{expected}, got up to {max(longest)}: cut=True cuts them off")
        return encoded


def _cut(texts: list[list[int]], room: int) -> list[list[int]]:
    first, *others = texts
    if not others:
        return [first[:room]]
    one, two = len(first), max(map(len, others))
    half = room // 2
    one, two = min(one, max(half, room - two)), min(two, max(half, room - one))
    return [first[:one], *(other[:two] for other in others)]
