"""Candidates of the greedy: values that could be free at the highest memory, and the cost of recomputing them.

Interpreted or compiled, like `replay`.
"""

from __future__ import annotations

import math

from remat_algorithms.dag.plans.differences import add, clear, gain_of, summarise
from remat_algorithms.dag.plans.plans import draw, find
from remat_algorithms.dag.plans.records import CANDIDATES, NOW, Packed, Room, Work
from remat_algorithms.dag.plans.replay import first_access

DEPTHS = (0, 1, 2, 1000)
"""Numbers of levels of dead inputs that are recomputed; the remaining inputs are kept longer."""

LONGER, AGAIN, NEVER = 20, 35, 10
"""Noise thresholds, of 100: below the first an input is kept longer, and below the second it is recomputed; a value
below the third is never freed.
"""


def _alive(tables: Packed, work: Work, value: int, entry: int) -> int:
    """Return whether a value is resident just before the access at index `entry`."""
    if tables.pinned[value]:
        return 1
    if entry < work.head[value + 1]:
        return int(1 - work.access[entry] % 2)
    return int(tables.stays[value])


def _whim(room: Room, number: int) -> int:
    """Return a pseudo-random number from 0 to 99, fixed for each argument during a run of the greedy."""
    return (number + 1) * room.state.salt % 2147483647 % 100


def collect(tables: Packed, work: Work, room: Room, value: int, at: int, deepest: int, dearest: float) -> int:
    """List in `room.todo` the runs that recompute a value in stage `at`; add their inputs' memory to `room.delta`.

    Inputs that are dead by then are recomputed, too, down to `deepest` levels; the others are kept longer. Returns the
    number of runs, or 0 if they take more than `dearest`.
    """
    room.state.stamp += 1
    stamp = room.state.stamp
    count = room.length[NOW]
    room.todo[0] = tables.maker[value]
    room.depth[0] = 0
    room.mark[tables.maker[value]] = stamp
    listed = 1
    index = 0
    time = 1.0
    while index < listed:
        task = room.todo[index]
        time += tables.time[task]
        if time > dearest:
            return 0
        level = room.depth[index]
        place = find(room, at, task)
        for entry in range(tables.read_start[task], tables.read_start[task + 1]):
            read = tables.read[entry]
            maker = tables.maker[read]
            if maker >= 0 and room.mark[maker] == stamp:
                continue
            following = first_access(work, read, 2 * place)
            if _alive(tables, work, read, following):
                continue
            twice = 0
            if maker >= 0:
                there = find(room, at, maker)
                if there < count and room.stage[NOW, there] == at and room.item[NOW, there] == maker:
                    twice = 1
            again = level < deepest
            if room.state.salt > 0:
                whim = _whim(room, read)
                again = whim >= LONGER and (again or whim < AGAIN)
            if again and maker >= 0 and twice == 0:
                room.todo[listed] = maker
                room.depth[listed] = level + 1
                room.mark[maker] = stamp
                listed += 1
            else:
                last = -1
                if following > work.head[read]:
                    last = work.access[following - 1] // 2
                add(room, last + 1, place + 1, tables.size[read])
        index += 1
    return listed


def _overlaid(tables: Packed, work: Work, room: Room, entry: int, size: int) -> int:
    """Return the bytes that a value's reader at an access would overwrite if it freed the value."""
    place = work.access[entry] // 2
    task = room.item[NOW, place]
    if work.access[entry] % 2 == 1 or not tables.in_place[task]:
        return 0
    return int(max(0, min(size, tables.written[task] - work.freed[place])))


def release(tables: Packed, work: Work, room: Room, listed: int, at: int) -> None:
    """Subtract from `room.delta` the memory that the collected reruns free until they run."""
    for index in range(listed):
        task = room.todo[index]
        place = find(room, at, task)
        for entry in range(tables.write_start[task], tables.write_start[task + 1]):
            value = tables.write[entry]
            following = first_access(work, value, 2 * place)
            if tables.pinned[value] or not _alive(tables, work, value, following):
                continue
            size = tables.size[value]
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
        time += tables.time[room.todo[index]]
    return time


def _can_free(tables: Packed, work: Work, room: Room, value: int, peak: int) -> int:
    """Return the stage of a value's recomputation if it were free at a position; -1 if it cannot be freed."""
    maker = tables.maker[value]
    if maker < 0:
        return -1
    following = first_access(work, value, 2 * peak + 2)
    if following == work.head[value]:
        return -1
    size = tables.size[value]
    if work.access[following - 1] // 2 == peak and not _overlaid(tables, work, room, following - 1, size):
        return -1
    if not _alive(tables, work, value, following):
        return -1
    at = tables.stages
    if following < work.head[value + 1]:
        at = room.stage[NOW, work.access[following] // 2]
    if room.state.salt > 0 and _whim(room, value + at * tables.value_count) < NEVER:
        return -1
    if at == room.stage[NOW, peak] and maker <= room.item[NOW, peak]:
        return -1
    there = find(room, at, maker)
    if there < room.length[NOW] and room.stage[NOW, there] == at and room.item[NOW, there] == maker:
        return -1
    return int(at)


def propose(tables: Packed, work: Work, room: Room, budget: int, peak: int, alpha: float, noise: float) -> int:
    """Collect the candidates with the best estimates for their time, among the values resident at a position."""
    summarise(work, room, room.length[NOW], budget)
    found = 0
    for value in range(tables.value_count):
        room.most[value] = 0.0
        at = _can_free(tables, work, room, value, peak)
        if at < 0:
            continue
        room.todo[0] = tables.maker[value]
        release(tables, work, room, 1, at)
        room.most[value] = math.pow(gain_of(work, room, budget), alpha)
        room.at[value] = at
        room.listed[value] = 0
        room.factor[value] = 1.0
        if noise > 0.0:
            room.factor[value] = math.exp(noise * (2.0 * draw(room) - 1.0))
    # Shallow ones first: their cost bounds the search for deeper ones.
    for depth in DEPTHS:
        for value in range(tables.value_count):
            if room.most[value] <= 0.0:
                continue
            dearest = math.inf
            if found >= CANDIDATES:
                dearest = room.score[CANDIDATES - 1] * room.most[value] / room.factor[value]
            at = room.at[value]
            listed = collect(tables, work, room, value, at, depth, dearest)
            if listed == 0 or listed == room.listed[value]:
                # Too expensive, or no further input to recompute: the same holds for greater depths.
                room.most[value] = 0.0
                clear(room)
                continue
            room.listed[value] = listed
            release(tables, work, room, listed, at)
            gain = gain_of(work, room, budget)
            if gain > 0.0:
                score = room.factor[value] * (_time_of(tables, room, listed) + 1.0) / math.pow(gain, alpha)
                found = _keep(room, found, value, depth, score)
    return found


def _keep(room: Room, found: int, value: int, depth: int, score: float) -> int:
    """Insert a candidate into the list of the best, which is sorted by score."""
    if found == len(room.score) and score >= room.score[found - 1]:
        return found
    index = found if found < len(room.score) else found - 1
    while index > 0 and room.score[index - 1] > score:
        room.score[index] = room.score[index - 1]
        room.candidate[index] = room.candidate[index - 1]
        room.deepest[index] = room.deepest[index - 1]
        index -= 1
    room.score[index] = score
    room.candidate[index] = value
    room.deepest[index] = depth
    return int(min(len(room.score), found + 1))
