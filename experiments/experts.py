"""Are many feed-forward networks, of which each token uses few, worth it in a small GPT?

Small GPTs learn the micro-world, whose floor is known exactly. An arm is GPT-2's block, of which
the feed-forward network is one of several kinds: as it is; four of the same size, of which each
token uses one; eight of half the size, of which it uses two; one that is as wide as all of them
together. So all arms with experts have as many operations per token as the first, and as many
parameters as the last, but for the router. Their loads are balanced by a loss, by shifts, or not.
The networks are narrow, two thirds of the channels and not four times as many, so that parameters
are scarce: what more of them are worth, the last arm shows.

As in `switches`, the learning rate is tuned for each arm in runs of half the length with two seeds
of their own, in steps of a factor of two, until the best rate has a worse one on either side. Then
all arms see the same batches and the same test texts, seed by seed: differences are paired.
What is scored is a mean of the weights, and of the shifts, mostly of the last tenth of the steps.

At the end each model with experts reads texts of which the kind and the words are known. The record
keeps how much each label says about the expert that was chosen, what it would say if the same
choices were dealt at random, and what it says of the same model before it has learnt. It also keeps
how many tokens find no room, in batches like those of the training, if an expert takes only so
many, and what this costs.

An interrupt (Ctrl-C) ends it after the seeds that are complete; begun again, it goes on from there.
Twenty minutes of one core.
"""

import math
import statistics
import time
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch

from experiments.shared.arms import ADAMW, WARM_UP, around, read_at
from experiments.switches import BATCH, MODEL, texts_of
from src.attention.experts import Experts, balance_loss, loads, recorded_routings, route
from src.gpt.gpt2 import GPT, GPTConfig
from src.likelihood.batches import Batches
from src.likelihood.evaluation import corpus_perplexity
from src.likelihood.fitting import fit, mean_loss, nats_of_batch
from src.texts import microworld_words as words
from src.texts.microworld import MicroWorld
from src.tools.intervals import interval

HIDDEN = 2 * MODEL["channels"] // 3
OF_FOUR = {"experts": 4, "experts_used": 1, "hidden": HIDDEN}
OF_EIGHT = {"experts": 8, "experts_used": 2, "hidden": HIDDEN // 2}
LOSS, SHIFT = 0.01, 0.01  # what the balance loss is multiplied by; how far the shifts move
BASE, WIDE = "one network", "one of fourfold width"
ARMS = {  # settings, and what the balance loss is multiplied by
    BASE: ({"hidden": HIDDEN}, 0.0),
    WIDE: ({"hidden": 4 * HIDDEN}, 0.0),
    "1 of 4, nothing": (OF_FOUR, 0.0),
    "1 of 4, loss": (OF_FOUR, LOSS),
    "1 of 4, shifts": (OF_FOUR | {"experts_shift": SHIFT}, 0.0),
    "2 of 8, nothing": (OF_EIGHT, 0.0),
    "2 of 8, loss": (OF_EIGHT, LOSS),
    "2 of 8, shifts": (OF_EIGHT | {"experts_shift": SHIFT}, 0.0),
}
RATES = [0.005 * 2**k for k in range(-4, 5)]
FIRST = (5, 6)  # which of them are tried in any case
FACTORS = (1.0, 1.25, 1.5, 2.0)  # capacity, as a multiple of the mean load
CLASSES = {  # of the words of the micro-world
    "end": (words.END,),
    "mark": (".", "?", ":"),
    "person": words.PEOPLE,
    "place": words.PLACES,
    "object": words.OBJECTS,
    "kind of object": words.KINDS,
    "aspect": (*words.ASPECTS, *(each for several in words.ASPECTS.values() for each in several)),
    "adverb": words.ADVERBS,
    "adjective": (*words.PRAISE, *words.BLAME),
    "attribute": words.ATTRIBUTES,
    "country": words.COUNTRIES,
    "value": (*words.CAPITALS, *(each for several in words.VALUES.values() for each in several)),
    "act": words.ACTS,
    "zorb": tuple(words.ZORB.values()),
}
OTHER = "function word"


@dataclass(frozen=True)
class Settings:
    seeds: tuple = tuple(range(8))
    tuning: tuple = (100, 101)
    steps: int = 800
    every: int = 50
    texts: int = 20_000
    exam: int = 200
    read: int = 600  # texts with known labels
    batches: int = 40  # that meet a capacity
    rounds: int = 20  # of the clock


QUICK = Settings(seeds=(0, 1), steps=4, every=2, texts=200, exam=10, read=10, batches=2, rounds=2)


# ---- one run -----------------------------------------------------------------------------------


def config_of(arm):
    return GPTConfig(len(MicroWorld().vocabulary), **MODEL, **ARMS[arm][0])


def prepared(arm, seed):
    """An untrained model."""
    return GPT(config_of(arm), generator=torch.Generator().manual_seed(seed))


def fitted(settings, arm, seed, rate, half=False):
    """A mean of the weights of a model that was trained, its gaps and its loads on the way."""
    stream, exam, floor = texts_of(seed, settings)
    length, factor = MODEL["context_length"], ARMS[arm][1]
    model = prepared(arm, seed)
    routed = [each for each in model.modules() if isinstance(each, Experts)]
    scored = deepcopy(model).eval()
    shifts = [[part.shift for part in m.modules() if isinstance(part, Experts)]
              for m in (model, scored)]  # fmt: skip
    current, means = [*model.parameters(), *shifts[0]], [*scored.parameters(), *shifts[1]]
    found = {"steps": [], "gaps": [], "greatest": []}
    greatest, routings = [], {}
    for number, module in enumerate(routed):
        module.record = lambda routing, number=number: routings.__setitem__(number, routing)

    def nats_of(model, batch):
        nats = nats_of_batch(model, batch)
        if factor:
            nats = nats + factor * batch[1].numel() * sum(map(balance_loss, routings.values()))
        return nats

    def after(step, model):
        with torch.no_grad():  # the mean, in which step n counts as n^9
            torch._foreach_lerp_(means, current, min(1.0, 10 / (step + 9)))
        if step and routed:
            greatest.append([float(loads(each).max()) for each in routings.values()])
        if step and step % settings.every == 0:
            score = corpus_perplexity(scored, exam, context_length=length, batch_size=50)
            found["steps"].append(step)
            found["gaps"].append(score.loss - floor)
            if routed:  # of the busiest expert, a mean over the batches and each layer
                found["greatest"].append(np.mean(greatest, 0).tolist())
                greatest.clear()

    fit(
        model,
        Batches(stream, batch_size=BATCH, context_length=length, seed=seed),
        steps=settings.steps // 2 if half else settings.steps,
        learning_rate=rate,
        schedule=lambda step: min(1.0, step / WARM_UP),
        optimiser=ADAMW,
        nats_of=nats_of,
        after=after,
        progress=False,
    )
    return scored, found


def trained(cells, arm, seed, rate, half):
    """Nats per token above the floor on the way, and what its experts do; or half of it, alone."""
    model, found = fitted(cells.settings, arm, seed, rate, half)
    if not half and config_of(arm).experts:
        untrained = prepared(arm, seed).eval()
        found |= {
            "learnt": learnt(cells.settings, model, seed),
            "untrained": learnt(cells.settings, untrained, seed),
            "capacity": with_capacity(cells.settings, model, seed),
        }
    return found


# ---- what the experts have learnt --------------------------------------------------------------


def entropy(*columns):
    """The entropy, in nats, of how often each combination of labels occurs."""
    joint = columns[0]
    for column in columns[1:]:
        joint = joint * (column.max() + 1) + column
    counts = np.bincount(joint)
    counts = counts[counts > 0]
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def information(experts, label, *given):
    """What a label says about the expert, in nats, to somebody who knows the given ones."""
    known = entropy(*given) if given else 0.0
    both = entropy(label, *given, experts)
    return entropy(experts, *given) - known - (both - entropy(label, *given))


def dealt(experts, given, rng):
    """The same experts, dealt again at random; or only among those tokens that share a label."""
    result = experts.copy()
    for label in np.unique(given):
        among = np.flatnonzero(given == label)
        result[among] = experts[rng.permutation(among)]
    return result


def texts_with_labels(settings, seed):
    """Texts behind end tokens, and of each token that a model reads {name: number}.

    Labels: the word, its class, the word before, the class of the word that is to be predicted, the
    kind of the document, and the mood of a review; -1 where there is none.
    """
    world = MicroWorld()
    ids = {word: number for number, word in enumerate(world.vocabulary)}
    names = [*CLASSES, OTHER]
    of_word = {word: names.index(name) for name, several in CLASSES.items() for word in several}
    kinds = ("story", "review", "facts", "translation")
    texts, labels = [], {"word": [], "class": [], "before": [], "next": [], "kind": [], "mood": []}
    for each in world.sample(settings.read, generator=torch.Generator().manual_seed(3_000 + seed)):
        whole = (words.END, *each.words)
        read = whole[:-1][: MODEL["context_length"]]
        texts.append(torch.tensor([ids[word] for word in read]))
        labels["word"] += [ids[word] for word in read]
        classes = [of_word.get(word, names.index(OTHER)) for word in whole]
        labels["class"] += classes[: len(read)]
        labels["next"] += classes[1 : len(read) + 1]
        labels["before"] += [0, *(ids[word] for word in read[:-1])]
        # the end token before a document knows nothing of it
        labels["kind"] += [-1, *[kinds.index(each.hidden[0])] * (len(read) - 1)]
        mood = ("praise", "blame").index(each.hidden[1]) if len(each.hidden) > 1 else -1
        labels["mood"] += [-1, *[mood] * (len(read) - 1)]
    return texts, {name: np.array(several) for name, several in labels.items()}


@torch.no_grad()
def learnt(settings, model, seed):
    """Of each layer what the labels say about the chosen expert, in nats, and the shares."""
    texts, labels = texts_with_labels(settings, seed)
    chosen = {}
    for text in texts:
        with recorded_routings(model) as routings:
            model(text[None])
        for name, routing in routings.items():
            chosen.setdefault(name, []).append(routing.chosen)
    rng = np.random.default_rng(seed)
    kept = []
    for parts in chosen.values():
        experts = torch.cat(parts).numpy()  # (N, K)
        used = experts.shape[1]
        experts, of_each = experts.flatten(), {k: v.repeat(used) for k, v in labels.items()}
        found = {"entropy": entropy(experts)}
        for name in ("word", "class", "before", "next", "kind", "mood"):
            counts = of_each[name] >= 0
            for given in ([], ["word"]):
                if name in ("word", "class") and given:
                    continue
                here = experts[counts]
                others = [of_each[each][counts] for each in given]
                again = dealt(here, others[0] if given else np.zeros(len(here)), rng)
                key = " given ".join([name, *given])
                found[key] = information(here, of_each[name][counts], *others)
                found[f"{key}, dealt"] = information(again, of_each[name][counts], *others)
        shape = (len(CLASSES) + 1, experts.max() + 1)
        table = np.zeros(shape, int)
        np.add.at(table, (of_each["class"], experts), 1)
        kept.append(found | {"tokens": table.tolist()})
    return kept


# ---- capacity ----------------------------------------------------------------------------------


def cap(module, factor):
    """Let each expert take the first so many tokens of a batch; the others it leaves alone."""
    dropped = []

    def forward(x):
        tokens = x.flatten(0, -2)
        routing = route(module.router(tokens), module.used, shift=module.shift)
        room = math.ceil(factor * routing.chosen.numel() / len(module.experts))
        result = torch.zeros_like(tokens)
        for number, expert in enumerate(module.experts):
            token, place = (routing.chosen == number).nonzero(as_tuple=True)
            dropped.append(max(0, len(token) - room) / routing.chosen.numel())
            token, place = token[:room], place[:room]
            part = routing.weights[token, place, None] * expert(tokens[token])
            result = result.index_add(0, token, part)
        return result.view_as(x)

    module.forward = forward
    return dropped


@torch.no_grad()
def with_capacity(settings, model, seed):
    """Of each factor the share of choices that find no room, in each layer, and the nats more."""
    texts, _ = texts_with_labels(settings, seed)
    data = Batches(
        torch.cat(texts), batch_size=BATCH, context_length=MODEL["context_length"], seed=seed
    )
    several = [data[number] for number in range(settings.batches)]
    free, found = mean_loss(model, several), {}
    for factor in FACTORS:
        capped = deepcopy(model)
        parts = [cap(m, factor) for m in capped.modules() if isinstance(m, Experts)]
        more = mean_loss(capped, several) - free
        dropped = [sum(each) / len(several) for each in parts]
        found[f"{factor:g}"] = {"dropped": dropped, "nats_more": more}
    return found


# ---- rates and seconds -------------------------------------------------------------------------


def tried(cells, arm, number):
    """The mean gap with one of the rates, over the seeds of the tuning."""
    runs = [
        {"arm": arm, "seed": seed, "rate": RATES[number], "half": True}
        for seed in cells.settings.tuning
    ]
    return statistics.fmean(each["gaps"][-1] for each in cells.all(trained, runs))


def tuned(cells, arm):
    """{rate: mean gap}: the best of them has a neighbour on either side, or ends the list."""
    found = {number: tried(cells, arm, number) for number in FIRST}
    while True:
        best = min(found, key=found.get)
        wider = {best - 1, best + 1} & set(range(len(RATES))) - set(found)
        if not wider:
            return {RATES[number]: found[number] for number in sorted(found)}
        found |= {number: tried(cells, arm, number) for number in sorted(wider)}


def seconds(cells):
    """{arm: seconds of a step}, the median of many rounds in which all arms take their turns."""
    stream, _, _ = texts_of(0, cells.settings)
    data = Batches(stream, batch_size=BATCH, context_length=MODEL["context_length"], seed=0)
    models, found = {arm: prepared(arm, 0) for arm in ARMS}, {arm: [] for arm in ARMS}
    for number in range(cells.settings.rounds + 1):
        for arm, model in models.items():
            batches = [data[4 * number + step] for step in range(4)]
            begun = time.process_time()
            fit(model, batches, steps=4, learning_rate=1e-3, optimiser=ADAMW, progress=False)
            if number:  # the first round warms up
                found[arm].append((time.process_time() - begun) / 4)
    return {arm: statistics.median(each) for arm, each in found.items()}


# ---- the record --------------------------------------------------------------------------------


def complete(cells, rates):
    """The seeds of which all arms have run."""
    done = []
    try:
        for seed in cells.settings.seeds:
            for arm, rate in rates.items():
                cells(trained, arm=arm, seed=seed, rate=rate, half=False)
            done.append(seed)
    except KeyboardInterrupt:
        if len(done) < 2:
            raise
    return done


def find(cells):
    rates = {arm: tuned(cells, arm) for arm in ARMS}
    best = {arm: min(found, key=found.get) for arm, found in rates.items()}
    cells(seconds)
    seeds = complete(cells, best)
    for arm in ARMS:  # again, if there was an interrupt: what was taken is counted
        tuned(cells, arm)
    clock, found = cells(seconds), {}
    for arm in ARMS:
        runs = [cells(trained, arm=arm, seed=seed, rate=best[arm], half=False) for seed in seeds]
        config = config_of(arm)
        found[arm] = {
            "experts": config.experts,
            "used": config.experts_used if config.experts else None,
            "hidden": config.width,
            "balance_loss": ARMS[arm][1],
            "shift": config.experts_shift,
            "rate": best[arm],
            "tried": [[rate, gap] for rate, gap in rates[arm].items()],
            "parameters": config.parameters,
            "used_parameters": config.used_parameters,
            "operations_per_token": config.flops_per_token(),
            "seconds_per_step": clock[arm],
            "steps": runs[0]["steps"],
            **{key: [run[key] for run in runs] for key in runs[0] if key != "steps"},
        }
    return {
        "model": MODEL,
        "base": BASE,
        "wide": WIDE,
        "batch": BATCH,
        "seeds": seeds,
        "tuning_seeds": cells.settings.tuning,
        "classes": [*CLASSES, OTHER],
        "arms": found,
    }


def ends_of(arm, step=None):
    """The gap of each seed, at the end or after so many steps."""
    if step is None:
        return [gaps[-1] for gaps in arm["gaps"]]
    return [read_at({"steps": arm["steps"], "scores": gaps}, step) for gaps in arm["gaps"]]


def minus(one, other):
    return [a - b for a, b in zip(one, other, strict=True)]


def table(kept):
    arms = kept["arms"]
    base, wide = arms[kept["base"]], arms[kept["wide"]]
    share = base["operations_per_token"] / wide["operations_per_token"]
    lines = [
        "Experts: many feed-forward networks, of which each token uses few, on the micro-world",
        "Nats per token above the floor, and minus one network and one of fourfold width, paired "
        f"over {len(kept['seeds'])} seeds (95 %). The busiest expert's load is a multiple of the "
        "mean load, in the last batches of the training; layer by layer.",
        "",
        "| feed-forward | rate | parameters | operations a token | ms a step | above the floor | "
        "minus one network | minus fourfold width | busiest |",
        "|:---|---:|---:|---:|---:|---:|:---|:---|:---|",
    ]
    for name, arm in arms.items():
        ends = ends_of(arm)
        against = ["" if arm is one else around(minus(ends, ends_of(one))) for one in (base, wide)]
        busiest = [
            f"{arm['experts'] * statistics.fmean(layer):.2f}"
            for layer in zip(*(seed[-1] for seed in arm["greatest"] if seed), strict=True)
        ]
        lines.append(
            f"| {name} | {arm['rate']:g} | {arm['parameters']:,} | "
            f"{arm['operations_per_token']:,} | {1_000 * arm['seconds_per_step']:.1f} | "
            f"{statistics.fmean(ends):.4f} | {against[0]} | {against[1]} | {', '.join(busiest)} |"
        )
    early = minus(ends_of(wide, share * wide["steps"][-1]), ends_of(base))
    lines += [
        "",
        f"After {share:.0%} of its steps, with as many operations in all as one network: "
        f"{kept['wide']} minus one network {around(early)}.",
        "",
        "| experts | layer | entropy of the choice | said by the word | untrained | dealt | "
        "said by the kind of document, if the word is known | untrained | dealt |",
        "|:---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, arm in arms.items():
        for layer in range(kept["model"]["layers"] if arm["experts"] else 0):

            def mean(key, when="learnt", arm=arm, layer=layer):
                return f"{interval([seed[layer][key] for seed in arm[when]]).mean:.3f}"

            cells = [mean("entropy")]
            for key in ("word", "kind given word"):
                cells += [mean(key), mean(key, "untrained"), mean(f"{key}, dealt")]
            lines.append(f"| {name} | {layer + 1} | {' | '.join(cells)} |")
    titles = [f"dropped at {float(each):g} | nats more" for each in FACTORS]
    lines += [
        "",
        f"| experts, capacity | {' | '.join(titles)} |",
        "|:---|" + "---:|---:|" * len(FACTORS),
    ]
    for name, arm in arms.items():
        if arm["experts"]:
            cells = []
            for factor in (f"{each:g}" for each in FACTORS):
                each = [seed[factor] for seed in arm["capacity"]]
                dropped = np.mean([seed["dropped"] for seed in each])
                cells += [f"{dropped:.1%}", f"{np.mean([s['nats_more'] for s in each]):+.4f}"]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    tuning = [
        f"| {name} | {', '.join(f'{rate:g}: {gap:.4f}' for rate, gap in arm['tried'])} |"
        for name, arm in arms.items()
    ]
    return [
        *lines,
        "",
        "| feed-forward | rates tried: above the floor after half the steps, two other seeds |",
        "|:---|:---|",
        *tuning,
    ]
