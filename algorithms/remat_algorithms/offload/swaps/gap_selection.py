"""Selection of the gaps to offload: taken in some order until everything fits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat.plugin import BoolArray, Context, IntArray, Number, NumberArray, Problem
from remat_algorithms.kit.incumbent import Incumbent
from remat_algorithms.offload.swaps.dispatch import Dispatched, dispatch
from remat_algorithms.offload.swaps.gap_choice_facts import Gaps
from remat_algorithms.offload.swaps.program import planned_profile
from remat_algorithms.offload.swaps.routes import Route, device_of
from remat_algorithms.offload.swaps.swaps import Order
from remat_algorithms.offload.swaps.value_copies import Swap, leaves


@dataclass(frozen=True)
class Plan:
    """Swaps of an order, dispatched.

    Attributes
    ----------
    order : Order
    swaps : tuple of Swap
    outcome : Dispatched
    """

    order: Order
    swaps: tuple[Swap, ...]
    outcome: Dispatched

    @property
    def makespan(self) -> Number:
        """End of the last step."""
        return self.outcome.makespan


@dataclass(frozen=True, slots=True)
class Leg:
    """A gap and its transfers on the nearest route.

    Attributes
    ----------
    gap, after, before : int
        The gap, and the positions of the runs around it.
    begin, end : float
        Its begin and end if no run waits.
    out, back : int or float
        Times of the transfers.
    """

    gap: int
    after: int
    before: int
    begin: float
    end: float
    out: Number
    back: Number


class Choice(Gaps):
    """An order of runs on a machine, with the facts for choosing among its gaps.

    Parameters
    ----------
    problem : Problem
    order : Order
    routes : tuple of Route
        At least one.
    outputs : bool
        Whether outputs may be elsewhere until the end.
    """

    def __init__(self, problem: Problem, order: Order, routes: tuple[Route, ...], *, outputs: bool = False) -> None:
        self.problem, self.order, self.routes, self.outputs = problem, order, routes, outputs
        self.budget = problem.machine.memories[device_of(problem.machine)].capacity
        self.profile = order.profile()
        self.value = np.array([gap.value for gap in order.gaps], dtype=np.int64)
        self.size = problem.graph.size[self.value]
        self.after = np.array([gap.after for gap in order.gaps], dtype=np.int64)
        self.before = np.array([gap.before for gap in order.gaps], dtype=np.int64)

    @cached_property
    def start_times(self) -> NumberArray:
        """Start of each run if no run waits for transfers and, last, the end of the last one."""
        return self.order.start_times

    @cached_property
    def candidates(self) -> IntArray:
        """Gaps with at least one run between, of values with at least one byte."""
        inner = (self.before - self.after > 1) & (self.size > 0)
        if not self.outputs:
            inner &= self.before < len(self.order.tasks)
        gaps, copies = self.order.gaps, self.order.copies
        found = [index for index in np.flatnonzero(inner).tolist() if leaves(copies[gaps[index].copy], gaps[index])]
        return np.array(found, dtype=np.int64)

    @cached_property
    def goes_anyhow(self) -> BoolArray:
        """Whether each gap's value is in another memory in any case, so that nothing needs to be sent."""
        copies = self.order.copies
        return np.array([copies[gap.copy].refuge is not None for gap in self.order.gaps], dtype=bool)

    @cached_property
    def transfer_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Times of each gap's transfers on the nearest route, out and back; out is 0 for values elsewhere anyway."""
        times = np.array(self._route_times, dtype=np.float64).reshape(-1, 2)
        return np.where(self.goes_anyhow, 0.0, times[:, 0]), times[:, 1]

    @cached_property
    def _route_times(self) -> list[tuple[Number, Number]]:
        """Each gap's transfer times on the nearest route, out and back; many values have equal sizes and ratios."""
        machine, route, ratios = self.problem.machine, self.routes[0], self.problem.graph.ratios
        found: dict[tuple[int, Number | None], tuple[Number, Number]] = {}
        times = []
        for value, size in zip(self.value.tolist(), self.size.tolist(), strict=True):
            key = size, ratios.get(value) if ratios else None
            if key not in found:
                found[key] = route.out_time(machine, *key), route.back_time(machine, *key)
            times.append(found[key])
        return times

    @cached_property
    def legs(self) -> list[Leg]:
        """Each gap's transfers on the nearest route."""
        begins = self.order.start_times
        rows = zip(self.after.tolist(), self.before.tolist(), self._route_times, strict=True)
        legs = []
        for gap, (after, before, (out, back)) in enumerate(rows):
            begin, end = float(begins[after + 1]), float(begins[before])
            legs.append(Leg(gap, after, before, begin, end, 0 if self.goes_anyhow[gap] else out, back))
        return legs

    def select(self, ranking: Iterable[int]) -> list[int] | None:
        """Take gaps in the order of a ranking, each if it helps, until everything fits; then drop needless ones.

        Returns
        -------
        list of int or None
            None if not even all of them are enough. O(gaps * runs).
        """
        if self.fits:
            return []
        assert self.budget is not None
        room = self.budget - self.profile
        chosen = []
        for index in ranking:
            inside = slice(int(self.after[index]) + 1, int(self.before[index]))
            if int(room[inside].min(initial=0)) < 0:
                room[inside] += self.size[index]
                chosen.append(int(index))
                if int(room.min()) >= 0:
                    return self._spare(chosen, room)
        return None

    def _spare(self, chosen: list[int], room: IntArray) -> list[int]:
        """Drop gaps that are not needed any more, the latest choice first."""
        kept = []
        for index in reversed(chosen):
            inside = slice(int(self.after[index]) + 1, int(self.before[index]))
            if int(room[inside].min()) >= self.size[index]:
                room[inside] -= self.size[index]
            else:
                kept.append(index)
        return kept

    def routed(self, gaps: Sequence[int]) -> list[Swap] | None:
        """Send each gap's value to the nearest memory that can hold it, the longest stays furthest.

        Gaps of one copy share a route. None if some memory is too small.
        """
        if not gaps:
            return []
        order, machine = self.order, self.problem.machine
        fixed = {copy: order.anyhow(copy) for copy in {order.gaps[gap].copy for gap in gaps}}
        route_of = {copy: 0 for copy, route in fixed.items() if route is None}
        capacities = [memory.capacity for memory in machine.memories]
        straight = len(self.routes[0].out) == len(self.routes[0].back) == 1
        free = capacities[self.routes[0].memory] is None and straight
        while True:
            swaps = [
                Swap(gap=gap, route=fixed[copy] or self.routes[route_of[copy]])
                for gap, copy in ((gap, order.gaps[gap].copy) for gap in gaps)
            ]
            if free:
                return swaps
            profile = planned_profile(self.problem.graph, machine, order.program(swaps))
            moved = False
            for number, route in enumerate(self.routes):
                capacity = capacities[route.memory]
                if capacity is None or int(profile[route.memory].max(initial=0)) <= capacity:
                    continue
                at = int(profile[route.memory].argmax())
                there = [
                    gap
                    for gap in gaps
                    if route_of.get(order.gaps[gap].copy) == number and self.after[gap] <= at <= self.before[gap]
                ]
                if number + 1 == len(self.routes) or not there:
                    return None
                longest = max(there, key=lambda gap: (self.length[gap], gap))
                route_of[order.gaps[longest].copy] = number + 1
                moved = True
                break
            if not moved:
                return swaps

    def plan(self, gaps: Sequence[int] | None) -> Plan | None:
        """Dispatch the swaps of some gaps; None if they do not fit."""
        if gaps is None:
            return None
        swaps = self.routed(gaps)
        return None if swaps is None else self.dispatched(swaps)

    def dispatched(self, swaps: Sequence[Swap]) -> Plan | None:
        """Dispatch swaps; None if they do not fit."""
        outcome = dispatch(self.problem.graph, self.problem.machine, self.order.program(swaps))
        return Plan(self.order, tuple(swaps), outcome) if isinstance(outcome, Dispatched) else None


class BestPlan(Incumbent[Plan]):
    """The best plan of a search, and whether to continue."""

    def __init__(self, problem: Problem, context: Context) -> None:
        super().__init__(context, lambda plan: plan.outcome.steps, better=quicker)
        self.problem = problem

    def consider(self, plan: Plan | None, message: str = "") -> None:
        """Keep a plan if it is faster."""
        if plan is not None:
            self.take(plan, plan.makespan, message=message)

    @property
    def done(self) -> bool:
        """Whether no better plan exists, or the time is over."""
        if self.context.stopped:
            return True
        return self.best is not None and not quicker(self.problem.no_recompute_time, self.best.makespan)


def best_of(plans: Iterable[Plan | None]) -> Plan | None:
    """Return the fastest plan, the first of equally fast ones."""
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.makespan, default=None)


def quicker(makespan: Number, other: Number) -> bool:
    """Whether a makespan is smaller than another one by more than rounding; integers are not rounded."""
    if isinstance(makespan, int) and isinstance(other, int):
        return makespan < other
    return makespan < other and not math.isclose(makespan, other, rel_tol=1e-12)
