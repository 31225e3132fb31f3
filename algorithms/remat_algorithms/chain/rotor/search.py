"""Rotor's search: fronts within rising time limits, until they contain a schedule, which is then optimal.

No schedule is faster than that of the relaxed chain (see `excess_limit`), and few are much slower. The first limit is
therefore only slightly higher. Fronts within a limit are short. If they contain a schedule, it is optimal. Otherwise
the limit is a lower bound, and the next limit is higher. The last limit may be the time of a known schedule. On long
chains, that is the fastest one that recomputes each stage at most once. If nothing else is found, it is the one of
minimum memory.

Short chains need no limit. If the fronts within a limit grow too long, they are thinned: rounded up they contain a
schedule, rounded down they give a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from remat.plugin import Context, Number
from remat_algorithms.chain.minimum_memory import LeastMemory
from remat_algorithms.chain.rotor.excess_limit import UNLIMITED, Allowed, Relaxed
from remat_algorithms.chain.rotor.front import NEVER
from remat_algorithms.chain.rotor.front_table import Cells, Thin
from remat_algorithms.chain.rotor.limit_schedule import LEAST, Rising
from remat_algorithms.chain.rotor.tick_costs import Costs
from remat_algorithms.chain.rotor.traceback import Reader
from remat_algorithms.chain.rotor.work_counter import Over, Work
from remat_algorithms.chain.segments import Segments

SHORT = 24
"""Maximum number of stages of chains that are solved without a limit."""

FEW, NARROW = 40, 0.27
"""Maximum number of stages of chains solved without a limit in two cases: small memory, or a failed first limit.

Memory is small if no size exceeds this share of the need of saving everything.
"""

MANY, MANY_FROM, MANY_WORK = 8, 50, 4_000_000
"""With more memory sizes and at most this many stages, unlimited fronts answer all sizes, within this work."""

ONCE_FROM = 100
"""Number of stages above which schedules that recompute each stage at most once are searched first."""

MOST_WORK = 60_000_000
"""Maximum number of merged points (some seconds) before fronts are thinned, and then per thinned pass."""

THIN = (512, 32)
"""Maximum numbers of points of a thinned front; the second is used if the first takes too much work."""

FIRST, FIRST_OF = 0.2, 40
"""Relative excess of the first limit over the relaxed chain, and the maximum number of stages for it."""

LOOSE = 0.3
"""Relative excess of a limit over its lower bound above which the minimum memory is computed."""

SCARCE = 0.15
"""Relative excess of the relaxed chain over no recomputation above which this happens earlier."""


@dataclass
class Found:
    """Result for one memory size.

    Attributes
    ----------
    costs : Costs
        Defines the ticks of the excesses.
    lower : int
        Lower bound on the excess of every schedule; `NEVER` if none exists.
    excess : int or None
        Excess of the best schedule.
    read : callable
        Finds its runs; it keeps the fronts alive until `runs` is called.
    least : bool
        Whether the best schedule is that of minimum memory.
    """

    costs: Costs
    lower: int
    excess: int | None = None
    read: Callable[[], list[int]] = list
    least: bool = False

    @property
    def proved(self) -> bool:
        """Whether the best schedule is optimal, or infeasibility is proved."""
        return self.lower >= NEVER or (self.excess is not None and self.excess <= self.lower)

    @property
    def uses_capped(self) -> bool:
        """Whether the best schedule may use options whose time is capped."""
        return self.costs.capped and self.excess is not None and self.excess + self.costs.whole >= self.costs.cap

    def runs(self) -> list[int]:
        """Return the runs of the best schedule; read from the fronts once, which are then released."""
        runs = self.read()
        self.read = lambda: runs
        return runs

    def take(self, excess: int, read: Callable[[], list[int]], *, least: bool = False) -> bool:
        """Accept a better schedule, or one that equals that of minimum memory; return whether it is accepted."""
        if self.excess is not None and (self.excess, self.least) <= (excess, least):
            return False
        self.excess, self.read, self.least = excess, read, least
        return True


@dataclass
class Search:
    """Search for the fastest schedules of a chain within some memory sizes (bytes beyond x_0).

    Attributes
    ----------
    least, time_of : callable
        Return the minimum-memory table, and the time of some runs.
    gap : float or None
        Share of the bound within which a schedule is good enough.
    found : dict
        By memory size.
    work : int
        Points that were merged.
    """

    segments: Segments
    costs: Costs
    rooms: Sequence[int]
    context: Context
    least: Callable[[], LeastMemory]
    time_of: Callable[[Sequence[int]], Number]
    gap: float | None = None
    report: Callable[[Found], None] = lambda found: None
    found: dict[int, Found] = field(default_factory=dict)
    work: int = 0
    _factor: float = 0.0

    def go(self) -> None:
        """Search until all results are proved or good enough, or the context is stopped."""
        largest = max(self.rooms)
        length = self.segments.length
        self.found = {room: Found(self.costs, -self.costs.whole) for room in self.rooms}
        narrow = length <= FEW and largest <= NARROW * self.segments.states.whole().need
        if length <= SHORT or narrow or (length <= MANY_FROM and len(self.rooms) > MANY):
            self._whole(self.rooms, float("inf") if length <= SHORT else MANY_WORK)
        if self._open() and not self.context.stopped:
            with suppress(Over):
                relaxed = self._relaxed(largest)
                for room, found in self.found.items():
                    found.lower = relaxed.least(room)
                with suppress(Over):
                    self._rise(relaxed)
                if self._open() and not self.context.stopped:
                    self._thin(relaxed)
        if any(found.excess is None and not found.proved for found in self.found.values()):
            self._least()

    def _whole(self, rooms: Sequence[int], most: float) -> None:
        """Fill the fronts without a time limit, if the work is at most `most`."""
        with suppress(Over):
            table = self._fill(Allowed.all(self.segments, max(rooms)), most=most)
            self._take(table, dict.fromkeys(rooms, UNLIMITED), exact=True)

    def _relaxed(self, room: int) -> Relaxed:
        return Relaxed.of(self.segments, self.costs, room, Work(stopped=self._stopped))

    def _open(self) -> list[int]:
        """Return the memory sizes without a final result."""
        return [room for room, found in self.found.items() if not found.proved and not self._near(found)]

    def _near(self, found: Found) -> bool:
        if self.gap is None or found.excess is None:
            return False
        lower = self.costs.whole + found.lower
        return found.excess - found.lower <= self.gap * lower

    def _rise(self, relaxed: Relaxed) -> None:
        """Raise the limits until each memory size has its schedule, or the work limit is reached."""
        looked, whole, spent, length = False, self.segments.length > FEW, 0, self.segments.length
        # A first limit that costs little more than a lower one: closer for longer chains.
        rising = Rising(length, max(min(FIRST, FIRST * (FIRST_OF / length) ** 2), 0.001))
        while (rooms := self._open()) and not self.context.stopped:
            asked, factor = rising.rooms(rooms)
            scarce = rising.looks and relaxed.least(min(rooms)) > SCARCE * self.costs.whole
            if not looked and (factor > LOOSE or scarce):
                looked = True
                self._least()
                rising.least = self.least().least
                continue
            if max(asked) != relaxed.room:  # smaller bins describe the surroundings of segments more precisely
                relaxed = self._relaxed(max(asked))
            self._factor, done = factor or self._factor, self.work
            slack = self._limits(relaxed, asked, known=not factor)
            nothing = not any(self._known(room) for room in asked)
            once = nothing and length > ONCE_FROM and 0 < factor <= LOOSE and not rising.told
            if once:
                slack = self._lowered(relaxed, slack)
            left = MOST_WORK - spent - (self.work - done)
            if left < 0:
                raise Over
            self._take(self._fill(self._allowed(relaxed, slack), most=left), slack, exact=True)
            failed = [room for room in self._open() if room in slack]
            # Memory sizes that each take much work do not count against each other.
            spent = 0 if len(failed) < len(asked) else spent + self.work - done
            for room in asked:
                excess = self.found[room].excess
                if room not in failed and excess is not None:
                    own = relaxed.least(room)
                    rising.settled(room, (excess - own) / self._unit(own))
            rising.failed(failed, asked, self._factor, self.work - done)
            if not whole and (rooms := self._open()):
                whole = True
                self._whole(rooms, MANY_WORK)

    def _known(self, room: int) -> bool:
        """Whether a schedule other than that of minimum memory is known."""
        found = self.found[room]
        return found.excess is not None and not found.least

    def _unit(self, own: int) -> float:
        """Return the base of a factor, given the excess of the relaxed chain."""
        return max(own, self.costs.whole / 100, 1)

    def _lowered(self, relaxed: Relaxed, slack: dict[int, int]) -> dict[int, int]:
        """Lower limits to the schedules within them that recompute each stage at most once."""
        if not self._take(self._once(relaxed, slack), slack, exact=False):
            return slack
        return {room: min(limit, self.found[room].excess or limit) for room, limit in slack.items()}

    def _once(self, relaxed: Relaxed, slack: dict[int, int]) -> Cells:
        """Recompute each stage at most once, with thinned fronts if they grow too long."""
        allowed = self._allowed(relaxed, slack, deep=False)
        try:
            return self._fill(allowed, once=True, most=MOST_WORK // 4)
        except Over:
            if self.context.stopped:
                raise
            return self._thinned(allowed, once=True)

    def _thin(self, relaxed: Relaxed) -> None:
        """Find schedules, and then bounds, with thinned fronts."""
        rooms = self._open()
        once = self.segments.length > ONCE_FROM and not any(self._known(room) for room in rooms)
        if once:  # the search within the last limit failed
            self._factor *= LEAST
        better = not rooms
        while not better:
            limits = self._limits(relaxed, rooms)
            if once and not any(self._known(room) for room in rooms):
                limits = self._lowered(relaxed, limits)
            if any(self.found[room].excess is None for room in rooms):
                self._least()
            allowed = self._allowed(relaxed, limits)
            better = self._take(self._thinned(allowed), limits, exact=False)
            self._factor *= LEAST
            if all(self.found[room].excess == limit for room, limit in limits.items()):
                break
        known = {room: excess for room in self._open() if (excess := self.found[room].excess) is not None}
        if known:
            allowed = self._allowed(relaxed, known)
            need, times = self._thinned(allowed, up=False).whole
            for room, limit in known.items():
                at = int(need.searchsorted(room, side="right")) - 1
                self.found[room].lower = max(self.found[room].lower, limit if at < 0 else min(limit, int(times[at])))

    def _thinned(self, allowed: Allowed, *, up: bool = True, once: bool = False) -> Cells:
        """Fill the table with thinned fronts, with as many points as the work allows."""
        for most in THIN[:-1]:
            try:
                return self._fill(allowed, thin=Thin(most, up=up), once=once, most=MOST_WORK)
            except Over:
                if self.context.stopped:
                    raise
        return self._fill(allowed, thin=Thin(THIN[-1], up=up), once=once, most=MOST_WORK)

    def _limits(self, relaxed: Relaxed, rooms: Sequence[int], *, known: bool = False) -> dict[int, int]:
        """Return the next limits by memory size, at most the known schedules (or, if `known`, exactly these)."""
        limits = {}
        for room in rooms:
            own, found = relaxed.least(room), self.found[room]
            limit = UNLIMITED if known else own + max(1, round(self._factor * self._unit(own)))
            limit = max(limit, found.lower + 1)
            limits[room] = limit if found.excess is None else min(limit, found.excess)
        return limits

    def _allowed(self, relaxed: Relaxed, slack: dict[int, int], *, deep: bool = True) -> Allowed:
        return Allowed.within(relaxed, slack, Work(stopped=self._stopped), deep=deep)

    def _fill(
        self, allowed: Allowed, *, thin: Thin | None = None, once: bool = False, most: float = float("inf")
    ) -> Cells:
        work = Work(most, self._stopped)
        try:
            return Cells.of(self.segments, self.costs, allowed, work, thin=thin, once=once)
        finally:
            self.work += work.done

    def _stopped(self) -> bool:
        return self.context.stopped

    def _take(self, table: Cells, slack: dict[int, int], *, exact: bool) -> bool:
        """Accept the results of a table; exact tables prove that nothing else is within the slack."""
        need, excess = table.whole
        reader, better = Reader(table), False
        for room, limit in slack.items():
            found, at = self.found[room], int(need.searchsorted(room, side="right")) - 1
            own = int(excess[at]) if at >= 0 else NEVER
            if exact:
                found.lower = max(found.lower, own if own <= limit else NEVER if limit >= UNLIMITED else limit + 1)
            if at >= 0 and found.take(own, partial(reader.runs, room)):
                better = True
                reader.rooms.append(room)
                self.report(found)
        return better

    def _least(self) -> None:
        """Consider the schedule of minimum memory; if it does not fit, nothing does."""
        least = self.least()
        runs = least.runs()
        for room, found in self.found.items():
            if least.least <= room:
                found.take(self.costs.excess(self.time_of(runs)), lambda: runs, least=True)
            elif least.exact:
                found.lower = NEVER
