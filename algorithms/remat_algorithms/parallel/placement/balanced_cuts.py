"""Placements of a graph on two processors by minimum cuts, with prices that balance processors and links.

A minimum cut assigns units to two processors with the minimum sum of run times and copy times (Stone 1977, IEEE TSE
3(1):85-93). The sum is the time of a schedule without overlap. For a short makespan, the *busiest* resource counts.
Each of the four resources (two processors, two directions) therefore has a price. Prices rise where the last cut put
most of the load (multiplicative weights). Every cut is a candidate.

If the prices sum to one, the minimum priced sum is also a lower bound on the largest load, and thus on the makespan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from remat_algorithms.parallel.placement.single_run import Once

ROUNDS = 16
"""Number of cuts for each pair of processors."""

RATE = 0.7
"""Rate at which prices follow the loads."""

SCALE = 1 << 30
"""Total price of a cut in integer units."""

ENDLESS = 1 << 60
"""Capacity of an arc that no cut contains."""

MOST_PAIRS = 6
"""Maximum number of pairs of processors tried."""


def balanced_cuts(once: Once) -> Iterator[list[int]]:
    """Yield placements that use two processors in different memories, pair by pair.

    Parameters
    ----------
    once : Once

    Yields
    ------
    list of int
        The processor of each unit.

    Notes
    -----
    Each cut is a maximum flow over units and values: O(V^2 E) in the worst case, near linear in practice.
    """
    model = once.model
    pairs = [
        (one, other)
        for one in range(model.processors)
        for other in range(one + 1, model.processors)
        if model.memory_of[one] != model.memory_of[other]
    ]
    for one, other in pairs[:MOST_PAIRS]:
        for placed, _ in _Pair(once, one, other).placements():
            yield placed


def load_bound(once: Once) -> float:
    """Return a lower bound on the makespan of every schedule on two processors with separate memories.

    Parameters
    ----------
    once : Once

    Returns
    -------
    float
        0 if no bound is known: on other machines, with tasks that need not run, or with values of several producers.

    Notes
    -----
    Every schedule runs each task on one of the processors. If an input is not in that processor's memory, all bytes of
    the input cross the only link to it. Only inputs count, because other values may be computed on both sides.
    """
    model = once.model
    if model.processors != 2 or not model.alone or not model.settled:
        return 0.0
    into = [[link for link in model.machine.links if link.target == memory] for memory in model.memory_of]
    if any(len(links) != 1 for links in into):
        return 0.0
    return max((least for _, least in _Pair(once, 0, 1, only_inputs=True).placements()), default=0.0)


@dataclass
class _Value:
    """A value that two processors may have to pass on."""

    maker: int | None
    lies: tuple[bool, bool]
    readers: set[int] = field(default_factory=set[int])
    wanted: tuple[bool, bool] = (False, False)
    times: tuple[float, float] = (0.0, 0.0)


class _Pair:
    """Two processors, with the times of runs on them and of copies between them."""

    def __init__(self, once: Once, one: int, other: int, *, only_inputs: bool = False) -> None:
        self.once, self.sides, self.only_inputs = once, (one, other), only_inputs
        model = once.model
        self.memories = (model.memory_of[one], model.memory_of[other])
        self.values = self._values()

    def _values(self) -> list[_Value]:
        """Collect the values that may have to be copied between the two memories."""
        once, model, graph = self.once, self.once.model, self.once.model.graph
        found: dict[int, _Value] = {}
        placeable = {place.value for place in graph.placeable}
        for value, memories in once.lying.items():
            here = (self.memories[0] in memories, self.memories[1] in memories)
            found[value] = _Value(None, here)
        for task in once.order:
            unit = model.unit_of[task]
            for value in graph.writes[task].tolist():
                if value not in found:
                    found[value] = _Value(unit, (False, False))
            for value in graph.reads[task].tolist():
                if value in found and value not in placeable:
                    found[value].readers.add(unit)
        for value, memory in once.wanted:
            if value in found:
                before = found[value].wanted
                found[value].wanted = (
                    before[0] or memory == self.memories[0],
                    before[1] or memory == self.memories[1],
                )
        kept = []
        for value, facts in found.items():
            alone = facts.maker is not None and facts.readers <= {facts.maker} and not any(facts.wanted)
            if facts.lies == (True, True) or alone or (facts.maker is None and not any(facts.lies)):
                continue
            if self.only_inputs:
                if facts.maker is not None:
                    continue
                facts.wanted = (False, False)
            facts.times = (self._copy_time(0, 1, value), self._copy_time(1, 0, value))
            kept.append(facts)
        return kept

    def _copy_time(self, source: int, target: int, value: int) -> float:
        model = self.once.model
        size = int(model.graph.size[value])
        if self.only_inputs:  # for a bound: the time for which the link is occupied, without the delay
            (link,) = (link for link in model.machine.links if link.target == self.memories[target])
            return float(link.latency) + (0.0 if link.bandwidth is None else size / link.bandwidth)
        links = model.route(self.memories[source], self.memories[target], value)
        return math.inf if links is None else sum(float(model.arrival_time(link, value)) for link in links)

    def placements(self) -> Iterator[tuple[list[int], float]]:
        """Yield successive cuts, each with a lower bound on the largest load of any placement."""
        prices = [1.0] * 4
        for _ in range(ROUNDS):
            found = self._cut(prices)
            if found is None:
                return
            sides, least = found
            loads = self._loads(sides)
            most = max(loads)
            if math.isinf(most):  # every cut needs a copy that has no route
                return
            yield [self.sides[side] for side in sides], least / sum(prices)
            if most <= 0:
                return
            prices = [price * math.exp(RATE * load / most) for price, load in zip(prices, loads, strict=True)]
            total = sum(prices)
            prices = [4 * price / total for price in prices]

    def _loads(self, sides: list[int]) -> list[float]:
        """Return the loads of both processors and of both directions."""
        model = self.once.model
        loads = [0.0] * 4
        for unit, side in enumerate(sides):
            loads[side] += float(model.time[self.sides[side], unit])
        for value in self.values:
            users = {sides[unit] for unit in value.readers} | {side for side in (0, 1) if value.wanted[side]}
            origin = (0 if value.lies[0] else 1) if value.maker is None else sides[value.maker]
            if 1 - origin in users:
                loads[2 + origin] += value.times[origin]
        return loads

    def _cut(self, prices: list[float]) -> tuple[list[int], float] | None:
        """Return the side of each unit in a minimum cut, and a lower bound on its price; None if a unit has no side."""
        from ortools.graph.python import max_flow

        model = self.once.model
        source, sink = model.units, model.units + 1
        costs: list[tuple[int, int, float]] = []
        for unit in range(model.units):
            here, there = (float(model.time[processor, unit]) for processor in self.sides)
            if math.isinf(here) and math.isinf(there):
                return None
            costs.append((unit, sink, here * prices[0]))
            costs.append((source, unit, there * prices[1]))
        node = sink
        for value in self.values:
            for side in (0, 1):  # the side at which the value originates
                begins = (source, sink)[side] if value.maker is None else value.maker
                if value.maker is None and not value.lies[side]:
                    continue
                users = [*value.readers, *([(sink, source)[side]] if value.wanted[1 - side] else [])]
                if not users:
                    continue
                node += 1
                price = value.times[side] * prices[2 + side]
                costs.append((begins, node, price) if side == 0 else (node, begins, price))
                costs += [(node, user, math.inf) if side == 0 else (user, node, math.inf) for user in users]
        finite = sum(cost for _, _, cost in costs if math.isfinite(cost))
        unit_cost = SCALE / finite if finite > 0 else 1.0
        flow = max_flow.SimpleMaxFlow()
        for tail, head, cost in costs:
            flow.add_arc_with_capacity(tail, head, ENDLESS if math.isinf(cost) else int(cost * unit_cost))
        if flow.solve(source, sink) != flow.OPTIMAL:
            return None
        near = set(flow.get_source_side_min_cut())
        return [0 if unit in near else 1 for unit in range(model.units)], flow.optimal_flow() / unit_cost
