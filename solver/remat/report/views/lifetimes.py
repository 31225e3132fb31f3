"""Stays of values in memories: begin, end and origin."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, NumberArray, Part, TaskGraph
from remat.schedule.steps import StepKind, Steps
from remat.units import Number
from remat.verifier import Report

NEAR = 1e-9
"""Times within this share of the makespan are one instant."""


class Origin(enum.IntEnum):
    """The origin of a value in a memory."""

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
        Times; a value that is never dropped stays until the makespan.
    born, died : (lives,) int64
        The step that creates the stay (-1: present from the start), and the step that frees it (-1: never freed).
    """

    memory: IntArray
    value: IntArray
    origin: IntArray
    begin: NumberArray
    end: NumberArray
    born: IntArray
    died: IntArray

    def of(self, chosen: BoolArray | IntArray) -> Lives:
        """Return the entries selected by a mask, or by indices in their order."""
        columns = (self.memory, self.value, self.origin, self.begin, self.end, self.born, self.died)
        return Lives(*(column[chosen] for column in columns))


@dataclass(frozen=True, slots=True)
class Moments:
    """The order of events: by `instant`, within an instant ends first, then by `place`.

    The places of step k are 2 k (its start) and 2 k + 1 (its end); -2 is before all steps.
    """

    time: NumberArray
    instant: IntArray
    late: IntArray
    place: IntArray

    def order(self) -> IntArray:
        """Return the indices that sort the events."""
        return np.lexsort((self.place, self.late, self.instant))

    def of(self, chosen: IntArray) -> Moments:
        """Return the entries at the given indices."""
        return Moments(self.time[chosen], self.instant[chosen], self.late[chosen], self.place[chosen])

    @staticmethod
    def join(parts: Sequence[Moments]) -> Moments:
        """Concatenate several."""
        names = ("time", "instant", "late", "place")
        return Moments(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True, slots=True)
class Traced:
    """Stays and their changes of size: `change` bytes of stay `stay` at `moments`."""

    lives: Lives
    stay: IntArray
    change: IntArray
    moments: Moments


def memory_of_runs(machine: Machine, steps: Steps) -> IntArray:
    """Return the memory of each step: for a run that of its first processor, for a copy or drop the one it frees."""
    own = np.array([processor.memory for processor in machine.processors], dtype=np.int64)
    memory = np.where(steps.kind == StepKind.RUN, own[0], steps.source)
    if steps.on is not None:
        named = np.flatnonzero((steps.kind == StepKind.RUN) & (steps.on.counts > 0))
        memory[named] = own[steps.on.items[steps.on.start[named]]]
    return memory


def lives_of(graph: TaskGraph, machine: Machine, steps: Steps, report: Report) -> Lives:
    """Return every stay of every value (O(events log events), array operations).

    A run that writes a resident value begins a new stay, unless it also reads the value: then it updates the value.
    A value that is moved away in parts stays until its last byte has left.

    Parameters
    ----------
    graph, machine, steps, report
        A verified schedule.
    """
    return traced(graph, machine, steps, Clock(report), report.makespan).lives


def traced(graph: TaskGraph, machine: Machine, steps: Steps, clock: Clock, makespan: Number) -> Traced:
    """Return every stay as `lives_of` does, with the times at which its bytes change (O(events log events))."""
    events = _events(graph, machine, steps, clock)
    order = np.lexsort((events.moments.place, events.moments.late, events.moments.instant, events.key))
    moments = events.moments.of(order)
    key, change, settles = events.key[order], events.change[order], events.settles[order]
    values = max(len(graph.values), 1)
    # A value without bytes counts as one byte, so that it has a stay.
    size = np.maximum(graph.size[key % values], 1)
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
    step = moments.place >> 1
    lives = Lives(
        memory=key[first] // values,
        value=key[first] % values,
        origin=_origins(events.origin[order][first], key[first] % values, moments.time[first]),
        begin=moments.time[first],
        end=np.where(lasts, moments.time[following], makespan),
        born=step[first],
        died=np.where(lasts, step[following], -1),
    )
    stay = np.cumsum(starts) - 1
    real = np.where(graph.size[key % values] > 0, 1, 0)
    afresh = np.flatnonzero(starts & (before > 0))  # the old copy leaves, and the new one arrives
    other = np.flatnonzero((after != before) & ~(starts & (before > 0)))
    index = np.concatenate((afresh, afresh, other))
    return Traced(
        lives=lives,
        stay=np.concatenate((stay[afresh] - 1, stay[afresh], stay[other])),
        change=np.concatenate((-before[afresh], after[afresh], (after - before)[other])) * real[index],
        moments=moments.of(index),
    )


def _origins(origin: IntArray, value: IntArray, begin: NumberArray) -> IntArray:
    """Distinguish the first computation of each value from recomputations."""
    computed = np.flatnonzero(origin == Origin.COMPUTED)
    computed = computed[np.argsort(begin[computed], kind="stable")]
    again = np.ones(len(computed), dtype=bool)
    again[np.unique(value[computed], return_index=True)[1]] = False
    origin = origin.copy()
    origin[computed[again]] = Origin.RECOMPUTED
    return origin


@dataclass(frozen=True, slots=True)
class _Events:
    """Changes to the bytes of a key (memory and value): by `change`, or all of them where the event `settles`."""

    key: IntArray
    moments: Moments
    change: IntArray
    settles: BoolArray
    afresh: BoolArray
    origin: IntArray


def _events(graph: TaskGraph, machine: Machine, steps: Steps, clock: Clock) -> _Events:
    values = len(graph.values)
    memory = memory_of_runs(machine, steps)
    parts: list[tuple[IntArray, IntArray, IntArray, bool, Origin]] = []

    def add(
        value: IntArray, where: IntArray, step: IntArray, change: IntArray, origin: Origin, *, at_end: bool = False
    ) -> None:
        parts.append((where * values + value, step, np.broadcast_to(change, step.shape), at_end, origin))

    one = np.array([1], dtype=np.int64)
    for resident in graph.inputs:
        where = 0 if resident.memory is None else machine.memory_index[resident.memory]
        add(resident.value * one, where * one, -one, one, Origin.INITIAL)
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    several = in_several_memories(graph, machine, steps)
    for run, place, part in several:
        made = np.array(part.writes, dtype=np.int64)
        add(made, np.full_like(made, place), np.full_like(made, run), one, Origin.COMPUTED)
    alone = np.setdiff1d(runs, [run for run, _, _ in several]) if several else runs
    written = graph.writes.gather(steps.item[alone])
    owner = np.repeat(alone, written.counts)
    add(written.items, memory[owner], owner, one, Origin.COMPUTED)
    copies = np.flatnonzero(steps.kind == StepKind.COPY)
    add(steps.item[copies], steps.target[copies], copies, one, Origin.COPIED)
    rows = steps.drop.rows
    add(steps.drop.items, memory[rows], rows, -one, Origin.INITIAL, at_end=True)

    key = np.concatenate([part[0] for part in parts])
    step = np.concatenate([part[1] for part in parts])
    sign = np.concatenate([part[2] for part in parts])
    at_end = np.concatenate([np.full(len(part[0]), part[3]) for part in parts])
    origin = np.concatenate([np.full(len(part[0]), part[4], dtype=np.int64) for part in parts])
    amount = steps.amount[np.maximum(step, 0)] if len(steps) else step
    whole = (step < 0) | (amount < 0)
    return _Events(
        key=key,
        moments=clock.moments(step, at_end),
        change=np.where(whole, (sign > 0).astype(np.int64), sign * amount),
        settles=whole,
        afresh=(origin == Origin.COMPUTED) & ~_updates(graph, steps, step, key % max(values, 1)),
        origin=origin,
    )


def in_several_memories(graph: TaskGraph, machine: Machine, steps: Steps) -> list[tuple[int, int, Part]]:
    """Return (step, memory, part) for each part of each run of a collective."""
    if not graph.parts:
        return []
    runs = np.flatnonzero((steps.kind == StepKind.RUN) & np.isin(steps.item, list(graph.parts)))
    found = []
    for step in runs.tolist():
        on = [] if steps.on is None else steps.on[step].tolist()
        parts = graph.parts[int(steps.item[step])]
        found += [(step, machine.processors[k].memory, part) for k, part in zip(on or [0], parts, strict=False)]
    return found


class Clock:
    """Starts and ends of the steps of a schedule, with a common numbering of the instants.

    Parameters
    ----------
    report : Report
        The report of a verified schedule.
    """

    def __init__(self, report: Report) -> None:
        self._start, self._end = report.start, report.end
        times = np.concatenate((np.zeros(1, dtype=report.start.dtype), report.start, report.end))
        self._known, index = np.unique(times, return_inverse=True)
        near = NEAR * float(report.makespan) if times.dtype.kind == "f" else 0
        self._number = np.concatenate(([0], np.cumsum(np.diff(self._known) > near)))
        instants = self._number[index]
        count = len(report.start)
        self._first, self._last = instants[1 : count + 1], instants[count + 1 :]

    def instants_of(self, time: NumberArray) -> IntArray:
        """Return the instants of times at which steps start or end, or of 0."""
        number: IntArray = self._number[np.searchsorted(self._known, time)]
        return number

    def time_of(self, instant: IntArray) -> NumberArray:
        """Return the times of instants."""
        time: NumberArray = self._known[np.searchsorted(self._number, instant)]
        return time

    def moments(self, step: IntArray, at_end: BoolArray | bool) -> Moments:
        """Return the starts of steps, or their ends where `at_end` is true; step -1 is before all steps."""
        ends = np.broadcast_to(np.asarray(at_end), step.shape)
        if not len(self._start):
            none = np.zeros(len(step), dtype=np.int64)
            return Moments(none, none, none + 1, 2 * step + ends)
        listed = np.maximum(step, 0)
        first = np.where(step >= 0, self._first[listed], 0)
        last = np.where(step >= 0, self._last[listed], 0)
        time = np.where(ends, self._end[listed], self._start[listed])
        return Moments(
            time=np.where(step >= 0, time, 0),
            instant=np.where(ends, last, first),
            late=(~ends | (first == last)).astype(np.int64),
            place=2 * step + ends,
        )


def _updates(graph: TaskGraph, steps: Steps, step: IntArray, value: IntArray) -> BoolArray:
    """Whether each event's step is a run of a task that reads the value."""
    is_run = (step >= 0) & (steps.kind[np.maximum(step, 0)] == StepKind.RUN) if len(steps) else step > len(step)
    values = len(graph.values)
    known = graph.reads.rows * values + graph.reads.items
    found = np.zeros(len(step), dtype=bool)
    found[is_run] = np.isin(steps.item[step[is_run]] * values + value[is_run], known, kind="sort")
    return found


def _bytes_after(change: IntArray, settles: BoolArray, size: IntArray, new_key: BoolArray) -> IntArray:
    """Return the bytes of the key after each event: all or none for writes and frees, otherwise adjusted by moves."""
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
