"""Files of others: GPT-2's own tokenizer, and what `tokenizers` and `transformers` write."""

import copy
import json
import os
from contextlib import nullcontext
from functools import reduce
from operator import getitem
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import tiktoken
import tokenizers
import torch
from gpt2_files import write_gpt2_files
from local_server import hub
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

from next_token.folders import load_hugging_face, open_tokenizer
from src.gpt import pretrained
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.released import open_run
from src.tokens.bpe import GPT2_PATTERN, BytePairTokenizer
from src.tokens.bytes import END
from src.tokens.files import bytes_to_unicode, from_spellings, load_gpt2, save_gpt2

TEXTS = json.loads((Path(__file__).parent / "conformance/texts.json").read_text(encoding="utf-8"))
ALL = [text for texts in TEXTS.values() for text in texts]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with GPT-2's vocab.json and merges.txt."""
    return write_gpt2_files(tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="module")
def gpt2(files):
    return load_gpt2(files)


@pytest.fixture(scope="module")
def transformers():
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


# ---- GPT-2's tokenizer -----------------------------------------------------------------------


def test_gpt2s_own_tokenizer_gives_the_ids_of_tiktoken(gpt2, files, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # keep no copies
    ranks = data_gym_to_mergeable_bpe_ranks(str(files / "merges.txt"), str(files / "vocab.json"))
    theirs = tiktoken.Encoding(
        "gpt2", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={END: 50_256}
    )
    assert theirs.n_vocab == gpt2.vocabulary_size == 50_257
    for text in ALL:
        assert gpt2.encode(text) == theirs.encode_ordinary(text), text[:60]
        assert gpt2.decode(gpt2.encode(text)) == text


class Counted(str):
    """A spelling that counts how often it is looked at as a key."""

    looked = 0
    __slots__ = ()

    def __hash__(self):
        Counted.looked += 1
        return super().__hash__()

    def __add__(self, other):
        return Counted(str.__add__(self, other))


def looks(n_merges):
    """How often keys are looked at while a tokenizer of so many merges is read."""
    alphabet = list(bytes_to_unicode().values())
    pairs = [(a, b) for a in alphabet for b in alphabet][:n_merges]
    vocab = {token: number for number, token in enumerate([*alphabet, *map("".join, pairs)])}
    Counted.looked = 0
    from_spellings(vocab, [(Counted(a), b) for a, b in pairs], {})
    return Counted.looked


def test_reading_merges_takes_work_in_proportion_to_their_number():
    """Four times the merges, four times the looks: 16 times if each merge walked through all."""
    assert 3.9 < looks(2_000) / looks(500) < 4.1


# ---- tokenizer.json --------------------------------------------------------------------------


def published(files, path):
    """GPT-2's published tokenizer.json: older than the fields `model.type` and `use_regex`."""
    vocab = json.loads((files / "vocab.json").read_text(encoding="utf-8"))
    merges = (files / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    end = {"id": 50_256, "special": True, "content": END, "single_word": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    model = {"dropout": None, "unk_token": None, "continuing_subword_prefix": ""}
    model |= {"end_of_word_suffix": "", "fuse_unk": False, "vocab": vocab, "merges": merges}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [end | {"lstrip": False, "rstrip": False, "normalized": True}],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": level | {"add_prefix_space": True, "trim_offsets": False},
        "decoder": level | {"add_prefix_space": True},
        "model": model,
    }
    path.write_text(json.dumps(content), encoding="utf-8")


def by_transformers(files, path):
    import transformers

    vocab, merges = str(files / "vocab.json"), str(files / "merges.txt")
    made = transformers.GPT2Tokenizer(vocab=vocab, merges=merges)
    made.save_pretrained(path.parent)
    assert not (path.parent / "vocab.json").exists()  # so tokenizer.json is all there is
    assert json.loads(path.read_text())["post_processor"]["type"] == "TemplateProcessing"


def by_tokenizers(files, path):
    vocab, merges = str(files / "vocab.json"), str(files / "merges.txt")
    tokenizers.ByteLevelBPETokenizer(vocab, merges).save(str(path))
    assert json.loads(path.read_text())["added_tokens"] == []


@pytest.mark.parametrize("write", [published, by_transformers, by_tokenizers])
def test_each_form_of_gpt2s_tokenizer_json_is_gpt2s_tokenizer_in_a_released_folder_too(
    files, gpt2, transformers, tmp_path, write
):
    path = tmp_path / "tokenizer.json"
    write(files, path)
    peer = tokenizers.Tokenizer.from_file(str(path))
    peer.encode_special_tokens = True
    ours = load_hugging_face(path, (END,))
    assert ours.specials == {END: 50_256}
    assert ours.merges == gpt2.merges
    for text in ALL:
        assert ours.encode(text) == gpt2.encode(text) == peer.encode(text).ids, text[:60]
    with pytest.raises(FileNotFoundError, match=r"vocab\.json and merges\.txt or tokenizer\.json"):
        open_run(pretrained.save(small(), tmp_path / "released"))
    path.rename(tmp_path / "released" / path.name)
    run = open_run(tmp_path / "released", read_tokenizer=open_tokenizer)
    assert run.end == 50_256
    assert run.tokenizer.encode("Hello world") == [15_496, 995]


def test_a_special_token_that_a_file_has_only_in_its_vocabulary_must_be_named(files, tmp_path):
    path = tmp_path / "tokenizer.json"
    by_tokenizers(files, path)
    with pytest.raises(ValueError, match=r"got 1 others, such as '<\|endoftext\|>'; .*specials="):
        load_hugging_face(path)
    with pytest.raises(ValueError, match=r"the special tokens \['<\|pad\|>'\] in the file"):
        load_hugging_face(path, (END, "<|pad|>"))


WRONG = {
    ("model", "type"): ["WordPiece"],
    ("model", "dropout"): [0.1],
    ("model", "byte_fallback"): [True],
    ("model", "ignore_merges"): [True],
    ("model", "end_of_word_suffix"): ["</w>"],
    ("model", "continuing_subword_prefix"): ["##"],
    ("model", "merges", 0): ["a b c", ["a", 1], 7],
    ("model", "vocab"): [[]],
    ("model", "vocab", "a"): [10**6],
    ("model", "vocab", "more"): [340],
    ("added_tokens", 0): ["<|pad|>", {"special": True}],
    ("added_tokens", 0, "lstrip"): [True],
    ("added_tokens", 0, "single_word"): [True],
    ("added_tokens", 0, "special"): [False],
    ("added_tokens", 0, "content"): ["Ġt"],
    ("added_tokens", 0, "id"): [3],
    ("pre_tokenizer",): [None],
    ("pre_tokenizer", "type"): ["Whitespace"],
    ("pre_tokenizer", "add_prefix_space"): ["yes"],
    ("normalizer",): [{"type": "NFKC"}],
    ("truncation",): [{"max_length": 8, "strategy": "LongestFirst", "stride": 0}],
    ("padding",): [{"strategy": {"Fixed": 8}, "pad_id": 0, "pad_token": END}],
    ("post_processor",): [{"type": "TemplateProcessing"}],
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The `tokenizer.json` of a few merges that the library `tokenizers` wrote."""
    folder = tmp_path_factory.mktemp("small")
    save_gpt2(BytePairTokenizer([(97, 98), (256, 99)], (END, "<|pad|>")), folder)
    peer = tokenizers.ByteLevelBPETokenizer(f"{folder}/vocab.json", f"{folder}/merges.txt")
    peer.add_special_tokens([END, "<|pad|>"])
    return json.loads(peer.to_str())


def test_it_is_read_as_it_was_written(written, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(written), encoding="utf-8")
    ours = load_hugging_face(path)
    assert ours.encode(f"abc {END}", (END,)) == [257, 32, 258]
    assert ours.specials == {END: 258, "<|pad|>": 259}


@pytest.mark.parametrize("keys", WRONG)
def test_what_would_give_other_ids_is_refused_by_the_files_name(written, tmp_path, keys):
    path = tmp_path / "tokenizer.json"
    for value in WRONG[keys]:
        content = copy.deepcopy(written)
        reduce(getitem, keys[:-1], content)[keys[-1]] = value
        path.write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(ValueError, match=r"tokenizer\.json: "):
            load_hugging_face(path)


def template(*pieces):
    return {"type": "TemplateProcessing", "single": list(pieces), "pair": [], "special_tokens": {}}


TEXT = {"Sequence": {"id": "A", "type_id": 0}}
START = {"SpecialToken": {"id": END, "type_id": 0}}


@pytest.mark.parametrize(
    ("post", "adds"),
    [
        (template(TEXT), False),
        ({"type": "Sequence", "processors": [{"type": "ByteLevel"}, template(TEXT)]}, False),
        (template(START, TEXT), True),
        (template(TEXT, START), True),
        ({"type": "Sequence", "processors": [{"type": "ByteLevel"}, template(START, TEXT)]}, True),
        ({"type": "BertProcessing", "sep": [END, 0], "cls": [END, 0]}, True),
    ],
)
def test_a_post_processor_is_read_if_it_adds_no_token(written, tmp_path, post, adds):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(written | {"post_processor": post}), encoding="utf-8")
    refusal = pytest.raises(ValueError, match=r"other ids than ours, got .*post_processor")
    with refusal if adds else nullcontext():
        assert load_hugging_face(path).encode("abcd") == [257, 100]


def test_saving_gpt2s_files_makes_the_folder(tmp_path):
    tokenizer = BytePairTokenizer([(97, 98)])
    save_gpt2(tokenizer, tmp_path / "new" / "folder")
    assert load_gpt2(tmp_path / "new" / "folder").merges == tokenizer.merges


# ---- a released model, from a server to the prompt -------------------------------------------


def small(vocabulary_size=50_257):
    config = GPTConfig(vocabulary_size, context_length=16, layers=1, heads=1, channels=2)
    return GPT(config, generator=torch.Generator().manual_seed(0)).eval()


def test_a_downloaded_gpt2_is_ready_to_use(tmp_path):
    served = write_gpt2_files(pretrained.save(small(), tmp_path / "served"))
    asked = []
    with hub({path.name: path for path in served.iterdir()}, asked):
        run = open_run(pretrained.download("small", tmp_path / "fetched"))
        assert sorted(asked) == ["config.json", "merges.txt", "model.safetensors", "vocab.json"]
        ids = torch.tensor([run.tokenizer.encode("Hello world")])
        assert ids.tolist() == [[15_496, 995]]  # as published
        assert torch.equal(run.model(ids), small()(ids))
        pretrained.download("small", tmp_path / "fetched")
        assert len(asked) == 4  # nothing is fetched again


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (50_304, "50,257 tokens.*one for 50,304"),
        (50_000, "one for 50,000: are they of two"),
    ],
)
def test_a_model_of_another_size_than_its_tokenizer_is_refused(files, tmp_path, tokens, message):
    write_gpt2_files(tmp_path)
    pretrained.save(small(tokens), tmp_path)
    with pytest.raises(ValueError, match=message):
        open_run(tmp_path)
