"""Schedule of the time limits: based on the cost of longer fronts, and on the limits that larger memory sizes needed.

A limit is a *factor* above the relaxed chain (see `search`). The factor applies to the excess of the relaxed chain, or
to a hundredth of the time of saving everything if that is larger. A limit that is too low wastes a pass; one that is
too high makes fronts longer.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from remat_algorithms.chain.segments import COMPILED_FROM

LEAST, MOST = 1.6, 4.0
"""Minimum and maximum increase of a limit."""

LONGER = 2.5
"""Maximum increase of the work by a higher limit."""

DEAR = 15_000_000
"""Work above which a higher limit is expensive; it should not exceed this, except for the minimum increase."""

CHEAP, MODEST, SHORT = 2, 25, 100
"""Points per pair of stages up to which a pass costs the minimum, or hardly more, and the longest chain for this rule.

Longer chains count as if they had this length: their other passes are also expensive under a higher limit.
"""

TOGETHER = 1.6
"""Maximum ratio of the factors of memory sizes that are searched in one pass."""

APART, MARGIN = 1.3, 1.1
"""Minimum distance between two memory sizes that predict the factor of a third, and the margin added to it."""

BASE, SLOPES = 0.9, (0.5, 1.3)
"""Share of the minimum memory above which bytes count, and the range of the power with which factors decrease."""

LOOKED_AT = 400
"""On longer chains, computing the minimum memory takes longer than a pass, and its schedule is too high a limit."""


@dataclass
class Rising:
    """The factors of some memory sizes.

    Attributes
    ----------
    length : int
    first : float
        Initial factor of every memory size.
    least : int or None
        The minimum memory, once it is known.
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
        """Whether the minimum memory is worth its time after a first limit has failed."""
        return COMPILED_FROM < self.length <= LOOKED_AT and self.least is None and bool(self._next)

    def rooms(self, rooms: Sequence[int]) -> tuple[list[int], float]:
        """Return the next memory sizes to search, and their factor; 0 for the minimum memory with a known schedule."""
        if self.least is not None and self.least in rooms and self.length <= LOOKED_AT and not self.told:
            return [self.least], 0.0
        wanted = {room: max(self._next.get(room, self.first), self._told(room)) for room in rooms}
        lowest = min(wanted.values())
        asked = [room for room in rooms if wanted[room] <= TOGETHER * lowest]
        return asked, max(wanted[room] for room in asked)

    def failed(self, rooms: Sequence[int], asked: list[int], factor: float, work: int) -> None:
        """Record the searched memory sizes whose schedules are above the limit."""
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
        """Whether solved memory sizes predict the others."""
        return bool(self._needed)

    def settled(self, room: int, needed: float) -> None:
        """Record the factor of the fastest schedule of a memory size."""
        bisect.insort(self._settled, room)
        self._needed[room] = needed

    def _told(self, room: int) -> float:
        """Return the factor predicted by larger memory sizes: it falls with a power of the bytes above the base."""
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
