"""Which of the models so far is best? One ledger, kept through Part I.

Each model is fitted on the training part of two texts and scored on the test part, always by the
same function, `score`:

    small English   the language of twelve words, whose law is known. 300 texts to train on, 5,000
                    for the test. The unit is nats per token; the ledger also says how far a model
                    is above the true table *on the same text*, where most of the luck cancels.
    python-docs     English, byte by byte: what documentation every Python installation carries.
                    The unit is bits per byte. The true law, and so the floor, is unknown.

`ENTRIES` lists the models with the chapters that introduce them. A chapter opens with the rows of
all chapters before it, which are fitted and scored again (nothing is typed), and adds its own:

    ledger = before("ngrams")                     # the table so far; a cell shows it
    ledger.add("frequencies of pairs")            # a model of ENTRIES, by its name
    total(score(my_model, small_english_text()))  # what my own version of it needs

A model is whatever `score` takes: see there. A new model is a function that is given a `Text` and
gives the fitted model, and a line of `ENTRIES`. If it takes long to fit, the function reads the
parameters of a recorded run; the score is computed all the same.

Used from the chapter `likelihood/text_probability` on.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..texts.corpora import Corpus, load, split
from ..texts.markov import MarkovSource, small_english
from ..tools.tables import Table
from .batches import Batches
from .evaluation import Score, document_scores, documents, total
from .fitting import fit
from .neural import WindowMLP
from .ngrams import BackOffModel, count_ngrams
from .smoothing import UNIFORM_BELOW, NgramModel

WINDOW, STRIDE = 512, 448  # so each token is predicted from at least 64 tokens, or from all


# ---- the two texts -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Text:
    """A text in three parts, as ids. The end token, 0, stands before, between and after documents.

    Attributes:
        name: of the text.
        vocabulary_size: V.
        train, validation: (N,) each; the streams to fit on and to choose by.
        test: the documents to score, (T + 1,) each; their first token, 0, is context only.
        n_bytes: the length of each test document in bytes; None where its tokens are words.
        law: what draws the text, where it is known.
    """

    name: str
    vocabulary_size: int
    train: Tensor
    validation: Tensor
    test: tuple[Tensor, ...]
    n_bytes: tuple[int, ...] | None = None
    law: MarkovSource | None = None


@functools.cache
def small_english_text() -> Text:
    """Texts of small English: 300 to train on, 300 to choose by, 5,000 for the test."""
    source = small_english()
    generator = torch.Generator().manual_seed(0)
    streams = []
    for count in (300, 300, 5_000):
        texts = source.sample_texts(count, generator=generator)
        streams.append(torch.cat([torch.tensor([0]), *texts]))
    train, validation, test = streams
    size = len(source.vocabulary)
    return Text("small English", size, train, validation, tuple(documents(test, end=0)), law=source)


@functools.cache
def python_docs_text() -> Text:
    """The documentation of Python as bytes, split by whole documents as `split` does."""
    parts = split(load("python-docs"))
    train, validation, test = (_stream(part) for part in parts)
    n_bytes = tuple(document.n_bytes for document in parts.test)
    return Text("python-docs", 256, train, validation, tuple(documents(test, end=0)), n_bytes)


def _stream(corpus: Corpus) -> Tensor:
    return torch.frombuffer(bytearray(corpus.to_bytes()), dtype=torch.uint8).long()


# ---- the one score -------------------------------------------------------------------------------


def score(model: Any, text: Text) -> list[Score]:
    """What each test document costs under a model: sums, of which `total` makes one.

    Args:
        model: any model from ids, (B, T), to logits, (B, T, V). It is given windows of 512 tokens,
            each of which shares 64 with the one before, so that nothing is lost to a model that
            looks back 64 tokens at most. A model that knows the surprise of given tokens without
            all other logits, which is faster, has a method `score`, as `NgramModel` does, or is
            the law itself, a `MarkovSource`.
        text: whose test part is scored.
    """
    if isinstance(model, MarkovSource):
        nats = [-model.log_prob(ids[1:]) for ids in text.test]
    elif isinstance(model, BackOffModel) and model.end == 0:
        # No context reaches before an end token, so the documents go through as one stream.
        stream = torch.cat([text.test[0][:1], *(ids[1:] for ids in text.test)])
        lengths = [len(ids) - 1 for ids in text.test]
        parts = torch.from_numpy(model.score(stream.tolist())).split(lengths)
        nats = [float(part.sum()) for part in parts]
    elif hasattr(model, "score"):
        nats = [float(model.score(ids).sum()) for ids in text.test]
    else:
        windows = {"context_length": WINDOW, "stride": STRIDE, "batch_size": 16}
        return document_scores(model, text.test, n_bytes=text.n_bytes, **windows)
    known = zip(nats, text.test, text.n_bytes or [None] * len(text.test), strict=True)
    return [Score(cost, len(ids) - 1, size) for cost, ids, size in known]


def numbers_kept(model: Any) -> int:
    """How many numbers a model keeps: parameters of a network, counts or probabilities above zero.

    A plain function, such as the uniform model, keeps none.
    """
    if isinstance(model, nn.Module):
        return sum(parameter.numel() for parameter in model.parameters())
    if isinstance(model, MarkovSource):
        return int((model.transition > 0).sum())
    if isinstance(model, BackOffModel):
        alone = isinstance(model, NgramModel) and model.estimator in UNIFORM_BELOW
        used = model.tables[-1:] if alone else model.tables
        return sum(int((table.mass > 0).sum()) for table in used)
    return 0


# ---- the models ----------------------------------------------------------------------------------


class Entry(NamedTuple):
    """A model of the ledger.

    Attributes:
        chapter: which introduces it.
        model: its name.
        fit: from a text to the model, fitted on its training part; None: not for this text.
    """

    chapter: str
    model: str
    fit: Callable[[Text], Any]


def uniform(text: Text) -> Callable[[Tensor], Tensor]:
    """The model that knows nothing: all logits are zero."""
    return lambda ids: torch.zeros(1, device=ids.device).expand(*ids.shape, text.vocabulary_size)


def counts(text: Text, *, order: int, **smoothing: Any) -> NgramModel:
    """Smoothed counts of n-grams, as `NgramModel.fit` makes them."""
    ids, size = text.train.tolist(), text.vocabulary_size
    return NgramModel.fit(ids, order=order, vocabulary_size=size, end=0, **smoothing)


def frequencies(text: Text, *, order: int) -> NgramModel:
    """Relative frequencies of tokens (order 1) or pairs (order 2): maximum likelihood."""
    return counts(text, order=order, estimator="maximum-likelihood")


def pairs_from_half(text: Text) -> NgramModel:
    """Pairs, counted from one half on, so that none is impossible: the code that learns as it goes.

    Source: Krichevsky and Trofimov 1981, for two tokens.
    """
    return counts(text, order=2, estimator="add-k", k=0.5)


def back_off(text: Text) -> BackOffModel:
    """Relative frequencies after the longest context of up to two tokens that was seen."""
    ids, size = text.train.tolist(), text.vocabulary_size
    return BackOffModel.of(count_ngrams(ids, order=3, vocabulary_size=size, end=0), end=0)


def kneser_ney(text: Text) -> NgramModel:
    """Discounted counts, of the best order on the validation part among those of the chapter."""
    return counts(text, order=2 if text.law else 7)


def window_network(text: Text, *, n_words: int = 2, seed: int = 0) -> WindowMLP:
    """A network over the last `n_words`, or over the last eight bytes: some seconds of training.

    The rate falls to zero along a straight line. What is kept is the network of the least loss on
    the beginning of the validation part, which is looked at every 50 steps.
    """
    words = text.law is not None
    size, steps = (32, 300) if words else (128, 600)
    network = WindowMLP(
        text.vocabulary_size,
        context_length=n_words if words else 8,
        embedding_size=8 if words else 16,
        hidden_size=size,
        end=0,
        generator=torch.Generator().manual_seed(seed),
    )
    some = text.validation[: 2**12 + 1]
    fit(
        network,
        Batches(text.train, batch_size=16, context_length=32 if words else 64, seed=seed),
        steps=steps,
        learning_rate=0.01,
        schedule=lambda step: 1 - (step - 1) / steps,
        validation=[(some[None, :-1], some[None, 1:])],
        every=50,
        keep_best=True,
        progress=False,
    )
    return network


ENTRIES = (
    Entry("text_probability", "uniform", uniform),
    Entry("text_probability", "the true table", lambda text: text.law),
    Entry("maximum_likelihood", "frequencies of tokens", functools.partial(frequencies, order=1)),
    Entry("maximum_likelihood", "frequencies of pairs", functools.partial(frequencies, order=2)),
    Entry("ngrams", "back-off, order 3", back_off),
    Entry("smoothing", "pairs, counts begin at ½", pairs_from_half),
    Entry("smoothing", "Kneser–Ney", kneser_ney),
    Entry("neural", "window network", window_network),
)


# ---- the ledger ----------------------------------------------------------------------------------


class Row(NamedTuple):
    """A model on both texts; None: there is no such model of this text.

    Attributes:
        model: its name.
        small, docs: its scores on small English and python-docs, one for each test document.
        small_numbers, docs_numbers: how many numbers it keeps.
    """

    model: str
    small: list[Score] | None
    docs: list[Score] | None
    small_numbers: int | None
    docs_numbers: int | None


@dataclass
class Ledger:
    """The rows so far. A notebook shows it as a table.

    Attributes:
        rows: in the order in which they were added.
    """

    rows: list[Row] = field(default_factory=list)

    def add(self, name: str) -> Row:
        """Fit a model of `ENTRIES` on both texts, score it, and write its row at the end."""
        fit_on = {entry.model: entry.fit for entry in ENTRIES}[name]
        texts = small_english_text(), python_docs_text()
        models = [fit_on(text) for text in texts]
        small, docs = (m if m is None else score(m, t) for m, t in zip(models, texts, strict=True))
        row = Row(name, small, docs, *(m if m is None else numbers_kept(m) for m in models))
        self.rows.append(row)
        return row

    def __getitem__(self, name: str) -> Row:
        """The row of a model."""
        return {row.model: row for row in self.rows}[name]

    def table(self) -> Table:
        """The rows as a table."""
        columns = {
            "model": "",
            "small English: nats per token": ".3f",
            "above the true table": ".3f",
            "python-docs: bits per byte": ".3f",
            "numbers kept, small English": ",d",
            "numbers kept, python-docs": ",d",
        }
        rows = []
        for row in self.rows:
            nats = None if row.small is None else total(row.small).loss
            above = None if nats is None else nats - _loss_of_the_truth()
            bits = None if row.docs is None else total(row.docs).bits_per_byte
            rows.append((row.model, nats, above, bits, row.small_numbers, row.docs_numbers))
        return Table(columns, rows)

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def before(chapter: str) -> Ledger:
    """The ledger up to the first model of a chapter, each model fitted and scored again.

    Of a chapter that adds none, it has all models.
    """
    ledger = Ledger()
    for entry in takewhile(lambda entry: entry.chapter != chapter, ENTRIES):
        ledger.add(entry.model)
    return ledger


@functools.cache
def _loss_of_the_truth() -> float:
    """Nats per token that the law of small English itself needs for the test part."""
    text = small_english_text()
    return total(score(text.law, text)).loss
