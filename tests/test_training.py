"""`src.gpt.training` against a loop written out, worked numbers, and what training must not do."""

import ast
import inspect
import json
import math
import os
import random
import re
import shutil
import signal
import tomllib
from contextlib import suppress
from dataclasses import FrozenInstanceError
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
import torch
import training_runs
from fork_server import ForkServer
from torch import nn, tensor
from torch.nn import functional
from torch.optim import SGD, AdamW

from src.gpt import training
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.optimisation import cosine, linear_decay, parameter_groups
from src.gpt.training import TrainConfig, load_best
from src.likelihood import fitting
from src.likelihood.batches import Batches
from src.likelihood.fitting import History, fit, mean_loss
from src.likelihood.maximum_likelihood import negative_log_likelihood
from src.likelihood.neural import SoftmaxBigram, WindowMLP
from src.tools import checkpoints
from src.tools.runtime import seed_everything

B, T, V, N = 3, 5, 7, 101


@pytest.fixture
def stream():
    return torch.randint(V, (N,), generator=torch.Generator().manual_seed(0))


def draws(stream, seed=1, batch_size=B):
    return iter(Batches(stream, batch_size=batch_size, context_length=T, seed=seed))


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
        Batches(stream, batch_size=sizes[0], context_length=sizes[1])


# the loop


def test_the_hook_sees_the_model_after_each_step_and_before_the_first(stream):
    model, seen = small_model(), []
    start = [p.clone() for p in model.parameters()]

    def look(step, trained):
        seen.append((step, [p.clone() for p in trained.parameters()]))

    train(model, draws(stream), steps=3, after=look)
    assert [step for step, _ in seen] == [0, 1, 2, 3]
    assert all(map(torch.equal, seen[0][1], start))
    assert not all(map(torch.equal, seen[1][1], start))
    assert all(map(torch.equal, seen[3][1], model.parameters()))


def test_the_hook_may_stop_a_run_and_leave_the_model_as_it_is_then(stream):
    model, batch = small_model(), next(draws(stream))

    def stop(step, model):
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(model, [batch], validation=[batch], every=1, keep_best=True, after=stop)
    twice = small_model()
    train(twice, [batch], steps=2)
    assert same_parameters(model, twice)


def test_a_hook_that_only_looks_changes_nothing(tmp_path):
    plain, watched = (
        interrupted(tmp_path / name, None, after=after)
        for name, after in (("plain", None), ("watched", lambda step, model: model.eval()))
    )
    assert plain[0] == watched[0]
    assert same_parameters(plain[1], watched[1])


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


def squared_distance_to_one(model, batch):
    return (model(batch[0]) - 1).square().sum()


def test_another_loss_is_a_sum_over_the_batch_divided_by_its_targets(stream):
    model, (inputs, targets) = small_model(), next(draws(stream))
    data = [(inputs, targets)]
    expected = (model(inputs) - 1).square().sum().item() / (B * T)
    assert mean_loss(model, data, nats_of=squared_distance_to_one) == pytest.approx(expected)
    options = {"nats_of": squared_distance_to_one, "validation": data, "learning_rate": 0.1}
    history = train(model, data, **options)
    assert history.losses[0] == history.validation[0] == pytest.approx(expected)
    last = mean_loss(model, data, nats_of=squared_distance_to_one)
    assert last == history.validation[10] < expected / 2


def test_what_needs_no_gradient_is_not_trained_and_does_not_decay(stream):
    model = small_model()
    model.embedding.weight.requires_grad_(False)
    before = [parameter.clone() for parameter in model.parameters()]
    train(model, draws(stream), weight_decay=0.5)
    same = [torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert same == [not parameter.requires_grad for parameter in model.parameters()]


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


def test_a_linear_decay_rises_to_one_and_falls_in_equal_steps():
    """With 4 steps, 0.8 0.6 0.4 0.2; two more that rise come before the top."""
    assert [linear_decay(4)(step) for step in range(1, 5)] == pytest.approx([0.8, 0.6, 0.4, 0.2])
    factors = [linear_decay(6, warm_up=2)(step) for step in range(1, 7)]
    assert factors == pytest.approx([0.5, 1, 0.8, 0.6, 0.4, 0.2])
    with pytest.raises(ValueError, match="shorter than the 5 steps, got 5"):
        linear_decay(5, warm_up=5)


def test_a_warm_up_rises_in_equal_steps_and_is_never_zero():
    factors = [cosine(10, warm_up=4, end=0.1)(step) for step in range(1, 11)]
    assert factors[:4] == pytest.approx([0.25, 0.5, 0.75, 1])
    assert factors[3:] == sorted(factors[3:], reverse=True)
    assert factors[-1] == pytest.approx(0.1)
    assert factors[6] == pytest.approx(0.55)  # halfway down


@pytest.mark.parametrize(
    ("made", "steps", "last"),
    [(cosine(4), 4, 0), (cosine(9, warm_up=3, end=0.2), 9, 0.2), (linear_decay(5), 5, 1 / 6)],
)
def test_a_schedule_never_turns_back_after_its_last_step(made, steps, last):
    """Whoever takes more steps than planned goes on slowly: not fast again, and not backwards."""
    assert [made(step) for step in range(steps, 3 * steps)] == pytest.approx([last] * 2 * steps)


@pytest.mark.parametrize("made", [cosine, linear_decay])
def test_step_zero_has_a_factor_too(made):
    assert made(4)(0) == 1
    assert made(4, warm_up=2)(0) == 0


def test_a_schedule_that_only_rises_is_refused():
    with pytest.raises(ValueError, match="shorter than the 5 steps, got 5"):
        cosine(5, warm_up=5)


# numbered batches


def test_a_numbered_batch_is_a_function_of_seed_and_number():
    data, again = training_runs.numbered(), training_runs.numbered()
    late = data[5][0]
    assert torch.equal(again[0][0], data[0][0])  # whatever was asked for before
    assert torch.equal(again[5][0], late)
    assert not torch.equal(data[6][0], late)
    assert not torch.equal(training_runs.numbered(seed=7)[5][0], late)
    assert not torch.equal(training_runs.numbered(seed=2)[4][0], late)  # not of their sum


def test_numbered_batches_are_pieces_of_the_stream_and_reach_all_of_it():
    data = Batches(torch.arange(T + 3), batch_size=B, context_length=T)
    inputs, targets = data[0]
    assert inputs.shape == targets.shape == (B, T)
    assert torch.equal(targets, inputs + 1)
    assert {int(row[0]) for n in range(50) for row in data[n][0]} == {0, 1, 2}


def test_pieces_begin_where_a_document_does_if_they_are_to():
    stream = torch.tensor([0, 5, 6, 0, 7, 8, 9, 0, 4, 0, 3])
    drawn = Batches(stream, batch_size=50, context_length=3, seed=1, first=0)[2]
    assert {tuple(row) for row in drawn[0].tolist()} == {(0, 5, 6), (0, 7, 8), (0, 4, 0)}
    assert {tuple(row) for row in drawn[1].tolist()} == {(5, 6, 0), (7, 8, 9), (4, 0, 3)}
    with pytest.raises(ValueError, match="begins with token 3, found none"):
        Batches(stream, batch_size=5, context_length=3, first=3)


def test_numbered_batches_serve_fit_and_never_end(stream):
    data = Batches(stream, batch_size=B, context_length=T, seed=9)
    assert all(torch.equal(a[0], data[n][0]) for n, a in enumerate(islice(data, 4)))
    assert len(train(small_model(), data, steps=7).losses) == 7


def test_numbered_batches_refuse_what_cannot_be(stream):
    with pytest.raises(ValueError, match="at least 6 tokens"):
        Batches(stream[:T], batch_size=B, context_length=T)
    with pytest.raises(ValueError, match="seed of 0 or more, got -1"):
        Batches(stream, batch_size=B, context_length=T, seed=-1)
    with pytest.raises(IndexError, match="got -1"):
        training_runs.numbered()[-1]


# long runs: the same loop


def long_run(model, data=None, folder=None, **options):
    own = ("validation", "resume", "changed", "after", "progress")
    rest = {name: options.pop(name) for name in own if name in options}
    config = TrainConfig(**({"steps": 12, "learning_rate": 0.01, "every": 4} | options))
    data = training_runs.numbered() if data is None else data
    return training.train(model, data, config, folder=folder, **({"progress": False} | rest))


def test_train_is_fit_with_numbered_batches(stream):
    """Of two groups of parameters the norm is summed in another order: equal but for rounding."""
    model, other = (
        nn.Sequential(nn.Embedding(V, 3), nn.Linear(3, V, bias=False)).double() for _ in "ab"
    )
    other.load_state_dict(model.state_dict())
    data = Batches(stream, batch_size=B, context_length=T)
    rule = partial(AdamW, betas=(0.9, 0.99), fused=True)
    schedule = cosine(20, warm_up=3, end=0.2)
    settings = {"steps": 20, "learning_rate": 0.02, "clip": 0.3}
    fitted = train(
        model, data, schedule=schedule, optimiser=rule, validation=[data[30]], every=6, **settings
    )
    options = {"warm_up": 3, "end": 0.2, "weight_decay": 0.0, "beta2": 0.99, "every": 6}
    history = long_run(other, data, validation=[data[30]], **settings, **options)
    assert history.losses == pytest.approx(fitted.losses, rel=1e-12)
    assert history.norms == pytest.approx(fitted.norms, rel=1e-12)
    assert history.validation == pytest.approx(fitted.validation, rel=1e-12)
    assert list(history.validation) == list(fitted.validation)


def test_matrices_are_decayed_and_gains_biases_embeddings_and_positions_are_not():
    model = GPT(
        GPTConfig(11, context_length=5, layers=1, heads=2, channels=6, tied=False),
        generator=torch.Generator().manual_seed(0),
    )
    names = {id(p): name for name, p in model.named_parameters()}
    decayed, others = parameter_groups(model, weight_decay=0.3)
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    assert [names[id(p)] for p in decayed["params"]] == [
        "decoder.blocks.0.attention.qkv.weight",
        "decoder.blocks.0.attention.output.weight",
        "decoder.blocks.0.feed_forward.expand.weight",
        "decoder.blocks.0.feed_forward.contract.weight",
        "unembedding.weight",
    ]
    assert len(decayed["params"]) + len(others["params"]) == len(names)


def test_a_table_tied_to_the_unembedding_is_not_decayed():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.output, self.embedding = nn.Linear(3, V, bias=False), nn.Embedding(V, 3)
            self.embedding.weight = self.output.weight

    (others,) = parameter_groups(Tied(), weight_decay=0.3)
    assert others["weight_decay"] == 0.0
    assert len(others["params"]) == 1


def test_the_schedule_and_the_groups_reach_the_optimiser(monkeypatch):
    rates = []
    step = AdamW.step
    monkeypatch.setattr(
        AdamW,
        "step",
        lambda self, *a: rates.append([g["lr"] for g in self.param_groups]) or step(self, *a),
    )
    long_run(training_runs.small_gpt(), steps=4, warm_up=2, end=0.5, learning_rate=0.2)
    assert rates == [[pytest.approx(r)] * 2 for r in (0.1, 0.2, 0.15, 0.1)]


def gradients(data, parts=1):
    model = training_runs.small_gpt().double()
    for part in fitting._split(data, parts):
        (fitting.nats_of_batch(model, part) / fitting.count_tokens(data)).backward()
    return [p.grad for p in model.parameters()]


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_accumulated_gradients_are_those_of_one_big_batch_ragged_rows_included(parts):
    (data, *_) = training_runs.ragged(rows=7)
    whole, added = gradients(data), gradients(data, parts)
    for one, other in zip(whole, added, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-14)


def test_a_mean_of_means_would_be_another_gradient():
    (data, *_) = training_runs.ragged(rows=7)
    whole = gradients(data)
    model = training_runs.small_gpt().double()
    for part in fitting._split(data, 2):
        (fitting.nats_of_batch(model, part) / fitting.count_tokens(part) / 2).backward()
    wrong = [p.grad for p in model.parameters()]
    assert not all(torch.allclose(a, b, rtol=1e-3) for a, b in zip(whole, wrong, strict=True))


@pytest.mark.parametrize("accumulation", [2, 7])
def test_a_run_in_parts_is_the_run_in_one(accumulation):
    one, other = (training_runs.small_gpt().double() for _ in "ab")
    whole = long_run(one, training_runs.ragged())
    parts = long_run(other, training_runs.ragged(), accumulation=accumulation)
    assert parts.losses == pytest.approx(whole.losses, rel=1e-12)
    assert parts.norms == pytest.approx(whole.norms, rel=1e-9)


def test_a_batch_of_several_inputs_is_taken_in_parts():
    inputs = torch.arange(10).reshape(5, 2)
    parts = fitting._split(((inputs, inputs + 1), inputs + 2, inputs > 3), 3)
    assert [part[0][1].tolist() for part in parts] == [
        [[1, 2], [3, 4]],
        [[5, 6], [7, 8]],
        [[9, 10]],
    ]
    assert [len(part) for part in parts] == [3, 3, 3]
    assert torch.equal(torch.cat([part[2] for part in parts]), inputs > 3)


def test_more_parts_than_rows_are_refused():
    with pytest.raises(ValueError, match=r"at least 5 rows.*got 4"):
        long_run(training_runs.small_gpt(), accumulation=5)


def test_the_norm_is_written_down_before_it_is_clipped():
    free = long_run(training_runs.small_gpt(), steps=1, clip=math.inf)
    clipped = long_run(training_runs.small_gpt(), steps=1, clip=1e-3)
    assert clipped.norms == free.norms
    assert free.norms[0] > 0.1


def test_bfloat16_is_close_to_float32_and_keeps_the_parameters_in_32_bits():
    one, other = training_runs.small_gpt(), training_runs.small_gpt()
    exact, short = long_run(one, steps=30), long_run(other, steps=30, precision="bfloat16")
    assert short.losses != exact.losses
    assert short.losses == pytest.approx(exact.losses, abs=0.05)
    assert {p.dtype for p in other.parameters()} == {torch.float32}


def test_logits_of_16_bits_are_summed_in_32():
    model = nn.Embedding(V, V).bfloat16()
    nats = fitting.nats_of_batch(model, (tensor([[0, 1]]), tensor([[2, 3]])))
    assert nats.dtype == torch.float32


def test_bfloat16_uses_the_parameters_of_this_step_and_not_those_of_the_first():
    """Autocast keeps its 16-bit copies of the parameters until one leaves it."""
    losses = long_run(
        training_runs.small_gpt(), [training_runs.numbered()[0]], steps=60, precision="bfloat16"
    ).losses
    assert losses[-1] < losses[0] - 1


@pytest.mark.parametrize("index", [0, 1])
def test_the_loss_that_is_compiled_is_the_loss(index):
    data = training_runs.ragged()[index]
    data = data if index else data[:2]
    model = training_runs.small_gpt().double()
    ours, fused = fitting.nats_of_batch(model, data), fitting.fused_nats_of_batch(model, data)
    assert torch.allclose(ours, fused, rtol=1e-12)


def test_compile_makes_one_graph_of_model_and_loss_for_all_steps(monkeypatch):
    """torch's own compiler front end, without the minute that its code generator takes."""
    graphs = []

    def run_as_it_is(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()  # what other tests have compiled
    monkeypatch.setattr(
        torch, "compile", partial(torch.compile, backend=run_as_it_is, fullgraph=True)
    )
    history = long_run(training_runs.small_gpt(), compile=True)
    (graph,) = graphs  # no break in it, and no second one for a later step
    called = {node.target for node in graph.graph.nodes}
    assert {functional.cross_entropy, functional.embedding} <= called
    assert history.losses == pytest.approx(long_run(training_runs.small_gpt()).losses, rel=1e-4)


@pytest.mark.skipif(
    not (shutil.which("c++") or os.environ.get("CI")), reason="torch.compile needs a C++ compiler"
)
def test_a_run_that_is_really_compiled_is_the_run(tmp_path, monkeypatch):
    """With torch's code generator, into a cache of its own: half a minute."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    history = long_run(training_runs.small_gpt(), compile=True)
    assert list(tmp_path.rglob("*.so"))  # machine code
    plain = long_run(training_runs.small_gpt())
    assert history.losses == pytest.approx(plain.losses, rel=1e-5)
    assert plain.losses[0] - plain.losses[-1] > 0.05


def test_the_loop_is_short_and_flat():
    """One loop for all that trains: at most 40 lines, and nothing in it is nested four deep."""
    (loop,) = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(fitting.take_steps)))
        if isinstance(node, ast.For) and ast.unparse(node.iter) == "steps"
    ]
    assert loop.end_lineno - loop.lineno < 40

    def depth(node):
        inside = max((depth(child) for child in ast.iter_child_nodes(node)), default=0)
        return inside + isinstance(node, ast.For | ast.If | ast.While | ast.Try | ast.With)

    assert depth(loop) <= 3
    called = [
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in sorted(
            (node for node in ast.walk(loop) if isinstance(node, ast.Call)),
            key=lambda node: (node.lineno, node.col_offset),
        )
    ]
    order = ["supply", "zero_grad", "backward", "clip_grad_norm_", "step", "validate", "keep"]
    assert [name for name in called if name in order] == order


def test_the_bar_says_loss_and_speed(monkeypatch):
    said = []

    def bar(items, description, *, status):
        for item in items:
            yield item
            said.append(status())

    monkeypatch.setattr(fitting, "progress_bar", bar)
    history = long_run(training_runs.small_gpt(), steps=2, progress=True)
    assert said[0] == ""
    assert re.fullmatch(rf"loss {history.losses[-1]:.3f}, [\d,]+ tokens/s", said[-1])


# checkpoints of a run


def same_run(folder, other):
    """Whether two runs ended in the same bits: parameters, optimiser, history, generators."""
    one, two = (checkpoints.read(Path(f) / "last.pt") for f in (folder, other))
    best, best_two = (checkpoints.read(Path(f) / "best.pt") for f in (folder, other))
    return equal(one, two) and equal(best, best_two)


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def interrupted(folder, stop, **options):
    """A run that stops after so many steps; None: at its end."""
    torch.manual_seed(5)
    data = Batches(training_runs.stream(), batch_size=4, context_length=T, seed=1)
    model = training_runs.small_gpt(dropout=0.2)
    validation = training_runs.held_out()

    def after(step, model):
        if step == stop:
            raise KeyboardInterrupt

    options = {"save_every": 3, "validation": validation, "after": after} | options
    return long_run(model, data, folder, **options), model


@pytest.mark.parametrize("stop", [0, 1, 3, 4, 11])
def test_a_resumed_run_ends_in_the_bits_of_one_that_was_not_interrupted(tmp_path, stop):
    history, model = interrupted(tmp_path / "whole", None)
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "parts", stop)
    torch.manual_seed(99)  # the generators come from the checkpoint
    again, resumed = interrupted(tmp_path / "parts", None, resume=True)
    assert again == history
    assert same_parameters(model, resumed)
    assert same_run(tmp_path / "whole", tmp_path / "parts")


def test_a_finished_run_is_read_and_not_repeated(tmp_path):
    history, model = interrupted(tmp_path, None)
    again, other = interrupted(tmp_path, 0, resume=True)
    assert again == history
    assert same_parameters(model, other)


def test_resuming_where_nothing_is_begins(tmp_path):
    history, _ = interrupted(tmp_path, None, resume=True)
    assert len(history.losses) == 12


def test_a_run_is_not_overwritten_unasked(tmp_path):
    interrupted(tmp_path, None)
    with pytest.raises(FileExistsError, match="resume=True"):
        interrupted(tmp_path, None)


def test_the_best_weights_are_those_of_the_least_validation_loss(tmp_path):
    data, others = [training_runs.numbered()[0]], training_runs.held_out()
    model = training_runs.small_gpt()
    options = {"learning_rate": 0.1, "steps": 60, "every": 5, "save_every": 60}
    history = long_run(model, data, tmp_path, validation=others, **options)
    last = mean_loss(model, others)
    assert load_best(model, tmp_path) == history.best_step < 60
    assert mean_loss(model, others) == history.validation[history.best_step] < last - 0.5


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"learning_rate": 0.02}, "learning_rate = 0.02, saved with 0.01"),
        ({"steps": 13}, "steps = 13, saved with 12"),
        ({"weight_decay": 0.2}, "weight_decay = 0.2"),
        ({"seed": 8}, "data.seed = 8, saved with 1"),
        ({"stream": 1}, "data.checksum"),
        ({"dropout": 0.3}, "model.dropout = 0.3, saved with 0.2"),
        ({"dtype": torch.float64}, "parameters.dtype = 'torch.float64'"),
    ],
)
def test_resuming_with_something_changed_names_it(tmp_path, change, named):
    interrupted(tmp_path, None)
    before = (tmp_path / "last.pt").read_bytes()
    model = training_runs.small_gpt(change.pop("dropout", 0.2))
    model = model.to(change.pop("dtype", torch.float32))
    ids = training_runs.stream(change.pop("stream", 0))
    data = Batches(ids, batch_size=4, context_length=T, seed=change.pop("seed", 1))
    with pytest.raises(ValueError, match=re.escape(named)):
        long_run(model, data, tmp_path, resume=True, **({"save_every": 3} | change))
    assert (tmp_path / "last.pt").read_bytes() == before


CHANGES = {"steps": 20, "precision": "bfloat16", "accumulation": 2, "every": 3, "save_every": 5}


def test_a_run_may_go_on_for_longer_in_another_precision_and_says_so(tmp_path):
    interrupted(tmp_path, None)
    told, losses = [], checkpoints.read(tmp_path / "last.pt")["history"]["losses"]
    data = Batches(training_runs.stream(), batch_size=3, context_length=T, seed=1)
    options = CHANGES | {"folder": tmp_path, "resume": True, "changed": told.append}
    config = {k: options.pop(k) for k in CHANGES}
    settings = TrainConfig(learning_rate=0.01, **config)
    model = training_runs.small_gpt(0.2)
    history = training.train(model, data, settings, progress=False, **options)
    assert history.losses[:12] == losses
    assert len(history.losses) == 20
    assert [line.split(" = ")[0] for line in told] == sorted({"data.batch_size", *CHANGES})
    assert "steps = 20 after step 12, 12 before: the learning rate follows" in told[-1]
    assert checkpoints.read(tmp_path / "last.pt")["settings"]["steps"] == 20


def test_a_run_that_goes_on_for_longer_takes_the_steps_of_a_loop_that_does(tmp_path):
    """As if the run had stopped at step 12 of a schedule of 20, all but the rates before that."""
    interrupted(tmp_path / "short", None)
    model, other = training_runs.small_gpt(0.2), training_runs.small_gpt(0.2)
    state = checkpoints.read(tmp_path / "short" / "last.pt")
    state["settings"]["steps"] = 20  # what a run of 20 steps would have written
    checkpoints.write(tmp_path / "long" / "last.pt", state)
    settings = {"steps": 20, "save_every": 3, "resume": True}
    data = Batches(training_runs.stream(), batch_size=4, context_length=T, seed=1)
    longer = long_run(model, data, tmp_path / "short", changed=lambda _: None, **settings)
    assert longer == long_run(other, data, tmp_path / "long", **settings)
    assert same_parameters(model, other)


def test_what_may_not_change_is_refused_even_so_and_fewer_steps_than_done(tmp_path):
    interrupted(tmp_path, None)
    data = Batches(training_runs.stream(), batch_size=4, context_length=T, seed=1)
    options = {"resume": True, "changed": print, "save_every": 3}
    with pytest.raises(ValueError, match=r"learning_rate = 0\.02, saved with 0\.01"):
        long_run(training_runs.small_gpt(0.2), data, tmp_path, learning_rate=0.02, **options)
    with pytest.raises(ValueError, match="steps of at least 12"):
        long_run(training_runs.small_gpt(0.2), data, tmp_path, steps=11, **options)


def test_another_number_of_threads_is_named_unless_the_run_did_not_say(tmp_path, monkeypatch):
    interrupted(tmp_path, None)
    data = Batches(training_runs.stream(), batch_size=4, context_length=T, seed=1)
    options, told = {"resume": True, "steps": 20, "save_every": 3}, []
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads + 1)
    with pytest.raises(ValueError, match=f"threads = {threads + 1}, saved with {threads}"):
        long_run(training_runs.small_gpt(0.2), data, tmp_path, **options | {"steps": 12})
    long_run(training_runs.small_gpt(0.2), data, tmp_path, changed=told.append, **options)
    assert any(f"threads = {threads + 1} after step 12" in line for line in told)
    state = checkpoints.read(tmp_path / "last.pt")
    del state["settings"]["threads"]  # as version 0.1.0 wrote
    checkpoints.write(tmp_path / "last.pt", state)
    long_run(training_runs.small_gpt(0.2), data, tmp_path, **options)


def test_another_model_is_refused_on_resuming(stream, tmp_path):
    data = [next(draws(stream))]
    long_run(small_model(), data, tmp_path)
    with pytest.raises(ValueError, match="is it another model"):
        long_run(SoftmaxBigram(V), data, tmp_path, resume=True)


def test_weights_under_the_name_of_a_run_are_refused(tmp_path):
    interrupted(tmp_path, None)
    (tmp_path / "best.pt").rename(tmp_path / "last.pt")
    with pytest.raises(ValueError, match="another file renamed"):
        interrupted(tmp_path, None, resume=True)


def test_a_run_that_diverges_names_step_and_checkpoint(tmp_path):
    def poison(step, model):
        if step == 7:
            next(model.parameters()).data.fill_(math.nan)

    model = training_runs.small_gpt()
    data = Batches(training_runs.stream(), batch_size=4, context_length=T, seed=1)
    with pytest.raises(FloatingPointError, match=r"at step 8 .*last\.pt, after 6 steps"):
        long_run(model, data, tmp_path, save_every=3, after=poison)
    assert checkpoints.read(tmp_path / "last.pt")["step"] == 6
    with pytest.raises(FloatingPointError, match="no checkpoint"):
        long_run(model, data)


def test_broken_parameters_are_not_saved(tmp_path):
    """A step can overflow though its gradient did not, and only the next loss would show it."""
    options = {"learning_rate": 3e38, "weight_decay": 9.0, "steps": 1, "end": 1.0}
    with pytest.raises(FloatingPointError, match=r"finite parameters after step 1.*after 0 steps"):
        long_run(training_runs.small_gpt(), folder=tmp_path, **options)
    assert checkpoints.read(tmp_path / "last.pt")["step"] == 0


# settings


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"steps": 0}, ValueError, "steps 1 or more, got 0"),
        ({"steps": 5.0}, TypeError, "steps of type int, got 5.0"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate above 0"),
        ({"learning_rate": math.nan}, ValueError, "learning_rate above 0"),
        ({"learning_rate": "fast"}, TypeError, "learning_rate of type float, got 'fast'"),
        ({"warm_up": 10}, ValueError, "warm_up from 0 to 9, below steps, got 10"),
        ({"end": 1.5}, ValueError, "end from 0 to 1"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay 0 or more"),
        ({"beta2": 1.0}, ValueError, "beta2 from 0 to below 1"),
        ({"clip": 0.0}, ValueError, r"clip above 0 \(inf: no clipping\)"),
        ({"accumulation": 0}, ValueError, "accumulation 1 or more"),
        ({"accumulation": True}, TypeError, "accumulation of type int, got True"),
        ({"precision": "float16"}, ValueError, "one of .'float32', 'bfloat16'.*got 'float16'"),
        ({"save_every": 0}, ValueError, "save_every 1 or more"),
    ],
)
def test_a_setting_out_of_range_is_named(change, error, message):
    with pytest.raises(error, match=message):
        TrainConfig(**({"steps": 10, "learning_rate": 1e-3} | change))


def test_settings_come_from_a_toml_file():
    text = "steps = 10\nlearning_rate = 1\nclip = inf\nprecision = 'bfloat16'"
    config = TrainConfig(**tomllib.loads(text))
    assert (config.steps, config.clip, config.precision) == (10, math.inf, "bfloat16")
    with pytest.raises(FrozenInstanceError):
        config.steps = 3


def test_data_that_cannot_be_asked_by_number_are_refused(stream):
    with pytest.raises(TypeError, match="by number, got map"):
        long_run(small_model(), draws(stream))
    with pytest.raises(ValueError, match="empty list"):
        long_run(small_model(), [])
    with pytest.raises(ValueError, match="used up"):
        long_run(small_model(), validation=iter([]))


# processes: killed, and together


@pytest.fixture(scope="module")
def server():
    server = ForkServer("training_runs")
    yield server
    server.close()


@pytest.fixture(scope="module")
def undisturbed(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert server.call("train_and_be_killed", folder=str(folder), steps=STEPS) == [0]
    return folder


STEPS = 150
KILLED = -signal.SIGKILL


@pytest.mark.weekly
def test_a_run_killed_twenty_times_inside_saving_ends_in_the_same_bits(
    server, undisturbed, tmp_path
):
    chance, kills = random.Random(0), []
    for n in range(20):
        kills.append((training_runs.KILLS[n % len(training_runs.KILLS)], chance.randint(1, 9)))
        codes = server.call(
            "train_and_be_killed", folder=str(tmp_path), steps=STEPS, kill=kills[-1]
        )
        assert codes == [KILLED], kills
    done = checkpoints.read(tmp_path / "last.pt")["step"]
    assert 20 < done < STEPS
    assert server.call("train_and_be_killed", folder=str(tmp_path), steps=STEPS) == [0]
    assert same_run(tmp_path, undisturbed)


@pytest.mark.weekly
def test_a_run_killed_twenty_times_at_random_moments_ends_in_the_same_bits(
    server, undisturbed, tmp_path
):
    chance, kills, run = random.Random(1), 0, 0
    while kills < 20:
        folder = str(tmp_path / str(run))
        codes = server.call(
            "train_and_be_killed", folder=folder, steps=STEPS, kill_after=0.2 * chance.random()
        )
        kills += codes == [KILLED]
        if codes == [0]:
            assert same_run(folder, undisturbed)
            run += 1
    assert server.call("train_and_be_killed", folder=folder, steps=STEPS) == [0]
    assert same_run(folder, undisturbed)


def together(server, folder, processes, name="losses", **options):
    folder.mkdir(exist_ok=True)
    result = folder / name
    arguments = {"folder": str(folder), "result": str(result), "processes": processes}
    codes = server.call("train_together", children=processes, **arguments, **options)
    assert codes == [0] * processes
    return [json.loads(Path(f"{result}-{rank}.json").read_text()) for rank in range(processes)]


def test_two_processes_give_the_losses_of_one(server, tmp_path):
    (alone,) = together(server, tmp_path / "one", 1)
    first, second = together(server, tmp_path / "two", 2)
    assert first == second  # parameters too
    assert len(first["losses"]) == 50
    assert first["losses"] == pytest.approx(alone["losses"], abs=1e-5)
    assert list(first["validation"]) == ["0", "10", "20", "30", "40", "50"]
    assert [*first["validation"].values()] == pytest.approx(
        [*alone["validation"].values()], abs=1e-5
    )
    assert sum(alone["losses"][-5:]) < sum(alone["losses"][:5]) - 0.5  # something was learnt


def test_two_processes_drop_other_units_and_resume_to_the_bit(server, tmp_path):
    whole, _ = together(server, tmp_path / "whole", 2, dropout=0.3, rows=8)
    parts = tmp_path / "parts"
    parts.mkdir()
    with suppress(AssertionError):
        together(server, parts, 2, dropout=0.3, rows=8, stop_at=23)
    assert not (parts / "losses-0.json").exists()
    assert checkpoints.read(parts / "run" / "last.pt")["step"] == 20
    resumed, _ = together(server, parts, 2, dropout=0.3, rows=8)
    assert resumed == whole
    states = checkpoints.read(parts / "run" / "last.pt")["random"]
    assert len(states) == 2
    assert not torch.equal(states[0]["torch"], states[1]["torch"])


def test_a_run_of_two_processes_is_not_resumed_by_one(server, tmp_path):
    together(server, tmp_path, 2)
    model = training_runs.small_gpt()
    with pytest.raises(ValueError, match="processes = 1, saved with 2"):
        training.train(
            model,
            training_runs.ragged(),
            TrainConfig(50, 0.01, warm_up=5, clip=0.5, every=10, save_every=10, accumulation=2),
            folder=tmp_path / "run",
            resume=True,
            progress=False,
        )


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_engines_give_the_losses_of_one_process(server, tmp_path, engine):
    (alone,) = together(server, tmp_path / "one", 1, rows=8)
    first, second = together(server, tmp_path / engine, 2, rows=8, engine=engine)
    assert first["losses"] == second["losses"] == pytest.approx(alone["losses"], abs=1e-5)
    for found in (first, second):
        assert [*found["validation"].values()] == pytest.approx(
            [*alone["validation"].values()], abs=1e-5
        )


def test_ddp_sends_with_the_last_part_of_a_batch_only(server, tmp_path):
    """Were it to send with each, or with none, the processes' parameters would differ."""
    (alone,) = together(server, tmp_path / "one", 1, rows=12, parts=3)
    first, second = together(server, tmp_path / "ddp", 2, rows=12, parts=3, engine="ddp")
    assert first["weights"] == second["weights"]
    assert first["losses"] == pytest.approx(alone["losses"], abs=1e-5)
    assert first["sent"] == second["sent"] == 50


def test_a_run_goes_on_with_other_engines_and_numbers_of_processes(server, tmp_path):
    """One process, two that share out the model, four that add up, and one again."""
    (alone,) = together(server, tmp_path / "alone", 1, rows=8)
    ways = ((1, "sum", 13), (2, "fsdp", 25), (4, "ddp", 36), (1, "sum", None))
    for processes, engine, stop in ways:
        with suppress(AssertionError):  # it is stopped
            found = None
            found = together(
                server,
                tmp_path / "moved",
                processes,
                rows=8,
                engine=engine,
                stop_at=stop,
                free=True,
            )
    assert found[0]["losses"] == pytest.approx(alone["losses"], abs=1e-5)
    rounding = "sums are taken in another order"
    assert found[0]["notes"] == [
        f"engine = 'sum' after step 30, 'ddp' before: {rounding}, which changes the last bits",
        f"processes = 1 after step 30, 4 before: {rounding}, and other units are dropped",
    ]


def test_folders_that_processes_do_not_share_end_the_run_in_all_of_them(server, tmp_path):
    for answer in together(server, tmp_path, 3, apart=True):  # and none waits for another
        assert "is not seen by [1, 2]: several machines need a shared" in answer["error"]
    assert list(tmp_path.glob("run-*/*")) == []


def test_shares_of_some_processes_are_read_by_any_number_of_others(server, tmp_path):
    (alone,) = together(server, tmp_path / "alone", 1, rows=8)
    run, ways = tmp_path / "moved" / "run", ((2, "fsdp", 26), (4, "fsdp", 37), (1, "sum", None))
    for processes, engine, stop in ways:
        with suppress(AssertionError):  # it is stopped
            found = None
            options = {"engine": engine, "stop_at": stop, "free": True, "sharded": True}
            found = together(server, tmp_path / "moved", processes, rows=8, **options)
        state = checkpoints.read(run / "last.pt")
        assert state["model"] == {}
        assert len(state["random"]) in (processes, max(1, processes // 2))
        shares = run / state["shares"]
        assert len(list(shares.glob("*.distcp"))) == len(state["random"])
    assert [path.name for path in run.glob("step-*")] == ["step-00000050"]
    assert found[0]["losses"] == pytest.approx(alone["losses"], abs=1e-5)
    assert [*found[0]["validation"].values()] == pytest.approx(
        [*alone["validation"].values()], abs=1e-5
    )


@pytest.mark.parametrize("stop", [0, 3, 11])
def test_a_run_that_writes_while_it_trains_ends_in_the_bits_of_one_that_waits(tmp_path, stop):
    def interrupt(step, model):
        if step == stop:
            raise KeyboardInterrupt

    models, options = [], {"save_every": 3, "validation": training_runs.held_out()}
    for name, more in (
        ("whole", {}),
        ("cut", {"sharded": True, "after": interrupt}),
        ("cut", {"sharded": True, "resume": True}),
    ):
        seed_everything(5)
        models.append(training_runs.small_gpt(0.2))
        with suppress(KeyboardInterrupt):
            history = long_run(models[-1], None, tmp_path / name, **options, **more)
            if name == "whole":
                whole = history
    assert history == whole
    assert same_parameters(models[0], models[2])
    assert not same_parameters(models[0], models[1])


def test_shares_that_are_gone_are_named(tmp_path):
    long_run(training_runs.small_gpt(), None, tmp_path, sharded=True)
    (shares,) = tmp_path.glob("step-*")
    (shares / ".metadata").unlink()
    with pytest.raises(ValueError, match=f"expected in {shares} the shares of a checkpoint"):
        long_run(training_runs.small_gpt(), None, tmp_path, sharded=True, resume=True)


@pytest.mark.weekly
@pytest.mark.parametrize(("engine", "sharded"), [("sum", False), ("fsdp", True)])
def test_one_of_four_processes_is_killed_and_none_waits_for_it(server, tmp_path, engine, sharded):
    """`experiments/many_processes` does so twenty times, and has torchrun start them again."""
    options = {"engine": engine, "sharded": sharded, "dropout": 0.2, "rows": 8}
    whole = together(server, tmp_path / "whole", 4, **options)
    folder = tmp_path / "killed"
    folder.mkdir()
    arguments = {"folder": str(folder), "result": str(folder / "losses"), "processes": 4}
    for victim in (0, 2):
        before = saved_step(folder)
        codes = server.call(
            "train_together",
            children=4,
            kill_rank=victim,
            kill_at=before + 15,
            **arguments,
            **options,
        )
        assert codes[victim] == KILLED
        assert all(codes)  # the others lost it, and ended
        assert before < saved_step(folder) < 50
    assert together(server, folder, 4, name="end", **options) == whole


def saved_step(folder):
    path = folder / "run" / "last.pt"
    return checkpoints.read(path)["step"] if path.exists() else 0


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match=r"expected engine one of \['sum', 'ddp', 'fsdp'\]"):
        TrainConfig(1, 0.1, engine="mpi")
