"""Stays of values in memories: from when to when, and how they came there."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, NumberArray, TaskGraph
from remat.schedule.steps import StepKind, Steps
from remat.verifier import Report

NEAR = 1e-9
"""Times within this share of the makespan are one instant."""


class Origin(enum.IntEnum):
    """How a value came into a memory."""

    INITIAL = 0
    COMPUTED = 1
    RECOMPUTED = 2
    COPIED = 3


@dataclass(frozen=True, slots=True)
class Lives:
    """Stays of values in memories, sorted by memory, value and time.

    Attributes
    ----------
    memory, value, origin : (lives,) int64
    begin, end : (lives,) arrays
        Times; what is never dropped stays until the makespan.
    """

    memory: IntArray
    value: IntArray
    origin: IntArray
    begin: NumberArray
    end: NumberArray

    def of(self, chosen: BoolArray) -> Lives:
        """Return those that a mask chooses."""
        columns = (self.memory, self.value, self.origin, self.begin, self.end)
        return Lives(*(column[chosen] for column in columns))


def memory_of_runs(machine: Machine, steps: Steps) -> IntArray:
    """Return the memory in which each run works (that of its first processor), and which a copy or a drop frees."""
    own = np.array([processor.memory for processor in machine.processors], dtype=np.int64)
    memory = np.where(steps.kind == StepKind.RUN, own[0], steps.source)
    if steps.on is not None:
        named = np.flatnonzero((steps.kind == StepKind.RUN) & (steps.on.counts > 0))
        memory[named] = own[steps.on.items[steps.on.start[named]]]
    return memory


def lives_of(graph: TaskGraph, machine: Machine, steps: Steps, report: Report) -> Lives:
    """Return every stay of every value (O(events log events), array operations).

    A run that writes a value which lies there already begins a new stay, unless it also reads the value: then
    it updates it. A value of which a part was moved away stays until its last byte has gone.

    Parameters
    ----------
    graph, machine, steps, report
        A verified schedule.
    """
    events = _events(graph, machine, steps, report)
    order = np.lexsort((events.place, events.late, events.instant, events.key))
    key, change, settles = events.key[order], events.change[order], events.settles[order]
    # A value without bytes counts as one byte, so that it is there, too.
    size = np.maximum(graph.size[key % max(len(graph.values), 1)], 1)
    new_key = np.concatenate(([True], np.diff(key) != 0)) if len(key) else np.zeros(0, dtype=bool)
    after = _bytes_after(change, settles, size, new_key)
    before = np.where(new_key, 0, np.concatenate(([0], after[:-1])))
    starts = (after > 0) & ((before <= 0) | events.afresh[order])
    ends = (after <= 0) & (before > 0)
    bound = np.flatnonzero(starts | ends)
    first = bound[starts[bound]]
    follower = np.searchsorted(bound, first, side="right")
    following = bound[np.minimum(follower, len(bound) - 1)] if len(bound) else bound
    lasts = (follower < len(bound)) & (key[following] == key[first]) if len(bound) else np.zeros(0, dtype=bool)
    time = events.time[order]
    values = max(len(graph.values), 1)
    return Lives(
        memory=key[first] // values,
        value=key[first] % values,
        origin=_origins(events.origin[order][first], key[first] % values, time[first]),
        begin=time[first],
        end=np.where(lasts, time[following], report.makespan),
    )


def _origins(origin: IntArray, value: IntArray, begin: NumberArray) -> IntArray:
    """Tell the first computation of each value from the later ones."""
    computed = np.flatnonzero(origin == Origin.COMPUTED)
    computed = computed[np.argsort(begin[computed], kind="stable")]
    again = np.ones(len(computed), dtype=bool)
    again[np.unique(value[computed], return_index=True)[1]] = False
    origin = origin.copy()
    origin[computed[again]] = Origin.RECOMPUTED
    return origin


@dataclass(frozen=True, slots=True)
class _Events:
    """What changes the bytes of a key (memory and value): `change` of them, or all of them where it `settles`.

    `late` and `place` order the events of one instant: first what ends there, then what starts, as listed.
    """

    key: IntArray
    time: NumberArray
    instant: IntArray
    late: IntArray
    place: IntArray
    change: IntArray
    settles: BoolArray
    afresh: BoolArray
    origin: IntArray


def _events(graph: TaskGraph, machine: Machine, steps: Steps, report: Report) -> _Events:
    values = len(graph.values)
    memory = memory_of_runs(machine, steps)
    parts: list[tuple[IntArray, IntArray, IntArray, bool, IntArray, Origin]] = []

    def add(
        value: IntArray, where: IntArray, step: IntArray, change: IntArray, origin: Origin, *, at_end: bool = False
    ) -> None:
        parts.append((where * values + value, step, np.broadcast_to(change, step.shape), at_end, step, origin))

    one = np.array([1], dtype=np.int64)
    for place in graph.inputs:
        where = 0 if place.memory is None else machine.memory_index[place.memory]
        add(place.value * one, where * one, -one, one, Origin.INITIAL)
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    written = graph.writes.gather(steps.item[runs])
    owner = np.repeat(runs, written.counts)
    add(written.items, memory[owner], owner, one, Origin.COMPUTED)
    copies = np.flatnonzero(steps.kind == StepKind.COPY)
    add(steps.item[copies], steps.target[copies], copies, one, Origin.COPIED)
    rows = steps.drop.rows
    add(steps.drop.items, memory[rows], rows, -one, Origin.INITIAL, at_end=True)

    key = np.concatenate([part[0] for part in parts])
    step = np.concatenate([part[1] for part in parts])
    sign = np.concatenate([part[2] for part in parts])
    at_end = np.concatenate([np.full(len(part[0]), part[3]) for part in parts])
    origin = np.concatenate([np.full(len(part[0]), part[5], dtype=np.int64) for part in parts])
    listed = np.maximum(step, 0)
    begin = np.where(step >= 0, report.start[listed], 0) if len(steps) else np.zeros(len(step), dtype=np.int64)
    end = np.where(step >= 0, report.end[listed], 0) if len(steps) else begin
    time = np.where(at_end, end, begin)
    instants = _instants(np.concatenate((begin, end)), float(report.makespan))
    first, last = instants[: len(step)], instants[len(step) :]
    amount = steps.amount[listed] if len(steps) else step
    whole = (step < 0) | (amount < 0)
    return _Events(
        key=key,
        time=time,
        instant=np.where(at_end, last, first),
        late=(~at_end | (first == last)).astype(np.int64),
        place=2 * step + at_end,
        change=np.where(whole, (sign > 0).astype(np.int64), sign * amount),
        settles=whole,
        afresh=(origin == Origin.COMPUTED) & ~_updates(graph, steps, step, key % max(values, 1)),
        origin=origin,
    )


def _instants(time: NumberArray, makespan: float) -> IntArray:
    """Number the instants of times."""
    known, index = np.unique(time, return_inverse=True)
    apart = np.diff(known) > (NEAR * makespan if known.dtype.kind == "f" else 0)
    number: IntArray = np.concatenate(([0], np.cumsum(apart)))[index]
    return number


def _updates(graph: TaskGraph, steps: Steps, step: IntArray, value: IntArray) -> BoolArray:
    """Whether each event's step is a run of a task that reads the value."""
    is_run = (step >= 0) & (steps.kind[np.maximum(step, 0)] == StepKind.RUN) if len(steps) else step > len(step)
    values = len(graph.values)
    known = graph.reads.rows * values + graph.reads.items
    found = np.zeros(len(step), dtype=bool)
    found[is_run] = np.isin(steps.item[step[is_run]] * values + value[is_run], known, kind="sort")
    return found


def _bytes_after(change: IntArray, settles: BoolArray, size: IntArray, new_key: BoolArray) -> IntArray:
    """Return the bytes of its key after each event: all or none where it settles, else by what was moved since."""
    index = np.arange(len(change))
    moved = np.where(settles, 0, change)
    total = np.cumsum(moved)
    key_start = np.maximum.accumulate(np.where(new_key, index, 0)) if len(index) else index
    settled = np.maximum.accumulate(np.where(settles, index, -1)) if len(index) else index
    known = settled >= key_start
    at = np.maximum(settled, 0)
    base = np.where(change > 0, size, 0)
    since_start = total - (total[key_start] - moved[key_start])
    after: IntArray = np.where(known, base[at] + total - total[at], since_start)
    return after
