"""What can a model be asked to predict, other than the next token? Ways to hide a part of a text.

    left to right    p(x_t | x_<t)                          every token, with the causal mask
    masked           p(x_t | the text with some hidden)     the chosen tokens only
    spans            p(spans | the text without them)       a source and a target, with sentinels
    prefix           p(x_t | prefix, x_<t), t > prefix      the prefix is seen from both sides

Each is two questions. WHERE: `choose_tokens` (BERT) returns a boolean mask, True where a token is
hidden; `span_counts` says how much T5 hides. HOW: `hide` replaces the chosen tokens in their
places, `corrupt` takes them out and puts one sentinel for each span.

Whatever draws does so in the order of the public implementation (transformers'
DataCollatorForLanguageModeling), so that both choose the same tokens. `masked_batch` returns a
batch of `src.likelihood.batches`.

Axes: B texts, T positions, S and U positions of source and target, V vocabulary.
Sources: Devlin et al. 2019, section 3.1; Raffel et al. 2020, sections 3.1.4 and 3.2.1. Derived in
the chapter `gpt/both_sides`.
"""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from ..likelihood.batches import Batch

SHARES = (0.8, 0.1, 0.1)  # of the chosen tokens: hidden by the mask token, by any token, left


# ---- where ---------------------------------------------------------------------------------------


def choose_tokens(
    ids: Tensor, *, rate: float = 0.15, special: Collection[int] = (), generator: torch.Generator
) -> Tensor:
    """Each token with probability `rate`, by itself, True where it is chosen; of the ids' shape.

    So the number of chosen tokens is random, of mean rate · N and variance rate (1 - rate) N.

    Args:
        ids: any shape.
        rate: the share that is chosen, in expectation.
        special: ids that are never chosen, such as the end token.
        generator: draws; on the CPU.
    """
    probs = torch.full(ids.shape, rate)
    for each in special:
        probs.masked_fill_((ids == each).cpu(), 0.0)
    return torch.bernoulli(probs, generator=generator).bool().to(ids.device)


def span_counts(length: int, *, rate: float = 0.15, mean_length: float = 3.0) -> tuple[int, int]:
    """(hidden tokens, spans) in a text of `length` tokens: T5 leaves neither of them to chance.

    A source then has length - hidden + spans tokens, and a target hidden + spans + 1.

    >>> span_counts(512)
    (77, 26)

    Raises:
        ValueError: there are more spans than hidden tokens, or than tokens to stand between them.
    """
    hidden = min(max(round(length * rate), 1), length - 1)
    spans = max(round(hidden / mean_length), 1)
    if spans > min(hidden, length - hidden):
        expected = f"expected a hidden token for each of {spans} spans and one before it"
        raise ValueError(f"{expected}, got {hidden} hidden of {length}: lower the rate?")
    return hidden, spans


# ---- how -----------------------------------------------------------------------------------------


def hide(
    ids: Tensor,
    chosen: Tensor,
    *,
    mask: int,
    vocabulary_size: int,
    shares: tuple[float, float, float] = SHARES,
    generator: torch.Generator,
) -> Tensor:
    """The text as the model sees it: each chosen token masked, replaced at random, or left.

    Args:
        ids: any shape.
        chosen: bool, of the same shape.
        mask: the mask token's id.
        vocabulary_size: V; a random token is any of 0 … V - 1, the right one among them.
        shares: of the three fates; (1, 0, 0) masks all chosen tokens.
        generator: draws; on the CPU.
    Raises:
        ValueError: the shares do not add up to 1.
    """
    if abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"expected three shares with the sum 1, got {shares}")
    masked, random, _ = shares

    def with_probability(share: float) -> Tensor:
        drawn = torch.bernoulli(torch.full(ids.shape, float(share)), generator=generator)
        return drawn.bool().to(ids.device)

    is_masked = chosen & with_probability(masked)
    seen = ids.masked_fill(is_masked, mask)
    if masked < 1 and random > 0:
        is_random = chosen & ~is_masked & with_probability(min(random / (1 - masked), 1.0))
        words = torch.randint(vocabulary_size, ids.shape, generator=generator).to(ids.device)
        seen = torch.where(is_random, words, seen)
    return seen


def corrupt(ids: Tensor, chosen: Tensor, *, sentinels: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Source and target of one text: each hidden span gives way to a sentinel of its own.

    >>> ids, chosen = torch.tensor([5, 6, 7, 8, 9]), torch.tensor([0, 1, 1, 0, 1]).bool()
    >>> corrupt(ids, chosen, sentinels=[20, 19, 18])
    (tensor([ 5, 20,  8, 19]), tensor([20,  6,  7, 19,  9, 18]))

    Args:
        ids: (T,).
        chosen: (T,); True where a token is hidden.
        sentinels: their ids in order, one a span and one more, which closes the target. T5's run
            down from the greatest id: range(V - 1, V - 101, -1).
    Returns:
        (S,) and (U,).
    Raises:
        ValueError: several texts, or too few sentinels, one of them twice, or one that is in the
            text: the text could not be restored.
    """
    begins = chosen & ~chosen.roll(1)
    begins[0] = chosen[0]
    spans = int(begins.sum())
    signs = torch.tensor(sentinels[: spans + 1], device=ids.device)
    if ids.ndim != 1 or len(signs.unique()) <= spans or torch.isin(signs, ids).any():
        expected = f"expected {spans + 1} different sentinels that are not in the text"
        raise ValueError(f"{expected}, (T,), got {signs.tolist()} and {tuple(ids.shape)}")
    number = begins.cumsum(0) - 1  # of the latest span
    source = torch.where(begins, signs[number.clamp(min=0)], ids)[begins | ~chosen]
    parts = [torch.cat([signs[i : i + 1], ids[chosen & (number == i)]]) for i in range(spans)]
    return source, torch.cat([*parts, signs[spans:]])


def restore(source: Tensor, target: Tensor, *, sentinels: Sequence[int]) -> Tensor:
    """The text, (T,), from what `corrupt` made of it: each sentinel gives way to its span.

    A sentinel of which the target tells nothing stays.
    """
    spans: dict[int, list[int]] = {}
    sign = None
    for token in target.tolist():
        if token in sentinels:
            sign, spans[token] = token, []
        elif sign is not None:
            spans[sign].append(token)
    return torch.tensor([t for token in source.tolist() for t in spans.get(token, [token])])


def prefix_mask(prefixes: Tensor, length: int) -> Tensor:
    """Everybody sees the prefix, and of the rest what came before, (B, T, T); True: may attend.

    >>> prefix_mask(torch.tensor([2]), 4).int()[0].tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]

    Args:
        prefixes: (B,); how many tokens of each text are its prefix. 0 or 1: the causal mask;
            T: all see all.
        length: T.
    Source: Raffel et al. 2020, section 3.2.1; Dong et al. 2019.
    """
    places = torch.arange(length, device=prefixes.device)
    return (places <= places[:, None]) | (places < prefixes[:, None, None])


# ---- batches -------------------------------------------------------------------------------------


def masked_batch(
    ids: Tensor,
    *,
    mask: int,
    vocabulary_size: int,
    rate: float = 0.15,
    shares: tuple[float, float, float] = SHARES,
    special: Collection[int] = (),
    generator: torch.Generator,
) -> Batch:
    """A batch of the masked objective: (what is seen, the text, where the loss counts), all (B, T).

    Raises:
        ValueError: as `choose_tokens` and `hide`.
    """
    chosen = choose_tokens(ids, rate=rate, special=special, generator=generator)
    seen = hide(
        ids, chosen, mask=mask, vocabulary_size=vocabulary_size, shares=shares, generator=generator
    )
    return seen, ids, chosen
