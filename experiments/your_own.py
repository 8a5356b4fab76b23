"""What does a real model gain from a reader's text, what does it forget, and when should it stop?

The text is 32 chapters of this book, prose only, written after the model was made. It is split by
whole chapters. LoRA of rank 8 beside every matrix of the blocks learns the training part, in pieces
of 256 tokens, at two rates and with three seeds: a seed draws A, and which pieces come when. A run
goes on where it stopped, so each stage costs only what is new. Of each rate the stage is chosen
on the validation part, and the test part is read at that stage only. What is elsewhere, Python's
documentation and Python programs, is scored at each stage but the first.

Then two tasks of Part IV, on fresh items of the micro-world. The mood of a review is only asked
for. Of two reviews, whether their moods are the same is asked, shown with solved examples, and
learnt from examples.

An interrupt (Ctrl-C) ends it after the stages that all runs have reached; begun again, it goes on
from there.
"""

import sysconfig
import time
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch.nn import functional

from src.likelihood.batches import Batches
from src.likelihood.evaluation import Score, document_scores, total
from src.texts.corpora import load, split
from src.texts.microworld import MicroWorld
from src.texts.tasks import same_polarity, sentiment
from src.today.gguf_models import open_model
from src.today.lora import LoRA, add_lora
from src.tools.places import place_of

PIECE = 256  # tokens
RANK, ALPHA, WARM_UP = 8, 16.0, 4
PARTS = {"validation": 0.2, "test": 0.45}
PROGRAMS = ("argparse", "calendar", "configparser", "csv", "difflib", "fractions", "shlex", "uuid")
FORMS = {  # by the number of texts: the words of both answers are a token each
    1: ("Review: {}\nMood:", (" negative", " positive")),
    2: ("First review: {}\nSecond review: {}\nMoods:", (" opposite", " same")),
}
BALANCED = (1, 0, 0, 1)  # the answers of four examples, which are then repeated


@dataclass(frozen=True)
class Settings:
    seeds: tuple = (0, 1, 2)
    rates: tuple = (3e-4, 2e-3)
    stages: tuple = (10, 20, 40, 80)  # steps
    texts: int = 6  # of each kind that are scored
    tests: int = 14
    items: int = 60
    examples: tuple = (16, 64)
    task_steps: int = 16
    task_batch: int = 4
    task_rate: float = 1e-3


QUICK = Settings((0,), (2e-3,), (1, 2), 1, 1, items=4, examples=(4,), task_steps=1)


# ---- texts ---------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def opened():
    return open_model(context_length=1_024)


def as_documents(texts, count):
    """The first 256 tokens of each text behind an end token, and how many bytes they are."""
    real = opened()
    cut = [real.tokenizer.encode(text[:4_000])[:PIECE] for text in texts]
    long = [ids for ids in cut if len(ids) == PIECE][:count]
    sizes = [sum(len(real.tokenizer.token_bytes(i)) for i in ids) for ids in long]
    return [torch.tensor([real.end, *ids]) for ids in long], sizes


@lru_cache(maxsize=1)
def parts():
    path = place_of("book") / "today" / "readers_text.txt"
    return split(load(path, document_separator="\n\n\n"), **PARTS)


@lru_cache(maxsize=4)
def to_score(name, count):
    """Documents of one kind."""
    if name == "documentation":
        texts = [each.text for each in split(load("python-docs")).test]
    elif name == "programs":
        folder = Path(sysconfig.get_path("stdlib"))
        texts = [(folder / f"{each}.py").read_text("utf-8")[3_000:] for each in PROGRAMS]
    else:
        texts = [each.text for each in getattr(parts(), name)]
    return as_documents(texts, count)


def scores(model, name, count):
    """[[nats, tokens, bytes], …] of the documents of one kind."""
    texts, sizes = to_score(name, count)
    with torch.no_grad():
        found = document_scores(
            model.eval(), texts, context_length=PIECE, batch_size=2, n_bytes=sizes
        )
    return [[each.nats, each.tokens, each.n_bytes] for each in found]


def bits(scored):
    return total(Score(*each) for each in scored).bits_per_byte


# ---- runs ----------------------------------------------------------------------------------------


def beside(seed):
    """The model with LoRA that has learnt nothing, and what learns."""
    model = open_model(context_length=1_024).model
    return model, add_lora(
        model, rank=RANK, alpha=ALPHA, generator=torch.Generator().manual_seed(seed)
    )


def stream():
    real = opened()
    ids = [real.end]
    for each in parts().train:
        ids += [*real.tokenizer.encode(each.text), real.end]
    return torch.tensor(ids)


def take_steps(learning, steps, rate, loss_of):
    """AdamW from where it stands; returns its seconds."""
    optimiser, numbers = learning
    begun = time.process_time()
    for step in numbers[steps[0] : steps[1]]:
        optimiser.zero_grad()
        loss_of(step).backward()
        torch.nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], 1.0)
        optimiser.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / WARM_UP)
        optimiser.step()
    return time.process_time() - begun


def adam(learning, rate):
    return torch.optim.AdamW(learning, lr=rate, weight_decay=0.0), range(10_000)


def before(cells):
    """What the model knows before it learns."""
    count = cells.settings.texts
    model = opened().model
    return {name: scores(model, name, count) for name in ("validation", *ELSEWHERE)}


ELSEWHERE = ("documentation", "programs")


def trained(cells, rate, seed, stage):
    """A run up to a stage, from the stage before it."""
    stages, count = cells.settings.stages, cells.settings.texts
    place = stages.index(stage)
    earlier = (
        cells(trained, rate=rate, seed=seed, stage=stages[place - 1])
        if place
        else {"seconds": 0.0, "losses": []}
    )
    model, learnt = beside(seed)
    optimiser, numbers = adam(learnt, rate)
    if place:
        with torch.no_grad():
            for ours, kept in zip(learnt, earlier["learnt"], strict=True):
                ours.copy_(kept)
        optimiser.load_state_dict(earlier["optimiser"])
    data = Batches(stream(), batch_size=1, context_length=PIECE, seed=seed)
    losses = [*earlier["losses"]]

    def loss_of(step):
        inputs, targets = data[step]
        loss = functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        losses.append(loss.item())
        return loss

    span = (stages[place - 1] if place else 0, stage)
    seconds = earlier["seconds"] + take_steps((optimiser, numbers), span, rate, loss_of)
    return {
        "learnt": [each.detach().clone() for each in learnt],
        "optimiser": optimiser.state_dict(),
        "losses": losses,
        "seconds": seconds,
        **{
            name: scores(model, name, count)
            for name in ("validation", *ELSEWHERE)[: 3 if place else 1]
        },
    }


def tested(cells, rate, seed, stage):
    """The test part, by the model as it was before (stage 0) or as it has become."""
    model, learnt = beside(seed)
    if stage:
        kept = cells(trained, rate=rate, seed=seed, stage=stage)["learnt"]
        with torch.no_grad():
            for ours, theirs in zip(learnt, kept, strict=True):
                ours.copy_(theirs)
    return {"test": scores(model, "test", cells.settings.tests)}


# ---- a task of Part IV ---------------------------------------------------------------------------


@lru_cache(maxsize=4)
def task_of(name, settings):
    """Examples to show or learn from, and fresh items, with what a perfect reader reaches."""
    made = {"mood": sentiment, "pairs": same_polarity}[name]
    return made(
        MicroWorld(),
        train=4 * len(settings.seeds) * max(settings.examples),
        validation=2,
        test=settings.items,
        generator=torch.Generator().manual_seed(22),
    )


def chosen(settings, seed, count):
    """Pairs of a seed, both answers as often, in the order of BALANCED."""
    most = 4 * max(settings.examples)
    mine = task_of("pairs", settings).train[most * seed : most * (seed + 1)]
    of = {label: iter([each for each in mine if each.label == label]) for label in (0, 1)}
    return [next(of[BALANCED[i % 4]]) for i in range(count)]


def asked(example, solved=False):
    """The ids of an item."""
    form, words = FORMS[len(example.texts)]
    text = form.format(*example.texts) + (words[example.label] + "\n\n") * solved
    return opened().tokenizer.encode(text)


def words_of(example):
    """The ids of both answers."""
    return [opened().tokenizer.encode(word)[0] for word in FORMS[len(example.texts)][1]]


def right(model, items, shown=()):
    """Which items get more probability for the right word; examples are read only once."""
    ids = [opened().end, *[i for each in shown for i in asked(each, solved=True)]]
    begun = model.new_cache()
    found = []
    with torch.no_grad():
        model.eval()
        model(torch.tensor([ids]), cache=begun)
        for item in items:
            logits = model(torch.tensor([asked(item)]), cache=deepcopy(begun))
            best = int(logits[0, -1, words_of(item)].argmax())
            found.append(int(best == item.label))
    return found


def plainly(cells, name, shown, seed):
    """Items answered after so many solved examples; of 0 there is one seed."""
    settings = cells.settings
    items = task_of(name, settings).test
    return {"right": right(opened().model, items, chosen(settings, seed, shown))}


def tuned(cells, examples, seed):
    """Pairs answered by a model that learnt the word of so many examples."""
    settings, real = cells.settings, opened()
    own = chosen(settings, seed, examples)
    model, learnt = beside(seed)
    drawing = torch.Generator().manual_seed(seed)

    def loss_of(step):
        drawn = [own[i] for i in torch.randint(len(own), (settings.task_batch,), generator=drawing)]
        rows = [torch.tensor([real.end, *asked(each)]) for each in drawn]
        wanted = [words_of(each)[each.label] for each in drawn]
        last = torch.tensor([len(row) - 1 for row in rows])
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        states = model.states(padded)[torch.arange(len(rows)), last]  # (B, C)
        return functional.cross_entropy(model.unembed(states), torch.tensor(wanted))

    rate = settings.task_rate
    seconds = take_steps(adam(learnt, rate), (0, settings.task_steps), rate, loss_of)
    return {"right": right(model, task_of("pairs", settings).test), "seconds": seconds}


# ---- the record ----------------------------------------------------------------------------------


def runs_of(settings):
    return [(rate, seed) for rate in settings.rates for seed in settings.seeds]


def task(cells):
    settings = cells.settings
    mood = cells(plainly, name="mood", shown=0, seed=0)
    ways = {"ask": [cells(plainly, name="pairs", shown=0, seed=0)]}
    for count in sorted({4, settings.examples[0]}):
        several = [{"name": "pairs", "shown": count, "seed": seed} for seed in settings.seeds]
        ways[f"show {count}"] = cells.all(plainly, several)
    for count in settings.examples:
        several = [{"examples": count, "seed": seed} for seed in settings.seeds]
        ways[f"tune on {count}"] = cells.all(tuned, several)
    told = {}
    for name in ("mood", "pairs"):
        own = task_of(name, settings)
        told[name] = {
            "ceiling": own.ceiling,
            "labels": [each.label for each in own.test],
            "first": own.test[0].texts,
        }
    told["mood"]["right"] = mood["right"]
    told["pairs"]["ways"] = {
        name: [each["right"] for each in found] for name, found in ways.items()
    }
    return {"items": settings.items, **told}


def find(cells):
    settings, done = cells.settings, []
    start = cells(before)
    answers = task(cells)
    try:
        for stage in settings.stages:
            for rate, seed in runs_of(settings):
                cells(trained, rate=rate, seed=seed, stage=stage)
            done.append(stage)
    except KeyboardInterrupt:
        if len(done) < 2:
            raise
    untouched = cells(tested, rate=0.0, seed=0, stage=0)["test"]
    rates = []
    for rate in settings.rates:
        runs = [
            [cells(trained, rate=rate, seed=seed, stage=stage) for stage in done]
            for seed in settings.seeds
        ]
        means = [
            sum(bits(run[i]["validation"]) for run in runs) / len(runs) for i in range(len(done))
        ]
        best = done[means.index(min(means))]
        rates.append(
            {
                "rate": rate,
                "seconds": [[point["seconds"] for point in run] for run in runs],
                "losses": [run[-1]["losses"] for run in runs],
                "validation": [[point["validation"] for point in run] for run in runs],
                **{
                    name: [[point[name] for point in run[1:]] for run in runs] for name in ELSEWHERE
                },
                "chosen": best,
                "test": [
                    cells(tested, rate=rate, seed=seed, stage=best)["test"]
                    for seed in settings.seeds
                ],
            }
        )
    model, learnt = beside(0)
    return {
        "rank": RANK,
        "alpha": ALPHA,
        "learns": sum(each.numel() for each in learnt),
        "maps": sum(isinstance(part, LoRA) for part in model.modules()),
        "piece": PIECE,
        "seeds": settings.seeds,
        "stages": done,
        "training": {"bytes": parts().train.n_bytes, "tokens": len(stream())},
        "before": {**start, "test": untouched},
        "rates": rates,
        "task": answers
        | {
            "steps": settings.task_steps,
            "batch": settings.task_batch,
            "rate": settings.task_rate,
        },
    }


def table(kept):
    """Bits per byte, means over the seeds, and the answers to the task."""
    lines = [
        "LoRA: a real model learns a reader's text, and a task",
        "Bits per byte, means over the seeds; steps of "
        f"{kept['piece']} tokens, rank {kept['rank']}, {kept['learns']:,} numbers.",
        "",
        "| rate | steps | minutes | validation | documentation | programs | test |",
        "|:---|---:|---:|---:|---:|---:|---:|",
    ]
    first = kept["before"]
    cells = [f"{bits(first[name]):.3f}" for name in ("validation", *ELSEWHERE, "test")]
    lines.append(f"| before | 0 | 0 | {' | '.join(cells)} |")
    for each in kept["rates"]:
        for i, stage in enumerate(kept["stages"]):
            minutes = sum(run[i] for run in each["seconds"]) / 60 / len(each["seconds"])
            cells = [sum(bits(run[i]) for run in each["validation"]) / len(kept["seeds"])]
            for name in ELSEWHERE if i else ():
                cells.append(sum(bits(run[i - 1]) for run in each[name]) / len(kept["seeds"]))
            test = ""
            if stage == each["chosen"]:
                test = f"{sum(map(bits, each['test'])) / len(each['test']):.3f}"
            written = " | ".join([*(f"{cell:.3f}" for cell in cells), *[""] * (3 - len(cells))])
            lines.append(f"| {each['rate']:g} | {stage} | {minutes:.1f} | {written} | {test} |")
    own = kept["task"]
    mood, pairs = own["mood"], own["pairs"]
    lines += [
        "",
        f"The mood of a review, asked: {sum(mood['right'])} of {own['items']} right (a perfect "
        f"reader: {mood['ceiling']:.0%}).",
        "",
        f"Are the moods of two reviews the same? Right of {own['items']} (a perfect reader: "
        f"{pairs['ceiling']:.0%}; always one answer: "
        f"{max(pairs['labels'].count(label) for label in (0, 1))}).",
        "",
        "| way | right, by seed |",
        "|:---|:---|",
    ]
    for name, several in pairs["ways"].items():
        lines.append(f"| {name} | {', '.join(str(sum(each)) for each in several)} |")
    return lines
