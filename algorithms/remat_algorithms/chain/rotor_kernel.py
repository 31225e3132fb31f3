"""The compiled kernel of rotor's table; its plain twin is `rotor_table.fill_column_numpy`.

The inner loop adds two rows and keeps the minimum: about two double additions per memory access, so that it
runs at the speed of the caches. Segments (j, last) of the current column stay in the level-2 cache, segments
(first, j-1) are read once per (first, last) in the order in which they lie.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from remat.taskgraph import IntArray

FloatTable = NDArray[np.float64]


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"}, inline="never")  # type: ignore[untyped-decorator,unused-ignore]
def _relax(out: FloatTable, left: FloatTable, right: FloatTable, cost: float) -> None:
    for r in range(out.shape[0]):
        value = left[r] + (right[r] + cost)
        out[r] = min(value, out[r])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def fill_column(
    last: int,
    time: FloatTable,
    column: FloatTable,
    kept: IntArray,
    shift: IntArray,
    save_time: FloatTable,
    leaf_time: FloatTable,
    leaf_row: IntArray,
    save_row: IntArray,
    sweep_row: IntArray,
    sweep_time: FloatTable,
    whole_row: IntArray,
) -> None:
    """Fill column `last` of the table (see the twin); ``column[j]`` is segment (j, last), not shifted.

    A split at j costs at least the segment's time without recomputation, `whole`, plus the sweep to j, which
    grows with j: rows that are already as good need not look at j or beyond. This skips most of the work
    where memory is not scarce.
    """
    rows = time.shape[2]
    lowest = np.empty(time.shape[0], dtype=np.int64)  # first row of segment (j, last) that is finite
    whole = leaf_time[last]
    for first in range(last, -1, -1):
        out = column[first]
        out[:] = np.inf
        if first < last:
            whole += save_time[first]
        if first == last:
            for r in range(leaf_row[first], rows):
                out[r] = leaf_time[first]
        else:
            k = kept[first]
            for r in range(max(save_row[first], k), rows):
                out[r] = column[first + 1, min(r - k, rows - 1)] + save_time[first]
            high = min(whole_row[first], rows)
            for j in range(first + 1, last + 1):
                k = shift[j]
                low = max(sweep_row[first, j], lowest[j] + k)
                bound = whole + sweep_time[first, j]
                while high > low and out[high - 1] <= bound:
                    high -= 1
                if low < high:
                    _relax(
                        out[low:high], time[first, j - 1, low:high], column[j, low - k : high - k], sweep_time[first, j]
                    )
        r = 0
        while r < rows and out[r] == np.inf:
            r += 1
        lowest[first] = r
        time[first, last] = out
