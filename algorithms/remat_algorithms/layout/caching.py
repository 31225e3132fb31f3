"""`caching`: the memory that PyTorch's caching allocator reserves for these buffers, in execution order.

The rules of `c10/cuda/CUDACachingAllocator.cpp`, with its default settings and one stream:

- A request is rounded up to a multiple of 512 bytes.
- Requests of up to 1 MiB are served from the small pool, all others from the large pool.
- A request takes the smallest free block of the pool that is large enough; ties prefer the lowest address. If no block
  is large enough, a segment is reserved: 2 MiB for a small request, 20 MiB for one below 10 MiB, otherwise the request
  rounded up to a multiple of 2 MiB.
- A block is split if the rest is at least 512 bytes in the small pool, or more than 1 MiB in the large pool.
- A freed block merges with free neighbours of its segment. Segments stay reserved; blocks never move.
- If a new segment would exceed the device's capacity, completely free segments are released first.

Segments follow each other: an offset is an address in this order. Static bytes of the memory are a separate segment. An
in-place output that is no larger keeps the block of its input.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

import numpy as np

from remat.plugin import Buffers, Context, IntArray, LayoutProposal, OptionError
from remat_algorithms.layout.live_bytes import arena_bound

MIB = 1 << 20
ROUNDING, SMALL, MEDIUM = 512, MIB, 10 * MIB
NONE = -1
SMALL_SEGMENT, MEDIUM_SEGMENT, LARGE_ROUNDING = 2 * MIB, 20 * MIB, 2 * MIB


@dataclass
class _Block:
    """A part of a segment; free blocks are known by size and address."""

    offset: int
    size: int
    is_small: bool
    is_free: bool = False
    before: _Block | None = field(default=None, repr=False)
    after: _Block | None = field(default=None, repr=False)


class Allocator:
    """The state of the allocator.

    Attributes
    ----------
    reserved, most_reserved : int
        Bytes of all segments now, and at most; with `lying` bytes that are reserved from the start.
    """

    def __init__(self, capacity: int | None = None, *, lying: int = 0) -> None:
        self._capacity = capacity
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._at: dict[int, _Block] = {}
        self._end = self.reserved = self.most_reserved = lying

    def allocate(self, size: int) -> int | None:
        """Return the address of a block, or None where the capacity does not allow it."""
        size = max(-(-size // ROUNDING) * ROUNDING, ROUNDING)
        small = size <= SMALL
        pool = self._free[small]
        place = bisect_left(pool, (size, -1))
        if place < len(pool):
            block = self._at[pool.pop(place)[1]]
        else:
            reserved = self._reserve(size, small)
            if reserved is None:
                return None
            block = reserved
        block.is_free = False
        rest = block.size - size
        if rest >= ROUNDING if small else rest > SMALL:
            self._split(block, size)
        return block.offset

    def free(self, offset: int) -> None:
        """Give a block back; free neighbours become one with it."""
        block = self._at[offset]
        pool = self._free[block.is_small]
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.is_free:
                del pool[bisect_left(pool, (neighbour.size, neighbour.offset))]
                first, second = (neighbour, block) if neighbour.offset < block.offset else (block, neighbour)
                first.size += second.size
                first.after = second.after
                if second.after is not None:
                    second.after.before = first
                del self._at[second.offset]
                block = first
        block.is_free = True
        insort(pool, (block.size, block.offset))

    def _reserve(self, size: int, small: bool) -> _Block | None:
        """Add a segment; if it does not fit, release completely free segments first."""
        if small:
            wanted = SMALL_SEGMENT
        else:
            wanted = MEDIUM_SEGMENT if size < MEDIUM else -(-size // LARGE_ROUNDING) * LARGE_ROUNDING
        if self._capacity is not None and self.reserved + wanted > self._capacity:
            self._give_back()
            if self.reserved + wanted > self._capacity:
                return None
        block = self._at[self._end] = _Block(self._end, wanted, small)
        self._end += wanted
        self.reserved += wanted
        self.most_reserved = max(self.most_reserved, self.reserved)
        return block

    def _give_back(self) -> None:
        for pool in self._free.values():
            for size, offset in list(pool):
                block = self._at[offset]
                if block.before is None and block.after is None:
                    pool.remove((size, offset))
                    del self._at[offset]
                    self.reserved -= size

    def _split(self, block: _Block, size: int) -> None:
        rest = _Block(block.offset + size, block.size - size, block.is_small, True, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.size, block.after = size, rest
        self._at[rest.offset] = rest
        insort(self._free[block.is_small], (rest.size, rest.offset))


def solve(buffers: Buffers, options: None, context: Context) -> LayoutProposal:
    """Allocate and free in the order of times, frees first at one instant; no layout where the capacity is exceeded."""
    if buffers.is_fixed.any() or any(low for low, _ in buffers.reserved):
        raise OptionError("the caching allocator does not support fixed or reserved addresses", argument="allocator")
    lying = max((high for _, high in buffers.reserved), default=0)
    allocator = Allocator(buffers.capacity, lying=-(-lying // LARGE_ROUNDING) * LARGE_ROUNDING)
    offset = simulate(buffers, allocator)
    return LayoutProposal(offset=offset, bound=arena_bound(buffers), reserved=allocator.most_reserved)


def simulate(buffers: Buffers, allocator: Allocator) -> IntArray | None:
    """Return the addresses that an allocator gives; None if it runs out of memory."""
    before, after = _takeovers(buffers)
    count = len(buffers)
    time = np.concatenate((buffers.end, buffers.start))
    events = np.lexsort((np.tile(np.arange(count), 2), np.repeat((0, 1), count), time))
    offset = np.zeros(count, dtype=np.int64)
    for event in events.tolist():
        if event < count:
            if after[event] == NONE:
                allocator.free(int(offset[event]))
            continue
        row = event - count
        at = int(offset[before[row]]) if before[row] != NONE else allocator.allocate(int(buffers.size[row]))
        if at is None:
            return None
        offset[row] = at
    return offset


def _takeovers(buffers: Buffers) -> tuple[IntArray, IntArray]:
    """Return for each buffer the one whose block it takes over, and the one that takes over its own; `NONE` for most.

    Buffers of one group without shifts are outputs in place and their inputs. An output takes over the block of the
    buffer before it if it fits; otherwise it is allocated like any other.
    """
    before, after = np.full((2, len(buffers)), NONE, dtype=np.int64)
    if buffers.group is None:
        return before, after
    last: dict[int, tuple[int, int]] = {}  # of each group: the latest buffer, and the size of its block
    for row in np.argsort(buffers.start, kind="stable").tolist():
        group, size = int(buffers.group[row]), int(buffers.size[row])
        earlier, block = last.get(group, (NONE, 0))
        if earlier != NONE and size <= block and buffers.end[earlier] == buffers.start[row]:
            before[row], after[earlier] = earlier, row
            size = block
        last[group] = row, size
    return before, after
