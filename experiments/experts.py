"""Why do all tokens choose one expert at the start, what balances them, and what have they learnt?

Small GPTs with 16 experts, of which each token uses one, learn the micro-world, and each step keeps
two numbers: the effective number of experts, and the share of the common vector in what the router
reads, |mean x|^2 / mean |x|^2 over the tokens of the batch. The arms differ in one thing: nobody
balances; the experts or the router are frozen; the mean is taken out of what the router reads; the
balance loss, or shifts. At the end each is scored on new texts. All arms see the same batches, seed
by seed.

Then models of two layers with four experts, balanced by shifts, learn for longer and read texts of
which the kind and the words are known. The record keeps how much each label says about the expert
that was chosen, and what it would say if the same choices were shuffled (dealt at random): for the
trained model, for one whose router keeps its first random numbers while the rest learns in the same
way, and for the model before the training. Two and a half minutes of one core.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from experiments.shared.arms import around
from src.attention.experts import balance_loss, loads, recorded_routings
from src.gpt.gpt2 import GPT, GPTConfig
from src.likelihood.batches import Batches
from src.likelihood.fitting import fit, mean_loss, nats_of_batch
from src.texts.microworld import MicroWorld

MODEL = {"context_length": 64, "layers": 1, "heads": 4, "channels": 32}
MODEL |= {"hidden": 32, "experts": 16, "experts_used": 1}
LEARNT = {"context_length": 64, "layers": 2, "heads": 4, "channels": 48}
LEARNT |= {"hidden": 32, "experts": 4, "experts_used": 1, "experts_shift": 0.01}
BASE = "as it is"
ARMS = (  # a loss is multiplied by 0.05, shifts move by 0.01
    *(BASE, "experts frozen", "router frozen"),
    *("mean taken out", "balance loss", "shifts"),
)
ASKED = {  # a label, and what is known already
    "word": (),
    "before": ("word",),
    "kind": ("word",),
    "kind, two words": ("word", "before"),
}


@dataclass(frozen=True)
class Settings:
    seeds: tuple = tuple(range(5))
    rate: float = 0.01  # after ten steps of warm-up
    steps: int = 150
    longer: int = 300  # of the models that are asked what they have learnt
    texts: int = 6_000
    exam: int = 300  # other texts, of which so many batches are scored
    scored: int = 20
    read: int = 250  # texts with known labels


QUICK = Settings(seeds=(0, 1), steps=4, longer=4, texts=300, scored=2, read=10)


@lru_cache
def stream_of(texts, seed):
    """Texts of the micro-world, each behind an end token."""
    drawn = torch.Generator().manual_seed(seed)
    texts = MicroWorld().sample_texts(texts, generator=drawn)
    return torch.cat([torch.zeros(1, dtype=torch.long), *texts])


def batches(settings, seed):
    return Batches(stream_of(settings.texts, 100), batch_size=8, context_length=64, seed=seed)


def untrained(sizes, seed):
    config = GPTConfig(len(MicroWorld().vocabulary), **sizes)
    return GPT(config, generator=torch.Generator().manual_seed(seed))


# ---- the common vector -------------------------------------------------------------------------


def curves(cells, arm, seed):
    """The share of the common vector, and the effective number of experts, in each step."""
    settings, shares, effective, read = cells.settings, [], [], {}
    model = untrained(MODEL | {"experts_shift": 0.01 * (arm == "shifts")}, seed)
    frozen = {"experts frozen": ".experts.", "router frozen": "router"}.get(arm)
    for name, weights in model.named_parameters():
        weights.requires_grad_(frozen is None or frozen not in name)

    def reads(module, inputs):
        read["x"] = inputs[0].detach()
        return (inputs[0] - read["x"].mean(0),) if arm == "mean taken out" else None

    def after(step, model):
        if step:
            x, (routing,) = read["x"], routings.values()
            f = loads(routing).double()
            shares.append(float(x.mean(0).square().sum() / x.square().sum(1).mean()))
            effective.append(math.exp(-float(torch.xlogy(f, f).sum())))

    def nats_of(model, batch):
        nats = nats_of_batch(model, batch)
        if arm == "balance loss":
            nats = nats + 0.05 * batch[1].numel() * sum(map(balance_loss, routings.values()))
        return nats

    model.decoder.blocks[0].feed_forward.router.register_forward_pre_hook(reads)
    with recorded_routings(model) as routings:
        fit(
            model,
            batches(settings, seed),
            steps=settings.steps,
            learning_rate=settings.rate,
            schedule=lambda step: min(1.0, step / 10),
            nats_of=nats_of,
            after=after,
            progress=False,
        )
    exam = Batches(stream_of(settings.exam, 101), batch_size=8, context_length=64, seed=0)
    nats = mean_loss(model, [exam[number] for number in range(settings.scored)])
    return {"share": shares, "effective": effective, "nats": nats}


# ---- what the experts have learnt --------------------------------------------------------------


def entropy(*columns):
    """The entropy, in nats, of how often each combination of labels occurs."""
    _, counts = np.unique(np.stack(columns), axis=1, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def information(experts, label, known):
    """What a label says about the expert, in nats, to somebody who knows these columns."""
    open_now = entropy(experts, *known) - (entropy(*known) if known else 0.0)
    return open_now - (entropy(experts, label, *known) - entropy(label, *known))


def dealt(experts, known, rng):
    """The same experts, dealt again at random among those tokens that agree in what is known."""
    result = experts.copy()
    rows = np.stack([np.zeros_like(experts), *known])
    _, groups = np.unique(rows, axis=1, return_inverse=True)
    for group in range(groups.max() + 1):
        among = np.flatnonzero(groups == group)
        result[among] = experts[rng.permutation(among)]
    return result


def texts_with_labels(settings, seed):
    """Texts behind end tokens, and of each token that a model reads {name: number}; -1 is none."""
    world = MicroWorld()
    texts, labels = [], {"word": [], "before": [], "kind": []}
    for each in world.sample(settings.read, generator=torch.Generator().manual_seed(3_000 + seed)):
        ids = [0, *world.encode(each.words).tolist()][:-1][: LEARNT["context_length"]]
        texts.append(torch.tensor(ids))
        labels["word"] += ids
        labels["before"] += [0, *ids[:-1]]
        # the end token before a document knows nothing of it
        kind = ("story", "review", "facts", "translation").index(each.hidden[0])
        labels["kind"] += [-1, *[kind] * (len(ids) - 1)]
    return texts, {name: np.array(several) for name, several in labels.items()}


@torch.no_grad()
def asked(settings, model, seed):
    """Of each layer what the labels say about the chosen expert, in nats."""
    texts, labels = texts_with_labels(settings, seed)
    chosen = {}
    for text in texts:
        with recorded_routings(model) as routings:
            model(text[None])
        for name, routing in routings.items():
            chosen.setdefault(name, []).append(routing.chosen[:, 0])
    rng, kept = np.random.default_rng(seed), []
    for parts in chosen.values():
        experts = torch.cat(parts).numpy()
        found = {"entropy": entropy(experts)}
        for name, known in ASKED.items():
            label = labels[name.split(",")[0]]
            counts = label >= 0
            here, others = experts[counts], [labels[each][counts] for each in known]
            found[name] = information(here, label[counts], others)
            again = dealt(here, others, rng)
            found[f"{name}, dealt"] = information(again, label[counts], others)
        kept.append(found)
    return kept


def learnt(cells, seed):
    """What the choices depend on: learnt, with a router that stays random, and untrained."""
    settings = cells.settings
    found = {"untrained": asked(settings, untrained(LEARNT, seed).eval(), seed)}
    for arm in ("router frozen", "learnt"):
        model = untrained(LEARNT, seed)
        for name, weights in model.named_parameters():
            weights.requires_grad_(arm == "learnt" or "router" not in name)
        fit(
            model.train(),
            batches(settings, seed),
            steps=settings.longer,
            learning_rate=settings.rate,
            schedule=lambda step: min(1.0, step / 10),
            progress=False,
        )
        found[arm] = asked(settings, model.eval(), seed)
    return found


# ---- the record --------------------------------------------------------------------------------


def find(cells):
    seeds = cells.settings.seeds
    arms = {}
    for arm in ARMS:
        runs = cells.all(curves, [{"arm": arm, "seed": seed} for seed in seeds])
        arms[arm] = {key: [run[key] for run in runs] for key in runs[0]}
    read = cells.all(learnt, [{"seed": seed} for seed in seeds])
    return {
        "seeds": seeds,
        "model": MODEL,
        "arms": arms,
        "of_labels": LEARNT,
        **{when: [each[when] for each in read] for when in read[0]},
    }


def table(kept):
    base, steps = kept["arms"][BASE], len(kept["arms"][BASE]["share"][0])
    shown = [step for step in (1, 10, 15, 20, 30, 50, 100, 150) if step <= steps]
    lines = [
        "Experts: the common vector, the loads, and what the choice of an expert depends on",
        f"Means over {len(kept['seeds'])} seeds (95 %). Effective number of 16 experts, then the "
        "share of the common vector in what the router reads, after so many steps; nats per token "
        "on new texts at the end.",
        "",
        f"| arm | {' | '.join(map(str, shown))} | nats | minus {BASE} |",
        "|:---|" + "---:|" * (len(shown) + 2),
    ]
    for name, arm in kept["arms"].items():
        for key, form in (("effective", ".1f"), ("share", ".2f")):
            means = np.mean(arm[key], 0)
            cells = [format(means[step - 1], form) for step in shown]
            ends = ["", ""]
            if key == "effective":
                off = np.array(arm["nats"]) - base["nats"]
                ends = [f"{np.mean(arm['nats']):.4f}", around(off) if off.any() else ""]
            lines.append(f"| {name}, {key} | {' | '.join(cells + ends)} |")
    lines += [
        "",
        "Nats that a label says about the expert (shuffled); the word is known, or two words.",
        "",
    ]
    lines += [f"| layer, model | entropy | {' | '.join(ASKED)} |", "|:---|" + "---:|" * 5]
    for layer in range(kept["of_labels"]["layers"]):
        for when in ("learnt", "router frozen", "untrained"):
            means = {
                key: np.mean([seed[layer][key] for seed in kept[when]]) for key in kept[when][0][0]
            }
            cells = [f"{means[key]:.3f} ({means[f'{key}, dealt']:.3f})" for key in ASKED]
            lines.append(f"| {layer + 1}, {when} | {means['entropy']:.3f} | {' | '.join(cells)} |")
    return lines
