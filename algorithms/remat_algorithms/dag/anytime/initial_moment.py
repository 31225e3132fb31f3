"""The first program of a solve: one moment of the order. Its solution is nearly a plan, and bounds all orders."""

from __future__ import annotations

import numpy as np

from remat_algorithms.dag.anytime.shared_incumbent import Race
from remat_algorithms.dag.moments.integer_facts import Facts
from remat_algorithms.dag.moments.peak import Peak
from remat_algorithms.dag.moments.plan_from_moment import WHOLE, runs_of
from remat_algorithms.dag.moments.program_solution import Moment
from remat_algorithms.dag.plans.model import StageModel
from remat_algorithms.dag.plans.profile import profile
from remat_algorithms.dag.plans.search_state import ALPHAS, Plan, Search

TILTS = (0.0001, 0.001, 0.03, 1.0)
"""Maximum relative price increases for values that the rest of the order needs soon."""

TRIES, STEP, ROUGH = 3, 1000, 2
"""Number of smaller budgets to try if a solution fits at its moment only, the minimum step between them as a divisor of
the budget, and the number of infeasible plans from which the greedy builds others.
"""


class Starting:
    """One moment of a race.

    Attributes
    ----------
    race : Race
    peak : Peak
    rough : list of Plan
        Plans that exceed the budget somewhere, the nearest one first.
    """

    def __init__(self, race: Race) -> None:
        self.race, model = race, race.model
        order = np.array([model.task[item] for item in model.tables.first], dtype=np.int64)
        facts = Facts.of(race.problem, order)
        self.peak = Peak(facts, race.budget, race.context.seed, self._stopped)
        self._unit = float(facts.unit) / model.time_unit
        self.rough: list[Plan] = []

    def _stopped(self) -> bool:
        """Whether no time is left; a settled class does not stop the bound for all schedules."""
        return self.race.halted or self.race.context.stopped

    def sketch(self) -> None:
        """Solve the relaxation; offer plans of integer solutions near it until one fits, else its own plan."""
        if self.peak.at is None or self.race.over():
            return
        self.race.raise_bound(self._unit * self.peak.relax())
        for tilt in TILTS:
            moment = self.peak.near(tilt=tilt)
            if moment is None or self._takes(moment) or self.race.over():
                break
        if self.race.best is None and not self.rough and self.peak.relaxed:
            self._takes(self.peak.relaxed[0])

    def mend(self, search: Search) -> None:
        """Let the greedy repair the plans that nearly fit; if it fails, plans of solutions for smaller budgets."""
        race, budget = self.race, self.race.budget
        for _ in range(TRIES):
            for plan in self.rough:
                for alpha in ALPHAS:
                    if not race.over():
                        race.offer(search.construct(alpha, start=plan))
            if race.best is not None or race.over() or not self.rough:
                return
            budget -= max(self.rough[0].peak - race.budget, budget // STEP)
            moment = self.peak.near(budget=budget)
            if moment is None or self._takes(moment):
                return

    def prove(self, near: float, *, overall: bool) -> bool:
        """Solve the program for its bound and another plan; return whether it was solved completely.

        Parameters
        ----------
        near : float
            Sufficient distance of a solution from the bound, as a share of the time of all tasks.
        overall : bool
            Whether to bound all schedules, too.
        """
        race = self.race
        if self.peak.at is None or self._stopped():
            return True
        answer = self.peak.solve(near)
        race.raise_bound(self._unit * answer.bound)
        if answer.whole and not race.over():
            self._takes(answer.whole[0])
        elif answer.relaxed and race.best is None and not self.rough:
            self._takes(answer.relaxed[0])
        if overall and not self._stopped():
            race.raise_overall(self._unit * self.peak.for_all(answer, near))
        race.watch()
        return answer.ended

    def _takes(self, moment: Moment) -> bool:
        """Build the plan of a solution and offer it; return whether it fits."""
        race, peak = self.race, self.peak
        assert peak.at is not None
        plan = plan_of(race.model, runs_of(peak.facts, peak.at, moment, WHOLE))
        if plan.peak > race.budget:
            self.rough = sorted([*self.rough, plan], key=lambda one: (one.peak, one.time))[:ROUGH]
            return False
        if race.offer(plan):
            race.watch()
        return True


def plan_of(model: StageModel, runs: list[int]) -> Plan:
    """Return the plan of a sequence whose first runs follow the order; O(accesses log accesses)."""
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
