"""Revolve's operations one by one: ranges of steps reversed with the slots that are free, in O(slots) memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from math import isqrt
from typing import overload

import numpy as np

from remat.plugin import Entry, IntArray, Operation, entry_array

# Plain integers: they go into arrays faster than members of the enumeration.
ADVANCE, BACK, WRITE, READ, READ_LAST, DISCARD = (int(operation) for operation in Operation)

Split = Callable[[int, int], int]
Range = tuple[int, int, int, bool]
"""First step, number of steps, position of the first state's slot, and whether it must be read from there."""


class Splits:
    """`remat_algorithms.kit.binomial.first_split` with its binomials at hand.

    Parameters
    ----------
    most : int
        Most steps of a range.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: dict[int, list[int]] = {}

    def __call__(self, steps: int, slots: int) -> int:
        """Return the least optimal place of the second checkpoint, for steps >= 2 and slots >= 2."""
        if steps <= slots + 1:
            return 1
        if slots == 2:  # beta(2, r) = (r+1)(r+2)/2
            r = (isqrt(8 * steps - 7) - 1) // 2
            return max(1, r * (r - 1) // 2, steps - r - 1)
        row, below = self._row(slots), self._row(slots - 1)
        r = bisect_left(row, steps)
        return max(1, row[r - 2] if r > 1 else 0, steps - below[r])

    def _row(self, slots: int) -> list[int]:
        """Return beta(slots, r) for r = 0, 1, ... up to the first that is no less than `most`."""
        row = self._rows.get(slots)
        if row is None:
            row = [1]
            while row[-1] < self._most:
                row.append(row[-1] * (slots + len(row)) // len(row))
            self._rows[slots] = row
        return row


class Alike(Sequence[int]):
    """The level of each of any number of slots: all of them the same, but perhaps the first."""

    def __init__(self, level: int, count: int, *, first: int | None = None) -> None:
        self._level, self._count = level, count
        self._first = level if first is None else first

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        return self._level if index else self._first


def reverse_ranges(ranges: list[Range], levels: Sequence[int], split: Split) -> Iterator[Entry]:
    """Reverse ranges of steps, the last one of the list first.

    Parameters
    ----------
    ranges : list of (first, steps, position, waits)
        A range's first state lies in the slot of that number, and is live too unless it `waits` to be read. The slots
        of higher numbers are free while the range is reversed. The list is used up.
    levels : sequence of int
        Memory of each slot.
    split : callable
        From steps and slots, both at least 2, to an optimal place of the second checkpoint.

    Yields
    ------
    (operation, first, end or level)
    """
    stack, last = ranges, len(levels) - 1
    while stack:
        start, count, position, waits = stack.pop()
        level = levels[position]
        if waits:
            yield (READ_LAST if count == 1 else READ, start, level)
        while count > 1 and position < last:
            ahead = split(count, last - position + 1)
            yield (ADVANCE, start, start + ahead)
            stack.append((start, ahead, position, True))
            start, count, position = start + ahead, count - ahead, position + 1
            if count > 1:
                yield (WRITE, start, levels[position])
        if count > 1:
            level = levels[position]
            for step in range(start + count - 1, start, -1):
                yield (ADVANCE, start, step)
                yield (BACK, step, 0)
                yield (READ_LAST if step == start + 1 else READ, start, level)
        yield (BACK, start, 0)


def reversal(
    first: int,
    steps: int,
    levels: Sequence[int],
    *,
    stored: bool = False,
    given: bool = False,
    split: Split | None = None,
) -> Iterator[Entry]:
    """Reverse a block of steps by Revolve (see `remat_algorithms.adjoint.binomial.revolve`).

    Parameters
    ----------
    first, steps : int
        The block: steps first .. first+steps-1. Its first state is live, unless it is `stored`.
    levels : sequence of int
        Memory of each position of the stack of checkpoints, the first state's own included: one or more.
    stored : bool
        The first state lies in ``levels[0]`` and is not live: it is read from there.
    given : bool
        The first state is live, and lies in ``levels[0]`` too.
    split : callable
        From steps and slots to an optimal place of the second checkpoint; default: the least one.
    """
    if steps == 1 and given:
        yield (DISCARD, first, levels[0])
    if steps > 1 and not stored and not given:
        yield (WRITE, first, levels[0])
    yield from reverse_ranges([(first, steps, 0, stored)], levels, split or Splits(steps))


SMALL = 256
"""Steps of a range of which the operations are kept: longer ones are put together from these."""

MOST_KEPT = 1_000_000
"""Maximum number of cached operations (48 MB); beyond it, the cache is cleared."""


class Blocks:
    """Revolve's operations as arrays, with all checkpoints in one level; equal ranges are computed once.

    `reverse_ranges` yields, for a range of `count` steps and `free` slots (including its own), the operations of the
    two ranges into which it is split, shifted to their starts. Schedules of one loop with other numbers of slots
    consist of the same ranges.

    Parameters
    ----------
    level : int
        Memory of all slots.
    split : callable
        As for `reverse_ranges`.
    """

    def __init__(self, level: int, split: Split) -> None:
        self._level, self._split = level, split
        self._known: dict[tuple[int, int], tuple[IntArray, IntArray]] = {}
        self._kept = 0

    def reversal(self, steps: int, slots: int, *, given: bool = False) -> Iterator[IntArray]:
        """Yield (entries, 3) arrays that together are `reversal` from step 0 on with so many slots."""
        level = self._level
        if steps == 1 and given:
            yield entry_array([(DISCARD, 0, level)])
        if steps > 1 and not given:
            yield entry_array([(WRITE, 0, level)])
        stack = [(0, steps, slots, False)]
        few: list[Entry] = []
        while stack:
            start, count, free, waits = stack.pop()
            if waits:
                few.append((READ_LAST if count == 1 else READ, start, level))
            while count > SMALL and free > 1:
                ahead = self._split(count, free)
                few.append((ADVANCE, start, start + ahead))
                stack.append((start, ahead, free, True))
                start, count, free = start + ahead, count - ahead, free - 1
                if count > 1:
                    few.append((WRITE, start, level))
            if few:
                yield entry_array(few)
                few = []
            block, moves = self._block(count, free)
            yield block + start * moves

    def _block(self, count: int, free: int) -> tuple[IntArray, IntArray]:
        """Return the operations of a range that starts at 0 and is live, and which of their numbers are states."""
        free = min(free, count)  # more than that are of no use
        known = self._known.get((count, free))
        if known is None:
            block = self._made(count, free)
            moves = np.zeros_like(block)
            moves[:, 1] = 1
            moves[:, 2] = block[:, 0] == ADVANCE
            known = block, moves
            if count <= SMALL:
                self._kept += len(block)
                if self._kept > MOST_KEPT:
                    self._known.clear()
                    self._kept = len(block)
                self._known[count, free] = known
        return known

    def _made(self, count: int, free: int) -> IntArray:
        if count == 1:
            return entry_array([(BACK, 0, 0)])
        if free == 1:
            return self._again_from_the_first(count)
        ahead = self._split(count, free)
        behind, moves = self._block(count - ahead, free - 1)
        between = [(ADVANCE, 0, ahead), *([(WRITE, ahead, self._level)] if count - ahead > 1 else [])]
        read = entry_array([(READ_LAST if ahead == 1 else READ, 0, self._level)])
        return np.concatenate((entry_array(between), behind + ahead * moves, read, self._block(ahead, free)[0]))

    def _again_from_the_first(self, count: int) -> IntArray:
        """Return the operations where no slot is left: for each step, all steps before it once more."""
        step = np.arange(count - 1, 0, -1, dtype=np.int64)
        rows = np.zeros((count - 1, 3, 3), dtype=np.int64)
        rows[:, 0, 0], rows[:, 0, 2] = ADVANCE, step
        rows[:, 1, 0], rows[:, 1, 1] = BACK, step
        rows[:, 2, 0], rows[:, 2, 2] = READ, self._level
        rows[-1, 2, 0] = READ_LAST
        return np.concatenate((rows.reshape(-1, 3), entry_array([(BACK, 0, 0)])))
