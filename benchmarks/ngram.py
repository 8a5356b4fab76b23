"""How fast does `src.likelihood.smoothing` count and score, beside nltk and kenlm? Run by
`make bench`.

Kneser-Ney of order 3 on the words of the embedded English, lower-cased, punctuation apart. In each
round everybody does the same work, one after another, and only ratios are kept: a busy machine
slows all of them. nltk counts the words themselves, as it must; for us they are numbered first, and
that is timed too. nltk needs some 20 ms a word to score, so it gets a few dozen words. kenlm reads
the model from an ARPA file that we write (PyPI's kenlm cannot estimate one), and must find the same
probabilities in it.
"""

import math
import re
import tempfile
from importlib.metadata import version
from itertools import repeat
from pathlib import Path

import kenlm
import numpy as np
from nltk.lm import KneserNeyInterpolated
from nltk.util import everygrams

from benchmarks.shared.rounds import finish, seconds
from src.likelihood.smoothing import NgramModel
from src.texts.corpora import load, split

ORDER, ROUNDS, NLTK_WORDS = 3, 9, 30
TARGETS = {
    "fitting, against nltk, words numbered before": ("≥", 70),
    "fitting, against nltk, numbering included": None,
    "scoring a word, against nltk": ("≥", 10_000),
    "scoring a word, against kenlm's Python query": ("≥", 0.15),
}


def words_of(corpus):
    """Lower-cased words and punctuation marks, documents one after another."""
    return [word for text in corpus for word in re.findall(r"\w+|[^\w\s]", text.text.lower())]


def numbered(words, vocabulary):
    """The id of each word, in the order of `vocabulary`; unknown words have the last one."""
    ids = {word: number for number, word in enumerate(vocabulary)}
    return np.fromiter(map(ids.get, words, repeat(len(ids))), np.int64, len(words))


def fit(ids, size):
    return NgramModel.fit(ids, order=ORDER, vocabulary_size=size)


def nltk_fit(words):
    model = KneserNeyInterpolated(ORDER)
    model.fit([everygrams(words, max_len=ORDER)], words)
    return model


def write_arpa(model, vocabulary, path):
    """The model as an ARPA file: log10 of each seen n-gram's probability, and of what it leaves.

    A back-off weight in ARPA's sense is what an interpolated model leaves to shorter contexts.
    """
    size, words = model.vocabulary_size, [*vocabulary, "<unk>"]
    heads = tokens = model.tables[0].keys[:-1]  # of an n-gram: its front, its last word
    names, grams, probs = words, tokens[:, None], None
    counts, sections = ["\\data\\"], []
    for k, table in enumerate(model.tables):
        lower = 1 / size
        if k:
            heads, tokens = np.divmod(table.keys[:-1], size)
            names = [f"{names[h]} {words[t]}" for h, t in zip(heads, tokens, strict=True)]
            grams = np.column_stack([grams[heads], tokens])  # (G, k + 1)
            lower = probs[numbers(model, grams[:, 1:])]
        probs = table.mass[:-1] + table.left[heads if k else [0] * size] * lower
        left = model.tables[k + 1].left[:-1] if k + 1 < ORDER else np.ones(len(names))
        rows = [
            f"{math.log10(prob):.9f}\t{name}" + (f"\t{math.log10(w):.9f}" if k + 1 < ORDER else "")
            for prob, name, w in zip(probs, names, left, strict=True)
        ]
        rows += [] if k else ["-99\t<s>\t0", "-99\t</s>"]
        counts.append(f"ngram {k + 1}={len(rows)}")
        sections += ["", f"\\{k + 1}-grams:", *rows]
    path.write_text("\n".join([*counts, *sections, "", "\\end\\", ""]), encoding="utf-8")


def numbers(model, grams):
    """The numbers of n-grams, (G, k), that all occur."""
    number = grams[:, 0]
    for table, tokens in zip(model.tables[1:], grams.T[1:], strict=False):
        number = np.searchsorted(table.keys, number * model.vocabulary_size + tokens)
    return number


def greatest_difference(model, ids, query, text):
    """Of log-probabilities, ours against kenlm's, relative; the first word is context only."""
    ours = -model.score(ids)
    theirs = [score for score, _, _ in query.full_scores(text, bos=False, eos=False)][1:]
    theirs = np.array(theirs) * math.log(10)
    return float(np.max(np.abs(ours - theirs) / np.abs(theirs)))


def one_round(train, vocabulary, test, test_ids, query):
    """The ratios of one round, peer over ours: how many times as fast we are."""
    size, text = len(vocabulary) + 1, " ".join(test)
    ids, numbering = seconds(numbered, train, vocabulary)
    model, fitting = seconds(fit, ids, size)
    peer, peer_fitting = seconds(nltk_fit, train)
    _, scoring = seconds(model.score, test_ids)
    some = range(ORDER, ORDER + NLTK_WORDS)
    _, peer_scoring = seconds(lambda: [peer.score(test[t], test[t - ORDER + 1 : t]) for t in some])
    _, query_scoring = seconds(lambda: query.score(text, bos=False, eos=False))
    per_word = scoring / len(test)
    ratios = [
        peer_fitting / fitting,
        peer_fitting / (fitting + numbering),
        peer_scoring / NLTK_WORDS / per_word,
        query_scoring / scoring,
    ]
    return dict(zip(TARGETS, ratios, strict=True))


def main():
    train, _, test = (words_of(part) for part in split(load("python-docs")))
    vocabulary = sorted(set(train))
    test_ids = numbered(test, vocabulary)
    model = fit(numbered(train, vocabulary), len(vocabulary) + 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.arpa"
        write_arpa(model, vocabulary, path)
        query = kenlm.Model(str(path))
    difference = greatest_difference(model, test_ids, query, " ".join(test))
    rounds = [one_round(train, vocabulary, test, test_ids, query) for _ in range(ROUNDS)]
    finish(
        "ngram",
        [
            "# N-grams beside nltk and kenlm",
            "",
            "Written by `make bench` (`benchmarks/ngram.py`): how many times as fast "
            "`src.likelihood.smoothing` "
            "is,",
            f"{len(rounds)} interleaved rounds, one ratio a round.",
        ],
        rounds,
        TARGETS,
        [
            f"- {len(train):,} words of training, {len(vocabulary):,} different, {len(test):,} of "
            "test",
            f"- greatest relative difference of log-probabilities from kenlm's: {difference:.1e}",
            f"- nltk {version('nltk')}, kenlm {version('kenlm')}, NumPy {version('numpy')}",
        ],
        ["equal log-probabilities"] if difference > 1e-5 else [],
    )


if __name__ == "__main__":
    main()
