"""When a placed schedule ends."""

from __future__ import annotations

import numpy as np

from remat.placement import Placement
from remat.plugin import Number, Problem, StepKind, Steps


def makespan_of(problem: Problem, steps: Steps, placed: Placement) -> Number:
    """Return when the last step ends."""
    graph, machine = problem.graph, problem.machine
    start = placed.start
    if len(start) == 0:
        return 0
    runs = steps.kind == StepKind.RUN
    ends: list[Number] = [start.max().item()]
    if runs.any():
        ends.append((start[runs] + graph.time[steps.item[runs]]).max().item())
    for (source, target), index in machine.link_index.items():
        mine = (steps.kind == StepKind.COPY) & (steps.source == source) & (steps.target == target)
        if mine.any():
            link = machine.links[index]
            size = np.where(steps.amount[mine] >= 0, steps.amount[mine], graph.size[steps.item[mine]])
            took = np.full(len(size), link.latency)
            if link.bandwidth is not None:
                whole = isinstance(link.bandwidth, int) and not (size % link.bandwidth).any()
                took = took + (size // link.bandwidth if whole else size / link.bandwidth)
            ends.append((start[mine] + took).max().item())
    return max(ends)
