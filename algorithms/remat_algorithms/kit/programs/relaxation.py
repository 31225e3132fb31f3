"""Linear relaxations whose bounds owe nothing to tolerances: a solver finds prices, whole numbers prove what they say.

Of a program

    minimise c x,   A x >= b,   0 <= x <= u

with whole A, b, c and u, and any prices y >= 0 of its rows, every solution costs at least

    y b + sum of min(0, (c - y A)_j) u_j.

A floating point number is a whole multiple of a power of two, so that this is a sum of whole numbers, whatever y is.
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
"""Prices are whole multiples of 2 to the power of minus this; what is left of smaller ones is given away."""


@dataclass(frozen=True)
class Relaxation:
    """What a linear relaxation says.

    Attributes
    ----------
    bound : int
        No solution of the program costs less; proved, and at least 0. Of an infeasible relaxation, see `infeasible`.
    values : list of float
        Of all columns; empty where the solver came to no end. Nobody has checked them.
    infeasible : bool
        Whether it is proved that there is no solution at all.
    prices : list of float
        Of the rows, likewise.
    """

    bound: int
    values: Sequence[float] = ()
    infeasible: bool = False
    prices: Sequence[float] = ()


def relaxed(program: ProgramBuilder, *, stopped: Callable[[], bool], work: float | None = None) -> Relaxation:
    """Solve the linear relaxation of a program of columns from 0 up, with lower bounds of rows only.

    Parameters
    ----------
    program : ProgramBuilder
        Costs and coefficients are whole numbers.
    stopped : callable
        Asked every `POLL_SECONDS`.
    work : float, optional
        Limit in GLOP's own units, for answers that do not depend on the clock.
    """
    job = _Glop(program, work)
    answer = watched(job, stopped)
    if answer.outcome is not Outcome.INFEASIBLE:
        return Relaxation(max(0, math.ceil(proved(program, job.prices))), answer.values, prices=job.prices)
    # Of how much the rows must be missed, in all: prices that say so are the proof that none is not enough.
    missed = _Glop(program, work, elastic=True)
    watched(missed, stopped)
    return Relaxation(0, infeasible=proved(program, missed.prices, costs=False) > 0)


def proved(program: ProgramBuilder, prices: Sequence[float], *, costs: bool = True) -> Fraction:
    """Return what prices of the rows prove, exactly; without costs, more than 0 says that there is no solution."""
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
    """GLOP, through OR-Tools' model builder, with the prices of the rows.

    It is handed shares: columns are parts of their upper bounds, rows and costs parts of their largest terms. Bytes and
    times as they are take it to its tolerances.
    """

    def __init__(self, program: ProgramBuilder, work: float | None, *, elastic: bool = False) -> None:
        """Hand a program over; if `elastic`, that of missing its rows by as little as can be."""
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
            if len(prices) == len(self.rows):  # there are none where it ended before it had any
                self.prices = [price * self.cost / row for price, row in zip(prices, self.rows, strict=True)]
        if status == codes.INFEASIBLE:
            return Answer(Outcome.INFEASIBLE)
        if status != codes.OPTIMAL:
            return Answer(Outcome.UNKNOWN)
        shares = np.asarray(self.solver.variable_values()[: len(self.whole)], dtype=np.float64)
        return Answer(Outcome.OPTIMAL, shares * self.whole)
