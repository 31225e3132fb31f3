"""The smallest budget for which a portfolio finds a schedule, by bisection on the budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from remat.plugin.context import Context
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, LeastBudget
from remat.solving.budget_grid import is_minimal
from remat.solving.minimum_budget import at_peak, budgeted_memories
from remat.solving.result import Result

SMALL = 100
"""Tasks of a graph whose minimum budget is searched to the byte."""

MOST_PROBES = 60
"""Smaller budgets that are tried where none is found for the one that was given."""

MINIMUM_SHARE, MINIMUM_SOLVES = 0.5, 8
"""Share of the time left for the minimum budget, and the number of solves by all candidates that share it."""

MOST_EXPLAINED = 2_000
"""Tasks of a graph for which a schedule is sought only to tell what sets a minimum budget."""

NARROW = 0.005
"""Share of the minimum budget to which it is searched in graphs of more than `SMALL` tasks."""


Probe = Callable[[Mapping[str, int | None], Context, bool], tuple[Result | None, Sequence[str | None]]]
"""Asks for any schedule with other capacities, in a context; quickly or thoroughly. Returns the best schedule's result,
and the classes that have none."""


def lowered(problem: Problem, outer: Context, least: LeastBudget | None, probe: Probe) -> LeastBudget | None:
    """Return the smallest budget for which probes find a schedule, from one that is known to be enough.

    Each probe asks for any schedule, and goes on from its peak. First those that take little time are asked, then all.

    Notes
    -----
    Bisection between what is enough and what is proved not to be, at most `MOST_PROBES` probes in all. A failed
    probe proves nothing unless its proof covers all schedules. Therefore the second round restarts from the proved
    bound.
    """
    if least is None or not least.sufficient:
        return least
    if is_minimal(problem, least):
        return _Lowering(problem, probe, least, least.size - 1).with_values(least, outer.aside(share=MINIMUM_SHARE))
    memories = budgeted_memories(problem.instance, problem.machine, least.memory)
    bounds = [bound.size - 1 for memory in memories if (bound := problem.least_of(memory)) is not None]
    given = min(problem.machine.memories[memory].capacity or -1 for memory in memories)
    lowering = _Lowering(problem, probe, least, max([-1, given, *bounds]))
    context = outer.aside(share=MINIMUM_SHARE)
    for quick in (True, False):
        lowering.run(context, quick=quick)
    return lowering.with_values(lowering.confirmed(context), context)


@dataclass
class _Lowering:
    """The search for a minimum budget: `least` is enough, `refuted` is proved not to be."""

    problem: Problem
    probe: Probe
    least: LeastBudget
    refuted: int
    found: Result | None = None  # the schedule whose peak `least` is
    probes: int = 0
    asked: tuple[int, bool] | None = None  # the budget of the probe that found it, and whether that was a quick one

    def confirmed(self, context: Context) -> LeastBudget:
        """Return a budget at which the portfolio finds a schedule again: the peak, or else the budget of the probe."""
        least, asked = self.least, self.asked
        if asked is None or asked[0] == least.size:
            return least
        if not context.ended and self._probe(least.size, context, quick=asked[1], share=1.0):
            return least
        return replace(least, size=asked[0], task=None, scope=None)

    def with_values(self, least: LeastBudget, context: Context) -> LeastBudget:
        """Return a budget with the task that sets it, and the values resident then, of a schedule that a probe finds.

        An algorithm that names a budget names the task of its own schedule, whose residents nobody knows.
        """
        graph, machine, scope = self.problem.graph, self.problem.machine, least.scope
        if least.task is None or len(graph.tasks) > MOST_EXPLAINED:
            return least
        known = self.found is not None and self.least.size == least.size
        if not known and (context.ended or not self._probe(least.size, context, quick=True, share=1.0)):
            return least
        assert self.found is not None
        peak, least = self.found.peak_of(machine.memories[self.least.memory].name), self.least
        names = [] if peak is None else [held.name for held in peak.held if held.made_by]
        found = [value for name in names if (value := graph.values.find(name)) is not None]
        return replace(least, values=tuple(found), scope=scope)

    def run(self, context: Context, *, quick: bool) -> None:
        """Bisect between what is enough and what is not: first one byte less, which may end the search."""
        small = len(self.problem.graph.tasks) <= SMALL
        failed, first, solves = self.refuted, True, MINIMUM_SOLVES
        while not context.ended and self.probes < MOST_PROBES:
            room = self.least.size - 1 - failed
            if room <= (0 if small else NARROW * self.least.size):
                return
            size = self.least.size - 1 if first else (failed + self.least.size) // 2
            if not self._probe(size, context, quick=quick, share=1 / solves) and not first:
                failed = size
            failed, first, solves = max(failed, self.refuted), False, max(1, solves - 1)

    def _probe(self, size: int, context: Context, *, quick: bool, share: float) -> bool:
        """Ask for any schedule at a budget, and take its peak over; return whether there is one."""
        self.probes += 1
        machine = self.problem.machine
        memories = budgeted_memories(self.problem.instance, machine, self.least.memory)
        inner = context.aside(share=1.0 if quick else share)
        inner.enough = math.inf
        found, scopes = self.probe({machine.memories[memory].name: size for memory in memories}, inner, quick)
        if found is not None:
            peaks = [at_peak(found, memory) for memory in memories]
            self.least, self.asked, self.found = max(peaks, key=lambda least: least.size), (size, quick), found
            return True
        if ALL_SCHEDULES in scopes:
            self.refuted = max(self.refuted, size)
        if size == self.least.size - 1:
            scope = (
                ALL_SCHEDULES if self.refuted == size else next((s for s in reversed(scopes) if s is not None), None)
            )
            self.least = replace(self.least, scope=scope)
        return False
