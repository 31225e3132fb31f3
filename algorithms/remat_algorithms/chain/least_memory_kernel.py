"""The compiled kernel of the least-memory table; its plain twin is `LeastMemory.fill_column`."""

from __future__ import annotations

from collections.abc import Callable

from numba import njit

from remat.plugin import IntArray, NumberArray
from remat_algorithms.chain.segments import Segments


def filler(segments: Segments, need: IntArray, time: NumberArray) -> Callable[[int, bool], None]:
    """Return the function that fills a column of both tables, with splits or without."""
    states = segments.states
    common = (
        *(states.stage, states.free, states.start, states.inner),
        *(states.kept, states.save_need, states.backward_need, states.leaf_need),
        *(states.time, states.leaf_time),
        *(segments.first_need, segments.next_need, segments.activation, segments.gradient, segments.forward_time),
    )

    def fill(last: int, splits: bool) -> None:
        fill_column(last, splits, need, time, *common)

    return fill


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def fill_column(
    last: int,
    splits: bool,
    need: IntArray,
    time: NumberArray,
    stage: IntArray,
    free: IntArray,
    start: IntArray,
    inner: IntArray,
    kept: IntArray,
    save_need: IntArray,
    backward_need: IntArray,
    leaf_need: IntArray,
    way_time: NumberArray,
    leaf_time: NumberArray,
    first_need: IntArray,
    next_need: IntArray,
    activation: IntArray,
    gradient: IntArray,
    forward_time: NumberArray,
) -> None:
    """Fill column `last` of both tables (arrays as in `States` and `Segments`)."""
    live = gradient[last + 1]
    for state in range(need.shape[0] - 1, -1, -1):
        first = stage[state]
        if first > last:
            continue
        least, quickest = need[state, last], time[state, last]
        for way in range(start[state], start[state + 1]):
            if first == last:
                wanted, cost = leaf_need[way], leaf_time[way]
            else:
                wanted = max(save_need[way] + live, kept[way] + need[inner[way], last], backward_need[way])
                cost = way_time[way] + time[inner[way], last]
            if way == start[state] or wanted < least or (wanted == least and cost < quickest):
                least, quickest = wanted, cost
        if splits and first < last:
            sweep = first_need[first]
            swept = forward_time[first]
            for split in range(first + 1, last + 1):
                if split > first + 1:
                    sweep = max(sweep, next_need[split - 1])
                    swept += forward_time[split - 1]
                if sweep + live > least:
                    break  # sweeps only need more the further they go
                right = free[split]
                wanted = max(sweep + live, activation[split] + need[right, last], need[state, split - 1])
                if wanted <= least:
                    cost = swept + time[right, last] + time[state, split - 1]
                    if wanted < least or cost < quickest:
                        quickest = cost
                    least = wanted
        need[state, last] = least
        time[state, last] = quickest
