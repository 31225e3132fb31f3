"""Kernel of the dynamic program over down-sets: all stages that may follow a down-set.

A stage is the difference of two down-sets. From a down-set, the kernel traverses all larger ones depth first, each
once. The received and sent values of the stage change by one group at a time. Times are integers in steps.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from remat.plugin import IntArray, NumberArray
from remat_algorithms.kit.compile.records import cells


class Sets(NamedTuple):
    """Down-sets (as in `DownSets`), and sums over each: times by device class, and bytes."""

    start: IntArray
    group: IntArray
    target: IntArray
    time: IntArray  # (classes, sets)
    unable: IntArray  # (classes, sets): groups that the class cannot run
    least: IntArray  # (sets,): on the fastest class
    size: IntArray
    held: IntArray  # bytes per micro-batch in flight


class Passes(NamedTuple):
    """Flows between groups: for each group, the flows that it produces (role 1) or reads (2); times by class."""

    start: IntArray
    flow: IntArray
    role: IntArray
    readers: IntArray
    away: IntArray  # (classes, flows)
    back: IntArray


class Devices(NamedTuple):
    """Classes of devices: their numbers, the state increment of one device, and the resources blocked by transfers."""

    number: IntArray
    step: IntArray
    room: IntArray
    pays_away: IntArray
    pays_back: IntArray
    one_way: IntArray
    speed_left: NumberArray  # (states,): of the unused devices, relative to the fastest class
    used: IntArray  # (states,)
    flights: int


class Table(NamedTuple):
    """Minimum largest load of each down-set and state (-1: none), and its predecessor."""

    value: IntArray  # (sets, states)
    came: IntArray
    kind: IntArray


class Scratch(NamedTuple):
    """Scratch space of the traversal."""

    stamp: IntArray
    at: IntArray
    edge: IntArray
    added: IntArray
    inside: IntArray
    made: IntArray


@cells
class Walked(ctypes.Structure):
    """Number of stages examined, stamp of the last traversal, next down-set, and current stage."""

    visits: int
    stamp: int
    next: int
    kind: int
    away: int
    back: int


def fill(
    sets: Sets,
    passes: Passes,
    devices: Devices,
    table: Table,
    scratch: Scratch,
    walked: Walked,
    last: int,
    bound: int,
) -> None:
    """Extend the next down-sets, up to last - 1, by stages with a load of at most `bound`."""
    classes = devices.number.shape[0]
    states = table.value.shape[1]
    while walked.next < last:
        ideal = walked.next
        for kind in range(classes):
            some = False
            for state in range(states):
                used = state // devices.step[kind] % (devices.number[kind] + 1)
                if table.value[ideal, state] >= 0 and used < devices.number[kind]:
                    some = True
            if some:
                walked.kind = kind
                extend(sets, passes, devices, table, scratch, walked, bound)
        walked.next += 1


def extend(
    sets: Sets,
    passes: Passes,
    devices: Devices,
    table: Table,
    scratch: Scratch,
    walked: Walked,
    bound: int,
) -> None:
    """Try all stages of a class that begin at the next down-set."""
    ideal = walked.next
    kind = walked.kind
    walked.stamp += 1
    walked.away = 0
    walked.back = 0
    mark = walked.stamp
    depth = 0
    scratch.at[0] = ideal
    scratch.edge[0] = sets.start[ideal]
    while depth >= 0:
        node = scratch.at[depth]
        edge = scratch.edge[depth]
        if edge == sets.start[node + 1]:
            if depth > 0:
                remove(passes, scratch, walked, kind, scratch.added[depth])
            depth -= 1
        else:
            scratch.edge[depth] = edge + 1
            larger = sets.target[edge]
            if scratch.stamp[larger] != mark:
                scratch.stamp[larger] = mark
                time = sets.time[kind, larger] - sets.time[kind, ideal]
                size = sets.size[larger] - sets.size[ideal]
                held = sets.held[larger] - sets.held[ideal]
                able = sets.unable[kind, larger] == sets.unable[kind, ideal]
                if able and time <= bound and size + held <= devices.room[kind]:
                    depth += 1
                    scratch.at[depth] = larger
                    scratch.edge[depth] = sets.start[larger]
                    scratch.added[depth] = sets.group[edge]
                    add(passes, scratch, walked, kind, int(sets.group[edge]))
                    walked.visits += 1
                    load = load_of(devices, walked, kind, time)
                    if load <= bound:
                        take(sets, devices, table, walked, int(larger), load, bound)


def load_of(devices: Devices, walked: Walked, kind: int, time: int) -> int:
    """Return the load of a stage: the busy time of its device or of its busiest channel."""
    own = time
    if devices.pays_away[kind]:
        own += walked.away
    if devices.pays_back[kind]:
        own += walked.back
    ways = max(walked.away, walked.back)
    if devices.one_way[kind]:
        ways = walked.away + walked.back
    return max(own, ways)


def take(sets: Sets, devices: Devices, table: Table, walked: Walked, larger: int, load: int, bound: int) -> None:
    """Append a stage to all known solutions of its first down-set."""
    ideal = walked.next
    kind = walked.kind
    size = sets.size[larger] - sets.size[ideal]
    held = sets.held[larger] - sets.held[ideal]
    rest = sets.least[sets.least.shape[0] - 1] - sets.least[larger]
    step = devices.step[kind]
    for state in range(table.value.shape[1]):
        known = table.value[ideal, state]
        if known >= 0 and state // step % (devices.number[kind] + 1) < devices.number[kind]:
            after = state + step
            flights = min(devices.used[after], devices.flights)
            fits = size + flights * held <= devices.room[kind]
            enough = rest <= devices.speed_left[after] * bound * 1.000000001 + 1.0
            if fits and enough:
                value = max(known, load)
                before = table.value[larger, after]
                if before < 0 or value < before:
                    table.value[larger, after] = value
                    table.came[larger, after] = ideal
                    table.kind[larger, after] = kind


def add(passes: Passes, scratch: Scratch, walked: Walked, kind: int, group: int) -> None:
    """Add a group to the stage."""
    for entry in range(passes.start[group], passes.start[group + 1]):
        flow = passes.flow[entry]
        count(passes, scratch, walked, kind, flow, -1)
        if passes.role[entry] == 1:
            scratch.made[flow] = 1
        else:
            scratch.inside[flow] += 1
        count(passes, scratch, walked, kind, flow, 1)


def remove(passes: Passes, scratch: Scratch, walked: Walked, kind: int, group: int) -> None:
    """Remove a group from the stage."""
    for entry in range(passes.start[group], passes.start[group + 1]):
        flow = passes.flow[entry]
        count(passes, scratch, walked, kind, flow, -1)
        if passes.role[entry] == 1:
            scratch.made[flow] = 0
        else:
            scratch.inside[flow] -= 1
        count(passes, scratch, walked, kind, flow, 1)


def count(passes: Passes, scratch: Scratch, walked: Walked, kind: int, flow: int, sign: int) -> None:
    """Update the busy times of a flow: it is sent once if read outside, and received once if read inside."""
    if scratch.made[flow] == 1:
        if scratch.inside[flow] < passes.readers[flow]:
            walked.away += sign * passes.away[kind, flow]
    elif scratch.inside[flow] > 0:
        walked.back += sign * passes.back[kind, flow]
