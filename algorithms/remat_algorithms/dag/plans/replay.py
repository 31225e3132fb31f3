"""Replay of a sequence of runs: its memory at each run, and its cost; for interpreted and compiled execution.

`kernel.py` compiles these functions unchanged, and a test compares both results. Positions are indices into the
sequence. An access of a value is encoded as 2 * position for a read and 2 * position + 1 for a write.
"""

from __future__ import annotations

import math

from remat_algorithms.dag.plans.records import Array, Packed, Room, Work


def replay(tables: Packed, work: Work, room: Room, plan: int, budget: int) -> float:
    """Replay a plan of `room`: fill `work`, return the bytes above the budget, summed over the runs.

    Infinite if the accesses exceed the length of the arrays. O(accesses + values).
    """
    count = room.length[plan]
    item = room.item[plan]
    if _list_accesses(tables, work, item, count) > len(work.access):
        work.figures.area = math.inf
        work.figures.stage_area = math.inf
        return math.inf
    for place in range(count + 2):
        work.change[place] = 0
        work.freed[place] = 0
    for place in range(count):
        task, at = item[place], room.stage[plan, place]
        is_first = at < tables.stages and tables.first[at] == task
        light = tables.light[task]
        work.full[place] = 1 if light == 0 or (light == 1 and is_first) else 0
    for value in range(tables.value_count):
        _copies(tables, work, item, count, value)
    resident = tables.static
    over = 0.0
    by_stage = 0.0
    stage = -1
    top = 0
    time = 0.0
    highest = 0
    for place in range(count):
        resident += work.change[place]
        task = item[place]
        level = resident + tables.workspace[task] - tables.lent[room.stage[plan, place]]
        written = tables.written[task]
        if work.full[place]:
            time += tables.time[task]
        else:
            level += tables.light_workspace[task] - tables.workspace[task] - tables.light_spared[task]
            written -= tables.light_spared[task]
            time += tables.light_time[task]
        if tables.in_place[task]:
            level -= min(written, work.freed[place])
        work.memory[place] = level
        if room.stage[plan, place] != stage:
            stage = room.stage[plan, place]
            top = budget
        if level > budget:
            over += float(level - budget)
            if level > top:
                by_stage += float(level - top)
                top = level
        if level > work.memory[highest]:
            highest = place
    work.figures.area = over
    work.figures.stage_area = by_stage
    work.figures.total = time
    work.figures.highest = highest
    return over


def first_access(work: Work, value: int, access: int) -> int:
    """Return the index of a value's first access that is not before `access`; O(log accesses)."""
    low, high = work.head[value], work.head[value + 1]
    while low < high:
        middle = (low + high) // 2
        if work.access[middle] < access:
            low = middle + 1
        else:
            high = middle
    return int(low)


def _list_accesses(tables: Packed, work: Work, item: Array, count: int) -> int:
    """Sort the accesses by value, by counting, if the array is long enough; return their number."""
    head, access = work.head, work.access
    values = tables.value_count
    for value in range(values + 1):
        head[value] = 0
    for place in range(count):
        task = item[place]
        for entry in range(tables.read_start[task], tables.read_start[task + 1]):
            head[tables.read[entry]] += 1
        for entry in range(tables.write_start[task], tables.write_start[task + 1]):
            head[tables.write[entry]] += 1
    total = 0
    for value in range(values + 1):
        total += head[value]
        head[value] = total
    if total > len(access):
        return total
    # Filled from the end, so that the heads finish at the start of their rows.
    for back in range(count):
        place = count - 1 - back
        task = item[place]
        for entry in range(tables.write_start[task], tables.write_start[task + 1]):
            value = tables.write[entry]
            head[value] -= 1
            access[head[value]] = 2 * place + 1
        for entry in range(tables.read_start[task], tables.read_start[task + 1]):
            value = tables.read[entry]
            head[value] -= 1
            access[head[value]] = 2 * place
    return total


def _copies(tables: Packed, work: Work, item: Array, count: int, value: int) -> None:
    """Enter the copies of a value into `change`, `freed` and `full`."""
    low, high = work.head[value], work.head[value + 1]
    born = -1  # position at which the current copy appears; -1: none
    last = -1  # its last use; -1: none yet
    if tables.initial[value]:
        first_is_write = low < high and work.access[low] % 2 == 1
        idle = low == high and not tables.stays[value]
        if tables.pinned[value] or not (first_is_write or idle):
            born = 0
    for entry in range(low, high):
        place = work.access[entry] // 2
        if work.access[entry] % 2 == 0:
            last = place
            continue
        if born >= 0:
            if tables.pinned[value]:
                _enter(tables, work, item, value, born, place, False)
            else:
                _enter(tables, work, item, value, born, max(born, last), born <= last < place)
        born = place
        last = -1
    if born >= 0:
        if tables.stays[value] or tables.pinned[value]:
            _enter(tables, work, item, value, born, count, False)
        elif last >= 0:
            _enter(tables, work, item, value, born, last, True)
        else:
            _enter(tables, work, item, value, born, born, False)


def _enter(tables: Packed, work: Work, item: Array, value: int, born: int, last: int, frees: bool) -> None:
    """Enter one copy, resident from `born` to `last`; `frees`: the run at `last` reads and frees it."""
    size = tables.size[value]
    work.change[born] += size
    work.change[last + 1] -= size
    if frees:
        work.freed[last] += size
    if last > born and not work.full[born]:
        task = item[born]
        for entry in range(tables.write_start[task], tables.write_start[task + 1]):
            if tables.write[entry] == value and tables.spared[entry]:
                work.full[born] = 1
