"""Bytes in each memory over time, the peaks and the capacity rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from remat.graph.machine import Machine, Memory
from remat.graph.taskgraph import BoolArray, IntArray, TaskGraph
from remat.schedule.steps import Steps
from remat.verifier.collectives import collective_runs, memories_of
from remat.verifier.integer_sums import LARGEST
from remat.verifier.report import Peak, Profile
from remat.verifier.residency import (
    CHUNK,
    FREE,
    INITIAL,
    PART_FREE,
    PART_WRITE,
    WRITE,
    WRITE_END,
    Residency,
    memory_of_steps,
)
from remat.verifier.timeline import Timeline

if TYPE_CHECKING:
    from remat.verifier.findings import Findings

RUN = 0


def memory_use(
    graph: TaskGraph,
    machine: Machine,
    steps: Steps,
    timeline: Timeline,
    residency: Residency,
    valid: BoolArray,
    findings: Findings,
) -> tuple[dict[str, Peak], dict[str, Profile]]:
    """Add up the bytes that events allocate and free, and compare memory use with the capacities."""
    positions = len(timeline.step_at)
    memory, position, change = changes(graph, machine, steps, timeline, residency, valid)
    peaks, profiles = {}, {}
    for index, place in enumerate(machine.memories):
        mine = memory == index
        at, delta = position[mine], change[mine]
        resident = int(delta[at < 0].sum()) + graph.static_bytes(machine, index)
        at, delta = at[at >= 0], delta[at >= 0]
        per_position = np.zeros(positions, dtype=change.dtype)
        np.add.at(per_position, at, delta)
        touched = np.flatnonzero(per_position)
        if resident >= LARGEST:  # static bytes are no part of what steps do: they may take sums out of int64
            per_position = per_position.astype(object)
        use = resident + np.cumsum(per_position[touched])
        highest = int(np.argmax(use)) if len(use) else -1
        if highest < 0 or use[highest] <= resident:
            peaks[place.name] = Peak(resident, None)
        else:
            peaks[place.name] = Peak(int(use[highest]), int(timeline.step_at[touched[highest]]))
        if place.capacity is not None:
            adds = per_position[touched] > 0
            _report_overruns(graph, place, resident, use, adds, timeline.step_at[touched], findings)
        profiles[place.name] = _profile(resident, use, touched, timeline)
    return peaks, profiles


def changes(
    graph: TaskGraph, machine: Machine, steps: Steps, timeline: Timeline, residency: Residency, valid: BoolArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return (memory, position, bytes) of every change of a memory's use; position -1 is before the first event."""
    reusing = np.zeros(len(steps) + 1, dtype=bool)  # one more for step -1, the beginning
    runs = np.flatnonzero((steps.kind == RUN) & valid)
    reusing[runs] = graph.in_place[steps.item[runs]]
    exact = residency.before.dtype
    parts: list[tuple[IntArray, IntArray, IntArray]] = []
    for begin in range(0, len(residency.key), CHUNK):
        parts += _of_events(graph, steps, residency, slice(begin, begin + CHUNK), reusing)
    at = memory_of_steps(machine, steps)[runs]
    working = runs
    collective = collective_runs(graph, steps, valid)
    if len(collective):  # in the memory of every part
        several = [(memory, step) for step in collective.tolist() for memory in memories_of(machine, steps, step)]
        single = ~np.isin(runs, collective)
        more = np.array(several, dtype=np.int64)
        at, working = np.concatenate((at[single], more[:, 0])), np.concatenate((runs[single], more[:, 1]))
    workspace = graph.workspace[steps.item[working]].astype(exact, copy=False)
    parts.append((at, timeline.start_position[working], workspace))
    parts.append((at, timeline.release_position[working], -workspace))
    if reusing.any():
        parts.extend(_reused(graph, machine, steps, timeline, residency, np.flatnonzero(reusing)))
    return (
        np.concatenate([part[0] for part in parts]),
        np.concatenate([part[1] for part in parts]),
        np.concatenate([part[2] for part in parts]),
    )


def _of_events(
    graph: TaskGraph, steps: Steps, residency: Residency, rows: slice, reusing: BoolArray
) -> list[tuple[IntArray, IntArray, IntArray]]:
    """Return the bytes that some events allocate and free, without outputs of `reusing` steps while they run."""
    values = len(graph.values)
    key, position, operation = residency.key[rows], residency.position[rows], residency.operation[rows]
    step, before = residency.step[rows], residency.before[rows]
    memory, value = np.divmod(key, values)
    exact = before.dtype

    def change(mask: BoolArray, amount: Callable[[IntArray], IntArray]) -> tuple[IntArray, IntArray, IntArray]:
        at = np.flatnonzero(mask)
        return memory[at], position[at], amount(at).astype(exact, copy=False)

    parts = [
        change(operation == INITIAL, lambda at: graph.size[value[at]]),
        change((operation == WRITE) & ~reusing[step], lambda at: graph.size[value[at]]),
        # A complete write replaces the previous bytes.
        change(((operation == WRITE_END) | (operation == FREE)) & (before != 0), lambda at: -before[at]),
    ]
    if (steps.amount >= 0).any():
        parts += [
            change(operation == PART_WRITE, lambda at: steps.amount[step[at]]),
            change(operation == PART_FREE, lambda at: -np.minimum(steps.amount[step[at]].astype(exact), before[at])),
        ]
    return parts


def _reused(
    graph: TaskGraph, machine: Machine, steps: Steps, timeline: Timeline, residency: Residency, runs: IntArray
) -> list[tuple[IntArray, IntArray, IntArray]]:
    """Return the memory changes of in-place outputs: during the run they add only bytes beyond the dropped inputs.

    The remaining bytes are charged at the free position, where the dropped inputs are freed at the same time.
    """
    count = len(steps)
    written = np.zeros(count, dtype=residency.before.dtype)
    lists = graph.writes.gather(steps.item[runs])
    np.add.at(written, np.repeat(runs, lists.counts), graph.size[lists.items])
    # Dropped inputs: keys of this step that see both a read and a free of it.
    values = len(graph.values)
    memory = memory_of_steps(machine, steps)
    reads = graph.reads.gather(steps.item[runs])
    owner = np.repeat(runs, reads.counts)
    read_codes = np.sort(owner * values + reads.items)
    freed = (residency.operation == FREE) & (residency.step >= 0)
    step, value, before = residency.step[freed], residency.key[freed] % values, residency.before[freed]
    codes = step.astype(np.int64) * values + value
    place = np.minimum(np.searchsorted(read_codes, codes), max(len(read_codes) - 1, 0))
    is_read = read_codes[place] == codes if len(read_codes) else np.zeros(len(codes), dtype=bool)
    dropped = np.zeros(count, dtype=residency.before.dtype)
    np.add.at(dropped, step[is_read], before[is_read])
    during = np.maximum(0, written[runs] - dropped[runs])
    return [
        (memory[runs], timeline.start_position[runs], during),
        (memory[runs], timeline.free_position[runs], written[runs] - during),
    ]


def _report_overruns(
    graph: TaskGraph,
    place: Memory,
    resident: int,
    use: IntArray,
    adds: BoolArray,
    step: IntArray,
    findings: Findings,
) -> None:
    """Name each step that adds bytes while the memory holds more than its capacity."""
    capacity = place.capacity
    assert capacity is not None
    if resident > capacity:
        findings.add(None, "capacity", f"{place.name} starts with {_figures(resident, capacity, graph)}")
    for k in np.flatnonzero((use > capacity) & adds).tolist():
        findings.add(int(step[k]), "capacity", f"{place.name} would hold {_figures(int(use[k]), capacity, graph)}")


def _figures(use: int, capacity: int, graph: TaskGraph) -> str:
    unit = "bytes" if graph.units.memory == "B" else "units"
    return f"{use} of {capacity} {unit}"


def _profile(resident: int, use: IntArray, touched: IntArray, timeline: Timeline) -> Profile:
    step = timeline.step_at[touched]
    # A step's start event happens at its start, its other events at its end.
    starts = timeline.start_position[step] == touched if len(step) else np.zeros(0, dtype=bool)
    time = np.where(starts, timeline.start[step], timeline.end[step]) if len(step) else timeline.start[:0]
    return Profile(
        time=np.concatenate((np.zeros(1, dtype=timeline.start.dtype), time)),
        size=np.concatenate((np.array([resident], dtype=use.dtype), use)),
    )
