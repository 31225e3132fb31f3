"""Candidates of the greedy: values that could be free at the highest memory, and what making them again takes.

Interpreted or compiled, like `replay`.
"""

from __future__ import annotations

import math

from remat_algorithms.dag.plans.differences import add, clear, gain_of, summarise
from remat_algorithms.dag.plans.packed import (
    BYTES,
    CANDIDATES,
    DEPTH,
    FACTOR,
    FREED,
    IN_PLACE,
    LISTED,
    MAKER,
    MARK,
    MOST,
    NOW,
    PINNED,
    READ,
    READ_START,
    SALT,
    SIZE,
    STAGE,
    STAGES,
    STAMP,
    STAYS,
    TIME,
    TODO,
    VALUES,
    WRITE,
    WRITE_START,
    Packed,
    Room,
    Work,
)
from remat_algorithms.dag.plans.plans import draw, find
from remat_algorithms.dag.plans.replay import first_access

DEPTHS = (0, 1, 2, 1000)
"""How many levels of dead inputs are rerun, too, before the remaining ones are kept longer."""

LONGER, AGAIN, NEVER = 20, 35, 10
"""Of 100 inputs, whims keep the first so many longer, and make the others up to the second again; and of 100 values
they never free so many."""


def _alive(tables: Packed, work: Work, value: int, entry: int) -> int:
    """Say whether a value is resident just before the access at index `entry`."""
    if tables.values[PINNED, value]:
        return 1
    if entry < work.head[value + 1]:
        return int(1 - work.access[entry] % 2)
    return int(tables.values[STAYS, value])


def _whim(room: Room, number: int) -> int:
    """Draw from 0 to 99, the same for a number during a run of the greedy."""
    return (number + 1) * room.state[SALT] % 2147483647 % 100  # type: ignore[no-any-return]


def collect(tables: Packed, work: Work, room: Room, value: int, at: int, deepest: int, dearest: float) -> int:
    """List in row TODO of `room.items` what making a value again in stage `at` takes; add what that adds to row DELTA.

    Inputs that are dead by then are made again, too, down to `deepest` levels; the others are kept longer.
    """
    room.state[STAMP] += 1
    stamp = room.state[STAMP]
    count = room.state[NOW]
    room.items[TODO, 0] = tables.values[MAKER, value]
    room.items[DEPTH, 0] = 0
    room.items[MARK, tables.values[MAKER, value]] = stamp
    listed = 1
    index = 0
    time = 1.0
    while index < listed:
        task = room.items[TODO, index]
        time += tables.times[TIME, task]
        if time > dearest:
            return 0
        level = room.items[DEPTH, index]
        place = find(room, at, task)
        for entry in range(tables.items[READ_START, task], tables.items[READ_START, task + 1]):
            read = tables.entries[READ, entry]
            maker = tables.values[MAKER, read]
            if maker >= 0 and room.items[MARK, maker] == stamp:
                continue
            following = first_access(work, read, 2 * place)
            if _alive(tables, work, read, following):
                continue
            twice = 0
            if maker >= 0:
                there = find(room, at, maker)
                if there < count and room.plans[2 * NOW + 1, there] == at and room.plans[2 * NOW, there] == maker:
                    twice = 1
            again = level < deepest
            if room.state[SALT] > 0:
                whim = _whim(room, read)
                again = whim >= LONGER and (again or whim < AGAIN)
            if again and maker >= 0 and twice == 0:
                room.items[TODO, listed] = maker
                room.items[DEPTH, listed] = level + 1
                room.items[MARK, maker] = stamp
                listed += 1
            else:
                last = -1
                if following > work.head[read]:
                    last = work.access[following - 1] // 2
                add(room, last + 1, place + 1, tables.values[SIZE, read])
        index += 1
    return listed


def _overlaid(tables: Packed, work: Work, room: Room, entry: int, size: int) -> int:
    """Return the bytes that a value's reader at an access would write where the value was, if it were freed there."""
    place = work.access[entry] // 2
    task = room.plans[2 * NOW, place]
    if work.access[entry] % 2 == 1 or not tables.items[IN_PLACE, task]:
        return 0
    return int(max(0, min(size, tables.items[BYTES, task] - work.runs[FREED, place])))


def release(tables: Packed, work: Work, room: Room, listed: int, at: int) -> None:
    """Take off row DELTA of `room.plans` what the collected reruns free until they run."""
    for index in range(listed):
        task = room.items[TODO, index]
        place = find(room, at, task)
        for entry in range(tables.items[WRITE_START, task], tables.items[WRITE_START, task + 1]):
            value = tables.entries[WRITE, entry]
            following = first_access(work, value, 2 * place)
            if tables.values[PINNED, value] or not _alive(tables, work, value, following):
                continue
            size = tables.values[SIZE, value]
            last = -1
            if following > work.head[value]:
                last = work.access[following - 1] // 2
                overlaid = _overlaid(tables, work, room, following - 1, size)
                if overlaid > 0:
                    add(room, last, last + 1, -overlaid)
            add(room, last + 1, place, -size)


def _time_of(tables: Packed, room: Room, listed: int) -> float:
    time = 0.0
    for index in range(listed):
        time += tables.times[TIME, room.items[TODO, index]]
    return time


def _can_free(tables: Packed, work: Work, room: Room, value: int, peak: int) -> int:
    """Return the stage in which a value would be made again if it were free at a position; -1 if it cannot be."""
    maker = tables.values[MAKER, value]
    if maker < 0:
        return -1
    following = first_access(work, value, 2 * peak + 2)
    if following == work.head[value]:
        return -1
    size = tables.values[SIZE, value]
    if work.access[following - 1] // 2 == peak and not _overlaid(tables, work, room, following - 1, size):
        return -1
    if not _alive(tables, work, value, following):
        return -1
    at = tables.fixed[STAGES]
    if following < work.head[value + 1]:
        at = room.plans[2 * NOW + 1, work.access[following] // 2]
    if room.state[SALT] > 0 and _whim(room, value + at * tables.fixed[VALUES]) < NEVER:
        return -1
    if at == room.plans[2 * NOW + 1, peak] and maker <= room.plans[2 * NOW, peak]:
        return -1
    there = find(room, at, maker)
    if there < room.state[NOW] and room.plans[2 * NOW + 1, there] == at and room.plans[2 * NOW, there] == maker:
        return -1
    return int(at)


def propose(tables: Packed, work: Work, room: Room, budget: int, peak: int, alpha: float, noise: float) -> int:
    """Collect the candidates that promise most for their time, among what is resident at a position."""
    summarise(work, room, room.state[NOW], budget)
    found = 0
    for value in range(tables.fixed[VALUES]):
        room.promise[MOST, value] = 0.0
        at = _can_free(tables, work, room, value, peak)
        if at < 0:
            continue
        room.items[TODO, 0] = tables.values[MAKER, value]
        release(tables, work, room, 1, at)
        room.promise[MOST, value] = math.pow(gain_of(work, room, budget), alpha)
        room.promise[STAGE, value] = float(at)
        room.promise[LISTED, value] = 0.0
        room.promise[FACTOR, value] = 1.0
        if noise > 0.0:
            room.promise[FACTOR, value] = math.exp(noise * (2.0 * draw(room) - 1.0))
    # Shallow ones first: what they cost bounds the search for deeper ones.
    for depth in DEPTHS:
        for value in range(tables.fixed[VALUES]):
            if room.promise[MOST, value] <= 0.0:
                continue
            dearest = math.inf
            if found >= CANDIDATES:
                dearest = room.ranking[0, CANDIDATES - 1] * room.promise[MOST, value] / room.promise[FACTOR, value]
            at = int(room.promise[STAGE, value])
            listed = collect(tables, work, room, value, at, depth, dearest)
            if listed == 0 or float(listed) == room.promise[LISTED, value]:
                # Too dear, or with nothing left to make again: so it will be for greater depths.
                room.promise[MOST, value] = 0.0
                clear(room)
                continue
            room.promise[LISTED, value] = float(listed)
            release(tables, work, room, listed, at)
            gain = gain_of(work, room, budget)
            if gain > 0.0:
                score = room.promise[FACTOR, value] * (_time_of(tables, room, listed) + 1.0) / math.pow(gain, alpha)
                found = _keep(room, found, value, depth, score)
    return found


def _keep(room: Room, found: int, value: int, depth: int, score: float) -> int:
    """Insert a candidate into the list of the best, which is sorted by score."""
    if found == room.ranking.shape[1] and score >= room.ranking[0, found - 1]:
        return found
    index = found if found < room.ranking.shape[1] else found - 1
    while index > 0 and room.ranking[0, index - 1] > score:
        room.ranking[0, index] = room.ranking[0, index - 1]
        room.ranking[1, index] = room.ranking[1, index - 1]
        room.ranking[2, index] = room.ranking[2, index - 1]
        index -= 1
    room.ranking[0, index] = score
    room.ranking[1, index] = value
    room.ranking[2, index] = depth
    return int(min(room.ranking.shape[1], found + 1))
