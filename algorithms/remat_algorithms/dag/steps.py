"""Conversion of a sequence of runs to steps, and the contents of the processor's memory at both ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remat.plugin import BoolArray, IntArray, Machine, Problem, StepBuilder, Steps, TaskGraph, concatenate, run_in_order


def steps_of(problem: Problem, tasks: IntArray | Sequence[int]) -> Steps:
    """Return the steps of runs in order, preceded by drops of useless inputs.

    An input is useless if no run reads it before a run rewrites it, or if no run touches it and it need not stay.
    O(accesses log accesses), by array operations.
    """
    graph, machine = problem.graph, problem.machine
    order = np.asarray(tasks, dtype=np.int64)
    runs = run_in_order(graph, machine, order)
    reads, writes = graph.reads.gather(order), graph.writes.gather(order)
    never = len(order)
    read, written = np.full((2, len(graph.values)), never, dtype=np.int64)
    np.minimum.at(read, reads.items, reads.rows)
    np.minimum.at(written, writes.items, writes.rows)
    here, stays = resident_at_ends(graph, machine)
    unused = here & ((read > written) | ((read == never) & ~stays))
    unused[list(graph.pinned)] = False
    if not unused.any():
        return runs
    head = StepBuilder()
    head.drop(np.flatnonzero(unused).tolist(), machine.processors[0].memory)
    return concatenate([head.build(), runs])


def resident_at_ends(graph: TaskGraph, machine: Machine) -> tuple[BoolArray, BoolArray]:
    """Return which values are in the first processor's memory at the start, and which must be in it at the end."""
    name, first = machine.memories[machine.processors[0].memory].name, machine.memories[0].name
    found = []
    for places in (graph.inputs, graph.outputs):
        there = np.zeros(len(graph.values), dtype=bool)
        there[[place.value for place in places if (place.memory or first) == name]] = True
        found.append(there)
    return found[0], found[1]
