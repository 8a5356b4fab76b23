"""Decoder, encoder, encoder-decoder: what does each learn from the same text at equal compute?

Four models are trained with three seeds each, on the text of results/gpt1/recipe.toml:

    decoder            next token, left to right
    reversed           the same on the text backwards
    encoder            masked tokens, 15 %, 80/10/10
    encoder-decoder    spans, 15 %, mean length 3

All have two layers of 64 channels (the encoder-decoder two and two) and see as many multiplications
as the decoder in STEPS steps. Of two learning rates each takes that of the better validation loss
after a short run. Then

    hidden       the loss of each word of held-out documents given its left context, its right, and
                 both, beside the exact posterior of the language (left, both)
    orders       two hidden neighbours, filled in in both orders: a joint would give one number
    closed book  facts asked for without a text that holds them, nothing fine-tuned
    tasks        one task of each family, fine-tuned from few labels

    python benchmarks/both_sides.py CACHE [--part PART …] [--quick]
                          twenty minutes of one core; goes on with what is in CACHE

Writes results/both_sides.json and .md once all parts are there.
"""

import argparse
import json
import math
import os
import statistics
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from rounds import RESULTS, machine, record

from src import tasks
from src.encoders import EncoderDecoderLM, EncoderLM
from src.finetuning import FinetuneConfig, accuracy, finetune
from src.gpt import GPT
from src.likelihood import token_log_probs
from src.microworld import ATTRIBUTES, COUNTRIES, unasked
from src.objectives import Hidden, masked_batch, span_batch
from src.runs import RunConfig, open_run, read_toml, stream_of
from src.tokenization import END, WordTokenizer
from src.training import Batches, train

COMMAND = "python benchmarks/both_sides.py CACHE"
KINDS = ("decoder", "reversed", "encoder", "encoder-decoder")
SEEDS, RATES = (0, 1, 2), (3e-3, 6e-3)
STEPS, PILOT = 2_000, 400
DOCUMENTS, PAIRS = 120, 400  # for hidden words, for orders
TUNED = ("decoder", "encoder", "encoder-decoder")
TASKS = {  # name: labels, steps, batch size
    "sentiment": (16, 80, 32),
    "entailment": (1_024, 200, 32),
    "same polarity": (64, 100, 32),
    "answers": (256, 150, 16),
}
BUILDERS = {"same polarity": tasks.same_polarity}
TUNING_RATES = (1e-3, 3e-3)
TRAIN, VALIDATION, TEST = 1_024, 200, 500
SPANS = 3  # of 64 tokens, 15 % hidden, mean length 3


# ---- text and models --------------------------------------------------------------------------


@cache
def recipe(seed=0):
    tables = {"data": {"seed": seed}}
    return RunConfig.from_tables(read_toml(RESULTS / "gpt1" / "recipe.toml"), tables)


@cache
def tokenizer():
    """The words of the released checkpoints, a mask token and sentinels."""
    words = open_run(RESULTS / "gpt1" / "seed-0").tokenizer
    first = len(words.specials)
    known = [words.decode([i]) for i in range(first, words.vocab_size)]
    return WordTokenizer([*known, "<mask>", *(f"<{k}>" for k in range(SPANS + 1))])


def end():
    return tokenizer().specials[END]


def mask():
    return tokenizer().vocab_size - SPANS - 2


def sentinels():
    return range(mask() + 1, tokenizer().vocab_size)


@cache
def text(seed):
    """(training, validation) streams of a seed."""
    parts = recipe(seed).parts()
    return stream_of(parts.train, tokenizer()), stream_of(parts.validation, tokenizer())


def batches(kind, stream, seed):
    if kind == "reversed":
        stream = stream.flip(0)
    plain = Batches(
        stream,
        batch_size=recipe().data.batch_size,
        context_length=recipe().gpt(2).context_length,
        seed=seed,
        first=end(),
    )
    size = tokenizer().vocab_size
    ways = {
        "encoder": partial(masked_batch, mask=mask(), vocabulary_size=size, special=(end(),)),
        "encoder-decoder": partial(span_batch, sentinels=sentinels(), start=end()),
    }
    return Hidden(plain, ways[kind], seed=seed) if kind in ways else plain


def new(kind, seed):
    config = recipe().gpt(tokenizer().vocab_size)
    generator = torch.Generator().manual_seed(1_000 + seed)
    if kind == "encoder":
        return EncoderLM(config, generator=generator)
    if kind == "encoder-decoder":
        return EncoderDecoderLM(config, start=end(), generator=generator)
    return GPT(config, generator=generator)


def flops(kind):
    """Multiplications and additions of one text's forward pass in matrix products."""
    c, length = recipe().gpt(tokenizer().vocab_size), recipe().gpt(2).context_length
    if kind != "encoder-decoder":
        return length * c.flops_per_token()
    (source, inputs), _ = batches(kind, text(0)[1], 0)[0]
    s, t = source.shape[1], inputs.shape[1]
    square, scores = 2 * c.channels**2, 4 * c.channels
    encoder = c.layers * (12 * square * s + scores * s * s)
    decoder = c.layers * (14 * square * t + 2 * square * s + scores * (t * t + t * s))
    return encoder + decoder + 2 * c.vocabulary_size * c.channels * t


def steps_of(kind, steps):
    return round(steps * flops("decoder") / flops(kind))


def pretrained(kind, seed, rate, steps):
    """A trained model, its validation loss and its seconds."""
    training, validation = text(seed)
    model = new(kind, seed)
    lengths = {"steps": steps, "every": steps, "save_every": steps, "warm_up": min(100, steps // 5)}
    config = replace(recipe().training, learning_rate=rate, **lengths)
    held_out = batches(kind, validation, 50 + seed)
    begun = time.process_time()
    history = train(
        model,
        batches(kind, training, seed),
        config,
        validation=[held_out[i] for i in range(10)],
        progress=False,
    )
    seconds = time.process_time() - begun
    return model.eval(), history.validation[steps], round(seconds, 1)


# ---- what is looked at --------------------------------------------------------------------------


@cache
def held_out(count=DOCUMENTS):
    """Documents that fit into the context with an end token before and after: words, kind."""
    drawn = recipe().micro_world().sample(8 * count, generator=torch.Generator().manual_seed(99))
    fitting = [each for each in drawn if len(each.words) <= 63]
    return [(each.words, each.hidden[0]) for each in fitting[:count]]


def ids_of(words):
    return torch.tensor([end(), *tokenizer().encode(" ".join(words[:-1])), end()])


def exact_posterior(world, words, place):
    """p(word | all others) of each word of the language, (V of the language,)."""
    ids = world.encode(words)
    rows = ids.repeat(len(world.vocabulary), 1)
    rows[:, place] = torch.arange(len(rows))
    return torch.tensor([world.log_prob(row) for row in rows]).softmax(0)


def exact_losses():
    """Of each hidden word of each document: surprise given the left, and given both sides."""
    world = recipe().micro_world()
    result = []
    for words, _ in held_out():
        left = (-world.token_log_probs(words)[:-1]).tolist()
        ids = world.encode(words)
        places = range(len(words) - 1)
        both = [-float(exact_posterior(world, words, t)[ids[t]].log()) for t in places]
        result.append({"left": left, "both": both})
    return result


@torch.no_grad()
def hidden_losses(kind, model):
    """Of each word of each document, the end tokens excepted: its surprise."""
    result = []
    for words, _ in held_out():
        ids = ids_of(words)
        if kind == "encoder":
            places = torch.arange(1, len(ids) - 1)
            rows = ids.repeat(len(places), 1)
            rows[torch.arange(len(places)), places] = mask()
            logits = model(rows)[torch.arange(len(places)), places]
            surprise = -token_log_probs(logits, ids[places])
        else:
            ids = ids.flip(0) if kind == "reversed" else ids
            surprise = -token_log_probs(model(ids[None, :-1])[0], ids[1:])[:-1]
            surprise = surprise.flip(0) if kind == "reversed" else surprise
        result.append(surprise.tolist())
    return result


@torch.no_grad()
def order_gaps(model):
    """log p of two hidden neighbours, first word first, less the other way round; and the loss."""
    generator, gaps, totals = torch.Generator().manual_seed(5), [], []
    for number in range(PAIRS):
        ids = ids_of(held_out()[number % len(held_out())][0])
        t = int(torch.randint(1, len(ids) - 3, (), generator=generator))
        rows = ids.repeat(3, 1)
        rows[0, [t, t + 1]] = mask()
        rows[1, t + 1] = mask()  # the first is filled in
        rows[2, t] = mask()
        log_probs = model(rows).log_softmax(-1)
        first = float(log_probs[0, t, ids[t]] + log_probs[1, t + 1, ids[t + 1]])
        second = float(log_probs[0, t + 1, ids[t + 1]] + log_probs[2, t, ids[t]])
        gaps.append(first - second)
        totals.append(-(first + second) / 2)
    return {"gaps": gaps, "loss": statistics.fmean(totals)}


def questions():
    """(document up to the answer, answer, whether it is ever asked) of every fact."""
    world = recipe().micro_world()

    def value(country, attribute):
        ids = world.encode(f"the {attribute} of {country} is")
        return world.vocabulary[int(world(ids[None])[0, -1].argmax())]

    for i, country in enumerate(COUNTRIES):
        for j, attribute in enumerate(ATTRIBUTES):
            other = COUNTRIES[(i + 1) % len(COUNTRIES)]
            told = f"the {ATTRIBUTES[0]} of {other} is {value(other, ATTRIBUTES[0])} ."
            asked = f"{told} what is the {attribute} of {country} ?"
            yield asked, value(country, attribute), not unasked(i, j)


@torch.no_grad()
def closed_book(kind, model):
    """The share of facts that are named, of those that are asked in the text, and of the others."""
    right = {True: [], False: []}
    dot = tokenizer().encode(".")
    for question, answer, known in questions():
        before = [end(), *tokenizer().encode(question)]
        (wanted,) = tokenizer().encode(answer)
        if kind == "decoder":
            said = int(model(torch.tensor([before]))[0, -1].argmax())
        elif kind == "encoder":
            ids = torch.tensor([[*before, mask(), *dot, end()]])
            said = int(model(ids)[0, len(before)].argmax())
        else:
            first, second = sentinels()[:2]
            source = torch.tensor([*before, first, *dot, end()])
            words = model.answer(source, most=6, stop=second)
            said = words[1] if len(words) == 2 and words[0] == first else None
        right[known].append(said == wanted)
    return {name: statistics.fmean(right[k]) for name, k in (("asked", True), ("unasked", False))}


@cache
def task(name):
    build = BUILDERS.get(name) or getattr(tasks, name)
    sizes = dict(zip(tasks.PARTS, (TRAIN, VALIDATION, TEST), strict=True))
    generator = torch.Generator().manual_seed(7)
    return build(recipe().micro_world(), **sizes, generator=generator)


def tuned(model, name, seed, rate, quick):
    labels, steps, batch_size = TASKS[name]
    few = task(name).with_labels(labels, generator=torch.Generator().manual_seed(10_000 + seed))
    steps = 4 if quick else steps
    config = FinetuneConfig(
        steps=steps,
        learning_rate=rate,
        batch_size=batch_size,
        auxiliary=0,
        every=max(steps // 5, 1),
        seed=seed,
    )
    begun = time.process_time()
    result = finetune(model, tokenizer(), few, config, progress=False)
    found = {part: accuracy(result, getattr(few, part)) for part in ("validation", "test")}
    return found | {"seconds": round(time.process_time() - begun, 1)}


# ---- cells --------------------------------------------------------------------------------------


class Cells:
    """What has been computed, a file each; the models beside it."""

    def __init__(self, home, quick):
        self.home, self.quick = home / ("quick" if quick else "whole"), quick
        self.home.mkdir(parents=True, exist_ok=True)

    def __call__(self, name, work):
        path = self.home / f"{name.replace(' ', '_')}.json"
        if not path.exists():
            begun = time.process_time()
            found = work()
            kept = {"seconds": round(time.process_time() - begun, 1), "found": found}
            path.write_text(json.dumps(kept))
            print(f"{kept['seconds']:6.1f} s  {name}  {str(found)[:90]}", flush=True)
        return json.loads(path.read_text())["found"]

    @property
    def seconds(self):
        return sum(json.loads(p.read_text())["seconds"] for p in self.home.glob("*.json"))

    def rate(self, kind):
        """The learning rate of the better short run; the reversed text has the decoder's."""
        kind = "decoder" if kind == "reversed" else kind
        steps = 5 if self.quick else PILOT

        def loss(rate):
            return self(
                f"pilot {kind} {rate}",
                lambda: pretrained(kind, 9, rate, steps_of(kind, steps))[1],
            )

        return min(RATES, key=loss)

    def model(self, kind, seed):
        path = self.home / f"{kind}-{seed}.pt"
        steps = steps_of(kind, 10 if self.quick else STEPS)

        def work():
            model, loss, seconds = pretrained(kind, seed, self.rate(kind), steps)
            torch.save(model.state_dict(), path)
            return {"loss": loss, "seconds": seconds, "steps": steps}

        about = self(f"pretrained {kind} {seed}", work)
        model = new(kind, seed)
        model.load_state_dict(torch.load(path, weights_only=True))
        return model.eval(), about

    def looks(self, name, look, kind):
        """What is seen in the models of a kind, one a seed."""
        return [
            self(f"{name} {kind} {seed}", partial(self.look, look, kind, seed)) for seed in SEEDS
        ]

    def look(self, look, kind, seed):
        return look(kind, self.model(kind, seed)[0])

    def tuning_rate(self, kind, name):
        """The fine-tuning rate of the better validation accuracy with the first seed."""
        cells = {rate: self.tuning(kind, name, SEEDS[0], rate) for rate in TUNING_RATES}
        return max(cells, key=lambda rate: cells[rate]["validation"])

    def tuning(self, kind, name, seed, rate):
        return self(
            f"tuned {kind} {name} {seed} {rate}",
            lambda: tuned(self.model(kind, seed)[0], name, seed, rate, self.quick),
        )


def run_part(cells, part):
    """All cells of a part, by name."""
    if part in KINDS:
        return {seed: cells.model(part, seed)[1] for seed in SEEDS}
    if part == "hidden":
        found = {"exact": cells("exact", exact_losses)}
        for kind in KINDS[:3]:
            found[kind] = cells.looks("hidden", hidden_losses, kind)
        return found
    if part == "orders":
        return cells.looks("orders", lambda _, model: order_gaps(model), "encoder")
    if part == "closed book":
        return {kind: cells.looks("closed", closed_book, kind) for kind in TUNED}
    found = {}
    for kind in TUNED:
        for name in TASKS:
            rate = cells.tuning_rate(kind, name)
            tests = [cells.tuning(kind, name, seed, rate) for seed in SEEDS]
            found.setdefault(name, {})[kind] = {
                "rate": rate,
                "test": [each["test"] for each in tests],
                "validation": [each["validation"] for each in tests],
            }
    return found


PARTS = (*KINDS, "hidden", "orders", "closed book", "tasks")


# ---- the record ---------------------------------------------------------------------------------

T_TWO = 0.95 / math.sqrt(2 * 0.975 * 0.025)  # the 97.5 % point of Student's t with 2 degrees


def interval(values):
    """Mean and half of the 95 % interval, from three seeds."""
    half = T_TWO * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values), half


def shown(values, digits=1, scale=100):
    mean, half = interval([scale * value for value in values])
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def by_kind(losses):
    """{kind of document: mean loss of a hidden word}, and of all."""
    found = {"all": []}
    for (_, kind), of_document in zip(held_out(), losses, strict=True):
        found["all"] += of_document
        found.setdefault(kind, []).extend(of_document)
    return {kind: statistics.fmean(values) for kind, values in found.items()}


def collected(cells):
    found = {part: run_part(cells, part) for part in PARTS}
    hidden, orders = found["hidden"], found["orders"]
    names = {"left": "decoder", "right": "reversed", "both": "encoder"}
    exact = {side: by_kind([d[side] for d in hidden["exact"]]) for side in ("left", "both")}
    counts = {}
    for words, kind in held_out():
        counts[kind] = counts.get(kind, 0) + len(words) - 1
    return {
        "about": machine(),
        "command": COMMAND,
        "minutes": round(cells.seconds / 60, 1),
        "seeds": SEEDS,
        "rates": RATES,
        "tuning_rates": TUNING_RATES,
        "steps": STEPS,
        "pilot": PILOT,
        "sizes": {"validation": VALIDATION, "test": TEST},
        "models": {
            kind: {
                "rate": cells.rate(kind),
                "flops": flops(kind),
                "parameters": sum(p.numel() for p in new(kind, 0).parameters()),
                "runs": [found[kind][seed] for seed in SEEDS],
            }
            for kind in KINDS
        },
        "hidden": {
            "documents": DOCUMENTS,
            "words": counts,
            "exact": exact,
            "models": {
                side: [by_kind(losses) for losses in hidden[kind]] for side, kind in names.items()
            },
        },
        "orders": {
            "pairs": PAIRS,
            "mean": [statistics.fmean(map(abs, each["gaps"])) for each in orders],
            "largest": [max(map(abs, each["gaps"])) for each in orders],
            "loss": [each["loss"] for each in orders],
        },
        "closed_book": found["closed book"],
        "tasks": {
            name: {
                "family": task(name).family,
                "labels": TASKS[name][0],
                "steps": TASKS[name][1],
                "chance": task(name).chance,
                "ceiling": task(name).ceiling,
                "models": found["tasks"][name],
            }
            for name in TASKS
        },
    }


def lines_of(result):
    """The record as a page."""
    hidden = result["hidden"]
    lines = [
        "# Decoder, encoder, encoder-decoder at equal compute",
        "",
        f"`{result['command']}`; {result['minutes']} minutes of one core. Shown by the chapter "
        "*Seeing both sides*.",
        "Mean ± half of the 95 % interval over three seeds.",
        "",
        "| model | parameters | steps | rate | validation loss |",
        "|:---|---:|---:|---:|---:|",
    ]
    for kind, about in result["models"].items():
        losses = [run["loss"] for run in about["runs"]]
        lines.append(
            f"| {kind} | {about['parameters']:,} | {about['runs'][0]['steps']:,} | "
            f"{about['rate']:g} | {shown(losses, 3, 1)} |"
        )
    kinds = hidden["exact"]["left"]
    lines += [
        "",
        "Loss of a hidden word, nats:",
        "",
        f"| given | {' | '.join(kinds)} |",
        f"|:---|{'---:|' * len(kinds)}",
    ]
    for side, runs in hidden["models"].items():
        cells = [shown([run[kind] for run in runs], 3, 1) for kind in kinds]
        lines.append(f"| {side} | {' | '.join(cells)} |")
        if side in hidden["exact"]:
            cells = [f"{hidden['exact'][side][kind]:.3f}" for kind in kinds]
            lines.append(f"| {side}, exact | {' | '.join(cells)} |")
    orders = result["orders"]
    lines += [
        "",
        f"Two hidden neighbours in two orders, {orders['pairs']} pairs: a mean difference of "
        f"{shown(orders['mean'], 3, 1)} nats, a loss of {shown(orders['loss'], 3, 1)}.",
        "",
        f"| accuracy, % | chance | ceiling | {' | '.join(TUNED)} |",
        f"|:---|---:|---:|{'---:|' * len(TUNED)}",
    ]
    for name, about in result["tasks"].items():
        cells = [shown(about["models"][kind]["test"]) for kind in TUNED]
        lines.append(
            f"| {name}, {about['labels']:,} labels | {100 * about['chance']:.0f} | "
            f"{100 * about['ceiling']:.1f} | {' | '.join(cells)} |"
        )
    for name in ("asked", "unasked"):
        cells = [shown([run[name] for run in result["closed_book"][kind]]) for kind in TUNED]
        lines.append(f"| closed book, {name}, no labels | | 100 | {' | '.join(cells)} |")
    return [*lines, "", f"- {result['about']}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cache", type=Path, nargs="?", default=Path("cache"))
    parser.add_argument("--part", choices=PARTS, nargs="+")
    parser.add_argument("--quick", action="store_true", help="a few steps each, nothing written")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = Cells(options.cache, options.quick)
    if options.part:
        for part in options.part:
            run_part(cells, part)
        return
    result = collected(cells)
    if options.quick:
        print("\n".join(lines_of(result)))
        return
    (RESULTS / "both_sides.json").write_text(json.dumps(result, indent=1) + "\n")
    record("both_sides", lines_of(result))


if __name__ == "__main__":
    main()
