"""Linear programs whose dual solution proves a bound, whatever the solver's tolerances."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from remat_algorithms.kit.programs.program import FloatArray, Program
from remat_algorithms.kit.programs.solvers import LINEAR, handed_over

SAFE = 1e-13
"""Share of the terms' absolute sum by which a bound is lowered to cover rounding."""

FIRM = 1e-9
"""Minimum share of the terms' absolute sum for a proof of infeasibility."""


@dataclass(frozen=True)
class Solved:
    """Result of a linear program.

    Attributes
    ----------
    solution : (columns,) float64 or None
        None if the solver has no solution.
    bound : float
        Lower bound on the cost of every feasible point. Infinite if infeasibility is proved, minus infinity if nothing
        is known.
    """

    solution: FloatArray | None
    bound: float


def solve_linear(program: Program, seconds: float | None = None) -> Solved:
    """Solve the linear relaxation of a program whose columns all have finite bounds.

    Parameters
    ----------
    program : Program
    seconds : float, optional
        Time limit, as the context's deadline leaves it. After it, nothing is known.

    Notes
    -----
    For any duals y, cost x = y A x + (cost - y A) x. The first term is at least y times the row bounds on the side that
    the sign of y selects. The second is at least its minimum over the bounds of the columns. The solver's duals give
    its optimum, except for rounding; the bound holds for any duals.

    Without costs, a bound above 0 proves infeasibility. If the solver reports infeasibility, the duals of the program
    that minimises the violation of the rows must prove it.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    feasible, solution, duals = _glop(program, deadline)
    if solution is not None:
        return Solved(solution, dual_bound(program, duals))
    if not feasible:
        _, _, duals = _glop(_missed(program), deadline)
        if dual_bound(replace(program, cost=np.zeros(program.columns)), duals, FIRM) > 0:
            return Solved(None, np.inf)
    return Solved(None, -np.inf)


def _glop(program: Program, deadline: float | None = None) -> tuple[bool, FloatArray | None, FloatArray]:
    """Return whether GLOP considers a program feasible, a solution, and duals; zeros without duals.

    A program that the deadline stops counts as feasible.
    """
    left = None if deadline is None else deadline - time.monotonic()
    if left is not None and left <= 0:
        return True, None, np.zeros(program.rows)
    helper, model = handed_over(program.relaxed())
    solver = helper.ModelSolverHelper(LINEAR)
    solver.enable_output(False)
    if left is not None:
        solver.set_time_limit_in_seconds(left)
    solver.solve(model)
    feasible = solver.status() != helper.SolveStatus.INFEASIBLE
    if solver.status() != helper.SolveStatus.OPTIMAL:
        return feasible, None, np.zeros(program.rows)
    values = np.array(solver.variable_values(), dtype=np.float64)
    return feasible, values, np.array(solver.dual_values(), dtype=np.float64)


def _missed(program: Program) -> Program:
    """Return the program that minimises the total violation of another program's rows."""
    rows, columns = program.rows, program.columns
    ends = np.repeat(program.row_start[1:], 2)
    return Program(
        np.concatenate((np.zeros(columns), np.ones(2 * rows))),
        np.concatenate((program.lower, np.zeros(2 * rows))),
        np.concatenate((program.upper, np.full(2 * rows, np.inf))),
        np.zeros(columns + 2 * rows, dtype=bool),
        program.row_start + 2 * np.arange(rows + 1),
        np.insert(program.column, ends, columns + np.arange(2 * rows)),
        np.insert(program.coefficient, ends, np.tile([1.0, -1.0], rows)),
        program.row_lower,
        program.row_upper,
    )


def dual_bound(program: Program, duals: FloatArray, safe: float = SAFE) -> float:
    """Return the bound that any duals prove, lowered by the given share of the terms' absolute sum."""
    rows = np.repeat(np.arange(program.rows), np.diff(program.row_start))
    # A dual proves nothing for a row that has no bound on the side that the dual needs.
    duals = np.where((duals > 0) & np.isinf(program.row_lower), 0.0, duals)
    duals = np.where((duals < 0) & np.isinf(program.row_upper), 0.0, duals)
    reduced = program.cost.copy()
    np.subtract.at(reduced, program.column, duals[rows] * program.coefficient)
    sides = np.where(duals > 0, program.row_lower, np.where(duals < 0, program.row_upper, 0.0))
    terms = np.concatenate((duals * np.where(duals == 0, 0.0, sides), _least(program, reduced)))
    return float(terms.sum() - safe * np.abs(terms).sum())


def _least(program: Program, reduced: FloatArray) -> FloatArray:
    found: FloatArray = np.where(reduced > 0, reduced * program.lower, reduced * program.upper)
    return found
