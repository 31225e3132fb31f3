"""Which instances are for which algorithm that offloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat_algorithms.kit.applicability import (
    MOST_OFFLOADED,
    can_offload,
    has_parameters,
    is_stream,
    one_processor,
    plain,
)

if TYPE_CHECKING:
    from remat.plugin import Problem

MOST_WHOLE_MOVES = 8
"""Tasks up to which moves between memories are chosen exactly."""


def several_memories(problem: Problem) -> bool:
    """Whether a step has parameters, on a machine with several memories."""
    return has_parameters(problem) and len(problem.machine.memories) > 1 and not is_stream(problem)


def ranks_or_open(problem: Problem) -> bool:
    """Whether ranks share parameters out, these may lie anywhere, or steps follow each other without end."""
    graph = problem.graph
    return has_parameters(problem) and bool(graph.parts or graph.placeable or is_stream(problem))


def open_places(problem: Problem) -> bool:
    """Whether parameters may lie anywhere."""
    return has_parameters(problem) and bool(problem.graph.placeable)


def endless(problem: Problem) -> bool:
    """Whether steps with parameters follow each other without end, on a machine with several memories."""
    return has_parameters(problem) and len(problem.machine.memories) > 1 and is_stream(problem)


def few_moves(problem: Problem) -> bool:
    """Whether a graph is so small that all moves of its values can be looked at."""
    return (
        plain(problem)
        and can_offload(problem)
        and one_processor(problem)
        and len(problem.graph.tasks) <= MOST_WHOLE_MOVES
    )


def large(problem: Problem) -> bool:
    """Whether values can leave, and there are too many tasks to search."""
    return plain(problem) and can_offload(problem) and len(problem.graph.tasks) > MOST_OFFLOADED
