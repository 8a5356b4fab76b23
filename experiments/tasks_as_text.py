"""Tasks written as text: how a model is told what to do, and how long it takes to learn it.

    ways   One family of tasks, a sin(x + b) for 8 amplitudes and 8 phases, and three ways to
           condition on the task: a head for each (architecture), an initialisation from which one
           gradient step adapts (MAML; and its first-order form), two words in the input (text).
           Error on 16 tasks never trained on, against the number of training tasks, and against
           the number of examples of the new task. Settings are chosen on 8 validation tasks.
    stories
           Short stories that close with a question and its answer. A GPT learns from all tokens, or
           from the answers alone; both are scored on the answers, in the course of training. The
           learning rate of each is chosen on a seed that is not reported.

Some minutes of one core.
"""

import math
import statistics
from dataclasses import dataclass
from itertools import product

import torch
from torch.func import grad, vmap
from torch.nn.utils.rnn import pad_sequence

from src.gpt.gpt2 import GPT, GPTConfig
from src.likelihood.fitting import fit
from src.texts.microworld import MicroWorld

CHOICE_SEED = 100


@dataclass(frozen=True)
class Settings:
    """Steps of the networks; of the GPTs, by what they learn from, and to choose a rate."""

    seeds: tuple = (0, 1, 2)
    steps: int = 1_500
    all_tokens: int = 2_000
    answers_alone: int = 400
    trial: int = 300
    documents: int = 200  # to test on


QUICK = Settings(seeds=(0, 1), steps=3, all_tokens=4, answers_alone=4, trial=2, documents=5)


# ---- ways --------------------------------------------------------------------------------------

AMPLITUDES = torch.linspace(1.0, 3.0, 8)
PHASES = torch.linspace(0.0, math.pi, 9)[:-1]
TASKS = torch.cartesian_prod(torch.arange(8), torch.arange(8))  # (64, 2)
COUNTS, TRAINED, VALIDATED = (4, 10, 17, 40), 40, 8  # the other 16 are for the test
EXAMPLES, SHOTS = 10, (1, 2, 3, 5, 10)
HIDDEN, BATCH = 40, 16
SETTINGS = {  # what is tried for each way: the rate of the inner step, the ridge, the decay
    "head": (1e-3, 1e-2, 1e-1),
    "MAML": (0.02, 0.05, 0.1),
    "first-order MAML": (0.02, 0.05, 0.1),
    "text": (0.0, 0.1, 1.0),
}


def initial(inputs, heads, generator):
    """Weights of a network with two hidden layers."""

    def drawn(*shape):
        return torch.randn(*shape, generator=generator)

    return {
        "W1": drawn(inputs, HIDDEN) * math.sqrt(2 / inputs),
        "b1": torch.zeros(HIDDEN),
        "W2": drawn(HIDDEN, HIDDEN) * math.sqrt(2 / HIDDEN),
        "b2": torch.zeros(HIDDEN),
        "W3": drawn(HIDDEN, heads) * math.sqrt(1 / HIDDEN),
        "b3": torch.zeros(heads),
    }


def features(theta, x):
    """The last hidden layer."""
    first = torch.relu(x @ theta["W1"] + theta["b1"])
    return torch.relu(first @ theta["W2"] + theta["b2"])


def outputs(theta, x):
    return features(theta, x) @ theta["W3"] + theta["b3"]


def error(theta, x, y):
    """The mean squared error; a squared error is a surprise under a normal distribution."""
    return (outputs(theta, x) - y).square().mean()


def adapted(theta, x, y, rate, first_order=False):
    """One gradient step on the examples of one task."""
    steps = grad(error)(theta, x, y)
    if first_order:
        steps = {name: step.detach() for name, step in steps.items()}
    return {name: theta[name] - rate * steps[name] for name in theta}


def examples(tasks, count, generator):
    """x and y of some examples of each of B tasks, (B, count, 1) each."""
    x = 6 * torch.rand(len(tasks), count, 1, generator=generator) - 3
    amplitude, phase = AMPLITUDES[tasks[:, 0]], PHASES[tasks[:, 1]]
    return x, amplitude[:, None, None] * torch.sin(x + phase[:, None, None])


def told(tasks, x):
    """The input with the two words of the task in front, (B, count, 17)."""
    words = torch.cat([torch.eye(8)[tasks[:, 0]], torch.eye(8)[tasks[:, 1]]], -1)
    return torch.cat([words[:, None].expand(-1, x.shape[1], -1), x], -1)


def trained(way, setting, tasks, seed, steps):
    """The parameters of one network, taught one way on some tasks."""
    generator = torch.Generator().manual_seed(1_000 + seed)
    theta = initial(17 if way == "text" else 1, 64 if way == "head" else 1, generator)
    for parameter in theta.values():
        parameter.requires_grad_()
    rate, decay = 5e-3, setting if way == "text" else 0.0
    optimiser = torch.optim.AdamW(theta.values(), lr=rate, weight_decay=decay)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate * (1 - step / steps)
        some = tasks[torch.randint(len(tasks), (BATCH,), generator=generator)]
        support, query = (examples(some, EXAMPLES, generator) for _ in range(2))
        if way == "text":
            loss = error(theta, told(some, query[0]), query[1])
        elif way == "head":
            of_task = (8 * some[:, 0] + some[:, 1])[:, None, None]
            guesses = outputs(theta, query[0]).gather(-1, of_task.expand_as(query[1]))
            loss = (guesses - query[1]).square().mean()
        else:
            loss = after_examples(way, setting, theta, support, query).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {name: parameter.detach() for name, parameter in theta.items()}


def after_examples(way, setting, theta, support, query):
    """The error on each task after its examples were shown, (B,)."""

    def of_one(x, y, more_x, more_y):
        if way == "head":  # a new head on the same body, in closed form
            known, new = (
                torch.cat([features(theta, z), torch.ones_like(z)], -1) for z in (x, more_x)
            )
            kernel = known @ known.mT + setting * torch.eye(len(x))
            return (new @ known.mT @ torch.linalg.solve(kernel, y) - more_y).square().mean()
        return error(adapted(theta, x, y, setting, way != "MAML"), more_x, more_y)

    return vmap(of_one)(*support, *query)


def tested(way, setting, theta, tasks, shots, seed):
    """The mean error on some tasks, of each of which so many examples were shown."""
    generator = torch.Generator().manual_seed(2_000 + seed)
    query, support = examples(tasks, 200, generator), examples(tasks, max(SHOTS), generator)
    if way == "text":
        return float(error(theta, told(tasks, query[0]), query[1]))
    support = [part[:, :shots] for part in support]
    return float(after_examples(way, setting, theta, support, query).mean())


def ways(cells):
    """Errors by way, number of training tasks and seed; and by number of examples."""
    seeds, steps = cells.settings.seeds, cells.settings.steps
    found = {"steps": steps, "counts": COUNTS, "shots": SHOTS, "seeds": seeds, "ways": {}}
    found["zero"] = []
    for seed in seeds:
        test = shuffled(seed)[TRAINED + VALIDATED :]
        _, y = examples(test, 200, torch.Generator().manual_seed(2_000 + seed))
        found["zero"].append(float(y.square().mean()))
    for way, tried in SETTINGS.items():
        setting, trials = chosen(cells, way, tried)
        kept = {"setting": setting, "trials": trials, "by_count": {}, "by_shots": {}}
        for count in COUNTS:
            several = [
                {"way": way, "setting": setting, "count": count, "seed": seed} for seed in seeds
            ]
            by_shots = cells.all(of_new_tasks, several)
            kept["by_count"][count] = [errors[EXAMPLES] for errors in by_shots]
            if count == TRAINED:
                for seed, errors in zip(seeds, by_shots, strict=True):
                    kept["by_shots"][seed] = [errors[shots] for shots in SHOTS]
        found["ways"][way] = kept
    return found


def of_new_tasks(cells, way, setting, count, seed):
    """{number of examples: error on tasks never trained on}, after training on so many tasks."""
    tasks = shuffled(seed)
    theta = trained(way, setting, tasks[:count], seed, cells.settings.steps)
    new = tasks[TRAINED + VALIDATED :]
    return {shots: tested(way, setting, theta, new, shots, seed) for shots in SHOTS}


def chosen(cells, way, tried):
    """The setting with the least error on validation tasks, and the errors of all."""
    trials = {setting: cells(of_validation, way=way, setting=setting) for setting in tried}
    return min(trials, key=trials.get), trials


def of_validation(cells, way, setting):
    tasks = shuffled(CHOICE_SEED)
    held_out = tasks[TRAINED : TRAINED + VALIDATED]
    theta = trained(way, setting, tasks[:TRAINED], CHOICE_SEED, cells.settings.steps)
    return tested(way, setting, theta, held_out, EXAMPLES, CHOICE_SEED)


def shuffled(seed):
    """The 64 tasks in an order of their own: to train on, to choose by, to test."""
    return TASKS[torch.randperm(64, generator=torch.Generator().manual_seed(seed))]


# ---- pace --------------------------------------------------------------------------------------

SMALL = {"people": 3, "places": 3, "objects": 2, "countries": 1, "adjectives": 1, "cast": 2}
ARMS, RATES = ("all tokens", "answers alone"), (3e-3, 1e-2)
CHANNELS, EVERY = 32, 25


def small_world():
    """Short stories, each of which closes with a question and its answer."""
    shares = {"stories": 1.0, "reviews": 0.0, "facts": 0.0, "translations": 0.0}
    ways_to_end = {"things": 1, "longest": 30, "stop": 0.5, "claims": 0.0, "demonstrations": 1.0}
    return MicroWorld(**SMALL, **shares, **ways_to_end)


def batch(world, count, generator):
    """Inputs, targets, where a token stands and where the answer, (B, T) each."""
    texts = world.sample_texts(count, generator=generator)
    start = torch.zeros(1, dtype=torch.long)  # the end token
    ids = pad_sequence([torch.cat([start, text]) for text in texts], batch_first=True)
    lengths = torch.tensor([[len(text)] for text in texts])
    inputs, targets = ids[:, :-1], ids[:, 1:]
    real = torch.arange(inputs.shape[1]) < lengths
    asked = inputs == int(world.encode("?")[0])
    return inputs, targets, real, asked & real


def course(cells, arm, rate, seed, steps):
    """The loss on answers, nats, by step."""
    world = small_world()
    generator = torch.Generator().manual_seed(1_000 + seed)
    model = GPT(
        GPTConfig(len(world.vocabulary), context_length=30, layers=2, heads=4, channels=CHANNELS),
        generator=generator,
    )

    def batches():
        while True:
            inputs, targets, real, answers = batch(world, 32, generator)
            yield inputs, targets, real if arm == "all tokens" else answers

    held_out = batch(world, cells.settings.documents, torch.Generator().manual_seed(2_000 + seed))
    history = fit(
        model,
        batches(),
        steps=steps,
        learning_rate=rate,
        schedule=lambda step: min(1.0, step / 30),
        weight_decay=0.01,
        validation=[(held_out[0], held_out[1], held_out[3])],
        every=EVERY,
        progress=False,
    )
    return history.validation


def floor_of_answers(cells, seed):
    """What a perfect reader pays for the answers of the same documents, nats."""
    world = small_world()
    generator = torch.Generator().manual_seed(2_000 + seed)
    nats = []
    for text in world.sample_texts(cells.settings.documents, generator=generator):
        asked = text.tolist().index(int(world.encode("?")[0]))
        nats.append(-float(world.token_log_probs(text)[asked + 1]))
    return statistics.fmean(nats)


def stories(cells):
    """The courses of both arms, with the rate chosen for each."""
    settings = cells.settings
    steps = {"all tokens": settings.all_tokens, "answers alone": settings.answers_alone}
    found = {"seeds": settings.seeds, "channels": CHANNELS, "trial": settings.trial, "arms": {}}
    found["floors"] = [cells(floor_of_answers, seed=seed) for seed in settings.seeds]
    pairs, shared = [*product(ARMS, RATES)], {"seed": CHOICE_SEED, "steps": settings.trial}
    tried = cells.all(course, ({"arm": arm, "rate": rate} | shared for arm, rate in pairs))
    # The mean over the course: early is better.
    means = [statistics.fmean(each.values()) for each in tried]
    trials = dict(zip(pairs, means, strict=True))
    rates = {arm: min(RATES, key=lambda rate, arm=arm: trials[arm, rate]) for arm in ARMS}
    for arm in ARMS:
        several = [
            {"arm": arm, "rate": rates[arm], "seed": seed, "steps": steps[arm]}
            for seed in settings.seeds
        ]
        found["arms"][arm] = {
            "rate": rates[arm],
            "trials": {rate: trials[arm, rate] for rate in RATES},
            "courses": cells.all(course, several),
        }
    return found


# ---- the record --------------------------------------------------------------------------------


def find(cells):
    return {"ways": ways(cells), "stories": stories(cells)}


def table(kept):
    found = kept["ways"]
    lines = [
        "Tasks written as text",
        f"Mean squared error on 16 new tasks, {EXAMPLES} examples of each (text: none); seeds"
        f" {found['seeds']}; saying 0 costs {statistics.fmean(found['zero']):.2f}.",
        "",
        "| way | training tasks | setting | error by seed |",
        "|:---|---:|---:|:---|",
    ]
    for way, each in found["ways"].items():
        for count, errors in each["by_count"].items():
            shown = " ".join(f"{e:.3f}" for e in errors)
            lines.append(f"| {way} | {count} | {each['setting']} | {shown} |")
    found = kept["stories"]
    lines += [
        "",
        f"Stories: loss on answers, nats, of which a perfect reader pays none; seeds"
        f" {found['seeds']}.",
        "",
        "| learns from | rate | first step below 0.2 | at the end |",
        "|:---|---:|:---|:---|",
    ]
    for arm, run in found["arms"].items():
        below = [
            str(next((step for step, loss in course.items() if loss < 0.2), "never"))
            for course in run["courses"]
        ]
        ends = " ".join(f"{[*course.values()][-1]:.3f}" for course in run["courses"])
        lines.append(f"| {arm} | {run['rate']} | {' '.join(below)} | {ends} |")
    return lines
