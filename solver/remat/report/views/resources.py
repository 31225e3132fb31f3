"""The resources that each step occupies."""

from __future__ import annotations

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import IntArray
from remat.schedule.steps import StepKind, Steps


def occupied(machine: Machine, steps: Steps) -> tuple[IntArray, IntArray]:
    """Return (step, resource) pairs: each run with its processors, each copy with its channel (array operations)."""
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
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
        np.concatenate((runs, several, copies)),
        np.concatenate((used, on, np.array(channel, dtype=np.int64))),
    )
