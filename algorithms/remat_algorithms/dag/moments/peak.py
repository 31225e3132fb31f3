"""The moment of maximum memory in the listed order: its program, near-optimal solutions, and their proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from remat_algorithms.dag.moments.before_first_run import Listed
from remat_algorithms.dag.moments.formulation import MomentProgram
from remat_algorithms.dag.moments.formulation_terms import build
from remat_algorithms.dag.moments.integer_facts import Facts
from remat_algorithms.dag.moments.one_moment import sweep
from remat_algorithms.dag.moments.precedence import listed_levels
from remat_algorithms.dag.moments.program_solution import Effort, Moment, MomentAnswer, moment_of, solve
from remat_algorithms.dag.moments.unconditional_bound import surely

STEEP = 8
"""Exponent with which price increases fall with a value's distance from the moment."""

WORK = 0.3
"""Work limit of a program that cannot be swept, in CP-SAT's units."""

ANY = 1 << 62
"""A distance from the bound, in units of time, that every solution meets."""

TIE = 1 << 20
"""Reciprocal of the maximum relative price increase of values needed soon, if the bound must hold."""

LABELS = 1 << 15
"""Initial maximum of labels per set in a sweep for a proof."""


class Peak:
    """One moment in one memory.

    Parameters
    ----------
    facts : Facts
    budget : int
    seed : int
    stopped : callable
        Checked from time to time.

    Attributes
    ----------
    at : int or None
        The task whose first run has the maximum memory; None if everything fits.
    price : float
        Units of time per byte in the relaxation; 0 before it is solved, or if the price is unknown.
    relaxed : list of Moment
        The relaxation's solution, once it is solved.
    """

    def __init__(self, facts: Facts, budget: int, seed: int, stopped: Callable[[], bool]) -> None:
        self.facts, self.budget, self._seed, self._stopped = facts, budget, seed, stopped
        self.price, self.relaxed = 0.0, list[Moment]()
        levels = listed_levels(facts)
        # Tasks without readers may run later: their runs are not moments of the order.
        places = [place for place, task in enumerate(facts.order) if not facts.unread[task]]
        fullest = max(places, key=levels.__getitem__, default=None)
        over = fullest is not None and levels[fullest] > budget
        self.at = facts.order[fullest] if fullest is not None and over else None

    @property
    def place(self) -> int:
        """The moment's position in the order."""
        assert self.at is not None
        return self.facts.place[self.at]

    @cached_property
    def program(self) -> MomentProgram:
        """The program."""
        return self._built(self.facts, self.budget)

    @cached_property
    def _overall(self) -> MomentProgram:
        """The program for all schedules; usually no relevant part depends on the order."""
        facts, undecided = self._surely
        other = self._built(facts, self.budget) if undecided else self.program
        return self.program if other.program == self.program.program else other

    @cached_property
    def _surely(self) -> tuple[Facts, list[int]]:
        assert self.at is not None
        return surely(self.facts, self.at)

    @property
    def _alike(self) -> bool:
        """Whether all tasks whose position depends on the order rerun at no cost."""
        return not any(self.facts.cost[task] for task in self._surely[1])

    def _built(self, facts: Facts, budget: int) -> MomentProgram:
        assert self.at is not None
        built = build(Listed(facts), budget, [self.at])
        assert built is not None
        return built

    def relax(self) -> float:
        """Solve the relaxation; return a bound, in units of time."""
        answer = solve(self.program, Effort(sweeps=False, whole_work=0), stopped=self._stopped)
        self.price, self.relaxed = answer.price, answer.relaxed
        return answer.bound

    def near(self, *, tilt: float = 0.0, budget: int | None = None) -> Moment | None:
        """Return a near-optimal solution quickly; None if the program cannot be swept.

        Parameters
        ----------
        tilt : float
            Maximum relative increase of the recomputation cost of values that are needed soon after the moment.
            Recomputing such a value saves little memory, so among equal costs the solution recomputes others.
        budget : int, optional
            A smaller budget.
        """
        if self.price <= 0.0 or self._stopped():
            return None
        program = self.program if budget is None else self._built(self.facts, budget)
        if tilt:
            program = replace(program, facts=self._tilted(self.facts, tilt))
        swept = sweep(program, self.price, stopped=self._stopped, near=ANY)
        return None if swept is None or swept.again is None else moment_of(program, swept.again)

    def solve(self, near: float) -> MomentAnswer:
        """Solve the program, up to a share of the time of all tasks.

        With a positive share, it solves the program for all schedules if tasks that depend on the order rerun at no
        cost.
        """
        return self._solve(self._overall if near > 0.0 and self._alike else self.program, near)

    def for_all(self, answer: MomentAnswer, near: float) -> float:
        """Return a bound on all schedules, in units of time; `answer` is the result of `solve`."""
        same = self._overall is self.program or (near > 0.0 and self._alike)
        return answer.bound if same else self._solve(self._overall, near).bound

    def _solve(self, program: MomentProgram, near: float) -> MomentAnswer:
        units = int(near * sum(self.facts.time))
        if units > 0 and self.price > 0.0:
            nearly = self._nearly(program, units)
            if nearly is not None:
                return nearly
        effort = Effort(price=self.price, whole_work=WORK, near=units, seed=self._seed)
        return solve(program, effort, stopped=self._stopped)

    def _nearly(self, program: MomentProgram, near: int) -> MomentAnswer | None:
        """Solve a program within `near` units of time, with nearly a plan as solution; None if it cannot be swept.

        The costs are higher by at most one part in `TIE`, so the bound is reduced by as much.
        """
        tilted = replace(program, facts=self._tilted(program.facts, 1.0 / TIE))
        swept = sweep(tilted, self.price, stopped=self._stopped, near=near, most=LABELS)
        if swept is None or swept.again is None or swept.cost - near > swept.bound:
            return None
        bound = swept.bound * TIE // (TIE + 1)
        return MomentAnswer(bound, False, [moment_of(program, swept.again)], [], self.price)

    def _tilted(self, facts: Facts, tilt: float) -> Facts:
        cost, most = list(facts.cost), Fraction(tilt)
        behind, seen = len(facts.order) - self.place, set[int]()
        for number, task in enumerate(facts.order[self.place + 1 :]):
            share = tilt * (1.0 - number / behind) ** STEEP
            for value in facts.reads[task]:
                if value not in seen:
                    seen.add(value)
                    for maker in facts.makers[value]:
                        dearer = min(int(facts.cost[maker] * share), int(facts.cost[maker] * most))
                        cost[maker] = max(cost[maker], facts.cost[maker] + dearer)
        return replace(facts, cost=cost)
