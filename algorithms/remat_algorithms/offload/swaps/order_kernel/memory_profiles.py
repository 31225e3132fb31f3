"""The bytes that each run must hold if no value stays longer than necessary (see `program.planned_profile`)."""

from __future__ import annotations

from remat_algorithms.offload.swaps.order_kernel.kernel_structs import NONE, Array, Given, Moves, Runs


def plan_profile(given: Given, runs: Runs, moves: Moves, transfers: int, profile: Array) -> None:
    """Fill the profile of the runs and the first `transfers` transfers.

    O(runs + transfers). The lists of a value's accesses are short, and sorted except for its transfers.
    """
    count = runs.figures.runs
    _list(given, runs, moves, transfers)
    for place in range(count + 1):
        runs.change[place] = 0
    runs.change[0] = given.static
    for value in range(len(given.size)):
        _enter(runs, moves, value, given.size[value])
    level = 0
    for place in range(count):
        level += runs.change[place]
        task = runs.task[place]
        profile[place] = level + given.workspace[task] - reused_at(given, runs, moves, place, transfers > 0)


def reused_at(given: Given, runs: Runs, moves: Moves, place: int, away: bool) -> int:
    """Return the bytes of inputs that a run in place takes over when it ends: dropped, or away by then."""
    task = runs.task[place]
    if given.in_place[task] == 0:
        return 0
    freed = dropped_bytes(given, runs, moves, place)
    if away:
        transfer = moves.used_head[place]
        while transfer != NONE:
            if max(moves.ready[transfer], moves.begin[transfer]) < place:
                freed += read_bytes(given, task, moves.move_value[transfer])
            transfer = moves.used_next[transfer]
    return min(freed, written_bytes(given, task))


def dropped_bytes(given: Given, runs: Runs, moves: Moves, place: int) -> int:
    """Return the bytes that a run reads and drops."""
    freed = 0
    entry = moves.drops[place]
    while entry != NONE:
        freed += read_bytes(given, runs.task[place], runs.drop_value[entry])
        entry = runs.drop_next[entry]
    return freed


def read_bytes(given: Given, task: int, value: int) -> int:
    """Return the size of a value, or 0 if a task does not read it."""
    for entry in range(given.read_start[task], given.read_start[task + 1]):
        if given.read[entry] == value:
            return given.size[value]  # type: ignore[no-any-return]
    return 0


def written_bytes(given: Given, task: int) -> int:
    """Return the bytes that a task writes."""
    total = 0
    for entry in range(given.write_start[task], given.write_start[task + 1]):
        total += given.size[given.write[entry]]
    return total


def _list(given: Given, runs: Runs, moves: Moves, transfers: int) -> None:
    """List when each value arrives, and when it goes."""
    count, values = runs.figures.runs, len(given.size)
    for value in range(values + 1):
        moves.open_start[value] = 0
        moves.close_start[value] = 0
    # Counted first, shifted by one place: the counts before a value then end where its own begin.
    for entry in range(len(given.inputs)):
        moves.open_start[given.inputs[entry]] += 1
    for place in range(count):
        task = runs.task[place]
        for entry in range(given.write_start[task], given.write_start[task + 1]):
            moves.open_start[given.write[entry]] += 1
        dropped = moves.drops[place]
        while dropped != NONE:
            moves.close_start[runs.drop_value[dropped]] += 1
            dropped = runs.drop_next[dropped]
    for transfer in range(transfers):
        value = moves.move_value[transfer]
        if moves.leaves[transfer]:
            moves.close_start[value] += 1
        else:
            moves.open_start[value] += 1
    opened, closed = 0, 0
    for value in range(values + 1):
        opened += moves.open_start[value]
        closed += moves.close_start[value]
        moves.open_start[value] = opened
        moves.close_start[value] = closed
    # Filled from the back: each row ends up sorted except for the transfers, which come first.
    for back in range(count):
        place = count - 1 - back
        task = runs.task[place]
        for entry in range(given.write_start[task], given.write_start[task + 1]):
            _put(moves.open_start, moves.opens, given.write[entry], place)
        dropped = moves.drops[place]
        while dropped != NONE:
            _put(moves.close_start, moves.closes, runs.drop_value[dropped], place)
            dropped = runs.drop_next[dropped]
    for entry in range(len(given.inputs)):
        _put(moves.open_start, moves.opens, given.inputs[entry], 0)
    for transfer in range(transfers):
        value, ready = moves.move_value[transfer], moves.ready[transfer]
        if moves.leaves[transfer]:
            _put(moves.close_start, moves.closes, value, max(moves.last_use[transfer], max(ready, 0)))
        elif moves.begin[transfer] >= 0:
            _put(moves.open_start, moves.opens, value, max(ready + 1, moves.begin[transfer]))
        else:
            _put(moves.open_start, moves.opens, value, min(moves.needed[transfer], count - 1))


def _put(starts: Array, entries: Array, value: int, place: int) -> None:
    """Insert a place in order before those of its value."""
    starts[value] -= 1
    at = starts[value]
    entries[at] = place


def _sort(entries: Array, low: int, high: int) -> None:
    for end in range(low + 1, high):
        place = entries[end]
        at = end
        while at > low and entries[at - 1] > place:
            entries[at] = entries[at - 1]
            at -= 1
        entries[at] = place


def _enter(runs: Runs, moves: Moves, value: int, size: int) -> None:
    """Pair the arrivals and departures of a value, and enter its bytes."""
    count = runs.figures.runs
    low, high = moves.open_start[value], moves.open_start[value + 1]
    used, ends = moves.close_start[value], moves.close_start[value + 1]
    _sort(moves.opens, low, high)
    _sort(moves.closes, used, ends)
    for at in range(low, high):
        start = moves.opens[at]
        following = count
        if at + 1 < high:
            following = moves.opens[at + 1]
        while used < ends and moves.closes[used] < start:
            used += 1
        end = count - 1
        if used < ends:
            end = moves.closes[used]
        if end < following or following == start:
            used += 1
        else:
            end = following  # the old and the new version of a value are both resident while it is overwritten
        if start <= end:
            runs.change[start] += size
            runs.change[end + 1] -= size
