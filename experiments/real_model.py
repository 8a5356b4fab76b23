"""What does a released model of 135 million parameters know, and which of its heads does what?

    ladder     Bits per byte of three kinds of text, 20 documents of a kilobyte each: the test part
               of Python's documentation, prose of this book (written after the model was), and
               Japanese of ours. Beside the model stand a compressor, a 5-gram and a GPT of ours,
               all of which saw the training part of the documentation. Contamination: the share of
               eight-word runs of a text that stand in that part.
    heads      Which heads continue what was said before, by the scorer of the chapter
               `in_context`, on random tokens said twice; what the model loses on others, and on
               prose, without these heads, without those that look at the token before, and
               without single other heads at random.
    questions  Items made by hand, without examples and with 4 and 16.

Ten minutes of one core.
"""

import random
import tempfile
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch.nn import functional

from experiments.compute import ngrams, run
from experiments.shared.real_questions import TASKS, asked
from experiments.shared.real_texts import ENGLISH, JAPANESE
from next_token.run_config import RunConfig
from src.attention.heads import recorded_weights
from src.gpt.data_overlap import remember
from src.gpt.in_context import ablated, induction_score, previous_token_score
from src.gpt.released import scores
from src.likelihood.evaluation import Score, bootstrap, document_scores, paired_bootstrap
from src.texts.corpora import Document
from src.today.gguf_models import open_model

WINDOW = 1_024
MODEL = "the real model"


@dataclass(frozen=True)
class Settings:
    documents: int = 20
    n_bytes: int = 1_000  # of each, at most
    steps: int = 1_200  # of our GPT
    draws: int = 10
    length: int = 40  # random tokens, said twice
    at_random: int = 16  # other heads, one by one
    items: int = 40


QUICK = Settings(documents=2, n_bytes=150, steps=2, draws=2, length=6, at_random=2, items=2)


@cache
def real():
    return open_model(context_length=WINDOW)


# ---- the ladder --------------------------------------------------------------------------------


def texts_of(settings):
    """{kind: its documents}."""
    test = [each.text for each in RunConfig().parts().test if each.n_bytes >= 1_000]
    kinds = {"documentation": test, "this book": ENGLISH, "Japanese": JAPANESE}
    return {
        kind: [
            Document(kind, text.encode()[: settings.n_bytes].decode(errors="ignore"))
            for text in texts[: settings.documents]
        ]
        for kind, texts in kinds.items()
    }


def by_real(documents):
    """The score of each, an end token in front and behind, as for our models."""
    model, encode = real().model, real().tokenizer.encode
    return document_scores(
        model,
        [torch.tensor([real().end, *encode(each.text), real().end]) for each in documents],
        context_length=WINDOW,
        batch_size=1,
        n_bytes=[each.n_bytes for each in documents],
    )


def by_zlib(documents, before):
    """What zlib makes of each, with the last 32 kB that it may look back at as its dictionary."""
    found = []
    for each in documents:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zdict=before[-(1 << 15) :])
        packed = packer.compress(each.text.encode()) + packer.flush()
        nats = 8 * len(packed) * float(torch.log(torch.tensor(2.0)))
        found.append(Score(nats, 1, each.n_bytes))
    return found


def real_ladder(cells):
    return {
        kind: [[each.nats, each.tokens, each.n_bytes] for each in by_real(documents)]
        for kind, documents in texts_of(cells.settings).items()
    }


def our_ladder(cells):
    """{kind: {model: scores}}, and what of each kind stands in the training part."""
    parts, texts = RunConfig().parts(), texts_of(cells.settings)
    before = parts.train.to_bytes()
    seen = remember([each.text for each in parts.train])
    with tempfile.TemporaryDirectory() as folder:
        seconds, _, trained = run(cells.settings.steps, 0.0, 0, Path(folder) / "run")
    found = {"seconds": seconds, "parameters": trained.model.config.parameters, "kinds": {}}
    for kind, documents in texts.items():
        lines = {
            "zlib": by_zlib(documents, before),
            "5-gram": ngrams(parts, documents, trained.tokenizer)["5-gram"],
            "our GPT": scores(trained, documents),
        }
        found["kinds"][kind] = {
            "scores": {n: [[s.nats, s.tokens, s.n_bytes] for s in of] for n, of in lines.items()},
            "overlap": seen.overlap([each.text for each in documents]).share
            if all(len(each.text.split()) > 8 for each in documents)
            else None,
        }
    return found


def ladder(real_scores, ours):
    draw, found = torch.Generator().manual_seed(0), {}
    for kind, kept in ours["kinds"].items():
        lines = {n: [Score(*each) for each in of] for n, of in kept["scores"].items()}
        lines[MODEL] = [Score(*each) for each in real_scores[kind]]
        found[kind] = {"overlap": kept["overlap"], "documents": len(lines[MODEL]), "models": {}}
        for name, of in lines.items():
            told = bootstrap(of, generator=draw)
            minus = paired_bootstrap(lines[MODEL], of, generator=draw)
            found[kind]["models"][name] = {
                "bits": [told.estimate, told.low, told.high],
                "real_minus": [minus.estimate, minus.low, minus.high],
                "by_document": [each.bits_per_byte for each in of],
            }
    return found


# ---- heads -------------------------------------------------------------------------------------


def twice(settings, seed):
    """(draws, 1 + 2 length): an end token, and distinct random tokens, said twice."""
    draw = torch.Generator().manual_seed(seed)
    size = real().tokenizer.vocabulary_size
    rows = [torch.randperm(size - 100, generator=draw) for _ in range(settings.draws)]
    once = 100 + torch.stack(rows)[:, : settings.length]  # the first 100 are special, or bytes
    return torch.cat([torch.full((len(once), 1), real().end), once, once], 1)


def prose(settings):
    """(draws, 1 + 2 length): beginnings of this book's prose."""
    encode = real().tokenizer.encode
    ids = [[real().end, *encode(text)][: 1 + 2 * settings.length] for text in ENGLISH]
    return torch.tensor(ids[: settings.draws])


@torch.no_grad()
def nats_of(ids):
    """Nats of each token but the first, (B, T - 1)."""
    logits = real().model(ids[:, :-1])
    return functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


def losses(settings):
    """By draw: nats per token of what is said the second time, and of prose."""
    # The first token of the second time cannot be known.
    second = nats_of(twice(settings, 1))[:, settings.length + 1 :]
    return {"repeated": second.mean(1).tolist(), "prose": nats_of(prose(settings)).mean(1).tolist()}


def switched_off(heads):
    """A context in which some heads, (layer, head), give nothing."""
    chosen = {}
    for layer, head in heads:
        chosen.setdefault(f"decoder.blocks.{layer}.attention", []).append(head)
    return ablated(real().model, chosen)


def head_scores(cells, off=()):
    """By layer and head; chosen on other draws than those on which the heads are switched off."""
    ids, model = twice(cells.settings, 0), real().model
    with torch.no_grad(), switched_off(off), recorded_weights(model) as maps:
        model(ids)
    weights = [maps[f"decoder.blocks.{i}.attention"] for i in range(model.config.layers)]
    first = nats_of(ids)
    half = cells.settings.length
    return {
        "induction": [induction_score(each, ids).tolist() for each in weights],
        "previous": [previous_token_score(each).tolist() for each in weights],
        "first_time": first[:, :half].mean(1).tolist(),
        "second_time": first[:, half + 1 :].mean(1).tolist(),
    }


def without(cells, heads):
    """The losses with some heads, (layer, head), switched off."""
    with switched_off(heads):
        return losses(cells.settings)


def arms_of(cells):
    """{name: heads}: the best by each score; others at random, and others of the same layers."""
    scored = cells(head_scores)
    order = {
        kind: sorted(
            ((i, h) for i, layer in enumerate(scored[kind]) for h in range(len(layer))),
            key=lambda at, kind=kind: -scored[kind][at[0]][at[1]],
        )
        for kind in ("induction", "previous")
    }
    arms = {"all": []}
    for n in (1, 2, 4, 8):
        arms[f"induction {n}"] = order["induction"][:n]
    for n in (1, 2, 4):
        arms[f"previous {n}"] = order["previous"][:n]
    named = {*order["induction"][:8], *order["previous"][:4]}
    others = [at for at in order["induction"] if at not in named]
    drawn = random.Random(0).sample(sorted(others), cells.settings.at_random)
    arms["random 8"] = drawn[:8]
    layers = {layer for layer, _ in order["induction"][:8]}
    beside = [at for at in sorted(others) if at[0] in layers]
    arms["beside 8"] = random.Random(1).sample(beside, min(8, len(beside)))
    return arms | {f"random {i}.{h}": [(i, h)] for i, h in drawn}


def heads(cells):
    arms = arms_of(cells)
    found = {name: cells(without, heads=[list(at) for at in of]) for name, of in arms.items()}
    return {
        "scores": cells(head_scores),
        "scores_without_previous_1": cells(
            head_scores, off=[list(at) for at in arms["previous 1"]]
        ),
        "arms": {name: {"heads": of} | found[name] for name, of in arms.items()},
    }


# ---- questions ---------------------------------------------------------------------------------


@torch.no_grad()
def answered(item):
    """Whether the answer is right, and by how many nats it leads the best other choice, if any."""
    encode, model = real().tokenizer.encode, real().model
    prompt = [real().end, *encode(item.prompt)]
    if not item.choices:
        answer = encode(item.answer)
        logits = model(torch.tensor([prompt + answer]))[0, -len(answer) - 1 :]
        *said, then = logits.argmax(-1).tolist()
        return said == answer and not real().tokenizer.decode([then])[:1].isalnum(), None
    first = {choice: encode(choice)[0] for choice in item.choices}
    if len(set(first.values())) < len(first):
        raise ValueError(f"expected choices that differ in their first token, got {first}")
    last = model(torch.tensor([prompt]))[0, -1]
    lead = last[first[item.answer]] - max(last[i] for c, i in first.items() if c != item.answer)
    return bool(lead > 0), float(lead)


def task(cells, name, shots):
    items = asked(name, shots, cells.settings.items)
    found = [answered(item) for item in items]
    return {
        "task": name,
        "shots": shots,
        "floor": TASKS[name][2],
        "items": len(items),
        "right": sum(right for right, _ in found),
        "by_item": [
            [item.answer, right, lead] for item, (right, lead) in zip(items, found, strict=True)
        ],
    }


def questions(cells):
    return [cells(task, name=name, shots=n) for name, (_, of, _) in TASKS.items() for n in of]


# ---- the record --------------------------------------------------------------------------------

PARTS = {
    "real": real_ladder,
    "ours": our_ladder,
    "heads": heads,
    "questions": questions,
}


def part(cells, name):
    return PARTS[name](cells)


def find(cells):
    names = ("heads", "ours", "questions", "real")
    found = dict(zip(names, cells.all(part, [{"name": name} for name in names]), strict=True))
    return {
        "ladder": ladder(found["real"], found["ours"]),
        "our_gpt": {key: found["ours"][key] for key in ("seconds", "parameters")},
        "heads": found["heads"],
        "questions": found["questions"],
    }


def table(kept):
    lines = [
        "A real model: bits per byte, heads, questions",
        "| text | model | bits per byte (95 %) | the real model minus it (95 %) |",
        "|:---|:---|:---|:---|",
    ]
    for kind, found in kept["ladder"].items():
        for name, each in found["models"].items():
            told = [
                f"{b:.3f} ({low:.3f} to {high:.3f})"
                for b, low, high in (each["bits"], each["real_minus"])
            ]
            lines.append(f"| {kind} | {name} | {told[0]} | {told[1] if name != MODEL else '–'} |")
    lines += ["", "| switched off | repeated, nats | prose, nats |", "|:---|---:|---:|"]
    for name, arm in kept["heads"]["arms"].items():
        means = [sum(arm[key]) / len(arm[key]) for key in ("repeated", "prose")]
        lines.append(f"| {name} | {means[0]:.2f} | {means[1]:.2f} |")
    lines += ["", "| task | examples | right | floor |", "|:---|---:|---:|---:|"]
    for each in kept["questions"]:
        right = f"{each['right']} of {each['items']}"
        lines.append(f"| {each['task']} | {each['shots']} | {right} | {each['floor']:.2f} |")
    return lines
