"""Kernel of the local search: units move between processors until no resource is busy for longer than a target.

The energy of a placement is a sum of squares: of the relative excess of busy times over the target, and of the relative
lack of memory. A move that reduces the energy is accepted. Any other is accepted with a probability that falls with the
temperature. The code can be interpreted or compiled.
"""

from __future__ import annotations

import ctypes
import math
from typing import NamedTuple

from remat.plugin import BoolArray, IntArray, NumberArray
from remat_algorithms.kit.compile.records import cells

MODULUS = 2147483647
MULTIPLIER = 48271


class Ground(NamedTuple):
    """A model as arrays.

    Flows are sent from their producer's memory over `link`[home, target]. If `hub` is not -1, they are sent to the
    star's hub first, and once from there to each other memory.
    """

    time: NumberArray  # (processors, units)
    able: BoolArray
    memory_of: IntArray  # (processors,)
    size: NumberArray  # (units,) share of all bytes
    room: NumberArray  # (memories,)
    maker: IntArray  # (flows,)
    start: IntArray  # (units + 1,) flows of each unit
    flow: IntArray
    reader_start: IntArray  # (flows + 1,)
    reader: IntArray
    link: IntArray  # (memories, memories)
    copy_time: NumberArray  # (links, flows)
    held_start: IntArray  # (links + 1,)
    held: IntArray
    hub: int


class State(NamedTuple):
    """Current placement and its busy times."""

    home: IntArray  # (units,)
    readers: IntArray  # (flows, memories): number of readers there
    busy: NumberArray  # (resources,)
    used: NumberArray  # (memories,)
    best: IntArray
    scratch: NumberArray


@cells
class Walked(ctypes.Structure):
    """Mutable numbers of the local search."""

    draws: int
    moves: int
    energy: float
    target: float
    temperature: float
    cooling: float


def walk(ground: Ground, state: State, walked: Walked, moves: int) -> bool:
    """Try `moves` moves; return whether the target is met (the placement is then in `best`)."""
    units = ground.time.shape[1]
    processors = ground.time.shape[0]
    walked.energy = energy(ground, state, walked)
    for _ in range(moves):
        walked.moves += 1
        walked.temperature *= walked.cooling
        unit = draw(walked, units)
        before = state.home[unit]
        after = draw(walked, processors)
        other = -1
        kind = draw(walked, 4)
        if kind == 0:
            other = draw(walked, units)
            after = state.home[other]
        elif kind < 3:
            after = beside(ground, state, walked, unit)
        if after == before or not ground.able[after, unit]:
            continue
        if other >= 0 and not ground.able[before, other]:
            continue
        known = walked.energy
        move(ground, state, unit, after)
        if other >= 0:
            move(ground, state, other, before)
        new = energy(ground, state, walked)
        if new <= known or share(walked) < math.exp((known - new) / max(walked.temperature, 1e-12)):
            walked.energy = new
            if new <= 0.0:
                for k in range(units):
                    state.best[k] = state.home[k]
                return True
        else:
            if other >= 0:
                move(ground, state, other, after)
            move(ground, state, unit, before)
    return False


def draw(walked: Walked, count: int) -> int:
    """Return a random number below `count` (Park and Miller)."""
    walked.draws = walked.draws * MULTIPLIER % MODULUS
    return walked.draws % count


def share(walked: Walked) -> float:
    """Return a random number between 0 and 1."""
    walked.draws = walked.draws * MULTIPLIER % MODULUS
    return walked.draws / 2147483647.0


def beside(ground: Ground, state: State, walked: Walked, unit: int) -> int:
    """Return the processor of a random unit connected to this one by a flow."""
    count = ground.start[unit + 1] - ground.start[unit]
    if count == 0:
        return int(state.home[unit])
    flow = ground.flow[ground.start[unit] + draw(walked, int(count))]
    others = ground.reader_start[flow + 1] - ground.reader_start[flow]
    chosen = draw(walked, int(others) + 1)
    if chosen == others:
        return int(state.home[ground.maker[flow]])
    return int(state.home[ground.reader[ground.reader_start[flow] + chosen]])


def energy(ground: Ground, state: State, walked: Walked) -> float:
    """Return the energy of the excess over the target and over the memories."""
    total = 0.0
    for resource in range(state.busy.shape[0]):
        over = state.busy[resource] / walked.target - 1.0
        if over > 1e-12:
            total += over * over
    for memory in range(state.used.shape[0]):
        lack = state.used[memory] - ground.room[memory]
        if lack > 1e-12:
            total += 10.0 * lack * lack + 0.01 * lack
    return total


def move(ground: Ground, state: State, unit: int, after: int) -> None:
    """Move a unit to another processor."""
    before = state.home[unit]
    for k in range(ground.start[unit], ground.start[unit + 1]):
        pass_on(ground, state, ground.flow[k], -1.0)
    state.busy[before] -= ground.time[before, unit]
    state.busy[after] += ground.time[after, unit]
    here = ground.memory_of[before]
    there = ground.memory_of[after]
    state.used[here] -= ground.size[unit]
    state.used[there] += ground.size[unit]
    state.home[unit] = after
    for k in range(ground.start[unit], ground.start[unit + 1]):
        flow = ground.flow[k]
        if ground.maker[flow] != unit:
            state.readers[flow, here] -= 1
            state.readers[flow, there] += 1
        pass_on(ground, state, flow, 1.0)


def pass_on(ground: Ground, state: State, flow: int, sign: float) -> None:
    """Add or remove the busy times of a flow."""
    home = ground.memory_of[state.home[ground.maker[flow]]]
    some = False
    for memory in range(state.readers.shape[1]):
        if memory != home and state.readers[flow, memory] > 0:
            some = True
            if ground.hub < 0:
                hold(ground, state, ground.link[home, memory], flow, sign)
            elif memory != ground.hub:
                hold(ground, state, ground.link[ground.hub, memory], flow, sign)
    if some and ground.hub >= 0 and home != ground.hub:
        hold(ground, state, ground.link[home, ground.hub], flow, sign)


def hold(ground: Ground, state: State, link: int, flow: int, sign: float) -> None:
    """Add or remove the busy times of a copy."""
    for k in range(ground.held_start[link], ground.held_start[link + 1]):
        state.busy[ground.held[k]] += sign * ground.copy_time[link, flow]
