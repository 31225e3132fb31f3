"""The moment at which most is resident in the listed order: its program, solutions near the best one, their proof."""

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
"""How fast what is wanted behind the moment gets less dear with its distance from it."""

WORK = 0.3
"""Work on a program that cannot be swept, in CP-SAT's units."""

ANY = 1 << 62
"""Units of time within which of the bound any solution is."""

TIE = 1 << 20
"""What is wanted soon behind the moment is dearer by one part in so many, at the most, where the bound is to hold."""

LABELS = 1 << 15
"""Labels of a set of which a sweep that is to prove something makes use at first."""


class Peak:
    """One moment in one memory.

    Parameters
    ----------
    facts : Facts
    budget : int
    seed : int
    stopped : callable
        Asked now and then.

    Attributes
    ----------
    at : int or None
        The task at whose first run most is resident; None where everything fits.
    price : float
        Units of time for a byte, as the relaxation has it; 0 before it was asked, or where nobody can say.
    relaxed : list of Moment
        The relaxation's solution, once it was asked.
    """

    def __init__(self, facts: Facts, budget: int, seed: int, stopped: Callable[[], bool]) -> None:
        self.facts, self.budget, self._seed, self._stopped = facts, budget, seed, stopped
        self.price, self.relaxed = 0.0, list[Moment]()
        levels = listed_levels(facts)
        # What nobody reads may be left for later: then it is no moment of the order.
        places = [place for place, task in enumerate(facts.order) if not facts.unread[task]]
        fullest = max(places, key=levels.__getitem__, default=None)
        over = fullest is not None and levels[fullest] > budget
        self.at = facts.order[fullest] if fullest is not None and over else None

    @property
    def place(self) -> int:
        """The moment's place in the order."""
        assert self.at is not None
        return self.facts.place[self.at]

    @cached_property
    def program(self) -> MomentProgram:
        """The program."""
        return self._built(self.facts, self.budget)

    @cached_property
    def _overall(self) -> MomentProgram:
        """The program that speaks of all schedules: mostly nothing that matters depends on the order."""
        facts, undecided = self._surely
        other = self._built(facts, self.budget) if undecided else self.program
        return self.program if other.program == self.program.program else other

    @cached_property
    def _surely(self) -> tuple[Facts, list[int]]:
        assert self.at is not None
        return surely(self.facts, self.at)

    @property
    def _alike(self) -> bool:
        """Whether what depends on the order takes no time to run again."""
        return not any(self.facts.cost[task] for task in self._surely[1])

    def _built(self, facts: Facts, budget: int) -> MomentProgram:
        assert self.at is not None
        built = build(Listed(facts), budget, [self.at])
        assert built is not None
        return built

    def relax(self) -> float:
        """Ask the relaxation; return a bound, in units of time."""
        answer = solve(self.program, Effort(sweeps=False, whole_work=0), stopped=self._stopped)
        self.price, self.relaxed = answer.price, answer.relaxed
        return answer.bound

    def near(self, *, tilt: float = 0.0, budget: int | None = None) -> Moment | None:
        """Return a solution nearly as good as the best one, quickly; None where the program cannot be swept.

        Parameters
        ----------
        tilt : float
            Share by which what is wanted soon behind the moment is dearer to make again, at the most. It is there
            nearly as long when it is made again: so others go in its place, where they cost as much.
        budget : int, optional
            A smaller one.
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

        Where only nearly, and where what depends on the order takes no time, the one that speaks of all schedules.
        """
        return self._solve(self._overall if near > 0.0 and self._alike else self.program, near)

    def for_all(self, answer: MomentAnswer, near: float) -> float:
        """Return a bound on all schedules, in units of time; `answer` is that of `solve`."""
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
        """Solve a program up to so many units of time, its solution rather one that is nearly a plan; None: no sweep.

        The costs are higher by one part in `TIE`, at the most: so the bound is lower by as much.
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
