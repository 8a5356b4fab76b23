"""`src.gpt.in_context` against loops, heads built by hand, and what a matrix without a head would
give.
"""

import contextlib
import math

import pytest
import torch

from src.attention.heads import MultiHeadAttention, recorded_weights
from src.attention.masks import banded_mask, causal_mask
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


def looking(head, ids):
    """(B, 1, T, T); all weight on the place that `head(t, ids of the text)` names."""
    weights = torch.zeros(len(ids), 1, ids.shape[1], ids.shape[1])
    for b, row in enumerate(ids.tolist()):
        for t in range(len(row)):
            weights[b, 0, t, head(t, row)] = 1.0
    return weights


def after_last_occurrence(t, row):
    earlier = [s for s in range(t) if row[s] == row[t]]
    return earlier[-1] + 1 if earlier else 0


# scores


def test_a_head_that_looks_back_by_one_scores_one():
    weights = looking(lambda t, row: max(t - 1, 0), random_ids())
    assert previous_token_score(weights).item() == 1.0


def test_a_head_that_looks_at_itself_scores_zero():
    assert previous_token_score(looking(lambda t, row: t, random_ids())).item() == 0.0


def test_a_head_that_looks_at_what_came_next_scores_one():
    ids = random_ids()
    assert induction_score(looking(after_last_occurrence, ids), ids).item() == 1.0


@pytest.mark.parametrize("offset", [-1, 1])
def test_one_place_off_is_no_induction_head(offset):
    ids = repeated_rows()
    weights = looking(lambda t, row: max(after_last_occurrence(t, row) + offset, 0), ids)
    assert induction_score(weights, ids).item() == 0.0


def test_the_scores_of_a_uniform_head_worked_by_hand():
    ids = torch.tensor([[1, 2, 3, 1, 2]])  # position 3 should look at 1, position 4 at 2
    uniform = (causal_mask(5) / causal_mask(5).sum(-1, keepdim=True))[None, None]
    previous = (1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) / 4
    assert previous_token_score(uniform).item() == pytest.approx(previous)
    assert induction_score(uniform, ids).item() == pytest.approx((1 / 4 + 1 / 5) / 2)


def test_the_scores_agree_with_a_loop():
    weights, ids = random_weights(), random_ids()
    for h in range(H):
        previous, found = [], []
        for b in range(B):
            for t in range(T):
                if t:
                    previous.append(float(weights[b, h, t, t - 1]))
                earlier = [s for s in range(t) if ids[b, s] == ids[b, t]]
                if earlier:
                    found.append(sum(float(weights[b, h, t, s + 1]) for s in earlier))
        assert float(previous_token_score(weights)[h]) == pytest.approx(sum(previous) / (B * 10))
        assert float(induction_score(weights, ids)[h]) == pytest.approx(sum(found) / len(found))


def test_only_the_wanted_positions_count():
    ids = torch.tensor([[1, 2, 1, 2]])
    weights = looking(lambda t, row: [0, 0, 1, 0][t], ids)  # right at 2, wrong at 3
    where = torch.tensor([[True, True, True, False]])
    assert induction_score(weights, ids).item() == 0.5
    assert induction_score(weights, ids, where=where).item() == 1.0
    assert induction_score(weights, ids, where=~where).item() == 0.0


def test_targets_are_the_places_after_earlier_occurrences():
    targets = induction_targets(torch.tensor([[4, 4, 5, 4]]))
    assert targets[0].nonzero().tolist() == [[1, 1], [3, 1], [3, 2]]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(2, 3, 4), r"\(B, H, T, T\).*\(2, 3, 4\)"),
        (torch.ones(2, 3, 4, 5), r"\(2, 3, 4, 5\)"),
        (torch.ones(2, 3, 1, 1), "T of 2 or more"),
    ],
)
def test_what_are_no_weights_is_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        previous_token_score(weights)
    with pytest.raises(ValueError, match=message):
        induction_score(weights, torch.zeros(2, 4, dtype=torch.long))


def test_ids_of_other_texts_are_refused():
    with pytest.raises(ValueError, match=r"\(5, 11\).*\(5, 10\)"):
        induction_score(random_weights(), random_ids()[:, :-1])


def test_texts_without_repetition_have_no_score():
    ids = torch.arange(T).expand(B, T)
    with pytest.raises(ValueError, match="occurs twice"):
        induction_score(random_weights(), ids)


# the model built by hand


@torch.no_grad()
def run(model, ids, **options):
    with recorded_weights(model) as maps:
        log_probs = model(ids[:, :-1], **options).log_softmax(-1)
    nats = -log_probs.gather(-1, ids[:, 1:, None])[..., 0]
    return nats, list(maps.values())


def test_the_built_heads_score_one():
    ids = repeated_rows()
    _, (first, second) = run(induction_model(13, context_length=16), ids)
    assert previous_token_score(first).item() == pytest.approx(1.0)
    assert induction_score(second, ids[:, :-1]).item() == pytest.approx(1.0)


def test_the_built_model_guesses_a_first_occurrence_and_knows_a_repetition():
    nats, _ = run(induction_model(13, context_length=16), repeated_rows(period=5))
    assert torch.allclose(nats[:, :5], torch.tensor(math.log(13)), atol=1e-5)
    # The sixth token is the first again: what it should follow has not been followed yet.
    assert nats[:, 5].min() > 1.0
    assert nats[:, 6:].max() < 1e-6


def test_another_token_may_begin():
    ids = repeated_rows()
    swapped = torch.where(ids == 0, 12, torch.where(ids == 12, 0, ids))
    nats, _ = run(induction_model(13, context_length=16, begin=12), swapped)
    assert nats[:, 6:].max() < 1e-6


def test_the_first_layer_needs_a_band_and_the_second_all():
    ids, model = repeated_rows(), induction_model(13, context_length=16)
    band = causal_mask(15) & banded_mask(15, 2)
    assert run(model, ids, masks=[band, None])[0][:, 6:].max() < 1e-6
    assert run(model, ids, masks=[None, band])[0][:, 6:].min() > 1.0


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("by", ["zero", "mean"])
def test_without_either_head_the_built_model_knows_nothing(layer, by):
    ids, model = repeated_rows(size=50), induction_model(13, context_length=16)
    with ablated(model, {f"layers.{layer}": [0]}, by=by):
        nats, _ = run(model, ids)
    assert nats[:, 6:].mean() > 1.5


def test_a_begin_outside_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match="from 0 to 4, got 5"):
        induction_model(5, context_length=8, begin=5)


# ablation


def attention():
    return MultiHeadAttention(6, heads=H, generator=generator()).double()


def test_a_head_taken_out_is_a_zero_block_of_the_output_matrix():
    module, x = attention(), torch.randn(B, T, 6, generator=generator(2)).double()
    with ablated(module, {"": [1]}):
        without = module(x)
    with torch.no_grad():
        module.output.weight[:, 2:4] = 0.0
    assert torch.allclose(without, module(x))


def test_the_mean_is_taken_over_texts_at_each_position():
    module, x = attention(), torch.randn(B, T, 6, generator=generator(2)).double()
    kept = {}
    hook = module.output.register_forward_pre_hook(lambda m, i: kept.__setitem__("in", i[0]))
    with ablated(module, {"": [0, 2]}, by="mean"):
        without = module(x)
    hook.remove()
    gathered = kept["in"].clone()  # before the replacement
    for channels in (slice(0, 2), slice(4, 6)):
        gathered[..., channels] = gathered[..., channels].mean(0)
    assert torch.allclose(without, module.output(gathered))


def test_afterwards_everything_is_as_it_was_even_after_an_error():
    module, x = attention(), torch.randn(B, T, 6, generator=generator(2)).double()
    before, parameters = module(x), [p.clone() for p in module.parameters()]
    with contextlib.suppress(KeyError), ablated(module, {"": [0, 1, 2]}):
        assert not torch.allclose(module(x), before)
        raise KeyError
    assert torch.equal(module(x), before)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), parameters, strict=True))


@pytest.mark.parametrize(
    ("heads", "by", "message"),
    [
        ({"elsewhere": [0]}, "zero", r"among \[''\], got 'elsewhere'"),
        ({"": [3]}, "zero", r"heads from 0 to 2 in '', got \[3\]"),
        ({"": [-1]}, "zero", "heads from 0 to 2"),
        ({"": [0]}, "median", 'by "zero" or "mean"'),
    ],
)
def test_a_head_that_is_not_there_is_refused(heads, by, message):
    with pytest.raises(ValueError, match=message), ablated(attention(), heads, by=by):
        pass


# the model


def model(rotary=False, layers=2):
    return AttentionOnly(
        V, context_length=T, layers=layers, heads=2, channels=12, rotary=rotary,
        generator=generator(),
    )  # fmt: skip


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


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"at most 11 tokens.*got 12"):
        model()(torch.zeros(1, 12, dtype=torch.long))
    with pytest.raises(ValueError, match="token ids from 0 to 6"):
        model()(torch.full((1, 3), V))
    with pytest.raises(ValueError, match="each of 2 layers, got 1"):
        model()(random_ids(), masks=[None])
