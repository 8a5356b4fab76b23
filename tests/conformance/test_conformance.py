"""Our byte-pair encoding beside tiktoken, Hugging Face's tokenizers, rustbpe and a plain oracle.

For the same merges everybody must give the same ids, on texts chosen for being nasty
(`texts.json`). **Special tokens are off in all of them**: a text that spells `<|endoftext|>` is
text. (Hugging Face needs `encode_special_tokens` for that, tiktoken `encode_ordinary`.) What they
do when special tokens are on is compared apart. Nothing here asks the network: every library gets
our merges, and tiktoken's published encodings, which it would download, are not used.
"""

import json
import os
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
import regex

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import rustbpe
import tiktoken
import tokenizers
from oracle import train as oracle_train
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

from next_token.folders import load_hugging_face
from src.texts.corpora import load
from src.tokens.bpe import GPT2_PATTERN, BytePairTokenizer, count_words
from src.tokens.bytes import END
from src.tokens.fast_bpe import learn_merges
from src.tokens.files import save_gpt2

TEXTS = json.loads((Path(__file__).parent / "texts.json").read_text(encoding="utf-8"))
ALL = [text for texts in TEXTS.values() for text in texts]
find_words = regex.compile(GPT2_PATTERN).findall  # not ours: no blocks, no fast path for ASCII


@pytest.fixture(scope="module", params=["English", "nasty"])
def tokenizer(request):
    """Merges learned from prose, and merges learned from the nasty texts themselves."""
    texts = ALL if request.param == "nasty" else [d.text for d in load("python-docs").documents]
    return BytePairTokenizer.train(texts[:400], 1_999)


@pytest.fixture(scope="module")
def tiktokens(tokenizer):
    ranks = {tokenizer.token_bytes(n): n for n in range(tokenizer.vocabulary_size - 1)}
    return tiktoken.Encoding(
        "ours", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens=tokenizer.specials
    )


@pytest.fixture(scope="module")
def hugging_face(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hf")
    save_gpt2(tokenizer, folder)
    loaded = tokenizers.Tokenizer(
        tokenizers.models.BPE.from_file(f"{folder}/vocab.json", f"{folder}/merges.txt")
    )
    loaded.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, trim_offsets=False
    )
    loaded.add_special_tokens([END])
    loaded.encode_special_tokens = True  # special tokens off
    return loaded


def differing(texts, ours, theirs):
    """The texts of which two encoders give different ids, cut short."""
    return [text[:60] for text in texts if ours(text) != theirs(text)]


def test_words_never_cross_what_the_pattern_cuts():
    """The fast splitting of long and of ASCII texts, against the pattern itself."""
    joined = ["".join(ALL), " ".join(ALL), " ".join(ALL * 3)]
    ascii_only = [text.encode("ascii", "ignore").decode() for text in joined]
    for text in [*ALL, *joined, *ascii_only]:
        assert list(count_words([text]).items()) == list(Counter(find_words(text)).items())


@pytest.mark.parametrize("kind", TEXTS)
def test_ids_are_those_of_tiktoken(kind, tokenizer, tiktokens):
    assert not differing(TEXTS[kind], tokenizer.encode, tiktokens.encode_ordinary)


@pytest.mark.parametrize("kind", TEXTS)
def test_ids_and_offsets_are_those_of_hugging_face(kind, tokenizer, hugging_face):
    def theirs(text):
        return hugging_face.encode(text, add_special_tokens=False)

    assert not differing(TEXTS[kind], tokenizer.encode, lambda text: theirs(text).ids)
    assert not differing(TEXTS[kind], tokenizer.offsets, lambda text: theirs(text).offsets)


def test_with_special_tokens_on_all_three_agree(tokenizer, tiktokens, hugging_face):
    hugging_face.encode_special_tokens = False
    try:
        for text in [*ALL, f"{END}a{END}{END} b{END}", f"{END[:-1]}{END}", f" {END} \n"]:
            ours = tokenizer.encode(text, (END,))
            assert ours == tiktokens.encode(text, allowed_special={END}), text[:60]
            assert ours == hugging_face.encode(text).ids, text[:60]
    finally:
        hugging_face.encode_special_tokens = True


def test_decoding_any_ids_is_that_of_tiktoken(tokenizer, tiktokens):
    """Tokens in an order that no encoder would give, so that bytes are not UTF-8."""
    ids = [(7_919 * k) % tokenizer.vocabulary_size for k in range(5_000)]
    assert tokenizer.decode(ids) == tiktokens.decode(ids)
    assert b"\xef\xbf\xbd" in tokenizer.decode(ids).encode()


@pytest.mark.parametrize("context", ["a{}1", "!{}a", " {}'s"])
def test_every_known_character_is_cut_as_others_cut_it(context):
    """Libraries carry different versions of Unicode, so only characters known to Python's count."""
    every = map(chr, range(sys.maxunicode + 1))
    known = [one for one in every if unicodedata.category(one) not in ("Cn", "Cs", "Co")]
    text = "\n".join(map(context.format, known))
    splitter = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    spans = [span for _, span in splitter.pre_tokenize_str(text)]
    assert [text[start:end] for start, end in spans] == find_words(text)
    assert list(count_words([text])) == list(Counter(find_words(text)))


# --- training ---


def rust_merges(texts, vocabulary_size):
    """The bytes of rustbpe's tokens beyond single bytes, in the order learned."""
    peer = rustbpe.Tokenizer()
    peer.train_from_iterator(iter(texts), vocabulary_size, pattern=GPT2_PATTERN)
    return [bytes(token) for token, _ in peer.get_mergeable_ranks()][256:]


def tokens_of(merges):
    tokens = [bytes([byte]) for byte in range(256)]
    for left, right in merges:
        tokens.append(tokens[left] + tokens[right])
    return tokens[256:]


@pytest.mark.parametrize("kind", TEXTS)
def test_merges_are_those_of_the_oracle_and_of_rustbpe(kind):
    """Until the text runs out of pairs, or 150: ties and overlapping pairs abound."""
    texts = [text[:300] for text in TEXTS[kind]]
    ours = learn_merges(count_words(texts), 150)
    assert ours == oracle_train([word for text in texts for word in find_words(text)], 150)
    assert tokens_of(ours) == rust_merges(texts, 256 + 150)


def test_merges_of_a_megabyte_of_english_are_those_of_rustbpe():
    text = "\n".join(document.text for document in load("python-docs").documents)[:1_000_000]
    assert tokens_of(learn_merges(count_words([text]), 3_840)) == rust_merges([text], 4_096)


# --- files of others ---


@pytest.mark.parametrize("merges_as", ["pairs", "strings"])
@pytest.mark.parametrize("options", [{}, {"add_prefix_space": False}, {"use_regex": False}])
def test_a_tokenizer_json_that_tokenizers_wrote_gives_the_same_ids(tmp_path, merges_as, options):
    """Its byte ids are in the order of its alphabet, and its special tokens come first."""
    level = tokenizers.pre_tokenizers.ByteLevel(**options)
    peer = tokenizers.Tokenizer(tokenizers.models.BPE())
    peer.pre_tokenizer = level
    trainer = tokenizers.trainers.BpeTrainer(
        vocabulary_size=700,
        special_tokens=[END, "<|pad|>"],
        initial_alphabet=level.alphabet(),
        show_progress=False,
    )
    # Without the pattern it would learn END from a text, and a token and a special token would
    # share one entry of its vocabulary; such a file is refused.
    peer.train_from_iterator([text[:100] for text in ALL if END not in text], trainer)
    path = tmp_path / "tokenizer.json"
    peer.save(str(path))
    if merges_as == "strings":
        content = json.loads(path.read_text(encoding="utf-8"))
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
        path.write_text(json.dumps(content), encoding="utf-8")
    ours = load_hugging_face(path)
    assert ours.specials == {END: 0, "<|pad|>": 1}
    peer.encode_special_tokens = True
    short = [text for text in ALL if len(text) < 1_000]
    assert not differing(short, ours.encode, lambda text: peer.encode(text).ids)


def test_tiktoken_reads_the_gpt2_files_that_we_write(tmp_path, tokenizer, monkeypatch):
    """By its reader of GPT-2's files, told that single bytes may have other ids than GPT-2's."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # keep no copies
    save_gpt2(tokenizer, tmp_path)
    ranks = data_gym_to_mergeable_bpe_ranks(
        str(tmp_path / "merges.txt"), str(tmp_path / "vocab.json"), clobber_one_byte_tokens=True
    )
    assert ranks == {tokenizer.token_bytes(n): n for n in range(tokenizer.vocabulary_size - 1)}
