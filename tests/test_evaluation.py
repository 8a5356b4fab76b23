"""`src.likelihood.evaluation` against numbers worked by hand, a slow loop and identities.

The wrong evaluators are in the chapter `likelihood/units`, with the checks that catch each.
"""

import functools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from src.gpt.choices import (
    MEASURES,
    ChoiceScore,
    choice_scores,
    chosen,
    exact_match,
    greedy_answers,
    plain,
)
from src.likelihood.evaluation import (
    Score,
    bootstrap,
    corpus_perplexity,
    document_scores,
    documents,
    paired_bootstrap,
    total,
)
from src.likelihood.maximum_likelihood import log_softmax
from src.texts.markov import small_english

V = 7
LENGTHS = (2, 13, 5, 23)


def hashing_model(ids):
    """Logits that depend on every input so far and on nothing else."""
    weights = torch.sin(torch.arange(1, V + 1, dtype=torch.float64))
    logits = torch.zeros(*ids.shape, V, dtype=torch.float64)
    for b, row in enumerate(ids.tolist()):
        state = 0.0
        for t, token in enumerate(row):
            state = math.sin(2.0 * state + token + 1.0)
            logits[b, t] = 3.0 * state * weights + weights.flip(0) * math.cos(5 * state)
    return logits


def uniform_model(ids):
    return torch.zeros(*ids.shape, V, dtype=torch.float64)


@pytest.fixture(scope="module")
def texts():
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(V, (length,), generator=generator) for length in LENGTHS]


def slow_nats(model, texts, context_length, stride):
    """The definition as a loop: one token, one call, no batch, no padding."""
    nats = 0.0
    for ids in texts:
        for t in range(len(ids) - 1):
            start = stride * math.ceil(max(0, t + 1 - context_length) / stride)
            logits = model(ids[None, start : t + 1])[0, -1]
            nats -= float(log_softmax(logits)[ids[t + 1]])
    return nats


# Score


def test_scores_add_up_and_divide_once():
    score = Score(4.0, 4, 3) + Score(8.0, 2, 5)  # losses 1 and 4; their mean would be 2.5
    assert score == Score(12.0, 6, 8)
    assert score.loss == 2.0
    assert score.perplexity == pytest.approx(math.exp(2.0))
    assert score.bits_per_byte == pytest.approx(12 / math.log(2) / 8)
    assert Score(10_000.0, 1).perplexity == math.inf  # and no overflow


def test_the_total_is_the_sum_of_all_scores():
    assert total([Score(4.0, 4, 3), Score(8.0, 2, 5), Score(1.0, 1, 9)]) == Score(13.0, 7, 17)


def test_bytes_are_known_only_where_every_part_knows_them():
    assert (Score(1.0, 1, 1) + Score(1.0, 1)).n_bytes is None
    assert total([Score(1.0, 1, 1), Score(1.0, 1), Score(1.0, 1, 1)]).n_bytes is None
    with pytest.raises(ValueError, match="pass n_bytes"):
        _ = Score(1.0, 1).bits_per_byte


# documents


def test_documents_hold_every_token_of_the_stream_but_the_first_as_a_target():
    source = small_english()
    drawn = source.sample_texts(11, generator=torch.Generator().manual_seed(1))
    stream = torch.cat([source.encode("<end>"), *drawn])
    found = documents(stream, end=0)
    assert torch.equal(torch.cat([text[1:] for text in found]), stream[1:])
    assert all(torch.equal(text[1:], whole) for text, whole in zip(found, drawn, strict=True))


@pytest.mark.parametrize("stream", [[], [0], [5, 0], [0, 5], [[0, 0]]])
def test_a_stream_begins_and_closes_with_the_end_token(stream):
    with pytest.raises(ValueError, match="from one end token, 0, to another"):
        documents(tensor(stream, dtype=torch.long), end=0)


# corpus_perplexity: numbers by hand and identities


def test_two_tokens_by_hand():
    """After token 0 the model says (1/4, 3/4), after token 1 (1/2, 1/2); the text is 0, 1, 0."""
    table = tensor([[1.0, 3.0], [1.0, 1.0]], dtype=torch.float64).log()
    score = corpus_perplexity(lambda ids: table[ids], tensor([0, 1, 0]), context_length=2)
    assert score.nats == pytest.approx(-math.log(3 / 4) - math.log(1 / 2))
    assert score.tokens == 2


@pytest.mark.parametrize("context_length", [1, 4, 1_000])
def test_the_exact_model_scores_what_its_source_says(context_length):
    source = small_english()
    drawn = source.sample_texts(17, generator=torch.Generator().manual_seed(2))
    stream = torch.cat([source.encode("<end>"), *drawn])
    exact, texts = source.transition.log(), documents(stream, end=0)
    score = corpus_perplexity(lambda ids: exact[ids], texts, context_length=context_length)
    assert score.nats == pytest.approx(-source.log_prob(stream[1:]), rel=1e-12)


@pytest.mark.parametrize(
    ("context_length", "stride"),
    [(1, 1), (5, 1), (5, 2), (5, 3), (5, None), (11, 4), (100, 3), (22, None)],
)
def test_windows_score_what_the_slow_loop_scores(texts, context_length, stride):
    """Without a stride the windows are disjoint; 22 and 100 inputs hold each text whole."""
    shapes = []

    def model(ids):
        shapes.append(ids.shape)
        return hashing_model(ids)

    score = corpus_perplexity(
        model, texts, context_length=context_length, stride=stride, batch_size=3
    )
    expected = slow_nats(hashing_model, texts, context_length, stride or context_length)
    assert score.nats == pytest.approx(expected, rel=1e-12)
    assert score.tokens == sum(LENGTHS) - len(LENGTHS)
    assert max(length for _, length in shapes) == min(context_length, 22)


# … and invariance


@settings(max_examples=40, deadline=None)
@given(
    order=st.permutations(range(len(LENGTHS))),
    batch_size=st.integers(1, 9),
    stride=st.integers(1, 5),
)
def test_the_score_is_unchanged_by_batch_size_padding_and_order(texts, order, batch_size, stride):
    options = {"context_length": 5, "stride": stride}
    reference = slow_nats(hashing_model, texts, 5, stride)
    shuffled = [texts[m] for m in order]
    score = corpus_perplexity(hashing_model, shuffled, batch_size=batch_size, **options)
    assert score.nats == pytest.approx(reference, rel=1e-12)
    assert score.tokens == sum(LENGTHS) - len(LENGTHS)
    parts = document_scores(hashing_model, shuffled, batch_size=batch_size, **options)
    for m, part in zip(order, parts, strict=True):
        assert part.nats == pytest.approx(slow_nats(hashing_model, [texts[m]], 5, stride))


# Precision


def test_logits_of_half_precision_are_not_summed_in_it():
    """float16 ends at 65,504, and knows log 7 to three digits only."""

    def half(ids):
        return torch.zeros(*ids.shape, V, dtype=torch.float16)

    text = torch.zeros(40_001, dtype=torch.long)
    score = corpus_perplexity(half, text, context_length=40_000)
    assert score.loss == pytest.approx(math.log(V), rel=1e-6)
    (found,) = choice_scores(half, [(text[:1], [text[1:], text[:2]])], context_length=40_000)
    assert [each.score.loss for each in found] == pytest.approx([math.log(V)] * 2, rel=1e-6)


# Zero probabilities and NaN


def never_says_three(ids):
    logits = uniform_model(ids)
    logits[..., 3] = -math.inf
    return logits


def test_a_zero_probability_costs_infinitely_much_and_is_not_nan():
    texts = [tensor([0, 3, 1]), tensor([0, 1])]
    score = corpus_perplexity(never_says_three, texts, context_length=2, n_bytes=3)
    assert (score.nats, score.loss, score.perplexity) == (math.inf, math.inf, math.inf)
    assert score.bits_per_byte == math.inf
    assert math.isfinite(corpus_perplexity(never_says_three, texts[1], context_length=2).nats)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_logits_are_named_with_their_document(texts, bad):
    def broken(ids):
        logits = uniform_model(ids)
        logits[ids == V - 1] = bad
        return logits

    text = tensor([0, 1, V - 1, 2])
    with pytest.raises(ValueError, match="NaN in document 1"):
        corpus_perplexity(broken, [tensor([0, 1]), text], context_length=4)


def test_nan_at_padding_is_nobodys_business():
    def broken_past_two(ids):
        logits = uniform_model(ids)
        logits[:, 2:] = torch.where((ids[:, 2:] == 0)[..., None], math.nan, 0.0)
        return logits

    short, long = tensor([0, 1, 2]), tensor([0, 1, 2, 3, 4])
    score = corpus_perplexity(broken_past_two, [short, long], context_length=4, batch_size=2)
    assert score.perplexity == pytest.approx(V)


# Bad input


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        ([0, 1], {"context_length": 0}, "<= context_length, got .*context_length=0"),
        ([0, 1], {"batch_size": 0}, "1 <= batch_size .*got batch_size=0"),
        ([0, 1], {"stride": 0}, "1 <= stride .*stride=0"),
        ([0, 1], {"stride": 5}, "stride <= context_length, got .*stride=5 and context_length=4"),
        ([], {}, r"2 or more tokens.* document 0, got \(0,\)"),
        ([[1, 2], [3, 4]], {}, r"\(2, 2\)"),
        ([1, V], {}, "ids from 0 to 6"),
    ],
)
def test_options_out_of_range_and_texts_without_a_target_are_refused(ids, options, message):
    ids = tensor(ids, dtype=torch.long)
    with pytest.raises(ValueError, match=message):
        corpus_perplexity(uniform_model, ids, **{"context_length": 4} | options)


def test_a_document_without_a_target_is_named():
    with pytest.raises(ValueError, match=r"document 1, got \(1,\)"):
        corpus_perplexity(uniform_model, [tensor([1, 2]), tensor([1])], context_length=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_ids_are_integers(dtype):
    with pytest.raises(TypeError, match="integer token ids"):
        corpus_perplexity(uniform_model, torch.zeros(3, dtype=dtype), context_length=4)


@pytest.mark.parametrize("shape", [(1, 2), (1, V), (2, 1, V)])
def test_logits_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"logits \(1, 2, 'V'\), got"):
        corpus_perplexity(lambda ids: torch.zeros(shape), tensor([0, 1, 2]), context_length=4)


def test_a_model_that_returns_a_tuple_is_told_how_to_be_wrapped():
    with pytest.raises(ValueError, match="got tuple; wrap a model"):
        corpus_perplexity(lambda ids: (uniform_model(ids),), tensor([0, 1]), context_length=4)


# One score for each document


def test_document_scores_know_the_bytes_of_each(texts):
    sizes = [3, 5, 7, 11]
    parts = document_scores(uniform_model, texts, context_length=5, n_bytes=sizes)
    assert [part.n_bytes for part in parts] == sizes
    assert [part.tokens for part in parts] == [length - 1 for length in LENGTHS]
    with pytest.raises(ValueError, match="shorter"):
        document_scores(uniform_model, texts, context_length=5, n_bytes=[26])


# Bootstrap


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(3)


def test_two_documents_resample_in_three_ways(generator):
    """Documents of 1 and 9 tokens: (2 - 1 + 9 - 18) / 10 = -0.8; the mean of losses says 0.

    AA, AB, BA, BB: ratios 1, -0.8 (twice) and -1, so that the outer quantiles are -1 and 1.
    """
    ours, theirs = [Score(2.0, 1, 2), Score(9.0, 9, 3)], [Score(1.0, 1, 2), Score(18.0, 9, 3)]
    options = {"unit": "nats per token", "generator": generator}
    found = paired_bootstrap(ours, theirs, **options)
    assert (found.low, found.estimate, found.high) == pytest.approx((-1.0, -0.8, 1.0))
    inner = paired_bootstrap(ours, theirs, level=0.3, **options)
    assert (inner.low, inner.high) == pytest.approx((-0.8, -0.8))
    bits = paired_bootstrap(ours, theirs, generator=generator)
    assert bits.estimate == pytest.approx(-8 / 5 / math.log(2))


def test_a_generator_makes_the_interval_repeatable():
    scores = [Score(float(n), 2, 3) for n in range(1, 12)]
    first, second, other = (
        bootstrap(scores, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert first == second != other


ONE = Score(1.0, 1, 1)


@pytest.mark.parametrize(
    ("ours", "theirs", "options", "message"),
    [
        ([ONE], [ONE], {}, r"2 finite scores .* got \[0.0\]"),
        ([ONE] * 2, [ONE] * 3, {}, "the same documents"),
        ([ONE] * 2, [Score(1.0, 1, 2)] * 2, {}, "the same documents"),
        ([Score(1.0, 1)] * 2, [Score(1.0, 1)] * 2, {}, "know their bytes"),
        ([ONE] * 2, [Score(1.0, 2, 1)] * 2, {"unit": "nats per token"}, "in 'bits per byte'"),
        ([Score(math.inf, 1, 1)] * 2, [ONE] * 2, {}, r"finite scores .* got \[inf, inf\]"),
        ([ONE] * 2, [ONE] * 2, {"unit": "bits"}, "a unit among"),
        ([ONE] * 2, [ONE] * 2, {"level": 1.0}, "0 < level < 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(ours, theirs, options, message, generator):
    with pytest.raises(ValueError, match=message):
        paired_bootstrap(ours, theirs, generator=generator, **options)


# choices

PROMPTS = [[3], [5, 1, 2], [4, 4, 4, 4, 6]]
CHOICES = [[[1], [2], [6]], [[1, 5], [1, 6], [3]], [[2, 2, 2], [5]]]


def asked(prompts=PROMPTS, choices=CHOICES):
    as_ids = functools.partial(tensor, dtype=torch.long)
    return [(as_ids(p), list(map(as_ids, own))) for p, own in zip(prompts, choices, strict=True)]


def table_model(rows):
    """Logits that depend on the last token only: {token: {next: probability}}."""
    table = torch.full((V, V), -torch.inf, dtype=torch.float64)
    for token, probs in rows.items():
        for follower, prob in probs.items():
            table[token, follower] = math.log(prob)
    return lambda ids: table[ids]


def slow_choice_nats(model, prompt, choice):
    """What the whole costs, less what the prompt does: one token, one call."""
    whole = torch.cat([prompt, choice])
    return slow_nats(model, [whole], 99, 99) - slow_nats(model, [prompt], 99, 99)


def test_choices_cost_what_they_do_by_hand():
    """After 3: token 1 has 1/4, token 2 has 1/2; after 1 comes 5 for sure, after 2 with 1/8."""
    model = table_model({3: {1: 0.25, 2: 0.5, 6: 0.25}, 1: {5: 1.0}, 2: {5: 0.125, 6: 0.875}})
    (found,) = choice_scores(model, asked([[3]], [[[1, 5], [2], [2, 5]]]), context_length=4)
    assert [each.score.nats for each in found] == pytest.approx(
        [math.log(4), math.log(2), math.log(16)]
    )
    assert [each.score.tokens for each in found] == [2, 1, 2]
    assert chosen([found]) == [1]  # the short one has no second token to pay for
    per_token = [each.measure("per token") for each in found]
    assert per_token == pytest.approx([-math.log(2), -math.log(2), -math.log(4)])


def test_the_unconditional_prompt_takes_away_what_is_likely_anyway():
    """1 has 1/2 after the prompt and 1/2 without it; 2 has 1/4 with and 1/16 without."""
    model = table_model({3: {1: 0.5, 2: 0.25, 6: 0.25}, 4: {1: 0.5, 2: 1 / 16, 6: 7 / 16}})
    found = choice_scores(
        model, asked([[3]], [[[1], [2]]]), context_length=4, unconditional=tensor([4])
    )
    against = [each.measure("against unconditional") for each in found[0]]
    assert against == pytest.approx([0.0, math.log(4)])
    assert chosen(found) == [0]
    assert chosen(found, "against unconditional") == [1]


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_choices_cost_what_the_definition_says(batch_size):
    items, empty, n_bytes = asked(), tensor([0, 6]), [[5, 3, 2], [11, 13, 7], [17, 4]]
    options = {"context_length": 7, "unconditional": empty, "batch_size": batch_size}
    found = choice_scores(hashing_model, items, n_bytes=n_bytes, **options)
    for (prompt, choices), sizes, of_item in zip(items, n_bytes, found, strict=True):
        for choice, size, each in zip(choices, sizes, of_item, strict=True):
            nats = slow_choice_nats(hashing_model, prompt, choice)
            wanted = {
                "sum": -nats,
                "per token": -nats / len(choice),
                "per byte": -nats / size,
                "against unconditional": slow_choice_nats(hashing_model, empty, choice) - nats,
            }
            assert {by: each.measure(by) for by in MEASURES} == pytest.approx(wanted, abs=1e-9)


def test_choices_with_the_same_inputs_are_read_off_one_pass():
    rows = []

    def counting(ids):
        rows.append(len(ids))
        return uniform_model(ids)

    items = asked([[3, 1]] * 2, [[[1], [2], [5]], [[1, 2], [1, 6]]])
    choice_scores(counting, items, context_length=9)
    assert sum(rows) == 2  # 3 1, and 3 1 1


def test_the_first_of_equal_choices_is_taken_and_what_is_impossible_never():
    model = table_model({3: {1: 0.5, 2: 0.5}})
    items = asked([[3]], [[[6], [2], [1]]])
    found = choice_scores(model, items, context_length=2, unconditional=tensor([3]))
    assert chosen(found) == [1]
    assert found[0][0].score.nats == math.inf
    assert chosen(found, "against unconditional") == [1]


@pytest.mark.parametrize(
    ("prompts", "choices", "options", "message"),
    [
        ([[3]], [[[1]]], {}, "2 choices or more, got 1 in item 0"),
        ([[3]], [[[1], []]], {}, "1 or more tokens.* for a choice of item 0"),
        ([[]], [[[1], [2]]], {}, "for the prompt of item 0, .* begin a text, an empty one too"),
        ([[3, 3, 3]], [[[1], [2, 2]]], {}, "of 3 tokens to hold the prompt of item 0.* 3 and 2"),
        ([[3]], [[[1], [2]]], {"unconditional": tensor([1])[1:]}, "1 or more tokens"),
        ([[3]], [[[1], [2, 2]]], {"unconditional": tensor([3, 3, 3])}, "got 3 and 2"),
        ([[3]], [[[1], [2]]], {"n_bytes": [[1]]}, "zip"),
    ],
)
def test_what_cannot_be_asked_is_refused(prompts, choices, options, message):
    with pytest.raises(ValueError, match=message):
        choice_scores(uniform_model, asked(prompts, choices), **{"context_length": 3} | options)


def test_logits_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="got NaN"):
        choice_scores(lambda ids: uniform_model(ids) * math.nan, asked()[:1], context_length=3)


@pytest.mark.parametrize(
    ("score", "by", "message"),
    [
        (ChoiceScore(Score(1.0, 1)), "mean", "one of"),
        (ChoiceScore(Score(1.0, 1)), "per byte", "pass n_bytes"),
        (ChoiceScore(Score(1.0, 1)), "against unconditional", "with unconditional="),
        (ChoiceScore(Score(1.0, 1), math.inf), "against unconditional", "are possible after the"),
    ],
)
def test_a_measure_that_cannot_be_taken_is_refused(score, by, message):
    with pytest.raises(ValueError, match=message):
        score.measure(by)


# answers


@pytest.mark.parametrize("batch_size", [1, 3])
def test_greedy_answers_are_the_likeliest_tokens_one_by_one(batch_size):
    prompts = [tensor(prompt) for prompt in PROMPTS]
    options = {"context_length": 9, "max_new_tokens": 4, "batch_size": batch_size}
    found = greedy_answers(hashing_model, prompts, **options)
    for prompt, answer in zip(prompts, found, strict=True):
        seen = prompt
        for _ in range(4):
            seen = torch.cat([seen, hashing_model(seen[None])[0, -1:].argmax(-1)])
        assert torch.equal(answer, seen[len(prompt) :])


def test_an_answer_ends_before_the_token_that_ends_it():
    model = table_model({3: {1: 1.0}, 1: {5: 1.0}, 5: {2: 1.0}, 2: {2: 1.0}, 4: {5: 1.0}})
    prompts = [tensor([3]), tensor([3, 3, 4]), tensor([5])]
    found = greedy_answers(model, prompts, context_length=6, max_new_tokens=3, stop=5)
    assert [answer.tolist() for answer in found] == [[1], [], [2, 2, 2]]


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([], {}, "texts of at least one token"),
        ([[]], {}, "1 or more tokens.* for prompt 0"),
        ([[1], [3, 3, 3]], {}, "a context of 3 tokens to hold prompt 1.*, got 3 and 2"),
    ],
)
def test_a_prompt_that_cannot_be_answered_is_refused(prompts, options, message):
    prompts = [tensor(prompt, dtype=torch.long) for prompt in prompts]
    options = {"context_length": 3, "max_new_tokens": 2} | options
    with pytest.raises(ValueError, match=message):
        greedy_answers(uniform_model, prompts, **options)


def test_answers_match_by_their_words_and_not_by_their_dress():
    assert plain("  The\tHALL .") == "the hall"
    answers = ["Hall.", "the barn", "anu  appa vizo"]
    assert exact_match(answers, ["hall", "barn", "anu appa vizo"]) == pytest.approx(2 / 3)
    assert exact_match(["vizo appa anu", ""], ["anu appa vizo", "hall"]) == 0.0


@pytest.mark.parametrize(
    ("answers", "references", "message"),
    [
        (["a"], ["a", "b"], "zip"),
        (["a"], [" . "], "references with a letter or digit"),
    ],
)
def test_answers_that_cannot_be_compared_are_refused(answers, references, message):
    with pytest.raises(ValueError, match=message):
        exact_match(answers, references)
