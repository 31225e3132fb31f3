"""`poet`'s program for CP-SAT: all columns integral, in integral units of time and memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from remat.plugin import BoolArray, IntArray
from remat_algorithms.kit.programs.program import INFINITY, FloatArray
from remat_algorithms.offload.poet.program import IDLE, PoetProgram

COARSE = 2**26
"""Units of all times together, if they are not integers."""

MOST_ENERGY = 2**45
"""Units of all energies together, if they are not integers or too large."""

HUGE = 2**62
"""Represents an absent bound."""

LOOK = 1000
"""Rows that are handed over between two checks whether to stop."""


class SatProgram:
    """The program in integers, with times rounded up; some of its columns may be fixed.

    Parameters
    ----------
    form : PoetProgram

    Attributes
    ----------
    cost, lower, upper : (columns,) int64
    row_start, column, factor, least, most : int64
        The rows, as in `remat_algorithms.kit.programs.program.Program`.
    """

    def __init__(self, form: PoetProgram) -> None:
        self.form, program = form, form.builder.build()
        taus = np.zeros(program.columns, dtype=bool)
        taus[form.taus] = True
        self.row_start, self.column = program.row_start, program.column
        rows = np.repeat(np.arange(program.rows), np.diff(self.row_start))
        timed = np.zeros(program.rows, dtype=bool)
        timed[rows[taus[self.column]]] = True
        times = -program.coefficient[timed[rows] & ~taus[self.column]]
        whole = form.time_unit == 1 and bool((times == np.rint(times)).all())
        unit = 1.0 if whole else max(1.0, float(times.sum())) / COARSE
        scaled = np.where(timed[rows] & ~taus[self.column], np.floor(program.coefficient / unit), program.coefficient)
        self.factor = scaled.astype(np.int64)
        self.least = _whole(program.row_lower, np.ceil)
        self.most = _whole(program.row_upper, np.floor)
        if form.deadline_row is not None:
            self.most[form.deadline_row] = int(min(program.row_upper[form.deadline_row] // unit, HUGE))
        self.lower = program.lower.astype(np.int64)
        longest = int(np.ceil(times / unit).sum())
        self.upper = np.where(program.upper == INFINITY, longest, program.upper).astype(np.int64)
        if form.goal is None:
            # A unit of a stage costs a thousand times as much as one of an overlapped copy or recomputation.
            self.cost = np.ceil(program.cost / np.where(taus, IDLE, IDLE * unit) - 1e-6).astype(np.int64)
        else:
            self.cost = _whole_energies(program.cost)

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.cost)

    def model(
        self, stopped: Callable[[], bool], values: IntArray | None = None, free: BoolArray | None = None
    ) -> Partial | None:
        """Return a model of the free columns, with all others fixed to the given values; None if it was stopped.

        Without `free`, all columns are free, and the values are a hint.
        """
        from ortools.sat.python import cp_model

        model: Any = cp_model.CpModel()
        every = np.arange(self.columns) if free is None else np.flatnonzero(free)
        bounds = zip(self.lower[every].tolist(), self.upper[every].tolist(), strict=True)
        variables = [model.new_int_var(low, high, "") for low, high in bounds]
        index = np.zeros(self.columns, dtype=np.int64)
        index[every] = np.arange(len(every))
        open_entries = np.ones(len(self.column), dtype=bool) if free is None else free[self.column]
        fixed = np.where(open_entries, 0, self.factor * (0 if values is None else values[self.column]))
        taken, many = self._sums(fixed), self._sums(open_entries.astype(np.int64))
        rows = np.flatnonzero(many)
        own, factors = index[self.column[open_entries]].tolist(), self.factor[open_entries].tolist()
        least = np.where(self.least == -HUGE, -HUGE, self.least - taken)[rows].tolist()
        most = np.where(self.most == HUGE, HUGE, self.most - taken)[rows].tolist()
        first = 0
        for row, (count, low, high) in enumerate(zip(many[rows].tolist(), least, most, strict=True)):
            if row % LOOK == 0 and stopped():
                return None
            part = slice(first, first + count)
            total = cp_model.LinearExpr.weighted_sum([variables[k] for k in own[part]], factors[part])
            low, high = cp_model.INT_MIN if low == -HUGE else low, cp_model.INT_MAX if high == HUGE else high
            model.add_linear_constraint(total, low, high)
            first += count
        model.minimize(cp_model.LinearExpr.weighted_sum(variables, self.cost[every].tolist()))
        if free is None and values is not None:
            for variable, value in zip(variables, values.tolist(), strict=True):
                model.add_hint(variable, value)
        start = np.zeros(self.columns, dtype=np.int64) if values is None else values
        return Partial(model, variables, every, start)

    def _sums(self, entries: IntArray) -> IntArray:
        """Add up the entries of each row."""
        total = np.concatenate(([0], np.cumsum(entries)))
        sums: IntArray = total[self.row_start[1:]] - total[self.row_start[:-1]]
        return sums

    def total(self, values: IntArray) -> int:
        """Return the cost of values."""
        return int(self.cost @ values)


@dataclass(frozen=True)
class Partial:
    """A model of some columns, and how to read its solutions.

    Attributes
    ----------
    model : CpModel
    variables : list
        Variables of the columns `free`.
    free : (free,) int64
    values : (columns,) int64
        Values of all columns, for those that are not free.
    """

    model: Any
    variables: list[Any]
    free: IntArray
    values: IntArray

    def read(self, value: Callable[[Any], int]) -> IntArray:
        """Return all columns of a solution."""
        found = self.values.copy()
        found[self.free] = [value(variable) for variable in self.variables]
        return found


def _whole_energies(cost: FloatArray) -> IntArray:
    """Return energies as integers: exact if they are integers that add up to at most `MOST_ENERGY`, else scaled."""
    total = float(cost.sum())
    unit = 1.0 if total <= MOST_ENERGY and bool((cost == np.rint(cost)).all()) else total / MOST_ENERGY
    whole: IntArray = np.rint(cost / (unit or 1.0)).astype(np.int64)
    return whole


def _whole(bounds: FloatArray, rounded: Callable[[FloatArray], FloatArray]) -> IntArray:
    """Return bounds as integers, infinite ones and those beyond `HUGE` as `HUGE`."""
    finite = np.abs(bounds) < HUGE
    whole = rounded(np.where(finite, bounds, 0)).astype(np.int64)
    result: IntArray = np.where(finite, whole, np.where(bounds > 0, HUGE, -HUGE))
    return result
