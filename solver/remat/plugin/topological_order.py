"""The reference order: the listed order if that is topological, otherwise the closest to it."""

from __future__ import annotations

import heapq

import numpy as np

from remat.graph.taskgraph import BoolArray, IntArray, TaskGraph


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
