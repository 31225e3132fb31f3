"""Plans as sorted sequences of runs, and random numbers; interpreted or compiled, like `replay`."""

from __future__ import annotations

from remat_algorithms.dag.plans.records import NOW, TRIAL, Array, Draws, Room


def drawn(draws: Draws) -> float:
    """Return the next random number in [0, 1) of Park and Miller's generator, the same when compiled."""
    draws.random = draws.random * 48271 % 2147483647
    return float(draws.random - 1) / 2147483646.0


def draw(room: Room) -> float:
    """Return the next random number in [0, 1) of a search."""
    return drawn(room.draws)


def find(room: Room, at: int, task: int) -> int:
    """Return the first position of the current plan whose key is not below (at, task); O(log count)."""
    low, high = 0, room.length[NOW]
    while low < high:
        middle = (low + high) // 2
        stage = room.stage[NOW, middle]
        if stage < at or (stage == at and room.item[NOW, middle] < task):
            low = middle + 1
        else:
            high = middle
    return low


def sort(items: Array, count: int) -> None:
    """Sort the first `count` numbers of an array, by insertion."""
    for index in range(1, count):
        item = items[index]
        other = index - 1
        while other >= 0 and items[other] > item:
            items[other + 1] = items[other]
            other -= 1
        items[other + 1] = item


def put(room: Room, listed: int, at: int) -> None:
    """Add ``room.todo[:listed]`` in stage `at` to the runs to insert, up to the length of the arrays."""
    count = room.state.added
    for index in range(min(listed, room.item.shape[1] - count)):
        room.new_item[count + index] = room.todo[index]
        room.new_stage[count + index] = at
        room.state.added += 1


def _sort_runs(room: Room) -> None:
    """Sort the runs to insert by their keys, by insertion."""
    for index in range(1, room.state.added):
        item, stage = room.new_item[index], room.new_stage[index]
        other = index - 1
        while other >= 0 and (
            room.new_stage[other] > stage or (room.new_stage[other] == stage and room.new_item[other] > item)
        ):
            room.new_item[other + 1] = room.new_item[other]
            room.new_stage[other + 1] = room.new_stage[other]
            other -= 1
        room.new_item[other + 1] = item
        room.new_stage[other + 1] = stage


def merge(room: Room) -> int:
    """Merge the runs to insert into the current plan, which lacks them; the trial plan's length, or -1 if too long.

    A run that was added twice is inserted once.
    """
    count, added = room.length[NOW], room.state.added
    if count + added > room.item.shape[1] - 2:
        return -1
    _sort_runs(room)
    length = 0
    place = 0
    for index in range(added):
        item, stage = room.new_item[index], room.new_stage[index]
        if index > 0 and item == room.new_item[index - 1] and stage == room.new_stage[index - 1]:
            continue
        until = find(room, stage, item)
        length = _append(room, place, until, length)
        place = until
        room.item[TRIAL, length] = item
        room.stage[TRIAL, length] = stage
        length += 1
    length = _append(room, place, count, length)
    room.length[TRIAL] = length
    return length


def _append(room: Room, place: int, until: int, length: int) -> int:
    """Append a part of the current plan to the trial plan; return its new length."""
    for other in range(until - place):
        room.item[TRIAL, length + other] = room.item[NOW, place + other]
        room.stage[TRIAL, length + other] = room.stage[NOW, place + other]
    return length + until - place


def insert(room: Room, listed: int, at: int) -> int:
    """Build the trial plan from the current plan and ``room.todo[:listed]`` in stage `at`; return as `merge`."""
    room.state.added = 0
    put(room, listed, at)
    return merge(room)


def take_trial(room: Room) -> None:
    """Make the trial plan the current one."""
    for place in range(room.length[TRIAL]):
        room.item[NOW, place] = room.item[TRIAL, place]
        room.stage[NOW, place] = room.stage[TRIAL, place]
    room.length[NOW] = room.length[TRIAL]
