"""How many tokens a second does the micro-world draw, score and predict? Run by `make bench`.

Whoever trains on the micro-world draws millions of tokens, so drawing must not be what they wait
for. There is no peer that does the same work: the figures are tokens a second on one core, one for
each round, the three kinds of work in turns.
"""

import torch

from benchmarks.shared.rounds import finish, seconds
from src.texts.microworld import MicroWorld

DOCUMENTS, ROUNDS = 5_000, 9
TARGETS = {
    "drawing, with log-probability": ("≥", 500_000),
    "scoring": ("≥", 200_000),
    "predicting, the next word's distribution at each position": None,
}


def one_round(world, generator):
    drawn, drawing = seconds(lambda: world.sample(DOCUMENTS, generator=generator))
    words = [each.words for each in drawn]
    _, scoring = seconds(lambda: [world.log_prob(each) for each in words])
    few = words[: DOCUMENTS // 10]
    _, predicting = seconds(lambda: [world.token_log_probs(each) for each in few])
    tokens, few_tokens = (sum(map(len, texts)) for texts in (words, few))
    return dict(
        zip(TARGETS, (tokens / drawing, tokens / scoring, few_tokens / predicting), strict=True)
    )


def main():
    torch.set_num_threads(1)
    world, generator = MicroWorld(), torch.Generator().manual_seed(0)
    one_round(world, generator)  # the first one warms up
    rounds = [one_round(world, generator) for _ in range(ROUNDS)]
    finish(
        "microworld",
        [
            "# The micro-world: tokens a second",
            "",
            "Written by `make bench` (`benchmarks/microworld.py`): tokens a second,",
            f"{len(rounds)} rounds of {DOCUMENTS:,} documents.",
        ],
        rounds,
        TARGETS,
        [f"- {len(world.vocabulary)} words, documents of at most {world.longest} tokens"],
    )


if __name__ == "__main__":
    main()
