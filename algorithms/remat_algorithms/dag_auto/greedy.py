"""The greedy: from too much memory to none, by the rerun that saves most for its time; interpreted or compiled.

A plan is a sequence of runs in the order of their keys (stage, item); stage t ends with the first run of the
order's task t, which has the greatest key in it. See `replay` for how positions and accesses are coded.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from remat_algorithms.dag_auto.model import Row, Tables
from remat_algorithms.dag_auto.replay import Work, replay

CANDIDATES = 25
"""Candidates that are replayed in each step."""

DEPTHS = (0, 1, 2, 1000)
"""How many levels of dead inputs are rerun, too, before the remaining ones are kept longer."""


class Room(NamedTuple):
    """What the search writes into.

    Attributes
    ----------
    item, stage, trial_item, trial_stage, saved_item, saved_stage : (longest,)
        The present plan, one that is tried, and the best one.
    counts : (4,)
        Lengths of the present plan, the tried one, the one that rounds of improvement start from, the saved one.
    todo, depth, mark : (items + 1,)
        Items of a rerun, how deep each lies, and in which call each item was entered.
    stamp : (1,)
        The number of that call.
    delta : (longest + 2,)
        Differences of memory that a candidate would make.
    best_value, best_depth : (CANDIDATES,)
    best_score : (CANDIDATES,) float
    random : (1,)
        State of the generator.
    stop : (1,)
        Anything but 0 asks to stop, from another thread.
    cost : (3,) float
        Time of the present plan, the saved one, and the one that rounds of improvement start from.
    """

    item: Row
    stage: Row
    trial_item: Row
    trial_stage: Row
    saved_item: Row
    saved_stage: Row
    counts: Row
    todo: Row
    depth: Row
    mark: Row
    stamp: Row
    delta: Row
    best_value: Row
    best_depth: Row
    best_score: Row
    random: Row
    stop: Row
    cost: Row


def draw(room: Room) -> float:
    """Return the next random number in [0, 1): the generator of Park and Miller, the same when compiled."""
    room.random[0] = room.random[0] * 48271 % 2147483647
    return float(room.random[0] - 1) / 2147483646.0


def find(stage: Row, item: Row, count: int, at: int, task: int) -> int:
    """Return the first position whose key is not below (at, task); O(log count)."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if stage[middle] < at or (stage[middle] == at and item[middle] < task):
            low = middle + 1
        else:
            high = middle
    return low


def _after(work: Work, value: int, place: int) -> int:
    """Return the index of the value's first access at or after a position; O(log accesses)."""
    low, high = work.head[value], work.head[value + 1]
    while low < high:
        middle = (low + high) // 2
        if work.access[middle] < 2 * place:
            low = middle + 1
        else:
            high = middle
    return low


def _alive(tables: Tables, work: Work, value: int, entry: int) -> int:
    """Say whether a value is resident just before the access at index `entry`."""
    if tables.pinned[value]:
        return 1
    if entry < work.head[value + 1]:
        return 1 - work.access[entry] % 2
    return tables.stays[value]


def collect(tables: Tables, work: Work, room: Room, value: int, at: int, deepest: int) -> int:
    """List in `room.todo` what making a value again in stage `at` takes, and in `room.delta` what that adds.

    Inputs that are dead by then are made again, too, down to `deepest` levels; the others are kept longer.
    """
    room.stamp[0] += 1
    stamp = room.stamp[0]
    count = room.counts[0]
    room.todo[0] = tables.maker[value]
    room.depth[0] = 0
    room.mark[tables.maker[value]] = stamp
    listed = 1
    index = 0
    while index < listed:
        task = room.todo[index]
        level = room.depth[index]
        place = find(room.stage, room.item, count, at, task)
        for entry in range(tables.read_start[task], tables.read_start[task + 1]):
            read = tables.read_value[entry]
            maker = tables.maker[read]
            if maker >= 0 and room.mark[maker] == stamp:
                continue
            following = _after(work, read, place)
            if _alive(tables, work, read, following):
                continue
            twice = 0
            if maker >= 0:
                there = find(room.stage, room.item, count, at, maker)
                if there < count and room.stage[there] == at and room.item[there] == maker:
                    twice = 1
            if level < deepest and maker >= 0 and twice == 0:
                room.todo[listed] = maker
                room.depth[listed] = level + 1
                room.mark[maker] = stamp
                listed += 1
            else:
                last = -1
                if following > work.head[read]:
                    last = work.access[following - 1] // 2
                room.delta[last + 1] += tables.size[read]
                room.delta[place + 1] -= tables.size[read]
        index += 1
    return listed


def _release(tables: Tables, work: Work, room: Room, listed: int, at: int) -> None:
    """Enter in `room.delta` what the collected reruns free until they run."""
    for index in range(listed):
        task = room.todo[index]
        place = find(room.stage, room.item, room.counts[0], at, task)
        for entry in range(tables.write_start[task], tables.write_start[task + 1]):
            value = tables.write_value[entry]
            following = _after(work, value, place)
            if tables.pinned[value] or not _alive(tables, work, value, following):
                continue
            last = -1
            if following > work.head[value]:
                last = work.access[following - 1] // 2
            room.delta[last + 1] -= tables.size[value]
            room.delta[place] += tables.size[value]


def _gain(work: Work, room: Room, count: int, budget: int) -> float:
    """Return by how much the collected differences lower the area above the budget; clears them."""
    change = 0
    gain = 0.0
    for place in range(count):
        change += room.delta[place]
        room.delta[place] = 0
        if change != 0:
            before = work.memory[place] - budget
            gain += float(max(0, before) - max(0, before + change))
    room.delta[count] = 0
    room.delta[count + 1] = 0
    return gain


def _time_of(tables: Tables, room: Room, listed: int) -> float:
    time = 0.0
    for index in range(listed):
        time += tables.time[room.todo[index]]
    return time


def propose(tables: Tables, work: Work, room: Room, budget: int, alpha: float, noise: float) -> int:
    """Collect the candidates that promise most for their time, at the position of highest memory."""
    count = room.counts[0]
    peak = int(work.figures[2])
    found = 0
    for value in range(len(tables.size)):
        if tables.maker[value] < 0:
            continue
        following = _after(work, value, peak + 1)
        if following > work.head[value] and work.access[following - 1] // 2 == peak:
            continue
        if not _alive(tables, work, value, following) or following == work.head[value]:
            continue
        at = len(tables.first)
        if following < work.head[value + 1]:
            at = room.stage[work.access[following] // 2]
        maker = tables.maker[value]
        if at == room.stage[peak] and maker <= room.item[peak]:
            continue
        there = find(room.stage, room.item, count, at, maker)
        if there < count and room.stage[there] == at and room.item[there] == maker:
            continue
        previous = -1
        for depth in DEPTHS:
            listed = collect(tables, work, room, value, at, depth)
            _release(tables, work, room, listed, at)
            gain = _gain(work, room, count, budget)
            if listed == previous:
                break
            previous = listed
            if gain <= 0.0:
                continue
            score = (_time_of(tables, room, listed) + 1.0) / math.pow(gain, alpha)
            if noise > 0.0:
                score *= math.exp(noise * (2.0 * draw(room) - 1.0))
            found = _keep(room, found, value, depth, score)
    return found


def _keep(room: Room, found: int, value: int, depth: int, score: float) -> int:
    """Insert a candidate into the list of the best, which is sorted by score."""
    if found == CANDIDATES and score >= room.best_score[found - 1]:
        return found
    index = found if found < CANDIDATES else found - 1
    while index > 0 and room.best_score[index - 1] > score:
        room.best_score[index] = room.best_score[index - 1]
        room.best_value[index] = room.best_value[index - 1]
        room.best_depth[index] = room.best_depth[index - 1]
        index -= 1
    room.best_score[index] = score
    room.best_value[index] = value
    room.best_depth[index] = depth
    return min(CANDIDATES, found + 1)


def stage_of_candidate(tables: Tables, work: Work, room: Room, value: int) -> int:
    """Return the stage of a value's first use after the position of highest memory."""
    following = _after(work, value, int(work.figures[2]) + 1)
    if following < work.head[value + 1]:
        return room.stage[work.access[following] // 2]  # type: ignore[no-any-return]
    return len(tables.first)


def insert(room: Room, listed: int, at: int) -> int:
    """Merge ``room.todo[:listed]`` into stage `at` of the present plan, as the plan to try; -1 if it is too long."""
    count = room.counts[0]
    if count + listed > len(room.item):
        return -1
    # Few items: sorting by insertion is enough.
    for index in range(1, listed):
        task = room.todo[index]
        other = index - 1
        while other >= 0 and room.todo[other] > task:
            room.todo[other + 1] = room.todo[other]
            other -= 1
        room.todo[other + 1] = task
    taken = 0
    length = 0
    for place in range(count):
        while taken < listed and (
            room.stage[place] > at or (room.stage[place] == at and room.item[place] > room.todo[taken])
        ):
            room.trial_item[length] = room.todo[taken]
            room.trial_stage[length] = at
            length += 1
            taken += 1
        room.trial_item[length] = room.item[place]
        room.trial_stage[length] = room.stage[place]
        length += 1
    while taken < listed:
        room.trial_item[length] = room.todo[taken]
        room.trial_stage[length] = at
        length += 1
        taken += 1
    room.counts[1] = length
    return length


def take_trial(room: Room) -> None:
    """Make the tried plan the present one."""
    for place in range(room.counts[1]):
        room.item[place] = room.trial_item[place]
        room.stage[place] = room.trial_stage[place]
    room.counts[0] = room.counts[1]


def greedy(tables: Tables, work: Work, spare: Work, room: Room, budget: int, alpha: float, noise: float) -> float:
    """Add reruns to the present plan until it fits; return the area that is left (0: it fits).

    In each step, at the position of highest memory: every value that is resident across it could be freed after its last
    use before, and made again for its next use. The `CANDIDATES` ones with the least
    (time + 1) / gain^alpha by estimate are replayed, and the best by true gain is taken. `room.stop` ends the
    loop early.
    """
    area = replay(tables, work, room.item, room.counts[0], budget)
    while area > 0.0 and room.stop[0] == 0:
        now = work.figures[1]
        found = propose(tables, work, room, budget, alpha, noise)
        best = -1
        least = math.inf
        for index in range(found):
            if room.stop[0] != 0:
                break
            value = room.best_value[index]
            at = stage_of_candidate(tables, work, room, value)
            listed = collect(tables, work, room, value, at, room.best_depth[index])
            _clear(room)
            length = insert(room, listed, at)
            if length < 0:
                continue
            gain = area - replay(tables, spare, room.trial_item, length, budget)
            if gain <= 0.0:
                continue
            score = (max(0.0, spare.figures[1] - now) + 1.0) / math.pow(gain, alpha)
            if noise > 0.0:
                score *= math.exp(noise * (2.0 * draw(room) - 1.0))
            if score < least:
                least = score
                best = index
        if best < 0:
            return area
        value = room.best_value[best]
        at = stage_of_candidate(tables, work, room, value)
        listed = collect(tables, work, room, value, at, room.best_depth[best])
        _clear(room)
        insert(room, listed, at)
        take_trial(room)
        area = replay(tables, work, room.item, room.counts[0], budget)
    room.cost[0] = work.figures[1]
    return area


def _clear(room: Room) -> None:
    for place in range(room.counts[0] + 2):
        room.delta[place] = 0
