"""The switches of `GPTConfig`: each alone and all together, counted, causal, cached, refused."""

import pytest
import torch
from oracles import gradients, greatest_difference, normal
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from src.attention.block import FeedForward, RMSNorm, hidden_width, norm_of, rms_norm
from src.attention.heads import recorded_weights
from src.gpt.backbones import built_from, settings_of
from src.gpt.gpt2 import GPT, GPTConfig

B, T, V, C, HEADS, HIDDEN, LAYERS, LIMIT = 2, 5, 17, 22, 11, 13, 3, 7
EXACT = 1e-10  # float64
SIZES = {"context_length": LIMIT, "layers": LAYERS, "heads": HEADS, "channels": C}
SWITCHES = [
    {"norm_kind": "rms"},
    {"norm_kind": "rms", "norm": "post", "bias": False},
    {"gated": True, "activation": "silu"},
    {"gated": True, "hidden": HIDDEN},
    {"gated": True, "hidden": HIDDEN, "bias": False, "tied": False},
]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def small(**options):
    """A GPT in float64 with gains that are not 1 and biases that are not 0."""
    model = GPT(GPTConfig(V, **(SIZES | options)), generator=generator()).double()
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.1 * torch.randn(each.shape, generator=generator(each.numel())))
    return model


def ids(length=T):
    return torch.randint(V, (B, length), generator=generator(1))


def name_of(options):
    return "-".join(f"{name}={value}" for name, value in options.items())


every_switch = pytest.mark.parametrize("options", SWITCHES, ids=name_of)


# every switch


@every_switch
def test_the_formula_counts_what_the_model_holds(options):
    model = small(**options)
    assert model.config.parameters == sum(p.numel() for p in model.parameters())


@every_switch
def test_the_arithmetic_is_what_torch_counts(options):
    model = small(**options)
    with FlopCounterMode(display=False) as counter, recorded_weights(model):
        model(ids())
    assert counter.get_total_flops() == B * T * model.config.flops_per_token(T)


@every_switch
@pytest.mark.parametrize("changed", range(T))
def test_a_later_token_changes_no_logits_before_it_bit_for_bit(options, changed):
    model, other = small(**options), ids()
    other[:, changed] = (other[:, changed] + 1) % V
    before, after = model(ids()), model(other)
    assert torch.equal(before[:, :changed], after[:, :changed])
    assert (before[:, changed] != after[:, changed]).any(-1).all()


@every_switch
@pytest.mark.parametrize("pieces", [[LIMIT], [1] * LIMIT, [3, 1, 2, 1]], ids=str)
def test_a_text_in_pieces_with_a_cache_has_the_logits_of_the_whole(options, pieces):
    model, text = small(**options), ids(LIMIT)
    cache = model.new_cache()
    parts = [model(part, cache=cache) for part in text.split(pieces, 1)]
    assert greatest_difference(torch.cat(parts, 1), model(text)) < EXACT


@every_switch
def test_a_switch_changes_the_logits_and_its_settings_build_it_again(options):
    model = small(**options)
    again = built_from(settings_of(model)).double()
    again.load_state_dict(model.state_dict())
    assert again.config == model.config
    assert torch.equal(again(ids()), model(ids()))
    assert not torch.allclose(model(ids()), small()(ids()), atol=1e-3)


# norms and gates


def test_rms_norm_is_worked_by_hand():
    x = torch.tensor([[1.0, 2.0, 2.0]])  # mean square 3, root with eps 1 is 2
    result = rms_norm(x, torch.tensor([1.0, 1.0, 3.0]), eps=1.0)
    assert torch.equal(result, torch.tensor([[0.5, 1.0, 3.0]]))


def test_rms_norm_written_out_is_torchs_and_so_is_the_module():
    x, gain = normal(B, T, C).requires_grad_(), normal(C, seed=2)
    module = RMSNorm(C, eps=1e-3).double()
    module.gain.data = gain
    theirs = functional.rms_norm(x, (C,), gain, 1e-3)
    for ours in (rms_norm(x, gain, eps=1e-3), module(x)):
        assert greatest_difference(ours, theirs) < EXACT
        assert greatest_difference(*gradients(ours, x), *gradients(theirs, x)) < EXACT


def test_rms_norm_forgets_the_length_and_keeps_the_mean():
    x, gain = normal(B, T, C), torch.ones(C).double()
    assert greatest_difference(rms_norm(7 * x, gain, eps=0.0), rms_norm(x, gain, eps=0.0)) < EXACT
    assert not torch.allclose(rms_norm(x + 7, gain), rms_norm(x, gain), atol=0.1)


@pytest.mark.parametrize("bias", [True, False])
def test_a_gate_multiplies_what_is_expanded(bias):
    module = FeedForward(
        C, hidden=HIDDEN, activation=functional.silu, bias=bias, gated=True, generator=generator()
    ).double()
    x, gate = normal(B, T, C), module.gate(normal(B, T, C))
    by_hand = module.contract(gate / (1 + torch.exp(-gate)) * module.expand(x))
    assert greatest_difference(module(x), by_hand) < EXACT


@pytest.mark.parametrize(("channels", "width"), [(768, 2048), (22, 58), (3, 8)])
def test_a_gated_network_of_the_usual_width_has_at_most_as_many_weights(channels, width):
    assert hidden_width(channels, gated=True) == width
    assert 0 <= 2 * channels * hidden_width(channels) - 3 * channels * width < 3 * channels
    module = FeedForward(channels, gated=True, generator=generator())
    assert module.gate.out_features == module.expand.out_features == width


# errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm_kind": "batch"}, 'norm_kind "layer" or "rms", got \'batch\''),
    ],
)
def test_a_switch_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GPTConfig(V, **(SIZES | options))


def test_a_norm_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="got 'batch'"):
        norm_of("batch", C)
