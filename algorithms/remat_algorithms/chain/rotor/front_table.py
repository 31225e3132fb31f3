"""Rotor's table: the fronts of all segments of a chain, exact in bytes.

A cell (state, l) is the segment (i, l) that begins in that state. Its front is the best of

    need max(save_need + y_{l+1}, backward_need, kept + need of (inner, l)), excess way + that of (inner, l)
    need max(sweep_need(i, j) + y_{l+1}, x_j + need of (j, l), need of (state, j-1)), excess the sweep, less what
    stage j-1 is spared, + those of (j, l) and (state, j-1)

over its variants and over all j in i+1..l. The front of a split is a sum of two fronts: it changes where either does.
All cells of segments of equal length are filled at once, from those of shorter ones. Two kinds of points are pruned:
splits whose minimum excess the save option reaches with at most as many bytes, and points beyond a time limit (see
`excess_limit`). O(L^3) sums of fronts at most; their cost depends on the lengths of the fronts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from remat.plugin import IntArray
from remat_algorithms.chain.rotor.excess_limit import Allowed
from remat_algorithms.chain.rotor.front import NEVER, Front, Points, Pool, Sums, ranges, thinned
from remat_algorithms.chain.rotor.tick_costs import Costs
from remat_algorithms.chain.rotor.work_counter import Work
from remat_algorithms.chain.segments import Segments

BATCH = 200_000
"""Number of points merged at once, small enough for the caches."""


class Thin(NamedTuple):
    """Maximum number of points in a front, and the rounding: up for schedules, down for bounds."""

    most: int
    up: bool


@dataclass(frozen=True)
class Cells:
    """The fronts of all segments.

    Attributes
    ----------
    begin, end : (states, L+1) int32
        Points of each cell's front in the pool.
    """

    segments: Segments
    costs: Costs
    begin: NDArray[Any]
    end: NDArray[Any]
    pool: Pool = field(default_factory=Pool)

    @staticmethod
    def of(
        segments: Segments,
        costs: Costs,
        allowed: Allowed,
        work: Work,
        *,
        thin: Thin | None = None,
        once: bool = False,
    ) -> Cells:
        """Fill the table.

        Parameters
        ----------
        segments, costs, allowed, work
        thin : Thin, optional
            By default, fronts are exact.
        once : bool
            Whether segments that end before the chain does are only saved completely, so that each stage is recomputed
            at most once.

        Raises
        ------
        Over
            If the work limit was reached before.
        """
        shape = (len(segments.states.stage), segments.length + 1)
        table = Cells(segments, costs, np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.int32))
        filler = Filler(table, allowed, work, thin)
        for length in range(segments.length + 1):
            filler.fill(length, once=once)
        return table

    def front(self, state: int, last: int) -> tuple[IntArray, IntArray]:
        """Return the needs and excesses of a cell."""
        part = slice(int(self.begin[state, last]), int(self.end[state, last]))
        return self.pool.need[part], self.pool.excess[part]

    @property
    def whole(self) -> tuple[IntArray, IntArray]:
        """Needs and excesses of the whole chain."""
        return self.front(0, self.segments.length)

    def times(self, first: int, last: int, rooms: IntArray) -> NDArray[np.float64]:
        """Return the minimum times of segment (first, last), with a free input, by memory size; inf if none fits."""
        need, excess = self.front(int(self.segments.states.free[first]), last)
        least = Front(need, excess).at(rooms)
        times = np.ldexp((least + self.costs.saved_whole(first, last)).astype(np.float64), -self.costs.shift)
        return np.where(least < NEVER, times, np.inf)

    def point(self, state: int, last: int, room: int) -> int:
        """Return the last point (in the pool) of a cell within `room` bytes; -1 without any."""
        need, _ = self.front(state, last)
        index = int(need.searchsorted(room, side="right"))
        return int(self.begin[state, last]) + index - 1 if index else -1


class Filler:
    """Fills the cells, one segment length after another."""

    def __init__(self, table: Cells, allowed: Allowed, work: Work, thin: Thin | None) -> None:
        self.table, self.allowed, self.work, self.thin = table, allowed, work, thin
        segments, states = table.segments, table.segments.states
        self.states, self.length = states, segments.length
        bins = allowed.excess.shape[1]
        # The largest need with remaining excess, by row.
        reach = bins - 1 - (allowed.excess[:, ::-1] >= 0).argmax(axis=1)
        self.reach = np.where(reach == bins - 1, 2**62, ((reach + 1) << allowed.shift) - 1)
        self.slack = allowed.excess.max(axis=1, initial=-1)
        self.ways, self.quickest = np.diff(states.start), states.quickest()
        order = np.lexsort((states.leaf_need, table.costs.leaf, np.arange(len(states.start) - 1).repeat(self.ways)))
        self.alone = order[states.start[:-1]]
        # Row k: from each stage, the maximum need of 2^k consecutive later forwards of a sweep.
        levels = [segments.next_need]
        while (step := 1 << (len(levels) - 1)) < self.length:
            before = levels[-1]
            levels.append(np.maximum(before, np.append(before[step:], before[-1:].repeat(step))))
        self.later = np.array(levels)

    def _sweep_need(self, first: IntArray, split: IntArray) -> IntArray:
        """Return the needs of sweeps between stages, without the live gradient."""
        count = split - first - 1
        level = np.maximum(np.frexp(count)[1] - 1, 0)
        later = self.later
        begin = np.minimum(first + 1, split - 1)
        highest = np.maximum(later[level, begin], later[level, np.maximum(split - (1 << level), begin)])
        return np.maximum(self.table.segments.first_need[first], np.where(count > 0, highest, 0))

    def fill(self, length: int, *, once: bool) -> None:
        """Fill the cells of segments that end `length` stages after their first."""
        states, allowed = self.states, self.allowed
        state = np.flatnonzero(states.stage <= self.length - length)
        last = states.stage[state] + length
        if once:
            self._whole(length, state[last < self.length])
            state, last = state[last == self.length], last[last == self.length]
        live = allowed.row[state, last] >= 0
        state, last = state[live], last[live]
        row = allowed.row[state, last]
        step = max(1, BATCH // max(1, length))
        for begin in range(0, len(state), step):
            part = slice(begin, begin + step)
            self.work.look()
            self._cells(length, state[part], last[part], row[part])

    def _cells(self, length: int, state: IntArray, last: IntArray, row: IntArray) -> None:
        high = np.minimum(self.reach[row], self.allowed.most[state])
        through = self._leaves(state, high) if length == 0 else self._through(state, last, high)
        through = self._within(through, row)
        sums = self._splits(length, state, last, high, self.slack[row]) if length else None
        # Limit the number of points to what fits into the caches.
        counts = np.bincount(through.cell, minlength=len(state))
        if sums is not None:
            counts = counts + np.bincount(sums.cell, weights=sums.counts, minlength=len(state)).astype(np.int64)
        total = np.append(0, counts.cumsum())
        begin = 0
        while begin < len(state):
            end = int(total.searchsorted(total[begin] + BATCH, side="right")) - 1
            end = min(len(state), max(begin + 1, end))
            points = (
                through.where((through.cell >= begin) & (through.cell < end)) if end - begin < len(state) else through
            )
            if sums is not None:
                part = slice(*sums.cell.searchsorted([begin, end]).tolist())
                points = Points.join(
                    points, self._within(sums.part(part.start, part.stop).points(self.table.pool), row)
                )
            self.work.done += int(total[end] - total[begin])
            front, starts = Points(points.cell - begin, points.need, points.excess).fronts(end - begin)
            if self.thin is not None:
                front, starts = thinned(front, starts, self.thin.most, up=self.thin.up)
            first = self.table.pool.append(front.need, front.excess)
            own = (state[begin:end], last[begin:end])
            self.table.begin[own], self.table.end[own] = first + starts[:-1], first + starts[1:]
            begin = end

    def _whole(self, length: int, state: IntArray) -> None:
        """Fill cells with the needs of saving all stages by their fastest variants."""
        states, table = self.states, self.table
        last, way = states.stage[state] + length, self.quickest[state]
        if length == 0:
            way = self.alone[state]
            need = states.leaf_need[way]
        else:
            live = table.segments.gradient[last + 1]
            need = np.maximum(states.save_need[way] + live, states.backward_need[way])
            inner = table.begin[states.inner[way], last]
            need = np.maximum(need, states.kept[way] + table.pool.need[inner])
        first = table.pool.append(need, np.zeros_like(need))
        table.begin[state, last] = first + np.arange(len(state))
        table.end[state, last] = table.begin[state, last] + 1

    def _within(self, points: Points, row: IntArray) -> Points:
        bins = np.minimum(points.need >> self.allowed.shift, self.allowed.excess.shape[1] - 1)
        return points.where(points.excess <= self.allowed.excess[row[points.cell], bins])

    def _leaves(self, state: IntArray, high: IntArray) -> Points:
        states = self.states
        way = ranges(states.start[state], self.ways[state])
        cell = np.arange(len(state)).repeat(self.ways[state])
        need = states.leaf_need[way]
        points = Points(cell, need, self.table.costs.leaf[way])
        return points.where(need <= high[cell])

    def _through(self, state: IntArray, last: IntArray, high: IntArray) -> Points:
        """Return the points of saving each cell's first stage."""
        states, table, pool = self.states, self.table, self.table.pool
        way = ranges(states.start[state], self.ways[state])
        cell = np.arange(len(state)).repeat(self.ways[state])
        live = table.segments.gradient[last + 1][cell]
        floor = np.maximum(states.save_need[way] + live, states.backward_need[way])
        kept = states.kept[way]
        begin, end = (bound[states.inner[way], last[cell]] for bound in (table.begin, table.end))
        stop = pool.beyond(begin, end, high[cell] - kept)
        begin = np.maximum(begin, pool.beyond(begin, stop, floor - kept) - 1)
        count = np.where(floor <= high[cell], stop - begin, 0)
        index = ranges(begin, count)
        need = np.maximum(pool.need[index] + kept.repeat(count), floor.repeat(count))
        excess = pool.excess[index] + table.costs.way[way].repeat(count)
        return Points(cell.repeat(count), need, excess)

    def _splits(self, length: int, state: IntArray, last: IntArray, high: IntArray, slack: IntArray) -> Sums:
        """Return the sums of all splits of cells that may beat saving."""
        states, table, pool, costs = self.states, self.table, self.table.pool, self.table.costs
        segments = table.segments
        first = states.stage[state]
        by = np.arange(1, length + 1)
        split = first[:, None] + by
        cost = costs.swept[split] - costs.swept[first][:, None] - costs.spared[split - 1]
        right, ends = states.free[split], last[:, None]
        a, a_end = table.begin[right, ends], table.end[right, ends]
        b, b_end = table.begin[state[:, None], split - 1], table.end[state[:, None], split - 1]
        cell, number = np.nonzero((cost <= slack[:, None]) & (a < a_end) & (b < b_end))
        pick = (cell, number)
        a, a_end, b, b_end, cost = a[pick], a_end[pick], b[pick], b_end[pick], cost[pick]
        beside = segments.activation[split[pick]]
        low = self._sweep_need(first[cell], split[pick]) + segments.gradient[last[cell] + 1]
        low = np.maximum(np.maximum(low, pool.need[a] + beside), pool.need[b])
        least = cost + pool.excess[a_end - 1] + pool.excess[b_end - 1]
        live = (low <= high[cell]) & (least <= slack[cell])
        cell, a, a_end, b, b_end, cost, beside, low, least = (
            column[live] for column in (cell, a, a_end, b, b_end, cost, beside, low, least)
        )
        # Needs from which saving by the fastest variant is as good as the minimum of this split.
        way = self.quickest[state]
        inner = states.inner[way]
        t, t_end = table.begin[inner, last][cell], table.end[inner, last][cell]
        reached = pool.no_more(t, t_end, least - costs.way[way][cell])
        floor = np.maximum(states.save_need[way] + segments.gradient[last + 1], states.backward_need[way])[cell]
        there = np.maximum(pool.need[np.minimum(reached, max(0, pool.size - 1))] + states.kept[way][cell], floor)
        top = np.where(reached < t_end, np.minimum(high[cell], there - 1), high[cell])
        live = low <= top
        cell, a, a_end, b, b_end, cost, beside, low, top = (
            column[live] for column in (cell, a, a_end, b, b_end, cost, beside, low, top)
        )
        count = len(cell)
        begin = pool.beyond(np.concatenate((a, b)), np.concatenate((a_end, b_end)), np.concatenate((low - beside, low)))
        end = pool.beyond(begin, np.concatenate((a_end, b_end)), np.concatenate((top - beside, top)))
        begin = begin - 1
        return Sums(
            cell=cell,
            begin=np.stack((begin[:count], begin[count:]), axis=1),
            end=np.stack((end[:count], end[count:]), axis=1),
            beside=np.stack((beside, np.zeros_like(beside)), axis=1),
            low=low,
            cost=cost,
        )
