"""One level of the beam search of `remat_algorithms.layout.beam`: place a row in every gap of every state."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from remat.plugin import IntArray, NumberArray
from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.kit.compile.records import cells

SCALE = 1 << 20
"""Units of cost, so that equal states have equal integers."""

UNPLACED = 4.0
"""Weight of the bytes that find no gap, relative to the capacity."""

PARENT, OFFSET, TOTAL = 0, 1, 2
"""Columns of a candidate: its state, the offset of the row, and the cost."""


@cells
class Beam(ctypes.Structure):
    """The next row, the number of states, which half of the arrays holds them, the number of candidates, and work."""

    row: int
    states: int
    side: int
    candidates: int
    work: int


class Rows(NamedTuple):
    """Buffers in the order in which they are placed.

    Attributes
    ----------
    first, last, size, fixed : (rows,) int64
        Sections, half-open; bytes; the offset that a row must have, or -1.
    begin, item : int64
        The rows of each section, by descending size.
    before, earlier : int64
        For each row, the rows placed before it whose lifetimes overlap with it.
    weight : (sections,) float64
        Weight of fragmentation.
    capacity, width : int
        Bytes of the arena, and the maximum number of states.
    """

    first: IntArray
    last: IntArray
    size: IntArray
    fixed: IntArray
    begin: IntArray
    item: IntArray
    before: IntArray
    earlier: IntArray
    weight: NumberArray
    capacity: int
    width: int


class States(NamedTuple):
    """Partial layouts.

    Attributes
    ----------
    offset : (2, width, rows) int64
    cost : (2, width, sections) int64
    total : (2, width) int64
    candidate : (most, 3) int64
    chosen : (width,) int64
        The candidates that become states.
    low, high, gap : (rows + 1,) int64
        Address ranges in use in ascending order, and the bytes of the gaps between them.
    """

    offset: IntArray
    cost: IntArray
    total: IntArray
    candidate: IntArray
    chosen: IntArray
    low: IntArray
    high: IntArray
    gap: IntArray
    at: Beam


def expand(rows: Rows, states: States) -> None:
    """List the offsets that the next row can have in each state: both ends of each gap, or its fixed offset."""
    row = states.at.row
    size = rows.size[row]
    states.at.candidates = 0
    for state in range(states.at.states):
        count = 0
        for k in range(rows.before[row], rows.before[row + 1]):
            other = rows.earlier[k]
            at = states.offset[states.at.side, state, other]
            count = insert(states, count, at, at + rows.size[other])
        states.at.work += count
        low = 0
        for k in range(count + 1):
            high = states.low[k] if k < count else rows.capacity
            if high - low >= size:
                if rows.fixed[row] >= 0:
                    if low <= rows.fixed[row] and rows.fixed[row] + size <= high:
                        add(states, state, rows.fixed[row])
                else:
                    add(states, state, low)
                    if high - low > size:
                        add(states, state, high - size)
            if k < count:
                low = max(low, states.high[k])
    judge(rows, states)


def add(states: States, state: int, offset: int) -> None:
    """Add a candidate."""
    states.candidate[states.at.candidates, PARENT] = state
    states.candidate[states.at.candidates, OFFSET] = offset
    states.at.candidates += 1


def insert(states: States, count: int, low: int, high: int) -> int:
    """Insert a range into the ranges in use; return their number."""
    here = count
    while here > 0 and states.low[here - 1] > low:
        states.low[here] = states.low[here - 1]
        states.high[here] = states.high[here - 1]
        here -= 1
    states.low[here] = low
    states.high[here] = high
    return count + 1


def judge(rows: Rows, states: States) -> None:
    """Compute the costs of all candidates, and drop those that leave no gap for some buffer."""
    row, side, kept = states.at.row, states.at.side, 0
    for k in range(states.at.candidates):
        state, offset = states.candidate[k, PARENT], states.candidate[k, OFFSET]
        total = states.total[side, state]
        for section in range(rows.first[row], rows.last[row]):
            cost = section_cost(rows, states, state, section, offset)
            if cost < 0:
                total = -1
                break
            total += cost - states.cost[side, state, section]
        if total >= 0:
            states.candidate[kept, PARENT] = state
            states.candidate[kept, OFFSET] = offset
            states.candidate[kept, TOTAL] = total
            kept += 1
    states.at.candidates = kept


def section_cost(rows: Rows, states: States, state: int, section: int, offset: int) -> int:
    """Return the cost of a section once the row is placed; -1 if the largest remaining buffer fits in no gap.

    The remaining buffers are packed into the gaps, each into the smallest one that holds it, the largest first. The
    cost is their bytes that find no gap, and the fragmentation: 1 minus the sum of squares of the gaps over the square
    of their sum.
    """
    row, side = states.at.row, states.at.side
    begin, end = rows.begin[section], rows.begin[section + 1]
    count = 0
    for k in range(begin, end):
        other = rows.item[k]
        if other < row:
            at = states.offset[side, state, other]
            count = insert(states, count, at, at + rows.size[other])
        elif other == row:
            count = insert(states, count, offset, offset + rows.size[row])
    states.at.work += end - begin
    if count == end - begin:
        return 0
    gaps, low, free, squares = 0, 0, 0.0, 0.0
    for k in range(count + 1):
        high = states.low[k] if k < count else rows.capacity
        if high > low:
            states.gap[gaps] = high - low
            gaps += 1
            free += float(high - low)
            squares += float(high - low) * float(high - low)
        if k < count:
            low = states.high[k]
    unplaced, largest = 0, True
    for k in range(begin, end):
        other = rows.item[k]
        if other <= row:
            continue
        size, best = rows.size[other], -1
        for j in range(gaps):
            if states.gap[j] >= size and (best < 0 or states.gap[j] < states.gap[best]):
                best = j
        states.at.work += gaps
        if best >= 0:
            states.gap[best] -= size
        elif largest:
            return -1
        else:
            unplaced += size
        largest = False
    missing = UNPLACED * float(unplaced) / float(rows.capacity)
    return int(float(SCALE) * (missing + rows.weight[section] * (1.0 - squares / (free * free))))


def keep(rows: Rows, states: States, count: int) -> None:
    """Turn the chosen candidates into the states of the next level."""
    row, side = states.at.row, states.at.side
    other = 1 - side
    for k in range(count):
        chosen = states.chosen[k]
        parent, offset = states.candidate[chosen, PARENT], states.candidate[chosen, OFFSET]
        for j in range(row):
            states.offset[other, k, j] = states.offset[side, parent, j]
        states.offset[other, k, row] = offset
        for section in range(rows.weight.shape[0]):
            states.cost[other, k, section] = states.cost[side, parent, section]
        for section in range(rows.first[row], rows.last[row]):
            states.cost[other, k, section] = section_cost(rows, states, parent, section, offset)
        states.total[other, k] = states.candidate[chosen, TOTAL]
    states.at.work += count * (row + rows.weight.shape[0]) // 8
    states.at.states = count
    states.at.side = other
    states.at.row += 1


EXPAND = Kernel(expand)
KEEP = Kernel(keep)
