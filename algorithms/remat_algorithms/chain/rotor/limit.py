"""What a time limit spares rotor's table: the cells, and rows of cells, that no schedule within the limit reads.

Let a segment's *excess* be its time beyond that of saving all of it by the quickest ways, without recomputation.
Excess only adds up: a way adds what it takes beyond the quickest way, a split at j adds its sweep, less the forward
that stage j-1 is spared where it needs none when processed alone. So of a schedule within the limit

- the way down to a segment (i, l) adds, for each stage before i, that stage's forward, or takes from the free rows
  what saving it through keeps: the least excess with which a state is entered with so many rows free is the shortest
  path of a dynamic program over stages and rows;
- a segment that ends before the chain does was split off, so that all of it has been swept through;
- the segment adds its own excess.

Where these together exceed the limit, the row of the cell need not be known. Nothing that is read on the way to a
schedule within the limit is left out, so that its time and its choices stay what they are without a limit.

Two bounds on the time of the whole chain let each part that is split off be saved whole: `quick_bound` whether or not
it fits (a lower bound), `once_bound` only where it does (the time of a schedule that recomputes each stage at most
once). Where memory is not very scarce they are close.

A table that is read for several budgets has a limit for each: the dynamic program starts in the rows of all of them,
and what is left out is what none of them needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from remat_algorithms.chain.rotor.table import RowLimits

FloatTable = NDArray[np.float64]

TimeLimit = float | Mapping[int, float]
"""The most time of the whole chain that is wanted: at a table's own budget, or for each budget (bytes beyond x_0)."""

SLACK = 1e-9
"""Share by which a limit is raised, so that sums of floats in another order are within it."""


@dataclass(frozen=True)
class Limit:
    """The excess that each cell may have.

    Attributes
    ----------
    debt : (states, rows) float64
        Least excess of entering a state with at least so many rows free, less what the limit allows; ascending. Of
        several budgets, the least.
    swept : (L+1,) float64
        Forward times of all stages before.
    whole : (L+1,) float64
        Times of all stages before, by their quickest ways.
    leaf, spared : (L+1,) float64
        Least time of each stage alone, and how much that is less than by its quickest way.
    """

    debt: FloatTable
    swept: FloatTable
    whole: FloatTable
    leaf: FloatTable
    spared: FloatTable

    @staticmethod
    def of(limits: RowLimits, time: TimeLimit = math.inf) -> Limit:
        """Find the excess of entering every state (O(L rows) additions for few variants); times may be infinite."""
        states, grid, length = limits.segments.states, limits.grid, limits.segments.length
        forward, quick, leaf = _stage_times(limits)
        whole = np.concatenate(([0.0], np.cumsum(quick[:-1])))
        spared = quick - leaf
        swept = np.concatenate(([0.0], np.cumsum(forward)))
        shape = (len(states.stage), grid.rows)
        wanted = time if isinstance(time, Mapping) else {grid.budget: time}
        if math.inf in wanted.values():
            return Limit(np.full(shape, -math.inf), swept, whole, leaf, spared)
        debt, begin = np.full(shape, math.inf), int(states.free[0])
        for budget, most in wanted.items():
            row = grid.row_above(budget)
            if row >= 0:
                allowed = min(0.0, float(whole[-1] + leaf[-1]) - most) - SLACK * abs(most)
                debt[begin, row] = min(float(debt[begin, row]), allowed)
        sweeping = np.full(grid.rows, math.inf)
        for stage in range(length):
            for state in range(int(states.free[stage]), int(states.held[stage]) + 1):
                for way in states.ways(state):
                    more = limits.time[way] - quick[stage]
                    _enter(debt[states.inner[way]], debt[state] + more, int(limits.kept[way]))
                sweeping = np.minimum(sweeping, debt[state])
            sweeping = sweeping + forward[stage]
            split = stage + 1
            _enter(debt[states.free[split]], sweeping - spared[stage], int(limits.shift[split]))
        return Limit(np.minimum.accumulate(debt[:, ::-1], axis=1)[:, ::-1].copy(), swept, whole, leaf, spared)

    def behind(self, first: int, last: int) -> float:
        """Least excess of having split off a segment."""
        if last == len(self.leaf) - 1:
            return 0.0
        return float(self.swept[last + 1] - self.swept[first] - self.spared[last])

    def without_recompute(self, first: int, last: int) -> float:
        """Time of a segment that recomputes nothing."""
        return float(self.whole[last] - self.whole[first] + self.leaf[last])


def quick_bound(limits: RowLimits) -> float:
    """Return a lower bound on the time of the whole chain in row `start` (O(L rows) additions)."""
    states, grid, length = limits.segments.states, limits.grid, limits.segments.length
    forward, quick, leaf = _stage_times(limits)
    first_row = grid.first_row(limits.segments.first_need)
    next_row = grid.first_row(limits.segments.next_need)
    rows, save_row = np.arange(grid.rows), limits.save_row(length)
    best = np.full((len(states.stage), grid.rows), math.inf)
    _alone(limits, best)
    # A sweep that has come as far as a stage: its forwards, and the times of what it splits off, to the end.
    going = np.full(grid.rows, math.inf)
    for stage in range(length - 1, -1, -1):
        ended = _shifted(best[states.free[stage + 1]], int(limits.shift[stage + 1]))
        going = forward[stage] + np.minimum(quick[stage] + going, leaf[stage] + ended)
        for state in range(int(states.free[stage]), int(states.held[stage]) + 1):
            best[state] = np.where(rows >= first_row[stage], going, math.inf)
            _through(limits, best, state, save_row)
        going[: next_row[stage]] = math.inf
    return float(best[states.free[0], grid.start])


def once_bound(limits: RowLimits) -> float:
    """Return the time of a schedule in row `start`, all its split-off parts saved whole; inf if there is none."""
    return float(once_times(limits)[limits.grid.start])


def once_times(limits: RowLimits) -> FloatTable:
    """Return for each row the time of a schedule whose split-off parts are all saved whole; inf where there is none.

    O(L^2 rows / 2) additions.
    """
    segments, grid = limits.segments, limits.grid
    states, length = segments.states, segments.length
    _, quick, leaf = _stage_times(limits)
    before = np.concatenate(([0.0], np.cumsum(quick[:-1])))
    fits, save_row = limits.whole_row(), limits.save_row(length)
    best = np.full((len(states.stage), grid.rows), math.inf)
    _alone(limits, best)
    right = np.empty((length + 1, grid.rows))
    for state in range(int(states.free[length]) - 1, -1, -1):
        first = int(states.stage[state])
        if state == states.held[first]:
            right[first + 1] = _shifted(best[states.free[first + 1]], int(limits.shift[first + 1]))
        _through(limits, best, state, save_row)
        lowest = np.maximum(limits.sweep_rows(first, length), fits[state, first:length])
        splits = np.flatnonzero(lowest < grid.rows)
        if not len(splits):
            continue
        end = int(splits[-1]) + 1
        cost = (
            segments.sweep_time(first)[:end] + before[first : first + end] - before[first] + leaf[first : first + end]
        )
        begin = int(lowest[:end].min())
        sums = right[first + 1 : first + 1 + end, begin:] + cost[:, None]
        sums[np.arange(begin, grid.rows) < lowest[:end, None]] = math.inf
        np.minimum(best[state, begin:], sums.min(axis=0), out=best[state, begin:])
    times: FloatTable = best[states.free[0]].copy()
    return times


def _stage_times(limits: RowLimits) -> tuple[FloatTable, FloatTable, FloatTable]:
    """Return the forward times, the least times of each stage saved through, and of each stage alone."""
    states = limits.segments.states
    quick = limits.time[states.quickest()][states.free]
    leaf = np.minimum.reduceat(limits.leaf_time, states.start[:-1])[states.free]
    return limits.segments.forward_time.astype(np.float64), quick, leaf


def _enter(state: FloatTable, excess: FloatTable, taken: int) -> None:
    """Enter a state with so many rows fewer than before (more, where negative: but there are no more than all)."""
    rows = len(state)
    if taken >= 0:
        part = state[: max(0, rows - taken)]
        np.minimum(part, excess[taken:], out=part)
        return
    given = min(rows, -taken)
    np.minimum(state[given:], excess[: rows - given], out=state[given:])
    state[-1] = min(float(state[-1]), float(excess[rows - given :].min()))


def _shifted(times: FloatTable, taken: int) -> FloatTable:
    """Return the times of a segment by the rows before it takes some."""
    rows = len(times)
    return np.concatenate((np.full(min(taken, rows), math.inf), times[: max(0, rows - taken)]))


def _alone(limits: RowLimits, best: FloatTable) -> None:
    """Enter the times of the loss alone."""
    states = limits.segments.states
    for state in range(int(states.free[-1]), int(states.held[-1]) + 1):
        for way in states.ways(state):
            part = best[state, limits.leaf_row[way] :]
            np.minimum(part, limits.leaf_time[way], out=part)


def _through(limits: RowLimits, best: FloatTable, state: int, save_row: NDArray[np.int64]) -> None:
    """Enter the times of saving the state's stage through."""
    states, rows = limits.segments.states, best.shape[1]
    for way in states.ways(state):
        begin = int(save_row[way])
        if begin < rows:
            under = np.minimum(np.arange(begin, rows) - limits.kept[way], rows - 1)
            through = best[states.inner[way], under] + limits.time[way]
            np.minimum(best[state, begin:], through, out=best[state, begin:])
