"""The long track of the challenge: which model has learnt most after 1,000 CPU seconds?

Text, entries, rules and verdict are those of `challenge`; rates are tuned in runs of a minute.
Three hours of one core. An interrupt (Ctrl-C) ends it after the seeds that are complete; begun
again, it goes on from there.
"""

from dataclasses import dataclass, replace

from experiments import challenge

TRACK = "long"


@dataclass(frozen=True)
class Settings(challenge.Settings):
    tracks: tuple = (TRACK,)
    tuning_seconds: float = 60


QUICK = replace(challenge.QUICK, tracks=(TRACK,))

find = challenge.find


def table(kept):
    found = kept["tracks"][TRACK]
    return [
        "The long challenge: who has learnt most after a quarter of an hour of one core?",
        *challenge.table_of(TRACK, found, kept),
        "",
        "The rules stand beside the record of the short tracks, `results/challenge/table.md`.",
    ]
