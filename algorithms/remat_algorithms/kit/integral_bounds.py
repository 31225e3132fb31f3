"""Times that are multiples of a step; for integers, no makespan lies between a bound and the next integer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from remat.plugin import Number, Problem


def is_whole(problem: Problem) -> bool:
    """Whether every task and every transfer of any size takes an integer time."""
    graph, machine = problem.graph, problem.machine
    if not graph.exact_times or graph.parallel_max is not None or graph.ratios:
        return False
    if any(processor.speed != 1 for processor in machine.processors):
        return False
    return all(isinstance(link.latency, int) and link.bandwidth in (None, 1) for link in machine.links)


def raised(problem: Problem, bound: Number | Fraction) -> Number:
    """Return a bound on the makespan, rounded up if times are integers.

    Parameters
    ----------
    problem : Problem
    bound : number or Fraction
        A float must already be on the safe side, at most the proved value.
    """
    if is_whole(problem):
        return math.ceil(bound)
    return bound if isinstance(bound, (int, float)) else int(bound) if bound.denominator == 1 else float(bound)


def common_step(times: Iterable[Number]) -> int | Fraction:
    """Return the largest step of which all times are multiples, exactly; 0 if none takes time.

    If times are multiplied by a constant, so is the step: counts of steps do not depend on the unit of time.

    Examples
    --------
    >>> common_step([6, 0, 4]), common_step([1.5, 1]), common_step([])
    (2, Fraction(1, 2), 0)
    """
    exact = [Fraction(time) for time in set(times) if time]
    denominator = math.lcm(*(time.denominator for time in exact))
    step = Fraction(math.gcd(*(int(time * denominator) for time in exact)), denominator)
    return step.numerator if step.denominator == 1 else step
