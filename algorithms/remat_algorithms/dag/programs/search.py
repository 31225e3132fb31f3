"""The shared part of these programs: incumbents, verified figures, and claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from remat.plugin import Context, LeastBudget, Number, Problem, Proposal, Termination, reference_order, useful_runs
from remat_algorithms.dag.first_schedule import report_first
from remat_algorithms.dag.order.window_search import better_order
from remat_algorithms.dag.programs.frontier import FRONTIER, IMPROVED, Frontier, frontier
from remat_algorithms.dag.programs.stage_program import Formulation
from remat_algorithms.dag.programs.true_memory import Execution, execute
from remat_algorithms.dag.steps import steps_of
from remat_algorithms.kit.incumbent import Incumbent

Runs = list[tuple[int, int]]

SAFETY = 1e-6
"""Share by which the bound of a floating-point solver is lowered for safety."""


class Search(Incumbent[Execution]):
    """The incumbent and the best bound for one problem.

    Parameters
    ----------
    problem : Problem
    context : Context
    scope : str
        The class of schedules for which bounds hold.
    source : str
        The algorithm's name.
    reorder : bool
        Whether to search for a better order than the reference order first.
    """

    def __init__(self, problem: Problem, context: Context, scope: str, source: str, *, reorder: bool = False) -> None:
        super().__init__(context, lambda found: steps_of(problem, found.runs), scope=scope)
        self.problem, self.source = problem, source
        self.order = better_order(problem, source, lambda: context.stopped) if reorder else None
        self.scope = scope if self.order is None else scope.replace(FRONTIER, IMPROVED)
        self.best_runs: Runs | None = None
        self.notes: list[str] = []

    @cached_property
    def front(self) -> Frontier:
        """The class's tasks and stages."""
        return frontier(self.problem, self.order)

    @cached_property
    def budget(self) -> int:
        """The budget; without one, more than any schedule of the class can hold."""
        if self.problem.budget is not None:
            return self.problem.budget
        front = self.front
        most = max((w + s for w, s in zip(front.written, front.workspace, strict=True)), default=0)
        return front.start + sum(front.size) + most

    # --- schedules ----------------------------------------------------------------------------------------------------

    def without_reruns(self) -> Proposal | None:
        """Return the schedule that runs each needed task once, if it fits."""
        problem = self.problem
        report_first(problem, self.context)
        order = self.order or reference_order(problem.graph, problem.needed.once).tolist()
        if len(order) != int(problem.needed.once.sum()):
            return None
        found = execute(problem, order)
        if problem.budget is not None and found.peak > problem.budget:
            return None
        least, simple = problem.no_recompute_time, problem.needed.packed_time
        simple += sum(problem.graph.time[problem.needed.forced].tolist())
        if least <= simple:
            self.take(found, least, bound=least)
            return Proposal(steps=self.steps, makespan=least, peak=found.peak, optimal_within=self.scope)
        self.take(found, found.makespan)
        return None

    def offer(self, chosen: Sequence[tuple[int, int]]) -> bool:
        """Replay runs (stage, position); keep them if they fit and are better. Return whether they fit."""
        return self.offer_runs(self.front.runs_of(chosen), list(chosen))

    def offer_runs(self, runs: list[int], chosen: Runs | None = None) -> bool:
        """Replay an order of tasks; keep it if it fits and is better. Return whether it fits."""
        graph = self.problem.graph
        found = execute(self.problem, useful_runs(graph, runs))
        if found.peak > self.budget:
            return False
        if self.take(found, found.makespan):
            self.best_runs = chosen
        return True

    @property
    def most_cost(self) -> float:
        """Time of the best schedule beyond the forced runs."""
        return math.inf if self.best is None else float(self.best.makespan - self.front.base_time) * (1 + 1e-9)

    # --- bounds -------------------------------------------------------------------------------------------------------

    def raise_bound(self, form: Formulation, objective: float, *, proved: bool) -> None:
        """Take over a solver's bound on the objective (of an optimal integer solution, if `proved`)."""
        if not math.isfinite(objective):
            return
        front, unit = self.front, form.time_unit
        value: Number
        if isinstance(unit, int):
            units = round(objective) if proved else math.ceil(objective - SAFETY * max(1.0, abs(objective)))
            value = int(front.base_time) + form.base_cost + max(0, units) * unit
        else:
            slack = 1e-9 if proved else SAFETY
            value = float(front.base_time) + max(0.0, objective * (1 - slack) - slack) * unit
        self.take_bound(value)

    # --- conclusions --------------------------------------------------------------------------------------------------

    def infeasible(self, scope: str | None = None) -> Proposal:
        """Return the proposal if no schedule of the class fits: the budget must grow by at least one byte."""
        own = self.problem.machine.processors[0].memory
        known = self.problem.memory_bounds[own]
        least = LeastBudget(self.budget + 1, None, False, own)
        if known is not None and known.size > self.budget:
            least = LeastBudget(known.size, known.task, False, own)
        return Proposal(infeasible_within=scope or self.scope, least=least)

    @property
    def limit(self) -> Termination:
        """Why a solver returned without a proof; its clock may be slightly ahead of the context's."""
        if self.context.stopped:
            return self.context.termination
        return Termination.ITERATION_LIMIT if self.context.deadline is None else Termination.TIME_LIMIT

    def propose(self, *, proved: bool, termination: Termination | None = None) -> Proposal:
        """Return the best schedule with the bound, and as optimal if `proved`."""
        termination = termination or self.context.termination
        bounds = self.bounds(self.source)
        if self.best is None:
            return Proposal(bounds=bounds, termination=termination, notes=tuple(self.notes))
        return Proposal(
            steps=self.steps,
            makespan=self.best.makespan,
            peak=self.best.peak,
            bounds=bounds,
            optimal_within=self.scope if proved else None,
            termination=Termination.COMPLETED if proved else termination,
            notes=() if proved else tuple(self.notes),
        )


def prune(search: Search, chosen: Runs) -> Runs:
    """Leave out runs, the most expensive first, while the remaining ones can run and fit."""
    front = search.front
    kept = set(chosen)
    optional = sorted(
        (key for key in kept if not (front.forced[key[1]] and front.first[key[1]] == key[0])),
        key=lambda key: (-front.time[key[1]], key),
    )
    for key in optional:
        if search.context.stopped:
            break
        without = kept - {key}
        if can_run(front, without) and execute(search.problem, front.runs_of(without)).peak <= search.budget:
            kept = without
    return sorted(kept)


def can_run(front: Frontier, chosen: set[tuple[int, int]]) -> bool:
    """Whether each run's inputs, and all outputs, have been computed before."""
    made = set(front.inputs)
    forced = {(front.first[position], position) for position, must in enumerate(front.forced) if must}
    for _, position in sorted(chosen | forced):
        if not made.issuperset(front.reads[position]):
            return False
        made.update(front.writes[position])
    return made.issuperset(front.outputs)


def impossible(lower: Sequence[float], upper: Sequence[float]) -> bool:
    """Whether some column's bounds exclude each other."""
    return bool((np.asarray(lower) > np.asarray(upper)).any())
