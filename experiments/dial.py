"""When does asking begin to work? One vocabulary, and a dial: how many documents hold a task.

Before, a model that had read questions and answers in two documents of five was compared with one
whose text had none, and for which the words of the questions were unknown. Here all arms have the
same vocabulary, and all words of all questions stand in every arm's text in another use: one
document in fifty is a list of them, in random order. What differs is one number, the share of the
documents that close with a task and its answer: 0, 0.1, 1, 5, 40 %. In two more arms, of 5 and
40 %, the mechanism is taken out: they ask as often, and the answer is drawn at random.

The plan, committed on 2026-11-27, before the first cell was computed:

    outcome   the share of right answers to 300 questions of each of three families (where is a
              thing; facts of which other documents speak; is this praise), by the sum of the
              log-probabilities of the choices. A perfect reader's share stands beside it
    asking    the model as pre-trained
    tuning    the same network goes on learning, with 8, 64 or 512 questions whose answers it is
              given; loss on the answer alone; from 0, 1, 40 %, and from random weights. The answer
              is read in the same way as in asking. The best step by validation loss
    counting  the words of the question, without their order: logistic regression
    seeds     0 to 4, for weights, text, labels and order. The questions of the test are the same
    rates     for pre-training searched for each share, for tuning for each start and family (with
              64 labels), on seeds 100 and 101, by validation loss, until the best of them has a
              worse one on both sides. Arms with random answers take the rate of their share
    trained   a tuning takes 400 steps; they are doubled for all where a fresh model with 64 labels
              and its best rate does not give 99 % of its own training answers back
    verdicts  two arms differ if the 95 % interval of the mean of their five differences in pairs
              excludes zero. 300 questions give a share near one half a standard error of 2.9
              points, a difference 4.1; the mean of five, with Student's factor of 2.78, five points
              at least. Less than five points will not be called a difference, nor will no
              difference be called equality. Where a verdict hangs on less, ten seeds
    asked     1. asking against tuning with 512 labels, both from 40 %: better or worse?
              2. the least share at which asking beats chance, and at which it beats tuning with 64
                 labels from 0 %
              3. asking at random 40 % against chance: the form alone gives nothing
              4. tuning with 64 labels from 0 % against from random weights: what pre-training saves
    cost      35 pre-trainings, 40 or more to find their rates, 180 tunings and 100 to find theirs:
              three hours of one core, at most fifteen. Each cell is kept, and can be gone on with
"""

import math
import statistics
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.optim import AdamW

from experiments.shared.tables import percent, with_results
from src.gpt import zero_shot
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.optimisation import cosine, linear_decay, parameter_groups
from src.likelihood.batches import Batches
from src.likelihood.fitting import fit
from src.texts.microworld import MicroWorld
from src.texts.microworld_words import COUNTRIES, END, PEOPLE, PLACES

SHARES = (0.0, 0.001, 0.01, 0.05, 0.4)
RANDOM = (0.05, 0.4)  # the shares of the arms whose answers are drawn at random
STARTS = (None, 0.0, 0.01, 0.4)  # of a tuning; None: random weights
FAMILIES = ("where", "facts", "sentiment")
LABELS, SEARCHED_WITH = (8, 64, 512), 64
LISTED = ("where", "who", "what", "?", "praise", "yes", "no", "unclear", "nobody")
LISTS = 0.02
CONTEXT, BATCH = 64, 32
RATES = (1e-3, 3e-3, 1e-2)  # to begin a search with; each neighbour is a factor of about three
FACTOR = math.sqrt(10)


@dataclass(frozen=True)
class Settings:
    seeds: tuple = (0, 1, 2, 3, 4)
    searching: tuple = (100, 101)
    steps: int = 3_000
    tuning_steps: int = 400
    items: int = 300
    validation: int = 100
    at_most: int = 7  # rates in a search


QUICK = Settings(
    seeds=(0, 1),
    searching=(100,),
    steps=6,
    tuning_steps=4,
    items=12,
    validation=8,
    at_most=3,
)


# ---- texts and questions -------------------------------------------------------------------------


@cache
def world(share):
    return MicroWorld(
        stories=0.5,
        reviews=0.25,
        facts=0.25,
        translations=0.0,
        cast=2,
        things=1,
        demonstrations=share,
    )


def drawn(seed):
    return torch.Generator().manual_seed(seed)


def answered_at_random(words, rng):
    """A document with another answer, if it has a question: each that could be one, alike."""
    if "?" not in words:
        return words
    begins = max(i for i, word in enumerate((".", *words[:-4])) if word == ".")
    question = words[begins:-3]
    if question[0] == "where":
        choices = (*PLACES[: world(0.0).places], "unclear")
    elif question[0] == "who":
        choices = (*PEOPLE[: world(0.0).people], "nobody")
    elif question[0] == "is":
        choices = ("yes", "no")
    else:
        _, _, _, attribute, *_ = question
        countries = COUNTRIES[: world(0.0).countries]
        choices = sorted({world(0.0).fact(country, attribute) for country in countries})
    return (*words[:-3], rng.choice(choices), *words[-2:])


def stream(share, random, documents, seed):
    """The ids of documents, one after the other, and among them lists of the questions' words."""
    rng = np.random.default_rng(seed)
    ids = []
    for each in world(share).sample(documents, generator=drawn(seed)):
        words = answered_at_random(each.words, rng) if random else each.words
        ids.append(world(share).encode(words))
        if rng.random() < LISTS:
            ids.append(world(share).encode((*rng.permutation(LISTED), ".", END)))
    return torch.cat(ids)


@cache
def questions(settings, family):
    """(items of the test, items to learn from and to validate with), of different prompts."""
    make = {
        "where": partial(zero_shot.reading, ask="where"),
        "facts": zero_shot.facts,
        "sentiment": zero_shot.sentiment,
    }[family]
    count = settings.items + settings.validation + max(LABELS)
    items = make(world(0.4), count, generator=drawn(10_000))
    return items[: settings.items], items[settings.items :]


def reader(model):
    """Who reads the answers of a model."""
    ids, end = world(0.0).encode, int(world(0.0).encode(END))
    return zero_shot.TextModel(
        model, lambda text: ids(text).tolist(), world(0.0).decode, end, CONTEXT
    )


def share_right(model, items):
    return zero_shot.accuracy(items, reader(model.eval()).scores(items))


# ---- models --------------------------------------------------------------------------------------


def fresh(seed):
    config = GPTConfig(
        len(world(0.0).vocabulary), context_length=CONTEXT, layers=2, heads=4, channels=64
    )
    return GPT(config, generator=drawn(1_000 + seed))


def adamw(model, _, *, lr, weight_decay):
    groups = parameter_groups(model, weight_decay=weight_decay)
    return AdamW(groups, lr=lr, betas=(0.9, 0.98), fused=True)


def pretrained(cells, share, random, rate, seed):
    """The weights of a model, and its loss on text that it has not read."""
    steps, model, options = cells.settings.steps, fresh(seed), {"context_length": CONTEXT}
    end = int(world(share).encode(END))
    training, held_out = (
        Batches(
            stream(share, random, count, seed=2 * seed + part),
            batch_size=BATCH,
            seed=seed,
            first=end,
            **options,
        )
        for part, count in ((0, BATCH * steps + 100), (1, BATCH * 20 + 100))
    )
    torch.manual_seed(seed)
    history = fit(
        model,
        (training[number] for number in range(steps)),
        steps=steps,
        learning_rate=rate,
        schedule=cosine(steps, warm_up=min(100, steps // 2)),
        weight_decay=0.01,
        optimiser=partial(adamw, model),
        validation=[held_out[number] for number in range(20)],
        every=steps,
        progress=False,
    )
    return {"model": model.state_dict(), "loss": history.validation[steps]}


def rate_of(cells, share):
    """The rate of a share."""
    return cells(searched, share=share)["best"]


def searched(cells, share):
    return search(
        cells,
        lambda rate, seed: cells(pretrained, share=share, random=False, rate=rate, seed=seed)[
            "loss"
        ],
    )


def search(cells, loss_of):
    """Rates, until the best of them has a worse one on both sides: the best, and all losses."""
    losses = {}
    rates = list(RATES)
    while True:
        for rate in rates:
            if rate not in losses:
                losses[rate] = statistics.fmean(
                    loss_of(rate, seed) for seed in cells.settings.searching
                )
        best = min(losses, key=losses.get)
        if len(losses) >= cells.settings.at_most or min(losses) < best < max(losses):
            break
        rates = [best / FACTOR if best == min(losses) else best * FACTOR]
    inside = min(losses) < best < max(losses)
    return {"best": best, "inside": inside, "losses": {f"{r:.2g}": x for r, x in losses.items()}}


def beginning(cells, share, seed):
    """What a tuning begins from: pre-trained, or random weights."""
    model = fresh(seed)
    if share is not None:
        rate = rate_of(cells, share)
        kept = cells(pretrained, share=share, random=False, rate=rate, seed=seed)
        model.load_state_dict(kept["model"])
    return model


# ---- asking, tuning, counting --------------------------------------------------------------------


def asked(cells, share, random, seed):
    """{family: the share of right answers}."""
    model, settings = fresh(seed), cells.settings
    kept = cells(pretrained, share=share, random=random, rate=rate_of(cells, share), seed=seed)
    model.load_state_dict(kept["model"])
    right = {name: share_right(model, questions(settings, name)[0]) for name in FAMILIES}
    return right | {"loss": kept["loss"]}


def labelled(settings, family, labels, seed):
    """(items to learn from, items to validate with)."""
    _, items = questions(settings, family)
    order = torch.randperm(len(items) - settings.validation, generator=drawn(seed)).tolist()
    return [items[place] for place in order[:labels]], items[-settings.validation :]


def batch_of(items):
    """Questions with their answers, as a batch whose loss is that of the answers alone."""
    end = int(world(0.0).encode(END))
    rows = [world(0.0).encode(f"{item.prompt} {item.answer}") for item in items]
    ids = torch.full((len(rows), max(map(len, rows)) + 1), end)
    for row, words in zip(ids, rows, strict=True):
        row[1 : len(words) + 1] = words
    mask = torch.zeros(ids[:, 1:].shape, dtype=torch.bool)
    for row, words in zip(mask, rows, strict=True):
        row[len(words) - 1] = True
    return ids[:, :-1], ids[:, 1:], mask


def tuned(cells, share, family, labels, rate, seed):
    """The shares of right answers of a model that has learnt from some."""
    settings, model = cells.settings, beginning(cells, share, seed)
    items, others = labelled(settings, family, labels, seed)
    draws, steps = drawn(seed), settings.tuning_steps

    def batches():
        while True:
            rows = torch.randint(len(items), (BATCH,), generator=draws).tolist()
            yield batch_of([items[row] for row in rows])

    torch.manual_seed(seed)
    history = fit(
        model,
        batches(),
        steps=steps,
        learning_rate=rate,
        schedule=linear_decay(steps, warm_up=steps // 20),
        weight_decay=0.01,
        optimiser=partial(adamw, model),
        validation=[batch_of(others)],
        every=max(steps // 10, 1),
        keep_best=True,
        progress=False,
    )
    return {
        "loss": min(history.validation.values()),
        "step": history.best_step,
        "learnt": share_right(model, items),
        "right": share_right(model, questions(settings, family)[0]),
    }


def tuning_rate(cells, share, family):
    return search(
        cells,
        lambda rate, seed: cells(
            tuned, share=share, family=family, labels=SEARCHED_WITH, rate=rate, seed=seed
        )["loss"],
    )


def counted(cells, family, labels, seed):
    """The share of right answers of logistic regression on the words of a question."""
    settings = cells.settings
    test, _ = questions(settings, family)
    items, others = labelled(settings, family, labels, seed)
    answers = sorted({choice for item in test for choice in item.choices})
    size = len(world(0.0).vocabulary)

    def features(items):
        counts = [torch.bincount(world(0.0).encode(i.prompt), minlength=size) for i in items]
        return torch.stack(counts).double()

    def scored(model, items):
        logits, right, nats = model(features(items)), 0, 0.0
        for row, item in zip(logits, items, strict=True):
            of_choices = row[[answers.index(choice) for choice in item.choices]]
            right += int(of_choices.argmax()) == item.label
            nats -= float(of_choices.log_softmax(-1)[item.label])
        return right / len(items), nats / len(items)

    best = None
    labels_of = torch.tensor([answers.index(item.answer) for item in items])
    for decay in (1e-4, 1e-3, 1e-2, 1e-1, 1.0):
        model = nn.Linear(size, len(answers), dtype=torch.float64)
        nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
        optimiser = torch.optim.LBFGS(model.parameters(), max_iter=100)

        def closure(model=model, optimiser=optimiser, decay=decay):
            optimiser.zero_grad()
            loss = functional.cross_entropy(model(features(items)), labels_of)
            (loss + decay * model.weight.square().sum()).backward()
            return loss + decay * model.weight.square().sum()

        optimiser.step(closure)
        with torch.no_grad():
            _, loss = scored(model, others)
            if best is None or loss < best["loss"]:
                best = {"loss": loss, "decay": decay, "right": scored(model, test)[0]}
    return best


# ---- the record ----------------------------------------------------------------------------------


def exact(cells, family):
    """Of a family: by chance, and at best."""
    test, _ = questions(cells.settings, family)
    return {"chance": zero_shot.chance(test), "ceiling": zero_shot.ceiling(world(0.4), test)}


def find(cells):
    settings = cells.settings
    arms = [(share, False) for share in SHARES] + [(share, True) for share in RANDOM]
    of_asking = [
        {"share": share, "random": random, "seed": seed}
        for share, random in arms
        for seed in settings.seeds
    ]
    rates = {
        (share, family): cells(tuning_rate, share=share, family=family)
        for share in STARTS
        for family in FAMILIES
    }
    of_tuning = [
        {"share": share, "family": family, "labels": labels, "seed": seed}
        for (share, family) in rates
        for labels in LABELS
        for seed in settings.seeds
    ]
    of_counting = [
        {"family": family, "labels": labels, "seed": seed}
        for family in FAMILIES
        for labels in LABELS
        for seed in settings.seeds
    ]
    best = [rates[each["share"], each["family"]]["best"] for each in of_tuning]
    tunings = [each | {"rate": rate} for each, rate in zip(of_tuning, best, strict=True)]
    return {
        "families": {family: cells(exact, family=family) for family in FAMILIES},
        "rates": {
            "pretraining": [{"share": share} | cells(searched, share=share) for share in SHARES],
            "tuning": [
                {"share": share, "family": family} | found
                for (share, family), found in rates.items()
            ],
        },
        "asked": with_results(of_asking, cells.all(asked, of_asking)),
        "tuned": with_results(tunings, cells.all(tuned, tunings)),
        "counted": with_results(of_counting, cells.all(counted, of_counting)),
    }


def table(kept):
    lines = [
        "When does asking begin to work?",
        "Right answers, %: means of the seeds, with 95 % intervals.",
        "",
        "| | " + " | ".join(FAMILIES) + " |",
        "|:---|" + "---:|" * len(FAMILIES),
    ]
    for name in ("chance", "ceiling"):
        values = [f"{100 * kept['families'][family][name]:.1f}" for family in FAMILIES]
        lines.append(f"| {name} | " + " | ".join(values) + " |")
    for share, random in dict.fromkeys((c["share"], c["random"]) for c in kept["asked"]):
        cells = [c for c in kept["asked"] if (c["share"], c["random"]) == (share, random)]
        values = [percent([c[family] for c in cells]) for family in FAMILIES]
        how = ", answers at random" if random else ""
        lines.append(f"| asked, {100 * share:g} %{how} | " + " | ".join(values) + " |")
    for start in STARTS:
        for labels in LABELS:
            values = [
                percent(
                    [
                        c["right"]
                        for c in kept["tuned"]
                        if (c["share"], c["labels"], c["family"]) == (start, labels, family)
                    ]
                )
                for family in FAMILIES
            ]
            where = "random weights" if start is None else f"{100 * start:g} %"
            lines.append(f"| {labels} labels, from {where} | " + " | ".join(values) + " |")
    for labels in LABELS:
        values = [
            percent(
                [
                    c["right"]
                    for c in kept["counted"]
                    if (c["labels"], c["family"]) == (labels, family)
                ]
            )
            for family in FAMILIES
        ]
        lines.append(f"| {labels} labels, words counted | " + " | ".join(values) + " |")
    return lines
