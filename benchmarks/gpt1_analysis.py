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

    python benchmarks/gpt1_analysis.py CACHE [--part PART …] [--quick]
                       half an hour of two cores; goes on with what is in CACHE

Writes results/gpt1_analysis.json and .md. What each cell took is in CACHE, a line each.
"""

import argparse
import hashlib
import json
import math
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from rounds import RESULTS, machine, record

from src.attention.recurrence import LSTM
from src.gpt.backbones import distance, transferred, with_new_tokens
from src.gpt.gpt1_finetuning import FinetuneConfig, TaskModel, accuracy, finetune, loss_parts
from src.gpt.gpt2 import GPT
from src.gpt.input_forms import InputForms
from src.gpt.optimisation import linear_decay
from src.gpt.runs import RunConfig, open_run, read_toml, stream_of
from src.gpt.training import train
from src.likelihood.batches import Batches
from src.likelihood.evaluation import corpus_perplexity
from src.likelihood.fitting import fit
from src.likelihood.maximum_likelihood import token_log_probs
from src.texts import labelled, tasks
from src.texts.labelled import Example
from src.texts.microworld_words import BLAME, PRAISE

FOLDER = RESULTS / "gpt1"
SEEDS, DRAWS = (0, 1, 2), (0, 1, 2)
RATES = (1e-3, 3e-3)
TRAIN, VALIDATION, TEST = 1_024, 200, 500
COMMAND = "python benchmarks/gpt1_analysis.py CACHE"

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
SHORT_STEPS = 2_000
POINTS = (0, 50, 100, 200, 300, 400, 600, 800, 1_000, 1_300, 1_600, 2_000)
LSTM_SETTINGS = [(size, rate) for size in (128, 192) for rate in (3e-3, 1e-2)]
LSTM_TRIAL = 500  # steps
ASKED = 150  # texts for each heuristic


# ---- what a cell begins from -----------------------------------------------------------------


@cache
def opened(seed):
    return open_run(FOLDER / f"seed-{seed}")


@cache
def recipe():
    return RunConfig.from_tables(read_toml(FOLDER / "recipe.toml"))


@cache
def fingerprint(arm, seed):
    """What the result of a cell depends on, beside its own settings."""
    tables = recipe().tables()
    own = {name: tables[name] for name in ("data", "model", "world")}
    if arm in ("short", "LSTM"):
        lengths = ("steps", "every", "save_every")
        own |= {k: v for k, v in tables["training"].items() if k not in lengths}
    elif arm != "scratch":
        own = (FOLDER / f"seed-{seed}" / "model.safetensors").read_bytes().hex()
    made = json.dumps(own)
    return hashlib.sha256(made.encode()).hexdigest()[:12]


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


def backbone(arm, seed, home):
    """The language model that an arm begins from; "layers k" has k blocks of the pre-trained."""
    if arm == "scratch":
        return fresh(seed)
    if arm.startswith("layers"):
        return transferred(opened(seed).model, fresh(seed), layers=int(arm.split()[1]))
    if arm in ("short", "LSTM"):
        state = torch.load(home / f"{arm}-{seed}.pt", weights_only=True)
        model = fresh(seed) if arm == "short" else lstm(state["size"], seed)
        model.load_state_dict(state["model"])
        return model.eval()
    return opened(seed).model


@cache
def data(name, quick=False):
    """A task with all its labels; every seed and every draw has the same three parts."""
    builder, options, _, _, _ = TASKS[name]
    sizes = (TRAIN, 60, 60) if quick else (TRAIN, VALIDATION, TEST)
    task = getattr(tasks, builder)(
        recipe().micro_world(),
        **dict(zip(labelled.PARTS, sizes, strict=True)),
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


def tuned_cell(cell, home):
    """Fine-tune once; accuracies, and for some cells what became of the language model."""
    arm, seed, quick = cell["arm"], cell["seed"], cell["quick"]
    task = data(cell["task"], quick).with_labels(
        cell["labels"], generator=torch.Generator().manual_seed(10_000 + cell["draw"])
    )
    start, tokenizer = backbone(arm, seed, home), opened(seed).tokenizer
    tuned = finetune(start, tokenizer, task, config_of(cell), progress=False)
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


def config_of(cell):
    _, _, _, steps, batch_size = TASKS[cell["task"]]
    steps = 5 if cell["quick"] else steps
    return FinetuneConfig(
        steps=steps,
        learning_rate=cell["rate"],
        batch_size=batch_size,
        auxiliary=cell["lambda"],
        frozen=cell["frozen"],
        every=max(steps // 5, 1),
        seed=cell["draw"],
    )


class Watched:
    """Batches by number; before some of them are handed out, something is looked at."""

    def __init__(self, batches, points, look):
        self.batches, self.points, self.look = batches, points, look

    def __getitem__(self, number):
        if number in self.points:
            self.look(number)
        return self.batches[number]

    @property
    def settings(self):
        return self.batches.settings


def traced_cell(cell, home):
    """How far the parameters go in fine-tuning, and the language model's loss, step by step."""
    seed, points = cell["seed"], (0, 5, 10, 20, 40, 80, 120, 160, 200)
    task = data(cell["task"], cell["quick"]).with_labels(
        cell["labels"], generator=torch.Generator().manual_seed(10_000 + cell["draw"])
    )
    run, config = opened(seed), config_of(cell)
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

    def look(step):
        model.eval()
        size = run.tokenizer.vocabulary_size
        seen["steps"].append(step)
        seen["distance"].append(distance(run.model, model.backbone))
        seen["loss"].append(language_loss(lambda ids: model.backbone(ids)[..., :size], seed))

    def batches():
        for step in range(config.steps):
            if step in points:
                look(step)
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
        progress=False,
    )
    look(config.steps)
    return seen


# ---- pre-training, watched --------------------------------------------------------------------


@cache
def pretraining_data(seed):
    """The streams of the recipe's text for a seed: (training batches, validation batches)."""
    config, run = recipe(), opened(seed)
    parts = RunConfig.from_tables(config.tables(), {"data": {"seed": seed}}).parts()
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


def pretrained_cell(cell, home):
    """A short pre-training, of a GPT or an LSTM; its loss and its zero-shot behaviour."""
    seed, quick, steps = cell["seed"], cell["quick"], cell["steps"]
    training, validation = pretraining_data(seed)
    kind = cell["kind"]
    model = fresh(seed) if kind == "short" else lstm(cell["size"], seed)
    config = replace(
        recipe().training, steps=steps, learning_rate=cell["rate"], every=steps, save_every=steps
    )
    if quick:
        config = replace(config, steps=10, warm_up=2)
    seen, points = [], (0, 5) if quick else POINTS

    def look(step):
        if cell["watched"]:
            model.eval()
            seen.append({"step": step} | zero_shot(model, seed, 20 if quick else ASKED))
            seen[-1]["loss"] = language_loss(model, seed)

    begun = time.process_time()
    history = train(
        model, Watched(training, points, look), config, validation=validation, progress=False
    )
    seconds = time.process_time() - begun
    look(config.steps)
    if cell["kept"]:
        path = home / f"{kind}-{seed}.pt"
        torch.save({"model": model.state_dict(), "size": cell["size"]}, path)
    return {
        "validation_loss": min(history.validation.values()),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(seconds, 1),
        "seen": seen,
    }


def zero_shot(model, seed, count):
    """{heuristic: accuracy} of a language model that has seen no labelled example of a task."""
    tokenizer = opened(seed).tokenizer
    scored = partial(mean_log_probs, model, tokenizer, opened(seed).end)
    found, of_task = {}, {name: data(name).test[:count] for name in ("sentiment", "entailment")}
    reviews = of_task["sentiment"]
    asked = scored([(f"{e.texts[0]} is this praise ?", ("no", "yes")) for e in reviews])
    found["sentiment, asked"] = share(asked, reviews)
    words = scored([(f"{e.texts[0]} it was", (*BLAME, *PRAISE)) for e in reviews])
    moods = [torch.logsumexp(part, -1) for part in words.split((len(BLAME), len(PRAISE)), -1)]
    found["sentiment, next word"] = share(torch.stack(moods, -1), reviews)
    stories = of_task["entailment"]
    verdicts = [
        (f"{e.texts[0]} they say {e.texts[1]} :", data("entailment").labels) for e in stories
    ]
    found["entailment"] = share(scored(verdicts), stories)
    for name in ("endings", "answers"):
        examples = data(name).test[:count]
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


def cell_of(task, labels, arm, seed, draw, rate, *, auxiliary=0.5, frozen=0, quick=False):
    return {
        "task": task,
        "labels": labels,
        "arm": arm,
        "lambda": auxiliary,
        "frozen": frozen,
        "seed": seed,
        "draw": draw,
        "rate": rate,
        "quick": quick,
    }


def settings_of(part):
    """(task, labels, arm, lambda, frozen) of a part; what two parts share is run once."""
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


PARTS = ("labels", "pretrain", "ablation", "layers", "probe", "sweep", "others")


class Grid:
    """Runs cells on two cores and writes each result to a file at once."""

    def __init__(self, home, quick, workers=2):
        self.home, self.quick, self.workers = home, quick, workers
        self.path = home / ("quick.jsonl" if quick else "cells.jsonl")
        self.done = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                kept = json.loads(line)
                self.done[kept["key"]] = kept

    def key(self, cell):
        arm = cell.get("arm") or cell.get("kind")
        return json.dumps([cell, fingerprint(arm, cell["seed"])], sort_keys=True)

    def __getitem__(self, cell):
        return self.done[self.key(cell)]["result"]

    def __contains__(self, cell):
        key = self.key(cell)
        if key in self.done and "arm" in cell and "traced" not in cell:
            return "distance" in self.done[key]["result"] or not is_measured(cell)
        return key in self.done

    @property
    def seconds(self):
        return sum(kept["seconds"] for kept in self.done.values())

    def run(self, work, cells):
        """Every cell that is not there yet; `work(cell, home)` in a process of its own."""
        missing = {self.key(cell): cell for cell in cells if cell not in self}
        if not missing:
            return
        context = get_context("spawn")
        with ProcessPoolExecutor(self.workers, context, initializer=one_thread) as pool:
            running = {
                pool.submit(timed, work, cell, self.home): (key, cell)
                for key, cell in missing.items()
            }
            for number, future in enumerate(as_completed(running), start=1):
                key, cell = running[future]
                result, seconds = future.result()
                kept = {"key": key, "cell": cell, "seconds": seconds, "result": result}
                with self.path.open("a") as file:
                    file.write(json.dumps(kept) + "\n")
                self.done[key] = kept
                brief = {k: v for k, v in result.items() if k != "seen"}
                print(f"{number}/{len(missing)} {seconds:.0f} s {cell} {brief}", flush=True)

    def cells(self, setting, draws=DRAWS, rates=RATES, seeds=SEEDS):
        task, labels, arm, auxiliary, frozen = setting
        options = {"auxiliary": auxiliary, "frozen": frozen, "quick": self.quick}
        return [
            cell_of(task, labels, arm, seed, draw, rate, **options)
            for seed in seeds
            for draw in draws
            for rate in rates
        ]

    def rate(self, setting):
        """The learning rate of the better validation accuracy on the first draws."""
        means = {
            rate: statistics.fmean(
                self[cell]["validation"] for cell in self.cells(setting, DRAWS[:1], [rate])
            )
            for rate in RATES
        }
        return max(means, key=means.get)

    def run_settings(self, settings):
        settings = [*dict.fromkeys(settings)]
        self.run(tuned_cell, [c for s in settings for c in self.cells(s, DRAWS[:1])])
        self.run(
            tuned_cell,
            [
                c
                for draw in DRAWS[1:]
                for s in settings
                for c in self.cells(s, [draw], [self.rate(s)])
            ],
        )

    def complete(self, setting):
        first = self.cells(setting, DRAWS[:1])
        return all(c in self for c in first) and all(
            c in self for c in self.cells(setting, DRAWS, [self.rate(setting)])
        )


def timed(work, cell, home):
    begun = time.process_time()
    return work(cell, home), round(time.process_time() - begun, 2)


def one_thread():
    torch.set_num_threads(1)


def run_part(grid, part):
    if part == "pretrain":
        pretrain(grid)
        return
    grid.run_settings(settings_of(part))
    if part == "labels":
        grid.run(tuned_cell, pilots(grid))
    if part == "probe":
        grid.run(traced_cell, traces(grid))


def pretraining_cell(grid, kind, seed, *, size=0, rate, steps, kept=True, watched=True):
    return {
        "kind": kind,
        "seed": seed,
        "size": size,
        "rate": rate,
        "steps": steps,
        "kept": kept,
        "watched": watched,
        "quick": grid.quick,
    }


def trials(grid):
    """LSTMs of all settings, trained for a while: the best goes on."""
    options = {"steps": LSTM_TRIAL, "kept": False, "watched": False}
    return [
        pretraining_cell(grid, "LSTM", 0, size=size, rate=rate, **options)
        for size, rate in LSTM_SETTINGS
    ]


def short_runs(grid):
    rate = recipe().training.learning_rate
    gpts = [pretraining_cell(grid, "short", seed, rate=rate, steps=SHORT_STEPS) for seed in SEEDS]
    best = min(trials(grid), key=lambda cell: grid[cell]["validation_loss"])
    options = {"size": best["size"], "rate": best["rate"], "steps": SHORT_STEPS}
    return gpts, [pretraining_cell(grid, "LSTM", seed, **options) for seed in SEEDS]


def pretrain(grid):
    grid.run(pretrained_cell, trials(grid))
    gpts, lstms = short_runs(grid)
    grid.run(pretrained_cell, [*gpts, *lstms])


PILOT_DRAW, LEARNT = 9, 0.5  # half of the way from chance to the ceiling


def pilots(grid):
    """One seed and a draw outside the grid: they decide which number of labels counts as small."""
    return [
        cell_of(name, labels, "pre-trained", SEEDS[0], PILOT_DRAW, RATES[0], quick=grid.quick)
        for name, (_, _, counts, _, _) in TASKS.items()
        for labels in counts
    ]


def traces(grid):
    return [
        cell_of(name, ABLATION[name], "pre-trained", seed, 0, RATES[0], **options)
        | {"traced": True}
        for name in SWEEP
        for seed in SEEDS
        for options in ({"quick": grid.quick}, {"quick": grid.quick, "auxiliary": 0.0})
    ]


# ---- intervals --------------------------------------------------------------------------------


def student(degrees, p=0.975):
    """The quantile of Student's t: its density, added up from 0 until p - 1/2 is reached."""
    x = torch.linspace(0, 20, 200_001, dtype=torch.float64)
    scale = math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2) / math.sqrt(degrees * math.pi)
    reached = torch.cumulative_trapezoid(scale * (1 + x**2 / degrees) ** (-(degrees + 1) / 2), x)
    return float(x[1:][reached >= p - 0.5][0])


def of_crossed(table):
    """Mean and 95 % interval of a table, (seeds, draws): every seed meets every draw.

    The variance of the seeds' means over their number, plus that of the draws' means over theirs;
    Welch's degrees of freedom. Noise of the single cells counts in both: the interval is careful.
    """
    ways = [[statistics.fmean(row) for row in rows] for rows in (table, zip(*table, strict=True))]
    errors = [statistics.variance(means) / len(means) for means in ways]
    variance, middle = sum(errors), statistics.fmean(ways[0])
    if not variance:
        return [middle] * 3
    parts = (e**2 / (len(means) - 1) for e, means in zip(errors, ways, strict=True))
    half = student(variance**2 / sum(parts)) * math.sqrt(variance)
    return [middle, middle - half, middle + half]


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


def summary(grid, setting):
    """All about one setting: tables (seeds, draws) of what was measured."""
    rate = grid.rate(setting)
    names = dict(zip(("task", "labels", "arm", "lambda", "frozen"), setting, strict=True))
    measured = ["validation", "test", "step"]
    if is_measured(names):
        measured += ["distance", "loss_before", "loss_after"]
    tables = {
        name: [
            [grid[cell][name] for cell in grid.cells(setting, DRAWS, [rate], [seed])]
            for seed in SEEDS
        ]
        for name in measured
    }
    tried = {
        str(each): {
            name: [grid[cell][name] for cell in grid.cells(setting, DRAWS[:1], [each])]
            for name in ("validation", "test")
        }
        for each in RATES
    }
    return names | {"rate": rate} | tables | {"tried": tried}


def smallest(grid):
    """{task: the least number of labels that brought the pilot half-way}, by validation."""
    found = {}
    for name, (_, _, counts, _, _) in TASKS.items():
        task = data(name, grid.quick)
        wanted = task.chance + LEARNT * (task.ceiling - task.chance)
        pilot = {c["labels"]: c for c in pilots(grid) if c["task"] == name}
        if not all(cell in grid for cell in pilot.values()):
            continue
        values = {labels: grid[cell]["validation"] for labels, cell in pilot.items()}
        learnt = [labels for labels in counts if values[labels] >= wanted]
        found[name] = {
            "labels": min(learnt, default=max(counts)),
            "learnt": bool(learnt),
            "validation": {str(labels): value for labels, value in values.items()},
        }
    return found


def kept_of(grid):
    found = {}
    for part in PARTS:
        for setting in settings_of(part):
            if setting not in found and grid.complete(setting):
                found[setting] = summary(grid, setting)
    small = smallest(grid)
    margins = []
    for name, about in small.items():
        for labels in TASKS[name][2]:
            ours, theirs = (
                found.get((name, labels, a, 0.5, 0)) for a in ("pre-trained", "scratch")
            )
            if ours and theirs:
                table = minus(ours["test"], theirs["test"])
                margins.append(
                    {
                        "task": name,
                        "family": data(name).family,
                        "labels": labels,
                        "smallest": labels == about["labels"],
                        "crossed": of_crossed(table),
                        "cells": of_cells(table),
                    }
                )
    kept = {
        "machine": machine(),
        "command": COMMAND + (" --quick" if grid.quick else ""),
        "core_minutes": round(grid.seconds / 60, 1),
        "seeds": SEEDS,
        "draws": DRAWS,
        "rates": RATES,
        "short_steps": SHORT_STEPS,
        "checkpoints": {
            str(seed): hashlib.sha256(
                (FOLDER / f"seed-{seed}" / "model.safetensors").read_bytes()
            ).hexdigest()
            for seed in SEEDS
        },
        "tasks": {name: about_task(grid, name) for name in TASKS},
        "ablation": ABLATION,
        "depth": DEPTH,
        "layers": recipe().gpt(2).layers,
        "smallest": small,
        "margins": margins,
        "settings": [*found.values()],
        "traces": [
            {k: c[k] for k in ("task", "lambda", "seed")} | grid[c]
            for c in traces(grid)
            if c in grid
        ],
        "pretraining": pretraining_of(grid),
    }
    return kept


def about_task(grid, name):
    task, (_, _, counts, steps, batch_size) = data(name, grid.quick), TASKS[name]
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


def pretraining_of(grid):
    if not all(cell in grid for cell in trials(grid)):
        return {}
    gpts, lstms = short_runs(grid)
    floor = recipe().micro_world().floor_of(unseen()).loss
    own = {
        "floor": floor,
        "released": [language_loss(opened(seed).model, seed) for seed in SEEDS],
        "zero_shot_released": [
            zero_shot(opened(seed).model, seed, 20 if grid.quick else ASKED) for seed in SEEDS
        ],
        "trials": [
            {k: cell[k] for k in ("size", "rate", "steps")}
            | {k: v for k, v in grid[cell].items() if k != "seen"}
            for cell in trials(grid)
        ],
    }
    for name, cells in (("short", gpts), ("LSTM", lstms)):
        own[name] = [
            {k: cell[k] for k in ("seed", "size", "rate", "steps")} | grid[cell]
            for cell in cells
            if cell in grid
        ]
    return own


def percent(three):
    middle, low, high = (100 * value for value in three)
    return f"{middle:+.1f} ({low:+.1f} to {high:+.1f})"


def table(kept):
    lines = [
        "# What did pre-training do? The analysis of the miniature GPT-1",
        "",
        f"`{kept['command']}`; {kept['machine']}; {kept['core_minutes']:.0f} minutes of one core",
        "",
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = RESULTS.parent / "_build" / "gpt1_analysis"
    parser.add_argument("cache", type=Path, nargs="?", default=default)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="a few steps of everything")
    parser.add_argument("--only", choices=("scratch", "short", "LSTM"), help="this arm alone")
    options = parser.parse_args()
    one_thread()
    options.cache.mkdir(parents=True, exist_ok=True)
    grid = Grid(options.cache, options.quick)
    for part in options.part or PARTS:
        if options.only:
            grid.run_settings([s for s in settings_of(part) if s[2] == options.only])
        else:
            run_part(grid, part)
    kept = kept_of(grid)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "gpt1_analysis.json").write_text(json.dumps(kept, indent=1) + "\n")
    record("gpt1_analysis", table(kept))


if __name__ == "__main__":
    main()
