"""Live bytes at each time, and the bounds on the arena that follow from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remat.plugin import FREE, Buffers, IntArray


def loads(buffers: Buffers, size: IntArray) -> IntArray:
    """Return the live bytes of each section (`sections_of`)."""
    count, first, last = sections_of(buffers)
    change = np.zeros(count + 1, dtype=np.int64)
    np.add.at(change, first, size)
    np.add.at(change, last, -size)
    return np.cumsum(change)[:count]


def sections_of(buffers: Buffers, *, every: bool = False) -> tuple[int, IntArray, IntArray]:
    """Return the number of sections, and for each buffer its first section and the one after its last.

    A section is a time at which a maximal set of buffers lives. It ends when one of them ends, and begins with the last
    start before that. Two buffers share a section if and only if their lifetimes overlap. With `every`, each interval
    between two times is a section. The buffers of an additional section all live in a neighbouring section.
    """
    times, rank = np.unique(np.concatenate((buffers.start, buffers.end)), return_inverse=True)
    rank = rank.astype(np.int64).ravel()
    first, last = rank[: len(buffers)], rank[len(buffers) :]
    if every:
        return max(len(times) - 1, 0), first, last
    starts = np.zeros(len(times) + 1, dtype=np.int64)
    starts[1 + first] = 1
    before = np.cumsum(starts)  # number of times before each one at which a buffer starts
    ends = np.unique(last)
    follows_start = np.diff(before[ends], prepend=0) > 0
    kept = ends[follows_start]
    return len(kept), np.searchsorted(kept, first, side="right"), np.searchsorted(kept, last, side="right")


def rows_of(
    buffers: Buffers, blocked: Sequence[tuple[int, int]], *, every: bool = False
) -> tuple[int, IntArray, IntArray, IntArray, IntArray]:
    """Return the number of sections, and for each buffer and then each reserved range: sections, size, fixed offset.

    The sections are the first one and the one after the last, as in `sections_of`. Reserved ranges live always. Sizes
    are rounded up to the alignment, and the offset of a buffer that is not fixed is `FREE`.
    """
    sections, first, last = sections_of(buffers, every=every)
    fixed = np.full(len(buffers), FREE, dtype=np.int64) if buffers.fixed is None else buffers.fixed
    low, high = np.array(blocked, dtype=np.int64).reshape(-1, 2).T
    first, last = np.concatenate((first, 0 * low)), np.concatenate((last, 0 * low + sections))
    return sections, first, last, np.concatenate((buffers.rounded, high - low)), np.concatenate((fixed, low))


def rows_within(buffers: Buffers, capacity: int) -> tuple[int, int, IntArray, IntArray, IntArray, IntArray]:
    """Return the capacity, rounded down to the alignment, and `rows_of` with the parts of reserved ranges below it."""
    most = capacity // buffers.alignment * buffers.alignment
    return most, *rows_of(buffers, [(low, min(high, most)) for low, high in buffers.blocked if low < most])


def peak(buffers: Buffers, *, rounded: bool = False) -> int:
    """Return the maximum of live bytes; with `rounded`, of the sizes rounded up to the alignment."""
    found = loads(buffers, buffers.rounded if rounded else buffers.size)
    return int(found.max()) if len(found) else 0


def arena_bound(buffers: Buffers) -> int:
    """Return a lower bound on the arena of every layout.

    Among buffers that live at one time, only the highest needs no padding for the alignment. Reserved ranges push up
    the buffers that do not fit below them. The arena ends above every fixed buffer.
    """
    if not len(buffers):
        return 0
    count, first, last = sections_of(buffers)
    load = loads(buffers, buffers.rounded)
    spare = buffers.rounded - buffers.size
    if spare.any():
        load = load - _largest_of_sections(count, first, last, spare)
    bound = int(load.max())
    for low, high in buffers.blocked:
        if low < bound:
            bound += high - low
    if buffers.fixed is not None and buffers.is_fixed.any():
        bound = max(bound, int((buffers.fixed + buffers.size)[buffers.is_fixed].max()))
    return bound


def _largest_of_sections(count: int, first: IntArray, last: IntArray, value: IntArray) -> IntArray:
    """Return the largest value that covers each section, by filling empty sections in descending order of values."""
    found = np.zeros(count, dtype=np.int64)
    following = list(range(count + 1))  # the next empty section, with paths halved

    def empty_from(section: int) -> int:
        while following[section] != section:
            following[section] = following[following[section]]
            section = following[section]
        return section

    for buffer in np.argsort(-value, kind="stable").tolist():
        section, end = empty_from(int(first[buffer])), int(last[buffer])
        while section < end:
            found[section] = value[buffer]
            following[section] = section + 1
            section = empty_from(section)
    return found


def largest_load(load: IntArray, first: IntArray, last: IntArray) -> IntArray:
    """Return for each buffer the largest load of its sections, from a table of maxima over powers of two."""
    table = [load]
    width = 1
    while 2 * width <= len(load):
        table.append(np.maximum(table[-1][:-width], table[-1][width:]))
        width *= 2
    length = last - first
    level = np.frexp(length.astype(np.float64))[1] - 1
    found = np.zeros(len(first), dtype=np.int64)
    for k, row in enumerate(table):
        mine = np.flatnonzero(level == k)
        found[mine] = np.maximum(row[first[mine]], row[last[mine] - (1 << k)])
    return found
