"""The compiled kernel of the least-memory table; its plain twin is the loop of `LeastMemory.of`."""

from __future__ import annotations

from numba import njit

from remat.taskgraph import IntArray, NumberArray


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def fill(
    need: IntArray,
    time: NumberArray,
    leaf_need: IntArray,
    leaf_time: NumberArray,
    save_need: IntArray,
    kept: IntArray,
    backward_need: IntArray,
    gradient: IntArray,
    first_need: IntArray,
    next_need: IntArray,
    activation: IntArray,
    save_time: NumberArray,
    forward_time: NumberArray,
) -> None:
    """Fill both tables, column by column (arrays as in `Segments`)."""
    for last in range(need.shape[0]):
        live = gradient[last + 1]
        need[last, last] = leaf_need[last]
        time[last, last] = leaf_time[last]
        for first in range(last - 1, -1, -1):
            least = max(save_need[first] + live, kept[first] + need[first + 1, last], backward_need[first])
            quickest = save_time[first] + time[first + 1, last]
            sweep = first_need[first]
            swept = forward_time[first]
            for split in range(first + 1, last + 1):
                if split > first + 1:
                    sweep = max(sweep, next_need[split - 1])
                    swept += forward_time[split - 1]
                if sweep + live > least:
                    break  # sweeps only need more the further they go
                wanted = max(sweep + live, activation[split] + need[split, last], need[first, split - 1])
                if wanted <= least:
                    cost = swept + time[split, last] + time[first, split - 1]
                    if wanted < least or cost < quickest:
                        quickest = cost
                    least = wanted
            need[first, last] = least
            time[first, last] = quickest
