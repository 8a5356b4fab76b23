"""`src.gpt.sampling`: filters against their definitions, generation with and without a cache."""

import itertools
import math
from functools import partial

import pytest
import torch
from oracles import greatest_difference
from torch import tensor

from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.sampling import beam_search, draw, generate, min_p, nucleus, temperature, top_k

V, LIMIT = 11, 13
GREEDY = [partial(temperature, t=0)]
INF = math.inf
FILTERS = [partial(temperature, t=0.5), partial(top_k, k=3), partial(nucleus, p=0.7)]
FILTERS += [partial(min_p, p=0.2)]
SIZES = {"context_length": LIMIT, "layers": 2, "heads": 2, "channels": 6, "initial_std": 1.0}


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def logits(generator):
    return torch.randn(3, 5, V, generator=generator)


@pytest.fixture
def model(generator):
    return GPT(GPTConfig(V, **SIZES), generator=generator).double().eval()


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def probabilities(*values):
    return tensor(values, dtype=torch.float64).log()


def kept(logits):
    return (logits > -INF).nonzero()[:, -1].tolist()


def lookup(table):
    """A model whose next token depends on the last one only."""
    return lambda ids: table[ids]


def following(*successors):
    """A model that is sure of what comes after each token."""
    return lookup(
        torch.full(2 * [len(successors)], -INF).scatter(1, tensor(successors)[:, None], 0)
    )


def texts_of(model, prompts, new, seed=0, **options):
    texts = generate(model, prompts, max_new_tokens=new, generator=seeded(seed), **options)
    return [text.tolist() for text in texts]


# filters


@pytest.mark.parametrize(
    ("t", "expected"), [(0, [-INF, -INF, 3]), (2, [0.5, -INF, 1.5]), (INF, [0, -INF, 0])]
)
def test_temperature_divides_and_its_limits_are_greedy_and_uniform(t, expected):
    """What is impossible stays so."""
    assert temperature(tensor([1.0, -INF, 3.0]), t).tolist() == expected


def test_the_coldest_of_equals_is_the_first_alone():
    assert kept(temperature(tensor([1.0, 3.0, 3.0]), 0)) == [1]


@pytest.mark.parametrize("k", [1, 2, V - 1, V, V + 5])
def test_top_k_keeps_exactly_the_k_largest(logits, k):
    result = top_k(logits, k)
    assert ((result > -INF).sum(-1) == min(k, V)).all()
    least_kept = result.masked_fill(result == -INF, INF).amin(-1)
    dropped = logits.masked_fill(result > -INF, -INF).amax(-1)
    assert (dropped <= least_kept).all()
    assert torch.equal(result[result > -INF], logits[result > -INF])


def test_top_k_keeps_k_of_equals():
    assert len(kept(top_k(torch.zeros(5), 2))) == 2


@pytest.mark.parametrize(
    ("p", "expected"), [(0.1, [1]), (0.5, [1]), (0.51, [1, 2]), (0.79, [1, 2]), (1.0, [0, 1, 2])]
)
def test_a_nucleus_is_the_fewest_that_reach_p_the_crossing_one_included(p, expected):
    assert kept(nucleus(probabilities(0.2, 0.5, 0.3), p)) == expected


def test_p_of_one_keeps_all_however_unlikely():
    logits = tensor([0.0, -200.0])
    assert torch.equal(nucleus(logits, 1.0), logits)


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.0, [0, 1, 2]), (0.39, [0, 1, 2]), (0.41, [1, 2]), (0.61, [1]), (1.0, [1])],
)
def test_min_p_keeps_those_within_a_factor_of_the_likeliest(p, expected):
    assert kept(min_p(probabilities(0.2, 0.5, 0.3), p)) == expected


@pytest.mark.parametrize("change", FILTERS)
def test_a_filter_changes_nothing_it_was_given_and_takes_rows_by_themselves(logits, change):
    before = logits.clone()
    result = change(logits)
    assert torch.equal(logits, before)
    assert torch.equal(result[1, 2], change(logits[1, 2]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (partial(temperature, t=-0.1), "got -0.1"),
        (partial(temperature, t=math.nan), "got nan"),
        (partial(nucleus, p=0.0), "got 0.0"),
        (partial(nucleus, p=1.1), "got 1.1"),
    ],
)
def test_a_setting_out_of_range_is_refused(logits, change, message):
    with pytest.raises(ValueError, match=message):
        change(logits)


# generation


def test_drawn_tokens_have_the_models_probabilities(generator):
    table, n = torch.randn(V, V, generator=generator), 20_000
    texts = texts_of(lookup(table), torch.full((n, 1), 4), 1)
    shares = torch.bincount(tensor(texts)[:, 1], minlength=V).double() / n
    probs = table[4].double().softmax(-1)
    assert ((shares - probs).abs() < 4.5 * (probs * (1 - probs) / n).sqrt()).all()


def test_each_token_depends_on_the_text_before_it():
    assert texts_of(following(3, 0, 1, 2), [[2]], 5) == [[2, 1, 0, 3, 2, 1]]


RAGGED = [[1, 2, 3], [4], [5, 6, 7, 8, 9], [10, 0]]


def test_logits_and_texts_are_those_without_a_cache_up_to_the_limit_and_beyond(model):
    """And beyond it, they are those of the last window."""
    seen, texts = {False: [], True: []}, {}
    for cache, logits in seen.items():
        keep = [lambda each, into=logits: into.append(each) or each]
        texts[cache] = texts_of(model, RAGGED, 2 * LIMIT, filters=keep, cache=cache)
    assert len(seen[True]) == 2 * LIMIT + 4
    for one, other in zip(*seen.values(), strict=True):
        assert greatest_difference(one, other) < 1e-10
    assert texts[True] == texts[False]
    for prompt, text in zip(RAGGED, texts[True], strict=True):
        assert (text[: len(prompt)], len(text)) == (prompt, len(prompt) + 2 * LIMIT)
    longest = tensor(texts[True][2][-LIMIT - 1 : -1])
    assert greatest_difference(seen[False][-1][2], model(longest[None])[0, -1]) < 1e-10


@pytest.mark.parametrize("cache", [False, True])
def test_only_the_last_state_meets_the_vocabulary(model, cache):
    unembed, shapes = model.unembed, []
    model.unembed = lambda states: shapes.append(states.shape) or unembed(states)
    texts_of(model, [[1, 2, 3, 4]] * 5, 3, filters=GREEDY, cache=cache)
    assert shapes == [(5, model.config.channels)] * 3


CYCLE = [0, 1, 2] * 3 + [0]


@pytest.mark.parametrize(
    ("successors", "prompts", "stop", "expected"),
    [
        ([1, 2, 3, 0], [[3], [1], [3, 2]], 3, [[3, 0, 1, 2, 3], [1, 2, 3], [3, 2, 3]]),
        ([1, 0, 3, 3, 4], [[1], [4]], 0, [[1, 0], [4] * 10]),  # others go on
        ([1, 2, 0, 3], [[0], [1, 3, 3, 0]], 3, [CYCLE, [1, 3, 3, *CYCLE]]),
    ],
)
def test_each_text_stops_at_its_own_stop_token_and_keeps_it(successors, prompts, stop, expected):
    """One in a prompt does not end it."""
    assert texts_of(following(*successors), prompts, 9, stop=stop) == expected


@pytest.mark.parametrize("prompts", [[], [[]], [[1], []], torch.zeros(2, 0, dtype=torch.long)])
def test_nothing_to_begin_with_is_refused(model, prompts):
    with pytest.raises(ValueError, match="at least one token each"):
        texts_of(model, prompts, 1)


@pytest.mark.parametrize("length", [0, -1])
def test_a_context_of_no_token_is_refused(model, length):
    options = {"max_new_tokens": 1, "context_length": length}
    with pytest.raises(ValueError, match=f"1 token or more, got context_length={length}"):
        generate(model, [[1]], **options, generator=seeded())
    with pytest.raises(ValueError, match=f"1 token or more, got context_length={length}"):
        beam_search(model, [1], beams=2, **options)


def test_a_negative_number_of_new_tokens_is_refused(model):
    with pytest.raises(ValueError, match="0 new tokens or more, got -1"):
        generate(model, [[1]], max_new_tokens=-1, generator=seeded())


# beam search


def every_text(table, first, longest, stop):
    """(log-probability, text) of each text that ends, or has the greatest length."""
    log_probs = table.log_softmax(-1)
    for length in range(1, longest + 1):
        for new in itertools.product(range(len(table)), repeat=length):
            if stop in new[:-1] or (length < longest and new[-1] != stop):
                continue
            pairs = itertools.pairwise((first, *new))
            yield sum(float(log_probs[a, b]) for a, b in pairs), (first, *new)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("first", [2, 0])  # 0 is what a text ends with, and may begin with, too
def test_a_wide_enough_beam_finds_the_best_of_all_texts(generator, alpha, first):
    table = 2 * torch.randn(4, 4, generator=generator, dtype=torch.float64)
    found = beam_search(lookup(table), [first], beams=4**4, max_new_tokens=4, stop=0, alpha=alpha)
    best = sorted(every_text(table, first, 4, 0), key=lambda t: -t[0] / (len(t[1]) - 1) ** alpha)
    assert len(found) == len(best)
    for hypothesis, (log_prob, text) in zip(found[:20], best[:20], strict=True):
        assert hypothesis.log_prob == pytest.approx(log_prob)
        assert hypothesis.n_new == len(text) - 1  # texts of one score may change places
    assert tuple(found[0].ids.tolist()) in {t for s, t in best if s >= best[0][0] - 1e-9}


def test_one_beam_is_greedy(model):
    (beam,) = beam_search(model, [1, 2], beams=1, max_new_tokens=9)
    assert [beam.ids.tolist()] == texts_of(model, [[1, 2]], 9, filters=GREEDY)


def test_a_text_that_has_ended_keeps_its_score_among_those_that_go_on():
    table = torch.full((3, 3), 1 / 3).log()
    table[0] = probabilities(0.1, 0.4, 0.5)  # 1 ends the text; going on costs log 3 each time
    options = {"beams": 2, "max_new_tokens": 6, "stop": 1}
    found = beam_search(lookup(table), [0], **options)[0]
    assert found.ids.tolist() == [0, 1]
    assert found.log_prob == pytest.approx(math.log(0.4), abs=1e-6)
    mean = beam_search(lookup(table), [0], **options, alpha=1.0)[0]
    assert mean.ids.tolist() == [0, 2, 1]  # (log 0.5 - log 3) / 2 is above log 0.4


# drawing


def test_what_was_drawn_can_be_trained_on(model):
    drawn = generate(model, [[0]], max_new_tokens=3, generator=seeded())
    model(drawn[0][None]).sum().backward()  # a view of what came, not a copy
    assert model.embedding.grad is not None


def test_what_is_certain_is_not_drawn():
    """At temperature 0 the generator stays as it is; where one text has a choice, it does not."""
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 1.0]])
    assert draw(temperature(logits, 0), [], generator).tolist() == [1, 0]
    assert torch.equal(generator.get_state(), before)
    mixed = torch.cat([temperature(logits[:1], 0), logits[1:]])
    assert draw(mixed, [], generator)[0] == 1
    assert not torch.equal(generator.get_state(), before)
    for bad in ([-torch.inf] * 3, [torch.nan] * 3, [torch.nan, 0.0, -torch.inf]):
        with pytest.raises(ValueError, match="expected logits that leave a token to draw"):
            draw(torch.tensor([bad]), [], generator)
