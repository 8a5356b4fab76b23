"""`src.gpt.pretrained` against transformers' GPT-2, in both directions, and against broken
folders.
"""

import hashlib
import io
import json
import os
import pickle
import re
from dataclasses import replace
from operator import itemgetter

import pytest
import torch
from gpt2_files import gpt2_file
from local_server import WEIGHTS, hub, serving
from oracles import gradients, greatest_difference
from safetensors.torch import load_file, save_file

from src.gpt import pretrained
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.pretrained import CheckpointError, download, load, released_names, save
from src.tokens import folders
from src.tools import downloads

OLD = "pytorch_model.bin"
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


def store(folder, tensors, *, old=False):
    (folder / WEIGHTS).unlink()
    if old:
        torch.save(tensors, folder / OLD)
    else:
        save_file(tensors, folder / WEIGHTS)
    return folder


def point(folder, places):
    """The index of a checkpoint in pieces."""
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": places}))


def configure(folder, **changes):
    stored = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(stored | changes))


def assert_refused(folder, message):
    with pytest.raises(CheckpointError, match=message):
        load(folder)


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


def test_the_published_layout_without_prefix_and_with_masks_is_read(folder, ids):
    expected = load(folder)(ids)
    tensors = {n.removeprefix("transformer."): x for n, x in weights_of(folder).items()}
    for i in range(LAYERS):
        tensors[f"h.{i}.attn.bias"] = torch.ones(LIMIT, LIMIT).tril()[None, None]
        tensors[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    assert torch.equal(load(store(folder, tensors))(ids), expected)


def test_a_checkpoint_in_pieces_is_read(folder, ids):
    expected, tensors = load(folder)(ids), weights_of(folder)
    (folder / WEIGHTS).unlink()
    places = {name: f"{1 + i % 2}.safetensors" for i, name in enumerate(sorted(tensors))}
    for file in set(places.values()):
        save_file({n: tensors[n] for n in tensors if places[n] == file}, folder / file)
    point(folder, places)
    assert torch.equal(load(folder)(ids), expected)
    (folder / "2.safetensors").unlink()
    assert_refused(folder, r"expected 2.safetensors in")


@pytest.mark.parametrize("name", ["..", ".", "", "a/b.safetensors", "../elsewhere.safetensors"])
def test_an_index_names_files_of_its_own_folder(folder, name):
    point(folder, {"wte.weight": name})
    assert_refused(folder, f"expected names of files in.*{re.escape(name)}")


def test_an_index_has_a_map(folder):
    (folder / f"{WEIGHTS}.index.json").write_text("[]")
    assert_refused(folder, "weight_map")


def test_the_older_format_is_read_too_and_the_second_name_of_tied_weights_ignored(folder, ids):
    expected, tensors = load(folder)(ids), weights_of(folder)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
    assert torch.equal(load(store(folder, tensors, old=True))(ids), expected)


# a claim that the weights do not bear out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layer": 10**9}, r"tensors of 1,000,000,000 blocks .*got 3"),
        ({"n_layer": 2}, r"tensors of 2 blocks .*got 3"),
        ({"n_embd": 11 * 10**5}, r"shape \(17, 1100000\).*got \(17, 22\)"),
        ({"vocab_size": V + 1}, r"wte.weight .*\(18, 22\).*got \(17, 22\)"),
        ({"n_positions": 10**12}, r"wpe.weight .*shape \(1000000000000, 22\)"),
        ({"n_inner": 10**12}, r"c_fc.weight .*shape \(22, 1000000000000\)"),
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
def test_no_model_is_made_from_a_configuration_of_something_else(
    folder, change, message, monkeypatch
):
    monkeypatch.setattr(pretrained, "GPT", None)  # would fail if it were called
    configure(folder, **change)
    assert_refused(folder, message)


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
    assert_refused(folder, message)


def test_nothing_is_drawn_for_weights_that_are_read(folder, monkeypatch):
    """The model is made without memory: 124 million numbers need not be drawn to be replaced."""
    devices = []

    def spied(model, config, *, generator):
        devices.extend(parameter.device.type for parameter in model.parameters())

    monkeypatch.setattr("src.gpt.gpt2.initialise", spied)
    load(folder)
    assert set(devices) == {"meta"}


def test_one_number_cannot_stand_for_a_large_tensor(folder):
    table = {"transformer.wte.weight": torch.zeros(1).expand(V, C)}
    store(folder, weights_of(folder) | table, old=True)
    assert_refused(folder, r"all 374 numbers of transformer.wte.weight .*got 4")


# two names of one tensor


@pytest.mark.parametrize("second", ["lm_head.weight", "wte.weight"])
def test_a_second_name_must_have_the_same_weights(folder, ids, second):
    expected, tensors = load(folder)(ids), weights_of(folder)
    table = tensors["transformer.wte.weight"]
    store(folder, tensors | {second: table.clone()})
    assert torch.equal(load(folder)(ids), expected)
    store(folder, tensors | {second: table + 1})
    assert_refused(folder, f"wte.weight and {second} .*two names of the same")


def test_a_tensor_stands_in_one_piece_only(folder):
    tensors = weights_of(folder)
    name = min(tensors)
    save_file({name: tensors[name]}, folder / "two.safetensors")
    point(folder, dict.fromkeys(tensors, WEIGHTS) | {"more": "two.safetensors"})
    assert_refused(folder, f"expected {name} once .*in two files")


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
    tensors, name = weights_of(folder), "transformer.h.1.attn.c_attn.weight"
    store(folder, tensors | {name: spoil(tensors[name])}, old=old)
    assert_refused(folder, message)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floating_point_numbers_are_read(folder, dtype):
    tensors = {name: tensor.to(dtype) for name, tensor in weights_of(folder).items()}
    model = load(store(folder, tensors))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert torch.equal(model.embedding, tensors["transformer.wte.weight"].float())


def test_weights_that_shared_their_memory_are_apart_when_loaded(folder):
    tensors = weights_of(folder)
    tensors["transformer.h.1.ln_1.weight"] = tensors["transformer.h.0.ln_1.weight"]
    one, other, _ = load(store(folder, tensors, old=True)).decoder.blocks
    with torch.no_grad():
        one.attention_norm.gain.add_(1)
    assert not torch.equal(one.attention_norm.gain, other.attention_norm.gain)


# dropout: one number here, three there


def test_dropouts_that_differ_are_told(folder):
    configure(folder, attn_pdrop=0.5, embd_pdrop=0, resid_pdrop=0.25)
    with pytest.warns(UserWarning, match=r"'attn_pdrop': 0.5.*goes on with 0.25 everywhere"):
        assert load(folder).config.dropout == 0.25


def test_settings_that_only_training_needs_do_not_refuse_whole_weights(folder, ids):
    expected = load(folder)(ids)
    none = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"))
    configure(folder, **none, initializer_range=0)
    model = load(folder)
    assert torch.equal(model(ids), expected)
    assert (model.config.dropout, model.config.initial_std) == (0, 0.02)


# broken and hostile folders


class Hostile:
    def __reduce__(self):
        return (os.system, ("touch hacked",))


def pickled(held):
    buffer = io.BytesIO()
    torch.save(held, buffer)
    return buffer.getvalue()


NOTE = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        (OLD, lambda _: pickle.dumps({"wte.weight": Hostile()}, 2), "would run code"),
        (OLD, lambda _: pickled({"wte.weight": Hostile()}), "would run code"),
        (OLD, lambda _: pickled([1, 2]), "names and tensors"),
        (OLD, lambda _: pickled({7: torch.zeros(1)}), "names and tensors"),
        (OLD, lambda _: b"", "got an empty file"),
        (OLD, lambda _: NOTE, "git lfs pull"),
        (WEIGHTS, lambda _: NOTE, "git lfs pull"),
        *((WEIGHTS, itemgetter(slice(end)), "cut off") for end in (0, 5, 100, -1)),
    ],
)
def test_a_file_of_something_else_is_refused_and_runs_no_code(
    folder, monkeypatch, name, spoil, message
):
    monkeypatch.chdir(folder)
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).unlink()
    (folder / name).write_bytes(spoil(whole))
    assert_refused(folder, message)
    assert not (folder / "hacked").exists()


def test_a_renamed_a_missing_and_an_unknown_tensor_are_named(folder):
    tensors = weights_of(folder)
    tensors["transformer.h.0.attn.kernel"] = tensors.pop("transformer.h.0.attn.c_attn.weight")
    store(folder, tensors)
    assert_refused(folder, r"missing: h.0.attn.c_attn.weight \(1\); unknown: h.0.attn.kernel")


def test_what_is_missing_is_named(folder):
    (folder / WEIGHTS).unlink()
    assert_refused(folder, r"pytorch_model.bin in .*found none")
    (folder / "config.json").unlink()
    assert_refused(folder, r"expected config.json in")


@pytest.mark.parametrize("name", [WEIGHTS, OLD])
def test_a_folder_in_the_place_of_weights_is_named(folder, name):
    (folder / WEIGHTS).unlink()
    (folder / name).mkdir()
    assert_refused(folder, f"expected a file at .*{name}, got")


@pytest.mark.parametrize("options", [{"norm": "post"}, {"bias": False}])
def test_what_the_format_cannot_say_is_not_saved(tmp_path, options):
    with pytest.raises(ValueError, match="pre-norm model with biases"):
        save(ours(**options), tmp_path / "new")
    assert not (tmp_path / "new").exists()


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
