"""A GPT on one page: python one_page.py your.txt. It needs torch alone."""

import math
import re
import sys
from collections import Counter
from functools import cache

import torch
from torch import nn
from torch.nn.functional import gelu

WIDTH, HEADS, LAYERS, LONGEST = 48, 4, 2, 144  # of the model


def read(path):
    """The documents of a text: what blank lines part."""
    with open(path, encoding="utf-8") as file:
        parts = re.split(r"\n\s*\n", file.read())
    return [part.strip() for part in parts if part.strip()]


WORD = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+"
                  r"| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def merge(ids, pair, new):
    """[1, 2, 3] with the pair (2, 3) merged to 9: [1, 9]."""
    merged = []
    for number in ids:
        merged.append(number)
        if tuple(merged[-2:]) == pair:
            merged[-2:] = [new]
    return merged


def learn(documents, merges):
    """The most frequent pair becomes a token, again and again."""
    counts = Counter(w for text in documents for w in WORD.findall(text))
    words = {word: list(word.encode()) for word in counts}
    found = {}  # pair -> token; the bytes are the tokens 0 to 255
    for new in range(256, 256 + merges):
        pairs = Counter()
        for word, ids in words.items():
            for pair in zip(ids, ids[1:]):
                pairs[pair] += counts[word]
        if not pairs:
            break
        # of equally frequent pairs the one with the smallest numbers
        best = max(pairs, key=lambda pair: (pairs[pair], -pair[0], -pair[1]))
        found[best] = new
        words = {word: merge(ids, best, new) for word, ids in words.items()}
    return found


class Tokenizer:
    def __init__(self, found):
        self.found = found
        self.spelled = [bytes([byte]) for byte in range(256)]
        for left, right in found:
            self.spelled.append(self.spelled[left] + self.spelled[right])
        self.spelled.append(b"")  # the token that ends a document
        self.end = len(self.spelled) - 1
        self.of_word = cache(self.of_word)

    def of_word(self, word):
        ids = list(word.encode())
        for pair, new in self.found.items():  # in the order of learning
            ids = merge(ids, pair, new)
        return ids

    def encode(self, text):
        return [i for word in WORD.findall(text) for i in self.of_word(word)]

    def decode(self, ids):
        return b"".join(self.spelled[i] for i in ids).decode(errors="replace")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        hidden = gelu(self.expand(self.norm2(x)), approximate="tanh")
        return x + self.contract(hidden)

    def attention(self, x):
        B, T, C = x.shape
        heads = self.qkv(x).view(B, T, 3, HEADS, C // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # (B, H, T, D) each
        scores = q @ k.mT / math.sqrt(C // HEADS)
        later = torch.ones(T, T, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        return self.join((weights @ v).transpose(1, 2).reshape(B, T, C))


class GPT(nn.Module):
    def __init__(self, vocabulary, width=WIDTH, layers=LAYERS):
        super().__init__()
        self.tokens = nn.Parameter(torch.empty(vocabulary, width))
        self.positions = nn.Parameter(torch.empty(LONGEST, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:  # a matrix
                nn.init.normal_(parameter, std=0.8 / math.sqrt(width))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        for block in self.blocks:  # each writes into the stream twice
            block.join.weight.data /= math.sqrt(2 * layers)
            block.contract.weight.data /= math.sqrt(2 * layers)

    def forward(self, ids):
        x = self.tokens[ids] + self.positions[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.T  # (B, T, vocabulary) logits


def batch(texts, end):
    """Rows of ids: the end token, a document, and end tokens."""
    rows = [[end, *ids, end][: LONGEST + 1] for ids in texts]
    size = max(map(len, rows))
    return torch.tensor([row + [end] * (size - len(row)) for row in rows])


def nats(model, rows):
    """The surprise of each token after the first; 0 behind the end."""
    logits, targets = model(rows[:, :-1]), rows[:, 1:]
    chosen = logits.gather(-1, targets[..., None])[..., 0]
    surprise = logits.logsumexp(-1) - chosen
    ends = targets == rows[0, 0]
    return surprise.masked_fill(ends.cumsum(1) - ends.int() > 0, 0.0)


class AdamW:
    def __init__(self, model, decay=0.1, fast=0.9, slow=0.95):
        self.named, self.t = list(model.named_parameters()), 0
        self.decay, self.fast, self.slow = decay, fast, slow
        self.m = [torch.zeros_like(p) for p in model.parameters()]
        self.v = [torch.zeros_like(p) for p in model.parameters()]

    @torch.no_grad()
    def step(self, rate):
        self.t += 1
        for (name, p), m, v in zip(self.named, self.m, self.v):
            m.lerp_(p.grad, 1 - self.fast)
            v.lerp_(p.grad**2, 1 - self.slow)
            size = (v / (1 - self.slow**self.t)).sqrt() + 1e-8
            if p.ndim == 2 and name.endswith("weight"):  # it multiplies
                p.mul_(1 - rate * self.decay)
            p.sub_(rate / (1 - self.fast**self.t) * m / size)
            p.grad = None


def train(model, texts, end, steps, rows=8, rate=8e-3, warm_up=20):
    """The loss of each step, in nats per token."""
    optimiser, losses = AdamW(model), []
    for step in range(1, steps + 1):
        drawn = torch.randint(len(texts), (rows,)).tolist()
        surprise = nats(model, batch([texts[i] for i in drawn], end))
        loss = surprise.sum() / (surprise > 0).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        falling = (steps + 1 - step) / (steps + 1 - warm_up)
        optimiser.step(rate * min(step / warm_up, falling))
        losses.append(loss.item())
    return losses


@torch.no_grad()
def write(model, end, temperature=1.0):
    """Ids of a document of the model's own."""
    ids = [end]
    while len(ids) < LONGEST and (len(ids) == 1 or ids[-1] != end):
        logits = model(torch.tensor([ids]))[0, -1]
        probs = (logits / temperature).softmax(-1)
        ids.append(torch.multinomial(probs, 1).item())
    return ids[1:]


def main(path, steps=1_000):
    torch.manual_seed(0)
    documents = read(path)
    tokenizer = Tokenizer(learn(documents, merges=200))
    texts = [tokenizer.encode(text) for text in documents]
    model = GPT(tokenizer.end + 1)
    losses = train(model, texts, tokenizer.end, steps)
    print(tokenizer.decode(write(model, tokenizer.end)))
    return tokenizer, model, losses


if sys.argv[-1].endswith(".txt"):  # from a shell
    main(sys.argv[-1])
