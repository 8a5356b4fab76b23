"""What the code that scores and samples asks of any model, and what each model of the book says."""

import ast
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from next_token.streaming import Reader, stream
from src.attention.block import Block
from src.attention.recurrence import LSTM, RNN
from src.gpt.both_sides import EncoderDecoderLM, EncoderLM
from src.gpt.choices import choice_scores, greedy_answers
from src.gpt.gpt1_finetuning import TaskModel, Tuned, predict
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.in_context import AttentionOnly
from src.gpt.input_forms import InputForms
from src.gpt.sampling import beam_search, generate
from src.likelihood.evaluation import corpus_perplexity, document_scores
from src.likelihood.fitting import History, mean_loss
from src.likelihood.models import context_length_of, device_of, evaluating, last_logits
from src.likelihood.neural import WindowMLP
from src.likelihood.smoothing import NgramModel
from src.texts.maps import RandomMaps
from src.texts.markov import small_english
from src.texts.microworld import MicroWorld
from src.tokens.bytes import ByteTokenizer

V, T = 7, 5
ROOT = Path(__file__).parents[1]
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


# ---- one door for all that scores and draws ---------------------------------------------------

DROPPING = replace(CONFIG, dropout=0.9, context_length=20)
IDS, SIZES = torch.tensor([0, 3, 1, 4, 1, 5, 2]), {"context_length": 20}
FORMS = InputForms("classification", ("a", "b"), ByteTokenizer(), 20)
BATCH, MOST = (IDS[None, :-1], IDS[None, 1:]), {"max_new_tokens": 9}


def gpt(seed=0, size=V):
    return GPT(replace(DROPPING, vocabulary_size=size), generator=drawn(seed))


def both_ways():
    return EncoderDecoderLM(DROPPING, start=3, generator=drawn())


def labelled(model):
    return predict(Tuned(model, FORMS, History()), [("ab",)]).tolist()


DOORS = {
    "corpus_perplexity": (gpt, lambda m: corpus_perplexity(m, IDS, **SIZES)),
    "document_scores": (gpt, lambda m: document_scores(m, [IDS], **SIZES)),
    "mean_loss": (gpt, lambda m: mean_loss(m, [BATCH])),
    "choice_scores": (gpt, lambda m: choice_scores(m, [(IDS, [IDS, IDS[:2]])], **SIZES)),
    "greedy_answers": (gpt, lambda m: greedy_answers(m, [IDS], **SIZES, **MOST)[0].tolist()),
    "generate": (gpt, lambda m: generate(m, [[0]], generator=drawn(), **MOST)[0].tolist()),
    "beam_search": (gpt, lambda m: beam_search(m, IDS, beams=2, **MOST)[0].log_prob),
    "stream": (gpt, lambda m: [*stream(Reader(m), [0], generator=drawn(), **MOST)]),
    "answer": (both_ways, lambda m: m.answer(IDS, most=9, stop=6)),
    "predict": (lambda: TaskModel(gpt(0, 259), FORMS.family, 2, generator=drawn()), labelled),
}


@pytest.mark.parametrize("name", DOORS)
def test_whatever_scores_or_draws_has_no_dropout_and_leaves_each_part_in_its_mode(name):
    made, act = DOORS[name]
    model, quiet = made().train(), made().eval()
    next(m for m in model.modules() if isinstance(m, Block)).eval()  # as if somebody had frozen it
    before = [part.training for part in model.modules()]
    assert act(model) == act(model) == act(quiet)
    assert [part.training for part in model.modules()] == before
    assert not any(part.training for part in quiet.modules())


def test_whatever_takes_a_language_model_or_a_policy_is_among_those_that_are_tried():
    found, kinds = set(), {"LanguageModel", "Policy", "Tuned", "Reader"}
    for path in (*ROOT.glob("src/**/*.py"), *ROOT.glob("next_token/*.py")):
        for each in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(each, ast.FunctionDef) and each.name[0] != "_":
                found |= {
                    each.name for a in each.args.args if ast.unparse(a).split(": ")[-1] in kinds
                }
    # What the doors are made of; a part of losses; `predict`, asked for a share; a file.
    others = {"context_length_of", "device_of", "last_logits", "answer_log_probs"}
    assert found - DOORS.keys() == others | {"accuracy", "save"}


def test_an_error_leaves_modes_and_gradients_as_they_were():
    model = torch.nn.Dropout(0.5)
    with suppress(KeyError), evaluating(model, MODELS["a function"]()):
        assert not torch.is_grad_enabled()
        raise KeyError
    assert model.training
    assert torch.is_grad_enabled()
