"""`rotor` at many budgets: one table, or a pair of them, answers all.

Row r of a table stands for a known number of bytes (see `table`), so that the schedule for a smaller budget is
read off the highest row with no more bytes, and the bound off the lowest row with no fewer. Reading is O(L^2) array
operations; what costs is the filling, once, at the largest budget that needs it. Where the budgets are named, only what
one of them needs is filled: each has a limit on its time (see `limit`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from remat.plugin import Context, Number, Problem, Proposal, Steps, TaskGraph, format_size
from remat_algorithms.chain.rotor.limit import TimeLimit, once_times
from remat_algorithms.chain.rotor.rotor import RotorOptions, Setting, nearly
from remat_algorithms.chain.rotor.slots import (
    Ladder,
    Search,
    check_size,
    common_measure,
    default_slots,
    is_limited,
)
from remat_algorithms.chain.rotor.table import Grid, RotorTable, RowLimits, finest_unit
from remat_algorithms.chain.segments import Segments


def sweep(problem: Problem, options: RotorOptions, context: Context, budgets: Sequence[int] = ()) -> Iterator[Proposal]:
    """Answer many budgets of the processor's memory.

    Parameters
    ----------
    problem : Problem
        Of kind `chain` (or an `adjoint` without storage); its own budget is not used.
    options : RotorOptions
        `gap` is not used: all budgets share the slots.
    context : Context
        When stopped before the tables are full, the schedule of least memory stands in.
    budgets : sequence of int
        Total bytes, descending. Empty: the breakpoints of the time-memory curve.

    Yields
    ------
    Proposal
        One for each budget, within it; or one for each breakpoint, from the no-recompute schedule down to the one of
        least memory, each with its peak, and then the infeasible answer that names the least budget.

    Notes
    -----
    The table has as many slots as a single solve at the largest budget; smaller budgets have fewer of them, and a solve
    of their own may find better schedules.
    """
    setting = Setting(problem, context)
    if budgets:
        yield from _at_budgets(setting, options, [budget - setting.resident for budget in budgets])
    else:
        yield from _curve(setting, options)


@dataclass(frozen=True)
class _Curve:
    """The tables of schedules and of bounds, and the schedule of least memory, which competes.

    Attributes
    ----------
    exact : bool
        Whether stored sizes are whole slots.
    aligned : bool
        Whether the needs of running tasks are, too: then rows are all that there is to tell apart.
    """

    setting: Setting
    up: RotorTable | None
    down: RotorTable | None
    exact: bool
    aligned: bool
    least_runs: list[int]
    least_time: Number

    @staticmethod
    def of(setting: Setting, options: RotorOptions, room: int, rooms: Sequence[int] = ()) -> _Curve:
        """Fill the tables at the largest room; only what some of `rooms` need, if there are any."""
        segments, whole = setting.segments, setting.whole
        slots = options.slots or default_slots(segments)
        check_size(segments, slots)
        measure = common_measure(segments)
        aligned = measure >= finest_unit(segments, slots) and room // measure <= slots
        if aligned:
            unit, exact, room = measure, True, room // measure * measure
        else:
            ladder = Ladder.of(segments, whole.need, slots)
            rung = ladder.rung(room)
            unit, exact = ladder.units[rung], ladder.is_exact(rung)
        search = Search(segments, setting.least, whole, room, setting.context)
        runs = setting.least.runs()
        time, both = setting.time_of(runs), options.certificate and not exact
        limit = _limit(segments, Grid.of(segments, room, unit, up=True), rooms, time)
        up, down = search.pair(unit, both=both, limit=limit)
        curve = _Curve(setting, up, down, exact, aligned, runs, time)
        if not both or up is None or down is not None:
            return curve
        if isinstance(limit, Mapping):
            limit = {room: curve.time(room) for room in limit}
        return replace(curve, down=search.table(room, unit, up=False, limit=limit))

    def time(self, room: int) -> float:
        """Time of the best schedule for a room."""
        at = math.inf if self.up is None else self.up.best(self.up.grid.row(room))
        return min(at, self.least_time)

    def lower(self, room: int) -> float:
        """Lower bound for a room; -inf if there is none."""
        if self.aligned and self.up is not None:
            return self.time(room)
        table = self.up if self.exact else self.down
        if table is None:
            return -math.inf
        row = table.grid.row_above(room)
        value = table.best(row) if row >= 0 else -math.inf
        return value if value < math.inf else -math.inf

    def proposal(self, room: int) -> Proposal:
        """Read the schedule for a room, and its bound."""
        time = self.time(room)
        notes = []
        if self.up is not None and not self.exact:
            size = format_size(self.up.grid.unit, self.setting.problem.units)
            notes.append(f"memory in slots of {size}, shared by all budgets, stored sizes rounded up")
        row = None if self.up is None else self.up.grid.row(room)
        if self.up is None or row is None or self.up.best(row) > self.least_time:
            return self.setting.propose(self.least_runs, self.least_time, self.lower(room), notes)
        return self.setting.propose(self.up.runs(row), time, self.lower(room), notes)


def _limit(segments: Segments, grid: Grid, rooms: Sequence[int], known: Number) -> TimeLimit:
    """Return for each room the time of the better of two schedules: the one known, and a quickly found one."""
    if not rooms or not is_limited(segments, grid.start):
        return math.inf
    times = once_times(RowLimits.of(segments, grid))
    rows = {room: grid.row(room) for room in rooms}
    return {room: min(float(known), float(times[row]) if row >= 0 else math.inf) for room, row in rows.items()}


def _at_budgets(setting: Setting, options: RotorOptions, rooms: Sequence[int]) -> Iterator[Proposal]:
    curve = None
    for room in rooms:
        if setting.whole.need <= room:
            yield setting.nothing_recomputed()
        elif setting.least.least > room:
            yield setting.too_small()
        else:
            if curve is None:
                between = [each for each in rooms if setting.least.least <= each < setting.whole.need]
                curve = _Curve.of(setting, options, room, between)
            yield curve.proposal(room)


def _curve(setting: Setting, options: RotorOptions) -> Iterator[Proposal]:
    """Walk down the rows of the largest table: a breakpoint is the lowest row of its time."""
    lowest: int | None = None
    for proposal in _candidates(setting, options):
        if proposal.steps is None:
            yield proposal
            continue
        # Rounding may need more than the row before for more time: that is no breakpoint.
        peak = peak_in_order(setting.problem.graph, proposal.steps)
        if lowest is None or peak < lowest:
            lowest = peak
            yield replace(proposal, peak=peak)


def _candidates(setting: Setting, options: RotorOptions) -> Iterator[Proposal]:
    whole, room = setting.whole, setting.whole.need - 1
    least = setting.least.least
    if least > room:
        yield setting.nothing_recomputed()
        yield setting.too_small()
        return
    curve = _Curve.of(setting, options, room)
    rows = _breakpoints(curve, least)
    if not rows or (curve.time(rows[0]) > whole.time and not nearly(curve.time(rows[0]), whole.time)):
        yield setting.nothing_recomputed()
    for row in rows:
        yield curve.proposal(row)
    yield setting.too_small()


def _breakpoints(curve: _Curve, least: int) -> list[int]:
    """Return the rooms, descending, at which the time changes; the last one is the least."""
    rooms = []
    if curve.up is not None:
        grid = curve.up.grid
        times = np.minimum(curve.up.row(0, curve.setting.segments.length)[: grid.start + 1], float(curve.least_time))
        last = np.flatnonzero(np.concatenate(([True], times[1:] < times[:-1])))
        rooms = [grid.bytes(row) for row in last[::-1].tolist() if times[row] < curve.least_time]
    return [*(room for room in rooms if room > least), least]


def peak_in_order(graph: TaskGraph, steps: Steps) -> int:
    """Return the peak of runs one after the other in one memory, each value freed by a run (array operations)."""
    order, size, values = steps.item, graph.size, len(graph.size)
    reads, writes, drops = graph.reads.gather(order), graph.writes.gather(order), steps.drop
    own = np.isin(drops.rows * values + drops.items, reads.rows * values + reads.items)
    made, freed, given = (np.zeros(len(order), dtype=np.int64) for _ in range(3))
    np.add.at(made, writes.rows, size[writes.items])
    np.add.at(freed, drops.rows, size[drops.items])
    np.add.at(given, drops.rows[own], size[drops.items[own]])
    resident = graph.static_memory + int(sum(size[place.value] for place in graph.inputs))
    before = resident + np.concatenate(([0], np.cumsum(made - freed)[:-1]))
    during = before + np.where(graph.in_place[order], np.maximum(0, made - given), made) + graph.workspace[order]
    return int(during.max(initial=resident))
