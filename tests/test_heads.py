"""`src.gpt.in_context` against loops, heads built by hand, and what a matrix without a head would
give.
"""

import contextlib
import itertools
import math
import re
from statistics import fmean

import pytest
import torch

from src.attention.config import BlockConfig
from src.attention.heads import MultiHeadAttention
from src.attention.masks import causal_mask
from src.gpt.in_context import (
    AttentionOnly,
    ablated,
    induction_model,
    induction_score,
    induction_targets,
    previous_token_score,
)

B, T, H, V = 5, 11, 3, 7


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_weights(seed=0):
    scores = torch.randn(B, H, T, T, generator=generator(seed))
    return scores.masked_fill(~causal_mask(T), -torch.inf).softmax(-1)


def random_ids(seed=1):
    return torch.randint(V, (B, T), generator=generator(seed))


def repeated_rows(period=5, copies=3, symbols=13, size=4):
    """Rows of different symbols, again and again, after a first token 0."""
    once = 1 + torch.rand(size, symbols - 1, generator=generator()).argsort(1)[:, :period]
    rows = once.repeat(1, copies)
    return torch.cat([torch.zeros(size, 1, dtype=torch.long), rows], 1)


# scores


@pytest.mark.parametrize("where", [None, torch.arange(B * T).reshape(B, T) % 3 > 0])
def test_the_scores_agree_with_a_loop(where):
    weights, ids = random_weights(), random_ids()
    for h, scores in enumerate(weights.transpose(0, 1)):
        previous = [float(scores[b, t, t - 1]) for b in range(B) for t in range(1, T)]
        found = []
        for b, t in itertools.product(range(B), range(T)):
            earlier = [s for s in range(t) if ids[b, s] == ids[b, t]]
            if earlier and (where is None or where[b, t]):
                found.append(sum(float(scores[b, t, s + 1]) for s in earlier))
        score = induction_score(weights, ids, where=where)[h]
        assert float(previous_token_score(weights)[h]) == pytest.approx(fmean(previous))
        assert float(score) == pytest.approx(fmean(found))


def test_targets_are_the_places_after_earlier_occurrences():
    targets = induction_targets(torch.tensor([[4, 4, 5, 4]]))
    assert targets[0].nonzero().tolist() == [[1, 1], [3, 1], [3, 2]]


IDS = random_ids()


@pytest.mark.parametrize(
    ("weights", "ids", "message"),
    [
        (torch.ones(2, 3, 4), IDS, r"\(B, H, T, T\).*\(2, 3, 4\)"),
        (torch.ones(B, 3, T, T + 1), IDS, r"\(5, 3, 11, 12\)"),
        (random_weights(), IDS[:, :-1], r"\(5, 3, 11, 11\).*\(5, 10\)"),
        (random_weights(), IDS[:1], r"\(5, 3, 11, 11\).*\(1, 11\)"),
        (random_weights(), torch.arange(T).expand(B, T), "occurs twice"),
    ],
)
def test_weights_without_a_score_are_refused(weights, ids, message):
    with pytest.raises(ValueError, match=message):
        induction_score(weights, ids)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 1, 1)])
def test_weights_without_a_token_before_are_refused(shape):
    with pytest.raises(ValueError, match=re.escape(str(shape))):
        previous_token_score(torch.ones(shape))


# the model built by hand


@torch.no_grad()
def nats_of(model, ids, **options):
    log_probs = model(ids[:, :-1], **options).log_softmax(-1)
    return -log_probs.gather(-1, ids[:, 1:, None])[..., 0]


def test_the_built_model_guesses_a_first_occurrence_and_knows_a_repetition():
    nats = nats_of(induction_model(13, context_length=16), repeated_rows(period=5))
    assert torch.allclose(nats[:, :5], torch.tensor(math.log(13)), atol=1e-5)
    # The sixth token is the first again: what it should follow has not been followed yet.
    assert nats[:, 5].min() > 1.0
    assert nats[:, 6:].max() < 1e-6


def test_another_token_may_begin():
    ids = repeated_rows()
    swapped = torch.where(ids == 0, 12, torch.where(ids == 12, 0, ids))
    nats = nats_of(induction_model(13, context_length=16, begin=12), swapped)
    assert nats[:, 6:].max() < 1e-6


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("by", ["zero", "mean"])
def test_without_either_head_the_built_model_knows_nothing(layer, by):
    ids, model = repeated_rows(size=50), induction_model(13, context_length=16)
    with ablated(model, {f"layers.{layer}": [0]}, by=by):
        assert nats_of(model, ids)[:, 6:].mean() > 1.5


# ablation


@pytest.fixture
def attention():
    return MultiHeadAttention(BlockConfig(channels=6, heads=H), generator=generator()).double()


@pytest.fixture
def x():
    return torch.randn(B, T, 6, generator=generator(2)).double()


def test_a_head_taken_out_is_a_zero_block_of_the_output_matrix(attention, x):
    with ablated(attention, {"": [1]}):
        without = attention(x)
    with torch.no_grad():
        attention.output.weight[:, 2:4] = 0.0
    assert torch.allclose(without, attention(x))


def test_the_mean_is_taken_over_texts_at_each_position(attention, x):
    gathered = []
    attention.output.register_forward_pre_hook(lambda _, inputs: gathered.append(inputs[0]))
    with ablated(attention, {"": [0, 2]}, by="mean"):
        without = attention(x)
    before = gathered[0].clone()  # the replacement
    for channels in (slice(0, 2), slice(4, 6)):
        before[..., channels] = before[..., channels].mean(0)
    assert torch.allclose(without, attention.output(before))


def test_afterwards_everything_is_as_it_was_even_after_an_error(attention, x):
    before, parameters = attention(x), [p.clone() for p in attention.parameters()]
    with contextlib.suppress(KeyError), ablated(attention, {"": [0, 1, 2]}):
        assert not torch.allclose(attention(x), before)
        raise KeyError
    assert torch.equal(attention(x), before)
    assert all(map(torch.equal, attention.parameters(), parameters))


def test_a_head_that_is_not_there_and_another_ablation_are_refused(attention):
    with pytest.raises(KeyError, match="elsewhere"), ablated(attention, {"elsewhere": [0]}):
        pass
    with pytest.raises(ValueError, match='by "zero" or "mean"'), ablated(attention, {}, by="no"):
        pass


# the model


def model(rotary=False, layers=2):
    sizes = {"context_length": T, "layers": layers, "heads": 2, "channels": 12}
    return AttentionOnly(V, **sizes, rotary=rotary, generator=generator())


@pytest.mark.parametrize("rotary", [False, True])
def test_the_future_does_not_change_the_past(rotary):
    ids = random_ids()
    changed = ids.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % V
    a, b = model(rotary)(ids), model(rotary)(changed)
    assert torch.equal(a[:, :7], b[:, :7])
    assert not torch.allclose(a[:, 7:], b[:, 7:])


def test_without_layers_a_rotary_model_is_a_bigram_table():
    found, ids = model(rotary=True, layers=0), random_ids()
    table = found.unembedding(found.embedding)
    assert torch.allclose(found(ids), table[ids])


def test_one_generator_makes_one_model():
    assert torch.equal(model()(random_ids()), model()(random_ids()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: model()(torch.zeros(1, 12, dtype=torch.long)), "12"),
        (lambda: model()(torch.full((1, 3), V)), "token ids from 0 to 6"),
        (lambda: model()(random_ids(), masks=[None]), "zip"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
