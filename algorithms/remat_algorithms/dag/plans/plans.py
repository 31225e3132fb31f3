"""Plans as sorted sequences of runs, and drawing random numbers; interpreted or compiled, like `replay`."""

from __future__ import annotations

from remat_algorithms.dag.plans.packed import ADDED, NEW_ITEM, NEW_STAGE, NOW, RANDOM, TODO, TRIAL, Array, Room


def drawn(state: Array) -> float:
    """Return the next random number in [0, 1): the generator of Park and Miller, the same when compiled."""
    state[RANDOM] = state[RANDOM] * 48271 % 2147483647
    return float(state[RANDOM] - 1) / 2147483646.0


def draw(room: Room) -> float:
    """Return the next random number in [0, 1) of a search."""
    return drawn(room.state)


def find(room: Room, at: int, task: int) -> int:
    """Return the first position of the present plan whose key is not below (at, task); O(log count)."""
    low, high = 0, room.state[NOW]
    while low < high:
        middle = (low + high) // 2
        stage = room.plans[2 * NOW + 1, middle]
        if stage < at or (stage == at and room.plans[2 * NOW, middle] < task):
            low = middle + 1
        else:
            high = middle
    return low


def sort(items: Array, count: int) -> None:
    """Sort the first few of an array's numbers, by insertion."""
    for index in range(1, count):
        item = items[index]
        other = index - 1
        while other >= 0 and items[other] > item:
            items[other + 1] = items[other]
            other -= 1
        items[other + 1] = item


def put(room: Room, listed: int, at: int) -> None:
    """Add ``room.items[TODO, :listed]`` in stage `at` to the runs to insert, as far as there is room for them."""
    count = room.state[ADDED]
    for index in range(min(listed, room.plans.shape[1] - count)):
        room.plans[NEW_ITEM, count + index] = room.items[TODO, index]
        room.plans[NEW_STAGE, count + index] = at
        room.state[ADDED] += 1


def _sort_runs(room: Room) -> None:
    """Sort the runs to insert by their keys, by insertion."""
    for index in range(1, room.state[ADDED]):
        item, stage = room.plans[NEW_ITEM, index], room.plans[NEW_STAGE, index]
        other = index - 1
        while other >= 0 and (
            room.plans[NEW_STAGE, other] > stage
            or (room.plans[NEW_STAGE, other] == stage and room.plans[NEW_ITEM, other] > item)
        ):
            room.plans[NEW_ITEM, other + 1] = room.plans[NEW_ITEM, other]
            room.plans[NEW_STAGE, other + 1] = room.plans[NEW_STAGE, other]
            other -= 1
        room.plans[NEW_ITEM, other + 1] = item
        room.plans[NEW_STAGE, other + 1] = stage


def merge(room: Room) -> int:
    """Merge the runs to insert, which the present plan has not, into it: the plan to try; -1 if it is too long.

    What was added twice is inserted once.
    """
    count, added = room.state[NOW], room.state[ADDED]
    if count + added > room.plans.shape[1] - 2:
        return -1
    _sort_runs(room)
    length = 0
    place = 0
    for index in range(added):
        item, stage = room.plans[NEW_ITEM, index], room.plans[NEW_STAGE, index]
        if index > 0 and item == room.plans[NEW_ITEM, index - 1] and stage == room.plans[NEW_STAGE, index - 1]:
            continue
        until = find(room, stage, item)
        length = _append(room, place, until, length)
        place = until
        room.plans[2 * TRIAL, length] = item
        room.plans[2 * TRIAL + 1, length] = stage
        length += 1
    length = _append(room, place, count, length)
    room.state[TRIAL] = length
    return length


def _append(room: Room, place: int, until: int, length: int) -> int:
    """Append a part of the present plan to the plan to try; return its length then."""
    for other in range(until - place):
        room.plans[2 * TRIAL, length + other] = room.plans[2 * NOW, place + other]
        room.plans[2 * TRIAL + 1, length + other] = room.plans[2 * NOW + 1, place + other]
    return length + until - place


def insert(room: Room, listed: int, at: int) -> int:
    """Merge ``room.items[TODO, :listed]`` into stage `at` of the present plan: the plan to try; -1 if too long."""
    room.state[ADDED] = 0
    put(room, listed, at)
    return merge(room)


def take_trial(room: Room) -> None:
    """Make the tried plan the present one."""
    for place in range(room.state[TRIAL]):
        room.plans[2 * NOW, place] = room.plans[2 * TRIAL, place]
        room.plans[2 * NOW + 1, place] = room.plans[2 * TRIAL + 1, place]
    room.state[NOW] = room.state[TRIAL]
