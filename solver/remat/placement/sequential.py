"""Placement if all steps share one resource: each begins when the one before it ends."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from remat.graph.machine import Link, Machine
from remat.graph.taskgraph import IntArray, NumberArray, TaskGraph
from remat.placement.outcome import Placement, Unplaceable
from remat.schedule.steps import StepKind, Steps


def place_sequential(
    graph: TaskGraph, machine: Machine, steps: Steps, *, check_bytes: bool = True
) -> Placement | Unplaceable:
    """Place steps that all occupy the first processor and move only complete values (array operations)."""
    if len(steps) == 0:
        return Placement(np.zeros(0, dtype=np.int64))
    duration = _durations(graph, machine, steps)
    # A running sum in listed order: exactly end = start + duration for each step.
    end = np.cumsum(duration)
    start = np.concatenate((np.zeros(1, dtype=end.dtype), end[:-1]))
    if duration.dtype == np.int64 and (end < 0).any():
        raise OverflowError("the schedule's times leave the range of 64-bit integers")
    drops = np.flatnonzero(steps.kind == StepKind.DROP)
    if len(drops):
        _place_drops(graph, steps, start, end, drops, own=machine.processors[0].memory)
    return (_first_overrun(graph, machine, steps) if check_bytes else None) or Placement(start)


def _durations(graph: TaskGraph, machine: Machine, steps: Steps) -> NumberArray:
    runs = steps.kind == StepKind.RUN
    duration: NumberArray = np.zeros(len(steps), dtype=graph.time.dtype)
    duration[runs] = graph.time[steps.item[runs]]
    speed = machine.processors[0].speed
    if speed != 1:
        duration = duration / speed
        if graph.exact_times and (duration == np.floor(duration)).all() and duration.max(initial=0) < 2**53:
            duration = duration.astype(np.int64)
    for (source, target), index in machine.link_index.items():
        copies = np.flatnonzero((steps.kind == StepKind.COPY) & (steps.source == source) & (steps.target == target))
        for link, mine in _by_ratio(graph, machine.links[index], copies, steps):
            sizes = graph.size[steps.item[mine]]
            long = link.latency + int(sizes.max()) / (link.bandwidth or math.inf) >= 2.0**62
            took: NumberArray = np.full(len(mine), float(link.latency) if long else link.latency)
            if link.bandwidth is not None:
                whole = isinstance(link.bandwidth, int) and not (sizes % link.bandwidth).any()
                took = took + (sizes // link.bandwidth if whole else sizes / link.bandwidth)
            if took.dtype != duration.dtype and took.dtype == np.float64:
                duration = duration.astype(np.float64)
            duration[mine] = took
    if duration.dtype == np.int64 and float(duration.astype(np.float64).sum()) >= 2.0**62:
        duration = duration.astype(np.float64)
    return duration


def _by_ratio(graph: TaskGraph, link: Link, copies: IntArray, steps: Steps) -> Iterator[tuple[Link, IntArray]]:
    """Yield a link with the bandwidth for each compression ratio, and the copies of values with this ratio."""
    if not graph.ratios or link.packed is None:
        if len(copies):
            yield link, copies
        return
    found: dict[Link, list[int]] = {}
    for copy, value in zip(copies.tolist(), steps.item[copies].tolist(), strict=True):
        found.setdefault(graph.link_for(link, value), []).append(copy)
    for own, mine in found.items():
        yield own, np.array(mine, dtype=np.int64)


def _place_drops(
    graph: TaskGraph, steps: Steps, start: NumberArray, end: NumberArray, drops: IntArray, *, own: int
) -> None:
    """Place drops as early as possible: with the step before them, or at its end if it uses their values."""
    reads, writes = graph.reads, graph.writes
    previous = -1  # the latest run or copy
    latest = start.dtype.type(0)
    busy = np.flatnonzero(steps.kind != StepKind.DROP)
    before = np.searchsorted(busy, drops) - 1
    last_drop = -2
    for drop, position in zip(drops.tolist(), before.tolist(), strict=True):
        follows = drop == last_drop + 1
        last_drop = drop
        previous = int(busy[position]) if position >= 0 else -1
        if previous < 0:
            start[drop] = 0
            continue
        item = int(steps.item[previous])
        if steps.kind[previous] == StepKind.RUN:
            memories = {own}
            used = set(reads[item].tolist()) | set(writes[item].tolist())
        else:
            memories = {int(steps.source[previous]), int(steps.target[previous])}
            used = {item}
        values = steps.drop[drop].tolist()
        latest = latest if follows else start[previous]
        if int(steps.source[drop]) in memories and not used.isdisjoint(values):
            latest = end[previous]
        start[drop] = latest


class _Presence:
    """The accesses that write or free resident values, by memory.

    A code consists of the key and the time: 0 for initially resident values, 2 x step + 1 for a write, 2 x step + 2 for
    a free. In sorted order, each access acts on the state after the previous access of its key.

    Attributes
    ----------
    memory, step, value : (accesses,) ints
        The accesses that find the value present: a free releases its bytes, a write replaces them.
    frees : (accesses,) bool
        Which of these accesses are frees.
    initial : dict of int to list of int
        By memory, the values that are resident from the start.
    """

    def __init__(self, graph: TaskGraph, machine: Machine, steps: Steps) -> None:
        values = len(graph.values)
        own = machine.processors[0].memory
        runs = np.flatnonzero(steps.kind == StepKind.RUN)
        copies = np.flatnonzero(steps.kind == StepKind.COPY)
        self.initial: dict[int, list[int]] = {}
        for place in graph.inputs:
            where = 0 if place.memory is None else machine.memory_index.get(place.memory, 0)
            self.initial.setdefault(where, []).append(place.value)
        initial = [memory * values + value for memory, listed in self.initial.items() for value in listed]
        bits = (2 * len(steps) + 2).bit_length()
        lists = graph.writes.gather(steps.item[runs])
        freed = steps.drop.rows
        home = np.where(steps.kind == StepKind.RUN, own, steps.source) * values
        codes = np.concatenate(
            (
                np.array(initial, dtype=np.int64) << bits,
                ((own * values + lists.items) << bits) + (2 * runs + 1).repeat(lists.counts),
                ((steps.target[copies] * values + steps.item[copies]) << bits) + (2 * copies + 1),
                ((home[freed] + steps.drop.items) << bits) + (2 * freed + 2),
            )
        )
        codes.sort()
        moment = codes & ((1 << bits) - 1)
        makes = (moment & 1 == 1) | (moment == 0)
        codes >>= bits
        there = np.flatnonzero((codes[1:] == codes[:-1]) & makes[:-1]) + 1
        there = there[moment[there] > 0]
        self.memory, self.value = np.divmod(codes[there], values)
        self.step = (moment[there] - 1) >> 1
        self.frees = ~makes[there]


def _first_overrun(graph: TaskGraph, machine: Machine, steps: Steps) -> Unplaceable | None:
    """Find the first step whose bytes do not fit when all steps before it have ended."""
    limited = [(index, memory) for index, memory in enumerate(machine.memories) if memory.capacity is not None]
    if not limited:
        return None
    size, written = _bytes_written(graph, machine, steps)
    runs, copies = steps.kind == StepKind.RUN, steps.kind == StepKind.COPY
    own = machine.processors[0].memory
    found = _Presence(graph, machine, steps)
    gone = size[found.value]  # bytes that each write replaces and each free releases
    first: Unplaceable | None = None
    for index, memory in limited:
        assert memory.capacity is not None
        comes = np.where(copies & (steps.target == index), written, 0)
        if index == own:
            comes = np.where(runs, written, comes)
        mine = found.memory == index
        left = np.zeros(len(steps), dtype=size.dtype)
        np.add.at(left, found.step[mine], gone[mine])
        resident = sum(int(graph.size[value]) for value in found.initial.get(index, ()))
        resident += graph.static_bytes(machine, index)
        after = resident + np.cumsum(comes - left)
        during = np.concatenate((np.array([resident], dtype=after.dtype), after[:-1])) + comes
        if index == own:
            workspace = np.where(runs, graph.workspace[np.where(runs, steps.item, 0)], 0)
            during = during - _reused(graph, steps, found, written, gone) + workspace
        over = (during > memory.capacity) & (steps.kind != StepKind.DROP)
        if index != own:  # a step that allocates nothing in this memory need not fit
            over &= comes > 0
        if over.any():
            step = int(np.argmax(over))
            if first is None or step < first.step:
                first = Unplaceable(step, index, int(during[step]), memory.capacity)
    return first


def _bytes_written(graph: TaskGraph, machine: Machine, steps: Steps) -> tuple[IntArray, IntArray]:
    """Return the values' sizes and the bytes that each step writes; as Python integers if int64 may overflow."""
    size = graph.size
    most = np.bincount(graph.writes.rows, weights=size[graph.writes.items].astype(np.float64), minlength=1).max()
    static = sum(graph.static_bytes(machine, k) for k in range(len(machine.memories)))
    if float(most + size.max(initial=0)) * (len(steps) + len(graph.inputs) + 1) + static >= 2.0**62:
        size = size.astype(object)
    of_task = np.zeros(len(graph.tasks), dtype=size.dtype)
    np.add.at(of_task, graph.writes.rows, size[graph.writes.items])
    written = np.zeros(len(steps), dtype=size.dtype)
    runs = steps.kind == StepKind.RUN
    written[runs] = of_task[steps.item[runs]]
    copies = steps.kind == StepKind.COPY
    written[copies] = size[steps.item[copies]]
    return size, written


_FEW = 8


def _reused(graph: TaskGraph, steps: Steps, found: _Presence, written: IntArray, gone: IntArray) -> IntArray:
    """Return the bytes of dropped inputs that the outputs of each in-place run take over."""
    reused = np.zeros(len(steps), dtype=gone.dtype)
    if not graph.in_place.any():
        return reused
    by_run = found.frees & (steps.kind[found.step] == StepKind.RUN)
    at = np.flatnonzero(by_run)
    task = steps.item[found.step[at]]
    at, task = at[graph.in_place[task]], task[graph.in_place[task]]
    value = found.value[at]
    begin, counts = graph.reads.start[task], graph.reads.counts[task]
    if counts.max(initial=0) <= _FEW:
        is_read = np.zeros(len(at), dtype=bool)
        for k in range(int(counts.max(initial=0))):
            has = k < counts
            is_read |= has & (graph.reads.items[np.where(has, begin + k, 0)] == value)
    else:
        codes = np.sort(graph.reads.rows * len(graph.values) + graph.reads.items)
        wanted = task * len(graph.values) + value
        is_read = codes[np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)] == wanted
    np.add.at(reused, found.step[at[is_read]], gone[at[is_read]])
    return np.minimum(reused, written)
