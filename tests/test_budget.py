"""The book's budget of time: the seconds that were measured, added up.

What was measured, with `pytest --nbval --measure book tests` on two quiet cores, is kept in
`_ext/seconds.json`; a chapter of one's own is added by `pytest --nbval --measure` and its path.
"""

import re

import pytest
import shares
from chapters import ROOT, chapters
from dependencies import code_of, imported

MINUTE = 60
WHOLE = 12 * MINUTE, 18 * MINUTE  # all chapters, one after the other: without Part V, with it
TESTED = 9.5 * MINUTE, 14 * MINUTE  # chapters and tests on two workers
UNIT_TESTS = 7 * MINUTE
TRAINS, OTHERS = 45, 15  # seconds of a chapter
OF_THEIR_OWN = {
    **dict.fromkeys(["encoder_decoder", "zero_shot", "gpt1_analysis"], 60),
    **dict.fromkeys(["training", "gpt1_finetuning"], 90),
    **dict.fromkeys(["a_real_model", "small_enough", "your_own"], 40),  # a released model
    "evaluation": TRAINS,  # its ledger trains the network of `neural` again
}
TRAINERS = {"fit", "train", "finetune", "train_run"}


def limit(path, root=ROOT):
    """The seconds that a chapter may take."""
    code = code_of(path)
    trains = ".backward(" in code or TRAINERS & {name.split(".")[-1] for name in imported(code)}
    part_five = "today" in path.relative_to(root).parts
    return OF_THEIR_OWN.get(path.stem, (25 if part_five else TRAINS) if trains else OTHERS)


def overdrawn(seconds, limits, part_five):
    """What takes longer than it may: `limits` has the chapters, all other files are unit tests."""
    for name in sorted(limits.keys() - seconds.keys()):
        yield f"{name} was never measured: pytest --nbval --measure {name}"
    for name, most in sorted(limits.items()):
        if seconds.get(name, 0.0) > most:
            yield f"{name} takes {seconds[name]:.0f} s, may take {most}"
    book = sum(taken for name, taken in seconds.items() if name in limits)
    tests = sum(seconds.values()) - book
    for what, taken, most in (
        ("all chapters", book, WHOLE[part_five]),
        ("all unit tests", tests, UNIT_TESTS),
        ("make test", shares.together(seconds, 2), TESTED[part_five]),
    ):
        if taken > most:
            yield f"{what}: {taken / MINUTE:.1f} min, may take {most / MINUTE:g}"


@pytest.mark.parametrize(
    ("seconds", "found"),
    [
        ({"a": 15.0, "b": 45.0, "t": 420.0}, []),
        ({"a": 15.1, "b": 45.0}, ["a takes 15 s, may take 15"]),
        ({"a": 1.0}, ["b was never measured: pytest --nbval --measure b"]),
        ({"a": 1.0, "b": 1.0, "t": 421.0}, ["all unit tests: 7.0 min, may take 7"]),
        ({f"c{i}": 40.0 for i in range(18)} | {"a": 1.0, "b": 1.0}, ["all chapters: 12.0 min"]),
        ({f"c{i}": 40.0 for i in range(18)} | {"a": 0.0, "b": 0.0, "t": 420.0}, []),
    ],
)
def test_what_takes_longer_than_it_may_is_found(seconds, found):
    limits = {"a": 15, "b": 45} | {name: 45 for name in seconds if re.fullmatch(r"c\d+", name)}
    told = list(overdrawn(seconds, limits, part_five=False))
    assert len(told) == len(found)
    assert all(message.startswith(start) for message, start in zip(told, found, strict=True)), told


def test_a_chapter_that_trains_may_take_longer():
    limits = {path.stem: limit(path) for path in chapters()}
    assert limits["surprise"] == limits["bpe"] == limits["ngrams"] == OTHERS
    assert limits["neural"] == limits["optimisation"] == TRAINS
    assert limits["zero_shot"] == 60
    assert limits["training"] == 90
    assert limits["a_real_model"] == 40
    assert limits["experts"] == 25


def test_the_book_keeps_its_budget():
    seconds = shares.seconds()
    if not seconds:
        pytest.skip("nothing was measured yet: pytest --nbval --measure book tests")
    limits = {path.relative_to(ROOT).as_posix(): limit(path) for path in chapters()}
    told = list(overdrawn(seconds, limits, (ROOT / "book/today").exists()))
    assert not told, "\n".join(told)
