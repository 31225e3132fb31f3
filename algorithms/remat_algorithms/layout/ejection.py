"""Ejection search: repair a partial layout in an arena of a given size until no buffer waits for a place.

A buffer that waits is placed where it ejects least; the buffers that overlap with it then wait. The candidates are both
ends of the arena and of each buffer whose lifetime overlaps. An ejected buffer costs its weight plus the tension of the
pair. The weight of a buffer grows when it ejects others. The tension of a pair grows when one ejects the other, which
prevents cycles (after the guided ejection search of Nagata and Bräysy 2009 for vehicle routing). In every other run the
heaviest waiting buffer comes next, so that buffers that rarely find a place settle first; in the others, a random one.
After each placement some buffers move at random to places that eject nothing.

The search finds small arenas where few buffers live at a time and sizes rarely add up exactly, often within fractions
of a second. It proves nothing.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from remat.plugin import FREE, Buffers, IntArray
from remat_algorithms.layout import ejection_kernel as kernel
from remat_algorithms.layout.layout_search import LayoutSearch
from remat_algorithms.layout.live_bytes import rows_within, sections_of

MOST_PAIRS = 500_000
"""Pairs of buffers with overlapping lifetimes beyond which nothing is searched."""

FIRST_WORK, TURNS = 20_000_000, 4
"""Work of the first runs, and the number of runs in vain after which it doubles."""

SHARES = (0.1, 0.02, 0.3, 0.05)
"""Distances of the next arenas below the best one, as shares of the distance to the lower bound."""

MOVES = (2, 1, 4)
"""Numbers of buffers that move at random after each placement."""

UNIT, SETUP, SETUP_OF_PAIR = 1, 100_000, 20
"""Nanoseconds of a step of the kernel, and of the arrays of a run: in all, and for each pair."""


class Ejections(LayoutSearch):
    """Ejection searches of growing length for the same buffers."""

    share = 0.25
    _vain = 0
    _offset: IntArray | None = None

    @cached_property
    def _neighbors(self) -> int:
        """The number of ordered pairs of buffers with overlapping lifetimes."""
        _, first, last = sections_of(self._buffers)
        begun = np.searchsorted(np.sort(first), last)
        ended = np.searchsorted(np.sort(last), first, side="right")
        return int((begun - ended - 1).sum())

    @property
    def _is_small(self) -> bool:
        return self._neighbors <= MOST_PAIRS

    def _run(self, arenas: range, work: int, best: IntArray | None) -> IntArray | None:
        pair = self._turn // 2
        arena = arenas[-1 - int(SHARES[pair % len(SHARES)] * (len(arenas) - 1))]
        seed = self._context.seed + self._turn
        run = _Run(self._buffers, arena, MOVES[pair % len(MOVES)], self._turn % 2 == 0, seed)
        most = min(FIRST_WORK << self._vain // TURNS, work)
        offset, steps = run.search(self._offset if pair % 2 else None, most // UNIT)
        self.work += UNIT * steps + SETUP + SETUP_OF_PAIR * self._neighbors
        if offset is None:
            self._vain += 1
        else:
            self._offset, self._vain = offset, 0
        return offset


class _Run:
    """One search."""

    def __init__(self, buffers: Buffers, capacity: int, moves: int, heavy_first: bool, seed: int) -> None:
        most, _, first, last, size, fixed = rows_within(buffers, capacity)
        self._count, rows = len(buffers), len(size)
        others = [np.flatnonzero((first < last[k]) & (first[k] < last)) for k in range(rows)]
        others = [other[other != k] for k, other in enumerate(others)]
        begin = np.cumsum([0, *map(len, others)], dtype=np.int64)
        other = np.concatenate(others) if rows else np.zeros(0, dtype=np.int64)
        twin = np.empty(len(other), dtype=np.int64)
        # The pairs are sorted by row, then by the other one.
        twin[np.lexsort((np.repeat(np.arange(rows), np.diff(begin)), other))] = np.arange(len(other))
        self._rows = kernel.Rows(size, fixed, begin, other, twin, most, moves, int(heavy_first))
        self._counts = kernel.Counts()
        self._counts.random = seed * 7919 + 1

    def search(self, offset: IntArray | None, work: int) -> tuple[IntArray | None, int]:
        """Return a layout, or None, and the work done.

        Parameters
        ----------
        offset : (buffers,) int64, optional
            A layout; its buffers that fit keep their places at first.
        work : int
            The most steps.
        """
        rows, counts = self._rows, self._counts
        begin = rows.fixed.copy()
        if offset is not None:
            fits = (begin[: self._count] == FREE) & (offset + rows.size[: self._count] <= rows.capacity)
            begin[: self._count][fits] = offset[fits]
        waiting = np.empty(len(begin), dtype=np.int64)
        out = np.flatnonzero(begin == FREE)
        waiting[: len(out)] = out
        counts.waiting, counts.limit = len(out), work
        weight, tension = (np.ones(len(column), dtype=np.int64) for column in (begin, rows.other))
        kernel.RUN.bind(rows, kernel.Partial(begin, waiting, weight, tension, counts))()
        return None if counts.waiting else begin[: self._count], int(counts.work)
