"""Frontiers of fewer stages: several stages are merged to build the program of a large graph."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from remat_algorithms.dag.programs.frontier import Frontier


def grouped(front: Frontier, ends: Sequence[int]) -> Frontier:
    """Return a frontier whose stages are groups of stages.

    In a group, tasks of its stages run for the first time, and all earlier ones at most once. Its schedules are a
    subset of those of the frontier. O(size of the frontier).

    Parameters
    ----------
    front : Frontier
    ends : sequence of int
        The last stage of each group, ascending, including the last stage.
    """
    count = len(ends)

    def group(stage: int) -> int:
        return stage if stage < 0 else count if stage >= front.stages else bisect_left(ends, stage)

    return replace(
        front,
        end=[front.end[stage] for stage in ends],
        terminal=[front.terminal[stage] for stage in ends],
        first=[group(stage) for stage in front.first],
        last=[group(stage) for stage in front.last],
        unread_until=[group(stage) for stage in front.unread_until],
        needed_until=[group(stage) for stage in front.needed_until],
    )


def even_ends(front: Frontier, count: int) -> list[int]:
    """Return the ends of about `count` groups of equally many stages."""
    whole = front.stages if front.terminal[-1] else front.stages - 1
    ends = {max(0, whole * (index + 1) // count - 1) for index in range(count)} if whole else set[int]()
    return sorted(ends | {front.stages - 1})


def entries(front: Frontier) -> int:
    """Estimate the coefficients of the program: each run of a stage depends on the values that may be resident in it.

    O(stages * values).
    """
    starts = [0] * (front.stages + 1)
    for value, until in enumerate(front.needed_until):
        makers = front.makers[value]
        first = 0 if value in front.inputs else front.first[makers[0]] if makers else front.stages
        if first <= until:
            starts[first] += 1
            starts[min(until + 1, front.stages)] -= 1
    runs = [0] * (front.stages + 1)
    for position, (first, last) in enumerate(zip(front.first, front.last, strict=True)):
        if position <= front.end[first] and first <= last:
            runs[first] += 1
            runs[last + 1] -= 1
    total = there = running = 0
    for stage in range(front.stages):
        there += starts[stage]
        running += runs[stage]
        total += 2 * there * (running + 2)
    return total
