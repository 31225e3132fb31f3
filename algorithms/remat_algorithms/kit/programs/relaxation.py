"""Linear relaxations whose bounds owe nothing to tolerances: a solver finds prices, whole numbers prove what they say.

Of a program

    minimise c x,   A x >= b,   0 <= x <= u

with whole A, b, c and u, and any prices y >= 0 of its rows, every solution costs at least

    y b + sum of min(0, (c - y A)_j) u_j.

A floating point number is a whole multiple of a power of two, so that this is a sum of whole numbers, whatever y is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from itertools import pairwise
from typing import Any

from remat.plugin import Number
from remat_algorithms.kit.programs.answers import Answer, Job, Outcome, watched
from remat_algorithms.kit.programs.program import ProgramBuilder

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


def _exponent(numbers: Iterable[Number]) -> int:
    """Return the power of two next to the largest of some numbers."""
    return math.frexp(max((abs(float(number)) for number in numbers), default=0.0))[1]


class _Glop(Job):
    """GLOP, through OR-Tools' model builder, with the prices of the rows."""

    def __init__(self, program: ProgramBuilder, work: float | None, *, elastic: bool = False) -> None:
        """Hand a program over; if `elastic`, that of missing its rows by as little as can be."""
        helper: Any = import_module("ortools.linear_solver.python.model_builder_helper")
        built = program.build()
        self.helper = helper
        self.prices: list[float] = []
        model = helper.ModelBuilderHelper()
        model.add_var_array_with_bounds(built.lower, built.upper, built.relaxed().integer, "")
        # Bytes beside shares, and times: GLOP's tolerances are absolute, so that rows and costs are brought near 1.
        exponent = 0 if elastic else _exponent(program.cost)
        for number, cost in enumerate(program.cost):
            if cost and not elastic:
                model.set_var_objective_coefficient(number, math.ldexp(float(cost), -exponent))
        columns, coefficients = program.column, built.coefficient.tolist()
        self.exponents: list[int] = []
        for (first, last), least in zip(pairwise(program.row_start), built.row_lower.tolist(), strict=True):
            row, shift = model.add_linear_constraint(), _exponent(coefficients[first:last])
            self.exponents.append(exponent - shift)
            model.set_constraint_lower_bound(row, math.ldexp(least, -shift))
            model.set_constraint_upper_bound(row, math.inf)
            for entry in range(first, last):
                model.safe_add_term_to_constraint(row, columns[entry], math.ldexp(coefficients[entry], -shift))
            if elastic:
                missing = model.add_var()
                model.set_var_lower_bound(missing, 0.0)
                model.set_var_objective_coefficient(missing, 1.0)
                model.safe_add_term_to_constraint(row, missing, 1.0)
        self.model = model
        self.solver = helper.ModelSolverHelper("glop")
        self.solver.enable_output(False)
        limit = "" if work is None else f" max_deterministic_time: {work}"
        self.solver.set_solver_specific_parameters(f"use_dual_simplex: true{limit}")

    def stop(self) -> None:
        """Ask GLOP to stop."""
        self.solver.interrupt_solve()

    def solve(self) -> Answer:
        """Solve; see `Job`."""
        self.solver.solve(self.model)
        status, codes = self.solver.status(), self.helper.SolveStatus
        if self.solver.has_response():
            prices = self.solver.dual_values()
            self.prices = [math.ldexp(*pair) for pair in zip(prices, self.exponents[: len(prices)], strict=True)]
        if status == codes.INFEASIBLE:
            return Answer(Outcome.INFEASIBLE)
        if status != codes.OPTIMAL:
            return Answer(Outcome.UNKNOWN)
        return Answer(Outcome.OPTIMAL, self.solver.variable_values())
