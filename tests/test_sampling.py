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
from src.likelihood.smoothing import NgramModel

V, LIMIT = 11, 13
GREEDY = [partial(temperature, t=0)]
INF = math.inf


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def logits(generator):
    return torch.randn(3, 5, V, generator=generator)


@pytest.fixture
def model(generator):
    config = GPTConfig(V, context_length=LIMIT, layers=2, heads=2, channels=6, initial_std=1.0)
    return GPT(config, generator=generator).double().eval()


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def probabilities(*values):
    return tensor(values, dtype=torch.float64).log()


def kept(logits):
    return (logits > -INF).nonzero()[:, -1].tolist()


def lookup(table):
    """A model whose next token depends on the last one only."""
    return lambda ids: table[ids]


# filters


def test_temperature_divides_and_its_limits_are_greedy_and_uniform(logits):
    assert torch.equal(temperature(logits, 2.0), logits / 2)
    coldest = temperature(logits, 0)
    assert torch.equal(coldest.softmax(-1).argmax(-1), logits.argmax(-1))
    assert (coldest > -INF).sum() == 15
    assert torch.allclose(temperature(logits, INF).softmax(-1), torch.full_like(logits, 1 / V))
    near = temperature(logits.double(), 1e-4).softmax(-1)
    assert torch.allclose(near, coldest.double().softmax(-1), atol=1e-6)


def test_temperature_does_not_make_the_impossible_possible():
    logits = tensor([0.0, -INF, 1.0])
    for t in (0, 0.5, 1.0, INF):
        assert temperature(logits, t)[1] == -INF


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


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9, 0.999])
def test_a_nucleus_reaches_p_and_no_smaller_set_does(logits, p):
    probs = logits.double().softmax(-1)
    mask = nucleus(logits.double(), p) > -INF
    inside = (probs * mask).sum(-1)
    least = probs.masked_fill(~mask, INF).amin(-1)
    assert (inside >= p - 1e-12).all()
    assert (inside - least < p).all()


def test_p_of_one_keeps_all_however_unlikely():
    logits = tensor([0.0, -200.0])
    assert torch.equal(nucleus(logits, 1.0), logits)


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.0, [0, 1, 2]), (0.39, [0, 1, 2]), (0.41, [1, 2]), (0.61, [1]), (1.0, [1])],
)
def test_min_p_keeps_those_within_a_factor_of_the_likeliest(p, expected):
    assert kept(min_p(probabilities(0.2, 0.5, 0.3), p)) == expected


@pytest.mark.parametrize(
    "change",
    [
        partial(temperature, t=0.5),
        partial(top_k, k=3),
        partial(nucleus, p=0.7),
        partial(min_p, p=0.2),
    ],
)
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
        (partial(top_k, k=0), "k=0"),
        (partial(nucleus, p=0.0), "got 0.0"),
        (partial(nucleus, p=1.1), "got 1.1"),
        (partial(min_p, p=-0.1), "got -0.1"),
        (partial(min_p, p=1.1), "got 1.1"),
    ],
)
def test_a_setting_out_of_range_is_refused(logits, change, message):
    with pytest.raises(ValueError, match=message):
        change(logits)


# generation


def test_drawn_tokens_have_the_models_probabilities(generator):
    table = torch.randn(V, V, generator=generator)
    texts = generate(
        lookup(table), torch.full((20_000, 1), 4), max_new_tokens=1, generator=generator
    )
    counts = torch.bincount(torch.stack(texts)[:, 1], minlength=V).double()
    probs = table[4].double().softmax(-1)
    error = (probs * (1 - probs) / 20_000).sqrt()
    assert ((counts / 20_000 - probs).abs() < 4.5 * error).all()


def test_each_token_depends_on_the_text_before_it():
    following = tensor([3, 0, 1, 2])
    table = torch.full((4, 4), -INF).scatter(1, following[:, None], 0.0)
    (text,) = generate(lookup(table), [[2]], max_new_tokens=5, generator=seeded())
    assert text.tolist() == [2, 1, 0, 3, 2, 1]


RAGGED = [[1, 2, 3], [4], [5, 6, 7, 8, 9], [10, 0]]


@pytest.mark.parametrize("filters", [GREEDY, [], [partial(top_k, k=3), partial(temperature, t=2)]])
@pytest.mark.parametrize("new", [5, LIMIT - 5, 2 * LIMIT])
def test_a_cache_does_not_change_the_text(model, filters, new):
    texts = [
        generate(
            model, RAGGED, max_new_tokens=new, filters=filters, cache=cache, generator=seeded(1)
        )
        for cache in (False, True)
    ]
    for one, other, prompt in zip(*texts, RAGGED, strict=True):
        assert torch.equal(one, other)
        assert len(one) == len(prompt) + new
        assert one[: len(prompt)].tolist() == prompt


def test_the_logits_with_a_cache_are_those_without_up_to_the_limit_and_beyond(model):
    seen = {}
    for cache in (False, True):
        seen[cache] = []

        def keep(logits, into=seen[cache]):
            into.append(logits)
            return logits

        generate(
            model,
            RAGGED,
            max_new_tokens=2 * LIMIT,
            filters=[keep],
            cache=cache,
            generator=seeded(1),
        )
    assert len(seen[True]) == 2 * LIMIT + 4
    for one, other in zip(seen[False], seen[True], strict=True):
        assert greatest_difference(one, other) < 1e-10


def test_beyond_the_limit_the_last_window_is_all_that_the_model_sees(model):
    (text,) = generate(model, [[1]], max_new_tokens=3 * LIMIT, filters=GREEDY, generator=seeded())
    for end in range(LIMIT, len(text)):
        assert text[end] == model(text[None, end - LIMIT : end])[0, -1].argmax()


def watched(model, prompts, **options):
    """The shapes of the states that are unembedded while three tokens are drawn."""
    unembed, shapes = model.unembed, []
    model.unembed = lambda states: shapes.append(states.shape) or unembed(states)
    generate(model, prompts, max_new_tokens=3, filters=GREEDY, generator=seeded(), **options)
    del model.unembed
    return shapes


@pytest.mark.parametrize("cache", [False, True])
def test_only_the_last_state_meets_the_vocabulary(model, cache):
    assert watched(model, [[1, 2, 3, 4]] * 5, cache=cache) == [(5, model.config.channels)] * 3


def test_a_prompt_takes_a_call_for_each_token_beyond_the_shortest(model):
    """What the docstring of `generate` says; with prompts of 1 and 50 tokens it would be 52."""
    long = [*range(10)]
    assert len(watched(model, [long])) == 3
    assert len(watched(model, [[1], long])) == 12


def test_a_model_with_states_gives_the_text_that_its_logits_give(model):
    plain = generate(
        lambda ids: model(ids),
        RAGGED,
        max_new_tokens=2 * LIMIT,
        context_length=LIMIT,
        generator=seeded(),
    )
    apart = generate(model, RAGGED, max_new_tokens=2 * LIMIT, cache=False, generator=seeded())
    assert all(map(torch.equal, plain, apart))


def test_a_ragged_batch_is_its_texts_one_by_one(model):
    together = generate(model, RAGGED, max_new_tokens=6, filters=GREEDY, generator=seeded())
    for prompt, text in zip(RAGGED, together, strict=True):
        (alone,) = generate(model, [prompt], max_new_tokens=6, filters=GREEDY, generator=seeded())
        assert torch.equal(alone, text)


def test_each_text_stops_at_its_own_stop_token_and_keeps_it():
    table = torch.full((4, 4), -INF).scatter(1, tensor([[1], [2], [3], [0]]), 0.0)
    texts = generate(
        lookup(table), [[3], [1], [3, 2]], max_new_tokens=9, stop=3, generator=seeded()
    )
    assert [text.tolist() for text in texts] == [[3, 0, 1, 2, 3], [1, 2, 3], [3, 2, 3]]


def test_a_text_that_has_stopped_stays_stopped_while_others_go_on():
    table = torch.full((5, 5), -INF).scatter(1, tensor([[1], [0], [3], [3], [4]]), 0.0)
    texts = generate(lookup(table), [[1], [4]], max_new_tokens=7, stop=0, generator=seeded())
    assert [text.tolist() for text in texts] == [[1, 0], [4] * 8]


def test_a_stop_token_in_a_prompt_does_not_end_the_text():
    table = torch.zeros(4, 4)
    texts = generate(lookup(table), [[0], [1, 3, 3, 3]], max_new_tokens=2, generator=seeded())
    stopped = generate(
        lookup(table), [[0], [1, 3, 3, 3]], max_new_tokens=2, stop=3, generator=seeded()
    )
    assert len(texts[1]) == 6
    assert stopped[1].tolist() == texts[1].tolist()[: len(stopped[1])]
    assert len(stopped[1]) > 4


def test_the_same_generator_gives_the_same_texts(model):
    one, same, another = (
        generate(model, [[1]], max_new_tokens=10, generator=seeded(seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(one[0], same[0])
    assert not torch.equal(one[0], another[0])


def test_dropout_is_off_meanwhile_and_on_again_after(generator):
    config = GPTConfig(
        V, context_length=LIMIT, layers=1, heads=2, channels=6, dropout=0.9, initial_std=1.0
    )
    model = GPT(config, generator=generator)
    texts = [
        generate(model, [[1]], max_new_tokens=9, filters=GREEDY, generator=seeded(i))
        for i in (0, 1)
    ]
    assert torch.equal(texts[0][0], texts[1][0])
    assert model.training


def test_an_ngram_model_generates_too():
    stream = tensor([0, 1, 2, 3] * 20 + [0])
    model = NgramModel.fit(
        stream, order=2, vocabulary_size=4, estimator="maximum-likelihood", end=None
    )
    (text,) = generate(model, [[0]], max_new_tokens=6, generator=seeded())
    assert text.tolist() == [0, 1, 2, 3, 0, 1, 2]


@pytest.mark.parametrize("prompts", [[], [[]], [[1], []], torch.zeros(2, 0, dtype=torch.long)])
def test_nothing_to_begin_with_is_refused(model, prompts):
    with pytest.raises(ValueError, match="at least one token each"):
        generate(model, prompts, max_new_tokens=1, generator=seeded())


def test_a_negative_number_of_tokens_is_refused(model):
    with pytest.raises(ValueError, match="got -1"):
        generate(model, [[1]], max_new_tokens=-1, generator=seeded())


@pytest.mark.parametrize("context_length", [0, -1])
def test_a_context_without_a_token_is_refused(model, context_length):
    limits = {"max_new_tokens": 1, "context_length": context_length}
    with pytest.raises(ValueError, match=f"1 token or more, got context_length={context_length}"):
        generate(model, [[1]], **limits, generator=seeded())
    with pytest.raises(ValueError, match=f"1 token or more, got context_length={context_length}"):
        beam_search(model, [1], beams=1, **limits)


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
    (greedy,) = generate(model, [[1, 2]], max_new_tokens=9, filters=GREEDY, generator=seeded())
    (beam,) = beam_search(model, [1, 2], beams=1, max_new_tokens=9)
    assert torch.equal(beam.ids, greedy)


def test_two_beams_find_what_greedy_search_loses():
    """After 0 the likelier 1 (0.6) leads to a choice of many, the rarer 2 (0.4) to a certainty."""
    table = torch.full((5, 5), 0.2).log()
    table[0] = probabilities(1e-9, 0.6, 0.4, 1e-9, 1e-9)
    table[2] = probabilities(1e-9, 1e-9, 1e-9, 1.0, 1e-9)
    one, two = (beam_search(lookup(table), [0], beams=n, max_new_tokens=2)[0] for n in (1, 2))
    assert one.ids.tolist()[1] == 1
    assert two.ids.tolist() == [0, 2, 3]
    assert two.log_prob == pytest.approx(math.log(0.4), abs=1e-6)


def test_a_text_that_has_ended_keeps_its_score_among_those_that_go_on():
    table = torch.full((3, 3), 1 / 3).log()
    table[0] = probabilities(0.1, 0.4, 0.5)  # 1 ends the text; going on costs log 3 each time
    found = beam_search(lookup(table), [0], beams=2, max_new_tokens=6, stop=1)
    assert found[0].ids.tolist() == [0, 1]
    assert found[0].log_prob == pytest.approx(math.log(0.4), abs=1e-6)
    mean = beam_search(lookup(table), [0], beams=2, max_new_tokens=6, stop=1, alpha=1.0)
    assert mean[0].ids.tolist() == [0, 2, 1]  # (log 0.5 - log 3) / 2 is above log 0.4


def test_a_search_without_beams_is_refused(model):
    with pytest.raises(ValueError, match="1 beam or more, got 0"):
        beam_search(model, [1], beams=0, max_new_tokens=1)
    with pytest.raises(ValueError, match="0 new tokens or more, got -3"):
        beam_search(model, [1], beams=2, max_new_tokens=-3)


def test_dropout_is_off_while_beams_are_searched(generator):
    config = GPTConfig(7, context_length=5, layers=1, heads=1, channels=2, dropout=0.5)
    model = GPT(config, generator=generator).train()
    found = [beam_search(model, [1], beams=3, max_new_tokens=4) for _ in range(2)]
    assert [h.log_prob for h in found[0]] == [h.log_prob for h in found[1]]


def test_beam_search_leaves_the_model_as_it_was(model):
    model.train()
    beam_search(model, [1], beams=2, max_new_tokens=2)
    assert model.training


# drawing


@pytest.mark.parametrize("value", [-torch.inf, torch.nan])
def test_logits_that_leave_nothing_to_draw_are_an_error(value):
    def forbidding(logits):
        return torch.full_like(logits, value)

    config = GPTConfig(7, context_length=5, layers=1, heads=1, channels=2)
    model = GPT(config, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="leave a token to draw"):
        generate(model, [[0]], max_new_tokens=1, filters=[forbidding], generator=torch.Generator())


def test_what_was_drawn_can_be_trained_on():
    config = GPTConfig(7, context_length=5, layers=1, heads=1, channels=2)
    model = GPT(config, generator=torch.Generator().manual_seed(0))
    drawn = generate(model, [[0]], max_new_tokens=3, generator=torch.Generator())
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
