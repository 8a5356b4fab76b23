"""`src.training` against a loop written out, worked numbers, and what training must not do."""

import math
from itertools import islice

import pytest
import torch
from torch import nn, tensor
from torch.optim import SGD, AdamW

from src import training
from src.baselines import SoftmaxBigram, WindowMLP
from src.likelihood import negative_log_likelihood
from src.training import History, batches, cosine, fit, mean_loss

B, T, V, N = 3, 5, 7, 101


@pytest.fixture
def stream():
    return torch.randint(V, (N,), generator=torch.Generator().manual_seed(0))


def draws(stream, seed=1, batch_size=B):
    generator = torch.Generator().manual_seed(seed)
    return batches(stream, batch_size=batch_size, context_length=T, generator=generator)


def small_model(seed=2):
    generator = torch.Generator().manual_seed(seed)
    sizes = {"context_length": 2, "embedding_size": 3, "hidden_size": 11}
    return WindowMLP(V, **sizes, generator=generator)


def train(model, data, **options):
    defaults = {"steps": 10, "learning_rate": 0.01, "progress": False}
    return fit(model, data, **(defaults | options))


def same_parameters(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# batches


def test_targets_are_the_inputs_one_token_later_and_both_stand_in_the_stream():
    stream = torch.arange(N)
    inputs, targets = next(draws(stream))
    assert inputs.shape == targets.shape == (B, T)
    assert torch.equal(targets, inputs + 1)
    assert (inputs[:, 1:] == inputs[:, :-1] + 1).all()


def test_every_place_of_the_stream_can_begin_a_piece_and_none_beyond():
    stream = torch.arange(T + 3)
    firsts = torch.cat([x[:, 0] for x, _ in islice(draws(stream), 200)])
    assert sorted(set(firsts.tolist())) == [0, 1, 2]


def test_a_stream_of_one_piece_gives_that_piece():
    inputs, targets = next(draws(torch.arange(T + 1)))
    assert inputs.tolist() == [[0, 1, 2, 3, 4]] * B
    assert targets.tolist() == [[1, 2, 3, 4, 5]] * B


def test_one_seed_gives_the_same_batches_and_another_seed_others(stream):
    first, again, other = (next(draws(stream, seed))[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_each_draw_differs_from_the_one_before(stream):
    first, second = islice(draws(stream), 2)
    assert not torch.equal(first[0], second[0])


@pytest.mark.parametrize("length", [0, 1, T])
def test_a_stream_too_short_is_refused_before_the_first_batch(length):
    with pytest.raises(ValueError, match=f"at least {T + 1} tokens"):
        draws(torch.zeros(length, dtype=torch.long))


def test_a_stream_in_rows_is_refused(stream):
    with pytest.raises(ValueError, match=r"shape \(1, 101\)"):
        draws(stream[None])


@pytest.mark.parametrize("sizes", [(0, T), (B, 0)])
def test_empty_batches_are_refused(stream, sizes):
    with pytest.raises(ValueError, match="at least one piece"):
        batches(stream, batch_size=sizes[0], context_length=sizes[1], generator=torch.Generator())


# the loop


def test_one_step_of_gradient_descent_by_hand():
    """Two tokens, uniform: p - y = (-1/2, 1/2), so at rate 1 the row becomes (1/2, -1/2)."""
    model = SoftmaxBigram(2)
    history = train(
        model, [(tensor([[0]]), tensor([[0]]))], steps=1, learning_rate=1.0, optimiser=SGD
    )
    assert model.table.tolist() == [[0.5, -0.5], [0.0, 0.0]]
    assert history.losses == pytest.approx([math.log(2)])


def hand_loop(model, data, *, steps, learning_rate, weight_decay, clip):
    """AdamW from its formula, one parameter after the other (Loshchilov and Hutter 2019)."""
    parameters, losses = list(model.parameters()), []
    first = [torch.zeros_like(p) for p in parameters]
    second = [torch.zeros_like(p) for p in parameters]
    for step, (inputs, targets) in enumerate(islice(data, steps), start=1):
        nats, tokens = negative_log_likelihood(model(inputs), targets)
        gradients = torch.autograd.grad(nats / tokens, parameters)
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        losses.append((nats / tokens).item())
        for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
            g = g * min(1.0, clip / norm)
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g * g)
            change = (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
            p.data = p.data * (1 - learning_rate * weight_decay) - learning_rate * change
    return losses


def test_fit_equals_the_loop_written_out(stream):
    settings = {"steps": 30, "learning_rate": 0.02, "weight_decay": 0.3, "clip": 0.4}
    ours, theirs = small_model().double(), small_model().double()
    history = train(ours, draws(stream), **settings)
    losses = hand_loop(theirs, draws(stream), **settings)
    assert history.losses == pytest.approx(losses, rel=1e-6)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_one_seed_gives_one_result(stream):
    one, again, other = small_model(), small_model(), small_model()
    histories = [train(model, draws(stream, s)) for model, s in ((one, 1), (again, 1), (other, 3))]
    assert histories[0] == histories[1] != histories[2]
    assert same_parameters(one, again)
    assert not same_parameters(one, other)


def test_full_batch_descent_on_a_table_ends_at_the_relative_frequencies(stream):
    model = SoftmaxBigram(V)
    everything = [(stream[None, :-1], stream[None, 1:])]
    train(model, everything, steps=2_000, learning_rate=5.0, clip=None, optimiser=SGD)
    counts = torch.zeros(V, V).index_put_(
        (stream[:-1], stream[1:]), torch.ones(N - 1), accumulate=True
    )
    fitted = torch.softmax(model.table.detach(), -1)
    assert torch.allclose(fitted, counts / counts.sum(1, keepdim=True), atol=0.01)


def test_a_list_of_batches_is_gone_through_again_in_order(stream):
    two = list(islice(draws(stream), 2))
    listed, spelled = small_model(), small_model()
    train(listed, two, steps=5)
    train(spelled, [two[0], two[1], two[0], two[1], two[0]], steps=5)
    assert same_parameters(listed, spelled)


def test_padding_behind_the_mask_does_not_change_the_result(stream):
    (inputs, targets) = next(draws(stream))
    mask = torch.ones_like(inputs, dtype=torch.bool)
    mask[1, 3:] = False
    garbled = torch.where(mask, targets, (targets + 1) % V)
    one, other, unmasked = small_model(), small_model(), small_model()
    losses = train(one, [(inputs, targets, mask)]).losses
    assert losses == train(other, [(inputs, garbled, mask)]).losses
    assert same_parameters(one, other)
    assert losses != train(unmasked, [(inputs, targets)]).losses


class Steep(nn.Module):
    """A model whose gradient has a known direction and any length."""

    def __init__(self, slope):
        super().__init__()
        self.slope, self.weight = slope, nn.Parameter(tensor([0.0, 0.0]))

    def forward(self, ids):
        return (self.slope * self.weight).expand(*ids.shape, 2)


@pytest.mark.parametrize(
    ("slope", "clip", "length"),
    [(100.0, 1.0, 1.0), (100.0, 0.25, 0.25), (0.1, 1.0, None), (100.0, None, None)],
)
def test_clipping_shortens_a_long_gradient_and_leaves_a_short_one(slope, clip, length):
    model, data = Steep(slope), [(tensor([[0]]), tensor([[0]]))]
    train(model, data, steps=1, learning_rate=1.0, optimiser=SGD, clip=clip)
    unclipped = slope * math.sqrt(2) / 2  # |p - y| is the root of 1/2
    assert float(model.weight.detach().norm()) == pytest.approx(length or unclipped, rel=1e-4)
    assert float(model.weight.detach().sum()) == pytest.approx(0.0, abs=1e-5)  # same direction


def test_weight_decay_shrinks_what_has_no_gradient():
    model = SoftmaxBigram(3)
    nn.init.ones_(model.table)
    data = [(tensor([[0]]), tensor([[0]]))]
    train(model, data, steps=1, learning_rate=0.1, weight_decay=0.5)
    assert model.table[1:].flatten().tolist() == pytest.approx([0.95] * 6)


def test_frozen_parameters_stay(stream):
    model = small_model()
    model.embedding.requires_grad_(False)
    before = model.embedding.weight.clone()
    hidden = model.hidden.weight.clone()
    train(model, draws(stream), weight_decay=0.5)
    assert torch.equal(model.embedding.weight, before)
    assert not torch.equal(model.hidden.weight, hidden)


def test_the_progress_bar_changes_nothing(stream):
    with_bar, without = small_model(), small_model()
    assert train(with_bar, draws(stream), progress=True) == train(without, draws(stream))
    assert same_parameters(with_bar, without)


# validation


def held_out(stream):
    return list(islice(draws(stream, seed=7, batch_size=2), 3))


def test_validation_comes_before_the_first_step_then_every_so_often_and_at_the_end(stream):
    history = train(small_model(), draws(stream), validation=held_out(stream), steps=7, every=3)
    assert list(history.validation) == [0, 3, 6, 7]
    assert history.validation[0] == pytest.approx(math.log(V))
    assert len(history.losses) == 7


def test_validation_does_not_train(stream):
    watched, alone = small_model(), small_model()
    train(watched, draws(stream), validation=held_out(stream), every=1)
    train(alone, draws(stream))
    assert same_parameters(watched, alone)


def memorise(keep_best):
    """Train on one piece until the loss on others, drawn from noise, turns up."""
    generator = torch.Generator().manual_seed(4)
    noise = torch.randint(V, (N,), generator=generator)
    piece, others = [next(draws(noise, batch_size=1))], held_out(noise)
    model = small_model()
    history = train(
        model, piece, steps=100, validation=others, every=5, keep_best=keep_best, learning_rate=0.05
    )
    return history, mean_loss(model, others)


def test_the_best_parameters_are_restored_on_request():
    history, loss = memorise(keep_best=True)
    assert loss == history.validation[history.best_step] == min(history.validation.values())
    assert loss < history.validation[100] - 0.5


def test_without_the_request_the_last_parameters_stay():
    history, loss = memorise(keep_best=False)
    assert loss == history.validation[100] > min(history.validation.values())


def test_of_two_equally_good_steps_the_first_is_the_best():
    assert History(validation={0: 3.0, 5: 2.0, 10: 2.0}).best_step == 5


def test_mean_loss_divides_once():
    """One token at log 2 nats and three at log 4: 7 log 2 in all, over 4 tokens."""
    model = SoftmaxBigram(4)
    with torch.no_grad():
        model.table[0] = tensor([0.0, 0.0, -math.inf, -math.inf])
    short = tensor([[0]]), tensor([[1]])
    long = tensor([[1, 2, 3]]), tensor([[0, 1, 2]])
    assert mean_loss(model, [short, long]) == pytest.approx(7 * math.log(2) / 4)


def test_mean_loss_keeps_no_graph_for_gradients(stream):
    model, modes = SoftmaxBigram(V), []
    model.register_forward_hook(lambda *_: modes.append(torch.is_grad_enabled()))
    mean_loss(model, held_out(stream))
    assert modes == [False] * 3


@pytest.mark.parametrize("training_mode", [True, False])
def test_mean_loss_switches_dropout_off_and_restores_the_mode(stream, training_mode):
    model = nn.Sequential(SoftmaxBigram(V), nn.Dropout(0.5)).train(training_mode)
    nn.init.normal_(model[0].table, generator=torch.Generator().manual_seed(0))
    assert mean_loss(model, held_out(stream)) == mean_loss(model[0], held_out(stream))
    assert model.training == training_mode


def test_training_itself_has_dropout_on(stream):
    model = nn.Sequential(SoftmaxBigram(V), nn.Dropout(1.0)).eval()
    nn.init.normal_(model[0].table, generator=torch.Generator().manual_seed(0))
    losses = train(model, draws(stream), validation=held_out(stream), every=1, steps=3).losses
    assert losses == pytest.approx([math.log(V)] * 3)  # every logit dropped


# errors


def test_a_loss_that_is_not_finite_stops_the_run_at_its_step(stream):
    model = small_model()
    poison = [*islice(draws(stream), 4)]

    class Breaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.calls = model, 0

        def forward(self, ids):
            self.calls += 1
            return self.inner(ids) * (math.nan if self.calls == 3 else 1.0)

    with pytest.raises(FloatingPointError, match=r"at step 3 \(learning rate 0.01\).*clip=1.0"):
        train(Breaks(), poison)
    assert all(p.isfinite().all() for p in model.parameters())  # the bad step was not taken


def test_an_infinite_gradient_under_a_finite_loss_stops_the_run():
    class RootAtZero(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(2))

        def forward(self, ids):
            return self.weight.sqrt().expand(*ids.shape, 2)

    with pytest.raises(FloatingPointError, match=r"norm (inf|nan) at step 1 \("):
        train(RootAtZero(), [(tensor([[0]]), tensor([[0]]))])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -1}, "steps=-1"),
        ({"every": 0}, "every=0"),
        ({"learning_rate": -0.1}, "learning_rate=-0.1"),
        ({"learning_rate": math.nan}, "learning_rate=nan"),
        ({"clip": 0.0}, "clip=0.0"),
        ({"keep_best": True}, "validation batches"),
        ({"validation": iter([])}, "used up"),
    ],
)
def test_a_bad_setting_is_refused(stream, options, message):
    with pytest.raises(ValueError, match=message):
        train(small_model(), draws(stream), **options)


def test_data_that_run_out_are_named(stream):
    with pytest.raises(ValueError, match="got only 4 in all"):
        train(small_model(), islice(draws(stream), 4))


def test_no_data_and_no_validation_batches_are_refused(stream):
    with pytest.raises(ValueError, match="got only 0"):
        train(small_model(), [])
    with pytest.raises(ValueError, match="at least one batch"):
        train(small_model(), draws(stream), validation=[])


def test_a_history_without_validation_has_no_best_step():
    with pytest.raises(ValueError, match="pass validation"):
        _ = History().best_step


def test_the_optimiser_is_adamw_unless_told_otherwise(stream):
    told, untold = small_model(), small_model()
    train(told, draws(stream), optimiser=AdamW)
    train(untold, draws(stream))
    assert same_parameters(told, untold)
    assert training.AdamW is AdamW


# several inputs and a schedule


def test_a_model_of_several_inputs_gets_them_all_on_its_device(stream):
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.models = nn.ModuleList([small_model(2), small_model(3)])

        def forward(self, one, other):
            return self.models[0](one) + self.models[1](other)

    model = Sum()
    inputs, targets = next(draws(stream))
    history = train(model, [((inputs, inputs.flip(0)), targets)], steps=1)
    nats, tokens = negative_log_likelihood(Sum()(inputs, inputs.flip(0)), targets)
    assert history.losses[0] == pytest.approx(float(nats.detach() / tokens))
    assert mean_loss(model, [((inputs, inputs.flip(0)), targets)]) < history.losses[0]


def test_a_schedule_scales_the_learning_rate_of_each_step(stream):
    seen = []

    class Spy(SGD):
        def step(self):
            seen.append(self.param_groups[0]["lr"])
            super().step()

    train(small_model(), draws(stream), steps=4, optimiser=Spy, schedule=cosine(4), learning_rate=2)
    root_half = math.sqrt(0.5)
    assert seen == pytest.approx([1 + root_half, 1, 1 - root_half, 0])


def test_a_warm_up_rises_in_equal_steps_and_is_never_zero():
    factors = [cosine(10, warm_up=4, end=0.1)(step) for step in range(1, 11)]
    assert factors[:4] == pytest.approx([0.25, 0.5, 0.75, 1])
    assert factors[3:] == sorted(factors[3:], reverse=True)
    assert factors[-1] == pytest.approx(0.1)
    assert factors[6] == pytest.approx(0.55)  # halfway down


def test_a_schedule_that_only_rises_is_refused():
    with pytest.raises(ValueError, match="shorter than the 5 steps, got 5"):
        cosine(5, warm_up=5)
