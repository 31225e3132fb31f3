"""`caching`: the memory that PyTorch's caching allocator reserves for these buffers, in execution order.

The rules are those of `c10/cuda/CUDACachingAllocator.cpp`, with its default settings and one stream:

- A request is rounded up to a multiple of 512 bytes.
- Requests of up to 1 MiB are served from the small pool, all others from the large pool.
- The smallest free block of the pool that is large enough is taken. Of equal blocks, the lowest address wins.
- If no block is large enough, a segment is reserved: 2 MiB for a small request, 20 MiB for a request below 10 MiB,
  otherwise the request rounded up to a multiple of 2 MiB.
- A block is split if the remainder is at least 512 bytes in the small pool, or more than 1 MiB in the large pool.
- A freed block is merged with free neighbours of its segment. Segments stay reserved; blocks never move.
- If the device has a capacity and a new segment would exceed it, wholly free segments are released first.

Segments are laid out one after the other, and an offset is an address in that order. The arena therefore equals the
maximum of reserved bytes unless a segment is released.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

import numpy as np

from remat.plugin import Buffers, Context, IntArray, LayoutProposal, OptionError
from remat_algorithms.layout.live_bytes import arena_bound

MIB = 1 << 20
ROUNDING, SMALL, MEDIUM = 512, MIB, 10 * MIB
SMALL_SEGMENT, MEDIUM_SEGMENT, LARGE_ROUNDING = 2 * MIB, 20 * MIB, 2 * MIB


@dataclass
class _Block:
    """A part of a segment; free blocks are indexed by size and address."""

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
        Current and maximum bytes of all segments.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._at: dict[int, _Block] = {}
        self._end = 0
        self.reserved = self.most_reserved = 0

    def allocate(self, size: int) -> int | None:
        """Return the address of a block, or None if the capacity does not allow it."""
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
        """Free a block and merge it with its free neighbours."""
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
        """Add a segment; if the capacity does not allow it, release wholly free segments first."""
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
    """Allocate and free in time order, frees first at equal times; return no layout if the capacity is exceeded."""
    if not buffers.is_plain or buffers.is_fixed.any() or buffers.reserved:
        raise OptionError("the caching allocator knows neither fixed nor reserved addresses", argument="allocator")
    allocator = Allocator(buffers.capacity)
    offset = simulate(buffers, allocator)
    bound = arena_bound(buffers)
    notes = (f"reserved at most: {allocator.most_reserved} bytes",)
    return LayoutProposal(offset=offset, bound=bound, notes=notes)


def simulate(buffers: Buffers, allocator: Allocator) -> IntArray | None:
    """Return the addresses that an allocator assigns; None if a request fails."""
    count = len(buffers)
    time = np.concatenate((buffers.end, buffers.start))
    events = np.lexsort((np.tile(np.arange(count), 2), np.repeat((0, 1), count), time))
    offset = np.zeros(count, dtype=np.int64)
    for event in events.tolist():
        if event < count:
            allocator.free(int(offset[event]))
            continue
        at = allocator.allocate(int(buffers.size[event - count]))
        if at is None:
            return None
        offset[event - count] = at
    return offset
