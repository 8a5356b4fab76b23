"""How is text drawn from a model that gives logits?

    p(next) = softmax(filters(logits))          a filter changes logits, and nothing else
    temperature t   logits / t                  0: the likeliest only; infinity: all alike
    top-k           the k likeliest             others to minus infinity
    nucleus p       the fewest, likeliest first, that together have probability p or more
    min-p           those at least p times as likely as the likeliest

`generate` and `beam_search` take any model that maps ids (B, T) to logits (B, T, V): an n-gram
model as well as a GPT. A model's only memory is the text before; where it has a limit, the window
of the last tokens is its memory, computed anew for each token.

Axes: B texts, T positions, V vocabulary.
Source: Fan et al. 2018 (top-k); Holtzman et al. 2020 (nucleus); Nguyen et al. 2024 (min-p).
Derived in the chapters `gpt/sampling` and `gpt/cache`.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..likelihood.maximum_likelihood import log_softmax
from ..likelihood.models import (
    LanguageModel,
    context_length_of,
    device_of,
    evaluating,
    last_logits,
)

Filter = Callable[[Tensor], Tensor]
Prompts = Tensor | Sequence[Sequence[int] | Tensor]

# ---- filters ---------------------------------------------------------------------------------


def temperature(logits: Tensor, t: float) -> Tensor:
    """Logits divided by t, (..., V); 0 leaves only the likeliest token, infinity makes all alike.

    Of several likeliest the first is left. What was impossible stays so.

    Raises:
        ValueError: t is negative or not a number.
    """
    if not t >= 0:
        raise ValueError(f"expected a temperature of 0 or more, got {t}")
    if t == 0:
        return _only(logits, logits.argmax(-1, keepdim=True))
    if t == math.inf:
        return torch.where(logits == -torch.inf, logits, 0.0)
    return logits / t


def top_k(logits: Tensor, k: int) -> Tensor:
    """The k largest logits, the others minus infinity, (..., V); k above V keeps all.

    Raises:
        ValueError: k is below 1.
    """
    if k < 1:
        raise ValueError(f"expected 1 or more tokens to draw from, got k={k}")
    return _only(logits, logits.topk(min(k, logits.shape[-1])).indices)


def nucleus(logits: Tensor, p: float) -> Tensor:
    """The fewest likeliest tokens whose probability reaches p, the others minus infinity, (..., V).

    The token that crosses p belongs to them. With probabilities 0.5, 0.3, 0.2 and p = 0.7, two.

    Raises:
        ValueError: p is outside (0, 1].
    """
    if not 0 < p <= 1:
        raise ValueError(f"expected a p above 0 and up to 1, got {p}")
    if p == 1:
        return logits
    probs, order = torch.softmax(logits, -1).sort(dim=-1, descending=True, stable=True)
    before = probs.cumsum(-1) - probs  # what the likelier ones have together
    keep = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before < p)
    return logits.masked_fill(~keep, -torch.inf)


def min_p(logits: Tensor, p: float) -> Tensor:
    """Tokens at least p times as likely as the likeliest, the others minus infinity, (..., V).

    Raises:
        ValueError: p is outside [0, 1].
    """
    if not 0 <= p <= 1:
        raise ValueError(f"expected a p from 0 to 1, got {p}")
    if p == 0:
        return logits
    least = logits.amax(-1, keepdim=True) + math.log(p)
    return logits.masked_fill(logits < least, -torch.inf)


def _only(logits: Tensor, indices: Tensor) -> Tensor:
    kept = logits.gather(-1, indices)
    return torch.full_like(logits, -torch.inf).scatter(-1, indices, kept)


# ---- generation ------------------------------------------------------------------------------


def draw(logits: Tensor, filters: Sequence[Filter], generator: torch.Generator | None) -> Tensor:
    """One token for each row of logits, drawn from their softmax after the filters.

    Where each row has one possible token, as at temperature 0, none is drawn: the generator stays
    as it is. (A draw among 50,000 takes a millisecond.)

    Args:
        logits: (..., V).
        filters: applied to the logits one after another.
        generator: draws the tokens; on the CPU.
    Returns:
        Ids (...,), on the CPU.
    Raises:
        ValueError: the logits leave no token to draw.
    """
    for change in filters:
        logits = change(logits)
    probs = torch.softmax(logits.float(), -1).cpu()
    if probs.isnan().any():
        raise ValueError("expected logits that leave a token to draw: does a filter forbid all?")
    if ((probs > 0).sum(-1) == 1).all():
        return probs.argmax(-1)
    return torch.multinomial(probs, 1, generator=generator)[..., 0]


def generate(
    model: LanguageModel,
    prompts: Prompts,
    *,
    max_new_tokens: int,
    filters: Sequence[Filter] = (),
    stop: int | None = None,
    context_length: int | None = None,
    cache: bool = True,
    generator: torch.Generator,
) -> list[Tensor]:
    """Texts drawn token by token, each a (T,) tensor that begins with its prompt.

    All texts of the batch are kept at one length: where a prompt goes on, its next token takes the
    place of the drawn one. So prompts may differ in length without padding and without masks. The
    price: only what the shortest prompt has is read in one call (the prefill); each further token
    of the others takes a call of its own. Prompts of 1 and 50 tokens and 3 new ones take 52 calls,
    the long prompt alone takes 3: keep prompts of one length together.

    Args:
        model: maps ids (B, T) to logits (B, T, V), such as an `NgramModel` or a `GPT`. Of a model
            that also has `states` and `unembed`, only the last state is unembedded.
        prompts: (B, T), or B texts of at least one token each, such as the end token.
        max_new_tokens: how many follow each prompt at most.
        filters: applied to the logits one after another: `[partial(top_k, k=5)]`.
        stop: a text ends when it has drawn this token, which is kept.
        context_length: how many tokens the model sees; None: what the model says, else all.
        cache: whether to keep keys and values where the model can (`new_cache`) and while the text
            fits its context. It changes the speed, not the text.
        generator: draws the tokens; on the CPU.
    Raises:
        ValueError: there is nothing to begin with, max_new_tokens is negative, the context has no
            token, or the logits leave no token to draw.
    """
    rows, context_length = _rows(prompts), context_length_of(model, context_length)
    if max_new_tokens < 0:
        raise ValueError(f"expected 0 new tokens or more, got {max_new_tokens}")
    device = device_of(model)
    lengths = [len(row) + max_new_tokens for row in rows]  # shorter once a text has stopped
    shortest = min(map(len, rows))
    # Tensors of inference mode cannot meet gradients again, and these are what is handed out.
    ids = torch.empty(len(rows), max(lengths), dtype=torch.long, device=device)  # (B, T)
    ids[:, :shortest] = torch.stack([row[:shortest] for row in rows])
    next_logits, place = _stepper(model, context_length, cache), shortest
    with evaluating(model), torch.inference_mode():
        while place < max(lengths):
            logits = next_logits(ids[:, :place])  # (B, V)
            drawn = draw(logits, filters, generator)  # (B,)
            for b, row in enumerate(rows):
                if place < len(row):
                    drawn[b] = row[place]
                elif stop is not None and drawn[b] == stop and place < lengths[b]:
                    lengths[b] = place + 1
            ids[:, place] = drawn
            place += 1
    return [text[:length] for text, length in zip(ids, lengths, strict=True)]


def _stepper(
    model: LanguageModel, context_length: int | None, cache: bool
) -> Callable[[Tensor], Tensor]:
    """A function from the texts so far, (B, T), to the logits of their next tokens, (B, V).

    While the texts fit the context, a cache gives each call only the tokens that are new. Beyond it
    every token has moved to another position, and the deeper states would still hold what tokens
    outside the window had told them: nothing of the cache is of use, so the window is computed
    from scratch.
    """
    stored = model.new_cache() if cache and hasattr(model, "new_cache") else None
    known = 0

    def next_logits(ids: Tensor) -> Tensor:
        nonlocal known
        if stored is not None and (context_length is None or ids.shape[1] <= context_length):
            new, known = ids[:, known:], ids.shape[1]
            return last_logits(model, new, cache=stored)
        return last_logits(model, ids if context_length is None else ids[:, -context_length:])

    return next_logits


class Hypothesis(NamedTuple):
    """A text that beam search found, and its log-probability given the prompt, in nats."""

    ids: Tensor
    log_prob: float
    n_new: int

    def score(self, alpha: float) -> float:
        """log_prob / n_new^alpha: alpha = 0 compares texts, alpha = 1 their mean tokens."""
        return self.log_prob / max(self.n_new, 1) ** alpha


def beam_search(
    model: LanguageModel,
    prompt: Sequence[int] | Tensor,
    *,
    beams: int,
    max_new_tokens: int,
    stop: int | None = None,
    alpha: float = 0.0,
    context_length: int | None = None,
) -> list[Hypothesis]:
    """The best texts that a search of a given width finds, best first.

    A text that has ended keeps its place among the beams with the score it has, and is compared
    with those that go on by the same measure; the search ends when all beams have ended.

    Args:
        model: as in `generate`.
        prompt: what the text begins with, at least one token.
        beams: how many texts are kept at each step; 1 is greedy search.
        max_new_tokens: how many follow the prompt at most.
        stop: the token that ends a text; it counts as one of it.
        alpha: by what power of its length a log-probability is divided when texts are compared.
            With 0 a longer text can only lose.
        context_length: as in `generate`.
    Raises:
        ValueError: nothing to begin with, or a context without a token.
    Source: Wu et al. 2016, section 7, with length^alpha as the penalty.
    """
    (row,) = _rows([prompt])
    context_length, device = context_length_of(model, context_length), device_of(model)
    kept = [Hypothesis(row.to(device), 0.0, 0)]
    next_logits = _stepper(model, context_length, cache=False)
    for _ in range(max_new_tokens):
        ended = [h for h in kept if h.n_new and h.ids[-1] == stop]
        going_on = [h for h in kept if not (h.n_new and h.ids[-1] == stop)]
        if not going_on:
            break
        with evaluating(model):
            logits = next_logits(torch.stack([h.ids for h in going_on]))  # (going on, V)
        log_probs, tokens = log_softmax(logits.double()).topk(min(beams, logits.shape[-1]))
        longer = [
            Hypothesis(torch.cat([h.ids, token[None]]), h.log_prob + float(log_prob), h.n_new + 1)
            for h, *best in zip(going_on, tokens, log_probs, strict=True)
            for token, log_prob in zip(*best, strict=True)
        ]
        kept = sorted(ended + longer, key=lambda h: -h.score(alpha))[:beams]
    return kept


# ---- checks ---------------------------------------------------------------------------------


def _rows(prompts: Prompts) -> list[Tensor]:
    rows = [torch.as_tensor(row, dtype=torch.long).cpu() for row in prompts]
    if not rows or any(row.ndim != 1 or not len(row) for row in rows):
        raise ValueError(f"expected texts of at least one token each, as [[end]], got {rows}")
    return rows
