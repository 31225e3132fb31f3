"""Useful runs, copies, gaps and drops of an order of runs (see `swaps.Order`)."""

from __future__ import annotations

from remat_algorithms.offload.swaps.order_kernel.kernel_structs import NONE, Given, Runs


def look(given: Given, runs: Runs, count: int) -> bool:
    """Analyse `count` runs; return whether all their reads are resident. O(accesses)."""
    figures = runs.figures
    figures.copies = 0
    figures.gaps = 0
    figures.drops = 0
    _keep_useful(given, runs, count)
    for place in range(figures.runs):
        runs.drop_head[place] = NONE
    for value in range(len(given.size)):
        runs.current[value] = NONE
    for entry in range(len(given.inputs)):
        _begin(runs, given.inputs[entry], NONE)
    for place in range(figures.runs):
        task = runs.task[place]
        for entry in range(given.read_start[task], given.read_start[task + 1]):
            if not _read(given, runs, given.read[entry], place):
                return False
        for entry in range(given.write_start[task], given.write_start[task + 1]):
            value = given.write[entry]
            old = runs.current[value]
            if old != NONE:
                # A run that reads and writes a value replaces the old copy itself.
                if runs.last[old] != place:
                    _end(given, runs, old)
                runs.next_run[old] = place
            _begin(runs, value, place)
    for entry in range(len(given.outputs)):
        if not _read(given, runs, given.outputs[entry], figures.runs):
            return False
    for value in range(len(given.size)):
        if runs.current[value] != NONE and given.stays[value] == 0:
            _end(given, runs, runs.current[value])
    return True


def _keep_useful(given: Given, runs: Runs, count: int) -> None:
    """Leave out runs all of whose values are dropped unread; keep one run of a mandatory task."""
    # `current` tells which values are wanted.
    for value in range(len(given.size)):
        runs.current[value] = 1 if given.stays[value] or given.pinned[value] else 0
    for task in range(len(given.must)):
        runs.left[task] = 0
    for place in range(count):
        runs.left[runs.asked[place]] += 1
    at = count
    for back in range(count):
        task = runs.asked[count - 1 - back]
        wanted = given.must[task] != 0 and runs.left[task] == 1
        for entry in range(given.write_start[task], given.write_start[task + 1]):
            if runs.current[given.write[entry]]:
                wanted = True
        if not wanted:
            runs.left[task] -= 1
            continue
        at -= 1
        runs.task[at] = task
        for entry in range(given.write_start[task], given.write_start[task + 1]):
            if given.pinned[given.write[entry]] == 0:
                runs.current[given.write[entry]] = 0
        for entry in range(given.read_start[task], given.read_start[task + 1]):
            runs.current[given.read[entry]] = 1
    runs.figures.runs = count - at
    for place in range(count - at):
        runs.task[place] = runs.task[at + place]


def _begin(runs: Runs, value: int, place: int) -> None:
    copy = runs.figures.copies
    runs.figures.copies += 1
    runs.current[value] = copy
    runs.value[copy] = value
    runs.written[copy] = place
    runs.last[copy] = place
    runs.first_gap[copy] = NONE
    runs.latest_gap[copy] = NONE
    runs.next_run[copy] = NONE


def _read(given: Given, runs: Runs, value: int, place: int) -> bool:
    """Record an access; a value that must not be freed has no gaps."""
    copy = runs.current[value]
    if copy == NONE:
        return False
    if given.pinned[value] == 0:
        gap = runs.figures.gaps
        runs.figures.gaps += 1
        runs.gap_value[gap] = value
        runs.gap_after[gap] = runs.last[copy]
        runs.gap_before[gap] = place
        runs.gap_next[gap] = NONE
        if runs.first_gap[copy] == NONE:
            runs.first_gap[copy] = gap
        else:
            runs.gap_next[runs.latest_gap[copy]] = gap
        runs.latest_gap[copy] = gap
    runs.last[copy] = place
    return True


def _end(given: Given, runs: Runs, copy: int) -> None:
    """Free a copy with its last use."""
    place, entry = runs.last[copy], runs.figures.drops
    if place == NONE or given.pinned[runs.value[copy]]:
        return
    runs.drop_value[entry] = runs.value[copy]
    runs.drop_next[entry] = runs.drop_head[place]
    runs.drop_head[place] = entry
    runs.figures.drops = entry + 1
