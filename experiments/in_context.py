"""What does a small model learn from a list of examples, and what did it have to be trained on?

Models of two layers of attention are trained on texts of `RandomMaps`, whose maps come from a pool
of 1, 8, 64 or 512, or are new in every text; five seeds each, and once more with a smaller learning
rate. Nothing is trained afterwards: the rest are questions put to them. Parts:

    pools      accuracy and nats against the number of examples, wrong labels, orders of examples,
               distance from the two perfect readers, scores of the heads
    repeats    one layer and two on repeated sequences: loss and scores on the way, ablations

A quarter of an hour of one core.
"""

import math
import statistics
import time
from dataclasses import dataclass
from itertools import permutations

import torch
from torch.nn import functional

from src.attention.heads import recorded_weights
from src.gpt.in_context import AttentionOnly, ablated, induction_score, previous_token_score
from src.gpt.optimisation import cosine
from src.likelihood.fitting import fit
from src.likelihood.surprise import kl_divergence
from src.texts.maps import RandomMaps, random_maps
from src.texts.microworld_words import OBJECTS, ZORB

POOLS = (1, 8, 64, 512, None)
PAIRS, NOISE = 24, 0.05
MODEL = {"layers": 2, "heads": 2, "channels": 64, "rotary": True}
BATCH, RATE, SMALL_RATE = 32, 0.01, 0.003
EXAMPLES, WRONG = (0, 1, 2, 4, 8), (0, 2, 4, 6, 8)
ASKED, ORDERED = 400, 100

SYMBOLS, LENGTH, PERIODS = 32, 48, (8, 23)  # of repeated sequences
EVERY = 50
REPEAT_MODEL = {"heads": 4, "channels": 64, "rotary": True}


@dataclass(frozen=True)
class Settings:
    seeds: tuple = (0, 1, 2, 3, 4)
    steps: int = 800
    repeat_steps: int = 600


QUICK = Settings(seeds=(0,), steps=4, repeat_steps=4)


# ---- maps --------------------------------------------------------------------------------------


def source_of(pool, seed):
    """Texts about the objects of the micro-world; map 0 of a pool is the invented tongue itself."""
    maps = None
    if pool is not None:
        maps = torch.arange(len(OBJECTS))[None]
    if pool is not None and pool > 1:
        sizes = {"inputs": len(OBJECTS), "outputs": len(OBJECTS)}
        others = random_maps(
            pool - 1, **sizes, generator=torch.Generator().manual_seed(1_000 + seed)
        )
        maps = torch.cat([maps, others])
    outputs = [ZORB[word] for word in OBJECTS]
    return RandomMaps(OBJECTS, outputs, pairs=PAIRS, maps=maps, noise=NOISE)


def texts(source, generator, size=BATCH):
    """Only outputs are targets: of what comes after an output there is nothing to be learnt."""
    asked = (torch.arange(2 * PAIRS + 1) % 2 == 1).expand(size, -1)
    while True:
        ids = source.sample(size, generator=generator)
        yield ids[:, :-1], ids[:, 1:], asked


def trained(source, seed, rate, steps):
    generator = torch.Generator().manual_seed(seed)
    model = AttentionOnly(
        len(source.vocabulary), context_length=2 * PAIRS + 1, **MODEL, generator=generator
    )
    schedule = cosine(steps, warm_up=min(50, steps // 2))
    options = {"steps": steps, "learning_rate": rate, "schedule": schedule, "progress": False}
    history = fit(model, texts(source, generator), **options)
    return model.eval(), history


def questions(source, examples, *, among, generator, count=ASKED):
    """Inputs (count, k + 1) and their right outputs: k different examples, and the query last.

    The query is one of the examples, or none of them. Labels are right, whatever the noise.
    """
    maps = source.draw_maps(count, generator=generator)
    inputs = torch.rand(maps.shape, generator=generator).argsort(1)[:, : examples + 1]
    if among:
        chosen = torch.randint(examples, (count, 1), generator=generator)
        inputs[:, -1:] = inputs.gather(1, chosen)
    return inputs, maps.gather(1, inputs)


def model_answers(model, source, inputs, outputs):
    """The log-probabilities of the query's output, (B, Y)."""
    with torch.no_grad():
        logits = model(source.write(inputs, outputs[:, :-1]))[:, -1]
    return logits[:, -len(source.outputs) :].double().log_softmax(-1)


def judged(log_probs, right):
    """Accuracy, nats."""
    nats = -log_probs.gather(-1, right[:, None]).mean()
    return [float((log_probs.argmax(-1) == right).double().mean()), float(nats)]


def asked(model, own, new, seed):
    """{which maps, which query: {who: a row of [accuracy, nats] for each number of examples}}."""
    found = {}
    for maps, source in (("own", own), ("new", new)):
        for query in ("new", "among"):
            rows = {"model": [], "pool": [], "fresh": []}
            for examples in EXAMPLES:
                if query == "among" and not examples:
                    continue
                generator = torch.Generator().manual_seed(10_000 + 100 * seed + examples)
                among = query == "among"
                inputs, outputs = questions(source, examples, among=among, generator=generator)
                right = outputs[:, -1]
                rows["model"].append(judged(model_answers(model, own, inputs, outputs), right))
                for name, reader in (("pool", own), ("fresh", new)):
                    rows[name].append(judged(reader.predict(inputs, outputs)[:, -1], right))
            found[f"{maps} maps, {query} query"] = rows
    return found


def wrong_labels(model, own, new, seed):
    """With 8 examples, some of their labels wrong: accuracy by the true map, and by the label."""
    found = {}
    for maps, source, among in (("own", own, False), ("own", own, True), ("new", new, True)):
        rows = {"model": [], "pool": [], "fresh": [], "model follows": [], "pool follows": []}
        for wrong in WRONG:
            generator = torch.Generator().manual_seed(20_000 + 100 * seed + wrong)
            inputs, outputs = questions(source, 8, among=among, generator=generator)
            shift = torch.randint(1, len(source.outputs), (len(inputs), 8), generator=generator)
            which = torch.rand(len(inputs), 8, generator=generator).argsort(1) < wrong
            shown = (outputs[:, :-1] + shift * which) % len(source.outputs)
            labels = torch.cat([shown, outputs[:, -1:]], 1)
            told = (shown * (inputs[:, :-1] == inputs[:, -1:])).sum(1)  # the query's own label
            said = {"model": model_answers(model, own, inputs, labels)}
            for name, reader in (("pool", own), ("fresh", new)):
                said[name] = reader.predict(inputs, labels)[:, -1]
            for name, log_probs in said.items():
                rows[name].append(judged(log_probs, outputs[:, -1])[0])
                if among and name != "fresh":
                    rows[f"{name} follows"].append(judged(log_probs, told)[0])
        found[f"{maps} maps, {'among' if among else 'new'} query"] = rows
    return found


def orders(model, own, source, seed, *, among, examples=4):
    """The same examples in all 24 orders: is the answer right in none, in some, in all of them?"""
    generator = torch.Generator().manual_seed(30_000 + seed)
    inputs, outputs = questions(source, examples, among=among, generator=generator, count=ORDERED)
    right, nats = [], []
    for order in permutations(range(examples)):
        columns = [*order, examples]
        log_probs = model_answers(model, own, inputs[:, columns], outputs[:, columns])
        right.append(log_probs.argmax(-1) == outputs[:, -1])
        nats.append(-log_probs.gather(-1, outputs[:, -1:])[:, 0])
    right, nats = torch.stack(right).double(), torch.stack(nats)  # (orders, ORDERED)
    return {
        "mean": float(right.mean()),
        "best": float(right.amax(0).mean()),
        "worst": float(right.amin(0).mean()),
        "by order": right.mean(1).tolist(),
        "nats": float(nats.mean()),
        "spread": float(nats.std(0).mean()),
    }


def read(model, own, new, seed):
    """Nats a label on own texts, and KL from each of the perfect readers, on own and new texts."""
    found = {}
    for maps, source in (("own", own), ("new", new)):
        generator = torch.Generator().manual_seed(40_000 + seed)
        inputs, outputs = source.draw(ASKED, generator=generator)
        with torch.no_grad():
            logits = model(source.write(inputs, outputs)[:, :-1])[:, 1::2]
        said = logits[..., -len(source.outputs) :].double().log_softmax(-1)
        found[maps] = {"model": float(-said.gather(-1, outputs[..., None]).mean())}
        for name, reader in (("pool", own), ("fresh", new)):
            exact = reader.predict(inputs, outputs)
            found[maps][name] = float(-exact.gather(-1, outputs[..., None]).mean())
            found[maps][f"KL from {name}"] = float(kl_divergence(exact.exp(), said.exp()).mean())
    return found


def scores(model, source, seed):
    """By layer: previous-token and induction scores of each head, where an input stands."""
    generator = torch.Generator().manual_seed(50_000 + seed)
    ids = source.sample(200, generator=generator)[:, :-1]
    inputs = torch.zeros_like(ids, dtype=torch.bool)
    inputs[:, 1::2] = True
    with torch.no_grad(), recorded_weights(model) as maps:
        model(ids)
    return [
        {
            "previous": previous_token_score(weights).tolist(),
            "induction": induction_score(weights, ids, where=inputs).tolist(),
        }
        for weights in maps.values()
    ]


def of_pool(cells, pool, seed, rate):
    own, new = source_of(pool, seed), source_of(None, seed)
    begun = time.process_time()
    model, history = trained(own, seed, rate, cells.settings.steps)
    seconds = time.process_time() - begun
    ordered = {
        "own maps, new query": orders(model, own, own, seed, among=False),
        "new maps, among query": orders(model, own, new, seed, among=True),
    }
    every = 25
    pieces = [history.losses[i : i + every] for i in range(0, len(history.losses), every)]
    return {
        "pool": pool,
        "seed": seed,
        "rate": rate,
        "training": [round(statistics.fmean(piece), 4) for piece in pieces],
        "asked": asked(model, own, new, seed),
        "wrong": wrong_labels(model, own, new, seed),
        "orders": ordered,
        "read": read(model, own, new, seed),
        "scores": scores(model, new, seed),
        "train_seconds": round(seconds, 1),
    }


# ---- repeated sequences ------------------------------------------------------------------------


def repeats(size, generator, periods=PERIODS):
    """A random sequence again and again, an end token in front, (B, T + 1); what can be looked up.

    Each text has a period of its own, so that no fixed distance leads back to the copy. The first
    token of the first copy cannot be looked up: that a copy begins is not known before.
    """
    low, high = periods
    period = torch.randint(low, high + 1, (size, 1), generator=generator)
    once = torch.randint(1, SYMBOLS, (size, high), generator=generator)
    places = torch.arange(LENGTH).expand(size, LENGTH)
    ids = functional.pad(once.gather(1, places % period), (1, 0))
    return ids, places > period


def repeat_batches(generator, size=BATCH):
    while True:
        ids, _ = repeats(size, generator)
        yield ids[:, :-1], ids[:, 1:]


def measured(model, seed):
    """Nats a token of the first occurrence and of the later ones; the scores of all heads."""
    ids, repeated = repeats(200, torch.Generator().manual_seed(60_000 + seed))
    with torch.no_grad(), recorded_weights(model) as maps:
        log_probs = model(ids[:, :-1]).log_softmax(-1)
    nats = -log_probs.gather(-1, ids[:, 1:, None])[..., 0]
    return {
        "first": float(nats[~repeated].mean()),
        "repeat": float(nats[repeated].mean()),
        "previous": [previous_token_score(weights).tolist() for weights in maps.values()],
        "induction": [induction_score(w, ids[:, :-1]).tolist() for w in maps.values()],
    }


def without(model, seed):
    """The loss of repeats with each head taken out, and with each layer's heads."""
    found, heads = [], range(REPEAT_MODEL["heads"])
    for layer in range(len(model.layers)):
        for which in ([head] for head in heads), [list(heads)]:
            for gone in which:
                row = {"layer": layer, "heads": gone}
                for by in ("zero", "mean"):
                    with ablated(model, {f"layers.{layer}": gone}, by=by):
                        row[by] = measured(model, seed)["repeat"]
                found.append(row)
    return found


def of_repeats(cells, layers, seed):
    generator = torch.Generator().manual_seed(seed)
    model = AttentionOnly(
        SYMBOLS, context_length=LENGTH, layers=layers, **REPEAT_MODEL, generator=generator
    )
    steps, seen = cells.settings.repeat_steps, []

    def look(step, model):
        if step % EVERY == 0 or step == steps:
            seen.append({"step": step} | measured(model, seed))

    begun = time.process_time()
    schedule = cosine(steps, warm_up=min(50, steps // 2))
    options = {"steps": steps, "learning_rate": RATE, "schedule": schedule, "progress": False}
    fit(model, repeat_batches(generator), after=look, **options)
    seconds = time.process_time() - begun
    return {
        "layers": layers,
        "seed": seed,
        "seen": seen,
        "without": without(model, seed),
        "train_seconds": round(seconds, 1),
    }


# ---- all of it ---------------------------------------------------------------------------------


def find(cells):
    settings = cells.settings
    rates = [(pool, RATE) for pool in POOLS] + [(None, SMALL_RATE)]
    pools = [
        {"pool": pool, "seed": seed, "rate": rate}
        for seed in settings.seeds
        for pool, rate in rates
    ]
    layers = [{"layers": layers, "seed": seed} for seed in settings.seeds for layers in (1, 2)]
    about = {
        "seeds": settings.seeds,
        "pools_tried": POOLS,
        "examples": EXAMPLES,
        "wrong": WRONG,
        "asked": ASKED,
        "ordered": ORDERED,
        "pairs": PAIRS,
        "noise": NOISE,
        "steps": settings.steps,
        "repeat_steps": settings.repeat_steps,
        "chance": math.log(SYMBOLS - 1),
    }
    found = {"repeats": cells.all(of_repeats, layers), "pools": cells.all(of_pool, pools)}
    return rounded(about | found)


def table(kept):
    lines = [
        "What a small model learns from a list of examples",
        "With 8 examples, accuracy by seed (%): a new input under a map of the model's own pool, "
        "and an input among the examples under a map that it never saw.",
        "",
        "| pool | rate | own map, new input | new map, input among the examples |",
        "|---:|---:|:---|:---|",
    ]
    groups = {}
    for each in kept["pools"]:
        groups.setdefault((each["pool"], each["rate"]), []).append(each["asked"])
    for (pool, rate), seeds in groups.items():
        columns = [
            " ".join(f"{100 * one[kind]['model'][-1][0]:.0f}" for one in seeds)
            for kind in ("own maps, new query", "new maps, among query")
        ]
        lines.append(f"| {pool or 'new each time'} | {rate} | {columns[0]} | {columns[1]} |")
    lines += ["", "| layers | seed | nats a repeated token |", "|---:|---:|---:|"]
    for each in kept["repeats"]:
        lines.append(f"| {each['layers']} | {each['seed']} | {each['seen'][-1]['repeat']:.3f} |")
    return lines


def rounded(value):
    """Four digits after the point are more than five seeds can tell apart."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, (list, tuple)) else value
