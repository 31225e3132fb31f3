"""Reinsertion: take some buffers out of a layout, keep the order of the others, and insert them again.

The *order* of a layout says for each two buffers with overlapping lifetimes which of them lies above. The smallest
arena of an order is its longest path: every buffer lies as low as the buffers below it allow. A buffer that is inserted
into an order lengthens no path but those through it. The longest of them is a longest path from below, the buffer, and
a longest path above, so that every place is judged exactly (as machines of job shops are rescheduled: Dell'Amico and
Trubian 1993).

A turn takes out a few buffers that live at about the same time, mostly near a longest path, and inserts one after the
other where the longest path through it is short. The result replaces the layout if its arena is not much larger;
increases that are accepted shrink to 0 during a run (ruin and recreate: Schrimpf et al. 2000). Runs begin
alternately with the best known layout and with that of a greedy order.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from remat.plugin import FREE, IntArray, arena_of
from remat_algorithms.layout import reinsertion_kernel as kernel
from remat_algorithms.layout.best_fit import ORDERS, Gaps
from remat_algorithms.layout.layout_search import LayoutSearch
from remat_algorithms.layout.live_bytes import rows_of

MOST_PLACES = 100_000
"""Number of buffers, plus pairs of a buffer and a section of its life, beyond which a turn takes too long."""

LARGEST = 1 << 60
"""Total size above which nothing is searched: paths must not overflow."""

FIRST_WORK, LONGEST_WORK, SLICE = 400_000_000, 2_000_000_000, 50_000_000
"""Work of the first runs and of the longest ones, and of a slice after which a run can be stopped."""

RUNS = 2
"""Number of runs in vain after which the work doubles."""

MOST_OUT, WIDEST = 10, 30
"""The most buffers that are taken out in a turn, and the most sections of the window in which they live."""

HEATS = (100, 400)
"""The bound over these numbers is an increase that every second turn may accept when a run begins."""

SETUP, SETUP_OF_PLACE = 100_000, 20
"""Nanoseconds of the arrays of a run: in all, and for each pair of a buffer and a section."""


class Reinsertions(LayoutSearch):
    """Runs of growing length."""

    share = 2.0
    _vain = 0

    @cached_property
    def _rows(self) -> kernel.Rows:
        count = len(self._buffers)
        self._sections, first, last, size, fixed = rows_of(self._buffers, self._buffers.blocked)
        slot = np.cumsum(last - first) - (last - first)
        # Reserved ranges do not count as part of the arena.
        extent = np.concatenate((self._buffers.size, -fixed[count:]))
        return kernel.Rows(first, last, slot, size, extent, fixed, MOST_OUT, WIDEST, 0)

    @cached_property
    def _places(self) -> int:
        return int((self._rows.last - self._rows.first).sum())

    @property
    def _is_small(self) -> bool:
        most = int(self._rows.size.sum()) + int(self._rows.fixed.max(initial=0))
        is_free = bool((self._rows.fixed == FREE).any())
        return is_free and self._places + len(self._rows.size) <= MOST_PLACES and most <= LARGEST

    @cached_property
    def _greedy(self) -> list[IntArray]:
        """Layouts of greedy orders, the smallest arena first."""
        gaps = Gaps(self._buffers)
        return sorted((gaps.place(order) for order in ORDERS), key=lambda offset: arena_of(self._buffers, offset))

    def _run(self, arenas: range, work: int, best: IntArray | None) -> IntArray | None:
        pair = self._turn // 2
        start = self._greedy[pair % len(self._greedy)] if best is None or self._turn % 2 else best
        limit = min(FIRST_WORK << self._vain // RUNS, LONGEST_WORK, work)
        rows = self._rows._replace(bound=arenas.start)
        now, state = self._begin(start)
        at = state.at
        at.limit, at.heat = limit, arenas.start // HEATS[pair % len(HEATS)]
        kernel.PREPARE.bind(rows, now, state)()
        before = kernel.Layout(*(column.copy() for column in now))
        run = kernel.RUN.bind(rows, now, before, state)
        while at.work < limit and at.target >= arenas.start and not self._context.stopped:
            run(min(at.work + SLICE, limit))
        self.work += int(at.work) + SETUP + SETUP_OF_PLACE * self._places
        self._vain = self._vain + 1 if at.target >= arenas[-1] else 0
        return state.best[: len(self._buffers)]

    def _begin(self, offset: IntArray) -> tuple[kernel.Layout, kernel.Work]:
        """Return a layout and the state of a run."""
        rows, arena = self._rows, arena_of(self._buffers, offset)
        best = np.concatenate((offset, rows.fixed[len(offset) :]))
        at = kernel.Counts(random=(self._context.seed + self._turn) * 7919 + 1)
        at.target, at.current = arena - 1, arena
        end, tail, out, is_out, end_changes, tail_changes = np.zeros((6, len(best)), dtype=np.int64)
        below, above = np.full((2, self._places), -1, dtype=np.int64)
        lowest = np.full(self._sections, -1, dtype=np.int64)
        order = np.argsort(best + rows.size, kind="stable")
        path = np.zeros(len(best) + 1, dtype=np.int64)
        now = kernel.Layout(order, below, above, lowest, end, tail)
        return now, kernel.Work(out, is_out, end_changes, tail_changes, path, best, at)
