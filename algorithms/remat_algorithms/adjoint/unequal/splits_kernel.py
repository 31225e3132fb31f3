"""Levels of `walther-griewank` for reads and writes without time, in machine code (see `kit.compile`).

The smallest optimal split is then monotone, j(i, k-1) <= j(i, k) <= j(i+1, k), since the minimised sum satisfies the
quadrangle inequality. A row takes O(n) sums instead of O(n^2). Integral times only: rounded sums tie elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remat.plugin import Context, IntArray
from remat_algorithms.kit.compile.lowering import Kernel


class Level(NamedTuple):
    """The level being filled, the one below it, and the splits P(i+1, k, c) of the row filled last."""

    lower: IntArray
    table: IntArray
    ends: IntArray
    split: IntArray


def fill_row(level: Level, i: int) -> None:
    """Fill the row of the ranges that begin at `i`; the row of `i` + 1 must be filled."""
    first = i + 1
    for k in range(i + 1, level.ends.shape[0]):
        last = k
        if k > i + 1:
            last = level.split[k]
        at = first
        best = level.ends[first] + level.lower[first, k - first] + level.table[i, first - 1 - i]
        for j in range(first + 1, last + 1):
            cost = level.ends[j] + level.lower[j, k - j] + level.table[i, j - 1 - i]
            if cost < best:
                best = cost
                at = j
        level.table[i, k - i] = best - level.ends[i]
        level.split[k] = at
        first = at


FILL_ROW = Kernel(fill_row)


def monotone_level(lower: IntArray, ends: IntArray, context: Context | None) -> IntArray | None:
    """Return P(., ., c) from P(., ., c-1); None if the context stops it."""
    n = len(ends)
    table = np.zeros((n, n), dtype=np.int64)
    fill = FILL_ROW.bind(Level(lower, table, ends, np.zeros(n, dtype=np.int64)))
    for i in range(n - 2, -1, -1):
        if context is not None and context.stopped:
            return None
        fill(i)
    return table
