"""What do few bits cost a released model, in which form, in which part and at which depth?

The packaged model, whose matrices stand in its file in Q4_1 (4 bits, blocks of 32 with a scale and
a minimum) and its embedding in Q8_0, is put through fewer or other bits, and scored on the first
kilobyte of documents that stand in the test part of Python's documentation. The reference is the
file as it is: what the file itself lost of the published model is not measured.

Arms of "form" change the 210 matrices of the blocks and leave the embedding; those of "part" and
"depth" change one part only, all in the same form; those of "activations" leave all weights and
round what the matrices of the blocks read, to 8 bits, in calls of one document each.

Each arm is compared with the file as it is, document by document. An interrupt (Ctrl-C) ends it
after the arms that are complete; begun again, it goes on from there. Ten minutes of one core.
"""

from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from functools import cache

import torch

from src.likelihood.evaluation import Score, document_scores, paired_bootstrap, total
from src.texts import corpora
from src.today.gguf_models import open_model
from src.today.quantisation import changed_inputs, quantise, quantise_model

FILE = "the file as it is"
THREE = {"bits": 3, "block": 32}
PARTS = {
    "queries, keys, values": ("attention.qkv",),
    "output of attention": ("attention.output",),
    "gate and expand": ("feed_forward.gate", "feed_forward.expand"),
    "contract": ("feed_forward.contract",),
    "embedding": ("embedding",),
}
ARMS = {FILE: {"kind": "file"}}
ARMS |= {f"a row, {b} bits": {"kind": "form", "bits": b} for b in (8, 5, 4, 3)}
ARMS |= {f"blocks of 32, {b} bits": {"kind": "form", "bits": b, "block": 32} for b in (4, 3, 2)}
ARMS |= {
    f"blocks of {n} with a minimum, {b} bits": {
        "kind": "form",
        "bits": b,
        "block": n,
        "minimum": True,
    }
    for n, b in ((32, 5), (32, 4), (32, 3), (32, 2), (64, 4))
}
ARMS |= {
    f"3 bits: {part}": {"kind": "part", **THREE, "names": names} for part, names in PARTS.items()
}
ARMS |= {
    f"3 bits: layers {low} to {low + 9}": {
        "kind": "depth",
        **THREE,
        "names": [f"blocks.{i}." for i in range(low, low + 10)],
    }
    for low in (0, 10, 20)
}
ARMS |= {
    f"activations: {name}": {"kind": "activations", "scales": name}
    for name in (
        "a scale for each token",
        "a scale for all tokens",
        "for all, but for contract's inputs",
        "for all, contract's inputs only",
        "for all but the first token",
    )
}
WINDOW = 1_024


@dataclass(frozen=True)
class Settings:
    documents: int = 20
    n_bytes: int = 1_000  # of each
    arms: tuple = tuple(ARMS)


QUICK = Settings(
    documents=2,
    n_bytes=200,
    arms=(FILE, "a row, 4 bits", "3 bits: contract", "activations: a scale for all tokens"),
)


# ---- one arm -----------------------------------------------------------------------------------


@cache
def real():
    return open_model(context_length=WINDOW)


def texts_of(settings):
    """The ids of each document, an end token in front, and its bytes."""
    test = corpora.split(corpora.load("python-docs")).test
    long = [each.text for each in test if each.n_bytes >= settings.n_bytes]
    cut = [text.encode()[: settings.n_bytes].decode(errors="ignore") for text in long]
    cut = cut[: settings.documents]
    run = real()
    ids = [torch.tensor([run.end, *run.tokenizer.encode(text)]) for text in cut]
    return ids, [len(text.encode()) for text in cut]


def by_token(x):
    """8 bits, a scale for each token."""
    return quantise(x.flatten(0, -2), 8).restored().view_as(x)


def for_all(x):
    """8 bits, one scale: as if all were one row."""
    return quantise(x.reshape(1, -1), 8).restored().view_as(x)


def first_apart(x):
    return torch.cat([by_token(x[:, :1]), for_all(x[:, 1:])], 1)


def is_contract(name):
    return "contract" in name


ROUNDED = {  # name: which linear layers read what in the place of x
    "a scale for each token": [(lambda name: True, by_token)],
    "a scale for all tokens": [(lambda name: True, for_all)],
    "for all, but for contract's inputs": [
        (lambda name: not is_contract(name), for_all),
        (is_contract, by_token),
    ],
    "for all, contract's inputs only": [
        (lambda name: not is_contract(name), by_token),
        (is_contract, for_all),
    ],
    "for all but the first token": [(lambda name: True, first_apart)],
}


def scored(cells, arm):
    """Nats of each document, and what was changed."""
    asked = ARMS[arm]
    ids, n_bytes = texts_of(cells.settings)
    model, used, weights = deepcopy(real().model), None, 0
    if "bits" in asked:
        names = asked.get("names", ["blocks."])

        def chosen(name):
            return any(part in name for part in names)

        form = {"block": asked.get("block"), "minimum": asked.get("minimum", False)}
        used = quantise_model(model, asked["bits"], **form, chosen=chosen)
        matrices = {name: p for name, p in model.named_parameters() if p.ndim == 2}
        weights = sum(p.numel() for name, p in matrices.items() if chosen(name))
    with ExitStack() as stack:
        for chosen_layers, change in ROUNDED.get(asked.get("scales"), []):
            stack.enter_context(changed_inputs(model, change, chosen=chosen_layers))
        scores = document_scores(model, ids, context_length=WINDOW, batch_size=1, n_bytes=n_bytes)
    return {"nats": [each.nats for each in scores], "bits_per_weight": used, "weights": weights}


# ---- the record --------------------------------------------------------------------------------


def find(cells):
    ids, n_bytes = texts_of(cells.settings)
    tokens = [len(each) - 1 for each in ids]
    found = {}
    try:
        for arm in cells.settings.arms:
            found[arm] = cells(scored, arm=arm)
    except KeyboardInterrupt:  # what is complete is a record, too
        if len(found) < 2:
            raise
    scores = {
        arm: [Score(*each) for each in zip(one["nats"], tokens, n_bytes, strict=True)]
        for arm, one in found.items()
    }
    arms = {}
    for arm, one in found.items():
        drawing = torch.Generator().manual_seed(0)
        more = paired_bootstrap(scores[arm], scores[FILE], generator=drawing)
        arms[arm] = {
            **{"kind": ARMS[arm]["kind"], "bits": ARMS[arm].get("bits")},
            **one,
            "bits_per_byte": total(scores[arm]).bits_per_byte,
            "more": [more.estimate, more.low, more.high],
        }
    return {"file": FILE, "tokens": tokens, "n_bytes": n_bytes, "arms": arms}


def table(kept):
    count, size = len(kept["n_bytes"]), sum(kept["n_bytes"])
    lines = [
        "What few bits cost a released model",
        f"Bits per byte on {size:,} bytes of {count} documents, and more than the file as it is "
        "needs, paired by document (95 %).",
        "",
        "| arm | weights changed | bits a weight | bits per byte | more |",
        "|:---|---:|---:|---:|:---|",
    ]
    for arm, one in kept["arms"].items():
        used = "" if one["bits_per_weight"] is None else f"{one['bits_per_weight']:.2f}"
        more, low, high = one["more"]
        told = "" if arm == kept["file"] else f"{more:+.4f} ({low:+.4f} to {high:+.4f})"
        lines.append(
            f"| {arm} | {one['weights']:,} | {used} | {one['bits_per_byte']:.4f} | {told} |"
        )
    return lines
