"""`src.gpt.training` against a loop written out, worked numbers, and what training must not do."""

import math
import random
import re
import signal
import tomllib
from dataclasses import FrozenInstanceError
from functools import partial
from itertools import count, islice
from pathlib import Path

import pytest
import torch
import training_runs
from fork_server import ForkServer
from torch import nn, tensor
from torch.optim import SGD, AdamW
from training_runs import numbered, ragged, small_gpt

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

B, T, V, N = 3, 5, 7, 101
ONE_TOKEN = [(tensor([[0]]), tensor([[0]]))]


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


@pytest.mark.parametrize("starts", [1, 3])
def test_targets_are_one_token_later_and_every_place_of_the_stream_can_begin_a_piece(starts):
    batches = list(islice(draws(torch.arange(T + starts)), 50))
    for inputs, targets in batches:
        assert inputs.shape == targets.shape == (B, T)
        assert torch.equal(targets, inputs + 1)
        assert (inputs[:, 1:] == inputs[:, :-1] + 1).all()
    assert {int(row[0]) for inputs, _ in batches for row in inputs} == set(range(starts))


def test_a_numbered_batch_is_a_function_of_seed_and_number():
    data, late = numbered(), numbered()[5][0]
    assert all(torch.equal(a[0], numbered()[n][0]) for n, a in enumerate(islice(data, 4)))
    assert torch.equal(data[5][0], late)  # whatever was asked for before
    assert not torch.equal(data[6][0], late)
    assert not torch.equal(numbered(seed=7)[5][0], late)
    assert not torch.equal(numbered(seed=2)[4][0], late)  # not of their sum


def test_pieces_begin_where_a_document_does_if_they_are_to():
    stream = torch.tensor([0, 5, 6, 0, 7, 8, 9, 0, 4, 0, 3])
    drawn = Batches(stream, batch_size=50, context_length=3, seed=1, first=0)[2]
    assert {tuple(row) for row in drawn[0].tolist()} == {(0, 5, 6), (0, 7, 8), (0, 4, 0)}
    assert {tuple(row) for row in drawn[1].tolist()} == {(5, 6, 0), (7, 8, 9), (4, 0, 3)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({"ids": torch.zeros(n)}, f"at least {T + 1} tokens") for n in (0, 1, T)),
        ({"ids": torch.zeros(T - 2), "first": 0}, f"at least {T + 1} tokens"),
        ({"batch_size": 0}, "above 0, got batch_size=0"),
        ({"context_length": 0}, "context_length=0"),
        ({"first": 3}, "from the first=3 on"),
    ],
)
def test_batches_that_cannot_be_are_refused(change, message):
    options = {"ids": torch.zeros(N), "batch_size": B, "context_length": T} | change
    with pytest.raises(ValueError, match=message):
        Batches(**options)


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


def test_one_step_of_gradient_descent_by_hand():
    """Two tokens, uniform: p - y = (-1/2, 1/2), so at rate 1 the row becomes (1/2, -1/2)."""
    model = SoftmaxBigram(2)
    history = train(model, ONE_TOKEN, steps=1, learning_rate=1.0, optimiser=SGD)
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


@pytest.mark.parametrize("clip", [0.4, None])
def test_fit_equals_the_loop_written_out(stream, clip):
    settings = {"steps": 30, "learning_rate": 0.02, "weight_decay": 0.3}
    ours, theirs = small_model().double(), small_model().double()
    history = train(ours, draws(stream), clip=clip, **settings)
    losses = hand_loop(theirs, draws(stream), clip=clip or math.inf, **settings)
    assert max(history.norms) > 0.4  # written down before it is clipped
    assert history.losses == pytest.approx(losses, rel=1e-6)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_a_list_of_batches_is_gone_through_again_in_order(stream):
    one, other = islice(draws(stream), 2)
    listed, spelled = small_model(), small_model()
    train(listed, [one, other], steps=5)
    train(spelled, [one, other, one, other, one], steps=5)
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


@pytest.mark.parametrize("looking", ["progress", "validation", "after"])
def test_bar_validation_and_a_hook_that_only_looks_change_nothing(stream, looking):
    looks = {"progress": True, "validation": held_out(stream), "after": lambda _, m: m.eval()}
    found = []
    for more in ({}, {looking: looks[looking]}):
        torch.manual_seed(3)
        model = nn.Sequential(small_model(), nn.Dropout(0.3))
        found.append((train(model, draws(stream), every=1, **more).losses, model))
    assert found[0][0] == found[1][0]
    assert same_parameters(found[0][1], found[1][1])


# validation


def held_out(stream):
    return list(islice(draws(stream, seed=7, batch_size=2), 3))


def test_validation_comes_before_the_first_step_then_every_so_often_and_at_the_end(stream):
    history = train(small_model(), draws(stream), validation=held_out(stream), steps=7, every=3)
    assert list(history.validation) == [0, 3, 6, 7]
    assert history.validation[0] == pytest.approx(math.log(V))
    assert len(history.losses) == 7


def memorise(keep_best):
    """Train on one piece until the loss on others, drawn from noise, turns up."""
    noise = torch.randint(V, (N,), generator=torch.Generator().manual_seed(4))
    piece, others = [next(draws(noise, batch_size=1))], held_out(noise)
    model, options = small_model(), {"every": 5, "keep_best": keep_best, "learning_rate": 0.05}
    history = train(model, piece, steps=100, validation=others, **options)
    return history, mean_loss(model, others)


def test_the_best_parameters_are_restored_on_request_only():
    history, loss = memorise(keep_best=True)
    assert loss == history.validation[history.best_step] == min(history.validation.values())
    assert loss < history.validation[100] - 0.5
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


def test_training_itself_has_dropout_on(stream):
    model = nn.Sequential(SoftmaxBigram(V), nn.Dropout(1.0)).eval()
    nn.init.normal_(model[0].table, generator=torch.Generator().manual_seed(0))
    losses = train(model, draws(stream), validation=held_out(stream), every=1, steps=3).losses
    assert losses == pytest.approx([math.log(V)] * 3)  # every logit dropped


# errors


def test_a_loss_that_is_not_finite_stops_the_run_at_its_step(stream):
    model, calls = small_model(), count(1)
    model.register_forward_hook(lambda *given: given[-1] * (math.nan if next(calls) == 3 else 1.0))
    with pytest.raises(FloatingPointError, match=r"at step 3 \(learning rate 0.01\).*clip=1.0"):
        train(model, draws(stream))
    assert all(p.isfinite().all() for p in model.parameters())  # the bad step was not taken


def test_an_infinite_gradient_under_a_finite_loss_stops_the_run():
    model = SoftmaxBigram(2)
    model.register_forward_hook(lambda *given: given[-1].sqrt())  # infinitely steep at 0
    with pytest.raises(FloatingPointError, match=r"norm of (inf|nan) at step 1 \("):
        train(model, ONE_TOKEN)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -1}, "steps=-1"),
        ({"clip": 0.0}, "clip=0.0"),
        ({"keep_best": True}, "validation= for keep_best"),
        ({"validation": iter(ONE_TOKEN)}, "used up"),
        ({"validation": []}, "at least one batch"),
        ({"data": []}, "got only 0"),
        ({"data": iter(ONE_TOKEN * 4)}, "got only 4"),
    ],
)
def test_a_bad_setting_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        train(small_model(), **({"data": ONE_TOKEN} | options))


# several inputs, and schedules


def test_a_model_of_several_inputs_gets_them_all_on_its_device(stream):
    class Difference(SoftmaxBigram):
        def forward(self, one, other):
            return super().forward(one) - super().forward(other)

    model, (inputs, targets) = Difference(V), next(draws(stream))
    nn.init.normal_(model.table, generator=torch.Generator().manual_seed(0))
    data = [((inputs, inputs.flip(0)), targets)]
    logits = (model.table[inputs] - model.table[inputs.flip(0)]).detach()
    nats, tokens = negative_log_likelihood(logits, targets)
    assert train(model, data, steps=1).losses[0] == pytest.approx(float(nats / tokens))
    assert mean_loss(model, data) < float(nats / tokens)


def test_a_linear_decay_rises_to_one_and_falls_in_equal_steps():
    """With 4 steps, 0.8 0.6 0.4 0.2; two more that rise come before the top."""
    assert [linear_decay(4)(step) for step in range(1, 5)] == pytest.approx([0.8, 0.6, 0.4, 0.2])
    factors = [linear_decay(6, warm_up=2)(step) for step in range(1, 7)]
    assert factors == pytest.approx([0.5, 1, 0.8, 0.6, 0.4, 0.2])


@pytest.mark.parametrize("made", [cosine, linear_decay])
def test_a_schedule_has_a_step_zero_and_never_turns_back_after_its_last_step(made):
    """Whoever takes more steps than planned goes on slowly: not fast again, and not backwards."""
    assert made(4)(0) == 1
    assert made(9, warm_up=2)(0) == 0
    last = {cosine: 0.0, linear_decay: 1 / 8}[made]
    assert [made(9, warm_up=2)(step) for step in (9, 10, 17, 99)] == pytest.approx([last] * 4)
    with pytest.raises(ValueError, match="shorter than the 5 steps, got 5"):
        made(5, warm_up=5)


# long runs: the same loop


def long_run(model, data=None, folder=None, **options):
    own = ("validation", "resume", "after", "progress")
    rest = {name: options.pop(name) for name in own if name in options}
    config = TrainConfig(**({"steps": 12, "learning_rate": 0.01, "every": 4} | options))
    data = numbered() if data is None else data
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
    settings = {"steps": 20, "learning_rate": 0.02, "clip": 0.3, "every": 6}
    settings["validation"] = [data[30]]
    fitted = train(model, data, schedule=schedule, optimiser=rule, **settings)
    options = {"warm_up": 3, "end": 0.2, "weight_decay": 0.0, "beta2": 0.99}
    history = long_run(other, data, **settings, **options)
    for name in ("losses", "norms", "validation"):
        assert getattr(history, name) == pytest.approx(getattr(fitted, name), rel=1e-12)


def test_matrices_are_decayed_and_gains_biases_embeddings_and_positions_are_not():
    config = GPTConfig(11, context_length=5, layers=1, heads=2, channels=6, tied=False)
    model = GPT(config, generator=torch.Generator().manual_seed(0))
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
    model = nn.ModuleList([nn.Linear(3, V, bias=False), nn.Embedding(V, 3)])
    model[1].weight = model[0].weight
    (others,) = parameter_groups(model, weight_decay=0.3)
    assert others["weight_decay"] == 0.0
    assert len(others["params"]) == 1


def test_the_schedule_and_the_groups_reach_the_optimiser(monkeypatch):
    rates, step = [], AdamW.step

    def watched(self, *given):
        rates.append([group["lr"] for group in self.param_groups])
        return step(self, *given)

    monkeypatch.setattr(AdamW, "step", watched)
    long_run(small_gpt(), steps=4, warm_up=2, end=0.5, learning_rate=0.2)
    assert rates == [[pytest.approx(r)] * 2 for r in (0.1, 0.2, 0.15, 0.1)]


@pytest.mark.parametrize("accumulation", [2, 3, 7])
def test_a_run_in_parts_is_the_run_in_one_ragged_rows_included(accumulation):
    whole = long_run(small_gpt().double(), ragged())
    parts = long_run(small_gpt().double(), ragged(), accumulation=accumulation)
    assert parts.losses == pytest.approx(whole.losses, rel=1e-12)
    assert parts.norms == pytest.approx(whole.norms, rel=1e-9)


def test_a_batch_of_several_inputs_is_taken_in_parts():
    inputs = torch.arange(10).reshape(5, 2)
    parts = training.in_parts(((inputs, inputs + 1), inputs + 2, inputs > 3), 3)
    second = [part[0][1].tolist() for part in parts]
    assert second == [[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10]]]
    assert [len(part) for part in parts] == [3, 3, 3]
    assert torch.equal(torch.cat([part[2] for part in parts]), inputs > 3)


def test_more_parts_than_rows_are_refused():
    with pytest.raises(ValueError, match=r"at least 5 rows.*, got 4"):
        long_run(small_gpt(), accumulation=5)


def test_bfloat16_keeps_the_parameters_in_32_bits_and_uses_those_of_this_step():
    """Autocast keeps its 16-bit copies of the parameters until one leaves it."""
    model, options = small_gpt(), {"data": [numbered()[0]], "steps": 60}
    short, exact = (
        long_run(model, precision="bfloat16", **options),
        long_run(small_gpt(), **options),
    )
    assert short.losses != exact.losses
    assert short.losses[-1] < short.losses[0] - 1
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_logits_of_16_bits_are_summed_in_32():
    model = nn.Embedding(V, V).bfloat16()
    nats = fitting.nats_of_batch(model, (tensor([[0, 1]]), tensor([[2, 3]])))
    assert nats.dtype == torch.float32


def test_the_bar_says_loss_and_speed(monkeypatch):
    said = []

    def bar(items, description, *, status):
        for item in items:
            yield item
            said.append(status())

    monkeypatch.setattr(fitting, "progress_bar", bar)
    history = long_run(small_gpt(), steps=2, progress=True)
    assert said[0] == ""
    assert re.fullmatch(rf"loss {history.losses[-1]:.3f}, [\d,]+ tokens/s", said[-1])


# checkpoints of a run


def same_run(folder, other):
    """Whether two runs ended in the same bits: parameters, optimiser, history, generators."""
    one, two = (
        [checkpoints.read(Path(f) / name) for name in ("last.pt", "best.pt")]
        for f in (folder, other)
    )
    return equal(one, two)


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
    model = small_gpt(dropout=0.2)

    def after(step, model):
        if step == stop:
            raise KeyboardInterrupt

    own = {"save_every": 3, "validation": training_runs.held_out(), "after": after}
    return long_run(model, None, folder, **own | options), model


def resumed(folder, *, model=None, data=None, **options):
    """Whatever was saved in a folder, gone on with."""
    options = {"resume": True, "save_every": 3} | options
    return long_run(model or small_gpt(0.2), data, folder, **options)


@pytest.mark.parametrize("stop", [0, 1, 3, 4, 11])
def test_a_resumed_run_ends_in_the_bits_of_one_that_was_not_interrupted(tmp_path, stop):
    history, model = interrupted(tmp_path / "whole", None)
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "parts", stop)
    torch.manual_seed(99)  # the generators come from the checkpoint
    again, other = interrupted(tmp_path / "parts", None, resume=True)
    assert again == history
    assert same_parameters(model, other)
    assert same_run(tmp_path / "whole", tmp_path / "parts")


def test_resuming_begins_where_nothing_is_and_a_finished_run_is_read_and_not_repeated(tmp_path):
    history, model = interrupted(tmp_path, None, resume=True)
    assert len(history.losses) == 12
    again, other = interrupted(tmp_path, 0, resume=True)
    assert again == history
    assert same_parameters(model, other)
    with pytest.raises(FileExistsError, match="resume=True"):
        interrupted(tmp_path, None)


def test_the_best_weights_are_those_of_the_least_validation_loss(tmp_path):
    model, others = small_gpt(), training_runs.held_out()
    options = {"learning_rate": 0.1, "steps": 60, "every": 5, "save_every": 60}
    history = long_run(model, [numbered()[0]], tmp_path, validation=others, **options)
    last = mean_loss(model, others)
    assert load_best(model, tmp_path) == history.best_step < 60
    assert mean_loss(model, others) == history.validation[history.best_step] < last - 0.5


OTHER = Batches(training_runs.stream(1), batch_size=4, context_length=T, seed=1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"learning_rate": 0.02}, "learning_rate = 0.02, saved with 0.01"),
        ({"steps": 13}, "steps = 13, saved with 12"),
        ({"weight_decay": 0.2}, "weight_decay = 0.2"),
        ({"data": numbered(seed=8)}, "data.seed = 8, saved with 1"),
        ({"data": OTHER}, "data.checksum"),
        ({"model": small_gpt(0.3)}, "model.dropout = 0.3, saved with 0.2"),
        ({"model": small_gpt(0.2).double()}, "parameters.dtype = 'torch.float64'"),
    ],
)
def test_resuming_with_something_changed_names_it(tmp_path, change, named):
    interrupted(tmp_path, None)
    before = (tmp_path / "last.pt").read_bytes()
    with pytest.raises(ValueError, match=re.escape(named)):
        resumed(tmp_path, **change)
    assert (tmp_path / "last.pt").read_bytes() == before


def test_best_weights_that_are_gone_are_replaced_on_resuming(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path, 9)
    state = checkpoints.read(tmp_path / "last.pt")
    state["history"]["validation"][8] = 0.0  # which no later step can beat
    checkpoints.write(tmp_path / "last.pt", state)
    (tmp_path / "best.pt").unlink()
    interrupted(tmp_path, None, resume=True)
    assert checkpoints.read(tmp_path / "best.pt")["step"] == 12


def test_a_checkpoint_that_names_no_settings_of_the_command_is_as_one_that_names_its_own(tmp_path):
    """Version 0.2 wrote `sharded`, and every version before this one `engine` and `compile`."""
    interrupted(tmp_path, None)
    path, other = tmp_path / "last.pt", {"engine": "sum", "compile": False, "sharded": False}
    state = checkpoints.read(path)
    checkpoints.write(path, state | {"settings": state["settings"] | other})
    resumed(tmp_path)
    checkpoints.write(path, state | {"settings": state["settings"] | other | {"sharded": True}})
    with pytest.raises(ValueError, match="sharded = False, saved with True"):
        resumed(tmp_path)
    del state["history"]["tokens"]
    checkpoints.write(path, state)
    with pytest.raises(ValueError, match=r"got no \['tokens'\]: is it of version 0\.1"):
        resumed(tmp_path)


def test_broken_parameters_are_not_saved(tmp_path):
    """A step can overflow though its gradient did not, and only the next loss would show it."""
    options = {"learning_rate": 3e38, "weight_decay": 9.0, "steps": 1, "end": 1.0}
    with pytest.raises(FloatingPointError, match="finite parameters"):
        long_run(small_gpt(), folder=tmp_path, **options)
    assert checkpoints.read(tmp_path / "last.pt")["step"] == 0


def test_the_first_setting_that_differs_is_named():
    saved = {"steps": 5, "rate": 0.1, "text": "a"}
    for now, message in [
        ({**saved, "text": "b"}, "last.pt was saved with, got text = 'b', saved with 'a'"),
        ({**saved, "dropout": 0.1}, "dropout = 0.1, saved with None"),
        ({"rate": 0.1, "text": "a"}, "steps = None, saved with 5"),
    ]:
        with pytest.raises(ValueError, match=message):
            training.changed_settings(saved, now, source="last.pt")
    training.changed_settings(
        saved, saved | {"clip": None}, source="last.pt"
    )  # None: as good as none


def test_another_model_is_refused_on_resuming(tmp_path):
    long_run(small_model(), ONE_TOKEN, tmp_path)
    with pytest.raises(ValueError, match="is it another model"):
        long_run(SoftmaxBigram(V), ONE_TOKEN, tmp_path, resume=True)


def test_weights_under_the_name_of_a_run_are_refused(tmp_path):
    interrupted(tmp_path, None)
    (tmp_path / "best.pt").rename(tmp_path / "last.pt")
    with pytest.raises(ValueError, match="another file renamed"):
        resumed(tmp_path)


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
        ({"precision": "float16"}, ValueError, "float32 or bfloat16, got 'float16'"),
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


# processes: killed, and together


@pytest.fixture(scope="module")
def server():
    return ForkServer("training_runs")


@pytest.fixture(scope="module")
def undisturbed(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert server.call("train_and_be_killed", folder=str(folder), steps=STEPS) == [0]
    return folder


STEPS = 150
KILLED = -signal.SIGKILL


@pytest.mark.weekly
@pytest.mark.parametrize("where", ["inside saving", "anywhere"])
def test_a_run_killed_twenty_times_ends_in_the_same_bits(server, undisturbed, tmp_path, where):
    chance, kills, run = random.Random(0), 0, 0
    while kills < 20:
        options = {"folder": str(tmp_path / str(run)), "steps": STEPS}
        kill = {"kill_after": 0.2 * chance.random()}
        if where == "inside saving":
            kill = {"kill": (training_runs.KILLS[kills % 6], chance.randint(1, 9))}
        codes = server.call("train_and_be_killed", **kill, **options)
        kills += codes == [KILLED]
        if codes == [0]:
            assert same_run(options["folder"], undisturbed)
            run += 1
    assert server.call("train_and_be_killed", **options) == [0]
    assert same_run(options["folder"], undisturbed)
