"""Compiled kernel of the minimum-memory table; its plain twin is `LeastMemory.fill_column`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from remat.plugin import IntArray, NumberArray
from remat_algorithms.chain.segments import Segments
from remat_algorithms.kit.compile.lowering import Kernel


class Columns(NamedTuple):
    """Both tables, and their inputs (arrays as in `States` and `Segments`)."""

    need: IntArray
    time: NumberArray
    stage: IntArray
    free: IntArray
    start: IntArray
    inner: IntArray
    kept: IntArray
    save_need: IntArray
    backward_need: IntArray
    leaf_need: IntArray
    way_time: NumberArray
    leaf_time: NumberArray
    first_need: IntArray
    next_need: IntArray
    activation: IntArray
    gradient: IntArray
    forward_time: NumberArray

    @staticmethod
    def of(segments: Segments, need: IntArray, time: NumberArray) -> Columns:
        """Build the record."""
        states = segments.states
        given = (
            *(states.stage, states.free, states.start, states.inner),
            *(states.kept, states.save_need, states.backward_need, states.leaf_need),
            *(states.time, states.leaf_time),
            *(segments.first_need, segments.next_need, segments.activation, segments.gradient, segments.forward_time),
        )
        return Columns(need, time, *map(np.ascontiguousarray, given))


def filler(segments: Segments, need: IntArray, time: NumberArray) -> Callable[[int, bool], None]:
    """Return the function that fills a column of both tables, with splits or without."""
    return FILL_COLUMN.bind(Columns.of(segments, need, time))


def fill_column(table: Columns, last: int, splits: bool) -> None:
    """Fill column `last` of both tables."""
    need, time = table.need, table.time
    live = table.gradient[last + 1]
    for state in range(need.shape[0] - 1, -1, -1):
        first = table.stage[state]
        if first > last:
            continue
        least, quickest = need[state, last], time[state, last]
        for way in range(table.start[state], table.start[state + 1]):
            if first == last:
                wanted, cost = table.leaf_need[way], table.leaf_time[way]
            else:
                inside = table.kept[way] + need[table.inner[way], last]
                wanted = max(table.save_need[way] + live, inside, table.backward_need[way])
                cost = table.way_time[way] + time[table.inner[way], last]
            if way == table.start[state] or wanted < least or (wanted == least and cost < quickest):
                least, quickest = wanted, cost
        if splits and first < last:
            sweep = table.first_need[first]
            swept = table.forward_time[first]
            for split in range(first + 1, last + 1):
                if split > first + 1:
                    sweep = max(sweep, table.next_need[split - 1])
                    swept += table.forward_time[split - 1]
                if sweep + live > least:
                    break  # longer sweeps never need less
                right = table.free[split]
                wanted = max(sweep + live, table.activation[split] + need[right, last], need[state, split - 1])
                if wanted <= least:
                    cost = swept + time[right, last] + time[state, split - 1]
                    if wanted < least or cost < quickest:
                        quickest = cost
                    least = wanted
        need[state, last] = least
        time[state, last] = quickest


FILL_COLUMN = Kernel(fill_column)
