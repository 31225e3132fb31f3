"""How far limits rise: by what longer fronts cost, and by what larger rooms have needed.

A limit is a *factor* above the relaxed chain (see `search`): of its excess, or of a hundredth of the time that saving
all takes where that is more. One that is too low costs a pass in vain, one that is too high makes fronts longer.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from remat_algorithms.chain.segments import COMPILED_FROM

LEAST, MOST = 1.6, 4.0
"""By how much a limit rises at least and at most."""

LONGER = 2.5
"""Times as much work as before that a higher limit may make."""

DEAR = 15_000_000
"""Work beyond which a higher limit is dear: it should not make more than that, but for the least rise."""

CHEAP, MODEST, SHORT = 2, 25, 100
"""Points for each pair of stages up to which a pass costs what any does, and up to which hardly more; of chains longer
than so many stages, as if they were no longer: they have passes of other kinds, too, which a limit makes dear."""

TOGETHER = 1.6
"""Rooms whose factors differ by no more than this are asked about in one pass."""

APART, MARGIN = 1.3, 1.1
"""Of two rooms that tell a third one's factor, how far they are from each other, and what is added to it."""

BASE, SLOPES = 0.9, (0.5, 1.3)
"""Share of the least memory beyond which bytes count, and the least and most power of them with which factors fall."""

LOOKED_AT = 400
"""In longer chains, finding the least memory takes longer than a pass, and its schedule is too high a limit."""


@dataclass
class Rising:
    """The factors of some rooms.

    Attributes
    ----------
    length : int
    first : float
        The first factor of every room.
    least : int or None
        The least memory, once it is known.
    """

    length: int
    first: float
    least: int | None = None
    _next: dict[int, float] = field(default_factory=dict[int, float])
    _settled: list[int] = field(default_factory=list[int])
    _needed: dict[int, float] = field(default_factory=dict[int, float])
    _last: tuple[list[int], float, int] = field(default_factory=lambda: ([], 0.0, 0))

    @property
    def looks(self) -> bool:
        """Whether the least memory is worth its time once a first limit has failed."""
        return COMPILED_FROM < self.length <= LOOKED_AT and self.least is None and bool(self._next)

    def rooms(self, rooms: Sequence[int]) -> tuple[list[int], float]:
        """Return the rooms to ask about next, and their factor; 0 for the least memory, whose schedule is known."""
        if self.least is not None and self.least in rooms and self.length <= LOOKED_AT and not self.told:
            return [self.least], 0.0
        wanted = {room: max(self._next.get(room, self.first), self._told(room)) for room in rooms}
        lowest = min(wanted.values())
        asked = [room for room in rooms if wanted[room] <= TOGETHER * lowest]
        return asked, max(wanted[room] for room in asked)

    def failed(self, rooms: Sequence[int], asked: list[int], factor: float, work: int) -> None:
        """Take note of the rooms, of those that were asked about, whose schedules are above the limit."""
        before, lower, less = self._last
        rise = LEAST
        if before == asked and work > less > 0 and factor > lower:
            power = math.log(work / less) / math.log(factor / lower)
            rise = min(MOST, max(LEAST, min(LONGER, DEAR / work) ** (1 / power)))
        elif before == asked and work <= less:
            rise = MOST
        pairs = min(self.length, SHORT) ** 2
        rise = MOST if work < CHEAP * pairs else max(rise, LONGER) if work < MODEST * pairs else rise
        self._last = asked, factor, work
        for room in rooms:
            self._next[room] = rise * factor

    @property
    def told(self) -> bool:
        """Whether rooms that have their schedules tell about the others."""
        return bool(self._needed)

    def settled(self, room: int, needed: float) -> None:
        """Take note of the factor that a room's quickest schedule is at."""
        bisect.insort(self._settled, room)
        self._needed[room] = needed

    def _told(self, room: int) -> float:
        """Return the factor that larger rooms tell: falling with a power of the bytes beyond most of the least ones."""
        near = bisect.bisect_right(self._settled, room)
        if self.least is None or near == len(self._settled):
            return 0.0
        base = BASE * self.least
        beyond = self._settled[near] - base
        far = bisect.bisect_left(self._settled, base + APART * beyond)
        if far in (near, len(self._settled)):
            return 0.0
        factor, less = (self._needed[self._settled[place]] for place in (near, far))
        if min(factor, less) <= 0:
            return 0.0
        power = math.log(factor / less) / math.log((self._settled[far] - base) / beyond)
        fallen: float = (beyond / max(1, room - base)) ** min(max(power, SLOPES[0]), SLOPES[1])
        return MARGIN * factor * fallen
