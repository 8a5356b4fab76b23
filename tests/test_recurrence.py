"""`src.attention.recurrence` against worked numbers, slow loops, and what a language model must not
do.
"""

import math

import pytest
import torch
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


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def ids(generator):
    return torch.randint(V, (B, T), generator=generator)


def window_mlp(generator, **options):
    sizes = {"context_length": K, "embedding_size": C, "hidden_size": HIDDEN}
    return WindowMLP(V, **(sizes | options), generator=generator)


def recurrent(kind, generator, **options):
    sizes = {"embedding_size": C, "hidden_size": HIDDEN, "layers": LAYERS}
    return kind(V, **(sizes | options), generator=generator)


def convolution(generator, **options):
    sizes = {"channels": C, "width": K, "layers": LAYERS}
    return CausalConvolution(V, **(sizes | options), generator=generator)


def with_random_output(model, generator):
    """The model as after some training: at the start its logits are all zero."""
    with torch.no_grad():
        model.output.weight.normal_(generator=generator)
    return model


def models(generator):
    bigram = SoftmaxBigram(V)
    with torch.no_grad():
        bigram.table.normal_(generator=generator)
    others = {
        "window": window_mlp(generator),
        "window with end": window_mlp(generator, end=END),
        "rnn": recurrent(RNN, generator),
        "rnn with end": recurrent(RNN, generator, end=END),
        "lstm": recurrent(LSTM, generator),
        "lstm with end": recurrent(LSTM, generator, end=END),
        "convolution": convolution(generator),
        "convolution with end": convolution(generator, end=END),
    }
    with_output = {name: with_random_output(model, generator) for name, model in others.items()}
    return {"bigram": bigram} | with_output


WITH_END = ["window with end", "rnn with end", "lstm with end", "convolution with end"]
NAMES = ["bigram", *WITH_END, *(name.removesuffix(" with end") for name in WITH_END)]
WITH_STATES = {"rnn", "lstm", "convolution"}
REACH = {"bigram": 1, "window": K, "convolution": LAYERS * (K - 1) + 1}  # of the others: all


# numbers worked by hand


def test_windows_of_a_text_of_three_tokens(generator):
    windows = window_mlp(generator).windows(tensor([[5, 0, 6]]))
    assert windows.tolist() == [[[V, V, 5], [V, 5, 0], [5, 0, 6]]]


def test_what_stands_before_an_end_token_is_padding(generator):
    windows = window_mlp(generator, end=END).windows(tensor([[5, 0, 6, 4, 3, 0, 0]]))
    expected = [[V, V, 5], [V, V, 0], [V, 0, 6], [0, 6, 4], [6, 4, 3], [V, V, 0], [V, V, 0]]
    assert windows.tolist() == [expected]


@pytest.mark.parametrize(
    "build",
    [
        lambda g: SoftmaxBigram(V),
        window_mlp,
        lambda g: recurrent(RNN, g),
        lambda g: recurrent(LSTM, g),
        convolution,
    ],
)
def test_an_untrained_model_is_uniform(build, generator, ids):
    nats, tokens = negative_log_likelihood(build(generator)(ids), ids)
    assert (nats / tokens).item() == pytest.approx(math.log(V))


def test_the_window_mlp_has_as_many_parameters_as_its_equations(generator):
    expected = (V + 1) * C + (K * C + 1) * HIDDEN + (HIDDEN + 1) * V
    assert sum(p.numel() for p in window_mlp(generator).parameters()) == expected


@pytest.mark.parametrize(("kind", "gates"), [(RNN, 1), (LSTM, 4)])
def test_a_recurrent_model_has_as_many_parameters_as_its_equations(generator, kind, gates):
    steps = gates * HIDDEN * ((C + HIDDEN + 2) + (HIDDEN + HIDDEN + 2))  # torch has two biases
    untied = recurrent(kind, generator)
    expected = V * C + steps + (HIDDEN + 1) * V
    assert sum(p.numel() for p in untied.parameters()) == expected
    tied = recurrent(kind, generator, embedding_size=HIDDEN, layers=1, tied=True)
    expected = V * HIDDEN + gates * HIDDEN * (2 * HIDDEN + 2) + V
    assert sum(p.numel() for p in tied.parameters()) == expected


def test_the_convolution_has_as_many_parameters_as_its_equations(generator):
    expected = V * C + LAYERS * (K * C + 1) * C + (C + 1) * V
    assert sum(p.numel() for p in convolution(generator).parameters()) == expected


def test_rnn_step_by_hand():
    one = torch.ones(1, 1)
    hidden = rnn_step(3 * one, one, input_weight=one, hidden_weight=-2 * one, bias=-one[0] / 2)
    assert hidden.item() == pytest.approx(0.4621, abs=1e-4)


def test_a_cell_without_weights_halves_and_shows_half_of_its_tanh():
    zeros = {
        "input_weight": torch.zeros(8, 3),
        "hidden_weight": torch.zeros(8, 2),
        "bias": torch.zeros(8),
    }
    cell = tensor([[4.0, -2.0]])
    hidden, cell = lstm_step(torch.ones(1, 3), (torch.ones(1, 2), cell), **zeros)
    assert cell.tolist() == [[2.0, -1.0]]
    assert torch.allclose(hidden, cell.tanh() / 2)


def test_an_open_forget_gate_and_a_closed_input_gate_keep_the_cell():
    weights = {"input_weight": torch.zeros(8, 3), "hidden_weight": torch.zeros(8, 2)}
    bias = tensor([-50.0, -50, 50, 50, 1, 1, 0, 0])  # i closed, f open
    cell = tensor([[4.0, -2.0]])
    _, after = lstm_step(torch.ones(1, 3), (torch.ones(1, 2), cell), **weights, bias=bias)
    assert torch.equal(after, cell)


def test_a_convolution_of_one_channel_by_hand():
    x, weight = tensor([[1.0], [2.0], [3.0]]), tensor([[[1.0, 10.0]]])
    assert causal_convolution(x, weight, torch.zeros(1)).tolist() == [[10.0], [21.0], [32.0]]


# slow oracles


def torch_loop(model, embedded):
    """The states of a recurrent model, one step of ours at a time, layer after layer."""
    is_lstm = isinstance(model, LSTM)
    for layer in range(model.recurrence.num_layers):
        w, u, b, b2 = (
            getattr(model.recurrence, f"{name}_l{layer}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        weights = {"input_weight": w, "hidden_weight": u, "bias": b + b2}
        hidden = embedded.new_zeros(len(embedded), HIDDEN)
        state, states = (hidden, hidden) if is_lstm else hidden, []
        for x in embedded.unbind(1):
            state = (lstm_step if is_lstm else rnn_step)(x, state, **weights)
            states.append(state[0] if is_lstm else state)
        embedded = torch.stack(states, 1)
    return embedded


def randomised(model, generator):
    """In float64, with biases that are not zero either."""
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator).mul_(0.5)
    return model


@pytest.mark.parametrize("kind", [RNN, LSTM])
def test_the_kernel_takes_the_steps_that_we_wrote(generator, ids, kind):
    model = randomised(recurrent(kind, generator), generator)
    embedded = model.embedding(ids)
    ours, theirs = torch_loop(model, embedded), model.states_from(embedded)
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-10)
    probe = torch.randn(theirs.shape, generator=generator, dtype=torch.float64)
    gradients = [
        torch.autograd.grad((states * probe).sum(), [*model.recurrence.parameters()])
        for states in (
            torch_loop(model, model.embedding(ids)),
            model.states_from(model.embedding(ids)),
        )
    ]
    for mine, other in zip(*gradients, strict=True):
        assert torch.allclose(mine, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("kind", "kernel"), [(RNN, nn.RNN), (LSTM, nn.LSTM)])
def test_a_recurrent_model_is_torchs_with_the_weights_copied(generator, ids, kind, kernel):
    model = randomised(recurrent(kind, generator), generator)
    theirs = kernel(C, HIDDEN, LAYERS, batch_first=True).double()
    theirs.load_state_dict(model.recurrence.state_dict())
    logits = model.output(theirs(model.embedding(ids))[0])
    assert torch.allclose(model(ids), logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in NAMES if name.split()[0] in WITH_STATES])
def test_logits_are_made_from_states_that_the_ids_give(generator, ids, name):
    model = models(generator)[name]
    states = model.states(ids)
    assert states.shape == (B, T, C if name.startswith("convolution") else HIDDEN)
    assert torch.equal(model.unembed(states), model(ids))
    assert torch.equal(model.unembed(states[0, 3]), model.output(states[0, 3]))


@pytest.mark.parametrize("width", [1, 2, K])
def test_a_causal_convolution_is_torchs_of_the_padded_input(generator, width):
    theirs = nn.Conv1d(C, HIDDEN, width).double()
    x = torch.randn(B, T, C, generator=generator, dtype=torch.float64)
    padded = functional.pad(x.transpose(1, 2), (width - 1, 0))
    expected = theirs(padded).transpose(1, 2)
    ours = causal_convolution(x, theirs.weight, theirs.bias)
    assert torch.allclose(ours, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("activation", [torch.relu, functional.gelu])
def test_the_convolution_model_is_its_equation_layer_by_layer(generator, ids, activation):
    model = randomised(convolution(generator, activation=activation), generator)
    u = model.embedding(ids)
    for layer in model.convolutions:
        u = u + causal_convolution(activation(u), layer.weight, layer.bias)
    assert torch.allclose(model(ids), model.output(u), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["rnn", "lstm", "convolution"])
def test_input_gradients_are_the_norms_of_the_jacobian(generator, ids, name):
    model = randomised(models(generator)[name], generator)
    embedded = model.embedding(ids)
    measured = input_gradients(model.states_from, embedded)
    for b in range(B):
        jacobian = torch.autograd.functional.jacobian(
            lambda x: model.states_from(x[None])[0, -1], embedded[b]
        )  # (H, T, C)
        expected = jacobian.square().sum((0, 2)).sqrt()
        assert torch.allclose(measured[b], expected, rtol=0, atol=1e-10)
    assert all(parameter.grad is None for parameter in model.parameters())


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
def test_a_token_changes_the_logits_of_its_reach_and_no_others(generator, ids, name):
    model, reach = models(generator)[name], REACH.get(name.removesuffix(" with end"), T)
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
    model = models(generator)[name]
    texts = [tensor([END, 3, 5, 1]), tensor([END, 2, 4, 6, 6]), tensor([END]), tensor([END, 1])]
    stream = torch.cat(texts)[None]
    alone = torch.cat([model(text[None])[0] for text in texts])
    assert torch.allclose(model(stream)[0], alone, atol=1e-6)
    batch = torch.cat([stream, stream.flip(1)])  # the other row begins in the middle of a text
    assert torch.allclose(model(batch)[0], alone, atol=1e-6)


@pytest.mark.parametrize("name", ["rnn", "lstm", "convolution"])
def test_without_an_end_token_the_state_is_carried_into_the_next_text(generator, name):
    model = models(generator)[name]
    first, second = tensor([END, 3, 5, 1]), tensor([END, 2, 4])
    stream = model(torch.cat([first, second])[None])[0]
    assert not torch.allclose(stream[len(first) :], model(second[None])[0], atol=1e-2)


@pytest.mark.parametrize("name", WITH_END[1:])
def test_a_batch_without_an_end_token_is_scored_as_if_none_were_set(generator, ids, name):
    model, ids = models(generator)[name], ids.clamp(min=1)
    apart = model(ids)
    model.end = None
    assert torch.allclose(model(ids), apart, atol=1e-6)


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


def test_forget_gates_begin_at_one_and_all_other_biases_at_zero(generator):
    biases = {
        name: value
        for name, value in recurrent(LSTM, generator).recurrence.named_parameters()
        if name.startswith("bias")
    }
    assert len(biases) == 2 * LAYERS
    for name, value in biases.items():
        i, f, g, o = value.chunk(4)
        assert (f == ("bias_ih" in name)).all()
        assert not any(gate.any() for gate in (i, g, o))


@pytest.mark.parametrize("kind", [RNN, LSTM])
def test_states_begin_by_being_turned_and_not_shrunk(generator, kind):
    weight = recurrent(kind, generator).recurrence.weight_hh_l1
    for gate in weight.split(HIDDEN):
        assert torch.allclose(gate @ gate.T, torch.eye(HIDDEN), atol=1e-5)


def test_the_states_of_a_deep_convolution_keep_their_size():
    generator = torch.Generator().manual_seed(0)
    model = CausalConvolution(V, channels=64, width=3, layers=20, generator=generator)
    ids = torch.randint(V, (1, 500), generator=generator)
    states = model.states_from(model.embedding(ids))[:, 40:]
    assert 1 < states.square().mean().item() < 4  # e at most in theory, with endless channels


def test_tied_weights_are_one_parameter_and_begin_near_the_uniform_model(generator, ids):
    model = recurrent(LSTM, generator, embedding_size=HIDDEN, tied=True)
    assert model.output.weight is model.embedding.weight
    assert model.output.weight.square().mean().item() == pytest.approx(1 / HIDDEN, rel=0.4)
    nats, tokens = negative_log_likelihood(model(ids), ids)
    assert (nats / tokens).item() == pytest.approx(math.log(V), abs=0.2)


@pytest.mark.parametrize("kind", [RNN, LSTM])
def test_dropout_works_in_training_and_not_in_evaluation(generator, ids, kind):
    model = with_random_output(recurrent(kind, generator, dropout=0.5), generator)
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))


@pytest.mark.parametrize("reader", ["recurrence", "output"])
def test_dropout_comes_before_the_recurrence_and_before_the_output(generator, ids, reader):
    model, seen = recurrent(LSTM, generator, layers=1, dropout=0.5), []
    getattr(model, reader).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(ids)
    assert 0.3 < (seen[0] == 0).float().mean() < 0.7


def test_dropout_comes_between_the_layers_too(generator):
    assert recurrent(LSTM, generator, dropout=0.25).recurrence.dropout == 0.25


def build(seed, name):
    generator = torch.Generator().manual_seed(seed)
    return {
        "window": window_mlp,
        "rnn": lambda g: recurrent(RNN, g),
        "lstm": lambda g: recurrent(LSTM, g),
        "convolution": convolution,
    }[name](generator)


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("window", "hidden.weight"),
        ("rnn", "recurrence.weight_hh_l1"),
        ("lstm", "recurrence.weight_ih_l0"),
        ("convolution", "convolutions.1.weight"),
    ],
)
def test_one_seed_gives_one_model_and_leaves_the_global_generator_alone(name, weight):
    before = torch.get_rng_state()
    states = [build(seed, name).state_dict() for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert not torch.equal(states[0][weight], states[2][weight])


@pytest.mark.parametrize(
    ("name", "zeros"),
    [
        ("window", ["hidden.bias", "output.weight", "output.bias"]),
        ("rnn", [f"recurrence.bias_{k}_l{i}" for i in (0, 1) for k in ("ih", "hh")]),
        ("lstm", [f"recurrence.bias_hh_l{i}" for i in (0, 1)]),
        ("convolution", [f"convolutions.{i}.bias" for i in (0, 1)]),
    ],
)
def test_every_parameter_is_initialised_in_the_open(name, zeros):
    state = build(0, name).state_dict()
    assert all(value.isfinite().all() for value in state.values())
    zero = {key for key, value in state.items() if not value.any()}
    assert zero == {*zeros, "output.weight", "output.bias"}


@pytest.mark.parametrize(
    ("name", "parameter", "variance"),
    [
        ("window", "embedding.weight", 1),
        ("window", "hidden.weight", 2 / (K * C)),
        ("rnn", "embedding.weight", 1),
        ("rnn", "recurrence.weight_ih_l0", 1 / C),
        ("lstm", "recurrence.weight_ih_l1", 1 / HIDDEN),
        ("convolution", "embedding.weight", 1),
        ("convolution", "convolutions.1.weight", 2 / (K * C * LAYERS)),
    ],
)
def test_initial_weights_have_the_variance_that_their_fan_in_asks_for(name, parameter, variance):
    """2 before or after a ReLU, which halves it, else 1; the convolutions share theirs out."""
    numbers = torch.cat([build(seed, name).state_dict()[parameter].flatten() for seed in range(97)])
    n = len(numbers)
    assert abs(float(numbers.mean())) < 5 * math.sqrt(variance / n)
    assert abs(float(numbers.square().mean()) / variance - 1) < 5 * math.sqrt(2 / n)


@pytest.mark.parametrize("kind", [RNN, LSTM])
def test_the_weights_of_each_gate_begin_as_a_rotation_of_the_state(generator, kind):
    weights = dict(recurrent(kind, generator).recurrence.named_parameters())
    for layer in range(LAYERS):
        for gate in weights[f"weight_hh_l{layer}"].detach().split(HIDDEN):
            assert torch.allclose(gate @ gate.T, torch.eye(HIDDEN), atol=1e-5)


def test_a_tied_table_begins_with_the_variance_of_an_output_layer():
    numbers = torch.cat(
        [
            recurrent(RNN, torch.Generator().manual_seed(seed), tied=True, embedding_size=HIDDEN)
            .output.weight.detach()
            .flatten()
            for seed in range(97)
        ]
    )
    square = float(numbers.square().mean())
    assert abs(square * HIDDEN - 1) < 5 * math.sqrt(2 / len(numbers))


# errors


@pytest.mark.parametrize("size", ["context_length", "embedding_size", "hidden_size"])
def test_a_size_of_zero_is_refused(generator, size):
    with pytest.raises(ValueError, match=f"expected {size} to be at least 1, got 0"):
        window_mlp(generator, **{size: 0})


@pytest.mark.parametrize("size", ["embedding_size", "hidden_size", "layers"])
@pytest.mark.parametrize("kind", [RNN, LSTM])
def test_a_recurrent_size_of_zero_is_refused(generator, kind, size):
    with pytest.raises(ValueError, match=f"expected {size} to be at least 1, got 0"):
        recurrent(kind, generator, **{size: 0})


@pytest.mark.parametrize("size", ["channels", "width", "layers"])
def test_a_convolution_of_size_zero_is_refused(generator, size):
    with pytest.raises(ValueError, match=f"expected {size} to be at least 1, got 0"):
        convolution(generator, **{size: 0})


def test_a_vocabulary_of_nothing_is_refused():
    with pytest.raises(ValueError, match="vocabulary_size"):
        SoftmaxBigram(0)


@pytest.mark.parametrize("end", [-1, V])
@pytest.mark.parametrize(
    "build_with",
    [
        window_mlp,
        lambda g, end: recurrent(RNN, g, end=end),
        lambda g, end: recurrent(LSTM, g, end=end),
        convolution,
    ],
)
def test_an_end_token_outside_the_vocabulary_is_refused(generator, build_with, end):
    with pytest.raises(ValueError, match=f"from 0 to {V - 1}.*got {end}"):
        build_with(generator, end=end)


def test_tied_weights_of_two_sizes_are_refused(generator):
    with pytest.raises(ValueError, match=f"embedding_size={C} and hidden_size={HIDDEN}"):
        recurrent(LSTM, generator, tied=True)


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_a_dropout_that_leaves_nothing_is_refused(generator, dropout):
    with pytest.raises(ValueError, match=f"from 0 to below 1, got {dropout}"):
        recurrent(LSTM, generator, dropout=dropout)


def test_input_gradients_refuse_ids_and_states_of_another_length():
    with pytest.raises(
        ValueError, match=rf"expected inputs of shape \(B, T, C\), got \({B}, {T}\)"
    ):
        input_gradients(lambda x: x, torch.zeros(B, T))
    with pytest.raises(ValueError, match=rf"states \(B, T, H\).*got \({B}, {T - 1}, {C}\)"):
        input_gradients(lambda x: x[:, 1:], torch.zeros(B, T, C))


@pytest.mark.parametrize("name", NAMES)
def test_an_id_outside_the_vocabulary_is_refused_the_padding_id_too(generator, name):
    with pytest.raises(ValueError, match=f"got ids from 0 to {V}"):
        models(generator)[name](tensor([[0, V]]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [tensor([1, 2]), tensor([[1.0, 2.0]])])
def test_ids_of_the_wrong_shape_or_type_are_refused(generator, name, bad):
    with pytest.raises(ValueError, match=r"expected ids of shape \(B, T\)"):
        models(generator)[name](bad)
