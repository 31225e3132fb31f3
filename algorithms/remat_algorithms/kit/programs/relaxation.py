"""Linear relaxations with exact bounds: a solver finds prices, and integer arithmetic proves the bound.

Consider a program

    minimise c x,   A x >= b,   0 <= x <= u

with integer A, b, c and u. For any prices y >= 0 of its rows, every solution costs at least

    y b + sum of min(0, (c - y A)_j) u_j.

A floating-point number is an integer multiple of a power of two. The sum is therefore one of integers for every y, and
solver tolerances cannot affect it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from remat_algorithms.kit.programs.program import ProgramBuilder
from remat_algorithms.kit.programs.solver_status import Answer, Job, Outcome, watched

SHIFT = 200
"""Prices are integer multiples of 2 to the power of minus this; the remainder is discarded."""


@dataclass(frozen=True)
class Relaxation:
    """Result of a linear relaxation.

    Attributes
    ----------
    bound : int
        Proved lower bound on the cost of every solution, at least 0. If the relaxation is infeasible, see `infeasible`.
    values : list of float
        Values of all columns, unchecked. Empty if the solver did not finish.
    infeasible : bool
        Whether it is proved that the program has no solution.
    prices : list of float
        Prices of the rows, unchecked. Empty if the solver did not finish.
    """

    bound: int
    values: Sequence[float] = ()
    infeasible: bool = False
    prices: Sequence[float] = ()


def relaxed(program: ProgramBuilder, *, stopped: Callable[[], bool], work: float | None = None) -> Relaxation:
    """Solve the linear relaxation of a program with nonnegative columns and only lower bounds on its rows.

    Parameters
    ----------
    program : ProgramBuilder
        Costs and coefficients are integers.
    stopped : callable
        Polled every `POLL_SECONDS`.
    work : float, optional
        Limit in GLOP's own units, for answers that do not depend on the clock.
    """
    job = _Glop(program, work)
    answer = watched(job, stopped)
    if answer.outcome is not Outcome.INFEASIBLE:
        return Relaxation(max(0, math.ceil(proved(program, job.prices))), answer.values, prices=job.prices)
    # Total violation of the rows. Prices that prove it positive prove infeasibility.
    missed = _Glop(program, work, elastic=True)
    watched(missed, stopped)
    return Relaxation(0, infeasible=proved(program, missed.prices, costs=False) > 0)


def proved(program: ProgramBuilder, prices: Sequence[float], *, costs: bool = True) -> Fraction:
    """Return the bound that prices of the rows prove, exactly.

    Without costs, a value above 0 proves that the program has no solution.
    """
    whole = [int(math.ldexp(price, SHIFT)) if 0 < price < math.inf else 0 for price in prices]
    left = [int(cost) << SHIFT if costs else 0 for cost in program.cost]
    column, coefficient = program.column, program.coefficient
    total = 0
    if not whole:
        return Fraction(0)
    for price, (first, last), least in zip(whole, pairwise(program.row_start), program.row_lower, strict=True):
        if price:
            total += price * int(least)
            for entry in range(first, last):
                left[column[entry]] -= price * int(coefficient[entry])
    total += sum(rest * int(upper) for rest, upper in zip(left, program.upper, strict=True) if rest < 0)
    return Fraction(total, 1 << SHIFT)


class _Glop(Job):
    """GLOP through OR-Tools' model builder, including the prices of the rows.

    The model is scaled: columns are shares of their upper bounds, and rows and costs are shares of their largest terms.
    Unscaled bytes and times would strain the solver's tolerances.
    """

    def __init__(self, program: ProgramBuilder, work: float | None, *, elastic: bool = False) -> None:
        """Build the scaled model; if `elastic`, minimise the violation of the rows instead of the cost."""
        helper: Any = import_module("ortools.linear_solver.python.model_builder_helper")
        self.helper = helper
        self.prices: list[float] = []
        self.whole = [float(upper) for upper in program.upper]
        self.rows: list[float] = []
        costs = [0.0 if elastic else float(cost) * whole for cost, whole in zip(program.cost, self.whole, strict=True)]
        self.cost = max(costs, default=0.0) or 1.0
        model = helper.ModelBuilderHelper()
        for cost, whole in zip(costs, self.whole, strict=True):
            number = model.add_var()
            model.set_var_lower_bound(number, 0.0)
            model.set_var_upper_bound(number, 1.0 if whole else 0.0)
            if cost:
                model.set_var_objective_coefficient(number, cost / self.cost)
        for (first, last), least in zip(pairwise(program.row_start), program.row_lower, strict=True):
            self._add_row(model, program, first, last, float(least), elastic=elastic)
        self.model = model
        self.solver = helper.ModelSolverHelper("glop")
        self.solver.enable_output(False)
        limit = "" if work is None else f" max_deterministic_time: {work}"
        self.solver.set_solver_specific_parameters(f"use_dual_simplex: true{limit}")

    def _add_row(
        self, model: Any, program: ProgramBuilder, first: int, last: int, least: float, *, elastic: bool
    ) -> None:
        columns = program.column[first:last]
        terms = [
            float(factor) * self.whole[column]
            for column, factor in zip(columns, program.coefficient[first:last], strict=True)
        ]
        largest = max(map(abs, terms), default=0.0) or 1.0
        self.rows.append(largest)
        row = model.add_linear_constraint()
        model.set_constraint_lower_bound(row, least / largest)
        model.set_constraint_upper_bound(row, math.inf)
        for column, term in zip(columns, terms, strict=True):
            model.safe_add_term_to_constraint(row, column, term / largest)
        if elastic:
            missing = model.add_var()
            model.set_var_lower_bound(missing, 0.0)
            model.set_var_objective_coefficient(missing, 1.0)
            model.safe_add_term_to_constraint(row, missing, 1.0)

    def stop(self) -> None:
        """Ask GLOP to stop."""
        self.solver.interrupt_solve()

    def solve(self) -> Answer:
        """Solve; see `Job`."""
        self.solver.solve(self.model)
        status, codes = self.solver.status(), self.helper.SolveStatus
        if self.solver.has_response():
            prices = self.solver.dual_values()
            if len(prices) == len(self.rows):  # empty if GLOP ended before it had prices
                self.prices = [price * self.cost / row for price, row in zip(prices, self.rows, strict=True)]
        if status == codes.INFEASIBLE:
            return Answer(Outcome.INFEASIBLE)
        if status != codes.OPTIMAL:
            return Answer(Outcome.UNKNOWN)
        shares = np.asarray(self.solver.variable_values()[: len(self.whole)], dtype=np.float64)
        return Answer(Outcome.OPTIMAL, shares * self.whole)
