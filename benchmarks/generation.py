"""How fast does the packaged model write in our hands, beside transformers on the same weights?

Run by `make bench`. On one thread of the CPU, greedily, with a cache, one text at a time:

- in float32, against `transformers`' own reading of the same file: the tokens must be equal;
- with matrices packed in 8 bits (`src.today.quantisation.pack`), against the same: the tokens must
  be equal to those that `transformers` writes in float32 with the numbers that the 8 bits stand
  for;
- in float32, against the same model with all matrices row by row: what their order is worth.

In each round all go on from one document of the test part of Python's documentation, another in
each round, in an order drawn anew, and only ratios are kept. Then the packed model, the very one
that was timed, is scored beside the file as it is, on the documents of `experiments/small_enough`.
"""

import os
import random
import sys
import time
from copy import deepcopy
from functools import partial

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from torch import nn

from benchmarks.shared.rounds import finish, in_turns
from src.gpt.sampling import generate, temperature
from src.likelihood.evaluation import document_scores, paired_bootstrap, total
from src.texts import corpora
from src.today.gguf_models import open_model, packaged_file
from src.today.quantisation import pack, quantise

ROUNDS, PROMPT, NEW = 7, 64, 64
DOCUMENTS, N_BYTES = 20, 1_000  # that are scored, and of each
CLOCK = time.process_time  # waiting for the processor on a busy machine is no work
FLOAT, PACKED = "float32, against transformers", "packed in 8 bits, against transformers"
ROWS = "float32, against ours row by row"
TARGETS = {
    FLOAT: ("≥", 1.05),
    PACKED: ("≥", 1.5),
    "packed in 8 bits, against our float32": None,
    ROWS: ("≥", 1.1),
}


def theirs():
    """The model as transformers reads the file."""
    path = packaged_file()
    peer = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    peer.generation_config.eos_token_id = None  # so that it does not stop
    return peer


@torch.no_grad()
def rounded(peer):
    """A copy whose linear layers have the numbers that 8 bits stand for; its embedding stays."""
    copied = deepcopy(peer)
    copied.lm_head.weight = nn.Parameter(copied.lm_head.weight.clone())  # no longer tied
    for part in copied.modules():
        if isinstance(part, nn.Linear):
            part.weight.copy_(quantise(part.weight, 8).restored())
    return copied


def by_rows(model):
    """A copy whose matrices are all kept row by row."""
    copied = deepcopy(model)
    for held in copied.parameters():
        held.data = held.data.contiguous()
    return copied


def ours(model, prompt):
    options = {"max_new_tokens": NEW, "filters": [partial(temperature, t=0)]}
    return generate(model, prompt, generator=torch.Generator().manual_seed(0), **options)[0]


def of_peer(peer, prompt):
    options = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    return peer.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[0]


def long_texts():
    test = corpora.split(corpora.load("python-docs")).test
    return [each.text for each in test if each.n_bytes >= N_BYTES]


def prompts(real):
    for text in random.sample(long_texts(), ROUNDS):
        yield torch.tensor([[real.end, *real.tokenizer.encode(text)][:PROMPT]])


def scored(real, model):
    cut = [text.encode()[:N_BYTES].decode(errors="ignore") for text in long_texts()[:DOCUMENTS]]
    ids = [torch.tensor([real.end, *real.tokenizer.encode(text)]) for text in cut]
    sizes = [len(text.encode()) for text in cut]
    return document_scores(model, ids, context_length=1_024, batch_size=1, n_bytes=sizes)


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    random.seed(0)
    real, peer = open_model(context_length=1_024), theirs()
    packed, peer_of_packed = deepcopy(real.model), rounded(peer)
    pack(packed)
    rows = by_rows(real.model)
    every_round, equal, agreed, fastest = [], [], [], {}
    for number, prompt in enumerate(prompts(real)):
        calls = {
            "float": partial(ours, real.model, prompt),
            "packed": partial(ours, packed, prompt),
            "rows": partial(ours, rows, prompt),
            "theirs": partial(of_peer, peer, prompt),
        }
        if not number:
            in_turns(calls)  # to warm up
        found, taken = in_turns(calls, clock=CLOCK)
        equal.append(torch.equal(found["float"], found["theirs"]))
        same = found["packed"] == of_peer(peer_of_packed, prompt)
        agreed.append(int(same.cumprod(0).sum()) - PROMPT)
        every_round.append(
            {
                FLOAT: taken["theirs"] / taken["float"],
                PACKED: taken["theirs"] / taken["packed"],
                "packed in 8 bits, against our float32": taken["float"] / taken["packed"],
                ROWS: taken["rows"] / taken["float"],
            }
        )
        for name, spent in taken.items():
            fastest[name] = max(fastest.get(name, 0), NEW / spent)
    whole = sum(count == NEW for count in agreed)
    of_packed, of_file = scored(real, packed), scored(real, real.model)
    drawing = torch.Generator().manual_seed(0)
    more = paired_bootstrap(of_packed, of_file, generator=drawing)
    finish(
        "generation",
        [
            "# A released model writes, beside transformers on the same weights",
            "",
            "Written by `make bench` (`benchmarks/generation.py`): how many times as fast `src` "
            "is, in the processor's time,",
            "interleaved rounds in random order, one ratio a round.",
        ],
        every_round,
        TARGETS,
        [
            f"- {ROUNDS} rounds of {NEW} tokens after {PROMPT}, greedy, batch 1; at best "
            f"{fastest['float']:.1f} tokens a second in float32, {fastest['packed']:.1f} packed, "
            f"{fastest['theirs']:.1f} of transformers",
            f"- float32: texts equal to those of transformers in {sum(equal)} of {ROUNDS} rounds",
            f"- packed, against transformers in float32 with the numbers that the 8 bits stand "
            f"for: texts equal in {whole} of {ROUNDS} rounds, equal tokens before the first other "
            f"one {', '.join(map(str, agreed))}",
            f"- packed, {total(of_packed).bits_per_byte:.4f} bits per byte on {N_BYTES:,} bytes of "
            f"each of {DOCUMENTS} documents; the file as it is, "
            f"{total(of_file).bits_per_byte:.4f}; more, paired by document (95 %): "
            f"{more.estimate:+.4f} ({more.low:+.4f} to {more.high:+.4f})",
            f"- torch {torch.__version__}, transformers {transformers.__version__}",
        ],
        [
            name
            for name, is_met in (
                ("equal texts in float32", all(equal)),
                ("equal texts packed", whole == ROUNDS),
            )
            if not is_met
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
