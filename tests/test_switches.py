"""The switches of `GPTConfig`: each alone and all together, counted, causal, cached, refused."""

import pytest
import torch
from oracles import gradients, greatest_difference, normal
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from src.attention.block import Block
from src.attention.config import BlockConfig
from src.attention.feed_forward import FeedForward, RMSNorm, rms_norm
from src.attention.heads import MultiHeadAttention, recorded_weights
from src.attention.latent import LatentAttention, absorbed_attention, latent_attention
from src.attention.masks import banded_mask
from src.gpt.backbones import built_from, settings_of
from src.gpt.both_sides import EncoderLM
from src.gpt.gpt2 import GPT, GPTConfig
from src.likelihood.maximum_likelihood import token_log_probs

B, T, S, V, C, HEADS, HIDDEN, LAYERS, LIMIT = 2, 5, 7, 17, 22, 11, 13, 3, 7
EXACT = 1e-10  # float64
SIZES = {"context_length": LIMIT, "layers": LAYERS, "heads": HEADS, "channels": C}
LATENT = {"latent": 5, "heads": 3, "head_channels": 4, "positions": "rotary"}
SWITCHES = [
    {"norm": "post"},
    {"hidden": HIDDEN, "tied": False},
    {"bias": False},
    {"norm_kind": "rms"},
    {"norm_kind": "rms", "norm": "post", "bias": False},
    {"gated": True, "activation": "silu"},
    {"gated": True, "hidden": HIDDEN},
    {"gated": True, "hidden": HIDDEN, "bias": False, "tied": False},
    {"kv_heads": 1},
    {"heads": 6, "kv_heads": 3, "head_channels": 5, "bias": False},
    {"heads": 6, "kv_heads": 2, "head_channels": 10, "positions": "rotary", "qk_norm": True},
    {"qk_norm": True},
    {"experts": 5, "hidden": HIDDEN},
    {"experts": 3, "experts_used": 1, "gated": True, "bias": False, "experts_shift": 0.1},
    {"latent": 3},
    LATENT,
    LATENT | {"head_channels": 8, "window": 3, "bias": False},
    {"window": 1},
    {"window": 2},
    {"window": 3, "global_every": 2, "positions": "rotary", "kv_heads": 1},
    {"sink": True},
    {"heads": 6, "kv_heads": 2, "head_channels": 10, "sink": True, "window": 3},
    {"positions": "none"},
    {"positions": "rotary"},
    {"positions": "rotary", "rotary_base": 53.0, "rotary_scale": 3.0},
]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def small(**options):
    """A GPT in float64 with gains that are not 1 and biases that are not 0."""
    model = GPT(GPTConfig(V, **(SIZES | options)), generator=generator()).double()
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.1 * torch.randn(each.shape, generator=generator(each.numel())))
    return model.eval()


def encoder(**options):
    return EncoderLM(GPTConfig(V, **(SIZES | options)), generator=generator()).double()


def part(**options):
    return BlockConfig(**({"channels": C, "heads": HEADS} | options))


def heads(**options):
    return MultiHeadAttention(part(**options), generator=generator())


def ids(length=T):
    return torch.randint(V, (B, length), generator=generator(1))


def name_of(options):
    return "-".join(f"{name}={value}" for name, value in options.items())


every_switch = pytest.mark.parametrize("options", [{}, *SWITCHES], ids=name_of)


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


@pytest.mark.parametrize("options", [{}, *(s for s in SWITCHES if "experts" not in s)], ids=name_of)
def test_a_step_of_training_looks_at_no_number_of_a_device(options):
    """The device meta has no numbers, so that a look at one fails there; on a GPU it waits.

    Experts have to: how many tokens one of them has is the shape of what it computes.
    """
    model = small(**options).to("meta")
    text = ids(LIMIT).to("meta")
    with recorded_weights(model):
        token_log_probs(model(text), text).sum().backward()
    cache = model.new_cache()
    for part in text.split([3, 4], 1):
        model(part, cache=cache)


def moved_on(text, place):
    """The same text, with another token at one place."""
    other = text.clone()
    other[:, place] = (other[:, place] + 1) % V
    return other


@every_switch
@pytest.mark.parametrize("changed", range(T))
def test_a_later_token_changes_no_logits_before_it_bit_for_bit(options, changed):
    model = small(**options)
    before, after = model(ids()), model(moved_on(ids(), changed))
    if "experts" in options:  # a product of other rows is another product, in its last bits
        assert torch.allclose(before[:, :changed], after[:, :changed], atol=1e-12, rtol=0)
    else:
        assert torch.equal(before[:, :changed], after[:, :changed])
    assert (before[:, changed] != after[:, changed]).any(-1).all()


@every_switch
@pytest.mark.parametrize("rolling", [False, True])
@pytest.mark.parametrize("pieces", [[LIMIT], [1] * LIMIT, [3, 1, 2, 1]], ids=str)
def test_a_text_in_pieces_with_a_cache_has_the_logits_of_the_whole(options, pieces, rolling):
    """And it keeps what was derived: everything, or, rolling, what a window still sees."""
    model, text = small(**options), ids(LIMIT)
    cache, parts, length = model.new_cache(rolling=rolling), [], 0
    for part in text.split(pieces, 1):
        parts.append(model(part, cache=cache))
        length += part.shape[1]
        whole = length * model.config.cached_per_token
        expected = model.config.cached(length) if rolling else whole
        assert sum(each.n_bytes for each in cache) == B * 8 * expected
    assert greatest_difference(torch.cat(parts, 1), model(text)) < EXACT


@pytest.mark.parametrize("options", SWITCHES, ids=name_of)
def test_a_switch_changes_the_logits_and_its_settings_build_it_again(options):
    model = small(**options)
    again = built_from(settings_of(model)).double()
    again.load_state_dict(model.state_dict())
    assert again.config == model.config
    assert torch.equal(again(ids()), model(ids()))
    assert not torch.allclose(model(ids()), small()(ids()), atol=1e-3)


# norms and gates


def test_rms_norm_written_out_is_torchs_and_so_is_the_module():
    x, gain = normal(B, T, C).requires_grad_(), normal(C, seed=2)
    module = RMSNorm(C, eps=1e-3).double()
    module.gain.data = gain
    theirs = functional.rms_norm(x, (C,), gain, 1e-3)
    for ours in (rms_norm(x, gain, eps=1e-3), module(x)):
        assert greatest_difference(ours, theirs) < EXACT
        assert greatest_difference(*gradients(ours, x), *gradients(theirs, x)) < EXACT


@pytest.mark.parametrize("bias", [True, False])
def test_a_gate_multiplies_what_is_expanded(bias):
    config = part(hidden=HIDDEN, activation="silu", bias=bias, gated=True)
    module = FeedForward(config, generator=generator()).double()
    x, gate = normal(B, T, C), module.gate(normal(B, T, C))
    by_hand = module.contract(gate / (1 + torch.exp(-gate)) * module.expand(x))
    assert greatest_difference(module(x), by_hand) < EXACT


@pytest.mark.parametrize(("channels", "width"), [(768, 2048), (22, 58), (3, 8)])
def test_a_gated_network_of_the_usual_width_has_at_most_as_many_weights(channels, width):
    config = part(channels=channels, heads=1, gated=True)
    assert config.width == width
    plain = part(channels=channels, heads=1).width
    assert 0 <= 2 * channels * plain - 3 * channels * width < 3 * channels
    module = FeedForward(config, generator=generator())
    assert module.gate.out_features == module.expand.out_features == width


# positions


@pytest.mark.parametrize("positions", ["none", "rotary"])
def test_a_model_without_a_table_has_none_in_its_layers(positions):
    for model in (small(positions=positions), encoder(positions=positions)):
        assert model.positions is None
        names = {id(p) for layer in model.layers() for p in layer}
        assert names == {id(p) for p in model.parameters()}


def test_only_distances_count_where_positions_are_rotary():
    """Whole texts shifted by padding that nobody sees have the states that they had."""
    model, x = encoder(positions="rotary"), ids()
    shifted = torch.cat([torch.zeros(B, 2, dtype=torch.long), x], 1)
    mask = torch.ones(T + 2, T + 2, dtype=torch.bool)
    mask[2:, :2] = False
    assert greatest_difference(model.states(shifted, mask[None])[:, 2:], model.states(x)) < EXACT
    with pytest.raises(ValueError, match=r"7 tokens.* got 8"):
        model(ids(LIMIT + 1))


def test_a_causal_model_without_positions_forgets_the_order_of_what_came_before():
    """One layer: the last position sees a set. (Two layers see more: how long each prefix is.)"""
    model, x = small(positions="none", layers=1), ids()
    order = torch.tensor([2, 0, 3, 1, 4])
    assert greatest_difference(model(x[:, order])[:, -1], model(x)[:, -1]) < EXACT
    assert not torch.allclose(small(layers=1)(x[:, order])[:, -1], small(layers=1)(x)[:, -1])


# fewer keys


def test_grouped_heads_look_at_a_memory_too():
    module = heads(heads=6, kv_heads=2, head_channels=5)
    x, memory = normal(B, T, C).float(), normal(B, S, C, seed=2).float()
    with recorded_weights(module) as maps:
        module(x, memory)
    assert maps[""].shape == (B, 6, T, S)
    assert greatest_difference(module(x, x), module(x)) < 1e-6


def test_normed_queries_and_keys_have_the_length_of_their_gains():
    module = heads(heads=2, qk_norm=True, eps=1e-12).double()
    with torch.no_grad():
        module.query_gain.fill_(3.0)
    x = normal(B, T, C)
    with recorded_weights(module) as maps:
        module(1000 * x)
    queries, keys, _ = (module.split_heads(part) for part in module.qkv(x).chunk(3, -1))
    cosines = functional.normalize(queries, dim=-1) @ functional.normalize(keys, dim=-1).mT
    expected = (3 * 11**0.5 * cosines).softmax(-1)  # lengths 3 sqrt(11) and sqrt(11), / sqrt(11)
    assert greatest_difference(maps[""], expected) < 1e-9


# latents


@pytest.mark.parametrize("turned", [0, 2])
@pytest.mark.parametrize("options", [{"causal": True}, {"need_weights": False}, {}], ids=str)
def test_absorbed_attention_is_latent_attention(turned, options):
    latent, width = 5, 4
    queries, up = normal(B, 3, T, width + turned), normal(3, 2 * width, latent, seed=2)
    latents, shared = normal(B, 1, S, latent, seed=3), normal(B, 1, S, turned, seed=4)
    parts = [part.requires_grad_() for part in (queries, latents, shared, up)]
    plain, weights = latent_attention(*parts, **options)
    absorbed, same = absorbed_attention(*parts, **options)
    assert greatest_difference(absorbed, plain) < EXACT
    assert weights is same is None or greatest_difference(weights, same) < EXACT
    for one, other in zip(gradients(absorbed, *parts), gradients(plain, *parts), strict=True):
        assert one.numel() == 0 or greatest_difference(one, other) < EXACT


def test_a_block_with_latents_looks_at_a_memory_as_others_do():
    block = Block(part(heads=2, latent=5, window=3), cross=True, generator=generator())
    assert type(block.attention) is LatentAttention
    assert type(block.cross_attention) is MultiHeadAttention
    assert block.cross_attention.window is None
    assert block(torch.randn(B, T, C), torch.randn(B, S, C)).shape == (B, T, C)


# windows


@pytest.mark.parametrize(
    ("window", "global_every", "seen"), [(2, None, 3), (3, None, 5), (2, 2, 7)]
)
def test_what_is_out_of_sight_changes_nothing_bit_for_bit(window, global_every, seen):
    """Two layers of a window w see 2 w - 1 tokens; a global one sees all."""
    model = small(window=window, global_every=global_every, layers=2)
    for place in range(LIMIT):
        other = model(moved_on(ids(LIMIT), place))
        same = (other[:, -1] == model(ids(LIMIT))[:, -1]).all(-1)
        assert same.tolist() == [place < LIMIT - seen] * B


def test_an_encoder_sees_as_far_on_either_side():
    model, text = encoder(window=2, layers=1), ids(LIMIT)
    changed = (model.states(moved_on(text, 3)) != model.states(text)).any(-1)
    assert changed.tolist() == [[place in (2, 3, 4) for place in range(LIMIT)]] * B


def test_a_window_and_a_mask_only_forbid_more():
    module, plain = heads(window=2, heads=2).double(), heads(heads=2).double()
    x, mask = normal(B, T, C), torch.rand(B, 2, T, T, generator=generator()) < 0.5
    mask |= torch.eye(T, dtype=torch.bool)
    both = mask & banded_mask(T, 2)
    assert greatest_difference(module(x, mask=mask), plain(x, mask=both)) < EXACT
    assert greatest_difference(module(x, mask=mask[:, 0]), plain(x, mask=both[:, 0])) < EXACT


def test_the_band_of_the_last_queries_is_the_end_of_the_whole_band():
    assert torch.equal(banded_mask(3, 2, keys=T), banded_mask(T, 2)[-3:])


@pytest.mark.parametrize(
    ("window", "global_every", "expected"),
    [(4, 3, [4, 4, None, 4, 4, None, 4]), (4, None, [4] * 7), (None, 2, [None] * 7)],
)
def test_layers_are_local_but_for_every_nth(window, global_every, expected):
    blocks = small(window=window, global_every=global_every, layers=7).decoder.blocks
    assert [block.attention.window for block in blocks] == expected


# errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm_kind": "batch"}, 'norm_kind to be "layer" or "rms", got \'batch\''),
        ({"positions": "absolute"}, '"rotary" or "none"'),
        (
            {"positions": "rotary", "rotary_base": 0.0},
            "rotary_base above 0, got rotary_base=0.0",
        ),
        (
            {"positions": "rotary", "head_channels": 5},
            "even number of channels per head .* got head_width=5",
        ),
        ({"kv_heads": 2}, "kv_heads=2 and heads=11"),
        (
            {"experts": 2, "experts_used": 3},
            "as experts, got experts=2 and experts_used=3",
        ),
        ({"experts": 0}, "experts to be a whole number above 0, got 0"),
        ({"latent": 3, "kv_heads": 1}, "latent=3 and kv_heads=1 and qk_norm=False"),
        ({"latent": 3, "qk_norm": True}, "latent attention without the others, got latent=3 and"),
        ({"latent": 3, "positions": "rotary"}, "multiple of 4 channels per head .*head_width=2"),
        ({"latent": 3, "sink": True}, "latent attention without the others, got latent=3 and"),
        ({"window": 0}, "window to be a whole number above 0, got 0"),
        ({"global_every": 1.5}, "global_every to be .* got 1.5"),
        ({"kv_heads": 0}, "kv_heads to be a whole number above 0, got 0"),
        ({"head_channels": -1}, "head_channels to be .* got -1"),
        ({"rotary_scale": -1.0}, "rotary_scale above 0, got rotary_scale=-1.0"),
    ],
)
def test_a_switch_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GPTConfig(V, **(SIZES | options))
