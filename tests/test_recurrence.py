"""`src.attention.recurrence` against worked numbers, slow loops, and what a language model must not
do.
"""

import itertools
import math

import pytest
import torch
from oracles import gradients, greatest_difference
from torch import nn, tensor
from torch.nn import functional

from src.attention.recurrence import (
    LSTM,
    RNN,
    CausalConvolution,
    causal_convolution,
    input_gradients,
    lstm_step,
    rnn_step,
)
from src.likelihood.maximum_likelihood import negative_log_likelihood
from src.likelihood.neural import SoftmaxBigram, WindowMLP
from src.likelihood.text_probability import context_window

B, T, V, K, C, HIDDEN = 2, 11, 7, 3, 5, 13
LAYERS = 2
END = 0
STACK = {"embedding_size": C, "hidden_size": HIDDEN, "layers": LAYERS}
KINDS = {
    "bigram": (SoftmaxBigram, {}),
    "window": (WindowMLP, {"context_length": K, "embedding_size": C, "hidden_size": HIDDEN}),
    "rnn": (RNN, STACK),
    "lstm": (LSTM, STACK),
    "convolution": (CausalConvolution, {"channels": C, "width": K, "layers": LAYERS}),
}
WITH_STATES = ["rnn", "lstm", "convolution"]
WITH_OUTPUT = ["window", *WITH_STATES]
WITH_END = [f"{name} with end" for name in WITH_OUTPUT]
NAMES = [*KINDS, *WITH_END]
REACH = {"bigram": 1, "window": K, "convolution": LAYERS * (K - 1) + 1}  # of the others: all
EXACT = 1e-10  # float64


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def ids(generator):
    return torch.randint(V, (B, T), generator=generator)


def build(name, generator, **options):
    kind, sizes = KINDS[name.removesuffix(" with end")]
    options |= {"end": END} if name in WITH_END else {}
    options |= {} if name == "bigram" else {"generator": generator}
    return kind(V, **(sizes | options))


def trained(name, generator, **options):
    """The model as after some training: at the start its logits are all zero."""
    model = build(name, generator, **options)
    with torch.no_grad():
        (model.table if name == "bigram" else model.output.weight).normal_(generator=generator)
    return model


def randomised(name, generator, **options):
    """In float64, with biases that are not zero either."""
    model = build(name, generator, **options).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator).mul_(0.5)
    return model


# numbers worked by hand


def test_windows_of_a_text_of_three_tokens(generator):
    windows = build("window", generator).windows(tensor([[5, 0, 6]]))
    assert windows.tolist() == [[[V, V, 5], [V, 5, 0], [5, 0, 6]]]


def test_what_stands_before_an_end_token_is_padding(generator):
    windows = build("window with end", generator).windows(tensor([[5, 0, 6, 4, 3, 0, 0]]))
    expected = [[V, V, 5], [V, V, 0], [V, 0, 6], [0, 6, 4], [6, 4, 3], [V, V, 0], [V, V, 0]]
    assert windows.tolist() == [expected]


@pytest.mark.parametrize("name", KINDS)
def test_an_untrained_model_is_uniform(name, generator, ids):
    nats, tokens = negative_log_likelihood(build(name, generator)(ids), ids)
    assert (nats / tokens).item() == pytest.approx(math.log(V))


TIED = {"embedding_size": HIDDEN, "layers": 1, "tied": True}
GATE = HIDDEN * ((C + HIDDEN + 2) + (HIDDEN + HIDDEN + 2))  # torch has two biases


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("window", {}, (V + 1) * C + (K * C + 1) * HIDDEN + (HIDDEN + 1) * V),
        ("rnn", {}, V * C + GATE + (HIDDEN + 1) * V),
        ("lstm", {}, V * C + 4 * GATE + (HIDDEN + 1) * V),
        ("rnn", TIED, V * HIDDEN + HIDDEN * (2 * HIDDEN + 2) + V),
        ("convolution", {}, V * C + LAYERS * (K * C + 1) * C + (C + 1) * V),
    ],
)
def test_a_model_has_as_many_parameters_as_its_equations(generator, name, options, expected):
    assert sum(p.numel() for p in build(name, generator, **options).parameters()) == expected


def test_rnn_step_by_hand():
    one = torch.ones(1, 1)
    hidden = rnn_step(3 * one, one, input_weight=one, hidden_weight=-2 * one, bias=-one[0] / 2)
    assert hidden.item() == pytest.approx(0.4621, abs=1e-4)


@pytest.mark.parametrize(
    ("bias", "after"),
    [
        ([0.0] * 8, [2.0, -1.0]),  # gates half open, nothing taken in
        ([-50.0, -50, 50, 50, 1, 1, 0, 0], [4.0, -2.0]),  # i closed, f open
    ],
)
def test_a_cell_keeps_what_its_forget_gate_says_and_shows_half_of_its_tanh(bias, after):
    weights = {"input_weight": torch.zeros(8, 3), "hidden_weight": torch.zeros(8, 2)}
    state = torch.ones(1, 2), tensor([[4.0, -2.0]])
    hidden, cell = lstm_step(torch.ones(1, 3), state, **weights, bias=tensor(bias))
    assert cell.tolist() == [after]
    assert torch.allclose(hidden, cell.tanh() / 2)


def test_a_convolution_of_one_channel_by_hand():
    x, weight = tensor([[1.0], [2.0], [3.0]]), tensor([[[1.0, 10.0]]])
    assert causal_convolution(x, weight, torch.zeros(1)).tolist() == [[10.0], [21.0], [32.0]]


# slow oracles


def states_by_steps(model, embedded):
    """The states of a recurrent model, one step of ours at a time, layer after layer."""
    is_lstm = isinstance(model, LSTM)
    for w, u, b, b2 in model.recurrence.all_weights:
        weights = {"input_weight": w, "hidden_weight": u, "bias": b + b2}
        hidden = embedded.new_zeros(len(embedded), HIDDEN)
        state, states = (hidden, hidden) if is_lstm else hidden, []
        for x in embedded.unbind(1):
            state = (lstm_step if is_lstm else rnn_step)(x, state, **weights)
            states.append(state[0] if is_lstm else state)
        embedded = torch.stack(states, 1)
    return embedded


@pytest.mark.parametrize("name", ["rnn", "lstm"])
def test_the_kernel_takes_the_steps_that_we_wrote(generator, ids, name):
    model = randomised(name, generator)
    ours, theirs = states_by_steps(model, model.embedding(ids)), model.states(ids)
    assert greatest_difference(ours, theirs) < EXACT
    weights = [*model.recurrence.parameters()]
    for mine, other in zip(gradients(ours, *weights), gradients(theirs, *weights), strict=True):
        assert greatest_difference(mine, other) < EXACT


@pytest.mark.parametrize("name", [name for name in NAMES if name.split()[0] in WITH_STATES])
def test_logits_are_made_from_states_that_the_ids_give(generator, ids, name):
    model = trained(name, generator)
    states = model.states(ids)
    assert states.shape == (B, T, C if name.startswith("convolution") else HIDDEN)
    assert torch.equal(model.unembed(states), model(ids))
    assert torch.equal(model.unembed(states[0, 3]), model.output(states[0, 3]))


@pytest.mark.parametrize("width", [1, K])
def test_a_causal_convolution_is_torchs_of_the_padded_input(generator, width):
    theirs = nn.Conv1d(C, HIDDEN, width).double()
    x = torch.randn(B, T, C, generator=generator, dtype=torch.float64)
    padded = functional.pad(x.transpose(1, 2), (width - 1, 0))
    ours = causal_convolution(x, theirs.weight, theirs.bias)
    assert greatest_difference(ours, theirs(padded).transpose(1, 2)) < EXACT


@pytest.mark.parametrize("activation", [torch.relu, functional.gelu])
def test_the_convolution_model_is_its_equation_layer_by_layer(generator, ids, activation):
    model = randomised("convolution", generator, activation=activation)
    u = model.embedding(ids)
    for layer in model.convolutions:
        u = u + causal_convolution(activation(u), layer.weight, layer.bias)
    assert greatest_difference(model(ids), model.output(u)) < EXACT


@pytest.mark.parametrize("name", WITH_STATES)
def test_input_gradients_are_the_norms_of_the_jacobian(generator, ids, name):
    model = randomised(name, generator)
    embedded = model.embedding(ids)
    measured = input_gradients(model.states_from, embedded)
    for b in range(B):
        jacobian = torch.autograd.functional.jacobian(
            lambda x: model.states_from(x[None])[0, -1], embedded[b]
        )  # (H, T, C)
        assert greatest_difference(measured[b], jacobian.square().sum((0, 2)).sqrt()) < EXACT
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("activation", [torch.relu, torch.tanh])
def test_the_window_mlp_is_its_equation_at_each_position(generator, ids, activation):
    model = trained("window", generator, activation=activation)
    logits = model(ids)
    for b, t in itertools.product(range(B), range(T)):
        window = context_window(ids[b].tolist(), t + 1, length=K)
        window = [V] * (K - len(window)) + window
        e = torch.cat([model.embedding.weight[token] for token in window])
        hidden = activation(model.hidden.weight @ e + model.hidden.bias)
        expected = model.output.weight @ hidden + model.output.bias
        assert torch.allclose(logits[b, t], expected, atol=1e-5)


# properties


@pytest.mark.parametrize("name", NAMES)
def test_a_token_changes_the_logits_of_its_reach_and_no_others(generator, ids, name):
    model, reach = trained(name, generator), REACH.get(name.removesuffix(" with end"), T)
    if name == "convolution":  # so that no ReLU hides a token
        model.activation = torch.tanh
    ids = ids.clamp(min=1)  # no end token: it would shorten the reach
    before = model(ids)
    for t in range(T):
        changed = ids.clone()
        changed[:, t] = ids[:, t] % (V - 1) + 1
        moved = (model(changed) != before).any(-1).any(0)
        assert moved.nonzero().flatten().tolist() == list(range(t, min(t + reach, T)))


@pytest.mark.parametrize("name", WITH_END)
def test_a_text_scores_the_same_alone_and_in_a_stream(generator, name):
    model = trained(name, generator)
    texts = [tensor([END, 3, 5, 1]), tensor([END, 2, 4, 6, 6]), tensor([END]), tensor([END, 1])]
    stream = torch.cat(texts)[None]
    alone = torch.cat([model(text[None])[0] for text in texts])
    assert torch.allclose(model(stream)[0], alone, atol=1e-6)
    batch = torch.cat([stream, stream.flip(1)])  # the other row begins in the middle of a text
    assert torch.allclose(model(batch)[0], alone, atol=1e-6)


@pytest.mark.parametrize("name", WITH_OUTPUT)
def test_without_an_end_token_what_was_read_is_carried_into_the_next_text(generator, name):
    model = trained(name, generator)
    first, second = tensor([END, 3, 5, 1]), tensor([END, 2, 4])
    stream = model(torch.cat([first, second])[None])[0]
    assert not torch.allclose(stream[len(first) :], model(second[None])[0], atol=1e-2)


@pytest.mark.parametrize("name", WITH_END[1:])
def test_a_batch_without_an_end_token_is_scored_as_if_none_were_set(generator, ids, name):
    model, ids = trained(name, generator), ids.clamp(min=1)
    apart = model(ids)
    model.end = None
    assert torch.allclose(model(ids), apart, atol=1e-6)


def test_forget_gates_begin_at_one_and_all_other_biases_at_zero(generator):
    for _, _, first, second in build("lstm", generator).recurrence.all_weights:
        assert first.tolist() == [0] * HIDDEN + [1] * HIDDEN + [0] * 2 * HIDDEN  # i, f, g, o
        assert not second.any()


@pytest.mark.parametrize("name", ["rnn", "lstm"])
def test_dropout_works_in_training_and_not_in_evaluation(generator, ids, name):
    model = trained(name, generator, dropout=0.5)
    assert model.recurrence.dropout == 0.5  # between the layers
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))


@pytest.mark.parametrize("reader", ["recurrence", "output"])
def test_dropout_comes_before_the_recurrence_and_before_the_output(generator, ids, reader):
    model, seen = build("lstm", generator, layers=1, dropout=0.5), []
    getattr(model, reader).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(ids)
    assert 0.3 < (seen[0] == 0).float().mean() < 0.7


def state_of(name, seed, **options):
    return build(name, torch.Generator().manual_seed(seed), **options).state_dict()


@pytest.mark.parametrize("name", WITH_OUTPUT)
def test_one_seed_gives_one_model_and_leaves_the_global_generator_alone(name):
    before = torch.get_rng_state()
    one, same, other = (state_of(name, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[key], same[key]) for key in one)
    drawn = {key for key in one if "weight" in key} - {"output.weight"}
    assert {key for key in one if not torch.equal(one[key], other[key])} == drawn


@pytest.mark.parametrize("name", WITH_OUTPUT)
def test_every_parameter_is_initialised_in_the_open(name):
    state = state_of(name, 0)
    assert all(value.isfinite().all() for value in state.values())
    forget = {key for key in state if "bias_ih" in key} if name == "lstm" else set()
    zeros = {key for key in state if "bias" in key} - forget | {"output.weight"}
    assert {key for key, value in state.items() if not value.any()} == zeros


@pytest.mark.parametrize(
    ("name", "options", "parameter", "variance"),
    [
        ("window", {}, "embedding.weight", 1),
        ("window", {}, "hidden.weight", 2 / (K * C)),
        ("rnn", {}, "embedding.weight", 1),
        ("rnn", {}, "recurrence.weight_ih_l0", 1 / C),
        ("rnn", TIED, "output.weight", 1 / HIDDEN),
        ("lstm", {}, "recurrence.weight_ih_l1", 1 / HIDDEN),
        ("convolution", {}, "embedding.weight", 1),
        ("convolution", {}, "convolutions.1.weight", 2 / (K * C * LAYERS)),
    ],
)
def test_initial_weights_have_the_variance_that_their_fan_in_asks_for(
    name, options, parameter, variance
):
    """2 before or after a ReLU, which halves it, else 1; the convolutions share theirs out."""
    states = [state_of(name, seed, **options) for seed in range(97)]
    numbers = torch.cat([state[parameter].flatten() for state in states])
    n = len(numbers)
    assert abs(float(numbers.mean())) < 5 * math.sqrt(variance / n)
    assert abs(float(numbers.square().mean()) / variance - 1) < 5 * math.sqrt(2 / n)


@pytest.mark.parametrize("name", ["rnn", "lstm"])
def test_the_weights_of_each_gate_begin_as_a_rotation_of_the_state(generator, name):
    for _, weight, _, _ in build(name, generator).recurrence.all_weights:
        for gate in weight.detach().split(HIDDEN):
            assert torch.allclose(gate @ gate.T, torch.eye(HIDDEN), atol=1e-5)


def test_tied_weights_are_one_parameter_and_begin_near_the_uniform_model(generator, ids):
    model = build("lstm", generator, **TIED)
    assert model.output.weight is model.embedding.weight
    nats, tokens = negative_log_likelihood(model(ids), ids)
    assert (nats / tokens).item() == pytest.approx(math.log(V), abs=0.2)


# errors

BAD = [
    *((name, {"end": end}) for name in WITH_OUTPUT for end in (-1, V)),
    ("lstm", {"dropout": 1.5}),
    ("lstm", {"tied": True}),
]
MESSAGES = {
    "end": f"from 0 to {V - 1}.*got {{}}",
    "dropout": r"range \[0, 1\]",
    "tied": f"equal sizes, to be tied, got .*{C}.*{HIDDEN}",
}


@pytest.mark.parametrize(("name", "options"), BAD)
def test_an_option_that_makes_no_model_is_refused(generator, name, options):
    ((option, value),) = options.items()
    with pytest.raises(ValueError, match=MESSAGES[option].format(value)):
        build(name, generator, **options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (tensor([[0, V]]), f"got ids from 0 to {V}"),  # the padding's id, too
        (tensor([1, 2]), r"expected ids of shape \(B, T\)"),
        (tensor([[1.0, 2.0]]), r"expected ids of shape \(B, T\)"),
    ],
)
def test_ids_of_another_vocabulary_shape_or_type_are_refused(generator, name, bad, message):
    with pytest.raises(ValueError, match=message):
        trained(name, generator)(bad)
