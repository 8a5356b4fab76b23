"""`src.baselines` against worked numbers, slow loops, and what a language model must not do."""

import math

import pytest
import torch
from torch import tensor
from torch.nn import functional

from src.baselines import SoftmaxBigram, WindowMLP
from src.likelihood import context_window, negative_log_likelihood

B, T, V, K, C, HIDDEN = 2, 11, 7, 3, 5, 13
END = 0


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def ids(generator):
    return torch.randint(V, (B, T), generator=generator)


def window_mlp(generator, **options):
    sizes = {"context_length": K, "embedding_size": C, "hidden_size": HIDDEN}
    return WindowMLP(V, **(sizes | options), generator=generator)


def with_random_output(model, generator):
    """The model as after some training: at the start its logits are all zero."""
    with torch.no_grad():
        model.output.weight.normal_(generator=generator)
    return model


def models(generator):
    bigram = SoftmaxBigram(V)
    with torch.no_grad():
        bigram.table.normal_(generator=generator)
    return {
        "bigram": bigram,
        "window": with_random_output(window_mlp(generator), generator),
        "window with end": with_random_output(window_mlp(generator, end=END), generator),
    }


NAMES = ["bigram", "window", "window with end"]


# numbers worked by hand


def test_windows_of_a_text_of_three_tokens(generator):
    windows = window_mlp(generator).windows(tensor([[5, 0, 6]]))
    assert windows.tolist() == [[[V, V, 5], [V, 5, 0], [5, 0, 6]]]


def test_what_stands_before_an_end_token_is_padding(generator):
    windows = window_mlp(generator, end=END).windows(tensor([[5, 0, 6, 4, 3, 0, 0]]))
    expected = [[V, V, 5], [V, V, 0], [V, 0, 6], [0, 6, 4], [6, 4, 3], [V, V, 0], [V, V, 0]]
    assert windows.tolist() == [expected]


@pytest.mark.parametrize("build", [lambda g: SoftmaxBigram(V), window_mlp])
def test_an_untrained_model_is_uniform(build, generator, ids):
    nats, tokens = negative_log_likelihood(build(generator)(ids), ids)
    assert (nats / tokens).item() == pytest.approx(math.log(V))


def test_the_window_mlp_has_as_many_parameters_as_its_equations(generator):
    expected = (V + 1) * C + (K * C + 1) * HIDDEN + (HIDDEN + 1) * V
    assert sum(p.numel() for p in window_mlp(generator).parameters()) == expected


# slow oracles


def test_the_bigram_is_a_one_hot_vector_times_a_matrix(generator, ids):
    model = models(generator)["bigram"]
    one_hot = functional.one_hot(ids, V).float()
    assert torch.allclose(model(ids), one_hot @ model.table)


@pytest.mark.parametrize("activation", [torch.relu, torch.tanh])
def test_the_window_mlp_is_its_equation_at_each_position(generator, ids, activation):
    model = with_random_output(window_mlp(generator, activation=activation), generator)
    logits = model(ids)
    for b in range(B):
        for t in range(T):
            window = context_window(ids[b].tolist(), t + 1, length=K)
            window = [V] * (K - len(window)) + window
            e = torch.cat([model.embedding.weight[token] for token in window])
            hidden = activation(model.hidden.weight @ e + model.hidden.bias)
            expected = model.output.weight @ hidden + model.output.bias
            assert torch.allclose(logits[b, t], expected, atol=1e-5)


# properties


@pytest.mark.parametrize("name", NAMES)
def test_a_token_changes_the_logits_of_its_windows_and_no_others(generator, ids, name):
    model, reach = models(generator)[name], 1 if name == "bigram" else K
    ids = ids.clamp(min=1)  # no end token: it would shorten the reach
    before = model(ids)
    for t in range(T):
        changed = ids.clone()
        changed[:, t] = ids[:, t] % (V - 1) + 1
        moved = (model(changed) != before).any(-1).all(0)
        assert moved.nonzero().flatten().tolist() == list(range(t, min(t + reach, T)))


def test_a_text_scores_the_same_alone_and_in_a_stream(generator):
    model = models(generator)["window with end"]
    first, second = tensor([END, 3, 5, 1]), tensor([END, 2, 4])
    stream = model(torch.cat([first, second])[None])[0]
    assert torch.allclose(stream[len(first) :], model(second[None])[0], atol=1e-6)


def test_without_an_end_token_windows_reach_into_the_previous_text(generator):
    model = models(generator)["window"]
    first, second = tensor([END, 3, 5, 1]), tensor([END, 2, 4])
    stream = model(torch.cat([first, second])[None])[0]
    assert not torch.allclose(stream[len(first) :], model(second[None])[0], atol=1e-2)


def test_hidden_units_start_with_a_mean_square_of_one_after_relu():
    generator = torch.Generator().manual_seed(0)
    sizes = {"context_length": 8, "embedding_size": 32, "hidden_size": 2_000}
    model = WindowMLP(V, **sizes, generator=generator)
    ids = torch.randint(V, (1, 500), generator=generator)
    hidden = torch.relu(model.hidden(model.embedding(model.windows(ids)).flatten(-2)))
    assert hidden[:, 8:].square().mean().item() == pytest.approx(1.0, abs=0.15)


def test_one_seed_gives_one_model_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    states = [window_mlp(torch.Generator().manual_seed(s)).state_dict() for s in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["hidden.weight"], states[2]["hidden.weight"])


def test_every_parameter_is_initialised_in_the_open():
    state = window_mlp(torch.Generator().manual_seed(0)).state_dict()
    assert all(value.isfinite().all() for value in state.values())
    zero = [name for name, value in state.items() if not value.any()]
    assert zero == ["hidden.bias", "output.weight", "output.bias"]


# errors


@pytest.mark.parametrize("size", ["context_length", "embedding_size", "hidden_size"])
def test_a_size_of_zero_is_refused(generator, size):
    with pytest.raises(ValueError, match=f"expected {size} to be at least 1, got 0"):
        window_mlp(generator, **{size: 0})


def test_a_vocabulary_of_nothing_is_refused():
    with pytest.raises(ValueError, match="vocabulary_size"):
        SoftmaxBigram(0)


@pytest.mark.parametrize("end", [-1, V])
def test_an_end_token_outside_the_vocabulary_is_refused(generator, end):
    with pytest.raises(ValueError, match=f"from 0 to {V - 1}.*got {end}"):
        window_mlp(generator, end=end)


@pytest.mark.parametrize("name", NAMES)
def test_an_id_outside_the_vocabulary_is_refused_the_padding_id_too(generator, name):
    with pytest.raises(ValueError, match=f"got ids from 0 to {V}"):
        models(generator)[name](tensor([[0, V]]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [tensor([1, 2]), tensor([[1.0, 2.0]])])
def test_ids_of_the_wrong_shape_or_type_are_refused(generator, name, bad):
    with pytest.raises(ValueError, match=r"expected ids of shape \(B, T\)"):
        models(generator)[name](bad)
