"""Conditions on instances, which decide which algorithm for several devices applies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat_algorithms.kit.applicability import is_stream, names_devices, runs_once, several_processors

if TYPE_CHECKING:
    from remat.plugin import Problem


MOST_PLACED = 200
"""Maximum number of tasks for programs that choose a processor for each, if all processors share one memory."""

MOST_PROVED = 300
"""Pipelines with more tasks are rarely proved within a minute."""


def devices(problem: Problem) -> bool:
    """Whether a graph that runs once distinguishes processors, by name or by memory, or distributes few tasks."""
    memories = {processor.memory for processor in problem.machine.processors}
    few = several_processors(problem) and len(problem.graph.tasks) <= MOST_PLACED
    return runs_once(problem) and (names_devices(problem) or len(memories) > 1 or few)


def inference(problem: Problem) -> bool:
    """Whether samples follow each other indefinitely."""
    return problem.instance.samples_seen is not None


def has_copies(problem: Problem) -> bool:
    """Whether inputs of a stream may have several copies, or some tasks read no input that ties them to one memory."""
    if problem.samples is None:
        return False
    placeable = {place.value: place.copies for place in problem.samples.graph.placeable}
    kept = {value for value, copies in placeable.items() if copies == 1}
    return any(kept.isdisjoint(reads) for reads in problem.samples.graph.reads.to_lists())


def changing_weights(problem: Problem) -> bool:
    """Whether parameters change while micro-batches are in flight."""
    return is_stream(problem) and not inference(problem)


def has_groups(problem: Problem) -> bool:
    """Whether several devices may run one layer together."""
    return bool(getattr(problem.instance, "has_tensor", False))


def small_step(problem: Problem) -> bool:
    """Whether a pipeline runs once and has few operations."""
    return runs_once(problem) and len(problem.graph.tasks) <= MOST_PROVED


def step_of_copies(problem: Problem) -> bool:
    """Whether a pipeline runs once, and may have two copies of its layers."""
    return runs_once(problem) and getattr(problem.instance, "copies", 1) > 1


def small_step_of_copies(problem: Problem) -> bool:
    """Whether such a pipeline has few operations."""
    return small_step(problem) and step_of_copies(problem)


def few_moves(problem: Problem) -> dict[str, int | bool]:
    """Return options of `pipe-plan` for solves of about a second: few moves, fewer of many tasks, no other planners."""
    return {"moves": min(200, 400_000 // max(1, len(problem.graph.tasks))), "zoo": False}
