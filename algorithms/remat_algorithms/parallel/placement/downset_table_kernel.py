"""The kernel of the dynamic program over down-sets: from one of them, every stage that may follow it.

A stage is the difference of two down-sets. From a down-set, the larger ones are walked through depth first, each once;
what a stage receives and sends changes by one group at a time. Times are whole numbers of a step.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from remat.plugin import IntArray, NumberArray
from remat_algorithms.kit.compile.records import cells


class Sets(NamedTuple):
    """Down-sets (as in `DownSets`), and sums over each: by class of device, and of bytes."""

    start: IntArray
    group: IntArray
    target: IntArray
    time: IntArray  # (classes, sets)
    unable: IntArray  # (classes, sets): groups that the class cannot run
    least: IntArray  # (sets,): on whichever class is the quickest
    size: IntArray
    held: IntArray  # bytes a micro-batch in flight


class Passes(NamedTuple):
    """What passes between groups: for each group, the flows that it makes (role 1) or reads (2); times by class."""

    start: IntArray
    flow: IntArray
    role: IntArray
    readers: IntArray
    away: IntArray  # (classes, flows)
    back: IntArray


class Devices(NamedTuple):
    """Classes of devices: how many, how many steps a state is one device more, and what transfers keep busy."""

    number: IntArray
    step: IntArray
    room: IntArray
    pays_away: IntArray
    pays_back: IntArray
    one_way: IntArray
    speed_left: NumberArray  # (states,): of the devices that a state leaves, as shares of the quickest
    used: IntArray  # (states,)
    flights: int


class Table(NamedTuple):
    """The least largest load of each down-set and state (-1: none), and where that came from."""

    value: IntArray  # (sets, states)
    came: IntArray
    kind: IntArray


class Scratch(NamedTuple):
    """Room of the walk."""

    stamp: IntArray
    at: IntArray
    edge: IntArray
    added: IntArray
    inside: IntArray
    made: IntArray


@cells
class Walked(ctypes.Structure):
    """Stages that were looked at; the stamp of the last walk; the next down-set; and the stage at hand."""

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
    """Extend the next down-sets, up to last - 1, by stages of a load of at most `bound`."""
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
    """Return for how long a stage keeps the busiest of its device and its ways busy."""
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
    """Put a stage behind all that is known of where it begins."""
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
    """Take a group away from the stage."""
    for entry in range(passes.start[group], passes.start[group + 1]):
        flow = passes.flow[entry]
        count(passes, scratch, walked, kind, flow, -1)
        if passes.role[entry] == 1:
            scratch.made[flow] = 0
        else:
            scratch.inside[flow] -= 1
        count(passes, scratch, walked, kind, flow, 1)


def count(passes: Passes, scratch: Scratch, walked: Walked, kind: int, flow: int, sign: int) -> None:
    """Count what a flow keeps busy, as the stage is now: sent once if read outside, received once if read inside."""
    if scratch.made[flow] == 1:
        if scratch.inside[flow] < passes.readers[flow]:
            walked.away += sign * passes.away[kind, flow]
    elif scratch.inside[flow] > 0:
        walked.back += sign * passes.back[kind, flow]
