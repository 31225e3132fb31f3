"""Time-memory curves for pictures: algorithms behind the points, the lower-bound curve, ticks of a memory axis."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import accumulate

from remat.report.text.readable_names import shown_name
from remat.solving.questions.curves import Curve, Sweep

# Okabe and Ito's colours, the pale yellow left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

MOST_NAMED = 2
"""Algorithms that the label of a curve names."""

LOGARITHMIC_FROM = 8
"""Ratio of the largest figure to the smallest from which an axis is logarithmic."""


def label_of(curve: Curve) -> str:
    """Return the legend label of a curve: the algorithm, and the algorithms that found its points if they differ."""
    name = shown_name(curve.algorithm)
    finders = [
        finder for finder in dict.fromkeys(point.algorithm for point in curve.points) if finder != curve.algorithm
    ]
    if not finders:
        return name
    more = len(finders) - MOST_NAMED
    named = ", ".join(shown_name(finder) for finder in finders[:MOST_NAMED])
    return f"{name} ({named}{f' and {more} more' if more > 0 else ''})"


def lower_bounds(sweep: Sweep) -> list[tuple[float, float]]:
    """Return the proved curve below all others, as (budget, time): within a budget, no schedule is faster.

    A bound for a budget holds for all smaller ones, whoever proved it, and says nothing of larger ones; one for no
    limit (infinite) holds for all.
    """
    proved: dict[float, float] = {}
    for answer in (answer for curve in sweep.curves for answer in curve.answers):
        budget = math.inf if answer.budget is None else answer.budget
        proved[budget] = max(proved.get(budget, 0.0), float(answer.lower_bound))
    budgets = sorted(proved, reverse=True)
    return list(zip(budgets, accumulate((proved[budget] for budget in budgets), max), strict=True))[::-1]


OUTLYING, USUAL = 8, 4
"""A time is an outlier above so many medians, if no other than outliers is above the second number of medians."""

MOST_OUTLIERS = 0.25
"""Share of the times that may be outliers."""


def usual_top(times: Sequence[float], reference: float) -> float:
    """Return the highest time that an axis shows: the largest, or that below a few outliers that would flatten all.

    Times count from the reference, the time without recomputation. Outliers exceed `OUTLYING` medians; all others are
    within `USUAL` medians.
    """
    highest = max(times)
    median = statistics.median(times) - reference
    usual = [time for time in times if time - reference <= USUAL * median]
    few = 0 < len(times) - len(usual) <= MOST_OUTLIERS * len(times)
    beyond = all(time in usual or time - reference > OUTLYING * median for time in times)
    return max(usual) if median > 0 and few and beyond else highest


def is_logarithmic(figures: Sequence[float]) -> bool:
    """Whether peaks or times span a range that needs a logarithmic axis."""
    return min(figures) > 0 and max(figures) >= LOGARITHMIC_FROM * min(figures)


def ratio_ticks(low: float, high: float, *, binary: bool, most: int = 8) -> list[float]:
    """Return round figures for a logarithmic axis: 1.5, 2, 3, 4, 6, 8, ... of bytes, else 1, 2, 5, 10, ...

    Parameters
    ----------
    low, high : float
        Ends of the axis, above 0.
    binary : bool
        Whether the figures are bytes, in some unit.
    most : int
        Ticks; of more, only powers (of two or ten) stay, and then every second or third of them.
    """
    base, steps = (2.0, (1.0, 1.5)) if binary else (10.0, (1.0, 2.0, 5.0))
    powers = range(math.floor(math.log(low, base)) - 1, math.ceil(math.log(high, base)) + 1)
    for factors in (steps, (1.0,)):
        found = [factor * base**power for power in powers for factor in factors]
        found = [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]
