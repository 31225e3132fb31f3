"""The compiled kernel of rotor's table; its plain twin is `table.NumpyFiller`.

The inner loop adds two rows and keeps the minimum: about two double additions per memory access, so that it
runs at the speed of the caches. Segments (j, last) of the current column stay in the level-2 cache, segments
(first, j-1) are read once per (first, last) in the order in which they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from remat.plugin import IntArray
from remat_algorithms.chain.rotor.limit import Limit
from remat_algorithms.chain.rotor.table import RotorTable

FloatTable = NDArray[np.float64]


def filler(table: RotorTable, allowed: Limit) -> Callable[[int, int, int], None]:
    """Return the function that fills a column of a table for a range of states."""
    segments, grid, limits = table.segments, table.grid, table.limits
    states = segments.states
    shape = (len(states.stage), grid.rows)
    column, floor = np.empty(shape, dtype=np.float64), np.empty(len(states.stage), dtype=np.int64)
    forward_time = segments.forward_time.astype(np.float64)
    least = states.quickest()
    quickest = limits.time[least]
    leaf = np.minimum.reduceat(limits.leaf_time, states.start[:-1])
    # A stage that is processed alone may need no forward: then a split before the next stage saves one.
    alone = bool((leaf < quickest).any())
    common = (
        *(states.stage, states.free, states.start, states.inner, table.first_cell),
        *(limits.kept, limits.shift, limits.time, limits.leaf_time, limits.leaf_row),
        *(segments.first_need, segments.next_need, forward_time),
        *(quickest[states.free], leaf[states.free], alone, allowed.debt, allowed.spared),
        *(grid.budget, grid.unit, grid.start),
    )

    def fill(last: int, low: int, top: int) -> None:
        live = int(segments.gradient[last + 1])
        fill_states(last, low, top, live, table.time, column, floor, table.lowest, limits.save_row(last), *common)

    return fill


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"}, inline="never")  # type: ignore[untyped-decorator,unused-ignore]
def _relax(out: FloatTable, left: FloatTable, right: FloatTable, cost: float) -> None:
    for r in range(out.shape[0]):
        value = left[r] + (right[r] + cost)
        out[r] = min(value, out[r])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def fill_states(
    last: int,
    low_state: int,
    top_state: int,
    live: int,
    time: FloatTable,
    column: FloatTable,
    floor: IntArray,
    lowest: IntArray,
    save_row: IntArray,
    stage: IntArray,
    free: IntArray,
    start: IntArray,
    inner: IntArray,
    first_cell: IntArray,
    kept: IntArray,
    shift: IntArray,
    way_time: FloatTable,
    leaf_time: FloatTable,
    leaf_row: IntArray,
    first_need: IntArray,
    next_need: IntArray,
    forward_time: FloatTable,
    quickest: FloatTable,
    leaf_quickest: FloatTable,
    alone: bool,
    debt: FloatTable,
    spared: FloatTable,
    budget: int,
    unit: int,
    start_row: int,
) -> None:
    """Fill column `last` of the table for the states top_state-1 .. low_state.

    ``column[state]`` is the cell (state, last), ``floor[state]`` its first row that is not inf. A split at j
    costs at least the segment's time without recomputation, `whole`, plus a sweep that grows with j: rows that
    are already as good need not look at j or beyond. This skips most of the work where memory is not scarce.
    ``debt[state] + behind + excess`` is what a schedule that reads a row exceeds the limit by.
    """
    rows = time.shape[1]
    whole = leaf_quickest[last]
    for k in range(stage[top_state - 1] + 1, last):
        whole += quickest[k]
    reached = stage[top_state - 1] + 1
    split_off = last < len(forward_time)
    behind = 0.0
    if split_off:
        behind -= spared[last]
        for k in range(reached, last + 1):
            behind += forward_time[k]
    for state in range(top_state - 1, low_state - 1, -1):
        first = stage[state]
        if first < reached:
            reached = first
            if first < last:
                whole += quickest[first]
            if split_off:
                behind += forward_time[first]
        # Above `cap` there are more free rows than any schedule within the limit can still have.
        cap = np.searchsorted(debt[state], -behind, side="right")
        floor[state] = rows
        if cap == 0:
            continue
        out = column[state]
        out[:] = np.inf
        for way in range(start[state], start[state + 1]):
            if first == last:
                for r in range(leaf_row[way], cap):
                    out[r] = min(out[r], leaf_time[way])
            elif floor[inner[way]] < rows:
                k = kept[way]
                inside = column[inner[way]]
                for r in range(save_row[way], cap):
                    out[r] = min(out[r], inside[min(r - k, rows - 1)] + way_time[way])
        if first < last:
            high = cap
            need = first_need[first]
            swept = float(forward_time[first])
            sweep_row = min(rows, max(0, start_row - (budget - need - live) // unit))
            for j in range(first + 1, last + 1):
                saving = 0.0
                if j > first + 1:
                    if next_need[j - 1] > need:
                        need = next_need[j - 1]
                        sweep_row = min(rows, max(0, start_row - (budget - need - live) // unit))
                    saving = float(forward_time[j - 1])
                    swept += saving
                elif alone:
                    saving = swept
                beyond = swept - spared[j - 1] + behind
                while high > 0 and debt[state, high - 1] + beyond > 0:
                    high -= 1
                if high == 0:
                    break  # later splits sweep no less
                bound = whole + (swept - saving if alone else swept)
                k = shift[j]
                right = free[j]
                left = first_cell[state] + j - 1
                low = max(sweep_row, lowest[left], floor[right] + k)
                while high > low and out[high - 1] <= bound:
                    high -= 1
                if low < high:
                    _relax(out[low:high], time[left, low:high], column[right, low - k : high - k], swept)
        r = 0
        while r < cap and (out[r] == np.inf or out[r] - whole + behind + debt[state, r] > 0):
            out[r] = np.inf
            r += 1
        out[cap:] = out[cap - 1]
        floor[state] = r if r < cap else rows
        lowest[first_cell[state] + last] = floor[state]
        time[first_cell[state] + last] = out


def decisions(table: RotorTable, row: int) -> tuple[IntArray, IntArray]:
    """Return the splits and the ways that `RotorTable.runs` asks for, in its order (the twin is its `_choose`)."""
    segments, grid, limits = table.segments, table.grid, table.limits
    states = segments.states
    splits, ways = np.full((2, 2 * segments.length + 1), -1, dtype=np.int64)
    common: tuple[Any, ...] = (
        *(states.stage, states.free, states.start, states.inner, table.first_cell),
        *(limits.kept, limits.shift, limits.time, limits.leaf_time, limits.leaf_row),
        *(states.save_need, states.backward_need, segments.gradient, segments.first_need, segments.next_need),
        *(segments.forward_time.astype(np.float64), grid.budget, grid.unit, grid.start),
    )
    count = _decide(splits, ways, row, table.time, table.lowest, *common)
    return splits[:count], ways[:count]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def _decide(
    splits: IntArray,
    ways: IntArray,
    row: int,
    time: FloatTable,
    lowest: IntArray,
    stage: IntArray,
    free: IntArray,
    start: IntArray,
    inner: IntArray,
    first_cell: IntArray,
    kept: IntArray,
    shift: IntArray,
    way_time: FloatTable,
    leaf_time: FloatTable,
    leaf_row: IntArray,
    save_need: IntArray,
    backward_need: IntArray,
    gradient: IntArray,
    first_need: IntArray,
    next_need: IntArray,
    forward_time: FloatTable,
    budget: int,
    unit: int,
    start_row: int,
) -> int:
    """Write the decisions of a schedule; return their number, at most 2L + 1."""
    rows, length = time.shape[1], len(free) - 1
    stack = np.empty((2 * length + 2, 3), dtype=np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = free[0], length, row
    top, count = 1, 0
    while top > 0:
        top -= 1
        state, last, room = stack[top]
        first, live = stage[state], gradient[last + 1]
        best, split, chosen = np.inf, -1, -1
        for way in range(start[state], start[state + 1]):
            if first == last:
                if room >= leaf_row[way] and leaf_time[way] < best:
                    best, chosen = leaf_time[way], way
                continue
            under = min(room - kept[way], rows - 1)
            cell = first_cell[inner[way]] + last
            need = max(save_need[way] + live, backward_need[way])
            if under >= lowest[cell] and room >= start_row - (budget - need) // unit:
                cost = way_time[way] + time[cell, under]
                if cost < best:
                    best, chosen = cost, way
        need, swept = np.int64(0), 0.0
        for j in range(first + 1, last + 1):
            need = first_need[first] if j == first + 1 else max(need, next_need[j - 1])
            swept += forward_time[j - 1]
            under = room - shift[j]
            if room < start_row - (budget - need - live) // unit:
                break
            left, right = first_cell[state] + j - 1, first_cell[free[j]] + last
            if under >= lowest[right] and room >= lowest[left]:
                cost = time[left, room] + (time[right, under] + swept)
                if cost < best:
                    best, split = cost, j
        splits[count], ways[count] = split, chosen
        count += 1
        if split >= 0:
            stack[top, 0], stack[top, 1], stack[top, 2] = state, split - 1, room
            stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = free[split], last, room - shift[split]
            top += 2
        elif first < last:
            stack[top, 0], stack[top, 1], stack[top, 2] = inner[chosen], last, room - kept[chosen]
            top += 1
    return count
