"""How fast are our training step and our generation, beside transformers and a plain GPT?

Run by `make bench`. On one thread of the CPU, in float32 unless said otherwise:

- a training step of `src.gpt.training` (batch, forward, backward, clipping, AdamW), against the
  same model of `transformers` and a plain one after nanoGPT, both in the customary loop; and
  against the machine's own rate of multiplying matrices in the same run;
- 256 tokens of `src.gpt.sampling.generate`, with a cache and without one (then the whole text goes
  through the blocks for each token, and its last state alone is unembedded), and against
  `transformers`.

All have the same weights and must give the same losses and the same texts. In each round all of
them run, in an order drawn anew, and only ratios are kept: a busy machine slows all of them. On a
GPU: `benchmarks.gpu`.
"""

import os
import random
import shutil
import statistics
import tempfile
import time
from functools import partial

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from torch import nn
from torch.nn import functional

from benchmarks.shared.plain import PlainBlock
from benchmarks.shared.rounds import finish, in_turns
from next_token.engines import RunTraining, Together
from next_token.processes import Team
from src.gpt import pretrained, sampling
from src.gpt.gpt2 import GPT, GPTConfig
from src.likelihood import fitting
from src.likelihood.batches import Batches

VOCABULARY = 65  # the characters of the usual first corpus
# name: (layers, heads, channels, positions, texts, rounds)
TRAINING = {
    "(4, 4, 128), 12 × 64 tokens": (4, 4, 128, 64, 12, 60),
    "(6, 6, 384), 16 × 256 tokens": (6, 6, 384, 256, 16, 5),
}
# name: (configuration, rounds, every how many lengths are timed without a cache)
PROMPT, NEW = 8, 256
SMALL, GPT2 = "(4, 4, 128)", "GPT-2 small's shape"
GENERATION = {
    SMALL: (
        GPTConfig(
            VOCABULARY,
            context_length=PROMPT + NEW,
            layers=4,
            heads=4,
            channels=128,
            activation="gelu_tanh",
        ),
        15,
        1,
    ),
    GPT2: (GPTConfig.gpt2("small"), 2, 32),
}
SGEMM = 512  # rows and columns of the square matrices


# What is taken on one thread is the processor's time: waiting for it on a busy machine is no work.
CLOCK = time.process_time
OURS, PLAIN = "ours", "a plain GPT"
THEIRS, EXACT = "transformers", "transformers with the exact GELU"
PEERS = (THEIRS, EXACT, PLAIN)
SHORT, COMPILED = "ours in bfloat16", "compiled by torch.compile, against transformers"


# ---- the peers -------------------------------------------------------------------------------


class PlainGPT(nn.Module):
    """After nanoGPT: modules of torch, eager, tied, exact GELU."""

    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocabulary_size, config.channels)
        self.wpe = nn.Embedding(config.context_length, config.channels)
        blocks = (PlainBlock(config.channels, config.heads) for _ in range(config.layers))
        self.h = nn.ModuleList(blocks)
        self.ln_f = nn.LayerNorm(config.channels)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


def plain(model):
    """A `PlainGPT` with the weights of one of ours."""
    weights, own = model.state_dict(), PlainGPT(model.config)
    own.load_state_dict(
        {
            theirs.replace("mlp.c_proj", "mlp_c_proj")
            .replace("attn.c_", "c_")
            .replace("mlp.", ""): weights[ours]
            for ours, theirs in pretrained.released_names(model.config).items()
        }
    )
    return own


def theirs(model, activation="gelu_new"):
    """transformers' model with the weights of one of ours; with GPT-2's GELU, as it comes."""
    with tempfile.TemporaryDirectory() as folder:
        pretrained.save(model, folder)
        return transformers.GPT2LMHeadModel.from_pretrained(
            folder, attn_implementation="sdpa", activation_function=activation
        )


# ---- training --------------------------------------------------------------------------------


def our_step(model, ids, texts, precision="float32", compiled=False):
    """One step of `src.gpt.training.train`, by its own parts; returns the loss."""
    config = RunTraining(
        steps=1_000, learning_rate=1e-3, end=1.0, precision=precision, compile=compiled
    )
    data = Batches(ids, batch_size=texts, context_length=model.config.context_length)
    learner = Together(model, config, Team())

    def step(number):
        learner.optimiser.zero_grad()
        loss = learner.backward(data[number])
        norm = learner.clip()
        fitting.check_finite(number + 1, loss, norm, config.learning_rate)
        for group in learner.optimiser.param_groups:
            group["lr"] = config.learning_rate
        learner.optimiser.step()
        learner.end_step()
        return loss

    return step


def customary_step(model, ids, texts, length):
    """The same step as it is usually written; returns the loss."""
    data = Batches(ids, batch_size=texts, context_length=length)
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))

    def step(number):
        inputs, targets = data[number]
        logits = model(inputs)
        logits = logits if isinstance(logits, torch.Tensor) else logits.logits
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.item()

    return step


def train(size, layers, heads, channels, length, texts, rounds):
    """The ratios of all rounds, the targets, notes, and what is missed."""
    config = GPTConfig(
        VOCABULARY, context_length=length, layers=layers, heads=heads, channels=channels
    )
    generator = torch.Generator().manual_seed(0)
    model = GPT(config, generator=generator)
    ids = torch.randint(VOCABULARY, (100_000,), generator=generator)

    def copy():
        again = GPT(config, generator=generator)
        again.load_state_dict(model.state_dict())
        return again

    customary = partial(customary_step, ids=ids, texts=texts, length=length)
    calls = {
        OURS: our_step(copy(), ids, texts),
        PLAIN: customary(plain(model)),
        THEIRS: customary(theirs(model)),
    }
    large = channels > 128
    if not large:
        calls[EXACT] = customary(theirs(model, "gelu"))
    if large and torch.cpu._is_avx512_bf16_supported():
        calls[SHORT] = our_step(copy(), ids, texts, "bfloat16")
    if large and shutil.which("g++"):
        calls[COMPILED] = our_step(copy(), ids, texts, compiled=True)
    losses = {name: call(0) for name, call in calls.items()}  # to warm up, too
    flops = 3 * config.flops_per_token(length) * texts * length
    matrix = torch.randn(SGEMM, SGEMM)
    multiply = {"sgemm": lambda _: [matrix @ matrix for _ in range(10)]}
    every_round = [
        in_turns(calls | multiply, number, clock=CLOCK)[1] for number in range(1, rounds + 1)
    ]
    sgemm = statistics.median(10 * 2 * SGEMM**3 / taken["sgemm"] for taken in every_round)
    label = f"training, {size}: "
    variants = {"bfloat16 against float32": (OURS, SHORT), COMPILED: (THEIRS, COMPILED)}
    ratios = [
        {f"{label}against {name}": t / taken[OURS] for name, t in taken.items() if name in PEERS}
        | {f"{label}share of the sgemm rate": flops / taken[OURS] / sgemm}
        | {
            f"{label}{name}": taken[slow] / taken[fast]
            for name, (slow, fast) in variants.items()
            if fast in taken
        }
        for taken in every_round
    ]
    asked = {THEIRS: ("≥", 1.15 if large else 1.25), EXACT: None, PLAIN: None}
    targets = {f"{label}against {name}": asked[name] for name in PEERS if name in calls}
    targets[f"{label}share of the sgemm rate"] = ("≥", 0.8 if large else 0.6)
    if SHORT in calls:
        targets[f"{label}bfloat16 against float32"] = ("≥", 1.6)
    if COMPILED in calls:
        targets[f"{label}{COMPILED}"] = None
    fastest = min(taken[OURS] for taken in every_round)
    same = (PLAIN, EXACT, COMPILED)
    difference = max(abs(losses[n] - losses[OURS]) for n in same if n in losses)
    notes = [
        f"- training, {size}: {rounds} rounds of single steps of {flops / 1e9:.2f} GFLOP; ours "
        f"at best {texts * length / fastest:,.0f} tokens a second; sgemm at {SGEMM} rows "
        f"{sgemm / 1e9:.0f} GFLOP/s; greatest difference of first losses {difference:.1e}"
    ]
    return ratios, targets, notes, ["equal losses"] if difference > 1e-5 else []


# ---- generation ------------------------------------------------------------------------------


def generate(size, config, rounds, every):
    """As `train`. Without a cache the time of a token depends on the length alone, so each
    `every`-th length stands for its neighbours."""
    model = GPT(config, generator=torch.Generator().manual_seed(0)).eval()
    peer = theirs(model).eval()
    peer.generation_config.eos_token_id = None  # so that it does not stop
    prompt = torch.randint(config.vocabulary_size, (1, PROMPT))
    drawing, greedily = partial(sampling.top_k, k=50), partial(sampling.temperature, t=0)

    def ours(text, number, by=drawing, cache=True):
        options = {"generator": torch.Generator().manual_seed(0), "cache": cache}
        return sampling.generate(model, text, max_new_tokens=number, filters=[by], **options)[0]

    def uncached(text):
        lengths = range(PROMPT + every // 2, PROMPT + NEW, every)
        return torch.stack([ours(text[None, :n], 1, greedily, False)[-1] for n in lengths])

    def peers(**options):
        torch.manual_seed(0)
        options |= {"max_new_tokens": NEW, "pad_token_id": 0}
        return peer.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[0]

    text = ours(prompt, NEW, greedily)
    calls = {
        "drawn": lambda: ours(prompt, NEW),
        "greedy": lambda: ours(prompt, NEW, greedily),
        "uncached": lambda: uncached(text),
        "their drawn": lambda: peers(do_sample=True, top_k=50),
        "their greedy": lambda: peers(do_sample=False),
    }
    ratios, fastest, label = [], float("inf"), f"generation, {size}: "
    for _ in range(rounds):
        found, taken = in_turns(calls, clock=CLOCK)
        fastest = min(fastest, taken["drawn"])
        ratios.append(
            {
                f"{label}with a cache, against without": every
                * taken["uncached"]
                / taken["greedy"],
                f"{label}against {THEIRS}, drawn": taken["their drawn"] / taken["drawn"],
                f"{label}against {THEIRS}, greedy": taken["their greedy"] / taken["greedy"],
            }
        )
    equal = (
        torch.equal(found["greedy"], found["their greedy"])
        and torch.equal(found["greedy"][PROMPT + every // 2 :: every], found["uncached"])
        and torch.equal(found["drawn"], found["their drawn"])
    )
    asked = (("≥", 8), ("≥", 2.5), None) if size == SMALL else (("≥", 7), ("≥", 1.1), None)
    notes = [
        f"- generation, {size}: {rounds} rounds of {NEW} tokens after {PROMPT}, batch 1, drawn "
        f"from the 50 likeliest or greedy; drawn at best at {NEW / fastest:,.0f} tokens a second; "
        f"texts equal to those of {THEIRS}: {equal}"
        + (f"; without a cache one length in {every} is timed" if every > 1 else "")
    ]
    wrong = [] if equal else [f"equal texts: {size}"]
    return ratios, dict(zip(ratios[0], asked, strict=True)), notes, wrong


def reading(rounds=5, matrices=40, size=768):
    """A note: how fast products of one row read matrices, as `nn.Linear` keeps them and turned."""
    row = torch.randn(1, size)
    kept = [torch.randn(4 * size, size) for _ in range(matrices)]  # more than a cache holds
    turned = [matrix.T.contiguous() for matrix in kept]
    calls = {
        "kept": lambda: [functional.linear(row, matrix) for matrix in kept],
        "turned": lambda: [row @ matrix for matrix in turned],
    }
    taken = [in_turns(calls, clock=CLOCK)[1] for _ in range(rounds)]
    n_bytes = sum(matrix.nbytes for matrix in kept)
    rates = [n_bytes / min(each[name] for each in taken) / 1e9 for name in calls]
    return (
        f"- {THEIRS} keeps GPT-2's matrices turned. A product of one row reads {rates[0]:.0f} GB/s "
        f"of matrices as `nn.Linear` keeps them, {rates[1]:.0f} GB/s of turned ones: so much of "
        f"the ratios for {GPT2} is the machine's"
    )


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    random.seed(0)
    torch.manual_seed(0)
    every_round, targets, notes, missed = [], {}, [], []
    parts = [partial(train, size, *values) for size, values in TRAINING.items()]
    parts += [partial(generate, size, *values) for size, values in GENERATION.items()]
    for part in parts:
        ratios, asked, lines, wrong = part()
        every_round += ratios
        targets |= asked
        notes += lines
        missed += wrong
    notes.append(reading())
    finish(
        "gpt",
        [
            "# A GPT's training step and its generation, beside transformers and a plain GPT",
            "",
            "Written by `make bench` (`benchmarks/gpt.py`): how many times as fast `src` is, "
            "in the processor's time, interleaved",
            "rounds in random order, one ratio a round. Peers are trained in the customary loop "
            "(AdamW and the rest as torch has them by default).",
            "transformers comes with GPT-2's GELU, a tanh, which costs a CPU more than the exact "
            "one that we train with.",
        ],
        every_round,
        targets,
        [
            *notes,
            f"- torch {torch.__version__}, transformers {transformers.__version__}, float32",
        ],
        missed,
    )


if __name__ == "__main__":
    main()
