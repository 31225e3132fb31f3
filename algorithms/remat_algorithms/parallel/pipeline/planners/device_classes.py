"""Devices of several classes: the size and the device class of each stage, by dynamic programming over counts.

After Pipe-torch (Zhan & Zhang 2019), with one device per stage. Devices of a class differ only in their connections.
The last ones of each class are used first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise, permutations, product
from math import prod

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.parallel.pipeline.planners.layer_sums import Hop, Line
from remat_algorithms.parallel.pipeline.planners.partition_table import FloatArray, put_before
from remat_algorithms.parallel.pipeline.planners.stage_measures import least_table, serial

MOST_CELLS = 2_000_000_000
"""Maximum number of stages evaluated."""

MOST_ORDERS = 24
"""Maximum number of orders of whole classes tried."""

Hops = Callable[[int, int], Hop]
"""``hops(one, other)``: the connection between two devices."""

Order = tuple[float, list[int]]
"""The largest cost of a stage, and the devices in the order in which micro-batches pass them."""


def best_order(line: Line, classes: Sequence[int], hops: Hops, counts: Sequence[int]) -> Order | None:
    """Return the order that minimises the largest cost of a stage (`serial`); ties prefer fewer devices.

    For layers i .. n - 1 on given numbers of devices of each class, the first of class c, after a hop h:

        V(counts, c, h)(i) = min over j, c', h' from c to c' of
            max(serial cost of i .. j - 1 on c between h and h', V(counts without c, c', h')(j))

    A second search keeps the devices of a class together and uses as many as possible. It runs alone if the table is
    too large.

    Parameters
    ----------
    line : Line
        All devices, in any order.
    classes : sequence of int
        Class of each device, from 0.
    hops : callable
        Equal connections must be the same object.
    counts : sequence of int
        Allowed numbers of devices.
    """
    members = [[device for device, own in enumerate(classes) if own == kind] for kind in range(max(classes) + 1)]
    ways = len({id(hops(one, other)) for one, other in permutations(range(len(classes)), 2)}) or 1
    best = _together(line, members, hops, max(counts))
    cells = prod(len(own) + 1 for own in members) * len(members) * ways**2 * line.row.length**2 // 2
    if cells > MOST_CELLS:
        return best
    longest = best[0] if best is not None else math.inf
    found = _Counts(replace(line, longest=longest), members, hops, counts).best()
    return min((one for one in (found, best) if one is not None), default=None, key=lambda one: (one[0], len(one[1])))


def line_of(line: Line, order: Sequence[int], hops: Hops) -> Line:
    """Return the line of some of its devices in the given order."""
    return replace(
        line,
        positions=tuple(line.positions[device] for device in order),
        hops=tuple(hops(one, other) for one, other in pairwise(order)),
        alike=False,
    )


def _together(line: Line, members: list[list[int]], hops: Hops, count: int) -> Order | None:
    best: Order | None = None
    for kinds in islice(permutations(range(len(members))), MOST_ORDERS):
        order = [device for kind in kinds for device in members[kind]][:count]
        value = least_table(line_of(line, order, hops), serial).value(count)
        if np.isfinite(value) and (best is None or value < best[0]):
            best = value, order
    return best


State = tuple[tuple[int, ...], int, int]
"""Counts, the class of the first device, and the number of the hop before it."""


@dataclass(frozen=True)
class _Best:
    """For a state and each first layer: the best value, the end of its first stage, and the state of the rest."""

    values: FloatArray
    ends: IntArray
    which: IntArray
    rests: list[State]


class _Counts:
    def __init__(self, line: Line, members: list[list[int]], hops: Hops, counts: Sequence[int]) -> None:
        self.line, self.members, self.hops, self.counts = line, members, hops, counts
        self.nothing = line.nothing
        self.numbers: dict[Hop, int] = {self.nothing: 0}
        self.found: dict[State, _Best] = {}

    def best(self) -> Order | None:
        """Fill all states; return the best order over all allowed numbers of devices."""
        best: tuple[float, State] | None = None
        totals = sorted(
            product(*(range(len(own) + 1) for own in self.members)), key=lambda counts: (sum(counts), counts)
        )
        for counts in totals[1:]:
            if sum(counts) > max(self.counts):
                break
            for kind in range(len(counts)):
                for state in self._fill(counts, kind):
                    value = float(self.found[state].values[0])
                    if sum(counts) in self.counts and value < (math.inf if best is None else best[0]):
                        best = value, state
        return None if best is None else (best[0], self._order(best[1]))

    def _device(self, counts: Sequence[int], kind: int) -> int:
        """Return the device of a class that was used last."""
        return self.members[kind][-counts[kind]]

    def _fill(self, counts: tuple[int, ...], kind: int) -> Iterator[State]:
        """Fill the states with these counts and a first device of this class."""
        if not counts[kind]:
            return
        device = self._device(counts, kind)
        rest = tuple(count - (index == kind) for index, count in enumerate(counts))
        ahead = {0: self.nothing}
        for before in range(len(counts)):
            if counts[before] < len(self.members[before]):
                hop = self.hops(self.members[before][-counts[before] - 1], device)
                ahead[self.numbers.setdefault(hop, len(self.numbers))] = hop
        for number, hop in ahead.items():
            state = counts, kind, number
            self.found[state] = self._least(hop, device, rest, sum(counts))
            yield state

    def _least(self, before: Hop, device: int, rest: tuple[int, ...], left: int) -> _Best:
        length = self.line.row.length
        here = self.line.positions[device]
        best = _Best(np.full(length + 1, np.inf), np.full(length + 1, length), np.zeros(length + 1, dtype=np.int64), [])
        for after, states in self._rests(device, rest):
            if states:
                several = np.array([self.found[state].values for state in states])
                which = np.argmin(several, axis=0)
                values = several[which, np.arange(length + 1)]
            else:
                values, which = np.full(length + 1, np.inf), np.zeros(length + 1, dtype=np.int64)
                values[length] = 0.0
            line = replace(self.line, positions=(here, here, here), hops=(before, after))
            found, ends = put_before(serial(line, 1, left), values)
            better = found < best.values
            best.values[better], best.ends[better] = found[better], ends[better]
            best.which[better] = which[ends[better]] + len(best.rests)
            best.rests.extend(states)
        return best

    def _rests(self, device: int, counts: tuple[int, ...]) -> list[tuple[Hop, list[State]]]:
        """Return the next connections, each with its subsequent states; one empty entry after the last device."""
        if not any(counts):
            return [(self.nothing, [])]
        behind: dict[Hop, list[State]] = {}
        for kind in range(len(counts)):
            if counts[kind]:
                hop = self.hops(device, self._device(counts, kind))
                behind.setdefault(hop, []).append((counts, kind, self.numbers[hop]))
        return list(behind.items())

    def _order(self, state: State) -> list[int]:
        order, first = [], 0
        following: State | None = state
        while following is not None:
            order.append(self._device(following[0], following[1]))
            found = self.found[following]
            following = found.rests[found.which[first]] if found.rests else None
            first = int(found.ends[first])
        return order
