"""Predicates that decide which algorithms apply to a task graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat_algorithms.kit.applicability import offloads, one_processor, plain

if TYPE_CHECKING:
    from remat.plugin import Problem


LARGE_TRAINING = 500, 20_000
"""Numbers of tasks of a training graph from which, and up to which, options of subgraphs may find more than a search
of the whole."""

MOST_EXACT = 150
"""Maximum number of tasks for which a search over all schedules is worth a try."""


def few_tasks(problem: Problem) -> bool:
    """Whether the graph is small enough for a search over all schedules."""
    return plain(problem) and one_processor(problem) and len(problem.graph.tasks) <= MOST_EXACT


def stays(problem: Problem) -> bool:
    """Whether offloading is not an option: it is impossible, or there are too many values to choose from."""
    return plain(problem) and not offloads(problem)


def offloads_plain(problem: Problem) -> bool:
    """Whether the values of a plain graph can be offloaded."""
    return plain(problem) and offloads(problem)


def large_training(problem: Problem) -> bool:
    """Whether a plain graph with a forward and a backward is large, and its values stay."""
    least, most = LARGE_TRAINING
    phases = problem.graph.phase
    return least <= len(problem.graph.tasks) <= most and phases is not None and "backward" in phases and stays(problem)
