"""A sequence of runs in any order of the tasks, with the bytes held during each, updated run by run.

Interpreted or compiled, like `remat_algorithms.dag.plans.replay`. Position 0 is a dummy, at which the initial values
appear. A copy of a value is held from the run that writes it to its last read before the next write. Each sequence in
which every read has a copy is therefore a schedule, which only the peak can make infeasible.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from remat_algorithms.dag.plans.model import StageModel
from remat_algorithms.dag.plans.records import Array, Draws, Packed, random_state
from remat_algorithms.kit.compile.records import cells

# Kinds of changes.
INSERTED, DELETED, MOVED = range(3)

COPIES = 6
"""Maximum number of runs of an item."""

HEIGHT = 30.0
"""Weight of the highest excess, in runs: removing a spike takes as many reruns as removing a plateau of its height."""

LOG = 40
"""Maximum number of changes of one step, and of runs that one step inserts or deletes, with a margin."""

LONGEST = 3
"""Maximum number of runs of a sequence, as a multiple of the order's length."""


@cells
class Progress(ctypes.Structure):
    """Scalar state of a sequence.

    Attributes
    ----------
    length, spares, best_length, logged, listed : int
        Used lengths of the arrays.
    stop : int
        Whether to stop; set from another thread.
    highest : int
        Position of the highest memory.
    over, spent, best_time : float
        Penalized excess over the budget and time of the current sequence, time of the best one.
    heat, price : float
    """

    length: int
    spares: int
    best_length: int
    logged: int
    listed: int
    stop: int
    highest: int
    over: float
    spent: float
    best_time: float
    heat: float
    price: float


class Walk(NamedTuple):
    """The current sequence, the best one that fits, and the working memory of their changes.

    Attributes
    ----------
    sequence, held, after, freed : (longest,)
        By position: its run, bytes held during it, bytes that stay after it, bytes that it reads and frees.
    item, place : (longest,)
        By run: its item, its position.
    spare : (longest,)
        Unused runs.
    copies : (items, COPIES)
        Runs of each item.
    counts : (items,)
    producer, reader_start : (values + 1,)
        The item that computes each value, and the start of its row in `readers`.
    readers : (reads,)
        Items that read each value.
    buffer : (most accesses of a value,)
        Accesses of one value: 2 * position for a read, 2 * position + 1 for a write.
    kind, run, what, origin, to : (LOG,)
        Changes of the current step.
    list : (LOG,)
        Items, or runs, that the current step handles.
    best : (longest,)
        Items of the best sequence that fits.
    overlays : bool
        Whether some item runs in place.
    draws : Draws
    state : Progress
    """

    sequence: Array
    held: Array
    after: Array
    freed: Array
    item: Array
    place: Array
    spare: Array
    copies: Array
    counts: Array
    producer: Array
    reader_start: Array
    readers: Array
    buffer: Array
    kind: Array
    run: Array
    what: Array
    origin: Array
    to: Array
    list: Array
    best: Array
    overlays: bool
    draws: Draws
    state: Progress


def walk_room(model: StageModel, seed: int, *, compiled: bool) -> Walk:
    """Allocate the arrays for sequences of a model whose items are the tasks of its order, with a seeded generator."""
    tables, whole = model.tables, np.int64 if compiled else np.object_
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
    producers, reader_starts = np.array([[*producer, -1], starts], dtype=whole)
    kind, run, what, origin, to = np.zeros((5, LOG), dtype=whole)
    sequence, held, after, freed, own, place, spare = np.zeros((7, longest + 1), dtype=whole)
    return Walk(
        sequence=sequence,
        held=held,
        after=after,
        freed=freed,
        item=own,
        place=place,
        spare=spare,
        copies=np.zeros((model.stages + 1, COPIES), dtype=whole),
        counts=np.zeros(model.stages + 1, dtype=whole),
        producer=producers,
        reader_start=reader_starts,
        readers=np.array([*(item for row in readers for item in row), -1], dtype=whole),
        buffer=np.zeros(COPIES * most + 2, dtype=whole),
        kind=kind,
        run=run,
        what=what,
        origin=origin,
        to=to,
        list=np.zeros(LOG, dtype=whole),
        best=np.zeros(longest + 1, dtype=whole),
        overlays=any(tables.in_place),
        draws=Draws(random=random_state(seed)),
        state=Progress(),
    )


def list_accesses(walk: Walk, value: int) -> int:
    """Sort the accesses of a value into `buffer`; return their number. Linear if they are nearly sorted."""
    count = 0
    producer = walk.producer[value]
    if producer >= 0:
        for copy in range(walk.counts[producer]):
            count = _list_access(walk, count, 2 * walk.place[walk.copies[producer, copy]] + 1)
    for entry in range(walk.reader_start[value], walk.reader_start[value + 1]):
        reader = walk.readers[entry]
        for copy in range(walk.counts[reader]):
            count = _list_access(walk, count, 2 * walk.place[walk.copies[reader, copy]])
    return count


def _list_access(walk: Walk, count: int, access: int) -> int:
    index = count
    while index > 0 and walk.buffer[index - 1] > access:
        walk.buffer[index] = walk.buffer[index - 1]
        index -= 1
    walk.buffer[index] = access
    return count + 1


def _hold(walk: Walk, size: int, born: int, last: int) -> None:
    """Add a copy that is held from one position to another."""
    for place in range(born, last + 1):
        walk.held[place] += size
    for place in range(born, last):
        walk.after[place] += size


def enter(tables: Packed, walk: Walk, value: int, sign: int) -> bool:
    """Add all copies of a value, or remove them (`sign` -1); return whether each read has one. O(length)."""
    size = sign * tables.size[value]
    count = list_accesses(walk, value)
    to_the_end = bool(tables.stays[value]) or bool(tables.pinned[value])
    index = 0
    born = -1
    if tables.initial[value]:
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
            end = walk.state.length - 1
            _hold(walk, size, born, end)
            walk.after[end] += size
        elif last >= 0:
            _hold(walk, size, born, last)
            walk.freed[last] += size
        elif born > 0:
            # It ends with the run that writes it.
            walk.held[born] += size
        if index == count:
            return True
        born = walk.buffer[index] // 2
        index += 1


def _touch(tables: Packed, walk: Walk, item: int, sign: int) -> bool:
    """Add or remove all copies of all values that an item reads or writes; return whether they are valid."""
    valid = True
    for entry in range(tables.read_start[item], tables.read_start[item + 1]):
        if not enter(tables, walk, tables.read[entry], sign):
            valid = False
    for entry in range(tables.write_start[item], tables.write_start[item + 1]):
        if not enter(tables, walk, tables.write[entry], sign):
            valid = False
    return valid


def _shift_left(walk: Walk, low: int, high: int) -> None:
    """Move the positions after `low`, up to `high`, one position to the left."""
    for place in range(low, high):
        walk.held[place] = walk.held[place + 1]
    for place in range(low, high):
        walk.after[place] = walk.after[place + 1]
    for place in range(low, high):
        walk.freed[place] = walk.freed[place + 1]
    for place in range(low, high):
        run = walk.sequence[place + 1]
        walk.sequence[place] = run
        walk.place[run] = place


def _shift_right(walk: Walk, low: int, high: int) -> None:
    """Move the positions from `low` to before `high` one position to the right."""
    for back in range(high - low):
        walk.held[high - back] = walk.held[high - back - 1]
    for back in range(high - low):
        walk.after[high - back] = walk.after[high - back - 1]
    for back in range(high - low):
        walk.freed[high - back] = walk.freed[high - back - 1]
    for back in range(high - low):
        run = walk.sequence[high - back - 1]
        walk.sequence[high - back] = run
        walk.place[run] = high - back


def _stand(tables: Packed, walk: Walk, run: int, place: int) -> None:
    """Put a run at a free position, before its values are added."""
    walk.sequence[place] = run
    walk.place[run] = place
    walk.held[place] = walk.after[place - 1] + tables.workspace[walk.item[run]]
    walk.after[place] = walk.after[place - 1]
    walk.freed[place] = 0


def _note(walk: Walk, kind: int, run: int, item: int, start: int, to: int) -> None:
    at = walk.state.logged
    walk.kind[at] = kind
    walk.run[at] = run
    walk.what[at] = item
    walk.origin[at] = start
    walk.to[at] = to
    walk.state.logged = at + 1


def insert_run(tables: Packed, walk: Walk, item: int, place: int) -> bool:
    """Insert a run of an item at a position; return whether the sequence is valid. O(length)."""
    walk.state.spares -= 1
    run = walk.spare[walk.state.spares]
    _touch(tables, walk, item, -1)
    _shift_right(walk, place, walk.state.length)
    walk.state.length += 1
    walk.item[run] = item
    _stand(tables, walk, run, place)
    walk.copies[item, walk.counts[item]] = run
    walk.counts[item] += 1
    walk.state.spent += tables.time[item]
    _note(walk, INSERTED, run, item, place, place)
    return _touch(tables, walk, item, 1)


def delete_run(tables: Packed, walk: Walk, run: int) -> bool:
    """Delete a run; return whether the sequence is valid. O(length)."""
    item, place = walk.item[run], walk.place[run]
    _touch(tables, walk, item, -1)
    walk.state.length -= 1
    _shift_left(walk, place, walk.state.length)
    walk.counts[item] -= 1
    last = walk.copies[item, walk.counts[item]]
    for copy in range(walk.counts[item]):
        if walk.copies[item, copy] == run:
            walk.copies[item, copy] = last
    walk.spare[walk.state.spares] = run
    walk.state.spares += 1
    walk.state.spent -= tables.time[item]
    _note(walk, DELETED, run, item, place, place)
    return _touch(tables, walk, item, 1)


def move_run(tables: Packed, walk: Walk, run: int, to: int) -> bool:
    """Move a run to another position; return whether the sequence is valid. O(length)."""
    item, start = walk.item[run], walk.place[run]
    _touch(tables, walk, item, -1)
    if to > start:
        _shift_left(walk, start, to)
    else:
        _shift_right(walk, to, start)
    _stand(tables, walk, run, to)
    _note(walk, MOVED, run, item, start, to)
    return _touch(tables, walk, item, 1)


def undo(tables: Packed, walk: Walk) -> None:
    """Revert the changes of the current step."""
    while walk.state.logged > 0:
        at = walk.state.logged - 1
        # The log entries that undoing adds are discarded.
        kind, run, item, start = walk.kind[at], walk.run[at], walk.what[at], walk.origin[at]
        if kind == INSERTED:
            delete_run(tables, walk, run)
        elif kind == DELETED:
            insert_run(tables, walk, item, start)
        else:
            move_run(tables, walk, run, start)
        walk.state.logged = at


def over(tables: Packed, walk: Walk, budget: int) -> float:
    """Return the bytes above the budget, summed over the runs, plus `HEIGHT` times their maximum. O(length)."""
    limit = budget - tables.static
    total = 0
    most = 0
    if not walk.overlays:
        for place in range(1, walk.state.length):
            excess = max(0, walk.held[place] - limit)
            total += excess
            if excess > most:
                most = excess
                walk.state.highest = place
        return float(total) + HEIGHT * float(most)
    for place in range(1, walk.state.length):
        item = walk.item[walk.sequence[place]]
        excess = walk.held[place] - limit
        if tables.in_place[item]:
            excess -= min(tables.written[item], walk.freed[place])
        excess = max(0, excess)
        total += excess
        if excess > most:
            most = excess
            walk.state.highest = place
    return float(total) + HEIGHT * float(most)
