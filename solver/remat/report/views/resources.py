"""The resources that each step occupies."""

from __future__ import annotations

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import IntArray, Ragged, TaskGraph
from remat.schedule.steps import StepKind, Steps
from remat.verifier.collectives import resources_of


def occupied(graph: TaskGraph, machine: Machine, steps: Steps) -> tuple[IntArray, IntArray]:
    """Return (step, resource) pairs: each run with its processors, each copy with its channel (array operations).

    A collective is paired with the channels of its links, and with its processors only if it keeps them busy.
    """
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    together = np.isin(steps.item[runs], list(graph.parts)) if graph.parts else np.zeros(len(runs), dtype=bool)
    exchanges, runs = runs[together], runs[~together]
    held = Ragged.from_lists([resources_of(graph, machine, steps, step) for step in exchanges.tolist()])
    used = np.zeros(len(runs), dtype=np.int64)
    several, on = runs[:0], runs[:0]
    if steps.on is not None:
        named = steps.on.counts[runs] > 0
        lists = steps.on.gather(runs[named])
        several, on = np.repeat(runs[named], lists.counts), lists.items
        runs, used = runs[~named], used[~named]
    copies = np.flatnonzero(steps.kind == StepKind.COPY)
    channel = [
        machine.resource_of_link[machine.link_index[ends]]
        for ends in zip(steps.source[copies].tolist(), steps.target[copies].tolist(), strict=True)
    ]
    return (
        np.concatenate((runs, several, copies, exchanges[held.rows])),
        np.concatenate((used, on, np.array(channel, dtype=np.int64), held.items)),
    )
