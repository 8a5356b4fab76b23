"""Do our encoder and `tiktoken` agree on ten megabytes, and what does a sentence cost in each?

The vocabularies of GPT-2, GPT-4 (`cl100k_base`) and GPT-4o (`o200k_base`), each in our encoder and
in `tiktoken`, with the patterns of its own source. The mixed text: sources of the standard library,
the translations of the program sphinx into some sixty languages, and characters drawn from all of
Unicode, cut into pieces that are shuffled, so that anything may stand beside anything. Time is
processor time, in turns, the tokenizers made anew for each round.

Then the tokens of each sentence that the book has in English, Japanese and Thai, and what the
tokens of a vocabulary are made of. GPT-4o's vocabulary is in the package `bpe-openai`, of 42 MB,
which the book does not install; a quick run does without. Some minutes of one core.
"""

import random
import statistics
import sysconfig
import time
import unicodedata
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import tiktoken
from tiktoken_ext import openai_public

from src.tokens.vocabularies import released
from src.tools.places import place_of

MODELS = {"gpt2": "GPT-2", "cl100k_base": "GPT-4", "o200k_base": "GPT-4o"}
LANGUAGES = {"English": "en", "Japanese": "ja", "Thai": "th"}
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
)
PIECE = 200  # characters


@dataclass(frozen=True)
class Settings:
    vocabularies: tuple = tuple(MODELS)
    size: int = 10_000_000  # bytes
    rounds: int = 3


QUICK = Settings(vocabularies=("gpt2", "cl100k_base"), size=200_000, rounds=1)


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


# ---- both tokenizers ---------------------------------------------------------------------------


def theirs(name, ours):
    """`tiktoken` with the pattern of its own source, and the tokens of ours."""
    n = ours.vocabulary_size - len(ours.specials)
    ranks = {ours.token_bytes(number): number for number in range(n)}
    loaders = ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks")
    with patch.multiple(openai_public, **dict.fromkeys(loaders, lambda *args, **options: ranks)):
        return tiktoken.Encoding(**getattr(openai_public, name)())


def compared(cells, name):
    """Whether the ids of the mixed text are equal, and the time of ours over theirs."""
    text, ratios, equal = mixed(cells.settings.size), [], True
    for turn in range(cells.settings.rounds):
        ours = released(name)
        their = theirs(name, ours)
        encoders = [("ours", ours.encode), ("theirs", their.encode_ordinary)]
        ids, taken = {}, {}
        for who, encode in encoders if turn % 2 == 0 else encoders[::-1]:
            begun = time.process_time()
            ids[who] = encode(text)
            taken[who] = time.process_time() - begun
        equal = equal and ids["ours"] == ids["theirs"]
        ratios.append(taken["ours"] / taken["theirs"])
    return {
        "bytes": len(text.encode()),
        "characters": len(set(text)),
        "tokens": len(ids["ours"]),
        "equal": equal,
        "ratios": ratios,
    }


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


def described(cells, name):
    """Tokens of each sentence, tokens of each script, and how many tokens text never becomes."""
    tokenizer = released(name)
    n = tokenizer.vocabulary_size - len(tokenizer.specials)
    scripts = dict.fromkeys([*SCRIPTS, "other letters", "no letter", "bytes"], 0)
    for number in range(n):
        scripts[script_of(tokenizer.token_bytes(number))] += 1
    costs = {
        text: {
            language: [len(tokenizer.encode(line)) for line in lines]
            for language, lines in sentences(text).items()
        }
        for text in ("bookshop", "sentences")
    }
    return {
        "size": tokenizer.vocabulary_size,
        "scripts": scripts,
        "costs": costs,
        "pieces": {text: tokens_of(tokenizer, text) for text in SAMPLES},
    }


SAMPLES = ("DON'T", "1234567", " SolidGoldMagikarp", "camelCase", "บิลลี", "हिन्दी", "a\n\n  b")


def tokens_of(tokenizer, text):
    """The tokens of a text, as texts; a broken one with its bytes."""
    found = [tokenizer.token_bytes(number) for number in tokenizer.encode(text)]
    return [token.decode("utf-8", "backslashreplace") for token in found]


def find(cells):
    names = cells.settings.vocabularies
    return {
        "models": {name: MODELS[name] for name in names},
        "compared": {name: cells(compared, name=name) for name in names},
        "described": {name: cells(described, name=name) for name in names},
    }


def table(kept):
    lines = [
        "Released vocabularies in our encoder",
        "Shown by the chapter `tokens/in_the_wild`. A mixed text, encoded by ours and by "
        "`tiktoken`; time is ours over theirs, the median of the rounds:",
        "",
        "| | bytes | tokens | ids equal | time |",
        "|:---|---:|---:|:---|---:|",
    ]
    for name, found in kept["compared"].items():
        lines.append(
            f"| {kept['models'][name]} | {found['bytes']:,} | {found['tokens']:,} | "
            f"{'yes' if found['equal'] else 'no'} | {statistics.median(found['ratios']):.2f} |"
        )
    lines += ["", "Tokens per sentence of the story, means:", ""]
    lines += ["| | ids | English | Japanese | Thai |", "|:---|---:|---:|---:|---:|"]
    for name, found in kept["described"].items():
        means = "".join(
            f" {statistics.fmean(found['costs']['bookshop'][language]):.1f} |"
            for language in LANGUAGES
        )
        lines.append(f"| {kept['models'][name]} | {found['size']:,} |{means}")
    return lines
