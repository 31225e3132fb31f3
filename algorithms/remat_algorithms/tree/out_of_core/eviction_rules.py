"""Eviction rules for a full memory, each on the list S of resident values.

S lists the values in memory that the next task does not read, by decreasing time of use. In a tree, every value is used
once. The caller reports to the policy which values enter and leave S. The policy chooses the values to evict when the
caller needs a number of bytes. Only `FurthestInFuture` splits values. The others evict whole values, after Jacquelin,
Marchal, Robert and Uçar 2011, "On optimal tree traversals for sparse matrix factorization", section on MinIO.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from itertools import combinations
from typing import Protocol


class Policy(Protocol):
    """An eviction rule; it removes the chosen values, or parts of them, from S."""

    def add(self, value: int) -> None:
        """Record that a whole value of positive size has entered the memory."""

    def remove(self, value: int) -> None:
        """Record that a value is about to be read and can no longer be evicted."""

    def choose(self, need: int) -> list[tuple[int, int]]:
        """Return (value, bytes) pairs with at least `need` bytes in total, or all values if S holds fewer."""
        ...


class FurthestInFuture:
    """Evict parts of values, last used first: optimal for a traversal with divisible values.

    Every evicted byte returns once. A byte that stays out until a later time serves at least as well as one that
    returns earlier (Belady's exchange argument). O(log n) for each value and eviction.
    """

    def __init__(self, size: list[int], use: list[int]) -> None:
        self._use = use
        self._left = list(size)
        self._gone = [False] * len(size)
        self._heap: list[tuple[int, int]] = []

    def add(self, value: int) -> None:
        """Add a value to S."""
        heapq.heappush(self._heap, (-self._use[value], value))

    def remove(self, value: int) -> None:
        """Remove a value from S, wherever its bytes are."""
        self._gone[value] = True

    def choose(self, need: int) -> list[tuple[int, int]]:
        """Take exactly `need` bytes from the values of S that are used last."""
        chosen = []
        heap, left = self._heap, self._left
        while need > 0 and heap:
            value = heap[0][1]
            if self._gone[value] or left[value] == 0:
                heapq.heappop(heap)
                continue
            taken = min(need, left[value])
            left[value] -= taken
            need -= taken
            chosen.append((value, taken))
        return chosen


class _Ranked:
    """Weights by rank; finds the first or last rank whose weight is at least a given value.

    A tree of maxima in an array: O(log n) for each operation.
    """

    def __init__(self, count: int) -> None:
        self._half = 1 << max(0, count - 1).bit_length()
        self._most = [0] * (2 * self._half)

    def put(self, rank: int, weight: int) -> None:
        """Set the weight at a rank; 0 removes it."""
        most, at = self._most, rank + self._half
        most[at] = weight
        at >>= 1
        while at:
            most[at] = max(most[2 * at], most[2 * at + 1])
            at >>= 1

    def first(self, weight: int, start: int = 0) -> int:
        """Return the first rank from `start` with at least that weight; -1 without one."""
        most, at = self._most, start + self._half
        if start >= self._half:
            return -1
        while most[at] < weight:
            while at & 1:  # a right child: its successors lie beyond its parent
                at >>= 1
            if at == 0:
                return -1
            at += 1
        while at < self._half:
            at = 2 * at if most[2 * at] >= weight else 2 * at + 1
        return at - self._half

    def last(self, weight: int, before: int) -> int:
        """Return the last rank below `before` with at least that weight; -1 without one."""
        if before <= 0:
            return -1
        most, at = self._most, before - 1 + self._half
        while most[at] < weight:
            while at > 1 and not at & 1:  # a left child: its predecessors lie beyond its parent
                at >>= 1
            if at <= 1:
                return -1
            at -= 1
        while at < self._half:
            at = 2 * at + 1 if most[2 * at + 1] >= weight else 2 * at
        return at - self._half


class _WholeValues:
    """S as ranks, where rank 0 is used last. Subclasses choose the next values to evict."""

    def __init__(self, size: list[int], use: list[int]) -> None:
        self._size = size
        self._value = sorted(range(len(size)), key=lambda value: (-use[value], value))
        self._rank = [0] * len(size)
        for rank, value in enumerate(self._value):
            self._rank[value] = rank
        self._listed = _Ranked(len(size))

    def add(self, value: int) -> None:
        """Add a value to S."""
        self._listed.put(self._rank[value], self._size[value])

    def remove(self, value: int) -> None:
        """Remove a value from S."""
        self._listed.put(self._rank[value], 0)

    def choose(self, need: int) -> list[tuple[int, int]]:
        """Take whole values until they hold at least `need` bytes."""
        chosen: list[tuple[int, int]] = []
        while need > 0:
            values = self._next(need)
            if not values:
                break
            for value in values:
                self.remove(value)
                chosen.append((value, self._size[value]))
                need -= self._size[value]
        return chosen

    def _next(self, need: int) -> list[int]:
        raise NotImplementedError

    def _first(self, weight: int) -> list[int]:
        rank = self._listed.first(weight)
        return [] if rank < 0 else [self._value[rank]]


class LastScheduledFirst(_WholeValues):
    """LSNF, last scheduled node first: evict the first value of S, repeatedly."""

    def _next(self, need: int) -> list[int]:
        return self._first(1)


class FirstFit(_WholeValues):
    """Evict the first value of S with at least the needed bytes; without one, follow LSNF."""

    def _next(self, need: int) -> list[int]:
        return self._first(need) or self._first(1)


class BestFit(_WholeValues):
    """Evict the value of S closest in size to the need, repeatedly (on a tie, the larger one)."""

    def __init__(self, size: list[int], use: list[int]) -> None:
        super().__init__(size, use)
        self._by_size = sorted(range(len(size)), key=lambda value: (size[value], self._rank[value]))
        self._sizes = [size[value] for value in self._by_size]
        self._size_rank = [0] * len(size)
        for rank, value in enumerate(self._by_size):
            self._size_rank[value] = rank
        self._present = _Ranked(len(size))

    def add(self, value: int) -> None:
        """Add a value to S."""
        self._present.put(self._size_rank[value], 1)

    def remove(self, value: int) -> None:
        """Remove a value from S."""
        self._present.put(self._size_rank[value], 0)

    def _next(self, need: int) -> list[int]:
        split = bisect_left(self._sizes, need)
        above, below = self._present.first(1, split), self._present.last(1, split)
        if above < 0 or (below >= 0 and need - self._sizes[below] < self._sizes[above] - need):
            above = below
        if above < 0:
            return []
        # Of equal sizes, take the value used last.
        return [self._by_size[self._present.first(1, bisect_left(self._sizes, self._sizes[above]))]]


class BestCombination(_WholeValues):
    """Evict the combination of the first K values of S closest in size to the need, repeatedly.

    Ties prefer a sufficient combination, then fewer values, then values used last. O(2^K) for each eviction.
    """

    def __init__(self, size: list[int], use: list[int], k: int) -> None:
        super().__init__(size, use)
        self._k = k

    def _next(self, need: int) -> list[int]:
        first: list[int] = []
        rank = self._listed.first(1)
        while rank >= 0 and len(first) < self._k:
            first.append(self._value[rank])
            rank = self._listed.first(1, rank + 1)
        best: tuple[int, ...] = ()
        key: tuple[int, bool] | None = None
        for count in range(1, len(first) + 1):
            for some in combinations(first, count):
                total = sum(self._size[value] for value in some)
                candidate = (abs(total - need), total < need)
                if key is None or candidate < key:
                    best, key = some, candidate
        return list(best)
