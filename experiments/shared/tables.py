"""What records and their tables share: results with what they are about, shares in per cent."""

from src.tools.intervals import interval


def with_results(about, found):
    """Each set of arguments together with what was found for it, one dictionary for each."""
    return [one | other for one, other in zip(about, found, strict=True)]


def percent(shares):
    """The mean of shares with its 95 % interval, in per cent."""
    each = interval(shares)
    return f"{100 * each.mean:.1f} ± {100 * each.half:.1f}"
