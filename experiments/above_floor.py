"""How far above the floor are counting, a GPT of a minute, and one of five?

All three read the language of the chapter `gpt/microworld`, and are scored on its thousand test
documents: Kneser-Ney models of its orders and its three texts of a million tokens, as the chapter
counts them; and a GPT of two layers and 64 channels, trained for 2,000 steps (about a minute of one
core) and for 10,000, with three seeds. Twenty minutes of one core.
"""

import statistics
from dataclasses import dataclass
from functools import partial

import torch
from torch.optim import AdamW

from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.optimisation import cosine, parameter_groups
from src.likelihood.batches import Batches
from src.likelihood.evaluation import document_scores, total
from src.likelihood.fitting import fit
from src.likelihood.ngrams import count_ngrams
from src.likelihood.smoothing import NgramModel
from src.texts.microworld import MicroWorld

CONTEXT, BATCH, RATE, END = 64, 32, 3e-3, 0
TESTS, DRAWN = 1_000, 1_000  # how many documents, and the seed that draws them
WORLD = MicroWorld()


@dataclass(frozen=True)
class Settings:
    seeds: tuple = (1, 2, 3)
    orders: tuple = tuple(range(1, 11))
    tokens: int = 1_000_000
    steps: tuple = (2_000, 10_000)


QUICK = Settings(seeds=(1,), orders=(2, 3), tokens=10_000, steps=(4, 6))


def drawn(seed):
    return torch.Generator().manual_seed(seed)


def tests():
    """Documents in ids, each from an end token to the next."""
    texts = WORLD.sample_texts(TESTS, generator=drawn(DRAWN))
    return [torch.cat([torch.tensor([END]), text]) for text in texts]


def counted(cells, seed):
    """{order: nats per token above the floor}."""
    size, orders = cells.settings.tokens, cells.settings.orders
    train = WORLD.sample_texts(size // 35, generator=drawn(seed))
    train = torch.cat([torch.tensor([END]), *train])[:size]
    levels = count_ngrams(train, order=max(orders), vocabulary_size=len(WORLD.vocabulary), end=END)
    stream = torch.cat([torch.tensor([END]), *(text[1:] for text in tests())])
    floor = -WORLD.token_log_probs(stream[1:]).numpy().mean()
    models = {n: NgramModel.from_counts(levels[:n], end=END) for n in orders}
    return {str(n): float(model.score(stream).mean() - floor) for n, model in models.items()}


def trained(cells, steps, seed):
    """Nats per token above the floor, of a GPT."""
    config = GPTConfig(
        len(WORLD.vocabulary), context_length=CONTEXT, layers=2, heads=4, channels=64
    )
    model = GPT(config, generator=drawn(seed))
    texts = WORLD.sample_texts(BATCH * steps + 100, generator=drawn(10 + seed))
    batches = Batches(
        torch.cat(texts), batch_size=BATCH, context_length=CONTEXT, seed=seed, first=END
    )
    torch.manual_seed(seed)
    fit(
        model,
        (batches[number] for number in range(steps)),
        steps=steps,
        learning_rate=RATE,
        schedule=cosine(steps, warm_up=min(100, steps // 2)),
        optimiser=lambda _, *, lr, weight_decay: AdamW(
            parameter_groups(model, weight_decay=weight_decay), lr=lr, betas=(0.9, 0.98)
        ),
        weight_decay=0.01,
        progress=False,
    )
    score = partial(document_scores, model.eval(), context_length=CONTEXT, stride=CONTEXT // 2)
    floor = WORLD.floor_of([text[1:] for text in tests()])
    return total(score(tests())).loss - floor.loss


def find(cells):
    settings = cells.settings
    counts = cells.all(counted, ({"seed": seed} for seed in settings.seeds))
    order = min(counts[0], key=lambda n: statistics.fmean(each[n] for each in counts))
    asked = [{"steps": n, "seed": seed} for n in settings.steps for seed in settings.seeds]
    gaps = dict(zip([each["steps"] for each in asked], [[] for _ in asked], strict=True))
    for each, gap in zip(asked, cells.all(trained, asked), strict=True):
        gaps[each["steps"]].append(gap)
    return {
        "counts": counts,
        "order": int(order),
        "above": {
            "counts": [each[order] for each in counts],
            **{f"{steps} steps": found for steps, found in gaps.items()},
        },
    }


def table(kept):
    lines = [
        "How far above the floor are counting and a small GPT?",
        f"Nats per token, by seed; the best order of counting is {kept['order']}.",
        "",
        "| | above the floor |",
        "|:---|:---|",
    ]
    for name, gaps in kept["above"].items():
        lines.append(f"| {name} | " + ", ".join(f"{gap:.3f}" for gap in gaps) + " |")
    return lines
