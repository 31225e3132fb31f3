"""The cuts with the quickest step: latencies bound it from below, and what `judge` says decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from remat_algorithms.parallel.pipeline.planners.layer_sums import Line
from remat_algorithms.parallel.pipeline.planners.partition_table import Measure, Table
from remat_algorithms.parallel.pipeline.planners.stage_measures import (
    least_largest,
    overlapped,
    pivoted,
    received,
    serial,
    table_of,
)

Judge = Callable[[list[int]], float]
"""``judge(cuts)``: the makespan of the first devices of the line with these cuts."""

MOST_PARTS = 5_000
"""Stages that are tried, at most, before the cuts of the least latency so far are taken."""


EVEN = (overlapped, received, serial)
MOST_EVEN = 8
"""Measures of the even cuts that are tried first; numbers of devices, spread over all of them, that are."""


@dataclass(frozen=True)
class Quickest:
    """Cuts with their makespan, and whether no others can be quicker."""

    makespan: float
    cuts: list[int]
    proved: bool


def quickest(line: Line, depths: Sequence[int], judge: Judge, most: int) -> Quickest | None:
    """Return the cuts of least makespan, on so many of the first devices as is best; None where none fits.

    It begins with even cuts for a few depths. Depths come by their least latency, and the cuts of one in the order in
    which the table promises the least: what cannot be quicker than what is known is left out, so that the search is
    exhaustive unless a limit ends it. If one does, single cuts are moved as long as that helps.

    Parameters
    ----------
    line : Line
    depths : sequence of int
        Numbers of devices.
    judge : callable
        Never less than the latency of `pivoted`.
    most : int
        How many cuts are judged, at most; for 0, those of the least latency are taken unjudged.
    """
    common = table_of(line.first(max(depths)), pivoted) if line.alike else None
    tables = {depth: common or table_of(line.first(depth), pivoted) for depth in depths}
    found = {depth: (table.value(depth), table) for depth, table in tables.items() if math.isfinite(table.value(depth))}
    if not found:
        return None
    order = sorted(found, key=lambda depth: (found[depth][0], depth))
    if not most:
        return Quickest(math.inf, found[order[0]][1].cuts(order[0]), proved=False)
    search = _Search(judge, most)
    spread = order[:: max(1, len(order) // MOST_EVEN)]
    for depth, counting in [*((order[0], counting) for counting in EVEN), *((depth, received) for depth in spread)]:
        even = least_largest(line.first(depth), counting)
        if even is not None:
            search.consider(even[1])
    search.left -= most // 2
    for depth in order:
        latency, table = found[depth]
        if latency < search.makespan:
            search.run(line.first(depth), table, depth)
    proved = search.left > 0 and search.parts > 0
    if not proved:
        search.left = max(0, search.left) + most // 2
        search.descend(line)
    return Quickest(search.makespan, search.cuts, proved)


@dataclass
class _Search:
    judge: Judge
    left: int
    parts: int = MOST_PARTS
    makespan: float = math.inf
    cuts: list[int] = field(default_factory=list[int])
    measures: dict[int, Measure] = field(default_factory=dict[int, Measure])

    def consider(self, cuts: list[int]) -> bool:
        """Judge cuts; keep them, and return whether they are better."""
        self.left -= 1
        makespan = self.judge(cuts)
        if makespan < self.makespan:
            self.makespan, self.cuts = makespan, cuts
            return True
        return False

    def descend(self, line: Line) -> None:
        """Move single cuts by a layer, as long as that helps: those of the best cuts so far, one after the other."""
        count = len(self.cuts) - 1
        part = line.first(count)
        reach = [pivoted(part, place, count - place).reach for place in range(count)]
        at, since = 1, 0
        while self.left > 0 and since < count - 1:
            better = False
            for step in (1, -1):
                moved = [*self.cuts[:at], self.cuts[at] + step, *self.cuts[at + 1 :]]
                rising = moved[at - 1] < moved[at] < moved[at + 1]
                if not rising or any(moved[place + 1] > reach[place][moved[place]] for place in (at - 1, at)):
                    continue
                better = self.consider(moved)
                if better or self.left <= 0:
                    break
            since = 0 if better else since + 1
            at = at if better else at % (count - 1) + 1

    def run(self, line: Line, table: Table, depth: int) -> None:
        """Go through the cuts of a depth."""
        self.measures = {}
        self._go(line, table, depth, [0], 0.0, 0.0)

    def _measure(self, line: Line, left: int) -> Measure:
        if left not in self.measures:
            self.measures[left] = pivoted(line, len(line.positions) - left, left)
        return self.measures[left]

    def _go(self, line: Line, table: Table, left: int, cuts: list[int], before: float, known: float) -> None:
        """Try all next stages: `before` is the way there and back so far, `known` the latency up to here."""
        if self.left <= 0 or self.parts <= 0:
            return
        self.parts -= 1
        first = cuts[-1]
        measure = self._measure(line, left)
        end = int(measure.reach[first])
        if end <= first:
            return
        alone, on = measure.costs(first, first + 1, end)
        assert alone is not None
        assert on is not None
        upto = np.maximum(before + alone[0], known)
        then = before + on[0]
        bound = np.maximum(upto, then + table.values[left - 1][first + 1 : end + 1])
        for index in np.argsort(bound, kind="stable").tolist():
            if not bound[index] < self.makespan:
                return
            reached = [*cuts, first + 1 + index]
            if left == 1:
                self.consider(reached)
            else:
                self._go(line, table, left - 1, reached, float(then[index]), float(upto[index]))
            if self.left <= 0 or self.parts <= 0:
                return
