"""Memory along a sequential order with range additions: blocks, each with a common addend and a maximum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BLOCK = 512
LARGEST_EXACT = 2**60
"""Above this, sums of sizes might exceed int64; Python integers are then used, which are slower."""


class Profile:
    """Bytes at each place; places can be removed. O(BLOCK + places / BLOCK) array operations per call."""

    def __init__(self, usage: Sequence[int], total: int) -> None:
        """Create the profile; `total` bounds every sum of additions."""
        kind = np.int64 if total <= LARGEST_EXACT else object
        blocks = -(-len(usage) // BLOCK)
        self._removed = -4 * LARGEST_EXACT if kind is np.int64 else -(2**80)
        self._bytes: NDArray[np.int64] = np.full(blocks * BLOCK, self._removed, dtype=kind)
        self._bytes[: len(usage)] = usage
        self._common: NDArray[np.int64] = np.zeros(blocks, dtype=kind)
        self._up_to: list[int] | None = None  # prefix maxima over the blocks
        self._highest: NDArray[np.int64] = self._bytes.reshape(blocks, BLOCK).max(axis=1)

    def add(self, first: int, end: int, amount: int) -> None:
        """Add to the places from `first` up to `end`."""
        block, last = first // BLOCK, end // BLOCK
        if first >= end or amount == 0:
            return
        self._up_to = None
        if block == last:
            self._add_within(block, first, end, amount)
            return
        if first % BLOCK:
            self._add_within(block, first, (block + 1) * BLOCK, amount)
            block += 1
        if block < last:
            self._common[block:last] += amount
            self._highest[block:last] += amount
        if end % BLOCK:
            self._add_within(last, last * BLOCK, end, amount)

    def remove(self, place: int) -> None:
        """Remove a place from all maxima."""
        self._bytes[place] = self._removed
        self._renew(place // BLOCK)

    def exceeds(self, end: int, limit: int) -> bool:
        """Whether any remaining place before `end` holds more than `limit`."""
        block, rest = divmod(end, BLOCK)
        up_to: list[int] = self._up_to or np.maximum.accumulate(self._highest).tolist()
        self._up_to = up_to
        if block and up_to[block - 1] > limit:
            return True
        return rest > 0 and int(self._bytes[end - rest : end].max()) + int(self._common[block]) > limit

    def _add_within(self, block: int, first: int, end: int, amount: int) -> None:
        self._bytes[first:end] += amount
        self._renew(block)

    def _renew(self, block: int) -> None:
        self._up_to = None
        self._highest[block] = self._bytes[block * BLOCK : (block + 1) * BLOCK].max() + self._common[block]
