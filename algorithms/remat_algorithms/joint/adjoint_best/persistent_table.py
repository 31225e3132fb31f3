"""A table over ranges of steps and free bytes: the best persistent schedule, `adjoint-best`'s start for long loops.

Walther and Griewank's recurrence (2008), with checkpoints of individual sizes in levels with byte capacities. f are the
free bytes of all levels, s_i the size of x_i, w_a and r_a(i) the times to write and to read it in level a, e_a one byte
of level a, and U(i, j) the time from x_i to x_j:

    Q(k, k, f) = P_a(k, k, f) = 0
    P_a(i, k, f) = min(min over i < j <= k of U(i, j) + Q(j, k, f) + r_a(i) + P_a(i, j-1, f),   x_i live, and in level a
                       Q(i, k, f + s_i e_a))                                                    leaves a, or moves
    Q(i, k, f)   = min over a of w_a(i) + P_a(i, k, f - s_i e_a)                                x_i only live

The second line of P lets one level serve another: a state read back from disk may move to memory. Unlike in h-revolve,
every part of the schedule may use every level, since f contains the free bytes. The table is exact among persistent
schedules whose working memory holds one state. In these schedules a checkpoint stays until its range is reversed, or
moves when its range begins again. If the sizes' common divisor is too small for the table, sizes are rounded up to its
units, and the table is exact up to this rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from remat.plugin import IntArray, Number, NumberArray
from remat_algorithms.joint.adjoint_best.model import Kind, Model, Operation

MOST_CELLS = 40_000_000
MOST_WORK = 2_000_000_000
"""Maximum number of sums of table entries: some seconds."""

LEAST_TRIED, MOST_ROUNDED = 16, 40_000
"""Minimum number of unit counts to try, and maximum number of sizes to round for it: some hundredths of a second."""


@dataclass(frozen=True)
class Store:
    """A place for checkpoints: a storage level, or bytes of the working memory that no operation needs."""

    memory: int
    room: int
    write: NumberArray
    read: NumberArray


def stores(model: Model) -> list[Store] | None:
    """Return the places for checkpoints next to one working state and adjoint; None if those do not fit."""
    n = model.steps
    reach, need = 0, 0
    for t in range(n):
        reach = max(reach, model.state[t])
        need = max(need, reach + model.adjoint[t + 1], model.state[t] + model.adjoint[t + 1] + model.extra[t])
    spare = model.capacity[0] - need
    if spare < 0:
        return None
    zero = np.zeros(n)
    own = [Store(0, min(spare, sum(model.state)), zero, zero)] if spare >= min(model.state) > 0 else []
    return own + storage_levels(model)


def storage_levels(model: Model) -> list[Store]:
    """Return the storage levels with links in both directions."""
    total = sum(model.state)
    found = []
    for level in range(1, len(model.capacity)):
        if {(0, level), (level, 0)} <= model.copy.keys():
            write, read = np.array(model.copy[0, level], float), np.array(model.copy[level, 0], float)
            found.append(Store(level, min(model.capacity[level], total), write, read))
    return found


def units_of(state: list[int], room: int, most: int) -> tuple[int, IntArray]:
    """Return the number of units of a place, at most `most`, and the states' sizes in units, rounded up.

    Exact if the sizes' common divisor allows it. Otherwise the number of units with the least waste: of all numbers in
    the upper half, or of an evenly spread sample of it.
    """
    sizes = np.array(state, dtype=object)
    divisor = gcd(*state) or 1
    if room // divisor <= most:
        return int(room // divisor), np.array([size // divisor for size in state], dtype=np.int64)
    best: tuple[float, int, IntArray] | None = None
    least, tried = max(1, most // 2), max(LEAST_TRIED, MOST_ROUNDED // max(1, len(state)))
    tried = min(tried, most - least + 1)
    for count in (least + (most - least) * k // max(1, tried - 1) for k in range(tried)):
        units = -(-sizes * count // room)
        waste = float((units * room).sum()) / (count * max(1.0, float(sizes.sum())))
        if best is None or waste < best[0]:
            best = waste, count, np.minimum(units, count + 1).astype(np.int64)
    assert best is not None
    return best[1], best[2]


class GridTable:
    """A table with an axis of free units for each of some memories.

    Attributes
    ----------
    shape : tuple of int
    sizes : list of (n,) int
        The sizes of the states in the units of each axis.
    """

    shape: tuple[int, ...]
    sizes: list[IntArray]

    @property
    def full(self) -> tuple[int, ...]:
        """The cell with all units free."""
        return tuple(length - 1 for length in self.shape)

    def shifts(self, axis: int | None, i: int) -> tuple[tuple[slice, ...] | None, tuple[slice, ...]]:
        """Return the cells with x_i in a memory, and the same cells without it; all cells for one without an axis."""
        low, high = [slice(None)] * len(self.shape), [slice(None)] * len(self.shape)
        if axis is not None:
            size = int(self.sizes[axis][i])
            if size >= self.shape[axis]:
                return None, ()
            low[axis], high[axis] = slice(0, self.shape[axis] - size), slice(size, None)
        return tuple(low), tuple(high)

    def shifted(self, free: tuple[int, ...], axis: int | None, i: int, sign: int) -> tuple[int, ...] | None:
        """Return the free units with x_i taken out of a memory (1) or put into it (-1); None if they do not exist."""
        if axis is None:
            return free
        units = free[axis] + sign * int(self.sizes[axis][i])
        return (*free[:axis], units, *free[axis + 1 :]) if 0 <= units < self.shape[axis] else None


class LevelTable(GridTable):
    """The tables P and Q; shapes (levels, i, k, free ...) and (k, i, free ...).

    If all steps are equal, the tables depend only on k - i, which replaces both axes.
    """

    def __init__(self, model: Model, places: list[Store]) -> None:
        n = model.steps
        self.model, self.places = model, places
        self.alike = _all_equal(model.state, model.forward, *((place.write, place.read) for place in places))
        pairs, splits = (n, n**2 // 2) if self.alike else (n * n, n**3 // 6)
        work = MOST_WORK // (4 if self.alike else 1)
        cells = min(MOST_CELLS // ((len(places) + 1) * pairs), work // max(1, len(places) * splits))
        counts, self.sizes = _grid(model.state, places, cells)
        self.shape = tuple(count + 1 for count in counts)
        self.ends = np.concatenate(([0.0], np.cumsum(np.array(model.forward, float))))
        self.possible = cells >= 2 ** len(places) and bool(places)

    def fill(self, stopped: Callable[[], bool]) -> bool:
        """Fill the tables; False if stopped.

        O(n^3 levels cells) time in O(n^2 levels) array operations; a factor of n less if all steps are equal.
        """
        n, flat = self.model.steps, (1,) * len(self.shape)
        pairs = (n,) if self.alike else (n, n)
        self.q = np.full((*pairs, *self.shape), np.inf)
        self.p = np.full((len(self.places), *pairs, *self.shape), np.inf)
        for k in range(n):
            if stopped():
                return False
            if not self.alike or k == 0:
                self._q(k, k)[...] = 0
                for a in range(len(self.places)):
                    self._p(a, k, k)[...] = 0
            for i in range(min(k, 1)) if self.alike else range(k - 1, -1, -1):
                q = self._q(i, k)
                moved = (self.ends[i + 1 : k + 1] - self.ends[i]).reshape(-1, *flat)
                onward = self._right_parts(i, k) + moved
                for a, place in enumerate(self.places):
                    split = (onward + self._left_parts(a, i, k)).min(axis=0) + place.read[i]
                    self._p(a, i, k)[...] = split
                    low, high = self.shifts(a, i)
                    if low is not None:
                        np.minimum(q[high], split[low] + place.write[i], out=q[high])
                for a in range(len(self.places)):
                    low, high = self.shifts(a, i)
                    if low is not None:
                        p = self._p(a, i, k)
                        np.minimum(p[low], q[high], out=p[low])
        return True

    def _q(self, i: int, k: int) -> NumberArray:
        found: NumberArray = self.q[k - i] if self.alike else self.q[k, i]
        return found

    def _p(self, a: int, i: int, k: int) -> NumberArray:
        found: NumberArray = self.p[a, k - i] if self.alike else self.p[a, i, k]
        return found

    def _right_parts(self, i: int, k: int) -> NumberArray:
        """Return Q(j, k) for i < j <= k."""
        found: NumberArray = self.q[k - i - 1 :: -1] if self.alike else self.q[k, i + 1 : k + 1]
        return found

    def _left_parts(self, a: int, i: int, k: int) -> NumberArray:
        """Return P_a(i, j - 1) for i < j <= k."""
        found: NumberArray = self.p[a, : k - i] if self.alike else self.p[a, i, i:k]
        return found

    def operations(self) -> list[Operation] | None:
        """Return the best schedule; None if there is none."""
        n, model = self.model.steps, self.model
        emitter = Emitter()
        given = next((a for a, place in enumerate(self.places) if place.memory == model.given), None)
        if model.given is not None and given is None:
            emitter.discard(0, model.given)
        elif given is not None and n == 1:
            emitter.discard(0, self.places[given].memory)
        if given is None or n == 1:
            if not np.isfinite(self._q(0, n - 1)[self.full]):
                return None
            stack = [(0, n - 1, self.full, -1, False)]
        else:
            free = self.shifted(self.full, given, 0, -1)
            if free is None or not np.isfinite(self._p(given, 0, n - 1)[free]):
                return None
            stack = [(0, n - 1, free, given, False)]
        while stack:
            i, k, free, level, waits = stack.pop()
            # x_i is in `level` (-1: it is only live); `waits`: it has to be read first.
            moves = level >= 0 and k > i and self._moves(i, k, free, level)
            if waits:
                emitter.read(i, self.places[level].memory, last=moves or k == i)
            elif moves:
                emitter.discard(i, self.places[level].memory)
            if i == k:
                emitter.back(i)
                continue
            if moves:
                more = self.shifted(free, level, i, 1)
                assert more is not None
                free = more
            if moves or level < 0:
                level, free = self._chosen(i, k, free)
                emitter.write(i, self.places[level].memory)
            j = i + 1 + int(np.argmin(self._splits(i, k, free, level)))
            emitter.advance(i, j)
            stack.append((i, j - 1, free, level, True))
            stack.append((j, k, free, -1, False))
        return emitter.operations

    def _moves(self, i: int, k: int, free: tuple[int, ...], level: int) -> bool:
        """Whether x_i leaves its level when its range begins."""
        more = self.shifted(free, level, i, 1)
        if more is None:
            return False
        split = float(self._splits(i, k, free, level).min()) + float(self.places[level].read[i])
        return bool(self._q(i, k)[more] < split)

    def _splits(self, i: int, k: int, free: tuple[int, ...], level: int) -> NumberArray:
        """Return the time of each split of a range, without its read."""
        cell: Any = (slice(None), *free)
        onward: NumberArray = self._right_parts(i, k)[cell] + (self.ends[i + 1 : k + 1] - self.ends[i])
        onward += self._left_parts(level, i, k)[cell]
        return onward

    def _chosen(self, i: int, k: int, free: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Return the level to which x_i is written, and the free units after that."""
        best: tuple[float, int, tuple[int, ...]] | None = None
        for a, place in enumerate(self.places):
            less = self.shifted(free, a, i, -1)
            if less is not None:
                split = float(self._splits(i, k, less, a).min()) + float(place.read[i])
                value = float(place.write[i]) + split
                if best is None or value < best[0]:
                    best = value, a, less
        assert best is not None
        return best[1], best[2]


def _all_equal(state: Sequence[int], forward: Sequence[Number], *transfers: tuple[NumberArray, NumberArray]) -> bool:
    """Whether all steps are equal, in the sizes of their states and in all times."""
    times = [forward, *(times for pair in transfers for times in pair)]
    return len(set(state)) == 1 and all(len(set(map(float, each))) == 1 for each in times)


def _grid(state: list[int], places: list[Store], cells: int) -> tuple[list[int], list[IntArray]]:
    """Divide the cells of the table among the levels: exact units for small levels, equal shares for the rest."""
    counts: list[int] = []
    sizes: list[IntArray] = []
    divisor = gcd(*state) or 1
    order = sorted(range(len(places)), key=lambda a: places[a].room)
    left, chosen = max(1, cells), {}
    for rank, a in enumerate(order):
        share = max(1, int(left ** (1 / (len(order) - rank)) + 1e-9) - 1)
        chosen[a] = min(share, max(1, places[a].room // divisor))
        left = max(1, left // (chosen[a] + 1))
    for a, place in enumerate(places):
        count, units = units_of(state, place.room, chosen[a])
        counts.append(count)
        sizes.append(units)
    return counts, sizes


class Emitter:
    """Collects operations; an advance does not drop states that are kept in the working memory."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.kept: set[int] = set()

    def advance(self, first: int, end: int) -> None:
        """Run from x_first to x_end."""
        for t in range(first, end):
            self.operations.append(Operation(Kind.FORWARD, t))
            if t not in self.kept:
                self.operations.append(Operation(Kind.DROP, t, 0))

    def back(self, t: int) -> None:
        """Run the backward of step t."""
        self.operations.append(Operation(Kind.BACK, t))

    def write(self, t: int, memory: int) -> None:
        """Copy x_t to a level, or keep it in the working memory (0)."""
        if memory == 0:
            self.kept.add(t)
        else:
            self.operations.append(Operation(Kind.COPY, t, 0, memory))

    def read(self, t: int, memory: int, *, last: bool) -> None:
        """Bring x_t to the working memory; `last`: it leaves the level."""
        if memory:
            self.operations.append(Operation(Kind.COPY, t, memory, 0))
        if last:
            self.discard(t, memory)

    def discard(self, t: int, memory: int) -> None:
        """Remove x_t from a level, or let later advances drop it from the working memory."""
        if memory == 0:
            self.kept.discard(t)
        else:
            self.operations.append(Operation(Kind.DROP, t, memory))
