"""The greedy: from too much memory to none, by the rerun that saves most for its time; interpreted or compiled.

A plan is a sequence of runs in the order of their keys (stage, item); stage t ends with the first run of the
order's task t, which has the greatest key in it. See `replay` for how positions and accesses are coded.
"""

from __future__ import annotations

import math

from remat_algorithms.dag_auto.packed import (
    BYTES,
    CANDIDATES,
    DEAREST,
    DELTA,
    DEPTH,
    FACTOR,
    FREED,
    HIGH,
    HIGHEST,
    IN_PLACE,
    LISTED,
    LOW,
    MAKER,
    MARK,
    MEMORY,
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
    STOP,
    TIME,
    TODO,
    TOTAL,
    TRIAL,
    VALUES,
    WRITE,
    WRITE_START,
    Packed,
    Room,
    Work,
)
from remat_algorithms.dag_auto.plans import draw, find, insert, take_trial
from remat_algorithms.dag_auto.replay import replay

DEPTHS = (0, 1, 2, 1000)
"""How many levels of dead inputs are rerun, too, before the remaining ones are kept longer."""

PEAKS = 4
"""Positions that are looked at, from the highest memory down, before the greedy gives up."""

WHIMS = 0.7
"""Share of the runs with noise that have whims: what they draw at first holds for the run."""

LONGER, AGAIN, NEVER = 20, 35, 10
"""Of 100 inputs, whims keep the first so many longer, and make the others up to the second again; and of 100 values
they never free so many."""


def _after(work: Work, value: int, place: int) -> int:
    """Return the index of the value's first access at or after a position; O(log accesses)."""
    low, high = work.head[value], work.head[value + 1]
    while low < high:
        middle = (low + high) // 2
        if work.access[middle] < 2 * place:
            low = middle + 1
        else:
            high = middle
    return int(low)


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
    """List in `room.todo` what making a value again in stage `at` takes, and in `room.delta` what that adds.

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
            following = _after(work, read, place)
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
                _add(room, last + 1, place + 1, tables.values[SIZE, read])
        index += 1
    return listed


def _overlaid(tables: Packed, work: Work, room: Room, entry: int, size: int) -> int:
    """Return the bytes that a value's reader at an access would write where the value was, if it were freed there."""
    place = work.access[entry] // 2
    task = room.plans[2 * NOW, place]
    if work.access[entry] % 2 == 1 or not tables.items[IN_PLACE, task]:
        return 0
    return int(max(0, min(size, tables.items[BYTES, task] - work.runs[FREED, place])))


def _release(tables: Packed, work: Work, room: Room, listed: int, at: int) -> None:
    """Enter in `room.delta` what the collected reruns free until they run."""
    for index in range(listed):
        task = room.items[TODO, index]
        place = find(room, at, task)
        for entry in range(tables.items[WRITE_START, task], tables.items[WRITE_START, task + 1]):
            value = tables.entries[WRITE, entry]
            following = _after(work, value, place)
            if tables.values[PINNED, value] or not _alive(tables, work, value, following):
                continue
            size = tables.values[SIZE, value]
            last = -1
            if following > work.head[value]:
                last = work.access[following - 1] // 2
                overlaid = _overlaid(tables, work, room, following - 1, size)
                if overlaid > 0:
                    _add(room, last, last + 1, -overlaid)
            _add(room, last + 1, place, -size)


def _add(room: Room, low: int, high: int, size: int) -> None:
    """Enter that memory from position `low` to before `high` changes by `size`."""
    room.plans[DELTA, low] += size
    room.plans[DELTA, high] -= size
    room.state[LOW] = min(room.state[LOW], low)
    room.state[HIGH] = max(room.state[HIGH], high)


def _gain(work: Work, room: Room, count: int, budget: int) -> float:
    """Return by how much the collected differences lower the area above the budget; clears them."""
    change = 0
    gain = 0.0
    for place in range(room.state[LOW], min(count, room.state[HIGH])):
        change += room.plans[DELTA, place]
        room.plans[DELTA, place] = 0
        if change != 0:
            before = work.runs[MEMORY, place] - budget
            gain += float(max(0, before) - max(0, before + change))
    _clear(room)
    return gain


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
    following = _after(work, value, peak + 1)
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
    count = room.state[NOW]
    found = 0
    for value in range(tables.fixed[VALUES]):
        room.promise[MOST, value] = 0.0
        at = _can_free(tables, work, room, value, peak)
        if at < 0:
            continue
        room.items[TODO, 0] = tables.values[MAKER, value]
        _release(tables, work, room, 1, at)
        room.promise[MOST, value] = math.pow(_gain(work, room, count, budget), alpha)
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
            if found == CANDIDATES:
                dearest = room.ranking[0, found - 1] * room.promise[MOST, value] / room.promise[FACTOR, value]
            at = int(room.promise[STAGE, value])
            listed = collect(tables, work, room, value, at, depth, dearest)
            if listed == 0 or float(listed) == room.promise[LISTED, value]:
                # Too dear, or with nothing left to make again: so it will be for greater depths.
                room.promise[MOST, value] = 0.0
                _clear(room)
                continue
            room.promise[LISTED, value] = float(listed)
            _release(tables, work, room, listed, at)
            gain = _gain(work, room, count, budget)
            if gain > 0.0:
                score = room.promise[FACTOR, value] * (_time_of(tables, room, listed) + 1.0) / math.pow(gain, alpha)
                found = _keep(room, found, value, depth, score)
    return found


def _keep(room: Room, found: int, value: int, depth: int, score: float) -> int:
    """Insert a candidate into the list of the best, which is sorted by score."""
    if found == CANDIDATES and score >= room.ranking[0, found - 1]:
        return found
    index = found if found < CANDIDATES else found - 1
    while index > 0 and room.ranking[0, index - 1] > score:
        room.ranking[0, index] = room.ranking[0, index - 1]
        room.ranking[1, index] = room.ranking[1, index - 1]
        room.ranking[2, index] = room.ranking[2, index - 1]
        index -= 1
    room.ranking[0, index] = score
    room.ranking[1, index] = value
    room.ranking[2, index] = depth
    return min(CANDIDATES, found + 1)


def _next_peak(work: Work, room: Room, peak: int, budget: int) -> int:
    """Return the position of the next lower memory above the budget, or -1; equal ones from the front."""
    level = work.runs[MEMORY, peak]
    best = -1
    for place in range(room.state[NOW]):
        other = work.runs[MEMORY, place]
        lower = other < level or (other == level and place > peak)
        if lower and other > budget and (best < 0 or other > work.runs[MEMORY, best]):
            best = place
    return best


def _try(tables: Packed, work: Work, room: Room, candidate: int) -> bool:
    """Make the plan to try from the present one and a candidate; say whether there is room for it."""
    value = int(room.ranking[1, candidate])
    at = int(room.promise[STAGE, value])
    listed = collect(tables, work, room, value, at, int(room.ranking[2, candidate]), math.inf)
    _clear(room)
    return insert(room, listed, at) >= 0


def _best_of(
    tables: Packed, work: Work, spare: Work, room: Room, budget: int, found: int, area: float, alpha: float
) -> int:
    """Replay the candidates; return the one with the best true gain for its time, or -1."""
    best = -1
    least = math.inf
    for index in range(found):
        # Estimates seldom promise too little: what promises less than the best has brought is left.
        if room.state[STOP] != 0 or room.ranking[0, index] >= least:
            break
        if not _try(tables, work, room, index):
            continue
        gain = area - replay(tables, spare, room, TRIAL, budget)
        if gain <= 0.0:
            continue
        score = (max(0.0, spare.figures[TOTAL] - work.figures[TOTAL]) + 1.0) / math.pow(gain, alpha)
        score *= room.promise[FACTOR, int(room.ranking[1, index])]
        if score < least:
            least = score
            best = index
    return best


def greedy(tables: Packed, work: Work, spare: Work, room: Room, budget: int, alpha: float, noise: float) -> float:
    """Add reruns to the present plan until it fits; return the area that is left (0: it fits).

    In each step, at the position of highest memory: every value that is resident across it could be freed
    after its last use before, and made again for its next use; likewise what a run in place reads there. The
    `CANDIDATES` ones with the least (time + 1) / gain^alpha by estimate are replayed, and the best by true gain is
    taken. Where none gains, the next lower positions are looked at. `room.stop` ends the loop early.
    """
    area = replay(tables, work, room, NOW, budget)
    room.state[SALT] = 0
    if noise > 0.0 and draw(room) < WHIMS:
        room.state[SALT] = 1 + int(draw(room) * 1000000)
    while area > 0.0 and room.state[STOP] == 0 and work.figures[TOTAL] <= room.cost[DEAREST]:
        peak = int(work.figures[HIGHEST])
        best = -1
        for _ in range(PEAKS):
            found = propose(tables, work, room, budget, peak, alpha, noise)
            best = _best_of(tables, work, spare, room, budget, found, area, alpha)
            if best >= 0:
                break
            peak = _next_peak(work, room, peak, budget)
            if peak < 0:
                break
        if best < 0:
            break
        _try(tables, work, room, best)
        take_trial(room)
        area = replay(tables, work, room, NOW, budget)
    room.cost[NOW] = work.figures[TOTAL]
    return area


def _clear(room: Room) -> None:
    for place in range(room.state[LOW], room.state[HIGH] + 1):
        room.plans[DELTA, place] = 0
    room.state[LOW] = room.plans.shape[1]
    room.state[HIGH] = 0
