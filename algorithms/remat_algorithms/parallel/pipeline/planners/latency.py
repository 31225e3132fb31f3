"""Cuts with the fastest step: latencies bound the makespan from below, and `judge` evaluates it."""

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
"""Maximum number of stages tried before the search stops with the best cuts found."""


EVEN = (overlapped, received, serial)
MOST_EVEN = 8
"""Maximum number of device counts, evenly spread, whose even cuts are tried first. `EVEN` lists their measures."""


@dataclass(frozen=True)
class Quickest:
    """Cuts with their makespan, and whether they are proved optimal."""

    makespan: float
    cuts: list[int]
    proved: bool


def quickest(line: Line, depths: Sequence[int], judge: Judge, most: int) -> Quickest | None:
    """Return the cuts of minimum makespan on the best number of first devices; None if none fit.

    The search starts with even cuts for a few depths. Depths are processed by their minimum latency, and the cuts of a
    depth by their bound in the table. Cuts that cannot beat the best known ones are pruned. The search is therefore
    exhaustive unless it reaches a limit. In that case, single cuts are moved while this improves the result.

    Parameters
    ----------
    line : Line
    depths : sequence of int
        Numbers of devices.
    judge : callable
        Returns at least the latency of `pivoted`.
    most : int
        Maximum number of cuts judged; 0 means that the cuts of minimum latency are returned without judging.
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
        """Judge cuts; keep them and return True if they are better."""
        self.left -= 1
        makespan = self.judge(cuts)
        if makespan < self.makespan:
            self.makespan, self.cuts = makespan, cuts
            return True
        return False

    def descend(self, line: Line) -> None:
        """Move single cuts of the best solution by one layer while this improves it."""
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
        """Search the cuts of a depth."""
        self.measures = {}
        self._go(line, table, depth, [0], 0.0, 0.0)

    def _measure(self, line: Line, left: int) -> Measure:
        if left not in self.measures:
            self.measures[left] = pivoted(line, len(line.positions) - left, left)
        return self.measures[left]

    def _go(self, line: Line, table: Table, left: int, cuts: list[int], before: float, known: float) -> None:
        """Try all next stages: `before` is the round-trip time of the previous stages, `known` their latency."""
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
