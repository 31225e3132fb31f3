"""Placement where all steps share one resource: each begins when the one before it ends."""

from __future__ import annotations

import math

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import IntArray, NumberArray, Ragged, TaskGraph
from remat.placement.outcome import Placement, Unplaceable
from remat.schedule.steps import StepKind, Steps


def place_sequential(graph: TaskGraph, machine: Machine, steps: Steps) -> Placement | Unplaceable:
    """Place steps that all occupy the first processor, whole values only (array operations)."""
    if len(steps) == 0:
        return Placement(np.zeros(0, dtype=np.int64))
    duration = _durations(graph, machine, steps)
    # A running sum in listed order: exactly end = start + duration, step by step.
    end = np.cumsum(duration)
    start = np.concatenate((np.zeros(1, dtype=end.dtype), end[:-1]))
    if duration.dtype == np.int64 and (end < 0).any():
        raise OverflowError("the schedule's times leave the range of 64-bit integers")
    drops = np.flatnonzero(steps.kind == StepKind.DROP)
    accesses = _Accesses(graph, machine, steps)
    if len(drops):
        _place_drops(graph, steps, start, end, drops, own=machine.processors[0].memory)
    overrun = _first_overrun(graph, machine, steps, accesses)
    return overrun or Placement(start)


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
        mine = np.flatnonzero((steps.kind == StepKind.COPY) & (steps.source == source) & (steps.target == target))
        if len(mine) == 0:
            continue
        link = machine.links[index]
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


def _place_drops(
    graph: TaskGraph, steps: Steps, start: NumberArray, end: NumberArray, drops: IntArray, *, own: int
) -> None:
    """Let drops happen as early as they may: with the step before them, or at its end if it uses their values."""
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


class _Accesses:
    """Every write and every free, as (key, step) pairs; keys are memory * values + value."""

    def __init__(self, graph: TaskGraph, machine: Machine, steps: Steps) -> None:
        values = len(graph.values)
        own = machine.processors[0].memory
        runs = np.flatnonzero(steps.kind == StepKind.RUN)
        copies = np.flatnonzero(steps.kind == StepKind.COPY)
        lists = graph.writes.gather(steps.item[runs])
        self.write_step = np.concatenate((np.repeat(runs, lists.counts), copies))
        self.write_key = np.concatenate(
            (own * values + lists.items, steps.target[copies] * values + steps.item[copies])
        )
        self.free_step = steps.drop.rows
        memory = np.where(steps.kind == StepKind.RUN, own, steps.source)
        self.free_key = memory[self.free_step] * values + steps.drop.items


def _first_overrun(graph: TaskGraph, machine: Machine, steps: Steps, accesses: _Accesses) -> Unplaceable | None:
    """Find the first step whose bytes do not fit when everything before it has ended."""
    values, count = len(graph.values), len(steps)
    write_step, write_key = accesses.write_step, accesses.write_key
    free_step, free_key = accesses.free_step, accesses.free_key
    # Presence: sort writes and frees by key and time; a write or free acts on what the entry before it left.
    initial = np.array(
        [
            (0 if place.memory is None else machine.memory_index.get(place.memory, 0)) * values + place.value
            for place in graph.inputs
        ],
        dtype=np.int64,
    )
    key = np.concatenate((initial, write_key, free_key))
    moment = np.concatenate((np.zeros(len(initial), dtype=np.int64), 2 * write_step + 1, 2 * free_step + 2))
    makes = np.concatenate((np.ones(len(initial) + len(write_key), dtype=bool), np.zeros(len(free_key), dtype=bool)))
    order = np.lexsort((moment, key))
    sorted_key = key[order]
    there = np.zeros(len(key), dtype=bool)
    there[order[1:]] = (sorted_key[1:] == sorted_key[:-1]) & makes[order[:-1]]
    size = graph.size[key % values]
    if (
        size.sum(dtype=np.float64) + sum(graph.static_bytes(machine, k) for k in range(len(machine.memories)))
        >= 2.0**62
    ):
        size = size.astype(object)  # Python's integers: what is produced in all could leave int64
    gone = np.where(there, size, 0)  # what each write replaces and each free gives back
    writes = slice(len(initial), len(initial) + len(write_key))
    frees = slice(len(initial) + len(write_key), None)

    reused = _reused(graph, steps, accesses, gone[frees])
    memory_of_write, memory_of_free = write_key // values, free_key // values
    runs = steps.kind == StepKind.RUN
    own = machine.processors[0].memory
    first: Unplaceable | None = None
    workspace = np.where(runs, graph.workspace[np.where(runs, steps.item, 0)], 0)
    for index, memory in enumerate(machine.memories):
        if memory.capacity is None:
            continue
        written = np.zeros(count, dtype=size.dtype)
        mine = memory_of_write == index
        np.add.at(written, write_step[mine], size[writes][mine])
        left = np.zeros(count, dtype=size.dtype)
        np.add.at(left, write_step[mine], gone[writes][mine])
        mine = memory_of_free == index
        np.add.at(left, free_step[mine], gone[frees][mine])
        resident = int(graph.size[initial[initial // values == index] % values].sum())
        resident += graph.static_bytes(machine, index)
        after = resident + np.cumsum(written - left)
        before = np.concatenate(([resident], after[:-1]))
        during = before + written
        if index == own:
            during = during - reused + workspace
        over = (during > memory.capacity) & (steps.kind != StepKind.DROP)
        if index != own:  # a step that takes nothing in this memory need not fit
            over &= written > 0
        if over.any():
            step = int(np.argmax(over))
            if first is None or step < first.step:
                first = Unplaceable(step, index, int(during[step]), memory.capacity)
    return first


def _reused(graph: TaskGraph, steps: Steps, accesses: _Accesses, gone: IntArray) -> IntArray:
    """Bytes of dropped inputs that each in-place run's outputs take over."""
    count = len(steps)
    reused = np.zeros(count, dtype=gone.dtype)
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    runs = runs[graph.in_place[steps.item[runs]]]
    if len(runs) == 0:
        return reused
    values = len(graph.values)
    reads: Ragged = graph.reads.gather(steps.item[runs])
    codes = np.sort(np.repeat(runs, reads.counts) * values + reads.items)
    step, value = accesses.free_step, accesses.free_key % values
    wanted = step * values + value
    at = np.minimum(np.searchsorted(codes, wanted), max(len(codes) - 1, 0))
    is_read = codes[at] == wanted if len(codes) else np.zeros(len(wanted), dtype=bool)
    np.add.at(reused, step[is_read], gone[is_read])
    written = np.zeros(count, dtype=np.int64)
    lists = graph.writes.gather(steps.item[runs])
    np.add.at(written, np.repeat(runs, lists.counts), graph.size[lists.items])
    return np.minimum(reused, written)
