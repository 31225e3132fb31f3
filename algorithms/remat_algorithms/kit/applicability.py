"""Cheap conditions on an instance, which decide whether an algorithm is worth trying."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remat.plugin import Problem


MOST_SERIES_PARALLEL = 1000
"""Maximum number of tasks for which the series-parallel test takes negligible time."""


MOST_OFFLOADED = 20_000
"""Number of tasks above which `dag-offload-best` has no time left after its first starting points."""


def has_parameters(problem: Problem) -> bool:
    """Whether the instance has parameters."""
    return problem.instance.has_parameters


def is_stream(problem: Problem) -> bool:
    """Whether samples, micro-batches or steps repeat indefinitely."""
    return problem.instance.is_stream


def runs_once(problem: Problem) -> bool:
    """Whether the instance ends."""
    return not is_stream(problem)


def can_offload(problem: Problem) -> bool:
    """Whether values can leave the device memory and return to it."""
    machine = problem.machine
    device = machine.processors[0].memory
    out = {link.target for link in machine.links if link.source == device} - {device}
    back = {link.source for link in machine.links if link.target == device}
    return bool(out & back)


def one_processor(problem: Problem) -> bool:
    """Whether the machine has one processor."""
    return len(problem.machine.processors) == 1


def several_processors(problem: Problem) -> bool:
    """Whether the machine has more than one processor."""
    return not one_processor(problem)


def names_devices(problem: Problem) -> bool:
    """Whether a graph fixes devices, lets the schedule choose them, or has memories with static bytes."""
    graph = problem.graph
    says = graph.times is not None or bool(graph.tied) or bool(graph.placeable)
    return says or any(memory.static for memory in problem.machine.memories)


def plain(problem: Problem) -> bool:
    """Whether a graph runs once and does not mention devices."""
    return runs_once(problem) and not names_devices(problem)


def moderate(problem: Problem) -> bool:
    """Whether a plain graph has few enough tasks for a quick look at its structure."""
    return plain(problem) and len(problem.graph.tasks) <= MOST_SERIES_PARALLEL


def everything_fits(problem: Problem) -> bool:
    """Whether all values of a plain graph fit into the budget at the same time."""
    graph, budget = problem.graph, problem.budget
    everything = graph.static_memory + sum(graph.size.tolist()) + max(graph.workspace.tolist(), default=0)
    return plain(problem) and (budget is None or everything <= budget)


def offloads(problem: Problem) -> bool:
    """Whether values can leave the device memory, in a graph of moderate size."""
    return can_offload(problem) and len(problem.graph.tasks) <= MOST_OFFLOADED
