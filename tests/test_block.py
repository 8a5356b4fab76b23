"""`src.attention.block` against torch with weights copied, and against what a block must not do."""

import pytest
import torch
from oracles import gradients, greatest_difference, normal
from torch import nn, tensor
from torch.nn import functional

from src.attention.block import Block, Decoder, Encoder
from src.attention.config import BlockConfig
from src.attention.encoder_decoder import EncoderDecoder
from src.attention.feed_forward import LayerNorm, layer_norm
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


NAMES = {  # of torch's layers, and ours
    "self_attn": "attention",
    "multihead_attn": "cross_attention",
    "in_proj_": "qkv.",
    "out_proj": "output",
    "linear1": "feed_forward.expand",
    "linear2": "feed_forward.contract",
}
NORMS = {"weight": "gain", "bias": "bias"}


def torchs(block):
    """torch's own layer with the weights of a block of ours."""
    kind = nn.TransformerDecoderLayer if block.cross else nn.TransformerEncoderLayer
    options = {"norm_first": block.norm == "pre", "dtype": torch.float64, "batch_first": True}
    theirs = kind(C, HEADS, HIDDEN, dropout=0.0, activation=functional.gelu, **options)
    norms = ["attention_norm", *["cross_norm"] * block.cross, "feed_forward_norm"]
    names = NAMES | {
        f"norm{i}.{old}": f"{norm}.{new}"
        for i, norm in enumerate(norms, start=1)
        for old, new in NORMS.items()
    }
    weights = {}
    for name in theirs.state_dict():
        ours = name
        for old, new in names.items():
            ours = ours.replace(old, new)
        weights[name] = block.get_parameter(ours)
    theirs.load_state_dict(weights)
    return theirs


# layer norm


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


# feed-forward network and block


def config(**options):
    return BlockConfig(**({"channels": C, "heads": HEADS} | options))


def block_of(generator, *, cross=False, **options):
    sizes = config(hidden=HIDDEN, **options)
    return randomised(Block(sizes, cross=cross, generator=generator))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_is_torchs_encoder_layer(generator, norm):
    ours, x = block_of(generator, norm=norm), normal(B, T, C).requires_grad_()
    mine, theirs = ours(x, causal=True), torchs(ours)(x, src_mask=~causal_mask(T))
    assert greatest_difference(mine, theirs) < EXACT
    assert greatest_difference(*gradients(mine, x), *gradients(theirs, x)) < EXACT


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_with_cross_attention_is_torchs_decoder_layer(generator, norm):
    ours, mask = block_of(generator, norm=norm, cross=True), padding_mask(tensor([3, S]), S)
    parts = normal(B, T, C).requires_grad_(), normal(B, S, C, seed=2).requires_grad_()
    hidden = {"tgt_mask": ~causal_mask(T), "memory_key_padding_mask": ~mask[:, 0]}
    mine, theirs = ours(*parts, causal=True, memory_mask=mask), torchs(ours)(*parts, **hidden)
    pairs = [(mine, theirs), *zip(gradients(mine, *parts), gradients(theirs, *parts), strict=True)]
    assert all(greatest_difference(*pair) < EXACT for pair in pairs)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_is_torchs_encoder(generator, norm):
    ours = randomised(Encoder(LAYERS, config(hidden=HIDDEN, norm=norm), generator=generator))
    x, mask = normal(B, S, C), padding_mask(tensor([3, S]), S)
    theirs = x
    for block in ours.blocks:
        theirs = torchs(block).eval()(theirs, src_key_padding_mask=~mask[:, 0])
    if norm == "pre":
        final = ours.final_norm
        theirs = functional.layer_norm(theirs, (C,), final.gain, final.bias)
    assert greatest_difference(ours(x, mask=mask)[mask[:, 0]], theirs[mask[:, 0]]) < EXACT


@pytest.mark.parametrize("mask", [None, banded_mask(T, 2)])
def test_a_decoder_without_a_memory_is_an_encoder_with_a_causal_mask(generator, mask):
    """A mask of its own only forbids more."""
    decoder = randomised(Decoder(LAYERS, config(hidden=HIDDEN), generator=generator))
    encoder = Encoder(LAYERS, config(hidden=HIDDEN), generator=generator).double()
    encoder.load_state_dict(decoder.state_dict())
    x, both = normal(B, T, C), causal_mask(T) if mask is None else mask & causal_mask(T)
    assert greatest_difference(decoder(x, mask=mask), encoder(x, mask=both)) < EXACT


def test_a_rotary_block_rotates_its_own_attention_and_not_that_to_a_memory(generator):
    block = Block(config(positions="rotary"), cross=True, generator=generator)
    assert block.attention.rotary
    assert not block.cross_attention.rotary


def test_every_norm_of_a_decoder_has_the_eps_that_was_asked_for(generator):
    decoder = Decoder(2, config(eps=0.25), cross=True, generator=generator)
    norms = [module.eps for module in decoder.modules() if isinstance(module, LayerNorm)]
    assert norms == [0.25] * 7


def test_dropout_falls_on_what_is_added_and_on_the_attention_weights(generator):
    block = Block(config(dropout=0.99999), generator=generator)
    x = normal(B, T, C).float()
    assert torch.equal(block(x), x)  # pre-norm: nothing is added to the stream
    assert block.attention.config.dropout == 0.99999
    assert not torch.equal(block.eval()(x), x)


@pytest.mark.parametrize("cross", [False, True])
def test_what_a_post_norm_block_adds_is_dropped_before_the_norm(generator, cross):
    """With everything dropped, only the norms are left."""
    options = {"norm": "post", "cross": cross, "dropout": 0.99999}
    block = block_of(generator, **options)
    x, memory = normal(B, T, C), normal(B, S, C, seed=2) if cross else None
    norms = [block.attention_norm, block.feed_forward_norm]
    norms[1:1] = [block.cross_norm] if cross else []
    only_norms = x
    for norm in norms:
        only_norms = norm(only_norms)
    assert greatest_difference(block(x, memory), only_norms) < EXACT
    assert greatest_difference(block.eval()(x, memory), only_norms) > 0.1


# encoder and decoder together


def translator(generator, *, padding=None, **options):
    sizes = {"layers": 2, "context_length": 8, "padding": padding}
    return EncoderDecoder(13, 17, config(**options), **sizes, generator=generator)


def ids(below, *shape, seed=1):
    return torch.randint(1, below, shape, generator=torch.Generator().manual_seed(seed))


def moved_on(ids, place, below):
    """The same ids, with another at one place."""
    other = ids.clone()
    other[:, place] = (other[:, place] + 1) % below
    return other


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_target_token_changes_no_logits_before_it_and_all_sources_matter(generator, norm):
    model = translator(generator, norm=norm)
    source, target = ids(13, B, S), ids(17, B, T, seed=2)
    logits = model(source, target)
    assert logits.shape == (B, T, 17)
    for t in range(T):
        other = model(source, moved_on(target, t, 17))
        assert torch.equal(other[:, :t], logits[:, :t])
        assert (other[:, t:] != logits[:, t:]).any(-1).all()
    for s in range(S):
        assert (model(moved_on(source, s, 13), target) != logits).any(-1).all()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_falls_on_the_embeddings_of_source_and_target(generator, norm):
    """With everything dropped, the biases of the norms are left, and these begin at zero."""
    model = translator(generator, norm=norm, dropout=0.99999)
    torch.manual_seed(0)  # dropout draws from torch's own generator
    for training in (True, False):
        memory, mask = model.train(training).encode(ids(13, B, S))
        for states in (memory, model.decode(ids(17, B, T, seed=2), memory, mask)):
            assert not states.any() if training else states.all()


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x, g: block_of(g, norm="sandwich"), '"pre" or "post", got \'sandwich\''),
        (lambda x, g: block_of(g, cross=True)(x), "a memory for cross-attention"),
        (lambda x, g: block_of(g)(x, x), "no memory without cross-attention"),
    ],
)
def test_what_cannot_be_is_refused(generator, make, message):
    with pytest.raises(ValueError, match=message):
        make(normal(B, T, C), generator)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (ids(13, B, 9), ids(17, B, T), "the 8 learnt, got 9"),
        (torch.full((B, S), 13), ids(17, B, T), "ids from 0 to 12.*got ids from 13 to 13"),
        (ids(13, B, S), torch.full((B, T), 17), "ids from 0 to 16"),
        (ids(13, B, S)[0], ids(17, B, T), r"\(B, T\) and type torch.int64, got \(7,\)"),
        (ids(13, B, S).float(), ids(17, B, T), "torch.float32"),
    ],
)
def test_ids_that_do_not_fit_are_refused(generator, source, target, message):
    with pytest.raises(ValueError, match=message):
        translator(generator)(source, target)
