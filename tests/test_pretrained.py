"""`src.gpt.pretrained` against transformers' GPT-2, in both directions, and against broken
folders.
"""

import json
import os
from dataclasses import replace
from operator import itemgetter

import pytest
import torch
from local_server import WEIGHTS
from oracles import gradients, greatest_difference
from safetensors.torch import load_file, save_file

from src.gpt import pretrained
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.pretrained import CheckpointError, download, load, released_names, save

B, T, V, LIMIT, LAYERS, HEADS, C = 2, 5, 17, 7, 3, 11, 22


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


def theirs(hugging_face, seed=0, **options):
    torch.manual_seed(seed)
    sizes = {"vocab_size": V, "n_positions": LIMIT, "n_layer": LAYERS, "n_head": HEADS, "n_embd": C}
    tokens = {"bos_token_id": 0, "eos_token_id": 0}
    config = hugging_face.GPT2Config(**(sizes | tokens | options))
    model = hugging_face.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # so that gains and biases count
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def ours(**options):
    config = GPTConfig(V, context_length=LIMIT, layers=LAYERS, heads=HEADS, channels=C, **options)
    model = GPT(config, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture
def folder(tmp_path):
    return save(ours(), tmp_path / "model")


def weights_of(folder):
    """The tensors of a saved model, to be changed and stored again."""
    return dict(load_file(folder / WEIGHTS))


def store(folder, tensors):
    save_file(tensors, folder / WEIGHTS)
    return folder


def configure(folder, **changes):
    stored = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(stored | changes))


def assert_refused(folder, message):
    with pytest.raises(CheckpointError, match=message):
        load(folder)


# both directions


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tie_word_embeddings": False},
        {"activation_function": "gelu"},
        {"activation_function": "relu", "n_inner": 13, "layer_norm_epsilon": 1e-2},
    ],
)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_a_released_model_gives_its_logits_here(hugging_face, tmp_path, ids, options, dtype, bound):
    their_model = theirs(hugging_face, **options)
    their_model.save_pretrained(tmp_path)
    our_model = load(tmp_path)
    assert not our_model.training
    expected = their_model.to(dtype)(ids).logits
    assert greatest_difference(our_model.to(dtype)(ids), expected) < bound


@pytest.mark.parametrize("options", [{}, {"tied": False}, {"activation": "relu", "hidden": 13}])
def test_a_model_of_ours_gives_its_logits_there(hugging_face, tmp_path, ids, options):
    our_model = ours(**options)
    save(our_model, tmp_path)
    kind = hugging_face.GPT2LMHeadModel
    their_model, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    expected = our_model.double()(ids)
    assert greatest_difference(their_model.double().eval()(ids).logits, expected) < 1e-12


@pytest.mark.weekly
def test_a_model_of_the_size_of_gpt2_small_gives_its_logits_here(hugging_face, tmp_path):
    torch.manual_seed(0)
    their_model = hugging_face.GPT2LMHeadModel(hugging_face.GPT2Config()).eval()
    their_model.save_pretrained(tmp_path)
    our_model = load(tmp_path)
    assert replace(our_model.config, initial_std=0.02) == GPTConfig.gpt2("small")
    (tmp_path / "model.safetensors").unlink()  # half a gigabyte
    ids = torch.randint(50_257, (2, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert greatest_difference(our_model(ids), their_model(ids).logits) < 1e-5


def test_the_gradients_are_theirs_too(hugging_face, tmp_path, ids):
    their_model = theirs(hugging_face)
    their_model.save_pretrained(tmp_path)
    our_model, their_model = load(tmp_path).double(), their_model.double()
    names = released_names(our_model.config)
    weights = [their_model.get_parameter(f"transformer.{name}") for name in names.values()]
    mine = gradients(our_model(ids), *map(our_model.get_parameter, names))
    others = gradients(their_model(ids).logits, *weights)
    for name, one, other in zip(names, mine, others, strict=True):
        expected = other.mT if pretrained._is_transposed(name) else other
        assert greatest_difference(one, expected) < 1e-12, name


def test_what_was_saved_is_loaded_to_the_bit(tmp_path, ids):
    model = ours(dropout=0.25, eps=1e-3, initial_std=0.3)
    again = load(save(model, tmp_path))
    assert again.config == model.config
    assert torch.equal(again(ids), model(ids))


# the other layouts of the same


@pytest.mark.parametrize("prefix", ["", "_orig_mod.", "_orig_mod.transformer."])
def test_the_published_layout_without_prefix_and_with_masks_is_read(folder, ids, prefix):
    expected = load(folder)(ids)
    tensors = {prefix + n.removeprefix("transformer."): x for n, x in weights_of(folder).items()}
    for i in range(LAYERS):
        tensors[f"h.{i}.attn.bias"] = torch.ones(LIMIT, LIMIT).tril()[None, None]
        tensors[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    assert torch.equal(load(store(folder, tensors))(ids), expected)


def test_a_checkpoint_in_pieces_is_read(folder, ids):
    expected, tensors = load(folder)(ids), weights_of(folder)
    (folder / WEIGHTS).unlink()
    for n in (1, 2):
        part = {name: tensors[name] for name in sorted(tensors)[n - 1 :: 2]}
        save_file(part, folder / f"model-0000{n}-of-00002.safetensors")
    assert torch.equal(load(folder)(ids), expected)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert_refused(folder, r", got none .*\(20 in all\)")


# a claim that the weights do not bear out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layer": 10**9}, "expected 1,000,000,000 blocks in .*got 40 tensors"),
        ({"n_layer": 2}, r"h.2.attn.c_attn.bias none, got \(66,\).*\(12 in all\)"),
        ({"n_embd": 11 * 10**5}, r"c_attn.bias \(3300000,\), got \(66,\)"),
        ({"vocab_size": V + 1}, r"wte.weight \(18, 22\), got \(17, 22\) \(1 in all\)"),
        ({"n_positions": 10**12}, r"wpe.weight \(1000000000000, 22\)"),
        ({"n_inner": 10**12}, r"c_fc.weight \(22, 1000000000000\)"),
        ({"model_type": "bert"}, "model_type = 'gpt2', as GPT-2 has it, got 'bert'"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = False"),
        ({"activation_function": "swish"}, "no model .*activation .*got 'swish'"),
        ({"n_head": 4}, "describes no model .*channels=22.* heads=4"),
        ({"n_layer": "3"}, "describes no model .*got '3'"),
        ({"n_embd": None}, "describes no model"),
        ({"n_head": True}, "describes no model .*got True"),
        ({"activation_function": ["gelu"]}, "no model .*expected .*activation"),
        ({"tie_word_embeddings": "no"}, "tied .*got 'no'"),
        ({"vocab_size": 10**18, "n_embd": 11 * 10**17}, "sizes that can be in .*overflow"),
        ({"initializer_range": -1}, "sizes that can be in .*std"),
        ({"initializer_range": "small"}, "sizes that can be in"),
        ({"resid_pdrop": "much", "attn_pdrop": "much", "embd_pdrop": "much"}, "describes no model"),
    ],
)
def test_a_configuration_of_something_else_is_refused_and_takes_no_memory(folder, change, message):
    configure(folder, **change)
    assert_refused(folder, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "describes no model that is known: Expecting"),
        ("[" * 100_000, "describes no model that is known: maximum recursion"),
        ("[]", "describes no model that is known: 'list' object"),
        ("{}", "expected channels to be .*, got None"),
    ],
)
def test_a_configuration_that_is_none_is_refused(folder, text, message):
    (folder / "config.json").write_text(text)
    assert_refused(folder, message)


def test_nothing_is_drawn_for_weights_that_are_read(folder, monkeypatch):
    """The model is made without memory: 124 million numbers need not be drawn to be replaced."""
    devices = []

    def spied(model, config, *, generator):
        devices.extend(parameter.device.type for parameter in model.parameters())

    monkeypatch.setattr("src.gpt.gpt2.initialise", spied)
    load(folder)
    assert set(devices) == {"meta"}


# two names of one tensor


@pytest.mark.parametrize("second", ["lm_head.weight", "wte.weight"])
def test_a_second_name_must_have_the_same_weights(folder, ids, second):
    expected, tensors = load(folder)(ids), weights_of(folder)
    table = tensors["transformer.wte.weight"]
    store(folder, tensors | {second: table.clone()})
    assert torch.equal(load(folder)(ids), expected)
    store(folder, tensors | {second: table + 1})
    assert_refused(folder, "one tensor wte.weight in .* a different one under a second name")


def test_a_tensor_in_two_pieces_must_have_the_same_weights(folder, ids):
    expected, tensors = load(folder)(ids), weights_of(folder)
    name = min(tensors)
    other = folder / "model-2.safetensors"
    save_file({name: tensors[name]}, other)
    assert torch.equal(load(folder)(ids), expected)
    save_file({name: tensors[name] + 1}, other)
    assert_refused(folder, f"expected one tensor .* a second name, {name}")


# numbers that are none


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t.index_fill(0, torch.tensor([0]), torch.nan), "finite .* in h.1.attn.c_attn"),
        (lambda t: t.index_fill(0, torch.tensor([1]), -torch.inf), "expected finite .* numbers"),
        (lambda t: t.to(torch.int64), "floating-point numbers .*, got torch.int64"),
    ],
)
def test_weights_that_are_no_finite_numbers_are_refused(folder, spoil, message):
    tensors, name = weights_of(folder), "transformer.h.1.attn.c_attn.weight"
    store(folder, tensors | {name: spoil(tensors[name])})
    assert_refused(folder, message)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floating_point_numbers_are_read(folder, dtype):
    tensors = {name: tensor.to(dtype) for name, tensor in weights_of(folder).items()}
    model = load(store(folder, tensors))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert torch.equal(model.embedding, tensors["transformer.wte.weight"].float())


def test_weights_that_are_read_are_copies(folder):
    """`safetensors` maps its file, so that a file that is cut later would end the process."""
    model = load(folder)
    before = model.embedding.clone()
    (folder / WEIGHTS).write_bytes(bytes((folder / WEIGHTS).stat().st_size))
    assert torch.equal(model.embedding, before)


def test_settings_that_only_training_needs_do_not_refuse_whole_weights(folder, ids):
    expected = load(folder)(ids)
    none = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"))
    configure(folder, **none, initializer_range=0)
    model = load(folder)
    assert torch.equal(model(ids), expected)
    assert (model.config.dropout, model.config.initial_std) == (0, 0.02)


# broken and hostile folders


NOTE = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.mark.parametrize(
    "spoil", [lambda _: NOTE, *(itemgetter(slice(end)) for end in (0, 5, 100, -1))]
)
def test_a_file_of_something_else_is_refused(folder, spoil):
    (folder / WEIGHTS).write_bytes(spoil((folder / WEIGHTS).read_bytes()))
    assert_refused(
        folder, "a whole safetensors file at .* cut off, or is it the note that Git leaves"
    )


def test_a_renamed_a_missing_and_an_unknown_tensor_are_named(folder):
    tensors = weights_of(folder)
    tensors["transformer.h.0.attn.kernel"] = tensors.pop("transformer.h.0.attn.c_attn.weight")
    store(folder, tensors)
    found = r"h.0.attn.c_attn.weight \(22, 66\), got none; h.0.attn.kernel none"
    assert_refused(folder, found)


def test_what_is_missing_is_named(folder):
    (folder / WEIGHTS).unlink()
    assert_refused(folder, r"expected model.safetensors in .*found none; a pytorch_model.bin")
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        load(folder)


def test_a_folder_in_the_place_of_weights_is_named(folder):
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()
    assert_refused(folder, f"a whole safetensors file at .*{WEIGHTS}, got")


@pytest.mark.parametrize("options", [{"norm": "post"}, {"bias": False}])
def test_what_the_format_cannot_say_is_not_saved(tmp_path, options):
    with pytest.raises(ValueError, match="pre-norm model with biases"):
        save(ours(**options), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_failed_save_leaves_the_old_files_and_nothing_else(folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def broken(tensors, path, _):
        path.write_bytes(b"half")
        raise OSError("planted: disk full")

    monkeypatch.setattr(pretrained, "save_file", broken)
    with pytest.raises(OSError, match="planted"):
        save(ours(tied=False), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# a published model; `test_real_files` fetches one from a server of our own


def test_no_network_and_no_such_size_are_explained(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="connection"):
        download("small", tmp_path)
    with pytest.raises(KeyError, match="117M"):
        download("117M", tmp_path)
