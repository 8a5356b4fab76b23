"""How far does counting go on the embedded English if it also counts the text so far?

An n-gram model with Kneser-Ney smoothing, and on top of it a cache: the counts of what stands in
the window, after contexts of a few tokens. The tokens, the documents and the windows are those of
the GPT of the chapter on training: 128 tokens, each scored with at least 64 of them before it, or
with the tokens of its own window only, as in the challenge. The order, the discount, the number of
lengths of context and the weights are chosen on the validation part. One minute of one core.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from next_token.run_config import RunConfig
from src.likelihood.cached_counts import CachedCounts, cache_probs
from src.likelihood.evaluation import (
    Score,
    bootstrap,
    document_scores,
    paired_bootstrap,
    total,
)
from src.likelihood.ngrams import count_ngrams
from src.likelihood.smoothing import NgramModel, em_weights
from src.likelihood.surprise import bits_per_byte
from src.tokens.bpe import BytePairTokenizer
from src.tokens.bytes import END, stream_of

CONTEXT, STRIDES = 128, {"training": 64, "challenge": 128}
ENOUGH = 0.001  # bits per byte: a further length of context must bring so much


@dataclass(frozen=True)
class Settings:
    orders: tuple = tuple(range(3, 12))
    discounts: tuple = (0.7, 0.8, 0.85, 0.9, 0.95)
    lengths: int = 8
    every: int = 1  # of the documents that are scored, every so-manieth


QUICK = Settings(orders=(3, 4), discounts=(0.8, 0.9), lengths=3, every=20)


class Part:
    """What a cache says of each scored token of some documents, and which document it stands in."""

    def __init__(self, documents, tokenizer, lengths, stride):
        self.texts = [stream_of([document], tokenizer) for document in documents]
        self.n_bytes = [document.n_bytes for document in documents]
        self.windows, self.documents, probs, seen = [], [], [], []
        size, end = tokenizer.vocabulary_size, tokenizer.specials[END]
        for number, text in enumerate(self.texts):
            scored = 1
            for start in range(0, len(text), stride):
                window = text[start : start + CONTEXT + 1]
                first, scored = scored - start - 1, start + len(window)
                said, found = cache_probs(window[None, :-1], lengths, size, end)
                said = said[:, 0, torch.arange(len(window) - 1), window[1:]]
                probs.append(said[:, first:])
                seen.append(found[:, 0, first:])
                self.windows.append((window.tolist(), first))
                self.documents += [number] * (len(window) - 1 - first)
                if scored == len(text):
                    break
        self.probs = torch.cat(probs, 1).double().numpy()  # (K, T)
        self.seen = torch.cat(seen, 1).numpy()

    def counted(self, model):
        """The probability of each scored token, (T,), under a model of counts."""
        return np.exp(-np.concatenate([model.score(w)[first:] for w, first in self.windows]))

    def mixed(self, weights, probs):
        """The same with the cache."""
        for weight, said, seen in zip(weights, self.probs, self.seen, strict=False):
            probs = np.where(seen, weight * said + (1 - weight) * probs, probs)
        return probs

    def scores(self, probs):
        """The score of each document."""
        nats = np.bincount(self.documents, -np.log(probs))
        parts = zip(nats.tolist(), self.texts, self.n_bytes, strict=True)
        return [Score(cost, len(text) - 1, size) for cost, text, size in parts]

    def bits(self, probs):
        return bits_per_byte(-np.log(probs).sum(), sum(self.n_bytes))


def chosen(settings, model, part):
    """What was tried on the validation part, and the best: order, discount, lengths, weights."""
    of_models = {
        (order, discount): part.counted(model(order, discount))
        for order in settings.orders
        for discount in settings.discounts
    }

    def weighed(key, lengths):
        base = of_models[key]
        weights, _ = em_weights(part.probs[:lengths], part.seen[:lengths], base)
        return weights, part.bits(part.mixed(weights, base))

    alone = {key: part.bits(probs) for key, probs in of_models.items()}
    cached = {key: weighed(key, settings.lengths)[1] for key in of_models}
    best = min(cached, key=cached.get)
    by_lengths = [alone[best]]
    by_lengths += [weighed(best, lengths)[1] for lengths in range(1, settings.lengths + 1)]
    gains = [one - two for one, two in pairwise(by_lengths)]
    lengths = next((k for k, gain in enumerate(gains) if gain < ENOUGH), settings.lengths)
    return {
        "order": best[0],
        "discount": best[1],
        "lengths": lengths,
        "weights": weighed(best, lengths)[0].tolist(),
        "alone": min(alone, key=alone.get),
        "tried": {
            "alone": [[*key, bits] for key, bits in alone.items()],
            "with a cache": [[*key, bits] for key, bits in cached.items()],
            "lengths": by_lengths,
        },
    }


def same(model, part, scores, stride):
    """Whether the model of `src` gives the first documents the same scores."""
    few = document_scores(model, part.texts[:3], context_length=CONTEXT, stride=stride)
    assert np.allclose([each.nats for each in few], [each.nats for each in scores[:3]], rtol=1e-4)


def measured(cells):
    settings, parts = cells.settings, RunConfig().parts()
    vocabulary_size = RunConfig().data.vocabulary_size
    tokenizer = BytePairTokenizer.train((each.text for each in parts.train), vocabulary_size)
    end, stream = tokenizer.specials[END], stream_of(parts.train, tokenizer).tolist()
    size, orders = tokenizer.vocabulary_size, {5, *settings.orders}
    counted = count_ngrams(stream, order=max(orders), vocabulary_size=size, end=end)

    def model(order, discount=None):
        return NgramModel.from_counts(counted[:order], end=end, discount=discount)

    stride = STRIDES["training"]
    validation = list(parts.validation)[:: settings.every]
    held_out = Part(validation, tokenizer, settings.lengths, stride)
    found = chosen(settings, model, held_out)
    mine = model(found["order"], found["discount"])
    test, tested = list(parts.test)[:: settings.every], {}
    for name, stride in STRIDES.items():
        part = Part(test, tokenizer, found["lengths"], stride)
        scores = {
            "5-gram": part.scores(part.counted(model(5))),
            "n-gram": part.scores(part.counted(model(*found["alone"]))),
            "cache": part.scores(part.mixed(found["weights"], part.counted(mine))),
        }
        same(CachedCounts(mine, tuple(found["weights"])), part, scores["cache"], stride)
        draw = torch.Generator().manual_seed(0)
        tested[name] = {
            "context": CONTEXT,
            "stride": stride,
            "bits": {each: list(bootstrap(scores[each], generator=draw)) for each in scores},
            "minus": {
                other: list(paired_bootstrap(scores["cache"], scores[other], generator=draw))
                for other in ("5-gram", "n-gram")
            },
            "documents": [[each.nats, each.n_bytes] for each in scores["cache"]],
        }
        assert total(scores["cache"]).bits_per_byte < total(scores["n-gram"]).bits_per_byte
    return found | {"test": tested}


def find(cells):
    return cells(measured)


def table(kept):
    lines = [
        "Counts with a cache of the text so far (embedded English, bits per byte)",
        f"Chosen on the validation part: order {kept['order']}, discount {kept['discount']}, "
        f"contexts of 0 to {kept['lengths'] - 1} tokens in the text so far, with weights "
        f"{', '.join(f'{weight:.3f}' for weight in kept['weights'])}. Without a cache: order "
        f"{kept['alone'][0]}, discount {kept['alone'][1]}.",
        "",
        "| windows | model | test, with 95 % | with a cache, minus this |",
        "|:---|:---|:---|:---|",
    ]
    for name, tested in kept["test"].items():
        for model, (bits, low, high) in tested["bits"].items():
            minus = ""
            if model in tested["minus"]:
                minus = "{:+.3f} ({:+.3f} to {:+.3f})".format(*tested["minus"][model])
            lines.append(
                f"| {name}: stride {tested['stride']} | {model} | {bits:.3f} ({low:.3f} to "
                f"{high:.3f}) | {minus} |"
            )
    discounts = sorted({discount for _, discount, _ in kept["tried"]["with a cache"]})
    lines += ["", f"| validation, order | {' | '.join(f'D = {d:g}' for d in discounts)} |"]
    lines += ["|---:|" + "---:|" * len(discounts)]
    tried = {(order, d): bits for order, d, bits in kept["tried"]["with a cache"]}
    for order in sorted({order for order, _ in tried}):
        row = " | ".join(f"{tried[order, d]:.4f}" for d in discounts)
        lines.append(f"| {order} | {row} |")
    more = ", ".join(f"{bits:.4f}" for bits in kept["tried"]["lengths"])
    return [*lines, "", f"With 0, 1, … lengths of context in the cache: {more}."]
