"""Why must the number that quiets the sink of a real model stand in its own channel?

After layer 12 the first token's largest number moves to another channel. Layers 13 to 30 then read
that channel as before, or as they read the number's own: with the keys, the values, or both. As a
control, they read it as they read a third channel; as another, the number stays where it was, and
only the reading changes. Nothing is trained: each case is one text and one channel, drawn at
random. Three minutes of one core.
"""

import random
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch.nn import functional

from experiments.real_model import real

LAYERS, KEYS, VALUES, BOTH = 12, slice(576, 768), slice(768, 960), slice(576, 960)
NEAR = 0.2  # nats per token
TEXTS = {
    "story": "When the train had left, nobody on the platform spoke. Two children looked for the "
    "dog that had followed them from the market, and an old man folded his newspaper. Rain began "
    "to fall on the roof.",
    "science": "Photosynthesis turns light into sugar. Plants do it in their leaves, where the "
    "green is, and they need water and air for it.",
    "advice": "If you want to learn to cook, begin with an egg. Boil it, fry it, beat it, and "
    "write down each time how long it took and what failed.",
}


@dataclass(frozen=True)
class Settings:
    channels: int = 64
    texts: tuple = tuple(TEXTS)


QUICK = Settings(channels=2, texts=("science",))


def alike(block, places, rows, sources):
    """A hook: for text b, some rows read channel places[b] as they read sources[b]."""
    weight, gain = block.attention.qkv.weight[rows], block.attention_norm.gain
    new = gain[sources] / gain[places] * weight[:, sources]
    change = (new - weight[:, places]).T[:, None]  # (B, 1, rows)

    def listen(_, inputs, output):
        read = inputs[0][range(len(places)), :, places]  # (B, T)
        output[..., rows] += read[..., None] * change

    return block.attention.qkv.register_forward_hook(listen)


@torch.no_grad()
def one_text(cells, text):
    """{arm: nats per token, by channel}, the channel of the number, and those it moved to."""
    model, blocks = real().model, real().model.decoder.blocks
    ids = torch.tensor([[real().end, *real().tokenizer.encode(TEXTS[text])]])
    kept = []
    with blocks[LAYERS - 1].register_forward_hook(lambda _, given, out: kept.append(out)):
        model(ids)
    stream = kept[0]  # (1, T, C)
    number = int(stream[0, 0].abs().argmax())
    draw = random.Random(0)
    others = [c for c in range(stream.shape[-1]) if c != number]
    places = draw.sample(others, cells.settings.channels)
    third = [draw.choice([c for c in others if c != place]) for place in places]

    def nats(x, rows=None, sources=None):
        with ExitStack() as stack:
            for block in blocks[LAYERS:] if rows else ():
                stack.enter_context(alike(block, places, rows, sources))
            for block in blocks[LAYERS:]:
                x = block(x, causal=True)
        logits = model.unembed(model.decoder.final_norm(x))[:, 1:-1]
        each = ids[:, 2:].expand(len(x), -1)
        return functional.cross_entropy(logits.mT, each, reduction="none").mean(1).tolist()

    stays = stream.repeat(len(places), 1, 1)
    moved, own = stays.clone(), [number] * len(places)
    moved[:, 0, number] = 0
    without = moved[:1].clone()
    moved[range(len(places)), 0, places] = stream[0, 0, number]
    arms = {
        "moved": nats(moved),
        "keys": nats(moved, KEYS, own),
        "values": nats(moved, VALUES, own),
        "both": nats(moved, BOTH, own),
        "values of a third": nats(moved, VALUES, third),
        "both of a third": nats(moved, BOTH, third),
        "in its place, both": nats(stays, BOTH, own),
    }
    return {
        "number": number,
        "places": places,
        "as it is": nats(stream)[0],
        "without": nats(without)[0],
        "arms": arms,
    }


def find(cells):
    texts = list(cells.settings.texts)
    kept = cells.all(one_text, [{"text": text} for text in texts])
    return {"near": NEAR, "texts": dict(zip(texts, kept, strict=True))}


def table(kept):
    arms = list(next(iter(kept["texts"].values()))["arms"])
    lines = [
        "The number of a sink, moved to other channels",
        f"Cases in which the text costs at most {kept['near']} and 1 nats per token more than with "
        "the number in its place, and cases in which it costs more than without the number:",
        "",
        f"| layers 13 to 30 read the new channel | + {kept['near']} | + 1 | worse than without |",
        "|:---|---:|---:|---:|",
    ]
    for arm in arms:
        more, worse = [], 0
        for each in kept["texts"].values():
            more += [nats - each["as it is"] for nats in each["arms"][arm]]
            worse += sum(nats > each["without"] for nats in each["arms"][arm])
        near, nat = (sum(x <= limit for x in more) for limit in (kept["near"], 1))
        lines.append(f"| {arm} | {near} of {len(more)} | {nat} | {worse} |")
    for text, each in kept["texts"].items():
        lines += ["", f"{text}: {each['as it is']:.2f} as it is, {each['without']:.2f} without"]
    return lines
