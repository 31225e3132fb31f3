"""The table of `block_table`, in machine code (see `kit.compile`)."""

from __future__ import annotations

import math
from typing import NamedTuple

from remat.plugin import IntArray, NumberArray
from remat_algorithms.kit.compile.lowering import Kernel


class BlockLoop(NamedTuple):
    """A loop of n steps in m blocks, and the table over free units of memory.

    Attributes
    ----------
    first : (m + 1,) int64
        First step of each block, and n.
    ends : (n + 1,) float64
        Time from x_0 to each state.
    state, above : (n,) int64
        Units of x_i, and of the adjoint that the backward of step i reads.
    need : (n,) int64
        Units that this backward needs in addition to x_i.
    peak : (m,) int64
        Units of the largest state after the first one of each block, up to the first one of the next block.
    coarse : (m, m, units) float64
        [t, u]: time to reverse the blocks t .. u, from their first state, with these units free in addition to it.
    fine : (m, steps, steps, units) float64
        The same for the steps of each block.
    """

    first: IntArray
    ends: NumberArray
    state: IntArray
    above: IntArray
    need: IntArray
    peak: IntArray
    coarse: NumberArray
    fine: NumberArray


def lower_to(
    best: NumberArray, ahead: NumberArray, later: NumberArray, moved: float, least: int, size: int, units: int
) -> None:
    """Lower the entries from `least` on to the time of one split, whose right part leaves `size` units to its state."""
    for free in range(max(least, size), units):
        time = ahead[free - size] + later[free] + moved
        best[free] = time if time < best[free] else best[free]


def fill_block(loop: BlockLoop, t: int) -> None:
    """Fill the table of the steps of a block."""
    begin, units = loop.first[t], loop.coarse.shape[2]
    steps = loop.first[t + 1] - begin
    for k in range(steps):
        above = int(loop.above[begin + k])
        for i in range(k, -1, -1):
            row = loop.fine[t, i, k]
            for free in range(units):
                row[free] = math.inf
            if i == k:
                for free in range(max(0, loop.need[begin + k]), units):
                    row[free] = 0.0
            peak = 0
            for j in range(i + 1, k + 1):
                size = int(loop.state[begin + j])
                peak = max(peak, size)
                moved = float(loop.ends[begin + j] - loop.ends[begin + i])
                lower_to(row, loop.fine[t, j, k], loop.fine[t, i, j - 1], moved, peak + above, size, units)
    for free in range(units):
        loop.coarse[t, t, free] = loop.fine[t, 0, steps - 1, free]


def fill_to(loop: BlockLoop, u: int) -> None:
    """Fill all entries whose last block is u; those with an earlier last block must be filled."""
    units = loop.coarse.shape[2]
    above = int(loop.above[loop.first[u + 1] - 1])
    for t in range(u - 1, -1, -1):
        row = loop.coarse[t, u]
        peak = 0
        for j in range(t + 1, u + 1):
            peak = max(peak, int(loop.peak[j - 1]))
            moved = float(loop.ends[loop.first[j]] - loop.ends[loop.first[t]])
            size = int(loop.state[loop.first[j]])
            lower_to(row, loop.coarse[j, u], loop.coarse[t, j - 1], moved, peak + above, size, units)


FILL_BLOCK = Kernel(fill_block)
FILL_TO = Kernel(fill_to, long_loops=True)
