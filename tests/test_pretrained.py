"""`src.gpt.pretrained` against transformers' GPT-2, in both directions, and against broken
folders.
"""

import hashlib
import json
import os
import pickle
from dataclasses import replace

import pytest
import torch
from gpt2_files import gpt2_file
from local_server import WEIGHTS, hub, serving
from oracles import greatest_difference
from safetensors.torch import load_file, save_file

from src.gpt import pretrained
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.pretrained import CheckpointError, download, load, released_names, save
from src.likelihood.maximum_likelihood import negative_log_likelihood
from src.tokens import folders
from src.tools import downloads

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


def rewrite(folder, change):
    """Change the tensors of a saved model."""
    tensors = change(dict(load_file(folder / "model.safetensors")))
    (folder / "model.safetensors").unlink()
    return tensors


def test_a_model_without_weights_has_shapes_and_takes_no_memory():
    drawn, bare = ours(tied=False), pretrained.without_weights(ours(tied=False).config)
    shapes = {name: parameter.shape for name, parameter in drawn.named_parameters()}
    assert {name: parameter.shape for name, parameter in bare.named_parameters()} == shapes
    assert all(parameter.is_meta for parameter in bare.parameters())


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
    their_model, report = hugging_face.GPT2LMHeadModel.from_pretrained(
        tmp_path, output_loading_info=True
    )
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
    our_model = load(tmp_path).double()
    for logits in (their_model.double()(ids).logits, our_model(ids)):
        nats, tokens = negative_log_likelihood(logits[:, :-1], ids[:, 1:])
        (nats / tokens).backward()
    for name, theirs_name in released_names(our_model.config).items():
        expected = their_model.get_parameter(f"transformer.{theirs_name}").grad
        expected = expected.mT if pretrained._is_transposed(name) else expected
        assert greatest_difference(our_model.get_parameter(name).grad, expected) < 1e-12


def test_what_was_saved_is_loaded_to_the_bit(tmp_path, ids):
    model = ours(dropout=0.25, eps=1e-3, initial_std=0.3)
    again = load(save(model, tmp_path))
    assert again.config == model.config
    assert torch.equal(again(ids), model(ids))


# the other layouts of the same


def test_the_published_layout_without_prefix_and_with_masks_is_read(folder, ids):
    expected = load(folder)(ids)
    tensors = rewrite(folder, lambda t: {n.removeprefix("transformer."): x for n, x in t.items()})
    for i in range(LAYERS):
        tensors[f"h.{i}.attn.bias"] = torch.ones(LIMIT, LIMIT).tril()[None, None]
        tensors[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, folder / "model.safetensors")
    assert torch.equal(load(folder)(ids), expected)


def test_a_checkpoint_in_pieces_is_read(folder, ids):
    expected = load(folder)(ids)
    tensors = rewrite(folder, dict)
    names = sorted(tensors)
    places = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(places.values()):
        save_file({n: tensors[n] for n in names if places[n] == file}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    assert torch.equal(load(folder)(ids), expected)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"expected model-00002-of-00002.safetensors in"):
        load(folder)
    index.write_text(json.dumps({"weight_map": {"wte.weight": "../elsewhere.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"names of files.*elsewhere"):
        load(folder)
    index.write_text("[]")
    with pytest.raises(CheckpointError, match="weight_map"):
        load(folder)


def test_the_older_format_is_read_too_and_the_second_name_of_tied_weights_ignored(folder, ids):
    expected = load(folder)(ids)
    tensors = rewrite(folder, dict)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
    torch.save(tensors, folder / "pytorch_model.bin")
    assert torch.equal(load(folder)(ids), expected)


# a claim that the weights do not bear out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layer": 10**9}, r"tensors of 1,000,000,000 blocks .*got 3"),
        ({"n_layer": 2}, r"tensors of 2 blocks .*got 3"),
        ({"n_embd": 11 * 10**5}, r"shape \(17, 1100000\).*got \(17, 22\)"),
        ({"vocab_size": 10**12}, r"shape \(1000000000000, 22\)"),
        ({"n_positions": 10**12}, r"wpe.weight .*shape \(1000000000000, 22\)"),
        ({"n_inner": 10**12}, r"c_fc.weight .*shape \(22, 1000000000000\)"),
    ],
)
def test_no_model_is_made_before_its_size_is_that_of_the_weights(
    folder, change, message, monkeypatch
):
    made = []
    monkeypatch.setattr(pretrained, "GPT", lambda *_, **__: made.append(1))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(CheckpointError, match=message):
        load(folder)
    assert not made


def test_nothing_is_drawn_for_weights_that_are_read(folder, monkeypatch):
    """The model is made without memory: 124 million numbers need not be drawn to be replaced."""
    devices = []

    def spied(model, config, *, generator):
        devices.extend(parameter.device.type for parameter in model.parameters())

    monkeypatch.setattr("src.gpt.gpt2.initialise", spied)
    load(folder)
    assert set(devices) == {"meta"}


def test_one_number_cannot_stand_for_a_large_tensor(folder):
    tensors = rewrite(folder, dict)
    tensors["transformer.wte.weight"] = torch.zeros(1).expand(V, C)
    torch.save(tensors, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"all 374 numbers of transformer.wte.weight .*got 4"):
        load(folder)


# two names of one tensor


@pytest.mark.parametrize("second", ["lm_head.weight", "wte.weight"])
def test_a_second_name_must_have_the_same_weights(folder, ids, second):
    expected = load(folder)(ids)
    tensors = rewrite(folder, dict)
    table = tensors["transformer.wte.weight"]
    save_file(tensors | {second: table.clone()}, folder / "model.safetensors")
    assert torch.equal(load(folder)(ids), expected)
    save_file(tensors | {second: table + 1}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"wte.weight and {second} .*two names of the same"):
        load(folder)


def test_a_tensor_stands_in_one_piece_only(folder):
    tensors = rewrite(folder, dict)
    names = sorted(tensors)
    save_file(tensors, folder / "one.safetensors")
    save_file({names[0]: tensors[names[0]]}, folder / "two.safetensors")
    places = dict.fromkeys(names, "one.safetensors") | {"more": "two.safetensors"}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    with pytest.raises(CheckpointError, match=f"expected {names[0]} once .*in two files"):
        load(folder)


# numbers that are none


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t.index_fill(0, torch.tensor([0]), torch.nan), "expected finite numbers in"),
        (lambda t: t.index_fill(0, torch.tensor([1]), -torch.inf), "expected finite numbers in"),
        (lambda t: t.to(torch.int64), "as floating-point numbers, got torch.int64"),
        (lambda t: t.to(torch.bool), "as floating-point numbers, got torch.bool"),
    ],
)
@pytest.mark.parametrize("old", [False, True])
def test_weights_that_are_no_finite_numbers_are_refused(folder, spoil, message, old):
    tensors = rewrite(folder, dict)
    name = "transformer.h.1.attn.c_attn.weight"
    tensors[name] = spoil(tensors[name])
    if old:
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floating_point_numbers_are_read(folder, dtype):
    tensors = {name: tensor.to(dtype) for name, tensor in rewrite(folder, dict).items()}
    save_file(tensors, folder / "model.safetensors")
    model = load(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert torch.equal(model.embedding, tensors["transformer.wte.weight"].float())


def test_weights_that_shared_their_memory_are_apart_when_loaded(folder):
    tensors = rewrite(folder, dict)
    tensors["transformer.h.1.ln_1.weight"] = tensors["transformer.h.0.ln_1.weight"]
    torch.save(tensors, folder / "pytorch_model.bin")
    one, other, _ = load(folder).decoder.blocks
    with torch.no_grad():
        one.attention_norm.gain.add_(1)
    assert not torch.equal(one.attention_norm.gain, other.attention_norm.gain)


# dropout: one number here, three there


def test_dropouts_that_differ_are_told(folder):
    config = json.loads((folder / "config.json").read_text())
    changed = {"attn_pdrop": 0.5, "embd_pdrop": 0, "resid_pdrop": 0.25}
    (folder / "config.json").write_text(json.dumps(config | changed))
    with pytest.warns(UserWarning, match=r"'attn_pdrop': 0.5.*goes on with 0.25 everywhere"):
        assert load(folder).config.dropout == 0.25


def test_settings_that_only_training_needs_do_not_refuse_whole_weights(folder, ids):
    expected = load(folder)(ids)
    config = json.loads((folder / "config.json").read_text())
    changed = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"))
    (folder / "config.json").write_text(json.dumps(config | changed | {"initializer_range": 0}))
    model = load(folder)
    assert torch.equal(model(ids), expected)
    assert (model.config.dropout, model.config.initial_std) == (0, 0.02)


# broken and hostile folders


class Hostile:
    def __reduce__(self):
        return (os.system, ("touch hacked",))


def test_a_pickle_cannot_run_code(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"wte.weight": Hostile()}))
    with pytest.raises(CheckpointError, match="would run code"):
        load(folder)
    torch.save({"wte.weight": Hostile()}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="would run code"):
        load(folder)
    torch.save([1, 2], folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="names and tensors"):
        load(folder)
    assert not (folder / "hacked").exists()


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_file_that_was_cut_off_is_refused(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="cut off"):
        load(folder)


def test_a_renamed_a_missing_and_an_unknown_tensor_are_named(folder):
    def change(tensors):
        tensors["transformer.h.0.attn.kernel"] = tensors.pop("transformer.h.0.attn.c_attn.weight")
        return tensors

    save_file(rewrite(folder, change), folder / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"missing: h.0.attn.c_attn.weight \(1\); unknown: h.0.attn.kernel"
    ):
        load(folder)


def test_a_checkpoint_of_another_shape_is_refused_before_anything_is_copied(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": V + 1}))
    with pytest.raises(CheckpointError, match=r"wte.weight .*\(18, 22\).*got \(17, 22\)"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bert"}, "model_type = 'gpt2'.*got 'bert'"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = False"),
        ({"activation_function": "swish"}, "'gelu', 'gelu_new', 'relu'.*got 'swish'"),
        ({"n_head": 4}, "describes no GPT-2: .*channels=22 and heads=4"),
        ({"n_layer": "3"}, "describes no GPT-2: .*got '3'"),
        ({"n_embd": None}, "describes no GPT-2"),
        ({"n_head": True}, "describes no GPT-2: .*got True"),
        ({"activation_function": ["gelu"]}, r"activation_function among .*config.json, got \['gel"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings true or false .*got 'no'"),
        ({"resid_pdrop": "much", "attn_pdrop": "much", "embd_pdrop": "much"}, "no GPT-2"),
    ],
)
def test_a_configuration_of_something_else_is_refused(folder, change, message):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(CheckpointError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON"),
        ("[" * 100_000, "expected JSON"),
        ("[]", "an object"),
        ("{}", "vocab_size, n_positions.*found none"),
    ],
)
def test_a_configuration_that_is_none_is_refused(folder, text, message):
    (folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"expected config.json in"):
        load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(pretrained._released_config(ours().config)))
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin in .*found none"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_what_stands_in_the_place_of_weights_is_named(folder, name):
    (folder / "model.safetensors").unlink()
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(CheckpointError, match="git lfs pull"):
        load(folder)
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(CheckpointError, match=f"expected a file at .*{name}, got"):
        load(folder)


def test_old_files_that_hold_nothing_or_other_names_are_refused(folder):
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="got an empty file"):
        load(folder)
    torch.save({7: torch.zeros(1)}, path)
    with pytest.raises(CheckpointError, match="names and tensors"):
        load(folder)


@pytest.mark.parametrize("name", ["..", ".", "", "a/b.safetensors"])
def test_an_index_names_files_of_its_own_folder(folder, name):
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"wte.weight": name}}))
    with pytest.raises(CheckpointError, match="expected names of files in"):
        load(folder)


@pytest.mark.parametrize("options", [{"norm": "post"}, {"bias": False}])
def test_what_the_format_cannot_say_is_not_saved(tmp_path, options):
    with pytest.raises(ValueError, match="pre-norm model with biases"):
        save(ours(**options), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_saved_model_is_as_readable_as_any_new_file(folder):
    (folder / "new").touch()
    modes = {path.stat().st_mode for path in folder.iterdir()}
    assert len(modes) == 1, modes


def test_a_failed_save_leaves_the_old_files_and_nothing_else(folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def broken(tensors, path, **_):
        path.write_bytes(b"half")
        raise OSError("planted: disk full")

    monkeypatch.setattr(pretrained, "save_file", broken)
    with pytest.raises(OSError, match="planted"):
        save(ours(tied=False), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# downloads, from a server of our own


@pytest.fixture
def server(folder):
    """An address below which the small model lies, and the headers that it answers with."""
    weights = folder / WEIGHTS
    headers = {"X-Linked-Etag": f'"{hashlib.sha256(weights.read_bytes()).hexdigest()}"'}
    files = {WEIGHTS: weights} | {name: gpt2_file(name) for name in folders.GPT2_FILES}
    with serving(hub(files, headers, [])) as address:
        yield address, headers


def test_a_download_is_checked_kept_and_not_repeated(server, folder, tmp_path, monkeypatch, ids):
    small = staticmethod(lambda size: ours().config)
    monkeypatch.setattr(GPTConfig, "gpt2", small)  # the published one has 124 million parameters
    source, headers = server
    fetched = download("small", tmp_path / "fetched", source=source)
    assert torch.equal(load(fetched)(ids), load(folder)(ids))
    headers.clear()  # asked again, the server would be of no help
    assert download("small", tmp_path / "fetched", source=source) == fetched


@pytest.mark.parametrize(
    ("size", "etag", "message"),
    [
        ("small", '"0123"', "X-Linked-Etag .* got '0123'"),
        ("small", f'"{"0" * 64}"', "SHA-256"),
        ("medium", "", "404"),
    ],
)
def test_a_download_that_is_not_what_was_announced_leaves_nothing(
    server, tmp_path, size, etag, message
):
    source, headers = server
    headers["X-Linked-Etag"] = etag
    with pytest.raises(downloads.DownloadError, match=message):
        download(size, tmp_path / "fetched", source=source)
    assert not list(tmp_path.glob("fetched/*"))


def test_no_server_and_no_such_size_are_explained(tmp_path):
    with pytest.raises(downloads.DownloadError, match="are you online"):
        download("small", tmp_path, source="http://127.0.0.1:9")
    with pytest.raises(ValueError, match="'small', 'medium', 'large', 'xl'"):
        download("117M", tmp_path)
