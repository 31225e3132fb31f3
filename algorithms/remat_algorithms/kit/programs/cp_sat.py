"""Small integer programs, and solving them with CP-SAT.

Coefficients of rows are whole numbers. Costs are times, in the model's unit or in whole numbers of a step that the
caller knows; where there is none they are rounded down. Numbers too large for the solver are scaled, and rounded so
that every solution remains one: bounds stay bounds.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

POLL_SECONDS = 0.02
"""How often a running solver's caller is asked whether to stop."""

LOOK = 1000
"""Rows that are handed over between two looks at whether to stop."""

MOST_SIMPLIFIED = 5_000
"""Variables up to which programs are simplified at length: beyond, that takes long, and cannot always be stopped."""

FINEST = 1e-7
"""Step that costs are rounded down to where they are no whole numbers: the mean task takes 1000."""

LOWERED = 1e-7
"""Share by which a bound is lowered against the tolerances of whoever has found it."""

LARGEST_COST, LARGEST_ROW = 2**50, 2**50
"""Sums of all costs, and of the coefficients of a row, up to which they are taken as they are."""


@dataclass
class Program:
    """Minimise cost * x over whole 0 <= x <= upper such that each row is at least its right-hand side.

    Attributes
    ----------
    cost : list of float
    upper : list of int
    rows : list of (list of (variable, whole coefficient), whole right-hand side)
    """

    cost: list[float] = field(default_factory=list)
    upper: list[int] = field(default_factory=list)
    rows: list[tuple[list[tuple[int, int]], int]] = field(default_factory=list)

    def variable(self, cost: float = 0.0, *, upper: int = 1) -> int:
        """Add a variable; return its number."""
        self.cost.append(cost)
        self.upper.append(upper)
        return len(self.cost) - 1

    def at_least(self, terms: Sequence[tuple[int, int]], least: int) -> None:
        """Add a row."""
        self.rows.append((list(terms), least))

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
    values : sequence of int
        A solution, or empty.
    finished : bool
        Whether the search came to its end, rather than to a limit.
    """

    bound: float
    values: Sequence[int] = ()
    finished: bool = False


def solve(
    program: Program,
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
    """Solve a program in a thread of its own, which holds no lock, and ask meanwhile whether to stop.

    Parameters
    ----------
    program : Program
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
    """
    from ortools.sat.python import cp_model

    if any(not terms and least > 0 for terms, least in program.rows):
        return Answer(math.inf, finished=True)
    unit, costs = _whole_costs(program.cost, step)
    model = cp_model.CpModel()
    variables = [model.new_int_var(0, upper, "") for upper in program.upper]
    for index, (terms, least) in enumerate(program.rows):
        if index % LOOK == 0 and stopped():
            return Answer(0.0)
        if terms:
            numbers, coefficients, right = _safe_row(terms, least)
            row = cp_model.LinearExpr.weighted_sum([variables[number] for number in numbers], coefficients)
            model.add(row >= right)
    total = cp_model.LinearExpr.weighted_sum(variables, costs)
    model.minimize(total)
    if known > 0.0:
        # What rounding costs down may take from a solution.
        lost = sum(
            abs(cost / unit - whole) * upper
            for cost, whole, upper in zip(program.cost, costs, program.upper, strict=True)
        )
        model.add(total >= math.ceil(known / unit * (1.0 - LOWERED) - lost - LOWERED))
    for variable, value in zip(variables, hint, strict=bool(len(hint))):
        model.add_hint(variable, value)
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.random_seed = seed % 2**31
    # Branching on the objective, over the strongest relaxation: by far the quickest on these programs.
    parameters.linearization_level = 2
    parameters.use_objective_lb_search = True
    if len(variables) > MOST_SIMPLIFIED:
        parameters.symmetry_level = 0
        parameters.max_presolve_iterations = 1
    # Ctrl-C is for Python: the solver would take the signal for itself.
    parameters.catch_sigint_signal = False
    if seconds is not None:
        parameters.max_time_in_seconds = max(0.001, seconds)
    if work is not None:
        parameters.max_deterministic_time = work
    if raised is not None:
        solver.best_bound_callback = lambda bound: raised(unit * max(0.0, bound))
    statuses: list[object] = []
    thread = threading.Thread(target=lambda: statuses.append(solver.solve(model)), daemon=True)
    thread.start()
    thread.join(POLL_SECONDS / 4)
    while thread.is_alive():
        if stopped():
            solver.stop_search()
        thread.join(POLL_SECONDS)
    status = statuses[0] if statuses else cp_model.UNKNOWN
    if status == cp_model.INFEASIBLE:
        return Answer(math.inf, finished=True)
    bound = unit * max(0.0, solver.best_objective_bound)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(bound)
    return Answer(bound, [solver.value(variable) for variable in variables], status == cp_model.OPTIMAL)


def _whole_costs(costs: Sequence[float], step: float | None) -> tuple[float, list[int]]:
    """Return a unit, and costs in it: exact where there is a step that is coarse enough, or else rounded down."""
    if step is not None and sum(costs) / step <= LARGEST_COST:
        return step, [round(cost / step) for cost in costs]
    unit = max(FINEST, sum(costs) / LARGEST_COST)
    return unit, [math.floor(cost / unit) for cost in costs]


def _safe_row(terms: Sequence[tuple[int, int]], least: int) -> tuple[list[int], list[int], int]:
    """Return the variables, coefficients and right-hand side of a row whose sums the solver can hold."""
    numbers, coefficients = [number for number, _ in terms], [coefficient for _, coefficient in terms]
    shift = max(0, (sum(map(abs, coefficients)) + abs(least)).bit_length() - LARGEST_ROW.bit_length())
    if shift == 0:
        return numbers, coefficients, least
    # Up on the left and down on the right: what fulfils the row fulfils the rounded one.
    return numbers, [-(-coefficient >> shift) for coefficient in coefficients], least >> shift
