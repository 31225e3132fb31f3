"""Bounds on the makespan of a problem from moment programs."""

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
"""Minimum distance between several moments, as a divisor of the order's length: adjacent ones give similar bounds."""

NEAR = 4
"""Maximum distance of large runs that belong to one layer, in positions."""

ROUNDED = 1e-12
"""Relative tolerance of a makespan that is a sum of floating-point times."""


@dataclass(frozen=True)
class Setting:
    """A problem as moment programs model it: one processor, its memory, and the secondary memories.

    Attributes
    ----------
    problem : Problem
    facts : Facts
    order : Order
        The class of schedules.
    behind : Behind or None
        The secondary memories.
    budget : int
    """

    problem: Problem
    facts: Facts
    order: Order
    behind: Behind | None
    budget: int

    @staticmethod
    def of(problem: Problem, *, listed: bool) -> Setting | None:
        """Return the setting of a problem; None if its memory is unbounded or the programs do not cover it.

        Parameters
        ----------
        problem : Problem
        listed : bool
            Whether to consider only schedules whose required tasks first run in the reference order.
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
        """Return up to `count` tasks at the fullest positions of the listed order, spaced apart, in order."""
        levels = listed_levels(self.facts)
        return self._highest(levels, levels, count, len(levels) // APART)

    def largest(self, count: int) -> list[int]:
        """Return up to `count` tasks at full positions whose runs need many bytes, which delay fetched values."""
        facts, levels = self.facts, listed_levels(self.facts)
        own = [sum(facts.size[value] for value in facts.reads[task]) + facts.needs(task) for task in facts.order]
        return self._highest([level + each for level, each in zip(levels, own, strict=True)], levels, count, NEAR)

    def _highest(self, score: Sequence[int], levels: Sequence[int], count: int, apart: int) -> list[int]:
        """Return up to `count` tasks of highest scores above the budget, over `apart` positions apart, in order."""
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
        """Return a lower bound on the makespan of schedules that take `units` more than the forced tasks.

        Rounded up if all times are integers, and infinite if `units` is.
        """
        if units == math.inf:
            return math.inf
        exact = Fraction(self.facts.base) + Fraction(max(0.0, units)) * self.facts.unit
        if not self.problem.graph.exact_times:
            return float(exact * (1 - Fraction(ROUNDED)))
        return raised(self.problem, exact)


def is_plain(problem: Problem) -> bool:
    """Whether the programs model all properties of the problem's tasks."""
    graph = problem.graph
    return not (graph.parts or graph.types or graph.tied or graph.placeable or graph.pairs or problem.in_parts)
