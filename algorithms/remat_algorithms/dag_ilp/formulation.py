"""The integer program of Checkmate (Jain et al. 2020) over frontier-advancing schedules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from remat_algorithms.dag_ilp.frontier import Frontier
from remat_algorithms.dag_ilp.program import INFINITY, FloatArray, Program, ProgramBuilder

FINEST = 2**22
"""Sizes are exact in the program if the budget is at most so many times their greatest common divisor."""

DEAREST = 2**30
"""Likewise for times: what all runs together may cost, in units."""

MOST_ENTRIES = 6_000_000
"""Most entries of the memory rows; beyond, building the program alone takes minutes."""


class TooLarge(Exception):
    """The program would have more than `MOST_ENTRIES` entries."""


@dataclass(frozen=True)
class Instant:
    """A moment at which a run may take place: what is held then.

    Attributes
    ----------
    run : int
        The run's column.
    held : tuple of (column, bytes)
        Values that may be resident.
    added, workspace : int
        Bytes that the run writes, and that it takes besides.
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
    """The program, and what its columns mean.

    Attributes
    ----------
    builder : ProgramBuilder
        Cuts may be added.
    runs : mapping of (stage, position) to column
    chains : list of lists of Use
        Each value's possible uses, in order.
    borders : list of mappings of value to column
        What may be resident when each stage begins.
    instants : list of Instant
        Those at which memory may run short.
    memory_unit : int
        What memory rows count in.
    time_unit : int or float
        What the objective counts in; costs are rounded down to it.
    exact_time : bool
        Whether nothing was rounded.
    base_cost : int
        What all solutions cost on top of the objective.
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
        """Return the program that decides among solutions by the times' remainders, which had been rounded away.

        Every schedule costs at least ``least`` units; one that costs more than ``least + slack`` cannot be
        better than the one known. With u units more than the least, the true cost is
        unit * least + unit * u + the sum of the remainders: small numbers to minimise. The builder is shared.

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
            cost[column] = 0.0 if own else float(int(front.time[position]) % unit)
        return replace(self, time_unit=1, exact_time=True, base_cost=least * unit)

    def program(self) -> Program:
        """Return the program with all cuts so far."""
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

        Each row forbids a minimal set of columns that together exceed the room; where runs in place are
        involved, it forbids this one choice of runs.
        """
        found = False
        for instant in self.instants:
            if solution[instant.run] < 0.5:
                continue
            items = sorted(
                ((size, column) for column, size in instant.held if size and solution[column] > 0.5), reverse=True
            )
            gone = sum(
                size
                for before, after, size in instant.reused
                if solution[before] > 0.5 and (after is None or solution[after] < 0.5)
            )
            total = instant.workspace + max(0, instant.added - gone) + sum(size for size, _ in items)
            if total <= room:
                continue
            found = True
            if instant.own is not None:
                self._forbid(solution)
                return True
            cover, bytes_there = [instant.run], instant.workspace + instant.added
            for size, column in items:
                if bytes_there > room:
                    break
                cover.append(column)
                bytes_there += size
            self.builder.add_row([(column, 1) for column in cover], upper=len(cover) - 1)
        return found

    def _forbid(self, solution: FloatArray) -> None:
        ones = [column for column in self.runs.values() if solution[column] > 0.5]
        zeros = [column for column in self.runs.values() if solution[column] <= 0.5]
        entries = [(column, 1.0) for column in ones] + [(column, -1.0) for column in zeros]
        self.builder.add_row(entries, upper=len(ones) - 1)

    def chosen(self, solution: FloatArray, threshold: float = 0.5) -> list[tuple[int, int]]:
        """Return the runs (stage, position) whose column is at least the threshold."""
        return [key for key, column in self.runs.items() if solution[column] >= threshold]


def formulate(front: Frontier, budget: int, *, most_cost: float = INFINITY, integral: bool = True) -> Formulation:
    """Build the program for a budget.

    Parameters
    ----------
    front : Frontier
    budget : int
        Capacity, in bytes.
    most_cost : float
        Reruns that alone take longer are left out: the time beyond the forced runs of a known schedule.
    integral : bool
        Whether runs are integer columns (else continuous, for the relaxation).

    Raises
    ------
    TooLarge

    Notes
    -----
    R[t, i] = 1 if the task at position i runs in stage t. A value's life is a chain of segments between the runs that
    may read or write it, in the order of all stages; the segment x before such a run and y after it obey

        run reads the value:    x >= R,  x >= y            (freed after this use if y = 0),
        run writes the value:   y <= x + R,  x + R <= 1    (an old copy is dropped before it is written afresh),

    and does both: x >= R, x >= y. At every instant the segments' bytes, with the bytes that the run writes and
    its workspace (never part of any recurrence) times R, are at most the budget. This is Checkmate's program
    with S[t, v] the segment at the border of two stages and the freeing F = x - y <= R disaggregated by use; the
    relaxation is the same, with one column for all borders between which a value cannot be used. Given integer
    R, the least feasible segments are integers, so only R is declared integer.

    A run in place adds a >= 0, a >= writes R - sum M (x - y) over what it reads, instead of its writes.

    Sizes and times are divided by their greatest common divisors; where they are still too fine for floating-point
    solvers (`FINEST`, `DEAREST`) they are rounded *down*: the program is then a relaxation, whose solutions are
    replayed with the true sizes, and cut off if they do not fit.
    """
    return _Construction(front, budget, most_cost, integral).build()


class _Construction:
    def __init__(self, front: Frontier, budget: int, most_cost: float, integral: bool) -> None:
        self.front, self.most_cost, self.integral = front, most_cost, integral
        self.room = budget - front.fixed
        self.builder = ProgramBuilder()
        self.runs: dict[tuple[int, int], int] = {}
        self.memory_unit = _memory_unit(front, self.room)
        self.time_unit, self.exact_time = time_unit(front)

    def build(self) -> Formulation:
        self._add_runs()
        self.uses: dict[tuple[int, int, int], Use] = {}
        self.chains: list[list[Use]] = []
        self.stays: list[bool] = []
        self.borders: list[dict[int, int]] = []
        starts: dict[int, int | None] = {}
        for value in range(len(self.front.size)):
            if self.front.makers[value] or self.front.users[value] or value in self.front.outputs:
                starts[value] = self._add_chain(value)
        instants = self._add_memory(starts)
        return Formulation(
            self.builder,
            self.runs,
            self.chains,
            self.stays,
            self.borders,
            instants,
            self.memory_unit,
            self.time_unit,
            self.exact_time,
        )

    def _add_runs(self) -> None:
        front = self.front
        for stage in range(front.stages):
            for position in range(front.end[stage] + 1):
                if not front.may_run(stage, position):
                    continue
                own = front.forced[position] and front.first[position] == stage
                if not own and ((front.forced[position] and front.single[position]) or self._too_dear(position)):
                    continue
                cost = 0.0 if own else float(_units(front.time[position], self.time_unit))
                self.runs[stage, position] = self.builder.add_column(
                    cost=cost, lower=1 if own else 0, integer=self.integral and not own
                )
        for position, single in enumerate(front.single):
            if single and not front.forced[position]:
                entries = [
                    (self.runs[stage, position], 1.0) for stage in range(front.stages) if (stage, position) in self.runs
                ]
                if len(entries) > 1:
                    self.builder.add_row(entries, upper=1)

    def _too_dear(self, position: int) -> bool:
        return self.front.time[position] > self.most_cost

    def _add_chain(self, value: int) -> int | None:
        """Add the segments of a value's life; return the first one."""
        front, add_row = self.front, self.builder.add_row
        makers, users = set(front.makers[value]), set(front.users[value])
        touching = sorted(makers | users)
        events = [
            (stage, position)
            for stage in range(front.stages)
            for position in touching
            if position <= front.end[stage] and (stage, position) in self.runs
        ]
        reads_left = sum(position in users for _, position in events)
        stays = value in front.outputs
        current = self.builder.add_column() if value in front.inputs else None
        start = current
        chain: list[Use] = []
        for index, (stage, position) in enumerate(events):
            run = self.runs[stage, position]
            reading, making = position in users, position in makers
            reads_left -= reading
            before = current
            after: int | None = None
            if (reads_left or stays) and (before is not None or making):
                last = index == len(events) - 1
                after = self.builder.add_column(lower=1 if last and stays else 0)
            if reading:
                if before is None:
                    self.builder.upper[run] = 0  # infeasible if the run is forced
                else:
                    add_row([(before, 1), (run, -1)], lower=0)
                    if after is not None:
                        add_row([(before, 1), (after, -1)], lower=0)
            elif before is None:
                if after is not None:
                    add_row([(run, 1), (after, -1)], lower=0)
            else:
                add_row([(before, 1), (run, 1)], upper=1)
                if after is not None:
                    add_row([(before, 1), (run, 1), (after, -1)], lower=0)
            use = Use(run, reading, making, before, after)
            self.uses[stage, position, value] = use
            chain.append(use)
            current = after
        self.chains.append(chain)
        self.stays.append(stays)
        if stays and not events:
            if start is None:
                add_row([], lower=1)  # nobody can make it
            else:
                self.builder.lower[start] = 1
        elif stays and current is None:
            add_row([], lower=1)
        return start

    def _add_memory(self, starts: dict[int, int | None]) -> list[Instant]:
        front, size = self.front, self.front.size
        live = {value: column for value, column in starts.items() if column is not None}
        total = sum(size[value] for value in live)
        instants: list[Instant] = []
        entries = 0
        for (stage, position), run in sorted(self.runs.items()):
            while len(self.borders) <= stage:
                self.borders.append(dict(live))
            touched = dict.fromkeys((*front.reads[position], *front.writes[position]))
            added = front.written[position] + front.workspace[position]
            if total + added > self.room and self.builder.upper[run] > 0:
                instant = self._instant(stage, position, run, live)
                instants.append(instant)
                self._add_memory_row(instant)
                entries += len(live)
                if entries > MOST_ENTRIES:
                    raise TooLarge
            for value in touched:
                key = stage, position, value
                if key not in self.uses:
                    continue
                after = self.uses[key].after
                if value in live:
                    total -= size[value]
                    del live[value]
                if after is not None:
                    live[value] = after
                    total += size[value]
        while len(self.borders) < front.stages:
            self.borders.append(dict(live))
        return instants

    def _instant(self, stage: int, position: int, run: int, live: dict[int, int]) -> Instant:
        front = self.front
        reused = []
        if front.in_place[position]:
            for value in front.reads[position]:
                use = self.uses.get((stage, position, value))
                if use is not None and use.before is not None and not use.making and front.size[value]:
                    reused.append((use.before, use.after, front.size[value]))
        held = tuple((column, front.size[value]) for value, column in live.items() if front.size[value])
        own = self.builder.add_column(upper=INFINITY) if reused else None
        return Instant(run, held, front.written[position], front.workspace[position], own, tuple(reused))

    def _add_memory_row(self, instant: Instant) -> None:
        unit = self.memory_unit
        entries = [(column, float(size // unit)) for column, size in instant.held if size >= unit]
        own = instant.own
        if own is not None:
            # The bytes added, at the least: outputs less what they take over.
            row = [(own, 1.0), (instant.run, -float(instant.added // unit))]
            for before, after, size in instant.reused:
                row.append((before, float(-(-size // unit))))
                if after is not None:
                    row.append((after, -float(-(-size // unit))))
            self.builder.add_row(row, lower=0)
            entries += [(own, 1.0), (instant.run, float(instant.workspace // unit))]
        else:
            entries.append((instant.run, float((instant.added + instant.workspace) // unit)))
        self.builder.add_row(entries, upper=float(self.room // unit))


def _memory_unit(front: Frontier, room: int) -> int:
    """Return the unit of sizes: their greatest common divisor, or more where that is too fine."""
    unit = 0
    for size in (*front.size, *front.written, *front.workspace):
        unit = gcd(unit, size)
    unit = max(1, unit)
    return unit if room <= unit * FINEST else max(unit, room // FINEST)


def time_unit(front: Frontier) -> tuple[int | float, bool]:
    """Return the unit of times, and whether all of them are multiples of it."""
    if all(isinstance(time, int) for time in front.time):
        unit = 0
        for time in front.time:
            unit = gcd(unit, int(time))
        unit = max(1, unit)
        total = int(sum(front.time))
        return (unit, True) if total <= unit * DEAREST else (max(unit, total // DEAREST), False)
    largest = max(front.time, default=0)
    return (largest / 1024 if largest else 1.0), True


def _units(time: int | float, unit: int | float) -> int | float:
    return time // unit if isinstance(time, int) and isinstance(unit, int) else time / unit
