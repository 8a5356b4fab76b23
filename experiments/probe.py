"""Does a GPT hold what a perfect reader would know? A probe of its state, word by word.

A review of the micro-world hides its mood. What can be known of it after each word is exact, the
posterior p(mood | words so far), and a model at the floor must predict as if it had computed that.
Here the released models of results/gpt1 are looked at, and the same runs before their first step
and after 100 and 600 of their steps: the recipe is followed again so far, and the losses are
compared with those that were recorded. At each depth (embeddings, after block 1, after block 2)
logistic regression learns to read the mood off the state at each word. It learns from moods, and
never sees the posterior.

    known      of a reader: ln 2 minus its mean cross-entropy, in nats per word; the mean is over
               the words of reviews drawn anew, and over the mood given the words, exactly
    share      what a probe knows, over what the exact posterior knows
    untrained  the same network before its first step, with probes of its own
    words      the same regression on the words so far, without a network: each word's share of
               them ("shares"), or how often each one stands there ("counts"). With counts it can be
               exact: each adjective moves the log-odds by the same amount
    used       the state is moved along the difference of the two moods' means, until the probe
               reads the opposite; does the next adjective change sides? Control: a random direction
               of the same length
"""

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy
from torch.optim import AdamW
from torch.special import entr

from experiments.shared.tables import percent, with_results
from next_token.run_config import RunConfig
from next_token.runs import batches_of
from src.gpt.gpt2 import GPT
from src.gpt.optimisation import cosine, parameter_groups
from src.gpt.released import open_run, read_toml, world_of
from src.likelihood.fitting import fit
from src.texts.microworld_words import BLAME, END, PRAISE

RELEASED = Path(__file__).parents[1] / "results" / "gpt1"
RECIPE = read_toml(RELEASED / "recipe.toml")
WORLD = world_of(RECIPE)
REVIEWS = WORLD.only("reviews")
EXAMPLE = "this film was superb . the plot was very dull . i found the music boring ."
PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
SURE = 0.9  # what a mood's probability exceeds where its use is measured


@dataclass(frozen=True)
class Settings:
    seeds: tuple = (0, 1, 2)
    steps: tuple = (100, 600)  # before the end
    learning: int = 2_000  # reviews from which a probe learns
    validation: int = 400
    test: int = 1_000


QUICK = Settings(seeds=(0, 1), steps=(2, 4), learning=60, validation=20, test=30)


# ---- reviews, and what can be known of them -----------------------------------------------------


def drawn(seed):
    return torch.Generator().manual_seed(seed)


def judged(words):
    """A review without its close: what it says before it ends, or asks."""
    return words[: next(i for i, word in enumerate(words) if word in ("is", END))]


@cache
def reviews(count, seed):
    """Reviews drawn anew: their words, and for each whether it praises."""
    sample = REVIEWS.sample(count, generator=drawn(seed))
    return [judged(each.words) for each in sample], [each.hidden[1] == "praise" for each in sample]


@cache
def known_after(words):
    """p(praise | words), exactly."""
    ways = {way.hidden[1]: math.exp(way.log_prob) for way in REVIEWS.derivations(words)}
    return ways.get("praise", 0.0) / sum(ways.values())


def posteriors(texts):
    """p(praise | words so far) after each word of some texts, one text after the other, (N,)."""
    beginnings = (words[: count + 1] for words in texts for count in range(len(words)))
    return torch.tensor([known_after(each) for each in beginnings], dtype=torch.float64)


def as_ids(texts, seed):
    """A seed's ids behind an end token, padded with it, (B, T + 1); and where words are."""
    tokenizer, end = released(seed).tokenizer, released(seed).end
    ids = torch.full((len(texts), 1 + max(map(len, texts))), end)
    for row, words in zip(ids, texts, strict=True):
        row[1 : 1 + len(words)] = torch.tensor(tokenizer.encode(" ".join(words)))
    return ids, ids != end


# ---- models --------------------------------------------------------------------------------------


@cache
def released(seed):
    return open_run(RELEASED / f"seed-{seed}")


def begun(cells, seed):
    """How the run of a released model began: {steps: its weights}, and how far its losses are off.

    The recipe as in `next_token.runs.train_run`, and the schedule of all its steps.
    """
    config = RunConfig.from_tables(RECIPE, {"data": {"seed": seed}})
    rates, tokenizer = config.training, released(seed).tokenizer
    batches, _ = batches_of(config, tokenizer, config.parts())
    model = GPT(config.gpt(tokenizer.vocabulary_size), generator=drawn(seed))
    kept = {}

    def after(step, model):
        if step in (0, *cells.settings.steps):
            kept[str(step)] = {name: value.clone() for name, value in model.state_dict().items()}

    def adamw(_, *, lr, weight_decay):
        groups = parameter_groups(model, weight_decay=weight_decay)
        return AdamW(groups, lr=lr, betas=(rates.beta1, rates.beta2), eps=rates.eps, fused=True)

    history = fit(
        model,
        batches,
        steps=max(cells.settings.steps),
        learning_rate=rates.learning_rate,
        schedule=cosine(rates.steps, warm_up=rates.warm_up, end=rates.end),
        weight_decay=rates.weight_decay,
        clip=rates.clip,
        optimiser=adamw,
        after=after,
        progress=False,
    )
    record = json.loads((RELEASED / "result.json").read_text(encoding="utf-8"))
    recorded = next(each for each in record["checkpoints"] if each["seed"] == seed)
    pairs = zip(history.losses, recorded["first_losses"], strict=False)
    return {"weights": kept, "off": max(abs(one - other) for one, other in pairs)}


def model_of(cells, seed, steps):
    """The model of a seed after so many steps; None: as it was released."""
    if steps is None:
        return released(seed).model
    model = GPT(released(seed).model.config, generator=drawn(seed))
    model.load_state_dict(cells(begun, seed=seed)["weights"][str(steps)])
    return model.eval()


# ---- what a probe reads --------------------------------------------------------------------------


@torch.no_grad()
def states(model, seed, texts):
    """The state at each word of some texts, a tensor (N, C) for each depth."""
    ids, real = as_ids(texts, seed)
    return [each[real] for each in model.hidden_states(ids)]


def counts(texts):
    """How often each word of the language stood in a text so far, at each word, (N, V)."""
    rows = [torch.eye(len(WORLD.vocabulary))[WORLD.encode(words)].cumsum(0) for words in texts]
    return torch.cat(rows)


def shares(texts):
    """Each word's share of the words so far, (N, V)."""
    numbers = counts(texts)
    return numbers / numbers.sum(1, keepdim=True)


# ---- probes --------------------------------------------------------------------------------------


def of_words(texts, moods):
    """What is true of each text, at each of its words."""
    return torch.tensor([mood for words, mood in zip(texts, moods, strict=True) for _ in words])


def fitted(inputs, moods, penalty):
    """(weights, bias) of logistic regression, for inputs (N, F) as they are."""
    mean, std = inputs.mean(0), inputs.std(0) + 1e-5
    scaled, moods = (inputs - mean) / std, moods.float()
    weights = torch.zeros(inputs.shape[1], requires_grad=True)
    bias = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights, bias], max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = cross_entropy(scaled @ weights + bias, moods) + penalty * weights.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    weights = weights.detach() / std
    return weights, bias.detach() - mean @ weights


def probe_of(settings, features):
    """The (weights, bias) of the penalty with the least loss on other texts, and that penalty.

    Args:
        features: maps texts to (N, F).
    """
    texts, moods = reviews(settings.learning, 10_001)
    inputs, labels = features(texts), of_words(texts, moods)
    texts, moods = reviews(settings.validation, 10_002)
    others, theirs = features(texts), of_words(texts, moods).float()
    found = {}
    for penalty in PENALTIES:
        weights, bias = fitted(inputs, labels, penalty)
        found[float(cross_entropy(others @ weights + bias, theirs))] = penalty, weights, bias
    return found[min(found)]


def known(logits, exact):
    """What a reader knows of the mood, in nats per word: its logits, and what is true, (N,)."""
    return math.log(2) - float(cross_entropy(logits.double(), exact))


def most(exact):
    """What the exact posterior itself knows, in nats per word."""
    return math.log(2) - float((entr(exact) + entr(1 - exact)).mean())


def read(settings, features):
    """What the probe of some features knows of test reviews, and what it reads in the example."""
    texts, _ = reviews(settings.test, 10_003)
    penalty, weights, bias = probe_of(settings, features)
    exact = posteriors(texts)
    there = features([tuple(EXAMPLE.split())]) @ weights + bias
    nats = known(features(texts) @ weights + bias, exact)
    about = {"penalty": penalty, "nats": nats, "share": nats / most(exact)}
    return about | {"example": there.sigmoid().tolist()}


def of_network(cells, seed, steps, depth):
    model = model_of(cells, seed, steps)
    return read(cells.settings, lambda texts: states(model, seed, texts)[depth])


def of_words_so_far(cells, how):
    return read(cells.settings, {"counts": counts, "shares": shares}[how])


# ---- is it used? ---------------------------------------------------------------------------------


@torch.no_grad()
def used(cells, seed, depth):
    """How much of the next adjective is of the side that the words so far make likely.

    As it is; when the state after a block says the opposite; and when it is moved as far elsewhere.
    """
    settings, model = cells.settings, released(seed).model
    encode = released(seed).tokenizer.encode
    texts, moods = reviews(settings.learning, 10_001)
    there, labels = states(model, seed, texts)[depth], of_words(texts, moods)
    with torch.enable_grad():
        _, weights, bias = probe_of(settings, lambda texts: states(model, seed, texts)[depth])
    between = there[labels].mean(0) - there[~labels].mean(0)
    random = torch.randn(len(between), generator=drawn(seed))
    texts, _ = reviews(settings.test, 10_003)
    ids, real = as_ids(texts, seed)
    before = model.hidden_states(ids)[depth]
    reads = before @ weights + bias
    reach = (-2 * reads / (between @ weights))[..., None] * real[..., None]
    exact = posteriors(texts)
    following = [word for words in texts for word in (*words[1:], ".")]
    next_is = torch.tensor([word in (*PRAISE, *BLAME) for word in following])
    measured = next_is & (torch.maximum(exact, 1 - exact) > SURE)
    ways = {
        "untouched": before,
        "turned": before + reach * between,
        "elsewhere": before + reach * random * between.norm() / random.norm(),
    }
    found = {}
    for name, x in ways.items():
        for block in model.decoder.blocks[depth:]:
            x = block(x, causal=True)
        probs = model.unembed(model.decoder.final_norm(x))[real].softmax(-1)
        praise, blame = (probs[:, encode(" ".join(side))].sum(1) for side in (PRAISE, BLAME))
        likely = torch.where(exact > 0.5, praise, blame) / (praise + blame)
        found[name] = float(likely[measured].mean())
    return found | {"words": int(measured.sum())}


# ---- the record ----------------------------------------------------------------------------------


def find(cells):
    settings, depths = cells.settings, range(RECIPE["model"]["layers"] + 1)
    runs = [{"seed": seed} for seed in settings.seeds]
    of_runs = cells.all(begun, runs)
    networks = [
        {"steps": steps, "depth": depth, "seed": seed}
        for steps in (0, *settings.steps, None)
        for depth in depths
        for seed in settings.seeds
    ]
    uses = [{"depth": depth, "seed": seed} for depth in depths[1:] for seed in settings.seeds]
    texts, _ = reviews(settings.test, 10_003)
    exact = posteriors(texts)
    return {
        "exact": {
            "nats": most(exact),
            "words": len(exact),
            "reviews": len(texts),
            "example": posteriors([tuple(EXAMPLE.split())]).tolist(),
        },
        "example": EXAMPLE,
        "off": max(each["off"] for each in of_runs),
        "networks": with_results(networks, cells.all(of_network, networks)),
        "words": {how: cells(of_words_so_far, how=how) for how in ("shares", "counts")},
        "used": with_results(uses, cells.all(used, uses)),
    }


def table(kept):
    exact, depths = kept["exact"], sorted({each["depth"] for each in kept["networks"]})
    names = ["embeddings", *(f"after block {depth}" for depth in depths[1:])]
    lines = [
        "Does a GPT hold what a perfect reader would know of a review's mood?",
        f"The exact posterior knows {exact['nats']:.3f} nats per word, over {exact['words']:,}"
        f" words of {exact['reviews']:,} reviews. What a linear probe finds of it, %: means of the"
        " seeds, with 95 % intervals.",
        "",
        "| steps | " + " | ".join(names) + " |",
        "|---:|" + "---:|" * len(names),
    ]
    for steps in dict.fromkeys(each["steps"] for each in kept["networks"]):
        cells = [
            percent(
                [
                    each["share"]
                    for each in kept["networks"]
                    if (each["steps"], each["depth"]) == (steps, depth)
                ]
            )
            for depth in depths
        ]
        name = {0: "never trained", None: "released"}.get(steps, steps)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    of_words = ", ".join(f"{how} {100 * each['share']:.1f}" for how, each in kept["words"].items())
    lines += [
        "",
        f"Without a network, from the words so far, %: {of_words}.",
        "",
        "Of the next adjective, where the words so far make one side likelier than"
        f" {100 * SURE:.0f} %, so much is of that side, %; and when the state is moved:",
        "",
        "| after block | as it is | until the probe reads the opposite | as far, elsewhere |",
        "|---:|---:|---:|---:|",
    ]
    for depth in depths[1:]:
        there = [each for each in kept["used"] if each["depth"] == depth]
        cells = [percent([e[way] for e in there]) for way in ("untouched", "turned", "elsewhere")]
        lines.append(f"| {depth} | " + " | ".join(cells) + " |")
    return lines
