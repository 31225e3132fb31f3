"""The reference order: the listed order if that is topological, otherwise the closest to it."""

from __future__ import annotations

import heapq

import numpy as np

from remat.graph.taskgraph import BoolArray, IntArray, TaskGraph
from remat.schedule.steps import StepKind, Steps


def reference_order(graph: TaskGraph, chosen: BoolArray) -> IntArray:
    """Return the chosen tasks in the topological order that takes the first ready task of the listed order.

    Parameters
    ----------
    graph : TaskGraph
    chosen : (tasks,) bool
        Tasks to run once; together they must write all values that they read.

    Returns
    -------
    (chosen tasks,) int64
    """
    listed = np.flatnonzero(chosen)
    if _is_topological(graph, listed):
        return listed
    reads, writes = graph.reads.to_lists(), graph.writes.to_lists()
    available = {place.value for place in graph.inputs}
    waiting: dict[int, list[int]] = {}
    missing = {}
    ready: list[int] = []
    for task in listed.tolist():
        absent = [value for value in reads[task] if value not in available]
        missing[task] = len(absent)
        for value in absent:
            waiting.setdefault(value, []).append(task)
        if not absent:
            heapq.heappush(ready, task)
    order = []
    while ready:
        task = heapq.heappop(ready)
        order.append(task)
        for value in writes[task]:
            if value not in available:
                available.add(value)
                for reader in waiting.get(value, ()):
                    missing[reader] -= 1
                    if missing[reader] == 0:
                        heapq.heappush(ready, reader)
    return np.array(order, dtype=np.int64)


def _is_topological(graph: TaskGraph, order: IntArray) -> bool:
    """Whether every read has its writer earlier in the order (array operations)."""
    never = len(order)
    first = np.full(len(graph.values), never, dtype=np.int64)
    writes = graph.writes.gather(order)
    np.minimum.at(first, writes.items, writes.rows)
    first[[place.value for place in graph.inputs]] = -1
    reads = graph.reads.gather(order)
    return bool((first[reads.items] < reads.rows).all())


def in_listed_order(graph: TaskGraph, steps: Steps) -> bool:
    """Whether the first runs of all needed tasks are in the reference order, which is the listed one if that works."""
    runs = steps.item[steps.kind == int(StepKind.RUN)]
    tasks, first = np.unique(runs, return_index=True)
    chosen = np.zeros(len(graph.tasks), dtype=bool)
    chosen[tasks] = True
    order = reference_order(graph, chosen)
    place = np.empty(len(chosen), dtype=np.int64)
    place[order] = np.arange(len(order))
    sequence = place[tasks[np.argsort(first, kind="stable")]]
    return bool((np.diff(sequence) > 0).all())
