"""The ejection search of `remat_algorithms.layout.ejection`: put a row somewhere, and eject what overlaps with it."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from remat.plugin import IntArray
from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.kit.compile.records import cells

OUT = -1
"""The offset of a row that waits for a place."""

NEVER = 1 << 60
"""More than any cost."""

CALL = 4
"""Steps of a candidate, in addition to one for each pair."""


@cells
class Counts(ctypes.Structure):
    """The number of rows that wait, random numbers, the work done and its limit, and whether a row has no place."""

    waiting: int
    random: int
    work: int
    limit: int
    stuck: int


class Rows(NamedTuple):
    """Buffers and reserved ranges.

    Attributes
    ----------
    size, fixed : (rows,) int64
        Bytes; the offset that a row must have, or -1.
    begin : (rows + 1,) int64
    other, twin : (pairs,) int64
        For each row, the rows whose lifetimes overlap with its own, and the index of the pair in reverse.
    capacity : int
    moves : int
        Rows that are moved at random after each placement.
    heavy_first : int
        Whether the waiting row with the largest weight comes next (1), or any (0).
    """

    size: IntArray
    fixed: IntArray
    begin: IntArray
    other: IntArray
    twin: IntArray
    capacity: int
    moves: int
    heavy_first: int


class Partial(NamedTuple):
    """A partial layout.

    Attributes
    ----------
    offset : (rows,) int64
        `OUT` for rows that wait.
    waiting : (rows,) int64
        The rows that wait, in any order.
    weight : (rows,) int64
        1, plus the number of times that the row ejected others.
    tension : (pairs,) int64
        1, plus the number of times that one row of the pair ejected the other one.
    counts : Counts
    """

    offset: IntArray
    waiting: IntArray
    weight: IntArray
    tension: IntArray
    counts: Counts


def run(rows: Rows, partial: Partial) -> None:
    """Place rows until none waits, one has no place, or the work is done."""
    while partial.counts.waiting > 0 and partial.counts.work < partial.counts.limit:
        place = heaviest(partial) if rows.heavy_first > 0 else random(partial) % partial.counts.waiting
        row = partial.waiting[place]
        offset = cheapest(rows, partial, row)
        if offset < 0:
            partial.counts.stuck = 1
            return
        partial.counts.waiting -= 1
        partial.waiting[place] = partial.waiting[partial.counts.waiting]
        put(rows, partial, row, offset)
        for _ in range(rows.moves):
            move(rows, partial, random(partial) % rows.size.shape[0])


def heaviest(partial: Partial) -> int:
    """Return where the row with the largest weight waits."""
    best = 0
    for k in range(partial.counts.waiting):
        if partial.weight[partial.waiting[k]] > partial.weight[partial.waiting[best]]:
            best = k
    partial.counts.work += partial.counts.waiting
    return best


def random(partial: Partial) -> int:
    """Return the next pseudo-random number, of 31 bits."""
    partial.counts.random = (partial.counts.random * 6364136223846793005 + 1442695040888963407) & 0x7FFFFFFFFFFFFFFF
    return partial.counts.random >> 32


def offset_at(rows: Rows, partial: Partial, row: int, k: int) -> int:
    """Return a candidate: an end of the arena, or directly below or above a neighbour; -1 if there is none."""
    size = rows.size[row]
    if k < 2:
        return int(min(0, rows.capacity - size) if k == 0 else rows.capacity - size)
    other = rows.other[rows.begin[row] + k // 2 - 1]
    if partial.offset[other] < 0:
        return -1
    if k & 1:
        return int(partial.offset[other] - size)
    high = partial.offset[other] + rows.size[other]
    return int(high) if high + size <= rows.capacity else -1


def cost(rows: Rows, partial: Partial, row: int, offset: int, most: int) -> int:
    """Return what a placement ejects: weights and tensions; any number above `most` if it is more."""
    size, total = rows.size[row], 0
    for k in range(rows.begin[row], rows.begin[row + 1]):
        other = rows.other[k]
        low = partial.offset[other]
        if low >= 0 and low < offset + size and offset < low + rows.size[other]:
            if rows.fixed[other] >= 0:
                partial.counts.work += k - rows.begin[row] + CALL
                return NEVER
            total += partial.weight[other] + partial.tension[k]
            if total > most:
                partial.counts.work += k - rows.begin[row] + CALL
                return int(total)
    partial.counts.work += rows.begin[row + 1] - rows.begin[row] + CALL
    return int(total)


def cheapest(rows: Rows, partial: Partial, row: int) -> int:
    """Return the offset that ejects least, at random among equal ones; -1 if there is none."""
    best, found, equal = NEVER - 1, -1, 0
    for k in range(2 * (rows.begin[row + 1] - rows.begin[row]) + 2):
        offset = offset_at(rows, partial, row, k)
        if offset < 0:
            continue
        price = cost(rows, partial, row, offset, best)
        if price < best:
            best, found, equal = price, offset, 1
        elif price == best:
            equal += 1
            if random(partial) % equal == 0:
                found = offset
    return found


def put(rows: Rows, partial: Partial, row: int, offset: int) -> None:
    """Place a row, and eject the rows that overlap with it."""
    ejects = False
    size = rows.size[row]
    for k in range(rows.begin[row], rows.begin[row + 1]):
        other = rows.other[k]
        low = partial.offset[other]
        if low >= 0 and low < offset + size and offset < low + rows.size[other]:
            partial.offset[other] = OUT
            partial.waiting[partial.counts.waiting] = other
            partial.counts.waiting += 1
            partial.tension[k] += 1
            partial.tension[rows.twin[k]] += 1
            ejects = True
    partial.offset[row] = offset
    if ejects:
        partial.weight[row] += 1


def move(rows: Rows, partial: Partial, row: int) -> None:
    """Move a row to any candidate that ejects nothing."""
    if partial.offset[row] < 0 or rows.fixed[row] >= 0:
        return
    found, equal = partial.offset[row], 0
    for k in range(2 * (rows.begin[row + 1] - rows.begin[row]) + 2):
        offset = offset_at(rows, partial, row, k)
        if offset >= 0 and cost(rows, partial, row, offset, 0) == 0:
            equal += 1
            if random(partial) % equal == 0:
                found = offset
    partial.offset[row] = found


RUN = Kernel(run)
