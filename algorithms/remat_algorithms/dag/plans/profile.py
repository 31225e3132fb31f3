"""The bytes that a sequence of runs of any length holds, by array operations and without a search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remat.plugin import IntArray, Machine, TaskGraph
from remat_algorithms.dag.steps import resident_at_ends


def profile(graph: TaskGraph, machine: Machine, tasks: IntArray | Sequence[int]) -> IntArray:
    """Return the bytes in the processor's memory during each run; each copy of a value is freed at its last use.

    A value that is rewritten before its first read is freed before the first run; outputs and pinned inputs stay.

    Parameters
    ----------
    graph, machine
    tasks : (runs,) ints
        In order; the inputs of each run are resident.

    Returns
    -------
    (runs,) int64
        O(accesses log accesses). Sums of sizes are at most 2^62 (see docs/reference/formats.md).
    """
    order = np.asarray(tasks, dtype=np.int64)
    count, own = len(order), machine.processors[0].memory
    reads, writes = graph.reads.gather(order), graph.writes.gather(order)
    run = np.concatenate((reads.rows, writes.rows))
    value = np.concatenate((reads.items, writes.items))
    writing = np.concatenate((np.zeros(len(reads.items), dtype=bool), np.ones(len(writes.items), dtype=bool)))
    sequence = np.lexsort((writing, run, value))
    run, value, writing = run[sequence], value[sequence], writing[sequence]
    here, stays = resident_at_ends(graph, machine)
    pinned = np.zeros(len(graph.values), dtype=bool)
    pinned[list(graph.pinned)] = True
    pinned &= here
    change = np.zeros(count + 1, dtype=np.int64)
    # Values that no run touches, and that must stay, are resident throughout.
    touched = np.zeros(len(graph.values), dtype=bool)
    touched[value] = True
    always = graph.static_bytes(machine, own) + int(graph.size[here & ~touched & (stays | pinned)].sum())
    if not count:
        return change[:0]
    new = np.ones(len(value), dtype=bool)
    new[1:] = value[1:] != value[:-1]
    # A copy begins with each write, and with the first access of an initial value.
    begins = np.flatnonzero(writing | new)
    ends = np.concatenate((begins[1:], [len(value)])) - 1 if len(begins) else begins
    born, last, of = run[begins].copy(), run[ends].copy(), value[begins]
    initial = new[begins] & ~writing[begins]
    born[initial] = 0
    final = np.ones(len(begins), dtype=bool)
    final[:-1] = of[1:] != of[:-1]
    kept = (final & stays[of]) | pinned[of]
    # A copy that a later write replaces is freed at its last use, if it has one.
    last[kept] = count - 1
    size = graph.size[of]
    np.add.at(change, born, size)
    np.subtract.at(change, last + 1, size)
    written = np.zeros(count, dtype=np.int64)
    np.add.at(written, writes.rows, graph.size[writes.items])
    freed = np.zeros(count, dtype=np.int64)
    given = ~kept & ~writing[ends]
    np.add.at(freed, run[ends][given], size[given])
    spared = np.where(graph.in_place[order], np.minimum(written, freed), 0)
    levels: IntArray = always + np.cumsum(change[:count]) + graph.workspace[order] - spared
    return levels
