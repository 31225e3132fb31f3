"""`best-fit`: place buffers one after the other, each in the smallest gap that holds it.

A gap is an address range that the buffers placed before leave free during the whole lifetime. The range below the
lowest buffer counts, too. Of equal gaps, the lowest is taken. A buffer that fits in no gap is placed on top. The order
of the buffers decides:

| order | largest first | known from |
|---|---|---|
| `size` | bytes | XLA (spatial), TFLite's greedy by size, MLIR |
| `lifetime` | length of the lifetime, then bytes | XLA (temporal) |
| `area` | bytes times length of the lifetime | XLA, TelaMalloc |
| `weight` | maximum live bytes during its lifetime, then its own bytes | TFLite's greedy by breadth |
| `start` | by time instead: earliest first | any online allocator |
| `end` | by time instead: latest end first | |

O(n log n) merges of lists of gaps, which are short if the layout is dense (`remat_algorithms.layout.gaps_kernel`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from remat.plugin import FREE, THIS_SCHEDULE, Buffers, Context, IntArray, LayoutProposal, Options, arena_of
from remat_algorithms.layout import gaps_kernel as kernel
from remat_algorithms.layout.live_bytes import arena_bound, largest_load, loads, sections_of

Order = Literal["size", "lifetime", "area", "weight", "start", "end"]
ORDERS: tuple[Order, ...] = ("size", "lifetime", "area", "weight", "start", "end")


INSERTIONS, DEEPEST = 1e8, 128
"""Changes of lists above which the cut of the tree is less deep, and the maximum number of its nodes."""


class BestFitOptions(Options):
    """Options of `best-fit`."""

    order: Order = Field("size", description="property that decides which buffers are placed first")


def solve(buffers: Buffers, options: BestFitOptions, context: Context) -> LayoutProposal:
    """Place buffers in one order; return no layout if the arena exceeds the capacity."""
    return concluded(buffers, best_fit(buffers, options.order), arena_bound(buffers))


def concluded(buffers: Buffers, offset: IntArray, bound: int) -> LayoutProposal:
    """Return the layout, or report that it exceeds the capacity, or that every layout does."""
    if buffers.capacity is None or arena_of(buffers, offset) <= buffers.capacity:
        return LayoutProposal(offset=offset, bound=bound)
    return LayoutProposal(bound=bound, infeasible_within=THIS_SCHEDULE if bound > buffers.capacity else None)


def best_fit(buffers: Buffers, order: Order) -> IntArray:
    """Return the offsets that result from one order."""
    return Gaps(buffers).place(order)


class Gaps:
    """The kernel's representation of the buffers, shared by several orders.

    Groups (see `Buffers.group`) are placed as a whole. Their rank is that of their first buffer, by the largest size,
    the whole lifetime, or the sum of areas.
    """

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        count = len(buffers)
        sections, first, last = sections_of(buffers)
        self._sections = max(sections, 1)
        group = np.arange(count, dtype=np.int64) if buffers.group is None else buffers.group
        _, group = np.unique(group, return_inverse=True)
        self.group = group.astype(np.int64).ravel()
        self._shift = np.zeros(count, dtype=np.int64) if buffers.shift is None else buffers.shift
        self._row = np.argsort(self.group, kind="stable")
        groups = int(self.group.max(initial=-1)) + 1
        self._begin = np.searchsorted(self.group[self._row], np.arange(groups + 1)).astype(np.int64)
        self._first, self._last = first, last
        self._fixed = np.full(groups, FREE, dtype=np.int64)
        if buffers.fixed is not None:
            held = np.flatnonzero(buffers.is_fixed)
            self._fixed[self.group[held]] = buffers.fixed[held] - self._shift[held]
        self.arrays = self._measures(groups)

    def _measures(self, groups: int) -> dict[str, IntArray]:
        """Return size, lifetime, area, weight, start and end of each group; all but the start are ascending."""
        buffers = self._buffers
        first, last, size = self._first, self._last, buffers.rounded

        def gathered(combine: Callable[..., None], value: NDArray[Any], initial: int = 0) -> NDArray[Any]:
            found = np.full(groups, initial, dtype=value.dtype)
            combine(found, self.group, value)
            return found

        largest = partial(gathered, np.maximum.at)
        begin, end = gathered(np.minimum.at, buffers.start, int(buffers.start.max(initial=0))), largest(buffers.end)
        return {
            "size": largest(size),
            "lifetime": end - begin,
            "area": gathered(np.add.at, size.astype(np.float64) * (buffers.end - buffers.start)),
            "weight": largest(largest_load(loads(buffers, size), first, last)) if groups else begin,
            "start": begin,
            "end": end,
        }

    def order(self, order: Order) -> IntArray:
        """Return the groups in an order; fixed ones come first."""
        value = self.arrays[order] if order == "start" else -self.arrays[order]
        return np.lexsort((self.arrays["start"], -self.arrays["size"], value, self._fixed < 0))

    def place(self, order: Order) -> IntArray:
        """Return the offsets that result from an order."""
        return self.place_in(self.order(order))

    def place_in(self, order: IntArray) -> IntArray:
        """Return the offsets that result from placing groups in this order."""
        if not len(order):
            return np.zeros(0, dtype=np.int64)
        buffers, row = self._buffers, self._row
        leaves = 1 << (self._sections - 1).bit_length()
        # Average number of live rows; each node of the cut costs about as many insertions.
        share = float((self._last - self._first).sum()) / leaves
        cut = min(leaves, 1 << max(int(INSERTIONS / max(share, 1.0)), 1).bit_length() - 1, DEEPEST)
        rows = kernel.Rows(
            order=np.ascontiguousarray(order, dtype=np.int64),
            begin=self._begin,
            first=self._first[row],
            last=self._last[row],
            size=buffers.rounded[row],
            shift=self._shift[row],
            fixed=self._fixed,
            reserved=np.array(buffers.blocked, dtype=np.int64).reshape(-1, 2),
            leaves=leaves,
            cut=cut,
            unit=buffers.alignment,
        )
        most = int(np.diff(self._begin).max())
        lists = np.zeros((2, 2 * leaves, 3), dtype=np.int64)
        offset = np.full(len(order), -1, dtype=np.int64)
        low, high = np.empty((2, 16 * len(row) + 64 * cut), dtype=np.int64)
        room = (len(row) + len(rows.reserved) + 8) * most
        mine, spare, every = (np.empty((2, room), dtype=np.int64) for _ in range(3))
        state = kernel.State()
        while not kernel.FIT.bind(rows, kernel.Tree(lists, low, high, mine, spare, every, offset, state))():
            low, high = (np.concatenate((column, np.empty_like(column))) for column in (low, high))
        return offset[self.group] + self._shift
