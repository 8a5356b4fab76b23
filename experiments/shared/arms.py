"""Arms of a comparison: models that differ in one thing, each tuned, read off one curve.

After the warm-up the rate of an arm stays as it is, and what is scored is a mean of the weights,
mostly of the last tenth of the steps. So each point of a curve is as good as if the run had been
planned to end there, and the same curves tell what equal time would have given. How long a step
takes is measured apart, with all arms in turn.
"""

import statistics
import time
from copy import deepcopy
from functools import partial

import numpy as np
import torch
from scipy import special

from src.likelihood.fitting import fit
from src.tools.intervals import interval

WARM_UP = 20
RATES = [0.005 * 2**k for k in range(-4, 5)]
FIRST = (5, 6)  # which of them are tried in any case
ADAMW = partial(torch.optim.AdamW, fused=True)  # the same, in one kernel


def curve(model, data, score, *, steps, every, rate, optimiser=ADAMW):
    """What the mean of the weights scores on the way, {"steps": [...], "scores": [...]}.

    Args:
        score: called with a model.
    """
    scored = deepcopy(model)
    current, means = [*model.parameters()], [*scored.parameters()]
    found = {"steps": [], "scores": []}

    def after(step, model):
        with torch.no_grad():  # the mean, in which step n counts as n^9
            torch._foreach_lerp_(means, current, min(1.0, 10 / (step + 9)))
        if step and (step % every == 0 or step == steps):
            found["steps"].append(step)
            found["scores"].append(score(scored))

    fit(
        model,
        data,
        steps=steps,
        learning_rate=rate,
        schedule=lambda step: min(1.0, step / WARM_UP),
        optimiser=optimiser,
        after=after,
        progress=False,
    )
    return found


def tuned(tried):
    """{rate: score}: the best of them has a neighbour on either side, or ends the list.

    Args:
        tried: called with a rate; its score, the less the better.
    """
    found = {number: tried(RATES[number]) for number in FIRST}
    while True:
        best = min(found, key=found.get)
        wider = {best - 1, best + 1} & set(range(len(RATES))) - set(found)
        if not wider:
            return {RATES[number]: found[number] for number in sorted(found)}
        found |= {number: tried(RATES[number]) for number in sorted(wider)}


def seconds_of_steps(arms, data, rounds):
    """{arm: seconds of a step}, the median of many rounds in which all arms take their turns.

    Args:
        arms: {arm: (model, optimiser)}.
    """
    found = {arm: [] for arm in arms}
    for number in range(rounds + 1):
        for arm, (model, optimiser) in arms.items():
            batches = [data[4 * number + step] for step in range(4)]
            begun = time.process_time()
            fit(model, batches, steps=4, learning_rate=1e-3, optimiser=optimiser, progress=False)
            if number:  # the first round warms up
                found[arm].append((time.process_time() - begun) / 4)
    return {arm: statistics.median(each) for arm, each in found.items()}


def complete(seeds, run):
    """The seeds that have run; an interrupt ends with those before, if there are two."""
    done = []
    try:
        for seed in seeds:
            run(seed)
            done.append(seed)
    except KeyboardInterrupt:
        if len(done) < 2:
            raise
    return done


def read_at(run, step):
    """The score of a run after so many steps, between its points in a straight line."""
    return float(np.interp(step, run["steps"], run["scores"]))


def differences(several, base, seconds, seconds_of_base):
    """An arm's scores minus the base's, seed by seed, at equal operations and at equal time.

    Args:
        several, base: what `curve` found, for the same seeds.
        seconds, seconds_of_base: of a step.
    """
    until = min(
        several[0]["steps"][-1] * seconds, base[0]["steps"][-1] * seconds_of_base
    )  # both have a curve until then
    pairs = [*zip(several, base, strict=True)]
    return {
        "operations": [one["scores"][-1] - other["scores"][-1] for one, other in pairs],
        "time": [
            read_at(one, until / seconds) - read_at(other, until / seconds_of_base)
            for one, other in pairs
        ],
    }


def around(values):
    mean, half = interval(values)
    return f"{mean:+.4f} ({mean - half:+.4f} to {mean + half:+.4f})"


def p_value(values):
    """How probable a mean so far from 0 is, on either side, if all runs' mean is 0 (Student)."""
    values = np.asarray(values, dtype=float)
    error = values.std(ddof=1) / len(values) ** 0.5
    if not error:
        return float(not values.any())
    return float(2 * special.stdtr(len(values) - 1, -abs(values.mean()) / error))


def survivors(p_values, level=0.05):
    """The names whose p survives Holm's correction for all of them, the least first.

    The least of m has to be below level / m, the next below level / (m - 1), and so on until one
    is not.
    """
    found = []
    for name in sorted(p_values, key=p_values.get):
        if p_values[name] > level / (len(p_values) - len(found)):
            break
        found.append(name)
    return found
