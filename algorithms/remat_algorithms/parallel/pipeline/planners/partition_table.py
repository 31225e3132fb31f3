"""Table used by all planners: cuts of a row of layers into consecutive stages by dynamic programming (Bellman 1961).

Cuts of n layers into k stages are 0 = c_0 < c_1 < ... < c_k = n; stage s holds layers c_s .. c_{s+1} - 1. For a stage
of layers i .. j - 1, a *measure* gives its own cost (`alone`), and its addition to everything after it (`then`):

    V_0(n) = 0,   V_k(i) = min over j > i of max(alone_k(i, j), then_k(i, j) + V_{k-1}(j))

With `alone` only, the value is the largest cost of a stage; with `then` only, the sum; with both, a latency. Stages are
counted from the last one, because a stage's memory in a schedule depends on the number of stages after it.
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
"""Number of stages evaluated at once, small enough to stay in the cache."""


class Costs(NamedTuple):
    """Costs of the stages from some layers i to all ends j: one row per i."""

    alone: FloatArray | None
    then: FloatArray | None


@dataclass(frozen=True)
class Measure:
    """Costs of stages at one place.

    Attributes
    ----------
    reach : (n,) int64
        Last possible end of a stage from each layer; at most the layer itself if no stage is possible.
    costs : callable
        ``costs(first, last, end)`` covers stages from i = first .. last - 1 to j = first + 1 .. end. `reach` excludes
        impossible stages, whose entries are arbitrary.
    """

    reach: IntArray
    costs: Callable[[int, int, int], Costs]


@dataclass(frozen=True)
class Table:
    """Best values and cuts of all suffixes of the layers.

    Attributes
    ----------
    values : list of (n + 1,) arrays
        ``values[k][i]``: the best value of layers i .. n - 1 in k stages; infinite if impossible.
    ends : list of (n + 1,) arrays
        ``ends[k][i]``: the end of the first of these stages.
    """

    values: list[FloatArray]
    ends: list[IntArray]

    def value(self, stages: int) -> float:
        """Return the best value of all layers in this number of stages; infinite if impossible."""
        return float(self.values[stages][0])

    def cuts(self, stages: int) -> list[int]:
        """Return the best cuts, from 0 to n; some must exist."""
        found = [0]
        for left in range(stages, 0, -1):
            found.append(int(self.ends[left][found[-1]]))
        return found


def fill(length: int, measures: Iterable[Measure]) -> Table:
    """Fill the table from the last stage, with one measure per stage: O(stages x layers^2) array operations."""
    last = np.full(length + 1, np.inf)
    last[length] = 0.0
    values, ends = [last], [np.full(length + 1, length, dtype=np.int64)]
    for measure in measures:
        best, end = put_before(measure, values[-1])
        values.append(best)
        ends.append(end)
    return Table(values, ends)


def put_before(measure: Measure, rest: FloatArray) -> tuple[FloatArray, IntArray]:
    """Add one stage in front of the rest; ties prefer the longest stage."""
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
