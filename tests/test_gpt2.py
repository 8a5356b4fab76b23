"""`src.gpt.gpt2`: published counts, causality, what the settings do, and what is refused."""

import math

import pytest
import torch
from oracles import greatest_difference

from src.gpt.gpt2 import GPT, GPTConfig
from src.likelihood.maximum_likelihood import negative_log_likelihood

B, T, V, C, HEADS, LAYERS, LIMIT = 2, 5, 17, 22, 11, 3, 7
SIZES = {"context_length": LIMIT, "layers": LAYERS, "heads": HEADS, "channels": C}


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def ids(generator):
    return torch.randint(V, (B, T), generator=generator)


def small(generator, **options):
    return GPT(GPTConfig(V, **(SIZES | options)), generator=generator)


# counts


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (GPTConfig.gpt1(), 116_534_784),
        (GPTConfig.gpt2("small"), 124_439_808),
        (GPTConfig.gpt2("medium"), 354_823_168),
        (GPTConfig.gpt2("large"), 774_030_080),
        (GPTConfig.gpt2("xl"), 1_557_611_200),
        (GPTConfig.gpt3(), 174_604_259_328),
    ],
)
def test_published_models_have_their_published_number_of_parameters(config, published):
    assert config.parameters == published


# the model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_states_and_unembedding_make_the_logits(generator, ids, norm, tied):
    model = small(generator, norm=norm, tied=tied)
    stream = model.hidden_states(ids)
    assert len(stream) == LAYERS + 1
    assert torch.equal(model.decoder.final_norm(stream[-1]), model.states(ids))
    assert torch.equal(model.unembed(model.states(ids)), model(ids))


def test_tied_weights_are_one_parameter_with_both_gradients(generator, ids):
    tied, untied = small(generator), small(torch.Generator().manual_seed(0), tied=False)
    assert "unembedding.weight" not in tied.state_dict()
    state = tied.state_dict()
    untied.load_state_dict({**state, "unembedding.weight": state["embedding"]})
    for model in (tied, untied):
        nats, tokens = negative_log_likelihood(model(ids[:, :-1]), ids[:, 1:])
        (nats / tokens).backward()
    both = untied.embedding.grad + untied.unembedding.weight.grad
    assert greatest_difference(tied.embedding.grad, both) < 1e-6


def test_a_new_model_is_nearly_the_uniform_one(generator, ids):
    model = small(generator, initial_std=0.02)
    nats, tokens = negative_log_likelihood(model(ids[:, :-1]), ids[:, 1:])
    assert abs(float(nats.detach() / tokens) - math.log(V)) < 0.1


@pytest.mark.parametrize("experts", [None, 3])
def test_residual_writers_start_smaller_by_the_root_of_their_number(experts):
    sizes = {"channels": 64, "heads": 2, "layers": 8, "experts": experts}
    scaled, plain = (
        small(torch.Generator().manual_seed(0), **sizes, scaled_residuals=each)
        for each in (True, False)
    )
    for name, parameter in scaled.named_parameters():
        ratio = 4 if "output.weight" in name or "contract.weight" in name else 1
        assert torch.allclose(parameter * ratio, plain.get_parameter(name)), name
    assert abs(float(scaled.embedding.detach().std()) - 0.1) < 0.01  # 0.8 / sqrt(64)


def test_the_initial_std_is_that_of_every_matrix(generator):
    model = small(generator, initial_std=0.5, channels=66, scaled_residuals=False)
    for name, parameter in model.named_parameters():
        spread = float(parameter.detach().std()) if parameter.ndim == 2 else 0.5
        assert abs(spread - 0.5) < 0.06, name


def test_the_same_seed_gives_the_same_model_whatever_the_global_generator():
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        states.append(small(torch.Generator().manual_seed(0), tied=False).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_dropout_falls_on_the_embeddings_too(generator, ids):
    model = small(generator, dropout=0.5)
    dropped = (model.hidden_states(ids)[0] == 0).double().mean()
    assert 0.35 < float(dropped) < 0.65


def test_dropout_acts_while_training_only(generator, ids):
    model = small(generator, dropout=0.5)
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))


# errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 4}, "heads that divide the channels, got channels=22 and heads=4"),
        ({"layers": 0}, "layers to be a whole number above 0, got 0"),
        ({"channels": 22.0}, "channels .* got 22.0"),
        ({"hidden": 0}, "hidden .* got 0"),
        ({"context_length": -1}, "context_length .* got -1"),
        ({"norm": "none"}, "got 'none'"),
        ({"activation": "swish"}, '"gelu" or "gelu_tanh" or "relu" or "silu", got .swish'),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"eps": 0.0}, "eps above 0"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GPTConfig(V, **(SIZES | options))


def test_what_does_not_fit_is_refused(generator, ids):
    model = small(generator)
    cache = model.new_cache()
    model(ids, cache=cache)
    with pytest.raises(ValueError, match="at most 7 tokens, the model's context, got 8;"):
        model(torch.zeros(1, 8, dtype=torch.long))
    with pytest.raises(ValueError, match="at most 7 tokens, the model's context, got 8;"):
        model(ids[:, :3], cache=cache)
    with pytest.raises(ValueError, match="from 0 to 16"):
        model(ids + V)
    with pytest.raises(ValueError, match=r"'xl'.*got '117M'"):
        GPTConfig.gpt2("117M")


CHANGES = [{"layers": 2}, {"heads": 11}, {"hidden": 5}, {"norm": "post"}, {"activation": "relu"}]
CHANGES += [{"bias": False}, {"eps": 0.5}, {"dropout": 0.5}]


@pytest.mark.parametrize("changed", CHANGES, ids=str)
def test_every_setting_changes_the_states(ids, changed):
    def states(**options):
        model = small(torch.Generator().manual_seed(1), **({"layers": 1, "heads": 2} | options))
        for bias in (each for name, each in model.named_parameters() if name.endswith("bias")):
            torch.nn.init.ones_(bias)  # they begin at 0, as if there were none
        torch.manual_seed(2)  # of the dropout
        return model.states(ids)

    assert torch.equal(states(), states())
    assert not torch.allclose(states(), states(**changed), atol=1e-4)
