"""The table behind all planners: layers in a row, cut into consecutive stages by dynamic programming (Bellman 1961).

Cuts of n layers into k stages are 0 = c_0 < c_1 < ... < c_k = n; stage s holds layers c_s .. c_{s+1} - 1. A *measure*
gives for a stage of layers i .. j - 1 what it costs by itself (`alone`), and what it adds to all that follows (`then`):

    V_0(n) = 0,   V_k(i) = min over j > i of max(alone_k(i, j), then_k(i, j) + V_{k-1}(j))

With `alone` only that is the largest of the stages' costs, with `then` only their sum; with both, a latency. Stages are
counted from the last one, as everything that a schedule keeps for a stage depends on how many follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from remat.plugin import IntArray

FloatArray = NDArray[Any]

CELLS = 2**17
"""Stages that are weighed at once: few enough to stay in a cache."""


class Costs(NamedTuple):
    """Costs of the stages that begin at some layers i, with all ends j: one row an i."""

    alone: FloatArray | None
    then: FloatArray | None


@dataclass(frozen=True)
class Measure:
    """What stages cost at one place.

    Attributes
    ----------
    reach : (n,) int64
        The last end that a stage from each layer on can have; no more than the layer itself where it can have none.
    costs : callable
        ``costs(first, last, end)``: of stages from i = first .. last - 1 on, to j = first + 1 .. end; those that cannot
        be are left out by `reach`, whatever stands for them.
    """

    reach: IntArray
    costs: Callable[[int, int, int], Costs]


@dataclass(frozen=True)
class Table:
    """Best values and cuts of all rests of the layers.

    Attributes
    ----------
    values : list of (n + 1,) arrays
        ``values[k][i]``: the best value of layers i .. n - 1 in k stages; infinite where there is none.
    ends : list of (n + 1,) arrays
        ``ends[k][i]``: where the first of these stages ends.
    """

    values: list[FloatArray]
    ends: list[IntArray]

    def value(self, stages: int) -> float:
        """Return the best value of all layers in so many stages; infinite where there is none."""
        return float(self.values[stages][0])

    def cuts(self, stages: int) -> list[int]:
        """Return the cuts that have it, from 0 to n; there must be some."""
        found = [0]
        for left in range(stages, 0, -1):
            found.append(int(self.ends[left][found[-1]]))
        return found


def fill(length: int, measures: Iterable[Measure]) -> Table:
    """Fill the table, one measure a stage, from the last stage on: O(stages x layers^2) array operations."""
    last = np.full(length + 1, np.inf)
    last[length] = 0.0
    values, ends = [last], [np.full(length + 1, length, dtype=np.int64)]
    for measure in measures:
        best, end = put_before(measure, values[-1])
        values.append(best)
        ends.append(end)
    return Table(values, ends)


def put_before(measure: Measure, rest: FloatArray) -> tuple[FloatArray, IntArray]:
    """Put one more stage before the rest; of stages that are equally good, the longest."""
    length = len(rest) - 1
    best = np.full(length + 1, np.inf)
    ends = np.full(length + 1, length, dtype=np.int64)
    first = 0
    while first < length:
        wide = max(1, int(measure.reach[first]) - first)
        last = min(length, first + max(1, min(max(100, wide), CELLS // wide)))
        reach = measure.reach[first:last]
        end = int(reach.max())
        if end > first:
            alone, then = measure.costs(first, last, end)
            total = rest[first + 1 : end + 1] if then is None else then + rest[first + 1 : end + 1]
            if alone is not None:
                total = np.maximum(alone, total)
            columns = np.arange(first + 1, end + 1)
            begins = np.arange(first, last)[:, None]
            total = np.where((columns > begins) & (columns <= reach[:, None]), total, np.inf)
            chosen = end - first - 1 - np.argmin(total[:, ::-1], axis=1)
            best[first:last] = total[np.arange(last - first), chosen]
            ends[first:last] = chosen + first + 1
        first = last
    return best, ends
