"""Training memory by kind: parameters, gradients, optimizer states, gathered layers, buckets, activations."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import ACTIVATIONS, BUCKETS, GATHERED, GRADIENTS, PARAMETERS, STATES, TaskGraph
from remat.report.views.residents import Resident
from remat.schedule.steps import WHOLE, StepKind, Steps

WORKSPACE = "workspace"
TERMS = (PARAMETERS, GRADIENTS, STATES, GATHERED, BUCKETS, ACTIVATIONS, WORKSPACE)
"""The order of the kinds; others (static memory, values in transfer) come last."""


def by_term(graph: TaskGraph, residents: Iterable[Resident]) -> dict[str, int]:
    """Sum the residents of a memory by kind; empty without training.

    The sizes add up to those of the residents.
    """
    found: dict[str, int] = {}
    for resident in residents if graph.terms else ():
        if resident.name.startswith("workspace of "):
            term = WORKSPACE
        else:
            value = graph.values.find(resident.name)
            term = resident.name if value is None else graph.term(value)
        found[term] = found.get(term, 0) + resident.size
    return dict(sorted(found.items(), key=lambda item: TERMS.index(item[0]) if item[0] in TERMS else len(TERMS)))


def traffic_by_term(graph: TaskGraph, machine: Machine, steps: Steps) -> dict[str, dict[str, int]]:
    """Return the traffic of each link by kind; empty without training.

    The traffic of a rank's collectives crosses the link from the device to itself; it is gradients or parameters.
    """
    found: dict[str, dict[str, int]] = {}

    def add(link: int, term: str, size: int) -> None:
        row = found.setdefault(machine.link_name(link), {})
        row[term] = row.get(term, 0) + size

    if not graph.terms:
        return found
    for step in np.flatnonzero(steps.kind == StepKind.COPY).tolist():
        item, amount = int(steps.item[step]), int(steps.amount[step])
        link = machine.link_index[int(steps.source[step]), int(steps.target[step])]
        add(link, graph.term(item), int(graph.size[item]) if amount == WHOLE else amount)
    for step in np.flatnonzero(steps.kind == StepKind.RUN).tolist() if graph.moved else ():
        task = int(steps.item[step])
        if task in graph.moved:
            memory = machine.processors[int(steps.on[step][0]) if steps.on is not None and len(steps.on[step]) else 0]
            around = memory.memory, memory.memory
            if around in machine.link_index:
                term = graph.term(int(graph.reads[task][0]))
                add(machine.link_index[around], GRADIENTS if term == BUCKETS else term, graph.moved[task])
    return {
        name: dict(sorted(((t, size) for t, size in row.items() if size), key=lambda item: TERMS.index(item[0])))
        for name, row in found.items()
        if any(row.values())
    }
