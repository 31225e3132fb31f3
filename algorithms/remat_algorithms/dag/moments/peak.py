"""The moment at which most is resident in the listed order: its program, solutions near the best one, their proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from remat_algorithms.dag.moments.building import build
from remat_algorithms.dag.moments.facts import Facts
from remat_algorithms.dag.moments.lineage import listed_levels
from remat_algorithms.dag.moments.orders import Listed
from remat_algorithms.dag.moments.program import MomentProgram
from remat_algorithms.dag.moments.solving import Effort, Moment, MomentAnswer, moment_of, solve
from remat_algorithms.dag.moments.sure import surely
from remat_algorithms.dag.moments.sweep import sweep

STEEP = 8
"""How fast what is wanted behind the moment gets less dear with its distance from it."""

WORK = 0.3
"""Work on a program that cannot be swept, in CP-SAT's units."""

ANY = 1 << 62
"""Units of time within which of the bound any solution is."""


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
    """

    def __init__(self, facts: Facts, budget: int, seed: int, stopped: Callable[[], bool]) -> None:
        self.facts, self.budget, self._seed, self._stopped = facts, budget, seed, stopped
        self.price = 0.0
        levels = listed_levels(facts)
        # What nobody reads may be left for later: then it is no moment of the order.
        places = [place for place, task in enumerate(facts.order) if not facts.unread[task]]
        fullest = max(places, key=levels.__getitem__, default=None)
        over = fullest is not None and levels[fullest] > budget
        self.at = facts.order[fullest] if fullest is not None and over else None
        self._program: MomentProgram | None = None

    @property
    def place(self) -> int:
        """The moment's place in the order."""
        assert self.at is not None
        return self.facts.place[self.at]

    @property
    def program(self) -> MomentProgram:
        """The program."""
        if self._program is None:
            self._program = self._built(self.facts, self.budget)
        return self._program

    def _built(self, facts: Facts, budget: int) -> MomentProgram:
        assert self.at is not None
        built = build(Listed(facts), budget, [self.at])
        assert built is not None
        return built

    def relax(self) -> float:
        """Ask the relaxation; return a bound, in units of time."""
        answer = solve(self.program, Effort(sweeps=False, whole_work=0), stopped=self._stopped)
        self.price = answer.price
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
            program = replace(program, facts=self._tilted(tilt))
        swept = sweep(program, self.price, stopped=self._stopped, near=ANY)
        return None if swept is None or swept.again is None else moment_of(program, swept.again)

    def solve(self, near: float) -> MomentAnswer:
        """Solve the program, up to a share of the time of all tasks."""
        return self._solve(self.program, near)

    def for_all(self, answer: MomentAnswer, near: float) -> float:
        """Return a bound on all schedules, in units of time; `answer` is that of `solve`.

        Mostly nothing that matters depends on the order, and it is the same.
        """
        assert self.at is not None
        facts, undecided = surely(self.facts, self.at)
        other = self._built(facts, self.budget) if undecided else self.program
        return answer.bound if other.program == self.program.program else self._solve(other, near).bound

    def _solve(self, program: MomentProgram, near: float) -> MomentAnswer:
        units = int(near * sum(self.facts.time))
        effort = Effort(price=self.price, whole_work=WORK, near=units, seed=self._seed)
        return solve(program, effort, stopped=self._stopped)

    def _tilted(self, tilt: float) -> Facts:
        facts, cost = self.facts, list(self.facts.cost)
        behind, seen = len(facts.order) - self.place, set[int]()
        for number, task in enumerate(facts.order[self.place + 1 :]):
            share = tilt * (1.0 - number / behind) ** STEEP
            for value in facts.reads[task]:
                if value not in seen:
                    seen.add(value)
                    for maker in facts.makers[value]:
                        cost[maker] = max(cost[maker], int(facts.cost[maker] * (1.0 + share)))
        return replace(facts, cost=cost)
