"""Large neighbourhoods: CP-SAT improves the best layout by solving parts of it.

The model has one rectangle over time and address for each buffer. No two of them overlap, and the highest end is
minimised. CP-SAT fixes most of the best layout, for example everything outside a window of time, and solves for the
rest (large neighbourhood search: Shaw 1998). It alternates between kinds of neighbourhoods and complete searches. Most
improvements come soon after a start, so the search starts often, each time with another seed. Work is deterministic.

This finds small arenas where few buffers live at a time and sizes rarely add up exactly, after the ejection search has
come near.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from remat.plugin import FREE, Buffers, Context, IntArray, arena_of
from remat_algorithms.kit.programs.cp_sat import CpSatJob
from remat_algorithms.kit.programs.solver_status import Outcome
from remat_algorithms.layout.live_bytes import loads, rows_of

MOST_BUFFERS, MOST_PAIRS = 1000, 25_000
"""Numbers of buffers, and of pairs of buffers that live in one section, summed over the sections, beyond which nothing
is searched. Where more buffers live at a time, other searches use the time better."""

CALL, SECOND = 800_000_000, 4_000_000_000
"""Work of a start, and of a second of CP-SAT's deterministic time, in units of about a nanosecond."""

LARGEST = 1 << 40
"""Addresses above which CP-SAT is not asked: its sums must not overflow."""


class Neighborhoods:
    """Improvements of layouts of the same buffers.

    Attributes
    ----------
    work : int
        Units of work done.

    Parameters
    ----------
    buffers : Buffers
        Without groups.
    context : Context
    """

    def __init__(self, buffers: Buffers, context: Context) -> None:
        self._buffers, self._context, self._turn = buffers, context, 0
        self.work = 0

    @cached_property
    def _rows(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """First section, the one after the last, size, and fixed offset of buffers and reserved ranges."""
        return rows_of(self._buffers, self._buffers.blocked)[1:]

    @cached_property
    def _unit(self) -> int:
        """The number that divides all sizes and fixed offsets; rounding a layout down to it causes no overlap."""
        _, _, size, fixed = self._rows
        return int(np.gcd.reduce(np.concatenate((size, fixed[fixed != FREE]))))

    @cached_property
    def _is_small(self) -> bool:
        """Whether improvements are likely in the time."""
        if len(self._buffers) > MOST_BUFFERS:
            return False
        return int((loads(self._buffers, np.ones_like(self._buffers.size)) ** 2).sum()) <= MOST_PAIRS

    def improve(self, offset: IntArray, bound: int, work: int) -> IntArray | None:
        """Return a layout with a smaller arena, or None.

        Parameters
        ----------
        offset : (buffers,) int64
            A layout.
        bound : int
            A lower bound on the arena.
        work : int
            Units of work, of about a nanosecond, after which to stop. The object's `work` adds them up.
        """
        limit, arena = self.work + work, arena_of(self._buffers, offset)
        if not self._is_small or arena // self._unit > LARGEST:
            return None
        while self.work < limit and not self._context.stopped:
            found = self._start(offset, bound, min(CALL, limit - self.work))
            if found is not None and arena_of(self._buffers, found) < arena:
                return found
        return None

    def _start(self, offset: IntArray, bound: int, work: int) -> IntArray | None:
        """Return the best layout of one start."""
        model, starts = self._model(offset, bound)
        job = CpSatJob(model, threads=1, seed=self._context.seed + self._turn, seconds=None)
        job.solver.parameters.interleave_search = True
        job.solver.parameters.max_deterministic_time = work / SECOND
        self._turn += 1
        answer = job.solve()
        self.work += max(int(SECOND * job.work), CALL // 100)
        if answer.outcome not in (Outcome.OPTIMAL, Outcome.FEASIBLE):
            return None
        return self._unit * np.array([job.solver.value(start) for start in starts], dtype=np.int64)

    def _model(self, offset: IntArray, bound: int) -> tuple[Any, list[Any]]:
        """Return the model, with the layout as its hint, and the offsets of the buffers in it."""
        from ortools.sat.python import cp_model

        first, last, size, fixed = self._rows
        unit, count = self._unit, len(self._buffers)
        highest = -(-arena_of(self._buffers, offset) // unit)
        held = np.concatenate((offset, fixed[count:])) // unit
        model = cp_model.CpModel()
        arena = model.new_int_var(min(bound // unit, highest), highest, "")
        lives: list[Any] = []
        ranges: list[Any] = []
        starts: list[Any] = []
        rows = (column.tolist() for column in (first, last, size // unit, held, fixed != FREE))
        for begin, end, extent, at, is_fixed in zip(*rows, strict=True):
            start = model.new_int_var(at, at, "") if is_fixed else model.new_int_var(0, highest - extent, "")
            model.add_hint(start, at)
            lives.append(model.new_fixed_size_interval_var(begin, end - begin, ""))
            ranges.append(model.new_fixed_size_interval_var(start, extent, ""))
            if len(starts) < count:
                starts.append(start)
                model.add(start + extent <= arena)
        model.add_no_overlap_2d(lives, ranges)
        model.minimize(arena)
        return model, starts
