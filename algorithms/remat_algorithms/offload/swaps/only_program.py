"""The only program of a rule, in a memory that its planned profile exceeds.

The profile counts the values that are in a memory during a run, whenever in the run they arrive or leave. The program
may therefore fit a memory that is smaller than the profile, with the times that it has in an unlimited one.
"""

from __future__ import annotations

import numpy as np

from remat.plugin import IntArray, Machine, Number, NumberArray, StepKind, Steps, TaskGraph
from remat_algorithms.offload.swaps.dispatch import INSTANT, Dispatched, Overfull, dispatch
from remat_algorithms.offload.swaps.program import Program, reused_bytes, run_time

Change = tuple[Number, int, int, int]
"""Time, position among the changes of an instant, memory, and bytes."""


def dispatch_only(graph: TaskGraph, machine: Machine, program: Program) -> Dispatched | Overfull:
    """Start every run and transfer of a program as `dispatch` does, or as in an unlimited memory, if that fits.

    The bytes that a memory lacks are those of the smaller need.
    """
    outcome = dispatch(graph, machine, program)
    if isinstance(outcome, Dispatched) or not outcome.needed:
        return outcome
    free = machine.with_capacities({machine.memories[outcome.memory].name: None})
    unlimited = dispatch(graph, free, program)
    if isinstance(unlimited, Overfull):
        return outcome
    peak = peaks_of(graph, machine, unlimited.steps)[outcome.memory]
    capacity = machine.memories[outcome.memory].capacity
    if capacity is not None and peak <= capacity:
        return unlimited
    return Overfull(outcome.position, outcome.memory, min(outcome.needed, peak))


def peaks_of(graph: TaskGraph, machine: Machine, steps: Steps) -> list[int]:
    """Return the peak of each memory over steps with start times that move whole values.

    At one instant, steps that began earlier end first. Then steps start in order; those of no duration end at once.
    """
    start = steps.start
    assert start is not None
    lengths = _lengths(graph, machine, steps)
    slack = 0.0
    if start.dtype != np.int64 or lengths.dtype != np.int64:
        slack = INSTANT * float((start + lengths).max(initial=0))
    size, drops = graph.size.tolist(), steps.drop.to_lists()
    present = [set[int]() for _ in machine.memories]
    for place in graph.inputs:
        present[machine.memory_index[place.memory] if place.memory else 0].add(place.value)
    held = [
        graph.static_bytes(machine, memory) + sum(size[value] for value in values)
        for memory, values in enumerate(present)
    ]
    changes: list[Change] = []
    for index, (kind, item) in enumerate(zip(steps.kind.tolist(), steps.item.tolist(), strict=True)):
        begin, end, freed = start[index].item(), (start[index] + lengths[index]).item(), 0
        memory = int(steps.source[index])
        if kind == StepKind.RUN:
            memory = machine.processors[_processor(steps, index)].memory
            writes = graph.writes[item].tolist()
            reused = reused_bytes(graph, item, drops[index])
            changes.append((begin, index, memory, sum(size[v] for v in writes) + int(graph.workspace[item]) - reused))
            freed = int(graph.workspace[item]) - reused + sum(size[v] for v in writes if v in present[memory])
            present[memory].update(writes)
        elif kind == StepKind.COPY:
            target = int(steps.target[index])
            changes.append((begin, index, target, size[item]))
            if item in present[target]:
                changes.append(_at_end(begin, end, slack, index, target, -size[item]))
            present[target].add(item)
        gone = present[memory].intersection(drops[index])
        present[memory] -= gone
        changes.append(_at_end(begin, end, slack, index, memory, -freed - sum(size[v] for v in gone)))
    return _highest(held, changes, slack)


def _at_end(
    begin: Number, end: Number, slack: float, index: int, memory: int, size: int
) -> tuple[Number, int, int, int]:
    return (end, -1, memory, size) if end - begin > slack else (begin, index, memory, size)


def _highest(held: list[int], changes: list[Change], slack: float) -> list[int]:
    """Return the highest levels of the memories after changes at their instants, ends first."""
    peaks = list(held)
    changes.sort(key=lambda change: change[0])
    first = 0
    while first < len(changes):
        last = first
        while last < len(changes) and changes[last][0] - changes[first][0] <= slack:
            last += 1
        for _, _, memory, size in sorted(changes[first:last], key=lambda change: change[1]):
            held[memory] += size
            peaks[memory] = max(peaks[memory], held[memory])
        first = last
    return peaks


def _processor(steps: Steps, index: int) -> int:
    on: IntArray = np.array([], dtype=np.int64) if steps.on is None else steps.on[index]
    return int(on[0]) if len(on) else 0


def _lengths(graph: TaskGraph, machine: Machine, steps: Steps) -> NumberArray:
    """Return the duration of each step."""
    lengths: list[Number] = []
    for index, (kind, item) in enumerate(zip(steps.kind.tolist(), steps.item.tolist(), strict=True)):
        if kind == StepKind.RUN:
            time: Number = graph.time[item].item()
            processor = machine.processors[_processor(steps, index)]
            lengths.append(time if item in graph.parts else run_time(processor, time))
        elif kind == StepKind.COPY:
            link = machine.links[machine.link_index[int(steps.source[index]), int(steps.target[index])]]
            lengths.append(graph.link_for(link, item).time(int(graph.size[item])))
        else:
            lengths.append(0)
    return np.array(lengths, dtype=np.int64 if all(type(one) is int for one in lengths) else np.float64)
