"""How fast is our `Block`, beside torch's own layer and a plain one? Run by `make bench`.

Forward and backward of one pre-norm block, causal, in float32 on one thread, by three modules with
the same weights, which must give the same outputs and gradients: ours,
`nn.TransformerEncoderLayer`, and a block as short as it can be written with
`functional.scaled_dot_product_attention`, which checks nothing. In each round all of them run, in
an order drawn anew, and only ratios are kept: a busy machine slows all of them.
"""

import random
import sys
import time

import torch
from rounds import machine, record, rows
from torch import nn
from torch.nn import functional

from src.transformer import Block

SIZES = {  # name: (texts, length, heads, channels, rounds, runs in each)
    "12 × 64 rows, 4 heads, 128 channels": (12, 64, 4, 128, 41, 10),
    "16 × 256 rows, 6 heads, 384 channels": (16, 256, 6, 384, 9, 1),
}
ASKED = ("≥", 0.95)
PEERS = ("nn.TransformerEncoderLayer", "the plain block")


class PlainBlock(nn.Module):
    """Pre-norm, causal, no options, no checks."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.output = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.expand = nn.Linear(channels, 4 * channels)
        self.contract = nn.Linear(4 * channels, channels)

    def forward(self, x):
        batch, length, channels = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, channels // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)  # (B, H, T, D) each
        gathered = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.output(gathered.transpose(1, 2).reshape(x.shape))
        return x + self.contract(functional.gelu(self.expand(self.norm2(x))))


def contenders(length, heads, channels):
    """Three modules with the same weights, by name, and {name: function of x}."""
    ours = Block(channels, heads, generator=torch.Generator().manual_seed(0))
    torchs = nn.TransformerEncoderLayer(
        channels, heads, 4 * channels, 0.0, "gelu", batch_first=True, norm_first=True
    )
    plain = PlainBlock(channels, heads)
    # The order in which all three keep their parts, ours by name.
    parts = {
        "attention.qkv": ("self_attn.in_proj_", "qkv."),
        "attention.output": ("self_attn.out_proj.", "output."),
        "attention_norm": ("norm1.", "norm1."),
        "feed_forward.expand": ("linear1.", "expand."),
        "feed_forward.contract": ("linear2.", "contract."),
        "feed_forward_norm": ("norm2.", "norm2."),
    }
    weights = ours.state_dict()
    names = {"weight": ("weight", "gain"), "bias": ("bias", "bias")}
    for number, module in enumerate((torchs, plain)):
        module.load_state_dict(
            {
                theirs[number] + name: weights[f"{part}.{own[part.endswith('norm')]}"]
                for part, theirs in parts.items()
                for name, own in names.items()
            }
        )
    mask = nn.Transformer.generate_square_subsequent_mask(length)
    modules = dict(zip(("ours", *PEERS), (ours, torchs, plain), strict=True))
    calls = {
        "ours": lambda x: ours(x, causal=True),
        PEERS[0]: lambda x: torchs(x, src_mask=mask, is_causal=True),
        PEERS[1]: plain,
    }
    return modules, calls


def greatest_difference(calls, x, gradient):
    """Of outputs and of gradients with respect to x, between us and the others."""
    found = {}
    for name, call in calls.items():
        x.grad = None
        y = call(x)
        y.backward(gradient)
        found[name] = torch.stack([y.detach(), x.grad])
    return max(float((found["ours"] - found[peer]).abs().max()) for peer in PEERS)


def one_round(modules, calls, x, gradient, runs):
    """Seconds of each, in an order drawn at random; gradients are dropped between runs."""
    taken = {}
    for name in random.sample(list(calls), len(calls)):
        started = time.perf_counter()
        for _ in range(runs):
            modules[name].zero_grad(set_to_none=True)
            x.grad = None
            calls[name](x).backward(gradient)
        taken[name] = time.perf_counter() - started
    return taken


def main():
    torch.set_num_threads(1)
    random.seed(0)
    torch.manual_seed(0)
    every_round, targets, notes, missed = [], {}, [], []
    for size, (texts, length, heads, channels, rounds, runs) in SIZES.items():
        x = torch.randn(texts, length, channels, requires_grad=True)
        gradient = torch.randn(texts, length, channels)
        modules, calls = contenders(length, heads, channels)
        difference = greatest_difference(calls, x, gradient)
        one_round(modules, calls, x, gradient, runs)  # to warm up
        fastest = float("inf")
        for _ in range(rounds):
            taken = one_round(modules, calls, x, gradient, runs)
            fastest = min(fastest, taken["ours"] / runs)
            every_round.append({f"{size}, against {p}": taken[p] / taken["ours"] for p in PEERS})
        targets |= {f"{size}, against {peer}": ASKED for peer in PEERS}
        notes.append(
            f"- {size}: {rounds} rounds of {runs}; ours at best {texts * length / fastest:,.0f} "
            f"tokens a second; greatest difference of outputs and gradients {difference:.1e}"
        )
        if difference > 1e-4:
            missed.append(f"equal outputs and gradients: {size}")
    lines, slow = rows(every_round, targets)
    record(
        "attention",
        [
            "# A block beside torch's and a plain one",
            "",
            "Written by `make bench` (`benchmarks/attention.py`): how many times as fast "
            "`src.transformer.Block` is,",
            "forward and backward, interleaved rounds, one ratio a round.",
            "",
            *lines,
            "",
            *notes,
            f"- torch {torch.__version__}, float32",
            f"- {machine()}",
        ],
    )
    missed += slow
    sys.exit(f"missed: {missed}" if missed else 0)


if __name__ == "__main__":
    main()
