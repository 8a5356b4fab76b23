"""How fast is our `Block`, beside torch's own layer and a plain one? Run by `make bench`.

Forward and backward of one pre-norm block, causal, in float32 on one thread, by three modules with
the same weights, which must give the same outputs and gradients: ours,
`nn.TransformerEncoderLayer`, and a block as short as it can be written with
`functional.scaled_dot_product_attention`, which checks nothing. In each round all of them run, in
an order drawn anew, and only ratios are kept: a busy machine slows all of them.
"""

import random
from functools import partial

import torch
from torch import nn

from benchmarks.shared.plain import PlainBlock
from benchmarks.shared.rounds import finish, in_turns
from src.attention.block import Block
from src.attention.config import BlockConfig

SIZES = {  # name: (texts, length, heads, channels, rounds, runs in each)
    "12 × 64 rows, 4 heads, 128 channels": (12, 64, 4, 128, 41, 10),
    "16 × 256 rows, 6 heads, 384 channels": (16, 256, 6, 384, 9, 1),
}
ASKED = ("≥", 0.95)
PEERS = ("nn.TransformerEncoderLayer", "the plain block")


def contenders(length, heads, channels):
    """Three modules with the same weights, by name, and {name: function of x}."""
    config = BlockConfig(channels=channels, heads=heads)
    ours = Block(config, generator=torch.Generator().manual_seed(0))
    torchs = nn.TransformerEncoderLayer(
        channels, heads, 4 * channels, 0.0, "gelu", batch_first=True, norm_first=True
    )
    plain = PlainBlock(channels, heads)
    # The order in which all three keep their parts, ours by name.
    parts = {
        "attention.qkv": ("self_attn.in_proj_", "c_attn."),
        "attention.output": ("self_attn.out_proj.", "c_proj."),
        "attention_norm": ("norm1.", "ln_1."),
        "feed_forward.expand": ("linear1.", "c_fc."),
        "feed_forward.contract": ("linear2.", "mlp_c_proj."),
        "feed_forward_norm": ("norm2.", "ln_2."),
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
    """Seconds of each; gradients are dropped between runs."""

    def run(name):
        for _ in range(runs):
            modules[name].zero_grad(set_to_none=True)
            x.grad = None
            calls[name](x).backward(gradient)

    _, taken = in_turns({name: partial(run, name) for name in calls})
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
    finish(
        "attention",
        [
            "# A block beside torch's and a plain one",
            "",
            "Written by `make bench` (`benchmarks/attention.py`): how many times as fast "
            "`src.attention.block.Block` is,",
            "forward and backward, interleaved rounds, one ratio a round.",
        ],
        every_round,
        targets,
        [*notes, f"- torch {torch.__version__}, float32"],
        missed,
    )


if __name__ == "__main__":
    main()
