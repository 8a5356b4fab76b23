"""`src.gpt.objectives` against derived expectations, enumeration, and transformers' conventions."""

import math

import pytest
import torch
from torch import tensor

from src.gpt.both_sides import EncoderLM
from src.gpt.gpt2 import GPTConfig
from src.gpt.objectives import (
    choose_tokens,
    corrupt,
    masked_batch,
    prefix_mask,
    restore,
    span_counts,
)
from src.likelihood.fitting import fit

V, MASK, END = 31, 30, 0
SPECIAL = (END, 7)  # never hidden
CONFIG = GPTConfig(V, context_length=40, layers=1, heads=2, channels=8)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def text(*shape, seed=1):
    """Ids above the end token, below the mask token."""
    return torch.randint(1, MASK - 9, shape, generator=generator(seed))


@pytest.fixture(scope="module")
def transformers():
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


# ---- where --------------------------------------------------------------------------------------


def test_the_counts_of_a_text_of_512_tokens_are_those_of_t5():
    assert span_counts(512) == (77, 26)
    assert span_counts(64) == (10, 3)
    assert span_counts(3) == (1, 1)


# ---- how ----------------------------------------------------------------------------------------


class Words:
    """As much of a tokenizer as the collator asks for."""

    mask_token = "<mask>"

    def __len__(self):
        return V

    def convert_tokens_to_ids(self, token):
        return MASK

    def get_special_tokens_mask(self, ids, already_has_special_tokens):
        return [int(each in SPECIAL) for each in ids]


SHARES = [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.5, 0.4, 0.1), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("seed", [0, 7])
def test_masking_is_that_of_transformers_to_the_token(transformers, shares, seed):
    ids = text(13, 37, seed=seed)
    ids[:, ::11] = END
    collator = transformers.DataCollatorForLanguageModeling(
        Words(), mask_replace_prob=shares[0], random_replace_prob=shares[1], seed=seed
    )
    collator.create_rng()
    seen, labels = collator.torch_mask_tokens(ids.clone())
    options = {"mask": MASK, "vocabulary_size": V, "shares": shares, "special": SPECIAL}
    ours, targets, chosen = masked_batch(ids, **options, generator=generator(seed))
    assert torch.equal(ours, seen)
    assert torch.equal(targets.masked_fill(~chosen, -100), labels)
    assert 0 < int(chosen.sum()) < ids.numel() / 4


def test_spans_and_sentinels_are_those_of_the_t5_tokenizer(transformers):
    """The example of T5's documentation, in the ids of its tokenizer."""
    words = "The cute dog walks in the green park"
    known = [(piece, 0.0) for piece in ("<pad>", "</s>", "<unk>")]
    known += [("\u2581" + word, -2.0) for word in words.split()]
    known += [(f"<extra_id_{k}>", 0.0) for k in (2, 1, 0)]  # as released: the first comes last
    tokenizer = transformers.T5Tokenizer(vocab=known, extra_ids=3)
    sentinels = tokenizer.convert_tokens_to_ids([f"<extra_id_{k}>" for k in range(3)])
    chosen = tensor([0, 1, 1, 0, 0, 1, 1, 0]).bool()
    source, target = corrupt(tensor(tokenizer(words).input_ids[:-1]), chosen, sentinels=sentinels)
    expected = (
        "The <extra_id_0> walks in <extra_id_1> park",
        "<extra_id_0> cute dog <extra_id_1> the green <extra_id_2>",
    )
    for ours, theirs in zip((source, target), expected, strict=True):
        assert ours.tolist() == tokenizer(theirs).input_ids[:-1]  # they append </s>


@pytest.mark.parametrize(
    ("chosen", "source", "target"),
    [  # of the public collator for T5 (run_t5_mlm_flax.py), its </s> left out
        ("0110010", [10, 39, 13, 14, 38, 16], [39, 11, 12, 38, 15, 37]),
        ("0111001", [10, 39, 14, 15, 38], [39, 11, 12, 13, 38, 16]),
        ("0001011", [10, 11, 12, 39, 14, 38], [39, 13, 38, 15, 16]),
        ("0000001", [10, 11, 12, 13, 14, 15, 39], [39, 16]),
        ("1100000", [39, 12, 13, 14, 15, 16], [39, 10, 11, 38]),  # ours: both ends are spans
        ("1000001", [39, 11, 12, 13, 14, 15, 38], [39, 10, 38, 16]),
    ],
)
def test_span_corruption_is_that_of_the_public_collator(chosen, source, target):
    """Where the text ends hidden it closes the target with </s> alone; the paper has a sentinel."""
    mask = tensor([digit == "1" for digit in chosen])
    ours = corrupt(torch.arange(10, 17), mask, sentinels=range(39, 0, -1))
    if chosen.endswith("1"):
        target = [*target, 39 - sum(token > 36 for token in target)]
    assert [part.tolist() for part in ours] == [source, target]


@pytest.mark.parametrize("length", [2, 7, 40])
def test_what_was_corrupted_can_be_restored(length):
    ids, sentinels = text(length), range(V, V + 13)
    chosen = choose_tokens(ids, rate=0.3, generator=generator())
    source, target = corrupt(ids, chosen, sentinels=sentinels)
    assert torch.equal(restore(source, target, sentinels=sentinels), ids)
    spans = int((source >= V).sum())
    assert len(source) == length - int(chosen.sum()) + spans
    assert len(target) == int(chosen.sum()) + spans + 1


# ---- prefixes and batches -----------------------------------------------------------------------


def test_a_prefix_mask_is_the_rule_written_as_a_loop():
    prefixes, places = [0, 1, 3, 5], range(5)
    mask = prefix_mask(tensor(prefixes), 5)
    rule = [[[j <= i or j < prefix for j in places] for i in places] for prefix in prefixes]
    assert mask.tolist() == rule


def test_a_masked_batch_is_what_fit_trains_on():
    encoder = EncoderLM(CONFIG, generator=generator())
    batch = masked_batch(text(5, 20), mask=MASK, vocabulary_size=V, generator=generator())
    losses = fit(encoder, [batch], steps=3, learning_rate=0.01, progress=False).losses
    assert losses[-1] < losses[0]


# ---- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [15, math.nan])
def test_a_rate_that_is_no_share_is_refused(rate):
    with pytest.raises(RuntimeError):  # by torch
        choose_tokens(text(20), rate=rate, generator=generator())
    with pytest.raises(ValueError, match=r"expected|NaN"):
        span_counts(20, rate=rate)


def corrupted(chosen, sentinels):
    chosen = tensor(chosen).bool()
    return corrupt(tensor([5, 6, 7, 8]).expand_as(chosen), chosen, sentinels=sentinels)


HIDING = {"mask": 1, "vocabulary_size": V, "generator": generator()}


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: span_counts(5, mean_length=0.4), "each of 2 spans .*, got 1 hidden of 5"),
        (lambda: span_counts(1, mean_length=1), "each of 1 spans .*, got 0 hidden of 1"),
        (lambda: span_counts(10, rate=0.8, mean_length=1), "each of 8 .*, got 8 hidden of 10"),
        (lambda: masked_batch(text(4), shares=(0.8, 0.1, 0.2), **HIDING), "the sum 1, got"),
        (lambda: corrupted([(0, 1, 0, 1)], (20, 21, 22)), r"and \(1, 4\)"),
        (lambda: corrupted((0, 1, 0, 1), (20, 21)), r"3 different sentinels .* got \[20, 21\]"),
        (lambda: corrupted((0, 1, 0, 1), (20, 20, 21)), r"got \[20, 20, 21\]"),
        (lambda: corrupted((0, 1, 0, 1), (20, 6, 21)), r"not in the text.* \[20, 6, 21\]"),
    ],
)
def test_what_cannot_be_is_refused(work, message):
    with pytest.raises(ValueError, match=message):
        work()
