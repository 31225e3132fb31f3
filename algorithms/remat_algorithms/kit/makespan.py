"""Makespan of a placed schedule."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from remat.placement import Placement, place
from remat.plugin import IntArray, Number, NumberArray, Problem, StepKind, Steps


def timed(problem: Problem, steps: Steps) -> tuple[Steps, Number] | None:
    """Return the steps, each placed as early as possible, and the makespan; None if they do not fit."""
    placed = place(problem.graph, problem.machine, steps)
    if not isinstance(placed, Placement):
        return None
    return steps.placed(placed.start), makespan_of(problem, steps, placed)


def makespan_of(problem: Problem, steps: Steps, placed: Placement) -> Number:
    """Return the end of the last step."""
    graph, machine = problem.graph, problem.machine
    start = placed.start
    if len(start) == 0:
        return 0
    runs = steps.kind == StepKind.RUN
    ends: list[Number] = [start.max().item()]
    if runs.any():
        ends.append((start[runs] + _run_times(problem, steps)[runs]).max().item())
    copies = steps.kind == StepKind.COPY
    if graph.ratios:
        ends += _copy_ends(problem, steps, start, np.flatnonzero(copies))
        return max(ends)
    for (source, target), index in machine.link_index.items():
        mine = copies & (steps.source == source) & (steps.target == target)
        if mine.any():
            link = machine.links[index]
            size = np.where(steps.amount[mine] >= 0, steps.amount[mine], graph.size[steps.item[mine]])
            took = np.full(len(size), link.latency)
            if link.bandwidth is not None:
                whole = isinstance(link.bandwidth, int) and not (size % link.bandwidth).any()
                took = took + (size // link.bandwidth if whole else size / link.bandwidth)
            ends.append((start[mine] + took).max().item())
    return max(ends)


def _copy_ends(problem: Problem, steps: Steps, start: NumberArray, copies: IntArray) -> Iterator[Number]:
    """Yield the ends of copies of values with their own compression ratios."""
    graph, machine = problem.graph, problem.machine
    for copy in copies.tolist():
        value, amount = int(steps.item[copy]), int(steps.amount[copy])
        link = machine.links[machine.link_index[int(steps.source[copy]), int(steps.target[copy])]]
        size = amount if amount >= 0 else int(graph.size[value])
        yield start[copy].item() + graph.link_for(link, value).time(size) - link.delay


def _run_times(problem: Problem, steps: Steps) -> NumberArray:
    """Return the durations of runs, each at the speed of its slowest processor; other steps have arbitrary values."""
    graph, processors = problem.graph, problem.machine.processors
    runs = steps.kind == StepKind.RUN
    times: NumberArray = graph.time[np.where(runs, steps.item, 0)]
    speeds = [processor.speed for processor in processors]
    if steps.on is None or all(speed == 1 for speed in speeds):
        return times
    slow = np.ones(len(steps))
    np.minimum.at(slow, steps.on.rows, np.array(speeds, dtype=np.float64)[steps.on.items])
    slow[steps.on.counts == 0] = speeds[0]
    late = runs & (slow != 1)
    if not late.any():
        return times
    slowed = times[late] / slow[late]
    found = times.astype(np.float64)
    found[late] = slowed
    return found
