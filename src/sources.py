"""Which languages do we know so well that no model can beat us at them?

A `MarkovSource` draws each token from a table, given the `order` tokens before it. Of such a
language everything is known: the probability of any text, and the floor that no model passes on
average,

    h = - sum_c pi(c) sum_w P(w | c) log P(w | c)        the entropy rate, nats per token,

where pi is the stationary distribution of the contexts c, the solution of pi = pi M.
With an end token, whatever comes after it starts afresh: a stream of texts is then one chain.

`RandomMaps` writes lists of examples of a map that the text does not name. The best reader knows
the map only by its posterior,

    p(y | x, pairs so far) = sum_m p(m | pairs so far) p(y | x, m)

and what an example is worth depends on where the maps come from: a pool, or nowhere.

Axes: V vocabulary, S = V^order contexts; B texts, N pairs, X inputs, Y outputs, M maps.
Source: Cover and Thomas 2006, chapter 4; Raventos et al. 2023 (pools of tasks).
Used from the chapter `likelihood/text_probability` on; the maps in `gpt/in_context`.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import torch
from torch import Tensor
from torch.nn import functional


class _Words:
    """What all sources share: words are tokens, and `_ids` knows the place of each."""

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


class MarkovSource(_Words):
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
        if end is not None:
            self._next_context[:, self._ids[end]] = self._start
            self._check_texts_end()

    @classmethod
    def from_table(
        cls, table: Mapping[str, Mapping[str, float]], *, end: str | None = None
    ) -> "MarkovSource":
        """A source of order 1 from {word: {next word: probability}}; what is not named has 0."""
        rows = [[follows.get(word, 0.0) for word in table] for follows in table.values()]
        unknown = {word for follows in table.values() for word in follows} - set(table)
        if unknown:
            raise ValueError(f"expected a row for every word, found none for {sorted(unknown)}")
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
            joint = self._first_tokens(len(recent) + 1)
            return (joint[tuple(recent)] / joint[tuple(recent)].sum()).log()
        place = 0 if self.end is None else self._start
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
            ValueError: no tokens, or an id outside the vocabulary.
        """
        if len(ids) == 0 or not 0 <= int(ids.min()) <= int(ids.max()) < len(self.vocabulary):
            raise ValueError(
                f"expected at least one token, with ids from 0 to {len(self.vocabulary) - 1}, "
                f"got {ids.tolist()[:10]}"
            )
        next_context, places = self._next_context.tolist(), []
        place = 0 if self.end is None else self._start
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
            ValueError: no tokens, or an id outside the vocabulary.
        """
        return float(self.token_log_probs(ids).sum())

    def stationary(self) -> Tensor:
        """How often each context occurs in the long run, (V,) * order; sums to one.

        Raises:
            ValueError: the long run depends on where one starts, so that no single answer exists.
        """
        recurrent = self._recurrent_contexts()
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

    @property
    def _start(self) -> int:
        """The number of the context that is nothing but end tokens."""
        digits = [self._ids[self.end]] * self.order
        return sum(digit * len(self.vocabulary) ** i for i, digit in enumerate(digits))

    def _draws(self, generator: torch.Generator) -> Iterator[int]:
        """Token ids for ever: each uniform number is looked up in the row's running total."""
        totals = self._rows.cumsum(-1)
        totals[totals >= totals[:, -1:]] = 1.0  # rounding must not leave a gap below 1
        totals, next_context = totals.tolist(), self._next_context.tolist()
        place = self._first_context(generator)
        while True:
            block = torch.rand(1024, dtype=torch.float64, generator=generator)
            for number in block.tolist():
                token = bisect_right(totals[place], number)
                yield token
                place = next_context[place][token]

    def _first_context(self, generator: torch.Generator) -> int:
        if self.end is not None:
            return self._start
        weights = self.stationary().reshape(-1)
        return int(torch.multinomial(weights, 1, generator=generator))

    def _first_tokens(self, count: int) -> Tensor:
        """The joint distribution of the first `count` <= order tokens, (V,) * count."""
        later = tuple(range(count, self.order))
        return self.stationary().sum(later) if later else self.stationary()

    def _context_chain(self) -> Tensor:
        """M, (S, S): the probability that one context is followed by another."""
        chain = torch.zeros(len(self._rows), len(self._rows), dtype=self._rows.dtype)
        return chain.scatter_add_(1, self._next_context, self._rows)

    def _reachable(self) -> Tensor:
        """(S, S); True where the second context can come, some time, after the first."""
        reach = (self._context_chain() > 0) | torch.eye(len(self._rows), dtype=torch.bool)
        while True:  # paths of twice the length each time
            longer = (reach.double() @ reach.double()) > 0
            if torch.equal(longer, reach):
                return reach
            reach = longer

    def _recurrent_contexts(self) -> Tensor:
        """The contexts, as numbers, that the chain enters at last and never leaves."""
        reach = self._reachable()
        recurrent = ~(reach & ~reach.T).any(-1)  # all that it reaches leads back to it
        if self.end is not None:
            recurrent &= reach[self._start]
        classes = torch.unique(reach[recurrent], dim=0)
        if len(classes) > 1:
            words = " and ".join(sorted(self._context_words(int(c.nonzero()[0])) for c in classes))
            raise ValueError(
                f"expected one stationary distribution, got {len(classes)}: the source can be "
                f"caught for ever in parts that do not communicate: those of {words}"
            )
        return recurrent.nonzero().squeeze(-1)

    def _context_words(self, context: int) -> str:
        size = len(self.vocabulary)
        digits = [context // size**i % size for i in reversed(range(self.order))]
        return repr(self.decode(digits))

    def _check_table(self) -> None:
        size = len(self.vocabulary)
        if size == 0 or len(self._ids) != size:
            raise ValueError(f"expected distinct words, at least one, got {self.vocabulary}")
        if self.transition.ndim == 0 or set(self.transition.shape) != {size}:
            raise ValueError(
                f"expected every axis of the table to have length {size}, one place for each word, "
                f"got shape {tuple(self.transition.shape)}"
            )
        sums = self.transition.sum(-1)
        wrong = ~torch.isclose(sums, torch.ones_like(sums), rtol=0, atol=1e-9)
        wrong |= ~(self.transition >= 0).all(-1)  # written so that NaN is caught too
        if wrong.any():
            row = tuple(wrong.nonzero()[0].tolist())
            raise ValueError(
                f"expected each row to hold probabilities that sum to 1, got {float(sums[row])} "
                f"after {self.decode(row)!r}, from {float(self.transition[row].min())} "
                f"to {float(self.transition[row].max())}"
            )
        if self.end is not None and self.end not in self._ids:
            raise ValueError(f"expected the end token among {self.vocabulary}, got {self.end!r}")

    def _check_texts_end(self) -> None:
        reach = self._reachable()
        endless = reach[self._start] & ~reach[:, self._start]
        if endless.any():
            words = self._context_words(int(endless.nonzero()[0]))
            raise ValueError(
                f"expected every text to end, but after {words} {self.end!r} never comes"
            )


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


class RandomMaps(_Words):
    """A language of examples: each text has a map, which its pairs show and do not name.

        x y x' y' ... x'' y'' <end>                  N pairs, 2 N + 1 tokens

    The inputs x are drawn uniformly, with replacement. y is what the text's map makes of x or, with
    probability `noise`, any output, drawn uniformly. Where do the maps come from?

        maps=(M, X)   from a pool: each text takes one of M fixed maps. Its pairs say *which one*,
                      and so they tell of inputs that are not among them, too.
        maps=None     from nowhere: each text draws a map of its own, each output independent and
                      uniform. Its pairs tell of their own inputs, and of no others.

    Either way the best prediction is known, by Bayes' rule. As a model, the source maps ids that
    begin with the end token to the log-probabilities of the token after each.

    >>> table = torch.tensor([[0, 1], [1, 1]])
    >>> tongue = RandomMaps(["thanks", "hello"], ["merci", "bonjour"], pairs=2, maps=table)
    >>> float(tongue.predict(torch.tensor([[1, 0]]), torch.tensor([[1]])).exp()[0, 1, 0])
    0.5

    Args:
        inputs: X distinct words.
        outputs: Y distinct words, none of them an input.
        pairs: N.
        maps: (M, X); entry (m, x) is the number, from 0 to Y - 1, of the output of input x.
        weights: (M,); how often each map is taken, up to a factor. None: all alike.
        noise: the probability that an output is drawn whatever the map says.
    Raises:
        ValueError: words are missing or not distinct, there are no pairs, maps or weights do not
            fit, or noise is no probability below 1.
    """

    end = "<end>"

    def __init__(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        pairs: int,
        maps: Tensor | None = None,
        weights: Tensor | Sequence[float] | None = None,
        noise: float = 0.0,
    ):
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.vocabulary = (self.end, *self.inputs, *self.outputs)
        self.pairs, self.maps, self.noise = pairs, maps, noise
        self._ids = {word: i for i, word in enumerate(self.vocabulary)}
        self._check_sizes()
        if maps is None:
            if weights is not None:
                raise ValueError("expected weights only with maps that they weigh, got no maps")
            return
        self._check_maps()
        weights = torch.ones(len(maps)) if weights is None else torch.as_tensor(weights)
        if weights.shape != (len(maps),) or not (weights > 0).all():
            raise ValueError(
                f"expected {len(maps)} weights above 0, one for each map, got {weights.tolist()}"
            )
        self.weights = weights.double() / weights.double().sum()  # (M,)

    # -- text and ids

    def write(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """The ids, (B, 1 + 2 n), of an end token and then n pairs, from their numbers, (B, n) each.

        If there is one output less, the last input is a question, and there are 2 n ids.
        """
        begin = torch.zeros(len(inputs), 1, dtype=torch.long)
        missing = inputs.shape[1] - outputs.shape[1]
        outputs = functional.pad(outputs, (0, missing))
        words = torch.stack([1 + inputs, 1 + len(self.inputs) + outputs], dim=-1).flatten(1)
        return torch.cat([begin, words[:, : words.shape[1] - missing]], dim=1)

    def read(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """What `write` was given: the numbers of inputs and outputs, (B, n) and (B, n or n - 1).

        Raises:
            ValueError: the ids are not an end token and then inputs and outputs by turns, or there
                are more pairs than a text has.
        """
        n_inputs, n_outputs = len(self.inputs), len(self.outputs)
        if ids.ndim != 2 or not 1 <= ids.shape[1] <= 1 + 2 * self.pairs:
            raise ValueError(
                f"expected ids of shape (B, T) with T from 1 to {1 + 2 * self.pairs}, an end token "
                f"and up to {self.pairs} pairs, got {tuple(ids.shape)}"
            )
        inputs, outputs = ids[:, 1::2] - 1, ids[:, 2::2] - 1 - n_inputs
        well_formed = (ids[:, 0] == 0).all()
        for numbers, size in ((inputs, n_inputs), (outputs, n_outputs)):
            well_formed &= ((numbers >= 0) & (numbers < size)).all()
        if not well_formed:
            raise ValueError(
                f"expected {self.end}, then inputs and outputs by turns, got "
                f"{[self.decode(row) for row in ids[:2]]}"
            )
        return inputs, outputs

    # -- drawing

    def draw_maps(self, count: int, *, generator: torch.Generator) -> Tensor:
        """The maps of `count` texts, (count, X): of the pool, or new ones."""
        if self.maps is None:
            return random_maps(
                count, inputs=len(self.inputs), outputs=len(self.outputs), generator=generator
            )
        drawn = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        return self.maps[drawn]

    def draw(self, count: int, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The numbers of inputs and outputs, (count, N) each, of `count` texts."""
        maps = self.draw_maps(count, generator=generator)
        shape = (count, self.pairs)
        inputs = torch.randint(len(self.inputs), shape, generator=generator)
        any_output = torch.randint(len(self.outputs), shape, generator=generator)
        by_chance = torch.rand(shape, generator=generator) < self.noise
        return inputs, torch.where(by_chance, any_output, maps.gather(1, inputs))

    def sample(self, count: int, *, generator: torch.Generator) -> Tensor:
        """`count` texts of one length with an end token before and after, (count, 2 N + 2)."""
        texts = self.write(*self.draw(count, generator=generator))
        return functional.pad(texts, (0, 1))  # the end token's id is 0

    # -- exact probabilities

    def predict(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """The log-probabilities of each input's output, given the pairs before it, (B, n, Y); nats.

        Where the pairs leave no possible output of the input, which takes noise=0, all are -inf.

        Args:
            inputs: (B, n); numbers from 0 to X - 1.
            outputs: (B, n) or (B, n - 1); numbers from 0 to Y - 1. The last of n is not looked at.
        """
        outputs = functional.pad(outputs, (0, inputs.shape[1] - outputs.shape[1]))
        believed = self._pooled if self.maps is not None else self._fresh
        by_map = believed(inputs, outputs)  # (B, n, Y): what the text's map makes of the input
        uniform = by_map.sum(-1, keepdim=True) * self.noise / len(self.outputs)
        return ((1 - self.noise) * by_map + uniform).log()

    def __call__(self, ids: Tensor) -> Tensor:
        """The log-probabilities of the token after each, (B, T, V), from ids, (B, T).

        Raises:
            ValueError: as `read`.
        """
        inputs, outputs = self.read(ids)
        result = torch.full((*ids.shape, len(self.vocabulary)), -torch.inf, dtype=torch.float64)
        asked = slice(1, 1 + len(self.inputs))
        result[:, 0::2, asked] = -math.log(len(self.inputs))  # after an output, any input
        result[:, 1::2, asked.stop :] = self.predict(inputs, outputs)
        if ids.shape[1] == 1 + 2 * self.pairs:
            result[:, -1] = -torch.inf
            result[:, -1, 0] = 0.0
        return result

    def token_log_probs(self, ids: Tensor) -> Tensor:
        """The exact log-probability of each token after those before it, (B, T); nats.

        Args:
            ids: (B, T); texts, or how they begin, without the end token in front.
        Raises:
            ValueError: as `read`, of all tokens but the last.
        """
        contexts = functional.pad(ids[:, :-1], (1, 0))
        return self(contexts).gather(-1, ids[..., None])[..., 0]

    def log_prob(self, ids: Tensor) -> float:
        """The exact log-probability that a text begins with these tokens, (T,), in nats.

        -inf where the source cannot say it.
        """
        return float(self.token_log_probs(ids[None]).sum())

    def _likelihood(self, agrees: Tensor) -> Tensor:
        """log p(output | map), by whether the map agrees with it; with noise=0 some are -inf."""
        return ((1 - self.noise) * agrees + self.noise / len(self.outputs)).log()

    def _pooled(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        answers = self.maps[:, inputs].permute(1, 2, 0)  # (B, n, M)
        seen = self._likelihood((answers == outputs[..., None]).double())
        before = functional.pad(seen[:, :-1], (0, 0, 1, 0)).cumsum(1)  # of the earlier pairs
        posterior = _normalised(before + self.weights.log())  # (B, n, M)
        result = posterior.new_zeros(*inputs.shape, len(self.outputs))
        return result.scatter_add_(-1, answers, posterior)

    def _fresh(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        values = torch.arange(len(self.outputs))
        seen = self._likelihood((outputs[..., None] == values).double())  # (B, n, Y)
        same = (inputs[:, :, None] == inputs[:, None]).tril(-1)  # (B, n, n), earlier pairs
        return _normalised(torch.where(same[..., None], seen[:, None], 0.0).sum(2))

    def _check_sizes(self) -> None:
        if not self.inputs or not self.outputs or len(self._ids) != len(self.vocabulary):
            raise ValueError(
                f"expected distinct inputs and outputs, at least one of each and none of them "
                f"{self.end!r}, got {list(self.inputs)} and {list(self.outputs)}"
            )
        if self.pairs < 1:
            raise ValueError(f"expected 1 pair or more in a text, got {self.pairs}")
        if not 0 <= self.noise < 1:
            raise ValueError(f"expected noise from 0 to below 1, got {self.noise}")

    def _check_maps(self) -> None:
        n_inputs, n_outputs = len(self.inputs), len(self.outputs)
        shape = tuple(self.maps.shape)
        if len(shape) != 2 or shape[0] < 1 or shape[1] != n_inputs:
            raise ValueError(
                f"expected maps of shape (M, X) = (1 or more, {n_inputs}), a row for each map and "
                f"a column for each input, got {shape}"
            )
        if not 0 <= int(self.maps.min()) <= int(self.maps.max()) < n_outputs:
            raise ValueError(
                f"expected maps to numbers of outputs, from 0 to {n_outputs - 1}, got "
                f"{int(self.maps.min())} to {int(self.maps.max())}"
            )


def random_maps(count: int, *, inputs: int, outputs: int, generator: torch.Generator) -> Tensor:
    """`count` maps, (M, X): each makes of each input an output drawn uniformly.

    Args:
        count: M.
        inputs, outputs: X and Y, how many there are.
        generator: on the CPU.
    Raises:
        ValueError: a size is below 1.
    """
    if min(count, inputs, outputs) < 1:
        raise ValueError(
            f"expected 1 or more maps, inputs and outputs, got {count}, {inputs} and {outputs}"
        )
    return torch.randint(outputs, (count, inputs), generator=generator)


def _normalised(log_weights: Tensor) -> Tensor:
    """Weights that sum to 1 over the last axis; where all of them are 0, zeros and not NaN."""
    greatest = log_weights.amax(-1, keepdim=True).clamp(min=torch.finfo(log_weights.dtype).min)
    weights = (log_weights - greatest).exp()
    return weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
