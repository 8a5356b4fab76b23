"""Is the state too small, or the training too short? An LSTM and attention write a text backwards.

The chapter *What recurrence cannot do* trains LSTMs for `few` steps to reverse texts of 1 to 16
letters. Here they get ten times as many steps, too, and so does attention, on the same texts:

    LSTM of 64     one layer, a state of 64 numbers, as in the chapter
    LSTM of 112    one layer with as many parameters as the attention
    attention      two decoder blocks of 64 channels, 4 heads, learned positions

For each number of steps, each takes that of its RATES which has the least validation loss with the
first seed. All rates fall along a cosine. Eight minutes of one core.
"""

import statistics
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from src.attention.block import Decoder
from src.attention.config import BlockConfig
from src.attention.heads import linear
from src.attention.positions import LearnedPositions
from src.attention.recurrence import LSTM
from src.gpt.optimisation import cosine
from src.likelihood.fitting import fit
from src.likelihood.maximum_likelihood import negative_log_likelihood

RATES = {
    "LSTM of 64": (3e-3, 1e-2, 3e-2),
    "LSTM of 112": (3e-3, 1e-2, 3e-2),
    "attention": (1e-3, 3e-3, 1e-2),
}
LETTERS, LONGEST, CHANNELS = 8, 16, 64
SEPARATOR = LETTERS
LENGTHS = (1, 2, 4, 8, 12, 16)


@dataclass(frozen=True)
class Settings:
    seeds: tuple = (0, 1, 2)
    steps: tuple = (400, 4_000)
    texts: int = 1_000  # of each length, to test on


QUICK = Settings(seeds=(0, 1), steps=(10, 20), texts=20)


class Attention(nn.Module):
    """A decoder of two blocks: ids (B, T) -> logits (B, T, V)."""

    def __init__(self, generator):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(LETTERS + 1, CHANNELS, generator=generator))
        self.positions = LearnedPositions(2 * LONGEST, channels=CHANNELS, generator=generator)
        self.decoder = Decoder(2, BlockConfig(channels=CHANNELS, heads=4), generator=generator)
        self.output = linear(CHANNELS, LETTERS + 1, generator=generator)

    def forward(self, ids):
        x = functional.embedding(ids, self.embedding) + self.positions(ids.shape[1])
        return self.output(self.decoder(x))


def lstm(size, generator):
    sizes = {"embedding_size": size, "hidden_size": size}
    return LSTM(LETTERS + 1, **sizes, generator=generator)


MODELS = {
    "LSTM of 64": lambda generator: lstm(64, generator),
    "LSTM of 112": lambda generator: lstm(112, generator),
    "attention": Attention,
}


def reversals(size, length, generator):
    """(inputs, targets, mask) of texts: letters, a separator, the letters backwards."""
    source = torch.randint(LETTERS, (size, length), generator=generator)
    between = torch.full((size, 1), SEPARATOR)
    stream = torch.cat([source, between, source.flip(1)], 1)
    known = torch.arange(2 * length) >= length
    return stream[:, :-1], stream[:, 1:], known.expand(size, -1)


def of_any_length(generator):
    while True:
        length = int(torch.randint(1, LONGEST + 1, (), generator=generator))
        yield reversals(32, length, generator)


def trained(name, seed, steps, rate):
    model = MODELS[name](torch.Generator().manual_seed(seed))
    texts = of_any_length(torch.Generator().manual_seed(1_000 + seed))
    schedule = cosine(steps, warm_up=min(20, steps // 2))
    fit(model, texts, steps=steps, learning_rate=rate, schedule=schedule, progress=False)
    return model


def test_sets(cells, seed):
    generator = torch.Generator().manual_seed(seed)
    return [reversals(cells.settings.texts, length, generator) for length in LENGTHS]


@torch.no_grad()
def loss(model, sets):
    """Nats per letter that is asked for, over all lengths."""
    found = [negative_log_likelihood(model(x), y, mask=mask) for x, y, mask in sets]
    return float(sum(nats for nats, _ in found) / sum(count for _, count in found))


@torch.no_grad()
def right(model, sets):
    """The share of letters that are right, for each length."""
    return [float((model(x).argmax(-1) == y)[mask].double().mean()) for x, y, mask in sets]


def compared(cells, name, steps):
    """The record of a model trained for so many steps."""
    seeds = cells.settings.seeds
    tried = {rate: trained(name, seeds[0], steps, rate) for rate in RATES[name]}
    losses = {rate: loss(model, test_sets(cells, 91)) for rate, model in tried.items()}
    rate = min(losses, key=losses.get)
    models = [tried[rate], *(trained(name, seed, steps, rate) for seed in seeds[1:])]
    return {
        "rate": rate,
        "validation": {str(rate): round(nats, 4) for rate, nats in losses.items()},
        "right": [right(model, test_sets(cells, 92)) for model in models],
    }


def find(cells):
    steps = cells.settings.steps
    runs = iter(cells.all(compared, [{"name": n, "steps": s} for n in MODELS for s in steps]))
    models = {}
    for name, build in MODELS.items():
        parameters = build(torch.Generator().manual_seed(0)).parameters()
        size = sum(parameter.numel() for parameter in parameters)
        models[name] = {"parameters": size, "steps": {str(each): next(runs) for each in steps}}
    return {"seeds": cells.settings.seeds, "lengths": LENGTHS, "models": models}


def row(name, size, steps, run):
    """The line of a model trained for so many steps."""
    means = map(statistics.fmean, zip(*run["right"], strict=True))
    shares = "".join(f" {mean:.3f} |" for mean in means)
    return f"| {name} | {size:,} | {int(steps):,} | {run['rate']} |{shares}"


def table(kept):
    models, lengths = kept["models"], kept["lengths"]
    return [
        "Writing backwards, in two numbers of steps",
        "Shown by the chapter `attention/recurrence`. Share of the letters right, by the "
        f"length of the text; means of {len(kept['seeds'])} seeds:",
        "",
        "| | parameters | steps | rate |" + "".join(f" {length} |" for length in lengths),
        "|:---|---:|---:|---:|" + "---:|" * len(lengths),
        *(
            row(name, models[name]["parameters"], steps, run)
            for name in models
            for steps, run in models[name]["steps"].items()
        ),
    ]
