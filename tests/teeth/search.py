"""Look, for each assertion of a chapter, for a change upstream of it that makes it fail."""

import random
from functools import cache
from math import log2

from teeth.called import called_by
from teeth.chapter import statements, upstream
from teeth.mutations import mutations
from teeth.snapshots import Snapshots, code_place, function_tree, in_a_copy, is_ours

BUDGET = 4.0  # seconds of changed runs for each second of the chapter, a short one taken as
LEAST = 10.0  # so many seconds
SHIFTS = (1_000, 2_000)  # what is added to every seed
TRIES = 400  # changes that are tried for one assertion
REACH = 0.15  # seconds that a changed run may go on beyond the assertion it was made for,
FURTHER = 0.5  # or that share of what it has cost up to there
FUNCTIONS = 10  # of those that a statement calls
OF_EACH = 24  # changes of one statement or function
SHOWN = ("/progress.py", "/figures.py")  # no number comes from there


def examine(path, root, budget=BUDGET, known=None):
    """{"assertions": [what is known of each], "seconds", "error", "called"} of one chapter.

    `known` is {text of an assertion: words of the change that killed it when last looked for}:
    that change is tried first.
    """
    found = statements(path, root)
    shifted = [outcomes_with(found, path, shift) for shift in SHIFTS]
    base = Snapshots(found, path.parent)
    base.run()
    search = Search(base, budget, known or {})
    search.run()
    unstable = search.unstable()
    base.close()
    rows = []
    for each in found:
        for assertion in each.assertions:
            name = assertion.key
            seeds = [s for s, seen in zip(SHIFTS, shifted, strict=True) if seen.get(name) is False]
            _, _, words = search.killed.get(name, (None, None, None))
            rows.append(
                {
                    "line": assertion.line,
                    "text": assertion.text,
                    "record": each.of_record,
                    "held": base.outcomes.get(name),
                    "killed": None if name in unstable else words,
                    "fragile": seeds,
                    "tries": search.tries.get(name, 0),
                }
            )
    used = sum(each.seconds for each in found) * (1 + len(SHIFTS)) + search.used
    called = called_by((code for each in found for code in each.called), root)
    told = {"seconds": round(used, 1), "error": base.failed, "called": called}
    return told | {"assertions": rows}


def outcomes_with(found, path, shift):
    """{assertion: whether it held} with every seed shifted, in a process of its own."""

    def shifted():
        run = Snapshots(found, path.parent, seed_shift=shift)
        run.run(keep=False, watch=False)
        return run.outcomes

    outcomes, _ = in_a_copy(shifted)
    return outcomes or {}


class Search:
    """Changes tried one after the other, for each assertion the near, cheap and coarse first.

    The next try belongs to the assertion on which the least time was spent, so that no dear one
    starves the others. `killed` is {assertion: (first statement changed, last one run, words)}.
    """

    def __init__(self, base, budget, known):
        self.base, self.found, self.budget, self.known = base, base.found, budget, known
        self.killed, self.tries, self.used, self.reached = {}, {}, 0.0, {}
        self._of_statement, self._of_function = cache(self._statement), cache(function_changes)

    def run(self):
        queues = dict(self._queues())
        spent = dict.fromkeys(queues, 0.0)
        of_chapter = sum(each.seconds for each in self.found)
        while self.used <= self.budget * max(of_chapter, LEAST):
            alive = [name for name in queues if name not in self.killed]
            if not alive:
                break
            name = min(alive, key=spent.get)
            target, changes = queues[name]
            change = next((c for c in changes if self.reached.get(c, -1) < target), None)
            self.tries[name] = self.tries.get(name, 0) + 1
            if change is None or self.tries[name] > TRIES:
                del queues[name]
                continue
            self.reached[change] = last = self._reach(change[0], target)
            outcomes, seconds = self.base.changed([change], last)
            self.used += seconds
            spent[name] += seconds
            for other, words in self._newly_killed(change, outcomes):
                self.killed[other] = (change[0], last, words)

    def _queues(self):
        """(assertion, (statement that reaches it, its changes in the order of the tries))."""
        for assertion in self._assertions():
            if assertion.key in self.base.outcomes:
                target = self.base.reached[assertion.key]
                ranked = sorted(self._ranked(target, assertion), key=lambda each: each[0])
                yield assertion.key, (target, iter([change for _, change in ranked]))

    def _assertions(self):
        return [assertion for each in self.found for assertion in each.assertions]

    def _ranked(self, target, assertion):
        """(rank, change): what killed it when last looked for, then by rank."""
        killer = self.known.get(assertion.text)
        for rank, change in self._changes(target, assertion):
            first = killer is not None and words_of(change) == killer
            yield (-1 if first else rank), change

    def _changes(self, target, assertion):
        count = 0
        for steps, number in enumerate(upstream(self.found, target)):
            cost = sum(each.seconds for each in self.found[number : target + 1])
            dear = steps + 3 * log2(1 + 4 * cost)
            own = [
                each
                for each in self._of_statement(number)
                if self._counts((number, each, None), assertion)
            ]
            for rank, mutation in enumerate(sampled(own)):
                yield dear + rank, (number, mutation, None)
            for order, place in enumerate(places(self.found[number])):
                changes = [(number, mutation, place) for mutation in self._of_function(place)]
                changes = [each for each in changes if self._counts(each, assertion)]
                for rank, change in enumerate(changes):
                    yield dear + rank + order / 2, change
                    count += 1
            if count > 6 * TRIES:
                return

    def _counts(self, change, assertion):
        """Whether the change lies upstream of the names that the assertion itself reads."""
        number, mutation, function = change
        apart = ".md:" not in function[0] if function else self.found[number].given
        return apart or not mutation.binds & assertion.reads

    def _statement(self, number):
        return mutations(self.found[number].tree)

    def _reach(self, first, target):
        """The last statement that a run made for `target` may as well go on to."""
        spent, number, last = 0.0, target, target
        cost = sum(each.seconds for each in self.found[first : target + 1])
        room = max(REACH, FURTHER * cost)
        while number + 1 < len(self.found) and spent + self.found[number + 1].seconds <= room:
            number += 1
            spent += self.found[number].seconds
            if any(each.key not in self.killed for each in self.found[number].assertions):
                last = number
        return last

    def _newly_killed(self, change, outcomes):
        """(assertion, words) of those that failed, and whose own names the change does not set."""
        for assertion in self._assertions():
            failed = outcomes.get(assertion.key) is False and assertion.key not in self.killed
            if failed and self._counts(change, assertion):
                yield assertion.key, words_of(change)

    def unstable(self):
        """Assertions that also fail in a run from the same snapshot without any change."""
        last, found = {}, set()
        for start, end, _ in self.killed.values():
            last[start] = max(last.get(start, 0), end)
        for start, end in last.items():
            held, seconds = self.base.changed([], end, start=start)
            self.used += seconds
            mine = [name for name, (first, *_) in self.killed.items() if first == start]
            found |= {name for name in mine if held.get(name) is False}
        return found


def words_of(change):
    """A change in words, without the number of a line, which would not outlive an edit."""
    _, mutation, function = change
    return f"{function[1]}: {mutation.text}" if function else mutation.text


def function_changes(place):
    tree = function_tree(place)
    return sampled(mutations(tree[1])) if tree else []


def sampled(found):
    """A few of many changes: half of them the coarsest, the others from anywhere."""
    first, others = found[: OF_EACH // 2], found[OF_EACH // 2 :]
    return first + random.Random(0).sample(others, min(len(others), OF_EACH // 2))


def places(statement):
    """Functions of `src` or of the chapter that the statement calls, in order of first call."""
    found = []
    for code in statement.called:
        if is_ours(code) and "<" not in code.co_qualname and not code.co_filename.endswith(SHOWN):
            found.append(code_place(code))
    return found[:FUNCTIONS]
