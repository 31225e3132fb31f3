"""Simulated annealing over sequences of runs, interpreted or compiled.

A step moves a run, inserts a rerun, or deletes one. The search accepts it if it lowers time + price * bytes above the
budget. Otherwise it accepts the step with a probability that falls with the increase and rises with the temperature.
"""

from __future__ import annotations

import math

from remat_algorithms.dag.anytime.local_search.run_sequence import (
    COPIES,
    Walk,
    delete_run,
    enter,
    insert_run,
    list_accesses,
    move_run,
    over,
    undo,
)
from remat_algorithms.dag.plans.plans import drawn, sort
from remat_algorithms.dag.plans.records import Packed

MOVES, INSERTIONS = 0.5, 0.75
"""Cumulative shares of the steps that move a run, and of those that insert reruns; the others delete one."""

REACH = 9.0
"""Exponent of two that bounds the distance of a move, in positions."""

DEEPER = 0.6
"""Share of the dead inputs of a rerun that are recomputed with it, rather than kept longer."""

FEW = 12
"""Maximum number of reruns of one step; more than twice as many changes do not fit into the log."""

AIMED = 0.5
"""Share of the insertions that reduce the highest memory, if that is above the budget."""

TRIES = 40
"""Draws to find a run that is a rerun, or a value that is resident at the highest memory."""


def _earliest(walk: Walk, item: int) -> int:
    """Return the position of an item's first run."""
    place = walk.state.length
    for copy in range(walk.counts[item]):
        place = min(place, walk.place[walk.copies[item, copy]])
    return int(place)


def _next_access(walk: Walk, value: int, at: int) -> int:
    """Return the first access of a value from a position on: 2 * position, plus 1 for a write; -1 if there is none."""
    for index in range(list_accesses(walk, value)):
        if walk.buffer[index] >= 2 * at:
            return int(walk.buffer[index])
    return -1


def _last_access(walk: Walk, value: int, at: int) -> int:
    """Return the position of the last access of a value before a position; -1 if there is none."""
    last = -1
    for index in range(list_accesses(walk, value)):
        if walk.buffer[index] < 2 * at:
            last = walk.buffer[index] // 2
    return last


def _move(tables: Packed, walk: Walk) -> bool:
    """Move a run between its inputs' producers and its readers, usually not far; False if it cannot move."""
    run = walk.sequence[1 + int(drawn(walk.draws) * (walk.state.length - 1))]
    item, place = walk.item[run], walk.place[run]
    reach = int(math.pow(2.0, REACH * drawn(walk.draws)))
    low, high = max(1, place - reach), min(walk.state.length - 1, place + reach)
    for entry in range(tables.read_start[item], tables.read_start[item + 1]):
        producer = walk.producer[tables.read[entry]]
        if producer >= 0:
            low = max(low, _earliest(walk, producer) + 1)
    if walk.counts[item] == 1:
        for entry in range(tables.write_start[item], tables.write_start[item + 1]):
            value = tables.write[entry]
            for other in range(walk.reader_start[value], walk.reader_start[value + 1]):
                high = min(high, _earliest(walk, walk.readers[other]) - 1)
    if high <= low:
        return False
    to = low + int(drawn(walk.draws) * (high - low))
    if to >= place:
        to += 1
    return move_run(tables, walk, run, to)


def _can_repeat(tables: Packed, walk: Walk, value: int) -> bool:
    """Whether the producer of a value may run once more."""
    producer = walk.producer[value]
    if producer < 0 or tables.pinned[value] or not tables.repeat[producer]:
        return False
    return bool(walk.counts[producer] < COPIES)


def _insert(tables: Packed, walk: Walk) -> bool:
    """Recompute a value just before a run that reads it, with some of its dead inputs; False if that is impossible."""
    at = 0
    value = -1
    if walk.state.over > 0.0 and drawn(walk.draws) < AIMED:
        for _ in range(TRIES):
            value = int(drawn(walk.draws) * tables.value_count)
            access = _next_access(walk, value, walk.state.highest + 1)
            if access >= 0 and access % 2 == 0:
                at = access // 2
                break
    else:
        at = 1 + int(drawn(walk.draws) * (walk.state.length - 1))
        reader = walk.item[walk.sequence[at]]
        low, high = tables.read_start[reader], tables.read_start[reader + 1]
        if low == high:
            return False
        value = tables.read[low + int(drawn(walk.draws) * (high - low))]
    if at == 0 or walk.state.spares <= FEW or walk.state.length + FEW >= len(walk.held):
        return False
    if not _can_repeat(tables, walk, value) or at - _last_access(walk, value, at) < 2:
        return False
    walk.list[0] = walk.producer[value]
    walk.state.listed = 1
    index = 0
    while index < walk.state.listed:
        item = walk.list[index]
        index += 1
        for entry in range(tables.read_start[item], tables.read_start[item + 1]):
            read = tables.read[entry]
            if walk.state.listed == FEW or not _can_repeat(tables, walk, read) or drawn(walk.draws) > DEEPER:
                continue
            access = _next_access(walk, read, at)
            if (access < 0 or access % 2 == 1) and not _listed(walk, walk.producer[read]):
                walk.list[walk.state.listed] = walk.producer[read]
                walk.state.listed += 1
    # Item numbers are in topological order.
    sort(walk.list, walk.state.listed)
    valid = True
    for index in range(walk.state.listed):
        valid = insert_run(tables, walk, walk.list[index], at + index) and valid
    return valid


def _listed(walk: Walk, item: int) -> bool:
    found = False
    for index in range(walk.state.listed):
        found = found or walk.list[index] == item
    return found


def _delete(tables: Packed, walk: Walk) -> bool:
    """Delete a run of an item with several, and runs that only it needed; False if that is impossible."""
    run = -1
    for _ in range(TRIES):
        other = walk.sequence[1 + int(drawn(walk.draws) * (walk.state.length - 1))]
        if walk.counts[walk.item[other]] > 1:
            run = other
            break
    if run < 0:
        return False
    walk.list[0] = run
    walk.state.listed = 1
    index = 0
    while index < walk.state.listed:
        run = walk.list[index]
        index += 1
        item, at = walk.item[run], walk.place[run]
        if walk.counts[item] == 1:
            continue
        if not delete_run(tables, walk, run):
            return False
        for entry in range(tables.read_start[item], tables.read_start[item + 1]):
            producer = walk.producer[tables.read[entry]]
            if producer < 0 or walk.counts[producer] < 2 or walk.state.listed == FEW:
                continue
            before = -1
            for copy in range(walk.counts[producer]):
                place = walk.place[walk.copies[producer, copy]]
                if before < place < at:
                    before = place
            if before > 0 and _is_idle(tables, walk, producer, before):
                other = walk.sequence[before]
                if not _listed(walk, other):
                    walk.list[walk.state.listed] = other
                    walk.state.listed += 1
    return True


def _is_idle(tables: Packed, walk: Walk, item: int, place: int) -> bool:
    """Whether no run reads the outputs of a run at a position."""
    for entry in range(tables.write_start[item], tables.write_start[item + 1]):
        access = _next_access(walk, tables.write[entry], place + 1)
        if access < 0 or access % 2 == 0:
            return False
    return True


def anneal(tables: Packed, walk: Walk, budget: int, steps: int) -> bool:
    """Make some steps at the current temperature and price; return whether the best sequence has changed.

    O(length of the sequence) each. `walk.state.stop` ends it early.
    """
    better = False
    walk.state.over = over(tables, walk, budget)
    for _ in range(steps):
        if walk.state.stop != 0:
            break
        walk.state.logged = 0
        spent = walk.state.spent
        kind = drawn(walk.draws)
        if kind < MOVES:
            valid = _move(tables, walk)
        elif kind < INSERTIONS:
            valid = _insert(tables, walk)
        else:
            valid = _delete(tables, walk)
        if walk.state.logged == 0:
            continue
        area = over(tables, walk, budget)
        more = walk.state.spent - spent + walk.state.price * (area - walk.state.over)
        if not valid or (more > 0.0 and drawn(walk.draws) >= math.exp(-more / walk.state.heat)):
            undo(tables, walk)
            walk.state.spent = spent
            continue
        walk.state.over = area
        if area == 0.0 and walk.state.spent < walk.state.best_time - 1e-6:
            walk.state.best_time = walk.state.spent
            length = walk.state.length
            walk.state.best_length = length
            for place in range(length):
                walk.best[place] = walk.item[walk.sequence[place]]
            better = True
    return better


def follow(tables: Packed, walk: Walk, budget: int) -> bool:
    """Make `best` the current sequence; return whether it is valid and fits. O(length of the sequence, squared)."""
    longest = len(walk.held)
    for place in range(longest):
        walk.held[place] = 0
        walk.after[place] = 0
        walk.freed[place] = 0
        # In reverse order, since they are taken from the end; run 0 is the dummy at position 0.
        walk.spare[place] = longest - 1 - place
    walk.state.spares = longest - 1
    walk.state.length = 1
    walk.state.spent = 0.0
    for item in range(len(walk.counts)):
        walk.counts[item] = 0
    for value in range(tables.value_count):
        enter(tables, walk, value, 1)
    valid = True
    for place in range(1, walk.state.best_length):
        walk.state.logged = 0
        valid = insert_run(tables, walk, walk.best[place], place) and valid
    walk.state.over = over(tables, walk, budget)
    return valid and walk.state.over == 0.0


def act(tables: Packed, walk: Walk, budget: int, steps: int) -> bool:
    """Anneal for `steps` steps, or follow the best sequence if `steps` is 0. One entry point saves compile time."""
    if steps == 0:
        return follow(tables, walk, budget)
    return anneal(tables, walk, budget, steps)
