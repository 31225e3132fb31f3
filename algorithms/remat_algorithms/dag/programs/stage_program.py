"""The stage program and the meaning of its columns: conversion of solutions, cuts, refinement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from remat_algorithms.dag.programs.frontier import Frontier
from remat_algorithms.kit.programs.program import FloatArray, Program, ProgramBuilder


@dataclass(frozen=True)
class Instant:
    """A point in time at which a run may take place, with the values held then.

    Attributes
    ----------
    run : int
        The run's column.
    held : tuple of (column, bytes)
        Values that may be resident.
    added, workspace : int
        Bytes that the run writes, and its workspace.
    own : int or None
        The column of the bytes that a run in place adds.
    reused : tuple of (column, column, bytes)
        For a run in place: the columns before and after it of each value whose bytes it may take over.
    """

    run: int
    held: tuple[tuple[int, int], ...]
    added: int
    workspace: int
    own: int | None = None
    reused: tuple[tuple[int, int | None, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Use:
    """A run that may read or write a value: the run's column, the value's columns before and after it."""

    run: int
    reading: bool
    making: bool
    before: int | None
    after: int | None


@dataclass(frozen=True)
class Formulation:
    """The program, and the meaning of its columns.

    Attributes
    ----------
    builder : ProgramBuilder
        Cuts may be added.
    runs : mapping of (stage, position) to column
    chains : list of lists of Use
        Each value's possible uses, in order.
    borders : list of mappings of value to column
        Values that may be resident when each stage begins.
    instants : list of Instant
        Those at which memory may run short.
    memory_unit : int
        Unit of the memory rows, in bytes.
    time_unit : int or float
        Unit of the objective; costs are rounded down to it.
    exact_time : bool
        Whether no time was rounded.
    base_cost : int
        Cost of every solution in addition to the objective.
    """

    builder: ProgramBuilder
    runs: dict[tuple[int, int], int]
    chains: list[list[Use]]
    stays: list[bool]
    borders: list[dict[int, int]]
    instants: list[Instant]
    memory_unit: int
    time_unit: int | float
    exact_time: bool
    base_cost: int = 0

    def refined(self, front: Frontier, least: int, slack: int) -> Formulation:
        """Return the program that chooses among solutions by the remainders that the rounding of times removed.

        Every schedule costs at least ``least`` units; one that costs more than ``least + slack`` cannot be better than
        the known one. With u units above the minimum, the true cost is unit * least + unit * u + the sum of the
        remainders. The numbers to minimize are therefore small. The builder is shared.

        Parameters
        ----------
        front : Frontier
        least : int
            Proved optimum of the rounded costs.
        slack : int
        """
        unit, cost = int(self.time_unit), self.builder.cost
        more = self.builder.add_column(cost=float(unit), upper=float(slack), integer=True)
        entries = [(column, cost[column]) for column in self.runs.values() if cost[column]]
        self.builder.add_row([*entries, (more, -1.0)], lower=float(least), upper=float(least))
        for (stage, position), column in self.runs.items():
            own = front.forced[position] and front.first[position] == stage
            cost[column] = 0.0 if own else float(int(front.rerun_cost(stage, position)) % unit)
        return replace(self, time_unit=1, exact_time=True, base_cost=least * unit)

    def program(self) -> Program:
        """Return the program with all current cuts."""
        return self.builder.build()

    def point(self, chosen: Iterable[tuple[int, int]]) -> FloatArray:
        """Return the columns' values for a set of runs: each segment as short as the runs allow."""
        solution = np.array(self.builder.lower, dtype=np.float64)
        for key in chosen:
            if key in self.runs:
                solution[self.runs[key]] = 1
        for chain, stays in zip(self.chains, self.stays, strict=True):
            wanted = 1.0 if stays else 0.0
            for use in reversed(chain):
                if use.after is not None:
                    solution[use.after] = wanted
                run = solution[use.run]
                wanted = max(run, wanted) if use.reading else max(0.0, wanted - run)
                if use.before is not None:
                    solution[use.before] = wanted
        unit = self.memory_unit
        for instant in self.instants:
            if instant.own is not None:
                added = (instant.added // unit) * solution[instant.run]
                for before, after, size in instant.reused:
                    gone = solution[before] - (0 if after is None else solution[after])
                    added -= -(-size // unit) * gone
                solution[instant.own] = max(0.0, added)
        return solution

    def cut_off(self, solution: FloatArray, room: int) -> bool:
        """Add a row for each instant at which a point takes more than `room` bytes; False if there is none.

        Each row forbids a set of columns that together exceed the memory, whatever else is chosen.
        """
        found = False
        for instant in self.instants:
            if solution[instant.run] > 0.5:
                cover = _cover(instant, solution, room)
                if cover:
                    found = True
                    self.builder.add_row([(column, 1) for column in cover], upper=len(cover) - 1)
        return found

    def chosen(self, solution: FloatArray, threshold: float = 0.5) -> list[tuple[int, int]]:
        """Return the runs (stage, position) whose column is at least the threshold."""
        return [key for key, column in self.runs.items() if solution[column] >= threshold]


def _cover(instant: Instant, solution: FloatArray, room: int) -> list[int]:
    """Return columns of a point that together exceed the memory at an instant; empty if the point fits.

    If the run may take over a value's bytes, it counts as doing so unless the cover contains the column after the run,
    too. Each further value adds its bytes, and reduces those that the run adds by no more.
    """
    gone = {
        before
        for before, after, _ in instant.reused
        if solution[before] > 0.5 and (after is None or solution[after] < 0.5)
    }
    behind = {before: after for before, after, _ in instant.reused}
    there = [(column in gone, -size, column, size) for column, size in instant.held if size and solution[column] > 0.5]
    cover, held, added = [instant.run], instant.workspace, instant.added
    for taken, _, column, size in sorted(there):
        if held + max(0, added) > room:
            break
        held += size
        cover.append(column)
        after = behind.get(column)
        if taken:
            added -= size
        elif after is not None:
            cover.append(after)
    return cover if held + max(0, added) > room else []
