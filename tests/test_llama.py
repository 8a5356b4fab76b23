"""Our GPT as a Llama against transformers' Llama and DeepSeek-V2, in both directions."""

import json
import os
from dataclasses import replace

import pytest
import torch
from oracles import gradients, greatest_difference, normal
from safetensors.torch import load_file, save_file
from torch.nn import functional

from next_token.llama import halves, load, neighbours, released_weights, save
from src.attention.config import BlockConfig
from src.attention.latent import LatentAttention
from src.attention.positions import rotate
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.pretrained import CheckpointError

B, T, V, LIMIT, LAYERS, HEADS, KV_HEADS, C, HIDDEN = 2, 5, 17, 7, 3, 6, 2, 36, 13
SIZES = {"context_length": LIMIT, "layers": LAYERS, "heads": HEADS, "channels": C, "hidden": HIDDEN}
NAMES = {
    "context_length": "max_position_embeddings",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "channels": "hidden_size",
    "hidden": "intermediate_size",
}
OPTIONS = [
    {},
    {"kv_heads": KV_HEADS},
    {"kv_heads": 1, "head_channels": 10, "tied": True, "rotary_base": 53.0, "eps": 1e-2},
    {"kv_heads": KV_HEADS, "bias": True, "rotary_scale": 3.0},
]


@pytest.fixture(scope="module")
def hugging_face():
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


@pytest.fixture
def ids():
    return torch.randint(V, (B, T), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def in_float64(monkeypatch):
    """Their norms and angles are of 32 bits, whatever the weights are of; here of 64."""
    from transformers.models.llama import modeling_llama

    def norm(self, x):
        return functional.rms_norm(x, x.shape[-1:], self.weight, self.variance_epsilon)

    def angles(self, x, position_ids):
        width = 2 * len(self.inv_freq)
        given = self.config.rope_parameters
        base, scale = given["rope_theta"], given.get("factor", 1.0)
        frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        turned = position_ids.double()[..., None] / scale * frequencies
        turned = torch.cat([turned, turned], -1)
        return turned.cos(), turned.sin()

    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", norm)
    monkeypatch.setattr(modeling_llama.LlamaRotaryEmbedding, "forward", angles)


def ours(**options):
    config = GPTConfig.llama(V, **(SIZES | options))
    model = GPT(config, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.add_(0.2 * normal(*parameter.shape, seed=number))
    return model.eval()


def theirs(hugging_face, folder):
    model, report = hugging_face.LlamaForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    return model.eval()


def loss(logits, ids):
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def configure(folder, **changes):
    """Change what `config.json` says; `...` takes a setting out."""
    path = folder / "config.json"
    stored = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: said for name, said in stored.items() if said is not ...}))


# both directions


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_llama_of_ours_gives_its_logits_there(hugging_face, tmp_path, ids, options):
    model = ours(**options)
    expected = theirs(hugging_face, save(model, tmp_path))(ids).logits
    assert greatest_difference(model(ids), expected) < 1e-5 * float(expected.abs().max())


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_logits_and_gradients_are_theirs_to_the_last_digits(hugging_face, tmp_path, ids, options):
    model = ours(**options)
    other = theirs(hugging_face, save(model, tmp_path)).double()
    logits, expected = model.double()(ids), other(ids).logits
    assert greatest_difference(logits, expected) < 1e-12 * float(expected.detach().abs().max())
    loss(logits, ids).backward()
    loss(expected, ids).backward()
    gradient = {name: weight.grad for name, weight in other.named_parameters()}
    released = released_weights(model.config, {n: w.grad for n, w in model.named_parameters()})
    assert released.keys() == {name.removeprefix("model.") for name in gradient}
    for name, weight in gradient.items():
        assert greatest_difference(released[name.removeprefix("model.")], weight) < 1e-12, name


@pytest.mark.parametrize("old", [False, True])
def test_a_llama_of_theirs_gives_its_logits_here(hugging_face, tmp_path, ids, old):
    torch.manual_seed(0)
    turning = {"rope_parameters": {"rope_type": "default", "rope_theta": 53.0}}
    sizes = {theirs: SIZES[ours] for ours, theirs in NAMES.items()} | turning
    options = {"vocab_size": V, "num_key_value_heads": KV_HEADS, "initializer_range": 0.5}
    config = hugging_face.LlamaConfig(**sizes, **options)
    other = hugging_face.LlamaForCausalLM(config).eval()
    other.save_pretrained(tmp_path)
    if old:  # as the library wrote it before its version 5, and with what Llama 1 had besides
        configure(tmp_path, rope_parameters=..., head_dim=..., rope_theta=53.0, rope_scaling=None)
        tensors = dict(load_file(tmp_path / "model.safetensors"))
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(3)
        save_file(tensors, tmp_path / "model.safetensors")
    model, expected = load(tmp_path), other(ids).logits
    assert (model.config.rotary_base, model.config.kv_heads) == (53.0, KV_HEADS)
    assert greatest_difference(model(ids), expected) < 1e-5 * float(expected.abs().max())


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_was_saved_is_loaded_to_the_bit(tmp_path, ids, options):
    model = ours(**options, dropout=0.25)
    again = load(save(model, tmp_path))
    kept = {"head_channels": model.config.head_width}
    assert replace(again.config, **kept) == replace(model.config, **kept)
    assert torch.equal(again(ids), model(ids))


@pytest.mark.parametrize("end", [3, None])
def test_others_stop_at_the_end_token_and_without_one_nowhere(hugging_face, tmp_path, end):
    gpt = GPTConfig(V, context_length=5, layers=1, heads=2, channels=4)
    for model in (ours(), GPT(gpt, generator=torch.Generator().manual_seed(0))):
        found = hugging_face.AutoConfig.from_pretrained(save(model, tmp_path, end=end))
        assert found.bos_token_id == found.eos_token_id == end


# the parts


def test_rows_are_sorted_so_that_pairs_are_halves():
    """Two heads of six rows each: i and i + 3 are a pair."""
    weight = normal(2 * 6, C)
    order = [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    assert torch.equal(halves(weight, 2), weight[order])
    assert torch.equal(halves(weight[:, 0], 2), weight[order, 0])
    assert torch.equal(neighbours(halves(weight, 2), 2), weight)


def test_neighbours_turned_are_halves_turned():
    """One head of 6 channels; theirs turns channel i with channel i + 3."""
    x = normal(T, 6)
    angles = torch.arange(T)[:, None] * 10_000.0 ** (-torch.arange(3, dtype=torch.float64) / 3)
    low, high = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    their_way = torch.cat([low * cos - high * sin, high * cos + low * sin], -1)
    mine = rotate(neighbours(x.mT, 1).mT)
    assert greatest_difference(halves(mine.mT, 1).mT, their_way) < 1e-14


@pytest.mark.parametrize("causal", [True, False])
def test_latent_attention_is_that_of_deepseek(hugging_face, causal):
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as deepseek

    heads, width, turned, latent = 3, 8, 4, 14
    sizes = {"hidden_size": C, "num_attention_heads": heads, "num_key_value_heads": heads}
    sizes |= {"q_lora_rank": None, "kv_lora_rank": latent, "head_dim": turned}
    sizes |= {"qk_nope_head_dim": width, "qk_rope_head_dim": turned, "v_head_dim": width}
    config = hugging_face.DeepseekV2Config(**sizes, attn_implementation="eager")
    options = {"heads": heads, "head_channels": width, "latent": latent, "positions": "rotary"}
    drawn = torch.Generator().manual_seed(0)
    sizes = BlockConfig(channels=C, **options, bias=False, eps=1e-6)
    module = LatentAttention(sizes, generator=drawn)
    with torch.no_grad():
        module.latent_gain.add_(0.5 * normal(latent))
    other = deepseek.DeepseekV2Attention(config, layer_idx=0)
    other.load_state_dict(
        {
            "q_proj.weight": module.query.weight,
            "kv_a_proj_with_mqa.weight": module.down.weight,
            "kv_a_layernorm.weight": module.latent_gain,
            "kv_b_proj.weight": module.up.weight,
            "o_proj.weight": module.output.weight,
        }
    )
    x = normal(B, T, C).float().requires_grad_()
    angles = deepseek.DeepseekV2RotaryEmbedding(config)(x, torch.arange(T)[None])
    mask = torch.full((T, T), -torch.inf).triu(1) if causal else torch.zeros(T, T)
    expected = other(x, mask[None, None], position_embeddings=angles)[0]
    result = module(x, causal=causal)
    assert greatest_difference(result, expected) < 1e-5
    assert greatest_difference(*gradients(result, x), *gradients(expected, x)) < 1e-4


# errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act silu.*'gelu'"),
        ({"attention_bias": True}, "biases everywhere or nowhere"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "linear.* 'yarn'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "linear.* 'dynamic'"),
        ({"num_key_value_heads": 4}, "kv_heads=4.* heads=6"),
        ({"vocab_size": None}, "vocabulary_size"),
        ({"hidden_size": ...}, "expected channels to be .*, got None"),
        ({"num_hidden_layers": 10**9}, "expected 1,000,000,000 blocks in .*got 30 tensors"),
        ({"intermediate_size": 10**12}, r"mlp.*_proj.weight .*1000000000000"),
        ({"model_type": "mistral"}, "model_type = 'gpt2', .* 'mistral'"),
    ],
)
def test_a_folder_that_is_not_what_it_says_is_refused(tmp_path, change, message):
    save(ours(), tmp_path)
    configure(tmp_path, **change)
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 3}, "Llama's blocks.*got window=3"),
        ({"qk_norm": True}, "got qk_norm=True"),
        ({"norm": "post"}, "got norm='post'"),
        ({"norm_kind": "layer", "activation": "gelu"}, "activation='gelu', norm_kind='layer'"),
        ({"positions": "none"}, "as GPT-2 is, got .*positions='none'"),
    ],
)
def test_what_the_format_cannot_say_is_not_written(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        save(ours(**options), tmp_path / "model")
    assert not (tmp_path / "model").exists()
