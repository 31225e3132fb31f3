"""Which graphs are for which algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat_algorithms.kit.applicability import offloads, one_processor, plain

if TYPE_CHECKING:
    from remat.plugin import Problem


MOST_EXACT = 150
"""Tasks up to which it is worth a try to look at every schedule."""


def few_tasks(problem: Problem) -> bool:
    """Whether all schedules of a graph may be looked at."""
    return plain(problem) and one_processor(problem) and len(problem.graph.tasks) <= MOST_EXACT


def stays(problem: Problem) -> bool:
    """Whether the values of a graph cannot leave the processor's memory, or are too many to search for what should."""
    return plain(problem) and not offloads(problem)


def offloads_plain(problem: Problem) -> bool:
    """Whether values of a plain graph can leave."""
    return plain(problem) and offloads(problem)
