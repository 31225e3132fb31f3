"""Rotor's slots: how fine to round, which tables to fill for a budget, and what they prove together.

Units form a ladder that depends on the chain and the number of slots alone: the no-recompute schedule's memory
over the slots, 5/7 of that, half of that, and so on, down to the common divisor of all stored sizes, where nothing is
rounded any more. A budget takes the finest unit that divides it into no more than the slots. So small budgets are
rounded finely, and budgets of one rung share their rows: more memory only helps. Where a finer rung below might still
hold a better schedule (the coarse table of sizes rounded down says whether it might), the rung's largest budget is
solved as well: so more memory never hurts across rungs, either.

A budget wants only schedules better than one that is known already: tables of long chains are filled within that
limit (see `limit`), and finer rungs whose lower bound is beyond it are passed over without a table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from threading import Thread

import numpy as np

from remat.plugin import Context, OptionError
from remat_algorithms.chain.least_memory import LeastMemory
from remat_algorithms.chain.rotor.limit import SLACK, TimeLimit, once_bound, quick_bound
from remat_algorithms.chain.rotor.table import Grid, RotorTable, RowLimits, WholeTimes, cells_of, finest_unit
from remat_algorithms.chain.segments import COMPILED_FROM, Segments
from remat_algorithms.chain.states import Whole

MOST_BYTES = 2_500_000_000
"""Largest table that is filled without being asked for by name."""

LARGEST_BYTES = 16_000_000_000
"""Largest table that is filled at all."""

COARSE_FROM = 5_000_000_000
"""Additions (some seconds) from which on a coarse table is filled first, so that there is an early answer."""

LIMITED_FROM = 20_000_000
"""Additions from which on finding a limit costs less than it saves."""


@dataclass(frozen=True)
class Ladder:
    """The units of a chain for a number of slots, from coarse to fine."""

    units: tuple[int, ...]
    slots: int
    exact: bool  # whether the finest unit rounds nothing

    @staticmethod
    def of(segments: Segments, whole: int, slots: int) -> Ladder:
        """Build the ladder; `whole` are the bytes beyond x_0 of the no-recompute schedule."""
        states = segments.states
        common = math.gcd(*states.kept[: states.saved_through].tolist(), *segments.activation[1:].tolist())
        least = finest_unit(segments, slots)
        unit = max(least, -(-whole // slots))
        if common == 0:
            return Ladder((unit,), slots, True)
        units = []
        while unit > common and unit >= least:
            units.append(unit)
            unit = min(unit - 1, -(-unit * 5 // 7))
        exact = common >= least
        return Ladder((*units, common) if exact else tuple(units), slots, exact)

    def rung(self, room: int) -> int:
        """Return the index of the finest unit that makes no more than the slots of a room."""
        fitting = [index for index, unit in enumerate(self.units) if room // unit <= self.slots]
        return fitting[-1] if fitting else 0

    def largest(self, rung: int) -> int:
        """Return the largest room that takes a rung."""
        return (self.slots + 1) * self.units[rung] - 1

    def is_exact(self, rung: int) -> bool:
        """Whether a rung rounds nothing."""
        return self.exact and rung == len(self.units) - 1


@dataclass
class Search:
    """What is known of a chain at one budget, and the tables that tell more.

    Attributes
    ----------
    time, runs : least time found, and its runs
    lower : float
        Lower bound within the class; -inf where there is none.
    unit : int or None
        Bytes per slot of the finest table, None before the first.
    from_table : bool
        Whether the best schedule was read off a table.
    """

    segments: Segments
    least: LeastMemory
    whole: Whole
    room: int
    context: Context
    certificate: bool = True
    time: float = math.inf
    runs: list[int] = field(default_factory=list)
    lower: float = -math.inf
    unit: int | None = None
    exact: bool = False
    from_table: bool = False
    _least_time: float = math.inf
    _glanced: bool = False

    @property
    def gap(self) -> float:
        """How far the best schedule may be above the optimum of the class, as a share of the bound."""
        if self.time <= self.lower or math.isclose(self.time, self.lower, rel_tol=1e-12):
            return 0.0
        return (self.time - self.lower) / self.lower if self.lower > 0 else math.inf

    def start(self, time: float) -> None:
        """Begin with the schedule of least memory."""
        self.time, self.runs = time, self.least.runs()
        self._least_time = time

    def glance(self, slots: int) -> bool:
        """Find an early answer with few slots, in case the time runs out; `fill` forgets it."""
        ladder = Ladder.of(self.segments, self.whole.need, slots)
        rung = ladder.rung(self.room)
        table = self.table(self.room, ladder.units[rung], up=True, limit=self._limit(ladder.units[rung]))
        if table is not None:
            self.unit, self._glanced = ladder.units[rung], True
            self._take(table)
        return table is not None

    def fill(self, slots: int) -> bool:
        """Fill the tables of a number of slots; return whether they became full."""
        ladder = Ladder.of(self.segments, self.whole.need, slots)
        rung = ladder.rung(self.room)
        unit, exact = ladder.units[rung], ladder.is_exact(rung)
        limit = self._limit(unit)
        up, down = self.pair(unit, both=not exact and self.certificate, limit=limit)
        if up is None:
            return False
        if self._glanced:  # what few slots found by luck they need not find for more memory
            self.time, self.runs = self._least_time, self.least.runs()
            self.from_table = self._glanced = False
        self._take(up)
        self.unit, self.exact = unit, exact
        del up  # two tables of a long chain need twice the memory
        if exact:
            self.lower = self.time
            return True
        if self.certificate and down is None:
            self.context.report(message="filling the second table, for the bound")
            down = self.table(self.room, unit, up=False, limit=self.time if limit < math.inf else math.inf)
            if down is None:
                return True
        bounds = None if down is None else down.whole()
        del down
        if bounds is not None and bounds.best() < math.inf:
            self.lower = max(self.lower, bounds.best())
        self._descend(ladder, rung, bounds)
        return True

    def _limit(self, unit: int) -> float:
        """Return a time that the least one of the table of schedules is no more than, or else is not wanted."""
        if not is_limited(self.segments, self.room // unit):
            return math.inf
        grid = Grid.of(self.segments, self.room, unit, up=True)
        known = self._least_time if self._glanced else self.time
        return min(known, once_bound(RowLimits.of(self.segments, grid)))

    def _descend(self, ladder: Ladder, rung: int, down: WholeTimes | None) -> None:
        """Look at the largest budgets of the finer rungs, as long as they may hold a better schedule."""
        for finer in range(rung + 1, len(ladder.units)):
            room = ladder.largest(finer)
            if room < self.least.least or self.gap == 0:
                return
            if down is not None:
                row = down.grid.row(room)
                if row >= 0 and down.best(row) >= self.time:
                    return
            limit, unit = math.inf, ladder.units[finer]
            if is_limited(self.segments, room // unit):
                limit = self.time
                grid = Grid.of(self.segments, room, unit, up=True)
                if quick_bound(RowLimits.of(self.segments, grid)) > limit * (1 + SLACK):
                    continue
            table = self.table(room, unit, up=True, limit=limit)
            if table is None:
                return
            self._take(table)
            del table  # before the next one is filled

    def _take(self, table: RotorTable) -> None:
        time = table.best()
        if time <= self.time and time < math.inf:
            self.time, self.runs, self.from_table = time, table.runs(), True

    def table(self, room: int, unit: int, *, up: bool, limit: TimeLimit = math.inf) -> RotorTable | None:
        """Fill a table; None if stopped on the way."""
        grid = Grid.of(self.segments, room, unit, up=up)
        return RotorTable.of(self.segments, grid, limit=limit, stopped=lambda: self.context.stopped)

    def pair(
        self, unit: int, *, both: bool, limit: TimeLimit = math.inf
    ) -> tuple[RotorTable | None, RotorTable | None]:
        """Fill the table of schedules and, if wanted and there are threads, that of bounds at once.

        A second table that would have to wait for the first, or be very large beside it, is left out: what the first
        one says limits it more. A finite `limit` leaves both exact where they are no more than it.
        """
        small = 2 * table_bytes(self.segments, self.room // unit) <= MOST_BYTES
        if both and small and self.context.threads > 1 and self.segments.length > COMPILED_FROM:
            found: list[RotorTable | None] = []
            second = Thread(target=lambda: found.append(self.table(self.room, unit, up=False, limit=limit)))
            second.start()
            first = self.table(self.room, unit, up=True, limit=limit)
            second.join()
            return first, found[0] if found else None
        return self.table(self.room, unit, up=True, limit=limit), None


def common_measure(segments: Segments) -> int:
    """Return the common divisor of all that a segment stores or needs: nothing changes between its multiples."""
    states = segments.states
    sizes = (
        *(states.kept, states.save_need, states.backward_need, states.leaf_need),
        *(segments.activation[1:], segments.gradient, segments.first_need, segments.next_need),
    )
    return math.gcd(*(int(size) for array in sizes for size in np.unique(array)))


def table_bytes(segments: Segments, slots: int) -> int:
    """Return the bytes of a table."""
    return 8 * cells_of(segments) * (slots + 1)


def default_slots(segments: Segments) -> int:
    """Choose as many slots as cost about as much as reading the instance, at least 1000 where memory allows."""
    slots = min(20_000, max(1000, 150_000_000 // (segments.length + 1) ** 3))
    return max(8, min(slots, MOST_BYTES // table_bytes(segments, 0)))


def check_size(segments: Segments, slots: int) -> None:
    """Refuse tables that would fill the machine.

    Raises
    ------
    remat.OptionError
    """
    needed, length = table_bytes(segments, slots), segments.length
    if needed > LARGEST_BYTES:
        most = LARGEST_BYTES // table_bytes(segments, 0)
        remedy = f"give option slots={most}" if most > 1 else "use periodic"
        raise OptionError(
            f"rotor's table of {slots:,} slots for {length:,} stages takes {needed / 1e9:,.0f} GB, more "
            f"than {LARGEST_BYTES / 1e9:.0f} GB; {remedy}",
            argument="algorithm",
        )


def is_limited(segments: Segments, slots: int) -> bool:
    """Whether a table takes so long that it is filled within a limit."""
    return segments.length**3 * slots // 6 > LIMITED_FROM


def is_long(segments: Segments, slots: int) -> bool:
    """Whether a table takes so long that an early answer is wanted."""
    return segments.length**3 * slots // 6 > COARSE_FROM and slots >= 40
