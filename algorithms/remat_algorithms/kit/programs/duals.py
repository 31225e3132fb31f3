"""Linear programs whose optimum is a bound: by their dual solution, whatever the solver's tolerances."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from remat_algorithms.kit.programs.program import FloatArray, Program
from remat_algorithms.kit.programs.solvers import LINEAR, handed_over

SAFE = 1e-13
"""Share of the terms' sum by which a bound is lowered for the rounding of its own sums."""

FIRM = 1e-9
"""Share of the terms' sum that they have to make, for it to be a proof that there is no feasible point."""


@dataclass(frozen=True)
class Solved:
    """What came of a linear program.

    Attributes
    ----------
    solution : (columns,) float64 or None
        None where the solver has none.
    bound : float
        No feasible point costs less: infinite where it is proved that there is none, minus infinity where nothing is
        known.
    """

    solution: FloatArray | None
    bound: float


def solve_linear(program: Program) -> Solved:
    """Solve a program without its integrality, all columns of which have finite bounds.

    For any duals y, cost x = y A x + (cost - y A) x is at least y times the bounds of the rows, on the side that the
    sign of y says, plus the least that the reduced costs make of the columns within theirs. With the solver's duals
    that is its optimum, but for rounding; it holds for any. Without costs, more than 0 says that there is no feasible
    point: where the solver says so, the duals of missing the rows by as little as can be have to prove it.
    """
    feasible, solution, duals = _glop(program)
    if solution is not None:
        return Solved(solution, dual_bound(program, duals))
    if not feasible:
        _, _, duals = _glop(_missed(program))
        if dual_bound(replace(program, cost=np.zeros(program.columns)), duals, FIRM) > 0:
            return Solved(None, np.inf)
    return Solved(None, -np.inf)


def _glop(program: Program) -> tuple[bool, FloatArray | None, FloatArray]:
    """Return whether a program may be feasible, as GLOP says, a solution, and duals; zeros where it has none."""
    helper, model = handed_over(program.relaxed())
    solver = helper.ModelSolverHelper(LINEAR)
    solver.enable_output(False)
    solver.solve(model)
    feasible = solver.status() != helper.SolveStatus.INFEASIBLE
    if solver.status() != helper.SolveStatus.OPTIMAL:
        return feasible, None, np.zeros(program.rows)
    values = np.array(solver.variable_values(), dtype=np.float64)
    return feasible, values, np.array(solver.dual_values(), dtype=np.float64)


def _missed(program: Program) -> Program:
    """Return the program of missing the rows of another by as little as can be, in all."""
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
    """Return what any duals prove, lowered by such a share of the terms' sum."""
    rows = np.repeat(np.arange(program.rows), np.diff(program.row_start))
    # Of a row without a bound on the side that its dual asks for, the dual is no proof.
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
