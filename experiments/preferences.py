"""How well are requests answered, and how near does a tuned policy come to the exact optimum?

For each of the three released models:

    instructions   tuned on requests put in 1, 2, 3 or 5 ways; with ordinary text mixed in; with the
                   loss on the requests as well. Asked in forms of the tuning, in forms never tuned
                   on, and scored on ordinary text
    policies       the tuned model answers one request, what was the film; REINFORCE, PPO and DPO at
                   three prices of KL, each against the exact optimum over all 864 opinions and
                   everything else
    rewards        a reward model from so many comparisons, against the judge's own reward

The learning rates are chosen with other draws, of seed 0: of the tuning by its loss on other
requests of the same forms, of the policies by their aim J at one price.

About ten minutes of one core.
"""

import random
import statistics
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch

from src.gpt.optimisation import linear_decay
from src.gpt.preferences import (
    AnswerPolicy,
    RewardModel,
    aim,
    answer_batch,
    answers_of,
    dpo_nats,
    draw_comparisons,
    policy_nats,
    preference_nats,
    rollouts,
    tilted,
)
from src.gpt.released import open_run
from src.gpt.sampling import generate, temperature
from src.likelihood.evaluation import corpus_perplexity
from src.likelihood.fitting import fit, mean_loss
from src.likelihood.surprise import kl_divergence
from src.texts.requests import FORMS, KINDS, WAYS, Form, liking, opinions, requests

FOLDER = Path(__file__).parents[1] / "results" / "gpt1"

# One pairing of each kind with a way is left out of the tuning, and so is the last way.
LEFT_OUT = {Form(kind, WAYS[way]) for kind, way in zip(KINDS, (1, 3, 2, 1, 4, 4), strict=True)}
ARMS = {"1 way": 1, "2 ways": 2, "3 ways": 3, "5 ways": 5, "with text": 5, "whole loss": 5}
RATES = (5e-4, 1e-3, 2e-3)
BATCH = 32

REQUEST, TOPIC = "what was the film ?", "film"
ELSE = -3.0  # what the judge thinks of anything that is no opinion
BETAS = (1.0, 0.5, 0.25)
METHODS = ("REINFORCE", "PPO", "DPO")
ANSWERS = 64  # in a batch
POLICY_RATES = {"REINFORCE": (1e-3, 2e-3), "PPO": (1e-3, 2e-3), "DPO": (2.5e-4, 5e-4, 1e-3, 2e-3)}
# Rates are chosen at one price. DPO at the lowest one with others, and with four times the steps.
OTHERS = ((1.25e-4, 1), (2.5e-4, 1), (1e-3, 1), (5e-4, 4))  # (rate, times as many steps)
COMPARISONS = (100, 1_000, 10_000)


@dataclass(frozen=True)
class Settings:
    """Steps of the tuning, of the policies, of the reward models."""

    seeds: tuple = (0, 1, 2)
    pairs: int = 2_400  # to tune on
    validated: int = 400
    steps: int = 200
    asked: int = 50  # of each form
    texts: int = 200  # documents for the loss, and texts begun from nothing
    policy_steps: int = 150
    reward_steps: int = 200


QUICK = Settings(
    seeds=(0,),
    pairs=96,
    validated=64,
    steps=2,
    asked=2,
    texts=5,
    policy_steps=2,
    reward_steps=2,
)


@cache
def opened(seed):
    return open_run(FOLDER / f"seed-{seed}")


# ---- instructions ----------------------------------------------------------------------------


def forms_of(ways):
    return [form for form in FORMS if form.way in WAYS[:ways] and form not in LEFT_OUT]


def encoded(run, pair):
    request, answer = map(run.tokenizer.encode, pair)
    return [run.end, *request], [*answer, run.end]


def batches_of(run, forms, count, *, seed, text=False, whole=False):
    """Batches of requests with their answers, as many of each form; perhaps with ordinary text."""
    generator, world = torch.Generator().manual_seed(seed), run.world
    each = -(-count // len(forms))
    pairs = [p for form in forms for p in requests(world, form, each, generator=generator)]
    random.Random(seed).shuffle(pairs)
    rows = [encoded(run, pair) for pair in pairs]
    ordinary = documents(run, len(rows), generator) if text else []
    made = []
    for start in range(0, len(rows) - BATCH + 1, BATCH):
        stop = start + BATCH
        more = [(ids[:1], ids[1:]) for ids in ordinary[start // 2 : stop // 2]]
        inputs, targets, mask = answer_batch([*rows[start:stop], *more])
        if whole:  # all up to the last token of the answer
            mask = mask.flip(1).cumsum(1).flip(1) > 0
        made.append((inputs, targets, mask))
    return made


def documents(run, count, generator):
    drawn = run.world.sample(count, generator=generator)
    return [[run.end, *run.tokenizer.encode(" ".join(d.words[:-1])), run.end] for d in drawn]


def instructed(run, batches, *, rate, steps, seed):
    model = deepcopy(run.model)
    torch.manual_seed(seed)
    fit(
        model,
        batches,
        steps=steps,
        learning_rate=rate,
        schedule=linear_decay(steps),
        weight_decay=0.01,
        progress=False,
    )
    return model.eval()


@cache
def questions(seed, asked):
    """The requests that are only asked, of every form with one right answer."""
    generator, run = torch.Generator().manual_seed(7_000), opened(seed)
    world = run.world
    pairs = [
        (form, encoded(run, pair))
        for form in FORMS
        if form.kind != "opinion"
        for pair in requests(world, form, asked, generator=generator)
    ]
    return sorted(pairs, key=lambda each: len(each[1][0]))


def accuracies(model, seed, asked):
    """{form: share of exactly right answers}, written greedily."""
    right, end, all_pairs = {}, opened(seed).end, questions(seed, asked)
    for start in range(0, len(all_pairs), 250):
        part = all_pairs[start : start + 250]
        texts = generate(
            model,
            [request for _, (request, _) in part],
            max_new_tokens=5,
            stop=end,
            filters=[partial(temperature, t=0)],
            generator=torch.Generator().manual_seed(0),
        )
        for (form, (request, answer)), text in zip(part, texts, strict=True):
            right.setdefault(form, []).append(text.tolist() == request + answer)
    return {form: statistics.fmean(each) for form, each in right.items()}


def summary(right, forms):
    """Mean accuracies: the language's own forms, those tuned on, new pairings, the new way."""
    known = {form.way for form in forms}
    groups = {
        "own": [form for form in right if form.own],
        "tuned": [form for form in right if form in forms],
        "pairing": [f for f in right if f in LEFT_OUT and f.way in known],
        "way": [form for form in right if form.way == WAYS[-1]],
    }
    return {
        name: statistics.fmean(right[form] for form in members) if members else None
        for name, members in groups.items()
    }


def text_loss(settings, model, seed):
    """Nats per token on documents that nobody trained on."""
    texts = documents(opened(seed), settings.texts, torch.Generator().manual_seed(8_000))
    context, texts = model.config.context_length, [torch.tensor(ids) for ids in texts]
    return corpus_perplexity(model, texts, context_length=context, batch_size=50).loss


def own_accord(model, seed, count):
    """The share of texts, begun from nothing, that begin as requests do and no document does."""
    run = opened(seed)
    texts = generate(
        model,
        [[run.end]] * count,
        max_new_tokens=24,
        stop=run.end,
        generator=torch.Generator().manual_seed(9_000),
    )
    words = [run.tokenizer.decode(text[1:].tolist()).split() for text in texts]
    asks = [
        {"then", "they", "i", "what"} & set(each[:1]) or "say it" in " ".join(each)
        for each in words
    ]
    return statistics.fmean(map(bool, asks))


def trial(cells, rate):
    """The loss on other requests of a model that is tuned with a rate."""
    settings, forms, run = cells.settings, forms_of(5), opened(0)
    training = batches_of(run, forms, settings.pairs, seed=500)
    model = instructed(run, training, rate=rate, steps=settings.steps, seed=500)
    return mean_loss(model, batches_of(run, forms, settings.validated, seed=501))


def rate_of(cells):
    """The learning rate of the tuning, and the validation losses that chose it."""
    losses = cells.all(trial, [{"rate": rate} for rate in RATES])
    trials = [{"rate": rate, "loss": loss} for rate, loss in zip(RATES, losses, strict=True)]
    return min(trials, key=lambda trial: trial["loss"])["rate"], trials


def weights(cells, arm, seed):
    """The weights of the model of an arm, tuned."""
    settings, ways, run = cells.settings, ARMS[arm], opened(seed)
    options = {"text": arm == "with text", "whole": arm == "whole loss"}
    batches = batches_of(run, forms_of(ways), settings.pairs, seed=600 + seed, **options)
    rate, _ = rate_of(cells)
    return instructed(run, batches, rate=rate, steps=settings.steps, seed=seed).state_dict()


def model_of(cells, arm, seed):
    """The model of an arm; "5 ways" is what the policies begin from."""
    model = deepcopy(opened(seed).model)
    if arm != "base":
        model.load_state_dict(cells(weights, arm=arm, seed=seed))
    return model.eval()


def arm_of(cells, arm, seed):
    """What an arm can do."""
    settings, model = cells.settings, model_of(cells, arm, seed)
    right = accuracies(model, seed, settings.asked)
    return (
        {"arm": arm, "seed": seed, "text": text_loss(settings, model, seed)}
        | summary(right, forms_of(ARMS.get(arm, 5)))
        | {"own_accord": own_accord(model, seed, settings.texts)}
    )


def floor_of(settings, seed):
    """That of the documents of `text_loss`."""
    run = opened(seed)
    drawn = documents(run, settings.texts, torch.Generator().manual_seed(8_000))
    words = [[*run.tokenizer.decode(ids[1:-1]).split(), "<end>"] for ids in drawn]
    return run.world.floor_of(words).loss


def instructions(cells):
    settings = cells.settings
    rate, trials = rate_of(cells)
    arms = [{"arm": arm, "seed": seed} for seed in settings.seeds for arm in ("base", *ARMS)]
    return {
        "trials": trials,
        "rate": rate,
        "steps": settings.steps,
        "pairs": settings.pairs,
        "asked": settings.asked,
        "floor": [floor_of(settings, seed) for seed in settings.seeds],
        "arms": cells.all(arm_of, arms),
    }


# ---- policies --------------------------------------------------------------------------------


class Instance:
    """One request to one tuned model: all its answers, and what the judge thinks of them."""

    def __init__(self, seed, model):
        run = opened(seed)
        self.run, self.model = run, model
        texts = opinions(TOPIC)
        self.ids = [[*run.tokenizer.encode(text), run.end] for text in texts]
        self.base = self.policy(model)
        self.answers = self.base.batch(self.ids)
        self.rewards = torch.tensor([*map(liking, texts), ELSE], dtype=torch.float64)
        self.known = dict(zip(map(tuple, self.ids), self.rewards.tolist(), strict=False))
        self.log_probs = self.of(self.base)

    def policy(self, model):
        request = [self.run.end, *self.run.tokenizer.encode(REQUEST)]
        return AnswerPolicy(model, request, end=self.run.end, longest=8)

    @torch.no_grad()
    def of(self, policy):
        """The log-probabilities of all opinions, and of everything else together: (K + 1,)."""
        opinions = policy(*self.answers).double()
        rest = (1 - opinions.exp().sum()).clamp(min=1e-12).log()
        whole = torch.cat([opinions, rest[None]])
        return whole - whole.logsumexp(0)

    def reward_of(self, *answers):
        return torch.tensor([self.known.get(tuple(ids), ELSE) for ids in answers_of(answers)])

    def comparisons(self, beta, count, generator):
        """Batches of comparisons without end, drawn from the base model."""
        listed = self.log_probs[:-1]
        while True:
            first, second, preferred = draw_comparisons(
                listed, self.rewards[:-1], count, generator=generator
            )
            one, two = (tuple(part[i] for part in self.answers) for i in (first, second))
            yield (one, two, listed[first].float(), listed[second].float()), preferred

    def found(self, policy, beta):
        """Where a policy stands, by sums over all answers."""
        log_probs, best = self.of(policy), tilted(self.log_probs, self.rewards, beta=beta)
        return {
            "reward": float((log_probs.exp() * self.rewards).sum()),
            "kl": float(kl_divergence(log_probs.exp(), self.log_probs.exp())),
            "to_optimum": float(kl_divergence(log_probs.exp(), best.exp())),
            "from_start": float(kl_divergence(self.log_probs.exp(), best.exp())),
            "aim": float(aim(log_probs, self.log_probs, self.rewards, beta=beta)),
            "optimum": float(aim(best, self.log_probs, self.rewards, beta=beta)),
            "else": float(log_probs[-1].exp()),
        }


def tuned(instance, method, beta, *, rate, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    policy = instance.policy(deepcopy(instance.model))
    if method == "DPO":
        data, nats_of = instance.comparisons(beta, ANSWERS, generator), partial(dpo_nats, beta=beta)
    else:
        clip = 0.2 if method == "PPO" else None
        data = rollouts(
            policy,
            instance.base,
            instance.reward_of,
            beta=beta,
            count=ANSWERS,
            repeats=4 if method == "PPO" else 1,
            generator=generator,
        )
        nats_of = partial(policy_nats, clip=clip)
    fit(
        policy,
        data,
        steps=steps,
        learning_rate=rate,
        schedule=linear_decay(steps),
        nats_of=nats_of,
        progress=False,
    )
    return policy.eval()


@cache
def instance_of(cells, seed):
    return Instance(seed, model_of(cells, "5 ways", seed))


def policy_trial(cells, method, rate):
    instance = instance_of(cells, 0)
    policy = tuned(instance, method, 0.5, rate=rate, steps=cells.settings.policy_steps, seed=100)
    return {"method": method, "rate": rate} | instance.found(policy, 0.5)


def policy_rate(cells, method):
    """The learning rate of a method, and what the rates came to that were tried."""
    several = [{"method": method, "rate": rate} for rate in POLICY_RATES[method]]
    trials = cells.all(policy_trial, several)
    return max(trials, key=lambda each: each["aim"])["rate"], trials


def point_of(cells, method, seed, beta, rate=None, longer=1):
    """Where a method comes to at a price, with a rate of its own or the one that was chosen."""
    steps = longer * cells.settings.policy_steps
    instance = instance_of(cells, seed)
    rate = policy_rate(cells, method)[0] if rate is None else rate
    policy = tuned(instance, method, beta, rate=rate, steps=steps, seed=seed)
    about = {"method": method, "seed": seed, "beta": beta, "rate": rate, "steps": steps}
    return about | instance.found(policy, beta)


def frontier_of(cells, seed):
    """The exact optima of one model at many prices."""
    instance = instance_of(cells, seed)
    base = instance.log_probs.exp()
    best = [
        tilted(instance.log_probs, instance.rewards, beta=0.08 * 1.25**k).exp() for k in range(24)
    ]
    return {
        "seed": seed,
        "kl": [float(kl_divergence(probs, base)) for probs in best],
        "reward": [float(probs @ instance.rewards) for probs in best],
        "base": float(base @ instance.rewards),
        "else": float(base[-1]),
    }


def policies(cells):
    seeds, steps = cells.settings.seeds, cells.settings.policy_steps
    chosen = {method: policy_rate(cells, method) for method in METHODS}
    points = [
        {"method": method, "seed": seed, "beta": beta}
        for seed in seeds
        for beta in BETAS
        for method in METHODS
    ]
    others = [
        {"method": "DPO", "seed": seed, "beta": BETAS[-1], "rate": rate, "longer": longer}
        for seed in seeds
        for rate, longer in OTHERS
    ]
    return {
        "request": REQUEST,
        "else": ELSE,
        "answers": ANSWERS,
        "steps": dict.fromkeys(METHODS, steps),
        "rates": {method: rate for method, (rate, _) in chosen.items()},
        "trials": [trial for _, trials in chosen.values() for trial in trials],
        "points": cells.all(point_of, points),
        "others": cells.all(point_of, others),
        "frontiers": cells.all(frontier_of, [{"seed": seed} for seed in seeds]),
    }


# ---- reward models ---------------------------------------------------------------------------


def error_of(cells, seed, count):
    """How far a GPT's reward is from the judge's, up to a constant, on the base's own answers."""
    instance = instance_of(cells, seed)
    listed, truth = instance.log_probs[:-1], instance.rewards[:-1]
    probs = listed.softmax(0)
    generator = torch.Generator().manual_seed(1_000 + seed)
    drawn = draw_comparisons(listed, truth, count, generator=generator)
    model = RewardModel(instance.model, generator=generator)

    def data():
        while True:
            rows = torch.randint(count, (ANSWERS,), generator=generator)
            first, second, preferred = (part[rows] for part in drawn)
            one, two = (tuple(p[i] for p in instance.answers) for i in (first, second))
            yield (one, two), preferred

    steps = cells.settings.reward_steps
    fit(
        model,
        data(),
        steps=steps,
        learning_rate=1e-3,
        schedule=linear_decay(steps),
        nats_of=preference_nats,
        progress=False,
    )
    with torch.no_grad():
        off = model.eval()(*instance.answers).double() - truth
    off = off - (probs * off).sum()
    error = float((probs * off.square()).sum().sqrt())
    return {"seed": seed, "comparisons": count, "error": error}


def find(cells):
    seeds = cells.settings.seeds
    compared = [{"seed": seed, "count": count} for seed in seeds for count in COMPARISONS]
    return {
        "seeds": seeds,
        "instructions": instructions(cells),
        "policies": policies(cells),
        "rewards": cells.all(error_of, compared),
    }


# ---- the record ------------------------------------------------------------------------------


def spread(values):
    values = [value for value in values if value is not None]
    if not values:
        return "–"
    return f"{statistics.fmean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def table(kept):
    told, played = kept["instructions"], kept["policies"]
    lines = [
        "Instructions and preferences, with the miniature GPT-1",
        f"Three pre-trained models; means, and least to greatest. Tuned for {told['steps']} steps "
        f"on {told['pairs']:,} requests. Exact answers in forms of the language itself, of the "
        "tuning, of new pairings and of a new way; nats per token on ordinary text (floor "
        f"{statistics.fmean(told['floor']):.3f}).",
        "",
        "| | own | tuned on | new pairing | new way | ordinary text |",
        "|:---|---:|---:|---:|---:|---:|",
    ]
    for arm in ("base", *ARMS):
        rows = [each for each in told["arms"] if each["arm"] == arm]
        shown = [spread([row[k] for row in rows]) for k in ("own", "tuned", "pairing", "way")]
        lines.append(f"| {arm} | {' | '.join(shown)} | {spread([r['text'] for r in rows])} |")
    lines += [
        "",
        f"One request, `{played['request']}`: nats of KL to the exact optimum, and the share of "
        "answers that are no opinion.",
        "",
        "| | price | KL to the optimum | of the base | reward | KL from the base | else |",
        "|:---|---:|---:|---:|---:|---:|---:|",
    ]
    for method in METHODS:
        for beta in BETAS:
            rows = [p for p in played["points"] if p["method"] == method and p["beta"] == beta]
            names = ("to_optimum", "from_start", "reward", "kl", "else")
            shown = [spread([row[name] for row in rows]) for name in names]
            lines.append(f"| {method} | {beta} | {' | '.join(shown)} |")
    lines += [
        "",
        f"Rates were chosen at the price 0.5, with the first model, and used at all prices. DPO at"
        f" the price {BETAS[-1]} with others, and in more steps:",
        "",
        "| rate | steps | KL to the optimum |",
        "|---:|---:|---:|",
    ]
    for rate, steps in dict.fromkeys((row["rate"], row["steps"]) for row in played["others"]):
        cells = [r for r in played["others"] if (r["rate"], r["steps"]) == (rate, steps)]
        off = [row["to_optimum"] for row in cells]
        lines.append(f"| {rate:g} | {steps} | {spread(off)} |")
    lines += ["", "| comparisons | error of the reward model |", "|---:|---:|"]
    for count in COMPARISONS:
        errors = [e["error"] for e in kept["rewards"] if e["comparisons"] == count]
        lines.append(f"| {count:,} | {spread(errors)} |")
    return lines
