"""Decoder, encoder, encoder-decoder: what does each learn from the same text at equal compute?

Six models are trained with three seeds each, on a micro-world with half of the words of the one of
results/gpt1, so that two minutes of one core are enough for a GPT to learn it:

    decoder            next token, left to right
    reversed           the same on the text backwards
    encoder            masked tokens, 15 %, 80/10/10
    encoder-decoder    spans, 15 %, mean length 3
    encoder, longer    the encoder in more steps: asked for as many words as the decoder
    encoder, left only  the encoder with the decoder's causal mask

All have the sizes of the models of results/gpt1 (the encoder-decoder two and two layers). All but
the longer run see as many multiplications as the decoder in STEPS steps. Of two learning rates each
takes that of the better validation loss after a short run. Then

    hidden       the loss of each word of held-out documents given its left context, its right, and
                 both, beside the exact posterior of the language (left, both)
    orders       two hidden neighbours, filled in in both orders: a joint would give one number
    closed book  facts asked for without a text that holds them, nothing fine-tuned
    cloze        one task of each family, put as a gap in a text; nothing is fine-tuned
    tasks        the same tasks, fine-tuned from few labels

An hour and twenty minutes of one core.
"""

import statistics
import time
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch

from src.attention.masks import causal_mask
from src.gpt.both_sides import EncoderDecoderLM, EncoderLM
from src.gpt.gpt1_finetuning import FinetuneConfig, accuracy, finetune
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.objectives import Hidden, masked_batch, span_batch, span_counts
from src.gpt.released import read_toml
from src.gpt.training import TrainConfig, train
from src.likelihood.batches import Batches
from src.likelihood.maximum_likelihood import token_log_probs
from src.texts import labelled, tasks
from src.texts.microworld import MicroWorld
from src.texts.microworld_tables import unasked
from src.texts.microworld_words import ATTRIBUTES, COUNTRIES
from src.tokens.bytes import END, WordTokenizer
from src.tools.intervals import interval

LONGER, LEFT = ", longer", ", left only"
KINDS = ("decoder", "reversed", "encoder", "encoder-decoder", "encoder" + LONGER, "encoder" + LEFT)
RATES = (3e-3, 6e-3)
HIDDEN = 0.15  # the share of the tokens that an encoder is asked for
CONTEXT, BATCH = 48, 32
SIDES = {  # what a kind of model is given of a text
    "left": "decoder",
    "right": "reversed",
    "both": "encoder",
    "both" + LONGER: "encoder" + LONGER,
    "left, hidden": "encoder" + LEFT,
}
SURE = 0.01  # nats; a word with less is decided
STORY = 20  # words that the story shown word by word has at least
WORLD = {
    "people": 4,
    "places": 4,
    "objects": 4,
    "countries": 8,
    "adjectives": 6,
    "cast": 2,
    "things": 1,
    "stories": 0.3,
    "reviews": 0.3,
    "facts": 0.3,
    "translations": 0.1,
    "claims": 0.1,
    "longest": 40,
}
TUNED = ("decoder", "encoder", "encoder-decoder", "encoder" + LONGER)
TASKS = {  # name: labels, steps, batch size
    "sentiment": (16, 200, 32),
    "entailment": (1_024, 600, 32),
    "same polarity": (64, 200, 32),
    "answers": (256, 300, 16),
}
BUILDERS = {"same polarity": tasks.same_polarity}
TUNING_RATES = (1e-3, 3e-3)
SPANS = span_counts(CONTEXT)[1]
RECIPE = read_toml(Path(__file__).parents[1] / "results" / "gpt1" / "recipe.toml")


@dataclass(frozen=True)
class Settings:
    seeds: tuple = (0, 1, 2)
    steps: int = 5_000
    pilot: int = 1_000
    texts: int = 200_000  # documents to train on
    documents: int = 120  # for hidden words
    pairs: int = 400  # for orders
    parts: tuple = (1_100, 200, 400)  # labels: to train on, to choose by, to test
    most: int | None = None  # steps of a fine-tuning; None: those of its task


QUICK = Settings(
    seeds=(0, 1),
    steps=5,
    pilot=3,
    texts=1_000,
    documents=40,
    pairs=5,
    parts=(1_100, 8, 8),
    most=2,
)


# ---- text and models --------------------------------------------------------------------------


@cache
def world():
    return MicroWorld(**WORLD)


def config():
    """Of all models: a GPT's, with the sizes of results/gpt1/recipe.toml."""
    sizes = RECIPE["model"]
    return GPTConfig(tokenizer().vocabulary_size, **sizes | {"context_length": CONTEXT})


def training(steps, rate):
    """The recipe's settings for so many steps."""
    settings = RECIPE["training"] | dict.fromkeys(("steps", "every", "save_every"), steps)
    warm_up = min(settings["warm_up"], steps // 5)
    return TrainConfig(**settings | {"learning_rate": rate, "warm_up": warm_up})


@cache
def tokenizer():
    """The words of the language, a mask token and sentinels."""
    marks = ("<mask>", *(f"<{k}>" for k in range(SPANS + 1)))
    return WordTokenizer([*world().vocabulary[1:], *marks])


def end():
    return tokenizer().specials[END]


def mask():
    return tokenizer().vocabulary_size - SPANS - 2


def sentinels():
    return range(mask() + 1, tokenizer().vocabulary_size)


def ids_of(text):
    """A document of the language as ids of the tokenizer, an end token before and after."""
    words = world().decode(text).split()[:-1]
    return torch.tensor([end(), *tokenizer().encode(" ".join(words)), end()])


@cache
def text(settings, seed):
    """(training, validation) streams of a seed."""
    of_word = [end(), *(tokenizer().encode(word)[0] for word in world().vocabulary[1:])]
    drawn = world().sample_texts(settings.texts, generator=torch.Generator().manual_seed(seed))
    stream = torch.tensor(of_word)[torch.cat([torch.tensor([0]), *drawn])]
    return stream[: -len(stream) // 50], stream[-len(stream) // 50 :]


def objective(kind):
    """What a model is trained for, however long: one of the first four kinds."""
    return kind.split(",")[0]


def batches(kind, stream, seed):
    kind = objective(kind)
    if kind == "reversed":
        stream = stream.flip(0)
    plain = Batches(
        stream,
        batch_size=BATCH,
        context_length=CONTEXT,
        seed=seed,
        first=end(),
    )
    size = tokenizer().vocabulary_size
    ways = {
        "encoder": partial(
            masked_batch, rate=HIDDEN, mask=mask(), vocabulary_size=size, special=(end(),)
        ),
        "encoder-decoder": partial(span_batch, sentinels=sentinels(), start=end()),
    }
    return Hidden(plain, ways[kind], seed=seed) if kind in ways else plain


class LeftEncoder(EncoderLM):
    """An encoder that sees of a text what is to the left of each place, and the place."""

    def states(self, ids, mask=None, segments=None):
        return super().states(ids, causal_mask(ids.shape[1], device=ids.device)[None], segments)


def new(kind, seed):
    generator = torch.Generator().manual_seed(1_000 + seed)
    if objective(kind) == "encoder":
        model = LeftEncoder if kind.endswith(LEFT) else EncoderLM
        return model(config(), generator=generator)
    if kind == "encoder-decoder":
        return EncoderDecoderLM(config(), start=end(), generator=generator)
    return GPT(config(), generator=generator)


def flops(settings, kind):
    """Multiplications and additions of one text's forward pass in matrix products."""
    c, length = config(), CONTEXT
    if kind != "encoder-decoder":
        return length * c.flops_per_token()
    (source, inputs), _ = batches(kind, text(settings, 0)[1], 0)[0]
    s, t = source.shape[1], inputs.shape[1]
    square, scores = 2 * c.channels**2, 4 * c.channels
    encoder = c.layers * (12 * square * s + scores * s * s)
    decoder = c.layers * (14 * square * t + 2 * square * s + scores * (t * t + t * s))
    return encoder + decoder + 2 * c.vocabulary_size * c.channels * t


def steps_of(settings, kind, steps):
    """As many steps as cost what the decoder's do; if longer, as many as ask for as many words."""
    words = HIDDEN if kind.endswith(LONGER) else 1
    return round(steps * flops(settings, "decoder") / flops(settings, kind) / words)


def pretrained(settings, kind, seed, rate, steps):
    """A trained model, its validation loss, and its seconds."""
    stream, validation = text(settings, seed)
    model = new(kind, seed)
    held_out = batches(kind, validation, 50 + seed)
    begun = time.process_time()
    history = train(
        model,
        batches(kind, stream, seed),
        training(steps, rate),
        validation=[held_out[i] for i in range(10)],
        progress=False,
    )
    seconds = time.process_time() - begun
    return model.eval(), history.validation[steps], round(seconds, 1)


# ---- what is looked at --------------------------------------------------------------------------


@cache
def held_out(count):
    """Documents that nobody was trained on: ids of the language, (T,), and their kinds."""
    drawn = world().sample(count, generator=torch.Generator().manual_seed(99))
    return [(world().encode(each.words), each.hidden[0]) for each in drawn]


def exact_posterior(ids, place):
    """p(word | all others) of each word of the language, (V of the language,)."""
    texts = ids.repeat(len(world().vocabulary), 1)
    texts[:, place] = torch.arange(len(texts))
    return torch.tensor([world().log_prob(each) for each in texts]).softmax(0)


def exact_losses(cells):
    """Of each hidden word of each document: surprise given the left, and given both sides."""
    result = []
    for ids, _ in held_out(cells.settings.documents):
        left = (-world().token_log_probs(ids)[:-1]).tolist()
        both = [-float(exact_posterior(ids, t)[ids[t]].log()) for t in range(len(ids) - 1)]
        result.append({"left": left, "both": both})
    return result


@torch.no_grad()
def hidden_losses(settings, kind, model):
    """Of each word of each document, the end tokens excepted: its surprise."""
    result = []
    for text, _ in held_out(settings.documents):
        ids = ids_of(text)
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
def order_gaps(settings, kind, model):
    """log p of two hidden neighbours, first word first, less the other way round; and the loss."""
    generator, gaps, totals = torch.Generator().manual_seed(5), [], []
    documents = held_out(settings.documents)
    for number in range(settings.pairs):
        ids = ids_of(documents[number % len(documents)][0])
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

    def value(country, attribute):
        ids = world().encode(f"the {attribute} of {country} is")
        return world().vocabulary[int(world()(ids[None])[0, -1].argmax())]

    countries = COUNTRIES[: world().countries]
    for i, country in enumerate(countries):
        for j, attribute in enumerate(ATTRIBUTES):
            other = countries[(i + 1) % len(countries)]
            told = f"the {ATTRIBUTES[0]} of {other} is {value(other, ATTRIBUTES[0])} ."
            asked = f"{told} what is the {attribute} of {country} ?"
            yield asked, value(country, attribute), not unasked(i, j)


@torch.no_grad()
def closed_book(settings, kind, model):
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


@torch.no_grad()
def gap_log_probs(kind, model, before, after, options):
    """Log-probabilities of words in a gap, (N, options), from texts before it and after it.

    The decoder sees what comes before, the others both; nothing is fine-tuned.
    """
    words = torch.tensor([[tokenizer().encode(word)[0] for word in some] for some in options])
    rows, places = [], []
    gap = {"decoder": [], "encoder-decoder": [sentinels()[0]]}.get(kind, [mask()])
    for left, right in zip(before, after, strict=True):
        ids = [end(), *tokenizer().encode(left), *gap]
        places.append(len(ids) - 1)
        rows.append(ids if kind == "decoder" else [*ids, *tokenizer().encode(right), end()])
    result = []
    for row, place, some in zip(rows, places, words, strict=True):
        ids = torch.tensor([row])
        if kind == "encoder-decoder":
            logits = model(ids, torch.tensor([[end(), *gap]]))[0, -1]
        else:
            logits = model(ids)[0, place]
        result.append(logits.log_softmax(-1)[some])
    return torch.stack(result)


def cloze(settings, kind, model):
    """{task: test accuracy} where each task is a gap in a text, and nothing is fine-tuned."""

    def asked(texts):
        before = [f"{text} is this praise ?" for text in texts]
        return gap_log_probs(kind, model, before, ["."] * len(texts), [("no", "yes")] * len(texts))

    def right(name, guesses):
        labels = torch.tensor([example.label for example in task(settings, name).test])
        return float((guesses == labels).double().mean())

    of = {name: [example.texts for example in task(settings, name).test] for name in TASKS}
    n = settings.parts[-1]
    claims = [f"{story} they say {claim} :" for story, claim in of["entailment"]]
    verdicts = [task(settings, "entailment").labels] * n
    moods = [asked([pair[i] for pair in of["same polarity"]]).argmax(-1) for i in (0, 1)]
    contexts = [texts[0] for texts in of["answers"]]
    choices = [[choice.split()[0] for choice in texts[1:]] for texts in of["answers"]]
    dots = ["."] * n
    guesses = {
        "sentiment": asked([text for (text,) in of["sentiment"]]).argmax(-1),
        "entailment": gap_log_probs(kind, model, claims, dots, verdicts).argmax(-1),
        "same polarity": (moods[0] == moods[1]).long(),
        "answers": gap_log_probs(kind, model, contexts, dots, choices).argmax(-1),
    }
    return {name: right(name, guess) for name, guess in guesses.items()}


@cache
def task(settings, name):
    build = BUILDERS.get(name) or getattr(tasks, name)
    sizes = dict(zip(labelled.PARTS, settings.parts, strict=True))
    generator = torch.Generator().manual_seed(7)
    return build(world(), **sizes, generator=generator)


def tuned(cells, kind, name, seed, rate):
    """Validation and test accuracy after fine-tuning from few labels."""
    model = model_of(cells, kind, seed)
    labels, steps, batch_size = TASKS[name]
    few = task(cells.settings, name).with_labels(
        labels, generator=torch.Generator().manual_seed(10_000 + seed)
    )
    steps = min(steps, cells.settings.most or steps)
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


def pilot(cells, kind, rate):
    """The validation loss of a short run."""
    settings = cells.settings
    steps = steps_of(settings, kind, settings.pilot)
    return pretrained(settings, kind, 9, rate, steps)[1]


def rate_of(cells, kind):
    """The learning rate of the better short run; the reversed text has the decoder's."""
    kind = "decoder" if kind == "reversed" else objective(kind)
    losses = cells.all(pilot, [{"kind": kind, "rate": rate} for rate in RATES])
    return RATES[losses.index(min(losses))]


def trained(cells, kind, seed):
    """The weights of a model, its loss, its seconds and its steps."""
    settings = cells.settings
    steps = steps_of(settings, kind, settings.steps)
    model, loss, seconds = pretrained(settings, kind, seed, rate_of(cells, kind), steps)
    return {"loss": loss, "seconds": seconds, "steps": steps, "model": model.state_dict()}


def model_of(cells, kind, seed):
    model = new(kind, seed)
    model.load_state_dict(cells(trained, kind=kind, seed=seed)["model"])
    return model.eval()


LOOKS = {
    "hidden": hidden_losses,
    "orders": order_gaps,
    "closed book": closed_book,
    "cloze": cloze,
}


def look(cells, name, kind, seed):
    """What is seen in a model."""
    return LOOKS[name](cells.settings, objective(kind), model_of(cells, kind, seed))


def looks(cells, name, kinds):
    """The same of the models of some kinds, one a seed."""
    return {
        kind: cells.all(
            look, [{"name": name, "kind": kind, "seed": seed} for seed in cells.settings.seeds]
        )
        for kind in kinds
    }


def tunings(cells, kind, name):
    """Fine-tuned with the rate of the better validation accuracy with the first seed."""
    first, *others = cells.settings.seeds
    options = {"kind": kind, "name": name}
    tried = cells.all(tuned, [options | {"seed": first, "rate": rate} for rate in TUNING_RATES])
    best = max(range(len(tried)), key=lambda i: tried[i]["validation"])
    rate = TUNING_RATES[best]
    rest = cells.all(tuned, [options | {"seed": seed, "rate": rate} for seed in others])
    tests = [tried[best], *rest]
    return {"rate": rate} | {
        part: [each[part] for each in tests] for part in ("test", "validation")
    }


# ---- the record ---------------------------------------------------------------------------------


def shown(values, digits=1, scale=100):
    mean, half = interval([scale * value for value in values])
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def decided(left, both):
    """By what a word is decided whose exact losses are these."""
    if left < SURE:
        return "left decides"
    return "right decides" if both < SURE else "open"


def by_group(documents, values, exact):
    """{group: what it has}, of all words, of each kind of document, and by what decides them."""
    found = {"all": []}
    for (_, kind), given, of_document in zip(documents, exact, values, strict=True):
        for left, both, value in zip(given["left"], given["both"], of_document, strict=True):
            for group in ("all", kind, decided(left, both)):
                found.setdefault(group, []).append(value)
    return found


def sample(documents, hidden):
    """A story word by word: of the longer ones, that whose words the others decide best."""
    stories = [
        number
        for number, (ids, kind) in enumerate(documents)
        if kind == "story" and len(ids) > STORY
    ]
    number = min(stories, key=lambda n: statistics.fmean(hidden["exact"][n]["both"]))
    ids = documents[number][0]
    return {
        "words": [world().vocabulary[i] for i in ids[:-1]],
        "exact": hidden["exact"][number],
        "models": {
            side: [losses[number] for losses in hidden[kind]] for side, kind in SIDES.items()
        },
    }


def find(cells):
    settings = cells.settings
    for kind in KINDS:  # the models first, side by side where there are several processes
        cells.all(trained, [{"kind": kind, "seed": seed} for seed in settings.seeds])
    documents = held_out(settings.documents)
    hidden = {"exact": cells(exact_losses)} | looks(cells, "hidden", SIDES.values())
    orders = looks(cells, "orders", ("encoder", "encoder" + LONGER))

    def means(values):
        groups = by_group(documents, values, hidden["exact"])
        return {group: statistics.fmean(losses) for group, losses in groups.items()}

    def run(kind, seed):
        about = cells(trained, kind=kind, seed=seed)
        return {name: about[name] for name in ("loss", "seconds", "steps")}

    exact = {side: [each[side] for each in hidden["exact"]] for side in ("left", "both")}
    return {
        "seeds": settings.seeds,
        "rates": RATES,
        "tuning_rates": TUNING_RATES,
        "world": WORLD,
        "steps": settings.steps,
        "pilot": settings.pilot,
        "context": CONTEXT,
        "batch": BATCH,
        "sizes": {"validation": settings.parts[1], "test": settings.parts[2]},
        "models": {
            kind: {
                "rate": rate_of(cells, kind),
                "flops": flops(settings, kind),
                "parameters": sum(p.numel() for p in new(kind, 0).parameters()),
                "runs": [run(kind, seed) for seed in settings.seeds],
            }
            for kind in KINDS
        },
        "hidden": {
            "documents": settings.documents,
            "sure": SURE,
            "words": {
                group: len(losses)
                for group, losses in by_group(documents, exact["left"], hidden["exact"]).items()
            },
            "exact": {side: means(values) for side, values in exact.items()},
            "models": {
                side: [means(losses) for losses in hidden[kind]] for side, kind in SIDES.items()
            },
            "sample": sample(documents, hidden),
        },
        "orders": {
            "pairs": settings.pairs,
            "models": {
                kind: {
                    "mean": [statistics.fmean(map(abs, each["gaps"])) for each in runs],
                    "largest": [max(map(abs, each["gaps"])) for each in runs],
                    "loss": [each["loss"] for each in runs],
                }
                for kind, runs in orders.items()
            },
        },
        "closed_book": looks(cells, "closed book", TUNED),
        "cloze": looks(cells, "cloze", TUNED),
        "tasks": {
            name: {
                "family": task(settings, name).family,
                "labels": TASKS[name][0],
                "steps": TASKS[name][1],
                "chance": task(settings, name).chance,
                "ceiling": task(settings, name).ceiling,
                "models": {kind: tunings(cells, kind, name) for kind in TUNED},
            }
            for name in TASKS
        },
    }


def table(result):
    hidden = result["hidden"]
    lines = [
        "Decoder, encoder, encoder-decoder at equal compute",
        "Shown by the chapter `gpt/both_sides`. Mean ± half of the 95 % interval over "
        f"{len(result['seeds'])} seeds.",
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
    lines += ["", f"Two hidden neighbours in two orders, {orders['pairs']} pairs:", ""]
    for kind, about in orders["models"].items():
        lines.append(
            f"- {kind}: a mean difference of {shown(about['mean'], 3, 1)} nats, a loss of "
            f"{shown(about['loss'], 3, 1)}."
        )
    lines += [
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
    for name in result["tasks"]:
        cells = [shown([seen[name] for seen in result["cloze"][kind]]) for kind in TUNED]
        lines.append(f"| {name}, as a gap, no labels | | | {' | '.join(cells)} |")
    for name in ("asked", "unasked"):
        cells = [shown([run[name] for run in result["closed_book"][kind]]) for kind in TUNED]
        lines.append(f"| closed book, {name}, no labels | | 100 | {' | '.join(cells)} |")
    return lines
