"""A table over blocks of steps and free bytes: the best persistent schedule of a loop in one memory.

The memory has M bytes in addition to x_i, for all data, adjoints included. x_i has s_i bytes, y_{k+1} has y bytes, and
U(i, j) is the time from x_i to x_j:

    R(i, i, M) = 0 if the backward fits
    R(i, k, M) = min over i < j <= k of U(i, j) + R(j, k, M - s_j) + R(i, j-1, M),  if s_t + y <= M for all i < t <= j

The first sweep, before any adjoint, is R(0, n-1, .) with y = 0. Its left parts run with adjoints: they are R(i, j-1, M)
with their respective y. O(n^3 units) time.

A long loop is divided into m blocks; each begins with a state that is small among its neighbours. There are then two
kinds of ranges: those of whole blocks, whose checkpoints are first states of blocks, and those of steps within one
block. Fewer ranges leave work for more units of memory: O(m^3 units) time, and O(m (n/m)^3 units) for the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import gcd

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.joint.adjoint_best.block_table_kernel import FILL_BLOCK, FILL_TO, BlockLoop
from remat_algorithms.joint.adjoint_best.model import UNBOUNDED, Model, Operation
from remat_algorithms.joint.adjoint_best.persistent_table import MOST_CELLS, Emitter, units_of
from remat_algorithms.kit.compile.lowering import can_compile

LITTLE_WORK, MUCH_WORK = 500_000_000, 4_000_000_000
"""Maximum number of sums of table entries: some tenths of a second, and some seconds."""

INTERPRETED = 2000
"""Factor by which interpreted kernels are slower, at least."""

UNITS = (1000, 500, 250, 120, 60, 30)
"""Numbers of units of memory, of which the largest one is taken that leaves enough blocks."""

LEAST_BLOCKS, MOST_BLOCKS, SHARES = 100, 1000, 50
"""Minimum number of blocks, maximum number of them, and how many numbers in between are tried."""


class BlockTable:
    """The table R over blocks.

    It has units of memory that represent all sizes exactly, if these leave enough blocks, and as many blocks as `work`
    allows. It is `possible` if it has enough units. It is `whole` if each step is a block.
    """

    def __init__(self, model: Model, work: int = LITTLE_WORK) -> None:
        n = model.steps
        self.model = model
        total = sum(model.state) + max(model.adjoint) + max(model.extra)
        room = min(model.capacity[0], total)
        common = [*model.state, *model.adjoint[:-1], *model.extra]
        exact = room // (gcd(*common) or 1)
        found = (_blocks(model.state, units, work) for units in dict.fromkeys(min(exact, units) for units in UNITS))
        chosen = next((one for one in found if one is not None), None)
        self.possible = chosen is not None and room < UNBOUNDED
        if chosen is None or not self.possible:
            return
        self.first, most = chosen
        self.blocks, self.longest = len(self.first), _longest(self.first, n)
        self.whole = self.blocks == n and most >= exact
        self.count, units = units_of(common, max(room, 1), max(1, most))
        state, above = units[:n], np.append(units[n + 1 : 2 * n], 0)
        self.record = BlockLoop(
            first=np.append(self.first, n),
            ends=np.concatenate(([0.0], np.cumsum(np.array([*model.forward, 0], float)))),
            state=state,
            above=above,
            need=above + units[2 * n :],
            peak=np.array([int(part[1:].max(initial=0)) for part in self._overlapping(state)], dtype=np.int64),
            coarse=np.full((self.blocks, self.blocks, self.count + 1), np.inf),
            fine=np.full((self.blocks, self.longest, self.longest, self.count + 1), np.inf),
        )

    def _overlapping(self, state: IntArray) -> list[IntArray]:
        """Return the states of each block, with the first one of the next block."""
        ends = [*self.first[1:].tolist(), len(state) - 1]
        return [state[begin : end + 1] for begin, end in zip(self.first.tolist(), ends, strict=True)]

    def fill(self, stopped: Callable[[], bool]) -> bool:
        """Fill the table; False if stopped."""
        block, to = FILL_BLOCK.bind(self.record), FILL_TO.bind(self.record)
        for t in range(self.blocks):
            if stopped():
                return False
            block(t)
        for u in range(self.blocks):
            if stopped():
                return False
            to(u)
        return True

    def operations(self) -> list[Operation] | None:
        """Return the best schedule; None if there is none."""
        record, emitter = self.record, Emitter()
        width = self.count - int(record.state[0])
        if width < 0 or not np.isfinite(record.coarse[0, self.blocks - 1, width]):
            return None
        # Ranges of steps in a block have its number; those of blocks have -1.
        stack = [(-1, 0, self.blocks - 1, width)]
        while stack:
            block, i, k, free = stack.pop()
            if block < 0 and i == k:
                block, i, k = i, 0, int(record.first[i + 1] - record.first[i]) - 1
            begin = int(record.first[block]) if block >= 0 else 0
            if block >= 0 and i == k:
                emitter.kept.discard(begin + i)
                emitter.back(begin + i)
                continue
            j = self._split(block, i, k, free)
            first, end = (begin + i, begin + j) if block >= 0 else (int(record.first[i]), int(record.first[j]))
            emitter.kept.add(first)
            emitter.advance(first, end)
            stack.append((block, i, j - 1, free))
            stack.append((block, j, k, free - int(record.state[end])))
        return emitter.operations

    def _split(self, block: int, i: int, k: int, free: int) -> int:
        """Return the first state of the right part of the best split of a range."""
        record = self.record
        if block < 0:
            table, starts = record.coarse, record.first[i + 1 : k + 1]
            peaks, last = record.peak[i:k], int(record.first[k + 1]) - 1
        else:
            begin = int(record.first[block])
            table, starts, last = record.fine[block], np.arange(begin + i + 1, begin + k + 1), begin + k
            peaks = record.state[starts]
        left = free - record.state[starts]
        passes = (left >= 0) & (free >= np.maximum.accumulate(peaks) + int(record.above[last]))
        right = table[np.arange(i + 1, k + 1), k, np.maximum(left, 0)]
        sums = right + table[i, i:k, free] + record.ends[starts]
        return i + 1 + int(np.argmin(np.where(passes, sums, np.inf)))


def first_states(state: list[int], blocks: int) -> IntArray:
    """Return the first states of so many blocks, or fewer: x_0, and the smallest state of equal parts of the rest."""
    count = len(state)
    edges = [1 + (count - 1) * t // max(1, blocks - 1) for t in range(blocks)] if blocks > 1 else [count]
    found = [0]
    for begin, end in pairwise(edges):
        if begin < end:
            found.append(min(range(begin, end), key=lambda i: (state[i], abs(2 * i - begin - end))))
    return np.array(found, dtype=np.int64)


def _longest(first: IntArray, steps: int) -> int:
    return int(np.diff(np.append(first, steps)).max())


def _blocks(state: list[int], units: int, work: int) -> tuple[IntArray, int] | None:
    """Return the first states of as many blocks as leave so many units of memory, and the units; None if too few."""
    work = work if can_compile() else work // INTERPRETED
    steps = len(state)
    for share in range(SHARES, 0, -1):
        wanted = min(steps, MOST_BLOCKS * share // SHARES)
        if wanted < min(steps, LEAST_BLOCKS):
            return None
        first = first_states(state, wanted)
        blocks, longest = len(first), _longest(first, steps)
        cells, sums = blocks * (blocks + longest**2), blocks * (blocks**2 + longest**3) // 6
        if cells * (units + 1) <= MOST_CELLS and sums * units <= work:
            return first, units
    return None
