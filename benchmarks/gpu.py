"""How fast is GPT-2 small trained on a GPU, and how fast does it write there, beside its peers?

Run by `make bench`; where there is no GPU nothing is done. NANOGPT names the folder of a copy of
nanoGPT (written for commit 3adf61e); without it only our own speed is told.

- Training: batches of the same ids, bfloat16, torch.compile, clipping, AdamW in one kernel. Ours
  by the parts of `train`; nanoGPT's `model.py` in the steps of its `train.py`, with the vocabulary
  that it pads to 50,304 tokens. Both begin with the same weights, whose losses must be equal.
- Writing: greedily, with a cache, against transformers, in float32; the texts must be equal.

Both take turns; of a round only the ratio is kept.
"""

import os
import random
import sys
from dataclasses import replace
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import torch
from torch import nn

from benchmarks.gpt import OURS, THEIRS, our_step, theirs
from benchmarks.shared.rounds import finish, in_turns
from next_token.gpus import peak_flops
from src.gpt import pretrained, sampling
from src.gpt.gpt2 import GPT, GPTConfig
from src.likelihood.batches import Batches
from src.likelihood.fitting import nats_of_batch

TEXTS, STEPS, ROUNDS = 32, 10, 10  # of 1,024 tokens each; steps a round
PROMPT, NEW, AT_ONCE = 8, 120, (1, 64)
RIVAL = "nanoGPT"


def nanogpt(folder, model, vocabulary_size):
    """nanoGPT's model with the weights of one of ours."""
    spec = spec_from_file_location("nanogpt_model", Path(folder) / "model.py")
    module = module_from_spec(spec)
    sys.modules["nanogpt_model"] = module  # its dataclass looks its own module up
    spec.loader.exec_module(module)
    rival = module.GPT(module.GPTConfig(vocab_size=vocabulary_size))
    weights, own = model.state_dict(), rival.state_dict()
    for ours, name in pretrained.released_names(model.config).items():
        own[f"transformer.{name}"][: len(weights[ours])] = weights[ours]
    rival.load_state_dict(own)
    return rival.to(next(model.parameters()).device)


def their_step(model, data, device):
    """A step of nanoGPT's train.py; its loss stays on the GPU."""
    compiled = torch.compile(model)
    optimiser = model.configure_optimizers(0.1, 6e-4, (0.9, 0.95), "cuda")

    def step(number):
        inputs, targets = (each.contiguous() for each in data[number])
        with torch.autocast(device.type, torch.bfloat16):
            _, loss = compiled(inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss

    return step


def finished(call):
    """What a call returns when the GPU has done all of it."""
    value = call()
    torch.cuda.synchronize()
    return value


def train(device, folder):
    """Ratios, notes, and what is missed."""
    config = replace(GPTConfig.gpt2("small"), dropout=0.0)
    length = config.context_length
    model = GPT(config, generator=torch.Generator().manual_seed(0)).to(device)
    ids = torch.randint(config.vocabulary_size, (1_000_000,)).to(device)
    data = Batches(ids, batch_size=TEXTS, context_length=length)
    steps, missed = {}, []
    if folder:
        with torch.no_grad():
            inputs, targets = (each[:4].contiguous() for each in data[0])
            _, loss = nanogpt(folder, model, config.vocabulary_size).eval()(inputs, targets)
            own = nats_of_batch(model.eval(), (inputs, targets)) / targets.numel()
            equal = torch.allclose(loss, own, rtol=1e-4)
        missed += [] if equal else [f"equal losses: {loss} and {own}"]
        steps[RIVAL] = their_step(nanogpt(folder, model, 50_304), data, device)
    steps[OURS] = our_step(model, ids, TEXTS, "bfloat16", compiled=True)

    def some(step, first):
        finished(lambda: [step(first + each) for each in range(STEPS)])

    for step in steps.values():
        some(step, 0)  # to compile, and to warm up
    taken = [
        in_turns({name: partial(some, step, STEPS * n) for name, step in steps.items()})[1]
        for n in range(1, ROUNDS + 1)
    ]
    fastest = min(each[OURS] for each in taken)
    speed = STEPS * TEXTS * length / fastest
    flops = 3 * config.flops_per_token(length) * speed
    peak = peak_flops(device, "bfloat16")
    share = f", {flops / peak:.0%} of the published peak" if peak else ""
    memory = torch.cuda.max_memory_allocated() / 2**30
    notes = [
        f"- training: {config.parameters:,} parameters, {TEXTS} × {length} tokens a step, "
        f"bfloat16, torch.compile; {ROUNDS} rounds of {STEPS} steps; ours at best {speed:,.0f} "
        f"tokens a second, {flops / 1e12:.0f} TFLOP/s{share}; all took {memory:.1f} GiB"
    ]
    ratios = [{f"a step, against {RIVAL}": each[RIVAL] / each[OURS]} for each in taken if folder]
    return ratios, notes, missed


def write(device):
    """Ratios, notes, and what is missed."""
    config = GPTConfig.gpt2("small")
    model = GPT(config, generator=torch.Generator().manual_seed(0)).to(device).eval()
    rival = theirs(model).to(device).eval()
    rival.generation_config.eos_token_id = None  # so that it does not stop
    ratios, notes, missed = [], [], []
    for texts in AT_ONCE:
        prompts = torch.randint(config.vocabulary_size, (texts, PROMPT), device=device)
        options = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
        options["attention_mask"] = torch.ones_like(prompts)

        def ours(texts=prompts):
            generator = torch.Generator().manual_seed(0)
            greedily = [partial(sampling.temperature, t=0)]
            return torch.stack(
                sampling.generate(
                    model, texts, max_new_tokens=NEW, filters=greedily, generator=generator
                )
            )

        calls = {
            OURS: partial(finished, ours),
            THEIRS: partial(finished, partial(rival.generate, prompts, **options)),
        }
        in_turns(calls)  # to warm up
        for _ in range(5):
            found, taken = in_turns(calls)
            ratios.append({f"{texts} texts at once, against {THEIRS}": taken[THEIRS] / taken[OURS]})
        same = (found[OURS] == found[THEIRS]).all(1).sum()
        missed += [] if same == texts else [f"equal texts: {same} of {texts}"]
        notes.append(
            f"- writing: {NEW} tokens after {PROMPT}, greedily, float32, {texts} texts at once: "
            f"{texts * NEW / taken[OURS]:,.0f} tokens a second; equal to those of {THEIRS}: "
            f"{same} of {texts}"
        )
    return ratios, notes, missed


def main():
    if not torch.cuda.is_available():
        return print("no GPU: nothing is timed")
    random.seed(0)
    torch.manual_seed(0)
    device = torch.device("cuda")
    parts = train(device, os.environ.get("NANOGPT")), write(device)
    ratios, notes, missed = (a + b for a, b in zip(*parts, strict=True))
    finish(
        "gpu",
        [
            "# GPT-2 small on a GPU, beside nanoGPT and transformers",
            "",
            "Written by `make bench` (`benchmarks/gpu.py`): how many times as fast `src` is.",
        ],
        ratios,
        dict.fromkeys(name for each in ratios for name in each),
        [*notes, f"- {torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"],
        missed,
    )


if __name__ == "__main__":
    main()
