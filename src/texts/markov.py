"""Which languages do we know so well that no model can beat us at them?

A `MarkovSource` draws each token from a table, given the `order` tokens before it. Of such a
language everything is known: the probability of any text, and the floor that no model passes on
average,

    h = - sum_c pi(c) sum_w P(w | c) log P(w | c)        the entropy rate, nats per token,

where pi is the stationary distribution of the contexts c, the solution of pi = pi M.
With an end token, whatever comes after it starts afresh: a stream of texts is then one chain.

Axes: V vocabulary, S = V^order contexts.
Source: Cover and Thomas 2006, chapter 4. Used from the chapter `likelihood/text_probability` on.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import torch
from torch import Tensor

from ..tools.checks import check_ids


class Words:
    """What our languages share: words are tokens, and `_ids` knows the id of each."""

    vocabulary: tuple[str, ...]
    _ids: dict[str, int]

    def encode(self, text: str | Sequence[str]) -> Tensor:
        """The ids, (T,), of a text: a list of words, or a string with spaces between them.

        Raises:
            ValueError: a word is not in the vocabulary.
        """
        words = text.split() if isinstance(text, str) else text
        unknown = [word for word in words if word not in self._ids]
        if unknown:
            raise ValueError(f"expected words among {list(self.vocabulary)}, got {unknown}")
        return torch.tensor([self._ids[word] for word in words], dtype=torch.long)

    def decode(self, ids: Tensor | Sequence[int]) -> str:
        """The words of some token ids, with spaces between them."""
        return " ".join(self.vocabulary[int(token)] for token in ids)


class MarkovSource(Words):
    """A language whose next token depends on the `order` tokens before it, and on nothing else.

    >>> coin = MarkovSource(["heads", "tails"], [0.75, 0.25])
    >>> round(coin.entropy_rate(), 4)
    0.5623

    Args:
        vocabulary: V distinct words; a token's id is its place.
        transition: (V,) * order + (V,); the probability of the last index after the earlier ones,
            oldest first. A vector is a source of order 0, a matrix one of order 1, and so on.
        end: the word that ends a text. The context after it is `order` copies of it, which is
            also the context of the first token. None: the source speaks for ever, and its first
            context is drawn from the stationary distribution.
    Raises:
        ValueError: the table's shape does not fit the vocabulary, a row is no distribution, `end`
            is not in the vocabulary, or some text would never end.
    """

    def __init__(
        self, vocabulary: Sequence[str], transition: Tensor | Sequence, *, end: str | None = None
    ):
        self.vocabulary = tuple(vocabulary)
        self.transition = torch.as_tensor(transition, dtype=torch.float64)
        self.end = end
        self.order = self.transition.ndim - 1
        self._ids = {word: i for i, word in enumerate(self.vocabulary)}
        self._check_table()
        size, contexts = len(self.vocabulary), len(self.vocabulary) ** self.order
        self._rows = self.transition.reshape(contexts, size)  # (S, V)
        # A context is a number of `order` digits in base V, its oldest token first.
        shifted = torch.arange(contexts)[:, None] * size + torch.arange(size)
        self._next_context = shifted % contexts  # (S, V)
        self._start = 0  # the context of the first token, if there is an end token
        if end is not None:
            for _ in range(self.order):
                self._start = self._start * size + self._ids[end]
            self._next_context[:, self._ids[end]] = self._start
            reach = self._reachable()
            if (reach[self._start] & ~reach[:, self._start]).any():  # reached, with no way back
                raise ValueError(f"expected texts to end, but some go on for ever without {end!r}")

    @classmethod
    def from_table(
        cls, table: Mapping[str, Mapping[str, float]], *, end: str | None = None
    ) -> "MarkovSource":
        """A source of order 1 from {word: {next word: probability}}; what is not named has 0."""
        rows = [[follows.get(word, 0.0) for word in table] for follows in table.values()]
        return cls(list(table), rows, end=end)

    def sample(self, length: int, *, generator: torch.Generator) -> Tensor:
        """A stream of `length` tokens, (length,); with an end token, one text after another."""
        return torch.tensor(list(islice(self._draws(generator), length)), dtype=torch.long)

    def sample_texts(self, count: int, *, generator: torch.Generator) -> list[Tensor]:
        """`count` independent texts, each (T_n,) and closed by the end token.

        Raises:
            ValueError: the source has no end token.
        """
        if self.end is None:
            raise ValueError("expected a source with an end token: without one no text ever ends")
        draws, end, texts = self._draws(generator), self._ids[self.end], []
        for _ in range(count):
            text = [next(draws)]
            while text[-1] != end:
                text.append(next(draws))
            texts.append(torch.tensor(text, dtype=torch.long))
        return texts

    def next_log_probs(self, context: Tensor | Sequence[int]) -> Tensor:
        """The log-probabilities of the next token, (V,), after a context of (t,) ids; nats."""
        recent = [int(token) for token in context[-self.order :]]  # order 0 reads all, uses none
        if self.end is None and len(recent) < self.order:  # average over what came before
            joint, later = self.stationary(), tuple(range(len(recent) + 1, self.order))
            joint = joint.sum(later) if later else joint  # of as many tokens, and the next one
            return (joint[tuple(recent)] / joint[tuple(recent)].sum()).log()
        place = self._start
        for token in recent:
            place = int(self._next_context[place, token])
        return self._rows[place].log()

    def __call__(self, ids: Tensor) -> Tensor:
        """The log-probabilities of the token after each, (B, T, V), as any model gives logits."""
        rows = [[self.next_log_probs(row[: t + 1]) for t in range(len(row))] for row in ids]
        return torch.stack([torch.stack(row) for row in rows]).to(ids.device)

    def token_log_probs(self, ids: Tensor) -> Tensor:
        """The exact log-probability of each token after those before it, (T,); nats.

        Args:
            ids: (T,); token ids.
        Raises:
            ValueError: an id outside the vocabulary.
        """
        check_ids(ids, len(self.vocabulary))
        next_context, places, place = self._next_context.tolist(), [], self._start
        for token in ids.tolist():
            places.append(place)
            place = next_context[place][token]
        result = self._rows[places, ids].log()
        if self.end is None:  # the first tokens have no full context yet
            for t in range(min(self.order, len(ids))):
                result[t] = self.next_log_probs(ids[:t])[ids[t]]
        return result

    def log_prob(self, ids: Tensor) -> float:
        """The exact log-probability that the source begins with these tokens, in nats.

        For a text closed by its end token that is the probability of the text. -inf where the
        source cannot say it.

        Args:
            ids: (T,); token ids.
        Raises:
            ValueError: an id outside the vocabulary.
        """
        return float(self.token_log_probs(ids).sum())

    def stationary(self) -> Tensor:
        """How often each context occurs in the long run, (V,) * order; sums to one.

        Raises:
            ValueError: the long run depends on where one starts, so that no single answer exists.
        """
        reach = self._reachable()
        recurrent = ~(reach & ~reach.T).any(-1)  # all that such a context reaches leads back to it
        if self.end is not None:
            recurrent &= reach[self._start]
        if not reach[recurrent][:, recurrent].all():
            raise ValueError("expected one stationary distribution, got several: the start decides")
        chain = self._context_chain()[recurrent][:, recurrent]
        # pi (M - I) = 0 is one equation short; its last one is replaced by sum(pi) = 1.
        equations = chain.T - torch.eye(len(chain), dtype=chain.dtype)
        equations[-1] = 1.0
        right_side = torch.zeros(len(chain), dtype=chain.dtype)
        right_side[-1] = 1.0
        result = torch.zeros(len(self._rows), dtype=chain.dtype)
        result[recurrent] = torch.linalg.solve(equations, right_side).clamp(min=0.0)
        return result.reshape((len(self.vocabulary),) * self.order)

    def entropy_rate(self) -> float:
        """The floor: the mean surprise of a perfect model, in nats per token (end tokens too).

        Raises:
            ValueError: there is no unique stationary distribution.
        """
        surprise = -torch.special.xlogy(self._rows, self._rows).sum(-1)  # (S,)
        return float(self.stationary().reshape(-1) @ surprise)

    def _draws(self, generator: torch.Generator) -> Iterator[int]:
        """Token ids for ever: each uniform number is looked up in the row's running total."""
        totals = self._rows.cumsum(-1)
        totals[totals >= totals[:, -1:]] = 1.0  # rounding must not leave a gap below 1
        totals, next_context = totals.tolist(), self._next_context.tolist()
        place = self._start
        if self.end is None:
            weights = self.stationary().reshape(-1)
            place = int(torch.multinomial(weights, 1, generator=generator))
        while True:
            block = torch.rand(1024, dtype=torch.float64, generator=generator)
            for number in block.tolist():
                token = bisect_right(totals[place], number)
                yield token
                place = next_context[place][token]

    def _context_chain(self) -> Tensor:
        """M, (S, S): the probability that one context is followed by another."""
        chain = torch.zeros(len(self._rows), len(self._rows), dtype=self._rows.dtype)
        return chain.scatter_add_(1, self._next_context, self._rows)

    def _reachable(self) -> Tensor:
        """(S, S); True where the second context can come, some time, after the first."""
        reach = (self._context_chain() > 0).double() + torch.eye(len(self._rows))
        for _ in range(len(reach).bit_length()):  # paths of twice the length each time
            reach = (reach @ reach).clamp(max=1)
        return reach > 0

    def _check_table(self) -> None:
        size = len(self.vocabulary)
        if len(self._ids) != size or self.end not in (None, *self.vocabulary):
            raise ValueError(f"expected distinct words, {self.end!r} too, got {self.vocabulary}")
        if set(self.transition.shape) != {size}:
            raise ValueError(f"expected length {size} on each axis, got {[*self.transition.shape]}")
        fits = (self.transition >= 0).all(-1) & ((self.transition.sum(-1) - 1).abs() <= 1e-9)
        if not fits.all():  # NaN does not fit
            wrong = self.transition[~fits][:3].tolist()
            raise ValueError(f"expected rows of probabilities that sum to 1, got {wrong}")


_SMALL_ENGLISH = {
    "<end>": {"the": 0.7, "a": 0.3},
    "the": {"cat": 0.25, "dog": 0.25, "tabby": 0.15, "river": 0.2, "bank": 0.15},
    "a": {"cat": 0.3, "dog": 0.35, "tabby": 0.2, "river": 0.1, "bank": 0.05},
    "tabby": {"cat": 0.9, "sleeps": 0.1},
    "cat": {"walks": 0.4, "sleeps": 0.35, "<end>": 0.25},
    "dog": {"walks": 0.35, "sleeps": 0.2, "sees": 0.2, "<end>": 0.25},
    "river": {"bank": 0.6, "<end>": 0.4},
    "bank": {"by": 0.2, "<end>": 0.8},
    "walks": {"by": 0.6, "<end>": 0.4},
    "sleeps": {"by": 0.4, "<end>": 0.6},
    "sees": {"the": 0.6, "a": 0.4},
    "by": {"the": 0.75, "a": 0.25},
}


def small_english() -> MarkovSource:
    """Twelve words, order 1, about cats, dogs and a river bank: the book's first language."""
    return MarkovSource.from_table(_SMALL_ENGLISH, end="<end>")


_CLASSES = {
    "end": ("<end>",),
    "person": ("girl", "boy", "child"),
    "animal": ("cat", "dog", "tabby"),
    "sense": ("sees", "hears"),
    "go": ("walks", "runs"),
    "food": ("milk", "fish"),
    "place": ("home", "away"),
}
_NEXT_CLASS = {  # after the classes of the last two words, or of the last word alone
    ("end",): {"person": 0.5, "animal": 0.5},
    ("person",): {"sense": 0.5, "go": 0.3, "end": 0.2},
    ("animal",): {"sense": 0.3, "go": 0.5, "end": 0.2},
    ("person", "sense"): {"person": 0.4, "animal": 0.5, "food": 0.1},
    ("animal", "sense"): {"food": 0.7, "animal": 0.2, "person": 0.1},
    ("person", "go"): {"place": 0.7, "end": 0.3},
    ("animal", "go"): {"place": 0.2, "end": 0.8},
    ("food",): {"end": 1.0},
    ("place",): {"end": 0.7, "person": 0.15, "animal": 0.15},
}


def pets() -> MarkovSource:
    """Fifteen words in seven classes, order 2: the words of a class behave alike.

    The next class depends on the classes of the last two words, and within a class every word is as
    likely as the others. So a tabby does exactly what cats and dogs do.
    """
    class_of = {word: name for name, words in _CLASSES.items() for word in words}
    words = list(class_of)
    table = torch.zeros(len(words), len(words), len(words), dtype=torch.float64)
    for i, older in enumerate(words):
        for j, newer in enumerate(words):
            pair = class_of[older], class_of[newer]
            # A pair that never occurs begins a text.
            shares = _NEXT_CLASS.get(pair) or _NEXT_CLASS.get(pair[1:]) or _NEXT_CLASS["end",]
            for name, share in shares.items():
                for word in _CLASSES[name]:
                    table[i, j, words.index(word)] = share / len(_CLASSES[name])
    return MarkovSource(words, table, end="<end>")
