"""Replaying a sequence of runs: memory at each, what it costs; written so that it can be interpreted or compiled.

`kernel.py` compiles these functions as they stand; interpreted, they work on lists. So the two are one text, and
a test holds their results equal. Positions are indices into the sequence; accesses of a value are coded as
2 * position for a read and 2 * position + 1 for a write.
"""

from __future__ import annotations

import math

from remat_algorithms.dag.plans.packed import (
    AREA,
    BYTES,
    CHANGE,
    FIRST,
    FREED,
    FULL,
    HIGHEST,
    IN_PLACE,
    INITIAL,
    LIGHT,
    LIGHT_SPARED,
    LIGHT_TIME,
    LIGHT_WORKSPACE,
    MEMORY,
    PINNED,
    READ,
    READ_START,
    SIZE,
    SPARED,
    STAGE_AREA,
    STAGES,
    STATIC,
    STAYS,
    TIME,
    TOTAL,
    VALUES,
    WORKSPACE,
    WRITE,
    WRITE_START,
    Array,
    Packed,
    Room,
    Work,
)


def replay(tables: Packed, work: Work, room: Room, plan: int, budget: int) -> float:
    """Replay a plan of `room`: fill `work`, return the bytes above the budget, summed over the runs.

    Infinite where there is no room for so many accesses. O(accesses + values).
    """
    count = room.state[plan]
    item = room.plans[2 * plan]
    if _list_accesses(tables, work, item, count) > len(work.access):
        work.figures[AREA] = math.inf
        work.figures[STAGE_AREA] = math.inf
        return math.inf
    for place in range(count + 2):
        work.runs[CHANGE, place] = 0
        work.runs[FREED, place] = 0
    for place in range(count):
        task, at = item[place], room.plans[2 * plan + 1, place]
        is_first = at < tables.fixed[STAGES] and tables.items[FIRST, at] == task
        light = tables.items[LIGHT, task]
        work.runs[FULL, place] = 1 if light == 0 or (light == 1 and is_first) else 0
    for value in range(tables.fixed[VALUES]):
        _copies(tables, work, item, count, value)
    resident = tables.fixed[STATIC]
    over = 0.0
    by_stage = 0.0
    stage = -1
    top = 0
    time = 0.0
    highest = 0
    for place in range(count):
        resident += work.runs[CHANGE, place]
        task = item[place]
        level = resident + tables.items[WORKSPACE, task]
        written = tables.items[BYTES, task]
        if work.runs[FULL, place]:
            time += tables.times[TIME, task]
        else:
            level += (
                tables.items[LIGHT_WORKSPACE, task] - tables.items[WORKSPACE, task] - tables.items[LIGHT_SPARED, task]
            )
            written -= tables.items[LIGHT_SPARED, task]
            time += tables.times[LIGHT_TIME, task]
        if tables.items[IN_PLACE, task]:
            level -= min(written, work.runs[FREED, place])
        work.runs[MEMORY, place] = level
        if room.plans[2 * plan + 1, place] != stage:
            stage = room.plans[2 * plan + 1, place]
            top = budget
        if level > budget:
            over += float(level - budget)
            if level > top:
                by_stage += float(level - top)
                top = level
        if level > work.runs[MEMORY, highest]:
            highest = place
    work.figures[AREA] = over
    work.figures[STAGE_AREA] = by_stage
    work.figures[TOTAL] = time
    work.figures[HIGHEST] = float(highest)
    return over


def first_access(work: Work, value: int, access: int) -> int:
    """Return the index of the value's first access that is not before one; O(log accesses)."""
    low, high = work.head[value], work.head[value + 1]
    while low < high:
        middle = (low + high) // 2
        if work.access[middle] < access:
            low = middle + 1
        else:
            high = middle
    return int(low)


def _list_accesses(tables: Packed, work: Work, item: Array, count: int) -> int:
    """Sort the accesses by value, by counting, if there is room for them; return how many they are."""
    head, access = work.head, work.access
    values = tables.fixed[VALUES]
    for value in range(values + 1):
        head[value] = 0
    for place in range(count):
        task = item[place]
        for entry in range(tables.items[READ_START, task], tables.items[READ_START, task + 1]):
            head[tables.entries[READ, entry]] += 1
        for entry in range(tables.items[WRITE_START, task], tables.items[WRITE_START, task + 1]):
            head[tables.entries[WRITE, entry]] += 1
    total = 0
    for value in range(values + 1):
        total += head[value]
        head[value] = total
    if total > len(access):
        return total
    # Filled from the back, so that the heads end where their rows begin.
    for back in range(count):
        place = count - 1 - back
        task = item[place]
        for entry in range(tables.items[WRITE_START, task], tables.items[WRITE_START, task + 1]):
            value = tables.entries[WRITE, entry]
            head[value] -= 1
            access[head[value]] = 2 * place + 1
        for entry in range(tables.items[READ_START, task], tables.items[READ_START, task + 1]):
            value = tables.entries[READ, entry]
            head[value] -= 1
            access[head[value]] = 2 * place
    return total


def _copies(tables: Packed, work: Work, item: Array, count: int, value: int) -> None:
    """Enter the copies of a value into `change`, `freed` and `full`."""
    low, high = work.head[value], work.head[value + 1]
    born = -1  # place at which the present copy appears; -1: there is none
    last = -1  # its last use; -1: none yet
    if tables.values[INITIAL, value]:
        first_is_write = low < high and work.access[low] % 2 == 1
        idle = low == high and not tables.values[STAYS, value]
        if tables.values[PINNED, value] or not (first_is_write or idle):
            born = 0
    for entry in range(low, high):
        place = work.access[entry] // 2
        if work.access[entry] % 2 == 0:
            last = place
            continue
        if born >= 0:
            if tables.values[PINNED, value]:
                _enter(tables, work, item, value, born, place, False)
            else:
                _enter(tables, work, item, value, born, max(born, last), born <= last < place)
        born = place
        last = -1
    if born >= 0:
        if tables.values[STAYS, value] or tables.values[PINNED, value]:
            _enter(tables, work, item, value, born, count, False)
        elif last >= 0:
            _enter(tables, work, item, value, born, last, True)
        else:
            _enter(tables, work, item, value, born, born, False)


def _enter(tables: Packed, work: Work, item: Array, value: int, born: int, last: int, frees: bool) -> None:
    """Enter one copy, resident from `born` to `last`, and freed there by the run that reads it."""
    size = tables.values[SIZE, value]
    work.runs[CHANGE, born] += size
    work.runs[CHANGE, last + 1] -= size
    if frees:
        work.runs[FREED, last] += size
    if last > born and not work.runs[FULL, born]:
        task = item[born]
        for entry in range(tables.items[WRITE_START, task], tables.items[WRITE_START, task + 1]):
            if tables.entries[WRITE, entry] == value and tables.entries[SPARED, entry]:
                work.runs[FULL, born] = 1
