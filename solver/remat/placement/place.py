"""Entry point of placement: chooses between the sequential fast path and the general list scheduler."""

from __future__ import annotations

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.placement.outcome import Placement, Unplaceable
from remat.placement.sequential import place_sequential
from remat.schedule.steps import StepKind, Steps, started

__all__ = ["Placement", "Unplaceable", "place"]


def place(graph: TaskGraph, machine: Machine, steps: Steps, *, check_bytes: bool = True) -> Placement | Unplaceable:
    """Give each listed step its earliest start time.

    The list is the issue order: starts never decrease along it. A step starts as soon as

    - its resources are free, its reads are complete, and its `after` steps have ended,
    - its bytes fit, and
    - no earlier step uses a value that it writes or frees.

    Parameters
    ----------
    graph, machine
        The task graph, and the machine that runs it.
    steps : Steps
        The steps in issue order; their own start times are ignored.
    check_bytes : bool
        Whether bytes that never fit are found here. If the caller finds them by other means, sequential steps need not
        be looked at for this: their times do not depend on it.

    Returns
    -------
    Placement or Unplaceable
        The start times, or the first step whose bytes never fit.

    Notes
    -----
    O(accesses log steps). If all steps share one resource, they run one after the other, and array operations place
    the whole list.
    """
    if steps.paired is not None:
        raise ValueError("simultaneous steps need start times")
    graph = started(graph, machine, steps)
    if graph.times is None and not graph.parts and _one_resource(machine, steps):
        return place_sequential(graph, machine, steps, check_bytes=check_bytes)
    from remat.placement.list_scheduling import place_general

    return place_general(graph, machine, steps)


def _one_resource(machine: Machine, steps: Steps) -> bool:
    """Whether all runs and copies occupy the first processor and move only complete values."""
    if steps.unknown or (steps.amount >= 0).any() or (steps.item == -2).any():
        return False
    if steps.on is not None and steps.on.items.any():
        return False
    if steps.after is not None and (steps.kind == StepKind.DROP).any():
        return False
    copies = steps.kind == StepKind.COPY
    if not copies.any():
        return True
    count = len(machine.memories)
    ends = steps.source[copies] * count + steps.target[copies]
    if int(ends.min()) < 0:
        return False
    for pair in np.flatnonzero(np.bincount(ends)).tolist():
        link = machine.link_index.get(divmod(pair, count))
        if link is None or machine.held_by_link[link] != (0,) or machine.links[link].delay != 0:
            return False
    return True
