"""CP-SAT jobs, for arbitrary models and for integer programs.

Coefficients of rows are integers. Costs are times in the model's unit, or integer multiples of a step that the caller
knows. Without a step they are rounded down. Numbers too large for the solver are scaled and rounded, and every solution
remains feasible. Bounds therefore stay valid.
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
"""Rows added to the model between two checks for a stop."""

MOST_SIMPLIFIED = 5_000
"""Maximum number of variables for full presolve; beyond this it is slow and cannot always be stopped."""

MOST_COMPARED = 200_000
"""Maximum number of coefficients for the search for dominated variables.

Beyond this the search takes seconds and ignores stop requests: 3 s under a limit of 1.4 s, with a million coefficients.
"""

FINEST = 1e-7
"""Step to which fractional costs are rounded down; the mean task takes 1000."""

LOWERED = 1e-7
"""Share by which a bound is lowered to cover the tolerances of the solver that found it."""

ROUNDED = 2.0**-50
"""Share by which a bound is lowered to cover rounding, if its unit is not a step of the costs."""

LARGEST_COST, LARGEST_ROW = 2**50, 2**50
"""Maximum sums of all costs and of the coefficients of a row that are used without scaling."""


STUCK, SLOWEST = 5.0, 40.0
"""Seconds of processor time after which CP-SAT counts as stuck: a constant, and seconds per unit of its work limit.

A unit takes some 10 s. While a cycle of constraints raises bounds step by step, CP-SAT counts no work.
"""


class CpSatJob(Job):
    """A run of CP-SAT on an arbitrary model.

    Parameters
    ----------
    model : CpModel
    threads, seed : int
    seconds : float, optional
    chosen : callable, optional
        Extracts the reported object from a solution's values, in the solver's thread.
    found, bounded : callable, optional
        Receive each extracted solution and the bound at that time, in the caller's thread.

    Attributes
    ----------
    solver : CpSolver
        Its `parameters` may be changed before the run.
    work : float
        Work of the finished run, in CP-SAT's own units.
    refusal : str
        CP-SAT's message if it rejects the model.
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
        # Python handles Ctrl-C. CP-SAT would catch the signal, and let the next one end the process.
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
        work = float(solver.parameters.max_deterministic_time)
        self.patience = STUCK + SLOWEST * work if math.isfinite(work) else None
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
        """Pass on the solutions and bounds found since the last call."""
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
    """Solve a program with nonnegative integer columns whose rows have integer coefficients and only lower bounds.

    Parameters
    ----------
    program : ProgramBuilder
    seconds : float, optional
        Time limit.
    stopped : callable
        Polled every `POLL_SECONDS`.
    step : float, optional
        All costs are integer multiples of it.
    hint : sequence of int, optional
        Starting values of all variables.
    work : float, optional
        Limit in CP-SAT's own units, for answers that do not depend on the clock.
    seed : int
    known : float
        Lower bound on the cost of this program, known from a part of it.
    raised : callable, optional
        Receives each improved bound, in the solver's thread.

    Returns
    -------
    Answer
        The bound is at least 0, and infinite if the program has no solution.
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
    # Branching on the objective over the strongest relaxation is by far the fastest on these programs.
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
    """Return the model, its columns, and whether it is complete; no model if a row cannot be satisfied."""
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
        # Maximum reduction of a solution's cost by rounding the costs down.
        lost = sum(
            abs(cost / unit - whole) * upper
            for cost, whole, upper in zip(program.cost, costs, program.upper, strict=True)
        )
        model.add(total >= math.ceil(known / unit * (1.0 - LOWERED) - lost - LOWERED))
    return model, columns, True


def _in_units(bound: float, unit: float, step: float | None) -> float:
    """Convert a bound of CP-SAT, an integer number of units, to a cost of at least 0."""
    if not math.isfinite(bound):
        return max(0.0, bound)
    found = unit * max(0.0, float(round(bound)))
    return found if unit == step else found * (1.0 - ROUNDED)


def _whole_costs(costs: Sequence[float], step: float | None) -> tuple[float, list[int]]:
    """Return a unit and the costs in it: exact if a coarse enough step is known, else rounded down."""
    if step is not None and sum(costs) / step <= LARGEST_COST:
        return step, [round(cost / step) for cost in costs]
    unit = max(FINEST, sum(costs) / LARGEST_COST)
    return unit, [math.floor(cost / unit) for cost in costs]


def _safe_row(factors: list[int], least: int) -> tuple[list[int], int]:
    """Return the coefficients and right-hand side of a row whose sums the solver can represent."""
    shift = max(0, (sum(map(abs, factors)) + abs(least)).bit_length() - LARGEST_ROW.bit_length())
    if shift == 0:
        return factors, least
    # Rounding up on the left and down on the right relaxes the row.
    return [-(-factor >> shift) for factor in factors], least >> shift
