"""Durations, instants and the total order of events that a schedule's start times imply.

Each step has three events: its *start*, its *release* (reads end, writes are complete, workspace goes) and
its *free* (dropped values leave). At one instant, steps that began earlier and end there come first: all
releases, then all frees. Then the steps that start there follow in listed order; a step of zero duration
completes before the next one begins.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from remat.graph.machine import Link, Machine
from remat.graph.taskgraph import BoolArray, IntArray, NumberArray, TaskGraph
from remat.schedule.steps import Steps

TOLERANCE = 1e-9
"""Times within this share of the makespan are one instant (float times only; integers are exact)."""

ROUNDING = 2.0**-42
"""Differences within this share of the makespan are rounding."""


class Timeline(NamedTuple):
    """Positions of each step's events in the total order of all events.

    Attributes
    ----------
    start, end : (steps,) NumberArray
        Times in the instance's unit.
    start_position, release_position, free_position : (steps,) int64
        Positions, 0 .. 3*steps-1.
    step_at : (3*steps,) int64
        The step whose event stands at each position.
    merged : bool
        Whether the tolerance merged several times into one instant.
    """

    start: NumberArray
    end: NumberArray
    start_position: IntArray
    release_position: IntArray
    free_position: IntArray
    step_at: IntArray
    merged: bool


def durations(graph: TaskGraph, machine: Machine, steps: Steps, *, valid: BoolArray, link: IntArray) -> NumberArray:
    """Return each step's duration: task time / p^alpha / speed, latency + size/bandwidth, 0 for drops.

    `valid` masks out steps with unknown names, `link` is the link of each copy (-1: none).
    """
    count = len(steps)
    is_run = (steps.kind == 0) & valid
    task = np.where(is_run, steps.item, 0)
    result: NumberArray = np.where(is_run, _times_of(graph, machine, steps, task), 0)
    if steps.paired is not None:
        result = _at_once(result, graph, machine, steps, np.flatnonzero(steps.paired & is_run))
    if steps.on is not None and graph.parallel_max is not None and graph.parallel_alpha is not None:
        several = is_run & (steps.on.counts > 1)
        if several.any():
            speed = steps.on.counts[several].astype(np.float64) ** graph.parallel_alpha[task[several]]
            result = result.astype(np.float64)
            result[several] = graph.time[task[several]] / speed
    if any(processor.speed != 1 for processor in machine.processors):
        apart = np.isin(steps.item, list(graph.parts)) if graph.parts else False
        result = _at_their_speed(result, machine, steps, is_run & ~np.asarray(apart, dtype=bool))
    took: NumberArray
    for index, ends in enumerate(machine.links):
        mine = np.flatnonzero(link == index)
        if len(mine) == 0:
            continue
        moved = np.where(steps.amount[mine] < 0, graph.size[steps.item[mine]], steps.amount[mine])
        if ends.packed is not None and graph.ratios:
            took = _compressed(graph, ends, steps.item[mine], moved)
        elif ends.bandwidth is None:
            took = np.full(len(mine), ends.latency)
        elif _is_whole(ends, moved):
            took = ends.latency + moved // ends.bandwidth
        else:
            took = ends.latency + moved / float(ends.bandwidth)
        if took.dtype == np.float64 and result.dtype != np.float64:
            result = result.astype(np.float64)
        result[mine] = took
    assert len(result) == count
    return result


def first_processor(steps: Steps, processors: int) -> IntArray:
    """Return the first processor that each step names; 0, the machine's first, if it names no existing one."""
    first = np.zeros(len(steps), dtype=np.int64)
    if steps.on is not None and len(steps.on.items):
        named = steps.on.counts > 0
        first[named] = steps.on.items[steps.on.start[:-1][named]]
    return np.where((first >= 0) & (first < processors), first, 0)


def _times_of(graph: TaskGraph, machine: Machine, steps: Steps, task: IntArray) -> NumberArray:
    """Return the time of each step's task on its processor's type; another check rejects types without a time."""
    if graph.times is None:
        return graph.time[task]
    known = np.array([graph.types.index(p.type) if p.type in graph.types else 0 for p in machine.processors])
    times: NumberArray = graph.times[known[first_processor(steps, len(machine.processors))], task]
    return np.maximum(times, 0)


def _at_once(times: NumberArray, graph: TaskGraph, machine: Machine, steps: Steps, second: IntArray) -> NumberArray:
    """Set both runs of each pair to their common time: the sum of both, less the overlap that both allow."""
    if graph.pairs is None or not len(second):
        return times
    types = [graph.types.index(p.type) if p.type in graph.types else 0 for p in machine.processors]
    on = np.array(types)[first_processor(steps, len(machine.processors))[second]]
    spared = graph.pairs.spared
    common = times[second - 1] + times[second]
    common = common - np.minimum(spared[on, steps.item[second - 1]], spared[on, steps.item[second]])
    result = times.astype(np.result_type(times, common))
    result[second - 1] = result[second] = common
    return result


def _compressed(graph: TaskGraph, link: Link, values: IntArray, moved: IntArray) -> NumberArray:
    """Return the times of compressed copies: latency + bytes (ratio/bandwidth + 1/codec), with the values' ratios."""
    assert link.packed is not None
    bandwidth, codec = (
        None if one is None else Fraction(str(one)) for one in (link.packed.bandwidth, link.packed.codec)
    )
    unpacking = 0 if codec is None else 1 / codec
    latency, exact = Fraction(str(link.latency)), list[Fraction]()
    for value, size in zip(values.tolist(), moved.tolist(), strict=True):
        sending = 0 if bandwidth is None else Fraction(str(graph.ratios.get(value, link.packed.ratio))) / bandwidth
        exact.append(latency + size * (sending + unpacking))
    whole = isinstance(link.latency, int) and all(one.denominator == 1 and one < 2**62 for one in exact)
    return np.array([int(one) for one in exact]) if whole else np.array([float(one) for one in exact])


def delays(machine: Machine, link: IntArray) -> NumberArray:
    """Return each copy's delay from the release of its channel to the arrival of its data; 0 for other steps."""
    of_link: NumberArray = np.array([*(ends.delay for ends in machine.links), 0])
    return of_link[link]


def _is_whole(link: Link, moved: IntArray) -> bool:
    """Whether all of these transfers take an integer time that fits int64."""
    if not isinstance(link.bandwidth, int) or not isinstance(link.latency, int):
        return False
    return link.latency + int(moved.max()) // link.bandwidth < 2**62 and not (moved % link.bandwidth).any()


def _at_their_speed(times: NumberArray, machine: Machine, steps: Steps, is_run: BoolArray) -> NumberArray:
    """Divide the runs' times by the speed of the slowest processor of each; integers where all quotients are whole."""
    speeds = np.array([processor.speed for processor in machine.processors], dtype=np.float64)
    pace = np.where(is_run, speeds[0], 1.0)
    if steps.on is not None and len(steps.on.items):
        named = (steps.on.counts > 0) & is_run
        rows = np.repeat(np.arange(len(times), dtype=np.int64), steps.on.counts)
        taken = named[rows]
        pace[named] = 1.0
        np.minimum.at(pace, rows[taken], speeds[steps.on.items[taken]])
    slow = pace < 1.0
    quotient = times[slow] / pace[slow]
    whole = (quotient == np.rint(quotient)) & (quotient < 2.0**53)
    result = times.copy() if whole.all() else times.astype(np.float64)
    result[slow] = quotient
    return result


def ends(start: NumberArray, duration: NumberArray) -> tuple[NumberArray, NumberArray]:
    """Return the start and end times of steps, in one type.

    Integer times become floats only if an end exceeds int64: ends are the only sums.
    """
    beyond = len(start) > 0 and int(start.max()) + int(duration.max()) >= 2**63
    if start.dtype != duration.dtype or beyond:
        start, duration = start.astype(np.float64), duration.astype(np.float64)
    return start, start + duration


def build_timeline(start: NumberArray, duration: NumberArray, *, apart: bool = False) -> Timeline:
    """Order all events (O(steps log steps)); with `apart`, no instant contains a whole step, except by rounding."""
    count = len(start)
    start, end = ends(start, duration)
    makespan = float(end.max(initial=0))
    tolerance = TOLERANCE * makespan
    if apart:
        tolerance = min(tolerance, float(duration[duration > ROUNDING * makespan].min(initial=makespan)) / 2)
    first, last, merged = _instants(start, end, tolerance)
    listed = np.arange(count, dtype=np.int64)
    instantly = first == last
    # One code per event; at an instant the blocks are: releases, frees, then start/release/free of steps in
    # listed order (the latter two only for steps of no length).
    block = 5 * count
    start_code = first * block + 2 * count + 3 * listed
    release_code = np.where(instantly, start_code + 1, last * block + listed)
    free_code = np.where(instantly, start_code + 2, last * block + count + listed)
    codes = np.concatenate((start_code, release_code, free_code))
    order = np.argsort(codes, kind="stable")
    position = np.empty(3 * count, dtype=np.int64)
    position[order] = np.arange(3 * count, dtype=np.int64)
    return Timeline(
        start=start,
        end=end,
        start_position=position[:count],
        release_position=position[count : 2 * count],
        free_position=position[2 * count :],
        step_at=order % max(count, 1),
        merged=merged,
    )


def _instants(start: NumberArray, end: NumberArray, tolerance: float) -> tuple[IntArray, IntArray, bool]:
    """Number the instants: equal integers, or floats within the tolerance of an instant's first time.

    Returns the instants of the starts, those of the ends, and whether several times share an instant.
    """
    merged = False
    times, index = np.unique(np.concatenate((start, end)), return_inverse=True)
    if times.dtype != np.int64 and len(times) > 1:
        number = np.concatenate(([0], np.cumsum(np.diff(times) > tolerance)))
        # Runs of close times may together span more than the tolerance: anchor each instant at its first time.
        firsts = np.flatnonzero(np.concatenate(([True], np.diff(number) > 0)))
        lasts = np.append(firsts[1:], len(times)) - 1
        if (times[lasts] - times[firsts] > tolerance).any():
            number = _anchored(times, tolerance)
        merged = bool(number[-1] < len(times) - 1)
        index = number[index]
    return index[: len(start)], index[len(start) :], merged


def _anchored(times: NumberArray, tolerance: float) -> IntArray:
    number = np.empty(len(times), dtype=np.int64)
    current, anchor = 0, float(times[0])
    for i, time in enumerate(times.tolist()):
        if time - anchor > tolerance:
            current += 1
            anchor = time
        number[i] = current
    return number
