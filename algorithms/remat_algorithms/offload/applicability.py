"""Conditions under which each offloading algorithm applies."""

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

FEW_STAGES = 2_000
"""Maximum number of tasks of a chain that searches improve much within seconds."""

MOST_WHOLE_MOVES = 8
"""Maximum number of tasks for which moves between memories are chosen exactly."""

MOST_RECOMPUTED = 14
"""Maximum number of tasks for which moves and recomputations are chosen exactly; with 16, few searches end."""


def several_memories(problem: Problem) -> bool:
    """Whether a step has parameters, on a machine with several memories."""
    return has_parameters(problem) and len(problem.machine.memories) > 1 and not is_stream(problem)


def ranks_or_open(problem: Problem) -> bool:
    """Whether ranks shard parameters, the parameter memory is open, or steps repeat without end."""
    graph = problem.graph
    return has_parameters(problem) and bool(graph.parts or graph.placeable or is_stream(problem))


def open_places(problem: Problem) -> bool:
    """Whether the memory of parameters is open."""
    return has_parameters(problem) and bool(problem.graph.placeable)


def endless(problem: Problem) -> bool:
    """Whether steps with parameters repeat without end, on a machine with several memories."""
    return has_parameters(problem) and len(problem.machine.memories) > 1 and is_stream(problem)


def few_moves(problem: Problem) -> bool:
    """Whether a graph is small enough to search all moves of its values."""
    return _searchable(problem, MOST_WHOLE_MOVES)


def few_moves_and_runs(problem: Problem) -> bool:
    """Whether a graph is small enough to search all moves of its values and all recomputations."""
    return _searchable(problem, MOST_RECOMPUTED)


def _searchable(problem: Problem, tasks: int) -> bool:
    return plain(problem) and can_offload(problem) and one_processor(problem) and len(problem.graph.tasks) <= tasks


def many_stages(problem: Problem) -> bool:
    """Whether values can be offloaded and searches of the whole chain take long."""
    return plain(problem) and can_offload(problem) and len(problem.graph.tasks) > FEW_STAGES


def large(problem: Problem) -> bool:
    """Whether values can be offloaded and there are too many tasks to search."""
    return plain(problem) and can_offload(problem) and len(problem.graph.tasks) > MOST_OFFLOADED
