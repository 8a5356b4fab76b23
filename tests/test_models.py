"""What the code that scores and samples asks of any model, and what each model of the book says."""

import pytest
import torch

from src.attention.recurrence import LSTM, RNN
from src.gpt.both_sides import EncoderDecoderLM, EncoderLM
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.in_context import AttentionOnly
from src.gpt.sampling import generate
from src.likelihood.evaluation import corpus_perplexity
from src.likelihood.models import context_length_of, device_of, evaluating, last_logits
from src.likelihood.neural import WindowMLP
from src.likelihood.smoothing import NgramModel
from src.texts.maps import RandomMaps
from src.texts.markov import small_english
from src.texts.microworld import MicroWorld

V, T = 7, 5
CONFIG = GPTConfig(V, context_length=T, layers=2, heads=2, channels=4)


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


def maps():
    return RandomMaps(["a", "b"], ["x", "y"], pairs=3)


RECURRENT = {"embedding_size": 3, "hidden_size": 4, "generator": drawn()}
NETWORKS = {
    "GPT": lambda: GPT(CONFIG, generator=drawn()),
    "encoder": lambda: EncoderLM(CONFIG, segments=2, generator=drawn()),
    "encoder-decoder": lambda: EncoderDecoderLM(CONFIG, start=3, generator=drawn()),
    "RNN": lambda: RNN(V, **RECURRENT),
    "LSTM": lambda: LSTM(V, layers=2, **RECURRENT),
}
MODELS = {
    **{name: NETWORKS[name] for name in ("GPT", "encoder", "RNN", "LSTM")},
    "attention only": lambda: AttentionOnly(
        V, context_length=T, layers=1, heads=2, channels=4, generator=drawn()
    ),
    "window": lambda: WindowMLP(
        V, context_length=2, embedding_size=3, hidden_size=4, generator=drawn()
    ),
    "n-gram": lambda: NgramModel.fit([1, 2, 1, 3], order=2, vocabulary_size=V, estimator="add-k"),
    "Markov source": small_english,
    "micro-world": MicroWorld,
    "random maps": maps,
    "a function": lambda: lambda ids: torch.zeros(*ids.shape, V),
}
each_model = pytest.mark.parametrize("name", MODELS)
each_network = pytest.mark.parametrize("name", NETWORKS)


@each_model
def test_every_model_passes_through_the_one_sampler_and_the_one_scorer(name):
    model = MODELS[name]()
    begin = 1 if name == "micro-world" else 0
    (text,) = generate(model, [[begin]], max_new_tokens=T - 1, generator=drawn())
    assert len(text) == T
    inputs, targets = text[None, :-1], text[1:, None]
    with torch.no_grad():
        logits = model(inputs)
        assert torch.allclose(last_logits(model, inputs), logits[:, -1], atol=1e-6)
    by_hand = logits[0].double().log_softmax(-1).gather(-1, targets).sum()
    found = corpus_perplexity(model, text, context_length=T)
    assert found.nats == pytest.approx(-float(by_hand), rel=1e-5)
    assert device_of(model) == torch.device("cpu")


@pytest.mark.parametrize(("name", "length"), [("GPT", T), ("encoder", T), ("attention only", T)])
def test_a_window_slides_where_a_model_says_how_much_it_reads(name, length):
    model = MODELS[name]()
    assert context_length_of(model) == length
    assert context_length_of(model, 3) == 3
    (text,) = generate(model, [[0, 1]], max_new_tokens=2 * T, generator=drawn())
    assert len(text) == 2 * T + 2
    again = generate(model, [text[:-1]], max_new_tokens=1, filters=[], generator=drawn(3))
    window = generate(model, [text[-T - 1 : -1]], max_new_tokens=1, generator=drawn(3))
    assert again[0][-1] == window[0][-1]


def test_a_model_that_says_nothing_reads_any_number():
    assert context_length_of(MODELS["LSTM"]()) is None
    assert context_length_of(MODELS["a function"]()) is None
    with pytest.raises(ValueError, match="context of 1 token or more, got context_length=0"):
        context_length_of(MODELS["GPT"](), 0)


@each_network
def test_layers_hold_every_parameter_once(name):
    network = NETWORKS[name]()
    held = [id(p) for layer in network.layers() for p in layer]
    assert sorted(held) == sorted({id(p) for p in network.parameters()})
    assert len(network.layers()) == 2 + (1 if name == "RNN" else 2)


@each_network
def test_a_network_tells_its_sizes(name):
    network = NETWORKS[name]()
    assert network.vocabulary_size == V == len(network.token_table)
    assert network.token_table is network.layers()[0][0]
    assert network.channels == 4
    if network.causal:
        ids = torch.tensor([[1, 2, 3]])
        states = network.states(ids)
        assert states.shape == (1, 3, network.channels)
        assert torch.equal(network.unembed(states), network(ids))
        changed = network.states(torch.tensor([[1, 2, 4]]))
        assert torch.equal(states[:, :2], changed[:, :2])


def test_evaluating_switches_dropout_off_and_on_again():
    model = torch.nn.Dropout(0.5)

    def stopped():
        with evaluating(model):
            assert not model.training
            raise KeyError

    with pytest.raises(KeyError):
        stopped()
    assert model.training
    with evaluating(MODELS["a function"]()):
        pass
