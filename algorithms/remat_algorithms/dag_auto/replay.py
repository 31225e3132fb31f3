"""Replaying a sequence of runs: memory at each, what it costs; written so that it can be interpreted or compiled.

`kernel.py` compiles these functions as they stand; interpreted, they work on lists. So the two are one text, and
a test holds their results equal. Positions are indices into the sequence; accesses of a value are coded as
2 * position for a read and 2 * position + 1 for a write.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from remat_algorithms.dag_auto.model import Row, Tables


class Work(NamedTuple):
    """Room that the functions of this package write into; contents are valid until the next replay.

    Attributes
    ----------
    memory : (longest,)
        Bytes while each run lasts.
    full : (longest,)
        0 where a light twin stands in for the item.
    head, access : rows of value v, ``access[head[v]:head[v + 1]]``
        Coded accesses in order of time.
    change, freed : (longest + 2,)
        Differences of memory from run to run; bytes that a run reads and frees.
    figures : (4,) float
        Area above the budget, time of all runs, highest position, runs.
    """

    memory: Row
    full: Row
    head: Row
    access: Row
    change: Row
    freed: Row
    figures: Row


def replay(tables: Tables, work: Work, item: Row, count: int, budget: int) -> float:
    """Replay ``item[:count]``: fill `work`, return the bytes above the budget, summed over the runs.

    Infinite where there is no room for so many accesses. O(accesses + values).
    """
    if _list_accesses(tables, work, item, count) > len(work.access):
        return math.inf
    change, freed, full = work.change, work.freed, work.full
    for place in range(count + 2):
        change[place] = 0
        freed[place] = 0
    for place in range(count):
        full[place] = 1 - min(1, tables.light[item[place]])
    for value in range(len(tables.size)):
        _copies(tables, work, item, count, value)
    resident = tables.static[0]
    over = 0.0
    time = 0.0
    highest = 0
    for place in range(count):
        resident += change[place]
        task = item[place]
        level = resident + tables.workspace[task]
        written = tables.written[task]
        if full[place]:
            time += tables.time[task]
        else:
            level += tables.light_workspace[task] - tables.workspace[task] - tables.light_spared[task]
            written -= tables.light_spared[task]
            time += tables.light_time[task]
        if tables.in_place[task]:
            level -= min(written, freed[place])
        work.memory[place] = level
        if level > budget:
            over += float(level - budget)
        if level > work.memory[highest]:
            highest = place
    work.figures[0] = over
    work.figures[1] = time
    work.figures[2] = float(highest)
    work.figures[3] = float(count)
    return over


def _list_accesses(tables: Tables, work: Work, item: Row, count: int) -> int:
    """Sort the accesses by value, by counting, if there is room for them; return how many they are."""
    head, access = work.head, work.access
    values = len(tables.size)
    for value in range(values + 1):
        head[value] = 0
    for place in range(count):
        task = item[place]
        for entry in range(tables.read_start[task], tables.read_start[task + 1]):
            head[tables.read_value[entry]] += 1
        for entry in range(tables.write_start[task], tables.write_start[task + 1]):
            head[tables.write_value[entry]] += 1
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
        for entry in range(tables.write_start[task], tables.write_start[task + 1]):
            value = tables.write_value[entry]
            head[value] -= 1
            access[head[value]] = 2 * place + 1
        for entry in range(tables.read_start[task], tables.read_start[task + 1]):
            value = tables.read_value[entry]
            head[value] -= 1
            access[head[value]] = 2 * place
    return total


def _copies(tables: Tables, work: Work, item: Row, count: int, value: int) -> None:
    """Enter the copies of a value into `change`, `freed` and `full`."""
    low, high = work.head[value], work.head[value + 1]
    born = -1  # place at which the present copy appears; -1: there is none
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


def _enter(tables: Tables, work: Work, item: Row, value: int, born: int, last: int, frees: bool) -> None:
    """Enter one copy, resident from `born` to `last`, and freed there by the run that reads it."""
    size = tables.size[value]
    work.change[born] += size
    work.change[last + 1] -= size
    if frees:
        work.freed[last] += size
    if last > born and not work.full[born]:
        task = item[born]
        for entry in range(tables.write_start[task], tables.write_start[task + 1]):
            if tables.write_value[entry] == value and tables.spared[entry]:
                work.full[born] = 1
