"""What did pre-training do? The analysis of GPT-1, repeated with seeds and with error bars.

Every cell of the grid is one fine-tuning: a task, a number of labels, an arm (what it begins from
and how it is tuned), a pre-training seed and a draw of labels. All arms of a seed and a draw learn
from the same labels, for the same number of steps, and are tested on the same texts. Two learning
rates are tried on the first draw of each seed; the one with the better mean validation accuracy is
used for the arm, and test accuracies are only reported. Parts:

    labels     with and without pre-training, against the number of labels
    pretrain   short runs, GPT and LSTM, watched on the way: zero-shot behaviour
    ablation   without the auxiliary loss, the short GPT, the LSTM
    layers     embeddings, and the first 1, 2, … blocks transferred
    probe      everything frozen but the head; how far the parameters move; what is forgotten
    sweep      other weights of the auxiliary loss
    others     three more tasks that were tried, with and without pre-training

An hour of one core.
"""

import hashlib
import statistics
import time
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import torch

from next_token.run_config import RunConfig
from src.attention.recurrence import LSTM
from src.gpt.backbones import distance, transferred, with_new_tokens
from src.gpt.gpt1_finetuning import FinetuneConfig, TaskModel, accuracy, finetune, loss_parts
from src.gpt.gpt2 import GPT
from src.gpt.input_forms import InputForms
from src.gpt.optimisation import linear_decay
from src.gpt.released import open_run, read_toml
from src.gpt.training import train
from src.likelihood.batches import Batches
from src.likelihood.evaluation import corpus_perplexity
from src.likelihood.fitting import fit
from src.likelihood.maximum_likelihood import token_log_probs
from src.texts import labelled, tasks
from src.texts.labelled import Example
from src.texts.microworld_words import BLAME, PRAISE
from src.tokens.bytes import stream_of
from src.tools.intervals import crossed

FOLDER = Path(__file__).parents[1] / "results" / "gpt1"

# task: (builder, its options, numbers of labels, steps, batch size)
TASKS = {
    "sentiment": ("sentiment", {}, (8, 16, 64, 256), 80, 32),
    "entailment": ("entailment", {}, (64, 256, 1_024), 150, 32),
    "entailment, longer": ("entailment", {}, (1_024,), 400, 32),
    "same polarity": ("same_polarity", {}, (16, 64, 256), 100, 32),
    "paraphrases": ("paraphrases", {}, (256, 1_024), 200, 32),
    "answers": ("answers", {}, (64, 256), 150, 16),
    # tried as well, once each
    "acceptability": ("acceptability", {}, (1_024,), 150, 32),
    "entailment, told": ("entailment", {}, (1_024,), 150, 32),
    "endings": ("endings", {}, (1_024,), 150, 16),
}
OTHERS = ("acceptability", "entailment, told", "endings")
# the tasks of the ablation: one a family, with labels and steps with which the full model learns it
ABLATION = {"sentiment": 16, "entailment, longer": 1_024, "same polarity": 256, "answers": 256}
SWEEP, LAMBDAS = ("sentiment", "same polarity"), (0.1, 1.0, 2.0)  # beside 0 and 0.5
DEPTH = ("sentiment", "entailment, longer")  # with as many labels as in the ablation
LSTM_SETTINGS = [(size, rate) for size in (128, 192) for rate in (3e-3, 1e-2)]


@dataclass(frozen=True)
class Settings:
    seeds: tuple = (0, 1, 2)
    draws: tuple = (0, 1, 2)
    rates: tuple = (1e-3, 3e-3)
    parts: tuple = (1_024, 200, 500)  # labels: to train on, to choose by, to test
    most: int | None = None  # steps of a fine-tuning; None: those of its task
    documents: int | None = None  # to pre-train on; None: those of the recipe
    short_steps: int = 2_000
    points: tuple = (0, 50, 100, 200, 300, 400, 600, 800, 1_000, 1_300, 1_600)  # and at the end
    lstm_trial: int = 500  # steps
    asked: int = 150  # texts for each heuristic


QUICK = Settings(
    seeds=(0, 1),
    draws=(0, 1),
    rates=(1e-3,),
    parts=(1_024, 8, 8),
    most=2,
    documents=2_000,
    short_steps=4,
    points=(0,),
    lstm_trial=2,
    asked=8,
)


# ---- what a cell begins from -----------------------------------------------------------------


@cache
def opened(seed):
    return open_run(FOLDER / f"seed-{seed}")


@cache
def recipe():
    return RunConfig.from_tables(read_toml(FOLDER / "recipe.toml"))


def fresh(seed):
    """A GPT of the same sizes that has read nothing."""
    generator = torch.Generator().manual_seed(1_000 + seed)
    return GPT(opened(seed).model.config, generator=generator)


def lstm(size, seed):
    generator = torch.Generator().manual_seed(1_000 + seed)
    return LSTM(
        opened(seed).tokenizer.vocabulary_size,
        embedding_size=size,
        hidden_size=size,
        tied=True,
        generator=generator,
    )


def backbone(cells, arm, seed):
    """The language model that an arm begins from; "layers k" has k blocks of the pre-trained."""
    if arm == "scratch":
        return fresh(seed)
    if arm.startswith("layers"):
        return transferred(opened(seed).model, fresh(seed), layers=int(arm.split()[1]))
    if arm in ("short", "LSTM"):
        cell = short_run(cells, arm, seed)
        model = fresh(seed) if arm == "short" else lstm(cell["size"], seed)
        model.load_state_dict(cells(pretrained_cell, cell=cell)["model"])
        return model.eval()
    return opened(seed).model


@cache
def data(settings, name):
    """A task with all its labels; every seed and every draw has the same three parts."""
    builder, options, _, _, _ = TASKS[name]
    task = getattr(tasks, builder)(
        recipe().micro_world(),
        **dict(zip(labelled.PARTS, settings.parts, strict=True)),
        generator=torch.Generator().manual_seed(7),
        **options,
    )
    if name != "entailment, told":
        return task
    return replace(
        task,
        name=name,
        **{part: tuple(map(told, getattr(task, part))) for part in labelled.PARTS},
    )


def told(example):
    """The claim as the language itself makes it, so that its verdict would come next."""
    premise, claim = example.texts
    return Example((premise, f"they say {claim} :"), example.label)


@cache
def unseen(count=100):
    """Documents of the pre-training's kind, as words, that nobody has trained on."""
    drawn = recipe().micro_world().sample(count, generator=torch.Generator().manual_seed(99))
    return [each.words for each in drawn]


@cache
def held_out(seed):
    """The same as ids, an end token before and after each."""
    run = opened(seed)
    return [
        torch.tensor([run.end, *run.tokenizer.encode(" ".join(words[:-1])), run.end])
        for words in unseen()
    ]


def language_loss(model, seed):
    """Nats per token on the held-out documents."""
    context = recipe().gpt(2).context_length
    with torch.no_grad():
        score = corpus_perplexity(model, held_out(seed), context_length=context, batch_size=50)
    return score.loss


# ---- one cell ---------------------------------------------------------------------------------


def tuned_cell(cells, cell):
    """Fine-tune once; accuracies, and for some cells what became of the language model."""
    arm, seed = cell["arm"], cell["seed"]
    task = data(cells.settings, cell["task"]).with_labels(
        cell["labels"], generator=torch.Generator().manual_seed(10_000 + cell["draw"])
    )
    start, tokenizer = backbone(cells, arm, seed), opened(seed).tokenizer
    tuned = finetune(start, tokenizer, task, config_of(cells, cell), progress=False)
    found = {
        "validation": accuracy(tuned, task.validation),
        "test": accuracy(tuned, task.test),
        "step": tuned.history.best_step,
    }
    if is_measured(cell):
        own, size = tuned.model.backbone.eval(), tokenizer.vocabulary_size
        found |= {
            "distance": distance(start, own),
            "loss_before": language_loss(start, seed),
            "loss_after": language_loss(lambda ids: own(ids)[..., :size], seed),
        }
    return found


def is_measured(cell):
    return ABLATION.get(cell["task"]) == cell["labels"]


def config_of(cells, cell):
    _, _, _, steps, batch_size = TASKS[cell["task"]]
    steps = min(steps, cells.settings.most or steps)
    return FinetuneConfig(
        steps=steps,
        learning_rate=cell["rate"],
        batch_size=batch_size,
        auxiliary=cell["lambda"],
        frozen=cell["frozen"],
        every=max(steps // 5, 1),
        seed=cell["draw"],
    )


def traced_cell(cells, cell):
    """How far the parameters go in fine-tuning, and the language model's loss, step by step."""
    seed, points = cell["seed"], (0, 5, 10, 20, 40, 80, 120, 160, 200)
    task = data(cells.settings, cell["task"]).with_labels(
        cell["labels"], generator=torch.Generator().manual_seed(10_000 + cell["draw"])
    )
    run, config = opened(seed), config_of(cells, cell)
    generator = torch.Generator().manual_seed(config.seed)
    model = TaskModel(
        with_new_tokens(run.model, generator=generator),
        task.family,
        len(task.labels),
        dropout=config.dropout,
        generator=generator,
    )
    forms = InputForms(task.family, task.labels, run.tokenizer, run.model.config.context_length)
    ids, lengths = forms.tensors([example.texts for example in task.train])
    labels = torch.tensor([example.label for example in task.train])
    seen = {"steps": [], "distance": [], "loss": []}

    def look(step, model):
        if step not in (*points, config.steps):
            return
        model.eval()
        size = run.tokenizer.vocabulary_size
        seen["steps"].append(step)
        seen["distance"].append(distance(run.model, model.backbone))
        seen["loss"].append(language_loss(lambda ids: model.backbone(ids)[..., :size], seed))

    def batches():
        while True:
            rows = torch.randint(len(labels), (config.batch_size,), generator=generator)
            yield (ids[rows], lengths[rows]), labels[rows]

    def nats(model, batch):
        of_task, of_language = loss_parts(model, batch, language=config.auxiliary > 0)
        return (of_task + config.auxiliary * of_language).sum()

    torch.manual_seed(config.seed)  # dropout
    fit(
        model,
        batches(),
        steps=config.steps,
        learning_rate=config.learning_rate,
        schedule=linear_decay(config.steps),
        weight_decay=config.weight_decay,
        nats_of=nats,
        after=look,
        progress=False,
    )
    return seen


# ---- pre-training, watched --------------------------------------------------------------------


@cache
def pretraining_data(settings, seed):
    """The streams of the recipe's text for a seed: (training batches, validation batches)."""
    config, run = recipe(), opened(seed)
    changes = {"data": {"seed": seed}}
    if settings.documents is not None:
        changes["world"] = {"documents": settings.documents}
    parts = RunConfig.from_tables(config.tables(), changes).parts()
    options = {
        "batch_size": config.data.batch_size,
        "context_length": run.model.config.context_length,
        "seed": seed,
        "first": run.end,
    }
    training, validation = (
        Batches(stream_of(part, run.tokenizer), **options)
        for part in (parts.train, parts.validation)
    )
    return training, [validation[i] for i in range(10)]


def pretrained_cell(cells, cell):
    """A short pre-training, of a GPT or an LSTM: loss, zero-shot behaviour, weights."""
    settings, seed, steps = cells.settings, cell["seed"], cell["steps"]
    training, validation = pretraining_data(settings, seed)
    kind = cell["kind"]
    model = fresh(seed) if kind == "short" else lstm(cell["size"], seed)
    options = dict.fromkeys(("steps", "every", "save_every"), steps)
    options["warm_up"] = min(recipe().training.warm_up, steps // 2)
    config = replace(recipe().training, learning_rate=cell["rate"], **options)
    seen = []

    def look(step, model):
        if cell["watched"] and step in (*settings.points, steps):
            model.eval()
            seen.append({"step": step} | zero_shot(settings, model, seed))
            seen[-1]["loss"] = language_loss(model, seed)

    begun = time.process_time()
    history = train(model, training, config, validation=validation, after=look, progress=False)
    seconds = time.process_time() - begun
    return {
        "validation_loss": min(history.validation.values()),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(seconds, 1),
        "seen": seen,
        "model": model.state_dict(),
    }


def zero_shot(settings, model, seed):
    """{heuristic: accuracy} of a language model that has seen no labelled example of a task."""
    tokenizer = opened(seed).tokenizer
    scored = partial(mean_log_probs, model, tokenizer, opened(seed).end)
    found, count = {}, settings.asked
    of_task = {name: data(settings, name).test[:count] for name in ("sentiment", "entailment")}
    reviews = of_task["sentiment"]
    asked = scored([(f"{e.texts[0]} is this praise ?", ("no", "yes")) for e in reviews])
    found["sentiment, asked"] = share(asked, reviews)
    words = scored([(f"{e.texts[0]} it was", (*BLAME, *PRAISE)) for e in reviews])
    moods = [torch.logsumexp(part, -1) for part in words.split((len(BLAME), len(PRAISE)), -1)]
    found["sentiment, next word"] = share(torch.stack(moods, -1), reviews)
    stories = of_task["entailment"]
    verdicts = [
        (f"{e.texts[0]} they say {e.texts[1]} :", data(settings, "entailment").labels)
        for e in stories
    ]
    found["entailment"] = share(scored(verdicts), stories)
    for name in ("endings", "answers"):
        examples = data(settings, name).test[:count]
        found[name] = share(scored([(e.texts[0], e.texts[1:]) for e in examples]), examples)
    return found


def share(scores, examples):
    """The share of examples whose right answer has the greatest score."""
    labels = torch.tensor([example.label for example in examples])
    return float((scores.argmax(-1) == labels).double().mean())


@torch.no_grad()
def mean_log_probs(model, tokenizer, end, questions):
    """Mean log-probability per token of each continuation, (N, K), of N questions."""
    result = []
    for prefix, choices in questions:
        before = [end, *tokenizer.encode(prefix)]
        after = [tokenizer.encode(choice) for choice in choices]
        length = len(before) + max(map(len, after))
        ids = torch.full((len(after), length), end)
        for row, choice in zip(ids, after, strict=True):
            row[: len(before) + len(choice)] = torch.tensor([*before, *choice])
        log_probs = token_log_probs(model(ids[:, :-1]), ids[:, 1:])[:, len(before) - 1 :]
        result.append(
            torch.stack(
                [row[: len(choice)].mean() for row, choice in zip(log_probs, after, strict=True)]
            )
        )
    return torch.stack(result)


# ---- the grid ---------------------------------------------------------------------------------


def cell_of(task, labels, arm, seed, draw, rate, *, auxiliary=0.5, frozen=0):
    return {
        "task": task,
        "labels": labels,
        "arm": arm,
        "lambda": auxiliary,
        "frozen": frozen,
        "seed": seed,
        "draw": draw,
        "rate": rate,
    }


def rows_of(part):
    """Settings (task, labels, arm, lambda, frozen) of a part; what two parts share is run once."""
    depth = recipe().gpt(2).layers
    pre = "pre-trained"
    if part in ("labels", "others"):
        return [
            (name, labels, arm, 0.5, 0)
            for name, (_, _, counts, _, _) in TASKS.items()
            if (name in OTHERS) == (part == "others")
            for labels in counts
            for arm in (pre, "scratch")
        ]
    if part == "layers":
        arms = ["scratch", *(f"layers {k}" for k in range(depth)), pre]
        return [(name, ABLATION[name], arm, 0.5, 0) for name in DEPTH for arm in arms]
    if part == "ablation":
        rows = [(pre, 0.5), (pre, 0.0), ("scratch", 0.5), ("short", 0.5), ("LSTM", 0.5)]
        return [(name, n, arm, x, 0) for arm, x in rows for name, n in ABLATION.items()]
    if part == "sweep":
        return [(name, ABLATION[name], pre, x, 0) for x in LAMBDAS for name in SWEEP]
    if part == "probe":
        return [(name, n, pre, 0.5, k) for name, n in ABLATION.items() for k in (0, depth)]
    return []


PARTS = ("labels", "ablation", "layers", "probe", "sweep", "others")


def cells_of(row, seeds, draws, rates):
    """The cells of a row of the grid."""
    task, labels, arm, auxiliary, frozen = row
    options = {"auxiliary": auxiliary, "frozen": frozen}
    return [
        cell_of(task, labels, arm, seed, draw, rate, **options)
        for seed in seeds
        for draw in draws
        for rate in rates
    ]


def tuned(cells, several):
    """What became of these cells."""
    return cells.all(tuned_cell, [{"cell": each} for each in several])


def first(cells, row, rates=None):
    """Its cells with the first draw, by which the learning rate is chosen."""
    settings = cells.settings
    return cells_of(row, settings.seeds, settings.draws[:1], rates or settings.rates)


def rate_of(cells, row):
    """The learning rate of the better validation accuracy on the first draws."""
    means = {
        rate: statistics.fmean(
            found["validation"] for found in tuned(cells, first(cells, row, [rate]))
        )
        for rate in cells.settings.rates
    }
    return max(means, key=means.get)


def run_rows(cells, rows):
    """All cells of some rows, side by side where there are several processes."""
    settings, rows = cells.settings, [*dict.fromkeys(rows)]
    tuned(cells, [cell for row in rows for cell in first(cells, row)])
    tuned(
        cells,
        [
            cell
            for row in rows
            for cell in cells_of(row, settings.seeds, settings.draws[1:], [rate_of(cells, row)])
        ],
    )


def pretraining_cell(kind, seed, *, size=0, rate, steps, watched=True):
    return {
        "kind": kind,
        "seed": seed,
        "size": size,
        "rate": rate,
        "steps": steps,
        "watched": watched,
    }


def pretrained(cells, several):
    return cells.all(pretrained_cell, [{"cell": each} for each in several])


def trials(cells):
    """LSTMs of all settings, trained for a while: the best goes on."""
    options = {"steps": cells.settings.lstm_trial, "watched": False}
    return [
        pretraining_cell("LSTM", 0, size=size, rate=rate, **options) for size, rate in LSTM_SETTINGS
    ]


def short_run(cells, kind, seed):
    """The short pre-training of a GPT, or of the best LSTM."""
    steps = cells.settings.short_steps
    if kind == "short":
        return pretraining_cell(kind, seed, rate=recipe().training.learning_rate, steps=steps)
    losses = [found["validation_loss"] for found in pretrained(cells, trials(cells))]
    best = trials(cells)[losses.index(min(losses))]
    return pretraining_cell(kind, seed, size=best["size"], rate=best["rate"], steps=steps)


PILOT_DRAW, LEARNT = 9, 0.5  # half of the way from chance to the ceiling


def pilots(cells, name):
    """One seed and a draw outside the grid: they decide which number of labels counts as small."""
    seed, rate = cells.settings.seeds[0], cells.settings.rates[0]
    return [
        cell_of(name, labels, "pre-trained", seed, PILOT_DRAW, rate) for labels in TASKS[name][2]
    ]


def traces(cells):
    return [
        cell_of(name, ABLATION[name], "pre-trained", seed, 0, cells.settings.rates[0], **options)
        for name in SWEEP
        for seed in cells.settings.seeds
        for options in ({}, {"auxiliary": 0.0})
    ]


# ---- intervals --------------------------------------------------------------------------------


def of_cells(table, resamples=2_000):
    """The bootstrap's interval over all cells, as if they were independent."""
    values = torch.tensor([value for row in table for value in row], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(len(values), (resamples, len(values)), generator=generator)
    edges = torch.tensor([0.025, 0.975], dtype=torch.float64)
    return [float(values.mean()), *values[rows].mean(1).quantile(edges).tolist()]


def minus(ours, theirs):
    return [[a - b for a, b in zip(*rows, strict=True)] for rows in zip(ours, theirs, strict=True)]


# ---- what is kept -----------------------------------------------------------------------------


def summary(cells, row):
    """All about one row: tables (seeds, draws) of what was measured."""
    settings, rate = cells.settings, rate_of(cells, row)
    names = dict(zip(("task", "labels", "arm", "lambda", "frozen"), row, strict=True))
    measured = ["validation", "test", "step"]
    if is_measured(names):
        measured += ["distance", "loss_before", "loss_after"]
    found = [tuned(cells, cells_of(row, [seed], settings.draws, [rate])) for seed in settings.seeds]
    tables = {name: [[each[name] for each in of_seed] for of_seed in found] for name in measured}
    tried = {}
    for each in settings.rates:
        of_rate = tuned(cells, first(cells, row, [each]))
        tried[str(each)] = {n: [one[n] for one in of_rate] for n in ("validation", "test")}
    return names | {"rate": rate} | tables | {"tried": tried}


def smallest(cells):
    """{task: the least number of labels that brought the pilot half-way}, by validation."""
    found = {}
    for name, (_, _, counts, _, _) in TASKS.items():
        task = data(cells.settings, name)
        wanted = task.chance + LEARNT * (task.ceiling - task.chance)
        accuracies = [each["validation"] for each in tuned(cells, pilots(cells, name))]
        values = dict(zip(counts, accuracies, strict=True))
        learnt = [labels for labels in counts if values[labels] >= wanted]
        found[name] = {
            "labels": min(learnt, default=max(counts)),
            "learnt": bool(learnt),
            "validation": {str(labels): value for labels, value in values.items()},
        }
    return found


def find(cells):
    settings = cells.settings
    pretraining = pretraining_of(cells)
    for part in PARTS:
        run_rows(cells, rows_of(part))
    rows = dict.fromkeys(row for part in PARTS for row in rows_of(part))
    found = {row: summary(cells, row) for row in rows}
    small = smallest(cells)
    margins = []
    for name, about in small.items():
        for labels in TASKS[name][2]:
            ours, theirs = (found[name, labels, arm, 0.5, 0] for arm in ("pre-trained", "scratch"))
            table = minus(ours["test"], theirs["test"])
            around = crossed(table)
            margins.append(
                {
                    "task": name,
                    "family": data(settings, name).family,
                    "labels": labels,
                    "smallest": labels == about["labels"],
                    "crossed": [around.mean, around.low, around.high],
                    "cells": of_cells(table),
                }
            )
    traced = cells.all(traced_cell, [{"cell": each} for each in traces(cells)])
    return {
        "seeds": settings.seeds,
        "draws": settings.draws,
        "rates": settings.rates,
        "short_steps": settings.short_steps,
        "checkpoints": {
            str(seed): hashlib.sha256(
                (FOLDER / f"seed-{seed}" / "model.safetensors").read_bytes()
            ).hexdigest()
            for seed in settings.seeds
        },
        "tasks": {name: about_task(settings, name) for name in TASKS},
        "ablation": ABLATION,
        "depth": DEPTH,
        "layers": recipe().gpt(2).layers,
        "smallest": small,
        "margins": margins,
        "settings": [*found.values()],
        "traces": [
            {name: cell[name] for name in ("task", "lambda", "seed")} | seen
            for cell, seen in zip(traces(cells), traced, strict=True)
        ],
        "pretraining": pretraining,
    }


def about_task(settings, name):
    task, (_, _, counts, steps, batch_size) = data(settings, name), TASKS[name]
    return {
        "family": task.family,
        "chance": task.chance,
        "ceiling": task.ceiling,
        "ceiling_error": task.ceiling_error,
        "labels": counts,
        "steps": steps,
        "batch_size": batch_size,
        "validation": len(task.validation),
        "test": len(task.test),
    }


def pretraining_of(cells):
    settings, rows = cells.settings, {}
    rows["trials"] = trials(cells)
    for kind in ("short", "LSTM"):
        rows[kind] = [short_run(cells, kind, seed) for seed in settings.seeds]
    kept = {"trials": ("size", "rate", "steps")}
    found = {
        name: [
            {key: cell[key] for key in kept.get(name, ("seed", "size", "rate", "steps"))}
            | {key: value for key, value in about.items() if key != "model"}
            for cell, about in zip(several, pretrained(cells, several), strict=True)
        ]
        for name, several in rows.items()
    }
    for trial in found["trials"]:
        del trial["seen"]
    models = {seed: opened(seed).model for seed in settings.seeds}
    return {
        "floor": recipe().micro_world().floor_of(unseen()).loss,
        "released": [language_loss(model, seed) for seed, model in models.items()],
        "zero_shot_released": [zero_shot(settings, model, s) for s, model in models.items()],
    } | found


def percent(three):
    middle, low, high = (100 * value for value in three)
    return f"{middle:+.1f} ({low:+.1f} to {high:+.1f})"


def table(kept):
    lines = [
        "What did pre-training do? The analysis of the miniature GPT-1",
        "Test accuracy with pre-training minus without, points; 95 % intervals that count "
        "seeds and draws as crossed, and over all cells as if they were independent. * marks the "
        "smallest number of labels that brought a pilot half of the way from chance to the "
        "ceiling (validation, another draw).",
        "",
        "| task | family | labels | crossed | cells |",
        "|:---|:---|---:|:---|:---|",
    ]
    for each in kept["margins"]:
        star = "*" if each["smallest"] else ""
        lines.append(
            f"| {each['task']} | {each['family']} | {each['labels']}{star} | "
            f"{percent(each['crossed'])} | {percent(each['cells'])} |"
        )
    lines += [
        "",
        "| task | labels | begins from | lambda | frozen | rate | test accuracy by seed |",
        "|:---|---:|:---|---:|---:|---:|:---|",
    ]
    for each in kept["settings"]:
        means = " ".join(f"{100 * statistics.fmean(row):.1f}" for row in each["test"])
        lines.append(
            f"| {each['task']} | {each['labels']} | {each['arm']} | {each['lambda']} | "
            f"{each['frozen']} | {each['rate']} | {means} |"
        )
    return lines
