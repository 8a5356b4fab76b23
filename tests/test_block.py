"""`src.attention.block` against torch with weights copied, and against what a block must not do."""

import pytest
import torch
from oracles import gradients, greatest_difference, normal
from torch import nn, tensor
from torch.nn import functional

from src.attention.block import Block, FeedForward, LayerNorm, layer_norm
from src.attention.encoder_decoder import Decoder, Encoder, EncoderDecoder
from src.attention.heads import recorded_weights
from src.attention.masks import banded_mask, causal_mask, padding_mask

B, T, S, C, HEADS, HIDDEN, LAYERS = 2, 5, 7, 22, 11, 31, 3
EXACT = 1e-10  # float64


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def randomised(module, seed=20):
    """The module in float64, none of its gains 1 and none of its biases 0."""
    generator = torch.Generator().manual_seed(seed)
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module


def norm_weights(norm, name):
    return {f"{name}.weight": norm.gain, f"{name}.bias": norm.bias}


def attention_weights(attention, name):
    return {
        f"{name}.in_proj_weight": attention.qkv.weight,
        f"{name}.in_proj_bias": attention.qkv.bias,
        f"{name}.out_proj.weight": attention.output.weight,
        f"{name}.out_proj.bias": attention.output.bias,
    }


def feed_forward_weights(feed_forward):
    return {
        f"linear{i}.{kind}": getattr(layer, kind)
        for i, layer in ((1, feed_forward.expand), (2, feed_forward.contract))
        for kind in ("weight", "bias")
    }


def torchs(block):
    """torch's own layer with the weights of a block of ours."""
    kind = nn.TransformerDecoderLayer if block.cross else nn.TransformerEncoderLayer
    theirs = kind(
        C,
        HEADS,
        HIDDEN,
        dropout=0.0,
        activation=functional.gelu,
        batch_first=True,
        norm_first=block.norm == "pre",
        dtype=torch.float64,
    )
    weights = attention_weights(block.attention, "self_attn")
    weights |= norm_weights(block.attention_norm, "norm1") | feed_forward_weights(
        block.feed_forward
    )
    if block.cross:
        weights |= attention_weights(block.cross_attention, "multihead_attn")
        weights |= norm_weights(block.cross_norm, "norm2")
    weights |= norm_weights(block.feed_forward_norm, "norm3" if block.cross else "norm2")
    theirs.load_state_dict(weights)
    return theirs


# layer norm


def test_layer_norm_is_worked_by_hand():
    x = tensor([[1.0, 2.0, 6.0]])  # mean 3, variance (4 + 1 + 9) / 3
    expected = tensor([[-2.0, -1.0, 3.0]]) / (14 / 3) ** 0.5 * 2 + 5
    result = layer_norm(x, torch.full((3,), 2.0), torch.full((3,), 5.0), eps=0.0)
    assert torch.allclose(result, expected)


def test_layer_norm_written_out_is_torchs_and_so_is_the_module():
    x, gain, bias = normal(B, T, C), normal(C, seed=2), normal(C, seed=3)
    x.requires_grad_()
    module = LayerNorm(C, eps=1e-3).double()
    module.gain.data, module.bias.data = gain, bias
    theirs = functional.layer_norm(x, (C,), gain, bias, 1e-3)
    written_out = layer_norm(x, gain, bias, eps=1e-3)
    for ours in (written_out, module(x)):
        assert greatest_difference(ours, theirs) < EXACT
        assert greatest_difference(*gradients(ours, x), *gradients(theirs, x)) < EXACT


def test_a_constant_row_is_not_divided_by_zero():
    x = torch.full((1, 4), 7.0, requires_grad=True)
    result = layer_norm(x, torch.ones(4), None)
    assert torch.equal(result, torch.zeros(1, 4))
    assert gradients(result, x)[0].isfinite().all()


def test_layer_norm_takes_each_position_by_itself():
    module, x = LayerNorm(C).double(), normal(B, T, C)
    other = x.clone()
    other[0, 2] += 1 + normal(C, seed=4)
    changed = (module(x) != module(other)).any(-1).nonzero().tolist()
    assert changed == [[0, 2]]


# feed-forward network and block


def test_a_feed_forward_network_is_two_matrices_around_its_activation(generator):
    module = randomised(FeedForward(C, hidden=HIDDEN, activation=torch.tanh, generator=generator))
    x = normal(B, T, C)
    first, second = module.expand, module.contract
    by_hand = torch.tanh(x @ first.weight.T + first.bias) @ second.weight.T + second.bias
    assert greatest_difference(module(x), by_hand) < EXACT


def test_a_feed_forward_network_is_four_times_as_wide_unless_told_otherwise(generator):
    assert FeedForward(C, generator=generator).expand.out_features == 4 * C


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_is_torchs_encoder_layer(generator, norm):
    ours = randomised(Block(C, heads=HEADS, hidden=HIDDEN, norm=norm, generator=generator))
    x = normal(B, T, C).requires_grad_()
    mine, theirs = ours(x, causal=True), torchs(ours)(x, src_mask=~causal_mask(T))
    assert greatest_difference(mine, theirs) < EXACT
    assert greatest_difference(*gradients(mine, x), *gradients(theirs, x)) < EXACT


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_with_cross_attention_is_torchs_decoder_layer(generator, norm):
    ours = randomised(
        Block(C, heads=HEADS, hidden=HIDDEN, norm=norm, cross=True, generator=generator)
    )
    x, memory = normal(B, T, C).requires_grad_(), normal(B, S, C, seed=2).requires_grad_()
    lengths = tensor([3, S])
    mine = ours(x, memory, causal=True, memory_mask=padding_mask(lengths, S))
    theirs = torchs(ours)(
        x,
        memory,
        tgt_mask=~causal_mask(T),
        memory_key_padding_mask=~padding_mask(lengths, S)[:, 0],
    )
    assert greatest_difference(mine, theirs) < EXACT
    for one, other in zip(gradients(mine, x, memory), gradients(theirs, x, memory), strict=True):
        assert greatest_difference(one, other) < EXACT


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_is_torchs_encoder(generator, norm):
    ours = randomised(
        Encoder(LAYERS, channels=C, heads=HEADS, hidden=HIDDEN, norm=norm, generator=generator)
    )
    lengths = tensor([3, S])
    x, mask = normal(B, S, C), padding_mask(lengths, S)
    theirs = x
    for block in ours.blocks:
        theirs = torchs(block).eval()(theirs, src_key_padding_mask=~mask[:, 0])
    if norm == "pre":
        final = ours.final_norm
        theirs = functional.layer_norm(theirs, (C,), final.gain, final.bias)
    assert greatest_difference(ours(x, mask=mask)[mask[:, 0]], theirs[mask[:, 0]]) < EXACT


def test_a_decoder_without_a_memory_is_an_encoder_with_a_causal_mask(generator):
    decoder = randomised(Decoder(LAYERS, channels=C, heads=HEADS, generator=generator))
    encoder = Encoder(LAYERS, channels=C, heads=HEADS, generator=generator).double()
    encoder.load_state_dict(decoder.state_dict())
    x = normal(B, T, C)
    assert greatest_difference(decoder(x), encoder(x, mask=causal_mask(T))) < EXACT


def test_the_masks_of_a_decoder_only_forbid_more(generator):
    decoder = randomised(Decoder(LAYERS, channels=C, heads=HEADS, generator=generator))
    encoder = Encoder(LAYERS, channels=C, heads=HEADS, generator=generator).double()
    encoder.load_state_dict(decoder.state_dict())
    x, band = normal(B, T, C), banded_mask(T, 2)
    both = encoder(x, mask=band & causal_mask(T))
    assert greatest_difference(decoder(x, mask=band), both) < EXACT


def test_a_rotary_block_rotates_its_own_attention_and_not_that_to_a_memory(generator):
    block = Block(C, heads=HEADS, rotary=True, cross=True, generator=generator)
    assert block.attention.rotary
    assert not block.cross_attention.rotary


def test_every_norm_of_a_decoder_has_the_eps_that_was_asked_for(generator):
    decoder = Decoder(2, channels=C, heads=HEADS, cross=True, eps=0.25, generator=generator)
    norms = [module.eps for module in decoder.modules() if isinstance(module, LayerNorm)]
    assert norms == [0.25] * 7


@pytest.mark.parametrize("bias", [False, True])
def test_a_block_has_as_many_parameters_as_the_formula_says(generator, bias):
    block = Block(C, heads=HEADS, bias=bias, generator=generator)
    expected = 12 * C * C + (13 if bias else 2) * C
    assert sum(p.numel() for p in block.parameters()) == expected


def test_only_attention_moves_information_between_positions(generator):
    block = randomised(Block(C, heads=HEADS, generator=generator))
    with torch.no_grad():
        block.attention.output.weight.zero_()
    x = normal(B, T, C)
    other = x.clone()
    other[:, 2] += 1
    changed = (block(x) != block(other)).any(-1)
    assert changed.tolist() == [[t == 2 for t in range(T)]] * B


@pytest.mark.parametrize("changed", range(T))
def test_a_decoder_is_causal_bit_for_bit(generator, changed):
    decoder = randomised(
        Decoder(LAYERS, channels=C, heads=HEADS, cross=True, generator=generator)
    ).float()
    x, memory = normal(B, T, C).float(), normal(B, S, C, seed=2).float()
    other = x.clone()
    other[:, changed] += 1
    before, after = decoder(x, memory), decoder(other, memory)
    assert torch.equal(before[:, :changed], after[:, :changed])
    assert (before[:, changed:] != after[:, changed:]).any(-1).all()


def test_dropout_falls_on_what_is_added_and_on_the_attention_weights(generator):
    block = Block(C, heads=HEADS, dropout=0.99999, generator=generator)
    x = normal(B, T, C).float()
    assert torch.equal(block(x), x)  # pre-norm: nothing is added to the stream
    assert block.attention.dropout == 0.99999
    assert not torch.equal(block.eval()(x), x)


@pytest.mark.parametrize("cross", [False, True])
def test_what_a_post_norm_block_adds_is_dropped_before_the_norm(generator, cross):
    """With everything dropped, only the norms are left."""
    options = {"norm": "post", "cross": cross, "dropout": 0.99999}
    block = randomised(Block(C, heads=HEADS, **options, generator=generator))
    x, memory = normal(B, T, C), normal(B, S, C, seed=2) if cross else None
    norms = [block.attention_norm, block.feed_forward_norm]
    norms[1:1] = [block.cross_norm] if cross else []
    only_norms = x
    for norm in norms:
        only_norms = norm(only_norms)
    assert greatest_difference(block(x, memory), only_norms) < EXACT
    assert greatest_difference(block.eval()(x, memory), only_norms) > 0.1


# encoder and decoder together


def translator(generator, **options):
    sizes = {"channels": C, "heads": HEADS, "layers": 2, "context_length": 8}
    return EncoderDecoder(13, 17, **sizes, **options, generator=generator)


def ids(below, *shape, seed=1):
    return torch.randint(1, below, shape, generator=torch.Generator().manual_seed(seed))


def test_a_target_token_changes_no_logits_before_it_and_all_sources_matter(generator):
    model = translator(generator)
    source, target = ids(13, B, S), ids(17, B, T, seed=2)
    logits = model(source, target)
    assert logits.shape == (B, T, 17)
    for t in range(T):
        other = target.clone()
        other[:, t] = (other[:, t] + 1) % 17
        assert torch.equal(model(source, other)[:, :t], logits[:, :t])
        assert (model(source, other)[:, t:] != logits[:, t:]).any(-1).all()
    for s in range(S):
        other = source.clone()
        other[:, s] = (other[:, s] + 1) % 13
        assert (model(other, target) != logits).any(-1).all()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_falls_on_the_embeddings_of_source_and_target(generator, norm):
    """With everything dropped, the biases of the norms are left, and these begin at zero."""
    model = translator(generator, norm=norm, dropout=0.99999)
    source, target = ids(13, B, S), ids(17, B, T, seed=2)
    torch.manual_seed(0)  # dropout draws from torch's own generator
    memory, mask = model.encode(source)
    assert not memory.any()
    assert not model.decode(target, memory, mask).any()
    model.eval()
    memory, mask = model.encode(source)
    assert memory.all()
    assert model.decode(target, memory, mask).all()


def test_padding_of_the_source_changes_nothing(generator):
    model = translator(generator, padding=0)
    source, target = ids(13, B, T), ids(17, B, T, seed=2)
    padded = functional.pad(source, (0, 2), value=0)
    assert greatest_difference(model(padded, target), model(source, target)) < 1e-5
    without = translator(torch.Generator().manual_seed(0))
    assert greatest_difference(without(padded, target), without(source, target)) > 1e-3


def test_the_memory_can_be_made_once(generator):
    model = translator(generator, padding=0)
    source, target = ids(13, B, S), ids(17, B, T, seed=2)
    assert torch.equal(model.decode(target, *model.encode(source)), model(source, target))


def test_the_same_seed_gives_the_same_model_whatever_the_global_generator():
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        states.append(translator(torch.Generator().manual_seed(0)).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_the_maps_of_every_layer_can_be_recorded(generator):
    model = translator(generator)
    with recorded_weights(model) as maps:
        model(ids(13, B, S), ids(17, B, T))
    shapes = {name: tuple(m.shape[2:]) for name, m in maps.items()}
    assert shapes == {
        **{f"encoder.blocks.{i}.attention": (S, S) for i in (0, 1)},
        **{f"decoder.blocks.{i}.attention": (T, T) for i in (0, 1)},
        **{f"decoder.blocks.{i}.cross_attention": (T, S) for i in (0, 1)},
    }


# errors


def test_a_norm_that_is_neither_pre_nor_post_is_refused(generator):
    with pytest.raises(ValueError, match='"pre" or "post", got \'sandwich\''):
        Block(C, heads=HEADS, norm="sandwich", generator=generator)


def test_a_memory_and_cross_attention_come_together(generator):
    x = normal(B, T, C).float()
    with pytest.raises(ValueError, match="a memory for cross-attention"):
        Block(C, heads=HEADS, cross=True, generator=generator)(x)
    with pytest.raises(ValueError, match="no memory without cross-attention"):
        Block(C, heads=HEADS, generator=generator)(x, x)


def test_a_negative_depth_is_refused(generator):
    with pytest.raises(ValueError, match="got -1"):
        Encoder(-1, channels=C, heads=HEADS, generator=generator)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (ids(13, B, 9), ids(17, B, T), "the 8 that were learnt, got 9"),
        (torch.full((B, S), 13), ids(17, B, T), "ids from 0 to 12 .*got ids from 13 to 13"),
        (ids(13, B, S), torch.full((B, T), 17), "ids from 0 to 16"),
        (ids(13, B, S)[0], ids(17, B, T), r"\(B, T\) and type torch.int64, got \(7,\)"),
        (ids(13, B, S).float(), ids(17, B, T), "torch.float32"),
    ],
)
def test_ids_that_do_not_fit_are_refused(generator, source, target, message):
    with pytest.raises(ValueError, match=message):
        translator(generator)(source, target)
