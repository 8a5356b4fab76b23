"""What is each switch worth in a real model? It is changed in one of 135 million weights.

Nothing is trained, so no seed plays a part: the same weights read the same documents, the test part
of Python's documentation, each from its first token. A switch costs what it adds to the nats per
token of the second half of each text, where every window is in force. Documents of the validation
part give what a change needs: the mean of a gate, the steadiest channel. Ten minutes of one core.
"""

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

import torch
from torch.nn import functional

from experiments.real_model import real
from next_token.run_config import RunConfig
from src.attention.masks import banded_mask
from src.today.quantisation import quantise
from src.tools.intervals import interval

WINDOWS, BITS, STEADY = (64, 128, 256), (8, 6, 4, 3, 2), 2


@dataclass(frozen=True)
class Settings:
    documents: int = 16
    fitting: int = 4
    tokens: int = 512


QUICK = Settings(documents=2, fitting=1, tokens=24)


def texts(documents, number, tokens):
    """The first tokens of the documents that are long enough, (1, T + 1) each."""
    opened = real()
    rows = ([opened.end, *opened.tokenizer.encode(each.text)] for each in documents)
    found = [torch.tensor([row[: tokens + 1]]) for row in rows if len(row) > tokens]
    return found[:number]


def blocks():
    return real().model.decoder.blocks


# ---- what a change needs -------------------------------------------------------------------------


@torch.no_grad()
def fitted(settings):
    """Of each block: the means of its gate, and its channels from the steadiest on.

    A channel of the normed stream is steady if its mean is large beside its spread.
    """
    normed, gates = ([[] for _ in blocks()] for _ in range(2))
    with ExitStack() as stack:
        for number, block in enumerate(blocks()):
            for module, kept in ((block.attention_norm, normed), (block.feed_forward.gate, gates)):
                keep = partial(lambda kept, _, given, out: kept.append(out[0]), kept[number])
                stack.callback(module.register_forward_hook(keep).remove)
        for ids in texts(RunConfig().parts().validation, settings.fitting, settings.tokens):
            real().model(ids)
    means = [functional.silu(torch.cat(each)).mean(0) for each in gates]
    rows = [torch.cat(each) for each in normed]
    order = [(x.mean(0).abs() / x.std(0)).argsort(descending=True) for x in rows]
    return means, order


# ---- the switches --------------------------------------------------------------------------------


class Changed:
    """In the place of a cache: keys and values, (1, G, T, D), are changed before they are read."""

    length = 0

    def __init__(self, keys, values):
        self.keys, self.values = keys, values

    def extend(self, keys, values):
        return self.keys(keys), self.values(values)


def same(x):
    return x


def averaged(x):
    """The sets are all their mean."""
    return x.mean(1, keepdim=True).expand_as(x)


def exchanged(x):
    """Each set goes to the next group of queries."""
    return x.roll(1, dims=1)


def rounded(x, bits):
    """Each row of D numbers in so many bits, with a scale and a minimum of its own."""
    return quantise(x.flatten(0, -2), bits, minimum=True).restored().view_as(x)


def window(width, first):
    """Attention looks back at so many tokens, itself among them, and perhaps at the first."""

    def mask(_, queries, keys):
        band = banded_mask(queries.shape[-2], width, keys=keys.shape[-2])
        band[:, 0] |= first
        return band

    return [patch.object(block.attention, "within_window", mask) for block in blocks()]


def gate(functions):
    """Each gate has another non-linearity."""
    parts = zip(blocks(), functions, strict=True)
    return [patch.object(block.feed_forward, "activation", each) for block, each in parts]


@contextmanager
def hooked(module, hook):
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def queries_without(channels):
    """Queries do not read some channels of the normed stream, each block its own."""
    several = []
    for block, chosen in zip(blocks(), channels, strict=True):
        rows = block.attention.heads * block.attention.head_channels
        columns = block.attention.qkv.weight[:rows, chosen]  # (H D, chosen)

        def without(_, given, out, rows=rows, columns=columns, chosen=chosen):
            out[..., :rows] -= given[0][..., chosen] @ columns.T
            return out

        several.append(hooked(block.attention.qkv, without))
    return several


def centred():
    """Each norm subtracts the mean first, as LayerNorm does."""

    def without_mean(norm, given, out):
        return norm.forward(given[0] - given[0].mean(-1, keepdim=True))

    norms = [norm for block in blocks() for norm in (block.attention_norm, block.feed_forward_norm)]
    return [hooked(norm, without_mean) for norm in [*norms, real().model.decoder.final_norm]]


def switches(settings, means, order):
    """{name: (contexts to be inside of, changes of keys and values or None)}."""
    found = {"nothing": ([], None)}
    for name, one in {"relu": torch.relu, "gelu": functional.gelu}.items():
        found[f"gate: {name}"] = gate([one] * len(means)), None
    found["gate: its mean"] = gate([mean.expand_as for mean in means]), None  # x is but a shape
    middle = order[0].numel() // 2
    for name, chosen in {
        "steadiest": slice(STEADY),
        "middle": slice(middle, middle + STEADY),
    }.items():
        found[f"queries: without {STEADY} {name} channels"] = (
            queries_without([x[chosen] for x in order]),
            None,
        )
    found["norms: the mean subtracted"] = centred(), None
    for name, change in {"averaged": averaged, "exchanged": exchanged}.items():
        found[f"sets: keys {name}"] = [], (change, same)
        found[f"sets: values {name}"] = [], (same, change)
        found[f"sets: both {name}"] = [], (change, change)
    for width in (min(each, settings.tokens // 2) for each in WINDOWS):
        found[f"window: {width}"] = window(width, False), None
        found[f"window: {width} and the first"] = window(width, True), None
    for bits in BITS:
        change = partial(rounded, bits=bits)
        found[f"cache: {bits} bits"] = [], (change, change)
    few = partial(rounded, bits=BITS[-2])
    found[f"cache: keys {BITS[-2]} bits"] = [], (few, same)
    found[f"cache: values {BITS[-2]} bits"] = [], (same, few)
    return found


# ---- what they cost ------------------------------------------------------------------------------


@torch.no_grad()
def second_half(ids, change):
    """Nats per token."""
    cache = None if change is None else [Changed(*change) for _ in blocks()]
    model = real().model
    half = ids.shape[1] // 2
    logits = model.unembed(model.states(ids[:, :-1], cache=cache)[0, half:])
    return float(functional.cross_entropy(logits, ids[0, half + 1 :]))


def losses(cells):
    """{switch: the nats per token of each document}, and the steadiest channels of each block."""
    settings = cells.settings
    means, order = fitted(settings)
    several = texts(RunConfig().parts().test, settings.documents, settings.tokens)
    found = {}
    for name, (contexts, change) in switches(settings, means, order).items():
        with ExitStack() as stack:
            for each in contexts:
                stack.enter_context(each)
            found[name] = [second_half(ids, change) for ids in several]
    return found, [each[:STEADY].tolist() for each in order]


def find(cells):
    found, steadiest = cells(losses)
    costs = {
        name: interval([a - b for a, b in zip(each, found["nothing"], strict=True)])
        for name, each in found.items()
        if name != "nothing"
    }
    return {
        "losses": found,
        "costs": costs,
        "steadiest": steadiest,
        "tokens": cells.settings.tokens,
    }


def table(kept):
    nothing = kept["losses"]["nothing"]
    mean, half = interval(nothing)
    lines = [
        "Switches in a real model",
        f"Nats per token of tokens {kept['tokens'] // 2 + 1} to {kept['tokens']} of "
        f"{len(nothing)} documents: {mean:.3f} ± {half:.3f} as it is. What each change adds:",
        "",
        "| change | adds |",
        "|---|---:|",
    ]
    return lines + [
        f"| {name} | {mean:+.4f} ± {half:.4f} |" for name, (mean, half) in kept["costs"].items()
    ]
