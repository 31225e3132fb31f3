"""Memory differences of a greedy candidate by position, and their total gain.

Interpreted or compiled, like `replay`. In large graphs, differences are few and the ranges between them long. Such
ranges are evaluated block by block, from the minimum and the maximum memory of each block.
"""

from __future__ import annotations

from remat_algorithms.dag.plans.plans import sort
from remat_algorithms.dag.plans.records import NOW, Room, Work

BLOCK = 32
"""Positions in a block."""

FEW, SHORT = 64, 256
"""Maximum number of differences for sorting, and minimum number of positions for blocks; otherwise each position is
evaluated.
"""


def summarise(work: Work, room: Room, count: int, budget: int) -> None:
    """Record the minimum and the maximum excess of each block of the first `count` positions, before any addition."""
    for block in range(count // BLOCK):
        least = work.memory[block * BLOCK]
        most = least
        for place in range(block * BLOCK + 1, block * BLOCK + BLOCK):
            level = work.memory[place]
            least = min(least, level)
            most = max(most, level)
        room.least_excess[block] = least - budget
        room.most_excess[block] = most - budget


def add(room: Room, low: int, high: int, size: int) -> None:
    """Record that memory from position `low` to before `high` changes by `size`."""
    room.delta[low] += size
    room.delta[high] -= size
    room.state.low = min(room.state.low, low)
    room.state.high = max(room.state.high, high)
    count = room.state.touches
    if count < FEW:
        room.touched[count] = low
        room.touched[count + 1] = high
    room.state.touches = count + 2


def gain_of(work: Work, room: Room, budget: int) -> float:
    """Return by how much the differences lower the area above the budget, and reset them."""
    count, touches = room.length[NOW], room.state.touches
    change = 0
    gain = 0.0
    if touches > FEW or room.state.high - room.state.low < SHORT:
        for place in range(room.state.low, min(count, room.state.high)):
            change += room.delta[place]
            room.delta[place] = 0
            if change != 0:
                gain += _lowered(work, place, change, budget)
        clear(room)
        return gain
    sort(room.touched, touches)
    for index in range(touches - 1):
        place = room.touched[index]
        change += room.delta[place]
        room.delta[place] = 0
        if change != 0:
            gain += _gain_between(work, room, place, min(count, room.touched[index + 1]), change, budget)
    clear(room)
    return gain


def _lowered(work: Work, place: int, change: int, budget: int) -> float:
    excess = work.memory[place] - budget
    return float(max(0, excess) - max(0, excess + change))


def _gain_between(work: Work, room: Room, low: int, high: int, change: int, budget: int) -> float:
    """Return the gain of one change from position `low` to before `high`."""
    gain = 0.0
    place = low
    while place < high:
        if place % BLOCK == 0 and place + BLOCK <= high:
            least, most = room.least_excess[place // BLOCK], room.most_excess[place // BLOCK]
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
    """Reset the differences."""
    if room.state.touches > FEW:
        for place in range(room.state.low, room.state.high + 1):
            room.delta[place] = 0
    else:
        for index in range(room.state.touches):
            room.delta[room.touched[index]] = 0
    room.state.low = room.item.shape[1]
    room.state.high = 0
    room.state.touches = 0
