"""What has this document said so far? A cache of counts on top of a model of the training text.

A document repeats its names and its phrases. A cache counts the tokens that the document has shown
up to now, after contexts of 0, 1, …, K - 1 tokens. We begin with p, which the model says, and let
each length of context, shortest first, have a say with a weight m_k:

    p(w)  becomes  m_k N(last k tokens, w) / N(last k tokens, .) + (1 - m_k) p(w)

where the last k tokens stood in the document before; elsewhere it stays as it is. N counts this
document alone, and of it only the tokens given. The weights are those under which held-out text is
likeliest, by the same expectation-maximisation as those of an interpolation.

In matrices: position t matches an earlier position s of its document if the k tokens up to t are
the k tokens up to s. The cache averages over what followed the matches.

Axes: B texts, T positions, V vocabulary, K lengths of context. Sources: Kuhn and De Mori 1990; with
contexts, Jelinek et al. 1991. Derived in the chapter `likelihood/smoothing`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from .ngrams import BackOffModel
from .smoothing import em_weights


def cache_probs(ids: Tensor, lengths: int, size: int, end: int | None) -> tuple[Tensor, Tensor]:
    """For contexts of 0, 1, … tokens: what the text so far says, and where it says something.

    After 5 6 5 the empty context has shown 5 and 6 (the first token is context only), and the
    context 5 has shown 6.

    Args:
        ids: (B, T); token ids.
        lengths: K, how many lengths of context.
        size: V.
        end: the end token: what stands before the last one is another document. None: it is one.
    Returns:
        Probabilities, (K, B, T, V), and booleans, (K, B, T); where these are not, those are 0.
    """
    document = (ids == (-1 if end is None else end)).cumsum(1)
    before = (document[:, :, None] == document[:, None]).tril(-1)  # (B, T, T): t may look at s
    alike = before & (ids[:, :, None] == ids[:, None])
    following = one_hot(ids.roll(-1, 1), size).float()  # (B, T, V)
    matches = [before, alike]
    for _ in range(2, lengths):  # k tokens are alike if the last is, and the k - 1 before it
        matches.append(alike & pad(matches[-1], (1, 0, 1, 0))[:, :-1, :-1])
    match = torch.stack(matches[:lengths]).float()  # (K, B, T, T)
    found = match.sum(-1)
    return match @ following / found.clamp(min=1)[..., None], found > 0


@dataclass(frozen=True)
class CachedCounts:
    """A model of the next token: counts of a training text, and of the text so far.

    Attributes:
        model: of the training text.
        weights: m_k, for contexts of 0, 1, … tokens in the text so far.
    """

    model: BackOffModel
    weights: tuple[float, ...]

    @classmethod
    def fit(cls, model: BackOffModel, held_out: Iterable[Tensor], *, lengths: int) -> Self:
        """The weights under which held-out pieces of text are likeliest, each read by itself.

        Args:
            model: of the training text.
            held_out: (T + 1,) each; not counted, and of the length that is given when scoring.
            lengths: K.
        """
        probs, seen, base = [], [], []
        for piece in held_out:
            said, found = cache_probs(piece[None, :-1], lengths, model.vocabulary_size, model.end)
            probs.append(said[:, 0, torch.arange(len(piece) - 1), piece[1:]])  # (K, T)
            seen.append(found[:, 0])
            base.append(np.exp(-model.score(piece.tolist())))
        known = (torch.cat(probs, 1).numpy(), torch.cat(seen, 1).numpy(), np.concatenate(base))
        return cls(model, tuple(em_weights(*known)[0].tolist()))

    def __call__(self, ids: Tensor) -> Tensor:
        """Logits, (B, T, V), of the token after each position, which are its log-probabilities.

        Args:
            ids: (B, T); token ids. Position t sees of ids[:, : t + 1] its own document.
        """
        probs, size = self.model(ids).exp(), self.model.vocabulary_size
        said = cache_probs(ids, len(self.weights), size, self.model.end)
        for weight, shown, seen in zip(self.weights, *said, strict=True):
            share = weight * seen[..., None]
            probs = share * shown + (1 - share) * probs
        return probs.log()
