"""Rows of the recurrences over storage levels, and the schedules that they describe.

A row belongs to a storage level and gives the time of l advances (l+1 steps). Backwards are left out, because all
schedules pay the same for them. With w and r the level's write and read times and uf the time of an advance,

    stored[l] = min(below[l], min_{1<=j<=l} j*uf + right[l-j] + r + left[j-1]),    stored[0] = 0
    live[l]   = min(below[l], w + stored[l]),                                      live[0] = 0

`stored` is the minimum time if the first state is already in the level, `live` if it is only in the working memory.
`below` is the `live` of the row that applies if this level is not used (infinite for the lowest level). `right` is the
`live` of the row for the steps after the split, and `left` the row for the steps before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat.plugin import Number
from remat_algorithms.adjoint.levels.uniform import Level
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.kit.binomial import beta

FloatArray = np.ndarray[tuple[int], np.dtype[np.float64]]

CHECKED_EVERY = 4096
"""Entries of a row between two looks at the clock."""

TOGETHER = 16
"""Rows that grow side by side."""


class Stopped(Exception):
    """The time limit has passed, or the user has interrupted."""


@dataclass(frozen=True, eq=False)
class Row:
    """One row; `below`, `right` and `left` None mean nothing, the row itself and the row itself.

    Attributes
    ----------
    level : Level or None
        None: the row of no storage at all, which can only reverse a single step.
    forward : int or float
        uf.
    live, stored : (l+1,) float64
    below, right, left : Row or None
    left_stored : bool
        Whether the first state is still in this level when the left part begins; if not, its last read moved it.
    """

    level: Level | None
    forward: Number
    live: FloatArray
    stored: FloatArray
    below: Row | None = None
    right: Row | None = None
    left: Row | None = None
    left_stored: bool = True

    def split(self, advances: int) -> int:
        """Return the least j that attains the minimum over splits (O(l))."""
        ahead, behind = self._sides
        return int((ahead[:advances] + behind[len(behind) - advances :]).argmin()) + 1

    @cached_property
    def _sides(self) -> tuple[FloatArray, FloatArray]:
        """Time of each split before and up to its read of x_0, and its time after that, in reverse."""
        assert self.level is not None
        right, left = self.right or self, self.left or self
        before = left.stored if self.left_stored else left.live
        most = len(before) - 1
        return np.arange(1, most + 1) * self.forward + self.level.read + before[:-1], right.live[-2::-1].copy()

    def descends(self, advances: int, *, stored: bool) -> bool:
        """Whether the row below applies; on ties it does, which avoids useless stores."""
        if self.below is None:
            return False
        mine = self.stored[advances] if stored else self.live[advances]
        return bool(self.below.live[advances] <= mine)


def no_storage(advances: int, forward: Number) -> Row:
    """Return the row without any storage."""
    nothing = np.full(advances + 1, np.inf)
    nothing[0] = 0
    return Row(None, forward, nothing, nothing)


def binomial_row(level: Level, slots: int, forward: Number, right: Row) -> Row:
    """Return the row of a lowest level whose transfers take no time, in closed form: O(l).

    With t(n, s) of `remat_algorithms.kit.binomial`, t(l+1, s) - t(l, s) is the r for which
    beta(s, r-1) <= l < beta(s, r).
    """
    most = len(right.live) - 1
    counts: list[int] = []
    reached = 1
    while reached <= most:
        after = beta(slots, len(counts) + 1)
        counts.append(min(after, most + 1) - reached)
        reached = after
    repeats = np.repeat(np.arange(1, len(counts) + 1), counts)
    times = np.concatenate(([0], np.cumsum(repeats))) * float(forward)
    return Row(level, forward, times, times, None, right)


def fill(
    level: Level,
    forward: Number,
    below: Row,
    *,
    right: Row | None = None,
    left: Row | None = None,
    left_stored: bool = True,
    stopped: Callable[[], bool] = lambda: False,
) -> Row:
    """Compute a row from others, or from its own smaller entries where `right` or `left` is None.

    O(l^2) time in l array operations: an entry is one addition of two contiguous slices and one minimum.

    Raises
    ------
    Stopped
    """
    most = len(below.live) - 1
    live, stored = np.zeros(most + 1), np.zeros(most + 1)
    # `behind` holds right's entries in reverse, so that a slice's i-th entry is right[l-1-i].
    behind = np.zeros(most + 1) if right is None else right.live[::-1].copy()
    ahead = np.arange(1, most + 2) * float(forward) + level.read
    if left is not None:
        ahead = ahead + (left.stored if left_stored else left.live)
    sums = np.empty(most + 1)
    lower, write = below.live.tolist(), level.write
    add, least = np.add, np.minimum.reduce
    for count in range(1, most + 1):
        if count % CHECKED_EVERY == 0 and stopped():
            raise Stopped
        add(behind[most - count + 1 :], ahead[:count], out=sums[:count])
        best = min(lower[count], float(least(sums[:count])))
        stored[count] = best
        if left is None:
            ahead[count] += best
        best = min(lower[count], write + best)
        live[count] = best
        if right is None:
            behind[most - count] = best
    under = None if below.level is None else below
    return Row(level, forward, live, stored, under, right, left, left_stored)


def fill_slots(
    level: Level, forward: Number, below: Row, slots: int, *, stopped: Callable[[], bool] = lambda: False
) -> Row:
    """Compute the rows of a level with 1 .. `slots` free slots; return the last one.

    `right` is the row with a slot less, with no free slot the one below; `left` is the row itself. Rows from where on
    more slots do not help are left out. O(slots l^2) time in O(l) array operations: so many rows grow side by side.

    Raises
    ------
    Stopped
    """
    row, first = below, True
    most = len(below.live) - 1
    lower, write = below.live.tolist(), level.write
    for begin in range(0, slots, TOGETHER):
        count = min(TOGETHER, slots - begin)
        live, stored = np.zeros((count, most + 1)), np.zeros((count, most + 1))
        behind, ahead = np.zeros((count, most + 1)), np.empty((count, most + 1))
        behind[0] = row.live[::-1]
        ahead[:] = np.arange(1, most + 2) * float(forward) + level.read
        space = np.empty(count * (most + 1))
        for length in range(1, most + 1):
            if length % CHECKED_EVERY == 0 and stopped():
                raise Stopped
            sums = space[: count * length].reshape(count, length)
            np.add(behind[:, most - length + 1 :], ahead[:, :length], out=sums)
            best = np.minimum(np.minimum.reduce(sums, axis=1), lower[length])
            stored[:, length] = best
            ahead[:, length] += best
            live[:, length] = best = np.minimum(best + write, lower[length])
            behind[1:, most - length] = best[:-1]
        under = None if below.level is None else below
        for number in range(count):
            after = Row(level, forward, live[number], stored[number], under, row)
            enough = not first and np.array_equal(after.live, row.live)
            row, first = after, False
            if enough:
                return row
    return row


def emit(plan: Plan, row: Row, advances: int, *, stored: bool = False) -> None:
    """Append the schedule of a row for steps 0 .. advances.

    Each checkpoint leaves its level with its last read: whether a copy is read again is known from the decision
    for the part that follows the read. O(advances) splits, each O(advances) at most; no recursion.

    Parameters
    ----------
    plan : Plan
    row : Row
    advances : int
    stored : bool
        Whether x0 already lies in the row's level (it is live, too).
    """
    if stored and row.level is not None and (advances == 0 or row.descends(advances, stored=True)):
        plan.discard(0, row.level.memory)
    # (first step, advances, row, whether its first state is in the row's level, level to read it from)
    stack: list[tuple[int, int, Row, bool, int]] = [(0, advances, row, stored, -1)]
    while stack:
        first, count, here, kept, source = stack.pop()
        descends = count > 0 and here.descends(count, stored=kept)
        if source >= 0:
            plan.read(first, source, last=not kept or count == 0 or descends)
        if count == 0:
            plan.back(first)
        elif descends:
            assert here.below is not None
            stack.append((first, count, here.below, False, -1))
        else:
            assert here.level is not None
            if not kept:
                plan.write(first, here.level.memory)
            split = here.split(count)
            plan.advance(first, first + split)
            stack.append((first, split - 1, here.left or here, here.left_stored, here.level.memory))
            stack.append((first + split, count - split, here.right or here, False, -1))
