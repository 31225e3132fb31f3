"""Bounds for integer times: no makespan lies between a bound and the next integer."""

from __future__ import annotations

import math
from fractions import Fraction

from remat.plugin import Number, Problem


def is_whole(problem: Problem) -> bool:
    """Whether every task and every transfer of any size takes an integer time."""
    graph, machine = problem.graph, problem.machine
    if not graph.exact_times or graph.parallel_max is not None:
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
