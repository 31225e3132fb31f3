"""Rotor's table: least time of every segment for every number of free memory slots.

Row r of the table stands for budget - (slots - r) * unit bytes, exactly: needs of running tasks are compared
in bytes, only what stays stored is rounded to whole slots. Rounded up, every schedule read off the table
fits; rounded down, the table is a lower bound within the class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remat.taskgraph import IntArray
from remat_algorithms.chain.segments import COMPILED_FROM, RunList, Segments, follow

FloatTable = NDArray[np.float64]


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
        early = int((segments.kept < segments.activation[1:]).sum())
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


@dataclass(frozen=True)
class RotorTable:
    """The filled table.

    Attributes
    ----------
    time : (L+1, L+1, rows) float64
        ``time[i, l, r]``: least time of segment (i, l) in row r; inf where it does not fit. Sums of integers
        are exact below 2^53.
    """

    segments: Segments
    grid: Grid
    time: FloatTable

    @staticmethod
    def of(segments: Segments, grid: Grid, *, stopped: Callable[[], bool] = lambda: False) -> RotorTable | None:
        """Fill the table; None if `stopped` became true on the way.

        O(L^3 rows / 6) time, O(L^2 rows / 2) memory that is touched.
        """
        rows = _RowLimits.of(segments, grid)
        fill_column: Callable[..., None] = fill_column_numpy
        if segments.length > COMPILED_FROM:
            from remat_algorithms.chain import rotor_kernel

            fill_column = rotor_kernel.fill_column
        count = segments.length + 1
        # Only cells with l >= i are touched; the other half of the pages is never backed by memory.
        time = np.empty((count, count, grid.rows), dtype=np.float64)
        column = np.empty((count, grid.rows), dtype=np.float64)
        for last in range(count):
            if stopped():
                return None
            fill_column(last, time, column, *rows.arrays(last))
        return RotorTable(segments, grid, time)

    def best(self, row: int | None = None) -> float:
        """Least time of the whole chain in a row (`start` by default); inf if it does not fit."""
        return float(self.time[0, -1, self.grid.start if row is None else row])

    def schedule(self, runs: RunList, row: int | None = None) -> None:
        """Append a schedule of the whole chain that takes the time of a row (`start` by default).

        Choices are not stored: each segment on the way compares its own ways again, O(L) array operations
        for each of at most 2L segments.
        """
        seg, grid = self.segments, self.grid
        limits = _RowLimits.of(seg, grid)

        def choose(first: int, last: int, row: int) -> tuple[int, int]:
            split = self._choose(first, last, row, limits)
            taken = limits.kept[first] if split == first else limits.shift[split]
            return split, row - int(taken)

        follow(runs, seg.length, grid.start if row is None else row, choose)

    def _choose(self, first: int, last: int, row: int, limits: _RowLimits) -> int:
        """Return where a segment is split; `first` itself where it is saved through (preferred on ties)."""
        best, choice = np.inf, -1
        under = row - int(limits.kept[first])
        if row >= limits.save_row(first, last) and under >= 0:
            best = limits.save_time[first] + self.time[first + 1, last, under]
            choice = first
        splits = np.arange(first + 1, last + 1)
        under_split = row - limits.shift[splits]
        fits = (under_split >= 0) & (row >= limits.sweep_rows(first, last))
        splits, under_split = splits[fits], under_split[fits]
        if len(splits):
            costs = self.time[first, splits - 1, row] + (
                self.time[splits, last, under_split] + limits.sweep_time[first, splits]
            )
            at = int(np.argmin(costs))
            if costs[at] < best:
                best, choice = float(costs[at]), int(splits[at])
        assert choice >= 0, "a segment of finite time has a way"
        return choice


@dataclass(frozen=True)
class _RowLimits:
    """All needs of a chain as rows, all times as float64."""

    segments: Segments
    grid: Grid
    kept: IntArray
    shift: IntArray
    save_time: FloatTable
    leaf_time: FloatTable
    leaf_row: IntArray
    sweep_time: FloatTable
    sweep_need: IntArray
    whole_row: IntArray

    @staticmethod
    def of(segments: Segments, grid: Grid) -> _RowLimits:
        count = segments.length + 1
        sweep_time = np.zeros((count, count))
        sweep_need = np.zeros((count, count), dtype=np.int64)
        for first in range(count - 1):
            sweep_time[first, first + 1 :] = segments.sweep_time(first)
            sweep_need[first, first + 1 :] = segments.sweep_need(first)
        return _RowLimits(
            segments=segments,
            grid=grid,
            kept=grid.slots(segments.kept),
            shift=grid.slots(segments.activation),
            save_time=(segments.save_time + segments.backward_time[:-1]).astype(np.float64),
            leaf_time=segments.leaf_time.astype(np.float64),
            leaf_row=grid.first_row(segments.leaf_need),
            sweep_time=sweep_time,
            sweep_need=sweep_need,
            whole_row=_rows_of_saved_whole(segments, grid),
        )

    def save_row(self, first: int, last: int) -> int:
        """Lowest row in which stage `first` of segment (first, last) can be saved through."""
        return int(self._save_rows(last)[first])

    def _save_rows(self, last: int) -> IntArray:
        seg = self.segments
        live = seg.gradient[last + 1]
        return self.grid.first_row(np.maximum(seg.save_need + live, seg.backward_need[:-1]))

    def sweep_rows(self, first: int, last: int) -> IntArray:
        """Lowest rows in which the sweeps from `first` to j = first+1..last fit."""
        needs = self.sweep_need[first, first + 1 : last + 1]
        return self.grid.first_row(needs + self.segments.gradient[last + 1])

    def arrays(self, last: int) -> tuple[np.ndarray, ...]:
        """The arguments of `fill_column` for a column."""
        live = self.segments.gradient[last + 1]
        sweep_row = self.grid.first_row(self.sweep_need + live)
        return (
            self.kept,
            self.shift,
            self.save_time,
            self.leaf_time,
            self.leaf_row,
            self._save_rows(last),
            sweep_row,
            self.sweep_time,
            self.whole_row[:, last].copy(),
        )


def _rows_of_saved_whole(segments: Segments, grid: Grid) -> IntArray:
    """Lowest row from which on a segment (i, l) is best saved whole; `rows` where it never fits.

    Saving whole recomputes nothing, so above that row the time is constant and needs no minimisation.
    """
    count = segments.length + 1
    kept = grid.slots(segments.kept)
    rows = np.full((count, count), grid.rows, dtype=np.int64)
    leaf = grid.first_row(segments.leaf_need)
    rows[count - 1, count - 1] = leaf[count - 1]
    for first in range(count - 2, -1, -1):
        live = segments.gradient[first + 2 :]
        own = grid.first_row(np.maximum(segments.save_need[first] + live, segments.backward_need[first]))
        below = rows[first + 1, first + 1 :]
        rows[first, first + 1 :] = np.clip(np.maximum(own, below + kept[first]), 0, grid.rows)
        rows[first, first] = leaf[first]
    return rows


def fill_column_numpy(
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
    """Fill column `last` of the table: segments (i, last) for i = last..0 (the kernel's plain twin).

    ``column[j]`` holds segment (j, last) already shifted by the rows that storing x_j takes, so that the
    minimisation over splits is one contiguous (splits x rows) sum and one minimum.
    """
    rows = time.shape[2]
    shifted = column
    for first in range(last, -1, -1):
        out = time[first, last]
        out[:] = np.inf
        if first == last:
            out[leaf_row[first] :] = leaf_time[first]
        else:
            low = max(int(save_row[first]), int(kept[first]))
            if low < rows:
                below = np.minimum(np.arange(low, rows) - kept[first], rows - 1)
                out[low:] = time[first + 1, last, below] + save_time[first]
            high = min(int(whole_row[first]), rows)
            bounds = sweep_row[first, first + 1 : last + 1]
            # Sweeps need more the further they go: above `free` all of them fit.
            free = min(int(bounds[-1]), high)
            low = min(int(bounds[0]), free)
            for a, b in ((low, free), (free, high)):
                if a >= b:
                    continue
                sums = time[first, first:last, a:b] + (
                    shifted[first + 1 : last + 1, a:b] + sweep_time[first, first + 1 : last + 1, None]
                )
                if b == free:
                    sums[np.arange(a, b) < bounds[:, None]] = np.inf
                np.minimum(out[a:b], sums.min(axis=0), out=out[a:b])
        step = int(shift[first])
        shifted[first, :step] = np.inf
        if step < rows:
            shifted[first, step:] = out[: rows - step]
