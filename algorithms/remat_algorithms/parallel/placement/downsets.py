"""Down-sets of groups: all of them, or the prefixes of one order, with the transitions between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.parallel.placement.groups import Ordered


@dataclass(frozen=True)
class DownSets:
    """Down-sets in topological order; the first is empty, the last contains all groups.

    Attributes
    ----------
    start : (sets + 1,) int64
        Successors of down-set i are ``target[start[i]:start[i+1]]``, each with one additional group, ``group``.
    group, target : (transitions,) int64
    sets : tuple of int
        Bit masks.
    """

    start: IntArray
    group: IntArray
    target: IntArray
    sets: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.sets)

    def totals(self, figures: Sequence[int]) -> IntArray:
        """Return the sum of a quantity over the groups of each down-set (O(sets))."""
        found = np.zeros(len(self), dtype=np.int64)
        each = np.array(figures, dtype=np.int64)
        source = np.repeat(np.arange(len(self)), np.diff(self.start))
        # All paths to a down-set give the same sum, so one per down-set suffices, smaller sets first.
        first = np.unique(self.target, return_index=True)[1]
        for edge in first[np.argsort(source[first], kind="stable")].tolist():
            found[self.target[edge]] = found[source[edge]] + each[self.group[edge]]
        return found

    def between(self, smaller: int, larger: int) -> list[int]:
        """Return the groups of the larger down-set that the smaller one lacks."""
        bits, found = self.sets[larger] & ~self.sets[smaller], []
        while bits:
            low = bits & -bits
            found.append(low.bit_length() - 1)
            bits ^= low
        return found


LOOKED_AT = 1000
"""Number of down-sets between two checks for a stop."""


def down_sets(groups: Ordered, most: int, stopped: Callable[[], bool] = lambda: False) -> DownSets | None:
    """Return all down-sets; None if there are more than `most`, or on a stop.

    O(sets x possible successors of each).
    """
    count = len(groups)
    before = [sum(1 << other for other in own) for own in groups.after]
    following: list[list[int]] = [[] for _ in range(count)]
    for group, own in enumerate(groups.after):
        for other in own:
            following[other].append(group)
    sets = [0]
    number = {0: 0}
    ready: list[tuple[int, ...]] = [tuple(group for group in range(count) if not before[group])]
    start, group_of, target = [0], list[int](), list[int]()
    at = 0
    while at < len(sets):
        if at % LOOKED_AT == LOOKED_AT - 1 and stopped():
            return None
        mask = sets[at]
        for group in ready[at]:
            larger = mask | 1 << group
            index = number.get(larger)
            if index is None:
                index = len(sets)
                if index >= most:
                    return None
                number[larger] = index
                sets.append(larger)
                new = [other for other in following[group] if not before[other] & ~larger]
                ready.append((*(other for other in ready[at] if other != group), *new))
            group_of.append(group)
            target.append(index)
        start.append(len(target))
        at += 1
    return DownSets(
        np.array(start, dtype=np.int64),
        np.array(group_of, dtype=np.int64),
        np.array(target, dtype=np.int64),
        tuple(sets),
    )


def of_order(order: Sequence[int]) -> DownSets:
    """Return the down-sets of one order: its prefixes."""
    sets = [0]
    for group in order:
        sets.append(sets[-1] | 1 << group)
    count = len(order)
    start = np.minimum(np.arange(count + 2, dtype=np.int64), count)
    return DownSets(start, np.array(order, dtype=np.int64), np.arange(1, count + 1, dtype=np.int64), tuple(sets))
