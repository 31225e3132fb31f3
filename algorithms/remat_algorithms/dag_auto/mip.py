"""Small mixed-integer programs, and solving them with SCIP, or relaxed with GLOP, as OR-Tools brings them.

The figures are scaled: costs are times in units in which the mean task takes 1000, rows are divided by their
largest coefficient. A solver's tolerances only ever relax a program, so its bound stays one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

POLL_SECONDS = 0.02
"""How often a running solver's caller is asked whether to stop."""

GAP = 1e-7
"""Relative gap at which a program counts as solved."""

RELAXED_GAP = 1e-5
"""Share by which the value of a linear relaxation is lowered against its solver's tolerances."""


@dataclass
class Program:
    """Minimise cost * x over 0 <= x <= upper, some x whole, such that each row is at least its right-hand side.

    Attributes
    ----------
    cost, upper : list of float
    whole : list of bool
    rows : list of (list of (variable, coefficient), right-hand side)
    """

    cost: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    rows: list[tuple[list[tuple[int, float]], float]] = field(default_factory=list)

    def variable(self, cost: float = 0.0, *, whole: bool = True, upper: float = 1.0) -> int:
        """Add a variable; return its number."""
        self.cost.append(cost)
        self.whole.append(whole)
        self.upper.append(upper)
        return len(self.cost) - 1

    def at_least(self, terms: Sequence[tuple[int, float]], least: float) -> None:
        """Add a row, scaled so that its largest coefficient is 1."""
        largest = max((abs(coefficient) for _, coefficient in terms), default=0.0)
        scale = 1.0 / largest if largest > 0 else 1.0
        self.rows.append(([(number, coefficient * scale) for number, coefficient in terms], least * scale))

    @property
    def entries(self) -> int:
        """Number of coefficients."""
        return sum(len(terms) for terms, _ in self.rows)


@dataclass(frozen=True)
class Answer:
    """What a solver found.

    Attributes
    ----------
    bound : float
        Lower bound on the least cost; infinite where there is no solution.
    cost : float
        Of the solution; infinite where none was found.
    values : sequence of float
        The solution, or empty.
    finished : bool
        Whether the search came to its end, rather than to a limit.
    """

    bound: float
    cost: float = math.inf
    values: Sequence[float] = ()
    finished: bool = False


def solve(
    program: Program,
    *,
    seconds: float | None,
    stopped: Callable[[], bool],
    hint: Sequence[float] = (),
    nodes: int | None = None,
    relaxed: bool = False,
) -> Answer:
    """Solve a program in a thread of its own, which holds no lock, and ask meanwhile whether to stop.

    Parameters
    ----------
    program : Program
    seconds : float, optional
        Limit.
    stopped : callable
        Asked every `POLL_SECONDS`.
    hint : sequence of float, optional
        Values of all variables to start from.
    nodes : int, optional
        Limit on nodes of the search, for answers that do not depend on the clock.
    relaxed : bool
        Solve the linear relaxation, with GLOP.
    """
    if any(not terms and least > 0 for terms, least in program.rows):
        return Answer(math.inf, finished=True)
    from ortools.linear_solver import pywraplp

    solver = pywraplp.Solver.CreateSolver("GLOP" if relaxed else "SCIP")
    variables = _load(solver, program, relaxed=relaxed)
    if len(hint):
        solver.SetHint(variables, [float(value) for value in hint])
    if seconds is not None:
        solver.SetTimeLimit(max(1, int(1000 * seconds)))
    # Ctrl-C is for Python: SCIP would take the signal for itself.
    limit = "" if nodes is None else f"limits/nodes = {nodes}\n"
    parameters = pywraplp.MPSolverParameters()
    if not relaxed:
        solver.SetSolverSpecificParametersAsString(f"misc/catchctrlc = FALSE\n{limit}")
        parameters.SetDoubleParam(parameters.RELATIVE_MIP_GAP, GAP)
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(solver.Solve(parameters)), daemon=True)
    thread.start()
    thread.join(POLL_SECONDS / 4)
    while thread.is_alive():
        if stopped():
            solver.InterruptSolve()
        thread.join(POLL_SECONDS)
    status = statuses[0] if statuses else pywraplp.Solver.ABNORMAL
    if status == pywraplp.Solver.INFEASIBLE:
        return Answer(math.inf, finished=True)
    if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
        # Without a solution, OR-Tools does not tell the bound.
        return Answer(0.0)
    finished = status == pywraplp.Solver.OPTIMAL
    cost = solver.Objective().Value()
    if relaxed:
        return Answer(max(0.0, cost * (1.0 - RELAXED_GAP)) if finished else 0.0, math.inf, _values(variables), finished)
    bound = solver.Objective().BestBound()
    bound = min(cost, max(0.0, cost * (1.0 - GAP) if finished else bound))
    return Answer(bound, cost, _values(variables), finished)


def _values(variables: list[Any]) -> list[float]:
    return [float(variable.solution_value()) for variable in variables]


def _load(solver: Any, program: Program, *, relaxed: bool) -> list[Any]:
    variables = [
        solver.IntVar(0.0, upper, "") if whole and not relaxed else solver.NumVar(0.0, upper, "")
        for whole, upper in zip(program.whole, program.upper, strict=True)
    ]
    for terms, least in program.rows:
        row = solver.Constraint(least, solver.infinity())
        for number, coefficient in terms:
            row.SetCoefficient(variables[number], coefficient)
    objective = solver.Objective()
    for variable, cost in zip(variables, program.cost, strict=True):
        if cost:
            objective.SetCoefficient(variable, cost)
    objective.SetMinimization()
    return variables
