"""The smallest budget for which a portfolio finds a schedule, by bisection on the budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from remat.plugin.context import Context
from remat.plugin.problem import Problem, budgeted_memories
from remat.plugin.proposal import ALL_SCHEDULES, LeastBudget, Termination
from remat.plugin.registry import Algorithm
from remat.solving.budget_grid import is_minimal
from remat.solving.minimum_budget import at_peak
from remat.solving.result import Result

SMALL = 100
"""Tasks of a graph whose minimum budget is searched to the byte."""

MOST_PROBES = 60
"""Smaller budgets that are tried where none is found for the one that was given."""

MINIMUM_SHARE, MINIMUM_SOLVES = 0.5, 8
"""Share of the time left for the minimum budget, and the number of solves by all candidates that share it."""

QUICK_SHARE = 0.25
"""Share of that time for those that take little time, and share of the rest for the algorithm that named a budget."""

FIRST_SHARE = 0.5
"""Share of that time in which all candidates look for a schedule with one byte less."""

MOST_EXPLAINED = 2_000
"""Tasks of a graph for which a schedule is sought only to tell what sets a minimum budget."""

NARROW = 0.005
"""Share of the minimum budget to which it is searched in graphs of more than `SMALL` tasks."""


UNFINISHED = "a limit ended the search for a smaller budget"


class Refutation(NamedTuple):
    """An algorithm without a schedule, and the class that has none according to it.

    `strategy`: it has one schedule only. `cut`: a limit ended its search.
    """

    algorithm: str
    scope: str | None
    strategy: bool
    cut: bool

    @staticmethod
    def of(solver: Algorithm, result: Result) -> Refutation:
        """Return the proof or budget in the answer of an algorithm, without its schedule."""
        cut = result.termination in (Termination.TIME_LIMIT, Termination.PATIENCE)
        return Refutation(solver.name, result.scope, solver.guarantee == "strategy", cut)


class Probe(Protocol):
    """Searches for any schedule with other capacities: quickly, thoroughly, or with one algorithm."""

    def __call__(
        self, capacities: Mapping[str, int | None], context: Context, quick: bool, only: str | None = None
    ) -> tuple[Result | None, Sequence[Refutation]]:
        """Return the best schedule's result, and the proofs of algorithms without a schedule."""
        ...


def lowered(
    problem: Problem, outer: Context, least: LeastBudget | None, probe: Probe, author: str | None = None
) -> tuple[LeastBudget | None, tuple[str, ...]]:
    """Return the smallest budget for which probes find a schedule, from one that is known to be enough.

    Also return a note if a limit has cut the search short.

    Each probe searches for any schedule and continues from its peak. Quick algorithms come first, then the `author` of
    the budget, then all algorithms.

    Notes
    -----
    Bisection between a sufficient budget and one that is proved insufficient, at most `MOST_PROBES` probes per round. A
    failed probe proves nothing unless its proof covers all schedules. Therefore each round restarts from the proved
    bound. A probe at the budget itself often finds a schedule with a smaller peak.
    """
    if least is None or not least.sufficient:
        return least, ()
    if is_minimal(problem, least):
        known = _Lowering(problem, probe, least, least.size - 1)
        return known.with_values(least, outer.aside(share=MINIMUM_SHARE)), ()
    memories = budgeted_memories(problem.instance, problem.machine, least.memory)
    bounds = [bound.size - 1 for memory in memories if (bound := problem.least_of(memory)) is not None]
    given = min(problem.machine.memories[memory].capacity or -1 for memory in memories)
    lowering = _Lowering(problem, probe, least, max([-1, given, *bounds]))
    context = outer.aside(share=MINIMUM_SHARE)
    lowering.run(context.aside(share=QUICK_SHARE), quick=True)
    lowering.run_alone(context.aside(share=QUICK_SHARE), author)
    lowering.run_in_turn(context)
    lowering.run(context, quick=False)
    complete = lowering.least.size - 1 <= lowering.refuted or not (lowering.cut or context.ended)
    return lowering.with_values(lowering.within_its_class(context), context), () if complete else (UNFINISHED,)


@dataclass
class _Lowering:
    """The search for a minimum budget: `least` is enough, `refuted` is proved not to be."""

    problem: Problem
    probe: Probe
    least: LeastBudget
    refuted: int
    found: Result | None = None  # the schedule whose peak `least` is
    peak: int = 0  # of the last schedule that a probe has found
    probes: int = 0
    cut: bool = False  # a limit ended the search of an algorithm among all, or before all were asked
    settled: bool = False  # all that were asked last have one schedule each, and named what it needs
    refuter: str | None = None  # who proved that a class has no schedule for one byte less

    def within_its_class(self, context: Context) -> LeastBudget:
        """Return the budget with its class only if that class has a schedule there: else the class needs more."""
        least = self.least
        if self.refuter is None or least.scope in (None, ALL_SCHEDULES):
            return least
        if not context.ended and self._ask(least.size, context, quick=False, only=self.refuter)[0] is not None:
            return least
        return replace(least, scope=None)

    def with_values(self, least: LeastBudget, context: Context) -> LeastBudget:
        """Return a budget with the task that sets it and the values that are resident then, from a probe's schedule.

        The algorithm's budget names a task of a schedule that it does not return, so its residents are unknown.
        """
        graph, machine, proved = self.problem.graph, self.problem.machine, least
        if len(graph.tasks) > MOST_EXPLAINED:
            return least
        known = self.found is not None and self.least.size == least.size
        for quick in (True, False):
            if known or context.ended or (not quick and len(graph.tasks) > SMALL):
                break
            known = self._probe(least.size, context, quick=quick, share=1.0)
        if not known:
            return least
        if self.found is None:
            return least
        peak, least = self.found.peak_of(machine.memories[self.least.memory].name), self.least
        names = [] if peak is None else [held.name for held in peak.held if held.made_by]
        found = [value for name in names if (value := graph.values.find(name)) is not None]
        # A class that was refuted below the budget has no schedule at a smaller one.
        scope = proved.scope if least.size == proved.size else None
        return replace(least, values=tuple(found), scope=scope)

    def run_alone(self, context: Context, name: str | None) -> None:
        """Search with one algorithm for a smaller budget, unless the minimum budget is proved for its class."""
        if name is None or self.least.scope is not None or context.ended:
            return
        self._probe(self.least.size, context, quick=False, share=1 / MINIMUM_SOLVES, only=name)
        self.run(context, quick=False, only=name)

    def run_in_turn(self, context: Context) -> None:
        """Run all algorithms with one byte less; if one finds a schedule, it searches lower, and then all rerun."""
        for _ in range(MINIMUM_SOLVES):
            below = self.least.size - 1
            if context.ended or below <= self.refuted:
                return
            if not self._probe(below, context, quick=False, share=FIRST_SHARE):
                return
            if self.found is not None:
                self.run_alone(context, self.found.algorithm)

    def run(self, context: Context, *, quick: bool, only: str | None = None) -> None:
        """Bisect between a sufficient and an insufficient budget; the first probe is one byte less."""
        small = len(self.problem.graph.tasks) <= SMALL
        failed, first, solves, most = self.refuted, True, MINIMUM_SOLVES, self.probes + MOST_PROBES
        while not context.ended and self.probes < most:
            room = self.least.size - 1 - failed
            if room <= (0 if small else NARROW * self.least.size):
                return
            size = self.least.size - 1 if first else (failed + self.least.size) // 2
            if self._probe(size, context, quick=quick, share=1 / solves, only=only):
                failed = max(failed, self.peak if self.peak < self.least.size else -1)
            elif not first:
                failed = size
            elif self.settled:
                return
            failed, first, solves = max(failed, self.refuted), False, max(1, solves - 1)

    def _probe(self, size: int, context: Context, *, quick: bool, share: float, only: str | None = None) -> bool:
        """Ask for any schedule at a budget; return whether there is one.

        Its peak is the new minimum if the algorithm also finds a schedule at this peak, since some algorithms
        overestimate the need of their schedules. Otherwise the budget is the new minimum.
        """
        self.probes += 1
        inner = context.aside(share=1.0 if quick else share)
        inner.enough = math.inf
        found, refuted = self._ask(size, inner, quick=quick, only=only)
        if found is not None:
            self._take(size, found, context.aside(share=share), others=not quick and only is None)
            return True
        # Where time is over, some were not asked at all.
        self.cut |= not quick and only is None and (inner.ended or any(one.cut for one in refuted))
        self.settled = bool(refuted) and all(one.strategy for one in refuted)
        if any(one.scope == ALL_SCHEDULES for one in refuted):
            self.refuted = max(self.refuted, size)
        if size == self.least.size - 1 and only is None:
            classes = [(one.algorithm, one.scope) for one in refuted if one.scope is not None]
            proved = (None, ALL_SCHEDULES) if self.refuted == size else classes[-1] if classes else (None, None)
            self.refuter, self.least = proved[0], replace(self.least, scope=proved[1])
        return False

    def _take(self, size: int, found: Result, context: Context, *, others: bool) -> None:
        """Take over the schedule that a probe has found with a budget.

        `others`: whether all algorithms look for a schedule at its peak if its own algorithm finds none there.
        """
        self.refuter, self.settled = None, False
        while True:
            least = self._at_peak(found)
            self.peak = least.size
            again = self._again(least.size, context, found.algorithm, others=others) if least.size < size else found
            if again is None:
                self.found, self.least = None, replace(least, size=size, task=None)
                return
            if again is found:
                self.found, self.least = found, least
                return
            size, found = least.size, again

    def _again(self, size: int, context: Context, author: str, *, others: bool) -> Result | None:
        """Return a schedule at the peak of another one: of the same algorithm, otherwise of any."""
        for only in (author, None) if others else (author,):
            inner = context.aside()
            inner.enough = math.inf
            found, refuted = (None, ()) if inner.ended else self._ask(size, inner, quick=False, only=only)
            if found is not None:
                return found
            self.cut |= only is None and (inner.ended or any(one.cut for one in refuted))
        return None

    def _at_peak(self, found: Result) -> LeastBudget:
        return max((at_peak(found, memory) for memory in self._memories), key=lambda least: least.size)

    @property
    def _memories(self) -> list[int]:
        return budgeted_memories(self.problem.instance, self.problem.machine, self.least.memory)

    def _ask(
        self, size: int, context: Context, *, quick: bool, only: str | None = None
    ) -> tuple[Result | None, Sequence[Refutation]]:
        machine = self.problem.machine
        return self.probe({machine.memories[memory].name: size for memory in self._memories}, context, quick, only)
