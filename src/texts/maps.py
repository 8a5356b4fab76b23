"""What can a reader learn from the examples in one text, and nowhere else?

`RandomMaps` writes lists of examples of a map that the text does not name. The best reader knows
the map only by its posterior,

    p(y | x, pairs so far) = sum_m p(m | pairs so far) p(y | x, m)

and what an example is worth depends on where the maps come from: a pool, or nowhere.

Axes: B texts, N pairs, X inputs, Y outputs, M maps, V vocabulary.
Source: Raventos et al. 2023 (pools of tasks). Used in the chapter `gpt/in_context`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .markov import Words


class RandomMaps(Words):
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
        ValueError: words are not distinct, maps or weights do not fit, or noise is no probability
            below 1.
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
        weights = torch.ones(0 if maps is None else len(maps)) if weights is None else weights
        self.weights = torch.as_tensor(weights).double()  # (M,)
        self._check()
        self.weights = self.weights / self.weights.sum()

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
        inputs, outputs = ids[:, 1::2] - 1, ids[:, 2::2] - 1 - n_inputs
        fits = 1 <= ids.shape[1] <= 1 + 2 * self.pairs and bool((ids[:, 0] == 0).all())
        for numbers, size in ((inputs, n_inputs), (outputs, n_outputs)):
            fits &= bool(((numbers >= 0) & (numbers < size)).all())
        if not fits:
            wanted = f"{self.end}, then inputs and outputs by turns, up to {self.pairs} pairs"
            raise ValueError(f"expected {wanted}, got {[self.decode(row) for row in ids[:2]]}")
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
        if self.maps is None:  # by_map: what the text's map makes of the input, (B, n, Y)
            by_map = self._fresh(inputs, outputs)
        else:
            by_map = self._pooled(self.maps, inputs, outputs)
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

    def _pooled(self, maps: Tensor, inputs: Tensor, outputs: Tensor) -> Tensor:
        answers = maps[:, inputs].permute(1, 2, 0)  # (B, n, M)
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

    def _check(self) -> None:
        if len(self._ids) < len(self.vocabulary):
            raise ValueError(f"expected distinct inputs and outputs, got {self.vocabulary}")
        if not 0 <= self.noise < 1:
            raise ValueError(f"expected noise from 0 to below 1, got {self.noise}")
        if self.maps is not None:
            shape, numbers = (len(self.weights), len(self.inputs)), range(len(self.outputs))
            fit = self.maps.shape == shape and {*self.maps.flatten().tolist()} <= {*numbers}
            if not fit or not (self.weights > 0).all():
                wanted = f"{shape} maps of numbers below {len(numbers)} and weights above 0"
                raise ValueError(f"expected {wanted}, got {self.maps} and {self.weights}")


def random_maps(count: int, *, inputs: int, outputs: int, generator: torch.Generator) -> Tensor:
    """`count` maps, (M, X): each makes of each input an output drawn uniformly.

    Args:
        count: M.
        inputs, outputs: X and Y, how many there are.
        generator: on the CPU.
    """
    return torch.randint(outputs, (count, inputs), generator=generator)


def _normalised(log_weights: Tensor) -> Tensor:
    """Weights that sum to 1 over the last axis; where all of them are 0, zeros and not NaN."""
    greatest = log_weights.amax(-1, keepdim=True).clamp(min=torch.finfo(log_weights.dtype).min)
    weights = (log_weights - greatest).exp()
    return weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
