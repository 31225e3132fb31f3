"""PuLP as a back end, for users with another solver."""

from __future__ import annotations

import inspect
import warnings
from itertools import pairwise
from typing import Any

import numpy as np

from remat.plugin import OptionError
from remat_algorithms.kit.programs.program import FloatArray, Program
from remat_algorithms.kit.programs.solver_status import Answer, Outcome


def find_solver(name: str, limit: float | None, threads: int, *, warm: bool) -> Any:
    """Return a PuLP solver by its PuLP name (default: CBC), with limits set.

    Raises
    ------
    remat.OptionError
        If PuLP does not know the solver or does not find it on this computer.
    """
    with warnings.catch_warnings():
        # PuLP 3.3 warns about the solver names of version 4.
        warnings.simplefilter("ignore", DeprecationWarning)
        return _found(name, limit, threads, warm)


def _found(name: str, limit: float | None, threads: int, warm: bool) -> Any:
    import pulp

    known = pulp.listSolvers()
    name = name or "PULP_CBC_CMD"
    if name not in known:
        raise OptionError(f"PuLP has no solver {name!r}; it knows {', '.join(dict.fromkeys(known))}", option="solver")
    wanted: dict[str, Any] = {"msg": False, "threads": threads, "gapRel": 0.0, "warmStart": warm}
    if limit is not None:
        wanted["timeLimit"] = limit
    # Not every solver accepts all of these. Many stop at a gap of 1e-4 by default and call that optimal.
    accepted = inspect.signature(type(pulp.getSolver(name)).__init__).parameters
    solver = pulp.getSolver(name, **{key: value for key, value in wanted.items() if key in accepted})
    if not solver.available():
        available = ", ".join(pulp.listSolvers(onlyAvailable=True)) or "none"
        raise OptionError(f"PuLP does not find {name!r} here; it finds {available}", option="solver")
    return solver


def solve_with_pulp(program: Program, solver: Any, hint: FloatArray | None) -> Answer:
    """Translate a program, solve it, and translate the answer back.

    Notes
    -----
    PuLP exposes no bound. The bound is known for optimal answers only.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return _solve(program, solver, hint)


def _solve(program: Program, solver: Any, hint: FloatArray | None) -> Answer:
    import pulp

    model = pulp.LpProblem("remat", pulp.LpMinimize)
    lower, upper, integer = program.lower.tolist(), program.upper.tolist(), program.integer.tolist()
    columns = [
        pulp.LpVariable(
            f"x{index}", low, high if np.isfinite(high) else None, pulp.LpInteger if whole else pulp.LpContinuous
        )
        for index, (low, high, whole) in enumerate(zip(lower, upper, integer, strict=True))
    ]
    cost = program.cost.tolist()
    model += pulp.LpAffineExpression([(column, cost[index]) for index, column in enumerate(columns)])
    ends = program.row_start.tolist()
    for row, (first, last) in enumerate(pairwise(ends)):
        entries = [
            (columns[index], coefficient)
            for index, coefficient in zip(
                program.column[first:last].tolist(), program.coefficient[first:last].tolist(), strict=True
            )
        ]
        low, high = float(program.row_lower[row]), float(program.row_upper[row])
        if not entries:
            if low > 0 or high < 0:
                return Answer(Outcome.INFEASIBLE)
            continue
        if np.isfinite(low):
            model += pulp.LpConstraint(pulp.LpAffineExpression(entries), pulp.LpConstraintGE, f"l{row}", low)
        if np.isfinite(high):
            model += pulp.LpConstraint(pulp.LpAffineExpression(entries), pulp.LpConstraintLE, f"u{row}", high)
    if hint is not None:
        for column, value in zip(columns, hint.tolist(), strict=True):
            column.setInitialValue(value, check=False)
    model.solve(solver)
    if model.status == pulp.LpStatusInfeasible:
        return Answer(Outcome.INFEASIBLE)
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return Answer(Outcome.UNKNOWN)
    # A column that appears in no row may have no value.
    solution = np.array(
        [low if column.varValue is None else column.varValue for column, low in zip(columns, lower, strict=True)]
    )
    done = model.sol_status == pulp.LpSolutionOptimal
    return Answer(
        Outcome.OPTIMAL if done else Outcome.FEASIBLE, solution, float(program.cost @ solution) if done else -np.inf
    )
