"""Solver-independent linear and mixed-integer programs as arrays; the back ends translate them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from remat.plugin import BoolArray, IntArray

FloatArray = NDArray[np.float64]

INFINITY = float("inf")


@dataclass(frozen=True)
class Program:
    """Minimise `cost` times the columns, subject to bounds on columns and on the activities of rows.

    Attributes
    ----------
    cost, lower, upper : (columns,) float64
    integer : (columns,) bool
    row_start : (rows + 1,) int64
        Row i has the entries ``row_start[i]:row_start[i+1]`` of `column` and `coefficient`.
    column : (entries,) int64
        A column occurs at most once in a row.
    coefficient : (entries,) float64
    row_lower, row_upper : (rows,) float64
        Infinite where a row has no bound.
    """

    cost: FloatArray
    lower: FloatArray
    upper: FloatArray
    integer: BoolArray
    row_start: IntArray
    column: IntArray
    coefficient: FloatArray
    row_lower: FloatArray
    row_upper: FloatArray

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.cost)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.row_lower)

    def relaxed(self) -> Program:
        """Return the linear relaxation."""
        return Program(
            self.cost,
            self.lower,
            self.upper,
            np.zeros(self.columns, dtype=bool),
            self.row_start,
            self.column,
            self.coefficient,
            self.row_lower,
            self.row_upper,
        )

    def activity(self, solution: FloatArray) -> FloatArray:
        """Return the activity of each row at a point."""
        products = self.coefficient * solution[self.column]
        total = np.concatenate(([0.0], np.cumsum(products)))
        activity: FloatArray = total[self.row_start[1:]] - total[self.row_start[:-1]]
        return activity


@dataclass
class ProgramBuilder:
    """Collect columns and rows one by one; integers of any size stay exact until `build`."""

    cost: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    row_start: list[int] = field(default_factory=lambda: [0])
    column: list[int] = field(default_factory=list)
    coefficient: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)

    def add_column(self, *, cost: float = 0, lower: float = 0, upper: float = 1, integer: bool = False) -> int:
        """Add a column and return its index."""
        self.cost.append(cost)
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.cost) - 1

    def add_row(
        self, entries: Iterable[tuple[int, float]], *, lower: float = -INFINITY, upper: float = INFINITY
    ) -> int:
        """Add a row of (column, coefficient) entries, summed per column, and return its index."""
        merged: dict[int, float] = {}
        for column, coefficient in entries:
            merged[column] = merged.get(column, 0) + coefficient
        self.column.extend(merged.keys())
        self.coefficient.extend(merged.values())
        self.row_start.append(len(self.column))
        self.row_lower.append(lower)
        self.row_upper.append(upper)
        return len(self.row_lower) - 1

    @property
    def entries(self) -> int:
        """Number of coefficients."""
        return len(self.column)

    def build(self) -> Program:
        """Return the program collected up to now; the builder remains usable."""
        return Program(
            np.array(self.cost, dtype=np.float64),
            np.array(self.lower, dtype=np.float64),
            np.array(self.upper, dtype=np.float64),
            np.array(self.integer, dtype=bool),
            np.array(self.row_start, dtype=np.int64),
            np.array(self.column, dtype=np.int64),
            np.array(self.coefficient, dtype=np.float64),
            np.array(self.row_lower, dtype=np.float64),
            np.array(self.row_upper, dtype=np.float64),
        )
