"""Plans as sorted sequences of runs, and drawing random numbers; interpreted or compiled, like `replay`."""

from __future__ import annotations

from remat_algorithms.dag_auto.packed import NOW, RANDOM, TODO, TRIAL, Array, Room


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


def insert(room: Room, listed: int, at: int) -> int:
    """Merge ``room.items[TODO, :listed]`` into stage `at` of the present plan: the plan to try; -1 if too long."""
    count = room.state[NOW]
    if count + listed > room.plans.shape[1] - 2:
        return -1
    sort(room.items[TODO], listed)
    taken = 0
    length = 0
    for place in range(count):
        while taken < listed and (
            room.plans[2 * NOW + 1, place] > at
            or (room.plans[2 * NOW + 1, place] == at and room.plans[2 * NOW, place] > room.items[TODO, taken])
        ):
            room.plans[2 * TRIAL, length] = room.items[TODO, taken]
            room.plans[2 * TRIAL + 1, length] = at
            length += 1
            taken += 1
        room.plans[2 * TRIAL, length] = room.plans[2 * NOW, place]
        room.plans[2 * TRIAL + 1, length] = room.plans[2 * NOW + 1, place]
        length += 1
    while taken < listed:
        room.plans[2 * TRIAL, length] = room.items[TODO, taken]
        room.plans[2 * TRIAL + 1, length] = at
        length += 1
        taken += 1
    room.state[TRIAL] = length
    return length


def take_trial(room: Room) -> None:
    """Make the tried plan the present one."""
    for place in range(room.state[TRIAL]):
        room.plans[2 * NOW, place] = room.plans[2 * TRIAL, place]
        room.plans[2 * NOW + 1, place] = room.plans[2 * TRIAL + 1, place]
    room.state[NOW] = room.state[TRIAL]
