"""Table of `rotor-float`: the minimum time of every segment (s, t, l) for every number of free memory slots.

With M bytes, x_s included, T(s, t, l, M) is the minimum over these options (see
`remat_algorithms.chain.floating.model`):

    move:   forward_time(s) + T(s+1, t, l, M)
    split:  forward_time(s) + T(s+1, j, l, M - x_s) + T(s, t, j-1, M)
    save:   save_time(s) + backward_time(s) + T(s+1, s+1, l, M - x_s - s_s)
    tape:   sum_{s<=k<j} forward_time(k) + save_time(j) + T(j+1, j+1, l, M - x_s - s_j) + T'(s, t, j, M)

An option counts only if its runs fit into M. T' is T with the tape of the last stage already present, and has the same
options. Needs of running tasks are compared in bytes. Only stored sizes are rounded to whole slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from remat.plugin import IntArray
from remat_algorithms.chain.floating.model import (
    COMPILED_FROM,
    LEAF,
    MOVE,
    SAVE,
    SPLIT,
    TAPE,
    Needs,
    Part,
    follow_floating,
    parts_until,
)
from remat_algorithms.chain.segments import RunList

if TYPE_CHECKING:
    from remat_algorithms.chain.floating.kernel import Times

FloatTable = NDArray[np.float64]
Choice = tuple[int, int, int]


@dataclass(frozen=True)
class Slots:
    """Mapping from bytes to rows: row r represents exactly budget - (start - r) * unit bytes.

    Attributes
    ----------
    budget : int
        Bytes at row `start`, x_0 included.
    unit : int
        Bytes per slot.
    start : int
        Row of the whole chain: the last one, with all slots free.
    up : bool
        Whether stored sizes are rounded up (schedules) or down (bounds).
    """

    budget: int
    unit: int
    start: int
    up: bool

    @staticmethod
    def of(budget: int, unit: int, *, up: bool) -> Slots:
        """Create the rows for a budget."""
        return Slots(budget, unit, budget // unit, up)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.start + 1

    def slots(self, sizes: IntArray) -> IntArray:
        """Return the rows that storing the sizes takes."""
        return -(-sizes // self.unit) if self.up else sizes // self.unit

    def first_row(self, needs: IntArray) -> IntArray:
        """Return the lowest row in which a running task's need fits; `rows` if it fits in none."""
        return np.clip(self.start - (self.budget - needs) // self.unit, 0, self.rows)


def cell(first: int, target: int, last: int) -> int:
    """Return the position of segment (first, target, last) among all of them, ordered by last, first, target."""
    before = last * (last + 1) * (last + 2) // 6
    return before + first * (last + 1) - first * (first - 1) // 2 + target - first


@dataclass(frozen=True)
class Rows:
    """Needs of a chain as rows of the table, with all times as float64.

    Attributes
    ----------
    checkpoint, saving : (L+1,), (L,) int64
        Slots held by splits and saves.
    taped : (L+1, L) int64
        Slots held by a tape of j below a checkpoint at s.
    move, split, save : (2, L+1, L) int64
        Lowest rows in which the forward of stage s fits, for each (taped, l, s).
    backward : (L+1,) int64
    leaf : (2, L+1) int64
    tape : (2, L+1, L+1, L) int64
        Lowest rows in which the forwards s..j-1 and the saving one of j fit, for each (taped, l, s, j).
    """

    checkpoint: IntArray
    saving: IntArray
    taped: IntArray
    move: IntArray
    split: IntArray
    save: IntArray
    backward: IntArray
    leaf: IntArray
    sweep: IntArray
    live: IntArray
    forward_time: FloatTable
    save_time: FloatTable
    backward_time: FloatTable
    leaf_time: FloatTable

    @staticmethod
    def of(needs: Needs, grid: Slots) -> Rows:
        """Round the needs to rows (O(L^2))."""
        length = needs.length
        live = needs.live[:, :, None]
        sweep = np.zeros((length + 1, length), dtype=np.int64)
        for first in range(length):
            own = needs.sweep_need(first)[: length - first - 1]
            stages = slice(first + 1, length)
            sweep[first, stages] = np.maximum(own, needs.checkpoint[first] + needs.save_need[stages])
        save = grid.first_row(needs.save_need + live)
        return Rows(
            checkpoint=grid.slots(needs.checkpoint),
            saving=grid.slots(needs.saving),
            taped=grid.slots(needs.checkpoint[:, None] + needs.tape),
            move=grid.first_row(needs.move_need + live),
            split=grid.first_row(needs.split_need + live),
            save=np.maximum(save, grid.first_row(needs.backward_need)[:-1]),
            backward=grid.first_row(needs.backward_need),
            leaf=grid.first_row(needs.leaf_need),
            sweep=sweep,
            live=needs.live,
            forward_time=needs.forward_time.astype(np.float64),
            save_time=needs.save_time.astype(np.float64),
            backward_time=needs.backward_time.astype(np.float64),
            leaf_time=needs.leaf_time.astype(np.float64),
        )


@dataclass(frozen=True)
class FloatingTable:
    """The filled table.

    Attributes
    ----------
    time : (2, segments, rows) float64
        ``time[taped, cell(s, t, l), r]``; inf if it does not fit. Sums of integers are exact below 2^53.
    """

    needs: Needs
    grid: Slots
    rows: Rows
    time: FloatTable

    @staticmethod
    def of(needs: Needs, grid: Slots, *, stopped: Callable[[], bool] = lambda: False) -> FloatingTable | None:
        """Fill the table; None if stopped before the end.

        O(L^4 rows / 12) time, O(L^3 rows / 3) memory.
        """
        rows = Rows.of(needs, grid)
        count = needs.length + 1
        time = np.empty((2, cell(0, 0, count), grid.rows), dtype=np.float64)
        table = FloatingTable(needs, grid, rows, time)
        if needs.length >= COMPILED_FROM:
            from remat_algorithms.chain.floating import kernel

            record = table._record()
            fill = kernel.TIME_ROW.bind(record)
            for last in range(count):
                record.tape[:] = grid.first_row(rows.sweep[None] + needs.live[:, last, None, None])
                for first in range(last, -1, -1):
                    if stopped():
                        return None
                    fill(first, last)
            return table
        for last in range(count):
            for part in parts_until(last):
                if stopped():
                    return None
                table._fill(part)
        return table

    def _record(self) -> Times:
        """Return the kernel's input."""
        from remat_algorithms.chain.floating.kernel import Times

        tape = np.zeros((2, *self.rows.sweep.shape), dtype=np.int64)
        given = {name: np.ascontiguousarray(getattr(self.rows, name)) for name in Times._fields[2:]}
        return Times(self.time, tape, **given)

    def _fill(self, part: Part) -> None:
        """Fill one cell (the kernel's plain twin)."""
        out = self.time[part.taped, cell(part.first, part.target, part.last)]
        out[:] = np.inf
        for _, _, low, held, cost, inner, rest in self._ways(part):
            if inner is None:
                out[low:] = cost
            elif low < len(out):
                sums = inner[low - held : len(out) - held] + cost
                if rest is not None:
                    sums = rest[low:] + sums
                np.minimum(out[low:], sums, out=out[low:])

    def _ways(self, part: Part) -> list[tuple[int, int, int, int, float, FloatTable | None, FloatTable | None]]:
        """Return (option, j, lowest row, slots held, time of its runs, inner rows, rows of the rest), per option."""
        r, time = self.rows, self.time
        s, t, e, taped = part.first, part.target, part.last, part.taped
        if s == e:
            return [(LEAF, s, int(r.leaf[taped, s]), 0, float(r.leaf_time[taped, s]), None, None)]
        ways: list[tuple[int, int, int, int, float, FloatTable | None, FloatTable | None]] = []

        def add(way: int, j: int, low: int, held: int, cost: float, inner: int, rest: FloatTable | None) -> None:
            ways.append((way, j, max(low, held), held, cost, time[taped, inner], rest))

        if s == t:
            cost = float(r.save_time[s] + r.backward_time[s])
            add(SAVE, s, int(r.save[taped, e, s]), int(r.saving[s]), cost, cell(s + 1, s + 1, e), None)
        else:
            add(MOVE, s, int(r.move[taped, e, s]), 0, float(r.forward_time[s]), cell(s + 1, t, e), None)
        held, low = int(r.checkpoint[s]), int(r.split[taped, e, s])
        for j in range(t + 1, e + 1):
            add(SPLIT, j, low, held, float(r.forward_time[s]), cell(s + 1, j, e), time[0, cell(s, t, j - 1)])
        swept = 0.0
        for j in range(s + 1, e):
            swept += float(r.forward_time[j - 1])
            if j >= t:
                low = int(self.grid.first_row(r.sweep[s, j] + r.live[taped, e]))
                cost = swept + float(r.save_time[j])
                add(TAPE, j, low, int(r.taped[s, j]), cost, cell(j + 1, j + 1, e), time[1, cell(s, t, j)])
        return ways

    def best(self) -> float:
        """Return the minimum time of the whole chain; inf if it does not fit."""
        return float(self.time[0, cell(0, 0, self.needs.length), self.grid.start])

    def schedule(self, runs: RunList) -> None:
        """Append a schedule that takes `best`; each part on the path compares its options again."""

        def choose(part: Part, row: int) -> Choice:
            best, choice = np.inf, (-1, 0, 0)
            for way, j, low, held, cost, inner, rest in self._ways(part):
                if row < low:
                    continue
                sums = cost if inner is None else float(inner[row - held]) + cost
                if rest is not None:
                    sums = float(rest[row]) + sums
                if sums < best:
                    best, choice = sums, (way, j, row - held)
            assert choice[0] >= 0, "a segment of finite time has a way"
            return choice

        follow_floating(runs, self.needs.length, self.grid.start, choose)
