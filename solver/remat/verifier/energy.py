"""The energy of a schedule: of its runs, by the type of their processor, and of its transfers, by byte."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import IntArray, TaskGraph
from remat.schedule.steps import Steps
from remat.units import Number
from remat.verifier.timeline import first_processor

RUN = 0


def energy_of(graph: TaskGraph, machine: Machine, steps: Steps, link: IntArray) -> Number | None:
    """Return the energy of all steps; None if neither a task nor a link has an energy.

    A run on several processors counts once. Collectives count the energy of their task, not of their links.

    Parameters
    ----------
    graph, machine, steps
    link : (steps,) int64
        The link of each copy; -1 for others.

    Notes
    -----
    Equal terms are counted and multiplied, and the terms are added without intermediate rounding. Therefore the order
    of steps does not change the sum. O(steps log steps).
    """
    if graph.energy is None and not any(ends.energy for ends in machine.links):
        return None
    return _exact([*_of_runs(graph, machine, steps), *_of_transfers(graph, machine, steps, link)])


def _of_runs(graph: TaskGraph, machine: Machine, steps: Steps) -> Iterable[Number]:
    runs = np.flatnonzero((steps.kind == RUN) & (steps.item >= 0))
    if graph.energy is None or not len(runs):
        return
    types = graph.energy.types
    row = np.array([types.index(one.type) if one.type in types else 0 for one in machine.processors])
    on = row[first_processor(steps, len(machine.processors))[runs]]
    places, counts = np.unique(on * len(graph.tasks) + steps.item[runs], return_counts=True)
    energy = graph.energy.of_type.ravel()[places]
    for one, count in zip(energy.tolist(), counts.tolist(), strict=True):
        yield one * count


def _of_transfers(graph: TaskGraph, machine: Machine, steps: Steps, link: IntArray) -> Iterable[Number]:
    for index, ends in enumerate(machine.links):
        mine = np.flatnonzero(link == index)
        if not ends.energy or not len(mine):
            continue
        amount = steps.amount[mine]
        yield ends.energy * sum(np.where(amount < 0, graph.size[steps.item[mine]], amount).tolist())


def _exact(terms: list[Number]) -> Number:
    """Add numbers: exactly if all are integers, else rounded once."""
    return sum(terms) if set(map(type, terms)) <= {int} else math.fsum(terms)
