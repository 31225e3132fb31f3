"""CP-SAT: at work on any model of its own, and on integer programs.

Coefficients of rows are whole numbers. Costs are times, in the model's unit or in whole numbers of a step that the
caller knows; where there is none they are rounded down. Numbers too large for the solver are scaled, and rounded so
that every solution remains one: bounds stay bounds.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from remat_algorithms.kit.programs.program import ProgramBuilder
from remat_algorithms.kit.programs.solver_status import Answer, Job, Outcome, watched

LOOK = 1000
"""Rows that are handed over between two looks at whether to stop."""

MOST_SIMPLIFIED = 5_000
"""Variables up to which programs are simplified at length: beyond, that takes long, and cannot always be stopped."""

MOST_COMPARED = 200_000
"""Coefficients up to which variables are looked through for some that dominate others: beyond, that takes seconds (3
of a limit of 1.4, with a million), and hears no stop."""

FINEST = 1e-7
"""Step that costs are rounded down to where they are no whole numbers: the mean task takes 1000."""

LOWERED = 1e-7
"""Share by which a bound is lowered against the tolerances of whoever has found it."""

ROUNDED = 2.0**-50
"""Share by which a bound in units that are no step of the costs is lowered against rounding."""

LARGEST_COST, LARGEST_ROW = 2**50, 2**50
"""Sums of all costs, and of the coefficients of a row, up to which they are taken as they are."""


class CpSatJob(Job):
    """CP-SAT at work on a model of whatever shape.

    Parameters
    ----------
    model : CpModel
    threads, seed : int
    seconds : float, optional
    chosen : callable, optional
        Makes, in the solver's thread, of the values of a solution what is handed over.
    found, bounded : callable, optional
        Receive, in the caller's thread, each solution and the bound that then holds.

    Attributes
    ----------
    solver : CpSolver
        Its `parameters` may be changed before it runs.
    work : float
        What it took, in CP-SAT's own units, once it has come back.
    refusal : str
        What CP-SAT says of a model that it does not take.
    """

    def __init__(
        self,
        model: Any,
        *,
        threads: int,
        seed: int,
        seconds: float | None,
        chosen: Callable[[Callable[[Any], int]], Any] | None = None,
        found: Callable[[Any], object] | None = None,
        bounded: Callable[[float], object] | None = None,
    ) -> None:
        self.cp: Any = import_module("ortools.sat.python.cp_model")
        self.model, self.found, self.bounded, self.refusal = model, found, bounded, ""
        self.work = 0.0
        self.news: queue.SimpleQueue[tuple[Any, float]] = queue.SimpleQueue()
        self.solver: Any = self.cp.CpSolver()
        parameters = self.solver.parameters
        parameters.num_workers = max(1, threads)
        parameters.random_seed = seed % 2**31
        # Ctrl-C is for Python: CP-SAT would take the signal for itself, and let the next one end the process.
        parameters.catch_sigint_signal = False
        if seconds is not None:
            parameters.max_time_in_seconds = seconds
        self.listener = None if chosen is None else self._listener(chosen)

    def _listener(self, chosen: Callable[[Callable[[Any], int]], Any]) -> Any:
        base, news = self.cp.CpSolverSolutionCallback, self.news

        class Listener(base):  # type: ignore[misc, valid-type]
            def on_solution_callback(self) -> None:
                news.put((chosen(self.value), self.best_objective_bound))

        return Listener()

    def solve(self) -> Answer:
        """Solve; see `Job`."""
        cp, solver = self.cp, self.solver
        status = solver.solve(self.model, self.listener)
        self.work = float(solver.response_proto.deterministic_time)
        if status == cp.INFEASIBLE:
            return Answer(Outcome.INFEASIBLE)
        if status == cp.MODEL_INVALID:
            self.refusal = self.model.validate()
            return Answer(Outcome.UNKNOWN)
        outcomes = {cp.OPTIMAL: Outcome.OPTIMAL, cp.FEASIBLE: Outcome.FEASIBLE}
        return Answer(outcomes.get(status, Outcome.UNKNOWN), None, float(solver.best_objective_bound))

    def stop(self) -> None:
        """Ask CP-SAT to stop."""
        self.solver.stop_search()

    def poll(self) -> None:
        """Hand over what was found meanwhile."""
        while not self.news.empty():
            chosen, bound = self.news.get()
            if self.found is not None:
                self.found(chosen)
            if self.bounded is not None:
                self.bounded(bound)


def solve(
    program: ProgramBuilder,
    *,
    seconds: float | None,
    stopped: Callable[[], bool],
    step: float | None = None,
    hint: Sequence[int] = (),
    work: float | None = None,
    seed: int = 0,
    known: float = 0.0,
    raised: Callable[[float], None] | None = None,
) -> Answer:
    """Solve a program of whole columns from 0 up, whose rows have whole coefficients and lower bounds only.

    Parameters
    ----------
    program : ProgramBuilder
    seconds : float, optional
        Limit.
    stopped : callable
        Asked every `POLL_SECONDS`.
    step : float, optional
        All costs are whole multiples of it.
    hint : sequence of int, optional
        Values of all variables to start from.
    work : float, optional
        Limit in CP-SAT's own units, for answers that do not depend on the clock.
    seed : int
    known : float
        What no solution of this very program costs less than, as is known from a part of it.
    raised : callable, optional
        Receives better and better bounds, in the solver's thread.

    Returns
    -------
    Answer
        The bound is infinite where there is no solution, and at least 0.
    """
    unit, costs = _whole_costs(program.cost, step)
    model, columns, complete = _model_of(program, unit, costs, known, stopped)
    if not complete:
        return Answer(Outcome.UNKNOWN, None, 0.0)
    if model is None:
        return Answer(Outcome.INFEASIBLE, None, math.inf)
    for column, value in zip(columns, hint, strict=bool(len(hint))):
        model.add_hint(column, value)
    job = CpSatJob(model, threads=1, seed=seed, seconds=None if seconds is None else max(0.001, seconds))
    parameters = job.solver.parameters
    # Branching on the objective, over the strongest relaxation: by far the quickest on these programs.
    parameters.linearization_level = 2
    parameters.use_objective_lb_search = True
    if len(columns) > MOST_SIMPLIFIED:
        parameters.symmetry_level = 0
        parameters.max_presolve_iterations = 1
    if program.entries > MOST_COMPARED:
        parameters.keep_all_feasible_solutions_in_presolve = True
    if work is not None:
        parameters.max_deterministic_time = work
    if raised is not None:
        job.solver.best_bound_callback = lambda bound: raised(_in_units(bound, unit, step))
    answer = watched(job, stopped)
    if answer.outcome is Outcome.INFEASIBLE:
        return Answer(Outcome.INFEASIBLE, None, math.inf, job.work)
    solution = None
    if answer.outcome is not Outcome.UNKNOWN:
        solution = np.array([job.solver.value(column) for column in columns], dtype=np.float64)
    return Answer(answer.outcome, solution, _in_units(answer.bound, unit, step), job.work)


def _model_of(
    program: ProgramBuilder, unit: float, costs: list[int], known: float, stopped: Callable[[], bool]
) -> tuple[Any, list[Any], bool]:
    """Return the model and its columns, and whether all of it was built; no model where a row cannot hold."""
    from ortools.sat.python import cp_model

    rows = list(zip(pairwise(program.row_start), program.row_lower, strict=True))
    if any(first == last and least > 0 for (first, last), least in rows):
        return None, [], True
    model = cp_model.CpModel()
    columns = [model.new_int_var(0, int(upper), "") for upper in program.upper]
    for index, ((first, last), least) in enumerate(rows):
        if index % LOOK == 0 and stopped():
            return None, [], False
        if first < last:
            factors = [int(factor) for factor in program.coefficient[first:last]]
            factors, right = _safe_row(factors, int(least))
            own = [columns[column] for column in program.column[first:last]]
            model.add(cp_model.LinearExpr.weighted_sum(own, factors) >= right)
    total = cp_model.LinearExpr.weighted_sum(columns, costs)
    model.minimize(total)
    if known > 0.0:
        # What rounding costs down may take from a solution.
        lost = sum(
            abs(cost / unit - whole) * upper
            for cost, whole, upper in zip(program.cost, costs, program.upper, strict=True)
        )
        model.add(total >= math.ceil(known / unit * (1.0 - LOWERED) - lost - LOWERED))
    return model, columns, True


def _in_units(bound: float, unit: float, step: float | None) -> float:
    """Return a bound, 0 at least, from what CP-SAT has made of the whole number that it is in units."""
    if not math.isfinite(bound):
        return max(0.0, bound)
    found = unit * max(0.0, float(round(bound)))
    return found if unit == step else found * (1.0 - ROUNDED)


def _whole_costs(costs: Sequence[float], step: float | None) -> tuple[float, list[int]]:
    """Return a unit, and costs in it: exact where there is a step that is coarse enough, or else rounded down."""
    if step is not None and sum(costs) / step <= LARGEST_COST:
        return step, [round(cost / step) for cost in costs]
    unit = max(FINEST, sum(costs) / LARGEST_COST)
    return unit, [math.floor(cost / unit) for cost in costs]


def _safe_row(factors: list[int], least: int) -> tuple[list[int], int]:
    """Return the coefficients and right-hand side of a row whose sums the solver can hold."""
    shift = max(0, (sum(map(abs, factors)) + abs(least)).bit_length() - LARGEST_ROW.bit_length())
    if shift == 0:
        return factors, least
    # Up on the left and down on the right: what fulfils the row fulfils the rounded one.
    return [-(-factor >> shift) for factor in factors], least >> shift
