"""Rotor's table: least time of every segment for every number of free memory slots.

Row r of the table stands for budget - (start - r) * unit bytes, exactly: needs of running tasks are compared
in bytes, only what stays stored is rounded to whole slots. Rounded up, every schedule read off the table
fits; rounded down, the table is a lower bound within the class. So one table answers every smaller budget, too.

Only cells (state, l) with l no earlier than the state's stage exist: they lie below each other, those of a state
together, so that a state's earlier segments are one block.

With a limit on the time (see `limit`), what no schedule within it reads is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from remat.plugin import IntArray
from remat_algorithms.chain.rotor.limit import Limit, TimeLimit
from remat_algorithms.chain.segments import COMPILED_FROM, RunList, Segments
from remat_algorithms.chain.states import unfold

FloatTable = NDArray[np.float64]

STEP = 200_000_000
"""Additions between two looks at the clock: about a tenth of a second of the compiled kernel."""


MOST_ABOVE = 16
"""Most rows for what dropping x_0 gives back, for each slot: x_0 may be larger than all else."""


@dataclass(frozen=True)
class Grid:
    """How bytes map to rows.

    Attributes
    ----------
    budget : int
        Bytes beyond x_0 at row `start`.
    unit : int
        Bytes per slot.
    start : int
        Row of the whole chain: all slots are free.
    rows : int
        Number of rows; those above `start` are for chains that drop x_0 early.
    up : bool
        Whether stored sizes are rounded up (schedules) or down (bounds).
    """

    budget: int
    unit: int
    start: int
    rows: int
    up: bool

    @staticmethod
    def of(segments: Segments, budget: int, unit: int, *, up: bool) -> Grid:
        """Lay the rows for a budget."""
        start = budget // unit
        above = 0
        early = drops_inputs(segments)
        if early:  # dropped inputs give back what storing them took, up to x_0 more than the budget
            above = int(segments.activation[0]) // unit + 1 + (0 if up else early)
        return Grid(budget, unit, start, start + above + 1, up)

    def slots(self, sizes: IntArray) -> IntArray:
        """Rows that storing the sizes takes."""
        return -(-sizes // self.unit) if self.up else sizes // self.unit

    def first_row(self, needs: IntArray) -> IntArray:
        """Lowest row in which a running task's need fits; `rows` if it fits in none."""
        row = self.start - (self.budget - needs) // self.unit
        return np.clip(row, 0, self.rows)

    def row(self, budget: int) -> int:
        """Return the row to read for a smaller budget: no more bytes where rounded up, no fewer where down.

        It may be negative: then nothing is known but that nothing fits (up), or nothing at all (down).
        """
        less = self.budget - budget
        return self.start - (-(-less // self.unit) if self.up else less // self.unit)

    def row_above(self, budget: int) -> int:
        """Return the lowest row of no fewer bytes than a smaller budget; it may be negative."""
        return self.start - max(0, self.budget - budget) // self.unit

    def bytes(self, row: int) -> int:
        """Bytes beyond x_0 of a row."""
        return self.budget - (self.start - row) * self.unit


def drops_inputs(segments: Segments) -> int:
    """Return the number of stages that may keep less than their output, so that inputs are dropped early."""
    states = segments.states
    count = states.saved_through
    stage = np.repeat(states.stage, np.diff(states.start))[:count]
    return len(np.unique(stage[states.kept[:count] < segments.activation[stage + 1]]))


def finest_unit(segments: Segments, slots: int) -> int:
    """Return the least unit of a table of so many slots: what dropping x_0 gives back takes rows, too."""
    return max(1, -(-int(segments.activation[0]) // (MOST_ABOVE * slots))) if drops_inputs(segments) else 1


@dataclass(frozen=True)
class WholeTimes:
    """Least times of the whole chain in all rows of a table."""

    grid: Grid
    time: FloatTable

    def best(self, row: int | None = None) -> float:
        """Least time in a row (`start` by default); inf if the chain does not fit."""
        at = self.grid.start if row is None else row
        return float(self.time[at]) if at >= 0 else np.inf


@dataclass(frozen=True)
class RotorTable:
    """The filled table.

    Attributes
    ----------
    time : (cells, rows) float64
        Least time of each cell's segment in each row; inf where it does not fit. Sums of integers are exact
        below 2^53. What a limit leaves out is inf or too large.
    lowest : (cells,) int64
        First row of each cell that is not inf; cells without one may be left unwritten.
    """

    segments: Segments
    grid: Grid
    time: FloatTable
    lowest: IntArray

    @staticmethod
    def of(
        segments: Segments, grid: Grid, *, limit: TimeLimit = math.inf, stopped: Callable[[], bool] = lambda: False
    ) -> RotorTable | None:
        """Fill the table; None if `stopped` became true on the way.

        O(L^3 rows / 6) time, O(L^2 rows / 2) memory, for one state a stage and few variants. What is read in row
        `start` or below is exact if it is no more than `limit`, and else more than `limit`; a low limit saves most of
        the time. With a limit for each of several budgets, this holds of the rows up to that of each budget.
        """
        cells = cells_of(segments)
        lowest = np.full(cells, grid.rows, dtype=np.int64)
        table = RotorTable(segments, grid, np.empty((cells, grid.rows), dtype=np.float64), lowest)
        allowed = Limit.of(table.limits, limit)
        if segments.length > COMPILED_FROM:
            from remat_algorithms.chain.rotor import kernel as rotor_kernel

            fill_states: Callable[[int, int, int], None] = rotor_kernel.filler(table, allowed)
        else:
            fill_states = NumpyFiller(table, allowed).fill_states
        stage = segments.states.stage
        for last in range(segments.length + 1):
            top = int(np.searchsorted(stage, last, side="right"))
            while top > 0:
                if stopped():
                    return None
                # The fewer splits a segment has, the more segments are filled before the next look at the clock.
                low = max(0, top - max(1, STEP // ((last + 1) * grid.rows)))
                fill_states(last, low, top)
                top = low
        return table

    @cached_property
    def first_cell(self) -> IntArray:
        """Where cell (state, l) lies, less l."""
        return first_cells(self.segments)

    def row(self, state: int, last: int) -> FloatTable:
        """Return the times of one cell in all rows."""
        cell: FloatTable = self.time[self.first_cell[state] + last]
        return cell

    def whole(self) -> WholeTimes:
        """Return what remains of the table when it is let go."""
        return WholeTimes(self.grid, self.row(0, self.segments.length).copy())

    def best(self, row: int | None = None) -> float:
        """Least time of the whole chain in a row (`start` by default); inf if it does not fit."""
        return WholeTimes(self.grid, self.row(0, self.segments.length)).best(row)

    def runs(self, row: int | None = None) -> list[int]:
        """Return the runs of a schedule of the whole chain that takes the time of a row (`start` by default).

        Choices are not stored: each segment on the way compares its own ways again, O(L) array operations
        for each of at most 2L segments.
        """
        begin = self.grid.start if row is None else row
        if self.segments.length > COMPILED_FROM:
            from remat_algorithms.chain.rotor import kernel as rotor_kernel

            made = zip(*(column.tolist() for column in rotor_kernel.decisions(self, begin)), strict=True)
            return unfold(self.segments.states, begin, lambda state, last, row: (*next(made), 0))

        return unfold(self.segments.states, begin, self._choose_inside)

    def segment_runs(self, first: int, last: int, row: int) -> list[int]:
        """Return the runs of the segment (first, last), its input free to go, in a row in which it fits."""
        segment = (int(self.segments.states.free[first]), last)
        return unfold(self.segments.states, row, self._choose_inside, segment)

    def _choose_inside(self, state: int, last: int, row: int) -> tuple[int, int, int]:
        split, way = self._choose(state, last, row)
        taken = self.limits.shift[split] if split >= 0 else self.limits.kept[way]
        return split, way, row - int(taken)

    def schedule(self, runs: RunList, row: int | None = None) -> None:
        """Append the runs of `runs`."""
        runs.tasks.extend(self.runs(row))

    @cached_property
    def limits(self) -> RowLimits:
        """All needs as rows."""
        return RowLimits.of(self.segments, self.grid)

    def _choose(self, state: int, last: int, row: int) -> tuple[int, int]:
        """Return where a segment is split (-1: it is not), and its way; saving through is preferred on ties."""
        states, limits = self.segments.states, self.limits
        first = int(states.stage[state])
        best, split, way = np.inf, -1, -1
        for through in states.ways(state):
            if first == last:
                cost = limits.leaf_time[through] if row >= limits.leaf_row[through] else np.inf
            else:
                under = min(row - int(limits.kept[through]), self.grid.rows - 1)
                cell = int(self.first_cell[states.inner[through]]) + last
                fits = under >= self.lowest[cell] and row >= limits.save_row(last)[through]
                cost = limits.time[through] + self.time[cell, under] if fits else np.inf
            if cost < best:
                best, way = cost, through
        splits = np.arange(first + 1, last + 1)
        under_split = row - limits.shift[splits]
        left_cell, right_cell = self.first_cell[state] + splits - 1, self.first_cell[states.free[splits]] + last
        fits = (under_split >= self.lowest[right_cell]) & (row >= limits.sweep_rows(first, last))
        fits &= row >= self.lowest[left_cell]
        splits = splits[fits]
        if len(splits):
            left, right = self.time[left_cell[fits], row], self.time[right_cell[fits], under_split[fits]]
            costs = left + (right + self.segments.sweep_time(first)[splits - first - 1])
            at = int(np.argmin(costs))
            if costs[at] < best:
                return int(splits[at]), -1
        assert way >= 0, "a segment of finite time has a way"
        return split, way


def cells_of(segments: Segments) -> int:
    """Return the number of cells (state, l)."""
    return int((segments.length + 1 - segments.states.stage).sum())


def first_cells(segments: Segments) -> IntArray:
    """Return for each state where its cell (state, l) lies, less l."""
    stage = segments.states.stage
    counts = segments.length + 1 - stage
    return np.cumsum(counts) - counts - stage


@dataclass(frozen=True)
class RowLimits:
    """All needs of a chain as rows, all times as float64 (arrays as in `States` and `Segments`)."""

    segments: Segments
    grid: Grid
    kept: IntArray
    shift: IntArray
    time: FloatTable
    leaf_time: FloatTable
    leaf_row: IntArray

    @staticmethod
    def of(segments: Segments, grid: Grid) -> RowLimits:
        """Convert needs and times."""
        states = segments.states
        return RowLimits(
            segments=segments,
            grid=grid,
            kept=grid.slots(states.kept),
            shift=grid.slots(segments.activation),
            time=states.time.astype(np.float64),
            leaf_time=states.leaf_time.astype(np.float64),
            leaf_row=grid.first_row(states.leaf_need),
        )

    def save_row(self, last: int) -> IntArray:
        """Lowest rows in which each way can be saved through in segments that end with stage `last`."""
        states, live = self.segments.states, self.segments.gradient[last + 1]
        own = self.grid.first_row(np.maximum(states.save_need + live, states.backward_need))
        return np.maximum(own, self.kept)

    def sweep_rows(self, first: int, last: int) -> IntArray:
        """Lowest rows in which the sweeps from `first` to j = first+1..last fit."""
        needs = self.segments.sweep_need(first)[: last - first]
        return self.grid.first_row(needs + self.segments.gradient[last + 1])

    def whole_row(self) -> IntArray:
        """Lowest rows, (states, L+1), from which on a segment is best saved whole; `rows` where it never fits.

        Saving whole by the quickest ways recomputes nothing, so above that row the time is constant.
        """
        states, grid, length = self.segments.states, self.grid, self.segments.length
        rows = np.full((len(states.stage), length + 1), grid.rows, dtype=np.int64)
        quickest = states.quickest()
        for state in range(len(states.stage) - 1, -1, -1):
            first, way = int(states.stage[state]), int(quickest[state])
            ways = slice(*states.start[state : state + 2].tolist())
            least = self.leaf_time[ways].min()
            rows[state, first] = self.leaf_row[ways][self.leaf_time[ways] == least].min()
            if first < length:
                live = self.segments.gradient[first + 2 :]
                own = grid.first_row(np.maximum(states.save_need[way] + live, states.backward_need[way]))
                inside = rows[states.inner[way], first + 1 :] + self.kept[way]
                rows[state, first + 1 :] = np.clip(np.maximum(own, inside), 0, grid.rows)
        return rows


class NumpyFiller:
    """Fills a table with array operations (the kernel's plain twin).

    ``shifted[j]`` holds segment (j, last), x_j free, already shifted by the rows that storing x_j takes, so that the
    minimisation over splits is one contiguous (splits x rows) sum and one minimum.
    """

    def __init__(self, table: RotorTable, allowed: Limit) -> None:
        self._table = table
        self._limits, self._allowed = table.limits, allowed
        self._whole_row = table.limits.whole_row()
        self._shifted = np.empty((table.segments.length + 1, table.grid.rows), dtype=np.float64)

    def fill_states(self, last: int, low: int, top: int) -> None:
        """Fill column `last` for the states top-1 .. low."""
        table, states, limits = self._table, self._table.segments.states, self._limits
        rows = table.grid.rows
        save_row = limits.save_row(last)
        for state in range(top - 1, low - 1, -1):
            first = int(states.stage[state])
            out = table.row(state, last)
            out[:] = np.inf
            spare = -self._allowed.behind(first, last) - self._allowed.debt[state]
            # Rows of more free memory than any schedule within the limit can still have.
            cap = int(np.searchsorted(-spare, 0.0, side="right"))
            for way in states.ways(state) if cap else ():
                begin = int(limits.leaf_row[way]) if first == last else int(save_row[way])
                if begin >= cap:
                    continue
                if first == last:
                    np.minimum(out[begin:cap], limits.leaf_time[way], out=out[begin:cap])
                    continue
                under = np.minimum(np.arange(begin, cap) - limits.kept[way], rows - 1)
                through = table.row(int(states.inner[way]), last)[under] + limits.time[way]
                np.minimum(out[begin:cap], through, out=out[begin:cap])
            if first < last and cap:
                self._splits(state, last, out[:cap], float(spare[0]))
            self._finish(state, last, out, spare[:cap])
            if state == states.free[first]:
                step = int(limits.shift[first])
                self._shifted[first, :step] = np.inf
                if step < rows:
                    self._shifted[first, step:] = out[: rows - step]

    def _finish(self, state: int, last: int, out: FloatTable, spare: FloatTable) -> None:
        """Drop the rows below the first that is within the limit."""
        cap, rows = len(spare), len(out)
        whole = self._allowed.without_recompute(int(self._table.segments.states.stage[state]), last)
        within = np.flatnonzero((out[:cap] < np.inf) & (out[:cap] - whole <= spare))
        lowest = int(within[0]) if len(within) else rows
        out[:lowest] = np.inf
        if 0 < cap < rows:
            out[cap:] = out[cap - 1]
        self._table.lowest[self._table.first_cell[state] + last] = lowest

    def _splits(self, state: int, last: int, out: FloatTable, spare: float) -> None:
        segments, lowest = self._table.segments, self._table.lowest
        first, rows = int(segments.states.stage[state]), len(out)
        high = min(int(self._whole_row[state, last]), rows)
        cell = int(self._table.first_cell[state])
        swept = segments.sweep_time(first)[: last - first].astype(np.float64)
        # Sweeps need more the further they go: above `free` all of them fit.
        bounds = self._limits.sweep_rows(first, last)
        lefts = lowest[cell + first : cell + last]
        known = np.flatnonzero((swept - self._allowed.spared[first:last] <= spare) & (lefts < self._table.grid.rows))
        if not len(known):
            return
        count = int(known[-1]) + 1
        bounds, swept = bounds[:count], swept[:count, None]
        free = min(int(bounds[-1]), high)
        low = int(np.maximum(bounds, lefts[:count]).min())
        for a, b in ((min(low, free), free), (max(low, free), high)):
            if a >= b:
                continue
            sums = self._shifted[first + 1 : first + 1 + count, a:b] + swept
            sums += self._table.time[cell + first : cell + first + count, a:b]
            if b == free:
                sums[np.arange(a, b) < bounds[:, None]] = np.inf
            np.minimum(out[a:b], sums.min(axis=0), out=out[a:b])
