"""A table over ranges of steps, bytes of the working memory, and free bytes or prices of the levels.

`persistent_table` leaves the working memory out, except for bytes that no operation needs. Here it counts exactly. M
are the bytes of the working memory for x_i, the adjoint y_{k+1} and the other data of the range i .. k; f, s_i, w_a,
r_a, e_a and U are as there, and h_a(i, j, k) is the price of x_i in level a during the backwards k .. j:

    V(k, k, M, f) = 0                                                            if the backward fits into M
    V(i, k, M, f) = min(min over i < j <= k of U(i, j) + V(j, k, M - s_i, f) + V(i, j-1, M, f),      x_i stays, if
                                                                 s_i + s_t + y_{k+1} <= M for all i < t <= j
                        min over a of w_a(i) + S_a(i, k, M, f - s_i e_a))                           x_i goes to level a
    S_a(i, k, M, f) = min over i < j <= k of U(i, j) + V(j, k, M, f) + h_a(i, j, k) + P_a(i, j-1, M, f), if
                                                                 s_t + y_{k+1} <= M for all i <= t <= j
    P_a(i, k, M, f) = r_a(i) + min(V(i, k, M, f + s_i e_a), S_a(i, k, M, f))     if s_i + y_{k+1} <= M

A level has an axis of free bytes if the table can hold one, and no axis where its capacity suffices for all states.
Other levels have a price instead. The prices rise where the cheapest schedule exceeds a capacity and fall where it
leaves bytes free; schedules that fit count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from remat.plugin import Number, NumberArray
from remat_algorithms.joint.adjoint_best.model import Kind, Model, Operation, apply, cleared, cost
from remat_algorithms.joint.adjoint_best.persistent_table import Emitter, GridTable, storage_levels, units_of

MOST_STEPS = 250
"""Maximum number of steps: the array operations of longer loops take longer than the other parts of the search."""

MOST_CELLS = 40_000_000
MOST_WORK = 1_500_000_000
"""Maximum number of sums of table entries for one set of prices: some seconds."""

MOST_BYTES = 64
"""Maximum number of units of the working memory."""

ROUNDS, WORK_OF_ROUNDS, WORK_OF_CALL = 30, 2_000_000_000, 4000
"""Maximum number of sets of prices, and of sums over all of them; sums in the time of one array operation."""

LEAST_RISE = 0.1
"""Minimum rise of the price of a level whose capacity is exceeded, half of its logarithm in the first round."""

LIVE, KEPT = -2, -1
"""Places of a state other than the levels: only live, or kept in the working memory."""


@dataclass(frozen=True)
class _Level:
    """A storage level: its memory, its times, its units and sizes if it has an axis, and whether it has a price."""

    memory: int
    write: NumberArray
    read: NumberArray
    axis: int | None
    priced: bool


class WorkingTable(GridTable):
    """The tables V, S and P; shapes (k, i, M, free ...) and (levels, i, k, M, free ...)."""

    @staticmethod
    def of(model: Model) -> WorkingTable | None:
        """Return the empty table; None if the loop or the table is too large, or no state fits."""
        if model.capacity[0] <= 0 or not 1 < model.steps <= MOST_STEPS:
            return None
        table = WorkingTable(model)
        return table if table.possible else None

    def __init__(self, model: Model) -> None:
        n = model.steps
        self.model = model
        total = sum(model.state)
        common = [*model.state, *model.adjoint[:-1], *model.extra]
        room = max(1, min(model.capacity[0], total + max(model.adjoint) + max(model.extra)))
        count, units = units_of(common, room, MOST_BYTES)
        self.state, self.extra = units[:n], units[2 * n :]
        self.adjoint = np.append(units[n : 2 * n], 0)
        divisor = gcd(*model.state) or 1
        levels = sorted(storage_levels(model), key=lambda level: model.capacity[level.memory])
        cells = min(
            MOST_CELLS // (n * n * (2 + 2 * len(levels))), MOST_WORK // max(1, n**3 // 6 * (1 + len(levels)))
        ) // (count + 1)
        self.shape, self.sizes, self.levels = (count + 1,), [self.state], []
        for level in levels:
            points = level.room // divisor + 1
            bounded, axis = level.room < total, None
            if bounded and points <= cells:
                axis, cells = len(self.shape), cells // points
                self.shape = (*self.shape, points)
                self.sizes.append(np.array([size // divisor for size in model.state]))
            if model.given == level.memory:
                level.write[0] = 0
            self.levels.append(_Level(level.memory, level.write, level.read, axis, bounded and axis is None))
        self.possible = cells >= 1
        self.ends = np.concatenate(([0.0], np.cumsum(np.array(model.forward, float))))

    @property
    def priced(self) -> bool:
        """Whether a level has a price in place of an axis.

        Otherwise, the best schedule is that of all persistent ones, unless sizes are rounded up.
        """
        return any(level.priced for level in self.levels)

    def best(self, stopped: Callable[[], bool]) -> list[Operation] | None:
        """Return the best schedule that fits; None if there is none, or if stopped.

        O(n^3 levels cells) time in O(n^2 levels) array operations for each set of prices.
        """
        model = self.model
        n, levels = model.steps, len(model.capacity)
        work = n**3 // 6 * (1 + len(self.levels)) * int(np.prod(self.shape))
        work = max(work, n**2 // 2 * (1 + 2 * len(self.levels)) * WORK_OF_CALL)
        rounds = min(ROUNDS, 1 + WORK_OF_ROUNDS // max(1, work)) if self.priced else 1
        has_price = np.array([any(level.memory == a and level.priced for level in self.levels) for a in range(levels)])
        capacity = np.where(has_price, np.array([min(each, sum(model.state)) for each in model.capacity], float), 0)
        rate, profile = np.zeros(levels), np.ones(n)
        best: tuple[Number, list[Operation]] | None = None
        for number in range(rounds):
            operations = self.operations() if self.fill(rate, profile, stopped) else None
            if operations is None:
                break
            held, fits = _held(model, operations)
            time = cost(model, operations)
            if fits and (best is None or time < best[0]):
                best = time, operations
            over = np.where(has_price[:, None], held - capacity[:, None], 0)
            if number == 0 and fits:
                break
            first = 0.1 * float(self.ends[-1]) / sum(model.state)
            rate = np.where((rate == 0) & (over.max(axis=1) > 0), first, rate)
            width = 1 / (1 + 0.1 * number)
            of_level = over.max(axis=1) / np.maximum(1, capacity)
            of_level = np.where(of_level > 0, np.maximum(of_level, LEAST_RISE), of_level)
            of_time = (over * rate[:, None]).sum(axis=0) / max(1e-9, float((capacity * rate).sum()))
            rate = rate * np.exp(np.clip(2 * width * of_level, -0.5, 0.7))
            profile = profile * np.exp(np.clip(width * of_time, -0.3, 0.3))
        return None if best is None else best[1]

    def fill(self, rate: NumberArray, profile: NumberArray, stopped: Callable[[], bool]) -> bool:
        """Fill the tables at these prices; False if stopped."""
        n = self.model.steps
        self.rate, self.profile = rate, np.concatenate(([0.0], np.cumsum(profile)))
        self.v = np.full((n, n, *self.shape), np.inf, dtype=np.float32)
        self.p = np.full((len(self.levels), n, n, *self.shape), np.inf, dtype=np.float32)
        for k in range(n):
            if stopped():
                return False
            for i in range(k, -1, -1):
                self._fill_range(i, k)
        return True

    def _fill_range(self, i: int, k: int) -> None:
        """Fill V(i, k) and P(i, k)."""
        v, need = self.v[k, i], int(self.state[i] + self.adjoint[k + 1])
        moved = [self._moving(b, i, k).min(axis=0) for b in range(len(self.levels))] if i < k else []
        if i == k:
            v[need + int(self.extra[k]) :] = 0
        else:
            low, high = self.shifts(0, i)
            if low is not None:
                v[high] = self._staying(i, k)[(slice(None), *low)].min(axis=0)
        for level, split in zip(self.levels, moved, strict=False):
            low, high = self.shifts(level.axis, i)
            if low is not None:
                np.minimum(v[high], split[low] + np.float32(level.write[i]), out=v[high])
        for b, level in enumerate(self.levels):
            low, high = self.shifts(level.axis, i)
            if low is not None:
                p = self.p[b, i, k]
                p[low] = v[high]
                if moved:
                    np.minimum(p, moved[b], out=p)
                p += np.float32(level.read[i])
                p[:need] = np.inf

    def _staying(self, i: int, k: int) -> NumberArray:
        """Return the time of each split of a range, if x_i stays in the working memory; M without the bytes of x_i."""
        shape = (k - i, *(1,) * len(self.shape))
        steps = (self.ends[i + 1 : k + 1] - self.ends[i]).astype(np.float32).reshape(shape)
        above = int(self.adjoint[k + 1])
        sums: NumberArray = self.v[k, i + 1 : k + 1] + steps
        # The left part begins when x_i needs no other bytes than its own.
        size = int(self.state[i])
        left = self.v[i:k, i]
        sums[:, : self.shape[0] - size] += left[:, size:]
        self._forbid(sums, np.maximum.accumulate(self.state[i + 1 : k + 1]) + above)
        return sums

    def _moving(self, b: int, i: int, k: int) -> NumberArray:
        """Return the time of each split of a range, if x_i is live and in a level."""
        shape = (k - i, *(1,) * len(self.shape))
        level = self.levels[b]
        steps = self.ends[i + 1 : k + 1] - self.ends[i]
        if level.priced:
            held = self.profile[k + 1] - self.profile[i + 1 : k + 1]
            steps = steps + self.rate[level.memory] * self.model.state[i] * held
        sums: NumberArray = self.v[k, i + 1 : k + 1] + self.p[b, i, i:k] + steps.astype(np.float32).reshape(shape)
        self._forbid(sums, np.maximum.accumulate(self.state[i : k + 1])[1:] + int(self.adjoint[k + 1]))
        return sums

    def _forbid(self, sums: NumberArray, need: NumberArray) -> None:
        """Set the splits that need more bytes of the working memory than M to infinity."""
        cells = (slice(None), slice(None), *(None,) * (len(self.shape) - 1))
        sums += np.where(np.arange(self.shape[0]) >= need[:, None], 0, np.inf).astype(np.float32)[cells]

    def operations(self) -> list[Operation] | None:
        """Return the schedule of the table; None if there is none."""
        n, model = self.model.steps, self.model
        if not np.isfinite(self.v[(n - 1, 0, *self.full)]):
            return None
        emitter = Emitter()
        given, stack = model.given, [(0, n - 1, self.full, LIVE)]
        while stack:
            i, k, free, place = stack.pop()
            if place >= 0:
                level = self.levels[place]
                more = self.shifted(free, level.axis, i, 1)
                leaves = np.inf if more is None else self.v[(k, i, *more)]
                stays = self._splits(place, i, k, free).min() if k > i else np.inf
                emitter.read(i, level.memory, last=bool(leaves <= stays))
                if leaves <= stays:
                    assert more is not None
                    free, place = more, LIVE
            elif place == KEPT:
                emitter.discard(i, 0)
                place = LIVE
            if i == k:
                emitter.back(i)
                continue
            if place == LIVE:
                place, free = self._chosen(i, k, free)
                memory = 0 if place == KEPT else self.levels[place].memory
                if given != memory:
                    emitter.write(i, memory)
                    if given is not None:
                        emitter.discard(0, given)
                given = None
            j = i + 1 + int(np.argmin(self._splits(place, i, k, free)))
            before = self.shifted(free, 0, i, 1) if place == KEPT else free
            assert before is not None
            emitter.advance(i, j)
            stack.append((i, j - 1, before, place))
            stack.append((j, k, free, LIVE))
        return emitter.operations

    def _splits(self, place: int, i: int, k: int, free: tuple[int, ...]) -> NumberArray:
        """Return the time of each split of a range with x_i kept in the working memory, or in a level."""
        cell: Any = (slice(None), *free)
        splits: NumberArray = (self._staying(i, k) if place == KEPT else self._moving(place, i, k))[cell]
        return splits

    def _chosen(self, i: int, k: int, free: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Return where x_i goes, and the free units after that."""
        best: tuple[float, int, tuple[int, ...]] | None = None
        less = self.shifted(free, 0, i, -1)
        if less is not None:
            best = float(self._splits(KEPT, i, k, less).min()), KEPT, less
        for b, level in enumerate(self.levels):
            less = self.shifted(free, level.axis, i, -1)
            if less is not None:
                value = float(level.write[i]) + float(self._splits(b, i, k, less).min())
                if best is None or value < best[0]:
                    best = value, b, less
        assert best is not None
        return best[1], best[2]


def _held(model: Model, operations: list[Operation]) -> tuple[NumberArray, bool]:
    """Return the bytes in each memory during each backward, and whether all capacities hold."""
    situation, fits = model.start, True
    held = np.zeros((len(model.capacity), model.steps))
    for operation in operations:
        if operation.kind == Kind.BACK:
            held[:, operation.state] = [model.used(states) for states in situation.held]
        situation = apply(situation, operation)
        for each in cleared(situation, operation):
            situation = apply(situation, each)
        if operation.kind == Kind.COPY and fits:
            fits = model.used(situation.held[operation.target]) <= model.capacity[operation.target]
    return held, fits
