"""What comparisons of arms share: one curve, Holm's correction, and two optimisers as one."""

import math

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from experiments import adds_up
from experiments.shared import arms
from src.gpt.gpt2 import GPT, GPTConfig

V, SIZES = 17, {"context_length": 7, "layers": 2, "heads": 2, "channels": 6}


def model(**options):
    return GPT(GPTConfig(V, **SIZES, **options), generator=torch.Generator().manual_seed(0))


def batch():
    ids = torch.randint(V, (3, 8), generator=torch.Generator().manual_seed(1))
    return ids[:, :-1], ids[:, 1:]


def weights_on_the_way(steps):
    """The first bias of the last norm after each step, and in the means that are scored."""
    seen, learner = [], model()
    found = arms.curve(
        learner,
        [batch()],
        lambda mean: (
            seen.append(learner.decoder.final_norm.bias[0].item())
            or mean.decoder.final_norm.bias[0].item()
        ),
        steps=steps,
        every=1,
        rate=0.01,
    )
    return np.array(seen), found


def test_what_is_scored_is_the_mean_in_which_step_n_counts_as_its_ninth_power():
    last, found = weights_on_the_way(12)
    assert found["steps"] == [*range(1, 13)]
    for n, score in zip(found["steps"], found["scores"], strict=True):
        shares = [math.prod(range(k, k + 9)) for k in range(1, n + 1)]
        assert math.isclose(score, np.average(last[:n], weights=shares), rel_tol=1e-4)


@pytest.mark.parametrize(
    ("best", "first", "last"), [(0.0025, 0.00125, 0.02), (0.02, 0.01, 0.04), (10, 0.01, 0.08)]
)
def test_tuning_goes_on_until_the_best_rate_has_neighbours_or_ends_the_list(best, first, last):
    found = [*arms.tuned(lambda rate: abs(math.log(rate / best)))]
    assert (found[0], found[-1]) == (first, last)
    assert found == [rate for rate in arms.RATES if first <= rate <= last]


def test_equal_time_reads_both_curves_when_the_first_is_done():
    one = [{"steps": [10, 20], "scores": [5.0, 3.0]}]  # 2 s a step: 10 steps in 20 s
    base = [{"steps": [10, 20], "scores": [4.0, 1.0]}]
    found = arms.differences(one, base, 2.0, 1.0)
    assert found == {"operations": [2.0], "time": [4.0]}


def test_p_is_that_of_students_test():
    # mean 3, standard deviation sqrt(7), t = 3 / sqrt(7 / 3); two degrees of freedom
    t = 3 / math.sqrt(7 / 3)
    expected = 1 - t / math.sqrt(2 + t**2)
    assert math.isclose(arms.p_value([1.0, 2.0, 6.0]), expected)
    assert arms.p_value([0.0, 0.0]) == 1
    assert arms.p_value([1.0, 1.0]) == 0


@pytest.mark.parametrize(
    ("p", "kept"),
    [
        ({"a": 0.02, "b": 0.001, "c": 0.03}, ["b", "a", "c"]),
        ({"a": 0.03, "b": 0.001, "c": 0.03}, ["b"]),
        ({"a": 0.02}, ["a"]),
        ({"a": 0.02, "b": 0.04, "c": 0.001, "d": 0.2}, ["c"]),  # 0.02 > 0.05 / 3
    ],
)
def test_what_survives_holms_correction(p, kept):
    assert arms.survivors(p) == kept


def test_muon_has_the_matrices_of_the_blocks_and_adamw_all_else():
    learner = model(tied=False)
    optimiser = adds_up.MuonAndAdamW(learner, lr=0.01, weight_decay=0.0)
    muon, adamw = (
        {id(p) for g in part.param_groups for p in g["params"]} for part in optimiser.parts
    )
    named = {name: id(p) for name, p in learner.named_parameters()}
    inside = {i for name, i in named.items() if "blocks" in name and name.endswith("weight")}
    assert muon == inside
    assert muon | adamw == {*named.values()}
    assert not muon & adamw


def test_the_operations_of_muon_are_what_torch_counts():
    learner = model()
    optimiser = adds_up.MuonAndAdamW(learner, lr=0.01, weight_decay=0.0)
    for each in learner.parameters():
        each.grad = torch.ones_like(each)
    with FlopCounterMode(display=False) as counter:
        optimiser.step()
    assert counter.get_total_flops() == adds_up.muon_operations(learner) > 0
