"""A lower bound on the bytes of all memories together, from inputs that cannot be recomputed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from remat.graph.bounds import MemoryBound, NeededTasks
from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, TaskGraph

MOST_WORK = 2_000_000
"""Maximum number of tasks that are visited, over all inputs; the largest inputs come first."""


def total_bound(graph: TaskGraph, machine: Machine, needed: NeededTasks) -> MemoryBound | None:
    """Return minimum bytes of all memories together, and the task that sets them; None if nothing is known.

    Parameters
    ----------
    graph : TaskGraph
    machine : Machine
    needed : NeededTasks
        Those of the graph.

    Returns
    -------
    MemoryBound or None
        Its task is None if the values at the start set it.

    Notes
    -----
    Let v be an input that no task makes, and u a forced task that reads v. A task t comes before u if every value on
    some path from t to u has one producer and is no input. Then v exists, in one memory or in parts in several, during
    the first run of t. Pinned inputs, and inputs that are outputs, exist always. While t runs, its reads, its writes
    and its workspace exist, too. A task in place may overwrite its reads only if they are not needed later.
    O(size of the graph) for each input, at most `MOST_WORK`.
    """
    if graph.parts:
        return None
    size = graph.size
    if 4.0 * (float(size.sum(dtype=np.float64)) + float(graph.workspace.max(initial=0))) >= 2.0**62:
        return None
    static = sum(graph.static_bytes(machine, memory) for memory in range(len(machine.memories)))
    start = static + sum(int(size[value]) for value in graph.available)
    later, kept = _needed_later(graph, needed)
    count = len(graph.tasks)
    reads = _per_task(size, graph.reads.items, graph.reads.rows, count)
    fresh = _is_fresh(graph)
    writes = _per_task(size, graph.writes.items[fresh], graph.writes.rows[fresh], count)
    added = np.where(graph.in_place, np.maximum(0, writes - (reads - kept)), writes)
    need = np.where(needed.forced, reads + added + graph.workspace + later, 0)
    best = int(np.argmax(need)) if count else 0
    if not count or int(need[best]) + static <= start:
        return MemoryBound(start, None) if start else None
    return MemoryBound(int(need[best]) + static, best)


def _per_task(size: IntArray, values: IntArray, rows: IntArray, count: int) -> IntArray:
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, rows, size[values])
    return total


def _is_fresh(graph: TaskGraph) -> BoolArray:
    """Return which writes are of values that their tasks do not read."""
    values = max(1, len(graph.values))
    read = graph.reads.rows * values + graph.reads.items
    return ~np.isin(graph.writes.rows * values + graph.writes.items, read)


def _needed_later(graph: TaskGraph, needed: NeededTasks) -> tuple[IntArray, IntArray]:
    """Return, for each task, the bytes needed later that it does not touch, and those that it reads."""
    count = len(graph.tasks)
    later, kept = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for value, before in _kept_inputs(graph, needed):
        reading = np.zeros(count, dtype=bool)
        reading[graph.readers[value]] = True
        size = int(graph.size[value])
        later[before & ~reading] += size
        kept[before & reading] += size
    return later, kept


def _kept_inputs(graph: TaskGraph, needed: NeededTasks) -> Iterator[tuple[int, BoolArray]]:
    """Yield each input that no task makes, and the tasks during whose first run it must exist."""
    count = len(graph.tasks)
    stays = {place.value for place in graph.placeable if place.successor is None}
    always = stays | graph.pinned | {place.value for place in graph.outputs}
    made = graph.producers.counts
    inputs = [value for value in graph.available if made[value] == 0]
    if not inputs:
        return
    before: list[list[int]] | None = None
    work = 0
    for value in sorted(inputs, key=lambda value: (-int(graph.size[value]), value)):
        if value in always:
            yield value, np.ones(count, dtype=bool)
            continue
        if work > MOST_WORK:
            continue
        if before is None:
            before = _predecessors(graph)
        found = np.zeros(count, dtype=bool)
        waiting = [task for task in graph.readers[value].tolist() if needed.forced[task]]
        for task in waiting:
            for earlier in before[task]:
                if not found[earlier]:
                    found[earlier] = True
                    waiting.append(earlier)
        work += len(waiting)
        yield value, found


def _predecessors(graph: TaskGraph) -> list[list[int]]:
    """Return, for each task, the only producers of the values that it reads; inputs have none."""
    producer = np.full(len(graph.values), -1, dtype=np.int64)
    alone = graph.producers.counts == 1
    alone[list(graph.available)] = False
    own = alone[graph.writes.items]
    producer[graph.writes.items[own]] = graph.writes.rows[own]
    makers = producer[graph.reads.items]
    found: list[list[int]] = [[] for _ in range(len(graph.tasks))]
    wanted = (makers >= 0) & (makers != graph.reads.rows)
    for task, maker in zip(graph.reads.rows[wanted].tolist(), makers[wanted].tolist(), strict=True):
        found[task].append(maker)
    return found
