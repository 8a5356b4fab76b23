"""Windows, rolling caches and sinks: by hand, and against transformers' Mistral and gpt-oss."""

import math
import os
from types import SimpleNamespace

import pytest
import torch
from oracles import greatest_difference, normal

from next_token.llama import released_weights
from src.attention.attention import scaled_dot_product_attention
from src.attention.positions import extended_base
from src.gpt.cache import WindowCache
from src.gpt.gpt2 import GPT, GPTConfig

B, H, G, T, D, V, C, LAYERS = 2, 6, 3, 11, 4, 17, 24, 3
EXACT = 1e-10  # float64


@pytest.fixture(scope="module")
def hugging_face():
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


def config_with(**options):
    return GPTConfig(V, context_length=T, layers=LAYERS, heads=H, channels=C, **options)


# caches of windows


def test_a_window_cache_refuses_what_the_other_does():
    keys, cache = torch.zeros(B, 1, 3, 2), WindowCache(4, 2)
    cache.extend(keys, keys)
    with pytest.raises(ValueError, match="at most 4 tokens in the cache, got 6"):
        cache.extend(keys, keys)


# sinks


def test_a_sink_is_worked_by_hand():
    """Scores 0 and log 2 beside a sink of 0: weights 1 / 4 and 2 / 4, and a quarter for nothing."""
    keys, values = torch.tensor([[0.0], [math.log(2)]]), torch.tensor([[4.0], [8.0]])
    output, weights = scaled_dot_product_attention(
        torch.ones(1, 1), keys, values, sink=torch.zeros(1, 1)
    )
    assert torch.allclose(weights, torch.tensor([[0.25, 0.5]]))
    assert torch.allclose(output, torch.tensor([[5.0]]))


# against transformers


@pytest.mark.usefixtures("hugging_face")
def test_a_sink_is_that_of_gpt_oss():
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    q, k, v = normal(B, H, T, D), normal(B, G, T, D, seed=2), normal(B, G, T, D, seed=3)
    sinks = normal(H, seed=4)
    mask = torch.full((T, T), -torch.inf, dtype=q.dtype).triu(1)
    theirs = SimpleNamespace(num_key_value_groups=H // G, sinks=sinks, training=False)
    expected, weights = eager_attention_forward(theirs, q, k, v, mask, D**-0.5)
    options = {"causal": True, "sink": sinks[:, None, None], "grouped": True}
    ours, of_ours = scaled_dot_product_attention(q, k, v, **options)
    assert greatest_difference(ours, expected.transpose(1, 2)) < EXACT
    assert greatest_difference(of_ours, weights) < EXACT
    bare, none = scaled_dot_product_attention(q, k, v, **options, need_weights=False)
    assert none is None
    assert torch.equal(bare, ours)


@pytest.mark.parametrize("window", [2, 4, T])
def test_a_window_is_that_of_mistral(hugging_face, window):
    sizes = {"context_length": T, "layers": LAYERS, "heads": H, "channels": C, "hidden": 13}
    config = GPTConfig.llama(V, **sizes, window=window)
    ours = GPT(config, generator=torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        for number, parameter in enumerate(ours.parameters()):
            parameter.add_(0.2 * normal(*parameter.shape, seed=number))
    options = {"vocab_size": V, "hidden_size": C, "intermediate_size": 13, "head_dim": C // H}
    options |= {"num_attention_heads": H, "num_key_value_heads": H, "num_hidden_layers": LAYERS}
    options |= {"max_position_embeddings": T, "sliding_window": window, "rms_norm_eps": config.eps}
    config = hugging_face.MistralConfig(**options, attn_implementation="eager")
    theirs = hugging_face.MistralForCausalLM(config).eval()
    weights = released_weights(ours.config, ours.state_dict())
    named = {n if n[:2] == "lm" else f"model.{n}": w for n, w in weights.items()}
    theirs.load_state_dict(named)
    ids = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))
    expected = theirs(ids).logits.detach()
    assert greatest_difference(ours(ids).detach(), expected) < 1e-5 * float(expected.abs().max())


@pytest.mark.parametrize("factor", [2, 8])
def test_a_greater_base_is_their_ntk_aware_one(hugging_face, factor):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    turning = {"rope_type": "dynamic", "rope_theta": 53.0, "factor": 1.0}
    options = {"max_position_embeddings": T, "rope_parameters": turning}
    config = hugging_face.LlamaConfig(hidden_size=C * 4, num_attention_heads=H, **options)
    theirs, _ = ROPE_INIT_FUNCTIONS["dynamic"](config, torch.device("cpu"), seq_len=factor * T)
    width = 4 * C // H
    base = extended_base(53.0, factor, channels=width)
    ours = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    assert torch.allclose(ours.float(), theirs, rtol=1e-5)
