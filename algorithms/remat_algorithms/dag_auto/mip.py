"""Small mixed-integer programs, and solving them: variables and rows as lists, through OR-Tools' MathOpt.

The figures are scaled: costs are times in units in which the mean task takes 1000, rows are divided by their
largest coefficient. A solver's tolerances only ever relax a program, so its bound stays one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any


@dataclass
class Program:
    """Minimise cost * x over 0 <= x <= 1, some x whole, such that each row is at least its right-hand side.

    Attributes
    ----------
    cost : list of float
    whole : list of bool
    upper : list of float
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


@dataclass(frozen=True)
class Answer:
    """What a solver found.

    Attributes
    ----------
    bound : float
        Lower bound on the least cost; infinite where there is no solution.
    cost : float
        Of the solution; infinite where none was found.
    values : list of float
        The solution, or empty.
    """

    bound: float
    cost: float = math.inf
    values: Sequence[float] = ()

    @property
    def solved(self) -> bool:
        """Whether the solution is proved optimal, up to the solver's tolerances."""
        return self.bound >= self.cost - 1e-6 * max(1.0, abs(self.cost))


def solve(
    program: Program,
    *,
    seconds: float | None,
    relative_gap: float = 1e-7,
    hint: Sequence[float] = (),
    cutoff: float | None = None,
    nodes: int | None = None,
    solver: str = "highs",
    interrupter: Any = None,
) -> Answer:
    """Solve a program; releases the interpreter's lock meanwhile.

    Parameters
    ----------
    program : Program
    seconds : float, optional
        Limit.
    hint : sequence of float, optional
        Values of all variables to start from.
    cutoff : float, optional
        Solutions that cost more are of no interest.
    nodes : int, optional
        Limit on nodes of the search, for answers that do not depend on the clock.
    interrupter : mathopt.SolveInterrupter, optional
        Stops the solver from another thread.
    """
    from ortools.math_opt.python import mathopt

    model = mathopt.Model()
    numbers = range(len(program.cost))
    variables = [model.add_variable(lb=0.0, ub=program.upper[k], is_integer=program.whole[k]) for k in numbers]
    for terms, least in program.rows:
        row = model.add_linear_constraint(lb=least)
        for number, coefficient in terms:
            row.set_coefficient(variables[number], coefficient)
    for number, cost in enumerate(program.cost):
        if cost:
            model.objective.set_linear_coefficient(variables[number], cost)
    model.objective.is_maximize = False
    kind = {"highs": mathopt.SolverType.HIGHS, "scip": mathopt.SolverType.GSCIP, "sat": mathopt.SolverType.CP_SAT}
    parameters = mathopt.SolveParameters(
        time_limit=None if seconds is None else timedelta(seconds=seconds),
        relative_gap_tolerance=relative_gap,
        absolute_gap_tolerance=1e-6,
        node_limit=nodes,
        threads=1 if solver == "sat" else None,
    )
    hints = []
    if len(hint):
        hints = [mathopt.SolutionHint(variable_values=dict(zip(variables, hint, strict=True)))]
    result = mathopt.solve(
        model,
        kind[solver],
        params=parameters,
        model_params=mathopt.ModelSolveParameters(solution_hints=hints),
        interrupter=interrupter,
    )
    reason = result.termination.reason
    if reason == mathopt.TerminationReason.INFEASIBLE:
        return Answer(math.inf)
    bound = max(0.0, result.termination.objective_bounds.dual_bound)
    if not result.has_primal_feasible_solution():
        return Answer(bound if math.isfinite(bound) else 0.0)
    values = result.variable_values(variables)
    return Answer(bound if math.isfinite(bound) else 0.0, result.objective_value(), list(values))
