"""`rotor` at many budgets: one table, or a pair of them, answers all.

Row r of a table stands for a known number of bytes (see `rotor_table`), so that the schedule for a smaller budget is
read off the highest row with no more bytes, and the bound off the lowest row with no fewer. Reading is O(L^2) array
operations; what costs is the filling, once, at the largest budget that needs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from remat.context import Context
from remat.problem import Problem, Proposal
from remat.units import Number, format_size
from remat_algorithms.chain.rotor import RotorOptions, Setting
from remat_algorithms.chain.rotor_slots import Ladder, Search, default_slots
from remat_algorithms.chain.rotor_table import RotorTable


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
        least memory, and then the infeasible answer that names the least budget.

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
    """The tables of schedules and of bounds, and the schedule of least memory, which competes."""

    setting: Setting
    up: RotorTable | None
    down: RotorTable | None
    exact: bool
    least_runs: list[int]
    least_time: Number

    @staticmethod
    def of(setting: Setting, options: RotorOptions, room: int) -> _Curve:
        """Fill the tables at the largest room."""
        segments, whole = setting.segments, setting.whole
        ladder = Ladder.of(segments, whole.need, options.slots or default_slots(segments))
        rung = ladder.rung(room)
        search = Search(segments, setting.least, whole, room, setting.context)
        runs = setting.least.runs()
        up, down = search.pair(ladder.units[rung], both=options.certificate)
        return _Curve(setting, up, down, ladder.is_exact(rung), runs, setting.time_of(runs))

    def time(self, room: int) -> float:
        """Time of the best schedule for a room."""
        at = math.inf if self.up is None else self.up.best(self.up.grid.row(room))
        return min(at, self.least_time)

    def lower(self, room: int) -> float:
        """Lower bound for a room; -inf if there is none."""
        if self.down is None:
            if self.exact and self.up is not None and self.up.grid.bytes(self.up.grid.row(room)) == room:
                return self.up.best(self.up.grid.row(room))
            return -math.inf
        row = self.down.grid.row(room)
        value = self.down.best(row) if row >= 0 else -math.inf
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


def _at_budgets(setting: Setting, options: RotorOptions, rooms: Sequence[int]) -> Iterator[Proposal]:
    curve = None
    for room in rooms:
        if setting.whole.need <= room:
            yield setting.nothing_recomputed()
        elif setting.least.least > room:
            yield setting.too_small()
        else:
            if curve is None:
                curve = _Curve.of(setting, options, room)
            yield curve.proposal(room)


def _curve(setting: Setting, options: RotorOptions) -> Iterator[Proposal]:
    """Walk down the rows of the largest table: a breakpoint is the lowest row of its time."""
    yield setting.nothing_recomputed()
    least, room = setting.least.least, setting.whole.need - 1
    if least <= room:
        curve = _Curve.of(setting, options, room)
        latest: float = setting.whole.time
        if curve.up is not None:
            grid = curve.up.grid
            times = [min(float(time), curve.least_time) for time in curve.up.row(0, setting.segments.length)]
            for row in range(grid.start, 0, -1):
                feasible = least <= grid.bytes(row)
                if feasible and times[row] > latest and times[row] < curve.least_time and times[row - 1] > times[row]:
                    latest = times[row]
                    yield curve.proposal(grid.bytes(row))
            if grid.bytes(0) >= least and latest < times[0] < curve.least_time:
                latest = times[0]
                yield curve.proposal(grid.bytes(0))
        if curve.least_time > latest or setting.whole.need > least:
            yield curve.proposal(least)
    yield setting.too_small()
