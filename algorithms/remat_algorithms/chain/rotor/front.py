"""Fronts: the trade-off between time and bytes as lists of (need, excess), and merges of many fronts at once.

A front gives the minimum time of a part within a number of bytes, as a step function: needs increase, excesses
decrease. Both are integers. An *excess* is the time beyond that of no recomputation, in ticks (see `tick_costs`).

Thousands of fronts are merged in a few array operations. Those of a table are consecutive in a `Pool`, and a *run* is a
range of its points. Sums and minima are computed by sorting concatenated sorted runs. numpy's stable sort, which merges
such runs, takes a few nanoseconds per point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from remat.plugin import BoolArray, IntArray

NEVER = 2**59
"""An excess that represents infinity; the sum of two does not overflow."""

NOTHING = np.zeros(0, dtype=np.int64)


class Front(NamedTuple):
    """A single front.

    Attributes
    ----------
    need, excess : (n,) int64
    """

    need: IntArray
    excess: IntArray

    @staticmethod
    def best(*fronts: Front, within: int = NEVER, most: int = NEVER) -> Front:
        """Return the pointwise minimum of all fronts, within the limits on need and excess."""
        need = np.concatenate([front.need for front in fronts])
        excess = np.concatenate([front.excess for front in fronts])
        order = need.argsort(kind="stable")
        need, excess = need[order], excess[order]
        keep = (need <= within) & (excess <= most)
        keep[1:] &= excess[1:] < np.minimum.accumulate(excess)[:-1]
        need, excess = need[keep], excess[keep]
        last = np.ones(len(need), dtype=bool)
        last[:-1] = need[1:] != need[:-1]
        return Front(need[last], excess[last])

    def shifted(self, need: int, excess: int) -> Front:
        """Return the front of a part with additional bytes and time."""
        return Front(self.need + need, self.excess + excess)

    def from_need(self, floor: int) -> Front:
        """Return the front of a part that needs at least `floor` bytes."""
        begin = max(0, int(self.need.searchsorted(floor, side="right")) - 1)
        need = self.need[begin:].copy()
        need[:1] = np.maximum(need[:1], floor)
        return Front(need, self.excess[begin:])

    def at(self, rooms: IntArray) -> IntArray:
        """Return the minimum excess within each memory size; `NEVER` if nothing fits."""
        least: IntArray = np.append(self.excess, NEVER)[self.need.searchsorted(rooms, side="right") - 1]
        return least

    def below(self, points: int) -> Front:
        """Return a lower bound of the front with at most `points` points, half as many if it has more."""
        if len(self.need) <= points:
            return self
        first = np.linspace(0, len(self.need), points // 2 + 1).astype(np.int64)
        return Front(self.need[first[:-1]], self.excess[first[1:] - 1])


NO_FRONT = Front(NOTHING, NOTHING)


class Pool:
    """Many consecutive fronts.

    Attributes
    ----------
    need, excess : (capacity,) int64
        All points; entries from `size` are unused.
    step : (capacity,) int64
        Excess minus that of the previous point.
    """

    def __init__(self) -> None:
        self.size = 0
        self.need, self.excess, self.step = (np.zeros(1024, dtype=np.int64) for _ in range(3))

    def append(self, need: IntArray, excess: IntArray) -> int:
        """Add points; return the index of the first."""
        begin, end = self.size, self.size + len(need)
        if end >= len(self.need):  # one more, so that the end of a run can be read
            capacity = max(end + 1, len(self.need) + len(self.need) // 2)
            for name in ("need", "excess", "step"):
                grown = np.zeros(capacity, dtype=np.int64)
                grown[:begin] = getattr(self, name)[:begin]
                setattr(self, name, grown)
        self.need[begin:end], self.excess[begin:end] = need, excess
        self.step[begin + 1 : end] = excess[1:] - excess[:-1]
        self.size = end
        return begin

    def beyond(self, begin: IntArray, end: IntArray, need: IntArray) -> IntArray:
        """Return for each run its first point with a larger need."""
        return _bisect(self.need, begin, end, need)

    def no_more(self, begin: IntArray, end: IntArray, excess: IntArray) -> IntArray:
        """Return for each run its first point with at most this excess."""
        return _bisect(self.excess, begin, end, excess, falling=True)


def _bisect(values: IntArray, begin: IntArray, end: IntArray, wanted: IntArray, *, falling: bool = False) -> IntArray:
    """Return the first index of each run whose value exceeds `wanted` (falling: is at most `wanted`)."""
    low, high = begin, end
    most = int((end - begin).max(initial=0))
    for _ in range(most.bit_length()):
        middle = (low + high) >> 1
        later = values[middle] > wanted if falling else values[middle] <= wanted
        later &= low < high
        low, high = np.where(later, middle + 1, low), np.where(later, high, middle)
    return low


def ranges(begin: IntArray, count: IntArray) -> IntArray:
    """Return begin[0] .. begin[0] + count[0] - 1, begin[1] .., concatenated."""
    ends = count.cumsum()
    index: IntArray = np.arange(ends[-1] if len(ends) else 0) + (begin - ends + count).repeat(count)
    return index


def _order(group: IntArray, need: IntArray) -> IntArray:
    """Return the order by group and then by need (stable); needs are nonnegative."""
    if not len(need):
        return NOTHING
    bits = int(need.max()).bit_length()
    if int(group.max()).bit_length() + bits > 62:
        return np.lexsort((need, group))
    return ((group << bits) | need).argsort(kind="stable")


@dataclass(frozen=True)
class Points:
    """Points of fronts that belong to cells (numbered from 0)."""

    cell: IntArray
    need: IntArray
    excess: IntArray

    @staticmethod
    def join(*parts: Points) -> Points:
        """Return all points together."""
        return Points(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("cell", "need", "excess")))

    def where(self, keep: BoolArray) -> Points:
        """Return the selected points."""
        return Points(self.cell[keep], self.need[keep], self.excess[keep])

    def fronts(self, cells: int) -> tuple[Points, IntArray]:
        """Return the points of each cell's front, and their first indices by cell (cells + 1 numbers)."""
        order = _order(self.cell, self.need)
        cell, need, excess = self.cell[order], self.need[order], self.excess[order]
        if len(order):
            # Cells in decreasing order allow a single running minimum for all of them.
            level, levels = excess, int(excess.max()) + 1
            if levels.bit_length() + cells.bit_length() > 62:
                level, levels = np.unique(excess, return_inverse=True)[1], len(excess)
            lowered = (cells - 1 - cell) * levels + level
            keep = np.ones(len(order), dtype=bool)
            keep[1:] = lowered[1:] < np.minimum.accumulate(lowered)[:-1]
            cell, need, excess = cell[keep], need[keep], excess[keep]
            last = np.ones(len(cell), dtype=bool)
            last[:-1] = (need[1:] != need[:-1]) | (cell[1:] != cell[:-1])
            cell, need, excess = cell[last], need[last], excess[last]
        begin = cell.searchsorted(np.arange(cells + 1))
        return Points(cell, need, excess), begin


def thinned(points: Points, begin: IntArray, most: int, *, up: bool) -> tuple[Points, IntArray]:
    """Reduce fronts of more than `most` points to half of that, as an upper bound (`up`) or a lower bound.

    Parameters
    ----------
    points, begin : as `Points.fronts` returns them
    """
    count = np.diff(begin)
    if int(count.max(initial=0)) <= most:
        return points, begin
    number = np.arange(len(points.cell))
    own, first = count[points.cell], begin[points.cell]
    block = np.where(own > most, (number - first) * (most // 2) // own, number - first)
    ends = np.ones(len(number), dtype=bool)
    ends[:-1] = (block[1:] != block[:-1]) | (first[1:] != first[:-1])
    if up:  # the minimum need is preserved
        kept = points.where(ends | (number == first))
    else:
        starts = np.append(True, ends[:-1])
        kept = Points(points.cell[ends], points.need[starts], points.excess[ends])
    return kept, kept.cell.searchsorted(np.arange(len(count) + 1))


@dataclass(frozen=True)
class Sums:
    """Sums of pairs of fronts: of runs of a pool, over a range of needs.

    Attributes
    ----------
    cell : (n,) int64
        Cell of each sum.
    begin, end : (n, 2) int64
        Runs of the pool; the first point of each gives the value of its front at `low`.
    beside : (n, 2) int64
        Additional bytes for each of the two.
    low, cost : (n,) int64
        Minimum need, and additional excess.
    """

    cell: IntArray
    begin: IntArray
    end: IntArray
    beside: IntArray
    low: IntArray
    cost: IntArray

    @property
    def counts(self) -> IntArray:
        """Number of points in both runs of each sum."""
        points: IntArray = (self.end - self.begin).sum(axis=1)
        return points

    def part(self, begin: int, end: int) -> Sums:
        """Return a range of the sums."""
        columns = (self.cell, self.begin, self.end, self.beside, self.low, self.cost)
        return Sums(*(column[begin:end] for column in columns))

    def points(self, pool: Pool) -> Points:
        """Return the points of all sums: those where either front changes."""
        count = (self.end - self.begin).ravel()
        if not len(count):
            return Points(NOTHING, NOTHING, NOTHING)
        both = count.reshape(-1, 2).sum(axis=1)
        index = ranges(self.begin.ravel(), count)
        number = np.arange(len(self.cell)).repeat(both)
        need, step = pool.need[index] + self.beside.ravel().repeat(count), pool.step[index]
        first = count.cumsum() - count
        need[first] = self.low.repeat(2)
        step[first] = pool.excess[self.begin.ravel()]
        step[first[::2]] += self.cost
        # Sorted by need, the excess is the cumulative sum of all steps; integer wrap-around cancels out in the end.
        order = _order(number, need)
        need, excess = need[order], step[order].cumsum()
        last = both.cumsum() - 1
        excess -= np.append(0, excess[last[:-1]]).repeat(both)
        changed = np.ones(len(need), dtype=bool)
        changed[:-1] = need[1:] != need[:-1]
        changed[last] = True
        return Points(self.cell[number[changed]], need[changed], excess[changed])
