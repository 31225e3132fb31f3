"""The first thing to ask: one moment in the order, whose solution is nearly a plan, and what it says of all orders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from remat_algorithms.dag.anytime.race import Race
from remat_algorithms.dag.moments.building import build
from remat_algorithms.dag.moments.facts import Facts
from remat_algorithms.dag.moments.lineage import listed_levels
from remat_algorithms.dag.moments.orders import Listed
from remat_algorithms.dag.moments.plan import WHOLE, runs_of
from remat_algorithms.dag.moments.program import MomentProgram
from remat_algorithms.dag.moments.solving import Effort, Moment, MomentAnswer, moment_of, solve
from remat_algorithms.dag.moments.sure import surely
from remat_algorithms.dag.moments.sweep import sweep
from remat_algorithms.dag.plans.model import StageModel
from remat_algorithms.dag.plans.profile import profile
from remat_algorithms.dag.plans.state import ALPHAS, Plan, Search

TILTS, STEEP = (0.001, 0.03, 1.0), 8
"""Shares by which what is wanted soon is dearer, at the most, and how fast that fades with its distance."""

TRIES, STEP, ROUGH = 3, 1000, 2
"""Smaller budgets that are tried where a solution fits its moment and not elsewhere; each is smaller by this part of it
at least. And plans that do not fit of which the greedy then makes others."""

ANY = 1 << 62
"""Units of time within which of the bound any solution is."""

WORK = 0.3
"""Work on a program that cannot be swept, in CP-SAT's units."""


class Starting:
    """One moment of a race.

    Attributes
    ----------
    race : Race
    facts : Facts
    at : int or None
        The task at whose first run most is resident; None where everything fits.
    rough : list of Plan
        Plans that do not fit everywhere, the nearest one first.
    """

    def __init__(self, race: Race) -> None:
        self.race, model = race, race.model
        order = np.array([model.task[item] for item in model.tables.first], dtype=np.int64)
        self.facts = Facts.of(race.problem, order)
        self._unit = float(self.facts.unit) / model.time_unit
        self.rough: list[Plan] = []
        self._program: MomentProgram | None = None
        self._price = 0.0
        levels = listed_levels(self.facts)
        # What holds for all orders is said of tasks that somebody reads: others may come when that costs least.
        places = [place for place, task in enumerate(self.facts.order) if not self.facts.unread[task]]
        fullest = max(places, key=levels.__getitem__, default=None)
        self.at = None
        if fullest is not None and levels[fullest] > race.budget:
            self.at = self.facts.order[fullest]

    def sketch(self) -> None:
        """Ask the relaxation, and offer plans: those of solutions nearly as good as the best one, till one fits."""
        if self.at is None or self.race.over():
            return
        self._program = self._built(self.facts)
        answer = solve(self._program, Effort(sweeps=False, whole_work=0), stopped=self.race.over)
        self.race.raise_bound(self._unit * answer.bound)
        self._price = answer.price
        for tilt in TILTS:
            moment = self._near(replace(self._program, facts=self._tilted(tilt)))
            if moment is None or self._takes(moment):
                break

    def prove(self, overall: bool, near: float) -> bool:
        """Solve the program, for its bound and another plan; say whether it was solved to its end.

        Parameters
        ----------
        overall : bool
            Whether to bound all schedules, too.
        near : float
            The share of the time of all tasks within which of the bound a solution is good enough.
        """
        race, built = self.race, self._program
        if self.at is None or built is None or self._stopped():
            return True
        answer = self._solve(built, near)
        race.raise_bound(self._unit * answer.bound)
        if answer.whole and not race.over():
            self._takes(answer.whole[0])
        elif answer.relaxed and race.best is None and not self.rough:
            self._takes(answer.relaxed[0])
        if overall and not self._stopped():
            facts, undecided = surely(self.facts, self.at)
            # Mostly nothing that matters depends on the order.
            other = self._built(facts) if undecided else built
            if other.program != built.program:
                answer = self._solve(other, near)
            race.raise_overall(self._unit * answer.bound)
        return answer.ended

    def _near(self, built: MomentProgram) -> Moment | None:
        """Return a solution nearly as good as the best one; None where the program cannot be swept."""
        if self._price <= 0.0 or self.race.over():
            return None
        swept = sweep(built, self._price, stopped=self.race.over, near=ANY)
        return None if swept is None or swept.again is None else moment_of(built, swept.again)

    def _takes(self, moment: Moment) -> bool:
        """Make a plan of a solution, and offer it; say whether it fits."""
        race = self.race
        plan = plan_of(race.model, runs_of(self.facts, self.facts.order[self._place], moment, WHOLE))
        if plan.peak > race.budget:
            self.rough = sorted([*self.rough, plan], key=lambda one: (one.peak, one.time))[:ROUGH]
            return False
        if race.offer(plan):
            race.watch()
        return True

    def mend(self, search: Search) -> None:
        """Let the greedy make plans of those that nearly fit; where it fails, of others that leave more room."""
        race, budget = self.race, self.race.budget
        for _ in range(TRIES):
            for plan in self.rough:
                for alpha in ALPHAS:
                    if not race.over():
                        race.offer(search.construct(alpha, start=plan))
            if race.best is not None or race.over() or not self.rough:
                return
            budget -= max(self.rough[0].peak - race.budget, budget // STEP)
            moment = self._near(self._built(self.facts, budget))
            if moment is None or self._takes(moment):
                return

    @property
    def _place(self) -> int:
        assert self.at is not None
        return self.facts.place[self.at]

    def _built(self, facts: Facts, budget: int | None = None) -> MomentProgram:
        assert self.at is not None
        built = build(Listed(facts), self.race.budget if budget is None else budget, [self.at])
        assert built is not None
        return built

    def _tilted(self, tilt: float) -> Facts:
        """Return the facts with what is wanted soon behind the moment dearer to make again, by a share at the most.

        It is there nearly as long when it is made again: let others go in its place, where they cost as much.
        """
        facts, cost = self.facts, list(self.facts.cost)
        behind, seen = len(facts.order) - self._place, set[int]()
        for number, task in enumerate(facts.order[self._place + 1 :]):
            share = tilt * (1.0 - number / behind) ** STEEP
            for value in facts.reads[task]:
                if value not in seen:
                    seen.add(value)
                    for maker in facts.makers[value]:
                        cost[maker] = max(cost[maker], int(facts.cost[maker] * (1.0 + share)))
        return replace(facts, cost=cost)

    def _solve(self, built: MomentProgram, near: float) -> MomentAnswer:
        units = int(near * sum(self.facts.time))
        effort = Effort(price=self._price, whole_work=WORK, near=units, seed=self.race.context.seed)
        return solve(built, effort, stopped=self._stopped)

    def _stopped(self) -> bool:
        """Whether there is no time left: that the class is settled does not say that all schedules are."""
        return self.race.halted or self.race.context.stopped


def plan_of(model: StageModel, runs: list[int]) -> Plan:
    """Return the plan of a sequence of runs whose first runs come in the order; O(accesses log accesses)."""
    tables = model.tables
    item = {task: number for number, task in enumerate(model.task)}
    pairs: list[tuple[int, int]] = []
    stage, waiting = 0, list[int]()
    for task in runs:
        number = item[task]
        if stage < model.stages and tables.first[stage] == number:
            pairs += [(stage, other) for other in sorted({*waiting, number})]
            stage, waiting = stage + 1, []
        else:
            waiting.append(number)
    pairs += [(stage, other) for other in sorted(set(waiting))]
    items = tuple(number for _, number in pairs)
    levels = profile(model.graph, model.machine, [model.task[number] for number in items])
    return Plan(
        item=items,
        stage=tuple(at for at, _ in pairs),
        full=(1,) * len(items),
        time=float(sum(tables.time[number] for number in items)),
        peak=int(levels.max()) if len(levels) else int(tables.static[0]),
    )
