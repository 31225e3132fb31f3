"""Linear programs whose optimum is a bound: by their dual solution, whatever the solver's tolerances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_algorithms.kit.programs.program import FloatArray, Program
from remat_algorithms.kit.programs.solvers import LINEAR, handed_over

SAFE = 1e-13
"""Share of the terms' sum by which a bound is lowered for the rounding of its own sums."""


@dataclass(frozen=True)
class Solved:
    """What came of a linear program.

    Attributes
    ----------
    solution : (columns,) float64 or None
    bound : float
        No feasible point costs less.
    infeasible : bool
    """

    solution: FloatArray | None
    bound: float
    infeasible: bool = False


def solve_linear(program: Program) -> Solved:
    """Solve a program without its integrality, all columns of which have finite bounds.

    For any duals y, cost x = y A x + (cost - y A) x is at least y times the bounds of the rows, on the side that the
    sign of y says, plus the least that the reduced costs make of the columns within theirs. With the solver's duals
    that is its optimum, but for rounding; it holds for any.
    """
    helper, model = handed_over(program.relaxed())
    solver = helper.ModelSolverHelper(LINEAR)
    solver.enable_output(False)
    solver.solve(model)
    codes = helper.SolveStatus
    if solver.status() == codes.INFEASIBLE:
        return Solved(None, np.inf, infeasible=True)
    if solver.status() != codes.OPTIMAL:
        return Solved(None, -np.inf)
    duals = np.array(solver.dual_values(), dtype=np.float64)
    return Solved(np.array(solver.variable_values(), dtype=np.float64), dual_bound(program, duals))


def dual_bound(program: Program, duals: FloatArray) -> float:
    """Return what any duals prove."""
    rows = np.repeat(np.arange(program.rows), np.diff(program.row_start))
    # Of a row without a bound on the side that its dual asks for, the dual is no proof.
    duals = np.where((duals > 0) & np.isinf(program.row_lower), 0.0, duals)
    duals = np.where((duals < 0) & np.isinf(program.row_upper), 0.0, duals)
    reduced = program.cost.copy()
    np.subtract.at(reduced, program.column, duals[rows] * program.coefficient)
    sides = np.where(duals > 0, program.row_lower, np.where(duals < 0, program.row_upper, 0.0))
    terms = np.concatenate((duals * np.where(duals == 0, 0.0, sides), _least(program, reduced)))
    return float(terms.sum() - SAFE * np.abs(terms).sum())


def _least(program: Program, reduced: FloatArray) -> FloatArray:
    found: FloatArray = np.where(reduced > 0, reduced * program.lower, reduced * program.upper)
    return found
