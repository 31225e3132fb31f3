"""Solvers for `Program`: OR-Tools (SCIP, HiGHS, CP-SAT, GLOP) and PuLP (CBC or any solver that PuLP finds)."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from remat.plugin import Context
from remat_algorithms.kit.programs.program import FloatArray, Program
from remat_algorithms.kit.programs.solver_process import Apart, Task
from remat_algorithms.kit.programs.solver_status import Answer, Job, Outcome, watched

ORTOOLS = ("scip", "highs", "cp-sat")
LINEAR = "glop"
PULP = "pulp"

ABSOLUTE_GAP = 0.9
"""If all costs are integers, a gap below one counts as closed."""

MOST_ENTRIES_HERE = 5_000
"""Maximum number of coefficients to solve in this process: no solver phase takes long then."""


def solve_program(
    program: Program,
    solver: str,
    context: Context,
    *,
    hint: FloatArray | None = None,
    seconds: float | None = None,
    gap: float = 0.0,
) -> Answer:
    """Solve a program; return when it is solved, out of time or interrupted.

    Parameters
    ----------
    program : Program
    solver : str
        ``scip``, ``highs``, ``cp-sat``, ``glop`` (relaxations only), ``pulp`` (its default solver) or ``pulp:NAME``.
    context : Context
        Deadline, threads and seed. Its `interrupted` is polled every few hundredths of a second.
    hint : (columns,) float64, optional
        A feasible starting point, for solvers that accept one.
    seconds : float, optional
        A limit in addition to the deadline.
    gap : float
        Relative gap at which ``scip`` may call a solution optimal.

    Raises
    ------
    remat.OptionError
        If PuLP does not find the solver.
    """
    left = context.seconds_left
    limit = left if seconds is None else seconds if left is None else min(left, seconds)
    if limit is not None and limit <= 0:
        return Answer(Outcome.UNKNOWN)
    if program.columns == 0:
        possible = bool((program.row_lower <= 0).all() and (program.row_upper >= 0).all())
        return Answer(Outcome.OPTIMAL, np.zeros(0), 0.0) if possible else Answer(Outcome.INFEASIBLE)
    warm = hint is not None
    if solver.partition(":")[0] == PULP:
        from remat_algorithms.kit.programs.pulp import find_solver

        find_solver(solver.partition(":")[2], limit, context.threads, warm=warm)
    until = None if limit is None else time.time() + limit
    task = Task(program, solver, context.threads, context.seed, hint, until, gap)
    job = Apart(task) if may_be_deaf(program, solver) else job_of(task)
    return watched(job, lambda: context.interrupted, limit)


def may_be_deaf(program: Program, solver: str) -> bool:
    """Whether a solver may ignore a stop request for long on a program of this size."""
    if solver.partition(":")[0] == PULP or len(program.coefficient) > MOST_ENTRIES_HERE:
        return True
    return solver == "highs" and bool(program.integer.any())


def job_of(task: Task) -> Job:
    """Build the solver's job for a task, in the process that solves it."""
    limit = task.seconds_left
    if task.solver == "scip":
        return _Scip(task, limit)
    if task.solver.partition(":")[0] == PULP:
        from remat_algorithms.kit.programs.pulp import find_solver, solve_with_pulp

        found = find_solver(task.solver.partition(":")[2], limit, task.threads, warm=task.hint is not None)
        return _Function(lambda: solve_with_pulp(task.program, found, task.hint))
    return _Builder(task, limit)


class _Function(Job):
    def __init__(self, function: Callable[[], Answer]) -> None:
        self.solve = function  # type: ignore[method-assign]


def handed_over(program: Program) -> tuple[Any, Any]:
    """Return the module of OR-Tools' model builder, and the program as its model."""
    helper: Any = import_module("ortools.linear_solver.python.model_builder_helper")
    model = helper.ModelBuilderHelper()
    model.add_var_array_with_bounds(program.lower, program.upper, program.integer, "")
    for column in np.flatnonzero(program.cost).tolist():
        model.set_var_objective_coefficient(column, float(program.cost[column]))
    columns, coefficients = program.column.tolist(), program.coefficient.tolist()
    for row, (first, last) in enumerate(pairwise(program.row_start.tolist())):
        index = model.add_linear_constraint()
        model.set_constraint_lower_bound(index, float(program.row_lower[row]))
        model.set_constraint_upper_bound(index, float(program.row_upper[row]))
        for entry in range(first, last):
            model.safe_add_term_to_constraint(index, columns[entry], coefficients[entry])
    return helper, model


class _Builder(Job):
    """HiGHS, CP-SAT and GLOP through OR-Tools' model builder."""

    def __init__(self, task: Task, limit: float | None) -> None:
        program, solver, hint = task.program, task.solver, task.hint
        helper, model = handed_over(program)
        self.program, self.helper = program, helper
        if hint is not None and solver == "cp-sat":
            for column, value in enumerate(hint.tolist()):
                model.add_hint(column, value)
        self.model = model
        self.solver = helper.ModelSolverHelper("sat" if solver == "cp-sat" else solver)
        self.solver.enable_output(False)
        if limit is not None:
            self.solver.set_time_limit_in_seconds(limit)
        gap = ABSOLUTE_GAP if _whole_costs(program) else 0
        if solver == "highs":
            # Without the flag, HiGHS prints a banner on standard output.
            self.solver.set_solver_specific_parameters(
                f"output_flag=false\nmip_rel_gap=0\nmip_abs_gap={gap}\nrandom_seed={task.seed % 2**31}"
            )
        elif solver == "cp-sat":
            self.solver.set_solver_specific_parameters(
                f"num_workers:{max(1, task.threads)} random_seed:{task.seed % 2**31} absolute_gap_limit:{gap} "
                "catch_sigint_signal:false"
            )

    def stop(self) -> None:
        self.solver.interrupt_solve()

    def solve(self) -> Answer:
        self.solver.solve(self.model)
        status = self.solver.status()
        codes = self.helper.SolveStatus
        if status == codes.INFEASIBLE:
            return Answer(Outcome.INFEASIBLE)
        if status not in (codes.OPTIMAL, codes.FEASIBLE) or not self.solver.has_solution():
            return Answer(Outcome.UNKNOWN)
        solution = np.array(self.solver.variable_values(), dtype=np.float64)
        value = float(self.program.cost @ solution)
        done = status == codes.OPTIMAL
        bound = value if done else float(self.solver.best_objective_bound())
        return Answer(Outcome.OPTIMAL if done else Outcome.FEASIBLE, solution, bound)


class _Scip(Job):
    """SCIP through OR-Tools' linear solver wrapper, the only interface that stops on request."""

    def __init__(self, task: Task, limit: float | None) -> None:
        program, hint, self.gap = task.program, task.hint, task.gap
        self.wrapper: Any = import_module("ortools.linear_solver.pywraplp")
        self.program, self.codes = program, self.wrapper.Solver
        self.solver: Any = self.codes.CreateSolver("SCIP")
        infinity = self.solver.infinity()
        lower, upper, integer = program.lower.tolist(), program.upper.tolist(), program.integer.tolist()
        self.solver.SuppressOutput()
        self.columns = [
            self.solver.Var(low, high, whole, "") for low, high, whole in zip(lower, upper, integer, strict=True)
        ]
        objective = self.solver.Objective()
        for column in np.flatnonzero(program.cost).tolist():
            objective.SetCoefficient(self.columns[column], float(program.cost[column]))
        objective.SetMinimization()
        ends = program.row_start.tolist()
        columns, coefficients = program.column.tolist(), program.coefficient.tolist()
        for row, (first, last) in enumerate(pairwise(ends)):
            low = max(-infinity, float(program.row_lower[row]))
            constraint = self.solver.Constraint(low, min(infinity, float(program.row_upper[row])))
            for entry in range(first, last):
                constraint.SetCoefficient(self.columns[columns[entry]], coefficients[entry])
        if hint is not None:
            self.solver.SetHint(self.columns, hint.tolist())
        if limit is not None:
            self.solver.SetTimeLimit(max(1, int(limit * 1000)))
        gap = f"limits/absgap = {ABSOLUTE_GAP}\n" if _whole_costs(program) else ""
        self.solver.SetSolverSpecificParametersAsString(
            # Python handles Ctrl-C.
            f"misc/catchctrlc = FALSE\nrandomization/randomseedshift = {task.seed % 2**31}\n{gap}"
        )

    def stop(self) -> None:
        self.solver.InterruptSolve()

    def solve(self) -> Answer:
        # The default gap is 0 instead of the wrapper's 1e-4: a reported optimum must be one.
        exact = self.wrapper.MPSolverParameters()
        exact.SetDoubleParam(self.wrapper.MPSolverParameters.RELATIVE_MIP_GAP, self.gap)
        status = self.solver.Solve(exact)
        if status == self.codes.INFEASIBLE:
            return Answer(Outcome.INFEASIBLE)
        if status not in (self.codes.OPTIMAL, self.codes.FEASIBLE):
            return Answer(Outcome.UNKNOWN)
        solution = np.array([column.solution_value() for column in self.columns])
        done = status == self.codes.OPTIMAL
        bound = float(self.solver.Objective().BestBound()) if self.program.integer.any() else -np.inf
        if done:
            bound = float(self.program.cost @ solution)
        return Answer(Outcome.OPTIMAL if done else Outcome.FEASIBLE, solution, bound)


def _whole_costs(program: Program) -> bool:
    """Whether the objective takes integer values only."""
    return bool(program.integer[program.cost != 0].all() and (program.cost == np.rint(program.cost)).all())
