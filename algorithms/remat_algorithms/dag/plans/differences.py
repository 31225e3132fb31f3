"""What a candidate of the greedy changes: differences of memory by position, and what they gain in all.

Interpreted or compiled, like `replay`. In large graphs differences are few and the ranges between them long: positions
are then taken block by block, where the least and the most memory of a block say what comes of it.
"""

from __future__ import annotations

from remat_algorithms.dag.plans.packed import DELTA, HIGH, LEAST, LOW, MEMORY, NOW, PEAK, TOUCHED, TOUCHES, Room, Work
from remat_algorithms.dag.plans.plans import sort

BLOCK = 32
"""Positions in a block."""

FEW, SHORT = 64, 256
"""More differences than that are not sorted, and fewer positions not taken by blocks: each position is looked at."""


def summarise(work: Work, room: Room, count: int, budget: int) -> None:
    """Note the least and the most excess of each block of the first `count` positions; nothing has been added yet."""
    for block in range(count // BLOCK):
        least = work.runs[MEMORY, block * BLOCK]
        most = least
        for place in range(block * BLOCK + 1, block * BLOCK + BLOCK):
            level = work.runs[MEMORY, place]
            least = min(least, level)
            most = max(most, level)
        room.plans[LEAST, block] = least - budget
        room.plans[PEAK, block] = most - budget


def add(room: Room, low: int, high: int, size: int) -> None:
    """Enter that memory from position `low` to before `high` changes by `size`."""
    room.plans[DELTA, low] += size
    room.plans[DELTA, high] -= size
    room.state[LOW] = min(room.state[LOW], low)
    room.state[HIGH] = max(room.state[HIGH], high)
    count = room.state[TOUCHES]
    if count < FEW:
        room.plans[TOUCHED, count] = low
        room.plans[TOUCHED, count + 1] = high
    room.state[TOUCHES] = count + 2


def gain_of(work: Work, room: Room, budget: int) -> float:
    """Return by how much the differences lower the area above the budget, and forget them."""
    count, touches = room.state[NOW], room.state[TOUCHES]
    change = 0
    gain = 0.0
    if touches > FEW or room.state[HIGH] - room.state[LOW] < SHORT:
        for place in range(room.state[LOW], min(count, room.state[HIGH])):
            change += room.plans[DELTA, place]
            room.plans[DELTA, place] = 0
            if change != 0:
                gain += _lowered(work, place, change, budget)
        clear(room)
        return gain
    sort(room.plans[TOUCHED], touches)
    for index in range(touches - 1):
        place = room.plans[TOUCHED, index]
        change += room.plans[DELTA, place]
        room.plans[DELTA, place] = 0
        if change != 0:
            gain += _gain_between(work, room, place, min(count, room.plans[TOUCHED, index + 1]), change, budget)
    clear(room)
    return gain


def _lowered(work: Work, place: int, change: int, budget: int) -> float:
    excess = work.runs[MEMORY, place] - budget
    return float(max(0, excess) - max(0, excess + change))


def _gain_between(work: Work, room: Room, low: int, high: int, change: int, budget: int) -> float:
    """Return the gain of one change from position `low` to before `high`."""
    gain = 0.0
    place = low
    while place < high:
        if place % BLOCK == 0 and place + BLOCK <= high:
            least, most = room.plans[LEAST, place // BLOCK], room.plans[PEAK, place // BLOCK]
            if max(most, most + change) <= 0:
                place += BLOCK
                continue
            if min(least, least + change) >= 0:
                gain -= float(change) * BLOCK
                place += BLOCK
                continue
        gain += _lowered(work, place, change, budget)
        place += 1
    return gain


def clear(room: Room) -> None:
    """Forget the differences."""
    if room.state[TOUCHES] > FEW:
        for place in range(room.state[LOW], room.state[HIGH] + 1):
            room.plans[DELTA, place] = 0
    else:
        for index in range(room.state[TOUCHES]):
            room.plans[DELTA, room.plans[TOUCHED, index]] = 0
    room.state[LOW] = room.plans.shape[1]
    room.state[HIGH] = 0
    room.state[TOUCHES] = 0
