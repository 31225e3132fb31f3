"""Devices of several classes: how many layers next, and on which class, by dynamic programming over counts.

After Pipe-torch (Zhan & Zhang 2019), one device a stage. Devices of a class differ in their ways to others only; the
last ones of each are taken first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations, product
from math import prod

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.parallel.pipeline.planners.measures import serial, table_of
from remat_algorithms.parallel.pipeline.planners.rows import Hop, Line, Position, Row
from remat_algorithms.parallel.pipeline.planners.table import FloatArray, put_before

MOST_CELLS = 2_000_000_000
"""Stages that are weighed, at most."""

MOST_ORDERS = 24
"""Orders of whole classes that are tried where these are too many."""

Hops = Callable[[int, int], Hop]
"""``hops(one, other)``: the way between two devices."""

Order = tuple[float, list[int]]
"""The largest cost of a stage, and the devices in the order in which micro-batches pass them."""


def best_orders(row: Row, positions: Sequence[Position], classes: Sequence[int], hops: Hops, batches: int) -> list[Order]:
    """Return the best order for each number of devices that has one, by the largest cost of a stage (`serial`).

    Of layers i .. n - 1, on so many devices of each class, the first of them of class c, behind a hop h:

        V(counts, c, h)(i) = min over j, c', h' from c to c' of
            max(serial cost of i .. j - 1 on c between h and h', V(counts without c, c', h')(j))

    Where that is too much, the devices of a class stay together, and all devices are taken.

    Parameters
    ----------
    row : Row
    positions : sequence of Position
    classes : sequence of int
        The class of each device, from 0.
    hops : callable
        Equal ways must be one object.
    batches : int
    """
    members = [[device for device, own in enumerate(classes) if own == kind] for kind in range(max(classes) + 1)]
    ways = len({id(hops(one, other)) for one, other in permutations(range(len(classes)), 2)}) or 1
    if prod(len(own) + 1 for own in members) * len(members) * ways**2 * row.length**2 // 2 <= MOST_CELLS:
        counts = _Counts(row, positions, members, hops, batches)
        return counts.best()
    return _together(row, positions, members, hops, batches)


def line_of(row: Row, positions: Sequence[Position], order: Sequence[int], hops: Hops, batches: int) -> Line:
    """Return the line of some devices, in this order."""
    return Line(
        row,
        tuple(positions[device] for device in order),
        tuple(hops(one, other) for one, other in zip(order[:-1], order[1:], strict=True)),
        batches,
    )


def _together(
    row: Row, positions: Sequence[Position], members: list[list[int]], hops: Hops, batches: int
) -> list[Order]:
    best: Order | None = None
    for kinds in islice(permutations(range(len(members))), MOST_ORDERS):
        order = [device for kind in kinds for device in members[kind]][: row.length]
        value = table_of(line_of(row, positions, order, hops, batches), serial).value(len(order))
        if np.isfinite(value) and (best is None or value < best[0]):
            best = value, order
    return [] if best is None else [best]


State = tuple[tuple[int, ...], int, int]
"""Counts, the class of the first device, and the hop before it (its number)."""


@dataclass(frozen=True)
class _Best:
    """Of a state: the best value for each first layer, where its first stage ends, and the state of the rest."""

    values: FloatArray
    ends: IntArray
    rests: list[State | None]


class _Counts:
    def __init__(
        self, row: Row, positions: Sequence[Position], members: list[list[int]], hops: Hops, batches: int
    ) -> None:
        self.row, self.positions, self.members, self.hops, self.batches = row, positions, members, hops, batches
        self.nothing = Hop.of([0] * (row.length - 1))
        self.numbers: dict[Hop, int] = {self.nothing: 0}
        self.found: dict[State, _Best] = {}

    def best(self) -> list[Order]:
        """Fill all states; return the best order of each number of devices."""
        best: dict[int, tuple[float, State]] = {}
        totals = sorted(product(*(range(len(own) + 1) for own in self.members)), key=lambda counts: (sum(counts), counts))
        for counts in totals[1:]:
            total = sum(counts)
            if total > self.row.length:
                break
            for kind in range(len(counts)):
                for state in self._fill(counts, kind):
                    value = float(self.found[state].values[0])
                    if np.isfinite(value) and (total not in best or value < best[total][0]):
                        best[total] = value, state
        return [(best[total][0], self._order(best[total][1])) for total in sorted(best)]

    def _device(self, counts: Sequence[int], kind: int) -> int:
        """Return the device of a class that was taken last."""
        return self.members[kind][-counts[kind]]

    def _fill(self, counts: tuple[int, ...], kind: int) -> Iterator[State]:
        """Fill the states with these counts whose first device is of this class."""
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
        length = self.row.length
        best = _Best(np.full(length + 1, np.inf), np.full(length + 1, length), [None] * (length + 1))
        for after, states in self._rests(device, rest):
            if not states:
                values, which = np.full(length + 1, np.inf), np.zeros(length + 1, dtype=np.int64)
                values[length] = 0.0
            else:
                several = np.array([self.found[state].values for state in states])
                which = np.argmin(several, axis=0)
                values = several[which, np.arange(length + 1)]
            here = self.positions[device]
            line = Line(self.row, (here, here, here), (before, after), self.batches)
            found, ends = put_before(serial(line, 1, left), values)
            for first in np.flatnonzero(found < best.values).tolist():
                best.values[first], best.ends[first] = found[first], ends[first]
                best.rests[first] = states[which[ends[first]]] if states else None
        return best

    def _rests(self, device: int, counts: tuple[int, ...]) -> list[tuple[Hop, list[State]]]:
        """Return the ways on, each with the states behind it; none where the device is the last one."""
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
            order.append(self._device(*following[:2]))
            found = self.found[following]
            first, following = int(found.ends[first]), found.rests[first]
        return order
