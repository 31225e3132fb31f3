"""A walk: a sequence of runs in any order of the tasks, and the bytes held during each, kept up to date run by run.

Interpreted or compiled, like `replay`. Position 0 is no run: what is there at the start appears at it. A copy of a
value is held from the run that writes it to its last read before the next one that writes it, so each sequence in
which every read has a copy is a schedule; only its peak can fail.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remat_algorithms.dag.plans.model import StageModel
from remat_algorithms.dag.plans.packed import (
    BYTES,
    IN_PLACE,
    INITIAL,
    PINNED,
    RANDOM,
    READ,
    READ_START,
    SIZE,
    STATIC,
    STAYS,
    TIME,
    WORKSPACE,
    WRITE,
    WRITE_START,
    Array,
    Packed,
    random_state,
)

# Rows of `Walk.runs`: by position, then by run.
SEQUENCE, HELD, AFTER, FREED, ITEM, PLACE, SPARE = range(7)
# Rows of `Walk.values`.
PRODUCER, READER_START = range(2)
# Places in `Walk.state`; the random generator's is that of `Room.state`.
LENGTH, SPARES, BEST_LENGTH, LOGGED, LISTED, _, STOP, OVERLAYS, HIGHEST = range(9)
# Places in `Walk.figures`.
OVER, SPENT, HEAT, PRICE, BEST = range(5)
# Rows of `Walk.log`.
KIND, RUN, WHAT, FROM, TO = range(5)
INSERTED, DELETED, MOVED = range(3)

COPIES = 6
"""Most runs of an item."""

HEIGHT = 30.0
"""Runs that the highest excess counts for, besides its own: a spike takes as many reruns as a plateau of its height."""

LOG = 40
"""Most changes of one step, and most runs that one step inserts or deletes, with a margin."""

LONGEST = 3
"""Most runs of a walk, as a multiple of the order's."""


class Walk(NamedTuple):
    """The present sequence, the best one that fits, and what changes them.

    Attributes
    ----------
    runs : (7, longest)
        By position: the run there, bytes held meanwhile, bytes that stay after it, bytes that it reads and frees.
        By run: its item, its position. And runs that are not in use.
    copies : (items, COPIES)
        Runs of each item.
    counts : (items,)
    values : (2, values + 1)
        The item that makes each value, and where its readers begin.
    readers : (reads,)
        Items that read each value.
    buffer : (most accesses of a value,)
        Accesses of one value: 2 * position for a read, 2 * position + 1 for a write.
    log : (5, LOG)
        What the present step has done.
    list : (LOG,)
        Items, or runs, that the present step is about.
    best : (longest,)
        Items of the best sequence that fits.
    state, figures
        Lengths, switches, and the random generator; area above the budget, times, and temperature.
    """

    runs: Array
    copies: Array
    counts: Array
    values: Array
    readers: Array
    buffer: Array
    log: Array
    list: Array
    best: Array
    state: Array
    figures: Array


def walk_room(model: StageModel, seed: int, *, compiled: bool) -> Walk:
    """Return room for walks of a model whose items are the tasks of its order, its generator seeded."""
    tables, whole, real = model.tables, np.int64 if compiled else np.object_, np.float64 if compiled else np.object_
    items, count = range(model.stages), len(tables.size)
    producer = [-1] * count
    readers: list[list[int]] = [[] for _ in range(count)]
    for item in items:
        for value in tables.write_value[tables.write_start[item] : tables.write_start[item + 1]]:
            producer[value] = item
        for value in tables.read_value[tables.read_start[item] : tables.read_start[item + 1]]:
            readers[value].append(item)
    starts = [0, *np.cumsum([len(row) for row in readers]).tolist()]
    most = max((len(row) for row in readers), default=0) + 1
    longest = LONGEST * model.stages + LOG
    walk = Walk(
        runs=np.zeros((7, longest + 1), dtype=whole),
        copies=np.zeros((model.stages + 1, COPIES), dtype=whole),
        counts=np.zeros(model.stages + 1, dtype=whole),
        values=np.array([[*producer, -1], starts], dtype=whole),
        readers=np.array([*(item for row in readers for item in row), -1], dtype=whole),
        buffer=np.zeros(COPIES * most + 2, dtype=whole),
        log=np.zeros((5, LOG), dtype=whole),
        list=np.zeros(LOG, dtype=whole),
        best=np.zeros(longest + 1, dtype=whole),
        state=np.zeros(9, dtype=whole),
        figures=np.zeros(5, dtype=real),
    )
    walk.state[RANDOM] = random_state(seed)
    walk.state[OVERLAYS] = int(any(tables.in_place))
    return walk


def list_accesses(walk: Walk, value: int) -> int:
    """Sort the accesses of a value into `buffer`; return how many they are. Linear where they nearly are sorted."""
    count = 0
    producer = walk.values[PRODUCER, value]
    if producer >= 0:
        for copy in range(walk.counts[producer]):
            count = _list_access(walk, count, 2 * walk.runs[PLACE, walk.copies[producer, copy]] + 1)
    for entry in range(walk.values[READER_START, value], walk.values[READER_START, value + 1]):
        reader = walk.readers[entry]
        for copy in range(walk.counts[reader]):
            count = _list_access(walk, count, 2 * walk.runs[PLACE, walk.copies[reader, copy]])
    return count


def _list_access(walk: Walk, count: int, access: int) -> int:
    index = count
    while index > 0 and walk.buffer[index - 1] > access:
        walk.buffer[index] = walk.buffer[index - 1]
        index -= 1
    walk.buffer[index] = access
    return count + 1


def _hold(walk: Walk, size: int, born: int, last: int) -> None:
    """Enter a copy that is held from one position to another."""
    for place in range(born, last + 1):
        walk.runs[HELD, place] += size
    for place in range(born, last):
        walk.runs[AFTER, place] += size


def enter(tables: Packed, walk: Walk, value: int, sign: int) -> bool:
    """Enter all copies of a value, or take them out (`sign` -1); return whether each read has one. O(walk)."""
    size = sign * tables.values[SIZE, value]
    count = list_accesses(walk, value)
    to_the_end = bool(tables.values[STAYS, value]) or bool(tables.values[PINNED, value])
    index = 0
    born = -1
    if tables.values[INITIAL, value]:
        born = 0
    while True:
        last = -1
        while index < count and walk.buffer[index] % 2 == 0:
            last = walk.buffer[index] // 2
            index += 1
        if born < 0:
            if last >= 0:
                return False
        elif index == count and to_the_end:
            end = walk.state[LENGTH] - 1
            _hold(walk, size, born, end)
            walk.runs[AFTER, end] += size
        elif last >= 0:
            _hold(walk, size, born, last)
            walk.runs[FREED, last] += size
        elif born > 0:
            # Gone when the run that makes it ends.
            walk.runs[HELD, born] += size
        if index == count:
            return True
        born = walk.buffer[index] // 2
        index += 1


def _touch(tables: Packed, walk: Walk, item: int, sign: int) -> bool:
    """Enter all copies of all values that an item reads or writes, or take them out; return whether they are valid."""
    valid = True
    for entry in range(tables.items[READ_START, item], tables.items[READ_START, item + 1]):
        if not enter(tables, walk, tables.entries[READ, entry], sign):
            valid = False
    for entry in range(tables.items[WRITE_START, item], tables.items[WRITE_START, item + 1]):
        if not enter(tables, walk, tables.entries[WRITE, entry], sign):
            valid = False
    return valid


def _shift_left(walk: Walk, low: int, high: int) -> None:
    """Move what stands behind `low`, up to `high`, one position forward."""
    for place in range(low, high):
        walk.runs[HELD, place] = walk.runs[HELD, place + 1]
    for place in range(low, high):
        walk.runs[AFTER, place] = walk.runs[AFTER, place + 1]
    for place in range(low, high):
        walk.runs[FREED, place] = walk.runs[FREED, place + 1]
    for place in range(low, high):
        run = walk.runs[SEQUENCE, place + 1]
        walk.runs[SEQUENCE, place] = run
        walk.runs[PLACE, run] = place


def _shift_right(walk: Walk, low: int, high: int) -> None:
    """Move what stands from `low` to before `high` one position back."""
    for back in range(high - low):
        walk.runs[HELD, high - back] = walk.runs[HELD, high - back - 1]
    for back in range(high - low):
        walk.runs[AFTER, high - back] = walk.runs[AFTER, high - back - 1]
    for back in range(high - low):
        walk.runs[FREED, high - back] = walk.runs[FREED, high - back - 1]
    for back in range(high - low):
        run = walk.runs[SEQUENCE, high - back - 1]
        walk.runs[SEQUENCE, high - back] = run
        walk.runs[PLACE, run] = high - back


def _stand(tables: Packed, walk: Walk, run: int, place: int) -> None:
    """Let a run stand at a position that is free, before its values are entered."""
    walk.runs[SEQUENCE, place] = run
    walk.runs[PLACE, run] = place
    walk.runs[HELD, place] = walk.runs[AFTER, place - 1] + tables.items[WORKSPACE, walk.runs[ITEM, run]]
    walk.runs[AFTER, place] = walk.runs[AFTER, place - 1]
    walk.runs[FREED, place] = 0


def _note(walk: Walk, kind: int, run: int, item: int, start: int, to: int) -> None:
    at = walk.state[LOGGED]
    walk.log[KIND, at] = kind
    walk.log[RUN, at] = run
    walk.log[WHAT, at] = item
    walk.log[FROM, at] = start
    walk.log[TO, at] = to
    walk.state[LOGGED] = at + 1


def insert_run(tables: Packed, walk: Walk, item: int, place: int) -> bool:
    """Insert a run of an item at a position; return whether the sequence is valid. O(walk)."""
    walk.state[SPARES] -= 1
    run = walk.runs[SPARE, walk.state[SPARES]]
    _touch(tables, walk, item, -1)
    _shift_right(walk, place, walk.state[LENGTH])
    walk.state[LENGTH] += 1
    walk.runs[ITEM, run] = item
    _stand(tables, walk, run, place)
    walk.copies[item, walk.counts[item]] = run
    walk.counts[item] += 1
    walk.figures[SPENT] += tables.times[TIME, item]
    _note(walk, INSERTED, run, item, place, place)
    return _touch(tables, walk, item, 1)


def delete_run(tables: Packed, walk: Walk, run: int) -> bool:
    """Take a run out; return whether the sequence is valid. O(walk)."""
    item, place = walk.runs[ITEM, run], walk.runs[PLACE, run]
    _touch(tables, walk, item, -1)
    walk.state[LENGTH] -= 1
    _shift_left(walk, place, walk.state[LENGTH])
    walk.counts[item] -= 1
    last = walk.copies[item, walk.counts[item]]
    for copy in range(walk.counts[item]):
        if walk.copies[item, copy] == run:
            walk.copies[item, copy] = last
    walk.runs[SPARE, walk.state[SPARES]] = run
    walk.state[SPARES] += 1
    walk.figures[SPENT] -= tables.times[TIME, item]
    _note(walk, DELETED, run, item, place, place)
    return _touch(tables, walk, item, 1)


def move_run(tables: Packed, walk: Walk, run: int, to: int) -> bool:
    """Move a run to another position; return whether the sequence is valid. O(walk)."""
    item, start = walk.runs[ITEM, run], walk.runs[PLACE, run]
    _touch(tables, walk, item, -1)
    if to > start:
        _shift_left(walk, start, to)
    else:
        _shift_right(walk, to, start)
    _stand(tables, walk, run, to)
    _note(walk, MOVED, run, item, start, to)
    return _touch(tables, walk, item, 1)


def undo(tables: Packed, walk: Walk) -> None:
    """Take back what the present step has done."""
    while walk.state[LOGGED] > 0:
        at = walk.state[LOGGED] - 1
        # What undoing notes itself is forgotten.
        kind, run, item, start = walk.log[KIND, at], walk.log[RUN, at], walk.log[WHAT, at], walk.log[FROM, at]
        if kind == INSERTED:
            delete_run(tables, walk, run)
        elif kind == DELETED:
            insert_run(tables, walk, item, start)
        else:
            move_run(tables, walk, run, start)
        walk.state[LOGGED] = at


def over(tables: Packed, walk: Walk, budget: int) -> float:
    """Return the bytes above the budget, summed over the runs, and `HEIGHT` times the most of them. O(walk)."""
    limit = budget - tables.fixed[STATIC]
    total = 0
    most = 0
    if walk.state[OVERLAYS] == 0:
        for place in range(1, walk.state[LENGTH]):
            excess = max(0, walk.runs[HELD, place] - limit)
            total += excess
            if excess > most:
                most = excess
                walk.state[HIGHEST] = place
        return float(total) + HEIGHT * float(most)
    for place in range(1, walk.state[LENGTH]):
        item = walk.runs[ITEM, walk.runs[SEQUENCE, place]]
        excess = walk.runs[HELD, place] - limit
        if tables.items[IN_PLACE, item]:
            excess -= min(tables.items[BYTES, item], walk.runs[FREED, place])
        excess = max(0, excess)
        total += excess
        if excess > most:
            most = excess
            walk.state[HIGHEST] = place
    return float(total) + HEIGHT * float(most)
