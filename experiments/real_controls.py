"""What remains of the records `real_model` and `real_switches` beside stronger controls?

    rival      A 5-gram that learnt from other chapters of this book reads the pieces of the book.
               Chapters that share a run of eight words with any piece are left out. And a 5-gram
               of bytes that learnt from 19 Japanese documents reads the twentieth, for each.
    questions  "Where does Greta live?", as text to go on with and in the form of a chat, with the
               answer still to begin and with "Greta lives in" begun; then without any question,
               and with a beginning that does not name her. The likeliest of the three places that
               are named is the answer; beside it, whether the likeliest of all tokens is right.
    heads      What repetition saves: fresh random tokens in place of those said again. And what
               the next best heads that look at the token before cost, each alone.
    code       The three sets of keys are kept as 64 numbers, and so are those of values: as many
               as their means have. The directions are the principal ones of other documents.

Four minutes of one core.
"""

import json
import re
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import torch
from torch.nn import functional

from experiments.compute import ngrams
from experiments.real_model import nats_of, real, switched_off, texts_of, twice
from experiments.real_switches import Changed, blocks, texts
from experiments.shared.real_questions import PLACES, asked
from experiments.shared.real_texts import ENGLISH
from next_token.run_config import RunConfig
from src.likelihood.evaluation import Score, bootstrap, paired_bootstrap
from src.texts.corpora import Document
from src.tokens.bpe import BytePairTokenizer
from src.tools.places import place_of

KIND, MODEL = "this book", "the real model"
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
START, STOP = 1, 2  # the tokens around a turn of a chat
FORMS = (  # a chat, the question asked, what of the answer is begun
    (False, True, ""),
    (False, True, "{} lives in"),
    (True, True, ""),
    (True, True, "{} lives in"),
    (False, False, "{} lives in"),
    (False, False, "The home of {} is in"),
    (False, True, "This person lives in"),
)


@dataclass(frozen=True)
class Settings:
    documents: int = 20
    n_bytes: int = 1_000
    vocabulary: int = 2_048
    items: int = 40
    draws: int = 10
    length: int = 40
    beside: int = 3  # the next best heads that look at the token before
    coded: int = 16  # documents, as in `real_switches`
    fitting: int = 4
    tokens: int = 512


QUICK = Settings(
    documents=2,
    n_bytes=150,
    vocabulary=300,
    items=2,
    draws=2,
    length=6,
    beside=1,
    coded=1,
    fitting=1,
    tokens=24,
)


def recorded():
    path = place_of("results") / "real_model" / "result.json"
    return json.loads(path.read_text(encoding="utf-8"))


# ---- the rival -----------------------------------------------------------------------------------


def runs(text, length):
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def prose(text):
    """The paragraphs of a chapter, without code and markup."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"\{[a-z:]+\}`([^`<]*)(<[^`]*>)?`", r"\1", text)
    found = (" ".join(each.split()) for each in re.split(r"\n\s*\n", text))
    return [p for p in found if len(p) >= 80 and not p.startswith((":::", "---", "|", "#", "("))]


def other_chapters():
    """Those that share no run of eight words with a piece of the test."""
    tested = set().union(*(runs(text, 8) for text in ENGLISH))
    chapters = (prose(p.read_text("utf-8")) for p in sorted(place_of("book").rglob("*.md")))
    return [each for each in chapters if each and not any(runs(p, 8) & tested for p in each)]


def rival(cells):
    documents, parts = texts_of(cells.settings)[KIND], RunConfig().parts()
    tokenizer = BytePairTokenizer.train(
        [each.text for each in parts.train], vocabulary_size=cells.settings.vocabulary
    )
    chapters = other_chapters()
    read = SimpleNamespace(train=[Document("book", p) for each in chapters for p in each])
    found = ngrams(read, documents, tokenizer)["5-gram"]
    learnt = set().union(*(runs(each.text, 6) for each in read.train))
    tested = [run for each in documents for run in runs(each.text, 6)]
    return {
        "chapters": len(chapters),
        "n_bytes": sum(each.n_bytes for each in read.train),
        "tokens": sum(len(tokenizer.encode(each.text)) for each in read.train),
        "shared_runs_of_six": sum(run in learnt for run in tested) / len(tested),
        "scores": [[each.nats, each.tokens, each.n_bytes] for each in found],
    }


def left_out(cells):
    """Each Japanese document by the 5-gram of bytes of the others."""
    documents, found = texts_of(cells.settings)["Japanese"], []
    tokenizer = BytePairTokenizer.train([""], vocabulary_size=257)
    for i, each in enumerate(documents):
        read = SimpleNamespace(train=documents[:i] + documents[i + 1 :])
        found += ngrams(read, [each], tokenizer)["5-gram"]
    return {
        "learnt_bytes": sum(each.n_bytes for each in documents[1:]),  # by the first
        "scores": [[each.nats, each.tokens, each.n_bytes] for each in found],
    }


def compared(found, kind):
    """As in the ladder of `real_model`, whose documents these are."""
    of = [Score(*each) for each in found["scores"]]
    bits = recorded()["ladder"][kind]["models"][MODEL]["by_document"][: len(of)]
    nats = float(torch.log(torch.tensor(2.0, dtype=torch.float64)))
    theirs = [Score(b * nats * s.n_bytes, 1, s.n_bytes) for b, s in zip(bits, of, strict=True)]
    draw = torch.Generator().manual_seed(0)
    told = bootstrap(of, generator=draw)
    minus = paired_bootstrap(theirs, of, generator=draw)
    return {key: found[key] for key in found if key != "scores"} | {
        "bits": [told.estimate, told.low, told.high],
        "real_minus": [minus.estimate, minus.low, minus.high],
        "by_document": [each.bits_per_byte for each in of],
    }


# ---- questions -----------------------------------------------------------------------------------


def prompt(item, chat, question, begun):
    """Its tokens, and what stands before the place."""
    encode = real().tokenizer.encode
    lead = begun.format(re.search(r"Where does (\w+) live", item.prompt)[1])
    if not chat:
        before = f"{item.prompt} " if question else item.prompt.split("\n")[0] + "\n"
        return [real().end, *encode((before + lead).removesuffix(" "))], " "
    asks = item.prompt.removesuffix("\nAnswer:").replace("Question: ", "")
    turns = [f"system\n{SYSTEM}", f"user\n{asks}"]
    ids = [i for turn in turns for i in (START, *encode(turn), STOP, *encode("\n"))]
    return [*ids, START, *encode("assistant\n"), *encode(lead)], " " if begun else ""


@torch.no_grad()
def extraction(cells, chat, question, begun):
    tokenizer, found = real().tokenizer, []
    if [tokenizer.decode([i]) for i in (START, STOP)] != ["<|im_start|>", "<|im_end|>"]:
        raise ValueError("expected the tokens of a chat at 1 and 2")
    for item in asked("extraction", 0, cells.settings.items):
        ids, space = prompt(item, chat, question, begun)
        last = real().model(torch.tensor([ids]))[0, -1]
        first = {p: tokenizer.encode(space + p)[0] for p in PLACES if p in item.prompt}
        best = max(first, key=lambda place: float(last[first[place]]))
        right = first[item.answer.strip()]
        found.append([best == item.answer.strip(), int(last.argmax()) == right])
    best, likeliest = (sum(column) for column in zip(*found, strict=True))
    return {
        "chat": chat,
        "question": question,
        "begun": begun,
        "items": len(found),
        "best_of_three": best,
        "likeliest": likeliest,
    }


# ---- heads ---------------------------------------------------------------------------------------


def second_half(cells, off, fresh=False):
    """By draw, nats per token of what is said the second time, or of fresh tokens there."""
    ids, half = twice(cells.settings, 1), cells.settings.length
    if fresh:
        ids[:, half + 1 :] = twice(cells.settings, 7)[:, half + 1 :]
    with switched_off(off):
        return nats_of(ids)[:, half + 1 :].mean(1).tolist()


def heads(cells):
    eight = recorded()["heads"]["arms"]["induction 8"]["heads"]
    scores = recorded()["heads"]["scores"]["previous"]
    order = sorted(
        ([i, h] for i, layer in enumerate(scores) for h in range(len(layer))),
        key=lambda at: -scores[at[0]][at[1]],
    )
    alone = order[1 : 1 + cells.settings.beside]
    return {
        "repeated": cells(second_half, off=[]),
        "fresh": cells(second_half, off=[], fresh=True),
        "fresh_without_eight": cells(second_half, off=eight, fresh=True),
        "previous_alone": [
            {"head": at, "score": scores[at[0]][at[1]], "repeated": cells(second_half, off=[at])}
            for at in alone
        ],
    }


# ---- a code --------------------------------------------------------------------------------------


def side_by_side(x):
    """Those of all sets of a token: (1, G, T, D) -> (T, G D)."""
    return x[0].transpose(0, 1).flatten(1)


def kept_as(n, rows):
    """What n numbers per token, along the principal directions of the rows, keep of the sets."""
    middle = rows.mean(0)
    directions = torch.linalg.eigh((rows - middle).T @ (rows - middle)).eigenvectors[:, -n:]

    def change(x):
        flat = middle + (side_by_side(x) - middle) @ directions @ directions.T
        return flat.unflatten(1, x.shape[1::2]).transpose(0, 1)[None]

    return change


def read(ids, changes):
    """The states of a text whose keys and values are changed, by block (keys, values)."""
    return real().model.states(ids[:, :-1], cache=[Changed(*both) for both in changes])


@torch.no_grad()
def code(cells):
    """By document, nats per token of the second half, as `real_switches` has them."""
    settings, parts, found = cells.settings, RunConfig().parts(), []
    seen = [([], []) for _ in blocks()]

    def noted(kept, x):
        kept.append(side_by_side(x))
        return x

    for ids in texts(parts.validation, settings.fitting, settings.tokens):
        read(ids, [[partial(noted, kept) for kept in both] for both in seen])
    n = blocks()[0].attention.head_channels
    changes = [[kept_as(n, torch.cat(kept)) for kept in both] for both in seen]
    for ids in texts(parts.test, settings.coded, settings.tokens):
        half = ids.shape[1] // 2
        logits = real().model.unembed(read(ids, changes)[0, half:])
        found.append(float(functional.cross_entropy(logits, ids[0, half + 1 :])))
    return found


# ---- the record ----------------------------------------------------------------------------------


def find(cells):
    return {
        "rival": compared(cells(rival), KIND),
        "japanese": compared(cells(left_out), "Japanese"),
        "questions": [
            cells(extraction, chat=chat, question=question, begun=begun)
            for chat, question, begun in FORMS
        ],
        "heads": heads(cells),
        "code": cells(code),
    }


def table(kept):
    each, japanese = kept["rival"], kept["japanese"]
    lines = [
        "Controls of the record of a real model",
        f"A 5-gram of {each['chapters']} other chapters ({each['n_bytes']:,} bytes): "
        "{:.3f} bits per byte ({:.3f} to {:.3f});".format(*each["bits"])
        + " the real model minus it {:.3f} ({:.3f} to {:.3f}).".format(*each["real_minus"]),
        "A 5-gram of 19 Japanese documents, on the twentieth: "
        "{:.3f} bits per byte ({:.3f} to {:.3f});".format(*japanese["bits"])
        + " the real model minus it {:.3f} ({:.3f} to {:.3f}).".format(*japanese["real_minus"]),
        "",
        "| where somebody lives | question | answer begun | best of three | likeliest token |",
        "|:---|:---|:---|---:|---:|",
    ]
    for of in kept["questions"]:
        form = "a chat" if of["chat"] else "text to go on with"
        question = "yes" if of["question"] else "no"
        right = [f"{of[key]} of {of['items']}" for key in ("best_of_three", "likeliest")]
        begun = of["begun"].format("Greta") or "–"
        lines.append(f"| {form} | {question} | {begun} | {right[0]} | {right[1]} |")
    lines += ["", "| second half | nats per token |", "|:---|---:|"]
    rows = [(key, kept["heads"][key]) for key in ("repeated", "fresh", "fresh_without_eight")]
    rows += [
        (f"repeated, without head {at['head']}, score {at['score']:.2f}", at["repeated"])
        for at in kept["heads"]["previous_alone"]
    ]
    lines += [f"| {name} | {sum(of) / len(of):.2f} |" for name, of in rows]
    mean = sum(kept["code"]) / len(kept["code"])
    return [*lines, "", f"Keys and values of three sets as a code: {mean:.3f} nats per token."]
