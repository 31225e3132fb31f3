"""Rotor's search: fronts within limits that rise until they hold a schedule, which is then the quickest.

No schedule is quicker than that of the relaxed chain (see `allowed`), and few are much slower: so the first limit is
only a little above. Fronts within a limit are short; where they hold a schedule, it is optimal, and where they do not,
the limit is a lower bound, and the next one is higher. The last limit may be a schedule that is known already: on long
chains the quickest that recomputes each stage at most once, and where nothing else is found, that of least memory.

Short chains need no limit. Where the fronts within a limit have grown too long, they are thinned: rounded up they hold
a schedule, rounded down a bound.
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
"""Chains of up to so many stages are solved without a limit."""

FEW, NARROW = 40, 0.27
"""So are those of so many, where no room is more than this share of what saving all needs, or the first limit fails."""

MANY, MANY_FROM, MANY_WORK = 8, 50, 4_000_000
"""Where there are more rooms, and no more stages, fronts without a limit answer all of them, in so much work."""

ONCE_FROM = 100
"""On longer chains, a schedule that recomputes each stage at most once is looked for first."""

MOST_WORK = 60_000_000
"""Points that are merged (some seconds' worth) before fronts are thinned, and then by each thinned pass."""

THIN = (512, 32)
"""Most points of a thinned front; of the shorter ones where the longer ones are too much work."""

FIRST, FIRST_OF = 0.2, 40
"""Share by which the first limit is above the relaxed chain, up to so many stages."""

LOOSE = 0.3
"""Share by which a limit may be above its lower bound before the least memory is looked at."""

SCARCE = 0.15
"""Share of the time without recomputation which the relaxed chain must exceed for that to be looked at sooner."""


@dataclass
class Found:
    """What is known of one room.

    Attributes
    ----------
    costs : Costs
        In whose ticks the excesses are.
    lower : int
        Excess below which there is no schedule; `NEVER` where there is none at all.
    excess : int or None
        Of the best schedule.
    read : callable
        Finds its runs; the fronts are kept for it until `runs` asks.
    least : bool
        Whether the best schedule is that of least memory.
    """

    costs: Costs
    lower: int
    excess: int | None = None
    read: Callable[[], list[int]] = list
    least: bool = False

    @property
    def proved(self) -> bool:
        """Whether the best schedule is optimal, or there is none."""
        return self.lower >= NEVER or (self.excess is not None and self.excess <= self.lower)

    @property
    def uses_capped(self) -> bool:
        """Whether the best schedule may use ways that count as less than they take."""
        return self.costs.capped and self.excess is not None and self.excess + self.costs.whole >= self.costs.cap

    def runs(self) -> list[int]:
        """Return the runs of the best schedule: read off the fronts once, which are not kept then."""
        runs = self.read()
        self.read = lambda: runs
        return runs

    def take(self, excess: int, read: Callable[[], list[int]], *, least: bool = False) -> bool:
        """Take a schedule over if it is better, or as good as that of least memory; return whether it is."""
        if self.excess is not None and (self.excess, self.least) <= (excess, least):
            return False
        self.excess, self.read, self.least = excess, read, least
        return True


@dataclass
class Search:
    """The search for the quickest schedules of a chain within some rooms (bytes beyond x_0).

    Attributes
    ----------
    least, time_of : callable
        Give the table of least memory, and the time of some runs.
    gap : float or None
        Share of the bound within which a schedule is good enough.
    found : dict
        By room.
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
    _work: int = 0
    _factor: float = 0.0

    def go(self) -> None:
        """Search until all is proved, or good enough, or the context is stopped."""
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
        """Fill the fronts without a limit on the time, if that is no more work than `most`."""
        with suppress(Over):
            table = self._fill(Allowed.all(self.segments, max(rooms)), most=most)
            self._take(table, dict.fromkeys(rooms, UNLIMITED), exact=True)

    def _relaxed(self, room: int) -> Relaxed:
        return Relaxed.of(self.segments, self.costs, room, Work(stopped=self._stopped))

    def _open(self) -> list[int]:
        """Return the rooms that are not settled."""
        return [room for room, found in self.found.items() if not found.proved and not self._near(found)]

    def _near(self, found: Found) -> bool:
        if self.gap is None or found.excess is None:
            return False
        lower = self.costs.whole + found.lower
        return found.excess - found.lower <= self.gap * lower

    def _rise(self, relaxed: Relaxed) -> None:
        """Raise the limits until each room has its schedule, or the work is done."""
        looked, whole, spent, length = False, self.segments.length > FEW, 0, self.segments.length
        # A first limit that costs little more than a lower one would: the longer the chain, the nearer.
        rising = Rising(length, max(min(FIRST, FIRST * (FIRST_OF / length) ** 2), 0.001))
        while (rooms := self._open()) and not self.context.stopped:
            asked, factor = rising.rooms(rooms)
            scarce = rising.looks and relaxed.least(min(rooms)) > SCARCE * self.costs.whole
            if not looked and (factor > LOOSE or scarce):
                looked = True
                self._least()
                rising.least = self.least().least
                continue
            if max(asked) != relaxed.room:  # what surrounds segments is told in finer bins of the rooms
                relaxed = self._relaxed(max(asked))
            self._factor, done = factor or self._factor, self._work
            slack = self._limits(relaxed, asked, known=not factor)
            nothing = not any(self._known(room) for room in asked)
            once = nothing and length > ONCE_FROM and 0 < factor <= LOOSE and not rising.told
            if once:
                slack = self._lowered(relaxed, slack)
            left = MOST_WORK - spent - (self._work - done)
            if left < 0:
                raise Over
            self._take(self._fill(self._allowed(relaxed, slack), most=left), slack, exact=True)
            failed = [room for room in self._open() if room in slack]
            # Rooms that take much work each are not given up for one another.
            spent = 0 if len(failed) < len(asked) else spent + self._work - done
            for room in asked:
                excess = self.found[room].excess
                if room not in failed and excess is not None:
                    own = relaxed.least(room)
                    rising.settled(room, (excess - own) / self._unit(own))
            rising.failed(failed, asked, self._factor, self._work - done)
            if not whole and (rooms := self._open()):
                whole = True
                self._whole(rooms, MANY_WORK)

    def _known(self, room: int) -> bool:
        """Whether a schedule is known that is not the one of least memory."""
        found = self.found[room]
        return found.excess is not None and not found.least

    def _unit(self, own: int) -> float:
        """Return what a factor is of, given the excess of the relaxed chain."""
        return max(own, self.costs.whole / 100, 1)

    def _lowered(self, relaxed: Relaxed, slack: dict[int, int]) -> dict[int, int]:
        """Lower limits to the schedules within them that recompute each stage at most once."""
        if not self._take(self._once(relaxed, slack), slack, exact=False):
            return slack
        return {room: min(limit, self.found[room].excess or limit) for room, limit in slack.items()}

    def _once(self, relaxed: Relaxed, slack: dict[int, int]) -> Cells:
        """Recompute each stage at most once; with thinned fronts where these grow too long, too."""
        allowed = self._allowed(relaxed, slack, deep=False)
        try:
            return self._fill(allowed, once=True, most=MOST_WORK // 4)
        except Over:
            if self.context.stopped:
                raise
            return self._thinned(allowed, once=True)

    def _thin(self, relaxed: Relaxed) -> None:
        """Find schedules, then bounds, with thinned fronts."""
        rooms = self._open()
        once = self.segments.length > ONCE_FROM and not any(self._known(room) for room in rooms)
        if once:  # within the last limit it has been looked for in vain
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
        """Fill the table with thinned fronts, of as many points as there is work for."""
        for most in THIN[:-1]:
            try:
                return self._fill(allowed, thin=Thin(most, up=up), once=once, most=MOST_WORK)
            except Over:
                if self.context.stopped:
                    raise
        return self._fill(allowed, thin=Thin(THIN[-1], up=up), once=once, most=MOST_WORK)

    def _limits(self, relaxed: Relaxed, rooms: Sequence[int], *, known: bool = False) -> dict[int, int]:
        """Return the next limits, by room: at most (or, if that is wanted, just) the schedules that are known."""
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
            self._work += work.done

    def _stopped(self) -> bool:
        return self.context.stopped

    def _take(self, table: Cells, slack: dict[int, int], *, exact: bool) -> bool:
        """Take over what a table holds; exact ones say that there is nothing else within the slack."""
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
        """Let the schedule of least memory compete; where it does not fit, nothing does."""
        least = self.least()
        runs = least.runs()
        for room, found in self.found.items():
            if least.least <= room:
                found.take(self.costs.excess(self.time_of(runs)), lambda: runs, least=True)
            elif least.exact:
                found.lower = NEVER
