"""From a problem to a bound on its makespan, and to a solution to start from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from remat.plugin import Number, Problem
from remat_algorithms.dag.moments.before_first_run import Free, Listed, Order
from remat_algorithms.dag.moments.formulation_terms import build
from remat_algorithms.dag.moments.integer_facts import Facts
from remat_algorithms.dag.moments.precedence import listed_levels
from remat_algorithms.dag.moments.program_solution import Effort, MomentAnswer, solve
from remat_algorithms.dag.moments.secondary_memory import Behind
from remat_algorithms.kit.integral_bounds import raised

APART = 40
"""Moments next to each other say the same: several are at least this part of the order apart."""

NEAR = 4
"""Places within which large runs are those of one layer."""

ROUNDED = 1e-12
"""Share of a makespan that sums of floating point times may differ by."""


@dataclass(frozen=True)
class Setting:
    """A problem, as programs of moments see it: one processor, its memory, and those behind it.

    Attributes
    ----------
    problem : Problem
    facts : Facts
    order : Order
        The class of schedules.
    behind : Behind or None
    budget : int
    """

    problem: Problem
    facts: Facts
    order: Order
    behind: Behind | None
    budget: int

    @staticmethod
    def of(problem: Problem, *, listed: bool) -> Setting | None:
        """Return the setting of a problem; None where its memory is not bounded, or the programs do not speak of it.

        Parameters
        ----------
        problem : Problem
        listed : bool
            Whether to speak only of schedules that first run what must run in the reference order.
        """
        graph, machine = problem.graph, problem.machine
        if problem.budget is None or not is_plain(problem) or len(machine.processors) > 1:
            return None
        links = len(machine.memories) > 1
        facts = Facts.of(problem, fine=links)
        if not facts.order:
            return None
        behind = None
        if links:
            taken = [graph.static_bytes(machine, index) for index in range(len(machine.memories))]
            behind = Behind.of(machine, facts.unit, taken)
        return Setting(problem, facts, Listed(facts) if listed else Free(facts), behind, problem.budget)

    def fullest(self, count: int = 1) -> list[int]:
        """Return so many tasks, or fewer, at the fullest places of the listed order, some way apart, in order."""
        levels = listed_levels(self.facts)
        return self._highest(levels, levels, count, len(levels) // APART)

    def largest(self, count: int) -> list[int]:
        """Return such tasks where both the place is full and the run itself needs much: what returns waits for it."""
        facts, levels = self.facts, listed_levels(self.facts)
        own = [sum(facts.size[value] for value in facts.reads[task]) + facts.needs(task) for task in facts.order]
        return self._highest([level + each for level, each in zip(levels, own, strict=True)], levels, count, NEAR)

    def _highest(self, score: Sequence[int], levels: Sequence[int], count: int, apart: int) -> list[int]:
        """Return the tasks of highest scores at places above the budget, more than so many places apart, in order."""
        chosen: list[int] = []
        for place in sorted(range(len(levels)), key=lambda place: (-score[place], place)):
            if len(chosen) == count:
                break
            if (
                levels[place] > self.budget
                and not self.facts.unread[self.facts.order[place]]
                and all(abs(place - other) > apart for other in chosen)
            ):
                chosen.append(place)
        return [self.facts.order[place] for place in sorted(chosen)]

    def ask(
        self,
        moments: Sequence[int],
        effort: Effort | None = None,
        *,
        stopped: Callable[[], bool],
    ) -> MomentAnswer:
        """Build and solve the program of some moments, each before the next in all schedules of the class."""
        built = build(self.order, self.budget, moments, self.behind, stopped)
        if built is None:
            return MomentAnswer(0.0, False, [], [])
        return solve(built, effort or Effort(), stopped=stopped)

    def makespan(self, units: float) -> Number:
        """Return the makespan of schedules that take so many units on top of the forced tasks, at least.

        Rounded up where all times are whole, and infinite where the bound is.
        """
        if units == math.inf:
            return math.inf
        exact = Fraction(self.facts.base) + Fraction(max(0.0, units)) * self.facts.unit
        if not self.problem.graph.exact_times:
            return float(exact * (1 - Fraction(ROUNDED)))
        return raised(self.problem, exact)


def is_plain(problem: Problem) -> bool:
    """Whether the programs know all that the tasks of a problem are."""
    graph = problem.graph
    return not (graph.parts or graph.types or graph.tied or graph.placeable or graph.pairs or problem.in_parts)
