"""`src.gpt.both_sides` against the parts it is made of, and what each position may see."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import embedding

from src.gpt.both_sides import EncoderDecoderLM, EncoderLM
from src.gpt.gpt2 import GPTConfig

V, T, S, C, START = 17, 5, 7, 12, 2
CONFIG = GPTConfig(V, context_length=11, layers=2, heads=3, channels=C)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def ids(*shape, seed=1):
    return torch.randint(V, shape, generator=generator(seed))


def encoder(config=CONFIG, **options):
    return EncoderLM(config, generator=generator(), **options).double().eval()


def translator(config=CONFIG):
    return EncoderDecoderLM(config, start=START, generator=generator()).double().eval()


def test_every_position_sees_every_other():
    model, text = encoder(), ids(1, T)
    before = model(text)
    for t in range(T):
        other = text.clone()
        other[:, t] = (other[:, t] + 1) % V
        assert ((model(other) - before).abs().amax(-1) > 1e-9).all()


@pytest.mark.parametrize("segments", [0, 2])
def test_it_has_as_many_parameters_as_a_gpt_and_the_segments(segments):
    own = sum(p.numel() for p in encoder(segments=segments).parameters())
    assert own == CONFIG.parameters + segments * C


def test_a_segment_adds_its_vector():
    model, text = encoder(segments=2), ids(2, T)
    parts = torch.tensor([[0, 0, 1, 1, 1]] * 2)
    x = embedding(text, model.embedding) + model.positions(T)
    x = x + torch.stack([model.segments[s] for s in parts[0].tolist()])
    assert torch.allclose(model(text, segments=parts), model.unembed(model.encoder(x)))
    assert torch.allclose(model(text), model(text, segments=torch.zeros_like(parts)))
    assert not torch.allclose(model(text), model(text, segments=parts), atol=1e-3)


@pytest.mark.parametrize("segments", [0, 2])
def test_dropout_falls_on_the_sum_of_token_position_and_segment(segments):
    """With everything dropped, the bias of the last norm is left, and that begins at zero."""
    model = encoder(replace(CONFIG, dropout=0.99999), segments=segments)
    assert not model.train().states(ids(3, T)).any()
    assert model.eval().states(ids(3, T)).all()


@pytest.mark.parametrize("make", [encoder, translator])
def test_padding_is_not_seen(make):
    model, text, lengths = make(), ids(3, T), torch.tensor([5, 2, 4])
    padded = model.extracted(text, lengths)
    other = text.clone()
    other[1, 2:], other[2, 4:] = 3, 9
    again = model.extracted(other, lengths)
    for row, length in enumerate(lengths.tolist()):
        n = min(length, padded.shape[1])
        assert torch.allclose(padded[row, :n], again[row, :n])
        alone = model.extracted(text[row : row + 1, :length], lengths[row : row + 1])
        assert torch.allclose(padded[row, :n], alone[0])


def test_one_table_serves_source_target_and_logits():
    model, grown = translator(), translator(replace(CONFIG, vocabulary_size=V + 1))
    assert model.target_embedding is model.source_embedding is model.unembedding.weight
    sizes = [sum(p.numel() for p in m.parameters()) for m in (model, grown)]
    assert sizes[1] - sizes[0] == C


def test_the_extracted_state_is_that_before_the_first_token():
    model, source = translator(), ids(3, S)
    state = model.extracted(source, torch.full((3,), S))
    assert state.shape == (3, 1, C)
    first = model(source, torch.full((3, 1), START))
    assert torch.allclose(model.unembedding(state), first)


def test_the_answer_is_the_greedy_one_and_stops():
    model, source, written = translator(), ids(S, seed=4), [START]
    said = model.answer(source, most=4, stop=V)
    assert len(said) == 4
    for token in said:
        assert token == int(model(source[None], torch.tensor([written]))[0, -1].argmax())
        written.append(token)
    assert model.answer(source, most=4, stop=said[0]) == []


def test_initial_weights_are_those_of_the_configuration():
    config = replace(CONFIG, channels=96, initial_std=0.05)
    model = translator(config)
    for block in (*model.encoder.blocks, *model.decoder.blocks):
        writers = [block.attention.output, block.feed_forward.contract]
        writers += [block.cross_attention.output] if block.cross else []
        for writer in writers:
            assert abs(float(writer.weight.detach().std()) / 0.025 - 1) < 0.05  # 0.05 / sqrt(2 · 2)
        assert abs(float(block.attention.qkv.weight.detach().std()) / 0.05 - 1) < 0.05
    torch.manual_seed(3)
    assert torch.equal(translator(config).source_embedding, model.source_embedding)


def test_both_stacks_are_those_of_the_configuration():
    model = translator(replace(CONFIG, bias=False, hidden=8))
    assert not any("bias" in name for name, _ in model.named_parameters())
    networks = [block.feed_forward for s in (model.encoder, model.decoder) for block in s.blocks]
    assert {each.expand.out_features for each in networks} == {8}


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: encoder()(ids(1, 12)), "12"),
        (lambda: encoder()(ids(T)), r"\(B, T\)"),
        (lambda: encoder()(torch.full((1, 3), V)), "ids from 0 to 16"),
        (lambda: encoder()(ids(1, 3), None, ids(1, 3)), "no segments .* segments=2"),
        (lambda: encoder(replace(CONFIG, tied=False)), "tied=True, got tied=False"),
        (lambda: translator(replace(CONFIG, tied=False)), r"got \(False, 'learnt'\)"),
        (lambda: translator(replace(CONFIG, positions="none")), r"got \(True, 'none'\)"),
    ],
)
def test_what_cannot_be_is_refused(work, message):
    with pytest.raises(ValueError, match=message):
        work()
