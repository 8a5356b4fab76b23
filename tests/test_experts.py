"""`src.attention.experts` against Mixtral, a loop over tokens, and loads worked by hand."""

import os

import pytest
import torch
from oracles import gradients, greatest_difference, normal
from torch import nn, tensor

from src.attention.config import BlockConfig
from src.attention.experts import Experts, balance_loss, loads, moved, recorded_routings, route
from src.gpt.gpt2 import GPT, GPTConfig

B, T, C, EXPERTS, USED, HIDDEN = 2, 7, 11, 5, 2, 13


def experts(used=USED, seed=0, **options):
    sizes = {"channels": C, "heads": 1, "hidden": HIDDEN, "experts": EXPERTS, "experts_used": used}
    config = BlockConfig(**sizes, gated=True, activation="silu", bias=False, **options)
    return Experts(config, generator=torch.Generator().manual_seed(seed)).double()


def stacked(module):
    """Their weights from ours."""
    of_each = [(e.gate.weight, e.expand.weight, e.contract.weight) for e in module.experts]
    return {
        "gate.weight": module.router.weight,
        "experts.gate_up_proj": torch.stack([torch.cat(each[:2]) for each in of_each]),
        "experts.down_proj": torch.stack([each[2] for each in of_each]),
    }


def test_experts_are_those_of_mixtral(monkeypatch):
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import MixtralConfig
    from transformers.models.mixtral import modeling_mixtral as mixtral

    sizes = {"hidden_size": C, "intermediate_size": HIDDEN, "num_attention_heads": 1}
    config = MixtralConfig(**sizes, num_local_experts=EXPERTS, num_experts_per_tok=USED)
    ours, theirs = experts(), mixtral.MixtralSparseMoeBlock(config).double()
    theirs.load_state_dict(stacked(ours))
    x = (3 * normal(B, T, C)).requires_grad_()
    with recorded_routings(ours) as routings:
        result = ours(x)
    monkeypatch.setattr(torch.Tensor, "float", lambda self: self)  # else they round to 32 bits
    expected = theirs(x)
    assert greatest_difference(result, expected) < 1e-12
    assert greatest_difference(*gradients(result, x), *gradients(expected, x)) < 1e-12
    logits = ours.router(x).flatten(0, 1)
    their_loss = mixtral.load_balancing_loss_func((logits,), EXPERTS, USED)
    assert abs(USED * float(balance_loss(routings[""])) - float(their_loss)) < 1e-5


@pytest.mark.parametrize("used", [1, 2, EXPERTS])
def test_experts_are_a_loop_over_tokens(used):
    module, x = experts(used), normal(T, C)
    rows = []
    for row in x:
        probs = module.router(row).softmax(0)
        best = sorted(range(EXPERTS), key=lambda e: -float(probs[e]))[:used]
        total = sum(probs[e] for e in best) if used > 1 else 1
        rows.append(sum(probs[e] / total * module.experts[e](row) for e in best))
    assert greatest_difference(module(x), torch.stack(rows)) < 1e-12


def test_loads_and_balance_are_worked_by_hand():
    probs = tensor([[0.5, 0.25, 0.25], [0.5, 0.3, 0.2]])
    routing = route(probs.log(), 2)  # both tokens choose 0 and 1
    assert sorted(routing.chosen.flatten().tolist()) == [0, 0, 1, 1]
    assert torch.allclose(routing.weights[0], tensor([2 / 3, 1 / 3]))
    assert loads(routing).tolist() == [0.5, 0.5, 0.0]
    assert float(balance_loss(routing)) == pytest.approx(3 * (0.5 * 0.5 + 0.5 * 0.275))
    shift = moved(torch.zeros(3), loads(routing), rate=0.25)
    assert torch.allclose(shift, tensor([-0.25, -0.25, 0.25]))


def test_shifts_choose_and_do_not_weigh():
    logits = tensor([[2.0, 1.0, 0.0]])
    routing = route(logits, 2, shift=tensor([0.0, 0.0, 1.0]))
    assert sorted(routing.chosen[0].tolist()) == [0, 2]
    weights = logits.softmax(-1)[0, routing.chosen[0]]
    assert torch.allclose(routing.weights[0], weights / weights.sum())


@pytest.mark.parametrize("used", [1, 2])
def test_the_router_learns_however_many_are_used(used):
    module = experts(used)
    (gradient,) = gradients(module(normal(B, T, C)), module.router.weight)
    assert float(gradient.abs().max()) > 1e-4


def test_shifts_balance_a_router_that_has_a_favourite():
    module = experts(experts_shift=0.01)
    x = normal(64, T, C) + 6 * module.router.weight[3].detach()

    def spread():
        with recorded_routings(module) as routings, torch.no_grad():
            module(x)
        return float(loads(routings[""]).max()) * EXPERTS

    before = spread()
    assert torch.equal(module.shift, torch.zeros(EXPERTS).double())  # nobody trained
    for _ in range(100):
        module(x)
        module.end_step()
    assert before > 1.5
    assert spread() < 1.1
    kept = module.shift.clone()
    module.eval()(x)
    module.end_step()
    assert torch.equal(module.shift, kept)


def test_a_gpt_of_experts_uses_a_part_of_its_parameters():
    config = GPTConfig(
        17, context_length=7, layers=3, heads=2, channels=22, experts=5, experts_used=2, hidden=13
    )
    model = GPT(config, generator=torch.Generator().manual_seed(0))
    one = 2 * 22 * 13 + 13 + 22
    assert config.parameters - config.used_parameters == 3 * 3 * one
    with recorded_routings(model) as routings:
        model(torch.zeros(2, 7, dtype=torch.long))
    assert list(routings) == [f"decoder.blocks.{i}.feed_forward" for i in range(3)]
    sum(map(balance_loss, routings.values())).backward()
    assert float(model.decoder.blocks[0].feed_forward.router.weight.grad.abs().max()) > 0
    plain = GPTConfig(17, context_length=7, layers=3, heads=2, channels=22)
    assert plain.used_parameters == plain.parameters


# errors


def test_a_model_without_experts_has_no_routings():
    with (
        pytest.raises(ValueError, match="with Experts, got Linear"),
        recorded_routings(nn.Linear(2, 2)),
    ):
        pass
