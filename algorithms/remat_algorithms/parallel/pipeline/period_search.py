"""Search for the smallest period of blocks on devices, with one program per period."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from remat.plugin import Context, Number, OptionError, Pattern, Problem
from remat_algorithms.parallel.pipeline.layer_blocks import Blocks
from remat_algorithms.parallel.pipeline.one_f_one_b_star import Times
from remat_algorithms.parallel.pipeline.period_program import Answer, Asked, Found, longest_period, solve
from remat_algorithms.parallel.pipeline.periodic_pipelines import StarOptions, solve_star

ROUNDS = 4
"""Maximum number of retries with less memory per device, when transient values do not fit along with the kept ones."""

STEPS = 500
"""Number of steps in the smallest possible period, if times are not integers."""

MOST_STEPS, WHOLE_STEPS = 2**31, 2**16
"""Integral times stay exact up to `MOST_STEPS` steps in the minimum period; a longer one has at least `WHOLE_STEPS`.

More steps mean more work for the bisection, and the solver has 64 bits for all periods together. It also explains each
conflict step by step without counting that as work: 10 s for a program of 2^20 steps, .3 s for 2^16.
"""

UNKNOWN = 2
"""Number of programs in a row without an answer after which the bisection of a long period ends."""

LONGEST, LONG_STEPS = 2**41, 2**20
"""Where a micro-batch alone takes more than `LONGEST` steps, it takes `LONG_STEPS` longer ones.

Otherwise the solver may raise the start of a short operation step by step, without counting that as work.
"""


@dataclass(frozen=True)
class Least:
    """Pattern with the smallest period found; None without any.

    Attributes
    ----------
    pattern : Pattern or None
    refuted : int
        Longest period, in steps, for which the program proves that no pattern exists (with the same unit).
    """

    pattern: Pattern | None
    refuted: int


def unit_of(blocks: Blocks) -> Number:
    """Return the unit of times: an integer if all times are integers."""
    if not blocks.whole:
        return blocks.least_period / STEPS or 1
    unit = 1 if blocks.least_period <= MOST_STEPS else int(blocks.least_period) // WHOLE_STEPS
    longest = int(blocks.time_of_one)
    return unit if longest <= LONGEST * unit else longest // LONG_STEPS


def able(blocks: Blocks) -> tuple[tuple[int, ...], ...]:
    """Return the devices that can run each block."""
    return tuple(
        tuple(device for device in range(blocks.devices) if blocks.time(block, device) is not None)
        for block in range(len(blocks.parts))
    )


def star_pattern(problem: Problem, context: Context) -> Pattern | None:
    """Return the pattern of `1f1b-star`, if it applies to these devices."""
    try:
        found = solve_star(problem, StarOptions(), context).pattern
    except OptionError:
        return None
    return found if isinstance(found, Pattern) else None


def least_period(asked: Asked, low: int, high: int, stop: Callable[[], bool]) -> Least:
    """Bisect between two periods, in steps, both included.

    Notes
    -----
    Feasibility is monotone in the period: if all starts are stretched in proportion, each value lives for no more
    periods than before. Of a long period, the last steps of the bisection decide next to nothing and take the most
    work, which the solver does not count: they are left out for times that are not integers, and after `UNKNOWN`
    programs in a row that end at their limit.
    """
    best: Pattern | None = None
    refuted, high = low - 1, min(high, longest_period(asked.blocks))
    unknown = 0
    while low <= high and not stop():
        is_fine = high >= WHOLE_STEPS and (high - low) * WHOLE_STEPS < high
        if is_fine and (unknown >= UNKNOWN or not asked.blocks.whole):
            break
        period = (low + high) // 2
        found, is_refuted = _fitting(asked, period, stop)
        if found is not None:
            best, high = found, period - 1
        else:
            refuted = max(refuted, period) if is_refuted else refuted
            low = period + 1
        unknown = 0 if found is not None or is_refuted else unknown + 1
    return Least(best, refuted)


def refute(asked: Asked, refuted: int, least: int, stop: Callable[[], bool]) -> int:
    """Return the longest period below a pattern's for which a program proves that no pattern exists.

    Notes
    -----
    The bisection starts at the longest period known to be infeasible. If a program takes too long for one period, it
    usually does for longer ones, too.
    """
    least = min(least, longest_period(asked.blocks) + 1)
    while least - refuted > 1 and not stop():
        period = (least + refuted) // 2
        if solve(asked, period, stop).refuted:
            refuted = period
        else:
            least = period
    return refuted


def _fitting(asked: Asked, period: int, stop: Callable[[], bool]) -> tuple[Pattern | None, bool]:
    """Return a pattern of a period that fits exactly; without one, whether infeasibility is proved."""
    less = [0] * asked.blocks.devices
    is_refuted = False
    for number in range(ROUNDS):
        answer: Answer = solve(replace(asked, less=tuple(less)), period, stop)
        if answer.found is None:
            is_refuted = answer.refuted and not number
            break
        pattern = _pattern(asked, answer.found, period)
        over = asked.blocks.excess(pattern, answer.found.in_flight)
        if not any(over):
            return pattern, False
        less = [one + more for one, more in zip(less, over, strict=True)]
    return None, is_refuted


def _pattern(asked: Asked, found: Found, period: int) -> Pattern:
    unit = asked.unit

    def times(steps: tuple[Number, ...]) -> tuple[Number, ...]:
        return tuple((step - first) * unit for step in steps)

    first = min(found.times.forward)
    rows = found.times
    return asked.blocks.pattern(
        found.homes,
        period * unit,
        Times(times(rows.forward), times(rows.backward), times(rows.sent), times(rows.returned)),
    )


def steps_below(period: Number, unit: Number) -> int:
    """Return the largest number of steps below a period."""
    if isinstance(period, int) and isinstance(unit, int):
        return -(-period // unit) - 1
    return math.ceil(period / unit * (1 - 1e-9)) - 1


def steps_from(period: Number, unit: Number) -> int:
    """Return the smallest number of steps that reaches a period."""
    if isinstance(period, int) and isinstance(unit, int):
        return -(-period // unit)
    return math.ceil(period / unit * (1 - 1e-9))
